// SPDX-License-Identifier: Apache-2.0
//! Keys of `dualpi2` and `pi2`: names of tc-dualpi2, defaults of RFC 9332 or, with `compat = "linux"`, the kernel's.

use super::MAX_TIME_US;
use crate::config::reader::Keys;
use crate::profile::{
    Aqm, Compat, DualPi2, LINUX_LIMIT_PACKETS, LINUX_STEP_US, MAX_LIMIT_US, Native, Overload, Profile,
    RttTuning,
};

/// Reads them, and what they imply for the profile.
pub(super) fn read(keys: &mut Keys<'_>, wrap: fn(DualPi2) -> Aqm) -> Profile {
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
        queue_protection: keys.boolean("queue_protection").unwrap_or(defaults.queue_protection),
        ..defaults
    };
    control(keys, &mut aqm);
    let profile = Profile { aqm: wrap(aqm), ..Profile::default() };
    if matches!(&profile.aqm, Aqm::Pi2(aqm) if aqm.queue_protection) {
        keys.fail("queue_protection", "protects L, which pi2 does not have");
    }
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
