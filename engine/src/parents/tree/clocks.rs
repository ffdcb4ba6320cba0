// SPDX-License-Identifier: Apache-2.0
//! Clocks and shapers of nodes, their own or common to several places.

use aqm::Nanos;

use super::{DEEPEST, NONE, Tree, Way, behind};
use crate::parents::node::Common;
use crate::parents::shared::Shared;
use crate::wheel::slot_time;

impl Tree {
    /// The way from a node up.
    #[inline]
    pub(crate) fn way(&self, mut node: u32) -> Way {
        let mut way = Way { nodes: [NONE; DEEPEST], len: 0 };
        while node != NONE && way.len < DEEPEST {
            way.nodes[way.len] = node;
            way.len += 1;
            node = self.nodes[node].outer;
        }
        way
    }

    /// How far a node's clock lies behind the one above, modulo 2^64.
    #[inline]
    pub(super) fn slip(&self, place: u32) -> u64 {
        self.nodes[place].slip
    }

    /// How far a node's clock lies behind its lane's.
    #[inline]
    pub(crate) fn slips(&self, mut node: u32) -> u64 {
        let mut sum = 0_u64;
        while node != NONE {
            sum = sum.wrapping_add(self.slip(node));
            node = self.nodes[node].outer;
        }
        sum
    }

    /// How far a node's clock lies behind its lane's, if nobody waits for any node of its way and all of them pay: the
    /// usual case, which needs one cache line a level.
    #[inline]
    pub(crate) fn quiet(&self, mut node: u32, now: Nanos) -> Option<u64> {
        let mut sum = 0_u64;
        while node != NONE {
            let this = &self.nodes[node];
            if this.waits || this.spans || this.due > now {
                return None;
            }
            sum = sum.wrapping_add(this.slip);
            node = this.outer;
        }
        Some(sum)
    }

    /// Whether a lag is beyond the allowance.
    #[inline]
    pub(super) fn is_too_long(&self, place: u32, lag: Nanos) -> bool {
        lag.0 > self.nodes[place].lag_ns.into()
    }

    /// The clock lags by `lag`: what is beyond the allowance slips. Of a common aggregate others slip too, by as long as
    /// it was the aggregate that let no packet go, and not the port.
    pub(super) fn let_slip(&mut self, place: u32, now: Nanos, lag: Nanos) {
        let excess = lag.since(Nanos(self.nodes[place].lag_ns.into()));
        if excess == Nanos::ZERO {
            return;
        }
        if self.nodes[place].spans {
            let seen = self.nodes[place].common.slip;
            let poor = self.nodes[place].common.blames(now, excess);
            let leads = self.shared_of(place).is_some_and(|shared| shared.slip_by(seen, poor));
            if !leads {
                return;
            }
            self.nodes[place].common.lead(poor, excess);
        }
        let node = &mut self.nodes[place];
        node.steady = false;
        node.slip = node.slip.wrapping_add(excess.0);
    }

    /// The clocks on a way follow what other places of their aggregates let slip; `lane`: its lane's clock.
    #[inline]
    pub(crate) fn keep_up(&mut self, node: u32, now: Nanos, lane: Nanos) {
        let mut place = node;
        while place != NONE {
            let this = &self.nodes[place];
            if this.spans && this.common.is_old(now) {
                return self.follow_all(node, now, lane);
            }
            place = this.outer;
        }
    }

    /// As [`Self::keep_up`], in any case.
    #[cold]
    pub(crate) fn follow_all(&mut self, node: u32, now: Nanos, lane: Nanos) {
        let mut above = lane;
        for &place in self.way(node).nodes().iter().rev() {
            if self.nodes[place].spans {
                self.follow(place, now, above);
            }
            above = behind(above, self.slip(place));
        }
    }

    /// A clock follows what other places of the aggregate let slip; `above`: the clock above.
    fn follow(&mut self, place: u32, now: Nanos, above: Nanos) {
        let slip = self.shared_of(place).map_or(0, Shared::slip);
        let node = &mut self.nodes[place];
        let more = node.common.follow(now, above, slip);
        node.slip = node.slip.wrapping_add(more);
        node.steady &= more == 0;
    }

    /// The time of a node: its clock's, or that of the first due entry not yet served. Whoever has been idle joins
    /// there. `at`: that of its lane.
    pub(crate) fn time(&mut self, node: u32, at: Nanos) -> Nanos {
        let way = self.way(node);
        way.nodes().iter().rev().fold(at, |outer, &node| self.time_in(node, outer))
    }

    /// As [`Self::time`], where that of the one above is known.
    pub(crate) fn time_in(&mut self, node: u32, outer: Nanos) -> Nanos {
        let clock = behind(outer, self.slip(node));
        self.first_due(node, clock).map_or(clock, |slot| clock.min(slot_time(slot)))
    }

    /// What a byte takes at the served rate, against the plan's: 16.16.
    #[inline]
    pub(crate) fn slowness(&self, node: u32) -> u32 {
        self.nodes[node].slowness
    }

    /// Whether an aggregate lets a packet go.
    #[inline]
    pub(crate) fn pays(&mut self, place: u32, now: Nanos) -> bool {
        let node = &self.nodes[place];
        if node.spans { self.buys(place, now) } else { node.due <= now }
    }

    /// Whether all on a way do.
    #[inline]
    pub(crate) fn all_pay(&mut self, mut node: u32, now: Nanos) -> bool {
        while node != NONE {
            if !self.pays(node, now) {
                return false;
            }
            node = self.nodes[node].outer;
        }
        true
    }

    /// As [`Self::pays`], from the purse of a common aggregate.
    #[cold]
    fn buys(&mut self, place: u32, now: Nanos) -> bool {
        while *self.nodes[place].purse() <= 0 {
            let (bytes, cost) = self.nodes[place].quantum();
            let earliest = now.since(self.nodes[place].burst());
            let sold = self.shared_of(place).map_or(Ok(()), |shared| shared.sell(now, earliest, cost));
            let node = &mut self.nodes[place];
            if let Err(due) = sold {
                node.due = due;
                node.common.is_asked(now, due);
                return false;
            }
            node.common.is_asked(now, now);
            *node.purse() += bytes;
        }
        true
    }

    /// A packet of `bytes` leaves a child of a node; `port`: slowness of the lane's clock.
    #[inline(never)]
    pub(crate) fn charge(&mut self, mut node: u32, now: Nanos, bytes: u32, port: u32) {
        while node != NONE {
            let this = &mut self.nodes[node];
            this.charge(now, bytes);
            if this.ticks(now) {
                self.measure(node, now, port);
            }
            node = self.nodes[node].outer;
        }
    }

    #[cold]
    #[expect(clippy::cast_precision_loss, reason = "16 bits of fraction")]
    fn measure(&mut self, place: u32, now: Nanos, port: u32) {
        self.follow_sharing(now, place);
        let slip = self.slip(place);
        let outer = self.nodes[place].outer;
        let above = if outer == NONE { 0.0 } else { self.nodes[outer].drags() };
        let port = 65_536.0 / port.max(1) as f32;
        let was_steady = self.nodes[place].steady;
        let speed = self.nodes[place].measure(now, slip, above, port);
        // what has been told stays true
        if was_steady && self.nodes[place].steady {
            return;
        }
        if let Some(shared) = self.shared_of(place) {
            shared.tell(now, speed);
        }
    }

    /// Begins or ends to share with other places, as they come and go.
    pub(super) fn follow_sharing(&mut self, now: Nanos, place: u32) {
        let Some(shared) = self.shared_of(place) else { return };
        let (spans, slip, due) = (shared.spans(now), shared.slip(), shared.due());
        if spans == self.nodes[place].spans {
            return;
        }
        if spans {
            // what was sent ahead of its time is owed by all of them
            shared.owe(self.nodes[place].due);
        }
        let node = &mut self.nodes[place];
        if spans {
            node.begin_purse();
            node.common = Common::begin(slip);
        } else {
            node.end_purse(due);
        }
        node.spans = spans;
    }

    /// A node gets its first child: it takes over what other places of the aggregate have left.
    pub(super) fn take_over_debt(&mut self, place: u32) {
        let due = self.shared_of(place).map_or(Nanos::ZERO, Shared::due);
        let node = &mut self.nodes[place];
        if !node.spans {
            node.due = node.due.max(due);
        }
    }

    /// A node loses its last child: where they go, the aggregate is no further than it was here.
    pub(super) fn leave_debt(&self, place: u32) {
        let node = &self.nodes[place];
        if !node.spans
            && let Some(shared) = self.shared_of(place)
        {
            shared.owe(node.due);
        }
    }
}
