// SPDX-License-Identifier: Apache-2.0
//! One queue id's counters and state at one moment, copied by the lcore that owns it.
//!
//! Invariant: per queue `arrived = forwarded + dropped + queued`, because nothing else writes between the
//! copies of its parts.

use aqm::Prob;
use model::stats::DirectionStats;

use crate::counters::QueueCounters;

/// Counters of one queue and how many packets wait in it.
#[derive(Clone, Debug, Default)]
pub struct QueuePart {
    /// Its counters.
    pub counters: QueueCounters,
    /// Packets waiting.
    pub queued: u64,
}

/// A queue id at one moment.
#[derive(Clone, Debug, Default)]
pub struct QueueSnapshot {
    /// The L queue.
    pub l4s: QueuePart,
    /// The C queue, and all of a discipline without an L queue.
    pub classic: QueuePart,
    /// Base probability p'.
    pub p_prime: Prob,
    /// Whether it is in overload.
    pub overload: bool,
}

impl QueueSnapshot {
    /// Whether every packet that arrived is accounted for.
    pub fn conserves(&self) -> bool {
        [&self.l4s, &self.classic].into_iter().all(|part| {
            let counters = &part.counters;
            counters.arrived_packets()
                == counters.forwarded_packets() + counters.dropped_packets() + part.queued
        })
    }
}

impl From<&QueueSnapshot> for DirectionStats {
    fn from(snapshot: &QueueSnapshot) -> Self {
        Self {
            l4s: snapshot.l4s.counters.stats(snapshot.l4s.queued),
            classic: snapshot.classic.counters.stats(snapshot.classic.queued),
            p_prime: snapshot.p_prime.as_f64(),
            overload: snapshot.overload,
        }
    }
}
