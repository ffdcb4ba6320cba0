// SPDX-License-Identifier: Apache-2.0
//! Subscriber table, shaper wheel, disciplines and counters, generic over the packet handle.
//!
//! Knows no DPDK, no threads, no sockets and no wall clock: the poll loop, the replay, the lab and the fuzzer
//! drive the same objects.

mod change;
mod counters;
mod histogram;
mod packet;
mod snapshot;

pub use change::{Change, Direction, QueueKind, QueueSpec};
pub use counters::{
    AllTotals, Counter, DropReason, QueueCounters, QueueTotals, RingDrops, RxCounters, ShardCounters,
};
pub use histogram::{BINS, Histogram, SharedHistogram, Totals, upper_edges_us};
pub use packet::{Fifo, Meta, Packet, PortId, QueueId};
pub use snapshot::{QueuePart, QueueSnapshot};
