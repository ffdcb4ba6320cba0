// SPDX-License-Identifier: Apache-2.0
//! What the shards of a port share: its shaper and its clock.
//!
//! **Shaper.** A theoretical departure time, moved on by atomic adds of whole quanta of bytes; frames count 24
//! bytes more than they hold in memory. A shard pays for a quantum before it sends from it and keeps the rest,
//! so the sum over shards never exceeds the rate by more than the burst and a quantum for each shard.
//!
//! **Clock.** The port's virtual time is real time less its `slip`, which only ever grows: it never runs faster
//! than real time. A shard whose due work the port held up for longer than the lag allowed adds the excess to
//! the slip, and so slows every shard of the port by as much. All of them stay within the allowance behind the
//! one clock, so shares follow plans across shards; what slipped is never caught up, so nobody is owed anything
//! when load falls. A shard that stalls or dies adds nothing and holds nobody up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use aqm::{BitsPerSec, Nanos, Pace};
use crossbeam_utils::CachePadded;

use crate::overhead::PORT_FRAME_OVERHEAD;

#[cfg(test)]
mod tests;

/// Due work may fall behind the clock by as much as a subscriber's own burst before the clock slips, by this
/// where the port's rate is not known, and by more on slow ports: see [`Purse::lag_allowed`].
const LAG_LEAST: Nanos = crate::shaper::BURST;
const LAG_WITHOUT_RATE: Nanos = Nanos::from_millis(1);
/// Lag allowed in full frames of the port: always, and up to a time.
const LAG_FRAMES: (u64, u64, Nanos) = (16, 64, Nanos::from_millis(2));

/// Burst of the port's shaper, as time: what a TX ring may hold.
const PORT_BURST: Nanos = Nanos::from_micros(100);
/// A quantum of the shaper, as time at the rate.
const QUANTUM: Nanos = Nanos::from_micros(4);
/// Bounds of a quantum in bytes: a full frame, and what keeps a burst small at 100 Gb/s.
const QUANTUM_BYTES: (u64, u64) = (1_538 + PORT_FRAME_OVERHEAD as u64, 65_536);
/// The clock's speed is measured no more often than this.
const SPEED_EVERY: Nanos = Nanos::from_micros(100);
/// Time constant of the smoothed speed.
const SPEED_TAU: Nanos = Nanos::from_millis(5);

/// What the shards of a port share.
#[derive(Debug)]
pub struct PortShared {
    rate_bps: AtomicU64,
    up: AtomicBool,
    /// When the shaper may sell its next quantum.
    due: CachePadded<AtomicU64>,
    /// How far virtual time lies behind real time.
    slip: CachePadded<AtomicU64>,
    speed: CachePadded<Speed>,
}

/// The clock's speed: bits of an `f64`, and when and at which slip it was last measured.
#[derive(Debug)]
struct Speed {
    smoothed: AtomicU64,
    at: AtomicU64,
    slip: AtomicU64,
}

impl PortShared {
    /// A port whose shaper has this rate; `None`: no shaper. The link is up.
    pub fn new(rate: Option<BitsPerSec>) -> Self {
        Self {
            rate_bps: AtomicU64::new(rate.map_or(0, |rate| rate.0)),
            up: AtomicBool::new(true),
            due: CachePadded::new(AtomicU64::new(0)),
            slip: CachePadded::new(AtomicU64::new(0)),
            speed: CachePadded::new(Speed {
                smoothed: AtomicU64::new(1.0_f64.to_bits()),
                at: AtomicU64::new(0),
                slip: AtomicU64::new(0),
            }),
        }
    }

    /// The rate of a port's shaper: the configured one, else 99.5 % of link speed, else none.
    pub fn shaper_rate(configured_bps: Option<u64>, link: Option<BitsPerSec>) -> Option<BitsPerSec> {
        let of_link = link.map(|link| link.0 / 1_000 * 995).filter(|&bps| bps > 0);
        configured_bps.or(of_link).map(BitsPerSec)
    }

    /// Changes the shaper's rate (link speed changed); any thread.
    pub fn set_rate(&self, rate: Option<BitsPerSec>) {
        self.rate_bps.store(rate.map_or(0, |rate| rate.0), Relaxed);
    }

    /// The shaper's rate.
    #[inline]
    pub fn rate(&self) -> Option<BitsPerSec> {
        match self.rate_bps.load(Relaxed) {
            0 => None,
            bps => Some(BitsPerSec(bps)),
        }
    }

    /// Notes the link's state for readers; the shards are told by `Shard::set_link`.
    pub fn set_up(&self, up: bool) {
        self.up.store(up, Relaxed);
    }

    /// The link's state as last noted.
    pub fn is_up(&self) -> bool {
        self.up.load(Relaxed)
    }

    /// How fast the port's clock runs, smoothed over some milliseconds: 1 unless the port is saturated.
    pub fn clock_speed(&self) -> f64 {
        f64::from_bits(self.speed.smoothed.load(Relaxed))
    }

    /// How far virtual time lies behind real time.
    #[inline]
    pub(crate) fn slip(&self) -> Nanos {
        Nanos(self.slip.load(Relaxed))
    }

    /// Adds `more` to a slip that was `seen`. Where another shard slipped the clock meanwhile this does nothing:
    /// the caller's lag is less by as much, and its next look tells.
    pub(crate) fn slip_by(&self, seen: Nanos, more: Nanos) {
        let _ = self.slip.compare_exchange(seen.0, (seen + more).0, Relaxed, Relaxed);
    }

    /// When the shaper may sell its next quantum.
    #[inline]
    pub(crate) fn due(&self) -> Nanos {
        Nanos(self.due.load(Relaxed))
    }

    /// Measures the clock's speed, if that is due; one shard's call does for all.
    pub(crate) fn measure_speed(&self, now: Nanos) {
        let Speed { smoothed, at, slip } = &*self.speed;
        let last = Nanos(at.load(Relaxed));
        let span = now.since(last);
        if span < SPEED_EVERY || at.compare_exchange(last.0, now.0, Relaxed, Relaxed).is_err() {
            return;
        }
        let slipped = self.slip();
        let more = slipped.since(Nanos(slip.swap(slipped.0, Relaxed)));
        let weight = (ratio(span, SPEED_TAU)).min(1.0);
        let speed = (1.0 - ratio(more, span)).clamp(0.0, 1.0);
        let old = f64::from_bits(smoothed.load(Relaxed));
        smoothed.store((old + (speed - old) * weight).to_bits(), Relaxed);
    }
}

/// One time over another.
#[expect(clippy::cast_precision_loss, reason = "spans are far below 2^53 ns")]
fn ratio(a: Nanos, b: Nanos) -> f64 {
    a.0 as f64 / b.0 as f64
}

/// [`Purse::lag_allowed`] at a pace.
pub(crate) fn lag_allowed(pace: Pace) -> Nanos {
    let (least, most, time) = LAG_FRAMES;
    let frames = |n: u64| pace.time(n * QUANTUM_BYTES.0);
    LAG_LEAST.max(frames(least)).max(frames(most).min(time))
}

/// One shard's purse of the port's shaper: bytes paid for and not yet sent.
#[derive(Debug, Default)]
pub(crate) struct Purse {
    rate: Option<BitsPerSec>,
    pace: Pace,
    quantum: u64,
    /// 2^-32 ns of this shard's quanta that the shared time has not been moved by.
    fraction: u32,
    bytes: i64,
}

impl Purse {
    /// Follows the port's rate.
    #[inline]
    pub(crate) fn set_rate(&mut self, rate: Option<BitsPerSec>) -> bool {
        if self.rate == rate {
            return false;
        }
        *self = Self { rate, ..Self::default() };
        if let Some(rate) = rate {
            let bytes = u128::from(rate.0) * u128::from(QUANTUM.0) / 8_000_000_000;
            self.pace = Pace::of(rate);
            self.quantum = u64::try_from(bytes).unwrap_or(u64::MAX).clamp(QUANTUM_BYTES.0, QUANTUM_BYTES.1);
        }
        true
    }

    /// Whether a packet may be sent at `now`; buys quanta as needed. Else when the port can sell one.
    #[inline]
    pub(crate) fn admit(&mut self, port: &PortShared, now: Nanos) -> Result<(), Nanos> {
        if self.rate.is_none() {
            return Ok(());
        }
        while self.bytes <= 0 {
            self.buy(port, now)?;
        }
        Ok(())
    }

    /// Buys a quantum, if the port can sell one.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low half is the fraction; a quantum's time fits the high one"
    )]
    fn buy(&mut self, port: &PortShared, now: Nanos) -> Result<(), Nanos> {
        let cost = u128::from(self.pace.0) * u128::from(self.quantum) + u128::from(self.fraction);
        let earliest = now.since(PORT_BURST);
        loop {
            let due = port.due();
            if due > now {
                return Err(due);
            }
            let after = due.max(earliest) + Nanos((cost >> 32) as u64);
            if port.due.compare_exchange_weak(due.0, after.0, Relaxed, Relaxed).is_ok() {
                self.fraction = cost as u32;
                self.bytes = self.bytes.saturating_add_unsigned(self.quantum);
                return Ok(());
            }
        }
    }

    /// A frame of `frame_bytes` in memory is sent. May overdraw: control traffic does not wait.
    #[inline]
    pub(crate) fn spend(&mut self, frame_bytes: u32) {
        if self.rate.is_some() {
            self.bytes -= i64::from(frame_bytes + PORT_FRAME_OVERHEAD);
        }
    }

    /// How far due work may fall behind the port's clock before the clock slips; a subscriber of rate `r` can get
    /// at most `r` times this in excess when load falls.
    ///
    /// It must hold what bunches up by chance: subscribers that are due at random moments and use the port fully
    /// would lose 1 / 2n of it with room for n frames. So 64 frames of the port, but no more than 2 ms, and at
    /// least 16 frames, for which a subscriber of an eighth of the port gets 2 frames in excess.
    pub(crate) fn lag_allowed(&self) -> Nanos {
        if self.rate.is_none() { LAG_WITHOUT_RATE } else { lag_allowed(self.pace) }
    }

    /// Whether the next packet waits for a quantum.
    pub(crate) fn is_empty(&self) -> bool {
        self.rate.is_some() && self.bytes <= 0
    }
}
