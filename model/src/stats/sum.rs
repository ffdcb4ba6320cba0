// SPDX-License-Identifier: Apache-2.0
//! Sums of the counters of many queues: what an aggregate shows of those below it.
//!
//! Invariant: what holds between the counters of each queue (`arrived = forwarded + dropped_* + queued`) holds between
//! their sums; quantiles are those of all packets together, read off the summed histogram.

use super::{DelayStats, QueueStats};

impl QueueStats {
    /// Adds another queue's.
    pub fn add(&mut self, other: &Self) {
        self.arrived += other.arrived;
        self.arrived_ce += other.arrived_ce;
        self.presented += other.presented;
        self.forwarded += other.forwarded;
        self.forwarded_bytes += other.forwarded_bytes;
        self.marked += other.marked;
        self.dropped_ect += other.dropped_ect;
        self.dropped_not_ect += other.dropped_not_ect;
        self.dropped_tail += other.dropped_tail;
        self.dropped_pool += other.dropped_pool;
        self.dropped_other += other.dropped_other;
        self.queued += other.queued;
        self.delay_us.add(&other.delay_us);
    }
}

impl DelayStats {
    /// Adds delays that are told in the same bins.
    fn add(&mut self, other: &Self) {
        if self.le.is_empty() {
            *self = other.clone();
            return;
        }
        for (sum, count) in self.count.iter_mut().zip(&other.count) {
            *sum += count;
        }
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        let all = as_f64(self.count.last().copied().unwrap_or(0));
        self.mean = if all > 0.0 { self.sum / all } else { 0.0 };
        self.p50 = self.quantile(0.5);
        self.p99 = self.quantile(0.99);
    }

    /// The value that so large a part does not exceed, taken as evenly spread within its bin; never above the largest.
    fn quantile(&self, part: f64) -> f64 {
        let all = self.count.last().copied().unwrap_or(0);
        let rank = (as_f64(all) * part).ceil().max(1.0);
        let (mut before, mut lower) = (0, 0.0);
        for (&count, edge) in self.count.iter().zip(&self.le) {
            let upper = edge.unwrap_or(self.max);
            if count > before && as_f64(count) >= rank {
                let share = (rank - as_f64(before)) / as_f64(count - before);
                return (lower + (upper - lower) * share).min(self.max);
            }
            (before, lower) = (count, upper);
        }
        0.0
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of packets for people")]
fn as_f64(count: u64) -> f64 {
    count as f64
}
