// SPDX-License-Identifier: Apache-2.0
//! Lcores and what joins them: RX, TX and control loops, the rings between them, and the control side's handle.
//!
//! Knows no HTTP and no wall clock. Nothing on the packet path allocates, locks or calls the system; lcores are
//! reached through rings and read through published counters.
#![forbid(unsafe_code)]

mod aggregates;
pub mod bench;
mod control;
mod error;
mod figures;
mod handle;
mod kinds;
mod launch;
mod lcore;
mod memory;
mod open;
mod packet;
mod probe;
mod rings;
mod run;
mod rx;
mod sweeps;
mod tx;
mod usage;
mod watch;

pub use dpdk::version as dpdk_version;
pub use error::{ApplyError, LaunchError, ProfilesError};
pub use handle::{Batch, Handle};
pub use launch::{Plane, launch};
pub use open::{MemoryNeed, is_pci, memory_need};
pub use packet::{MbufPacket, PacketFifo};
pub use rings::{OnRings, Wire, launch_on_rings};
