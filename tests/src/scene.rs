// SPDX-License-Identifier: Apache-2.0
//! A running Sluice in its topology: what the namespace tests and the demo start from.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use anyhow::Result;
use model::stats::QueueStats;

use crate::shaper::Shaper;
use crate::topology::{Attach, Topology, seed};

/// What a scene is made of.
#[derive(Clone, Debug)]
pub struct Script {
    /// How Sluice is attached.
    pub attach: Attach,
    /// `[profile.default]`, its keys.
    pub profile: &'static str,
    /// `[classify]`, its keys.
    pub classify: &'static str,
}

impl Default for Script {
    fn default() -> Self {
        Self { attach: Attach::Veth, profile: "aqm = \"dualpi2\"", classify: "unknown = \"pass\"" }
    }
}

/// A running scene; all of it is gone when dropped.
pub struct Scene {
    /// The shaper.
    pub shaper: Shaper,
    /// Namespaces and delay lines.
    pub topology: Topology,
    /// For logs.
    pub folder: PathBuf,
}

static SCENES: AtomicU32 = AtomicU32::new(0);

impl Scene {
    /// Sets the scene: compact on CPU 1 where there is one.
    pub fn set(script: &Script) -> Result<Self> {
        // names of interfaces are short, and other rigs may be about
        let number = std::process::id() % 1_000 * 10 + SCENES.fetch_add(1, Relaxed) % 10;
        let tag = format!("{number}");
        let folder = std::env::temp_dir().join(format!("sluice-scene-{}-{tag}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let mut topology = Topology::new(&tag, script.attach, &folder)?;
        let api = format!("127.0.0.1:{}", 20_000 + number);
        let shaper = Shaper::start(&folder, &config(script, &topology, &tag, &api), &api)?;
        if script.attach == Attach::Tap {
            topology.join(&tag, "0x88a8", &folder)?;
        }
        topology.wait_for_path()?;
        Ok(Self { shaper, topology, folder })
    }

    /// Longest stretch the packet lcore has lost so far, in microseconds.
    pub fn gap_us(&self) -> Result<u64> {
        let lcores = self.shaper.json("/v1/lcores")?;
        let gaps = lcores["items"].as_array().into_iter().flatten();
        Ok(gaps.filter_map(|lcore| lcore["longest_gap_us"].as_u64()).max().unwrap_or(0))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn config(script: &Script, topology: &Topology, tag: &str, api: &str) -> String {
    let device = |index: u8, interface: &str| match script.attach {
        Attach::Veth => {
            format!("net_af_packet{index},iface={interface},framecnt=4096,framesz=2048,blocksz=65536")
        }
        Attach::Tap => format!("net_tap{index},iface={interface}"),
    };
    let (core, access) = (device(0, &topology.core), device(1, &topology.access));
    let cpu = u32::from(std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) || has_cpu1());
    let Script { profile, classify, .. } = script;
    format!(
        r#"[dataplane]
lcores = {{ compact = "1@{cpu}" }}
hugepages = "never"
buffers = 65536
eal_args = ["--file-prefix=slu-{tag}"]
[[port]]
name = "core"
device = "{core}"
role = "core"
peer = "access"
[[port]]
name = "access"
device = "{access}"
role = "access"
peer = "core"
[classify]
{classify}
[profile.default]
{profile}
[api]
listen = "{api}"
[store]
path = "@STORE@"
{}"#,
        seed()
    )
}

/// Whether there is a second CPU, even if this process keeps to the first.
fn has_cpu1() -> bool {
    Path::new("/sys/devices/system/cpu/cpu1").exists()
}

/// What happened in a queue between two snapshots.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// Packets sent.
    pub forwarded: u64,
    /// Their IP bytes.
    pub bytes: u64,
    /// Marked here.
    pub marked: u64,
    /// Dropped by the AQM.
    pub dropped_aqm: u64,
    /// Dropped otherwise.
    pub dropped_other: u64,
    /// Mean delay.
    pub mean_us: f64,
    /// Median delay: upper edge of its bin.
    pub p50_us: f64,
    /// 99th percentile: upper edge of its bin.
    pub p99_us: f64,
}

impl Span {
    /// From two snapshots of one queue.
    pub fn between(before: &QueueStats, after: &QueueStats) -> Self {
        let forwarded = after.forwarded - before.forwarded;
        let aqm = |stats: &QueueStats| stats.dropped_ect + stats.dropped_not_ect;
        let other = |stats: &QueueStats| stats.dropped_tail + stats.dropped_pool + stats.dropped_other;
        let sum = after.delay_us.sum - before.delay_us.sum;
        Self {
            forwarded,
            bytes: after.forwarded_bytes - before.forwarded_bytes,
            marked: after.marked - before.marked,
            dropped_aqm: aqm(after) - aqm(before),
            dropped_other: other(after) - other(before),
            mean_us: if forwarded == 0 { 0.0 } else { sum / precise(forwarded) },
            p50_us: quantile(before, after, 0.50),
            p99_us: quantile(before, after, 0.99),
        }
    }
}

/// Upper edge of the bin in which the quantile of what came between lies.
fn quantile(before: &QueueStats, after: &QueueStats, q: f64) -> f64 {
    let counts: Vec<u64> = after
        .delay_us
        .count
        .iter()
        .enumerate()
        .map(|(bin, count)| count - before.delay_us.count.get(bin).copied().unwrap_or(0))
        .collect();
    let all = precise(counts.last().copied().unwrap_or(0));
    let bin = counts.iter().position(|&count| precise(count) >= all * q && all > 0.0);
    bin.and_then(|bin| after.delay_us.le.get(bin).copied().flatten()).unwrap_or(if all > 0.0 {
        f64::INFINITY
    } else {
        0.0
    })
}

/// A count as a float; test runs stay far below 2^52.
#[expect(clippy::cast_precision_loss, reason = "counts of a test run are far below 2^52")]
pub fn precise(count: u64) -> f64 {
    count as f64
}
