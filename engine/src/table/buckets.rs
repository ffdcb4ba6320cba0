// SPDX-License-Identifier: Apache-2.0
//! The lock-free hash table under the classifier: 64-byte two-choice buckets, one writer, any number of readers.
//!
//! A bucket is one cache line: five 64-bit keys, five 32-bit values and a state word (8 bits: how many keys that
//! would rather be here live in their second bucket; 24 bits: a version). A key is a seeded hash; 0 is no key.
//! Most lookups, hits and misses alike, touch one line, because a bucket whose count is 0 sends nobody on.
//!
//! Why a reader is right without ever waiting for the writer (who may be preempted for milliseconds):
//! * A slot is filled value first, key second, then the version rises; it is emptied by clearing the key, then the
//!   version rises. So a reader that found its key but read the value of a later one sees another version, and
//!   looks again.
//! * A key moves by being copied to its other bucket, then cleared here. A reader that looked into the first
//!   bucket before the key came there, and into the second after it had left, sees that the first's version rose in
//!   between. A reader that saw it leave the first sees the count, which rose before.
//!
//! It looks again only if the writer finished something meanwhile, so somebody always gets on. A version would
//! have to wrap, 2^24 changes of one bucket within one lookup, to deceive it.
//!
//! This file knows its atomics and its memory only through `super`, so that `tests/loom.rs` can check every
//! interleaving of the same code.

use super::sync::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Release},
};

/// Keys in a bucket.
pub(crate) const SLOTS: usize = 5;

/// Part of the state word that counts keys in their second bucket.
const AWAY_MASK: u32 = 0xff;
/// One step of the version.
const VERSION_STEP: u32 = AWAY_MASK + 1;
/// Buckets looked at for a way to make room, before the table counts as full.
const SEARCH_LIMIT: usize = 256;

/// One cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Bucket {
    keys: [AtomicU64; SLOTS],
    values: [AtomicU32; SLOTS],
    state: AtomicU32,
}

impl Bucket {
    /// Without keys.
    pub(crate) fn empty() -> Self {
        Self {
            keys: core::array::from_fn(|_| AtomicU64::new(0)),
            values: core::array::from_fn(|_| AtomicU32::new(0)),
            state: AtomicU32::new(0),
        }
    }

    /// The place of `key`, or `SLOTS` or more. Without branches on the way: a hit may be in any slot.
    #[inline]
    fn find(&self, key: u64) -> usize {
        let mut hits = 0_u32;
        for (slot, held) in self.keys.iter().enumerate() {
            hits |= u32::from(held.load(Acquire) == key) << slot;
        }
        // no hit: 32 trailing zeros, no such slot
        hits.trailing_zeros() as usize
    }

    /// The value of `key`.
    #[inline]
    fn probe(&self, key: u64) -> Option<u32> {
        self.values.get(self.find(key)).map(|value| value.load(Acquire))
    }

    fn slot_of(&self, key: u64) -> Option<usize> {
        self.keys.iter().position(|held| held.load(Acquire) == key)
    }

    fn fill(&self, slot: usize, key: u64, value: u32) {
        if let (Some(held), Some(place)) = (self.keys.get(slot), self.values.get(slot)) {
            place.store(value, Release);
            held.store(key, Release);
            self.step(VERSION_STEP);
        }
    }

    fn clear(&self, slot: usize) {
        if let Some(held) = self.keys.get(slot) {
            held.store(0, Release);
            self.step(VERSION_STEP);
        }
    }

    fn step(&self, by: u32) {
        self.state.store(self.state.load(Acquire).wrapping_add(by), Release);
    }

    /// A key that would rather be here lives elsewhere. A count that ever reached its limit stays there.
    fn sent_away(&self) {
        if self.state.load(Acquire) & AWAY_MASK < AWAY_MASK {
            self.step(1);
        }
    }

    fn came_back(&self) {
        if self.state.load(Acquire) & AWAY_MASK < AWAY_MASK {
            self.step(1_u32.wrapping_neg());
        }
    }
}

/// What a look at one bucket gave: a value, whether it was there, whether more must be looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Glance(u64);

const HIT: u32 = 32;
const DOUBTFUL: u32 = 33;

impl Glance {
    /// Whether another bucket, or this one again, would have to be looked at.
    #[inline]
    pub(crate) const fn is_doubtful(self) -> bool {
        self.0 >> DOUBTFUL != 0
    }

    /// This one, or the other where this found nothing.
    #[inline]
    #[must_use]
    pub(crate) fn or(self, other: Self) -> Self {
        let picked = core::hint::select_unpredictable(self.0 >> HIT & 1 == 1, self.0, other.0);
        Self(picked | (self.0 | other.0) & 1 << DOUBTFUL)
    }

    /// The value found.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the value is in the low half")]
    pub(crate) const fn value(self) -> Option<u32> {
        if self.0 >> HIT & 1 == 1 { Some(self.0 as u32) } else { None }
    }
}

/// No room for a key within the search limit: the table has to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// The table. Methods that change it are for one thread at a time, which whoever holds it sees to; a second writer
/// could lose keys, no more.
#[derive(Debug)]
pub(crate) struct Buckets<S> {
    buckets: S,
    mask: usize,
}

impl<S: core::ops::Deref<Target = [Bucket]>> Buckets<S> {
    /// Over a slice of empty buckets, whose length is a power of two and at least 2.
    pub(crate) fn new(buckets: S) -> Self {
        assert!(buckets.len() >= 2 && buckets.len().is_power_of_two(), "{} buckets", buckets.len());
        let mask = buckets.len() - 1;
        Self { buckets, mask }
    }

    /// Places for keys.
    pub(crate) fn slots(&self) -> usize {
        self.buckets.len() * SLOTS
    }

    /// First and second bucket of a key; never the same.
    #[expect(clippy::cast_possible_truncation, reason = "masked to the number of buckets")]
    const fn places(&self, key: u64) -> (usize, usize) {
        let first = key as usize & self.mask;
        let second = (key >> 32) as usize & self.mask;
        (first, if second == first { second ^ 1 } else { second })
    }

    #[expect(clippy::indexing_slicing, reason = "masked by the length, which is a power of two")]
    fn bucket(&self, place: usize) -> &Bucket {
        &self.buckets[place & self.mask]
    }

    /// Where a lookup of `key` begins, for a prefetch.
    #[inline]
    pub(crate) fn line_of(&self, key: u64) -> *const Bucket {
        self.bucket(self.places(key).0)
    }

    /// The value of a key. Never waits.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<u32> {
        let seen = self.glance(key);
        if seen.is_doubtful() { self.search(key) } else { seen.value() }
    }

    /// What the first bucket says about a key, without a branch: which of a packet's keys is there is anybody's guess, and
    /// a wrong one costs as much as three glances.
    #[inline]
    pub(crate) fn glance(&self, key: u64) -> Glance {
        let bucket = self.bucket(self.places(key).0);
        let before = bucket.state.load(Acquire);
        let slot = bucket.find(key);
        let hit = slot < SLOTS;
        let value = bucket.values[if hit { slot } else { 0 }].load(Acquire);
        let changed = u64::from(bucket.state.load(Acquire) != before);
        let elsewhere = u64::from(!hit) & u64::from(before & AWAY_MASK > 0);
        Glance(u64::from(value) | u64::from(hit) << HIT | (changed | elsewhere) << DOUBTFUL)
    }

    /// The value of a key that may be in either bucket, while the writer goes on.
    #[cold]
    fn search(&self, key: u64) -> Option<u32> {
        let (first, second) = self.places(key);
        let first = self.bucket(first);
        loop {
            let before = first.state.load(Acquire);
            let mut found = first.probe(key);
            let mut sound = true;
            if found.is_none() && before & AWAY_MASK > 0 {
                let second = self.bucket(second);
                let there = second.state.load(Acquire);
                found = second.probe(key);
                if found.is_some() && second.state.load(Acquire) == there {
                    return found;
                }
                sound = found.is_none();
            }
            if sound && first.state.load(Acquire) == before {
                return found;
            }
        }
    }

    /// Adds a key or changes its value; the value it had. `key` is not 0.
    pub(crate) fn put(&self, key: u64, value: u32) -> Result<Option<u32>, Full> {
        debug_assert_ne!(key, 0, "0 is no key");
        let (first, second) = self.places(key);
        for place in [first, second] {
            let bucket = self.bucket(place);
            if let Some(held) = bucket.slot_of(key).and_then(|slot| bucket.values.get(slot)) {
                let old = held.load(Acquire);
                held.store(value, Release);
                return Ok(Some(old));
            }
        }
        let (place, slot) = self.make_room(first, second).ok_or(Full)?;
        if place == second {
            self.bucket(first).sent_away();
        }
        self.bucket(place).fill(slot, key, value);
        Ok(None)
    }

    /// Removes a key; the value it had.
    pub(crate) fn remove(&self, key: u64) -> Option<u32> {
        let (first, second) = self.places(key);
        for place in [first, second] {
            let bucket = self.bucket(place);
            if let Some(slot) = bucket.slot_of(key) {
                let value = bucket.values.get(slot).map(|held| held.load(Acquire));
                bucket.clear(slot);
                if place == second {
                    self.bucket(first).came_back();
                }
                return value;
            }
        }
        None
    }

    /// A free slot in one of two buckets, the first preferred; keys are moved out of the way if need be.
    fn make_room(&self, first: usize, second: usize) -> Option<(usize, usize)> {
        let mut search = vec![Step { place: first, from: None }, Step { place: second, from: None }];
        let mut next = 0;
        while let Some(&Step { place, .. }) = search.get(next) {
            if let Some(slot) = self.bucket(place).slot_of(0) {
                return Some(self.clear_way(&search, next, slot));
            }
            for (slot, held) in self.bucket(place).keys.iter().enumerate() {
                let to = self.other_place(held.load(Acquire), place);
                if search.len() < SEARCH_LIMIT && search.iter().all(|step| step.place != to) {
                    search.push(Step { place: to, from: Some((next, slot)) });
                }
            }
            next += 1;
        }
        None
    }

    /// Moves keys along a way that ends at a free slot, last first, so that none is ever away; the slot that gets
    /// free at its beginning.
    fn clear_way(&self, search: &[Step], end: usize, free: usize) -> (usize, usize) {
        let (mut at, mut free) = (end, free);
        while let Some(&Step { place, from: Some((parent, slot)) }) = search.get(at) {
            let from = search.get(parent).map_or(place, |step| step.place);
            self.move_key(from, slot, place, free);
            (at, free) = (parent, slot);
        }
        (search.get(at).map_or(0, |step| step.place), free)
    }

    fn move_key(&self, from: usize, slot: usize, to: usize, free: usize) {
        let source = self.bucket(from);
        let (Some(key), Some(value)) = (source.keys.get(slot), source.values.get(slot)) else {
            return;
        };
        let (key, value) = (key.load(Acquire), value.load(Acquire));
        let (first, second) = self.places(key);
        if to == second {
            self.bucket(first).sent_away();
        }
        self.bucket(to).fill(free, key, value);
        source.clear(slot);
        if from == second {
            self.bucket(first).came_back();
        }
    }

    fn other_place(&self, key: u64, place: usize) -> usize {
        let (first, second) = self.places(key);
        if place == first { second } else { first }
    }
}

/// A bucket that could be emptied by one key, and the bucket and slot of the search that key is in.
#[derive(Clone, Copy)]
struct Step {
    place: usize,
    from: Option<(usize, usize)>,
}
