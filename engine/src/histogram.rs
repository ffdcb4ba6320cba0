// SPDX-License-Identifier: Apache-2.0
//! Delay histograms: fixed bins, found with shifts, from which mean and 99th percentile can be derived
//! (RFC 9332 2.5.2.2, "a coarse-grained histogram of queue delay").
//!
//! A value is a number of [`aqm::Stamp`] units (64 ns). Bins are four to an octave, hence at most 25 % of their
//! lower edge wide, from 32.8 us to 134 ms; one to an octave below and above; the last reaches to infinity.
//! Edges are fixed at compile time: the RFC's "configurable edges" are left out, because with bins this narrow
//! a client can merge them into any edges it likes.
//!
//! Invariant: the sum of all bins is the number of values recorded, and every value lies below its bin's upper
//! edge and not below its lower one.
//!
//! Three forms: [`Histogram`] is one owner's and small (a queue id has two), [`SharedHistogram`] is written by
//! one thread and read by any, [`Totals`] is what both are read into.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use aqm::Stamp;
use model::stats::DelayStats;

#[cfg(test)]
mod tests;

/// Bins, the infinite one included.
pub const BINS: usize = 58;

/// First bin edge above 0: 32 units, 2 us.
const FIRST_EDGE: u32 = 32;
/// Four bins an octave from here: 512 units, 32.8 us.
const FINE_FROM: u32 = 512;
/// To here: 2^21 units, 134 ms.
const FINE_TO: u32 = 1 << 21;
/// Octave (binary logarithm) of the last bin: everything from 2^25 units, 2.1 s.
const LAST_OCTAVE: u32 = 25;
/// Bins below `FINE_FROM`.
const COARSE_LOW: usize = 5;
/// Bins from `FINE_FROM` to `FINE_TO`.
const FINE: usize = 48;

/// The bin of a value.
const fn bin_of(units: u32) -> usize {
    if units < FINE_FROM {
        return (u32::BITS - (units / FIRST_EDGE).leading_zeros()) as usize;
    }
    let octave = units.ilog2();
    if units < FINE_TO {
        let quarter = (units >> (octave - 2)) & 3;
        return COARSE_LOW + ((octave - FINE_FROM.ilog2()) * 4 + quarter) as usize;
    }
    let octave = if octave < LAST_OCTAVE { octave } else { LAST_OCTAVE };
    COARSE_LOW + FINE + (octave - FINE_TO.ilog2()) as usize
}

/// The lower edge of each bin in units; a bin's upper edge is the next one's lower.
const LOWER: [u32; BINS] = lower_edges();

#[expect(clippy::cast_possible_truncation, reason = "bin numbers are below 58; try_from is not const")]
const fn lower_edges() -> [u32; BINS] {
    let mut edges = [0; BINS];
    let mut bin = 1;
    while bin < BINS {
        edges[bin] = if bin < COARSE_LOW {
            FIRST_EDGE << (bin - 1)
        } else if bin < COARSE_LOW + FINE {
            let fine = (bin - COARSE_LOW) as u32;
            (4 + fine % 4) << (FINE_FROM.ilog2() - 2 + fine / 4)
        } else {
            FINE_TO << (bin - COARSE_LOW - FINE)
        };
        bin += 1;
    }
    edges
}

/// The upper edge of each bin in microseconds; `None` is infinity.
pub fn upper_edges_us() -> impl Iterator<Item = Option<f64>> {
    LOWER[1..].iter().map(|&edge| Some(micros(u64::from(edge)))).chain([None])
}

/// Units in microseconds.
#[expect(clippy::cast_precision_loss, reason = "for people; exact below 2^53 ns")]
fn micros(units: u64) -> f64 {
    (units << Stamp::SHIFT) as f64 / 1_000.0
}

/// One owner's histogram, 360 bytes. Bins are 32 bits with 16 more apart for what overflows them, so that a
/// line rate's packets may all fall into one bin for weeks.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Histogram {
    // the two words that every packet touches come first, beside its owner's counters
    sum: u64,
    max: u32,
    bins: [u32; BINS],
    carry: [u16; BINS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { sum: 0, max: 0, bins: [0; BINS], carry: [0; BINS] }
    }
}

impl Histogram {
    /// The sum of all values in microseconds.
    pub fn sum_us(&self) -> f64 {
        micros(self.sum)
    }

    /// Adds a value, in units of 64 ns.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "bin_of is below BINS for every value (tested), the check folds away"
    )]
    pub fn record(&mut self, units: u32) {
        let bin = bin_of(units);
        let (count, overflowed) = self.bins[bin].overflowing_add(1);
        self.bins[bin] = count;
        if overflowed {
            self.carry[bin] = self.carry[bin].saturating_add(1);
        }
        self.sum = self.sum.wrapping_add(u64::from(units));
        self.max = self.max.max(units);
    }

    /// What was recorded so far.
    pub fn totals(&self) -> Totals {
        let mut bins = [0; BINS];
        for ((total, &low), &high) in bins.iter_mut().zip(&self.bins).zip(&self.carry) {
            *total = u64::from(high) << u32::BITS | u64::from(low);
        }
        Totals { bins, sum: self.sum, max: self.max }
    }
}

/// A histogram that one thread writes and any may read.
///
/// A reader sees each word at some moment of its own, so count and sum may differ by the values recorded while
/// it read; a bin never runs backwards.
#[derive(Debug)]
pub struct SharedHistogram {
    sum: AtomicU64,
    max: AtomicU32,
    bins: [AtomicU64; BINS],
}

impl Default for SharedHistogram {
    fn default() -> Self {
        Self { sum: AtomicU64::new(0), max: AtomicU32::new(0), bins: [const { AtomicU64::new(0) }; BINS] }
    }
}

impl SharedHistogram {
    /// Adds a value, in units of 64 ns. One thread only: a second writer's values could be lost.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "bin_of is below BINS for every value (tested), the check folds away"
    )]
    pub fn record(&self, units: u32) {
        let bin = &self.bins[bin_of(units)];
        bin.store(bin.load(Relaxed).wrapping_add(1), Relaxed);
        self.sum.store(self.sum.load(Relaxed).wrapping_add(u64::from(units)), Relaxed);
        if units > self.max.load(Relaxed) {
            self.max.store(units, Relaxed);
        }
    }

    /// What was recorded so far.
    pub fn totals(&self) -> Totals {
        let mut bins = [0; BINS];
        for (total, bin) in bins.iter_mut().zip(&self.bins) {
            *total = bin.load(Relaxed);
        }
        Totals { bins, sum: self.sum.load(Relaxed), max: self.max.load(Relaxed) }
    }
}

/// The counts of a histogram, read or added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    bins: [u64; BINS],
    sum: u64,
    max: u32,
}

impl Default for Totals {
    fn default() -> Self {
        Self { bins: [0; BINS], sum: 0, max: 0 }
    }
}

impl Totals {
    /// Adds another's values to these.
    pub fn add(&mut self, other: &Self) {
        for (bin, more) in self.bins.iter_mut().zip(&other.bins) {
            *bin += more;
        }
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.bins.iter().sum()
    }

    /// Each bin's count, not cumulative; edges are those of [`upper_edges_us`].
    pub fn bins(&self) -> &[u64; BINS] {
        &self.bins
    }

    /// The sum of all values in microseconds.
    pub fn sum_us(&self) -> f64 {
        micros(self.sum)
    }

    /// The largest value in microseconds.
    pub fn max_us(&self) -> f64 {
        micros(u64::from(self.max))
    }

    /// The mean in microseconds; 0 without values.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub fn mean_us(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum_us() / count as f64,
        }
    }

    /// The value that a share `q` (0 to 1) of the values do not exceed, in microseconds, taken to lie evenly
    /// within its bin; 0 without values, never above the largest.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank is a count times 0..=1"
    )]
    pub fn quantile_us(&self, q: f64) -> f64 {
        let rank = ((self.count() as f64 * q.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut before = 0;
        for (bin, &count) in self.bins.iter().enumerate() {
            if count > 0 && before + count >= rank {
                let share = (rank - before) as f64 / count as f64;
                let lower = micros(u64::from(LOWER.get(bin).copied().unwrap_or(0)));
                let upper = LOWER.get(bin + 1).map_or(self.max_us(), |&edge| micros(u64::from(edge)));
                return (lower + (upper - lower) * share).min(self.max_us());
            }
            before += count;
        }
        0.0
    }

    /// Cumulative counts, one for each edge of [`upper_edges_us`].
    pub fn cumulative(&self) -> impl Iterator<Item = u64> + '_ {
        self.bins.iter().scan(0, |sum, &count| {
            *sum += count;
            Some(*sum)
        })
    }
}

impl From<&Totals> for DelayStats {
    fn from(totals: &Totals) -> Self {
        Self {
            mean: totals.mean_us(),
            p50: totals.quantile_us(0.5),
            p99: totals.quantile_us(0.99),
            max: totals.max_us(),
            sum: totals.sum_us(),
            le: upper_edges_us().collect(),
            count: totals.cumulative().collect(),
        }
    }
}
