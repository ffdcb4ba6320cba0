// SPDX-License-Identifier: Apache-2.0
//! Bulk and live change at size, against a running Sluice that forwards meanwhile: load, replace, single changes,
//! death, restart. `control-load` prints the figures; `tests/at_size.rs` runs a small one.
//!
//! Every record differs in a replace, so nothing is saved by the diff. Of single changes all that was acknowledged
//! is remembered; after a KILL in their midst the store is asked for it.

mod http;
mod patches;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::direct::{Direct, Line, Plan, address, server};
use crate::machine::wait_for;
use crate::rig::Process;
use crate::traffic::{run_udp, traffic_server};
use crate::verdict::let_flow;
use http::Connection;

/// The subscriber whose traffic flows all the time.
const TRAFFIC: Line = Line { id: "traffic", pair: 0, host: 10, down_bps: 50_000_000, up_bps: 50_000_000 };
/// Bits per second of that traffic; about 870 packets a second.
const OFFERED_BPS: &str = "10000000";
/// Host whose record comes and goes.
const PROBE: u8 = 77;
/// Acknowledged changes looked up after the restart.
const SAMPLE: usize = 500;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Records, beside the one with traffic.
    pub records: u32,
    /// How long single changes go on.
    pub seconds: f64,
    /// From so many connections.
    pub connections: u32,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Records.
    pub records: u32,
    /// First load of all, seconds.
    pub load_s: f64,
    /// Replace of all, each different, seconds.
    pub replace_s: f64,
    /// The same body again: nothing differs.
    pub unchanged_s: f64,
    /// Single changes a second.
    pub patches_per_s: f64,
    /// From request to answer, which comes when the lcores have it: median, 99th percentile, longest, in ms.
    pub patch_ms: [f64; 3],
    /// From the start of the process to ready, seconds, after KILL.
    pub restart_s: f64,
    /// Packets that arrived for the subscriber with traffic, and those of them that were dropped, by any reason.
    pub packets: u64,
    /// See `packets`.
    pub dropped: u64,
    /// Packets that a port lost.
    pub port_drops: f64,
    /// Memory of the process in MB: with room for all and no records, with all, at its most.
    pub memory_mb: [f64; 3],
    /// Bytes of the store with its log.
    pub store_mb: f64,
    /// The longest stretch that the packet lcore lost, microseconds.
    pub gap_us: u64,
}

impl Figures {
    /// As JSON.
    pub fn json(&self) -> Value {
        json!({
            "records": self.records, "load_s": self.load_s, "replace_s": self.replace_s,
            "unchanged_s": self.unchanged_s, "patches_per_s": self.patches_per_s,
            "patch_ms": {"p50": self.patch_ms[0], "p99": self.patch_ms[1], "max": self.patch_ms[2]},
            "restart_s": self.restart_s, "packets": self.packets, "dropped": self.dropped,
            "port_drops": self.port_drops, "store_mb": self.store_mb, "gap_us": self.gap_us,
            "memory_mb": {"empty": self.memory_mb[0], "loaded": self.memory_mb[1], "most": self.memory_mb[2]},
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "what is measured takes real time; this file owns the clock")]
fn now() -> Instant {
    Instant::now()
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let begin = now();
    let done = work()?;
    Ok((done, begin.elapsed().as_secs_f64()))
}

/// Runs it all.
pub fn run(options: Options, mut say: impl FnMut(&str)) -> Result<Figures> {
    let mut figures = Figures { records: options.records, ..Figures::default() };
    let plan =
        Plan { lines: vec![TRAFFIC], hosts: &[PROBE], subscribers: options.records + 16, ..Plan::default() };
    let mut network = Direct::set(&plan)?;
    figures.memory_mb[0] = memory(&mut network, "VmRSS")?;
    let bulk = |network: &Direct, rate, mode| bulk(network, options.records, rate, mode);
    let (answer, load_s) = timed(|| bulk(&network, 10_000_000, "upsert"))?;
    ensure!(answer["created"] == options.records, "{answer}");
    figures.load_s = load_s;
    figures.memory_mb[1] = memory(&mut network, "VmRSS")?;
    say(&format!("loaded in {load_s:.2} s"));

    let traffic = Traffic::start(&network)?;
    let (answer, replace_s) = timed(|| bulk(&network, 20_000_000, "replace"))?;
    ensure!(answer["updated"] == options.records && answer["deleted"] == 0, "{answer}");
    figures.replace_s = replace_s;
    say(&format!("replaced in {replace_s:.2} s"));
    let (answer, unchanged_s) = timed(|| bulk(&network, 20_000_000, "replace"))?;
    ensure!(answer["unchanged"] == options.records + 1, "{answer}");
    figures.unchanged_s = unchanged_s;
    say(&format!("replaced by the same in {unchanged_s:.2} s"));

    let patched = patches::run(network.api(), options)?;
    (figures.patches_per_s, figures.patch_ms) = (patched.per_s, patched.ms);
    say(&format!("{:.0} single changes a second, ms {:?}", patched.per_s, patched.ms));
    seen_at_once(&network)?;
    figures.memory_mb[2] = memory(&mut network, "VmHWM")?;
    traffic.judge(&network, &mut figures)?;
    figures.gap_us = network.shaper.gap_us()?;

    network.shaper.kill();
    figures.store_mb = store_mb(&network);
    let ((), restart_s) = timed(|| network.restart())?;
    figures.restart_s = restart_s;
    say(&format!("ready again in {restart_s:.2} s"));
    for (record, rate) in patched.acknowledged.iter().take(SAMPLE) {
        let kept = network.shaper.json(&format!("/v1/subscribers/{}", id(*record)))?;
        ensure!(kept["down_bps"] == *rate, "acknowledged was {rate}, kept is {kept}");
    }
    Ok(figures)
}

/// Name of a record.
fn id(record: u32) -> String {
    format!("s{record:07}")
}

/// Sends all records by one bulk request; its answer.
fn bulk(network: &Direct, records: u32, rate: u64, mode: &str) -> Result<Value> {
    let mut lines = format!("{}\n", TRAFFIC.record());
    let mut next = 0..records;
    let (status, body) = Connection::open(network.api())?.stream(
        &format!("/v1/subscribers/bulk?mode={mode}"),
        || {
            let mut piece = std::mem::take(&mut lines);
            for record in next.by_ref().take(400) {
                let [_, high, middle, low] = record.to_be_bytes();
                let name = id(record);
                // writing to a String cannot fail
                let _ = writeln!(
                    piece,
                    "{{\"id\":\"{name}\",\"down_bps\":{},\"up_bps\":{rate},\"match\":{{\"ipv4\":[\"10.{high}.{middle}.{low}/32\"],\
                     \"ipv6\":[\"2001:db9:{:x}:{:x}00::/56\"]}}}}",
                    rate + u64::from(record),
                    record >> 8,
                    record & 0xff
                );
            }
            piece.into_bytes()
        },
    )?;
    ensure!(status == 200, "{status} {body}");
    serde_json::from_str(&body).with_context(|| body.clone())
}

/// A figure of the process from /proc, in MB.
fn memory(network: &mut Direct, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", network.shaper.process().id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such figure")?;
    let kb = line.split_whitespace().nth(1).context("no figure")?;
    Ok(kb.parse::<f64>()? / 1024.0)
}

fn store_mb(network: &Direct) -> f64 {
    let sizes = ["sluice.db", "sluice.db-wal"].map(|name| std::fs::metadata(network.folder.join(name)));
    #[expect(clippy::cast_precision_loss, reason = "a size for people")]
    let bytes = sizes.iter().flatten().map(std::fs::Metadata::len).sum::<u64>() as f64;
    bytes / f64::from(1 << 20)
}

/// A record that is answered for is shaped: the very next packet is counted in it.
fn seen_at_once(network: &Direct) -> Result<()> {
    let line = Line { id: "probe", host: PROBE, ..TRAFFIC };
    for _ in 0..3 {
        let (status, body) = network.shaper.put("/v1/subscribers/probe", &line.record())?;
        ensure!(status == 201, "{status} {body}");
        ensure!(network.reaches(0, &address(0, PROBE), &server(0)), "the probe reaches nobody");
        let seen = network.shaper.stats("probe")?;
        let packets = [&seen.down, &seen.up].map(|way| way.classic.forwarded + way.l4s.forwarded);
        ensure!(packets == [1, 1], "a packet each way, counted {packets:?}");
        ensure!(network.shaper.delete("/v1/subscribers/probe")? == 204, "the probe stays");
    }
    Ok(())
}

/// Traffic of one subscriber, until dropped.
struct Traffic {
    client: Process,
    _server: Process,
}

impl Traffic {
    fn start(network: &Direct) -> Result<Self> {
        let (pair, folder) = (&network.pairs[0], network.folder.as_path());
        let at = format!("{}:8401", server(0));
        let serving = traffic_server(&pair.server, &at, folder)?;
        let options = ["--direction", "down", "--seconds", "600", "--rate-bps", OFFERED_BPS, "--ecn", "ect0"];
        let client = run_udp(&pair.client, (&address(0, TRAFFIC.host), &at), "cbr", &options, folder)?;
        let made = Self { client, _server: serving };
        let flows = wait_for(Duration::from_secs(10), || {
            network.shaper.stats(TRAFFIC.id).is_ok_and(|stats| stats.down.classic.arrived > 200)
        });
        ensure!(flows, "no traffic flows: {}", made.client.output());
        Ok(made)
    }

    /// Ends it and counts.
    fn judge(mut self, network: &Direct, figures: &mut Figures) -> Result<()> {
        self.client.terminate(Duration::from_secs(5));
        let_flow(0.3);
        let queue = network.shaper.stats(TRAFFIC.id)?.down.classic;
        figures.packets = queue.arrived;
        figures.dropped = queue.arrived - queue.forwarded;
        figures.port_drops = network.shaper.metric_sum("sluice_port_drops_total", &[])?;
        Ok(())
    }
}
