// SPDX-License-Identifier: Apache-2.0
//! COBALT: CoDel and BLUE side by side, as in Linux sch_cake (Hoiland-Jorgensen, Taht and Morton 2018, "Piece of
//! CAKE"; there is no RFC).
//!
//! CoDel marks or drops by its schedule while the sojourn stays above the target, and undoes its count step by step once
//! it does not, rather than remembering it for a while; BLUE drops, whatever the codepoint, with a likelihood that
//! grows at each overflow of the queue and falls when the queue is found empty, each at most once a target.
//!
//! Invariants: the first signal comes a full interval after the sojourn first exceeded the target; at rest (count and
//! likelihood zero) nothing is dropped. Departures: interval / sqrt(count) is exact, where Linux takes a Newton step in
//! 32 bits; Linux gives the first signal at once in a queue that is used for the first time (its root starts at 0) or
//! that rested for longer than an interval (a stale time decides), which its own comment does not mean.

use crate::recur::Dice;
use crate::{Nanos, Pace, Prob};

/// What BLUE adds at an overflow: 1/256.
const P_UP: u32 = 1 << 24;
/// What BLUE takes back when the queue is empty: 1/4096.
const P_DOWN: u32 = 1 << 20;

/// Times derived from the rate; the same for all queues of a tin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CobaltParams {
    pub(crate) target: Nanos,
    pub(crate) interval: Nanos,
    pub(crate) mtu_time: Nanos,
}

impl CobaltParams {
    /// `cake_set_rate()`: a twentieth of the RTT as target unless an MTU and a half takes longer, and the interval with
    /// what the target was lengthened by.
    pub(crate) fn new(rtt: Nanos, mtu: u32, pace: Pace) -> Self {
        let mtu_time = pace.time(mtu.into());
        let nominal = Nanos(rtt.0 / 20);
        let target = nominal.max(Nanos(mtu_time.0.saturating_add(mtu_time.0 / 2)));
        let interval = (rtt + target.since(nominal)).max(target + target);
        Self { target, interval, mtu_time }
    }

    /// The next time on the schedule.
    fn next(&self, from: Nanos, count: u32) -> Nanos {
        let interval = self.interval.0.min(u32::MAX.into());
        from + Nanos((interval * interval / u64::from(count.max(1))).isqrt())
    }
}

/// What CoDel's schedule and BLUE want done with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// CoDel's schedule was due: mark it, or drop it if it cannot be marked.
    pub(crate) signal: bool,
    /// BLUE drops it.
    pub(crate) blue: bool,
}

/// State of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cobalt {
    drop_next: Nanos,
    blue_timer: Nanos,
    count: u32,
    p_drop: u32,
    dropping: bool,
}

const _: () = assert!(size_of::<Cobalt>() <= 32);

impl Cobalt {
    /// The queue overflowed and loses a packet.
    pub(crate) fn full(&mut self, params: &CobaltParams, now: Nanos) {
        if self.blue_is_due(params, now) {
            self.p_drop = self.p_drop.saturating_add(P_UP);
            self.blue_timer = now;
        }
        self.dropping = true;
        self.drop_next = now;
        self.count = self.count.max(1);
    }

    /// The queue's turn came and it was empty.
    pub(crate) fn empty(&mut self, params: &CobaltParams, now: Nanos) {
        if self.p_drop > 0 && self.blue_is_due(params, now) {
            self.p_drop = self.p_drop.saturating_sub(P_DOWN);
            self.blue_timer = now;
        }
        self.dropping = false;
        if self.count > 0 && now >= self.drop_next {
            self.count -= 1;
            self.drop_next = params.next(self.drop_next, self.count);
        }
    }

    /// Nothing would come of forgetting it.
    pub(crate) fn rests(&self, now: Nanos) -> bool {
        self.p_drop == 0 && self.count == 0 && now >= self.drop_next
    }

    /// What to do with a packet just taken.
    pub(crate) fn decide(
        &mut self,
        params: &CobaltParams,
        now: Nanos,
        sojourn: Nanos,
        can_mark: bool,
        dice: &mut Dice,
    ) -> Wanted {
        let above = sojourn > params.target && sojourn.0 > params.mtu_time.0.saturating_mul(4);
        let due = self.count > 0 && now >= self.drop_next;
        if above && !self.dropping {
            self.drop_next = params.next(now, self.count);
            self.count = self.count.max(1);
        }
        self.dropping = above;
        let signal = due && above;
        if signal {
            self.count = self.count.saturating_add(1);
            self.drop_next = params.next(self.drop_next, self.count);
        } else if due {
            while self.count > 0 && now >= self.drop_next {
                self.count -= 1;
                self.drop_next = params.next(self.drop_next, self.count);
            }
        }
        let blue = self.p_drop > 0 && dice.roll(Prob(self.p_drop));
        let drops = blue || (signal && !can_mark);
        if self.count == 0 {
            self.drop_next = now + params.interval;
        } else if now > self.drop_next && !drops {
            self.drop_next = now;
        }
        Wanted { signal, blue }
    }

    fn blue_is_due(&self, params: &CobaltParams, now: Nanos) -> bool {
        now.since(self.blue_timer) > params.target
    }
}

#[cfg(test)]
mod tests;
