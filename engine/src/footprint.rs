// SPDX-License-Identifier: Apache-2.0
//! What one queue id costs in memory, by profile; a subscriber has two, down and up.

use aqm::QueueProtection;

use crate::banks::Bank;
use crate::counters::{Ledger, RingDrops};
use crate::discipline::Discipline;
use crate::packet::Packet;
use crate::profiles::Profiles;
use crate::shard::{managed_bytes, record_bytes};

/// Bytes of one queue id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdMemory {
    /// Of the hot record, with the lines of its counters.
    pub record: usize,
    /// Of what full rings kept from it.
    pub counters: usize,
    /// More that an id takes once its counters outgrow their lines, with the 256th packet alike. Not in the total.
    pub ledgers: usize,
    /// In the PI banks: each holds every id.
    pub banks: usize,
    /// Of the discipline's own state and queues, and of queue protection.
    pub discipline: usize,
}

impl IdMemory {
    /// All of it.
    pub const fn total(&self) -> usize {
        self.record + self.counters + self.banks + self.discipline
    }
}

/// Bytes of an aggregate at a place (shard and port) that has children of it, both directions, and what a subscriber
/// below one takes beyond its [`IdMemory`].
pub const fn parent_memory() -> (usize, usize) {
    (crate::parents::BYTES, 2 * crate::parents::BYTES_PER_ID)
}

impl Profiles {
    /// What a queue id of a profile takes with packets of this kind; `None` for an index that names none.
    pub fn memory<P: Packet>(&self, index: u16) -> Option<IdMemory> {
        let params = self.get(index)?;
        let managed = match &params.discipline {
            Discipline::Managed(recipe) => {
                recipe.build(0).map_or(0, |state| state.memory() + managed_bytes::<P>(state.queues()))
            }
            Discipline::DualPi2(_) | Discipline::Pi2(_) | Discipline::Fifo => 0,
        };
        let protection = params.protection.map_or(0, |_| size_of::<QueueProtection>());
        Some(IdMemory {
            record: record_bytes::<P>(),
            counters: RingDrops::BYTES_PER_ID,
            ledgers: 2 * size_of::<Ledger>(),
            banks: self.banks().len() * Bank::BYTES_PER_ID,
            discipline: managed + protection,
        })
    }
}
