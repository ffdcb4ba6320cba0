// SPDX-License-Identifier: Apache-2.0
//! The promises of the trait, kept by each discipline of one or two FIFOs on random schedules.

use super::driver::{Counts, Owner, random};
use super::*;
use crate::{Codel, CodelAf, CodelAfConfig, CodelConfig, CurvyRed, CurvyRedConfig, Ecn, Pie, PieConfig};

/// Runs it. `only_marks`: its law never drops ECT or CE. PIE and others beyond their overload threshold do, and marks
/// are rare then, since no load of the driver responds.
fn keeps_its_promises(make: fn(u64) -> Box<dyn Qdisc>, only_marks: bool) {
    let memory = make(0).memory();
    let counts = random(make, 0..60, Some(memory));
    let of = |ecn: Ecn| counts[ecn as usize];
    let Counts { marked, dropped, limited, removed, sent, .. } = of(Ecn::NotEct);
    assert!(marked == 0 && dropped > 200 && limited > 200 && removed > 20 && sent > 10_000, "{counts:?}");
    assert_eq!(of(Ecn::Ce).marked, 0);
    assert!(of(Ecn::Ect0).marked > 20 && of(Ecn::Ect1).marked > 20, "{counts:?}");
    if only_marks {
        assert_eq!((of(Ecn::Ect0).dropped, of(Ecn::Ce).dropped), (0, 0), "{counts:?}");
    }
}

#[test]
fn codel_keeps_its_promises() {
    keeps_its_promises(|_| Box::new(Codel::new(CodelConfig::default()).unwrap()), true);
}

#[test]
fn pie_keeps_its_promises() {
    keeps_its_promises(|seed| Box::new(Pie::new(PieConfig::default(), seed).unwrap()), false);
}

#[test]
fn pie_that_sleeps_keeps_its_promises() {
    keeps_its_promises(
        |seed| Box::new(Pie::new(PieConfig { active_bytes: 30_000, ..PieConfig::default() }, seed).unwrap()),
        false,
    );
}

#[test]
fn curvy_red_keeps_its_promises() {
    keeps_its_promises(|seed| Box::new(CurvyRed::new(CurvyRedConfig::default(), seed).unwrap()), false);
}

#[test]
fn codel_af_keeps_its_promises() {
    keeps_its_promises(|seed| Box::new(CodelAf::new(CodelAfConfig::default(), seed).unwrap()), false);
}

#[test]
fn codel_af_with_a_sparse_queue_keeps_its_promises() {
    keeps_its_promises(
        |seed| {
            let config =
                CodelAfConfig { sparse: true, flows: 64, limit_packets: 2_000, ..CodelAfConfig::default() };
            Box::new(CodelAf::new(config, seed).unwrap())
        },
        false,
    );
}

/// A law that drops all it sees at departure.
#[derive(Debug, Default)]
struct DropsAll(u32);

impl Qdisc for DropsAll {
    fn queues(&self) -> u32 {
        1
    }
    fn arrive(&mut self, _packet: &Arriving) -> Arrival {
        self.0 += 1;
        Arrival::Queue(0)
    }
    fn shed(&mut self, over_limit: bool) -> Option<(u32, End)> {
        (over_limit && self.0 > 0).then_some((0, End::Head))
    }
    fn select(&mut self, _now: Nanos) -> Option<u32> {
        (self.0 > 0).then_some(0)
    }
    fn decide(&mut self, _packet: &Leaving) -> Verdict {
        self.0 -= 1;
        Verdict::Drop(Cause::Law)
    }
    fn sent(&mut self, _queue: u32, _bytes: u32) {}
    fn removed(&mut self, _queue: u32, _bytes: u32) {
        self.0 -= 1;
    }
    fn memory(&self) -> usize {
        size_of::<Self>()
    }
}

#[test]
fn the_driver_goes_on_after_the_last_packet_was_dropped() {
    let counts = random(|_| Box::new(DropsAll::default()), 0..5, Some(4));
    assert!(
        counts.iter().all(|c| c.sent == 0 && c.dropped > 0 && c.arrived == c.dropped + c.limited + c.removed)
    );
}

/// The same with packets the discipline has lost sight of.
#[test]
#[should_panic(expected = "stalled")]
fn the_driver_sees_a_stall() {
    let mut owner = Owner::new(Box::new(DropsAll::default()), 10);
    owner.arrive(&Arriving::default());
    owner.qdisc.removed(0, 0);
    owner.serve(Nanos::ZERO, Pace(0));
}
