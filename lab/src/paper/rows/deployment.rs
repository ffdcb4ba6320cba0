// SPDX-License-Identifier: Apache-2.0
//! Partial deployment: who wins at whose bottleneck. At 2 BDP of buffer the same winner and a share within 10 points;
//! other buffers, and pairs the artefacts give no figures for, stand beside without a verdict.
//!
//! `single_ce` (a single FIFO that marks past 5 ms) is FQ-CoDel with one queue whose CoDel never acts. DualPI2 ran with
//! a target of 5 ms and 10000 packets whatever the buffer.

use serde::Deserialize;

use super::super::band::Band;
use super::super::case::{Case, Cell, Setup, key, text};
use super::super::quantity::Quantity;
use super::{DataError, NO_BAND, PACKET_BITS, both, case, default_cells, read};

const UNKNOWN: &str = "no published figures for this pair";
const OTHER_BUFFER: &str = "another buffer than 2 BDP";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    source: String,
    link_mbps: f64,
    rtt_ms: f64,
    verdict_bdp: f64,
    pub(super) other_bdp: Vec<f64>,
    pub(super) bottlenecks: Vec<String>,
    pub(super) firsts: Vec<String>,
    pub(super) seconds: Vec<String>,
    pub(super) rows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    bottleneck: String,
    first: String,
    second: String,
    #[serde(default = "one_each")]
    counts: [u32; 2],
    mbps: [f64; 2],
    srtt_ms: Option<[f64; 2]>,
}

fn one_each() -> [u32; 2] {
    [1, 1]
}

/// One bottleneck, pair and buffer.
struct Meeting<'a> {
    file: &'a File,
    bottleneck: &'a str,
    first: &'a str,
    second: &'a str,
    counts: [u32; 2],
    bdp: f64,
    published: Option<&'a Row>,
}

pub(super) fn file() -> Result<File, DataError> {
    read("deployment.toml", include_str!("../../../paper/deployment.toml"))
}

pub(super) fn cases() -> Result<Vec<Case>, DataError> {
    let file = file()?;
    let mut cases = Vec::new();
    for bottleneck in &file.bottlenecks {
        for first in &file.firsts {
            for second in &file.seconds {
                for &bdp in [file.verdict_bdp].iter().chain(&file.other_bdp) {
                    let published = file.rows.iter().find(|row| {
                        (&row.bottleneck, &row.first, &row.second, row.counts)
                            == (bottleneck, first, second, [1, 1])
                    });
                    let counts = [1, 1];
                    let meeting = Meeting { file: &file, bottleneck, first, second, counts, bdp, published };
                    cases.extend(meeting.cases());
                }
            }
        }
    }
    for row in file.rows.iter().filter(|row| row.counts != [1, 1]) {
        let (bottleneck, first, second) = (&row.bottleneck, &row.first, &row.second);
        let (counts, bdp, published) = (row.counts, file.verdict_bdp, Some(row));
        cases.extend(Meeting { file: &file, bottleneck, first, second, counts, bdp, published }.cases());
    }
    Ok(cases)
}

impl Meeting<'_> {
    fn cases(&self) -> Vec<Case> {
        let [first, second] = self.counts;
        let counts = if self.counts == [1, 1] { String::new() } else { format!("/{first}v{second}") };
        let name =
            format!("deploy/{}/{}-{}/{}bdp{counts}", self.bottleneck, self.first, self.second, self.bdp);
        if self.bottleneck != "dualpi2" {
            return vec![case(name, &self.file.source, self.setup(), self.cells())];
        }
        let (a, b) = self.labels();
        let ratio = self
            .published
            .filter(|_| self.judged())
            .map(|row| row.mbps[0] / f64::from(first) / (row.mbps[1] / f64::from(second)));
        // only Prague and BBRv2 on ECT(1) use L
        let default = default_cells(self.file.link_mbps, true, None, Some((a, &b, ratio)));
        both(&name, &self.file.source, &self.setup(), self.cells(), default).to_vec()
    }

    fn judged(&self) -> bool {
        (self.bdp - self.file.verdict_bdp).abs() < f64::EPSILON
    }

    /// Two flows of one control are told apart.
    fn labels(&self) -> (&str, String) {
        let other = if self.first == self.second { "-2" } else { "" };
        (self.first, format!("{}{other}", self.second))
    }

    fn setup(&self) -> Setup {
        let File { link_mbps, rtt_ms, .. } = *self.file;
        let (duration, warmup) = if self.judged() { (60, 10) } else { (40, 10) };
        let ((a, b), [first, second]) = (self.labels(), self.counts);
        let (cc, more) = sender(self.first);
        let mut setup = Setup::new(link_mbps, duration, warmup)
            .profile(profile(self.bottleneck))
            .flows(a, cc, first, rtt_ms, &more);
        let (cc, more) = sender(self.second);
        setup = setup.flows(&b, cc, second, rtt_ms, &more);
        if self.bottleneck != "dualpi2" {
            setup.link.push(key("buffer_packets", packets(self.bdp * link_mbps * 1e3 * rtt_ms)));
        }
        setup
    }

    fn cells(&self) -> Vec<Cell> {
        let (a, b) = self.labels();
        let pair = (a.to_owned(), b);
        let share = Quantity::Share(pair.0.clone(), pair.1.clone());
        let winner = Quantity::Winner(pair.0.clone(), pair.1.clone());
        let Some(row) = self.published.filter(|_| self.judged()) else {
            let cause = if self.judged() { UNKNOWN } else { OTHER_BUFFER };
            return vec![Cell::reported(share, None, cause)];
        };
        let published = Some(row.mbps[0] / (row.mbps[0] + row.mbps[1]) * 100.0);
        let mut cells = vec![
            Cell::new(winner, published, Band::SameSide(50.0)),
            Cell::new(share, published, Band::absolute(10.0)),
        ];
        if let Some([first, second]) = row.srtt_ms {
            cells.push(Cell::reported(Quantity::Rtt(pair.0), Some(first), NO_BAND));
            cells.push(Cell::reported(Quantity::Rtt(pair.1), Some(second), NO_BAND));
        }
        cells
    }
}

/// Its control and its ECN field.
fn sender(name: &str) -> (&'static str, Vec<String>) {
    let (cc, ecn) = match name {
        "prague" => ("prague", "ect1"),
        "cubic" => ("cubic", "ect0"),
        "cubic_no" => ("cubic", "not_ect"),
        "bbr1" => ("bbr1", "not_ect"),
        "bbr2" => ("bbr2", "ect1"),
        "bbr2_no" => ("bbr2", "not_ect"),
        // BBRv3 with ECN: in C, where its round-trip time is beyond the 5 ms up to which it heeds marks
        _ => ("bbr3", "ect0"),
    };
    (cc, vec![text("ecn", ecn)])
}

fn profile(bottleneck: &str) -> &'static [&'static str] {
    match bottleneck {
        "dualpi2" => &["aqm = \"dualpi2\"", "target_us = 5000"],
        "fq_codel_l4s" => &["aqm = \"fq_codel\"", "ce_threshold_us = 1000", "ce_threshold_l4s = true"],
        "fq_codel" => &["aqm = \"fq_codel\""],
        "fq" => &["aqm = \"fq\"", "flow_limit_packets = 10000"],
        "codel_ecn" => &["aqm = \"codel\""],
        "codel" => &["aqm = \"codel\"", "ecn = false"],
        "pie" => &["aqm = \"pie\"", "ecn = false"],
        "single_ce" => &[
            "aqm = \"fq_codel\"",
            "flows = 1",
            "target_us = 4_000_000",
            "interval_us = 4_000_000",
            "ce_threshold_us = 5000",
        ],
        _ => &["aqm = \"fifo\""],
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some hundred packets")]
fn packets(bits: f64) -> u32 {
    (bits / PACKET_BITS + 0.5) as u32
}
