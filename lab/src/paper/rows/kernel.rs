// SPDX-License-Identifier: Apache-2.0
//! The Linux kernel's own qdiscs. Rates within 20 %, delay means within 30 %, marks and drops within 40 %.
//!
//! Figures of the rows are by flow, ours of dualpi2 by queue: the same, as each queue carries one kind of flow (where
//! UDP shares L, the row's two means are weighted by their rates). With one queue for all, a flow's delay is its mean
//! smoothed round-trip time less the base and one packet's time on the wire.

use serde::Deserialize;

use super::super::band::Band;
use super::super::case::{Case, Cell, Setup, bps, key, text};
use super::super::quantity::{Quantity, Queue, Stat};
use super::{DataError, NO_BAND, both, case, default_cells, delay, packets_ms, read};

const RATE: Band = Band::relative(0.2);
const MEAN: Band = Band::relative(0.3);
const PROBABILITY: Band = Band::relative(0.4);
const CONTROL: &str = "no L flow in this row: what it shows is the control connection's";
/// iperf3's UDP payload and packet.
const UDP_PAYLOAD: f64 = 1460.0;
const UDP_PACKET: f64 = 1502.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    source: String,
    pub(super) rows: Vec<Row>,
}

/// Rate, %, then the queue: mean, p50, p99, max.
type Figures = [f64; 6];

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Row {
    pub(super) run: String,
    pub(super) q: String,
    rate_mbps: f64,
    rtt_l_ms: f64,
    rtt_c_ms: f64,
    nl: u32,
    nc: u32,
    ccl: String,
    udp_mbps: f64,
    ecnc: bool,
    /// Senders paced by the fq qdisc: ours know no such switch.
    fq: bool,
    /// Which shaper stood above the qdisc: ours is always the engine's.
    shaper: String,
    qopt: String,
    l: Option<Figures>,
    c: Option<Figures>,
    marks: Option<[u64; 2]>,
    udp: Option<[f64; 3]>,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            run: String::new(),
            q: "dualpi2".to_owned(),
            rate_mbps: 50.0,
            rtt_l_ms: 20.0,
            rtt_c_ms: 20.0,
            nl: 1,
            nc: 1,
            ccl: "dctcp1".to_owned(),
            udp_mbps: 0.0,
            ecnc: false,
            fq: false,
            shaper: "htb".to_owned(),
            qopt: String::new(),
            l: None,
            c: None,
            marks: None,
            udp: None,
        }
    }
}

pub(super) fn file() -> Result<File, DataError> {
    read("kernel.toml", include_str!("../../../paper/kernel.toml"))
}

pub(super) fn cases() -> Result<Vec<Case>, DataError> {
    let file = file()?;
    Ok(file.rows.iter().flat_map(|row| row.cases(&file)).collect())
}

impl Row {
    fn cases(&self, file: &File) -> Vec<Case> {
        let name = format!("kernel/{}/{}", self.q, self.run);
        if self.q != "dualpi2" {
            return vec![case(name, &file.source, self.setup(), self.cells())];
        }
        let rates = [self.l, self.c, self.udp.map(|[mbps, ..]| [mbps, 0.0, 0.0, 0.0, 0.0, 0.0])];
        let sum: f64 = rates.iter().flatten().map(|figures| figures[0]).sum();
        let ratio = match (self.l, self.c) {
            (Some(l), Some(c)) if self.nl > 0 && self.nc > 0 => {
                Some(("l", "c", Some(l[0] / f64::from(self.nl) / (c[0] / f64::from(self.nc)))))
            }
            _ => None,
        };
        let l4s = (self.nl > 0 && self.ccl != "dctcp") || self.udp_mbps > 0.0;
        let default = default_cells(self.rate_mbps, l4s, Some(sum / self.rate_mbps * 100.0), ratio);
        both(&name, &file.source, &self.setup(), self.cells(), default).to_vec()
    }

    fn setup(&self) -> Setup {
        let (cc, l) = match self.ccl.as_str() {
            "praguel" => ("prague", vec![key("rtt_independence", false)]),
            "dctcp" => ("dctcp", vec![text("ecn", "ect0")]),
            _ => ("dctcp", vec![text("ecn", "ect1")]),
        };
        let c = [text("ecn", if self.ecnc { "ect0" } else { "not_ect" })];
        let offered = bps(self.udp_mbps * UDP_PACKET / UDP_PAYLOAD);
        let udp = [key("rate_bps", offered), key("packet_bytes", UDP_PACKET), text("ecn", "ect1")];
        let mut setup = Setup::new(self.rate_mbps, 40, 10)
            .profile(self.profile())
            .flows("l", cc, self.nl, self.rtt_l_ms, &l)
            .flows("c", "cubic", self.nc, self.rtt_c_ms, &c)
            .flows("udp", "udp", u32::from(self.udp_mbps > 0.0), self.rtt_l_ms, &udp);
        if self.q == "pfifo" {
            setup.link.push(key("buffer_packets", 250));
        }
        setup
    }

    fn profile(&self) -> &'static [&'static str] {
        match (self.q.as_str(), self.qopt.as_str()) {
            ("dualpi2", "step_thresh,500us") => &["aqm = \"dualpi2\"", "step_us = 500"],
            ("dualpi2", "target,5ms") => &["aqm = \"dualpi2\"", "target_us = 5000"],
            ("dualpi2", _) => &["aqm = \"dualpi2\""],
            ("pie", "ecn") => &["aqm = \"pie\"", "limit_packets = 1000"],
            ("pie", _) => &["aqm = \"pie\"", "limit_packets = 1000", "ecn = false"],
            ("codel", _) => &["aqm = \"codel\"", "limit_packets = 1000", "ecn = false"],
            ("fq_codel", "") => &["aqm = \"fq_codel\"", "limit_packets = 10240"],
            ("fq_codel", _) => &[
                "aqm = \"fq_codel\"",
                "limit_packets = 10240",
                "ce_threshold_us = 1000",
                "ce_threshold_l4s = true",
            ],
            ("cake", _) => &["aqm = \"cake\""],
            _ => &["aqm = \"fifo\""],
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        let labels = [("l", self.l), ("c", self.c)];
        for (label, figures) in labels {
            let Some(figures) = figures else { continue };
            let ratio = match label {
                "l" => Quantity::MarkedOf("l".to_owned()),
                _ => Quantity::DroppedOf("c".to_owned()),
            };
            let (mean, p99) = self.delays(label, figures);
            let judged = [
                (Quantity::Total(label.to_owned(), 1.0), figures[0], RATE),
                (ratio, figures[1], PROBABILITY),
                (mean.0, mean.1, MEAN),
            ];
            cells.extend(judged.map(|(quantity, published, band)| {
                let band = if label == "l" && self.nl == 0 { Band::reported(CONTROL) } else { band };
                Cell::new(quantity, Some(published), band)
            }));
            cells.extend(p99.map(|quantity| Cell::reported(quantity, Some(figures[4]), NO_BAND)));
        }
        if let Some([mbps, marked, mean]) = self.udp {
            cells.push(Cell::new(Quantity::Total("udp".to_owned(), 1.0), Some(mbps), RATE));
            cells.push(Cell::new(Quantity::MarkedOf("udp".to_owned()), Some(marked), PROBABILITY));
            if self.nl == 0 {
                cells.push(Cell::new(delay(Queue::L4s, Stat::Mean), Some(mean), MEAN));
            }
        }
        cells
    }

    /// What the mean is measured by, its published value, and what the p99 is measured by.
    fn delays(&self, label: &str, figures: Figures) -> ((Quantity, f64), Option<Quantity>) {
        let by_queue = match label {
            "l" if self.q == "dualpi2" && self.ccl != "dctcp" && self.nl > 0 => Some(Queue::L4s),
            "c" if self.nl == 0 || (self.q == "dualpi2" && self.ccl != "dctcp") => Some(Queue::Classic),
            _ => None,
        };
        let Some(queue) = by_queue else {
            let rtt = if label == "l" { self.rtt_l_ms } else { self.rtt_c_ms };
            let base = rtt + packets_ms(1.0, self.rate_mbps);
            return ((Quantity::QueueOf(label.to_owned(), base), figures[2]), None);
        };
        let mean = match (queue, self.udp) {
            (Queue::L4s, Some([mbps, _, mean])) => {
                (figures[0] * figures[2] + mbps * mean) / (figures[0] + mbps)
            }
            _ => figures[2],
        };
        ((delay(queue, Stat::Mean), mean), Some(delay(queue, Stat::P99)))
    }
}
