// SPDX-License-Identifier: Apache-2.0
//! Statistics as the interfaces show them. Counters run since start.
//!
//! Here are the numbers of one subscriber; [`metrics`] holds the sums of a scrape, [`state`] ports, lcores, events.

pub mod metrics;
mod parent;
pub mod state;
mod sum;

use serde::{Deserialize, Serialize};

pub use metrics::{
    BufferState, DirectionMetrics, Histogram, KindCount, MetricsSnapshot, QueueMetrics, Reasons,
    SubscriberCounts,
};
pub use parent::{
    ParentCounts, ParentDirectionStats, ParentStats, ParentTop, ParentTopBy, ParentTopEntry, ParentTopQuery,
};
pub use state::{
    Direction, Event, EventKind, LcoreRole, LcoreState, PortDrops, PortState, Top, TopBy, TopEntry, TopQuery,
};

/// Both directions of a subscriber.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubscriberStats {
    /// Towards the subscriber.
    pub down: DirectionStats,
    /// From the subscriber.
    pub up: DirectionStats,
}

/// One direction: one snapshot by the lcore that owns it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionStats {
    /// The L queue.
    pub l4s: QueueStats,
    /// The C queue, and all of a discipline without an L queue.
    pub classic: QueueStats,
    /// Base probability p', 0 to 1.
    pub p_prime: f64,
    /// Whether p_CL has reached 1.
    pub overload: bool,
}

/// One queue. `arrived = forwarded + dropped_* + queued`;
/// `presented = arrived - dropped_tail - dropped_pool - dropped_other`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueStats {
    /// Packets that came for this queue.
    pub arrived: u64,
    /// Of these, with CE already.
    pub arrived_ce: u64,
    /// Packets that the AQM saw or will see.
    pub presented: u64,
    /// Packets sent.
    pub forwarded: u64,
    /// Their bytes, overhead not counted.
    pub forwarded_bytes: u64,
    /// Packets changed to CE here.
    pub marked: u64,
    /// ECN-capable packets dropped by the AQM.
    pub dropped_ect: u64,
    /// Not-ECT packets dropped by the AQM.
    pub dropped_not_ect: u64,
    /// Dropped at the limit.
    pub dropped_tail: u64,
    /// Dropped because buffers ran short.
    pub dropped_pool: u64,
    /// Dropped in a full ring, with a removed record or on a dead link.
    pub dropped_other: u64,
    /// Waiting now.
    pub queued: u64,
    /// Queue delay.
    pub delay_us: DelayStats,
}

/// Delay from arrival (RX burst) to start of transmission, own serialisation left out, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DelayStats {
    /// Mean since start.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
    /// Sum.
    pub sum: f64,
    /// Upper edges of the bins; the last is `None`, infinity.
    pub le: Vec<Option<f64>>,
    /// Cumulative counts, one for each edge.
    pub count: Vec<u64>,
}
