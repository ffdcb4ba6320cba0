// SPDX-License-Identifier: Apache-2.0
//! One tin: its flow queues, whose turn it is among them, and its clock.
//!
//! A flow is sparse until its first quantum is used, then bulk; found empty it decays until its COBALT rests. Lists are
//! rings of 16-bit indices in both directions, since a decaying flow that gets a packet leaves from the middle.
//! Invariants: a flow with packets is on the new or the old list; `sparse` and `bulk` count those two lists.

use super::hosts::{Hosts, Pair};
use crate::backlogs::Backlogs;
use crate::cobalt::{Cobalt, CobaltParams, Wanted};
use crate::recur::Dice;
use crate::{FlowKey, Leaving, Nanos, Pace};

/// Queues a tin (`CAKE_QUEUES`).
pub(super) const QUEUES: u32 = 1024;
/// Queues a flow may be hashed to (`CAKE_SET_WAYS`).
pub(super) const WAYS: u32 = 8;

const NONE: u16 = u16::MAX;
const MAX_QUANTUM: u64 = 1514;
const MIN_QUANTUM: u64 = 300;
/// With more bulk flows under host fairness the quantum is not cut to [`MAX_QUANTUM`].
const MANY: u16 = 64;

/// What a flow counts as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Set {
    #[default]
    Out,
    Sparse,
    /// Counts as sparse, but waits in the old list without a packet.
    SparseWait,
    Bulk,
    Decaying,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    cobalt: Cobalt,
    tag: u32,
    deficit: i32,
    hosts: Pair,
    before: u16,
    after: u16,
    set: Set,
}

const _: () = assert!(size_of::<Flow>() <= 56);

/// A list of flows; each in one list at most.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u16,
    tail: u16,
}

impl List {
    const EMPTY: Self = Self { head: NONE, tail: NONE };

    fn push(&mut self, flows: &mut [Flow], at: u16) {
        flows[usize::from(at)].before = self.tail;
        flows[usize::from(at)].after = NONE;
        match self.tail {
            NONE => self.head = at,
            tail => flows[usize::from(tail)].after = at,
        }
        self.tail = at;
    }

    fn unlink(&mut self, flows: &mut [Flow], at: u16) {
        let Flow { before, after, .. } = flows[usize::from(at)];
        match before {
            NONE => self.head = after,
            before => flows[usize::from(before)].after = after,
        }
        match after {
            NONE => self.tail = before,
            after => flows[usize::from(after)].before = before,
        }
    }
}

/// What came of a turn.
pub(super) enum Turn {
    /// Serve this queue.
    Serve(u32),
    /// The flow was empty: choose again.
    Empty,
}

/// A tin.
#[derive(Debug)]
pub(super) struct Tin {
    flows: Box<[Flow]>,
    hosts: Option<Hosts>,
    new: List,
    old: List,
    decaying: List,
    sparse: u16,
    bulk: u16,
    /// Packets.
    pub(super) waiting: u32,
    /// Number of its first queue.
    base: u32,
    /// Its share of the rate.
    shift: u32,
    pace: Pace,
    params: CobaltParams,
    quantum: u32,
    /// The same, not cut to [`MAX_QUANTUM`].
    uncut: u32,
    /// What division left over of quanta, in 65536ths of a byte.
    rest: u64,
    /// Until when its share of the rate is used.
    due: Nanos,
    /// Packets that put their flow in a queue in use by another.
    collisions: u64,
}

impl Tin {
    pub(super) fn new(shift: u32, base: u32, host_fairness: bool) -> Self {
        Self {
            flows: vec![Flow::default(); QUEUES as usize].into_boxed_slice(),
            hosts: host_fairness.then(Hosts::new),
            new: List::EMPTY,
            old: List::EMPTY,
            decaying: List::EMPTY,
            sparse: 0,
            bulk: 0,
            waiting: 0,
            base,
            shift,
            pace: Pace::default(),
            params: CobaltParams::default(),
            quantum: 0,
            uncut: 0,
            rest: 0,
            due: Nanos::ZERO,
            collisions: 0,
        }
    }

    /// `cake_set_rate()` with this tin's share: a 4096th of a second as quantum, within its limits.
    #[expect(clippy::cast_possible_truncation, reason = "cut to 2^30 at most")]
    pub(super) fn set_pace(&mut self, pace: Pace, rtt: Nanos, mtu: u32) {
        self.pace = Pace(pace.0.saturating_mul(1 << self.shift));
        self.params = CobaltParams::new(rtt, mtu, self.pace);
        let bytes = (244_141_u128 << 32) / u128::from(self.pace.0.max(1));
        let bytes = bytes.clamp(u128::from(MIN_QUANTUM), 1 << 30) as u64;
        self.quantum = bytes.min(MAX_QUANTUM) as u32;
        self.uncut = if pace.0 == 0 { self.quantum } else { bytes as u32 };
    }

    /// Whether a flow of its is to be looked at.
    pub(super) const fn is_active(&self) -> bool {
        self.sparse > 0 || self.bulk > 0
    }

    pub(super) const fn due(&self) -> Nanos {
        self.due
    }

    /// A packet comes: its queue, which has a place in the lists from now on.
    pub(super) fn arrive(&mut self, now: Nanos, key: &FlowKey) -> u32 {
        if self.waiting == 0 {
            self.due = self.due.max(now);
        }
        self.waiting += 1;
        let at = self.find(key);
        let flow = &mut self.flows[usize::from(at)];
        match flow.set {
            Set::Out | Set::Decaying => {
                if flow.set == Set::Decaying {
                    self.decaying.unlink(&mut self.flows, at);
                } else {
                    flow.cobalt = Cobalt::default();
                }
                self.new.push(&mut self.flows, at);
                self.flows[usize::from(at)].set = Set::Sparse;
                self.sparse += 1;
                let quantum = self.quantum / self.load(at);
                self.flows[usize::from(at)].deficit = quantum.cast_signed();
            }
            Set::SparseWait => {
                self.sparse -= 1;
                self.become_bulk(at);
            }
            Set::Sparse | Set::Bulk => {}
        }
        self.base + u32::from(at)
    }

    /// `cake_hash()`: the queue with the flow's tag, else an unused one of its set, else a shared one.
    #[expect(clippy::cast_possible_truncation, reason = "below QUEUES")]
    fn find(&mut self, key: &FlowKey) -> u16 {
        let tag = key.flow;
        let direct = tag % QUEUES;
        let flow = &self.flows[direct as usize];
        if flow.tag == tag && flow.set != Set::Out {
            return direct as u16;
        }
        let ways = || (0..WAYS).map(|way| direct - direct % WAYS + (direct + way) % WAYS);
        let mine = ways().find(|&at| self.flows[at as usize].tag == tag);
        let at = mine.or_else(|| ways().find(|&at| self.flows[at as usize].set == Set::Out));
        if at.is_none() {
            self.collisions += 1;
        }
        let at = at.unwrap_or(direct);
        let flow = &mut self.flows[at as usize];
        // hosts are looked up anew unless the queue is this flow's and in use
        let known = flow.tag == tag && flow.set != Set::Out;
        flow.tag = tag;
        if let Some(hosts) = &mut self.hosts
            && !known
        {
            if flow.set == Set::Bulk {
                hosts.take(flow.hosts);
            }
            flow.hosts = hosts.find(key);
            if flow.set == Set::Bulk {
                hosts.add(flow.hosts);
            }
        }
        at as u16
    }

    fn load(&self, at: u16) -> u32 {
        self.hosts.as_ref().map_or(1, |hosts| hosts.load(self.flows[usize::from(at)].hosts))
    }

    fn become_bulk(&mut self, at: u16) {
        self.bulk += 1;
        let flow = &mut self.flows[usize::from(at)];
        flow.set = Set::Bulk;
        if let Some(hosts) = &mut self.hosts {
            hosts.add(flow.hosts);
        }
    }

    /// Looks for the flow whose turn it is. `probe`: a decaying flow is to be looked at first.
    pub(super) fn turn(&mut self, backlogs: &Backlogs, now: Nanos, probe: &mut bool) -> Turn {
        loop {
            let heads = if *probe {
                [self.decaying.head, self.new.head, self.old.head]
            } else {
                [self.new.head, self.old.head, self.decaying.head]
            };
            *probe = false;
            let Some(at) = heads.into_iter().find(|&head| head != NONE) else { return Turn::Empty };
            let queue = self.base + u32::from(at);
            let held = backlogs.packets(queue);
            if self.flows[usize::from(at)].deficit <= 0 {
                self.refill(at, held > 0);
            } else if held > 0 {
                return Turn::Serve(queue);
            } else {
                self.retire(at, now);
                return Turn::Empty;
            }
        }
    }

    /// The flow's quantum is used: it gets another and goes to the end of the old list.
    #[expect(clippy::cast_possible_truncation, reason = "a quantum of 2^30 at most")]
    fn refill(&mut self, at: u16, holds: bool) {
        let list = self.list_of(at);
        list.0.unlink(list.1, at);
        self.old.push(&mut self.flows, at);
        if self.flows[usize::from(at)].set == Set::Sparse {
            if holds {
                self.sparse -= 1;
                self.become_bulk(at);
            } else {
                self.flows[usize::from(at)].set = Set::SparseWait;
            }
        }
        let many = self.hosts.is_some() && self.bulk > MANY;
        let quantum = if many { self.uncut } else { self.quantum };
        let scaled = (u64::from(quantum) << 16) / u64::from(self.load(at)) + self.rest;
        self.rest = scaled & 0xffff;
        let flow = &mut self.flows[usize::from(at)];
        flow.deficit = flow.deficit.saturating_add_unsigned((scaled >> 16) as u32);
    }

    /// The flow is empty: it decays, or leaves the lists if there is nothing to remember.
    fn retire(&mut self, at: u16, now: Nanos) {
        let list = self.list_of(at);
        list.0.unlink(list.1, at);
        let flow = &mut self.flows[usize::from(at)];
        flow.cobalt.empty(&self.params, now);
        match flow.set {
            Set::Bulk => {
                self.bulk -= 1;
                if let Some(hosts) = &mut self.hosts {
                    hosts.take(flow.hosts);
                }
            }
            Set::Sparse | Set::SparseWait => self.sparse -= 1,
            Set::Decaying | Set::Out => {}
        }
        if flow.cobalt.rests(now) {
            flow.set = Set::Out;
        } else {
            flow.set = Set::Decaying;
            self.decaying.push(&mut self.flows, at);
        }
    }

    /// The list that a flow at the head of one is on, with the flows.
    fn list_of(&mut self, at: u16) -> (&mut List, &mut [Flow]) {
        let list = if self.new.head == at {
            &mut self.new
        } else if self.old.head == at {
            &mut self.old
        } else {
            &mut self.decaying
        };
        (list, &mut self.flows)
    }

    fn flow(&mut self, queue: u32) -> &mut Flow {
        &mut self.flows[(queue - self.base) as usize]
    }

    /// A queue loses a packet to an overflow.
    pub(super) fn overflow(&mut self, queue: u32, now: Nanos) {
        let params = self.params;
        self.flow(queue).cobalt.full(&params, now);
    }

    /// What COBALT wants done with a packet just taken.
    pub(super) fn decide(&mut self, packet: &Leaving, can_mark: bool, dice: &mut Dice) -> Wanted {
        let params = self.params;
        self.flow(packet.queue).cobalt.decide(&params, packet.now, packet.sojourn, can_mark, dice)
    }

    /// A packet was sent: charged to its flow and to the tin's share.
    pub(super) fn sent(&mut self, queue: u32, bytes: u32, now: Nanos) {
        let flow = self.flow(queue);
        flow.deficit = flow.deficit.saturating_sub_unsigned(bytes);
        let time = self.pace.time(bytes.into());
        if self.due < now {
            self.due += time;
        } else {
            self.due = self.due.max(now + time);
        }
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.flows) + self.hosts.as_ref().map_or(0, Hosts::memory)
    }

    /// Packets that put their flow in a queue in use by another.
    pub(super) const fn collisions(&self) -> u64 {
        self.collisions
    }

    /// That the counts are those of the lists, for tests.
    #[cfg(test)]
    pub(super) fn check(&self, backlogs: &Backlogs) {
        let count = |sets: &[Set]| self.flows.iter().filter(|flow| sets.contains(&flow.set)).count();
        assert_eq!(usize::from(self.bulk), count(&[Set::Bulk]));
        assert_eq!(usize::from(self.sparse), count(&[Set::Sparse, Set::SparseWait]));
        if let Some(hosts) = &self.hosts {
            assert_eq!(hosts.bulk(), (self.bulk.into(), self.bulk.into()));
        }
        for (at, list) in [self.new, self.old, self.decaying].iter().enumerate() {
            let (mut before, mut next) = (NONE, list.head);
            while next != NONE {
                let flow = &self.flows[usize::from(next)];
                assert_eq!(flow.before, before);
                assert_eq!(at == 2, flow.set == Set::Decaying);
                (before, next) = (next, flow.after);
            }
            assert_eq!(list.tail, before);
        }
        for (at, flow) in (self.base..).zip(self.flows.iter()) {
            let holds = backlogs.packets(at) > 0;
            assert!(!holds || matches!(flow.set, Set::Sparse | Set::Bulk), "{:?} with packets", flow.set);
        }
    }
}
