// SPDX-License-Identifier: Apache-2.0
//! The DualQ paper's campaign: rates x RTTs with one Prague and one CUBIC, and flow mixes, without and with short
//! flows. L median at most max(300 us, 2 packets), p99 at most max(2 ms, 3 packets), utilisation at least 98 %, no
//! loss in L where rate * (RTT + 15 ms) / flows is at least 4 packets. PIE with ECN-CUBIC and FQ-CoDel stand beside.

use serde::Deserialize;

use super::super::band::Band;
use super::super::case::{Case, Cell, Setup, WebSetup, key, text};
use super::super::quantity::{Quantity, Queue, Stat};
use super::{DataError, PACKET_BITS, both, case, default_cells, delay, packets_ms, ratio, read};

const NO_VALUE: &str = "the paper's figures could not be recovered";
const TOO_FEW: &str = "rate * (RTT + 15 ms) / flows is under 4 packets: a window cannot shrink to its share";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    source: String,
    pub(super) rates_mbps: Vec<f64>,
    pub(super) rtts_ms: Vec<f64>,
    pub(super) mixes: Vec<[u32; 2]>,
    pub(super) mix_links: Vec<[f64; 2]>,
    web: Web,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Web {
    arrivals_per_s_at_40_mbps: f64,
    shape: f64,
    min_bytes: u64,
    max_bytes: u64,
}

/// One point of the campaign.
struct Point<'a> {
    file: &'a File,
    name: String,
    mbps: f64,
    rtt_ms: f64,
    /// Scalable and classic flows.
    flows: [u32; 2],
    web: bool,
}

pub(super) fn file() -> Result<File, DataError> {
    read("grid.toml", include_str!("../../../paper/grid.toml"))
}

pub(super) fn cases() -> Result<Vec<Case>, DataError> {
    let file = file()?;
    let mut cases = Vec::new();
    for (web, kind) in [(false, "long"), (true, "web")] {
        for &mbps in &file.rates_mbps {
            for &rtt_ms in &file.rtts_ms {
                let name = format!("grid/{kind}/{mbps}x{rtt_ms}");
                let point = Point { file: &file, name, mbps, rtt_ms, flows: [1, 1], web };
                cases.extend(point.cases());
            }
        }
        for &[mbps, rtt_ms] in &file.mix_links {
            for &flows in &file.mixes {
                let name = format!("mix/{kind}/{mbps}x{rtt_ms}/s{}d{}", flows[0], flows[1]);
                cases.extend(Point { file: &file, name, mbps, rtt_ms, flows, web }.cases());
            }
        }
    }
    Ok(cases)
}

impl Point<'_> {
    fn cases(&self) -> Vec<Case> {
        let dualpi2 = self.setup("prague", "prague", &[]).profile(&["aqm = \"dualpi2\""]);
        let [scalable, classic] = self.flows;
        let rates = (scalable > 0 && classic > 0).then_some(("prague", "cubic", None));
        let default = default_cells(self.mbps, scalable > 0, None, rates);
        let mut cases = both(&self.name, &self.file.source, &dualpi2, self.cells(), default).to_vec();
        let pie = ["aqm = \"pie\"", "target_us = 15000", "tupdate_us = 16000", "ecn = true"];
        let fq = ["aqm = \"fq_codel\"", "limit_packets = 10240"];
        for (aqm, profile) in [("pie", pie.as_slice()), ("fq_codel", fq.as_slice())] {
            let setup = self.setup("ecn-cubic", "cubic", &[text("ecn", "ect0")]).profile(profile);
            cases.push(case(format!("{}/{aqm}", self.name), &self.file.source, setup, self.comparison()));
        }
        cases
    }

    fn setup(&self, label: &str, cc: &str, more: &[String]) -> Setup {
        // long round trips take long to settle
        let (duration, warmup) = if self.rtt_ms < 50.0 { (60, 20) } else { (100, 40) };
        let mut setup = Setup::new(self.mbps, duration, warmup)
            .flows(label, cc, self.flows[0], self.rtt_ms, more)
            .flows("cubic", "cubic", self.flows[1], self.rtt_ms, &[]);
        if self.web {
            setup.web.push(self.web(cc, more));
            setup.web.push(self.web("cubic", &[]));
        }
        setup
    }

    fn web(&self, cc: &str, more: &[String]) -> WebSetup {
        let Web { arrivals_per_s_at_40_mbps, shape, min_bytes, max_bytes } = self.file.web;
        let size = format!(
            "{{ pareto = {{ shape = {shape:?}, min_bytes = {min_bytes}, max_bytes = {max_bytes} }} }}"
        );
        let mut keys = more.to_vec();
        keys.push(key("size", size));
        let arrivals_per_s = arrivals_per_s_at_40_mbps * self.mbps / 40.0;
        WebSetup { cc: cc.to_owned(), rtt_ms: self.rtt_ms, arrivals_per_s, more: keys }
    }

    fn cells(&self) -> Vec<Cell> {
        let [scalable, classic] = self.flows;
        let mut cells = vec![Cell::new(Quantity::Utilisation, None, Band::AtLeast(98.0))];
        if scalable > 0 {
            let bound = |least: f64, packets: f64| Band::AtMost(least.max(packets_ms(packets, self.mbps)));
            let share = self.mbps * 1e3 * (self.rtt_ms + 15.0) / f64::from(scalable + classic) / PACKET_BITS;
            let loss = if share >= 4.0 { Band::AtMost(0.0) } else { Band::reported(TOO_FEW) };
            cells.extend([
                Cell::new(delay(Queue::L4s, Stat::P50), None, bound(0.3, 2.0)),
                Cell::new(delay(Queue::L4s, Stat::P99), None, bound(2.0, 3.0)),
                Cell::new(Quantity::Dropped(Queue::L4s), None, loss),
            ]);
        }
        if scalable > 0 && classic > 0 {
            cells.push(Cell::reported(ratio("prague", "cubic"), None, NO_VALUE));
        }
        if classic > 0 {
            cells.push(Cell::reported(delay(Queue::Classic, Stat::Mean), None, NO_VALUE));
            cells.push(Cell::reported(delay(Queue::Classic, Stat::P99), None, NO_VALUE));
        }
        if self.web {
            cells.push(Cell::reported(Quantity::WebP99("prague".to_owned()), None, NO_VALUE));
            cells.push(Cell::reported(Quantity::WebP99("cubic".to_owned()), None, NO_VALUE));
        }
        cells
    }

    fn comparison(&self) -> Vec<Cell> {
        let mut quantities =
            vec![Quantity::Utilisation, delay(Queue::Classic, Stat::P50), delay(Queue::Classic, Stat::P99)];
        if self.flows[0] > 0 && self.flows[1] > 0 {
            quantities.push(ratio("ecn-cubic", "cubic"));
        }
        if self.web {
            quantities.push(Quantity::WebP99("cubic".to_owned()));
        }
        quantities
            .into_iter()
            .map(|quantity| Cell::reported(quantity, None, "stands beside for comparison"))
            .collect()
    }
}
