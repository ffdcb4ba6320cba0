// SPDX-License-Identifier: Apache-2.0
//! The PI banks of one shard: one for each Tupdate in use, indexed by the id's place in the shard.
//!
//! One set a shard, so that no two TX lcores write to one cache line.

use core::sync::atomic::AtomicU64;

use aqm::columns::{Element, LANES, Memory, PAIRS};
use aqm::{Nanos, PiBank};
use mem::HugeSlice;

use crate::memory;
use crate::packet::QueueId;
use crate::profiles::{BankPlace, Profiles};

/// A bank's columns on huge pages.
#[derive(Debug)]
pub(crate) struct Huge;

#[expect(clippy::inline_always, reason = "a pass compiles them for its own vectors")]
impl Memory for Huge {
    type Column<T: Element> = HugeSlice<T>;

    fn column<T: Element>(len: usize, mut element: impl FnMut() -> T) -> HugeSlice<T> {
        memory::slice(len, |_| element())
    }

    #[inline(always)]
    fn load(from: &[AtomicU64; PAIRS], into: &mut [u32; LANES]) {
        mem::load_block(from, into);
    }

    #[inline(always)]
    fn store(from: &[u32; LANES], into: &[AtomicU64; PAIRS]) {
        mem::store_block(from, into);
    }
}

/// A bank as shards have it.
pub(crate) type Bank = PiBank<Huge>;

/// The PI banks of one shard. Its lcore publishes and reads; the control lcore alone calls [`Self::update`].
#[derive(Debug)]
pub struct PiBanks {
    shard: u32,
    shards: u32,
    banks: Vec<Bank>,
}

impl PiBanks {
    /// For shard `shard` of `shards`, with queue ids below `capacity` (over all shards).
    pub fn new(profiles: &Profiles, shard: u32, shards: u32, capacity: u32) -> Self {
        let local = local_capacity(shard, shards, capacity);
        let bank = |plan: &crate::profiles::BankPlan| Bank::new(plan.tupdate, local, &plan.profiles);
        Self { shard, shards, banks: profiles.banks().iter().map(bank).collect() }
    }

    /// Takes the parameters of profiles that have come since; whether there was room for all. For one control thread,
    /// before an id takes any of them.
    pub fn extend(&self, profiles: &Profiles) -> bool {
        let new = |(bank, plan): (&Bank, &crate::profiles::BankPlan)| {
            plan.profiles.iter().skip(bank.profiles()).all(|params| bank.add_profile(*params))
        };
        self.banks.len() == profiles.banks().len() && self.banks.iter().zip(profiles.banks()).all(new)
    }

    /// How many banks there are.
    pub fn len(&self) -> usize {
        self.banks.len()
    }

    /// Whether no profile has a PI controller.
    pub fn is_empty(&self) -> bool {
        self.banks.is_empty()
    }

    /// How often bank `bank` is due.
    pub fn tupdate(&self, bank: usize) -> Nanos {
        self.banks.get(bank).map_or(Nanos::MAX, Bank::tupdate)
    }

    /// When the next tick of bank `bank` is due: one interval after the last; zero before the first.
    pub fn due(&self, bank: usize) -> Nanos {
        self.banks.get(bank).map_or(Nanos::MAX, Bank::due)
    }

    /// One tick of bank `bank`: updates p' of every id with a head set and reports ids that enter (`true`) or
    /// leave (`false`) overload. Returns how many ids were visited.
    pub fn update(&self, bank: usize, now: Nanos, on_overload: &mut dyn FnMut(QueueId, bool)) -> u32 {
        self.banks.get(bank).map_or(0, |bank| {
            bank.update(now, &mut |local, overload| {
                on_overload(QueueId(local * self.shards + self.shard), overload);
            })
        })
    }

    /// The bank of a place.
    #[inline]
    pub(crate) fn get(&self, place: BankPlace) -> Option<&Bank> {
        self.banks.get(place.bank)
    }
}

/// How many of the ids below `capacity` are those of `shard`.
pub(crate) fn local_capacity(shard: u32, shards: u32, capacity: u32) -> usize {
    capacity.saturating_sub(shard).div_ceil(shards.max(1)) as usize
}
