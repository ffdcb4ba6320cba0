// SPDX-License-Identifier: Apache-2.0
//! Packet buffers a shard may hold, and how many of them one queue id may.
//!
//! The dynamic threshold (Choudhury and Hahne, 1998) is counted in buffers, because a buffer is what runs out:
//! a queue id may hold as many as half of what is free. A lone hog ends at a third of the budget, `n` of them
//! at `1 / (n + 2)` each, and `2 / (n + 2)` are always left for those that hold little; a byte limit alone would
//! let 64-byte packets take the pool.
//!
//! Where more queue ids wait than there are buffers, each of them may hold none, and nothing would be left for one that
//! sends far below its plan. So a part is kept for packets that are due already: they leave with their slot, whatever
//! waits, so a few buffers do for all of them.

/// Packet buffers of a shard.
#[derive(Debug)]
pub(crate) struct Budget {
    total: u32,
    used: u32,
    /// Kept for what is due soon.
    kept: u32,
}

/// The part of all buffers that is kept for packets which are due soon: one in so many.
const KEPT_PART: u32 = 16;

impl Budget {
    /// `total` buffers, none used.
    pub(crate) const fn new(total: u32) -> Self {
        Self { total, used: 0, kept: total / KEPT_PART }
    }

    /// Whether a queue id that holds `held` buffers may take `more`.
    #[inline]
    pub(crate) const fn admits(&self, held: u32, more: u32) -> bool {
        let free = self.total.saturating_sub(self.used).saturating_sub(self.kept);
        held.saturating_add(more) <= free / 2
    }

    /// Whether a queue id may take `more` for packets that are due soon. As what is kept runs out, it goes to those who have
    /// spent least of late: `unspent` is what is left of an id's credit, and that.
    pub(crate) const fn admits_due(&self, more: u32, unspent: (u32, u32)) -> bool {
        let left = self.total.saturating_sub(self.used);
        let (unspent, credit) = unspent;
        // unspent / credit >= what is taken / what is kept
        let taken = self.kept.saturating_sub(left) as u64;
        more <= left && unspent as u64 * self.kept as u64 >= credit as u64 * taken
    }

    /// Notes buffers taken.
    #[inline]
    pub(crate) const fn take(&mut self, buffers: u32) {
        self.used = self.used.saturating_add(buffers);
    }

    /// Notes buffers given back.
    #[inline]
    pub(crate) const fn give(&mut self, buffers: u32) {
        debug_assert!(self.used >= buffers, "more buffers came back than were taken");
        self.used = self.used.saturating_sub(buffers);
    }

    /// Buffers held.
    pub(crate) const fn used(&self) -> u32 {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `hogs` take one buffer in turn until none is admitted; returns what each holds.
    fn fill(budget: &mut Budget, hogs: usize) -> Vec<u32> {
        let mut held = vec![0; hogs];
        loop {
            let mut any = false;
            for mine in &mut held {
                if budget.admits(*mine, 1) {
                    budget.take(1);
                    *mine += 1;
                    any = true;
                }
            }
            if !any {
                return held;
            }
        }
    }

    #[test]
    fn a_hog_leaves_two_thirds_to_others() {
        let mut budget = Budget::new(32_000);
        assert_eq!(fill(&mut budget, 1), [10_000]);
        assert!(budget.admits(0, 10_000), "a newcomer may take as much");
    }

    #[test]
    fn many_hogs_share_alike_and_leave_something() {
        let mut budget = Budget::new(30_000);
        let held = fill(&mut budget, 100);
        let (least, most) = (held.iter().min(), held.iter().max());
        assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{held:?}");
        assert!(budget.used() < 28_000);
        assert!(budget.admits(0, 100));
    }

    #[test]
    fn what_is_due_finds_buffers_however_many_wait() {
        let mut budget = Budget::new(16_000);
        let held = fill(&mut budget, 100_000);
        assert!(held.iter().all(|&held| held <= 1) && !budget.admits(0, 1), "nobody may wait any more");
        assert!((14_990..=15_000).contains(&budget.used()), "{}", budget.used());
        assert!(budget.admits_due(1, (0, 100)) && budget.admits_due(1_000, (100, 100)));
        assert!(!budget.admits_due(1_100, (100, 100)), "no more than there are");
        budget.take(15_750 - budget.used());
        assert!(budget.admits_due(1, (75, 100)), "three quarters are taken");
        assert!(!budget.admits_due(1, (74, 100)), "by those who have spent less");
    }

    #[test]
    fn the_total_is_never_exceeded() {
        let mut budget = Budget::new(3);
        assert!(!budget.admits(0, 2));
        budget.take(3);
        assert!(!budget.admits(0, 1));
        budget.give(3);
        assert!(budget.admits(0, 1));
    }
}
