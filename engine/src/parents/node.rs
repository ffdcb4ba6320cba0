// SPDX-License-Identifier: Apache-2.0
//! An aggregate in one direction at one place (shard and port): its shaper, its clock, and who waits for it.
//!
//! **Shaper**: a theoretical departure time in real time, moved on by what each packet costs; after idling it lies
//! behind by the burst at most. A packet may leave once it is reached.
//!
//! **Clock**: that of the aggregate above (or the wheel's) less the slip. Due work may wait for as long as a port's
//! may ([`lag_allowed`]); what it waits longer, the clock slips.

use aqm::{BitsPerSec, Nanos, Pace};

use super::calendar::{Calendar, NONE};
use super::tree::Link;
use crate::change::Direction;
use crate::port::lag_allowed;
use crate::shaper::BURST;

/// A full packet on the line, for burst and lag.
const MTU: u64 = 1_538;
/// A quantum that a place buys of a common aggregate, as time at the rate, and its bounds in bytes.
const QUANTUM: Nanos = Nanos::from_micros(4);
const QUANTUM_BYTES: (u64, u64) = (MTU, 65_536);
/// The speed is measured no more often than this, as a shift of nanoseconds: 131 us, and 1 ms while no clock is slowed.
const TICK_SHIFT: u32 = 17;
const STEADY_SHIFT: u32 = 20;
/// Clocks slowed by less count as not slowed.
const STEADY: f32 = 1e-4;
/// How often a place follows the slip that is common, and how much of what differs here it remembers.
const FOLLOW: Nanos = Nanos::from_micros(100);
const LONGEST: Nanos = Nanos::from_millis(10);
/// Time constant of the smoothed speed, in nanoseconds.
const SPEED_TAU: f32 = 5e6;
/// An aggregate that sends nothing for so long and for which nobody waits is idle.
const IDLE: Nanos = Nanos::from_millis(10);
/// The slowest clock that the served pace follows.
const SLOWEST: f32 = 0.001;
/// 1 in 16.16 fixed point.
const ONE: u32 = 1 << 16;

/// See the module. The first cache line is what every packet touches.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Node {
    /// When the next packet may leave, in real time; of a common aggregate when it is known not to before.
    pub(super) due: Nanos,
    pace: Pace,
    /// How far the clock lies behind the one above (modulo 2^64: it may lie before).
    pub(super) slip: u64,
    pub(super) bytes: u64,
    pub(super) packets: u64,
    /// 2^-32 ns beyond `due`.
    fraction: u32,
    burst_ns: u32,
    /// The node above.
    pub(super) outer: u32,
    /// 1 / speed of the clock against real time, 16.16.
    pub(super) slowness: u32,
    tick: u32,
    /// More than one place has children: rate and slip are common.
    pub(super) spans: bool,
    /// Of the root: it has an entry on the wheel.
    pub(super) armed: bool,
    /// Its calendar holds entries.
    pub(super) waits: bool,
    /// No clock from here up was slowed when last looked at, nor has this one slipped since.
    pub(super) steady: bool,

    /// Bytes paid for, of a common aggregate.
    purse: i64,
    quantum: u32,
    /// Low half of the slot of the wheel's entry.
    pub(super) slot: u32,
    pub(super) lag_ns: u32,
    /// Own slowing, smoothed, and that of all above and the own: 1 - speed.
    pub(super) drag: f32,
    drags: f32,
    /// Children.
    pub(super) children: u32,
    measured: Nanos,
    slip_seen: u64,
    pub(super) common: Common,
    /// As an entry of the node above.
    pub(super) link: Link,

    /// Whose it is.
    pub(super) parent: u32,
    /// The next node of the aggregate in this direction.
    pub(super) next: u32,
    pub(super) direction: Direction,
    pub(super) lane: u8,
    pub(super) calendar: Calendar,
}

/// What this place knows of the slip that all places of its aggregate share.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Common {
    /// Of it, what this clock has followed.
    pub(super) slip: u64,
    /// When that was, and what the clock above showed; not yet: never.
    at: Option<(Nanos, Nanos)>,
    /// By how much this clock and those above were slowed more than the aggregate was, up to [`LONGEST`].
    slower: Nanos,
    /// How much longer the aggregate let no packet go than it did, up to [`LONGEST`], less what it slipped for that; as of
    /// when, and until when it lets none go from then on.
    poor: Nanos,
    as_of: Nanos,
    poor_until: Nanos,
}

impl Common {
    /// From now on `slip` is what all share, wherever this clock is.
    pub(super) fn begin(slip: u64) -> Self {
        Self { slip, ..Self::default() }
    }

    /// Whether it is time to follow.
    #[inline]
    pub(super) fn is_old(&self, now: Nanos) -> bool {
        self.at.is_none_or(|(at, _)| now.since(at) >= FOLLOW)
    }

    /// The aggregate has slipped to `slip`, and the clock above shows `above` at `now`: what this clock slips. A clock
    /// above that is slowed itself, by a port or an lcore that others do not share, has done that much already; and none
    /// ever goes back.
    pub(super) fn follow(&mut self, now: Nanos, above: Nanos, slip: u64) -> u64 {
        let Some((was, earlier)) = self.at.replace((now, above)) else {
            self.slip = slip;
            return 0;
        };
        let went = above.since(earlier);
        let slowed = self.slower + now.since(was).since(went);
        let more = Nanos(slip.wrapping_sub(self.slip));
        self.slower = slowed.since(more).min(LONGEST);
        let owed = more.since(slowed);
        let done = owed.min(went);
        self.slip = slip.wrapping_sub(owed.since(done).0);
        done.0
    }

    /// Of a lag, what the aggregate is to blame for.
    pub(super) fn blames(&mut self, now: Nanos, lag: Nanos) -> Nanos {
        self.is_asked(now, self.poor_until);
        self.poor.min(lag)
    }

    /// This clock slips by `all`, and others by `common` of it.
    pub(super) fn lead(&mut self, common: Nanos, all: Nanos) {
        self.slip = self.slip.wrapping_add(common.0);
        self.poor = self.poor.since(common);
        self.slower = (self.slower + all.since(common)).min(LONGEST);
    }

    /// The aggregate lets no packet go `until` then, if that is still to come.
    #[inline]
    pub(super) fn is_asked(&mut self, now: Nanos, until: Nanos) {
        let was_poor = self.poor_until.min(now).since(self.as_of);
        let was_rich = now.since(self.as_of).since(was_poor);
        self.poor = (self.poor + was_poor).min(LONGEST).since(was_rich);
        (self.as_of, self.poor_until) = (now, until);
    }
}

const _: () =
    assert!(core::mem::offset_of!(Node, purse) == 64, "what every packet touches is one cache line");
const _: () = assert!(size_of::<Node>() <= 576, "`sluice check` counts on it");

impl Default for Node {
    fn default() -> Self {
        Self {
            due: Nanos::ZERO,
            pace: Pace::default(),
            slip: 0,
            bytes: 0,
            packets: 0,
            fraction: 0,
            burst_ns: 0,
            outer: NONE,
            slowness: ONE,
            tick: 0,
            spans: false,
            armed: false,
            waits: false,
            steady: false,
            purse: 0,
            quantum: 0,
            slot: 0,
            lag_ns: 0,
            drag: 0.0,
            drags: 0.0,
            children: 0,
            measured: Nanos::ZERO,
            slip_seen: 0,
            common: Common::default(),
            link: Link::default(),
            parent: NONE,
            next: NONE,
            direction: Direction::Down,
            lane: 0,
            calendar: Calendar::default(),
        }
    }
}

/// A span that fits 32 bits of nanoseconds, or 4 s.
fn short(span: Nanos) -> u32 {
    u32::try_from(span.0).unwrap_or(u32::MAX)
}

impl Node {
    /// Another rate: what is left of a wait is rescaled.
    #[expect(clippy::cast_possible_truncation, reason = "clamped to 65,536")]
    pub(super) fn set_rate(&mut self, rate: BitsPerSec, now: Nanos) {
        let old = core::mem::replace(&mut self.pace, Pace::of(rate));
        if !self.spans && self.due > now && old.0 > 0 {
            self.due = now + rescaled(self.due.since(now), old, self.pace);
        }
        self.burst_ns = short(BURST.max(self.pace.time(2 * MTU)));
        self.lag_ns = short(lag_allowed(self.pace));
        let bytes = u128::from(rate.0) * u128::from(QUANTUM.0) / 8_000_000_000;
        let (least, most) = QUANTUM_BYTES;
        self.quantum = bytes.clamp(u128::from(least), u128::from(most)) as u32;
    }

    pub(super) fn burst(&self) -> Nanos {
        Nanos(self.burst_ns.into())
    }

    /// Bytes of a quantum and what they cost.
    pub(super) fn quantum(&self) -> (i64, Nanos) {
        (self.quantum.into(), self.pace.time(self.quantum.into()))
    }

    /// Bytes paid for and not yet sent, of a common aggregate.
    #[inline]
    pub(super) fn purse(&mut self) -> &mut i64 {
        &mut self.purse
    }

    /// From now on the rate is sold by what all places share.
    pub(super) fn begin_purse(&mut self) {
        self.purse = 0;
    }

    /// The rate is this place's own again, of which `due` tells when the next quantum could be bought.
    pub(super) fn end_purse(&mut self, due: Nanos) {
        let left = self.pace.time(self.purse.unsigned_abs());
        self.due = if self.purse > 0 { due.since(left) } else { due + left };
        self.purse = 0;
    }

    /// A packet of `bytes` leaves.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low half is the fraction; the high one fits")]
    pub(super) fn charge(&mut self, now: Nanos, bytes: u32) {
        self.bytes += u64::from(bytes);
        self.packets += 1;
        if self.spans {
            self.purse -= i64::from(bytes);
            return;
        }
        let earliest = now.since(self.burst());
        if self.due < earliest {
            self.due = earliest;
        }
        let cost = u128::from(self.pace.0) * u128::from(bytes) + u128::from(self.fraction);
        self.fraction = cost as u32;
        self.due += Nanos((cost >> 32) as u64);
    }

    /// Whether it is time to measure the clock's speed.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "ticks are told apart by their low half")]
    pub(super) fn ticks(&mut self, now: Nanos) -> bool {
        let tick = (now.0 >> if self.steady { STEADY_SHIFT } else { TICK_SHIFT }) as u32;
        core::mem::replace(&mut self.tick, tick) != tick
    }

    /// Measures the clock's speed. `slip` is that in force, `above` the slowing of all above, `port` the speed of the
    /// port's clock. Returns the speed as far as this aggregate slows it.
    #[expect(clippy::cast_precision_loss, reason = "ratios of spans")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 1 / SLOWEST")]
    pub(super) fn measure(&mut self, now: Nanos, slip: u64, above: f32, port: f32) -> f32 {
        let span = now.since(self.measured).0.max(1) as f32;
        let more = slip.wrapping_sub(self.slip_seen).cast_signed().max(0) as f32;
        let weight = (span / SPEED_TAU).min(1.0);
        (self.measured, self.slip_seen) = (now, slip);
        self.drag += ((more / span).min(1.0) - self.drag) * weight;
        self.drags = above + self.drag;
        self.steady = self.drags < STEADY && port >= 1.0;
        self.slowness = (ONE as f32 / (port - self.drags).clamp(SLOWEST, 1.0)) as u32;
        1.0 - self.drag
    }

    /// Own slowing at `now`: none of an aggregate for which nobody waits, once its last measure is old.
    pub(super) fn drag_at(&self, now: Nanos) -> f32 {
        if self.waits || now.since(self.measured) < IDLE { self.drag } else { 0.0 }
    }

    /// Slowing of this and all above.
    pub(super) fn drags(&self) -> f32 {
        self.drags
    }

    /// It is below another clock from now on: the slip is another without having slipped.
    pub(super) fn restart(&mut self) {
        self.slip_seen = self.slip;
        self.common = Common::begin(self.common.slip);
    }
}

/// What is left of a wait when the pace changes.
#[expect(clippy::cast_possible_truncation, reason = "saturated just before")]
pub(super) fn rescaled(wait: Nanos, old: Pace, new: Pace) -> Nanos {
    let rescaled = u128::from(wait.0) * u128::from(new.0) / u128::from(old.0.max(1));
    Nanos(rescaled.min(u128::from(u64::MAX)) as u64)
}
