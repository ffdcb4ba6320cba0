// SPDX-License-Identifier: Apache-2.0
//! The hot record of a queue id: all that the packet path touches, side by side on one page: a pair of cache lines, of
//! which the second is nearly free when both are asked for (25 ns for 22), and a line of counters for each queue.
//!
//! Invariant: `waits` tells exactly what the FIFOs hold, in packets and in bytes as the id's profile counts them. What
//! waits under a managed discipline counts as C, and its FIFOs are with its state.

use aqm::{Backlog, Pace, Queue};

use crate::change::{Direction, QueueKind};
use crate::counters::queue::{Arrivals, QueueLine};
use crate::discipline::State;
use crate::overhead::line_bytes;
use crate::packet::{Fifo, Meta, Packet};
use crate::parents::NONE;
use crate::profiles::ProfileParams;
use crate::shaper::Shaper;

/// One queue id on the packet path.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Record<F> {
    /// L and C.
    fifos: [F; 2],
    /// What they hold.
    waits: [Backlog; 2],
    pub(crate) shaper: Shaper,
    pub(crate) aqm: State,
    /// Limit on the bytes of both queues.
    pub(crate) limit_bytes: u32,
    /// Packet buffers held.
    pub(crate) buffers: u32,
    /// Low half of the slot it is scheduled in; in its node's calendar, of one long past.
    pub(crate) slot: u32,
    /// The PI target in force, in units of 1024 ns.
    pub(crate) target: u32,
    /// Packets that came for L and C.
    pub(crate) arrivals: [Arrivals; 2],
    /// The aggregate's node right above it, see [`crate::parents`].
    pub(crate) node: u32,
    pub(crate) profile: u16,
    /// What keeps it out of step with others: see [`Shaper::join`].
    pub(crate) phase: u16,
    /// The port on whose wheel it is.
    pub(crate) lane: u8,
    pub(crate) direction: Direction,
    pub(crate) kind: QueueKind,
    /// In use.
    pub(crate) live: bool,
    /// On the wheel, or in the calendar of its node.
    pub(crate) scheduled: bool,
    /// The PI bank holds a head of it.
    pub(crate) watched: bool,
    /// Its PI target is that of a slowed clock.
    pub(crate) slowed: bool,
    /// Its counters have outgrown their lines.
    pub(crate) carried: bool,
    /// Counters of L and C.
    pub(crate) lines: [QueueLine; 2],
}

// with FIFOs of 8 bytes, as those of mbufs are
const _: () =
    assert!(core::mem::offset_of!(Record<[u32; 2]>, lines) <= 128, "counters begin on a line of their own");
const _: () = assert!(size_of::<Record<[u32; 2]>>() == 256, "two pairs of cache lines");

impl<F: Default> Default for Record<F> {
    fn default() -> Self {
        Self {
            fifos: Default::default(),
            waits: Default::default(),
            shaper: Shaper::default(),
            aqm: State::None,
            limit_bytes: 0,
            buffers: 0,
            slot: 0,
            target: 0,
            arrivals: Default::default(),
            node: NONE,
            profile: 0,
            phase: 0,
            lane: 0,
            direction: Direction::Down,
            kind: QueueKind::Subscriber,
            live: false,
            scheduled: false,
            watched: false,
            slowed: false,
            carried: false,
            lines: Default::default(),
        }
    }
}

impl<F> Record<F> {
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

    /// Whether an entry of `lane` in `slot` stands for it.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "entries are 67 ms old at most, the low half tells slots 2 hours apart"
    )]
    pub(crate) fn is_at(&self, lane: usize, slot: u64) -> bool {
        self.scheduled && usize::from(self.lane) == lane && self.slot == slot as u32
    }

    /// Metadata of the oldest packet of a queue.
    #[inline]
    pub(crate) fn front<P>(&self, queue: Queue) -> Option<Meta>
    where
        F: Fifo<P>,
    {
        self.fifos[queue as usize].front()
    }

    /// Asks the caches for the oldest packet of a queue.
    #[inline]
    pub(crate) fn prefetch_front<P>(&self, queue: Queue)
    where
        F: Fifo<P>,
    {
        self.fifos[queue as usize].prefetch_front();
    }

    /// Appends a packet that counts `bytes`.
    #[inline]
    pub(crate) fn push<P: Packet<Fifo = F>>(&mut self, queue: Queue, packet: P, bytes: u32)
    where
        F: Fifo<P>,
    {
        self.count_in(queue, packet.buffers(), bytes);
        self.fifos[queue as usize].push(packet);
    }

    /// Counts a packet that begins to wait.
    #[inline]
    pub(crate) fn count_in(&mut self, queue: Queue, buffers: u32, bytes: u32) {
        let waits = &mut self.waits[queue as usize];
        waits.packets += 1;
        waits.bytes = waits.bytes.saturating_add(bytes);
        self.buffers += buffers;
    }

    /// Counts a packet that no longer waits.
    #[inline]
    pub(crate) fn count_out(&mut self, queue: Queue, buffers: u32, bytes: u32) {
        let waits = &mut self.waits[queue as usize];
        waits.packets = waits.packets.saturating_sub(1);
        waits.bytes = if waits.packets == 0 { 0 } else { waits.bytes.saturating_sub(bytes) };
        self.buffers = self.buffers.saturating_sub(buffers);
    }

    /// Takes the oldest packet of a queue, with what it counts.
    #[inline]
    pub(crate) fn pop<P: Packet<Fifo = F>>(
        &mut self,
        queue: Queue,
        params: &ProfileParams,
    ) -> Option<(P, Meta, u32)>
    where
        F: Fifo<P>,
    {
        let waits = &mut self.waits[queue as usize];
        let Some(packet) = self.fifos[queue as usize].pop() else {
            debug_assert!(waits.packets == 0, "a FIFO lost packets");
            *waits = Backlog::default();
            return None;
        };
        let meta = packet.meta();
        let bytes = line_bytes(params.overhead, meta.l3_bytes);
        self.count_out(queue, packet.buffers(), bytes);
        Some((packet, meta, bytes))
    }

    /// Takes the only packet there is.
    #[inline]
    pub(crate) fn pop_lone<P: Packet<Fifo = F>>(&mut self, queue: Queue) -> Option<P>
    where
        F: Fifo<P>,
    {
        let packet = self.fifos[queue as usize].pop()?;
        self.waits[queue as usize] = Backlog::default();
        self.buffers = 0;
        Some(packet)
    }

    /// Counts the bytes of what waits anew: the overhead of its profile has changed.
    pub(crate) fn recount<P: Packet<Fifo = F>>(&mut self, params: &ProfileParams)
    where
        F: Fifo<P>,
    {
        for (fifo, waits) in self.fifos.iter_mut().zip(&mut self.waits) {
            waits.bytes = 0;
            for _ in 0..waits.packets {
                let Some(packet) = fifo.pop() else { break };
                waits.bytes = waits.bytes.saturating_add(line_bytes(params.overhead, packet.meta().l3_bytes));
                fifo.push(packet);
            }
        }
    }

    /// The pace of its plan.
    #[inline]
    pub(crate) fn plan(&self) -> Pace {
        self.shaper.pace()
    }
}
