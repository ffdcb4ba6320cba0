// SPDX-License-Identifier: Apache-2.0
//! A running Sluice in its topology: what the namespace tests and the demo start from.

use std::os::unix::fs::MetadataExt as _;
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
    /// `dataplane.lcores`, if not compact on CPU 1 where there is one.
    pub lcores: Option<&'static str>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            attach: Attach::Veth,
            profile: "aqm = \"dualpi2\"",
            classify: "unknown = \"pass\"",
            lcores: None,
        }
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
    _traces: Traces,
}

/// What DPDK leaves behind for a file prefix (an empty folder) and a Sluice that was killed (its lock), and a folder;
/// removed on drop, when those who write there have ended. After a panic the folder stays.
pub struct Traces {
    prefix: String,
    folder: Option<PathBuf>,
}

impl Traces {
    /// Of this prefix, and of those that begin with it and a hyphen.
    pub fn new(prefix: &str, folder: Option<PathBuf>) -> Self {
        Self { prefix: prefix.to_owned(), folder }
    }

    /// Where they may be: root's runtime folder, the user's, or that for temporary files.
    fn places() -> Vec<PathBuf> {
        let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let bases = [Some(PathBuf::from("/run")), own, Some(std::env::temp_dir())];
        let uid = std::fs::metadata("/proc/self").map_or(0, |meta| meta.uid());
        let below = |base: PathBuf| ["dpdk", "sluice", &format!("sluice-{uid}")].map(|name| base.join(name));
        bases.into_iter().flatten().flat_map(below).collect()
    }

    fn is_ours(&self, name: &str) -> bool {
        let name = name.strip_suffix(".lock").unwrap_or(name);
        name.strip_prefix(&self.prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        let entries = Self::places().into_iter().filter_map(|place| std::fs::read_dir(place).ok()).flatten();
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            if path.file_name().is_some_and(|name| self.is_ours(&name.to_string_lossy())) {
                let _ =
                    if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            }
        }
        if let Some(folder) = self.folder.as_ref().filter(|_| !std::thread::panicking()) {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// What tells the scenes of a process apart from those of others in names of interfaces, which must be short.
pub fn tag(process: u32, scene: u32) -> String {
    (process % 1_000 * 10 + scene % 10).to_string()
}

static SCENES: AtomicU32 = AtomicU32::new(0);

impl Scene {
    /// Sets the scene: compact on CPU 1 where there is one.
    pub fn set(script: &Script) -> Result<Self> {
        let tag = tag(std::process::id(), SCENES.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(format!("sluice-scene-{}-{tag}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        // declared first, dropped last where this fails
        let traces = Traces::new(&format!("slu-{tag}"), Some(folder.clone()));
        let mut topology = Topology::new(&tag, script.attach, &folder)?;
        let api = format!("127.0.0.1:{}", 20_000 + tag.parse::<u32>()?);
        let shaper = Shaper::start(&folder, &config(script, &topology, &tag, &api), &api)?;
        if script.attach == Attach::Tap {
            topology.join(&tag, "0x88a8", &folder)?;
        }
        topology.wait_for_path()?;
        Ok(Self { shaper, topology, folder, _traces: traces })
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
    let compact = format!("{{ compact = \"1@{cpu}\" }}");
    let Script { profile, classify, lcores, .. } = script;
    let lcores = lcores.unwrap_or(&compact);
    format!(
        r#"[dataplane]
lcores = {lcores}
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
    /// Median delay: upper edge of its bin, or the largest delay so far if less.
    pub p50_us: f64,
    /// 99th percentile: as above.
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

/// Upper edge of the bin in which the quantile of what came between lies, or the largest delay ever where that is less:
/// bins beyond 100 ms are wide.
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
    let Some(bin) = bin else { return 0.0 };
    let edge = after.delay_us.le.get(bin).copied().flatten().unwrap_or(f64::INFINITY);
    edge.min(after.delay_us.max)
}

/// A count as a float; test runs stay far below 2^52.
#[expect(clippy::cast_precision_loss, reason = "counts of a test run are far below 2^52")]
pub fn precise(count: u64) -> f64 {
    count as f64
}
