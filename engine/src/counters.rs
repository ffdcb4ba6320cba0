// SPDX-License-Identifier: Apache-2.0
//! Counters of RFC 9332 2.5.2.2, per queue id and per lcore.
//!
//! [`QueueCounters`] belong to one queue of one queue id and to the lcore that owns it: plain integers, see [`queue`].
//! [`ShardCounters`] and [`RxCounters`] are an lcore's sums over all
//! queue ids: atomics with a single writer (a relaxed load and store, no locked instruction), read by metrics.
//! [`RingDrops`] are the one thing that several lcores write for one queue id: what a full ring kept from its
//! owner.
//!
//! Invariant: every packet is counted once as arrived and once as forwarded or as dropped for one reason, or it
//! is queued. A packet that a full ring refused is counted by the RX lcore alone ([`RxCounters`] and
//! [`RingDrops`]); its owner folds the latter into its [`QueueCounters`] when it takes a snapshot and leaves its
//! [`ShardCounters`] alone.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use aqm::{Ecn, Queue};
use crossbeam_utils::CachePadded;

use crate::change::Direction;
use crate::histogram::{Delay, SharedHistogram, Totals};
use crate::packet::QueueId;
use crate::shard::Passed;

pub(crate) mod queue;
#[cfg(test)]
mod tests;

pub(crate) use queue::Ledger;
pub use queue::QueueCounters;

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// By the AQM.
    Aqm,
    /// By the AQM in overload (RFC 9332 2.5.1.1).
    Overload,
    /// At the queue limit.
    Tail,
    /// Buffers ran short.
    Pool,
    /// The ring to the shard was full.
    Ring,
    /// Its record is gone.
    Removed,
    /// The link it would leave by is down.
    Link,
}

impl DropReason {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// All of them, in the order of their value.
    pub const ALL: [Self; 7] =
        [Self::Aqm, Self::Overload, Self::Tail, Self::Pool, Self::Ring, Self::Removed, Self::Link];

    /// The name in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Aqm => "aqm",
            Self::Overload => "overload",
            Self::Tail => "tail",
            Self::Pool => "pool",
            Self::Ring => "ring",
            Self::Removed => "removed",
            Self::Link => "link",
        }
    }
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; the one writer only, or counts are lost.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Drops by reason and by whether the packet was ECN-capable.
type Drops<T> = [[T; 2]; DropReason::COUNT];

/// An lcore's sums for one direction and queue.
#[derive(Debug, Default)]
struct Sums {
    arrived: Counter,
    forwarded: Counter,
    bytes: Counter,
    marked: Counter,
    dropped: Drops<Counter>,
    delay: SharedHistogram,
}

/// What a shard's lcore did, summed over its queue ids; that lcore is the only writer.
#[derive(Debug, Default)]
pub struct ShardCounters {
    queues: [[CachePadded<Sums>; 2]; 2],
    control_limited: [Counter; 2],
    lag: CachePadded<SharedHistogram>,
}

/// The part of a direction and queue in a 2x2 array.
#[expect(clippy::indexing_slicing, reason = "both enums have the values 0 and 1")]
const fn at<T>(array: &[[T; 2]; 2], direction: Direction, queue: Queue) -> &T {
    &array[direction as usize][queue as usize]
}

impl ShardCounters {
    /// A packet came out of a ring.
    #[inline]
    pub fn arrived(&self, direction: Direction, queue: Queue) {
        at(&self.queues, direction, queue).arrived.add(1);
    }

    /// A packet begins to leave; `bytes` without overhead.
    #[inline]
    pub fn forwarded(&self, direction: Direction, queue: Queue, bytes: u32, delay: Delay) {
        let sums = at(&self.queues, direction, queue);
        sums.forwarded.add(1);
        sums.bytes.add(u64::from(bytes));
        sums.delay.record(delay, 1);
    }

    /// Packets came and left at once, none of them late.
    pub(crate) fn passed(&self, direction: Direction, queue: Queue, passed: Passed, delay: Delay) {
        let Passed { packets, bytes } = passed;
        let sums = at(&self.queues, direction, queue);
        sums.arrived.add(packets.into());
        sums.forwarded.add(packets.into());
        sums.bytes.add(bytes.into());
        sums.delay.record(delay, packets);
        self.lag.record(Delay::default(), packets);
    }

    /// A packet was changed to CE.
    #[inline]
    pub fn marked(&self, direction: Direction, queue: Queue) {
        at(&self.queues, direction, queue).marked.add(1);
    }

    /// A packet was dropped; `ecn` as it arrived.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "the array has one place for each value of the enum and of bool"
    )]
    pub fn dropped(&self, direction: Direction, queue: Queue, reason: DropReason, ecn: Ecn) {
        at(&self.queues, direction, queue).dropped[reason as usize][usize::from(ecn.is_ect())].add(1);
    }

    /// A control packet was over the control limit (it is counted as a drop as well).
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "one place for each direction")]
    pub fn control_limited(&self, direction: Direction) {
        self.control_limited[direction as usize].add(1);
    }

    /// How late a departure was, in units of 64 ns.
    #[inline]
    pub fn lag(&self, units: u32) {
        self.lag.record(Delay::of(units), 1);
    }

    /// Adds these counters to `totals`.
    pub fn add_to(&self, totals: &mut AllTotals) {
        for direction in Direction::BOTH {
            for queue in Queue::BOTH {
                let sums = at(&self.queues, direction, queue);
                let into = totals.queue_mut(direction, queue);
                // forwards and drops before arrivals, so that none shows before the packet it belongs to
                into.forwarded += sums.forwarded.get();
                into.bytes += sums.bytes.get();
                into.marked += sums.marked.get();
                into.delay.add(&sums.delay.totals());
                add_drops(&mut into.dropped, &sums.dropped);
                into.arrived += sums.arrived.get();
            }
        }
        for (into, more) in totals.control_limited.iter_mut().zip(&self.control_limited) {
            *into += more.get();
        }
        totals.lag.add(&self.lag.totals());
    }
}

fn add_drops(into: &mut Drops<u64>, more: &Drops<Counter>) {
    for (into, more) in into.iter_mut().flatten().zip(more.iter().flatten()) {
        *into += more.get();
    }
}

/// What an RX lcore did that no shard sees; that lcore is the only writer.
#[derive(Debug, Default)]
pub struct RxCounters {
    ring: CachePadded<[[[Counter; 2]; 2]; 2]>,
    control: [Counter; 2],
}

impl RxCounters {
    /// A packet met a full ring: it arrived and was dropped.
    #[expect(clippy::indexing_slicing, reason = "one place for each direction, queue and bool")]
    pub fn ring_full(&self, direction: Direction, queue: Queue, ecn: Ecn) {
        self.ring[direction as usize][queue as usize][usize::from(ecn.is_ect())].add(1);
    }

    /// A packet was control traffic.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "one place for each direction")]
    pub fn control(&self, direction: Direction) {
        self.control[direction as usize].add(1);
    }

    /// Adds these counters to `totals`.
    pub fn add_to(&self, totals: &mut AllTotals) {
        for direction in Direction::BOTH {
            for queue in Queue::BOTH {
                let into = totals.queue_mut(direction, queue);
                let [not_ect, ect] = at(&self.ring, direction, queue);
                let drops = [not_ect.get(), ect.get()];
                into.arrived += drops.iter().sum::<u64>();
                for (into, more) in into.dropped_mut(DropReason::Ring).iter_mut().zip(drops) {
                    *into += more;
                }
            }
        }
        for (into, more) in totals.control.iter_mut().zip(&self.control) {
            *into += more.get();
        }
    }
}

/// Sums of one direction and queue, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueTotals {
    /// Packets that came.
    pub arrived: u64,
    /// Packets sent.
    pub forwarded: u64,
    /// Their bytes, overhead not counted.
    pub bytes: u64,
    /// Packets changed to CE here.
    pub marked: u64,
    /// Drops by reason, then Not-ECT and ECN-capable.
    pub dropped: [[u64; 2]; DropReason::COUNT],
    /// Delay of what was sent.
    pub delay: Totals,
}

impl QueueTotals {
    /// Packets the AQM has decided about. Those still waiting are not among them: a difference of counters read
    /// one after the other could run backwards, this sum cannot.
    pub fn presented(&self) -> u64 {
        self.forwarded + self.dropped_by(DropReason::Aqm) + self.dropped_by(DropReason::Overload)
    }

    /// Drops for one reason.
    #[expect(clippy::indexing_slicing, reason = "the array has one place for each value of the enum")]
    pub fn dropped_by(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize].iter().sum()
    }

    /// All drops.
    pub fn dropped_packets(&self) -> u64 {
        self.dropped.iter().flatten().sum()
    }

    #[expect(clippy::indexing_slicing, reason = "the array has one place for each value of the enum")]
    fn dropped_mut(&mut self, reason: DropReason) -> &mut [u64; 2] {
        &mut self.dropped[reason as usize]
    }
}

/// The sums of all lcores, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllTotals {
    queues: [[QueueTotals; 2]; 2],
    /// Control packets seen, down and up.
    pub control: [u64; 2],
    /// Control packets over their limit, down and up.
    pub control_limited: [u64; 2],
    /// How late departures were.
    pub lag: Totals,
}

impl AllTotals {
    /// One direction and queue.
    pub fn queue(&self, direction: Direction, queue: Queue) -> &QueueTotals {
        at(&self.queues, direction, queue)
    }

    #[expect(clippy::indexing_slicing, reason = "both enums have the values 0 and 1")]
    fn queue_mut(&mut self, direction: Direction, queue: Queue) -> &mut QueueTotals {
        &mut self.queues[direction as usize][queue as usize]
    }
}

/// Per queue id: packets that never reached its owner because the ring was full. Any RX lcore adds.
#[derive(Debug)]
pub struct RingDrops {
    /// L and C of each queue id.
    packets: Box<[[AtomicU32; 2]]>,
}

impl RingDrops {
    /// Memory of an id.
    pub const BYTES_PER_ID: usize = size_of::<[AtomicU32; 2]>();

    /// For queue ids below `capacity`.
    pub fn new(capacity: usize) -> Self {
        Self { packets: (0..capacity).map(|_| Default::default()).collect() }
    }

    /// Counts a packet; an id beyond the capacity is ignored.
    #[expect(clippy::indexing_slicing, reason = "a queue is 0 or 1")]
    pub fn add(&self, id: QueueId, queue: Queue) {
        if let Some(packets) = self.packets.get(id.0 as usize) {
            packets[queue as usize].fetch_add(1, Relaxed);
        }
    }

    /// What was counted since the last call, L and C. The owner folds it into its [`QueueCounters`], with every
    /// snapshot and before 2^32 packets; when it creates the id for somebody else it throws it away.
    pub fn take(&self, id: QueueId) -> [u32; 2] {
        self.packets
            .get(id.0 as usize)
            .map_or([0; 2], |packets| packets.each_ref().map(|p| p.swap(0, Relaxed)))
    }
}
