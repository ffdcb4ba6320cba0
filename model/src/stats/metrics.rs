// SPDX-License-Identifier: Apache-2.0
//! What one scrape of `/metrics` shows: plain counters, gathered from the lcores' published ones.
//!
//! Invariant: every figure only grows (counters, histograms) or is a present state (gauges); nothing here is per
//! subscriber, so a scrape costs the same at one subscriber as at a million. Names follow the public interface.

use serde::{Deserialize, Serialize};

use super::parent::ParentCounts;
use super::state::{LcoreState, PortState};

/// All of a scrape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricsSnapshot {
    /// Towards subscribers.
    pub down: DirectionMetrics,
    /// From subscribers.
    pub up: DirectionMetrics,
    /// Ports, in the order of the configuration.
    pub ports: Vec<PortState>,
    /// Lcores.
    pub lcores: Vec<LcoreState>,
    /// Packet buffers, all nodes together.
    pub buffers: BufferState,
    /// How late departures were against the (slipped) clock.
    pub shaper_lag: Histogram,
    /// How long a pass over the PI bank took.
    pub pi_update: Histogram,
    /// Subscribers.
    pub subscribers: SubscriberCounts,
    /// Aggregates.
    pub parents: ParentCounts,
    /// How often each limit of the data plane's own was hit; all but `control` stay 0 unless there is a bug.
    pub limits: Vec<KindCount>,
    /// Version of DPDK in use, empty without one.
    pub dpdk: String,
}

/// One direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionMetrics {
    /// All L queues together.
    pub l4s: QueueMetrics,
    /// All C queues together, and all of disciplines without an L queue.
    pub classic: QueueMetrics,
    /// Packets that matched no subscriber, by kind (`unknown_ipv4`, `arp`, ...; `bad_*` for frames that are none).
    pub unclassified: Vec<KindCount>,
    /// How often a queue pair went into overload (RFC 9332 2.5.2.3).
    pub overload_episodes: u64,
}

/// A count by a stable label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindCount {
    /// The label.
    pub kind: String,
    /// Packets.
    pub packets: u64,
}

/// One queue of all subscribers together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueMetrics {
    /// Packets that came.
    pub arrived: u64,
    /// Packets that were queued, so that the AQM saw or will see them.
    pub presented: u64,
    /// Packets sent.
    pub forwarded: u64,
    /// Bytes sent, overhead not counted.
    pub forwarded_bytes: u64,
    /// Packets changed to CE here.
    pub marked: u64,
    /// ECN-capable packets dropped (ECT(0), ECT(1) and CE).
    pub dropped_ect: Reasons,
    /// Not-ECT packets, and those that are not IP, dropped.
    pub dropped_not_ect: Reasons,
    /// Queue delay.
    pub delay: Histogram,
}

/// Drops by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasons {
    /// By the AQM in its ordinary course.
    pub aqm: u64,
    /// By the AQM past p_CL = 1.
    pub overload: u64,
    /// Queue limit.
    pub tail: u64,
    /// Buffers ran short.
    pub pool: u64,
    /// Full ring between lcores.
    pub ring: u64,
    /// The record was removed.
    pub removed: u64,
    /// The link was down.
    pub link: u64,
}

impl Reasons {
    /// Each reason with the label it has on `/metrics`.
    pub const fn labelled(&self) -> [(&'static str, u64); 7] {
        [
            ("aqm", self.aqm),
            ("overload", self.overload),
            ("tail", self.tail),
            ("pool", self.pool),
            ("ring", self.ring),
            ("removed", self.removed),
            ("link", self.link),
        ]
    }

    /// All of them together.
    pub fn total(&self) -> u64 {
        self.labelled().iter().map(|(_, count)| count).sum()
    }
}

/// A histogram in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Upper edges of the bins, rising and finite.
    pub le: Vec<f64>,
    /// Cumulative counts, one for each edge and one more for infinity: the count of all.
    pub count: Vec<u64>,
    /// Sum of all values.
    pub sum: f64,
}

impl Histogram {
    /// How many values there are.
    pub fn total(&self) -> u64 {
        self.count.last().copied().unwrap_or(0)
    }
}

/// Packet buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferState {
    /// In the pools.
    pub free: u64,
    /// Holding packets or descriptors.
    pub used: u64,
}

/// Subscribers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriberCounts {
    /// Records.
    pub configured: u64,
    /// Of these, with a packet queued in some direction.
    pub active: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_sum_and_carry_the_labels_of_the_interface() {
        let reasons = Reasons { aqm: 1, overload: 2, tail: 4, pool: 8, ring: 16, removed: 32, link: 64 };
        assert_eq!(reasons.total(), 127);
        let labels: Vec<_> = reasons.labelled().iter().map(|(label, _)| *label).collect();
        assert_eq!(labels, ["aqm", "overload", "tail", "pool", "ring", "removed", "link"]);
    }

    #[test]
    fn a_histogram_counts_all_in_its_last_bin() {
        assert_eq!(Histogram::default().total(), 0);
        let histogram = Histogram { le: vec![0.001], count: vec![2, 5], sum: 0.1 };
        assert_eq!(histogram.total(), 5);
    }
}
