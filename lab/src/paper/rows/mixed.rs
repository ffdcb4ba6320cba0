// SPDX-License-Identifier: Apache-2.0
//! Mixed RTT. Rate ratio within 30 %, L p99 at most 1.2 ms, C mean within 2 ms where the second flow's RTT is at most
//! 20 ms, utilisation within 1 point; the same with PIE and FQ-CoDel, which have one queue.

use serde::Deserialize;

use super::super::band::Band;
use super::super::case::{Case, Cell, Setup, text};
use super::super::quantity::{Quantity, Queue, Stat};
use super::{DataError, IP, NO_BAND, both, case, default_cells, delay, ratio, read};

const LONG: &str = "the second RTT is beyond 20 ms: its sawtooth is deeper than the target and the queue runs empty, so \
                    the mean hangs on the sender's start and recovery more than on the AQM";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    source: String,
    link_mbps: f64,
    pub(super) dualpi2: Vec<Row>,
    pub(super) pie: Vec<Row>,
    pub(super) fq_codel: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    a: f64,
    b: Option<f64>,
    l_mean: Option<f64>,
    l_p99: Option<f64>,
    l_mbps: Option<f64>,
    mark: Option<f64>,
    c_mean: Option<f64>,
    c_p99: Option<f64>,
    c_mbps: Option<f64>,
    c_drop: Option<f64>,
    util: Option<f64>,
    rr: Option<f64>,
}

pub(super) fn file() -> Result<File, DataError> {
    read("mixed.toml", include_str!("../../../paper/mixed.toml"))
}

pub(super) fn cases() -> Result<Vec<Case>, DataError> {
    let file = file()?;
    let mut cases: Vec<_> = file.dualpi2.iter().flat_map(|row| row.dualpi2(&file)).collect();
    // sch_pie and sch_fq_codel as the archive configured them
    let pie = ["aqm = \"pie\"", "target_us = 15000", "tupdate_us = 16000", "ecn = true"];
    let fq = ["aqm = \"fq_codel\"", "limit_packets = 10240"];
    cases.extend(file.pie.iter().map(|row| row.single(&file, "pie", &pie)));
    cases.extend(file.fq_codel.iter().map(|row| row.single(&file, "fq_codel", &fq)));
    Ok(cases)
}

impl Row {
    fn name(&self, aqm: &str) -> String {
        match self.b {
            Some(b) => format!("mixed/{aqm}/{}-{b}", self.a),
            None => format!("mixed/{aqm}/{}-none", self.a),
        }
    }

    fn second(&self, setup: Setup) -> Setup {
        match self.b {
            Some(b) => setup.flows("cubic", "cubic", 1, b, &[]),
            None => setup,
        }
    }

    fn dualpi2(&self, file: &File) -> [Case; 2] {
        let setup = self.second(Setup::new(file.link_mbps, 150, 30).profile(&["aqm = \"dualpi2\""]).flows(
            "prague",
            "prague",
            1,
            self.a,
            &[],
        ));
        let rate = |label: &str| Quantity::Rate(label.to_owned(), IP);
        let mut cells =
            vec![Cell::new(delay(Queue::L4s, Stat::P99), self.l_p99, Band::AtMost(1.2)), self.utilisation()];
        if self.b.is_some() {
            cells.extend([
                self.ratio("prague"),
                self.mean(),
                Cell::reported(rate("cubic"), self.c_mbps, NO_BAND),
                Cell::reported(delay(Queue::Classic, Stat::P99), self.c_p99, NO_BAND),
                Cell::reported(Quantity::DroppedOf("cubic".to_owned()), self.c_drop, NO_BAND),
            ]);
        }
        cells.extend([
            Cell::reported(delay(Queue::L4s, Stat::Mean), self.l_mean, NO_BAND),
            Cell::reported(rate("prague"), self.l_mbps, NO_BAND),
            Cell::reported(Quantity::MarkedOf("prague".to_owned()), self.mark, NO_BAND),
        ]);
        let rates = self.b.map(|_| ("prague", "cubic", self.rr));
        both(
            &self.name("dualpi2"),
            &file.source,
            &setup,
            cells,
            default_cells(file.link_mbps, true, self.util, rates),
        )
    }

    /// PIE or FQ-CoDel: the first flow is CUBIC with ECN.
    fn single(&self, file: &File, aqm: &str, profile: &[&str]) -> Case {
        let setup = self.second(Setup::new(file.link_mbps, 150, 30).profile(profile).flows(
            "ecn-cubic",
            "cubic",
            1,
            self.a,
            &[text("ecn", "ect0")],
        ));
        let mut cells = vec![self.utilisation(), self.mean()];
        if self.b.is_some() {
            cells.push(self.ratio("ecn-cubic"));
        }
        cells.push(Cell::reported(delay(Queue::Classic, Stat::P99), self.c_p99, NO_BAND));
        case(self.name(aqm), &file.source, setup, cells)
    }

    fn ratio(&self, first: &str) -> Cell {
        Cell::new(ratio(first, "cubic"), self.rr, Band::relative(0.3))
    }

    fn utilisation(&self) -> Cell {
        Cell::new(Quantity::Utilisation, self.util, Band::absolute(1.0))
    }

    fn mean(&self) -> Cell {
        let quantity = delay(Queue::Classic, Stat::Mean);
        match self.b {
            Some(b) if b <= 20.0 => Cell::new(quantity, self.c_mean, Band::absolute(2.0)),
            _ => Cell::reported(quantity, self.c_mean, LONG),
        }
    }
}
