// SPDX-License-Identifier: Apache-2.0
//! Real kernel TCP through Sluice between namespaces: shaped for each subscriber, L4S in a queue of its own, and an
//! operator changing a rate over HTTP while it flows.
//!
//! Delays and rates are those of real time on a machine that others use too. A run in which the packet lcore
//! itself lost more than `GAP_US` at a stretch says nothing about Sluice: it is repeated, and after `TRIES` such
//! runs the delay and rate checks are skipped by name; conservation and ECN checks never are.

mod common;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use model::stats::{DirectionStats, QueueStats};
use tests::rig::Process;
use tests::shaper::Shaper;
use tests::topology::{Attach, CUSTOMERS, Customer, SERVER, SERVER6, Topology};
use tests::traffic::{Tcp, goodput_bps, iperf_server, traffic_server};
use tests::{machine, skip, topology};

use common::{Folder, config, shaper_api};

/// Longest stretch without the packet lcore that a run may have.
const GAP_US: u64 = 3_000;
/// Runs before delay checks are skipped.
const TRIES: usize = 3;

/// Bytes of TCP payload in a full packet, and what that packet costs with `overhead = "ethernet"`.
const PAYLOAD: f64 = 1448.0;
const COST: f64 = 1538.0;

/// Everything but Sluice's lcore runs on CPU 0.
fn stay_on_cpu0() {
    core_affinity::set_for_current(core_affinity::CoreId { id: 0 });
}
