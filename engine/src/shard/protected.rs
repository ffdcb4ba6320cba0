// SPDX-License-Identifier: Apache-2.0
//! Queue protection: packets bound for the L queue of a protected id are judged before they join it (RFC 9957).
//!
//! A sanctioned packet goes to C as if a rule sent it there, so ECT(1) is marked with p_CL. Invariant: an id without
//! protection pays for none: the buckets are in a slab.

use aqm::{Queue, Rule};

use super::{Admitted, Shard};
use crate::discipline::{Discipline, State};
use crate::packet::Packet;
use crate::slab::Slot;

impl<P: Packet> Shard<P> {
    /// A packet comes to an id under queue protection.
    #[inline(never)]
    pub(super) fn accept_protected(&mut self, mut packet: P, mut admitted: Admitted, place: Slot) {
        let mut meta = packet.meta();
        if admitted.whose.queue == Queue::L4s && self.is_sanctioned(&packet, &admitted, place) {
            admitted.whose.queue = Queue::Classic;
            meta.rule = Rule::ForceClassic;
            packet.set_meta(meta);
        }
        self.tally.arrived(&mut self.records, admitted.whose, meta.ecn);
        self.accept(self.now, packet, admitted);
    }

    /// Whether its flow has built too much of the L queue that it would now join.
    fn is_sanctioned(&mut self, packet: &P, admitted: &Admitted, place: Slot) -> bool {
        let record = &self.records[admitted.local];
        let params = self.options.profiles.get(record.profile);
        let Some(Discipline::DualPi2(aqm)) = params.map(|params| &params.discipline) else {
            return false;
        };
        let lane = &self.lanes[usize::from(record.lane)];
        let served = lane.served_below(&self.tree, record.node, record.plan());
        let mut l = record.l();
        l.packets += 1;
        l.bytes = l.bytes.saturating_add(admitted.bytes);
        let native = aqm.native(l, served);
        let flow = packet.flow_key(self.options.flow_seed).flow;
        let delay = served.time(l.bytes.into());
        let protection = self.protections.get_mut(place);
        protection.is_some_and(|protection| protection.judge(flow, self.now, admitted.bytes, native, delay))
    }

    /// Takes protection from an id that may have it.
    pub(super) fn unprotect(&mut self, local: usize) {
        if let State::Protected(aqm, place) = *self.records.warm(local).aqm() {
            self.protections.remove(place);
            self.records.set_aqm(local, State::DualPi2(aqm));
        }
    }
}
