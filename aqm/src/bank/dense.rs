// SPDX-License-Identifier: Apache-2.0
//! One PI step for a word of ids at once, in whatever vectors the CPU has: all of it is compiled into the pass, which is
//! compiled for each kind of them.
//!
//! Invariant: the same numbers as [`PiParams::step`](crate::pi::PiParams::step), bit for bit. Delays are whole units of
//! 64 ns, and differences of them fit 32 bits with their sign; scaling by 64 changes no digit of an f64, so gains a unit
//! stand for gains a nanosecond; a step is cut to a whole number before it is added, and all whole numbers are below 2^53.

#![expect(
    clippy::inline_always,
    reason = "what the pass calls is compiled for the vectors that the pass is compiled for"
)]

use crate::Stamp;
use crate::pi::RfcGains;

/// Ids of a word.
pub const LANES: usize = 64;
/// A delay in units: this many or more are the longest that can be told, which is no whole number of units.
pub(super) const LONGEST: u32 = 1 << (32 - Stamp::SHIFT);

/// What the steps of a word need and change: one place, so that the compiler knows that nothing overlaps.
#[repr(align(64))]
pub(super) struct Lanes {
    /// Stamps; the delays seen now once [`Self::measure`] was called.
    pub(super) heads: [u32; LANES],
    /// Delays seen last.
    pub(super) lasts: [u32; LANES],
    /// In nanoseconds; looked at if there is no common one.
    pub(super) targets: [u32; LANES],
    /// p' before and after.
    pub(super) probs: [u32; LANES],
}

impl Lanes {
    pub(super) const fn new() -> Self {
        Self { heads: [0; LANES], lasts: [0; LANES], targets: [0; LANES], probs: [0; LANES] }
    }

    /// Turns stamps into delays until the stamp `now`: the least of them, and the most of them and of the last ones.
    #[inline(always)]
    pub(super) fn measure(&mut self, now: u32) -> (u32, u32) {
        let (mut least, mut most) = (u32::MAX, 0);
        for (head, last) in self.heads.iter_mut().zip(&self.lasts) {
            let units = now.wrapping_sub(*head).cast_signed().max(0).cast_unsigned();
            *head = units;
            least = least.min(units);
            most = most.max(units.max(*last));
        }
        (least, most)
    }

    /// One bit for each lane with a delay that steps cannot deal with, now or last.
    pub(super) fn too_long(&self) -> u64 {
        [&self.heads, &self.lasts]
            .into_iter()
            .fold(0, |bits, delays| bits | from_floor(delays, (0, u32::MAX), LONGEST.into()))
    }

    /// Steps every lane from the delays measured, with one target for all or each with its own: least and most p' then.
    #[inline(always)]
    pub(super) fn step(&mut self, gains: RfcGains, target: Option<u32>) -> (u32, u32) {
        match target {
            Some(target) => self.step_lanes(gains, |_| target),
            None => self.step_lanes(gains, |own| own),
        }
    }

    #[inline(always)]
    fn step_lanes(&mut self, gains: RfcGains, target: impl Fn(u32) -> u32) -> (u32, u32) {
        let unit = f64::from(1_u32 << Stamp::SHIFT);
        let (alpha, beta) = (gains.alpha * unit, gains.beta * unit);
        // p' less 2^31 has a sign, which converts faster
        let (floor, cap) = (-HALF, f64::from(gains.cap) - HALF);
        let (mut least, mut most) = (u32::MAX, 0);
        let Self { heads, lasts, targets, probs } = self;
        for (((units, last), own), prob) in heads.iter().zip(&*lasts).zip(&*targets).zip(probs) {
            let delay = units.cast_signed();
            let error = f64::from(delay) - f64::from(target(*own)) / unit;
            let growth = f64::from(delay - last.cast_signed());
            let change = (error * alpha + growth * beta).trunc();
            let next = f64::from((*prob ^ SIGN).cast_signed()) + change;
            // compared by hand: `max` and `min` take care of NaN
            let next = if next > floor { next } else { floor };
            *prob = whole(if next < cap { next } else { cap });
            least = least.min(*prob);
            most = most.max(*prob);
        }
        (least, most)
    }
}

/// One bit for each of `values`, which lie between `least` and `most`, that is `floor` or more.
#[inline(always)]
pub(super) fn from_floor(values: &[u32; LANES], (least, most): (u32, u32), floor: u64) -> u64 {
    if u64::from(most) < floor {
        return 0;
    }
    if u64::from(least) >= floor {
        return u64::MAX;
    }
    let bits = values.iter().enumerate().map(|(lane, &value)| u64::from(u64::from(value) >= floor) << lane);
    bits.fold(0, |all, bit| all | bit)
}

const SIGN: u32 = 1 << 31;
const HALF: f64 = 2_147_483_648.0;

/// The whole number `value` + 2^31, which is 0 to 2^32 - 1: the low half of its f64 after 2^52 is added.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "takes the low half")]
const fn whole(value: f64) -> u32 {
    (value + (4_503_599_627_370_496.0 + HALF)).to_bits() as u32
}
