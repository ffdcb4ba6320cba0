// SPDX-License-Identifier: Apache-2.0
//! Cocoa's table 1. The issue names no band for it: utilisation gets the 1 point of the mixed-RTT rows, the queueing
//! part of the round-trip time the 20 % or 0.5 ms of the overload rows.

use serde::Deserialize;

use super::super::band::Band;
use super::super::case::{Case, Cell, Setup, text};
use super::super::quantity::Quantity;
use super::{DataError, case, read};

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
    cc: String,
    aqm: String,
    util: f64,
    srtt_ms: f64,
}

pub(super) fn file() -> Result<File, DataError> {
    read("cocoa.toml", include_str!("../../../paper/cocoa.toml"))
}

pub(super) fn cases() -> Result<Vec<Case>, DataError> {
    let file = file()?;
    Ok(file.rows.iter().map(|row| row.case(&file)).collect())
}

impl Row {
    fn case(&self, file: &File) -> Case {
        let setup = Setup::new(file.link_mbps, 120, 30)
            .profile(&[&text("aqm", &self.aqm), "limit_packets = 10000"])
            .flows(&self.cc, &self.cc, 1, file.rtt_ms, &[]);
        let queue = Quantity::QueueOf(self.cc.clone(), file.rtt_ms);
        let cells = vec![
            Cell::new(Quantity::Utilisation, Some(self.util), Band::absolute(1.0)),
            Cell::new(queue, Some(self.srtt_ms - file.rtt_ms), Band::Near { relative: 0.2, absolute: 0.5 }),
        ];
        case(format!("cocoa/{}/{}", self.cc, self.aqm), &file.source, setup, cells)
    }
}
