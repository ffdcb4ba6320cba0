// SPDX-License-Identifier: Apache-2.0
//! CodelAF: whom the law meets, its schedule, BLUE, sparse flows, and fairness between loads that do not respond.

use super::*;
use crate::qdisc::driver::{Owner, Random};
use crate::{BitsPerSec, Ecn, FlowKey};

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn sample(now: Nanos, sojourn: Nanos) -> Sample {
    Sample { now, sojourn, flow_packets: 10, packets: 10, flows: 1, mtu_time: Nanos(0) }
}

/// Times from `start`, a packet each 10 us, at which the law acts.
fn acts(flow: &mut Flow, start: Nanos, span: Nanos, sample: Sample) -> Vec<u64> {
    let (config, mut dice) = (CodelAfConfig::default(), Dice::new(1));
    (0..span.0 / 10_000)
        .map(|k| k * 10_000)
        .filter(|at| flow.decide(&config, &mut dice, &Sample { now: start + Nanos(*at), ..sample }).act)
        .collect()
}

#[test]
fn a_lone_flow_meets_codels_schedule_above_target() {
    let mut flow = Flow::default();
    assert!(acts(&mut flow, ms(900), ms(100), sample(ms(0), ms(5))).is_empty(), "not above");
    let got = acts(&mut flow, ms(1_000), ms(400), sample(ms(0), Nanos(5_000_001)));
    // an interval after the first packet above; then / sqrt 2, / sqrt 3, ..., seen by the next packet
    assert_eq!(got, [100_000_000, 170_720_000, 228_450_000, 278_450_000, 323_170_000, 364_000_000]);
}

#[test]
fn a_flow_back_from_silence_above_target_is_acted_on_at_once() {
    let got = acts(&mut Flow::default(), ms(1_000), ms(100), sample(ms(0), ms(6)));
    assert_eq!(got, [10_000, 70_720_000]);
}

/// Sojourn * own packets * flows against target * all packets.
#[test]
fn the_target_is_weighted_by_the_share_of_the_queue() {
    for (flow_packets, flows, below, above) in [
        (50, 2, 5_000_000, 5_000_001),
        (90, 2, 2_777_777, 2_777_778),
        (10, 2, 25_000_000, 25_000_001),
        (1, 10, 50_000_000, 50_000_001),
    ] {
        let at = |sojourn| Sample { flow_packets, packets: 100, flows, ..sample(ms(0), Nanos(sojourn)) };
        assert!(!at(below).exceeds(ms(5)), "{flow_packets}");
        assert!(at(above).exceeds(ms(5)), "{flow_packets}");
    }
}

#[test]
fn four_mtu_times_are_no_queue() {
    let slow = Sample { mtu_time: ms(12), ..sample(ms(0), ms(48)) };
    assert!(acts(&mut Flow::default(), ms(0), ms(500), slow).is_empty());
    let longer = Sample { sojourn: Nanos(48_000_001), ..slow };
    assert!(!acts(&mut Flow::default(), ms(0), ms(500), longer).is_empty());
}

#[test]
fn the_count_falls_while_below_target_and_is_forgotten_in_time() {
    let mut flow = Flow::default();
    acts(&mut flow, ms(0), ms(3_000), sample(ms(0), ms(10)));
    let high = flow.count;
    assert!(high > 100, "{high}");
    let config = CodelAfConfig::default();
    let mut below = flow;
    acts(&mut below, ms(3_000), ms(200), sample(ms(0), ms(1)));
    assert!(below.count < high && below.count > high / 2, "{} of {high}", below.count);
    // lazily and step by step alike
    let mut lazy = flow;
    lazy.relax(&config, ms(3_000));
    let mut steps = lazy;
    for k in 1..=500 {
        steps.relax(&config, ms(3_000 + k));
    }
    lazy.relax(&config, ms(3_500));
    assert_eq!(lazy, steps);
    lazy.relax(&config, Nanos::from_secs(1_000_000));
    assert_eq!(lazy.count, 0);
}

#[test]
fn blue_drops_beyond_four_intervals_and_calms_down() {
    let (config, mut dice) = (CodelAfConfig::default(), Dice::new(1));
    let mut flow = Flow::default();
    for k in 0..100 {
        flow.decide(&config, &mut dice, &sample(ms(1_000 + k * 6), ms(400)));
    }
    assert_eq!(flow.blue, Prob::ZERO, "not beyond");
    for k in 0..100 {
        flow.decide(&config, &mut dice, &sample(ms(2_000 + k * 6), Nanos(400_000_001)));
    }
    assert_eq!(flow.blue.0, 100 << 24, "one step each time more than a target has passed");
    let drops =
        (0..10_000).filter(|_| flow.decide(&config, &mut dice, &sample(ms(2_600), ms(1))).blue).count();
    assert!((3_750..4_060).contains(&drops), "100 / 256: {drops}");
    for k in 0..1_600 {
        flow.relax(&config, ms(3_000 + k * 6));
    }
    assert_eq!(flow.blue, Prob::ZERO);
}

fn arriving(flow: u32, now: Nanos, ecn: Ecn) -> Arriving {
    Arriving { now, bytes: 1_500, ecn, key: FlowKey { flow, ..FlowKey::default() }, ..Arriving::default() }
}

#[test]
fn a_flow_without_a_packet_goes_first_and_its_dummy_counts_until_served() {
    let config = CodelAfConfig { sparse: true, ..CodelAfConfig::default() };
    let mut af = CodelAf::new(config, 1).unwrap();
    let leaving =
        |queue, ms| Leaving { now: Nanos::from_millis(ms), queue, bytes: 1_500, ..Leaving::default() };
    assert_eq!(af.arrive(&arriving(1, ms(0), Ecn::NotEct)), Arrival::Queue(0), "sparse");
    for _ in 0..3 {
        assert_eq!(af.arrive(&arriving(1, ms(0), Ecn::NotEct)), Arrival::Queue(1), "bulk");
    }
    assert_eq!(af.arrive(&arriving(2, ms(1), Ecn::NotEct)), Arrival::Queue(0), "sparse");
    assert_eq!((af.active, af.dummies, af.packets()), (2, 2, 5));
    assert_eq!(af.select(ms(1)), Some(0));
    af.decide(&leaving(0, 1));
    af.decide(&leaving(0, 1));
    assert_eq!(af.select(ms(1)), Some(1));
    assert_eq!((af.active, af.dummies, af.packets()), (2, 1, 3), "the dummy at the head is gone");
    assert_eq!(af.arrive(&arriving(2, ms(2), Ecn::NotEct)), Arrival::Queue(1), "its dummy still waits");
    for _ in 0..4 {
        assert_eq!(af.select(ms(3)), Some(1));
        af.decide(&leaving(1, 3));
    }
    assert_eq!((af.select(ms(3)), af.active, af.dummies), (None, 0, 0));
    assert_eq!(af.arrive(&arriving(2, ms(4), Ecn::NotEct)), Arrival::Queue(0), "sparse again");
}

#[test]
fn the_last_packet_of_a_flow_is_never_dropped() {
    let mut af = CodelAf::new(CodelAfConfig::default(), 1).unwrap();
    af.flows[1] = Flow { count: 50, over: true, blue: Prob::ONE, ..Flow::default() };
    af.arrive(&arriving(1, ms(0), Ecn::NotEct));
    let leaving = Leaving { now: ms(900), bytes: 1_500, sojourn: ms(900), ..Leaving::default() };
    assert_eq!(af.decide(&leaving), Verdict::Pass);
    af.flows[1].blue = Prob::ONE;
    af.arrive(&arriving(1, ms(0), Ecn::NotEct));
    af.arrive(&arriving(1, ms(0), Ecn::NotEct));
    assert_eq!(af.decide(&leaving), Verdict::Drop(Cause::Law));
}

#[test]
fn codel_marks_ect_drops_not_ect_and_leaves_ce_and_blue_drops_all() {
    let table = [
        (Ecn::NotEct, Verdict::Drop(Cause::Law)),
        (Ecn::Ect1, Verdict::Mark(Cause::Law)),
        (Ecn::Ect0, Verdict::Mark(Cause::Law)),
        (Ecn::Ce, Verdict::Pass),
    ];
    for (ecn, verdict) in table {
        for (blue, expected) in [(Prob::ZERO, verdict), (Prob::ONE, Verdict::Drop(Cause::Law))] {
            let mut af = CodelAf::new(CodelAfConfig::default(), 1).unwrap();
            (0..20).for_each(|_| {
                af.arrive(&arriving(1, ms(0), ecn));
            });
            af.flows[1] = Flow { count: 1, over: true, blue, ..af.flows[1] };
            let leaving = Leaving { now: ms(9), bytes: 1_500, ecn, sojourn: ms(9), ..Leaving::default() };
            assert_eq!(af.decide(&leaving), expected, "{ecn:?}");
        }
    }
}

#[test]
fn the_limit_is_its_own() {
    let mut af = CodelAf::new(CodelAfConfig { limit_packets: 3, ..CodelAfConfig::default() }, 1).unwrap();
    let answers: Vec<Arrival> = (0..4).map(|k| af.arrive(&arriving(k, ms(0), Ecn::NotEct))).collect();
    assert_eq!(answers[2..], [Arrival::Queue(0), Arrival::Drop(Cause::Limit)]);
}

/// Shares sent of two flows that offer 16 and 8 Mb/s to a link of 20, for a minute; Not-ECT.
fn shares(sparse: bool) -> [f64; 2] {
    let config = CodelAfConfig { sparse, ..CodelAfConfig::default() };
    let mut owner = Owner::new(Box::new(CodelAf::new(config, 1).unwrap()), 10_000);
    let pace = Pace::of(BitsPerSec(20_000_000));
    let mut random = Random::new(4);
    let mut due = [0_u64, 400_000];
    let (mut now, mut departure) = (0, Nanos::ZERO);
    while now < 60_000_000_000 {
        let index = usize::from(due[1] < due[0]);
        now = due[index];
        due[index] += [750_000, 1_500_000][index] - 100_000 + random.below(200_000);
        while departure <= Nanos(now) {
            departure +=
                owner.serve(departure, pace).map_or(Nanos(100_000), |(_, bytes)| pace.time(bytes.into()));
        }
        // codepoints tell the flows apart in the counts; neither is changed by a drop
        let ecn = [Ecn::NotEct, Ecn::Ce][index];
        owner.arrive(&arriving(u32::try_from(index).unwrap() + 1, Nanos(now), ecn));
    }
    owner.check();
    [Ecn::NotEct, Ecn::Ce].map(|ecn| {
        let counts = owner.counts[ecn as usize];
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let share = counts.sent as f64 / counts.arrived as f64;
        share
    })
}

#[test]
fn the_heavier_of_two_flows_bears_the_drops() {
    for sparse in [false, true] {
        let [heavy, light] = shares(sparse);
        assert!(heavy < 0.80 && light > 0.98, "{sparse}: {heavy}, {light}");
    }
}

#[test]
fn parameters_outside_their_limits_are_refused() {
    let good = CodelAfConfig::default();
    for bad in [
        CodelAfConfig { target: ms(200), ..good },
        CodelAfConfig { flows: 0, ..good },
        CodelAfConfig { flows: 40_000, ..good },
        CodelAfConfig { limit_packets: 0, ..good },
        CodelAfConfig { interval: ms(5_000), ..good },
    ] {
        assert!(CodelAf::new(bad, 0).is_err(), "{bad:?}");
    }
}
