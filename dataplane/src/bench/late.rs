// SPDX-License-Identifier: Apache-2.0
//! How late departures were, in the bins of the engine's histograms, so that spans of time can be taken away from each
//! other.

use engine::{BINS, Totals, upper_edges_us};

/// Counts by bin.
#[derive(Clone, Debug)]
pub(super) struct Late([u64; BINS]);

impl Default for Late {
    fn default() -> Self {
        Self([0; BINS])
    }
}

impl Late {
    pub(super) fn of(totals: &Totals) -> Self {
        Self(*totals.bins())
    }

    /// What was counted since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        for (bin, before) in since.0.iter_mut().zip(before.0) {
            *bin = bin.saturating_sub(before);
        }
        since
    }

    pub(super) fn add(&mut self, more: &Self) {
        for (bin, more) in self.0.iter_mut().zip(more.0) {
            *bin += more;
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Microseconds that a part `q` do not exceed: taken to lie evenly within their bin, and that bin's upper edge.
    #[expect(clippy::cast_precision_loss, reason = "ranks of counts far below 2^53")]
    pub(super) fn quantile_us(&self, q: f64) -> (f64, f64) {
        let rank = self.count() as f64 * q;
        let (mut seen, mut lower) = (0.0, 0.0);
        for (&count, upper) in self.0.iter().zip(upper_edges_us()) {
            let upper = upper.unwrap_or(lower);
            if count > 0 && seen + count as f64 >= rank {
                return (lower + (upper - lower) * (rank - seen) / count as f64, upper);
            }
            (seen, lower) = (seen + count as f64, upper);
        }
        (0.0, 0.0)
    }
}

#[cfg(test)]
mod tests {
    use engine::{Delay, SharedHistogram};

    use super::*;

    #[test]
    fn a_span_of_time_can_be_taken_away() {
        let histogram = SharedHistogram::default();
        let all = |units: u32, times: u32| {
            (0..times).for_each(|_| histogram.record(Delay::of(units), 1));
            Late::of(&histogram.totals())
        };
        let before = all(20, 90);
        let after = all(100_000, 10);
        assert_eq!(after.since(&before).count(), 10);
        assert!(after.quantile_us(0.99).0 > 6_000.0);
        let (at, edge) = after.since(&after.since(&before)).quantile_us(0.99);
        assert!(at <= edge && edge <= 2.1, "{at} {edge}");
    }
}
