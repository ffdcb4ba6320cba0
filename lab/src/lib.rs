// SPDX-License-Identifier: Apache-2.0
//! Closed loop in virtual time: senders of `cc`, links, and a bottleneck that is `engine` itself.
//!
//! Knows no DPDK, no thread's clock and no socket. The same scenario and seed give the same result, byte for byte,
//! on any machine.
#![forbid(unsafe_code)]

mod error;
mod outcome;
pub mod paper;
mod parallel;
pub mod plot;
mod scenario;
mod sim;

pub use error::Error;
pub use parallel::{run_all, run_all_watched};

pub use outcome::{
    Completion, DelayMs, FlowOutcome, GroupOutcome, Outcome, QueueOutcome, Queues, Series, WebOutcome,
};
pub use scenario::{EcnChoice, Flow, Link, NO_OVERHEAD, RateStep, Reverse, Scenario, Size, Web};
pub use sim::{run, run_watched};

/// Bytes of a full packet on the wire: 1500 of IP and the Ethernet header.
pub const FULL_PACKET: u32 = 1_514;
/// Bytes of the Ethernet header, which the engine's shaper does not count by itself.
pub(crate) const ETHERNET_HEADER: u32 = 14;
