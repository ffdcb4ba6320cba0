// SPDX-License-Identifier: Apache-2.0
//! Times from rates, CoDel's schedule and its undoing, BLUE's rise and fall.

use super::*;
use crate::BitsPerSec;

const MTU: u32 = 1538;

fn params(mbps: u64) -> CobaltParams {
    CobaltParams::new(Nanos::from_millis(100), MTU, Pace::of(BitsPerSec(mbps * 1_000_000)))
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

#[test]
fn target_and_interval_follow_cake_set_rate() {
    let fast = params(100);
    assert_eq!((fast.target, fast.interval), (ms(5), ms(100)));
    assert_eq!(fast.mtu_time.0 / 10, 12_304, "123.04 us");
    // 1 Mb/s: 12.304 ms an MTU, so 18.456 ms of target and 113.456 ms of interval
    let slow = params(1);
    assert_eq!((slow.target.0 / 1_000, slow.interval.0 / 1_000), (18_456, 113_456));
    // 64 kb/s: the interval is never below two targets
    let slowest = CobaltParams::new(ms(10), MTU, Pace::of(BitsPerSec(64_000)));
    assert_eq!(slowest.interval, slowest.target + slowest.target);
}

/// Milliseconds at which packets that leave one a millisecond after `sojourn` each are signalled.
fn signals(cobalt: &mut Cobalt, from: u64, to: u64, sojourn: Nanos) -> Vec<u64> {
    let (params, mut dice) = (params(100), Dice::new(1));
    (from..to)
        .filter(|&at| {
            let wanted = cobalt.decide(&params, ms(at), sojourn, true, &mut dice);
            assert!(!wanted.blue);
            wanted.signal
        })
        .collect()
}

#[test]
fn signals_come_an_interval_after_the_target_is_exceeded_and_then_faster() {
    let mut cobalt = Cobalt::default();
    assert!(signals(&mut cobalt, 1_000, 1_500, ms(5)).is_empty(), "at the target");
    // 100, then 100 / sqrt(2) = 70.7, / sqrt(3) = 57.7, / sqrt(4) = 50 later, on the next packet
    let got = signals(&mut cobalt, 2_000, 2_400, ms(6));
    assert_eq!(got, [2_100, 2_171, 2_229, 2_279, 2_324, 2_364]);
    assert_eq!(cobalt.count, 7);
}

#[test]
fn the_count_is_undone_step_by_step_below_the_target() {
    let mut cobalt = Cobalt::default();
    signals(&mut cobalt, 2_000, 2_400, ms(6));
    let mut counts = Vec::new();
    for at in 2_400..2_900 {
        signals(&mut cobalt, at, at + 1, ms(1));
        counts.push(cobalt.count);
    }
    assert!(counts.windows(2).all(|pair| pair[0] == pair[1] || pair[0] == pair[1] + 1), "{counts:?}");
    assert_eq!(counts.last(), Some(&0));
    // from 7 to 6 at 2,402, and 100 / sqrt(6) = 40.8 ms later to 5; 100 / sqrt(2) = 70.7 at 2
    assert_eq!(counts.iter().filter(|&&count| count == 6).count(), 41);
    assert_eq!(counts.iter().filter(|&&count| count == 2).count(), 70);
}

#[test]
fn a_long_pause_undoes_it_at_once() {
    let mut cobalt = Cobalt::default();
    signals(&mut cobalt, 2_000, 3_000, ms(6));
    assert!(cobalt.count > 10);
    signals(&mut cobalt, 60_000, 60_001, ms(1));
    assert_eq!(cobalt.count, 0);
    assert!(!cobalt.rests(ms(60_001)) && cobalt.rests(ms(60_100)));
}

#[test]
fn at_a_low_rate_four_packets_may_always_wait() {
    let (params, mut dice, mut cobalt) = (params(1), Dice::new(1), Cobalt::default());
    for at in 1_000..3_000 {
        // 4 MTU are 49.2 ms
        assert_eq!(cobalt.decide(&params, ms(at), ms(49), true, &mut dice), Wanted::default());
    }
    for at in 3_000..3_200 {
        cobalt.decide(&params, ms(at), ms(50), true, &mut dice);
    }
    assert!(cobalt.count > 1);
}

#[test]
fn blue_rises_by_a_256th_an_overflow_and_falls_by_a_4096th_each_empty_turn() {
    let (params, mut cobalt) = (params(100), Cobalt::default());
    for at in 0..100 {
        cobalt.full(&params, ms(1_000 + at));
    }
    // every 6 ms is the first later than a target: 17 times in 100 ms
    assert_eq!(cobalt.p_drop, 17 << 24);
    let mut dice = Dice::new(5);
    let packets = 100_000;
    let dropped = (0..packets)
        .filter(|_| {
            let mut state = cobalt;
            state.decide(&params, ms(1_100), Nanos::ZERO, true, &mut dice).blue
        })
        .count();
    let expected = packets * 17 / 256;
    assert!(dropped.abs_diff(expected) < expected / 20, "{dropped} of {packets}");
    let mut turns = 0;
    while !cobalt.rests(ms(1_100 + turns)) {
        cobalt.empty(&params, ms(1_100 + turns));
        turns += 1;
    }
    // 17 * 16 steps, one each 6 ms
    assert!(turns.abs_diff(17 * 16 * 6) < 110, "{turns}");
}

#[test]
fn blue_stays_within_its_ends() {
    let (params, mut cobalt) = (params(100), Cobalt::default());
    for at in 0..1_000 {
        cobalt.full(&params, ms(10 * at));
    }
    assert_eq!(cobalt.p_drop, u32::MAX);
    assert!(cobalt.decide(&params, ms(10_000), Nanos::ZERO, true, &mut Dice::new(1)).blue);
    cobalt.p_drop = 1;
    cobalt.empty(&params, ms(20_000));
    assert_eq!(cobalt.p_drop, 0);
}
