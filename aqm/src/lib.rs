// SPDX-License-Identifier: Apache-2.0
//! Queue management: DualPI2 (RFC 9332) and its parts.
//!
//! Knows no clock, no randomness source, no packet memory, no DPDK and no I/O: time, likelihoods, seeds and sizes
//! come in as arguments, decisions come out.
//!
//! The way of a packet: [`DualPi2Params::classify`] names its queue, [`DualPi2::select`] the queue to serve,
//! [`DualPi2::decide`] what happens to the packet taken, [`DualPi2::sent`] and [`DualPi2::drained`] keep the
//! scheduler's credit. p' comes from the [`PiBank`] of the profile's Tupdate. `pi2` is the same with every packet in
//! [`Queue::Classic`].
#![forbid(unsafe_code)]

mod backlogs;
mod bank;
mod cake;
mod cobalt;
mod cocoa;
mod codel;
mod codel_af;
mod config;
mod curvy_red;
mod drr;
mod dualpi2;
mod ecn;
mod fq;
mod fq_codel;
#[cfg(test)]
mod owner;
mod pi;
mod pie;
mod qdisc;
mod qprotect;
mod ramp;
mod recur;
mod single;
mod table;
mod units;
mod wrr;

pub use bank::{MORE_PROFILES, PiBank, columns};
pub use cake::{Cake, CakeConfig, Tins};
pub use cocoa::{Cocoa, CocoaConfig};
pub use codel::{Codel, CodelConfig, CodelState};
pub use codel_af::{CodelAf, CodelAfConfig};
pub use config::{Compat, DualPi2Config, Native, Overload, ParamError, RttGains};
pub use curvy_red::{CurvyRed, CurvyRedConfig};
pub use drr::MAX_FLOWS;
pub use dualpi2::{Backlog, Cause, DualPi2, DualPi2Params, Head, Left, Verdict};
pub use ecn::{Ecn, Queue, Rule};
pub use fq::{Fq, FqConfig};
pub use fq_codel::{FqCodel, FqCodelConfig};
pub use pi::PiParams;
pub use pie::{Pie, PieConfig};
pub use qdisc::{Arrival, Arriving, End, FlowKey, Leaving, Qdisc};
pub use qprotect::{QueueProtection, QueueProtectionConfig};
pub use ramp::Ramp;
pub use table::{Treatment, classify, treatment};
pub use units::{BitsPerSec, Nanos, Pace, Prob, Stamp};
pub use wrr::Wrr;
