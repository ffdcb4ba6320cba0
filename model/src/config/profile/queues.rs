// SPDX-License-Identifier: Apache-2.0
//! Keys of the AQMs beside `dualpi2` and `pi2`.

use crate::config::reader::Keys;
use crate::profile::{Cake, Cocoa, Codel, CodelAf, CurvyRed, Fq, FqCodel, HostFairness, Pie, Tins};

/// Longest delay: what 32 bits of nanoseconds hold.
const MAX_DELAY_US: u64 = 4_294_000;
/// Most queues that flows may be hashed to.
const MAX_FLOWS: u64 = 32_768;
/// Bytes of a turn (sch_fq_codel takes no fewer than 256).
const QUANTUM: std::ops::RangeInclusive<u64> = 256..=1_048_576;

pub(super) fn pie(keys: &mut Keys<'_>) -> Pie {
    let defaults = Pie::default();
    Pie {
        target_us: time(keys, "target_us", defaults.target_us),
        tupdate_us: keys.integer("tupdate_us", 100..=MAX_DELAY_US).unwrap_or(defaults.tupdate_us),
        alpha_hz: keys.number("alpha_hz", &(1e-6..=1e6)).unwrap_or(defaults.alpha_hz),
        beta_hz: keys.number("beta_hz", &(1e-6..=1e6)).unwrap_or(defaults.beta_hz),
        max_burst_us: keys.integer("max_burst_us", 0..=MAX_DELAY_US).unwrap_or(defaults.max_burst_us),
        ecn_threshold_percent: keys
            .small("ecn_threshold_percent", 0..=100)
            .unwrap_or(defaults.ecn_threshold_percent),
    }
}

pub(super) fn codel(keys: &mut Keys<'_>) -> Codel {
    let defaults = Codel::default();
    let codel = Codel {
        target_us: time(keys, "target_us", defaults.target_us),
        interval_us: time(keys, "interval_us", defaults.interval_us),
    };
    if codel.target_us > codel.interval_us {
        keys.fail("target_us", format!("is longer than the interval, {} us", codel.interval_us));
    }
    codel
}

pub(super) fn codel_af(keys: &mut Keys<'_>) -> CodelAf {
    CodelAf { codel: codel(keys), sparse: keys.boolean("sparse").unwrap_or(false) }
}

pub(super) fn fq_codel(keys: &mut Keys<'_>) -> FqCodel {
    let defaults = FqCodel::default();
    let all = FqCodel {
        codel: codel(keys),
        flows: flows(keys, defaults.flows),
        quantum_bytes: quantum(keys, defaults.quantum_bytes),
        ce_threshold_us: keys.integer("ce_threshold_us", 0..=MAX_DELAY_US),
        ce_threshold_l4s: keys.boolean("ce_threshold_l4s").unwrap_or(defaults.ce_threshold_l4s),
    };
    if all.ce_threshold_l4s && !keys.has("ce_threshold_us") {
        keys.fail("ce_threshold_l4s", "has no meaning without ce_threshold_us");
    }
    all
}

pub(super) fn fq(keys: &mut Keys<'_>) -> Fq {
    let defaults = Fq::default();
    Fq {
        flows: flows(keys, defaults.flows),
        quantum_bytes: quantum(keys, defaults.quantum_bytes),
        flow_limit_packets: keys
            .small("flow_limit_packets", 1..=1_000_000)
            .unwrap_or(defaults.flow_limit_packets),
    }
}

pub(super) fn cocoa(keys: &mut Keys<'_>) -> Cocoa {
    let defaults = Cocoa::default();
    Cocoa {
        fq: fq(keys),
        guard_multiplier: keys
            .number("guard_multiplier", &(1.0..=100.0))
            .unwrap_or(defaults.guard_multiplier),
        max_increase: keys.number("max_increase", &(1.0..=100.0)).unwrap_or(defaults.max_increase),
        max_guard_us: time(keys, "max_guard_us", defaults.max_guard_us),
    }
}

pub(super) fn cake(keys: &mut Keys<'_>) -> Cake {
    let defaults = Cake::default();
    let tins = [("besteffort", Tins::BestEffort), ("diffserv4", Tins::Diffserv4)];
    let fairness = [("triple-isolate", HostFairness::TripleIsolate), ("none", HostFairness::None)];
    Cake {
        tins: keys.choice("tins", &tins).unwrap_or(defaults.tins),
        host_fairness: keys.choice("host_fairness", &fairness).unwrap_or(defaults.host_fairness),
        rtt_us: time(keys, "rtt_us", defaults.rtt_us),
    }
}

pub(super) fn curvy_red(keys: &mut Keys<'_>) -> CurvyRed {
    let defaults = CurvyRed::default();
    let s_c = keys.signed("s_c", -12..=2).and_then(|power| i32::try_from(power).ok());
    CurvyRed {
        k_prime: keys.small("k_prime", 0..=7).unwrap_or(defaults.k_prime),
        tshift_us: keys.integer("tshift_us", 0..=MAX_DELAY_US).unwrap_or(defaults.tshift_us),
        g_c: keys.small("g_c", 0..=16).unwrap_or(defaults.g_c),
        s_c: s_c.unwrap_or(defaults.s_c),
        min_th_us: keys.integer("min_th_us", 0..=MAX_DELAY_US).unwrap_or(defaults.min_th_us),
        t_us: keys.integer("t_us", 0..=MAX_DELAY_US).unwrap_or(defaults.t_us),
        u: keys.small("u", 1..=8).unwrap_or(defaults.u),
    }
}

/// A time of at least a microsecond.
fn time(keys: &mut Keys<'_>, key: &'static str, default: u64) -> u64 {
    keys.integer(key, 1..=MAX_DELAY_US).unwrap_or(default)
}

fn flows(keys: &mut Keys<'_>, default: u32) -> u32 {
    keys.small("flows", 1..=MAX_FLOWS).unwrap_or(default)
}

fn quantum(keys: &mut Keys<'_>, default: u32) -> u32 {
    keys.small("quantum_bytes", QUANTUM).unwrap_or(default)
}
