// SPDX-License-Identifier: Apache-2.0
//! Closed loop in virtual time: senders of `cc`, links, and a bottleneck that is `engine` itself.
//!
//! Knows no DPDK, no thread's clock and no socket. The same scenario and seed give the same result, byte for byte,
//! on any machine.
#![forbid(unsafe_code)]

mod outcome;
mod scenario;

pub use outcome::{
    Completion, DelayMs, FlowOutcome, GroupOutcome, Outcome, QueueOutcome, Queues, Series, WebOutcome,
};
pub use scenario::{EcnChoice, Flow, Link, RateStep, Reverse, Scenario, Size, Web};
