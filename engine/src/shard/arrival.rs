// SPDX-License-Identifier: Apache-2.0
//! Arrivals that wait: whether there is a place for a packet, and into which queue it goes.
//!
//! Invariant: a packet that comes is counted as arrived once, and queued or dropped and counted.

use aqm::{Nanos, Queue};

use super::record::Record;
use super::tally::Whose;
use super::{CONTROL_BURST, Shard, index};
use crate::change::{Direction, QueueKind};
use crate::counters::DropReason;
use crate::discipline::State;
use crate::overhead::{PORT_FRAME_OVERHEAD, line_bytes};
use crate::packet::{Meta, Packet};
use crate::wheel::{low_half, slot_from};

/// Why a packet goes nowhere.
#[derive(Clone, Copy, Debug)]
enum Refused {
    /// Its id is not there.
    Misdirected(Direction),
    Dropped(Whose, DropReason),
}

/// Where an admitted packet goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admitted {
    pub(super) local: usize,
    pub(super) whose: Whose,
    /// What it counts on the subscriber's line.
    pub(super) bytes: u32,
    pub(super) lane: usize,
}

impl<P: Packet> Shard<P> {
    /// Takes a packet whose metadata RX has set: queued, or dropped and counted.
    pub fn enqueue(&mut self, now: Nanos, packet: P) {
        self.now = self.now.max(now);
        let meta = packet.meta();
        if let Err(packet) = self.queue_plain(now, packet, meta) {
            self.enqueue_other(now, packet, meta);
        }
    }

    /// The usual packet: its id has no ties but its port, and it is within all limits. Else gives it back, untouched.
    #[inline]
    fn queue_plain(&mut self, now: Nanos, packet: P, meta: Meta) -> Result<(), P> {
        let at = usize::from(meta.egress.0);
        let (Some(local), Some(lane)) = (self.local(meta.queue_id), self.lanes.get_mut(at)) else {
            return Err(packet);
        };
        let Some((record, warm)) = self.records.both_of(local) else { return Err(packet) };
        let Some(params) = self.options.profiles.get(record.profile) else { return Err(packet) };
        let bytes = record.bytes() + u64::from(params.mtu);
        if !record.is_plain(meta.egress.0)
            || !lane.up
            || bytes > u64::from(warm.limit_bytes)
            || record.packets() >= params.limit_packets
            || !self.budget.admits(warm.buffers, packet.buffers())
            || self.links
        {
            return Err(packet);
        }
        let queue = params.discipline.classify(meta.ecn, meta.rule);
        let was_idle = record.packets() == 0;
        let head_changed = record.packets_in(queue) == 0;
        self.budget.take(packet.buffers());
        self.queued += 1;
        warm.push(record, queue, packet, line_bytes(params.overhead, meta.l3_bytes));
        if was_idle {
            self.waiting[record.direction as usize] += 1;
        }
        if was_idle || !record.scheduled {
            record.shaper.join(lane.time(&self.options.ports[at], now));
            if !record.scheduled
                && let Some(slot) = lane.wheel.insert(index(local), slot_from(record.shaper.due()))
            {
                (warm.slot, record.scheduled) = (low_half(slot), true);
            }
        }
        let watch = (head_changed || !record.watched) && params.watches(record.l(), record.c());
        let (due, direction) = (record.shaper.due(), record.direction);
        self.tally.arrived(&mut self.records, Whose { local, direction, queue }, meta.ecn);
        if due <= now {
            // it leaves in a moment, and its counters were not asked for
            self.records.prefetch_line(local, queue);
        }
        if watch {
            self.watch(local);
        }
        Ok(())
    }

    /// Any other packet.
    #[inline(never)]
    fn enqueue_other(&mut self, now: Nanos, packet: P, meta: Meta) {
        match self.judge(now, &packet, meta) {
            Ok(admitted) if self.records[admitted.local].is_special() => {
                self.accept_special(packet, admitted);
            }
            Ok(admitted) => {
                self.tally.arrived(&mut self.records, admitted.whose, meta.ecn);
                self.accept(now, packet, admitted);
            }
            Err(Refused::Misdirected(direction)) => {
                self.misdirected += 1;
                self.tally.misdirected(direction, meta.ecn);
            }
            Err(Refused::Dropped(whose, reason)) => {
                self.tally.arrived(&mut self.records, whose, meta.ecn);
                self.tally.dropped(&mut self.records, whose, reason, meta.ecn);
            }
        }
    }

    /// A packet comes to an id whose state is in a slab.
    #[inline(never)]
    fn accept_special(&mut self, packet: P, admitted: Admitted) {
        match *self.records.warm(admitted.local).aqm() {
            State::Managed(place) => self.accept_managed(packet, &admitted, place),
            State::Protected(_, place) => self.accept_protected(packet, admitted, place),
            State::None | State::DualPi2(_) => {
                self.tally.arrived(&mut self.records, admitted.whose, packet.meta().ecn);
                self.accept(self.now, packet, admitted);
            }
        }
    }

    /// Whether there is a place for a packet, and which.
    #[inline]
    fn judge(&mut self, now: Nanos, packet: &P, meta: Meta) -> Result<Admitted, Refused> {
        let Some((local, record)) =
            self.local(meta.queue_id).and_then(|at| Some((at, self.records.get(at)?)))
        else {
            return Err(Refused::Misdirected(Direction::Down));
        };
        let Some(params) = self.options.profiles.get(record.profile).filter(|_| record.is_live()) else {
            return Err(Refused::Misdirected(record.direction));
        };
        let control = record.kind == QueueKind::Control;
        let queue = if control { Queue::Classic } else { params.discipline.classify(meta.ecn, meta.rule) };
        let whose = Whose { local, direction: record.direction, queue };
        let lane = usize::from(meta.egress.0);
        if !self.lanes.get(lane).is_some_and(|lane| lane.up) {
            return Err(Refused::Dropped(whose, DropReason::Link));
        }
        let bytes = line_bytes(params.overhead, meta.l3_bytes);
        // RFC 9332 figure 3: before classification matters, on both queues, the packet's own size not counted
        let warm = self.records.warm(local);
        if (record.bytes() + u64::from(params.mtu) > u64::from(warm.limit_bytes)
            || record.packets() >= params.limit_packets)
            && !warm.aqm().is_managed()
        {
            return Err(Refused::Dropped(whose, DropReason::Tail));
        }
        if !self.budget.admits(warm.buffers, packet.buffers())
            && !self.admits_due(now, local, packet.buffers())
        {
            return Err(Refused::Dropped(whose, DropReason::Pool));
        }
        if control && !self.police(now, local, packet) {
            self.tally.control_limited(whose.direction);
            return Err(Refused::Dropped(whose, DropReason::Tail));
        }
        Ok(Admitted { local, whose, bytes, lane })
    }

    /// Whether control traffic stays within its part of the port.
    fn police(&mut self, now: Nanos, local: usize, packet: &P) -> bool {
        let bytes = packet.frame_bytes() + PORT_FRAME_OVERHEAD;
        let Record { shaper, direction, .. } = &mut self.records[local];
        let burst = CONTROL_BURST.max(shaper.pace().time(2 * u64::from(1_514 + PORT_FRAME_OVERHEAD)));
        // the whole first: a share is spent only on what leaves
        if !shaper.has_room(now, burst) {
            return false;
        }
        let mut reserved = self.reserved.iter_mut().filter(|reserved| reserved.local == local);
        let stations = reserved.find_map(|reserved| reserved.stations.as_mut());
        stations.is_none_or(|of| of.admits(now, *direction, packet.macs(), (CONTROL_BURST, bytes)))
            && shaper.police(now, burst, bytes)
    }

    /// Queues a packet, and puts its id on the wheel if it was idle.
    #[inline]
    pub(super) fn accept(&mut self, now: Nanos, packet: P, admitted: Admitted) {
        let Admitted { local, whose, bytes, lane } = admitted;
        self.budget.take(packet.buffers());
        self.queued += 1;
        self.records.push(local, whose.queue, packet, bytes);
        let record = &self.records[local];
        if record.kind == QueueKind::Subscriber && record.packets() == 1 {
            self.waiting[record.direction as usize] += 1;
        }
        if record.kind == QueueKind::Control {
            self.lanes[lane].control += 1;
            return;
        }
        let head_changed = record.packets_in(whose.queue) == 1;
        if record.packets() == 1 || !record.scheduled {
            self.join(now, local, lane);
        }
        let record = &self.records[local];
        if record.shaper.due() <= now {
            // it leaves in a moment, and its counters were not asked for
            self.records.prefetch_line(local, whose.queue);
        }
        if (head_changed || !record.watched)
            && let Some(params) = self.options.profiles.get(record.profile)
            && params.watches(record.l(), record.c())
        {
            self.watch(local);
        }
    }
}
