// SPDX-License-Identifier: Apache-2.0
//! A lane: one shard's view of one port: its wheel, its clock, its purse of the port's shaper.
//!
//! The wheel runs in virtual time: real time less the port's slip (which all shards share) less what this lcore
//! alone fell `behind`. Due work may wait for the lag that [`Purse::lag_allowed`] grants; beyond that the clock slips, for all of the port
//! where the port refused packets, for this lane alone where the lcore stalled or could not keep up. So the
//! wheel catches up by no more than the allowance, ever.

use aqm::{Nanos, Pace};

use super::express::Gate;
use crate::parents::{NONE, Tree};
use crate::port::{PortShared, Purse};
use crate::wheel::{Wheel, slot_at, slot_time};

/// An lcore that polls keeps its calls closer together than this.
const POLL_GAP: Nanos = Nanos::from_micros(100);
/// How often the served pace follows the clock's speed.
const SPEED_EVERY: Nanos = Nanos::from_micros(100);
/// The slowest clock that the served pace follows: a thousandth.
const SLOWEST: f64 = 0.001;
/// A fraction of 1 in 16.16 fixed point.
const ONE: f64 = 65_536.0;
/// Slowness of a clock at full speed.
const UNSLOWED: u32 = 1 << 16;

/// One shard's view of one port.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) wheel: Wheel,
    pub(crate) purse: Purse,
    pub(crate) up: bool,
    /// Entries of the wheel that no longer stand for their id.
    pub(crate) stale: u32,
    /// Control packets that wait for this port.
    pub(crate) control: u32,
    pub(super) gate: Gate,
    behind: Nanos,
    lag_allowed: Nanos,
    /// Until when the port is known to have refused packets.
    refused_until: Nanos,
    /// 1 / clock speed, 16.16.
    slowness: u32,
    speed_at: Nanos,
}

impl Lane {
    /// A lane whose wheel can hold `entries`.
    pub(crate) fn new(entries: usize) -> Self {
        Self {
            wheel: Wheel::new(entries),
            purse: Purse::default(),
            up: true,
            stale: 0,
            control: 0,
            gate: Gate::default(),
            behind: Nanos::ZERO,
            lag_allowed: Purse::default().lag_allowed(),
            refused_until: Nanos::ZERO,
            slowness: UNSLOWED,
            speed_at: Nanos::ZERO,
        }
    }

    /// Virtual time at real time `now`.
    #[inline]
    pub(crate) fn virtual_at(&self, port: &PortShared, now: Nanos) -> Nanos {
        now.since(port.slip()).since(self.behind)
    }

    /// Lets virtual time stand still for `span` of real time; the wheel must have come to `now`, or it would run on.
    pub(crate) fn rest(&mut self, port: &PortShared, now: Nanos, span: Nanos) {
        self.time(port, now);
        self.behind += span;
    }

    /// Real time at virtual time `time`, if nothing slips meanwhile.
    pub(crate) fn real_at(&self, port: &PortShared, time: Nanos) -> Nanos {
        time + port.slip() + self.behind
    }

    /// The wheel's time: virtual time, or that of the first due slot not yet served. Whoever has been idle joins
    /// here.
    #[inline]
    pub(crate) fn time(&mut self, port: &PortShared, now: Nanos) -> Nanos {
        self.wheel.advance(slot_at(self.virtual_at(port, now)));
        slot_time(self.wheel.current())
    }

    /// Follows the port's rate; whether it has changed.
    #[inline]
    pub(crate) fn follow_rate(&mut self, port: &PortShared) -> bool {
        let changed = self.purse.set_rate(port.rate());
        if changed {
            self.lag_allowed = self.purse.lag_allowed();
        }
        changed
    }

    /// Begins a visit to the port: lets the clock slip by what due work waited too long.
    pub(crate) fn begin(&mut self, port: &PortShared, now: Nanos, room: usize) {
        self.settle(port, now);
        if room == 0 {
            self.refused(now);
        }
        port.measure_speed(now);
        if now.since(self.speed_at) >= SPEED_EVERY {
            self.speed_at = now;
            self.slowness = slowness(port.clock_speed());
        }
    }

    /// Lets the clock slip by what due work waited too long. Afterwards virtual time lies no further ahead of the wheel
    /// than the allowance, so what is measured against it is nobody's stall.
    pub(crate) fn settle(&mut self, port: &PortShared, now: Nanos) {
        let Some(first) = self.wheel.first() else { return };
        let seen = port.slip();
        let lag = now.since(seen).since(self.behind).since(slot_time(first));
        let excess = lag.since(self.lag_allowed);
        if excess > Nanos::ZERO {
            let stall = now.since(self.refused_until);
            let own = if stall > POLL_GAP { stall.min(excess) } else { Nanos::ZERO };
            self.behind += own;
            port.slip_by(seen, excess.since(own));
        }
    }

    /// The port takes no packet until `until`.
    #[inline]
    pub(crate) fn refused(&mut self, until: Nanos) {
        self.refused_until = self.refused_until.max(until);
    }

    /// Whether the port's shaper lets a packet go.
    #[inline]
    pub(crate) fn admits(&mut self, port: &PortShared, now: Nanos) -> bool {
        match self.purse.admit(port, now) {
            Ok(()) => true,
            Err(until) => {
                self.refused(until);
                false
            }
        }
    }

    /// Whether the port's clock runs slower than real time.
    #[inline]
    pub(crate) fn is_slowed(&self) -> bool {
        self.slowness != UNSLOWED
    }

    /// What a byte takes at the served rate: that of the plan, slowed as the clock is.
    #[inline]
    pub(crate) fn served(&self, plan: Pace) -> Pace {
        if self.is_slowed() { slowed(plan, self.slowness) } else { plan }
    }

    /// The same below an aggregate's node, if there is one: the slowest of the clocks above counts.
    #[inline]
    pub(crate) fn served_below(&self, tree: &Tree, node: u32, plan: Pace) -> Pace {
        if node == NONE { self.served(plan) } else { self.slowed_below(tree, node, plan) }
    }

    #[inline(never)]
    fn slowed_below(&self, tree: &Tree, node: u32, plan: Pace) -> Pace {
        slowed(plan, self.slowness_below(tree, node))
    }

    /// Whether any of the clocks above runs slower than real time.
    #[inline]
    pub(crate) fn is_slowed_below(&self, tree: &Tree, node: u32) -> bool {
        if node == NONE { self.is_slowed() } else { self.slowness_below(tree, node) != UNSLOWED }
    }

    #[inline(never)]
    fn slowness_below(&self, tree: &Tree, node: u32) -> u32 {
        tree.slowness(node).max(self.slowness)
    }

    /// 1 / clock speed, 16.16.
    #[inline]
    pub(crate) fn slowness(&self) -> u32 {
        self.slowness
    }
}

#[inline]
fn slowed(plan: Pace, slowness: u32) -> Pace {
    let scaled = (u128::from(plan.0) * u128::from(slowness)) >> 16;
    Pace(u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// 1 / speed in 16.16.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 1 / SLOWEST")]
fn slowness(speed: f64) -> u32 {
    (ONE / speed.clamp(SLOWEST, 1.0)) as u32
}

#[cfg(test)]
mod tests {
    use aqm::BitsPerSec;

    use super::*;
    use crate::wheel::slot_from;

    const START: Nanos = Nanos::from_secs(1);

    /// A lane with an entry due at `START`.
    fn with_due_work() -> (Lane, PortShared) {
        let mut lane = Lane::new(4);
        let port = PortShared::new(None);
        let slot = slot_from(lane.time(&port, START));
        lane.wheel.insert(0, slot).expect("room");
        (lane, port)
    }

    #[test]
    fn a_stall_slips_this_lanes_clock_alone() {
        let (mut lane, port) = with_due_work();
        let after = START + Nanos::from_millis(5);
        lane.begin(&port, after, 32);
        assert_eq!(port.slip(), Nanos::ZERO);
        let lag = lane.virtual_at(&port, after).since(slot_time(lane.wheel.current()));
        assert_eq!(lag, lane.lag_allowed);
    }

    #[test]
    fn a_port_that_refuses_slips_the_common_clock() {
        let (mut lane, port) = with_due_work();
        let mut now = START;
        while now < START + Nanos::from_millis(5) {
            lane.begin(&port, now, 0);
            now += Nanos::from_micros(10);
        }
        assert!(port.slip() > Nanos::from_micros(3_900), "{:?}", port.slip());
        assert_eq!(lane.behind, Nanos::ZERO);
    }

    #[test]
    fn a_rest_moves_due_work_by_as_much() {
        let (mut lane, port) = with_due_work();
        lane.rest(&port, START, Nanos::from_millis(4));
        let due = lane.wheel.first().map(slot_time).expect("due work");
        assert_eq!(lane.real_at(&port, due), due + Nanos::from_millis(4));
        lane.begin(&port, START + Nanos::from_millis(4), 32);
        assert_eq!(port.slip(), Nanos::ZERO, "and is no lag");
    }

    #[test]
    fn idle_time_slips_nothing() {
        let mut lane = Lane::new(4);
        let port = PortShared::new(None);
        lane.begin(&port, START, 32);
        lane.begin(&port, START + Nanos::from_secs(9), 32);
        assert_eq!(lane.virtual_at(&port, START), START);
    }

    #[test]
    fn a_short_wait_is_caught_up() {
        let (mut lane, port) = with_due_work();
        let after = START + Nanos::from_micros(200);
        lane.begin(&port, after, 32);
        assert_eq!(lane.virtual_at(&port, after), after);
    }

    #[test]
    fn the_served_pace_follows_the_clock() {
        let mut lane = Lane::new(1);
        let plan = Pace::of(BitsPerSec(100_000_000));
        assert_eq!(lane.served(plan), plan);
        lane.slowness = slowness(0.25);
        assert_eq!(lane.served(plan), Pace(plan.0 * 4));
        lane.slowness = slowness(0.0);
        assert!(lane.served(plan).0 <= plan.0 * 1_000);
    }
}
