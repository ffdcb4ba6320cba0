// SPDX-License-Identifier: Apache-2.0
//! Aggregates above subscribers: a rate for all of their children together, to any depth up to [`MAX_LEVELS`].
//!
//! An aggregate is to its children what a port is to its ids: while its rate does not suffice, its clock slows, and
//! with it theirs, so that shares follow plans; what slipped is never caught up. A child runs on the port's clock less
//! the slips of all aggregates above it, so it gets the smallest share that any of them leaves it (max-min over
//! plans), and its packets wait in its own queues.
//!
//! A place (shard and port) that has children of an aggregate has a [`node::Node`] for it in each direction. Where
//! more than one has, they share what [`shared::Shared`] holds: the rate is sold in quanta to whoever has demand, and
//! the slip is common, as with the shards of a port.

mod calendar;
mod node;
mod paged;
mod shared;
mod tree;

use core::num::NonZeroU32;

use aqm::BitsPerSec;
use model::stats::ParentDirectionStats;

pub use shared::ParentsShared;
pub(crate) use tree::{NODE, NONE, Tree, behind};

/// Levels of aggregates above a subscriber, at most.
pub const MAX_LEVELS: usize = 8;
/// Aggregates there may be.
pub const MAX_PARENTS: usize = 1 << 18;

/// Bytes of an aggregate at a place, down and up, with what the places share; and of a queue id below one.
pub(crate) const BYTES: usize =
    2 * (size_of::<node::Node>() + size_of::<shared::Shared>()) + tree::BYTES_PER_AGGREGATE;
pub(crate) const BYTES_PER_ID: usize = tree::BYTES_PER_ID;

/// Names an aggregate: a number below [`MAX_PARENTS`], given out by the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParentId(NonZeroU32);

impl ParentId {
    /// The `index`-th; `None` where there may be none.
    pub fn new(index: u32) -> Option<Self> {
        if index as usize >= MAX_PARENTS { None } else { NonZeroU32::new(index + 1).map(Self) }
    }

    /// Its number.
    pub const fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// What an aggregate is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentSpec {
    /// The aggregate above it.
    pub parent: Option<ParentId>,
    /// Its rate down and up.
    pub rates: [BitsPerSec; 2],
}

/// An aggregate in one direction at one moment, as one shard sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ParentPart {
    /// Packets sent.
    pub packets: u64,
    /// What they counted on their subscribers' lines, in bytes.
    pub bytes: u64,
    /// Queue ids and aggregates right below it.
    pub children: u32,
    /// Of these, waiting for it.
    pub waiting: u32,
    /// How fast its own clock runs, as far as it is slowed by this aggregate: 1 unless it is saturated.
    pub speed: f64,
}

impl From<&ParentPart> for ParentDirectionStats {
    fn from(part: &ParentPart) -> Self {
        Self {
            forwarded: part.packets,
            forwarded_bytes: part.bytes,
            children: part.children.into(),
            waiting: part.waiting.into(),
            clock_speed: part.speed,
            ..Self::default()
        }
    }
}

/// What an aggregate has sent and how fast its clock runs, down and up: short enough to be asked of all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParentUse {
    /// Bytes on its subscribers' lines.
    pub bytes: [u64; 2],
    /// As in [`ParentPart`].
    pub speed: [f32; 2],
}

impl Default for ParentUse {
    fn default() -> Self {
        Self { bytes: [0; 2], speed: [1.0; 2] }
    }
}

impl ParentUse {
    /// Adds what another shard sees of it.
    pub fn add(&mut self, other: &Self) {
        for way in [0, 1] {
            self.bytes[way] += other.bytes[way];
            self.speed[way] = self.speed[way].min(other.speed[way]);
        }
    }
}

/// An aggregate at one moment, down and up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ParentSnapshot {
    /// Down, up.
    pub parts: [ParentPart; 2],
}

impl ParentSnapshot {
    /// Adds what another shard sees of it.
    pub fn add(&mut self, other: &Self) {
        for (sum, part) in self.parts.iter_mut().zip(&other.parts) {
            // speeds are those of one common clock: the one that moved tells
            let first = sum.children == 0;
            sum.packets += part.packets;
            sum.bytes += part.bytes;
            sum.children += part.children;
            sum.waiting += part.waiting;
            sum.speed = if first { part.speed } else { sum.speed.min(part.speed) };
        }
    }
}
