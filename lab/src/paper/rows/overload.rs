// SPDX-License-Identifier: Apache-2.0
//! Overload of a DualQ and the coupling law on it. Delay means within 20 % or 0.5 ms, probabilities within 10 % or
//! 1.5 points; C drop within 5 % of the mean of p'^2, and of (L marks / 2)^2 where L is not saturated.

use serde::Deserialize;

use super::super::band::Band;
use super::super::case::{Case, Cell, Setup, bps, key, text};
use super::super::quantity::{Quantity, Queue, Stat};
use super::{DataError, IP, NO_BAND, TOO_SLOW, both, case, default_cells, delay, read};

const DELAY: Band = Band::Near { relative: 0.2, absolute: 0.5 };
const PROBABILITY: Band = Band::Near { relative: 0.1, absolute: 1.5 };
const LAW: Band = Band::relative(0.05);
/// UDP payloads of 1470 bytes, on the wire.
const UDP_PACKET: f64 = 1512.0;
const UDP_PAYLOAD: f64 = 1470.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    source: String,
    link_mbps: f64,
    rtt_ms: f64,
    pub(super) rows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    udp_in: String,
    u: f64,
    l_mean: f64,
    l_p99: f64,
    l_mbps: f64,
    l_mark: f64,
    l_drop: f64,
    c_mean: f64,
    c_p99: f64,
    c_mbps: f64,
    c_drop: f64,
    udp_mbps: f64,
    udp_drop: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Coupling {
    source: String,
    pub(super) overload_ratios: Vec<f64>,
    pub(super) light: Vec<Light>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Light {
    pub(super) mark: f64,
    ratio: f64,
    l_rtt_ms: Option<f64>,
    c_rtt_ms: Option<f64>,
}

pub(super) fn overload() -> Result<File, DataError> {
    read("overload.toml", include_str!("../../../paper/overload.toml"))
}

pub(super) fn coupling() -> Result<Coupling, DataError> {
    read("coupling.toml", include_str!("../../../paper/coupling.toml"))
}

pub(super) fn cases() -> Result<Vec<Case>, DataError> {
    let (file, coupling) = (overload()?, coupling()?);
    let mut cases: Vec<_> = file.rows.iter().flat_map(|row| row.cases(&file)).collect();
    let (least, most) = coupling.range();
    let source = format!("{}; published: {least} to {most}", coupling.source);
    for row in file.rows.iter().filter(|row| row.l_mark < 100.0) {
        for cc in ["cubic", "reno"] {
            let setup = row.setup(&file, cc).profile(&["compat = \"linux\""]);
            let name = format!("coupling/{cc}/{}/{}", row.udp_in, row.u);
            let law = [Quantity::CouplingSquare, Quantity::CouplingMarks("prague".to_owned())];
            let cells = law.map(|quantity| Cell::new(quantity, Some(1.0), LAW)).to_vec();
            cases.push(case(name, &source, setup, cells));
        }
    }
    cases.extend(coupling.light.iter().filter_map(|light| light.case(&coupling.source)));
    Ok(cases)
}

impl Coupling {
    /// Of the published ratios.
    fn range(&self) -> (f64, f64) {
        let ratios = || self.overload_ratios.iter().copied();
        (ratios().fold(f64::INFINITY, f64::min), ratios().fold(f64::NEG_INFINITY, f64::max))
    }
}

impl Row {
    fn setup(&self, file: &File, classic: &str) -> Setup {
        let offered = bps(self.u * UDP_PACKET / UDP_PAYLOAD);
        let ecn = if self.udp_in == "l" { "ect1" } else { "not_ect" };
        let udp = [key("rate_bps", offered), key("packet_bytes", UDP_PACKET), text("ecn", ecn)];
        Setup::new(file.link_mbps, 60, 20)
            .profile(&["aqm = \"dualpi2\""])
            .flows("prague", "prague", 5, file.rtt_ms, &[])
            .flows(classic, classic, 5, file.rtt_ms, &[])
            .flows("udp", "udp", 1, file.rtt_ms, &udp)
    }

    fn cases(&self, file: &File) -> [Case; 2] {
        let name = format!("overload/{}/{}", self.udp_in, self.u);
        let known = self.l_mbps >= 0.1 && self.c_mbps >= 0.1;
        let rates = known.then_some(("prague", "cubic", Some(self.l_mbps / self.c_mbps)));
        let default = default_cells(file.link_mbps, true, None, rates);
        both(&name, &file.source, &self.setup(file, "cubic"), self.cells(), default)
    }

    fn cells(&self) -> Vec<Cell> {
        let flow = |quantity: Quantity, published: f64, mbps: f64| {
            let band = if mbps < 0.1 { Band::reported(TOO_SLOW) } else { PROBABILITY };
            Cell::new(quantity, Some(published), band)
        };
        let rate = |label: &str, factor: f64, published: f64| {
            Cell::reported(Quantity::Rate(label.to_owned(), factor), Some(published), NO_BAND)
        };
        let [prague, cubic, udp] = ["prague", "cubic", "udp"].map(str::to_owned);
        let mut cells = vec![
            Cell::new(delay(Queue::L4s, Stat::Mean), Some(self.l_mean), DELAY),
            Cell::new(delay(Queue::Classic, Stat::Mean), Some(self.c_mean), DELAY),
            flow(Quantity::MarkedOf(prague.clone()), self.l_mark, self.l_mbps),
            flow(Quantity::DroppedOf(prague), self.l_drop, self.l_mbps),
            flow(Quantity::DroppedOf(cubic), self.c_drop, self.c_mbps),
            flow(Quantity::DroppedOf(udp), self.udp_drop, self.udp_mbps),
            Cell::new(Quantity::CouplingSquare, Some(1.0), LAW),
        ];
        if self.l_mark < 100.0 {
            cells.push(Cell::new(Quantity::CouplingMarks("prague".to_owned()), Some(1.0), LAW));
        }
        cells.extend([
            rate("prague", IP, self.l_mbps),
            rate("cubic", IP, self.c_mbps),
            rate("udp", (UDP_PACKET - 14.0) / UDP_PACKET, self.udp_mbps),
            Cell::reported(delay(Queue::L4s, Stat::P99), Some(self.l_p99), NO_BAND),
            Cell::reported(delay(Queue::Classic, Stat::P99), Some(self.c_p99), NO_BAND),
        ]);
        cells
    }
}

impl Light {
    /// Drops are rare here: four times the seeds.
    fn case(&self, source: &str) -> Option<Case> {
        let (l, c) = (self.l_rtt_ms?, self.c_rtt_ms?);
        let setup = Setup::new(40.0, 250, 30)
            .profile(&["aqm = \"dualpi2\"", "compat = \"linux\""])
            .flows("prague", "prague", 1, l, &[])
            .flows("cubic", "cubic", 1, c, &[]);
        let cells = vec![
            Cell::new(Quantity::CouplingSquare, Some(1.0), LAW),
            Cell::reported(
                Quantity::CouplingMarks("prague".to_owned()),
                Some(self.ratio),
                "native marks add, and the mean of squares exceeds the square of the mean",
            ),
            Cell::reported(Quantity::MarkedOf("prague".to_owned()), Some(self.mark), NO_BAND),
        ];
        let mut case = case(format!("coupling/light/{l}-{c}"), source, setup, cells);
        case.seeds = 4;
        Some(case)
    }
}
