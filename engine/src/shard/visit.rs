// SPDX-License-Identifier: Apache-2.0
//! Departures: the wheel names the id, the discipline its packet, the AQM that packet's fate.
//!
//! A visit sends as many packets as are due in the slot being served, within bounds: after [`VISIT_PACKETS`] sent the id
//! queues again behind the others of its slot, after [`VISIT_DROPS`] dropped behind those of the next: an id under
//! flood whose AQM drops a full queue must not hold up whoever is due meanwhile. Time does not pass a slot before all
//! of it is served, so bounds cost nobody its rate.

use aqm::{Cause, Head, Left, Nanos, Pace, Prob, Queue, Stamp, Verdict};

use super::tally::Whose;
use super::{Shard, delay_units, index};
use crate::change::QueueKind;
use crate::counters::DropReason;
use crate::discipline::State;
use crate::overhead::line_bytes;
use crate::packet::{Packet, PortId};
use crate::parents::{NODE, NONE};
use crate::wheel::{slot_at, slot_from, slot_time};

/// Packets that one visit may send.
pub(super) const VISIT_PACKETS: usize = 64;
/// Packets that one visit may drop.
pub(super) const VISIT_DROPS: usize = 8;
/// Visits of one call beyond two for each packet it may send.
const SPARE_VISITS: usize = 64;

/// A call's circumstances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) now: Nanos,
    pub(super) stamp: Stamp,
    pub(super) lane: usize,
    /// `out` may become as long as this.
    pub(super) limit: usize,
    pub(super) virtual_now: Nanos,
}

/// How a visit ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// Nothing is left.
    Empty,
    /// The next packet is not due yet.
    Wait,
    /// More is due: a bound or the port ended the visit.
    Again,
    /// More is due, and enough was dropped for now.
    Later,
    /// The next packet leaves by another port.
    Move(usize),
}

impl<P: Packet> Shard<P> {
    /// Appends to `out` up to `room` packets that leave `port` now, oldest due first; returns how many.
    /// `out` never grows past its capacity. Call it with `room` 0 while the port refuses packets: the port's
    /// clock then stops.
    pub fn dequeue(&mut self, now: Nanos, port: PortId, out: &mut Vec<P>, room: usize) -> usize {
        self.now = self.now.max(now);
        let lane = usize::from(port.0);
        let (Some(shared), Some(state)) = (self.options.ports.get(lane), self.lanes.get_mut(lane)) else {
            return 0;
        };
        let before = out.len();
        let room = room.min(out.capacity() - before);
        let rate_changed = state.follow_rate(shared);
        state.begin(shared, now, room);
        let virtual_now = state.virtual_at(shared, now);
        let up = state.up;
        if rate_changed {
            self.follow_port_rate(now, port);
        }
        if up && room > 0 {
            let call = Call { now, stamp: Stamp::at(now), lane, limit: before + room, virtual_now };
            self.send_control(&call, out);
            self.turn(&call, out, 2 * room + SPARE_VISITS);
        }
        out.len() - before
    }

    /// Turns the wheel up to virtual now, or to where the port or a bound stops it.
    fn turn(&mut self, call: &Call, out: &mut Vec<P>, visits: usize) {
        for _ in 0..visits {
            if out.len() >= call.limit {
                return;
            }
            let lane = &mut self.lanes[call.lane];
            let Some(first) = lane.wheel.first().filter(|&first| slot_time(first) <= call.virtual_now) else {
                return lane.wheel.advance(slot_at(call.virtual_now));
            };
            lane.wheel.advance(first);
            if !lane.admits(&self.options.ports[call.lane], call.now) {
                return;
            }
            if lane.wheel.begins_chunk() {
                self.scout(call.lane);
            }
            let Some(id) = self.lanes[call.lane].wheel.pop() else { return };
            if id & NODE == 0 {
                self.visit(call, id as usize, out);
            } else {
                self.visit_node(call, id & !NODE, out);
            }
        }
    }

    /// Before a chunk of the wheel is served: asks the caches for the packets and counters of the chunk after it, whose
    /// records were asked for before, and for the records of the one after that. So a miss is over when it counts.
    #[inline]
    fn scout(&self, lane: usize) {
        let mut ahead = self.lanes[lane].wheel.ahead();
        let Some(next) = ahead.step() else { return };
        for &local in next {
            let local = local as usize;
            if let Some(record) = self.records.get(local) {
                let queue = if record.l().packets > 0 { Queue::L4s } else { Queue::Classic };
                self.records.prefetch_front(local, queue);
                self.records.prefetch_line(local, queue);
                if record.node != NONE {
                    self.tree.prefetch(record.node);
                }
            }
        }
        let Some(later) = ahead.step() else { return };
        ahead.prefetch();
        for &local in later {
            self.records.prefetch(local as usize);
            self.records.prefetch_warm(local as usize);
        }
    }

    /// Serves one entry of the current slot.
    fn visit(&mut self, call: &Call, local: usize, out: &mut Vec<P>) {
        let lane = &mut self.lanes[call.lane];
        let slot = lane.wheel.current();
        if !self.records.is_at(local, call.lane, slot) {
            lane.stale = lane.stale.saturating_sub(1);
            return;
        }
        let record = &mut self.records[local];
        record.scheduled = false;
        if record.node != NONE {
            return self.visit_below(call, local, slot, out);
        }
        if record.packets() == 1
            && let Some(packet) = self.depart_lone(call, local, slot_time(slot))
        {
            return out.push(packet);
        }
        let end = self.serve(call, local, slot_time(slot), out);
        match end {
            End::Empty => {
                let (record, warm) = self.records.both_mut(local);
                if let Some(params) = self.options.profiles.get(record.profile) {
                    params.discipline.drained(warm.aqm_mut());
                }
            }
            End::Wait => {
                let due = slot_from(self.records[local].shaper.due());
                self.schedule(local, due);
            }
            End::Again => self.schedule(local, slot),
            End::Later => self.schedule(local, slot + 1),
            End::Move(to) => {
                self.change_lane(call.now, local, to);
                let due = slot_from(self.records[local].shaper.due());
                self.schedule(local, due);
            }
        }
        self.watch(local);
    }

    /// The usual visit: the only packet of an id is due at `at`, leaves by this port, and no AQM would touch it. Its
    /// aggregates must let it go.
    #[inline]
    pub(super) fn depart_lone(&mut self, call: &Call, local: usize, at: Nanos) -> Option<P> {
        let (record, warm) = self.records.both_mut(local);
        let params = self.options.profiles.get(record.profile)?;
        let queue = if record.l().packets > 0 { Queue::L4s } else { Queue::Classic };
        // a managed discipline's packet is not in the record
        let meta = warm.front::<P>(queue)?;
        let bytes = line_bytes(params.overhead, meta.l3_bytes);
        let elsewhere = usize::from(meta.egress.0) != call.lane;
        if elsewhere || record.shaper.due() > at || !params.discipline.passes_lone(bytes) {
            return None;
        }
        let packet: P = warm.pop_lone(record, queue)?;
        self.budget.give(packet.buffers());
        self.queued = self.queued.saturating_sub(1);
        if record.kind == QueueKind::Subscriber {
            self.waiting[record.direction as usize] -= 1;
        }
        record.shaper.sent(bytes);
        if record.node != NONE {
            self.tree.charge(record.node, call.now, bytes, self.lanes[call.lane].slowness());
        }
        params.discipline.drained(warm.aqm_mut());
        let watched = record.watched;
        self.lanes[call.lane].purse.spend(packet.frame_bytes());
        let whose = Whose { local, direction: record.direction, queue };
        self.tally.forwarded(
            &mut self.records,
            whose,
            meta.l3_bytes.into(),
            delay_units(call.stamp, meta.arrival),
        );
        self.tally.lag(units(call.virtual_now.since(at)));
        if watched {
            self.watch(local);
        }
        Some(packet)
    }

    /// Sends what is due of an id at `at`, the time of its wheel or of its aggregates.
    pub(super) fn serve(&mut self, call: &Call, local: usize, at: Nanos, out: &mut Vec<P>) -> End {
        if let State::Managed(place) = *self.records.warm(local).aqm() {
            return self.serve_managed(call, local, place, at, out);
        }
        let record = &self.records[local];
        let served = self.lanes[call.lane].served_below(&self.tree, record.node, record.plan());
        let mut p_prime = None;
        let limit = call.limit.min(out.len() + VISIT_PACKETS);
        let mut drops = 0;
        loop {
            let record = &self.records[local];
            let Some(params) = self.options.profiles.get(record.profile) else {
                return End::Empty;
            };
            let Some(queue) =
                params.discipline.select(self.records.warm(local).aqm(), record.l(), record.c())
            else {
                return End::Empty;
            };
            if record.shaper.due() > at {
                return End::Wait;
            }
            if out.len() >= limit {
                return End::Again;
            }
            if drops >= VISIT_DROPS {
                return End::Later;
            }
            let egress =
                self.records.front(local, queue).map_or(call.lane, |meta| usize::from(meta.egress.0));
            if egress != call.lane {
                if self.lanes.get(egress).is_some_and(|lane| lane.up) {
                    return End::Move(egress);
                }
                self.discard(local, queue, DropReason::Link);
                drops += 1;
                continue;
            }
            if !self.lets_go(call, local) {
                return End::Again;
            }
            match self.depart(call, local, queue, served, &mut p_prime) {
                Some(packet) => {
                    self.tally.lag(units(call.virtual_now.since(at)));
                    out.push(packet);
                }
                None => drops += 1,
            }
        }
    }

    /// Takes the head of a queue and lets the AQM decide: the packet to send, or none if it was dropped.
    #[inline]
    pub(super) fn depart(
        &mut self,
        call: &Call,
        local: usize,
        queue: Queue,
        served: Pace,
        p_prime: &mut Option<Prob>,
    ) -> Option<P> {
        let params = self.options.profiles.get(self.records[local].profile)?;
        let (mut packet, meta, bytes) = self.records.pop(local, queue, params)?;
        let (record, warm) = self.records.both_mut(local);
        self.budget.give(packet.buffers());
        self.queued = self.queued.saturating_sub(1);
        let (l, c) = (record.l(), record.c());
        if record.kind == QueueKind::Subscriber && record.packets() == 0 {
            self.waiting[record.direction as usize] -= 1;
        }
        let p_prime = match params.place.and_then(|place| self.options.banks.get(place)) {
            Some(bank) if params.discipline.needs_p(bytes, l, c) => {
                *p_prime.get_or_insert_with(|| bank.p_prime(index(local)))
            }
            _ => Prob::ZERO,
        };
        let sojourn = call.stamp.since(meta.arrival);
        let head = Head { queue, ecn: meta.ecn, rule: meta.rule, bytes, sojourn, step_eligible: true };
        let left = Left { l, c, pace: served, p_prime };
        let whose = Whose { local, direction: record.direction, queue };
        match params.discipline.decide(warm.aqm_mut(), &head, &left) {
            Verdict::Pass => {}
            Verdict::Mark(cause) => {
                packet.mark_ce(cause);
                self.tally.marked(&mut self.records, whose);
            }
            Verdict::Drop(cause) => {
                let reason = if cause == Cause::Overload { DropReason::Overload } else { DropReason::Aqm };
                self.tally.dropped(&mut self.records, whose, reason, meta.ecn);
                return None;
            }
        }
        let (record, warm) = self.records.both_mut(local);
        record.shaper.sent(bytes);
        if record.node != NONE {
            self.tree.charge(record.node, call.now, bytes, self.lanes[call.lane].slowness());
        }
        let other_waits = record.packets_in(queue.other()) > 0;
        params.discipline.sent(warm.aqm_mut(), queue, bytes, other_waits);
        self.lanes[call.lane].purse.spend(packet.frame_bytes());
        self.tally.forwarded(
            &mut self.records,
            whose,
            meta.l3_bytes.into(),
            delay_units(call.stamp, meta.arrival),
        );
        Some(packet)
    }

    /// Sends control traffic, ahead of all and without waiting for the port's shaper, which it spends.
    fn send_control(&mut self, call: &Call, out: &mut Vec<P>) {
        if self.lanes[call.lane].control == 0 {
            return;
        }
        for at in 0..self.reserved.len() {
            let local = self.reserved[at].local;
            while out.len() < call.limit && self.control_waits(call.lane, local) {
                out.extend(self.depart_control(call, local));
            }
        }
    }

    /// Whether an id's next packet is control traffic for this port.
    fn control_waits(&self, lane: usize, local: usize) -> bool {
        let record = &self.records[local];
        record.kind == QueueKind::Control
            && self
                .records
                .front(local, Queue::Classic)
                .is_some_and(|meta| usize::from(meta.egress.0) == lane)
    }

    fn depart_control(&mut self, call: &Call, local: usize) -> Option<P> {
        let params = self.options.profiles.get(self.records[local].profile)?;
        let (packet, meta, _) = self.records.pop(local, Queue::Classic, params)?;
        self.budget.give(packet.buffers());
        self.queued = self.queued.saturating_sub(1);
        let lane = &mut self.lanes[call.lane];
        lane.control = lane.control.saturating_sub(1);
        lane.purse.spend(packet.frame_bytes());
        let direction = self.records[local].direction;
        let whose = Whose { local, direction, queue: Queue::Classic };
        self.tally.forwarded(
            &mut self.records,
            whose,
            meta.l3_bytes.into(),
            delay_units(call.stamp, meta.arrival),
        );
        Some(packet)
    }

    /// When [`Self::dequeue`] could next yield something for `port`, in real time; `None`: not before another
    /// packet comes. For drivers in virtual time.
    pub fn next_event(&self, port: PortId) -> Option<Nanos> {
        let lane = self.lanes.get(usize::from(port.0)).filter(|lane| lane.up)?;
        let shared = self.options.ports.get(usize::from(port.0))?;
        if lane.control > 0 {
            return Some(self.now);
        }
        let mut at = lane.real_at(shared, slot_time(lane.wheel.first()?));
        if lane.purse.is_empty() {
            at = at.max(shared.due());
        }
        Some(at.max(self.now))
    }
}

/// A time in units of 64 ns.
pub(super) fn units(time: Nanos) -> u32 {
    u32::try_from(time.0 >> Stamp::SHIFT).unwrap_or(u32::MAX)
}
