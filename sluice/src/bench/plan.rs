// SPDX-License-Identifier: Apache-2.0
//! `sluice bench plan`: cores, memory and buffers for a box, from what was measured on this machine.
//!
//! Figures come from the JSON of `make bench` if there is one, else from a measurement of a few seconds. Costs between
//! two measured numbers of subscribers are taken to lie on a line over the number's logarithm.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use dataplane::bench::{self, Options, Sizes};
use serde_json::{Value, json};

use super::report::{Figures, rounded};
use super::{micros, options, write};

/// What `make bench` writes.
const FIGURES: &str = "target/bench/bench.json";
/// Part of an lcore's time that is planned for: the rest is for bursts and for what others take.
const UTILISATION: f64 = 0.75;
/// What of two shards' work two cores do, where that was not measured.
const SCALING: f64 = 0.9;
/// A short measurement: subscribers at most, and seconds.
const MEASURED: u32 = 1_000_000;
const SECONDS: f64 = 2.0;
const HELD_MS: f64 = 2.0;
/// Preamble, gap: what a frame takes on the wire besides.
const WIRE_OVERHEAD: f64 = 20.0;

#[derive(clap::Args)]
pub(super) struct PlanArgs {
    /// Rate of each of the two ports, in Gb/s.
    #[arg(long, value_name = "N")]
    port_gbps: f64,
    /// Subscribers.
    #[arg(long, value_name = "N")]
    subscribers: u32,
    /// Frames: imix, or a size with FCS (64 to 2000).
    #[arg(long, value_name = "MIX", default_value = "imix")]
    mix: String,
    /// Upstream traffic, in Gb/s; left out: as much as downstream, the port's rate.
    #[arg(long, value_name = "N")]
    up_gbps: Option<f64>,
    /// Figures of `make bench`; left out: target/bench/bench.json if it is there, else a short measurement.
    #[arg(long, value_name = "bench.json")]
    figures: Option<PathBuf>,
    /// Write the plan to this file.
    #[arg(long, value_name = "R.json")]
    json: Option<PathBuf>,
}

/// What is known of this machine.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    /// Where from.
    source: String,
    /// Busy ns a packet of the wanted size at the wanted number of subscribers.
    ns_per_packet: f64,
    /// Part of it that RX lcores spend.
    rx_part: f64,
    bytes_per_subscriber: f64,
    /// Part of the work that remains with each core added.
    scaling: f64,
}

pub(super) fn run(args: &PlanArgs) -> Result<()> {
    let sizes = sizes(&args.mix)?;
    if !(0.01..=1_600.0).contains(&args.port_gbps) {
        bail!("--port-gbps is {}, outside 0.01 to 1600", args.port_gbps);
    }
    let usual = Path::new(FIGURES);
    let known = match args.figures.as_deref().or_else(|| Some(usual).filter(|path| path.exists())) {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("{} cannot be read", path.display()))?;
            let figures: Value = serde_json::from_str(&text)?;
            read(&figures, &path.display().to_string(), args.subscribers, sizes)
                .with_context(|| format!("{} does not hold what a plan needs", path.display()))?
        }
        None => measure(args.subscribers, sizes)?,
    };
    let plan = plan(args, sizes, &known);
    print(&plan);
    write(args.json.as_deref(), &plan)
}

fn sizes(mix: &str) -> Result<Sizes> {
    if mix == "imix" {
        return Ok(Sizes::Imix);
    }
    match mix.parse() {
        Ok(bytes @ 64..=2_000) => Ok(Sizes::Fixed(bytes)),
        _ => bail!("--mix is \"{mix}\", neither imix nor 64 to 2000"),
    }
}

/// A few seconds of held traffic.
fn measure(subscribers: u32, sizes: Sizes) -> Result<Known> {
    let measured = subscribers.clamp(1, MEASURED);
    let options = Options { held_us: micros(HELD_MS), sizes, ..options(measured, SECONDS)? };
    let report = bench::run(&options)?;
    let figures = serde_json::to_value(Figures::new(&options, HELD_MS, &report))?;
    let known = known(&figures, format!("a measurement of {SECONDS} s with {measured} subscribers"));
    known.context("the measurement gave no figures")
}

/// What one row of figures says.
fn known(row: &Value, source: String) -> Option<Known> {
    let stage = |name: &str| row["stages_ns"][name].as_f64().unwrap_or(0.0);
    let all: f64 = row["stages_ns"].as_object()?.values().filter_map(Value::as_f64).sum();
    let rx = stage("rx") + stage("parse") + stage("classify") + stage("ring") / 2.0;
    Some(Known {
        source,
        ns_per_packet: number(&row["ns_per_packet"])?,
        rx_part: if all > 0.0 { rx / all } else { 0.5 },
        bytes_per_subscriber: number(&row["bytes_per_subscriber"])?,
        scaling: SCALING,
    })
}

/// A figure, or the median of several runs.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value["median"].as_f64())
}

/// Reads the figures of `make bench`.
fn read(figures: &Value, source: &str, subscribers: u32, sizes: Sizes) -> Option<Known> {
    let rows = figures["engine"].as_array()?;
    let held: Vec<&Value> = rows.iter().filter(|row| row["held_ms"].as_f64() > Some(0.0)).collect();
    let bytes_of = |row: &Value| row["packet_bytes"].as_u64().unwrap_or(0);
    let count_of = |row: &Value| row["subscribers"].as_f64().unwrap_or(0.0);
    let mut small: Vec<(f64, f64)> = held
        .iter()
        .filter(|row| bytes_of(row) == 64)
        .filter_map(|row| Some((count_of(row), number(&row["ns_per_packet"])?)))
        .collect();
    small.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ns = between(&small, f64::from(subscribers))?;
    // other sizes were measured at one number of subscribers
    let other = held.iter().filter(|row| bytes_of(row) != 64);
    let nearest = other.min_by_key(|row| bytes_of(row).abs_diff(sizes.mean().into()));
    let factor = nearest.filter(|_| sizes.mean() > 100).and_then(|row| {
        let of_small = between(&small, count_of(row))?;
        Some(number(&row["ns_per_packet"])? / of_small)
    });
    let last =
        held.iter().filter(|row| bytes_of(row) == 64).max_by(|a, b| count_of(a).total_cmp(&count_of(b)))?;
    let commit = figures["machine"]["commit"].as_str().unwrap_or("?");
    let mut known = known(last, format!("{source}, commit {commit}"))?;
    known.ns_per_packet = ns * factor.unwrap_or(1.0);
    if let Some(bytes) = number(&figures["memory"]["bytes_per_subscriber"]) {
        known.bytes_per_subscriber = bytes;
    }
    if let Some(times) = number(&figures["shards"]["times"]) {
        known.scaling = (times / 2.0).clamp(0.1, 1.0);
    }
    Some(known)
}

/// A value between measured ones, on a line over the logarithm; the nearest beyond both ends.
fn between(points: &[(f64, f64)], at: f64) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    if at <= first.0 {
        return Some(first.1);
    }
    let pair = points.windows(2).find(|pair| matches!(pair, [_, next] if at <= next.0));
    let Some([a, b]) = pair else {
        return Some(last.1);
    };
    let part = (at.ln() - a.0.ln()) / (b.0.ln() - a.0.ln());
    Some(a.1 + (b.1 - a.1) * part)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of cores and rates of ports"
)]
fn plan(args: &PlanArgs, sizes: Sizes, known: &Known) -> Value {
    let up_gbps = args.up_gbps.unwrap_or(args.port_gbps);
    let bytes = f64::from(sizes.mean());
    let pps = (args.port_gbps + up_gbps) * 1e9 / 8.0 / (bytes + WIRE_OVERHEAD);
    let busy = pps * known.ns_per_packet / 1e9;
    let cores = busy / UTILISATION / if busy > UTILISATION { known.scaling } else { 1.0 };
    let rx = (cores * known.rx_part).ceil().max(1.0) as u32;
    let tx = (cores * (1.0 - known.rx_part)).ceil().max(1.0) as u32;
    let compact = cores <= 1.0;
    let (buffers, buffer_mb) = bench::planned_buffers((args.port_gbps * 1e9) as u64, rx, tx);
    let subscriber_mb = f64::from(args.subscribers) * known.bytes_per_subscriber / 1_048_576.0;
    let lcores = if compact { json!({"compact": 1}) } else { json!({"control": 1, "rx": rx, "tx": tx}) };
    json!({
        "port_gbps": args.port_gbps, "up_gbps": up_gbps, "subscribers": args.subscribers,
        "mix": args.mix, "packet_bytes": sizes.mean(),
        "mpps": rounded(pps / 1e6), "ns_per_packet": rounded(known.ns_per_packet),
        "busy_cores": rounded(busy), "lcores": lcores,
        "cores": if compact { 2 } else { rx + tx + 2 },
        "subscriber_mb": subscriber_mb.round(), "buffers": buffers, "buffer_mb": buffer_mb,
        "hugepages_2mb": (subscriber_mb / 2.0).ceil() as u64 + u64::from(buffer_mb.div_ceil(2)),
        "assumptions": [
            format!("figures from {}", known.source),
            format!("both directions at once: {} and {} Gb/s of {bytes}-byte frames and {WIRE_OVERHEAD} bytes each on the wire",
                args.port_gbps, up_gbps),
            format!("every packet held about {HELD_MS} ms, subscribers in turn: the dearest case measured; conforming traffic costs less"),
            format!("lcores {:.0} % busy at most; each core added does {:.0} % of its own work for the whole",
                UTILISATION * 100.0, known.scaling * 100.0),
            "cores: those lcores, one for control, and one for the system and HTTP; hyperthreads are not cores".to_owned(),
            "a core of the box is as fast as one of this machine; NIC drivers' own cost is not in the figures".to_owned(),
            format!("{:.0} bytes a subscriber, both directions, default profile", known.bytes_per_subscriber),
            "buffers as `sluice run` sizes them: 50 ms of both ports' rates in packets of 1,000 bytes, descriptors, rings".to_owned(),
        ],
    })
}

#[expect(clippy::print_stdout, reason = "this command's output")]
fn print(plan: &Value) {
    let figure = |name: &str| plan[name].to_string();
    println!(
        "{} Gb/s, {} subscribers, {}: {} Mpps, {} ns a packet",
        figure("port_gbps"),
        figure("subscribers"),
        plan["mix"].as_str().unwrap_or_default(),
        figure("mpps"),
        figure("ns_per_packet")
    );
    println!(
        "  cores      {} (lcores {}; {} of work)",
        figure("cores"),
        figure("lcores"),
        figure("busy_cores")
    );
    println!(
        "  memory     {} MB for subscribers, {} MB for buffers",
        figure("subscriber_mb"),
        figure("buffer_mb")
    );
    println!("  buffers    {}", figure("buffers"));
    println!("  huge pages {} of 2 MiB", figure("hugepages_2mb"));
    for assumption in plan["assumptions"].as_array().into_iter().flatten() {
        println!("  assumed: {}", assumption.as_str().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(subscribers: u32, bytes: u32, ns: f64) -> Value {
        json!({"subscribers": subscribers, "held_ms": 2.0, "packet_bytes": bytes, "ns_per_packet": {"median": ns},
            "bytes_per_subscriber": 900.0,
            "stages_ns": {"rx": 10.0, "parse": 10.0, "classify": 15.0, "ring": 10.0, "enqueue": 25.0, "dequeue": 30.0}})
    }

    fn figures() -> Value {
        json!({"machine": {"commit": "abc"}, "memory": {"bytes_per_subscriber": 1000.0}, "shards": {"times": {"median": 1.8}},
            "engine": [row(1_000, 64, 50.0), row(1_000_000, 64, 110.0), row(1_000_000, 362, 121.0),
                json!({"subscribers": 1_000_000, "held_ms": 0.0, "packet_bytes": 64, "ns_per_packet": {"median": 1.0}})]})
    }

    #[test]
    fn costs_lie_between_what_was_measured() {
        let at = |subscribers, sizes| read(&figures(), "x", subscribers, sizes).unwrap().ns_per_packet;
        assert!((at(1_000, Sizes::Fixed(64)) - 50.0).abs() < 1e-9);
        assert!((at(31_623, Sizes::Fixed(64)) - 80.0).abs() < 0.01, "half way on a logarithm");
        assert!((at(9_000_000, Sizes::Fixed(64)) - 110.0).abs() < 1e-9);
        assert!((at(1_000_000, Sizes::Imix) - 121.0).abs() < 1e-9);
    }

    #[test]
    fn a_plan_has_cores_for_both_directions_and_says_what_it_assumes() {
        let args = PlanArgs {
            port_gbps: 100.0,
            subscribers: 1_000_000,
            mix: "imix".to_owned(),
            up_gbps: None,
            figures: None,
            json: None,
        };
        let known = read(&figures(), "x", 1_000_000, Sizes::Imix).unwrap();
        let plan = plan(&args, Sizes::Imix, &known);
        // 200 Gb/s of 382 wire bytes are 65.4 Mpps; at 121 ns 7.9 cores of work, 11.7 at 75 % and 90 %
        assert_eq!(plan["mpps"], 65.45);
        assert_eq!(plan["busy_cores"], 7.92);
        assert_eq!(plan["lcores"], json!({"control": 1, "rx": 5, "tx": 8}));
        assert_eq!(plan["cores"], 15);
        assert_eq!(plan["subscriber_mb"], 954.0);
        assert!(plan["buffers"].as_u64() > Some(1_000_000));
        assert!(plan["assumptions"].as_array().unwrap().len() >= 5);
    }

    #[test]
    fn a_mix_is_imix_or_a_size() {
        assert!(sizes("imix").is_ok() && sizes("1500").is_ok());
        assert!(sizes("63").is_err() && sizes("large").is_err());
    }
}
