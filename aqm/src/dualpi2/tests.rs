// SPDX-License-Identifier: Apache-2.0
//! What happens to packets, case by case: rates of marks and drops in each regime, the limits, and whole schedules.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::BitsPerSec;

const MTU: u32 = 1538;
const MANY: Backlog = Backlog { packets: 1_000, bytes: 1_000 * MTU };
const EMPTY: Backlog = Backlog { packets: 0, bytes: 0 };

fn params(config: &DualPi2Config) -> DualPi2Params {
    DualPi2Params::new(config).unwrap()
}

fn rfc() -> DualPi2Params {
    params(&DualPi2Config::default())
}

fn linux() -> DualPi2Params {
    params(&DualPi2Config::linux())
}

fn head(queue: Queue, ecn: Ecn, rule: Rule) -> Head {
    Head { queue, ecn, rule, bytes: MTU, sojourn: Nanos::ZERO, step_eligible: true }
}

/// A busy C behind the packet and p' as given; L holds nothing.
fn busy(p_prime: f64) -> Left {
    let pace = Pace::of(BitsPerSec(50_000_000));
    Left { l: EMPTY, c: MANY, pace, p_prime: Prob::from_f64(p_prime) }
}

/// Ratios of marks and drops over many decisions on one kind of packet, and the causes seen.
#[derive(Debug, Default)]
struct Ratios {
    marked: f64,
    dropped: f64,
    causes: Vec<Cause>,
}

fn run(params: &DualPi2Params, head: &Head, left: &Left, packets: u32) -> Ratios {
    let mut state = DualPi2::new(params, 42);
    let (mut marks, mut drops, mut causes) = (0_u32, 0_u32, Vec::new());
    for _ in 0..packets {
        let (count, cause) = match state.decide(params, head, left) {
            Verdict::Pass => continue,
            Verdict::Mark(cause) => (&mut marks, cause),
            Verdict::Drop(cause) => (&mut drops, cause),
        };
        *count += 1;
        if !causes.contains(&cause) {
            causes.push(cause);
        }
    }
    let ratio = |count: u32| f64::from(count) / f64::from(packets);
    Ratios { marked: ratio(marks), dropped: ratio(drops), causes }
}

fn near(got: f64, expected: f64) -> bool {
    (got - expected).abs() <= 0.01 * expected.max(0.01)
}

/// Marks and drops expected of a treatment, as (marked if ECT(0) or ECT(1), dropped).
struct Expected {
    treatment: Treatment,
    /// p' = 0.25: p_CL 0.5, p_C 1/16.
    coupled: (f64, f64),
    /// Ramp at 0.5, p' = 0.
    native: (f64, f64),
    /// p' = 0.6: p_C 0.36.
    overload: (f64, f64),
}

const LAW: [Expected; 7] = [
    Expected {
        treatment: Treatment::L4sMark,
        coupled: (0.5, 0.0),
        native: (0.5, 0.0),
        overload: (0.64, 0.36),
    },
    Expected {
        treatment: Treatment::L4sClassicMark,
        coupled: (0.0625, 0.0),
        native: (0.0625, 0.0),
        overload: (0.64, 0.36),
    },
    Expected {
        treatment: Treatment::L4sClassicDrop,
        coupled: (0.0, 0.0625),
        native: (0.0, 0.0625),
        overload: (0.0, 0.36),
    },
    Expected {
        treatment: Treatment::NonQueueBuilding,
        coupled: (0.0, 0.0625),
        native: (0.0, 0.0625),
        overload: (0.0, 0.36),
    },
    Expected {
        treatment: Treatment::ClassicDrop,
        coupled: (0.0, 0.0625),
        native: (0.0, 0.0),
        overload: (0.0, 0.36),
    },
    Expected {
        treatment: Treatment::ClassicMark,
        coupled: (0.0625, 0.0),
        native: (0.0, 0.0),
        overload: (0.0, 0.36),
    },
    Expected {
        treatment: Treatment::CoupledMark,
        coupled: (0.5, 0.0),
        native: (0.0, 0.0),
        overload: (0.64, 0.36),
    },
];

/// L with the ramp at 0.5: 1 ms at 50 Mb/s is 6250 bytes.
fn ramp_half() -> Left {
    Left { l: Backlog { packets: 5, bytes: 6_250 }, c: EMPTY, ..busy(0.0) }
}

#[test]
fn every_case_is_marked_and_dropped_as_its_treatment_says() {
    for l4s in [true, false] {
        let params = params(&DualPi2Config { l4s, ..DualPi2Config::default() });
        for queue in Queue::BOTH {
            for ecn in Ecn::ALL {
                for rule in Rule::ALL {
                    let treatment = params.treatment(queue, ecn, rule);
                    let law = LAW.iter().find(|law| law.treatment == treatment).unwrap();
                    let regimes =
                        [(busy(0.25), law.coupled), (ramp_half(), law.native), (busy(0.6), law.overload)];
                    for (left, (marked, dropped)) in regimes {
                        let marked = if matches!(ecn, Ecn::Ect0 | Ecn::Ect1) { marked } else { 0.0 };
                        let got = run(&params, &head(queue, ecn, rule), &left, 20_000);
                        assert!(
                            near(got.marked, marked) && near(got.dropped, dropped),
                            "{queue:?} {ecn:?} {rule:?} l4s {l4s}: {got:?}, expected {marked} and {dropped}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn the_cause_says_which_likelihood_won() {
    let params = rfc();
    let cause = |queue, ecn, rule, left: &Left| run(&params, &head(queue, ecn, rule), left, 1_000).causes;
    let l = |ecn, left: &Left| cause(Queue::L4s, ecn, Rule::ForceL4s, left);
    assert_eq!(l(Ecn::Ect1, &ramp_half()), [Cause::Native]);
    assert_eq!(l(Ecn::NotEct, &ramp_half()), [Cause::Native]);
    assert_eq!(l(Ecn::Ect1, &busy(0.25)), [Cause::Coupled]);
    assert_eq!(l(Ecn::Ect0, &busy(0.25)), [Cause::Coupled]);
    let both = |p| Left { c: MANY, p_prime: Prob::from_f64(p), ..ramp_half() };
    assert_eq!(l(Ecn::Ect1, &both(0.2)), [Cause::Native]);
    assert_eq!(l(Ecn::Ect1, &both(0.3)), [Cause::Coupled]);
    assert_eq!(cause(Queue::Classic, Ecn::Ect0, Rule::None, &busy(0.25)), [Cause::Pi]);
    assert_eq!(cause(Queue::Classic, Ecn::NotEct, Rule::None, &busy(0.25)), [Cause::Pi]);
    assert_eq!(cause(Queue::Classic, Ecn::Ect1, Rule::ForceClassic, &busy(0.25)), [Cause::Coupled]);
    assert_eq!(cause(Queue::Classic, Ecn::Ect0, Rule::None, &busy(0.6)), [Cause::Overload]);
    assert_eq!(l(Ecn::NotEct, &busy(0.6)), [Cause::Overload]);
    let mut overload = l(Ecn::Ect1, &busy(0.6));
    overload.sort_by_key(|cause| *cause as u8);
    assert_eq!(overload, [Cause::Coupled, Cause::Overload], "drops by overload, the rest are coupled marks");
}

#[test]
fn l_and_c_drop_alike_in_overload() {
    for params in [rfc(), linux()] {
        let packets = if params.compat == Compat::Linux { 400_000 } else { 40_000 };
        for step in 0..=20 {
            let p = 0.5 + 0.025 * f64::from(step);
            let left = Left { l: MANY, ..busy(p) };
            let l = run(&params, &head(Queue::L4s, Ecn::Ect1, Rule::None), &left, packets);
            for ecn in [Ecn::NotEct, Ecn::Ect0] {
                let c = run(&params, &head(Queue::Classic, ecn, Rule::None), &left, packets);
                assert!((l.dropped / c.dropped - 1.0).abs() < 0.01, "p' {p}: {} {}", l.dropped, c.dropped);
                assert!((c.dropped / (p * p) - 1.0).abs() < 0.01, "p' {p}: {}", c.dropped);
            }
            assert!((l.marked + l.dropped - 1.0).abs() < 1e-9, "every survivor is CE");
        }
    }
}

#[test]
fn interleaved_packets_of_both_queues_drop_alike_in_overload() {
    let params = rfc();
    for step in 0..=20 {
        let p = 0.5 + 0.025 * f64::from(step);
        let left = Left { l: MANY, ..busy(p) };
        let mut state = DualPi2::new(&params, 9);
        let (mut drops, mut seen) = ([0_u32; 2], [0_u32; 2]);
        for n in 0..200_000 {
            // 9 of L to 1 of C, L with ECT(1), CE and Not-ECT among each other
            let queue = if n % 10 == 9 { Queue::Classic } else { Queue::L4s };
            let ecn = [Ecn::Ect1, Ecn::Ce, Ecn::NotEct, Ecn::Ect1][n % 4];
            seen[queue as usize] += 1;
            if let Verdict::Drop(cause) = state.decide(&params, &head(queue, ecn, Rule::ForceL4s), &left) {
                assert_eq!(cause, Cause::Overload);
                drops[queue as usize] += 1;
            }
        }
        let ratio = |queue: Queue| f64::from(drops[queue as usize]) / f64::from(seen[queue as usize]);
        assert!((ratio(Queue::L4s) / ratio(Queue::Classic) - 1.0).abs() < 0.01, "p' {p}: {drops:?}");
    }
}

#[test]
fn overload_drops_leave_the_spacing_of_marks_alone() {
    let params = rfc();
    let packet = head(Queue::L4s, Ecn::Ect1, Rule::None);
    let (mut calm, mut stirred) = (DualPi2::new(&params, 3), DualPi2::new(&params, 3));
    for n in 0..10_000 {
        let expected = calm.decide(&params, &packet, &busy(0.15));
        stirred.decide(&params, &packet, &busy(0.7));
        assert_eq!(stirred.decide(&params, &packet, &busy(0.15)), expected, "packet {n}");
    }
}

#[test]
fn classic_drops_are_the_square_of_half_the_l_marks() {
    for percent in (10..=90).step_by(10) {
        let left = busy(f64::from(percent) / 200.0);
        let l = run(&rfc(), &head(Queue::L4s, Ecn::Ect1, Rule::None), &left, 100_000);
        let c = run(&rfc(), &head(Queue::Classic, Ecn::NotEct, Rule::None), &left, 100_000);
        let expected = (l.marked / 2.0).powi(2);
        assert!((c.dropped / expected - 1.0).abs() < 0.01, "{percent} %: {} for {expected}", c.dropped);
    }
}

#[test]
fn pi_rests_below_two_mtu() {
    let left = |bytes| Left { c: Backlog { packets: 2, bytes }, ..busy(1.0) };
    for ecn in Ecn::ALL {
        for queue in Queue::BOTH {
            let head = head(queue, ecn, Rule::None);
            // RFC: with the packet taken; Linux: what it leaves, in MTU of 1514
            for (params, least) in [(rfc(), MTU), (linux(), 2 * 1514)] {
                let below = run(&params, &head, &left(least - 1), 1_000);
                assert!(below.marked + below.dropped == 0.0, "{queue:?} {ecn:?}: {below:?}");
                let above = run(&params, &head, &left(least), 1_000);
                assert!(above.dropped > 0.9, "{queue:?} {ecn:?}: {above:?}");
            }
        }
    }
}

#[test]
fn a_single_packet_left_is_never_reason_for_a_native_mark() {
    // at 1 Mb/s one packet takes 12 ms
    let slow = |packets| Left {
        l: Backlog { packets, bytes: packets * MTU },
        c: EMPTY,
        pace: Pace::of(BitsPerSec(1_000_000)),
        p_prime: Prob::ZERO,
    };
    let packet = head(Queue::L4s, Ecn::Ect1, Rule::None);
    let no_floor = params(&DualPi2Config { floor_packets: 0, ..DualPi2Config::default() });
    for packets in [0, 1] {
        assert!(run(&no_floor, &packet, &slow(packets), 100).marked == 0.0);
    }
    assert!(run(&no_floor, &packet, &slow(2), 100).marked > 0.99);
    // the floor of 2 MTU leaves a second packet unmarked too
    assert!(run(&rfc(), &packet, &slow(2), 100).marked == 0.0);
    assert!(run(&rfc(), &packet, &slow(3), 100).marked > 0.99);
}

#[test]
fn the_kernels_step_is_strict_on_the_sojourn_and_needs_eligibility() {
    let at = |us, step_eligible, ecn| {
        let head =
            Head { sojourn: Nanos::from_micros(us), step_eligible, ..head(Queue::L4s, ecn, Rule::None) };
        DualPi2::new(&linux(), 1).decide(&linux(), &head, &Left { c: EMPTY, ..busy(0.0) })
    };
    assert_eq!(at(1_000, true, Ecn::Ect1), Verdict::Pass);
    assert_eq!(at(1_001, true, Ecn::Ect1), Verdict::Mark(Cause::Native));
    assert_eq!(at(1_001, true, Ecn::Ce), Verdict::Pass, "already CE: nothing to count");
    assert_eq!(at(1_001, true, Ecn::NotEct), Verdict::Drop(Cause::Native));
    assert_eq!(at(50_000, false, Ecn::Ect1), Verdict::Pass);
}

#[test]
fn the_kernels_law_holds_in_each_queue_and_class() {
    let run = |queue, ecn, rule, p| run(&linux(), &head(queue, ecn, rule), &busy(p), 400_000);
    let l = run(Queue::L4s, Ecn::Ect1, Rule::None, 0.3);
    assert!(near(l.marked, 0.6) && l.dropped == 0.0, "{l:?}");
    let by_filter = run(Queue::L4s, Ecn::NotEct, Rule::ForceL4s, 0.3);
    assert!(near(by_filter.dropped, 0.6) && by_filter.marked == 0.0, "{by_filter:?}");
    let c = run(Queue::Classic, Ecn::NotEct, Rule::None, 0.3);
    assert!((c.dropped / 0.09 - 1.0).abs() < 0.02 && c.marked == 0.0, "{c:?}");
    let ect0 = run(Queue::Classic, Ecn::Ect0, Rule::None, 0.3);
    assert!((ect0.marked / 0.09 - 1.0).abs() < 0.02 && ect0.dropped == 0.0, "{ect0:?}");
    let ect1 = run(Queue::Classic, Ecn::Ect1, Rule::ForceClassic, 0.3);
    assert!(near(ect1.marked, 0.6) && ect1.dropped == 0.0, "not p_C: {ect1:?}");
    for p in [0.3, 1.0] {
        let untouched = run(Queue::L4s, Ecn::NotEct, Rule::Nqb, p);
        assert!(untouched.marked + untouched.dropped == 0.0, "LLLL: {untouched:?}");
    }
}

#[test]
fn overflow_never_drops_in_l_and_keeps_marking_in_c() {
    for base in [DualPi2Config::default(), DualPi2Config::linux()] {
        let config = DualPi2Config { overload: Overload::Overflow, ..base };
        let params = params(&config);
        let capped = params.pi().step(Prob::ONE, Nanos::from_secs(1), Nanos::ZERO, config.target);
        let left = Left { p_prime: capped, ..busy(0.0) };
        let l = run(&params, &head(Queue::L4s, Ecn::Ect1, Rule::None), &left, 100_000);
        assert!(l.dropped == 0.0 && l.marked > 0.9999, "{l:?}");
        let c = run(&params, &head(Queue::Classic, Ecn::Ect0, Rule::None), &left, 100_000);
        assert!((c.marked / 0.25 - 1.0).abs() < 0.02 && c.dropped == 0.0, "{c:?}");
        let not_ect = run(&params, &head(Queue::Classic, Ecn::NotEct, Rule::None), &left, 100_000);
        assert!((not_ect.dropped / 0.25 - 1.0).abs() < 0.02, "{not_ect:?}");
    }
    let params = params(&DualPi2Config { overload: Overload::Overflow, ..DualPi2Config::default() });
    for (ecn, rule) in [(Ecn::NotEct, Rule::ForceL4s), (Ecn::NotEct, Rule::Nqb), (Ecn::Ect0, Rule::Nqb)] {
        for left in [busy(0.5), ramp_half()] {
            let l = run(&params, &head(Queue::L4s, ecn, rule), &left, 10_000);
            assert!(l.dropped == 0.0, "{ecn:?} {rule:?}: {l:?}");
        }
    }
}

#[test]
fn without_ecn_nothing_is_marked_and_drops_are_classic() {
    for base in [DualPi2Config::default(), DualPi2Config::linux()] {
        let params = params(&DualPi2Config { ecn: false, ..base });
        for queue in Queue::BOTH {
            for ecn in Ecn::ALL {
                for rule in Rule::ALL {
                    for left in [busy(0.25), busy(0.6), ramp_half()] {
                        let got = run(&params, &head(queue, ecn, rule), &left, 2_000);
                        assert!(got.marked == 0.0, "{queue:?} {ecn:?} {rule:?}: {got:?}");
                    }
                }
            }
        }
    }
    let params = params(&DualPi2Config { ecn: false, ..DualPi2Config::default() });
    for (queue, ecn) in [(Queue::L4s, Ecn::Ect1), (Queue::Classic, Ecn::Ect0), (Queue::Classic, Ecn::NotEct)]
    {
        let got = run(&params, &head(queue, ecn, Rule::None), &busy(0.25), 20_000);
        assert!(near(got.dropped, 0.0625), "{queue:?} {ecn:?}: {got:?}");
    }
}

#[test]
fn behind_queue_protection_not_ect_passes_l_untouched_until_overload() {
    let with = params(&DualPi2Config { queue_protection: true, ..DualPi2Config::default() });
    let without = params(&DualPi2Config::default());
    for rule in [Rule::ForceL4s, Rule::Nqb] {
        let head = head(Queue::L4s, Ecn::NotEct, rule);
        for left in [busy(0.25), ramp_half()] {
            assert!(run(&with, &head, &left, 20_000).dropped == 0.0, "{rule:?}");
            assert!(run(&without, &head, &left, 20_000).dropped > 0.0, "{rule:?}");
        }
        let overload = run(&with, &head, &busy(0.6), 20_000);
        assert!(near(overload.dropped, 0.36), "{rule:?}: {overload:?}");
    }
    let l4s = run(&with, &head(Queue::L4s, Ecn::Ect1, Rule::None), &busy(0.25), 20_000);
    assert!(near(l4s.marked, 0.5), "{l4s:?}");
}

#[test]
fn the_credit_changes_under_contention_only_and_starts_again_when_drained() {
    let params = linux();
    let mut state = DualPi2::new(&params, 0);
    assert_eq!(state.credit(), -121_120);
    state.sent(&params, Queue::L4s, 1514, false);
    state.sent(&params, Queue::Classic, 1514, false);
    assert_eq!(state.credit(), -121_120, "nobody else waited");
    state.sent(&params, Queue::L4s, 1514, true);
    assert_eq!(state.credit(), -121_120 + 10 * 1514);
    state.sent(&params, Queue::Classic, 1000, true);
    assert_eq!(state.credit(), -121_120 + 10 * 1514 - 90 * 1000);
    state.drained(&params);
    assert_eq!(state.credit(), -121_120);
}

#[test]
fn the_first_contention_after_idle_is_like_every_later_one() {
    let params = linux();
    let mut state = DualPi2::new(&params, 0);
    let order: Vec<Queue> = (0..40)
        .map(|_| {
            let queue = state.select(&params, MANY, MANY).unwrap();
            state.sent(&params, queue, 1514, true);
            queue
        })
        .collect();
    for (n, queue) in order.iter().enumerate() {
        let expected = if n % 10 == 9 { Queue::Classic } else { Queue::L4s };
        assert_eq!(*queue, expected, "packet {n}");
    }
}

#[test]
fn queue_ids_do_not_act_in_step() {
    let params = rfc();
    let left = busy(0.05);
    let first_marks: std::collections::BTreeSet<usize> = (0..50)
        .map(|seed| {
            let mut state = DualPi2::new(&params, seed);
            let packet = head(Queue::L4s, Ecn::Ect1, Rule::None);
            (0..20).position(|_| state.decide(&params, &packet, &left) != Verdict::Pass).unwrap_or(20)
        })
        .collect();
    assert!(first_marks.len() >= 8, "{first_marks:?}");
}

/// Two queues of (codepoint, bytes) and the order of calls that the engine makes.
#[derive(Default)]
struct Rig {
    queues: [VecDeque<(Ecn, u32)>; 2],
    bytes: [u32; 2],
    arrived: u64,
    sent: u64,
    dropped: u64,
}

impl Rig {
    fn backlog(&self, queue: Queue) -> Backlog {
        let packets = u32::try_from(self.queues[queue as usize].len()).unwrap();
        Backlog { packets, bytes: self.bytes[queue as usize] }
    }

    fn push(&mut self, queue: Queue, ecn: Ecn, bytes: u32) {
        self.queues[queue as usize].push_back((ecn, bytes));
        self.bytes[queue as usize] += bytes;
        self.arrived += 1;
    }

    /// One departure; false only if both queues are empty.
    fn serve(&mut self, params: &DualPi2Params, state: &mut DualPi2, p_prime: Prob) -> bool {
        loop {
            let (l, c) = (self.backlog(Queue::L4s), self.backlog(Queue::Classic));
            let Some(queue) = state.select(params, l, c) else {
                assert_eq!((l, c), (EMPTY, EMPTY), "a queue with packets is served");
                state.drained(params);
                return false;
            };
            let (ecn, bytes) =
                self.queues[queue as usize].pop_front().expect("the queue selected has a packet");
            self.bytes[queue as usize] -= bytes;
            let (l, c) = (self.backlog(Queue::L4s), self.backlog(Queue::Classic));
            let head = Head { queue, ecn, rule: Rule::None, bytes, sojourn: Nanos(1), step_eligible: true };
            let left = Left { l, c, pace: Pace::of(BitsPerSec(10_000_000)), p_prime };
            match state.decide(params, &head, &left) {
                Verdict::Drop(_) => self.dropped += 1,
                Verdict::Pass | Verdict::Mark(_) => {
                    self.sent += 1;
                    state.sent(params, queue, bytes, self.backlog(queue.other()).packets > 0);
                    return true;
                }
            }
        }
    }

    fn queued(&self) -> u64 {
        Queue::BOTH.iter().map(|queue| u64::from(self.backlog(*queue).packets)).sum()
    }
}

#[test]
fn a_million_random_schedules_with_drops_never_stall_and_lose_nothing_uncounted() {
    for params in [rfc(), linux()] {
        let mut dice = Dice::new(77);
        let mut toss = |percent: u32| dice.roll(Prob(u32::MAX / 100 * percent));
        let mut state = DualPi2::new(&params, 5);
        let mut rig = Rig::default();
        for n in 0..1_000_000_u32 {
            if toss(45) {
                let queue = if toss(50) { Queue::L4s } else { Queue::Classic };
                let ecn = if toss(50) { Ecn::Ect1 } else { Ecn::NotEct };
                rig.push(queue, ecn, if toss(50) { 64 } else { 1538 });
            } else {
                // p' of 1 drops all that wait beyond 2 MTU, down to the last packets
                let p_prime = if toss(30) { Prob::ONE } else { Prob::from_f64(0.4) };
                let before = rig.queued();
                let served = rig.serve(&params, &mut state, p_prime);
                assert!(served || rig.queued() == 0, "step {n}: {before} waited");
            }
            assert_eq!(rig.arrived, rig.sent + rig.dropped + rig.queued(), "step {n}");
        }
        assert!(rig.dropped > 10_000 && rig.sent > 10_000, "{} {}", rig.dropped, rig.sent);
        while rig.serve(&params, &mut state, Prob::ZERO) {}
        assert_eq!(rig.arrived, rig.sent + rig.dropped);
        assert_eq!(state.credit(), params.wrr.start());
    }
}

fn any_config() -> impl Strategy<Value = DualPi2Config> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (flags, 1..256_u32, 64..65_536_u32, 0..=100_u32, 0..1_001_u32, 0..4_294_000_000_u64).prop_map(
        |((linux, overflow, any_ect, l4s, ecn), coupling, mtu, percent, floor_packets, step)| {
            let base = if linux { DualPi2Config::linux() } else { DualPi2Config::default() };
            DualPi2Config {
                coupling,
                mtu,
                classic_protection_percent: percent,
                floor_packets,
                overload: if overflow { Overload::Overflow } else { Overload::Drop },
                native: if linux {
                    Native::Step { threshold: Nanos(step) }
                } else {
                    Native::Ramp { min: Nanos(step), range: Nanos(step / 3) }
                },
                any_ect,
                l4s,
                ecn,
                ..base
            }
        },
    )
}

proptest! {
    #[test]
    fn no_input_panics_marks_not_ect_or_remarks_ce(
        config in any_config(), seed: u64, queue in 0..2_usize, ecn in 0..4_u8, rule in 0..5_u8, sojourn: u64,
        l in any::<(u32, u32)>(), c in any::<(u32, u32)>(), bytes: u32, pace: u64, p: u32, eligible: bool,
    ) {
        let params = params(&config);
        let (queue, ecn) = (Queue::BOTH[queue], Ecn::from_bits(ecn));
        let head = Head { queue, ecn, rule: Rule::from_bits(rule), bytes, sojourn: Nanos(sojourn), step_eligible: eligible };
        let backlog = |(packets, bytes)| Backlog { packets, bytes };
        let left = Left { l: backlog(l), c: backlog(c), pace: Pace(pace), p_prime: Prob(p) };
        let mut state = DualPi2::new(&params, seed);
        for _ in 0..50 {
            match state.decide(&params, &head, &left) {
                Verdict::Mark(_) => {
                    prop_assert!(matches!(ecn, Ecn::Ect0 | Ecn::Ect1));
                    prop_assert!(config.ecn);
                    prop_assert!(config.l4s || ecn == Ecn::Ect0 , "off: ECT(1) is as Not-ECT");
                }
                Verdict::Drop(_) => {
                    let lossless = config.overload == Overload::Overflow && queue == Queue::L4s;
                    prop_assert!(!lossless || config.compat == Compat::Linux);
                }
                Verdict::Pass => {}
            }
            state.sent(&params, queue, bytes, true);
        }
    }

    /// What lets the packet path leave the decision out.
    #[test]
    fn a_packet_that_passes_alone_passes_and_leaves_no_trace(
        config in any_config(), seed: u64, before in 0..200_u32, queue in 0..2_usize, ecn in 0..4_u8, rule in 0..5_u8,
        bytes in 1..200_000_u32, pace: u64, p: u32,
    ) {
        let params = params(&config);
        let (queue, ecn) = (Queue::BOTH[queue], Ecn::from_bits(ecn));
        let mut state = DualPi2::new(&params, seed);
        for _ in 0..before {
            state.decide(&params, &head(Queue::L4s, Ecn::Ect1, Rule::None), &busy(0.2));
        }
        let head = Head { queue, ecn, rule: Rule::from_bits(rule), bytes, sojourn: Nanos(1 << 30), step_eligible: true };
        let left = Left { l: EMPTY, c: EMPTY, pace: Pace(pace), p_prime: Prob(p) };
        let was = state;
        if params.passes_lone(bytes) {
            prop_assert_eq!(state.decide(&params, &head, &left), Verdict::Pass);
            state.sent(&params, queue, bytes, false);
            prop_assert_eq!(state, was);
        } else {
            prop_assert!(config.compat == Compat::Linux || bytes >= 2 * config.mtu.min(u32::from(u16::MAX)));
        }
    }

    #[test]
    fn a_likelihood_beyond_one_is_one(coupling in 2..256_u32, p in 0.5..1.0_f64) {
        let params = params(&DualPi2Config { coupling, overload: Overload::Overflow, ..DualPi2Config::default() });
        let l = run(&params, &head(Queue::L4s, Ecn::Ect1, Rule::None), &busy(p), 200);
        prop_assert!(l.marked > 0.99, "{:?}", l);
    }
}
