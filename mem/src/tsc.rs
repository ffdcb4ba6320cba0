// SPDX-License-Identifier: Apache-2.0
//! The time stamp counter as nanoseconds.
//!
//! Invariant: the conversion is one multiplication by a factor of 64 significant bits, so it is off by less
//! than one nanosecond after 2^63 ticks: it has no drift of its own. The rate is measured by the caller (EAL
//! calibrates it at start), and a copy of one `Tsc` gives every thread the same time on a machine with an
//! invariant TSC.

use core::arch::x86_64::_rdtsc;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The raw counter. Costs about 20 cycles: read it once per burst, not per packet.
#[inline]
pub fn read_tsc() -> u64 {
    // SAFETY: every x86-64 CPU has RDTSC, and it touches no memory; a kernel that forbids it to user space
    // (PR_SET_TSC) would stop EAL's start-up long before (test: `time_moves_forward`).
    unsafe { _rdtsc() }
}

/// A clock: nanoseconds since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tsc {
    origin: u64,
    /// Nanoseconds per tick, times 2^shift; its top bit is set.
    factor: u64,
    shift: u32,
    hz: u64,
}

impl Tsc {
    /// A clock that starts at 0 now, for a counter of `hz` ticks per second.
    ///
    /// # Panics
    ///
    /// If `hz` is 0.
    pub fn new(hz: u64) -> Self {
        Self::starting_at(hz, read_tsc())
    }

    /// A clock that shows 0 at the counter's value `origin`.
    ///
    /// # Panics
    ///
    /// If `hz` is 0.
    pub fn starting_at(hz: u64, origin: u64) -> Self {
        assert!(hz > 0, "a TSC of 0 Hz");
        // The largest shift for which the factor still fits 64 bits: at least 64 - 1 significant bits.
        let hz_wide = u128::from(hz);
        let mut shift = 0_u32;
        while shift < 97 && (NANOS_PER_SECOND << (shift + 1)) / hz_wide <= u128::from(u64::MAX) {
            shift += 1;
        }
        let factor = (NANOS_PER_SECOND << shift) / hz_wide;
        Self { origin, factor: u64::try_from(factor).unwrap_or(u64::MAX), shift, hz }
    }

    /// Nanoseconds since the origin. A counter read before it (another CPU, a few ticks behind) gives 0.
    #[inline]
    pub fn now(&self) -> u64 {
        self.nanos(read_tsc())
    }

    /// What the counter's value `tsc` means.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "2^64 ns are 584 years")]
    pub fn nanos(&self, tsc: u64) -> u64 {
        let ticks = tsc.saturating_sub(self.origin);
        ((u128::from(ticks) * u128::from(self.factor)) >> self.shift) as u64
    }

    /// Ticks per second, as given.
    pub fn hz(&self) -> u64 {
        self.hz
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn time_moves_forward() {
        let clock = Tsc::new(2_600_000_000);
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        assert!(last > 0);
    }

    #[test]
    fn ten_years_do_not_drift_by_a_nanosecond() {
        for hz in
            [1, 999, 25_000_000, 999_999_937, 1_000_000_000, 2_600_000_000, 2_599_998_721, 5_100_000_003]
        {
            let clock = Tsc::starting_at(hz, 7);
            let seconds = 10 * 365 * 86_400_u64;
            let shown = clock.nanos(7 + hz * seconds);
            let exact = seconds * 1_000_000_000;
            assert!(exact - shown <= 1, "{hz} Hz shows {shown} for {exact}");
        }
    }

    #[test]
    fn a_counter_behind_the_origin_is_zero() {
        assert_eq!(Tsc::starting_at(1_000_000_000, 1_000).nanos(999), 0);
    }

    proptest! {
        #[test]
        fn conversion_is_the_exact_quotient_or_one_less(hz in 1_000_u64..10_000_000_000, ticks in 0..u64::MAX >> 8) {
            let exact = u128::from(ticks) * NANOS_PER_SECOND / u128::from(hz);
            prop_assume!(exact <= u128::from(u64::MAX));
            let shown = u128::from(Tsc::starting_at(hz, 0).nanos(ticks));
            prop_assert!(exact - shown <= 1, "{} against {}", shown, exact);
        }

        #[test]
        fn conversion_is_monotonic(hz in 1_000_000_u64..10_000_000_000, a in 0..u64::MAX >> 12, step in 0_u64..1_000) {
            let clock = Tsc::starting_at(hz, 0);
            prop_assert!(clock.nanos(a) <= clock.nanos(a + step));
        }
    }
}
