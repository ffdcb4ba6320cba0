// SPDX-License-Identifier: Apache-2.0
//! Managed disciplines: those with state and queues of their own, behind [`aqm::Qdisc`].
//!
//! The shard is the discipline's owner: it keeps the packets in one FIFO a queue, holds the limit over all of them, and
//! counts what waits as C of the hot record. The state lives in a slab, so an id without it pays for none; it is built
//! when the id is created or takes the profile, never per packet. What the discipline before left in L goes first.
//!
//! Invariant: the FIFOs hold what the discipline was told to wait; every packet that leaves one is told by `decide`
//! (and `sent`) or by `removed`. A limit is held by shedding no more than a packet brought, so that a limit which has
//! shrunk drops nothing that was there.

use aqm::{Arrival, Arriving, Cause, Ecn, Leaving, Nanos, Qdisc, Queue, QueueProtection, Verdict};

use super::tally::Whose;
use super::visit::{Call, End, VISIT_DROPS, VISIT_PACKETS, units};
use super::{Admitted, Shard, delay_units};
use crate::change::QueueKind;
use crate::counters::DropReason;
use crate::discipline::{Discipline, State};
use crate::overhead::line_bytes;
use crate::packet::{Fifo, Meta, Packet};
use crate::parents::NONE;
use crate::recipe::View;
use crate::slab::Slot;

/// A discipline and the packets it decides about.
#[derive(Debug)]
pub(crate) struct Managed<F> {
    qdisc: Box<dyn Qdisc>,
    view: View,
    lines: Box<[Line<F>]>,
}

/// One of its FIFOs.
#[derive(Debug, Default)]
pub(crate) struct Line<F> {
    fifo: F,
    packets: u32,
}

/// Bytes of its queues.
pub(super) const fn bytes<F>(queues: u32) -> usize {
    size_of::<Managed<F>>() + queues as usize * size_of::<Line<F>>()
}

impl<F: Default> Managed<F> {
    fn new(qdisc: Box<dyn Qdisc>, view: View) -> Self {
        let lines = (0..qdisc.queues()).map(|_| Line::default()).collect();
        Self { qdisc, view, lines }
    }

    fn push<P: Packet<Fifo = F>>(&mut self, queue: u32, packet: P)
    where
        F: Fifo<P>,
    {
        if let Some(line) = self.lines.get_mut(queue as usize) {
            line.packets += 1;
            line.fifo.push(packet);
        }
    }

    fn pop<P: Packet<Fifo = F>>(&mut self, queue: u32) -> Option<P>
    where
        F: Fifo<P>,
    {
        let line = self.lines.get_mut(queue as usize)?;
        let packet = line.fifo.pop()?;
        line.packets = line.packets.saturating_sub(1);
        Some(packet)
    }

    /// Takes the head of a queue to its tail.
    fn rotate<P: Packet<Fifo = F>>(&mut self, queue: u32)
    where
        F: Fifo<P>,
    {
        if let Some(packet) = self.pop::<P>(queue) {
            self.push(queue, packet);
        }
    }

    /// Takes the youngest of a queue: turns it once around.
    fn pop_tail<P: Packet<Fifo = F>>(&mut self, queue: u32) -> Option<P>
    where
        F: Fifo<P>,
    {
        for _ in 1..self.packets_in(queue) {
            self.rotate(queue);
        }
        self.pop(queue)
    }

    fn packets_in(&self, queue: u32) -> u32 {
        self.lines.get(queue as usize).map_or(0, |line| line.packets)
    }
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// What another discipline left in L.
    Leftover,
    /// This queue.
    Line(u32),
}

/// How a drop at arrival is counted.
const fn reason(cause: Cause) -> DropReason {
    match cause {
        Cause::Limit => DropReason::Tail,
        Cause::Overload => DropReason::Overload,
        Cause::Native | Cause::Coupled | Cause::Pi | Cause::Law => DropReason::Aqm,
    }
}

impl<P: Packet> Shard<P> {
    /// Gives an id the state that its discipline asks for.
    pub(super) fn manage(&mut self, local: usize, seed: u64) {
        let record = &self.records[local];
        let state = *self.records.warm(local).aqm();
        let Some(params) = self.options.profiles.get(record.profile) else {
            return;
        };
        // control traffic is policed before it waits and has no AQM
        if record.kind == QueueKind::Control || state.is_managed() {
            return;
        }
        if let (State::DualPi2(aqm), Some(config)) = (state, params.protection) {
            let protection = QueueProtection::new(config).ok();
            if let Some(place) = protection.and_then(|protection| self.protections.insert(protection)) {
                self.records.set_aqm(local, State::Protected(aqm, place));
            }
        }
        if let Discipline::Managed(recipe) = &params.discipline
            && let Ok(qdisc) = recipe.build(seed)
            && let Some(place) = self.managed.insert(Managed::new(qdisc, recipe.view))
        {
            self.records.set_aqm(local, State::Managed(place));
        }
    }

    /// Before an id takes `profile`: where a managed discipline goes or comes, takes out what waits in C, oldest first,
    /// and gives back the state.
    pub(super) fn unmanage(&mut self, local: usize, profile: u16) -> Vec<P> {
        self.unprotect(local);
        let record = &self.records[local];
        let comes = self
            .options
            .profiles
            .get(profile)
            .is_some_and(|params| matches!(params.discipline, Discipline::Managed(_)));
        let place =
            if let State::Managed(place) = *self.records.warm(local).aqm() { Some(place) } else { None };
        if record.kind == QueueKind::Control || place.is_none() && !comes {
            return Vec::new();
        }
        let mut moved = Vec::new();
        match place {
            Some(place) => {
                let queues = self.managed.get(place).map_or(0, |managed| managed.qdisc.queues());
                for queue in 0..queues {
                    moved.extend(
                        core::iter::from_fn(|| self.pop_managed(local, place, queue)).map(|(p, ..)| p),
                    );
                }
                self.managed.remove(place);
                self.records.set_aqm(local, State::None);
            }
            None => {
                moved.extend(core::iter::from_fn(|| self.pop_classic(local)));
            }
        }
        let now = aqm::Stamp::at(self.now);
        moved.sort_by_key(|packet| core::cmp::Reverse(delay_units(now, packet.meta().arrival)));
        moved
    }

    /// Lets packets that [`Self::unmanage`] took wait again; what a discipline refuses is dropped.
    pub(super) fn put_back(&mut self, local: usize, moved: Vec<P>) {
        for packet in moved {
            let record = &self.records[local];
            let Some(params) = self.options.profiles.get(record.profile) else {
                continue;
            };
            let bytes = line_bytes(params.overhead, packet.meta().l3_bytes);
            let whose = Whose { local, direction: record.direction, queue: Queue::Classic };
            if let State::Managed(place) = *self.records.warm(local).aqm() {
                self.offer(local, place, packet, bytes, whose, 0);
            } else {
                let buffers = packet.buffers();
                self.records.push(local, Queue::Classic, packet, bytes);
                self.note_in(local, buffers);
            }
        }
    }

    /// A packet comes to a managed discipline.
    pub(super) fn accept_managed(&mut self, packet: P, admitted: &Admitted, place: Slot) {
        let &Admitted { local, whose, bytes, lane } = admitted;
        self.tally.arrived(&mut self.records, whose, packet.meta().ecn);
        let was_idle = self.records[local].packets() == 0;
        self.offer(local, place, packet, bytes, whose, bytes);
        let record = &self.records[local];
        if record.packets() > 0 && (was_idle || !record.scheduled) {
            self.join(self.now, local, lane);
        }
    }

    /// Asks the discipline about a packet and does as it says: the packet waits or is dropped, and so may others be.
    /// While the limit is exceeded they are, up to `excess` bytes.
    fn offer(&mut self, local: usize, place: Slot, mut packet: P, bytes: u32, whose: Whose, excess: u32) {
        let ecn = packet.meta().ecn;
        match self.ask(local, place, &mut packet, bytes, whose) {
            Ok(queue) => {
                let buffers = packet.buffers();
                self.records.count_in(local, Queue::Classic, buffers, bytes);
                self.note_in(local, buffers);
                self.shed(local, place, (packet, queue), whose, excess);
            }
            Err(cause) => self.tally.dropped(&mut self.records, whose, reason(cause), ecn),
        }
    }

    /// The queue of a packet that comes, marked if need be, or why it is dropped.
    fn ask(
        &mut self,
        local: usize,
        place: Slot,
        packet: &mut P,
        bytes: u32,
        whose: Whose,
    ) -> Result<u32, Cause> {
        let record = &self.records[local];
        let served =
            self.lanes[usize::from(record.lane)].served_below(&self.tree, record.node, record.plan());
        let managed = self.managed.get_mut(place).ok_or(Cause::Limit)?;
        let mut meta = packet.meta();
        let arrival = managed.qdisc.arrive(&Arriving {
            now: self.now,
            bytes,
            ecn: managed.view.of(meta.ecn),
            rule: meta.rule,
            key: packet.flow_key(self.options.flow_seed),
            pace: served,
        });
        match arrival {
            Arrival::Queue(queue) => Ok(queue),
            Arrival::Mark(queue, cause) => {
                debug_assert!(matches!(meta.ecn, Ecn::Ect0 | Ecn::Ect1), "{:?} is never marked", meta.ecn);
                packet.mark_ce(cause);
                meta.ecn = Ecn::Ce;
                packet.set_meta(meta);
                self.tally.marked(&mut self.records, whose);
                Ok(queue)
            }
            Arrival::Drop(cause) => Err(cause),
        }
    }

    /// Drops what the discipline says must go, and puts the packet that came into its queue unless it is among that.
    /// It is kept in hand until then: at the tail of a long queue it would be found by turning all of it around.
    fn shed(&mut self, local: usize, place: Slot, came: (P, u32), whose: Whose, mut excess: u32) {
        let (packet, its_queue) = came;
        let mut in_hand = Some(packet);
        loop {
            let over = excess > 0 && self.is_over_limit(local);
            let Some(managed) = self.managed.get_mut(place) else { break };
            let Some((queue, end)) = managed.qdisc.shed(over) else { break };
            let is_last = queue == its_queue && (end == aqm::End::Tail || managed.packets_in(queue) == 0);
            let gone = match in_hand.take_if(|_| is_last) {
                Some(packet) => Some(packet),
                None if end == aqm::End::Head => managed.pop(queue),
                None => managed.pop_tail(queue),
            };
            debug_assert!(gone.is_some(), "the discipline sheds from an empty queue");
            let Some(packet) = gone else { break };
            let (_, bytes) = self.note_out(local, &packet);
            if let Some(managed) = self.managed.get_mut(place) {
                managed.qdisc.removed(queue, bytes);
            }
            self.tally.dropped(&mut self.records, whose, DropReason::Tail, packet.meta().ecn);
            excess = excess.saturating_sub(bytes);
        }
        if let (Some(packet), Some(managed)) = (in_hand, self.managed.get_mut(place)) {
            debug_assert!(
                (its_queue as usize) < managed.lines.len(),
                "the discipline has no queue {its_queue}"
            );
            managed.push(its_queue, packet);
        }
    }

    /// Whether more waits than may.
    fn is_over_limit(&self, local: usize) -> bool {
        let record = &self.records[local];
        let packets = self.options.profiles.get(record.profile).map_or(0, |params| params.limit_packets);
        record.bytes() > u64::from(self.records.warm(local).limit_bytes) || record.packets() > packets
    }

    /// Sends what is due of an id; see [`Shard::serve`].
    #[inline(never)]
    pub(super) fn serve_managed(
        &mut self,
        call: &Call,
        local: usize,
        place: Slot,
        at: Nanos,
        out: &mut Vec<P>,
    ) -> End {
        let record = &self.records[local];
        let served = self.lanes[call.lane].served_below(&self.tree, record.node, record.plan());
        let limit = call.limit.min(out.len() + VISIT_PACKETS);
        let mut drops = 0;
        loop {
            let Some(next) = self.next_managed(local, place) else {
                return End::Empty;
            };
            if self.records[local].shaper.due() > at {
                return End::Wait;
            }
            if out.len() >= limit {
                return End::Again;
            }
            if drops >= VISIT_DROPS {
                return End::Later;
            }
            let egress = self.egress_managed(local, place, next).unwrap_or(call.lane);
            if egress != call.lane {
                if self.lanes.get(egress).is_some_and(|lane| lane.up) {
                    return End::Move(egress);
                }
                match next {
                    Next::Leftover => _ = self.discard(local, Queue::L4s, DropReason::Link),
                    Next::Line(queue) => _ = self.discard_line(local, place, queue, DropReason::Link),
                }
                drops += 1;
                continue;
            }
            if !self.lets_go(call, local) {
                return End::Again;
            }
            let sent = match next {
                Next::Leftover => self.depart(call, local, Queue::L4s, served, &mut None),
                Next::Line(queue) => self.depart_managed(call, local, place, queue, served),
            };
            match sent {
                Some(packet) => {
                    self.tally.lag(units(call.virtual_now.since(at)));
                    out.push(packet);
                }
                None => drops += 1,
            }
        }
    }

    /// Whose turn it is; `None`: nothing waits.
    pub(super) fn next_managed(&mut self, local: usize, place: Slot) -> Option<Next> {
        let record = &self.records[local];
        if record.packets_in(Queue::L4s) > 0 {
            return Some(Next::Leftover);
        }
        let managed = self.managed.get_mut(place)?;
        let named = managed.qdisc.select(self.now);
        let holds = named.is_some_and(|queue| managed.packets_in(queue) > 0);
        debug_assert!(holds || record.packets() == 0, "{} packets, but {named:?} selected", record.packets());
        if holds || record.packets() == 0 {
            return named.filter(|_| holds).map(Next::Line);
        }
        // a discipline that lost count must not stop its subscriber
        let any = managed.lines.iter().zip(0..).find(|(line, _)| line.packets > 0);
        any.map(|(_, queue)| Next::Line(queue))
    }

    /// The port by which the next packet leaves.
    pub(super) fn egress_managed(&self, local: usize, place: Slot, next: Next) -> Option<usize> {
        let meta = match next {
            Next::Leftover => self.records.front(local, Queue::L4s),
            Next::Line(queue) => self.front_of(place, queue),
        };
        meta.map(|meta| usize::from(meta.egress.0))
    }

    fn front_of(&self, place: Slot, queue: u32) -> Option<Meta> {
        Fifo::<P>::front(&self.managed.get(place)?.lines.get(queue as usize)?.fifo)
    }

    /// Takes the head of a queue and lets the discipline decide: the packet to send, or none if it was dropped.
    fn depart_managed(
        &mut self,
        call: &Call,
        local: usize,
        place: Slot,
        queue: u32,
        served: aqm::Pace,
    ) -> Option<P> {
        let (mut packet, meta, bytes) = self.pop_managed(local, place, queue)?;
        let managed = self.managed.get_mut(place)?;
        let direction = self.records[local].direction;
        let whose = Whose { local, direction, queue: Queue::Classic };
        let verdict = managed.qdisc.decide(&Leaving {
            now: self.now,
            queue,
            bytes,
            ecn: managed.view.of(meta.ecn),
            rule: meta.rule,
            sojourn: call.stamp.since(meta.arrival),
            pace: served,
        });
        match verdict {
            Verdict::Pass => {}
            Verdict::Mark(cause) => {
                debug_assert!(matches!(meta.ecn, Ecn::Ect0 | Ecn::Ect1), "{:?} is never marked", meta.ecn);
                packet.mark_ce(cause);
                self.tally.marked(&mut self.records, whose);
            }
            Verdict::Drop(cause) => {
                self.tally.dropped(&mut self.records, whose, reason(cause), meta.ecn);
                return None;
            }
        }
        managed.qdisc.sent(queue, bytes);
        let record = &mut self.records[local];
        record.shaper.sent(bytes);
        if record.node != NONE {
            self.tree.charge(record.node, call.now, bytes, self.lanes[call.lane].slowness());
        }
        self.lanes[call.lane].purse.spend(packet.frame_bytes());
        self.tally.forwarded(
            &mut self.records,
            whose,
            meta.l3_bytes.into(),
            delay_units(call.stamp, meta.arrival),
        );
        Some(packet)
    }

    /// Takes the head of a queue, which no longer waits; the discipline is still to be told.
    fn pop_managed(&mut self, local: usize, place: Slot, queue: u32) -> Option<(P, Meta, u32)> {
        let packet: P = self.managed.get_mut(place)?.pop(queue)?;
        let (meta, bytes) = self.note_out(local, &packet);
        Some((packet, meta, bytes))
    }

    /// Takes the head of the record's own C.
    fn pop_classic(&mut self, local: usize) -> Option<P> {
        let params = self.options.profiles.get(self.records[local].profile)?;
        let (packet, ..) = self.records.pop(local, Queue::Classic, params)?;
        self.note_gone(local, packet.buffers());
        Some(packet)
    }

    /// Drops the head of a queue, counted; whether there was one.
    fn discard_line(&mut self, local: usize, place: Slot, queue: u32, reason: DropReason) -> bool {
        let Some((_, meta, bytes)) = self.pop_managed(local, place, queue) else {
            return false;
        };
        if let Some(managed) = self.managed.get_mut(place) {
            managed.qdisc.removed(queue, bytes);
        }
        let direction = self.records[local].direction;
        let whose = Whose { local, direction, queue: Queue::Classic };
        self.tally.dropped(&mut self.records, whose, reason, meta.ecn);
        true
    }

    /// Drops all that waits and gives back the state.
    pub(super) fn discard_managed(&mut self, local: usize, reason: DropReason) {
        let State::Managed(place) = *self.records.warm(local).aqm() else {
            return;
        };
        let queues = self.managed.get(place).map_or(0, |managed| managed.qdisc.queues());
        for queue in 0..queues {
            while self.discard_line(local, place, queue, reason) {}
        }
        self.managed.remove(place);
        self.records.set_aqm(local, State::None);
    }

    /// Drops all packets whose link is down; the others keep their order.
    pub(super) fn drop_dead_managed(&mut self, local: usize) {
        let State::Managed(place) = *self.records.warm(local).aqm() else {
            return;
        };
        let queues = self.managed.get(place).map_or(0, |managed| managed.qdisc.queues());
        for queue in 0..queues {
            let packets = self.managed.get(place).map_or(0, |managed| managed.packets_in(queue));
            for _ in 0..packets {
                let egress = self.front_of(place, queue).map(|meta| usize::from(meta.egress.0));
                if egress.and_then(|egress| self.lanes.get(egress)).is_some_and(|lane| lane.up) {
                    if let Some(managed) = self.managed.get_mut(place) {
                        managed.rotate::<P>(queue);
                    }
                } else {
                    self.discard_line(local, place, queue, DropReason::Link);
                }
            }
        }
    }

    /// Counts a packet in that the record has counted.
    fn note_in(&mut self, local: usize, buffers: u32) {
        self.budget.take(buffers);
        self.queued += 1;
        let record = &self.records[local];
        if record.kind == QueueKind::Subscriber && record.packets() == 1 {
            self.waiting[record.direction as usize] += 1;
        }
    }

    /// Counts a managed packet out; its metadata and what it counted.
    fn note_out(&mut self, local: usize, packet: &P) -> (Meta, u32) {
        let (meta, buffers) = (packet.meta(), packet.buffers());
        let bytes = match self.options.profiles.get(self.records[local].profile) {
            Some(params) => line_bytes(params.overhead, meta.l3_bytes),
            None => 0,
        };
        self.records.count_out(local, Queue::Classic, buffers, bytes);
        self.note_gone(local, buffers);
        (meta, bytes)
    }

    /// Counts a packet out that the record has counted out.
    fn note_gone(&mut self, local: usize, buffers: u32) {
        self.budget.give(buffers);
        self.queued = self.queued.saturating_sub(1);
        let record = &self.records[local];
        if record.kind == QueueKind::Subscriber && record.packets() == 0 {
            self.waiting[record.direction as usize] -= 1;
        }
    }
}
