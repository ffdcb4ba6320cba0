// SPDX-License-Identifier: Apache-2.0
//! `[profile.NAME]`: the AQM and its keys, with the defaults of RFC 9332 and the names of tc-dualpi2.

use toml::de::DeValue;

use super::reader::{Keys, show};
use crate::profile::{
    Aqm, Cells, Compat, DualPi2, LINUX_LIMIT_PACKETS, LINUX_STEP_US, MAX_LIMIT_US, Native, Overhead,
    Overload, Profile, RttTuning, overhead,
};

/// AQMs this version builds.
const AVAILABLE: &str = "dualpi2, pi2, fifo";
/// AQMs of the interface that this version does not build.
const LATER: [&str; 8] = ["pie", "codel", "fq_codel", "fq", "cake", "cocoa", "curvy_red", "codel_af"];

/// Longest time any key of an AQM may name: a minute.
const MAX_TIME_US: u64 = 60_000_000;

/// Which AQM a table asks for.
#[derive(Clone, Copy)]
enum Kind {
    DualPi2,
    Pi2,
    Fifo,
}

/// Reads a profile; problems are with the report of `keys`.
pub(super) fn read(mut keys: Keys<'_>) -> Profile {
    let Some(kind) = kind(&mut keys) else {
        return Profile::default();
    };
    let mut profile = match kind {
        Kind::DualPi2 => with_dualpi2(&mut keys, Aqm::DualPi2),
        Kind::Pi2 => with_dualpi2(&mut keys, Aqm::Pi2),
        Kind::Fifo => Profile { aqm: Aqm::Fifo, ecn: false, ..Profile::default() },
    };
    profile.l4s = keys.boolean("l4s").unwrap_or(profile.l4s);
    profile.ecn = keys.boolean("ecn").unwrap_or(profile.ecn);
    profile.limit_us = keys.integer("limit_us", 100..=MAX_LIMIT_US).unwrap_or(profile.limit_us);
    profile.limit_packets = keys.small("limit_packets", 1..=100_000_000).or(profile.limit_packets);
    profile.mtu = keys.small("mtu", 64..=65_535).unwrap_or(profile.mtu);
    profile.overhead = read_overhead(&mut keys).unwrap_or(profile.overhead);
    keys.finish();
    profile
}

fn kind(keys: &mut Keys<'_>) -> Option<Kind> {
    if !keys.has("aqm") {
        keys.get("aqm");
        return Some(Kind::DualPi2);
    }
    let name = keys.text("aqm")?;
    match name {
        "dualpi2" => return Some(Kind::DualPi2),
        "pi2" => return Some(Kind::Pi2),
        "fifo" => return Some(Kind::Fifo),
        _ if LATER.contains(&name) => {
            keys.fail("aqm", format!("\"{name}\" is not available in this version (available: {AVAILABLE})"));
        }
        _ => keys.fail("aqm", format!("\"{name}\" is not an AQM (available: {AVAILABLE})")),
    }
    None
}

fn with_dualpi2(keys: &mut Keys<'_>, wrap: fn(DualPi2) -> Aqm) -> Profile {
    let compat =
        keys.choice("compat", &[("rfc", Compat::Rfc), ("linux", Compat::Linux)]).unwrap_or(Compat::Rfc);
    let linux = compat == Compat::Linux;
    let defaults = if linux { DualPi2::linux() } else { DualPi2::default() };
    let mut aqm = DualPi2 {
        coupling: keys.small("coupling", 1..=255).unwrap_or(defaults.coupling),
        native: native(keys, linux).unwrap_or(defaults.native),
        floor_packets: floor(keys, linux).unwrap_or(defaults.floor_packets),
        classic_protection_percent: keys
            .small("classic_protection_percent", 0..=100)
            .unwrap_or(defaults.classic_protection_percent),
        overload: keys
            .choice("overload", &[("drop", Overload::Drop), ("overflow", Overload::Overflow)])
            .unwrap_or(defaults.overload),
        any_ect: keys.boolean("any_ect").unwrap_or(defaults.any_ect),
        ..defaults
    };
    if keys.boolean("queue_protection") == Some(true) {
        keys.fail("queue_protection", "queue protection (RFC 9957) is not available in this version");
    }
    control(keys, &mut aqm);
    let profile = Profile { aqm: wrap(aqm), ..Profile::default() };
    if linux {
        return Profile { limit_us: MAX_LIMIT_US, limit_packets: Some(LINUX_LIMIT_PACKETS), ..profile };
    }
    profile
}

/// Target, interval and gains, given or derived from round-trip times.
fn control(keys: &mut Keys<'_>, aqm: &mut DualPi2) {
    const GIVEN: [&str; 4] = ["target_us", "tupdate_us", "alpha_hz", "beta_hz"];
    let typical = keys.integer("typical_rtt_us", 1..=MAX_TIME_US);
    let max = keys.integer("max_rtt_us", 1..=MAX_TIME_US);
    if typical.is_some() || max.is_some() {
        keys.forbid(&GIVEN, "follows from typical_rtt_us and max_rtt_us: give either these or this");
        match RttTuning::new(typical, max) {
            Some(tuning) => aqm.tune(tuning),
            None => keys.fail("typical_rtt_us", "is longer than max_rtt_us"),
        }
    }
    aqm.target_us = keys.integer("target_us", 1..=MAX_TIME_US).unwrap_or(aqm.target_us);
    aqm.tupdate_us = keys.integer("tupdate_us", 100..=MAX_TIME_US).unwrap_or(aqm.tupdate_us);
    aqm.alpha_hz = keys.number("alpha_hz", &(1e-6..=1e6)).unwrap_or(aqm.alpha_hz);
    aqm.beta_hz = keys.number("beta_hz", &(1e-6..=1e6)).unwrap_or(aqm.beta_hz);
}

/// Step or ramp, never both; `compat = "linux"` knows only the step.
fn native(keys: &mut Keys<'_>, linux: bool) -> Option<Native> {
    let step = keys.integer("step_us", 0..=MAX_TIME_US);
    let min = keys.integer("ramp_min_us", 0..=MAX_TIME_US);
    let range = keys.integer("ramp_range_us", 1..=MAX_TIME_US);
    let no_ramp = if linux {
        Some("compat = \"linux\" marks with a step: step_us sets it")
    } else if keys.has("step_us") {
        Some("excludes step_us: give one of ramp and step")
    } else {
        None
    };
    if let Some(message) = no_ramp {
        keys.forbid(&["ramp_min_us", "ramp_range_us"], message);
        return Some(Native::Step { threshold_us: step.unwrap_or(LINUX_STEP_US) });
    }
    let Native::Ramp { min_us, range_us } = DualPi2::default().native else {
        return None;
    };
    Some(Native::Ramp { min_us: min.unwrap_or(min_us), range_us: range.unwrap_or(range_us) })
}

fn floor(keys: &mut Keys<'_>, linux: bool) -> Option<u32> {
    let floor = keys.small("floor_packets", 0..=1000)?;
    if linux && floor > 0 {
        keys.fail("floor_packets", "compat = \"linux\" has no floor");
    }
    Some(floor)
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
