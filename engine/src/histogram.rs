// SPDX-License-Identifier: Apache-2.0
//! Delay histograms: fixed bins, found with shifts and a table, from which mean and 99th percentile can be derived
//! (RFC 9332 2.5.2.2, "a coarse-grained histogram of queue delay").
//!
//! A value is a number of [`aqm::Stamp`] units (64 ns). Bins are 25 % of their lower edge wide from 50 us to 122 ms; one
//! to an octave below and above; the last reaches to infinity. There are no more than a queue id's line of counters has
//! room for (`counters::queue`).
//! Edges are fixed at compile time: the RFC's "configurable edges" are left out, because with bins this narrow
//! a client can merge them into any edges it likes.
//!
//! Invariant: the sum of all bins is the number of values recorded, and every value lies below its bin's upper
//! edge and not below its lower one.
//!
//! [`SharedHistogram`] is written by one thread and read by any, [`Totals`] is what is read.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use aqm::Stamp;
use model::stats::DelayStats;

#[cfg(test)]
mod tests;

/// Bins, the infinite one included.
pub const BINS: usize = 46;

/// First bin edge above 0: 32 units, 2 us; four more octaves follow.
const FIRST_EDGE: u32 = 32;
/// Bins below `FINE_FROM`.
const COARSE_LOW: usize = 6;
/// Edges a quarter apart from here: 781 units, 49.98 us.
const FINE_FROM: u32 = 781;
/// Bins a quarter wide, up to 122 ms.
const FINE: usize = 35;
/// Octave (binary logarithm) of the first edge above those: 2^22 units, 268 ms; an edge an octave follows.
const HIGH_OCTAVE: u32 = 22;
/// Octave of the last edge: 2^25 units, 2.1 s.
const LAST_OCTAVE: u32 = 25;

/// The lower edge of each bin in units; a bin's upper edge is the next one's lower.
const LOWER: [u32; BINS] = lower_edges();

#[expect(clippy::cast_possible_truncation, reason = "bin numbers are below 46; try_from is not const")]
const fn lower_edges() -> [u32; BINS] {
    let mut edges = [0; BINS];
    let mut bin = 1;
    while bin < BINS {
        edges[bin] = if bin < COARSE_LOW {
            FIRST_EDGE << (bin - 1)
        } else if bin == COARSE_LOW {
            FINE_FROM
        } else if bin <= COARSE_LOW + FINE {
            // rounded down, so that no bin is wider than a quarter
            edges[bin - 1] + edges[bin - 1] / 4
        } else {
            1 << (HIGH_OCTAVE + (bin - COARSE_LOW - FINE - 1) as u32)
        };
        bin += 1;
    }
    edges
}

/// A cell is an eighth of an octave: no bin begins twice within one. Cell 0 is all below 2^5 units.
const CELLS: usize = ((LAST_OCTAVE - FIRST_EDGE.ilog2()) * 8) as usize + 9;

/// The bin in which a cell begins, and the value from which the next bin counts.
const CELL: [(u32, u8); CELLS] = cells();

#[expect(clippy::cast_possible_truncation, reason = "bin numbers are below 46; try_from is not const")]
const fn cells() -> [(u32, u8); CELLS] {
    let mut cells = [(FIRST_EDGE, 0); CELLS];
    let (mut cell, mut bin) = (8, 1);
    while cell < CELLS {
        let octave = FIRST_EDGE.ilog2() + (cell as u32 - 8) / 8;
        let from = (8 + (cell as u32) % 8) << (octave - 3);
        while bin + 1 < BINS && LOWER[bin + 1] <= from {
            bin += 1;
        }
        cells[cell] = (if bin + 1 < BINS { LOWER[bin + 1] } else { u32::MAX }, bin as u8);
        cell += 1;
    }
    cells
}

/// The bin of a value.
#[inline]
#[expect(clippy::indexing_slicing, reason = "values are clamped to the last cell (tested)")]
pub(crate) const fn bin_of(units: u32) -> usize {
    // the least that has an octave of its own, and the least of the last
    let floor = FIRST_EDGE - 1;
    let ceiling = 1 << LAST_OCTAVE;
    let clamped = if units > ceiling {
        ceiling
    } else if units < floor {
        floor
    } else {
        units
    };
    let octave = clamped.ilog2();
    // the octave's eighths; those of the one below the first edge are all in bin 0
    let cell = ((octave + 1 - FIRST_EDGE.ilog2()) << 3) + ((clamped >> (octave - 3)) & 7);
    let (next, bin) = CELL[cell as usize];
    bin as usize + (clamped >= next) as usize
}

/// A value and its bin, found once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delay {
    units: u32,
    bin: u8,
}

impl Delay {
    /// Of a value in units of 64 ns.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "there are 46 bins")]
    pub fn of(units: u32) -> Self {
        Self { units, bin: bin_of(units) as u8 }
    }

    /// The value.
    #[inline]
    pub(crate) fn units(self) -> u32 {
        self.units
    }

    /// Its bin.
    #[inline]
    pub(crate) fn bin(self) -> usize {
        usize::from(self.bin)
    }
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
    /// Adds a value so many times. One thread only: a second writer's values could be lost.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a delay's bin is below BINS (tested)")]
    pub fn record(&self, delay: Delay, times: u32) {
        let bin = &self.bins[delay.bin()];
        bin.store(bin.load(Relaxed).wrapping_add(times.into()), Relaxed);
        let sum = u64::from(delay.units) * u64::from(times);
        self.sum.store(self.sum.load(Relaxed).wrapping_add(sum), Relaxed);
        if delay.units > self.max.load(Relaxed) {
            self.max.store(delay.units, Relaxed);
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
    /// From the counts of bins, the sum of all values and the largest.
    pub(crate) const fn new(bins: &[u64; BINS], sum: u64, max: u32) -> Self {
        Self { bins: *bins, sum, max }
    }

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
