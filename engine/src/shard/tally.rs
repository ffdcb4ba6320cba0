// SPDX-License-Identifier: Apache-2.0
//! Counting: each event once for its queue id and once for the shard.
//!
//! The lines that every packet touches are in the records; here are the shard's sums and the ledgers for what outgrows
//! the lines, whose memory comes when it is first written.
//!
//! Invariant: a packet that `arrived` is counted later as `forwarded` or `dropped`, or it is queued.

use std::sync::Arc;

use aqm::{Ecn, Queue};
use mem::HugeSlice;

use super::express::Passed;
use super::record::Records;
use crate::change::Direction;
use crate::counters::queue::Ledger;
use crate::counters::{DropReason, QueueCounters, ShardCounters};
use crate::histogram::Delay;
use crate::packet::Packet;

/// Counters of a shard, and what the records' have outgrown.
#[derive(Debug)]
pub(crate) struct Tally {
    shard: Arc<ShardCounters>,
    ledgers: HugeSlice<[Ledger; 2]>,
}

/// Whose event it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose {
    /// Place in the shard.
    pub(crate) local: usize,
    pub(crate) direction: Direction,
    pub(crate) queue: Queue,
}

impl Tally {
    /// For a shard of `ids` places.
    pub(crate) fn new(shard: Arc<ShardCounters>, ids: usize) -> Self {
        Self { shard, ledgers: crate::memory::lazy(ids) }
    }

    #[inline]
    fn ledger(&mut self, local: usize, queue: Queue) -> &mut Ledger {
        &mut self.ledgers[local][queue as usize]
    }

    /// A packet came.
    #[inline]
    pub(crate) fn arrived<P: Packet>(&mut self, records: &mut Records<P>, whose: Whose, ecn: Ecn) {
        self.shard.arrived(whose.direction, whose.queue);
        let (record, line) = records.counted_mut(whose.local, whose.queue);
        record.arrivals[whose.queue as usize].count(ecn, line, self.ledger(whose.local, whose.queue));
    }

    /// A packet of `bytes` leaves, `delay` units of 64 ns after it came.
    #[inline]
    pub(crate) fn forwarded<P: Packet>(
        &mut self,
        records: &mut Records<P>,
        whose: Whose,
        bytes: u32,
        delay: u32,
    ) {
        let delay = Delay::of(delay);
        self.shard.forwarded(whose.direction, whose.queue, bytes, delay);
        let (_, line) = records.counted_mut(whose.local, whose.queue);
        line.forwarded(bytes, delay, self.ledger(whose.local, whose.queue));
    }

    /// A packet came and leaves at once: its part of its queue's counts. The shard's are for [`Self::passed_all`].
    #[inline]
    pub(crate) fn passed<P: Packet>(
        &mut self,
        records: &mut Records<P>,
        whose: Whose,
        ecn: Ecn,
        bytes: u16,
        delay: Delay,
    ) {
        let (record, line) = records.counted_mut(whose.local, whose.queue);
        let ledger = self.ledger(whose.local, whose.queue);
        let arrivals = &mut record.arrivals[whose.queue as usize];
        if delay.units() == 0 {
            return arrivals.pass(ecn, bytes, line, ledger);
        }
        arrivals.count(ecn, line, ledger);
        line.forwarded(bytes.into(), delay, ledger);
    }

    /// Packets that came and left at once, by direction and queue, after the same delay.
    pub(crate) fn passed_all(&self, passed: &[[Passed; 2]; 2], delay: Delay) {
        for (direction, queues) in Direction::BOTH.into_iter().zip(passed) {
            for (queue, passed) in Queue::BOTH.into_iter().zip(queues) {
                if passed.packets > 0 {
                    self.shard.passed(direction, queue, *passed, delay);
                }
            }
        }
    }

    /// A packet was changed to CE.
    #[inline]
    pub(crate) fn marked<P: Packet>(&mut self, records: &mut Records<P>, whose: Whose) {
        self.shard.marked(whose.direction, whose.queue);
        let (_, line) = records.counted_mut(whose.local, whose.queue);
        line.marked(self.ledger(whose.local, whose.queue));
    }

    /// A packet is dropped.
    pub(crate) fn dropped<P: Packet>(
        &mut self,
        records: &mut Records<P>,
        whose: Whose,
        reason: DropReason,
        ecn: Ecn,
    ) {
        self.shard.dropped(whose.direction, whose.queue, reason, ecn);
        let (_, line) = records.counted_mut(whose.local, whose.queue);
        line.dropped(reason, ecn, self.ledger(whose.local, whose.queue));
    }

    /// A packet came for an id that is not there.
    pub(crate) fn misdirected(&self, direction: Direction, ecn: Ecn) {
        self.shard.arrived(direction, Queue::Classic);
        self.shard.dropped(direction, Queue::Classic, DropReason::Removed, ecn);
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
    pub(crate) fn fold_ring_drops<P: Packet>(
        &mut self,
        records: &mut Records<P>,
        local: usize,
        packets: [u32; 2],
    ) {
        for (queue, packets) in Queue::BOTH.into_iter().zip(packets) {
            records.counted_mut(local, queue).1.fold_ring_drops(packets, self.ledger(local, queue));
        }
    }

    /// An id begins anew: nothing has been counted.
    pub(crate) fn reset<P: Packet>(&mut self, records: &mut Records<P>, local: usize) {
        for queue in Queue::BOTH {
            if records.line(local, queue).has_carried() {
                *self.ledger(local, queue) = [0; _];
            }
        }
        records.reset(local);
    }

    /// An id's counters, L and C.
    pub(crate) fn read<P: Packet>(&self, records: &Records<P>, local: usize) -> [QueueCounters; 2] {
        let arrivals = records[local].arrivals;
        Queue::BOTH.map(|queue| {
            let ledger = &self.ledgers[local][queue as usize];
            records.line(local, queue).read(arrivals[queue as usize], ledger)
        })
    }
}
