// SPDX-License-Identifier: Apache-2.0
//! Time and the ECN field, as this crate sees them.
//!
//! Invariant: time only comes in as an argument. The type is this crate's own because it depends on no other.

use core::ops::Add;

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

    /// From seconds; negative and not-a-number give zero, too large gives [`Nanos::MAX`].
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    pub fn from_secs_f64(s: f64) -> Self {
        Self((s * 1e9) as u64)
    }

    /// In seconds.
    #[expect(clippy::cast_precision_loss, reason = "spans here stay below 2^53 ns (104 days)")]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// `self - earlier`, or zero where `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// `self * num / den` without overflow in between.
    #[must_use]
    pub const fn scaled(self, num: u32, den: u32) -> Self {
        let scaled = self.0 as u128 * num as u128 / den as u128;
        #[expect(clippy::cast_possible_truncation, reason = "saturated first")]
        if scaled > u64::MAX as u128 { Self::MAX } else { Self(scaled as u64) }
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

/// The two-bit ECN field of the IP header, by its value on the wire (RFC 3168 section 5, RFC 9331).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codepoint {
    /// 00: the transport does not speak ECN.
    #[default]
    NotEct = 0,
    /// 01: ECT(1), the identifier of L4S.
    Ect1 = 1,
    /// 10: ECT(0), Classic ECN.
    Ect0 = 2,
    /// 11: congestion experienced; set by the network, never by a sender here.
    Ce = 3,
}

impl Codepoint {
    /// From the low two bits of the TOS or Traffic Class octet.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}
