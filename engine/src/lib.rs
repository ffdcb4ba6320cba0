// SPDX-License-Identifier: Apache-2.0
//! Subscriber table, shaper wheel, disciplines and counters, generic over the packet handle.
//!
//! Knows no DPDK, no threads, no sockets and no wall clock: the poll loop, the replay, the lab and the fuzzer
//! drive the same objects.

mod packet;

pub use packet::{Fifo, Meta, Packet, PortId, QueueId};
