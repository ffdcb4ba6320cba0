// SPDX-License-Identifier: Apache-2.0
//! `[profile.NAME]`: the AQM and its keys, each with the defaults and names of its own source.

mod dualpi2;
mod queues;

use toml::de::{DeTable, DeValue};

use super::reader::{Keys, Report, show};
use crate::problem::Problems;
use crate::profile::{Aqm, Cells, MAX_LIMIT_US, Overhead, Profile, overhead};

/// AQMs there are.
const AVAILABLE: &str = "dualpi2, pi2, pie, codel, fq_codel, fq, cake, cocoa, curvy_red, codel_af, fifo";

/// Longest time any key of an AQM may name: a minute.
const MAX_TIME_US: u64 = 60_000_000;

impl Profile {
    /// Reads the keys of one profile, with an overhead of its own where the text names none: for tables that stand
    /// outside a configuration. Lines are those of `text`.
    ///
    /// # Errors
    ///
    /// Every problem with its line and key.
    pub fn parse(file: &str, text: &str, overhead: Overhead) -> Result<Self, Problems> {
        let report = Report::new(file, text);
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            report.add(&error.span().unwrap_or(0..0), "", format!("not TOML: {}", error.message()));
        }
        if !report.is_empty() {
            return Err(Problems(report.into_problems()));
        }
        let profile = read(Keys::root(&document, &report), overhead);
        if report.is_empty() { Ok(profile) } else { Err(Problems(report.into_problems())) }
    }
}

/// Reads a profile; problems are with the report of `keys`.
pub(super) fn read(mut keys: Keys<'_>, overhead: Overhead) -> Profile {
    let Some(mut profile) = with_aqm(&mut keys) else {
        return Profile::default();
    };
    profile.l4s = keys.boolean("l4s").unwrap_or(profile.l4s);
    profile.ecn = keys.boolean("ecn").unwrap_or(profile.aqm.ecn_by_default());
    profile.limit_us = keys.integer("limit_us", 100..=MAX_LIMIT_US).unwrap_or(profile.limit_us);
    profile.limit_packets = keys.small("limit_packets", 1..=100_000_000).or(profile.limit_packets);
    profile.mtu = keys.small("mtu", 64..=65_535).unwrap_or(profile.mtu);
    profile.overhead = read_overhead(&mut keys).unwrap_or(overhead);
    keys.finish();
    profile
}

/// The AQM with its own keys, and what these imply for the others.
fn with_aqm(keys: &mut Keys<'_>) -> Option<Profile> {
    let given = keys.has("aqm");
    let name = if given {
        keys.text("aqm")?
    } else {
        keys.get("aqm");
        "dualpi2"
    };
    let aqm = match name {
        "dualpi2" => return Some(dualpi2::read(keys, Aqm::DualPi2)),
        "pi2" => return Some(dualpi2::read(keys, Aqm::Pi2)),
        "pie" => Aqm::Pie(queues::pie(keys)),
        "codel" => Aqm::Codel(queues::codel(keys)),
        "fq_codel" => Aqm::FqCodel(queues::fq_codel(keys)),
        "fq" => Aqm::Fq(queues::fq(keys)),
        "cake" => Aqm::Cake(queues::cake(keys)),
        "cocoa" => Aqm::Cocoa(queues::cocoa(keys)),
        "curvy_red" => Aqm::CurvyRed(queues::curvy_red(keys)),
        "codel_af" => Aqm::CodelAf(queues::codel_af(keys)),
        "fifo" => Aqm::Fifo,
        _ => {
            keys.fail("aqm", format!("\"{name}\" is not an AQM (available: {AVAILABLE})"));
            return None;
        }
    };
    Some(Profile { aqm, ..Profile::default() })
}

/// Keywords, or bytes, mpu and cells.
fn read_overhead(keys: &mut Keys<'_>) -> Option<Overhead> {
    let value = keys.get("overhead")?.get_ref();
    match value {
        DeValue::String(text) => match Overhead::parse(text) {
            Ok(overhead) => return Some(overhead),
            Err(message) => keys.fail("overhead", message),
        },
        DeValue::Table(_) => return Some(overhead_table(keys.table("overhead"))),
        _ => keys.fail(
            "overhead",
            format!("{} is neither tc-cake keywords nor {{ bytes = N, mpu = N, cells = .. }}", show(value)),
        ),
    }
    None
}

fn overhead_table(mut keys: Keys<'_>) -> Overhead {
    let cells = [("none", Cells::None), ("atm", Cells::Atm), ("ptm", Cells::Ptm)];
    let overhead = Overhead {
        bytes: keys.signed("bytes", overhead::BYTES).and_then(|n| i16::try_from(n).ok()).unwrap_or(0),
        mpu: keys.signed("mpu", overhead::MPU).and_then(|n| u16::try_from(n).ok()).unwrap_or(0),
        cells: keys.choice("cells", &cells).unwrap_or(Cells::None),
    };
    keys.finish();
    overhead
}

#[cfg(test)]
mod tests;
