// SPDX-License-Identifier: Apache-2.0
//! The native AQM of L: `laqm()` of RFC 9332 figure 5, on the delay behind the packet (A.1 note a).
//!
//! The delay is what is left in L after the packet was taken, at the served rate. The rate is known, so the floor of
//! the ramp is raised to `floor_packets` MTU times at it (A.2), the width kept. A range of 0 is a step.

use crate::{Nanos, Pace, Prob};

/// A ramp from likelihood 0 at `min` to 1 at `min + range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ramp {
    min: Nanos,
    range: Nanos,
    floor_bytes: u64,
    /// Likelihood a nanosecond in 32.32 fixed point.
    slope: u64,
}

impl Ramp {
    /// A ramp whose lower end is never below the time of `floor_bytes` at the served rate.
    pub const fn new(min: Nanos, range: Nanos, floor_bytes: u64) -> Self {
        let slope = match ((u32::MAX as u64) << 32).checked_div(range.0) {
            Some(slope) => slope,
            None => 0,
        };
        Self { min, range, floor_bytes, slope }
    }

    /// Where it begins at this pace.
    pub fn min(&self, pace: Pace) -> Nanos {
        self.min.max(pace.time(self.floor_bytes))
    }

    /// The likelihood of a native mark with `bytes` left in L.
    #[expect(clippy::cast_possible_truncation, reason = "over < range, so the product is below 2^64")]
    pub fn likelihood(&self, bytes: u64, pace: Pace) -> Prob {
        let delay = pace.time(bytes);
        let over = delay.since(self.min(pace)).0;
        if over == 0 && (self.range.0 > 0 || delay < self.min(pace)) {
            return Prob::ZERO;
        }
        if over >= self.range.0 {
            return Prob::ONE;
        }
        Prob(((u128::from(over) * u128::from(self.slope)) >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BitsPerSec;

    const MTU: u64 = 1538;

    fn pace(mbps: u64) -> Pace {
        Pace::of(BitsPerSec(mbps * 1_000_000))
    }

    #[test]
    fn rises_linearly_between_its_ends() {
        let ramp = Ramp::new(Nanos::from_micros(800), Nanos::from_micros(400), 0);
        // 8 Mb/s: 1 byte a microsecond
        let at = |us: u64| ramp.likelihood(us, pace(8)).as_f64();
        assert!(at(0).abs() < 1e-12);
        assert!(at(800) < 1e-4);
        for (us, expected) in [(900, 0.25), (1000, 0.5), (1100, 0.75)] {
            assert!((at(us) - expected).abs() < 1e-4, "{us}: {}", at(us));
        }
        assert_eq!(ramp.likelihood(1201, pace(8)), Prob::ONE);
        assert_eq!(ramp.likelihood(u64::MAX, pace(8)), Prob::ONE);
    }

    #[test]
    fn the_floor_lifts_both_ends_at_low_rates() {
        let ramp = Ramp::new(Nanos::from_micros(800), Nanos::from_micros(400), 2 * MTU);
        // 2 MTU at 10 Mb/s: 2.4608 ms
        assert_eq!(ramp.min(pace(10)).0 / 1_000, 2_460);
        assert_eq!(ramp.likelihood(2 * MTU, pace(10)), Prob::ZERO);
        assert!(ramp.likelihood(2 * MTU + 250, pace(10)).as_f64() > 0.49);
        assert!(ramp.likelihood(2 * MTU + 250, pace(10)).as_f64() < 0.51);
        assert_eq!(ramp.min(pace(100)), Nanos::from_micros(800));
    }

    #[test]
    fn a_range_of_zero_is_a_step_at_its_threshold() {
        let step = Ramp::new(Nanos::from_micros(1000), Nanos::ZERO, 0);
        assert_eq!(step.likelihood(999, pace(8)), Prob::ZERO);
        assert_eq!(step.likelihood(1001, pace(8)), Prob::ONE);
    }

    #[test]
    fn thresholds_and_delay_estimates_are_those_of_docsis() {
        // docsis-ns3: MaxTh less 2^19 ns, floor 2 frames of 2000 bytes, 50 Mb/s
        let range = Nanos(1 << 19);
        for (max_us, min_us) in [(1_000, 640), (2_000, 1_476)] {
            let ramp = Ramp::new(Nanos::from_micros(max_us).since(range), range, 2 * 2_000);
            assert!(ramp.min(pace(50)).0.abs_diff(min_us * 1_000) < 1_000, "MaxTh {max_us} us");
        }
        for (mbps, estimates) in [(50, [164, 328, 493]), (20, [411, 822, 1_233])] {
            for (frames, us) in (1..).zip(estimates) {
                assert_eq!(pace(mbps).time(frames * 1_028).0 / 1_000, us, "{frames} frames at {mbps} Mb/s");
            }
        }
    }

    #[test]
    fn extremes_stay_in_range() {
        let ramp = Ramp::new(Nanos::from_micros(800), Nanos(1), 2 * MTU);
        for bytes in [0, 1, u64::from(u32::MAX), u64::MAX] {
            for pace in [Pace(0), Pace(1), pace(1), Pace(u64::MAX)] {
                let _ = ramp.likelihood(bytes, pace);
            }
        }
    }
}
