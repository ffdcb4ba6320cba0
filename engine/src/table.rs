// SPDX-License-Identifier: Apache-2.0
//! The subscriber table: from a packet's keys to the queue ids it belongs to.
//!
//! Read by RX lcores without locks while the control side, its one writer, changes it. [`Classifier`] is the
//! reader, [`TableWriter`] the writer. All prefix lengths live in one hash table (one probe for each length in use,
//! longest first). The table grows, and takes a new seed when two configured keys collide, by being built anew
//! beside the old one and swapped in.
//!
//! Invariants: a key that stays configured is found by every lookup, with its value; a value is the down queue id,
//! and the up queue id is that with its lowest bit flipped; a reader never frees a table, because the writer keeps
//! a replaced one until nobody else holds it.

mod buckets;
mod classify;
mod key;
mod program;
#[cfg(test)]
mod tests;

/// The atomics under [`buckets`]; `tests/loom.rs` puts loom's in their place.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use mem::HugeSlice;

use buckets::{Bucket, Buckets};
pub use classify::{Class, Classifier, UnknownKind};
pub(crate) use key::Key;
use key::Seed;
use program::{Census, Program};

/// Share of all slots that may be taken before the table grows, in percent: above it second buckets, and so a
/// second cache line a lookup, stop being rare.
const MAX_LOAD_PERCENT: usize = 70;
/// Tables tried, each with a seed of its own, before the writer gives up: a collision of 64-bit hashes among
/// 2^24 keys has a likelihood of 1e-5, so that even a second in a row means that something else is wrong.
const MAX_TRIES: u32 = 16;

/// Why a table could not be built.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// No memory.
    #[error("no memory for a subscriber table of {keys} keys: {source}")]
    Memory {
        /// How many keys it was for.
        keys: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// Every seed tried gave two keys the same hash.
    #[error("{keys} subscriber keys collide under each of {tries} seeds")]
    Collisions {
        /// How many keys there were.
        keys: usize,
        /// How many seeds were tried.
        tries: u32,
    },
}

/// Why a key did not get in as things are; a rebuild helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// Too many keys.
    Full,
    /// Another key has the same hash.
    Collision,
}

/// One table, as readers hold it for a burst.
#[derive(Debug)]
struct Table {
    buckets: Buckets<HugeSlice<Bucket>>,
    seed: Seed,
    program: ArcSwap<Program>,
    /// Rises between the additions and the removals of a batch.
    generation: AtomicU64,
}

impl Table {
    fn new(buckets: usize, seed: Seed) -> io::Result<Self> {
        Ok(Self {
            buckets: Buckets::new(HugeSlice::from_fn(buckets, |_| Bucket::empty())?),
            seed,
            program: ArcSwap::default(),
            generation: AtomicU64::new(0),
        })
    }

    fn room(&self) -> usize {
        self.buckets.slots() * MAX_LOAD_PERCENT / 100
    }
}

/// Buckets that hold `keys` keys below the maximum load.
fn buckets_for(keys: usize) -> usize {
    (keys * 100).div_ceil(MAX_LOAD_PERCENT * buckets::SLOTS).next_power_of_two().max(2)
}

/// The one writer.
#[derive(Debug)]
pub(crate) struct TableWriter {
    shared: Arc<ArcSwap<Table>>,
    table: Arc<Table>,
    census: Census,
    keys: usize,
    seed: u64,
    /// Tables and programs replaced, which readers may still hold.
    retired: Vec<Arc<Table>>,
    retired_programs: Vec<Arc<Program>>,
    #[cfg(test)]
    mask: u64,
}

impl TableWriter {
    /// An empty table with room for `keys` keys; it grows beyond.
    pub(crate) fn new(keys: usize, seed: u64) -> Result<Self, TableError> {
        let memory = |source| TableError::Memory { keys, source };
        let table = Arc::new(Table::new(buckets_for(keys), Seed::new(seed)).map_err(memory)?);
        Ok(Self {
            shared: Arc::new(ArcSwap::new(Arc::clone(&table))),
            table,
            census: Census::default(),
            keys: 0,
            seed,
            retired: Vec::new(),
            retired_programs: Vec::new(),
            #[cfg(test)]
            mask: u64::MAX,
        })
    }

    /// Keys in the table.
    pub(crate) fn len(&self) -> usize {
        self.keys
    }

    /// The value under the hash of `key`: that of the key, or of one that collides with it.
    pub(crate) fn get(&self, key: &Key) -> Option<u32> {
        self.table.buckets.get(self.table.seed.hash(key))
    }

    /// Adds a key that is not configured yet.
    pub(crate) fn insert(&mut self, key: &Key, value: u32) -> Result<(), NoPlace> {
        let hash = self.table.seed.hash(key);
        if self.table.buckets.get(hash).is_some() {
            return Err(NoPlace::Collision);
        }
        if self.keys >= self.table.room() {
            return Err(NoPlace::Full);
        }
        if program::count_in(&mut self.census, key) {
            self.publish_program();
        }
        if self.table.buckets.put(hash, value).is_err() {
            self.count_out(key);
            return Err(NoPlace::Full);
        }
        self.keys += 1;
        Ok(())
    }

    /// Changes the value of a configured key.
    pub(crate) fn set(&mut self, key: &Key, value: u32) {
        let changed = self.table.buckets.put(self.table.seed.hash(key), value);
        debug_assert!(matches!(changed, Ok(Some(_))), "set is for configured keys");
    }

    /// Removes a configured key.
    pub(crate) fn remove(&mut self, key: &Key) {
        let removed = self.table.buckets.remove(self.table.seed.hash(key));
        debug_assert!(removed.is_some(), "remove is for configured keys");
        self.count_out(key);
        self.keys -= 1;
    }

    fn count_out(&mut self, key: &Key) {
        if program::count_out(&mut self.census, key) {
            self.publish_program();
        }
    }

    /// Swaps in the program for the kinds of key there are now.
    fn publish_program(&mut self) {
        let next = Arc::new(Program::of(&self.census));
        self.retired_programs.push(self.table.program.swap(next));
        self.retired_programs.retain(|program| Arc::strong_count(program) > 1);
    }

    /// Between the additions and the removals of a batch: a reader that misses what was removed looks again.
    pub(crate) fn turn(&mut self) {
        self.table.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Builds a table of `keys` under a new seed and swaps it in; on an error the old one stays.
    pub(crate) fn rebuild<I>(&mut self, keys: &I) -> Result<(), TableError>
    where
        I: Iterator<Item = (Key, u32)> + Clone,
    {
        let count = keys.clone().count();
        // room to grow: a rebuild should not be needed again soon
        let mut buckets = buckets_for(count + count / 4).max(buckets_for(self.table.room()));
        for _ in 0..MAX_TRIES {
            self.seed = self.seed.wrapping_add(1);
            match self.build(keys.clone(), buckets) {
                Ok(Ok(next)) => {
                    self.swap(next);
                    return Ok(());
                }
                Ok(Err(NoPlace::Full)) => buckets *= 2,
                Ok(Err(NoPlace::Collision)) => {}
                Err(source) => return Err(TableError::Memory { keys: count, source }),
            }
        }
        Err(TableError::Collisions { keys: count, tries: MAX_TRIES })
    }

    /// A writer of a table of its own, for a swap.
    fn build(
        &self,
        keys: impl Iterator<Item = (Key, u32)>,
        buckets: usize,
    ) -> io::Result<Result<Self, NoPlace>> {
        #[cfg_attr(not(test), expect(unused_mut, reason = "tests shrink the hash"))]
        let mut seed = Seed::new(self.seed);
        #[cfg(test)]
        {
            seed.mask = self.mask;
        }
        let mut next = Self {
            shared: Arc::clone(&self.shared),
            table: Arc::new(Table::new(buckets, seed)?),
            census: Census::default(),
            keys: 0,
            seed: self.seed,
            retired: Vec::new(),
            retired_programs: Vec::new(),
            #[cfg(test)]
            mask: self.mask,
        };
        for (key, value) in keys {
            if let Err(no_place) = next.insert(&key, value) {
                return Ok(Err(no_place));
            }
        }
        Ok(Ok(next))
    }

    fn swap(&mut self, next: Self) {
        self.shared.store(Arc::clone(&next.table));
        self.retired.push(std::mem::replace(&mut self.table, next.table));
        self.census = next.census;
        self.keys = next.keys;
        self.reap();
    }

    /// From here on, hashes have only the bits of `mask`: for tests of collisions. For an empty table.
    #[cfg(test)]
    pub(crate) fn shrink_hash(&mut self, mask: u64) {
        assert_eq!(self.keys, 0, "keys would be lost");
        self.mask = mask;
        let rebuilt = self.rebuild(&std::iter::empty());
        assert!(rebuilt.is_ok(), "{rebuilt:?}");
    }

    /// Frees replaced tables and programs that no reader holds any more; how many are left.
    ///
    /// The swap has turned what readers hold of the old table into counted references, and no new one can come: a
    /// count of 1 is the writer's own.
    pub(crate) fn reap(&mut self) -> usize {
        self.retired_programs.retain(|program| Arc::strong_count(program) > 1);
        self.retired.retain(|table| Arc::strong_count(table) > 1);
        self.retired.len() + self.retired_programs.len()
    }
}
