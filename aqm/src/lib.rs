// SPDX-License-Identifier: Apache-2.0
//! Queue management: DualPI2 (RFC 9332) and its parts.
//!
//! Knows no clock, no randomness source, no packet memory, no DPDK and no I/O: time, likelihoods and sizes
//! come in as arguments, decisions come out.

mod ecn;
mod units;

pub use ecn::{Ecn, Queue, Rule};
pub use units::{BitsPerSec, Nanos, Pace, Prob, Stamp};
