// SPDX-License-Identifier: Apache-2.0
//! Statistics of an aggregate.

use serde::{Deserialize, Serialize};

/// Both directions of an aggregate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ParentStats {
    /// Towards its subscribers.
    pub down: ParentDirectionStats,
    /// From them.
    pub up: ParentDirectionStats,
}

/// One direction. Counters run since the aggregate was created or the data plane started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ParentDirectionStats {
    /// Packets sent through it.
    pub forwarded: u64,
    /// What they counted against its rate, overhead of the subscribers' profiles included.
    pub forwarded_bytes: u64,
    /// Subscribers and aggregates right below it.
    pub children: u64,
    /// Of these, waiting for it now.
    pub waiting: u64,
    /// How fast its clock runs: below 1 while it is the bottleneck, and then the part of its plan that a child gets of
    /// what is left above.
    pub clock_speed: f64,
}

/// How many aggregates there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentCounts {
    /// Records.
    pub configured: u64,
    /// That are a bottleneck now, down and up.
    pub saturated: [u64; 2],
}
