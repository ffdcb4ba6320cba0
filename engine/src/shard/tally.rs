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

use super::record::Record;
use crate::change::Direction;
use crate::counters::queue::{Carry, Ledger, QueueLine};
use crate::counters::{DropReason, QueueCounters, ShardCounters};

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

    /// A queue's line and where it carries to.
    #[inline]
    fn line<'a, F>(&'a mut self, record: &'a mut Record<F>, whose: Whose) -> (&'a mut QueueLine, Carry<'a>) {
        let ledger = &mut self.ledgers[whose.local][whose.queue as usize];
        (&mut record.lines[whose.queue as usize], Carry { ledger, used: &mut record.carried })
    }

    /// A packet came.
    #[inline]
    pub(crate) fn arrived<F>(&mut self, record: &mut Record<F>, whose: Whose, ecn: Ecn) {
        self.shard.arrived(whose.direction, whose.queue);
        let ledger = &mut self.ledgers[whose.local][whose.queue as usize];
        record.arrivals[whose.queue as usize].count(ecn, Carry { ledger, used: &mut record.carried });
    }

    /// A packet of `bytes` leaves, `delay` units of 64 ns after it came.
    #[inline]
    pub(crate) fn forwarded<F>(&mut self, record: &mut Record<F>, whose: Whose, bytes: u32, delay: u32) {
        self.shard.forwarded(whose.direction, whose.queue, bytes, delay);
        let (line, carry) = self.line(record, whose);
        line.forwarded(bytes, delay, carry);
    }

    /// A packet was changed to CE.
    #[inline]
    pub(crate) fn marked<F>(&mut self, record: &mut Record<F>, whose: Whose) {
        self.shard.marked(whose.direction, whose.queue);
        let (line, carry) = self.line(record, whose);
        line.marked(carry);
    }

    /// A packet is dropped.
    pub(crate) fn dropped<F>(&mut self, record: &mut Record<F>, whose: Whose, reason: DropReason, ecn: Ecn) {
        self.shard.dropped(whose.direction, whose.queue, reason, ecn);
        let (_, carry) = self.line(record, whose);
        QueueLine::dropped(reason, ecn, carry);
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
    pub(crate) fn fold_ring_drops<F>(&mut self, record: &mut Record<F>, local: usize, packets: [u32; 2]) {
        for (queue, packets) in Queue::BOTH.into_iter().zip(packets) {
            let (_, carry) = self.line(record, Whose { local, direction: Direction::Down, queue });
            QueueLine::fold_ring_drops(packets, carry);
        }
    }

    /// An id begins anew; its record has `carried` before.
    pub(crate) fn reset(&mut self, local: usize, carried: bool) {
        if carried {
            self.ledgers[local] = [[0; _]; 2];
        }
    }

    /// An id's counters, L and C.
    pub(crate) fn read<F>(&self, record: &Record<F>, local: usize) -> [QueueCounters; 2] {
        let ledgers = record.carried.then(|| &self.ledgers[local]);
        let read = |queue: Queue| {
            let ledger = ledgers.map(|ledgers| &ledgers[queue as usize]);
            record.lines[queue as usize].read(record.arrivals[queue as usize], ledger)
        };
        Queue::BOTH.map(read)
    }
}
