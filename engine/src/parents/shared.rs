// SPDX-License-Identifier: Apache-2.0
//! What the places of an aggregate share: see [`crate::port`], whose shaper and clock these are in small.
//!
//! Invariant: a place uses them only while more than one has children of the aggregate; the slip only ever grows.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use aqm::Nanos;

use super::{MAX_PARENTS, ParentId};
use crate::change::Direction;

/// Aggregates of a page.
const PAGE: usize = 1024;
/// A clock this much slower than its time counts as saturated.
const SLOW: f32 = 0.99;
/// A speed last told so long ago is no longer true: nobody sends.
const FRESH_MS: u32 = 1_000;
/// A place that leaves may come back: others take it for there so much longer. The others learn of one that comes within
/// a millisecond, in which it may send as much again as they; a child that goes back and forth must not make that all
/// the time.
const LINGER_MS: u32 = 1_000;

/// One direction of an aggregate.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Shared {
    /// When the rate may be sold next.
    due: AtomicU64,
    /// What its clocks were let slip while they were common: see [`super::node::Common`].
    slip: AtomicU64,
    /// Places with children; until when one that has left counts as there, in milliseconds.
    places: AtomicU32,
    until_ms: AtomicU32,
    /// The clock's speed: bits of an `f32`, and when it was told, in milliseconds.
    speed: AtomicU32,
    told_ms: AtomicU32,
}

impl Shared {
    /// When the rate may be sold next.
    #[inline]
    pub(crate) fn due(&self) -> Nanos {
        Nanos(self.due.load(Relaxed))
    }

    /// Sells what lasts for `cost`: once it is due, after idling with a credit that begins at `earliest`. Else when.
    pub(crate) fn sell(&self, now: Nanos, earliest: Nanos, cost: Nanos) -> Result<(), Nanos> {
        loop {
            let due = self.due();
            if due > now {
                return Err(due);
            }
            let after = due.max(earliest) + cost;
            if self.due.compare_exchange_weak(due.0, after.0, Relaxed, Relaxed).is_ok() {
                return Ok(());
            }
        }
    }

    /// The wait for the next sale ends by `latest`: the rate has changed. Every place says so, hence a bound and no
    /// factor, which would be applied by each.
    pub(crate) fn hasten(&self, latest: Nanos) {
        self.due.fetch_min(latest.0, Relaxed);
    }

    #[inline]
    pub(crate) fn slip(&self) -> u64 {
        self.slip.load(Relaxed)
    }

    /// Adds to a slip that was `seen`; not where another place did meanwhile, which the caller is to follow first.
    pub(crate) fn slip_by(&self, seen: u64, more: Nanos) -> bool {
        self.slip.compare_exchange(seen, seen.wrapping_add(more.0), Relaxed, Relaxed).is_ok()
    }

    /// A place has its first child.
    pub(crate) fn enter(&self) {
        self.places.fetch_add(1, Relaxed);
    }

    /// A place has lost its last child.
    pub(crate) fn leave(&self, now: Nanos) {
        if self.places.fetch_sub(1, Relaxed) > 1 {
            self.until_ms.store(millis(now).wrapping_add(LINGER_MS), Relaxed);
        }
    }

    /// Whether more than one place has children, or had a moment ago.
    pub(crate) fn spans(&self, now: Nanos) -> bool {
        let lingers = || {
            let left = self.until_ms.load(Relaxed).wrapping_sub(millis(now));
            (1..=LINGER_MS).contains(&left)
        };
        self.places.load(Relaxed) > 1 || lingers()
    }

    /// Nothing is sold before `due`: so far one place has gone ahead.
    pub(crate) fn owe(&self, due: Nanos) {
        self.due.fetch_max(due.0, Relaxed);
    }

    /// Tells the clock's speed.
    pub(crate) fn tell(&self, now: Nanos, speed: f32) {
        self.speed.store(speed.to_bits(), Relaxed);
        self.told_ms.store(millis(now), Relaxed);
    }

    /// Whether the aggregate is a bottleneck now.
    fn is_slow(&self, now: Nanos) -> bool {
        f32::from_bits(self.speed.load(Relaxed)) < SLOW
            && millis(now).wrapping_sub(self.told_ms.load(Relaxed)) < FRESH_MS
            && self.places.load(Relaxed) > 0
    }
}

/// Milliseconds, wrapping after 49 days.
#[expect(clippy::cast_possible_truncation, reason = "differences are taken modulo 2^32")]
fn millis(now: Nanos) -> u32 {
    (now.0 / 1_000_000) as u32
}

type Page = Box<[[Shared; 2]]>;

/// What the places of all aggregates share.
#[derive(Debug)]
pub struct ParentsShared(Box<[OnceLock<Page>]>);

impl Default for ParentsShared {
    fn default() -> Self {
        Self((0..MAX_PARENTS / PAGE).map(|_| OnceLock::new()).collect())
    }
}

impl ParentsShared {
    /// Of one aggregate; allocates where it is the first of its page.
    pub(crate) fn of(&self, id: ParentId, direction: Direction) -> &Shared {
        let page = self.0[id.index() / PAGE].get_or_init(|| (0..PAGE).map(|_| Default::default()).collect());
        &page[id.index() % PAGE][direction as usize]
    }

    /// How many aggregates are bottlenecks at `now`, down and up.
    pub fn saturated(&self, now: Nanos) -> [u64; 2] {
        let all = || self.0.iter().filter_map(OnceLock::get).flat_map(|page| page.iter());
        [0, 1].map(|way| all().filter(|both| both[way].is_slow(now)).count() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bottleneck_counts_while_it_is_told() {
        let shared = ParentsShared::default();
        let now = Nanos::from_secs(5);
        let id = ParentId::new(70_000).expect("in range");
        let of = shared.of(id, Direction::Up);
        of.tell(now, 0.5);
        assert_eq!(shared.saturated(now), [0, 0], "nobody is below it");
        of.enter();
        assert_eq!(shared.saturated(now), [0, 1]);
        assert_eq!(shared.saturated(now + Nanos::from_secs(2)), [0, 0]);
        of.tell(now, 1.0);
        assert_eq!(shared.saturated(now), [0, 0]);
    }

    #[test]
    fn a_place_that_leaves_counts_for_a_while() {
        let shared = Shared::default();
        let (now, later) = (Nanos::from_secs(5), Nanos::from_secs(7));
        shared.enter();
        shared.leave(now);
        shared.enter();
        assert!(!shared.spans(now), "there was never another");
        shared.enter();
        assert!(shared.spans(later));
        shared.leave(later);
        assert!(shared.spans(later) && shared.spans(later + Nanos::from_millis(999)));
        assert!(!shared.spans(later + Nanos::from_secs(1)) && !shared.spans(now));
    }

    #[test]
    fn what_is_sold_adds_up_to_the_rate_and_a_burst() {
        let shared = Shared::default();
        let (start, cost) = (Nanos::from_secs(1), Nanos::from_micros(10));
        let mut sold = 0;
        for us in 0..1_000 {
            let now = start + Nanos::from_micros(us);
            while shared.sell(now, now.since(Nanos::from_micros(250)), cost).is_ok() {
                sold += 1;
            }
        }
        assert!((100 + 24..=100 + 26).contains(&sold), "{sold}");
    }
}
