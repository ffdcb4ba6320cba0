// SPDX-License-Identifier: Apache-2.0
//! Scenarios built in code, for the tests of the simulator.

use aqm::{BitsPerSec, Nanos};
use cc::Kind;
use lab::{EcnChoice, FULL_PACKET, Flow, Link, NO_OVERHEAD, RateStep, Scenario};
use model::Profile;
use model::profile::{Aqm, DualPi2, LINUX_LIMIT_PACKETS, MAX_LIMIT_US};

pub(crate) fn profile(aqm: Aqm) -> Profile {
    Profile { aqm, overhead: NO_OVERHEAD, mtu: FULL_PACKET, ..Profile::default() }
}

pub(crate) fn linux() -> Profile {
    let profile = profile(Aqm::DualPi2(DualPi2::linux()));
    Profile { limit_us: MAX_LIMIT_US, limit_packets: Some(LINUX_LIMIT_PACKETS), ..profile }
}

pub(crate) fn dualpi2() -> Profile {
    profile(Aqm::DualPi2(DualPi2::default()))
}

pub(crate) fn fifo() -> Profile {
    Profile { ecn: false, ..profile(Aqm::Fifo) }
}

pub(crate) fn flow(cc: Kind, rtt_ms: u64) -> Flow {
    Flow {
        label: cc.label().to_owned(),
        cc,
        count: 1,
        rtt: Nanos::from_millis(rtt_ms),
        ecn: EcnChoice::Auto,
        rate: BitsPerSec(0),
        packet_bytes: FULL_PACKET,
        start: Nanos::ZERO,
        stop: None,
        rtt_independence: true,
        hystart: true,
        on: Nanos::ZERO,
        off: Nanos::ZERO,
    }
}

pub(crate) fn udp(rate_bps: u64) -> Flow {
    Flow { label: "udp".to_owned(), rate: BitsPerSec(rate_bps), ..flow(Kind::Cbr, 10) }
}

pub(crate) fn link(rate_bps: u64) -> Link {
    Link {
        steps: vec![RateStep { at: Nanos::ZERO, rate: BitsPerSec(rate_bps) }],
        buffer_packets: None,
        burst: Nanos::ZERO,
        jitter: Nanos::ZERO,
        loss: 0.0,
        reverse: None,
    }
}

pub(crate) fn scenario(rate_bps: u64, profile: Profile, flows: Vec<Flow>) -> Scenario {
    Scenario {
        name: "test".to_owned(),
        duration: Nanos::from_secs(20),
        warmup: Nanos::from_secs(5),
        link: link(rate_bps),
        profile,
        flows,
        web: Vec::new(),
    }
}
