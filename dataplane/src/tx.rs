// SPDX-License-Identifier: Apache-2.0
//! The TX lcore: owns a shard. It takes packets out of its rings, sends what is due, applies changes between
//! bursts and answers questions about its queue ids.
//!
//! Invariant: a packet taken out of a ring is in the shard, in a port's `waiting` burst, sent, or dropped and
//! counted. A refused burst stays in `waiting`, and while it does the shard is asked for nothing more for that
//! port, so the port's clock stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aqm::Nanos;
use dpdk::{Burst, Consumer, TxQueue};
use engine::{
    Change, Counter, Meta, Packet as _, ParentId, ParentSnapshot, ParentUse, PortId, PortShared, Profiles,
    QueueId, QueueSnapshot, Shard,
};

use crate::packet::MbufPacket;
use crate::probe::{Probe, Stage};
use crate::rx::{BURST, PortCounters, Sink};
use crate::usage::Usage;

/// Most changes applied in one loop: a bulk load must not hold up packets.
const CHANGES_A_LOOP: usize = 16;
/// Queue ids reported in one sweep.
pub(crate) const SWEEP: usize = 32;

/// What the control side asks of a shard.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Apply.
    Change(Change),
    /// Know these profiles too.
    Profiles(Arc<Profiles>),
    /// Send a snapshot.
    Snapshot(QueueId),
    /// Send what this shard sees of an aggregate.
    Parent(ParentId),
    /// Send the use of `SWEEP` aggregates, from the given number on, as this shard sees it.
    Parents(u32),
    /// Send the usage of `SWEEP` of this shard's ids, from the given place on.
    Sweep(u32),
}

/// What a shard answers.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "lives in a preallocated ring: boxing would allocate on the packet path"
)]
pub(crate) enum Reply {
    /// To `Order::Snapshot`; nothing if the id is not in use.
    Snapshot(QueueId, Option<QueueSnapshot>),
    /// To `Order::Parent`; nothing if it is not there.
    Parent(ParentId, Option<ParentSnapshot>),
    /// To `Order::Parents`.
    Parents(u32, [Option<ParentUse>; SWEEP]),
    /// To `Order::Sweep`.
    Sweep(u32, [Option<Usage>; SWEEP]),
}

/// From RX on the same lcore.
impl Sink for TxWorker {
    #[inline]
    fn take(&mut self, now: Nanos, _: usize, burst: &mut Burst) {
        self.enqueue(now);
        std::mem::swap(&mut self.incoming, burst);
    }

    #[inline]
    fn expect(&self, meta: Meta) {
        self.shard.prefetch(meta);
    }
}

/// A port as one TX lcore drives it.
pub(crate) struct TxPort {
    pub(crate) id: PortId,
    pub(crate) queue: TxQueue,
    pub(crate) counters: Arc<PortCounters>,
    /// Frames given to the port that a dead link kept from leaving.
    pub(crate) lost: Arc<Counter>,
    waiting: Burst,
    up: bool,
}

impl TxPort {
    pub(crate) fn new(id: PortId, queue: TxQueue, counters: Arc<PortCounters>, lost: Arc<Counter>) -> Self {
        Self { id, queue, counters, lost, waiting: Burst::new(), up: true }
    }

    /// Hands what waits to the driver; whether nothing waits any more.
    fn send(&mut self) -> bool {
        if self.waiting.is_empty() {
            return true;
        }
        let bytes =
            |burst: &Burst| burst.as_slice().iter().map(|mbuf| u64::from(mbuf.pkt_len())).sum::<u64>();
        let before = bytes(&self.waiting);
        let sent = self.queue.burst(&mut self.waiting);
        if sent > 0 {
            self.counters.packets.add(sent as u64);
            self.counters.bytes.add(before - bytes(&self.waiting));
        }
        self.waiting.is_empty()
    }

    fn drop_waiting(&mut self) {
        self.lost.add(self.waiting.len() as u64);
        self.waiting.drain().for_each(drop);
    }
}

/// The two ends that the control side holds the others of.
pub(crate) struct Desk {
    pub(crate) orders: rtrb::Consumer<Order>,
    pub(crate) replies: rtrb::Producer<Reply>,
}

/// The TX side of an lcore.
pub(crate) struct TxWorker {
    shard: Shard<MbufPacket>,
    rings: Vec<Consumer>,
    ports: Vec<TxPort>,
    states: Arc<[PortShared]>,
    desk: Desk,
    /// Packets that have come and are on their way into the caches.
    incoming: Burst,
    /// Of them, those that do not leave at once.
    held_back: Burst,
    leaving: Vec<MbufPacket>,
    held: Arc<Held>,
}

/// What a shard holds, shown to others, in lines that no other writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Held {
    /// Packets queued in the shard.
    pub(crate) packets: AtomicU64,
    /// Ids of subscribers with packets queued, down and up.
    pub(crate) active: [AtomicU64; 2],
    /// Packets and changes that came for ids which are not there.
    pub(crate) misdirected: AtomicU64,
    /// Times that a wheel had no room.
    pub(crate) wheel_refused: AtomicU64,
}

impl TxWorker {
    pub(crate) fn new(
        shard: Shard<MbufPacket>,
        rings: Vec<Consumer>,
        ports: Vec<TxPort>,
        states: Arc<[PortShared]>,
        desk: Desk,
        held: Arc<Held>,
    ) -> Self {
        let leaving = Vec::with_capacity(BURST);
        Self {
            shard,
            rings,
            ports,
            states,
            desk,
            incoming: Burst::new(),
            held_back: Burst::new(),
            leaving,
            held,
        }
    }

    /// One loop; whether it found work.
    pub(crate) fn poll(&mut self, now: Nanos, probe: &mut impl Probe) -> bool {
        // what came last is fetched from memory meanwhile
        let mut worked = self.send_due(now, probe);
        worked |= self.take_in(now, probe);
        worked |= self.obey(now);
        self.held.packets.store(self.shard.queued(), Relaxed);
        for (shown, waiting) in self.held.active.iter().zip(self.shard.ids_waiting()) {
            shown.store(waiting, Relaxed);
        }
        self.held.misdirected.store(self.shard.misdirected(), Relaxed);
        self.held.wheel_refused.store(self.shard.wheel_refused(), Relaxed);
        probe.lap(Stage::Other);
        worked
    }

    /// Packets in the rings, in the shard and at the ports.
    pub(crate) fn waiting(&self) -> u64 {
        let rings = self.rings.iter().map(|ring| u64::from(ring.len())).sum::<u64>();
        let ports = self.ports.iter().map(|port| port.waiting.len() as u64).sum::<u64>();
        rings + self.incoming.len() as u64 + self.shard.queued() + ports
    }

    /// Queues what has come, and looks whether more has: that is queued with the next.
    fn take_in(&mut self, now: Nanos, probe: &mut impl Probe) -> bool {
        let mut worked = !self.incoming.is_empty();
        self.enqueue(now);
        probe.lap(Stage::Enqueue);
        for at in 0..self.rings.len() {
            // an RX lcore may put in a burst from each port in a loop of its own
            for _ in 0..self.ports.len().max(1) {
                self.enqueue(now);
                self.rings[at].dequeue(&mut self.incoming);
                self.prefetch();
                probe.lap(Stage::Ring);
                worked |= !self.incoming.is_empty();
                if !self.incoming.is_full() {
                    break;
                }
            }
        }
        worked
    }

    /// Asks the caches for what queuing the packets that have come will touch.
    #[inline]
    fn prefetch(&self) {
        for mbuf in self.incoming.as_slice() {
            self.shard.prefetch_later(MbufPacket::meta_of(mbuf));
        }
    }

    /// Takes in what has come; what nothing holds back goes to its port.
    #[inline]
    fn enqueue(&mut self, now: Nanos) {
        if self.incoming.is_empty() {
            return;
        }
        for port in &self.ports {
            let room = if port.up { port.waiting.room() } else { 0 };
            self.shard.open(now, port.id, room);
        }
        for packet in self.incoming.drain().map(MbufPacket::new) {
            let egress = packet.meta().egress;
            // neither push is refused: the shard was told of the room, and the bursts are of one size
            let _ = if !self.shard.passes(now, &packet) {
                self.held_back.push(packet.into_mbuf())
            } else if let Some(port) = self.ports.iter_mut().find(|port| port.id == egress) {
                port.waiting.push(packet.into_mbuf())
            } else {
                Ok(())
            };
        }
        for packet in self.held_back.drain().map(MbufPacket::new) {
            self.shard.enqueue(now, packet);
        }
        for port in &mut self.ports {
            self.shard.shut(port.id);
            port.send();
        }
    }

    fn send_due(&mut self, now: Nanos, probe: &mut impl Probe) -> bool {
        let mut worked = false;
        for port in &mut self.ports {
            let up = self.states.get(usize::from(port.id.0)).is_some_and(PortShared::is_up);
            if up != port.up {
                port.up = up;
                self.shard.set_link(now, port.id, up);
                if !up {
                    port.drop_waiting();
                }
            }
            let room = if up && port.send() { BURST } else { 0 };
            let taken = self.shard.dequeue(now, port.id, &mut self.leaving, room);
            for packet in self.leaving.drain(..) {
                // the shard was given no more room than the burst has
                let _ = port.waiting.push(packet.into_mbuf());
            }
            probe.lap(Stage::Dequeue);
            if taken > 0 {
                port.send();
                probe.lap(Stage::Tx);
                worked = true;
            }
        }
        worked
    }

    /// Applies a few changes and answers at most one question.
    fn obey(&mut self, now: Nanos) -> bool {
        let mut worked = false;
        for _ in 0..CHANGES_A_LOOP {
            let reply = match self.desk.orders.peek() {
                Err(_) => break,
                Ok(Order::Change(_) | Order::Profiles(_)) => None,
                // an answer that finds no room waits with its question
                Ok(_) if self.desk.replies.is_full() => break,
                Ok(&Order::Snapshot(id)) => Some(Reply::Snapshot(id, self.shard.snapshot(id))),
                Ok(&Order::Parent(id)) => Some(Reply::Parent(id, self.shard.parent(id))),
                Ok(&Order::Parents(from)) => Some(Reply::Parents(from, self.parents(from))),
                Ok(&Order::Sweep(place)) => Some(Reply::Sweep(place, self.sweep(place))),
            };
            worked = true;
            let order = self.desk.orders.pop();
            match (reply, order) {
                (Some(reply), _) => {
                    let _ = self.desk.replies.push(reply);
                    break;
                }
                (None, Ok(Order::Change(change))) => self.shard.apply(now, change),
                (None, Ok(Order::Profiles(profiles))) => self.shard.set_profiles(profiles),
                (None, _) => break,
            }
        }
        worked
    }

    fn parents(&self, from: u32) -> [Option<ParentUse>; SWEEP] {
        let mut next = from;
        std::array::from_fn(|_| {
            let id = ParentId::new(next);
            next = next.saturating_add(1);
            self.shard.parent_use(id?)
        })
    }

    fn sweep(&mut self, place: u32) -> [Option<Usage>; SWEEP] {
        let (index, shards) = (self.shard.options().index, self.shard.options().shards);
        let mut next = place;
        std::array::from_fn(|_| {
            let id = QueueId(next.saturating_mul(shards).saturating_add(index));
            next = next.saturating_add(1);
            self.shard.snapshot(id).map(|snapshot| Usage::of(&snapshot))
        })
    }

    /// Ends: what waits still is dropped and counted as `link`, that of the rings and the shard by its queue, that of
    /// a port by the port.
    pub(crate) fn close(mut self, now: Nanos) {
        while self.take_in(now, &mut ()) {}
        for port in &mut self.ports {
            port.send();
            port.drop_waiting();
            self.shard.set_link(now, port.id, false);
        }
    }
}
