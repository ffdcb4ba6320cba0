// SPDX-License-Identifier: Apache-2.0
//! What the packet path knows of queue ids, in arrays apart: a [`Record`] is the line that every packet touches, a
//! [`Warm`] the line that packets which wait touch too, and each queue has a line of counters.
//!
//! They lie apart, and ids of one direction side by side, because what counts is how many pages traffic is spread over: with
//! a million ids a random line of 64 MB can be fetched while other work goes on, one of 512 MB holds the lcore up by 20 ns
//! or more, however early it is asked for (2 MiB pages in a virtual machine).
//!
//! Invariant: `waits` tells exactly what the FIFOs hold, in packets and in bytes as the id's profile counts them. What
//! waits under a managed discipline counts as C, and its FIFOs are with its state.

use core::ops::{Index, IndexMut};

use aqm::{Backlog, Pace, Queue};
use mem::HugeSlice;

use crate::change::{Direction, QueueKind};
use crate::counters::queue::{Arrivals, QueueLine};
use crate::discipline::State;
use crate::overhead::line_bytes;
use crate::packet::{Fifo, Meta, Packet};
use crate::parents::NONE;
use crate::profiles::ProfileParams;
use crate::shaper::Shaper;

/// One queue id on the packet path: all that a packet which waits for nothing asks, see `express`.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Record {
    /// What the FIFOs hold.
    waits: [Backlog; 2],
    pub(crate) shaper: Shaper,
    /// Packets that came for L and C, and what of them left at once.
    pub(crate) arrivals: [Arrivals; 2],
    /// The aggregate's node right above it, see [`crate::parents`].
    pub(crate) node: u32,
    pub(crate) profile: u16,
    /// The port on whose wheel it is.
    pub(crate) lane: u8,
    pub(crate) direction: Direction,
    pub(crate) kind: QueueKind,
    /// On the wheel, or in the calendar of its node.
    pub(crate) scheduled: bool,
    /// The PI bank holds a head of it.
    pub(crate) watched: bool,
    /// Of [`LIVE`] and its like.
    flags: u8,
}

/// In use.
pub(crate) const LIVE: u8 = 1;
/// Its PI target is that of a slowed clock.
pub(crate) const SLOWED: u8 = 2;
/// Its state is in a slab: see [`State::is_special`].
const SPECIAL: u8 = 4;

/// What more there is of a queue id while packets wait.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Warm<F> {
    /// L and C.
    fifos: [F; 2],
    aqm: State,
    /// Limit on the bytes of both queues.
    pub(crate) limit_bytes: u32,
    /// Packet buffers held.
    pub(crate) buffers: u32,
    /// Low half of the slot it is scheduled in; in its node's calendar, of one long past.
    pub(crate) slot: u32,
    /// The PI target in force, in units of 1024 ns.
    pub(crate) target: u32,
}

const _: () = assert!(size_of::<Record>() == 64, "a line");
// with FIFOs of 8 bytes, as those of mbufs are
const _: () = assert!(size_of::<Warm<[u32; 2]>>() == 64, "a line");

impl Default for Record {
    fn default() -> Self {
        Self {
            waits: Default::default(),
            shaper: Shaper::default(),
            arrivals: Default::default(),
            node: NONE,
            profile: 0,
            lane: 0,
            direction: Direction::Down,
            kind: QueueKind::Subscriber,
            scheduled: false,
            watched: false,
            flags: 0,
        }
    }
}

impl<F: Default> Default for Warm<F> {
    fn default() -> Self {
        Self { fifos: Default::default(), aqm: State::None, limit_bytes: 0, buffers: 0, slot: 0, target: 0 }
    }
}

impl Record {
    /// What L holds.
    #[inline]
    pub(crate) fn l(&self) -> Backlog {
        self.waits[Queue::L4s as usize]
    }

    /// What C holds.
    #[inline]
    pub(crate) fn c(&self) -> Backlog {
        self.waits[Queue::Classic as usize]
    }

    /// Packets in both.
    #[inline]
    pub(crate) fn packets(&self) -> u32 {
        self.l().packets + self.c().packets
    }

    /// Packets in one.
    #[inline]
    pub(crate) fn packets_in(&self, queue: Queue) -> u32 {
        self.waits[queue as usize].packets
    }

    /// Bytes in both.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.l().bytes) + u64::from(self.c().bytes)
    }

    /// The pace of its plan.
    #[inline]
    pub(crate) fn plan(&self) -> Pace {
        self.shaper.pace()
    }

    /// Whether it is a subscriber's, below no aggregate, on `lane`, under an ordinary discipline.
    #[inline]
    pub(crate) fn is_plain(&self, lane: u8) -> bool {
        self.flags & (LIVE | SPECIAL) == LIVE
            && self.lane == lane
            && self.kind == QueueKind::Subscriber
            && self.node == NONE
    }

    /// Whether its state is in a slab.
    #[inline]
    pub(crate) fn is_special(&self) -> bool {
        self.flags & SPECIAL > 0
    }

    /// Whether it is in use.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.flags & LIVE > 0
    }

    /// Whether its PI target is that of a slowed clock.
    #[inline]
    pub(crate) fn is_slowed(&self) -> bool {
        self.flags & SLOWED > 0
    }

    /// Sets or clears a flag.
    #[inline]
    pub(crate) fn set(&mut self, flag: u8, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }
}

impl<F> Warm<F> {
    /// Metadata of the oldest packet of a queue.
    #[inline]
    pub(crate) fn front<P>(&self, queue: Queue) -> Option<Meta>
    where
        F: Fifo<P>,
    {
        self.fifos[queue as usize].front()
    }

    /// Takes the only packet there is.
    #[inline]
    pub(crate) fn pop_lone<P>(&mut self, record: &mut Record, queue: Queue) -> Option<P>
    where
        F: Fifo<P>,
    {
        let packet = self.fifos[queue as usize].pop()?;
        record.waits[queue as usize] = Backlog::default();
        self.buffers = 0;
        Some(packet)
    }

    /// Appends a packet that counts `bytes`.
    #[inline]
    pub(crate) fn push<P: Packet<Fifo = F>>(
        &mut self,
        record: &mut Record,
        queue: Queue,
        packet: P,
        bytes: u32,
    ) where
        F: Fifo<P>,
    {
        let waits = &mut record.waits[queue as usize];
        waits.packets += 1;
        waits.bytes = waits.bytes.saturating_add(bytes);
        self.buffers += packet.buffers();
        self.fifos[queue as usize].push(packet);
    }

    /// What its discipline remembers.
    #[inline]
    pub(crate) fn aqm(&self) -> &State {
        &self.aqm
    }

    /// The same, to be changed by the discipline; another kind of state comes by [`Records::set_aqm`].
    #[inline]
    pub(crate) fn aqm_mut(&mut self) -> &mut State {
        &mut self.aqm
    }
}

/// The queue ids of a shard.
#[derive(Debug)]
pub(crate) struct Records<P: Packet> {
    hot: HugeSlice<Record>,
    warm: HugeSlice<Warm<P::Fifo>>,
    lines: [HugeSlice<QueueLine>; 2],
    ids: usize,
    /// Places of the one direction.
    half: usize,
}

/// Memory of an id.
pub(crate) const fn bytes<P: Packet>() -> usize {
    size_of::<Record>() + size_of::<Warm<P::Fifo>>() + 2 * size_of::<QueueLine>()
}

impl<P: Packet> Records<P> {
    /// Of `ids` ids, none of them in use.
    pub(crate) fn new(ids: usize) -> Self {
        let half = ids.div_ceil(2);
        Self {
            hot: crate::memory::slice(2 * half, |_| Record::default()),
            warm: crate::memory::slice(2 * half, |_| Warm::default()),
            lines: [(); 2].map(|()| crate::memory::slice(2 * half, |_| QueueLine::default())),
            ids,
            half,
        }
    }

    /// Ids there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.ids
    }

    /// Where an id lies: down and up ids take turns.
    #[inline]
    fn place(&self, local: usize) -> usize {
        (local >> 1) + (local & 1) * self.half
    }

    /// A record.
    #[inline]
    pub(crate) fn get(&self, local: usize) -> Option<&Record> {
        self.hot.get(self.place(local))
    }

    /// A record, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, local: usize) -> Option<&mut Record> {
        let place = self.place(local);
        self.hot.get_mut(place)
    }

    #[inline]
    pub(crate) fn warm(&self, local: usize) -> &Warm<P::Fifo> {
        &self.warm[self.place(local)]
    }

    /// Both parts of an id.
    #[inline]
    pub(crate) fn both_of(&mut self, local: usize) -> Option<(&mut Record, &mut Warm<P::Fifo>)> {
        let place = self.place(local);
        Some((self.hot.get_mut(place)?, self.warm.get_mut(place)?))
    }

    /// Both parts of an id.
    #[inline]
    pub(crate) fn both_mut(&mut self, local: usize) -> (&mut Record, &mut Warm<P::Fifo>) {
        let place = self.place(local);
        (&mut self.hot[place], &mut self.warm[place])
    }

    /// The record of an id and the counters of one of its queues.
    #[inline]
    pub(crate) fn counted_mut(&mut self, local: usize, queue: Queue) -> (&mut Record, &mut QueueLine) {
        let place = self.place(local);
        (&mut self.hot[place], &mut self.lines[queue as usize][place])
    }

    /// The counters of a queue.
    #[inline]
    pub(crate) fn line(&self, local: usize, queue: Queue) -> &QueueLine {
        &self.lines[queue as usize][self.place(local)]
    }

    /// Gives an id a state of whatever kind.
    pub(crate) fn set_aqm(&mut self, local: usize, state: State) {
        let (record, warm) = self.both_mut(local);
        record.set(SPECIAL, state.is_special());
        warm.aqm = state;
    }

    /// Begins an id anew.
    pub(crate) fn reset(&mut self, local: usize) {
        let place = self.place(local);
        self.hot[place] = Record::default();
        self.warm[place] = Warm::default();
        for lines in &mut self.lines {
            lines[place] = QueueLine::default();
        }
    }

    /// Whether an entry of `lane` in `slot` stands for an id.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "entries are 67 ms old at most, the low half tells slots 2 hours apart"
    )]
    pub(crate) fn is_at(&self, local: usize, lane: usize, slot: u64) -> bool {
        let record = self.get(local);
        record.is_some_and(|record| record.scheduled && usize::from(record.lane) == lane)
            && self.warm(local).slot == slot as u32
    }

    /// Asks the caches for the record of an id.
    #[inline]
    pub(crate) fn prefetch(&self, local: usize) {
        mem::prefetch_index(&self.hot, self.place(local));
    }

    /// Asks the caches for the rest of it.
    #[inline]
    pub(crate) fn prefetch_warm(&self, local: usize) {
        mem::prefetch_index(&self.warm, self.place(local));
    }

    /// Asks the caches for the counters of a queue.
    #[inline]
    pub(crate) fn prefetch_line(&self, local: usize, queue: Queue) {
        mem::prefetch_index(&self.lines[queue as usize], self.place(local));
    }

    /// Metadata of the oldest packet of a queue.
    #[inline]
    pub(crate) fn front(&self, local: usize, queue: Queue) -> Option<Meta> {
        self.warm(local).front(queue)
    }

    /// Asks the caches for the oldest packet of a queue.
    #[inline]
    pub(crate) fn prefetch_front(&self, local: usize, queue: Queue) {
        self.warm(local).fifos[queue as usize].prefetch_front();
    }

    /// Appends a packet that counts `bytes`.
    #[inline]
    pub(crate) fn push(&mut self, local: usize, queue: Queue, packet: P, bytes: u32) {
        let (record, warm) = self.both_mut(local);
        warm.push(record, queue, packet, bytes);
    }

    /// Counts a packet that begins to wait.
    #[inline]
    pub(crate) fn count_in(&mut self, local: usize, queue: Queue, buffers: u32, bytes: u32) {
        let (record, warm) = self.both_mut(local);
        let waits = &mut record.waits[queue as usize];
        waits.packets += 1;
        waits.bytes = waits.bytes.saturating_add(bytes);
        warm.buffers += buffers;
    }

    /// Counts a packet that no longer waits.
    #[inline]
    pub(crate) fn count_out(&mut self, local: usize, queue: Queue, buffers: u32, bytes: u32) {
        let (record, warm) = self.both_mut(local);
        let waits = &mut record.waits[queue as usize];
        waits.packets = waits.packets.saturating_sub(1);
        waits.bytes = if waits.packets == 0 { 0 } else { waits.bytes.saturating_sub(bytes) };
        warm.buffers = warm.buffers.saturating_sub(buffers);
    }

    /// Takes the oldest packet of a queue, with what it counts.
    #[inline]
    pub(crate) fn pop(
        &mut self,
        local: usize,
        queue: Queue,
        params: &ProfileParams,
    ) -> Option<(P, Meta, u32)> {
        let (record, warm) = self.both_mut(local);
        let waits = &mut record.waits[queue as usize];
        let Some(packet) = warm.fifos[queue as usize].pop() else {
            debug_assert!(waits.packets == 0, "a FIFO lost packets");
            *waits = Backlog::default();
            return None;
        };
        let meta = packet.meta();
        let bytes = line_bytes(params.overhead, meta.l3_bytes);
        self.count_out(local, queue, packet.buffers(), bytes);
        Some((packet, meta, bytes))
    }

    /// Counts the bytes of what waits anew: the overhead of its profile has changed.
    pub(crate) fn recount(&mut self, local: usize, params: &ProfileParams) {
        let (record, warm) = self.both_mut(local);
        for (fifo, waits) in warm.fifos.iter_mut().zip(&mut record.waits) {
            waits.bytes = 0;
            for _ in 0..waits.packets {
                let Some(packet) = fifo.pop() else { break };
                waits.bytes = waits.bytes.saturating_add(line_bytes(params.overhead, packet.meta().l3_bytes));
                fifo.push(packet);
            }
        }
    }
}

impl<P: Packet> Index<usize> for Records<P> {
    type Output = Record;

    #[inline]
    fn index(&self, local: usize) -> &Record {
        &self.hot[self.place(local)]
    }
}

impl<P: Packet> IndexMut<usize> for Records<P> {
    #[inline]
    fn index_mut(&mut self, local: usize) -> &mut Record {
        let place = self.place(local);
        &mut self.hot[place]
    }
}
