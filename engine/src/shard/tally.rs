// SPDX-License-Identifier: Apache-2.0
//! Counting: each event once for its queue id and once for the shard.
//!
//! Invariant: a packet that `arrived` is counted later as `forwarded` or `dropped`, or it is queued.

use std::sync::Arc;

use aqm::{Ecn, Queue};
use mem::HugeSlice;

use crate::change::Direction;
use crate::counters::{DropReason, QueueCounters, ShardCounters};

/// Counters of a shard and of its queue ids.
#[derive(Debug)]
pub(crate) struct Tally {
    shard: Arc<ShardCounters>,
    queues: HugeSlice<[QueueCounters; 2]>,
}

/// Whose event it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose {
    /// Place in the shard; `None`: nobody's (unknown to the shard).
    pub(crate) local: Option<usize>,
    pub(crate) direction: Direction,
    pub(crate) queue: Queue,
}

impl Whose {
    /// Of an id that is not there.
    pub(crate) const fn nobody(direction: Direction) -> Self {
        Self { local: None, direction, queue: Queue::Classic }
    }
}

impl Tally {
    pub(crate) fn new(shard: Arc<ShardCounters>, capacity: usize) -> Self {
        Self { shard, queues: crate::memory::slice(capacity, |_| Default::default()) }
    }

    #[inline]
    fn queue(&mut self, whose: Whose) -> Option<&mut QueueCounters> {
        self.queues.get_mut(whose.local?).map(|queues| &mut queues[whose.queue as usize])
    }

    /// Asks the caches for the counters of a queue, to be written soon.
    #[inline]
    pub(crate) fn prefetch(&self, local: usize, queue: Queue) {
        if let Some(queues) = self.queues.get(local) {
            mem::prefetch_write(&raw const queues[queue as usize]);
        }
    }

    /// A packet came.
    #[inline]
    pub(crate) fn arrived(&mut self, whose: Whose, ecn: Ecn) {
        self.shard.arrived(whose.direction, whose.queue);
        if let Some(queue) = self.queue(whose) {
            queue.arrived(ecn);
        }
    }

    /// A packet of `bytes` leaves, `delay` units of 64 ns after it came.
    #[inline]
    pub(crate) fn forwarded(&mut self, whose: Whose, bytes: u32, delay: u32) {
        self.shard.forwarded(whose.direction, whose.queue, bytes, delay);
        if let Some(queue) = self.queue(whose) {
            queue.forwarded(bytes, delay);
        }
    }

    /// A packet was changed to CE.
    #[inline]
    pub(crate) fn marked(&mut self, whose: Whose) {
        self.shard.marked(whose.direction, whose.queue);
        if let Some(queue) = self.queue(whose) {
            queue.marked();
        }
    }

    /// A packet is dropped.
    #[inline]
    pub(crate) fn dropped(&mut self, whose: Whose, reason: DropReason, ecn: Ecn) {
        self.shard.dropped(whose.direction, whose.queue, reason, ecn);
        if let Some(queue) = self.queue(whose) {
            queue.dropped(reason, ecn);
        }
    }

    /// A control packet is over its limit; it is counted as dropped as well.
    pub(crate) fn control_limited(&self, direction: Direction) {
        self.shard.control_limited(direction);
    }

    /// A departure is `units` of 64 ns late.
    #[inline]
    pub(crate) fn lag(&self, units: u32) {
        self.shard.lag(units);
    }

    /// Adds what full rings kept from an id, L and C.
    pub(crate) fn fold_ring_drops(&mut self, local: usize, packets: [u32; 2]) {
        if let Some(queues) = self.queues.get_mut(local) {
            for (queue, packets) in queues.iter_mut().zip(packets) {
                queue.fold_ring_drops(packets);
            }
        }
    }

    /// An id begins anew.
    pub(crate) fn reset(&mut self, local: usize) {
        if let Some(queues) = self.queues.get_mut(local) {
            *queues = Default::default();
        }
    }

    /// A copy of an id's counters, L and C.
    pub(crate) fn copy(&self, local: usize) -> Option<[QueueCounters; 2]> {
        self.queues.get(local).cloned()
    }
}
