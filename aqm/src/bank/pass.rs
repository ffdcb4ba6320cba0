// SPDX-License-Identifier: Apache-2.0
//! One pass of the control lcore, word by word.
//!
//! Invariant: an id's last delay and its place among the active p' mean something only while it is active: it is given
//! both when it wakes, and its p' and tick go back to where resting ids have them when it settles. So a word may be
//! stepped as a whole whoever waits in it.

#![expect(
    clippy::inline_always,
    reason = "what a pass over many calls is compiled for the vectors that the pass is compiled for"
)]

use core::sync::atomic::Ordering;

use super::columns::Memory;
use super::dense::{LANES, LONGEST as LONGEST_UNITS, Lanes, from_floor};
use super::{Common, LONGEST, PiBank, pack, ticks_between, unpack};
use crate::{Nanos, Prob, Stamp};

/// From so many ids of a word on they are stepped together.
const DENSE: u32 = 12;
/// Words read before the first of them is stepped.
const GROUP: usize = 4;

/// The control lcore's part of each id.
#[derive(Debug)]
pub(super) struct Own<M: Memory> {
    /// Delay seen at the last visit, in units of stamps.
    lasts: M::Column<[u32; LANES]>,
    /// One bit an id: in overload as last reported.
    overloaded: M::Column<u64>,
    arch: pulp::Arch,
}

impl<M: Memory> Own<M> {
    pub(super) fn new(words: usize) -> Self {
        Self {
            lasts: M::column(words, || [0; LANES]),
            overloaded: M::column(words, || 0),
            arch: pulp::Arch::new(),
        }
    }

    fn last(&mut self, index: usize) -> &mut u32 {
        &mut self.lasts[index / LANES][index % LANES]
    }

    /// Tells of the ids of a word that enter or leave overload: `over` are those of `bits` that are in it.
    #[inline(never)]
    fn report(&mut self, word: usize, bits: u64, over: u64, on_overload: &mut dyn FnMut(u32, bool)) {
        let changed = (self.overloaded[word] ^ over) & bits;
        self.overloaded[word] ^= changed;
        for bit in each(changed) {
            let index = word * LANES + lane_of(bit);
            on_overload(u32::try_from(index).unwrap_or(u32::MAX), over & bit != 0);
        }
    }
}

/// One pass over the bank.
pub(super) struct Pass {
    stamp: Stamp,
    before: u32,
    ticks: u32,
    visited: u32,
}

impl Pass {
    /// At `stamp`, for `ticks` ticks after `before`.
    pub(super) const fn new(stamp: Stamp, before: u32, ticks: u32) -> Self {
        Self { stamp, before, ticks, visited: 0 }
    }

    /// The tick it ends.
    pub(super) const fn tick(&self) -> u32 {
        self.before.wrapping_add(self.ticks)
    }

    /// How many ids it has visited.
    pub(super) const fn visited(&self) -> u32 {
        self.visited
    }
}

/// A pass over all words, for the dispatcher: not a closure, since those are not always compiled into it.
struct AllWords<'a, M: Memory> {
    bank: &'a PiBank<M>,
    own: &'a mut Own<M>,
    pass: &'a mut Pass,
    on_overload: &'a mut dyn FnMut(u32, bool),
}

impl<M: Memory> pulp::WithSimd for AllWords<'_, M> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        self.bank.visit_groups(self.own, self.pass, self.on_overload);
    }
}

/// What was seen in a word.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Ids that have been stepped.
    stepped: u64,
    /// Those of them with a delay.
    delayed: u64,
    /// Those of them in overload.
    over: u64,
}

impl Seen {
    fn add(&mut self, bits: u64, delayed: u64, over: u64) {
        self.stepped |= bits;
        self.delayed |= delayed & bits;
        self.over |= over & bits;
    }
}

impl<M: Memory> PiBank<M> {
    /// All words, in groups: what is read as 64-bit words is read as vectors only after the group has been read, or each
    /// load would wait for the stores before it to reach the cache.
    pub(super) fn visit_words(
        &self,
        own: &mut Own<M>,
        pass: &mut Pass,
        on_overload: &mut dyn FnMut(u32, bool),
    ) {
        own.arch.dispatch(AllWords { bank: self, own, pass, on_overload });
    }

    #[inline(always)]
    fn visit_groups(&self, own: &mut Own<M>, pass: &mut Pass, on_overload: &mut dyn FnMut(u32, bool)) {
        let mut group = [const { Lanes::new() }; GROUP];
        for first in (0..self.words.len()).step_by(GROUP) {
            let mut visits = [Visit::default(); GROUP];
            let words = first..self.words.len().min(first + GROUP);
            for ((word, visit), lanes) in words.clone().zip(&mut visits).zip(&mut group) {
                *visit = self.begin(own, word, lanes, pass, on_overload);
            }
            for ((word, visit), lanes) in words.zip(visits).zip(&mut group) {
                if visit.visited != 0 {
                    self.visit_word(own, word, visit, lanes, pass, on_overload);
                }
            }
        }
    }

    /// Wakes who must be, and reads what they need that are to be stepped together.
    #[inline(always)]
    fn begin(
        &self,
        own: &mut Own<M>,
        at: usize,
        lanes: &mut Lanes,
        pass: &mut Pass,
        on_overload: &mut dyn FnMut(u32, bool),
    ) -> Visit {
        let word = &self.words[at];
        let clearing = word.clearing.load(Ordering::Relaxed);
        if clearing != 0 {
            self.reset(own, at, clearing, pass.tick(), on_overload);
        }
        // Acquire: see `publish`
        let waiting = word.waiting.load(Ordering::Acquire);
        let active = word.active.load(Ordering::Relaxed);
        let visited = waiting | active;
        if visited == 0 {
            return Visit::default();
        }
        pass.visited += visited.count_ones();
        let waking = waiting & !active;
        if waking != 0 {
            self.wake(own, at, waking, pass.before);
        }
        // a late pass is several ticks for those who do not wait
        let together = if pass.ticks == 1 { visited } else { waiting };
        let common = Common(word.common.load(Ordering::Relaxed));
        let visit = Visit { visited, waiting, active, together, common };
        if visit.is_dense() {
            self.read(own, at, visit, pass, lanes);
        }
        visit
    }

    #[inline(always)]
    fn visit_word(
        &self,
        own: &mut Own<M>,
        at: usize,
        visit: Visit,
        lanes: &mut Lanes,
        pass: &Pass,
        on_overload: &mut dyn FnMut(u32, bool),
    ) {
        let Visit { visited, waiting, active, .. } = visit;
        let mut seen = Seen::default();
        if visit.is_dense() {
            seen = self.visit_together(own, at, visit, lanes, pass);
        }
        for bit in each(visited & !seen.stepped) {
            self.visit(own, at, bit, waiting & bit != 0, pass, &mut seen);
        }
        let goes_on = seen.delayed | seen.over;
        let settling = visited & !goes_on;
        if settling != 0 {
            self.settle(at, settling, pass.tick());
        }
        if goes_on != active {
            // Release: whoever sees a bit set or gone sees the p' that it tells of
            self.words[at].active.store(goes_on, Ordering::Release);
        }
        if (own.overloaded[at] ^ seen.over) & visited != 0 {
            own.report(at, visited, seen.over, on_overload);
        }
    }

    /// Resting ids in which something waits now become active, with the p' of the tick `before`.
    #[inline(never)]
    fn wake(&self, own: &mut Own<M>, word: usize, bits: u64, before: u32) {
        for index in each(bits).map(|bit| word * LANES + lane_of(bit)) {
            let (p_prime, tick) = unpack(self.rests[index].load(Ordering::Relaxed));
            let idle = ticks_between(tick, before);
            let rested = self.params(index).idle(p_prime, Nanos::ZERO, idle.into(), self.target(index));
            self.probs.set(index, rested.0);
            *own.last(index) = 0;
        }
    }

    /// Ids that saw a delay of zero and are in no overload rest from `tick` on.
    #[inline(never)]
    fn settle(&self, word: usize, bits: u64, tick: u32) {
        for index in each(bits).map(|bit| word * LANES + lane_of(bit)) {
            let p_prime = Prob(self.probs.get(index));
            self.rests[index].store(pack(p_prime, tick), Ordering::Relaxed);
        }
    }

    /// Reads last delays, stamps, p' and, where they differ, targets.
    #[inline(always)]
    fn read(&self, own: &Own<M>, word: usize, visit: Visit, pass: &Pass, lanes: &mut Lanes) {
        lanes.lasts = own.lasts[word];
        self.heads.read(word, &mut lanes.heads);
        for lane in each(!visit.waiting).map(lane_of) {
            // who does not wait sees a delay of zero
            lanes.heads[lane] = pass.stamp.0;
        }
        self.probs.read(word, &mut lanes.probs);
        if visit.common.target().is_none() {
            for (into, target) in lanes.targets.iter_mut().zip(&self.targets[word * LANES..][..LANES]) {
                *into = target.load(Ordering::Relaxed);
            }
        }
    }

    /// Steps those together that share a profile in the RFC's arithmetic with enough others.
    #[inline(always)]
    fn visit_together(
        &self,
        own: &mut Own<M>,
        word: usize,
        Visit { visited, together, common, .. }: Visit,
        lanes: &mut Lanes,
        pass: &Pass,
    ) -> Seen {
        let mut seen = Seen::default();
        let (least, most) = lanes.measure(pass.stamp.0);
        let delayed = from_floor(&lanes.heads, (least, most), 1);
        let mut left = if most < LONGEST_UNITS { together } else { together & !lanes.too_long() };
        while left.count_ones() >= DENSE {
            let (profile, group) = self.of_one_profile(word, left, common);
            left &= !group;
            let params = self.profiles.get(profile);
            let Some(gains) = params.rfc_gains().filter(|_| group.count_ones() >= DENSE) else { continue };
            let others = visited & !group;
            let before = (others != 0).then_some(lanes.probs);
            let range = lanes.step(gains, common.target());
            seen.add(group, delayed, from_floor(&lanes.probs, range, params.overload_at()));
            if let Some(before) = before {
                for lane in each(others).map(lane_of) {
                    lanes.probs[lane] = before[lane];
                }
            }
        }
        if seen.stepped != 0 {
            self.probs.write(word, &lanes.probs);
            for lane in each(visited & !seen.stepped).map(lane_of) {
                lanes.heads[lane] = lanes.lasts[lane];
            }
            own.lasts[word] = lanes.heads;
        }
        seen
    }

    /// A profile, and those of `bits` that have it.
    #[inline(never)]
    fn of_one_profile(&self, word: usize, bits: u64, common: Common) -> (u16, u64) {
        if let Some(profile) = common.profile() {
            return (profile, bits);
        }
        let profiles = &self.profile_of[word * LANES..][..LANES];
        let profile = profiles[lane_of(bits)].load(Ordering::Relaxed);
        let has = |lane: usize| profiles[lane].load(Ordering::Relaxed) == profile;
        (profile, each(bits).filter(|&bit| has(lane_of(bit))).sum())
    }

    /// Gives every id of `bits` a p' of zero.
    #[inline(never)]
    fn reset(
        &self,
        own: &mut Own<M>,
        at: usize,
        bits: u64,
        tick: u32,
        on_overload: &mut dyn FnMut(u32, bool),
    ) {
        for index in each(bits).map(|bit| at * LANES + lane_of(bit)) {
            self.rests[index].store(pack(Prob::ZERO, tick), Ordering::Relaxed);
        }
        let word = &self.words[at];
        let active = word.active.load(Ordering::Relaxed);
        word.active.store(active & !bits, Ordering::Relaxed);
        // Release: an owner that sees the bit gone sees that the id rests, with p' at zero
        word.clearing.fetch_and(!bits, Ordering::Release);
        own.report(at, bits, 0, on_overload);
    }

    /// Visits one id by itself.
    #[inline(never)]
    fn visit(&self, own: &mut Own<M>, word: usize, bit: u64, waits: bool, pass: &Pass, seen: &mut Seen) {
        let index = word * LANES + lane_of(bit);
        let (params, target) = (self.params(index), self.target(index));
        let p_prime = Prob(self.probs.get(index));
        let last = own.last(index);
        let before = nanos_of(*last);
        *last = if waits { units_since(pass.stamp, Stamp(self.heads.get(index))) } else { 0 };
        let p_prime = if waits {
            params.step(p_prime, nanos_of(*last), before, target)
        } else {
            params.idle(p_prime, before, pass.ticks.into(), target)
        };
        self.probs.set(index, p_prime.0);
        let whether = |is| if is { bit } else { 0 };
        seen.add(bit, whether(*last > 0), whether(params.is_overload(p_prime)));
    }
}

/// The delay from one stamp to another, in units; no more than [`dense::LONGEST`](super::dense::LONGEST) of them.
fn units_since(now: Stamp, head: Stamp) -> u32 {
    let units = now.since(head).0 >> Stamp::SHIFT;
    u32::try_from(units).map_or(LONGEST_UNITS, |units| units.min(LONGEST_UNITS))
}

/// A delay in nanoseconds.
fn nanos_of(units: u32) -> Nanos {
    Nanos(u64::from(units) << Stamp::SHIFT).min(LONGEST)
}

/// Who is visited in a word.
#[derive(Clone, Copy, Default)]
struct Visit {
    visited: u64,
    /// Those of them in which something waits.
    waiting: u64,
    /// Those that were active.
    active: u64,
    /// Those that may be stepped together.
    together: u64,
    common: Common,
}

impl Visit {
    const fn is_dense(self) -> bool {
        self.together.count_ones() >= DENSE
    }
}

/// The bits of a word, one at a time.
#[inline(always)]
fn each(mut bits: u64) -> impl Iterator<Item = u64> {
    core::iter::from_fn(move || {
        let bit = bits & bits.wrapping_neg();
        bits ^= bit;
        (bit != 0).then_some(bit)
    })
}

#[inline(always)]
const fn lane_of(bit: u64) -> usize {
    (bit.trailing_zeros() % u64::BITS) as usize
}
