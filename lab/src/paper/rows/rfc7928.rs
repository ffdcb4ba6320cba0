// SPDX-License-Identifier: Apache-2.0
//! Scenarios of RFC 7928, over the AQMs. The RFC publishes no figures: everything is reported, nothing judged.

use serde::Deserialize;

use super::super::case::{Case, Cell, Setup, WebSetup, bps, key, text};
use super::super::quantity::{Quantity, Queue, Stat};
use super::{DataError, case, delay, read};

const NO_FIGURES: &str = "RFC 7928 publishes no figures";
const DURATION_S: u32 = 60;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    source: String,
    link_mbps: f64,
    rtt_ms: f64,
    pub(super) aqms: Vec<String>,
    pub(super) scenarios: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    section: String,
    name: String,
    link_mbps: Option<f64>,
    flows: Vec<Flow>,
    web: Option<Web>,
    steps: Option<Steps>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Flow {
    cc: String,
    count: Option<u32>,
    rtt_ms: Option<f64>,
    mbps: Option<f64>,
    on_ms: Option<f64>,
    off_ms: Option<f64>,
    start_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Web {
    cc: String,
    arrivals_per_s: f64,
    fixed: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Steps {
    period_s: f64,
    low_mbps: f64,
}

pub(super) fn file() -> Result<File, DataError> {
    read("rfc7928.toml", include_str!("../../../paper/rfc7928.toml"))
}

pub(super) fn cases() -> Result<Vec<Case>, DataError> {
    let file = file()?;
    let all = file.scenarios.iter().flat_map(|row| file.aqms.iter().map(|aqm| row.case(&file, aqm)));
    Ok(all.collect())
}

impl Row {
    fn case(&self, file: &File, aqm: &str) -> Case {
        let mbps = self.link_mbps.unwrap_or(file.link_mbps);
        let mut setup = Setup::new(mbps, DURATION_S, 10).profile(&[&text("aqm", aqm)]);
        for (at, flow) in self.flows.iter().enumerate() {
            let label = format!("{}{}", flow.cc, at + 1);
            let rtt_ms = flow.rtt_ms.unwrap_or(file.rtt_ms);
            setup = setup.flows(&label, &flow.cc, flow.count.unwrap_or(1), rtt_ms, &flow.keys());
        }
        if let Some(web) = &self.web {
            setup.web.push(WebSetup {
                cc: web.cc.clone(),
                rtt_ms: file.rtt_ms,
                arrivals_per_s: web.arrivals_per_s,
                more: vec![key("size", format!("{{ fixed = {} }}", web.fixed))],
            });
        }
        if let Some(steps) = &self.steps {
            setup.steps = steps.over(mbps);
        }
        let name = format!("rfc7928/{}-{}/{aqm}", self.section, self.name);
        case(name, &file.source, setup, self.cells())
    }

    fn cells(&self) -> Vec<Cell> {
        let mut quantities = vec![
            Quantity::Utilisation,
            delay(Queue::Classic, Stat::Mean),
            delay(Queue::Classic, Stat::P99),
            Quantity::Dropped(Queue::Classic),
        ];
        let label = |at: usize| self.flows.get(at).map(|flow| format!("{}{}", flow.cc, at + 1));
        if let (Some(first), Some(second)) = (label(0), label(1)) {
            quantities.push(Quantity::Ratio(second, first));
        }
        if let Some(web) = &self.web {
            quantities.push(Quantity::WebP50(web.cc.clone()));
            quantities.push(Quantity::WebP99(web.cc.clone()));
        }
        quantities.into_iter().map(|quantity| Cell::reported(quantity, None, NO_FIGURES)).collect()
    }
}

impl Flow {
    fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        keys.extend(self.mbps.map(|mbps| key("rate_bps", bps(mbps))));
        keys.extend(self.on_ms.map(|ms| key("on_ms", ms)));
        keys.extend(self.off_ms.map(|ms| key("off_ms", ms)));
        keys.extend(self.start_s.map(|s| key("start_s", s)));
        keys
    }
}

impl Steps {
    /// High and low in turn, to the end.
    fn over(&self, high: f64) -> Vec<(f64, f64)> {
        let mut steps = Vec::new();
        let (mut n, mut at) = (0.0, 0.0);
        while at < f64::from(DURATION_S) {
            steps.push((at, high));
            steps.push(((n + 1.0) * self.period_s, self.low_mbps));
            n += 2.0;
            at = n * self.period_s;
        }
        steps
    }
}
