// SPDX-License-Identifier: Apache-2.0
//! Changes: queue ids come, change and go; links go down and come up.
//!
//! A rate change keeps queues and AQM state, rescales the pending departure and drops nothing above a new limit.
//! What waits is dropped and counted when its id is removed or its link goes down.

use aqm::{BitsPerSec, Nanos, Queue};

use super::record::{LIVE, Record, SLOWED};
use super::stations::Stations;
use super::tally::Whose;
use super::{CONTROL_PART, CONTROL_RATE, Reserved, Shard, TARGET_SHIFT, UNKNOWN_RATE, index};
use crate::change::{Change, QueueKind, QueueSpec};
use crate::counters::DropReason;
use crate::discipline::State;
use crate::packet::{Packet, PortId, QueueId};
use crate::parents::{NODE, NONE};
use crate::port::PortShared;
use crate::shaper::Shaper;
use crate::wheel::{low_half, slot_from};

impl<P: Packet> Shard<P> {
    /// Applies a change; one that makes no sense (an id or a profile that is not there) does nothing but count
    /// as misdirected.
    pub fn apply(&mut self, now: Nanos, change: Change) {
        self.now = self.now.max(now);
        let Some(id) = change.queue_id() else {
            return self.change_parent(now, change);
        };
        let Some((local, live)) = self.local(id).and_then(|at| Some((at, self.records.get(at)?.is_live())))
        else {
            self.misdirected += 1;
            return;
        };
        match change {
            Change::Create { spec, .. } | Change::Update { spec, .. } if !self.makes_sense(&spec) => {
                self.misdirected += 1;
            }
            Change::Create { spec, .. } if !live => self.create(now, id, local, &spec),
            Change::Create { spec, .. } | Change::Update { spec, .. } if live => {
                self.update(now, id, local, &spec);
            }
            Change::Remove { .. } if live => self.remove(local),
            _ => self.misdirected += 1,
        }
    }

    fn makes_sense(&self, spec: &QueueSpec) -> bool {
        self.options.profiles.get(spec.profile).is_some()
            && usize::from(spec.egress_hint.0) < self.lanes.len()
            && self.tree.serves(spec.parent)
            && (spec.parent.is_none() || spec.kind == QueueKind::Subscriber)
    }

    fn create(&mut self, now: Nanos, id: QueueId, local: usize, spec: &QueueSpec) {
        let Some(params) = self.options.profiles.get(spec.profile) else {
            return;
        };
        // an entry of the id's former life may still be on a wheel: see `unschedule`
        let slot = self.records.warm(local).slot;
        let Record { scheduled, lane, .. } = self.records[local];
        let lane = if scheduled { lane } else { spec.egress_hint.0 };
        let rate = self.rate_of(spec);
        self.tally.reset(&mut self.records, local);
        let phase = phase(self.options.seed, id);
        self.records.set_aqm(local, params.discipline.state(phase));
        let (record, warm) = self.records.both_mut(local);
        record.shaper = Shaper::new(rate);
        record.shaper.grant_burst(params.mtu, burst_phase(self.options.seed, local));
        warm.limit_bytes = params.limit_bytes(rate);
        record.profile = spec.profile;
        (record.direction, record.kind) = (spec.direction, spec.kind);
        (record.lane, warm.slot, record.scheduled) = (lane, slot, scheduled);
        record.set(LIVE, true);
        self.put_below(now, local, spec.parent);
        self.manage(local, phase);
        let _ = self.options.ring_drops.take(id);
        self.assign(local);
        self.reserve(local, spec);
    }

    /// Control and unknown ids are few and looked after by name.
    fn reserve(&mut self, local: usize, spec: &QueueSpec) {
        if spec.kind != QueueKind::Subscriber && self.reserved.len() < self.reserved.capacity() {
            let control = spec.kind == QueueKind::Control;
            let stations = control.then(|| Stations::new(self.rate_of(spec), self.options.seed));
            let (port, open) = (spec.egress_hint, spec.rate.0 == 0);
            self.reserved.push(Reserved { local, port, open, stations });
        }
    }

    fn update(&mut self, now: Nanos, id: QueueId, local: usize, spec: &QueueSpec) {
        let record = &self.records[local];
        if record.kind != spec.kind || record.direction != spec.direction {
            self.remove(local);
            return self.create(now, id, local, spec);
        }
        self.put_below(now, local, spec.parent);
        if self.records[local].profile != spec.profile {
            self.change_profile(id, local, spec.profile);
        }
        for reserved in &mut self.reserved {
            if reserved.local == local {
                reserved.open = spec.rate.0 == 0;
            }
        }
        let rate = self.rate_of(spec);
        self.set_rate(now, local, rate);
    }

    /// Another profile: packets stay in the queues they are in, counted as the new profile counts them. Those of C go
    /// through the hands of a managed discipline in the order they came.
    fn change_profile(&mut self, id: QueueId, local: usize, profile: u16) {
        let phase = phase(self.options.seed, id);
        let moved = self.unmanage(local, profile);
        let record = &mut self.records[local];
        let profiles = &self.options.profiles;
        let (Some(old), Some(new)) = (profiles.get(record.profile), profiles.get(profile)) else {
            return;
        };
        record.profile = profile;
        let state = *self.records.warm(local).aqm();
        self.records.set_aqm(local, new.discipline.adopt(state, phase));
        if old.overhead != new.overhead {
            self.records.recount(local, new);
        }
        if old.place.map(|place| place.bank) != new.place.map(|place| place.bank) {
            if let Some(bank) = old.place.and_then(|place| self.options.banks.get(place)) {
                bank.clear(index(local));
            }
            self.records[local].watched = false;
        }
        self.manage(local, phase);
        self.put_back(local, moved);
    }

    /// Another rate: what is left of a wait is rescaled, and nothing above the new limit is dropped.
    fn set_rate(&mut self, now: Nanos, local: usize, rate: BitsPerSec) {
        let (record, warm) = self.records.both_mut(local);
        let Some(params) = self.options.profiles.get(record.profile) else {
            return;
        };
        warm.limit_bytes = params.limit_bytes(rate);
        if record.kind == QueueKind::Control {
            record.shaper.set_rate(rate, now, params.mtu);
            for reserved in self.reserved.iter_mut().filter(|reserved| reserved.local == local) {
                reserved.stations.iter_mut().for_each(|stations| stations.set_rate(rate));
            }
            return;
        }
        if record.node != NONE {
            return self.set_rate_below(now, local, rate);
        }
        let (lane, mtu) = (usize::from(record.lane), params.mtu);
        let (lane, port) = (&mut self.lanes[lane], &self.options.ports[lane]);
        // a stall that the clock has yet to slip by would become a wait at this rate, and grow with the next change
        lane.settle(port, now);
        lane.time(port, now);
        // not the wheel's time: a wait that is only the wheel's lag must not grow with the pace
        let time = lane.virtual_at(port, now);
        record.shaper.set_rate(rate, time, mtu);
        record.shaper.grant_burst(mtu, burst_phase(self.options.seed, local));
        if record.scheduled {
            self.hurry(local);
        }
        self.assign(local);
        self.watch(local);
    }

    /// Moves an id that is due earlier than its place on the wheel.
    fn hurry(&mut self, local: usize) {
        let record = &self.records[local];
        let due = slot_from(record.shaper.due());
        let current = self.lanes[usize::from(record.lane)].wheel.current();
        let ahead = u64::from(self.records.warm(local).slot.wrapping_sub(low_half(current)));
        if due < current + ahead {
            self.unschedule(local);
            if !self.records[local].scheduled {
                self.schedule(local, due);
            }
        }
    }

    /// Tells the PI bank an id's profile and target.
    pub(super) fn assign(&mut self, local: usize) {
        let (record, warm) = self.records.both_mut(local);
        let Some(params) = self.options.profiles.get(record.profile) else {
            return;
        };
        let Some((place, bank)) = params.place.and_then(|at| Some((at, self.options.banks.get(at)?))) else {
            return;
        };
        let lane = &self.lanes[usize::from(record.lane)];
        let target = params.target(lane.served_below(&self.tree, record.node, record.plan()));
        record.set(SLOWED, lane.is_slowed_below(&self.tree, record.node));
        warm.target = u32::try_from(target.0 >> TARGET_SHIFT).unwrap_or(u32::MAX);
        bank.assign(index(local), place.profile, target);
    }

    /// The id is no longer in use; what waits is dropped as `removed`.
    fn remove(&mut self, local: usize) {
        self.discard_managed(local, DropReason::Removed);
        self.unprotect(local);
        for queue in Queue::BOTH {
            while self.discard(local, queue, DropReason::Removed) {}
        }
        self.unschedule(local);
        self.let_go_of_parent(self.now, local);
        let record = &mut self.records[local];
        record.set(LIVE, false);
        record.watched = false;
        let place = self.options.profiles.get(record.profile).and_then(|params| params.place);
        if let Some(bank) = place.and_then(|place| self.options.banks.get(place)) {
            bank.clear(index(local));
        }
        self.reserved.retain(|reserved| reserved.local != local);
    }

    /// Drops the head of a queue, counted; whether there was one.
    pub(super) fn discard(&mut self, local: usize, queue: Queue, reason: DropReason) -> bool {
        let Some(params) = self.options.profiles.get(self.records[local].profile) else {
            return false;
        };
        let Some((packet, meta, _)) = self.records.pop(local, queue, params) else {
            return false;
        };
        let record = &self.records[local];
        self.budget.give(packet.buffers());
        self.queued = self.queued.saturating_sub(1);
        if record.kind == QueueKind::Subscriber && record.packets() == 0 {
            self.waiting[record.direction as usize] -= 1;
        }
        if record.kind == QueueKind::Control
            && let Some(lane) = self.lanes.get_mut(usize::from(meta.egress.0))
        {
            lane.control = lane.control.saturating_sub(1);
        }
        let whose = Whose { local, direction: record.direction, queue };
        self.tally.dropped(&mut self.records, whose, reason, meta.ecn);
        true
    }

    /// What an id's rate is: control and unknown traffic without one of their own take it from their port.
    fn rate_of(&self, spec: &QueueSpec) -> BitsPerSec {
        let port = self.options.ports.get(usize::from(spec.egress_hint.0)).and_then(PortShared::rate);
        match spec.kind {
            _ if spec.rate.0 > 0 => spec.rate,
            QueueKind::Control => {
                port.map_or(CONTROL_RATE, |rate| BitsPerSec((rate.0 / CONTROL_PART).max(1)))
            }
            QueueKind::Subscriber | QueueKind::Unknown => port.unwrap_or(UNKNOWN_RATE),
        }
    }

    /// A port's rate has changed: so have the rates taken from it.
    pub(super) fn follow_port_rate(&mut self, now: Nanos, port: PortId) {
        for at in 0..self.reserved.len() {
            let Reserved { local, port: of, open, .. } = self.reserved[at];
            if open && of == port {
                let record = &self.records[local];
                let spec = QueueSpec {
                    rate: BitsPerSec(0),
                    profile: record.profile,
                    direction: record.direction,
                    egress_hint: port,
                    kind: record.kind,
                    parent: None,
                };
                let rate = self.rate_of(&spec);
                self.set_rate(now, local, rate);
            }
        }
    }

    /// Link down: what is queued for `port` is dropped as `link`, and so is what arrives until it is up again.
    /// Packets for it that wait behind one for another port are dropped when their turn comes, if the link is
    /// still down.
    pub fn set_link(&mut self, now: Nanos, port: PortId, up: bool) {
        self.now = self.now.max(now);
        let at = usize::from(port.0);
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        let was_up = core::mem::replace(&mut lane.up, up);
        if was_up && !up {
            self.clear_lane(now, at);
            for at in 0..self.reserved.len() {
                let local = self.reserved[at].local;
                if self.records[local].kind == QueueKind::Control {
                    self.drop_dead(local);
                }
            }
        }
    }

    /// Takes every id off a wheel whose link is down.
    fn clear_lane(&mut self, now: Nanos, lane: usize) {
        while let Some((slot, id)) = self.lanes[lane].wheel.take_any() {
            if id & NODE != 0 {
                self.clear_root(now, id & !NODE, slot);
                continue;
            }
            let local = id as usize;
            if !self.records.is_at(local, lane, slot) {
                continue;
            }
            self.records[local].scheduled = false;
            self.drop_dead(local);
            self.resettle(now, local);
        }
        self.lanes[lane].stale = 0;
    }

    /// Drops all packets of an id whose link is down.
    pub(super) fn drop_dead(&mut self, local: usize) {
        self.drop_dead_managed(local);
        let managed = self.records.warm(local).aqm().is_managed();
        for queue in Queue::BOTH.into_iter().filter(|&queue| queue == Queue::L4s || !managed) {
            for _ in 0..self.records[local].packets_in(queue) {
                let egress = self.records.front(local, queue).map(|meta| usize::from(meta.egress.0));
                let alive = egress.and_then(|egress| self.lanes.get(egress)).is_some_and(|lane| lane.up);
                if alive {
                    self.rotate(local, queue);
                } else {
                    self.discard(local, queue, DropReason::Link);
                }
            }
        }
    }

    /// Takes the head of a queue to its tail.
    fn rotate(&mut self, local: usize, queue: Queue) {
        let Some(params) = self.options.profiles.get(self.records[local].profile) else {
            return;
        };
        if let Some((packet, _, bytes)) = self.records.pop(local, queue, params) {
            self.records.push(local, queue, packet, bytes);
        }
    }

    /// The port by which the next packet leaves; `None`: nothing waits.
    fn next_egress(&mut self, local: usize) -> Option<usize> {
        let record = &self.records[local];
        let lane = usize::from(record.lane);
        let aqm = self.records.warm(local).aqm();
        if let State::Managed(place) = *aqm {
            let next = self.next_managed(local, place)?;
            return Some(self.egress_managed(local, place, next).unwrap_or(lane));
        }
        let params = self.options.profiles.get(record.profile)?;
        let queue = params.discipline.select(aqm, record.l(), record.c())?;
        Some(self.records.front(local, queue).map_or(lane, |meta| meta.egress.0.into()))
    }

    /// Puts an id that stands on no wheel on that of its next packet.
    pub(super) fn resettle(&mut self, now: Nanos, local: usize) {
        let next = self.next_egress(local);
        let (record, warm) = self.records.both_mut(local);
        let Some(params) = self.options.profiles.get(record.profile) else {
            return;
        };
        match next {
            None => params.discipline.drained(warm.aqm_mut()),
            Some(egress) => {
                self.change_lane(now, local, egress);
                if self.records[local].node == NONE {
                    let due = slot_from(self.records[local].shaper.due());
                    self.schedule(local, due);
                } else {
                    self.seat_again(now, local);
                }
            }
        }
        self.watch(local);
    }
}

/// Sixteen of a seed's bits.
#[expect(clippy::cast_possible_truncation, reason = "takes the low bits")]
const fn low_bits(seed: u64) -> u16 {
    seed as u16
}

/// What keeps an id out of step with others, see [`Shaper::grant_burst`].
#[expect(clippy::cast_possible_truncation, reason = "an id's place is below 2^32")]
pub(super) const fn burst_phase(seed: u64, local: usize) -> u16 {
    low_bits(phase(seed, QueueId(local as u32)))
}

/// The seed of an id's phases (SplitMix64).
const fn phase(seed: u64, id: QueueId) -> u64 {
    let mut z = seed.wrapping_add((id.0 as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
