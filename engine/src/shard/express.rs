// SPDX-License-Identifier: Apache-2.0
//! The express way: a packet that nothing holds back leaves as it comes, without FIFO, wheel or second visit.
//!
//! Invariant: it leaves only where [`Shard::dequeue`] at the same moment would send it next: nothing is due at its
//! port, nothing waits for its id, its shaper has let the wheel's time pass, and no AQM would touch it
//! (tests/express.rs holds the two ways against each other).

use aqm::{Nanos, Stamp};

use super::lane::Lane;
use super::record::Record;
use super::tally::{Tally, Whose};
use super::{Shard, delay_units};
use crate::histogram::Delay;
use crate::overhead::line_bytes;
use crate::packet::{Packet, PortId};
use crate::port::PortShared;
use crate::wheel::{slot_at, slot_from, slot_time};

/// How many packets may pass a lane, at which time of its wheel, and what those that did add up to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gate {
    room: usize,
    time: Nanos,
    now: Stamp,
    /// Packets of a burst came together, so all have this delay.
    arrival: Stamp,
    delay: Delay,
    passed: [[Passed; 2]; 2],
}

/// Packets and bytes of a direction and queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed {
    pub(crate) packets: u32,
    pub(crate) bytes: u32,
}

impl Gate {
    /// Whether what comes now arrived with those before.
    #[inline]
    fn is_of(&self, arrival: Stamp) -> bool {
        self.arrival == arrival
    }

    /// Counts what has passed, and begins with packets of another arrival.
    fn settle(&mut self, tally: &Tally, arrival: Stamp) {
        tally.passed_all(&self.passed, self.delay);
        self.passed = Default::default();
        self.arrival = arrival;
        self.delay = Delay::of(delay_units(self.now, arrival));
    }
}

impl Lane {
    /// Opens the gate for `room` packets, unless something is due already.
    fn open(&mut self, port: &PortShared, now: Nanos, room: usize) {
        let virtual_now = self.virtual_at(port, now);
        self.wheel.advance(slot_at(virtual_now));
        let first = self.wheel.first();
        let idle = first.is_none_or(|first| slot_time(first) > virtual_now);
        let room = if self.up && idle && self.control == 0 { room } else { 0 };
        let stamp = Stamp::at(now);
        let delay = Delay::default();
        let time = slot_time(self.wheel.current());
        self.gate = Gate { room, time, now: stamp, arrival: stamp, delay, passed: Default::default() };
    }
}

impl Record {
    /// Whether a packet for `lane` would find neither packets nor ties.
    #[inline]
    fn is_free(&self, lane: u8) -> bool {
        self.is_plain(lane) && !self.scheduled && !self.watched && self.packets() == 0
    }
}

impl<P: Packet> Shard<P> {
    /// Opens `port` to packets that nothing holds back: up to `room` of them may leave as [`Self::passes`] lets them.
    pub fn open(&mut self, now: Nanos, port: PortId, room: usize) {
        let at = usize::from(port.0);
        if let (Some(lane), Some(shared)) = (self.lanes.get_mut(at), self.options.ports.get(at)) {
            lane.open(shared, now, room);
        }
    }

    /// Ends what [`Self::open`] began; before anything else happens to the shard.
    pub fn shut(&mut self, port: PortId) {
        if let Some(lane) = self.lanes.get_mut(usize::from(port.0)) {
            lane.gate.settle(&self.tally, Stamp::default());
            lane.gate.room = 0;
        }
    }

    /// Whether a packet leaves now: its port is open and nothing holds it back; it is counted then. Else it is to be given
    /// to [`Self::enqueue`] before the ports are shut, in the order in which it came; what that will touch is on its way
    /// into the caches.
    #[inline]
    pub fn passes(&mut self, now: Nanos, packet: &P) -> bool {
        let meta = packet.meta();
        let Some(local) = self.local(meta.queue_id) else { return false };
        let at = usize::from(meta.egress.0);
        let (Some(record), Some(lane), Some(port)) =
            (self.records.get_mut(local), self.lanes.get_mut(at), self.options.ports.get(at))
        else {
            return false;
        };
        let mut shaper = record.shaper;
        shaper.join(lane.gate.time);
        if lane.gate.room == 0 || !record.is_free(meta.egress.0) || shaper.due() > lane.gate.time {
            lane.wheel.prefetch(slot_from(shaper.due()));
            self.records.prefetch_warm(local);
            return false;
        }
        let Some(params) = self.options.profiles.get(record.profile) else { return false };
        let bytes = line_bytes(params.overhead, meta.l3_bytes);
        if !params.discipline.passes_lone(bytes)
            || !self.budget.admits(0, packet.buffers())
            || !lane.admits(port, now)
        {
            // nothing that comes later may pass what waits here
            lane.gate.room = 0;
            return false;
        }
        shaper.sent(bytes);
        record.shaper = shaper;
        lane.purse.spend(packet.frame_bytes());
        lane.gate.room -= 1;
        if !lane.gate.is_of(meta.arrival) {
            lane.gate.settle(&self.tally, meta.arrival);
        }
        let queue = params.discipline.classify(meta.ecn, meta.rule);
        let sum = &mut lane.gate.passed[record.direction as usize][queue as usize];
        sum.packets += 1;
        sum.bytes += u32::from(meta.l3_bytes);
        let whose = Whose { local, direction: record.direction, queue };
        self.tally.passed(&mut self.records, whose, meta.ecn, meta.l3_bytes, lane.gate.delay);
        true
    }
}
