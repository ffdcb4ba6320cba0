// SPDX-License-Identifier: Apache-2.0
//! The PI bank: p' of every queue id that shares one Tupdate, updated in one pass a tick, without a lock.
//!
//! Who writes what: the owner lcore of an id writes its head stamp, target and profile; the control lcore alone writes
//! p', the tick it belongs to, and the delay it last saw. Only two bitmaps have read-modify-writes: the owner touches
//! them when an id goes from empty to waiting or back, or is cleared. A pass visits the ids with a head, and for a few
//! more ticks those that have just lost it: one tick settles the beta term of the fall to zero, and an overload is
//! followed to its end so that it is reported. Everyone else costs nothing.
//!
//! An id is *active* while the next pass will visit it whatever its owner does; else it *rests*. Invariants: p' of an
//! active id is that of the last pass. A resting one has seen a delay of zero last, so its p' falls by the same whole
//! number each tick; this p' and its tick are one 64-bit word, so that [`PiBank::p_prime`] gives exactly what explicit
//! ticks would have given. Ticks wrap: each pass folds a few resting ids in turn, long before 2^31 ticks have gone by
//! unseen.
//!
//! PI takes the longer of the two head sojourns (RFC 9332 figure 8), that is the older stamp, so one is kept.
//!
//! Late ticks: a call is one tick, whenever it comes. If it is late by whole intervals, ids with a head still take one
//! step with the delay of now, as a late kernel timer would, and idle ids fall by the ticks that went by, at most
//! [`PiBank::MAX_LATE_TICKS`]: what happened meanwhile was not seen.
//!
//! A pass over ids that all wait is as fast as memory: 12 bytes an id lie in its way (head, p', last delay), heads and
//! p' in pairs since it must read them as atomic words, and targets only where those of a word differ.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use columns::{Heap, Memory, Pairs};
use dense::LANES;
use growing::Growing;
pub use growing::MORE_PROFILES;
use pass::{Own, Pass};

use crate::pi::PiParams;
use crate::{Nanos, Prob, Stamp};

/// State of all queue ids of one Tupdate, in memory of kind `M`; share it by `Arc`.
#[derive(Debug)]
pub struct PiBank<M: Memory = Heap> {
    tupdate: Nanos,
    profiles: Growing,
    capacity: usize,
    words: M::Column<Word>,
    // written by owners
    /// Stamps of the older head.
    heads: Pairs<M>,
    targets: M::Column<AtomicU32>,
    profile_of: M::Column<AtomicU16>,
    // written by the control lcore
    /// p' of active ids.
    probs: Pairs<M>,
    /// Of resting ids, p' in the high half and the tick it belongs to in the low.
    rests: M::Column<AtomicU64>,
    /// What it alone looks at; a pass holds it, and nobody else does.
    own: Mutex<Own<M>>,
    /// Ticks so far, published at the end of a pass.
    tick: AtomicU32,
    last_pass: AtomicU64,
    /// Whether there was a pass yet.
    passes: AtomicU64,
    fold_at: AtomicU64,
}

/// 64 ids, of each one bit: what a lookup of p' asks first lies side by side.
#[derive(Debug)]
struct Word {
    /// By the owner: a packet waits.
    waiting: AtomicU64,
    /// By the owner: cleared, not yet seen by the control lcore.
    clearing: AtomicU64,
    /// By the control lcore: it is active.
    active: AtomicU64,
    /// By the owner: what its ids have in common, a [`Common`].
    common: AtomicU64,
}

/// Profile and target of all ids of a word, as far as they are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Common(u64);

impl Common {
    const PROFILES_DIFFER: u64 = 1 << 63;
    const TARGETS_DIFFER: u64 = 1 << 62;

    const fn of(profile: u16, target: u32) -> Self {
        Self((profile as u64) << 32 | target as u64)
    }

    /// Of these ids and those.
    const fn and(self, other: Self) -> Self {
        let differ = self.0 ^ other.0;
        let profiles = if differ >> 32 == 0 { 0 } else { Self::PROFILES_DIFFER };
        let targets = if differ.trailing_zeros() >= 32 { 0 } else { Self::TARGETS_DIFFER };
        Self(self.0 | profiles | targets)
    }

    const fn differ(self) -> bool {
        self.0 >> 62 == 3
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes the part")]
    const fn profile(self) -> Option<u16> {
        if self.0 & Self::PROFILES_DIFFER == 0 { Some((self.0 >> 32) as u16) } else { None }
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes the part")]
    const fn target(self) -> Option<u32> {
        if self.0 & Self::TARGETS_DIFFER == 0 { Some(self.0 as u32) } else { None }
    }
}

impl<M: Memory> PiBank<M> {
    /// How many ticks a late call makes up for idle ids.
    pub const MAX_LATE_TICKS: u32 = 8;

    /// Memory of an id, the bits of its word rounded up.
    pub const BYTES_PER_ID: usize = 4 * size_of::<u32>()
        + size_of::<AtomicU16>()
        + size_of::<AtomicU64>()
        + (size_of::<Word>() + size_of::<u64>()).div_ceil(LANES);

    /// A bank of `capacity` ids for profiles that share `tupdate`.
    ///
    /// # Panics
    ///
    /// Without a profile, or with a `tupdate` of zero.
    pub fn new(tupdate: Nanos, capacity: usize, profiles: &[PiParams]) -> Self {
        let Some(&first) = profiles.first() else { panic!("a PI bank needs a profile") };
        assert!(tupdate > Nanos::ZERO, "a PI bank needs an interval");
        let words = capacity.div_ceil(LANES);
        let ids = words * LANES;
        let target = nanos32(first.target());
        let word = || Word {
            waiting: AtomicU64::new(0),
            clearing: AtomicU64::new(0),
            active: AtomicU64::new(0),
            common: AtomicU64::new(Common::of(0, target).0),
        };
        Self {
            tupdate,
            profiles: Growing::new(first, profiles),
            capacity,
            words: M::column(words, word),
            heads: Pairs::new(words),
            targets: M::column(ids, || AtomicU32::new(target)),
            profile_of: M::column(ids, AtomicU16::default),
            probs: Pairs::new(words),
            rests: M::column(ids, AtomicU64::default),
            own: Mutex::new(Own::new(words)),
            tick: AtomicU32::new(0),
            last_pass: AtomicU64::new(0),
            passes: AtomicU64::new(0),
            fold_at: AtomicU64::new(0),
        }
    }

    /// How many profiles it has.
    pub fn profiles(&self) -> usize {
        self.profiles.len()
    }

    /// Takes one more, named by the number that follows the last; whether there was room. For one control thread, while
    /// the lcores go on.
    pub fn add_profile(&self, params: PiParams) -> bool {
        debug_assert_eq!(params.tupdate(), self.tupdate, "profiles of a bank share their interval");
        self.profiles.push(params)
    }

    /// The interval of its ticks.
    pub const fn tupdate(&self) -> Nanos {
        self.tupdate
    }

    /// How many ids it holds.
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// When the next tick is due: one interval after the last pass; zero before the first.
    pub fn due(&self) -> Nanos {
        if self.passes.load(Ordering::Relaxed) == 0 {
            return Nanos::ZERO;
        }
        Nanos(self.last_pass.load(Ordering::Relaxed)) + self.tupdate
    }

    /// Owner lcore: the profile (index into those of the bank; 0 if there is no such) and target of an id; p' is kept.
    /// Idle ticks not yet accounted for count with the new target.
    pub fn assign(&self, id: u32, profile: u16, target: Nanos) {
        let Some(index) = self.index(id) else { return };
        let profile = if usize::from(profile) < self.profiles.len() { profile } else { 0 };
        let target = nanos32(target);
        self.profile_of[index].store(profile, Ordering::Relaxed);
        self.targets[index].store(target, Ordering::Relaxed);
        let common = &self.words[index / LANES].common;
        let known = Common(common.load(Ordering::Relaxed));
        if known != Common::of(profile, target) {
            let first = index / LANES * LANES;
            common.store(self.common_of(first..first + LANES).0, Ordering::Relaxed);
        }
    }

    /// What ids have in common.
    fn common_of(&self, ids: core::ops::Range<usize>) -> Common {
        let (profiles, targets) = (&self.profile_of[ids.clone()], &self.targets[ids]);
        let of = |(profile, target): (&AtomicU16, &AtomicU32)| {
            Common::of(profile.load(Ordering::Relaxed), target.load(Ordering::Relaxed))
        };
        let mut all = profiles.iter().zip(targets).map(of);
        let first = all.next().unwrap_or(Common(0));
        let mut common = first;
        for one in all {
            common = Common(common.0 | first.and(one).0);
            if common.differ() {
                break;
            }
        }
        common
    }

    /// Owner lcore: the id is free for somebody else, whose p' will start at zero.
    pub fn clear(&self, id: u32) {
        let Some(index) = self.index(id) else { return };
        let (word, bit) = place(index);
        self.words[word].waiting.fetch_and(!bit, Ordering::Release);
        self.words[word].clearing.fetch_or(bit, Ordering::Release);
    }

    /// Owner lcore: arrival stamps of the heads of L and C after a change; none: empty.
    pub fn publish(&self, id: u32, l: Option<Stamp>, c: Option<Stamp>) {
        let Some(index) = self.index(id) else { return };
        let (word, bit) = place(index);
        let waiting = &self.words[word].waiting;
        let waits = waiting.load(Ordering::Relaxed) & bit != 0;
        match older(l, c) {
            Some(head) => {
                self.heads.set(index, head.0);
                if !waits {
                    // Release: a pass that sees the bit sees this head, not one of long ago
                    waiting.fetch_or(bit, Ordering::Release);
                }
            }
            None if waits => {
                waiting.fetch_and(!bit, Ordering::Release);
            }
            None => {}
        }
    }

    /// Owner lcore: p' as of the last tick, idle ticks included; zero for an id the bank does not hold.
    pub fn p_prime(&self, id: u32) -> Prob {
        let Some(index) = self.index(id) else {
            return Prob::ZERO;
        };
        let (word, bit) = place(index);
        let word = &self.words[word];
        if word.clearing.load(Ordering::Acquire) & bit != 0 {
            return Prob::ZERO;
        }
        // The tick first: the state is then at least as new, and a visit is never taken for an idle tick
        let now = self.tick.load(Ordering::Acquire);
        // Acquire: the p' that is there while the bit is as it is
        if word.active.load(Ordering::Acquire) & bit != 0 {
            return Prob(self.probs.get(index));
        }
        let (p_prime, tick) = unpack(self.rests[index].load(Ordering::Relaxed));
        let missed = ticks_between(tick, now);
        if missed == 0 || p_prime == Prob::ZERO {
            return p_prime;
        }
        self.params(index).idle(p_prime, Nanos::ZERO, missed.into(), self.target(index))
    }

    /// Control lcore only: one tick at `now`. `on_overload` hears of each id whose p' reaches 1/k or falls below it.
    /// Returns how many ids were visited.
    pub fn update(&self, now: Nanos, on_overload: &mut dyn FnMut(u32, bool)) -> u32 {
        let before = self.tick.load(Ordering::Relaxed);
        let mut pass = Pass::new(Stamp::at(now), before, self.ticks_at(now));
        // a panic in `on_overload` leaves nothing that a later pass could not go on with
        let own = &mut *self.own.lock().unwrap_or_else(PoisonError::into_inner);
        self.visit_words(own, &mut pass, on_overload);
        self.fold_some(pass.tick());
        self.last_pass.store(now.0, Ordering::Relaxed);
        // last: an owner that reads the new tick must find the states that belong to it
        self.tick.store(pass.tick(), Ordering::Release);
        pass.visited()
    }

    /// How many ticks a pass at `now` stands for.
    fn ticks_at(&self, now: Nanos) -> u32 {
        if self.passes.fetch_add(1, Ordering::Relaxed) == 0 {
            return 1;
        }
        let since = now.since(Nanos(self.last_pass.load(Ordering::Relaxed)));
        let ticks = since.0.saturating_add(self.tupdate.0 / 2) / self.tupdate.0;
        u32::try_from(ticks).unwrap_or(u32::MAX).clamp(1, Self::MAX_LATE_TICKS)
    }

    /// Brings a few resting ids up to the tick, all of them within 2^16 passes.
    fn fold_some(&self, tick: u32) {
        if self.capacity == 0 {
            return;
        }
        let mut index = usize::try_from(self.fold_at.load(Ordering::Relaxed)).unwrap_or(0) % self.capacity;
        for _ in 0..=(self.capacity >> 16) {
            let (p_prime, seen) = unpack(self.rests[index].load(Ordering::Relaxed));
            let missed = ticks_between(seen, tick);
            if missed > 0 {
                // of an active id it means nothing, and does no harm
                let p_prime =
                    self.params(index).idle(p_prime, Nanos::ZERO, missed.into(), self.target(index));
                self.rests[index].store(pack(p_prime, tick), Ordering::Relaxed);
            }
            index = (index + 1) % self.capacity;
        }
        self.fold_at.store(index as u64, Ordering::Relaxed);
    }

    fn index(&self, id: u32) -> Option<usize> {
        let index = usize::try_from(id).ok()?;
        debug_assert!(index < self.capacity, "id {id} is beyond the bank's {}", self.capacity);
        (index < self.capacity).then_some(index)
    }

    fn params(&self, index: usize) -> &PiParams {
        self.profiles.get(self.profile_of[index].load(Ordering::Relaxed))
    }

    fn target(&self, index: usize) -> Nanos {
        Nanos(self.targets[index].load(Ordering::Relaxed).into())
    }
}

/// Delays beyond are taken as this: the most that the last delays can hold.
const LONGEST: Nanos = Nanos(u32::MAX as u64);

/// The word of an id and its bit there.
const fn place(index: usize) -> (usize, u64) {
    (index / LANES, 1 << (index % LANES))
}

fn older(l: Option<Stamp>, c: Option<Stamp>) -> Option<Stamp> {
    match (l, c) {
        (Some(l), Some(c)) => Some(if c.0.wrapping_sub(l.0).cast_signed() >= 0 { l } else { c }),
        (one, None) | (None, one) => one,
    }
}

/// How many ticks `now` is past `then`; zero where a running pass is ahead of the published tick.
const fn ticks_between(then: u32, now: u32) -> u32 {
    let ticks = now.wrapping_sub(then);
    if ticks.cast_signed() < 0 { 0 } else { ticks }
}

fn nanos32(time: Nanos) -> u32 {
    u32::try_from(time.0).unwrap_or(u32::MAX)
}

const fn pack(p_prime: Prob, tick: u32) -> u64 {
    (p_prime.0 as u64) << 32 | tick as u64
}

#[expect(clippy::cast_possible_truncation, reason = "takes the halves")]
const fn unpack(state: u64) -> (Prob, u32) {
    (Prob((state >> 32) as u32), state as u32)
}

pub mod columns;
mod dense;
mod growing;
mod pass;
#[cfg(test)]
mod tests;
