// SPDX-License-Identifier: Apache-2.0
//! Spreads packets over time at a rate, in bursts of a given size.
//!
//! Invariant: over any span the bytes let through are at most rate * (span + catch-up) + one burst + one packet.
//! Time is kept in 1/1024 ns, so that no rate up to 100 Gb/s drifts.

use crate::Nanos;

/// Fraction bits of a time here.
const FRACTION: u32 = 10;

/// See the module.
#[derive(Clone, Debug)]
pub struct Pacer {
    /// When the next burst may begin, in 1/1024 ns.
    next: u64,
    burst_left: u64,
    /// How far behind the pacer may fall and still make up for it, in 1/1024 ns.
    catch_up: u64,
    /// Something else held the flow back: the time until the next packet is nobody's debt.
    resting: bool,
}

impl Pacer {
    /// `catch_up`: a caller that comes late by up to this much loses none of the rate.
    pub fn new(catch_up: Nanos) -> Self {
        Self { next: 0, burst_left: 0, catch_up: fixed(catch_up), resting: true }
    }

    /// When the next packet may leave; not after `now` means right away.
    pub fn due(&self, now: Nanos) -> Nanos {
        let next = Nanos(self.next.div_ceil(1 << FRACTION));
        if self.burst_left > 0 { now } else { next }
    }

    /// Something other than the pace holds the flow back (its window, its application): nothing to make up for.
    pub fn rest(&mut self) {
        self.resting = true;
    }

    /// A packet of `bytes` leaves now, at `rate_bps`, in bursts of `burst` bytes.
    pub fn sent(&mut self, now: Nanos, bytes: u32, rate_bps: u64, burst: u64) {
        if self.burst_left == 0 {
            self.burst_left = burst.max(u64::from(bytes));
        }
        self.burst_left = self.burst_left.saturating_sub(u64::from(bytes));
        let cost = ((u128::from(bytes) * 8_000_000_000) << FRACTION) / u128::from(rate_bps.max(1));
        let cost = u64::try_from(cost).unwrap_or(u64::MAX / 4);
        let grace = if self.resting { 0 } else { self.catch_up };
        self.resting = false;
        let floor = fixed(now).saturating_sub(grace);
        self.next = self.next.max(floor).saturating_add(cost);
    }
}

fn fixed(time: Nanos) -> u64 {
    time.0.saturating_mul(1 << FRACTION)
}
