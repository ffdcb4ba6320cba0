// SPDX-License-Identifier: Apache-2.0
//! The RFC's example, then random flapping against sums kept beside it.

use proptest::prelude::*;

use super::*;

const HOLD: Nanos = Nanos::from_secs(10);

fn at(seconds: u64) -> Nanos {
    Nanos::from_secs(seconds)
}

/// Runs (second, on) of one queue id, polling every second, up to `until`; gives (second, event).
fn run(steps: &[(u64, bool)], until: u64) -> Vec<(u64, OverloadEvent)> {
    let mut monitor = OverloadMonitor::new(4, HOLD);
    let mut events = Vec::new();
    for second in 0..=until {
        for &(_, on) in steps.iter().filter(|(when, _)| *when == second) {
            monitor.set(at(second), QueueId(7), on, &mut |event| {
                events.push((second, event));
            });
        }
        monitor.poll(at(second), &mut |event| events.push((second, event)));
    }
    events
}

fn start(second: u64) -> OverloadEvent {
    OverloadEvent::Start { id: QueueId(7), start: at(second) }
}

fn end(second: u64, duration: u64, episodes: u32) -> OverloadEvent {
    OverloadEvent::End { id: QueueId(7), start: at(second), duration: at(duration), episodes }
}

#[test]
fn an_episode_is_reported_when_it_begins_and_when_it_ends() {
    assert_eq!(run(&[(1, true), (4, false)], 30), [(1, start(1)), (4, end(1, 3, 1))]);
}

#[test]
fn flapping_while_the_timer_runs_is_one_report_when_it_runs_out() {
    let steps = [(1, true), (2, false), (3, true), (4, false), (6, true), (8, false)];
    assert_eq!(run(&steps, 40), [(1, start(1)), (2, end(1, 1, 1)), (12, end(3, 3, 2))]);
}

#[test]
fn overload_at_the_time_the_timer_runs_out_is_reported_as_started_then_and_ended_when_it_ends() {
    let steps = [(1, true), (2, false), (3, true), (4, false), (11, true), (15, false)];
    assert_eq!(run(&steps, 40), [(1, start(1)), (2, end(1, 1, 1)), (12, start(3)), (15, end(3, 5, 2))]);
}

#[test]
fn after_a_quiet_hold_time_an_episode_is_news_again() {
    let steps = [(1, true), (2, false), (20, true), (21, false)];
    assert_eq!(run(&steps, 40), [(1, start(1)), (2, end(1, 1, 1)), (20, start(20)), (21, end(20, 1, 1))]);
}

#[test]
fn repeating_a_state_changes_nothing() {
    let steps = [(1, true), (2, true), (4, false), (5, false)];
    assert_eq!(run(&steps, 30), [(1, start(1)), (4, end(1, 3, 1))]);
}

#[test]
fn what_finds_no_room_is_counted_and_room_comes_back() {
    let mut monitor = OverloadMonitor::new(2, HOLD);
    let mut events = 0;
    for id in 0..3 {
        monitor.set(at(1), QueueId(id), true, &mut |_| events += 1);
    }
    assert_eq!((events, monitor.missed(), monitor.followed()), (2, 1, 2));
    monitor.set(at(2), QueueId(2), false, &mut |_| panic!("was never followed"));
    monitor.forget(QueueId(0));
    monitor.set(at(3), QueueId(2), true, &mut |_| events += 1);
    assert_eq!((events, monitor.missed(), monitor.followed()), (3, 1, 2));
}

#[test]
fn a_forgotten_queue_id_has_no_timer_left() {
    let mut monitor = OverloadMonitor::new(2, HOLD);
    let mut events = Vec::new();
    monitor.set(at(1), QueueId(7), true, &mut |_| ());
    monitor.set(at(2), QueueId(7), false, &mut |_| ());
    monitor.forget(QueueId(7));
    monitor.set(at(3), QueueId(7), true, &mut |event| events.push(event));
    monitor.poll(at(13), &mut |event| events.push(event));
    assert_eq!(events, [start(3)]);
}

proptest! {
    #[test]
    fn reports_are_apart_and_add_up(flips in prop::collection::vec((0_u64..3, 1_u64..40), 1..200)) {
        let mut monitor = OverloadMonitor::new(3, HOLD);
        let mut reported = [Nanos::ZERO; 3];
        let mut spent = [Nanos::ZERO; 3];
        let mut since = [None::<Nanos>; 3];
        let mut last_end = [None::<Nanos>; 3];
        let mut now = at(1);
        let mut events = Vec::new();
        for &(id, wait) in &flips {
            for _ in 0..wait {
                now += at(1);
                monitor.poll(now, &mut |event| events.push((now, event)));
            }
            let place = usize::try_from(id).unwrap();
            let on = since[place].is_none();
            match since[place].take() {
                None => since[place] = Some(now),
                Some(began) => spent[place] += now.since(began),
            }
            monitor.set(now, QueueId(u32::try_from(id).unwrap()), on, &mut |event| events.push((now, event)));
        }
        for (place, began) in since.iter().enumerate() {
            if let Some(began) = began {
                spent[place] += now.since(*began);
                monitor.set(now, QueueId(u32::try_from(place).unwrap()), false, &mut |event| events.push((now, event)));
            }
        }
        for _ in 0..25 {
            now += at(1);
            monitor.poll(now, &mut |event| events.push((now, event)));
        }
        for (when, event) in events {
            if let OverloadEvent::End { id, duration, .. } = event {
                let place = id.0 as usize;
                reported[place] += duration;
                if let Some(last) = last_end[place].replace(when) {
                    prop_assert!(when.since(last) >= HOLD, "{:?} and {:?}", last, when);
                }
            }
        }
        prop_assert_eq!(reported, spent);
        prop_assert_eq!(monitor.followed(), 0);
        prop_assert_eq!(monitor.missed(), 0);
    }
}
