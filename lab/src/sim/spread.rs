// SPDX-License-Identifier: Apache-2.0
//! A distribution of times in bins of constant relative width: quantiles within 0.4 %, mean and ends exact.

use aqm::Nanos;

/// Bins for each doubling, as a power of two: 1/128 wide each.
const PART_BITS: u32 = 7;
const PARTS: usize = 1 << PART_BITS;
/// Times up to 2^42 ns (73 minutes) are told apart.
const DOUBLINGS: usize = 36;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    bins: Box<[u64]>,
    count: u64,
    sum: u128,
    max: u64,
    min: u64,
}

impl Default for Spread {
    fn default() -> Self {
        Self { bins: vec![0; DOUBLINGS * PARTS].into_boxed_slice(), count: 0, sum: 0, max: 0, min: u64::MAX }
    }
}

/// The bin of a time: exact below 128 ns, then 128 for each doubling.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "below 256 once shifted")]
const fn bin_of(ns: u64) -> usize {
    let top = (ns | 1).ilog2();
    if top < PART_BITS {
        return ns as usize;
    }
    let shift = top - PART_BITS;
    (shift as usize + 1) * PARTS + ((ns >> shift) as usize - PARTS)
}

/// Where a bin begins, and how wide it is.
const fn edges(bin: usize) -> (u64, u64) {
    if bin < PARTS {
        return (bin as u64, 1);
    }
    let shift = bin / PARTS - 1;
    (((bin % PARTS + PARTS) as u64) << shift, 1 << shift)
}

impl Spread {
    /// One more.
    #[inline]
    pub(crate) fn add(&mut self, time: Nanos) {
        let bin = bin_of(time.0).min(self.bins.len() - 1);
        self.bins[bin] += 1;
        self.count += 1;
        self.sum += u128::from(time.0);
        self.max = self.max.max(time.0);
        self.min = self.min.min(time.0);
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The greatest, in ms.
    pub(crate) fn max_ms(&self) -> f64 {
        ms(self.max)
    }

    /// The mean in ms; 0 of none.
    #[expect(clippy::cast_precision_loss, reason = "a relative error of 2^-53 is none")]
    pub(crate) fn mean_ms(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 / 1e6 }
    }

    /// The least time that `percent` of all do not exceed, in ms; 0 of none.
    pub(crate) fn quantile_ms(&self, percent: u64) -> f64 {
        let wanted = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (bin, count) in self.bins.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                let (start, width) = edges(bin);
                return ms((start + width / 2).clamp(self.min, self.max));
            }
        }
        0.0
    }

    /// (ms, share of all at most so long), one point for each bin in use.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub(crate) fn cdf(&self) -> Vec<(f64, f64)> {
        let mut seen = 0;
        let used = self.bins.iter().enumerate().filter(|(_, count)| **count > 0);
        let points = used.map(|(bin, count)| {
            seen += count;
            let (start, width) = edges(bin);
            (ms((start + width - 1).min(self.max)), seen as f64 / self.count as f64)
        });
        points.collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "times are far below 2^53 ns")]
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_join_without_gap() {
        let mut expected = 0;
        for bin in 0..DOUBLINGS * PARTS {
            let (start, width) = edges(bin);
            assert_eq!(start, expected);
            assert_eq!((bin_of(start), bin_of(start + width - 1)), (bin, bin));
            assert!(width == 1 || width * 128 <= start);
            expected = start + width;
        }
    }

    #[test]
    fn quantiles_are_within_half_a_percent() {
        let mut spread = Spread::default();
        for us in 1..=100_000 {
            spread.add(Nanos::from_micros(us));
        }
        for (percent, wanted) in [(1, 1.0), (25, 25.0), (50, 50.0), (99, 99.0)] {
            let got = spread.quantile_ms(percent);
            assert!((got / wanted - 1.0).abs() < 0.005, "p{percent}: {got}");
        }
        assert!((spread.mean_ms() - 50.0005).abs() < 1e-9);
        assert!((spread.max_ms() - 100.0).abs() < 1e-12);
        let cdf = spread.cdf();
        assert!(cdf.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1));
        assert!((cdf.last().unwrap().1 - 1.0).abs() < 1e-12);
        assert_eq!(Spread::default().cdf(), []);
    }
}
