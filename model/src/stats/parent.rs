// SPDX-License-Identifier: Apache-2.0
//! Statistics of an aggregate.

use serde::{Deserialize, Serialize};

use super::state::Direction;
use super::{DirectionStats, QueueStats};

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
    /// Subscribers at any level below it.
    pub subscribers: u64,
    /// Their L queues in sum; `None` where they are too many to be asked one by one.
    pub l4s: Option<QueueStats>,
    /// Their C queues, likewise.
    pub classic: Option<QueueStats>,
}

impl ParentDirectionStats {
    /// One more subscriber is below it.
    pub fn add_below(&mut self, stats: &DirectionStats) {
        self.subscribers += 1;
        self.l4s.get_or_insert_default().add(&stats.l4s);
        self.classic.get_or_insert_default().add(&stats.classic);
    }
}

/// How many aggregates there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentCounts {
    /// Records.
    pub configured: u64,
    /// That are a bottleneck now, down and up.
    pub saturated: [u64; 2],
}

/// `GET /v1/top/parents`.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentTopQuery {
    /// What counts.
    pub by: ParentTopBy,
    /// Which way.
    pub dir: Direction,
    /// How many, 1 to 1000.
    pub n: u32,
    /// Over how long a time up to now.
    pub window_s: f64,
    /// Only those right below this one.
    pub parent: Option<String>,
}

impl Default for ParentTopQuery {
    fn default() -> Self {
        Self { by: ParentTopBy::Clock, dir: Direction::Down, n: 10, window_s: 10.0, parent: None }
    }
}

/// What makes an aggregate the first of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentTopBy {
    /// The slowest clock, and where clocks are equal the highest load.
    Clock,
    /// The largest part of its rate in use.
    Load,
    /// Most bytes sent.
    Bytes,
}

/// The list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ParentTop {
    /// The window that it really covers: near the one asked for, at most a minute.
    pub window_s: f64,
    /// Best first.
    pub items: Vec<ParentTopEntry>,
}

/// One line of the list, of one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ParentTopEntry {
    /// Name of the record.
    pub id: String,
    /// Name of the aggregate above it.
    pub parent: Option<String>,
    /// Its rate.
    pub configured_bps: u64,
    /// What was sent, as it counts against that.
    pub rate_bps: f64,
    /// The part of its rate in use.
    pub load: f64,
    /// How fast its clock runs now: below 1 while it is the bottleneck.
    pub clock_speed: f64,
    /// Subscribers below it, at every level.
    pub subscribers: u64,
    /// Aggregates right below it.
    pub parents: u64,
}
