// SPDX-License-Identifier: Apache-2.0
//! The bank against explicit ticks of every id, and what happens at its edges.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::DualPi2Config;

const TUPDATE: Nanos = Nanos::from_millis(16);
const TARGET: Nanos = Nanos::from_millis(15);

fn pi(config: &DualPi2Config) -> PiParams {
    PiParams::new(config).unwrap()
}

fn bank(capacity: usize) -> PiBank {
    PiBank::new(TUPDATE, capacity, &[pi(&DualPi2Config::default()), pi(&DualPi2Config::linux())])
}

fn quiet(_: u32, _: bool) {}

/// One tick with a head of L that has waited for `delay`.
fn tick_with(bank: &PiBank, id: u32, tick: u64, delay: Nanos) -> u32 {
    let now = Nanos(tick * TUPDATE.0 + 1_000_000_000);
    bank.publish(id, Some(Stamp::at(now.since(delay))), None);
    bank.update(now, &mut quiet)
}

fn tick_empty(bank: &PiBank, id: u32, tick: u64) -> u32 {
    bank.publish(id, None, None);
    bank.update(Nanos(tick * TUPDATE.0 + 1_000_000_000), &mut quiet)
}

#[test]
fn a_head_drives_p_as_the_controller_says() {
    for (profile, config) in [(0, DualPi2Config::default()), (1, DualPi2Config::linux())] {
        let (bank, pi) = (bank(8), pi(&config));
        bank.assign(3, profile, TARGET);
        let (mut p, mut last) = (Prob::ZERO, Nanos::ZERO);
        for (tick, ms) in [(1, 5), (2, 20), (3, 40), (4, 10), (5, 150), (6, 0)] {
            let delay = Nanos::from_millis(ms);
            assert_eq!(tick_with(&bank, 3, tick, delay), 1);
            p = pi.step(p, delay, last, TARGET);
            last = delay;
            assert_eq!(bank.p_prime(3), p, "tick {tick}");
        }
        assert_eq!(bank.p_prime(2), Prob::ZERO, "neighbours are left alone");
    }
}

#[test]
fn the_longer_of_the_two_delays_counts_across_the_wrap_of_stamps() {
    let pi = pi(&DualPi2Config::default());
    let now = Nanos(((1_u64 << 32) + 100_000) << Stamp::SHIFT);
    let ago = |ms| Some(Stamp::at(now.since(Nanos::from_millis(ms))));
    let longest = pi.step(Prob::ZERO, Nanos(30_000_000 / 64 * 64), Nanos::ZERO, TARGET);
    for (l, c) in [(ago(30), ago(1)), (ago(1), ago(30)), (ago(30), None), (None, ago(30)), (ago(30), ago(30))]
    {
        let bank = bank(1);
        bank.publish(0, l, c);
        bank.update(now, &mut quiet);
        assert_eq!(bank.p_prime(0), longest, "{l:?} {c:?}");
    }
}

#[test]
fn a_stamp_of_zero_is_a_time_like_any_other() {
    let bank = bank(1);
    bank.publish(0, Some(Stamp(0)), None);
    assert_eq!(bank.update(Nanos::from_millis(40), &mut quiet), 1);
    assert_eq!(
        bank.p_prime(0),
        pi(&DualPi2Config::default()).step(Prob::ZERO, Nanos::from_millis(40), Nanos::ZERO, TARGET)
    );
    bank.publish(0, None, None);
    bank.update(Nanos::from_millis(56), &mut quiet);
    assert_eq!(bank.update(Nanos::from_millis(72), &mut quiet), 0, "empty is told by the flag");
}

#[test]
fn a_head_stamped_after_the_tick_began_has_waited_for_nothing() {
    let bank = bank(1);
    bank.publish(0, Some(Stamp(1_000)), None);
    bank.update(Nanos(900 << Stamp::SHIFT), &mut quiet);
    assert_eq!(bank.p_prime(0), Prob::ZERO);
}

#[test]
fn an_idle_id_costs_one_settling_visit_and_then_none() {
    let bank = bank(256);
    assert_eq!(tick_with(&bank, 200, 1, Nanos::from_millis(30)), 1);
    assert_eq!(tick_empty(&bank, 200, 2), 1);
    for tick in 3..100 {
        assert_eq!(tick_empty(&bank, 200, tick), 0, "tick {tick}");
    }
}

#[test]
fn an_overload_is_followed_to_its_end_though_the_queue_is_empty() {
    let bank = bank(64);
    let mut events = Vec::new();
    bank.publish(9, Some(Stamp::at(Nanos::from_secs(1))), None);
    bank.update(Nanos::from_millis(1_300), &mut |id, on| events.push((0, id, on)));
    assert_eq!(events, [(0, 9, true)], "p' is 1");
    bank.publish(9, None, None);
    for tick in 1..=400 {
        bank.update(Nanos::from_millis(1_300 + 16 * tick), &mut |id, on| {
            events.push((tick, id, on));
        });
    }
    // the fall of the delay takes 0.963, so p' is below 1/k after one tick
    assert_eq!(events, [(0, 9, true), (1, 9, false)]);
}

#[test]
fn a_long_overload_of_an_idle_queue_is_reported_once_and_ends_once() {
    let bank = bank(64);
    let mut events = Vec::new();
    bank.rests[9].store(pack(Prob::ONE, 0), Ordering::Relaxed);
    for tick in 0..=400 {
        let now = Nanos::from_secs(1) + Nanos(TUPDATE.0 * tick);
        bank.publish(9, (tick == 0).then(|| Stamp::at(now)), None);
        let visited = bank.update(now, &mut |id, on| events.push((tick, id, on)));
        assert_eq!(visited, u32::from(tick <= 208), "tick {tick}");
    }
    // 1 - n * 0.0024 falls below 0.5 with the 209th tick
    assert_eq!(events, [(0, 9, true), (208, 9, false)]);
}

#[test]
fn a_cleared_id_starts_at_zero_at_once_and_ends_its_overload() {
    let bank = bank(64);
    let mut events = Vec::new();
    bank.publish(5, Some(Stamp::at(Nanos::from_secs(1))), None);
    bank.update(Nanos::from_millis(1_300), &mut |id, on| events.push((id, on)));
    assert_eq!(
        bank.p_prime(5),
        pi(&DualPi2Config::default()).step(Prob::ZERO, Nanos::from_millis(300), Nanos::ZERO, TARGET)
    );
    bank.clear(5);
    assert_eq!(bank.p_prime(5), Prob::ZERO, "before the control lcore saw it");
    // the next owner's packet is there before the next tick
    bank.assign(5, 1, TARGET);
    let now = Nanos::from_millis(1_316);
    bank.publish(5, Some(Stamp::at(now.since(Nanos::from_millis(20)))), None);
    bank.update(now, &mut |id, on| events.push((id, on)));
    let fresh = pi(&DualPi2Config::linux()).step(Prob::ZERO, Nanos::from_millis(20), Nanos::ZERO, TARGET);
    assert!((bank.p_prime(5).as_f64() - fresh.as_f64()).abs() < 1e-4, "to the 64 ns of a stamp");
    assert_eq!(events, [(5, true), (5, false)]);
}

#[test]
fn a_cleared_id_that_nobody_takes_ends_its_overload_and_is_not_visited_again() {
    let bank = bank(64);
    let mut events = Vec::new();
    bank.publish(5, Some(Stamp::at(Nanos::from_secs(1))), None);
    bank.update(Nanos::from_millis(1_300), &mut |id, on| events.push((id, on)));
    bank.clear(5);
    assert_eq!(bank.update(Nanos::from_millis(1_316), &mut |id, on| events.push((id, on))), 0);
    assert_eq!(events, [(5, true), (5, false)]);
    assert_eq!(bank.p_prime(5), Prob::ZERO);
}

#[test]
fn a_rate_change_keeps_p() {
    let bank = bank(4);
    tick_with(&bank, 1, 1, Nanos::from_millis(50));
    let before = bank.p_prime(1);
    bank.assign(1, 0, Nanos::from_millis(40));
    assert_eq!(bank.p_prime(1), before);
    bank.assign(1, 9, Nanos::from_millis(40));
    assert_eq!(tick_with(&bank, 1, 2, Nanos::from_millis(50)), 1, "an unknown profile is the first");
}

#[test]
fn a_late_tick_is_one_step_for_the_busy_and_bounded_catch_up_for_the_idle() {
    let (bank, pi) = (bank(8), pi(&DualPi2Config::default()));
    let head = |now: Nanos, ms| Some(Stamp::at(now.since(Nanos::from_millis(ms))));
    bank.rests[1].store(pack(Prob::from_f64(0.9), 0), Ordering::Relaxed);
    for n in 1..=2 {
        let now = Nanos(1_000_000_000 + n * TUPDATE.0);
        bank.publish(0, head(now, 50), None);
        bank.update(now, &mut quiet);
    }
    assert!(bank.p_prime(0) > Prob::ZERO && bank.p_prime(1) > Prob::from_f64(0.8));
    for (late, ticks) in [(1, 1), (3, 3), (8, 8), (1_000, 8), (0, 1)] {
        let (busy, idle) = (bank.p_prime(0), bank.p_prime(1));
        let now = Nanos(bank.last_pass.load(Ordering::Relaxed) + late * TUPDATE.0);
        bank.publish(0, head(now, 50), None);
        assert_eq!(bank.update(now, &mut quiet), 1);
        assert_eq!(
            bank.p_prime(0),
            pi.step(busy, Nanos::from_millis(50), Nanos::from_millis(50), TARGET),
            "{late}"
        );
        assert_eq!(bank.p_prime(1), pi.idle(idle, Nanos::ZERO, ticks, TARGET), "{late} intervals");
    }
    assert_eq!(bank.due(), Nanos(bank.last_pass.load(Ordering::Relaxed)) + TUPDATE);
}

#[test]
fn a_tick_that_comes_a_little_early_or_late_is_one_tick() {
    let (bank, pi) = (bank(1), pi(&DualPi2Config::default()));
    tick_with(&bank, 0, 1, Nanos::from_millis(200));
    tick_empty(&bank, 0, 2);
    let mut expected = bank.p_prime(0);
    let mut now = Nanos(bank.last_pass.load(Ordering::Relaxed));
    for jitter_us in [15_900, 16_100, 9_000, 23_900, 16_000] {
        now += Nanos::from_micros(jitter_us);
        bank.update(now, &mut quiet);
        expected = pi.idle(expected, Nanos::ZERO, 1, TARGET);
        assert_eq!(bank.p_prime(0), expected, "{jitter_us} us after the last");
    }
}

#[test]
fn ticks_may_wrap() {
    let bank = bank(2);
    bank.tick.store(u32::MAX - 5, Ordering::Relaxed);
    bank.rests[0].store(pack(Prob::ONE, u32::MAX - 5), Ordering::Relaxed);
    let pi = pi(&DualPi2Config::default());
    for tick in 1..=20 {
        bank.update(Nanos(tick * TUPDATE.0), &mut quiet);
        assert_eq!(bank.p_prime(0), pi.idle(Prob::ONE, Nanos::ZERO, tick, TARGET), "tick {tick}");
    }
}

#[test]
fn an_id_idle_for_longer_than_ticks_can_tell_is_folded_in_time() {
    let bank = bank(300);
    bank.rests[299].store(pack(Prob::ONE, 0), Ordering::Relaxed);
    for tick in 1..=300 {
        bank.update(Nanos(tick * TUPDATE.0), &mut quiet);
    }
    let (p, tick) = unpack(bank.rests[299].load(Ordering::Relaxed));
    assert_eq!(tick, 300, "its turn has come");
    assert_eq!(p, pi(&DualPi2Config::default()).idle(Prob::ONE, Nanos::ZERO, 300, TARGET));
}

#[test]
fn an_empty_bank_has_nothing_to_do() {
    let bank = bank(0);
    assert_eq!(bank.due(), Nanos::ZERO);
    assert_eq!(bank.update(Nanos::from_secs(1), &mut quiet), 0);
}

#[test]
fn a_stale_head_is_never_seen_by_a_pass_that_races_with_its_owner() {
    let bank = Arc::new(bank(64));
    let clock = Arc::new(AtomicU64::new(1_000_000_000_000));
    let done = Arc::new(AtomicBool::new(false));
    // stamps tell 137 s apart from their opposite: the owner runs no further ahead of a pass than a minute
    let limit = Arc::new(AtomicU64::new(0));
    let owner = {
        let (bank, clock, done, limit) = (bank.clone(), clock.clone(), done.clone(), limit.clone());
        thread::spawn(move || {
            for n in 0..300_000_u32 {
                while clock.load(Ordering::Relaxed) >= limit.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                // two seconds between busy spells: a stale stamp would push p' to 1
                let now = clock.fetch_add(2_000_000_000, Ordering::Relaxed) + 2_000_000_000;
                bank.publish(n % 64, Some(Stamp::at(Nanos(now))), None);
                assert_eq!(bank.p_prime(n % 64), Prob::ZERO);
                bank.publish(n % 64, None, None);
            }
            done.store(true, Ordering::Release);
        })
    };
    let mut passes = 0_u32;
    while !done.load(Ordering::Acquire) || passes == 0 {
        // the time before the pass: any head it may see is from then or later
        let now = Nanos(clock.load(Ordering::Relaxed));
        limit.store(now.0 + 60_000_000_000, Ordering::Relaxed);
        bank.update(now, &mut |id, _| panic!("id {id} is in overload"));
        passes += 1;
    }
    owner.join().unwrap();
}

proptest! {
    /// Random busy and idle spells of several ids in both modes: what the owner reads after each tick equals a
    /// controller that was stepped at every tick for every id.
    #[test]
    fn lazy_ids_equal_explicit_ticks(
        spells in prop::collection::vec(prop::collection::vec((any::<bool>(), 0..400_u64, 1..60_u64), 1..12), 1..6),
    ) {
        let bank = bank(200);
        let configs = [pi(&DualPi2Config::default()), pi(&DualPi2Config::linux())];
        let id = |n: usize| u32::try_from(n * 37).unwrap();
        for n in 0..spells.len() {
            bank.assign(id(n), u16::try_from(n % 2).unwrap(), TARGET);
        }
        let mut plan: Vec<Vec<Option<Nanos>>> = spells
            .iter()
            .map(|spells| spells.iter().flat_map(|(busy, ms, ticks)| (0..*ticks).map(move |_| busy.then(|| Nanos::from_millis(*ms)))).collect())
            .collect();
        let ticks = plan.iter().map(Vec::len).max().unwrap_or(0);
        for steps in &mut plan {
            steps.resize(ticks, None);
        }
        let mut explicit = vec![(Prob::ZERO, Nanos::ZERO); spells.len()];
        for tick in 0..ticks {
            let now = Nanos::from_millis(1_000 + 16 * u64::try_from(tick).unwrap());
            for (n, steps) in plan.iter().enumerate() {
                bank.publish(id(n), steps[tick].map(|delay| Stamp::at(now.since(delay))), None);
            }
            bank.update(now, &mut quiet);
            for (n, (p, last)) in explicit.iter_mut().enumerate() {
                let delay = plan[n][tick].unwrap_or(Nanos::ZERO);
                *p = configs[n % 2].step(*p, delay, *last, TARGET);
                *last = delay;
                prop_assert_eq!(bank.p_prime(id(n)), *p, "id {} tick {}", n, tick);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    /// Ids that are stepped together fare as each would by itself, whoever waits, comes, goes or is in overload.
    #[test]
    fn a_word_of_ids_is_stepped_as_each_by_itself(
        ticks in prop::collection::vec(
            (1_u64..4, prop_oneof![
                prop::collection::vec(0_u64..200, 150),
                prop::collection::vec(prop_oneof![4 => 0_u64..200, 1 => 0_u64..5_000, 1 => Just(u64::MAX)], 150),
            ]),
            1..12,
        ),
        targets in prop_oneof![prop::collection::vec(1_u64..100, 150), (1_u64..100).prop_map(|one| vec![one; 150])],
        mix in 0..3_u8,
        late: bool,
        overflow: bool,
    ) {
        let overload = if overflow { crate::Overload::Overflow } else { crate::Overload::Drop };
        let rfc = DualPi2Config { overload, ..DualPi2Config::default() };
        let configs = [rfc, DualPi2Config::linux(), DualPi2Config { alpha_hz: 0.5, ..rfc }];
        let bank = <PiBank>::new(TUPDATE, 150, &configs.each_ref().map(pi));
        let profile = |id: u32| match mix {
            0 => 0,
            1 => u16::from(id % 50 == 7),
            _ => u16::from(id % 2 == 1) * 2,
        };
        let mut oracle = vec![(Prob::ZERO, Nanos::ZERO, false); 150];
        for (id, &ms) in (0..).zip(&targets) {
            bank.assign(id, profile(id), Nanos::from_millis(ms));
        }
        let mut now = Nanos(TUPDATE.0 * 400);
        for (tick, (gap, delays)) in ticks.iter().enumerate() {
            // the first pass is one tick, whenever it comes
            let gap = if late && tick > 0 { *gap } else { 1 };
            now += Nanos(TUPDATE.0 * gap);
            let mut changes = Vec::new();
            let mut heard = Vec::new();
            for ((id, &ms), known) in (0..).zip(delays).zip(&mut oracle) {
                // the last of the choices is: nothing waits
                let head = (ms < u64::MAX).then(|| Stamp::at(now.since(Nanos::from_millis(ms))));
                bank.publish(id, None, head);
                let delay = head.map_or(Nanos::ZERO, |head| Stamp::at(now).since(head)).min(LONGEST);
                let params = pi(&configs[usize::from(profile(id))]);
                let (p, last, over) = known;
                let target = Nanos::from_millis(targets[id as usize]);
                // who does not wait falls by the ticks that went by
                for _ in 0..if head.is_some() { 1 } else { gap } {
                    *p = params.step(*p, delay, *last, target);
                    *last = delay;
                }
                if params.is_overload(*p) != *over {
                    *over = !*over;
                    changes.push((id, *over));
                }
            }
            bank.update(now, &mut |id, over| heard.push((id, over)));
            for (id, (p, ..)) in (0..).zip(&oracle) {
                prop_assert_eq!(bank.p_prime(id), *p, "id {} at tick {}", id, tick);
            }
            // an id at rest that falls out of overload by itself is heard of when it is visited next, which it is
            heard.sort_unstable();
            prop_assert_eq!(heard, changes);
        }
    }
}
