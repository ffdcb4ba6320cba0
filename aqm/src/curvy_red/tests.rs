// SPDX-License-Identifier: Apache-2.0
//! Curvy RED: likelihoods and Q_C by hand and against figure 10, the scheduler, and what happens to each codepoint.

use super::*;
use crate::{Ecn, Rule};

const MTU: u32 = 1_538;

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn red() -> CurvyRed {
    CurvyRed::new(CurvyRedConfig::default(), 3).unwrap()
}

/// With both queues long, C's head from time 0.
fn long(q_c: Nanos) -> CurvyRed {
    let waiting = Backlog { packets: 1_000_000, bytes: 1_000_000 * 64 };
    let fifo = Fifo { waiting, head_came: Nanos::ZERO };
    CurvyRed { q_c: q_c.0.cast_signed(), fifos: [fifo; 2], ..red() }
}

/// The share of a million packets that the law acts on, and what it does; Q_C stays as it is.
fn share(q_c: Nanos, queue: Queue, ecn: Ecn, rule: Rule, sojourn: Nanos) -> (f64, Vec<Verdict>) {
    let mut red = CurvyRed { config: CurvyRedConfig { u: 1, ..CurvyRedConfig::default() }, ..long(q_c) };
    let (mut acted, mut verdicts) = (0_u32, Vec::new());
    let packets = 200_000;
    for _ in 0..packets {
        let packet = Leaving { queue: queue as u32, bytes: 64, ecn, rule, sojourn, ..Leaving::default() };
        let verdict = match queue {
            Queue::L4s => red.decide_l(&packet, sojourn),
            Queue::Classic => red.decide_c(&packet),
        };
        acted += u32::from(verdict != Verdict::Pass);
        if verdict != Verdict::Pass && !verdicts.contains(&verdict) {
            verdicts.push(verdict);
        }
    }
    (f64::from(acted) / f64::from(packets), verdicts)
}

/// (Q_C - 0.5 ms) / 0.5 s, and over 0.25 s for L.
#[test]
fn likelihoods_are_those_of_figure_10() {
    for (q_c, sqrt_p_c, p_cl) in [
        (Nanos(500_000), 0.0, 0.0),
        (Nanos(25_500_000), 0.05, 0.1),
        (Nanos(50_500_000), 0.1, 0.2),
        (Nanos(250_500_000), 0.5, 1.0),
        (ms(4_000), 1.0, 1.0),
    ] {
        #[expect(clippy::cast_precision_loss, reason = "at most 2^32")]
        let ratio = |scaled: u64| scaled as f64 / ONE as f64;
        let red = long(q_c);
        assert!((ratio(red.scaled(0)) - sqrt_p_c).abs() < 1e-9, "{q_c:?}");
        assert!((ratio(red.scaled(1)) - p_cl).abs() < 1e-9, "{q_c:?}");
    }
    for s_c in [-12, 0, 2] {
        let red =
            CurvyRed { config: CurvyRedConfig { s_c, ..CurvyRedConfig::default() }, ..long(Nanos(600_000)) };
        let expected = 0.000_1 / f64::from(s_c).exp2();
        #[expect(clippy::cast_precision_loss, reason = "at most 2^32")]
        let got = red.scaled(0) as f64 / ONE as f64;
        assert!((got / expected - 1.0).abs() < 1e-4, "{s_c}: {got} for {expected}");
    }
}

#[test]
fn q_c_moves_by_a_thirty_second_of_the_difference() {
    let mut red = long(Nanos::ZERO);
    let leaving = |now, sojourn| Leaving { now, queue: 1, bytes: 64, sojourn, ..Leaving::default() };
    red.decide(&leaving(ms(32), ms(32)));
    assert_eq!(red.q_c, 1_000_000);
    red.decide(&leaving(ms(40), ms(33)));
    assert_eq!(red.q_c, 2_000_000);
    for _ in 0..1_000 {
        red.decide(&leaving(ms(90), ms(20)));
    }
    assert!((red.q_c - 20_000_000).abs() < 64, "{}", red.q_c);
}

#[test]
fn q_c_falls_to_zero_under_l_alone_and_stands_while_c_waits() {
    let leaving = Leaving { queue: 0, bytes: 64, ..Leaving::default() };
    let mut red = long(ms(20));
    red.decide(&leaving);
    assert_eq!(red.q_c, 20_000_000);
    red.fifos[C] = Fifo::default();
    for _ in 0..2_000 {
        red.decide(&leaving);
    }
    assert!(red.q_c <= 0 && red.q_c > -32, "{}", red.q_c);
}

#[test]
fn l_is_marked_linearly_and_c_acted_on_with_the_square() {
    let near = |got: f64, expected: f64| (got - expected).abs() < 0.01 * expected.max(0.1);
    for (q_c, p_cl) in [(Nanos(50_500_000), 0.2), (Nanos(125_500_000), 0.5)] {
        let p_c = p_cl * p_cl / 4.0;
        let (l, what) = share(q_c, Queue::L4s, Ecn::Ect1, Rule::None, ms(1));
        assert!(near(l, p_cl) && what == [Verdict::Mark(Cause::Coupled)], "{l}, {what:?}");
        let (c, what) = share(q_c, Queue::Classic, Ecn::NotEct, Rule::None, ms(1));
        assert!(near(c, p_c) && what == [Verdict::Drop(Cause::Law)], "{c}, {what:?}");
    }
}

#[test]
fn a_curviness_of_two_squares_l_and_takes_c_to_the_fourth() {
    let mut red =
        CurvyRed { config: CurvyRedConfig { u: 2, ..CurvyRedConfig::default() }, ..long(Nanos(125_500_000)) };
    let count = |red: &mut CurvyRed, u| (0..100_000).filter(|_| red.acts(ONE / 2, u)).count();
    let (l, c) = (count(&mut red, 2), count(&mut red, 4));
    assert!((24_500..25_500).contains(&l) && (5_900..6_600).contains(&c), "{l}, {c}");
}

#[test]
fn all_of_l_above_t_is_marked_but_the_last() {
    let (l, what) = share(Nanos::ZERO, Queue::L4s, Ecn::Ect1, Rule::None, Nanos(1_000_001));
    assert!(l >= 1.0 && what == [Verdict::Mark(Cause::Native)]);
    let (l, _) = share(Nanos::ZERO, Queue::L4s, Ecn::Ect1, Rule::None, ms(1));
    assert!(l <= 0.0);
    let mut red = red();
    red.arrive(&Arriving { ecn: Ecn::Ect1, bytes: MTU, ..Arriving::default() });
    let last = Leaving { queue: 0, ecn: Ecn::Ect1, bytes: MTU, sojourn: ms(9), ..Leaving::default() };
    assert_eq!(red.decide(&last), Verdict::Pass, "lq.time() is zero once L is empty");
}

/// p_CL 0.5, p_C 1/16, as (share acted on, verdict).
#[test]
fn each_codepoint_and_rule_gets_its_treatment() {
    use {Ecn::*, Queue::*};
    let (coupled, law) = (Verdict::Mark(Cause::Coupled), Verdict::Mark(Cause::Law));
    let (drop, drop_l) = (Verdict::Drop(Cause::Law), Verdict::Drop(Cause::Coupled));
    let table = [
        (L4s, Ect1, Rule::None, 0.5, coupled),
        (L4s, Ce, Rule::None, 0.0, Verdict::Pass),
        (L4s, Ect0, Rule::ForceL4s, 0.0625, coupled),
        (L4s, NotEct, Rule::ForceL4s, 0.0625, drop_l),
        (L4s, NotEct, Rule::Nqb, 0.0625, drop_l),
        (L4s, Ect0, Rule::Nqb, 0.0625, drop_l),
        (L4s, Ect1, Rule::Nqb, 0.5, coupled),
        (Classic, NotEct, Rule::None, 0.0625, drop),
        (Classic, Ect0, Rule::None, 0.0625, law),
        (Classic, Ect1, Rule::ForceClassic, 0.5, coupled),
        (Classic, Ect1, Rule::Exclude, 0.0625, drop),
        (Classic, Ce, Rule::ForceClassic, 0.0, Verdict::Pass),
    ];
    for (queue, ecn, rule, expected, verdict) in table {
        let (got, what) = share(Nanos(125_500_000), queue, ecn, rule, ms(1));
        assert!((got - expected).abs() < 0.005, "{queue:?} {ecn:?} {rule:?}: {got}");
        assert!(what.iter().all(|seen| *seen == verdict), "{queue:?} {ecn:?} {rule:?}: {what:?}");
    }
}

/// Q_C 300.5 ms: p_CL is 1, p_C 0.36.
#[test]
fn in_overload_both_queues_drop_alike_and_l_is_marked() {
    let q_c = Nanos(300_500_000);
    for (queue, ecn, marked) in [
        (Queue::L4s, Ecn::Ect1, true),
        (Queue::L4s, Ecn::Ce, false),
        (Queue::Classic, Ecn::Ect0, false),
        (Queue::Classic, Ecn::NotEct, false),
    ] {
        let mut red = long(q_c);
        let packet = Leaving { queue: queue as u32, bytes: 64, ecn, ..Leaving::default() };
        let verdicts: Vec<Verdict> = (0..100_000)
            .map(|_| if queue == Queue::L4s { red.decide_l(&packet, ms(1)) } else { red.decide_c(&packet) })
            .collect();
        let dropped = verdicts.iter().filter(|v| **v == Verdict::Drop(Cause::Overload)).count();
        assert!((35_400..36_600).contains(&dropped), "{queue:?} {ecn:?}: {dropped}");
        let rest = if marked { Verdict::Mark(Cause::Coupled) } else { Verdict::Pass };
        assert!(verdicts.iter().all(|v| *v == rest || *v == Verdict::Drop(Cause::Overload)));
    }
}

#[test]
fn c_waits_for_the_time_shift_longer() {
    let l = |now| Arriving { now, ecn: Ecn::Ect1, bytes: MTU, ..Arriving::default() };
    let c = |now| Arriving { now, bytes: MTU, ..Arriving::default() };
    let mut red = red();
    assert_eq!(red.select(ms(0)), None);
    red.arrive(&c(ms(10)));
    assert_eq!(red.select(ms(10)), Some(1), "L is empty");
    red.arrive(&l(ms(60)));
    assert_eq!(red.select(ms(60)), Some(0), "50 ms later, just in time");
    red.decide(&Leaving { now: ms(60), queue: 0, bytes: MTU, ecn: Ecn::Ect1, ..Leaving::default() });
    red.arrive(&l(ms(60) + Nanos(1)));
    assert_eq!(red.select(ms(61)), Some(1), "too late");
    assert_eq!(red.select(ms(900)), Some(1), "whenever it is asked");
}

/// Both queues loaded beyond the link: C's head gets `tshift` older than L's.
#[test]
fn under_load_the_heads_differ_by_the_time_shift() {
    let mut red = red();
    let mut queues = [std::collections::VecDeque::new(), std::collections::VecDeque::new()];
    let mut last = [Nanos::ZERO; 2];
    for k in 0..4_000_u64 {
        let now = Nanos(k * 200_000);
        for ecn in [Ecn::Ect1, Ecn::NotEct] {
            let Arrival::Queue(queue) = red.arrive(&Arriving { now, ecn, bytes: MTU, ..Arriving::default() })
            else {
                panic!("never drops at arrival");
            };
            queues[queue as usize].push_back(now);
        }
        let queue = red.select(now).unwrap();
        let came = queues[queue as usize].pop_front().unwrap();
        let sojourn = now.since(came);
        last[queue as usize] = sojourn;
        red.decide(&Leaving { now, queue, bytes: MTU, sojourn, ..Leaving::default() });
    }
    let difference = last[1].since(last[0]);
    assert!(difference.0.abs_diff(50_000_000) < 1_000_000, "{last:?}");
}

#[test]
fn the_newest_is_shed_first_and_only_over_the_limit() {
    let mut red = red();
    assert_eq!(red.shed(true), None);
    red.arrive(&Arriving { bytes: MTU, ..Arriving::default() });
    red.arrive(&Arriving { bytes: MTU, ecn: Ecn::Ect1, ..Arriving::default() });
    assert_eq!(red.shed(false), None);
    assert_eq!(red.shed(true), Some((0, End::Tail)));
    red.removed(0, MTU);
    assert_eq!(red.shed(true), Some((1, End::Tail)));
}

#[test]
fn parameters_outside_their_limits_are_refused() {
    let good = CurvyRedConfig::default();
    assert!(CurvyRed::new(good, 0).is_ok());
    for bad in [
        CurvyRedConfig { k_prime: 8, ..good },
        CurvyRedConfig { g_c: 17, ..good },
        CurvyRedConfig { s_c: -13, ..good },
        CurvyRedConfig { s_c: 3, ..good },
        CurvyRedConfig { u: 0, ..good },
        CurvyRedConfig { tshift: ms(5_000), ..good },
    ] {
        assert!(CurvyRed::new(bad, 0).is_err(), "{bad:?}");
    }
}
