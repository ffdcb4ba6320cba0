// SPDX-License-Identifier: Apache-2.0
//! The PI bank: p' of every queue id that shares one Tupdate, updated in one pass a tick, without a lock.
//!
//! Who writes what: the owner lcore of an id writes its head stamp and target; the control lcore alone writes p', the
//! tick it belongs to, and the delay it last saw. Only the bitmaps have read-modify-writes: the owner touches them when
//! an id goes from empty to waiting or back, or is cleared. A pass visits the ids with a head, and for a few more ticks
//! those that have just lost it: one tick settles the beta term of the fall to zero, and an overload is followed to its
//! end so that it is reported. Everyone else costs nothing.
//!
//! Invariant: an id at rest has seen a delay of zero last, so its p' falls by the same whole number each tick; p' and
//! its tick are one 64-bit word, so that [`PiBank::p_prime`] gives exactly what explicit ticks would have given.
//! Ticks wrap: each pass folds a few idle ids in turn, long before 2^31 ticks have gone by unseen.
//!
//! PI takes the longer of the two head sojourns (RFC 9332 figure 8), that is the older stamp, so one is kept.
//!
//! Late ticks: a call is one tick, whenever it comes. If it is late by whole intervals, ids with a head still take one
//! step with the delay of now, as a late kernel timer would, and idle ids fall by the ticks that went by, at most
//! [`PiBank::MAX_LATE_TICKS`]: what happened meanwhile was not seen.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use dense::{LANES, Lanes, Range};

use crate::pi::PiParams;
use crate::{Nanos, Prob, Stamp};

/// State of all queue ids of one Tupdate; share it by `Arc`.
#[derive(Debug)]
pub struct PiBank {
    tupdate: Nanos,
    profiles: Vec<PiParams>,
    // written by owners
    heads: Vec<AtomicU32>,
    targets: Vec<AtomicU32>,
    profile_of: Vec<AtomicU16>,
    /// One bit an id: a packet waits.
    waiting: Vec<AtomicU64>,
    /// One bit an id: cleared by its owner, not yet seen by the control lcore.
    clearing: Vec<AtomicU64>,
    // written by the control lcore
    /// p' in the high half, the tick it belongs to in the low.
    states: Vec<AtomicU64>,
    /// What it alone looks at; a pass holds it, and nobody else does.
    own: Mutex<Own>,
    /// Ticks so far, published at the end of a pass.
    tick: AtomicU32,
    last_pass: AtomicU64,
    /// Whether there was a pass yet.
    passes: AtomicU64,
    fold_at: AtomicU64,
}

/// The control lcore's part of each id.
#[derive(Debug)]
struct Own {
    /// p' as in the states, side by side.
    probs: Vec<u32>,
    /// Delay seen at the last visit, in nanoseconds.
    lasts: Vec<u32>,
    /// One bit an id: to be visited although it may be empty.
    watched: Vec<u64>,
    /// One bit an id: in overload as last reported.
    overloaded: Vec<u64>,
    /// One bit an id: visited in the last pass, so that its tick is that pass's.
    fresh: Vec<u64>,
    arch: pulp::Arch,
}

/// From so many ids of a word on they are stepped together.
const DENSE: u32 = 16;

/// One pass over the bank.
struct Pass {
    stamp: Stamp,
    before: u32,
    tick: u32,
    visited: u32,
}

impl PiBank {
    /// How many ticks a late call makes up for idle ids.
    pub const MAX_LATE_TICKS: u32 = 8;

    /// Memory of an id, the bits of its bitmaps rounded up.
    pub const BYTES_PER_ID: usize =
        4 * size_of::<u32>() + size_of::<AtomicU16>() + size_of::<AtomicU64>() + 1;

    /// A bank of `capacity` ids for profiles that share `tupdate`.
    ///
    /// # Panics
    ///
    /// Without a profile, or with a `tupdate` of zero.
    pub fn new(tupdate: Nanos, capacity: usize, profiles: Vec<PiParams>) -> Self {
        assert!(!profiles.is_empty(), "a PI bank needs a profile");
        assert!(tupdate > Nanos::ZERO, "a PI bank needs an interval");
        let words = capacity.div_ceil(64);
        let target = nanos32(profiles.first().map_or(Nanos::ZERO, PiParams::target));
        Self {
            tupdate,
            profiles,
            heads: zeroed(capacity),
            targets: (0..capacity).map(|_| AtomicU32::new(target)).collect(),
            profile_of: zeroed(capacity),
            waiting: zeroed(words),
            clearing: zeroed(words),
            states: zeroed(capacity),
            own: Mutex::new(Own {
                probs: vec![0; capacity.next_multiple_of(LANES)],
                lasts: vec![0; capacity.next_multiple_of(LANES)],
                watched: vec![0; words],
                overloaded: vec![0; words],
                fresh: vec![0; words],
                arch: pulp::Arch::new(),
            }),
            tick: AtomicU32::new(0),
            last_pass: AtomicU64::new(0),
            passes: AtomicU64::new(0),
            fold_at: AtomicU64::new(0),
        }
    }

    /// The interval of its ticks.
    pub const fn tupdate(&self) -> Nanos {
        self.tupdate
    }

    /// How many ids it holds.
    pub fn capacity(&self) -> usize {
        self.states.len()
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
        let known = usize::from(profile) < self.profiles.len();
        self.profile_of[index].store(if known { profile } else { 0 }, Ordering::Relaxed);
        self.targets[index].store(nanos32(target), Ordering::Relaxed);
    }

    /// Owner lcore: the id is free for somebody else, whose p' will start at zero.
    pub fn clear(&self, id: u32) {
        let Some(index) = self.index(id) else { return };
        let (word, bit) = place(index);
        self.waiting[word].fetch_and(!bit, Ordering::Release);
        self.clearing[word].fetch_or(bit, Ordering::Release);
    }

    /// Owner lcore: arrival stamps of the heads of L and C after a change; none: empty.
    pub fn publish(&self, id: u32, l: Option<Stamp>, c: Option<Stamp>) {
        let Some(index) = self.index(id) else { return };
        let (word, bit) = place(index);
        let waits = self.waiting[word].load(Ordering::Relaxed) & bit != 0;
        match older(l, c) {
            Some(head) => {
                self.heads[index].store(head.0, Ordering::Relaxed);
                if !waits {
                    // Release: a pass that sees the bit sees this head, not one of long ago
                    self.waiting[word].fetch_or(bit, Ordering::Release);
                }
            }
            None if waits => {
                self.waiting[word].fetch_and(!bit, Ordering::Release);
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
        if self.clearing[word].load(Ordering::Acquire) & bit != 0 {
            return Prob::ZERO;
        }
        // The tick first: the state is then at least as new, and a visit is never taken for an idle tick
        let now = self.tick.load(Ordering::Acquire);
        let (p_prime, tick) = unpack(self.states[index].load(Ordering::Relaxed));
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
        let mut pass =
            Pass { stamp: Stamp::at(now), before, tick: before.wrapping_add(self.ticks_at(now)), visited: 0 };
        // a panic in `on_overload` leaves nothing that a later pass could not go on with
        let own = &mut *self.own.lock().unwrap_or_else(PoisonError::into_inner);
        for word in 0..self.waiting.len() {
            self.visit_word(own, word, &mut pass, on_overload);
        }
        self.fold_some(own, pass.tick);
        self.last_pass.store(now.0, Ordering::Relaxed);
        // last: an owner that reads the new tick must find the states that belong to it
        self.tick.store(pass.tick, Ordering::Release);
        pass.visited
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

    fn visit_word(
        &self,
        own: &mut Own,
        word: usize,
        pass: &mut Pass,
        on_overload: &mut dyn FnMut(u32, bool),
    ) {
        let clearing = self.clearing[word].load(Ordering::Relaxed);
        if clearing != 0 {
            self.reset(own, word, clearing, pass.tick, on_overload);
        }
        // Acquire: see `publish`
        let waiting = self.waiting[word].load(Ordering::Acquire);
        let visited = waiting | own.watched[word];
        pass.visited += visited.count_ones();
        let together = waiting & own.fresh[word];
        let mut left = visited;
        if together.count_ones() >= DENSE && self.visit_together(own, word, together, pass, on_overload) {
            left &= !together;
        }
        while left != 0 {
            let bit = left & left.wrapping_neg();
            left ^= bit;
            self.visit(own, word, bit, waiting & bit != 0, pass, on_overload);
        }
        own.fresh[word] = visited;
    }

    /// Visits the waiting ids of `bits`, whose ticks are up to date; whether that could be done: all of one profile, in
    /// the RFC's arithmetic.
    fn visit_together(
        &self,
        own: &mut Own,
        word: usize,
        bits: u64,
        pass: &Pass,
        on_overload: &mut dyn FnMut(u32, bool),
    ) -> bool {
        let first = word * LANES;
        let end = (first + LANES).min(self.states.len());
        let profile = self.profile_of[first].load(Ordering::Relaxed);
        let same = |of: &AtomicU16| of.load(Ordering::Relaxed) == profile;
        let params = &self.profiles[usize::from(profile)];
        let Some(gains) = params.rfc_gains() else { return false };
        if self.profiles.len() > 1 && !self.profile_of[first..end].iter().all(same) {
            return false;
        }
        let mut lanes =
            Lanes { heads: [0; LANES], targets: [0; LANES], probs: [0; LANES], delays: [0; LANES] };
        copy(&self.heads[first..end], &mut lanes.heads);
        copy(&self.targets[first..end], &mut lanes.targets);
        lanes.probs.copy_from_slice(&own.probs[first..first + LANES]);
        lanes.delays.copy_from_slice(&own.lasts[first..first + LANES]);
        let range = lanes.step(own.arch, &gains, pass.stamp.0);
        let overload = Range::lanes_from(&lanes.probs, range.probs, params.overload_at());
        let delayed = Range::lanes_from(&lanes.delays, range.delays, 1);
        if bits == u64::MAX {
            own.probs[first..end].copy_from_slice(&lanes.probs);
            own.lasts[first..end].copy_from_slice(&lanes.delays);
            for (state, &prob) in self.states[first..end].iter().zip(&lanes.probs) {
                state.store(pack(Prob(prob), pass.tick), Ordering::Relaxed);
            }
        } else {
            for lane in (0..LANES).filter(|lane| bits >> lane & 1 == 1) {
                own.probs[first + lane] = lanes.probs[lane];
                own.lasts[first + lane] = lanes.delays[lane];
                self.states[first + lane].store(pack(Prob(lanes.probs[lane]), pass.tick), Ordering::Relaxed);
            }
        }
        own.watched[word] = own.watched[word] & !bits | (overload | delayed) & bits;
        let mut changed = (own.overloaded[word] ^ overload) & bits;
        while changed != 0 {
            let bit = changed & changed.wrapping_neg();
            changed ^= bit;
            own.report(word, bit, overload & bit != 0, on_overload);
        }
        true
    }

    /// Gives every id of `bits` a p' of zero.
    fn reset(
        &self,
        own: &mut Own,
        word: usize,
        bits: u64,
        tick: u32,
        on_overload: &mut dyn FnMut(u32, bool),
    ) {
        let mut left = bits;
        while left != 0 {
            let bit = left & left.wrapping_neg();
            left ^= bit;
            let index = word * 64 + bit.trailing_zeros() as usize;
            self.states[index].store(pack(Prob::ZERO, tick), Ordering::Relaxed);
            (own.probs[index], own.lasts[index]) = (0, 0);
            set_bit(&mut own.watched[word], bit, false);
            own.report(word, bit, false, on_overload);
        }
        own.fresh[word] &= !bits;
        // Release: an owner that sees the bit gone sees p' at zero
        self.clearing[word].fetch_and(!bits, Ordering::Release);
    }

    fn visit(
        &self,
        own: &mut Own,
        word: usize,
        bit: u64,
        waits: bool,
        pass: &Pass,
        on_overload: &mut dyn FnMut(u32, bool),
    ) {
        let index = word * 64 + bit.trailing_zeros() as usize;
        let (params, target) = (self.params(index), self.target(index));
        let (p_prime, tick) = unpack(self.states[index].load(Ordering::Relaxed));
        let last = Nanos(own.lasts[index].into());
        let (p_prime, delay) = if waits {
            let delay = pass.stamp.since(Stamp(self.heads[index].load(Ordering::Relaxed))).min(LONGEST);
            // an id that missed ticks has settled: its last delay is zero
            let idle = ticks_between(tick, pass.before);
            let rested = params.idle(p_prime, last, idle.into(), target);
            (params.step(rested, delay, last, target), delay)
        } else {
            let idle = ticks_between(tick, pass.tick);
            (params.idle(p_prime, last, idle.into(), target), Nanos::ZERO)
        };
        (own.probs[index], own.lasts[index]) = (p_prime.0, nanos32(delay));
        self.states[index].store(pack(p_prime, pass.tick), Ordering::Relaxed);
        let overload = params.is_overload(p_prime);
        set_bit(&mut own.watched[word], bit, overload || delay > Nanos::ZERO);
        own.report(word, bit, overload, on_overload);
    }

    /// Brings a few idle ids up to the tick, all of them within 2^16 passes.
    fn fold_some(&self, own: &mut Own, tick: u32) {
        let capacity = self.states.len();
        if capacity == 0 {
            return;
        }
        let mut index = usize::try_from(self.fold_at.load(Ordering::Relaxed)).unwrap_or(0) % capacity;
        for _ in 0..=(capacity >> 16) {
            let (p_prime, seen) = unpack(self.states[index].load(Ordering::Relaxed));
            let missed = ticks_between(seen, tick);
            if missed > 0 {
                let p_prime =
                    self.params(index).idle(p_prime, Nanos::ZERO, missed.into(), self.target(index));
                self.states[index].store(pack(p_prime, tick), Ordering::Relaxed);
                own.probs[index] = p_prime.0;
            }
            index = (index + 1) % capacity;
        }
        self.fold_at.store(index as u64, Ordering::Relaxed);
    }

    fn index(&self, id: u32) -> Option<usize> {
        let index = usize::try_from(id).ok()?;
        debug_assert!(index < self.states.len(), "id {id} is beyond the bank's {}", self.states.len());
        (index < self.states.len()).then_some(index)
    }

    fn params(&self, index: usize) -> &PiParams {
        &self.profiles[usize::from(self.profile_of[index].load(Ordering::Relaxed))]
    }

    fn target(&self, index: usize) -> Nanos {
        Nanos(self.targets[index].load(Ordering::Relaxed).into())
    }
}

impl Own {
    /// Tells of an id that enters or leaves overload.
    fn report(&mut self, word: usize, bit: u64, overload: bool, on_overload: &mut dyn FnMut(u32, bool)) {
        if (self.overloaded[word] & bit != 0) != overload {
            set_bit(&mut self.overloaded[word], bit, overload);
            let index = word * 64 + bit.trailing_zeros() as usize;
            on_overload(u32::try_from(index).unwrap_or(u32::MAX), overload);
        }
    }
}

/// Delays beyond are taken as this: the most that `lasts` can hold.
const LONGEST: Nanos = Nanos(u32::MAX as u64);

fn zeroed<T: Default>(count: usize) -> Vec<T> {
    core::iter::repeat_with(T::default).take(count).collect()
}

/// The word of a bitmap and the bit in it.
const fn place(index: usize) -> (usize, u64) {
    (index / 64, 1 << (index % 64))
}

fn set_bit(word: &mut u64, bit: u64, on: bool) {
    *word = if on { *word | bit } else { *word & !bit };
}

/// Reads what owners write.
fn copy(from: &[AtomicU32], to: &mut [u32; LANES]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.load(Ordering::Relaxed);
    }
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

mod dense;
#[cfg(test)]
mod tests;
