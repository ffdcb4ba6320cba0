// SPDX-License-Identifier: Apache-2.0
//! A shard: the queue ids one lcore owns, from enqueue to departure.

use std::marker::PhantomData;
use std::sync::Arc;

use aqm::Nanos;

use crate::banks::PiBanks;
use crate::change::Change;
use crate::counters::{RingDrops, ShardCounters};
use crate::packet::{Packet, PortId, QueueId};
use crate::port::PortShared;
use crate::profiles::Profiles;
use crate::snapshot::QueueSnapshot;

/// What a shard is built from.
#[derive(Clone, Debug)]
pub struct ShardOptions {
    /// Which shard this is, from 0.
    pub index: u32,
    /// How many there are; queue id `q` belongs to shard `q % shards`.
    pub shards: u32,
    /// Queue ids over all shards: they are below this.
    pub capacity: u32,
    /// Packet buffers this shard may hold.
    pub buffers: u32,
    /// Seed of every phase and roll.
    pub seed: u64,
    /// All profiles.
    pub profiles: Arc<Profiles>,
    /// This shard's PI banks.
    pub banks: Arc<PiBanks>,
    /// All ports, by [`PortId`].
    pub ports: Arc<[PortShared]>,
    /// This shard's sums.
    pub counters: Arc<ShardCounters>,
    /// What full rings kept from queue ids (all shards').
    pub ring_drops: Arc<RingDrops>,
}

/// The queue ids one lcore owns.
pub struct Shard<P: Packet> {
    options: ShardOptions,
    packets: PhantomData<P>,
}

impl<P: Packet> Shard<P> {
    /// A shard without queue ids.
    pub fn new(options: ShardOptions) -> Self {
        Self { options, packets: PhantomData }
    }

    /// Takes a packet whose metadata RX has set: queued, or dropped and counted.
    pub fn enqueue(&mut self, _now: Nanos, packet: P) {
        drop(packet);
    }

    /// Appends to `out` up to `room` packets that leave `port` now, oldest due first; returns how many.
    /// `out` never grows past its capacity. Call it with `room` 0 while the port refuses packets: the port's
    /// clock then stops.
    pub fn dequeue(&mut self, _now: Nanos, _port: PortId, _out: &mut Vec<P>, _room: usize) -> usize {
        0
    }

    /// When [`Self::dequeue`] could next yield something for `port`, in real time; `None`: not before another
    /// packet comes. For drivers in virtual time.
    pub fn next_event(&self, _port: PortId) -> Option<Nanos> {
        None
    }

    /// Applies a change.
    pub fn apply(&mut self, _now: Nanos, _change: Change) {}

    /// Link down: what is queued for `port` is dropped as `link`, and so is what arrives until it is up again.
    pub fn set_link(&mut self, _now: Nanos, _port: PortId, _up: bool) {}

    /// One consistent copy of a queue id's counters and state; `None` for an id not in use.
    pub fn snapshot(&self, _id: QueueId) -> Option<QueueSnapshot> {
        None
    }

    /// Packets queued.
    pub fn queued(&self) -> u64 {
        0
    }

    /// Packet buffers held.
    pub fn buffers_used(&self) -> u32 {
        0
    }

    /// What this shard was built from.
    pub fn options(&self) -> &ShardOptions {
        &self.options
    }
}
