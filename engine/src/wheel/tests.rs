// SPDX-License-Identifier: Apache-2.0
//! The wheel against a sorted map.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Takes everything up to and including `slot`, in order: (slot, id).
fn drain_to(wheel: &mut Wheel, slot: u64) -> Vec<(u64, u32)> {
    let mut out = Vec::new();
    while let Some(first) = wheel.first().filter(|&first| first <= slot) {
        wheel.advance(first);
        let id = wheel.pop().expect("the slot holds an entry");
        out.push((first, id));
    }
    wheel.advance(slot);
    out
}

#[test]
fn a_chunk_is_a_cache_line() {
    assert_eq!(size_of::<Chunk>(), 64);
}

#[test]
fn what_lies_ahead_is_what_comes_out() {
    let mut wheel = Wheel::new(128);
    for id in 0..100 {
        wheel.insert(id, [5, 5, 5, 9, 70, 31_000][id as usize % 6]);
    }
    // by chunks: those asked for two chunks ahead, one ahead, and those that came out
    let (mut later, mut next, mut out) = (Vec::new(), Vec::new(), Vec::new());
    let sorted = |ids: &[u32]| ids.iter().copied().collect::<std::collections::BTreeSet<_>>();
    while let Some(first) = wheel.first() {
        wheel.advance(first);
        if wheel.begins_chunk() {
            let mut ahead = wheel.ahead();
            next.push(ahead.step().map(sorted));
            later.push(ahead.step().map(sorted));
            ahead.prefetch();
            out.push(Vec::new());
        }
        let id = wheel.pop().expect("the slot holds an entry");
        out.last_mut().expect("a chunk was begun").push(id);
    }
    let out: Vec<_> = out.iter().map(|ids| Some(sorted(ids))).collect();
    assert!(out.len() >= 100 / CHUNK_IDS + 3, "{}", out.len());
    assert_eq!(next, [&out[1..], &[None]].concat());
    assert_eq!(later, [&out[2..], &[None, None]].concat());
    assert!(Wheel::new(4).ahead().step().is_none());
}

#[test]
fn an_entry_can_be_taken_out_of_any_slot() {
    let mut wheel = Wheel::new(100);
    let chunks_free = |wheel: &Wheel| {
        std::iter::successors(Some(wheel.free), |&at| Some(wheel.chunks.get(at as usize)?.next)).count()
    };
    let all = chunks_free(&wheel);
    for id in 0..90 {
        wheel.insert(id, if id < 50 { 5 } else { 9 });
    }
    // from the slot in hand, before and behind it; and entries that came to it meanwhile
    wheel.advance(5);
    let mut out: Vec<u32> = (0..20).filter_map(|_| wheel.pop()).collect();
    wheel.insert(90, 5);
    for id in [90, 0, 17, 29, 55, 89] {
        assert!(wheel.remove(id, if (50..90).contains(&id) { 9 } else { 5 }), "{id}");
        assert!(!wheel.remove(id, 5) && !wheel.remove(id, 9), "{id} is gone");
    }
    assert!(!wheel.remove(out[3], 5) && !wheel.remove(0, 7));
    assert_eq!(wheel.len(), 91 - 20 - 6);
    out.extend(drain_to(&mut wheel, 20).into_iter().map(|(_, id)| id));
    out.extend([90, 0, 17, 29, 55, 89]);
    out.sort_unstable();
    assert_eq!(out, (0..91).collect::<Vec<_>>(), "each once");
    assert_eq!(chunks_free(&wheel), all, "no chunk is lost");
    // the last of a slot
    wheel.insert(7, 30);
    assert!(wheel.remove(7, 30));
    assert_eq!((wheel.first(), chunks_free(&wheel)), (None, all));
}

#[test]
fn empty_time_costs_one_look() {
    let mut wheel = Wheel::new(4);
    assert_eq!(wheel.first(), None);
    wheel.advance(1 << 40);
    assert_eq!(wheel.current(), 1 << 40);
    assert_eq!(wheel.insert(7, (1 << 40) + 20_000), Some((1 << 40) + 20_000));
    assert_eq!(wheel.first(), Some((1 << 40) + 20_000));
}

#[test]
fn what_is_due_past_the_horizon_waits_in_the_last_slot() {
    let mut wheel = Wheel::new(4);
    wheel.advance(1_000);
    // 192 ms: a packet of 1538 bytes at 64 kb/s
    let due = 1_000 + slot_from(Nanos::from_millis(192));
    let at = wheel.insert(1, due).expect("room");
    assert_eq!(at, 1_000 + SLOTS as u64 - 1);
    let mut hops = 0;
    while wheel.first() != Some(due) {
        wheel.advance(wheel.first().expect("held"));
        assert_eq!(wheel.pop(), Some(1));
        wheel.insert(1, due).expect("room");
        hops += 1;
    }
    assert_eq!(hops, 2, "192 ms are less than three horizons");
}

#[test]
fn nothing_is_passed_over() {
    let mut wheel = Wheel::new(4);
    wheel.insert(1, 10).expect("room");
    wheel.advance(500);
    assert_eq!(wheel.current(), 10);
}

#[test]
fn entries_put_back_into_the_slot_being_served_come_after_the_others() {
    let mut wheel = Wheel::new(4);
    for id in 0..3 {
        wheel.insert(id, 0).expect("room");
    }
    let first = wheel.pop().expect("held");
    wheel.insert(first, 0).expect("room");
    let rest: Vec<_> = std::iter::from_fn(|| wheel.pop()).collect();
    assert_eq!(rest.last(), Some(&first));
    assert_eq!(rest.len(), 3);
}

#[test]
fn the_worst_spread_of_its_entries_fits() {
    for entries in [1, 13, 14, 15, 1_000, SLOTS + 100, 4 * SLOTS] {
        let mut wheel = Wheel::new(entries);
        // one to each slot and the rest in the last one used, then half of them into the batch
        for id in 0..u32::try_from(entries).expect("small") {
            let slot = u64::from(id).min(SLOTS as u64 - 1);
            assert!(wheel.insert(id, slot).is_some(), "{entries} entries");
        }
        let out = drain_to(&mut wheel, SLOTS as u64);
        assert_eq!(out.len(), entries);
        assert_eq!(wheel.refused(), 0);
    }
}

#[test]
fn a_dry_free_list_is_refused_and_counted() {
    let mut wheel = Wheel::new(1);
    let placed = (0..100).filter(|&slot| wheel.insert(9, slot).is_some()).count();
    assert_eq!(wheel.len(), placed);
    assert_eq!(wheel.refused(), 100 - placed as u64);
    assert_eq!(drain_to(&mut wheel, 100).len(), placed);
}

proptest! {
    /// Random inserts and drains come out as from a sorted map, capped to the horizon.
    #[test]
    fn it_is_a_sorted_map(
        start in 0_u64..1 << 50,
        steps in vec((vec(0_u64..40_000, 0..40), 0_u64..50_000), 1..40),
    ) {
        let mut wheel = Wheel::new(40 * 40);
        wheel.advance(start);
        let mut oracle: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        let mut next = 0;
        let mut now = start;
        for (delays, ahead) in steps {
            for delay in delays {
                let slot = wheel.insert(next, now + delay).expect("room");
                prop_assert_eq!(slot, now + delay.min(SLOTS as u64 - 1));
                oracle.entry(slot).or_default().push(next);
                next += 1;
            }
            now += ahead;
            let mut out = drain_to(&mut wheel, now);
            out.sort_unstable();
            let later = oracle.split_off(&(now + 1));
            let due = core::mem::replace(&mut oracle, later);
            let expected: Vec<_> =
                due.into_iter().flat_map(|(slot, ids)| ids.into_iter().map(move |id| (slot, id))).collect();
            prop_assert_eq!(out, expected);
            prop_assert_eq!(wheel.first(), oracle.keys().next().copied());
            prop_assert_eq!(wheel.len(), oracle.values().map(Vec::len).sum::<usize>());
        }
        prop_assert_eq!(wheel.refused(), 0);
    }
}
