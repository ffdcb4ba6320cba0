// SPDX-License-Identifier: Apache-2.0
//! The critics' runs: RTT fairness (S1) and bursts. Their Prague had no RTT independence.
//!
//! The issue names no bands for them. Rate ratios get the 30 % of the mixed-RTT rows, single rates the 20 % of the
//! kernel rows, fq_codel the bound that was published (Jain at least 0.964). A video call of 2.3 Mb/s is UDP in frames:
//! every 33 ms a burst at link rate.

use serde::Deserialize;

use super::super::band::Band;
use super::super::case::{Arm, Case, Cell, Setup, bps, key, text};
use super::super::quantity::{Quantity, Queue, Stat};
use super::{DataError, NO_BAND, PAYLOAD, both, case, default_cells, delay, ratio, read};

const RATE: Band = Band::relative(0.2);
const BURSTS: &str =
    "the default mode is meant to differ here: its ramp looks at the backlog, not at the sojourn";
const FRAME_S: f64 = 1.0 / 30.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    source: String,
    pub(super) s1: Vec<Pair>,
    fq_codel_jain_at_least: f64,
    skype_mbps: f64,
    pub(super) bursts: Vec<Burst>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pair {
    link: f64,
    a: String,
    a_ms: f64,
    b: String,
    b_ms: f64,
    mbps: [f64; 2],
    jain: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Burst {
    name: String,
    cc: String,
    #[serde(default = "dualpi2")]
    aqm: String,
    link: f64,
    rtt_ms: f64,
    mbps: f64,
    skype: Option<String>,
    #[serde(rename = "burst_ms")]
    sends_ms: Option<f64>,
    step_ms: Option<f64>,
    to_mbps: Option<f64>,
}

fn dualpi2() -> String {
    "dualpi2".to_owned()
}

pub(super) fn file() -> Result<File, DataError> {
    read("critics.toml", include_str!("../../../paper/critics.toml"))
}

pub(super) fn cases() -> Result<Vec<Case>, DataError> {
    let file = file()?;
    let pairs = file.s1.iter().flat_map(|pair| pair.cases(&file));
    let bursts = file.bursts.iter().flat_map(|burst| burst.cases(&file));
    Ok(pairs.chain(bursts).collect())
}

/// Keys of a Prague of 2020.
fn old(cc: &str) -> Vec<String> {
    if cc == "prague" { vec![key("rtt_independence", false)] } else { Vec::new() }
}

impl Pair {
    fn cases(&self, file: &File) -> Vec<Case> {
        let a = format!("{}{}", self.a, self.a_ms);
        let mut b = format!("{}{}", self.b, self.b_ms);
        if a == b {
            b.push_str("-2");
        }
        let setup = Setup::new(self.link, 120, 30).flows(&a, &self.a, 1, self.a_ms, &old(&self.a)).flows(
            &b,
            &self.b,
            1,
            self.b_ms,
            &old(&self.b),
        );
        let published = Some(self.mbps[0] / self.mbps[1]);
        let rate = |label: &String, published: f64| {
            Cell::reported(Quantity::Rate(label.clone(), PAYLOAD), Some(published), NO_BAND)
        };
        let cells = vec![
            Cell::new(ratio(&a, &b), published, Band::relative(0.3)),
            Cell::reported(Quantity::Jain, Some(self.jain), NO_BAND),
            rate(&a, self.mbps[0]),
            rate(&b, self.mbps[1]),
        ];
        let l4s = [&self.a, &self.b].iter().any(|cc| *cc == "prague");
        let default = default_cells(self.link, l4s, None, Some((&a, &b, published)));
        let name = |aqm: &str| format!("critics/s1/{}/{aqm}/{a}-{b}", self.link);
        let dualpi2 = setup.clone().profile(&["aqm = \"dualpi2\""]);
        let mut cases = both(&name("dualpi2"), &file.source, &dualpi2, cells, default).to_vec();
        let fair = vec![Cell::new(Quantity::Jain, None, Band::AtLeast(file.fq_codel_jain_at_least))];
        let fq = setup.profile(&["aqm = \"fq_codel\"", "limit_packets = 10240"]);
        cases.push(case(name("fq_codel"), &file.source, fq, fair));
        cases
    }
}

impl Burst {
    fn cases(&self, file: &File) -> Vec<Case> {
        let name = format!("critics/bursts/{}/{}", self.name, self.cc);
        let rate = Quantity::Rate(self.cc.clone(), PAYLOAD);
        let cells = vec![
            Cell::new(rate.clone(), Some(self.mbps), RATE),
            Cell::reported(delay(Queue::L4s, Stat::P99), None, NO_BAND),
        ];
        let setup = self.setup(file);
        if self.aqm != "dualpi2" {
            return vec![case(name, &file.source, setup, vec![Cell::new(rate, Some(self.mbps), RATE)])];
        }
        let default = vec![
            Cell::reported(rate, Some(self.mbps), BURSTS),
            Cell::reported(delay(Queue::L4s, Stat::P99), None, BURSTS),
        ];
        let mut cases = both(&name, &file.source, &setup, cells, default).to_vec();
        if let Some(step_ms) = self.step_ms {
            // the knob of the kernel belongs to its arm; the default mode runs as it comes
            let step = key("step_us", step_ms * 1000.0);
            for case in cases.iter_mut().filter(|case| case.arm == Arm::Published) {
                case.setup.profile.push(step.clone());
            }
        }
        cases
    }

    fn setup(&self, file: &File) -> Setup {
        let mut more = old(&self.cc);
        if self.cc == "bbr2" {
            more.push(text("ecn", "ect1"));
        }
        let aqm = text("aqm", &self.aqm);
        let mut setup =
            Setup::new(self.link, 120, 30).profile(&[&aqm]).flows(&self.cc, &self.cc, 1, self.rtt_ms, &more);
        if let Some(sends_ms) = self.sends_ms {
            setup.link.push(key("burst_ms", sends_ms));
        }
        if let Some(to) = self.to_mbps {
            setup.steps.push((30.0, to));
            setup.warmup_s = 40;
        }
        if let Some(queue) = &self.skype {
            let on_s = FRAME_S * file.skype_mbps / self.link;
            let video = [
                key("rate_bps", bps(self.link)),
                key("on_ms", format!("{:?}", on_s * 1e3)),
                key("off_ms", format!("{:?}", (FRAME_S - on_s) * 1e3)),
                text("ecn", if queue == "l" { "ect1" } else { "not_ect" }),
            ];
            setup = setup.flows("skype", "udp", 1, self.rtt_ms, &video);
        }
        setup
    }
}
