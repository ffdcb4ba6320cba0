// SPDX-License-Identifier: Apache-2.0
//! Units as types: time, sizes, rates and probabilities.
//!
//! Invariant: a bare integer never crosses a crate border inside the packet path; operator units
//! (`*_us`, `*_bps`) become these once, in one constructor.

use core::ops::{Add, AddAssign};

/// A point in time or a span, in nanoseconds of a monotonic clock that the caller owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The end of time: never due.
    pub const MAX: Self = Self(u64::MAX);

    /// From microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self(us * 1_000)
    }

    /// From milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// From whole seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s * 1_000_000_000)
    }

    /// `self - earlier`, or zero where `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// `self - other` with its sign; controllers subtract with this, never with an unsigned difference.
    pub const fn signed_since(self, other: Self) -> i64 {
        self.0.wrapping_sub(other.0).cast_signed()
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

/// A point in time as it travels in a packet: 32 bits in units of 64 ns, wrapping after 274 s.
///
/// Any value is a time; "no packet" is told apart by a flag of its own, never by 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp(pub u32);

impl Stamp {
    /// The unit, as a shift of nanoseconds.
    pub const SHIFT: u32 = 6;

    /// The stamp of `now`, rounded down to 64 ns.
    #[expect(clippy::cast_possible_truncation, reason = "wraps by design; differences are taken modulo 2^32")]
    pub const fn at(now: Nanos) -> Self {
        Self((now.0 >> Self::SHIFT) as u32)
    }

    /// The time from `earlier` to `self`; correct while they lie less than 137 s apart, and zero where
    /// `earlier` is the later one.
    pub const fn since(self, earlier: Self) -> Nanos {
        let units = self.0.wrapping_sub(earlier.0);
        if units.cast_signed() < 0 { Nanos::ZERO } else { Nanos((units as u64) << Self::SHIFT) }
    }
}

/// A rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitsPerSec(pub u64);

/// What one byte costs in time at a rate: nanoseconds per byte in 32.32 fixed point.
///
/// From 64 kb/s (125,000 ns) to 400 Gb/s (0.02 ns) its relative error is below 6e-9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pace(pub u64);

impl Pace {
    /// The pace of a rate; a rate of zero is the slowest pace there is.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "8e9 << 32 over a rate of at least 2 b/s fits 64 bits; slower is clamped"
    )]
    pub const fn of(rate: BitsPerSec) -> Self {
        if rate.0 < 4 {
            return Self(u64::MAX);
        }
        let scaled = (8_000_000_000_u128 << 32) + (rate.0 as u128) / 2;
        Self((scaled / rate.0 as u128) as u64)
    }

    /// The time that `bytes` take, rounded down to a nanosecond.
    #[expect(clippy::cast_possible_truncation, reason = "saturated just before")]
    pub const fn time(self, bytes: u64) -> Nanos {
        let ns = (self.0 as u128 * bytes as u128) >> 32;
        if ns > u64::MAX as u128 { Nanos::MAX } else { Nanos(ns as u64) }
    }
}

/// A probability: `u32::MAX` is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prob(pub u32);

impl Prob {
    /// Never.
    pub const ZERO: Self = Self(0);
    /// Always.
    pub const ONE: Self = Self(u32::MAX);

    /// As a ratio from 0 to 1, for people.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(u32::MAX)
    }

    /// The nearest probability to a ratio, clamped to 0..1.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the range of u32"
    )]
    pub fn from_f64(ratio: f64) -> Self {
        Self((ratio.clamp(0.0, 1.0) * f64::from(u32::MAX)).round() as u32)
    }

    /// The square, rounded to the nearest; the square of 1 is 1.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the square of a ratio of at most 1 is at most 1")]
    pub const fn squared(self) -> Self {
        let one = u32::MAX as u64;
        Self(((self.0 as u64 * self.0 as u64 + one / 2) / one) as u32)
    }

    /// `factor` times as likely, at most 1.
    #[must_use]
    pub const fn times(self, factor: u32) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    /// A `divisor`-th of it; a divisor of 0 counts as 1.
    #[must_use]
    pub fn over(self, divisor: u32) -> Self {
        Self(self.0 / divisor.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_keep_their_ends() {
        assert_eq!(Prob::ONE.squared(), Prob::ONE);
        assert_eq!(Prob::ZERO.squared(), Prob::ZERO);
        assert_eq!(Prob(1 << 31).squared(), Prob(1 << 30));
        assert_eq!(Prob(1 << 31).times(2), Prob::ONE);
        assert_eq!(Prob((1 << 31) - 1).times(2), Prob(u32::MAX - 1));
        assert_eq!(Prob::ONE.over(0), Prob::ONE);
        assert_eq!(Prob::ONE.over(2), Prob(u32::MAX / 2));
        for ratio in [-1.0, 0.0, 0.25, 1.0, 2.0, f64::INFINITY] {
            assert!((Prob::from_f64(ratio).as_f64() - ratio.clamp(0.0, 1.0)).abs() < 1e-9, "{ratio}");
        }
    }

    #[test]
    fn differences_of_time_keep_their_sign() {
        assert_eq!(Nanos(5).signed_since(Nanos(7)), -2);
        assert_eq!(Nanos(5).since(Nanos(7)), Nanos::ZERO);
        assert_eq!(Nanos::MAX + Nanos(1), Nanos::MAX);
    }

    #[test]
    fn stamps_differ_across_their_wrap_and_never_go_backwards() {
        let wrap = 1_u64 << (32 + Stamp::SHIFT);
        let (before, after) = (Stamp::at(Nanos(wrap - 640)), Stamp::at(Nanos(wrap + 640)));
        assert_eq!(after.since(before), Nanos(1_280));
        assert_eq!(before.since(after), Nanos::ZERO);
    }

    #[test]
    fn a_pace_is_within_six_in_a_billion_of_its_rate() {
        for bps in [64_000, 1_000_000, 333_333_333, 10_000_000_000, 400_000_000_000_u64] {
            let bytes = 1_u64 << 40;
            let exact = u128::from(bytes) * 8_000_000_000 / u128::from(bps);
            let got = u128::from(Pace::of(BitsPerSec(bps)).time(bytes).0);
            assert!(
                got.abs_diff(exact) * 1_000_000_000 <= exact * 6 + 1_000_000_000,
                "{bps}: {got} for {exact}"
            );
        }
        assert_eq!(Pace::of(BitsPerSec(0)).time(u64::MAX), Nanos::MAX);
    }
}
