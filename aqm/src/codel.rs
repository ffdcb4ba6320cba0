// SPDX-License-Identifier: Apache-2.0
//! CoDel (RFC 8289): one FIFO, decisions at departure.
//!
//! [`CodelState`] is the law of one queue, for disciplines with many as well. The pseudocode of section 5.5 takes the
//! next packet from within; here the owner asks again after a drop, and the state remembers that the next action is
//! still to be scheduled. Invariant: on any schedule of Not-ECT packets it drops exactly those that the pseudocode
//! drops, because a packet too early to act on always ends the drop state.
//!
//! Re-entry is Linux's, as in the RFC: the count resumes at what the last drop state added if that ended within 16
//! intervals. A mark counts as a drop. interval / sqrt(count) is exact in integers, rounded down to 1 ns, and times are
//! 64 bits wide, so that nothing wraps. Departure: the target is never below the time of one MTU at the served rate
//! (RFC 8290 5.2.2 asks the operator for that).

use crate::single::{act, delay_within, mtu_within, within};
use crate::{Arrival, Arriving, Backlog, End, Leaving, Nanos, Pace, ParamError, Qdisc, Verdict};

/// Parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelConfig {
    /// The sojourn accepted for good.
    pub target: Nanos,
    /// How long the sojourn may exceed it: a worst-case RTT.
    pub interval: Nanos,
    /// Largest packet in bytes as the shaper counts it; nothing is done with no more than this left behind.
    pub mtu: u32,
}

impl Default for CodelConfig {
    /// RFC 8289 section 5.3.
    fn default() -> Self {
        Self { target: Nanos::from_millis(5), interval: Nanos::from_millis(100), mtu: 1538 }
    }
}

impl CodelConfig {
    /// Whether every value lies within its limits.
    ///
    /// # Errors
    ///
    /// The first that does not, with its limits.
    pub fn validate(&self) -> Result<(), ParamError> {
        delay_within("target_us", self.target, 1)?;
        delay_within("interval_us", self.interval, 1)?;
        within("target_us", self.target.0 / 1_000, 1, self.interval.0 / 1_000)?;
        mtu_within(self.mtu)
    }

    /// `control_law()` of section 5.6.
    fn next(&self, from: Nanos, count: u32) -> Nanos {
        let interval = self.interval.0.min(u32::MAX.into());
        from + Nanos((interval * interval / u64::from(count.max(1))).isqrt())
    }
}

/// The state of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelState(Phase);

const _: () = assert!(size_of::<CodelState>() <= 24);

/// `added`: what the last drop state added to its count (`count_ - lastcount_`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The last packet seen had waited for less than the target, or left too little behind.
    Below { added: u32, drop_next: Nanos },
    /// All packets since have waited for longer; they may be acted on from `first_above` on.
    Above { added: u32, drop_next: Nanos, first_above: Nanos },
    /// The drop state. `acted`: the packet before was acted on and the next action is not scheduled yet.
    Dropping { count: u32, entered_at: u32, drop_next: Nanos, acted: bool },
}

impl CodelState {
    /// Of a queue that never held a packet.
    pub const fn new() -> Self {
        Self(Phase::Below { added: 0, drop_next: Nanos::ZERO })
    }

    /// Whether to act on (mark or drop) the packet just taken, which had waited for `sojourn` and leaves `bytes_left`
    /// in its queue.
    pub fn decide(
        &mut self,
        params: &CodelConfig,
        now: Nanos,
        sojourn: Nanos,
        bytes_left: u64,
        pace: Pace,
    ) -> bool {
        let target = params.target.max(pace.time(params.mtu.into()));
        if sojourn < target || bytes_left <= u64::from(params.mtu) {
            self.emptied();
            return false;
        }
        match self.0 {
            Phase::Below { added, drop_next } => {
                self.0 = Phase::Above { added, drop_next, first_above: now + params.interval };
                false
            }
            Phase::Above { first_above, .. } if now < first_above => false,
            Phase::Above { added, drop_next, .. } => {
                let recent = now.since(drop_next).0 < params.interval.0.saturating_mul(16);
                let count = if added > 1 && recent { added } else { 1 };
                let drop_next = params.next(now, count);
                self.0 = Phase::Dropping { count, entered_at: count, drop_next, acted: false };
                true
            }
            Phase::Dropping { count, entered_at, drop_next, acted } => {
                let drop_next = if acted { params.next(drop_next, count) } else { drop_next };
                let acts = now >= drop_next;
                let count = count.saturating_add(u32::from(acts));
                self.0 = Phase::Dropping { count, entered_at, drop_next, acted: acts };
                acts
            }
        }
    }

    /// The queue became empty by other ways than [`Self::decide`]: nothing is above the target any more.
    pub const fn emptied(&mut self) {
        let (added, drop_next) = match self.0 {
            Phase::Below { added, drop_next } | Phase::Above { added, drop_next, .. } => (added, drop_next),
            Phase::Dropping { count, entered_at, drop_next, .. } => (count - entered_at, drop_next),
        };
        self.0 = Phase::Below { added, drop_next };
    }
}

impl Default for CodelState {
    fn default() -> Self {
        Self::new()
    }
}

/// One FIFO under CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    config: CodelConfig,
    state: CodelState,
    waiting: Backlog,
}

impl Codel {
    /// An empty queue.
    ///
    /// # Errors
    ///
    /// A value outside its limits.
    pub fn new(config: CodelConfig) -> Result<Self, ParamError> {
        config.validate()?;
        Ok(Self { config, state: CodelState::new(), waiting: Backlog::default() })
    }
}

impl Qdisc for Codel {
    fn queues(&self) -> u32 {
        1
    }

    fn arrive(&mut self, packet: &Arriving) -> Arrival {
        self.waiting.join(packet.bytes);
        Arrival::Queue(0)
    }

    fn shed(&mut self, over_limit: bool) -> Option<(u32, End)> {
        (over_limit && self.waiting.packets > 0).then_some((0, End::Tail))
    }

    fn select(&mut self, _now: Nanos) -> Option<u32> {
        (self.waiting.packets > 0).then_some(0)
    }

    fn decide(&mut self, packet: &Leaving) -> Verdict {
        self.waiting.leave(packet.bytes);
        let left = self.waiting.bytes.into();
        if self.state.decide(&self.config, packet.now, packet.sojourn, left, packet.pace) {
            act(packet.ecn, packet.rule)
        } else {
            Verdict::Pass
        }
    }

    fn sent(&mut self, _queue: u32, _bytes: u32) {}

    fn removed(&mut self, _queue: u32, bytes: u32) {
        self.waiting.leave(bytes);
        if self.waiting.packets == 0 {
            self.state.emptied();
        }
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
    }
}

#[cfg(test)]
mod tests;
