// SPDX-License-Identifier: Apache-2.0
//! Subscriber table, shaper wheel, disciplines and counters, generic over the packet handle.
//!
//! Knows no DPDK, no threads, no sockets and no wall clock: the poll loop, the replay, the lab and the fuzzer
//! drive the same objects.

#![forbid(unsafe_code)]

mod banks;
mod budget;
mod change;
mod counters;
mod discipline;
mod footprint;
mod histogram;
mod memory;
mod overhead;
mod overload;
mod packet;
mod parents;
mod port;
mod profiles;
mod recipe;
mod registry;
mod rules;
mod shaper;
mod shard;
mod slab;
mod snapshot;
mod split;
mod table;
mod wheel;

pub use banks::PiBanks;
pub use change::{Change, Direction, QueueKind, QueueSpec};
pub use counters::{
    AllTotals, Counter, DropReason, QueueCounters, QueueTotals, RingDrops, RxCounters, ShardCounters,
};
pub use footprint::{IdMemory, parent_memory};
pub use histogram::{BINS, Delay, SharedHistogram, Totals, upper_edges_us};
pub use overhead::{PORT_FRAME_OVERHEAD, line_bytes};
pub use overload::{OverloadEvent, OverloadMonitor};
pub use packet::{Fifo, Meta, Packet, PortId, QueueId};
pub use parents::{
    MAX_LEVELS, MAX_PARENTS, ParentId, ParentPart, ParentSnapshot, ParentSpec, ParentUse, ParentsShared,
};
pub use port::PortShared;
pub use profiles::{ProfileError, Profiles};
pub use registry::{
    AggregateView, Committed, Plan, RecordEdit, Registry, RegistryError, RegistryOptions, RegistryPort,
    Reserved, Routed, Ticket,
};
pub use rules::DscpRules;
pub use shard::{Shard, ShardOptions};
pub use snapshot::{QueuePart, QueueSnapshot};
pub use split::Split;
pub use table::{Class, Classifier, TableError, UnknownKind};
