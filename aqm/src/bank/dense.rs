// SPDX-License-Identifier: Apache-2.0
//! One PI step for a word of ids at once, in whatever vectors the CPU has.
//!
//! Invariant: the same numbers as [`PiParams::step`](crate::pi::PiParams::step), bit for bit: all values are whole and
//! below 2^53, so f64 holds them exactly, and a step is cut to a whole number before it is added.

#![expect(
    clippy::inline_always,
    reason = "each of the dispatcher's functions compiles it for its own vectors"
)]

use crate::pi::RfcGains;

/// Ids of a word.
pub(super) const LANES: usize = 64;

/// What the steps of a word need and change.
pub(super) struct Lanes {
    pub(super) heads: [u32; LANES],
    pub(super) targets: [u32; LANES],
    /// p' before and after.
    pub(super) probs: [u32; LANES],
    /// Delays in nanoseconds, those last seen and those seen now.
    pub(super) delays: [u32; LANES],
}

impl Lanes {
    /// Steps every lane at the stamp `now`.
    pub(super) fn step(&mut self, arch: pulp::Arch, gains: &RfcGains, now: u32) -> Range {
        arch.dispatch(|| self.step_lanes(gains, now))
    }

    #[inline(always)]
    fn step_lanes(&mut self, gains: &RfcGains, now: u32) -> Range {
        let &RfcGains { alpha, beta, cap } = gains;
        let Self { heads, targets, probs, delays } = self;
        for (((head, target), prob), last) in heads.iter().zip(&*targets).zip(probs).zip(delays) {
            let delay = nanos_since(now, *head);
            let seen = f64::from(delay);
            let change = (seen - f64::from(*target)) * alpha + (seen - f64::from(*last)) * beta;
            *prob = whole((f64::from(*prob) + change.trunc()).max(0.0).min(f64::from(cap)));
            *last = delay;
        }
        Range { probs: range(&self.probs), delays: range(&self.delays) }
    }
}

/// Least and most of all lanes.
pub(super) struct Range {
    pub(super) probs: (u32, u32),
    pub(super) delays: (u32, u32),
}

impl Range {
    /// One bit for each of `values`, which lie between `least` and `most`, that is `floor` or more.
    pub(super) fn lanes_from(values: &[u32; LANES], (least, most): (u32, u32), floor: u64) -> u64 {
        if u64::from(most) < floor {
            return 0;
        }
        if u64::from(least) >= floor {
            return u64::MAX;
        }
        let bits =
            values.iter().enumerate().map(|(lane, &value)| u64::from(u64::from(value) >= floor) << lane);
        bits.fold(0, |all, bit| all | bit)
    }
}

#[inline(always)]
fn range(values: &[u32; LANES]) -> (u32, u32) {
    values.iter().fold((u32::MAX, 0), |(least, most), &value| (least.min(value), most.max(value)))
}

/// Nanoseconds from a stamp to a later one; zero if it is not later, and what 32 bits hold at most.
#[inline(always)]
const fn nanos_since(now: u32, then: u32) -> u32 {
    let units = now.wrapping_sub(then);
    let units = if units.cast_signed() < 0 { 0 } else { units };
    if units >> (32 - crate::Stamp::SHIFT) > 0 { u32::MAX } else { units << crate::Stamp::SHIFT }
}

/// A whole number below 2^32: the low half of its f64 after 2^52 is added.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "takes the low half")]
const fn whole(value: f64) -> u32 {
    (value + 4_503_599_627_370_496.0).to_bits() as u32
}
