// SPDX-License-Identifier: Apache-2.0
//! Queue ids below aggregates: see [`crate::parents`].
//!
//! While all aggregates above an id have something left and nobody waits for them, the id stands on the wheel as any
//! other, at the time that its aggregates' clocks give, and what it sends is charged to them. Else it waits in the
//! calendar of the node right above it, that node in the one above, and the root stands on the wheel for when it is
//! its turn. What comes up on the wheel too early, because a clock slipped meanwhile, goes into the calendar, which
//! runs on that clock; so nobody is looked at again and again while he waits.
//!
//! Invariants: as [`super`]; an id is on a wheel or in its node's calendar, never in both.

use aqm::{BitsPerSec, Nanos};

use super::changes::burst_phase;
use super::visit::{Call, End, VISIT_PACKETS};
use super::{Shard, spare_entries};
use crate::change::Change;
use crate::packet::Packet;
use crate::parents::{NODE, NONE, ParentId, ParentSnapshot, ParentUse, behind};
use crate::wheel::{low_half, slot_from, slot_time};

impl<P: Packet> Shard<P> {
    /// One aggregate as this shard sees it; `None`: it is not there.
    pub fn parent(&self, id: ParentId) -> Option<ParentSnapshot> {
        self.tree.snapshot(self.now, id)
    }

    /// Tells by how many ports packets of each direction, down and up, can leave: what aggregates may need on all of them
    /// is taken before packets come. All ports, if nobody says.
    #[must_use]
    pub fn leaving_by(mut self, ports: [usize; 2]) -> Self {
        self.tree.leaves_by(ports);
        self
    }

    /// The use of one aggregate as this shard sees it; `None`: it is not there.
    pub fn parent_use(&self, id: ParentId) -> Option<ParentUse> {
        self.tree.usage(id)
    }

    // -- departures ---------------------------------------------------------------------------------------------

    /// Whether the port and all aggregates above let a packet of an id go.
    #[inline]
    pub(super) fn lets_go(&mut self, call: &Call, local: usize) -> bool {
        let node = self.records[local].node;
        (node == NONE || self.all_pay(node, call.now))
            && self.lanes[call.lane].admits(&self.options.ports[call.lane], call.now)
    }

    #[inline(never)]
    fn all_pay(&mut self, node: u32, now: Nanos) -> bool {
        self.tree.all_pay(node, now)
    }

    /// Serves an id below an aggregate that came up on the wheel. Apart, so that who has none pays for none.
    #[inline(never)]
    pub(super) fn visit_below(&mut self, call: &Call, local: usize, slot: u64, out: &mut Vec<P>) {
        let at = slot_time(slot);
        let node = self.records[local].node;
        if let Some(slips) = self.tree.quiet(node, call.now)
            && self.records[local].packets() == 1
            && let Some(packet) = self.depart_lone(&call.behind(slips), local, behind(at, slips))
        {
            return out.push(packet);
        }
        self.tree.keep_up(node, call.now, call.virtual_now);
        let slips = self.tree.slips(node);
        let time = behind(at, slips);
        if self.records[local].shaper.due() > time || !self.tree.is_clear(node, call.now, at) {
            return self.seat(call.now, at, local);
        }
        let call = &call.behind(slips);
        if self.records[local].packets() == 1
            && let Some(packet) = self.depart_lone(call, local, time)
        {
            return out.push(packet);
        }
        let end = self.serve(call, local, time, out);
        match end {
            End::Empty | End::Move(_) => {}
            End::Wait | End::Again => self.seat(call.now, at, local),
            End::Later => self.schedule(local, slot + 1),
        }
        self.conclude(call.now, local, end);
    }

    /// What is to do after a visit but to put the id somewhere on its own lane.
    fn conclude(&mut self, now: Nanos, local: usize, end: End) {
        match end {
            End::Empty => {
                let (record, warm) = self.records.both_mut(local);
                if let Some(params) = self.options.profiles.get(record.profile) {
                    params.discipline.drained(warm.aqm_mut());
                }
            }
            End::Wait | End::Again | End::Later => {}
            End::Move(to) => {
                self.change_lane(now, local, to);
                self.seat_again(now, local);
            }
        }
        self.watch(local);
    }

    /// Serves a root that came up on the wheel.
    #[inline(never)]
    pub(super) fn visit_node(&mut self, call: &Call, root: u32, out: &mut Vec<P>) {
        let lane = &mut self.lanes[call.lane];
        let slot = lane.wheel.current();
        if self.tree.armed(root) != Some(low_half(slot)) || self.tree.lane(root) != call.lane {
            lane.stale = lane.stale.saturating_sub(1);
            return;
        }
        self.tree.set_armed(root, None);
        let at = slot_time(slot);
        self.serve_node(call, root, at, out);
        // its place may be another node's by now
        if self.tree.outer(root) == NONE
            && self.tree.lane(root) == call.lane
            && let Some(due) = self.tree.turn(root, call.now, at)
        {
            self.arm_root(root, slot_from(due));
        }
    }

    /// Sends what a node has due when the clock above it shows `at`. Whoever calls puts the node back.
    fn serve_node(&mut self, call: &Call, node: u32, at: Nanos, out: &mut Vec<P>) {
        let made = self.tree.made();
        self.tree.keep_up(node, call.now, call.virtual_now);
        for _ in 0..VISIT_PACKETS {
            if self.tree.made() != made {
                return;
            }
            // first, so that the clock slips also where another place always pays before this one
            let Some(slot) = self.tree.serve(node, call.now, at) else { return };
            if out.len() >= call.limit || !self.tree.all_pay(node, call.now) {
                return;
            }
            if !self.lanes[call.lane].admits(&self.options.ports[call.lane], call.now) {
                return;
            }
            let Some(entry) = self.tree.take(node, slot) else { return };
            let time = slot_time(slot);
            if entry & NODE == 0 {
                self.serve_parked(call, node, entry as usize, time, out);
                continue;
            }
            let inner = entry & !NODE;
            self.serve_node(call, inner, time, out);
            // its place may be another node's by now, which stands where it should
            if self.tree.outer(inner) == node
                && !self.tree.is_placed(entry)
                && let Some(due) = self.tree.turn(inner, call.now, time)
            {
                self.tree.put(node, entry, due, time);
            }
        }
    }

    /// Serves an id whose turn it is in its node's calendar.
    fn serve_parked(&mut self, call: &Call, node: u32, local: usize, time: Nanos, out: &mut Vec<P>) {
        self.records[local].scheduled = false;
        let slips = self.tree.slips(node);
        let call = &call.behind(slips);
        if self.records[local].packets() == 1
            && let Some(packet) = self.depart_lone(call, local, time)
        {
            return out.push(packet);
        }
        let end = self.serve(call, local, time, out);
        if !matches!(end, End::Empty | End::Move(_)) {
            let at = Nanos(time.0.wrapping_add(slips));
            if matches!(end, End::Wait) && self.tree.is_clear(node, call.now, at) {
                self.stand(local, slips);
            } else {
                // whoever serves the node puts it back for this
                self.park(local, time);
            }
        }
        self.conclude(call.now, local, end);
    }

    // -- places -------------------------------------------------------------------------------------------------

    /// Puts an id that stands nowhere on the wheel or into its node's calendar. `at`: its lane's time.
    fn seat(&mut self, now: Nanos, at: Nanos, local: usize) {
        let node = self.records[local].node;
        if self.tree.is_clear(node, now, at) {
            let slips = self.tree.slips(node);
            return self.stand(local, slips);
        }
        let time = self.tree.time(node, at);
        self.park(local, time);
        self.arm(now, at, node);
    }

    /// An idle id below an aggregate comes back, at its node's time; `at`: its lane's. Apart, as [`Self::visit_below`].
    #[inline(never)]
    pub(super) fn join_below(&mut self, now: Nanos, at: Nanos, local: usize) {
        let node = self.records[local].node;
        let quiet = self.tree.quiet(node, now);
        let time = if let Some(slips) = quiet {
            behind(at, slips)
        } else {
            let lane = usize::from(self.records[local].lane);
            let clock = self.lanes[lane].virtual_at(&self.options.ports[lane], now);
            self.tree.keep_up(node, now, clock);
            self.tree.time(node, at)
        };
        let record = &mut self.records[local];
        if self.links {
            record.shaper.join_link(time);
        } else {
            record.shaper.join(time);
        }
        match quiet {
            _ if record.scheduled => {}
            Some(slips) => self.stand(local, slips),
            None => self.seat(now, at, local),
        }
    }

    /// As [`Self::seat`], where its lane's time is to be found out.
    pub(super) fn seat_again(&mut self, now: Nanos, local: usize) {
        let lane = usize::from(self.records[local].lane);
        let at = self.lanes[lane].time(&self.options.ports[lane], now);
        self.seat(now, at, local);
    }

    /// On the wheel, for when its aggregates' clocks show its time if nothing slips meanwhile.
    fn stand(&mut self, local: usize, slips: u64) {
        let due = Nanos(self.records[local].shaper.due().0.wrapping_add(slips));
        self.schedule(local, slot_from(due));
    }

    /// Into its node's calendar.
    #[expect(clippy::cast_possible_truncation, reason = "an id's place is below 2^31")]
    fn park(&mut self, local: usize, time: Nanos) {
        let (record, warm) = self.records.both_mut(local);
        // what it left behind on the wheel stands for it no more
        warm.slot = low_half(self.lanes[usize::from(record.lane)].wheel.current()).wrapping_sub(1);
        record.scheduled = true;
        self.tree.put(record.node, local as u32, record.shaper.due(), time);
    }

    /// Whether an id is in its node's calendar.
    #[expect(clippy::cast_possible_truncation, reason = "an id's place is below 2^31")]
    fn is_parked(&self, local: usize) -> bool {
        let record = &self.records[local];
        record.scheduled && record.node != NONE && self.tree.is_placed(local as u32)
    }

    /// Out of its node's calendar; whether it was in it.
    #[expect(clippy::cast_possible_truncation, reason = "an id's place is below 2^31")]
    pub(super) fn unpark(&mut self, local: usize) -> bool {
        if !self.is_parked(local) {
            return false;
        }
        let record = &mut self.records[local];
        let node = record.node;
        record.scheduled = false;
        self.tree.unlink_from(node, local as u32);
        self.let_rest(node);
        true
    }

    /// Nodes for which nobody waits any more stand nowhere, from one up to its root.
    fn let_rest(&mut self, mut node: u32) {
        while node != NONE && !self.tree.waits(node) {
            let outer = self.tree.outer(node);
            if outer == NONE {
                return self.disarm(node);
            }
            self.tree.unlink(NODE | node);
            node = outer;
        }
    }

    /// Sees to it that it is a node's turn when it must be: in the calendar above, in that of the one above that, and
    /// on the wheel. `at`: the time of its lane.
    fn arm(&mut self, now: Nanos, at: Nanos, node: u32) {
        let mut place = node;
        while place != NONE {
            let outer = self.tree.outer(place);
            let above = if outer == NONE { at } else { self.tree.time(outer, at) };
            let Some(due) = self.tree.turn(place, now, above) else { return };
            let slot = slot_from(due);
            if outer == NONE {
                return self.arm_root(place, slot);
            }
            if self.tree.stands_by(place, slot) {
                return;
            }
            self.tree.unlink(NODE | place);
            self.tree.put(outer, NODE | place, due, above);
            place = outer;
        }
    }

    /// Puts a root on the wheel, unless it stands there early enough. A later entry stays behind and is passed over.
    fn arm_root(&mut self, root: u32, slot: u64) {
        let spare = spare_entries(self.records.len());
        let lane = &mut self.lanes[self.tree.lane(root)];
        if let Some(armed) = self.tree.armed(root) {
            let current = lane.wheel.current();
            let stands = current + u64::from(armed.wrapping_sub(low_half(current)));
            if stands <= slot || lane.stale as usize >= spare {
                return;
            }
            lane.stale += 1;
        }
        let slot = lane.wheel.insert(NODE | root, slot);
        self.tree.set_armed(root, slot);
    }

    // -- changes ------------------------------------------------------------------------------------------------

    /// Applies a change of an aggregate.
    pub(super) fn change_parent(&mut self, now: Nanos, change: Change) {
        let done = match change {
            Change::Parent { id, spec } => match self.tree.set(now, id, &spec) {
                Some(moved) => {
                    self.follow_parent(now, id, moved);
                    true
                }
                None => false,
            },
            Change::RemoveParent { id } => self.tree.remove(id),
            Change::Create { .. } | Change::Update { .. } | Change::Remove { .. } => false,
        };
        self.misdirected += u64::from(!done);
    }

    /// An aggregate has another rate or, where it has `moved`, another one above it.
    fn follow_parent(&mut self, now: Nanos, id: ParentId, moved: bool) {
        for direction in crate::Direction::BOTH {
            let mut node = self.tree.first_of(id, direction);
            while node != NONE {
                let lane = self.tree.lane(node);
                let at = self.lanes[lane].time(&self.options.ports[lane], now);
                if moved {
                    let outer = self.tree.outer(node);
                    self.tree.unlink(NODE | node);
                    self.let_rest(outer);
                    self.disarm(node);
                    self.tree.reparent(now, at, node);
                }
                self.arm(now, at, node);
                node = self.tree.next_of(node);
            }
        }
    }

    /// A root leaves the wheel. Its entry is passed over when it comes up, or taken out if there is none to spare.
    fn disarm(&mut self, root: u32) {
        let Some(armed) = self.tree.armed(root) else { return };
        self.tree.set_armed(root, None);
        let spare = spare_entries(self.records.len());
        let lane = &mut self.lanes[self.tree.lane(root)];
        if (lane.stale as usize) < spare {
            lane.stale += 1;
            return;
        }
        let current = lane.wheel.current();
        let slot = current + u64::from(armed.wrapping_sub(low_half(current)));
        let taken = lane.wheel.remove(NODE | root, slot);
        debug_assert!(taken, "an armed root stands on the wheel");
    }

    /// Puts an id below an aggregate, or below none; queue and wait stay.
    pub(super) fn put_below(&mut self, now: Nanos, local: usize, parent: Option<ParentId>) {
        let record = &self.records[local];
        let (node, lane, direction) = (record.node, record.lane, record.direction);
        let old = if node == NONE { None } else { self.tree.parent_of(node) };
        if old == parent {
            return;
        }
        let (port, state) = (&self.options.ports[usize::from(lane)], &mut self.lanes[usize::from(lane)]);
        let (at, clock) = (state.time(port, now), state.virtual_at(port, now));
        self.tree.follow_all(node, now, clock);
        let from = if node == NONE { at } else { self.tree.time(node, at) };
        let was = record.scheduled;
        self.unschedule(local);
        self.let_go_of_parent(now, local);
        let node = parent.and_then(|id| self.tree.attach(now, local, id, direction, lane)).unwrap_or(NONE);
        self.tree.follow_all(node, now, clock);
        let to = if node == NONE { at } else { self.tree.time(node, at) };
        let record = &mut self.records[local];
        record.node = node;
        record.shaper.change_clock(from, to);
        // an entry that could not be left behind is looked at when it comes up
        if was && !record.scheduled {
            if node == NONE {
                let slot = slot_from(record.shaper.due());
                self.schedule(local, slot);
            } else {
                self.seat(now, at, local);
            }
        }
    }

    /// An id that is parked nowhere leaves its aggregate. For nodes without children nobody waits: they stand nowhere.
    pub(super) fn let_go_of_parent(&mut self, now: Nanos, local: usize) {
        let node = core::mem::replace(&mut self.records[local].node, NONE);
        if node != NONE {
            self.tree.detach(now, node);
        }
    }

    /// Takes the wait of an id below an aggregate over to another port's clock.
    #[cold]
    #[inline(never)]
    pub(super) fn change_lane_below(&mut self, now: Nanos, local: usize, lane: usize) {
        let record = &self.records[local];
        let parent = self.tree.parent_of(record.node);
        self.put_below(now, local, None);
        // below no aggregate there is no more to it
        self.change_lane(now, local, lane);
        self.put_below(now, local, parent);
    }

    /// Another rate of an id below an aggregate: see [`Self::set_rate`].
    pub(super) fn set_rate_below(&mut self, now: Nanos, local: usize, rate: BitsPerSec) {
        let record = &mut self.records[local];
        let mtu = self.options.profiles.get(record.profile).map_or(0, |params| params.mtu);
        let lane = usize::from(record.lane);
        let (lane, port) = (&mut self.lanes[lane], &self.options.ports[lane]);
        lane.settle(port, now);
        lane.time(port, now);
        let time = behind(lane.virtual_at(port, now), self.tree.slips(record.node));
        let before = record.shaper.due();
        record.shaper.set_rate(rate, time, mtu);
        record.shaper.grant_burst(mtu, burst_phase(self.options.seed, local));
        let hurried = record.shaper.due() < before;
        if self.records[local].scheduled && (hurried || self.is_parked(local)) {
            self.unschedule(local);
            if !self.records[local].scheduled {
                self.seat_again(now, local);
            }
        }
        self.assign(local);
        self.watch(local);
    }

    /// Takes all ids below a root off, whose link is down.
    pub(super) fn clear_root(&mut self, now: Nanos, root: u32, slot: u64) {
        if self.tree.armed(root) == Some(low_half(slot)) {
            self.tree.set_armed(root, None);
            self.clear_node(now, self.tree.lane(root), root);
        }
    }

    /// A node that its last child leaves may come back at once, on the lane that the child goes to.
    fn clear_node(&mut self, now: Nanos, lane: usize, node: u32) {
        while self.tree.lane(node) == lane
            && let Some(entry) = self.tree.take_any(node)
        {
            if entry & NODE != 0 {
                self.clear_node(now, lane, entry & !NODE);
                continue;
            }
            let local = entry as usize;
            self.records[local].scheduled = false;
            self.drop_dead(local);
            self.resettle(now, local);
        }
    }
}

impl Call {
    /// The same on a clock that lies behind.
    fn behind(&self, slips: u64) -> Self {
        Self { virtual_now: behind(self.virtual_now, slips), ..*self }
    }
}
