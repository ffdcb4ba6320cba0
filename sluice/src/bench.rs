// SPDX-License-Identifier: Apache-2.0
//! `sluice bench`: what the packet path costs here, and what a box would need.
//!
//! `dataplane::bench` measures; this chooses CPUs, takes medians and reports. Nothing here makes the machine quiet:
//! `make bench` does, and this says how much of the time others took.

mod plan;
mod report;
mod scenes;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use dataplane::bench::{Options, Sizes};
use serde::Serialize;
use tracing_subscriber::EnvFilter;

/// Arguments of `sluice bench`.
#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// The packet path on one lcore, from mbuf in to mbuf out.
    Engine(EngineArgs),
    /// Cores, memory and buffers for a box, from figures measured on this machine.
    Plan(plan::PlanArgs),
    /// Everybody has packets waiting all the time, at a plan far below what the path can carry.
    Backlog(scenes::BacklogArgs),
    /// How late departures are at half load.
    Lateness(scenes::LatenessArgs),
    /// Rate changes and new subscribers during full load.
    Changes(scenes::CommonArgs),
    /// A port offered twice its rate.
    Overload(scenes::OverloadArgs),
    /// One subscriber flooded among conforming ones.
    Flood(scenes::FloodArgs),
    /// Subscribers who come and go beside traffic: memory, delay.
    Churn(scenes::ChurnArgs),
    /// Memory of idle subscribers with records like the contract's example, and how fast they load.
    Memory(scenes::CommonArgs),
    /// The table lookup by itself.
    Lookup(scenes::CommonArgs),
    /// A PI pass over queue ids that all wait, and over as many idle ones.
    Pi(scenes::PiArgs),
}

#[derive(clap::Args)]
struct EngineArgs {
    /// Subscribers.
    #[arg(long, value_name = "N")]
    subscribers: u32,
    /// How long the shaper holds each packet, about, in milliseconds; 0: traffic conforms.
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    held_ms: f64,
    /// What the rates of held traffic add up to, in Mpps; left out, a warm-up finds what is possible.
    #[arg(long, value_name = "M")]
    held_mpps: Option<f64>,
    /// Levels of aggregates above the subscribers, none of them a bottleneck.
    #[arg(long, value_name = "LEVELS", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=8))]
    parents: u8,
    /// Time measured, in seconds.
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    seconds: f64,
    #[command(flatten)]
    frames: FrameArgs,
    /// Shards that feed themselves, each on a CPU of its own; 0: one shard, its generator on another CPU.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=2))]
    shards: u32,
    /// Feed any shard from any generator, so that packets go from core to core; else each feeds its own shard.
    #[arg(long)]
    crossing: bool,
    /// Write the figures to this file.
    #[arg(long, value_name = "R.json")]
    json: Option<PathBuf>,
}

/// Sizes of frames.
#[derive(clap::Args)]
struct FrameArgs {
    /// Size of the frames, FCS included.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=2000))]
    packet_bytes: u16,
    /// 64, 594 and 1518 bytes, 7 : 4 : 1.
    #[arg(long, conflicts_with = "packet_bytes")]
    imix: bool,
}

impl FrameArgs {
    fn sizes(&self) -> Sizes {
        if self.imix { Sizes::Imix } else { Sizes::Fixed(self.packet_bytes) }
    }
}

/// Measures and reports.
pub(crate) fn run(args: BenchArgs) -> Result<ExitCode> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match args.what {
        What::Engine(args) => engine(&args)?,
        What::Plan(args) => plan::run(&args)?,
        What::Backlog(args) => scenes::backlog(&args)?,
        What::Lateness(args) => scenes::lateness(&args)?,
        What::Changes(args) => scenes::changes(&args)?,
        What::Overload(args) => scenes::overload(&args)?,
        What::Flood(args) => scenes::flood(&args)?,
        What::Churn(args) => scenes::churn(&args)?,
        What::Memory(args) => scenes::memory(&args)?,
        What::Lookup(args) => scenes::lookup(&args)?,
        What::Pi(args) => scenes::pi(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn engine(args: &EngineArgs) -> Result<()> {
    if !(0.0..=1_000.0).contains(&args.held_ms) {
        bail!("--held-ms is {}, outside 0 to 1000", args.held_ms);
    }
    let options = Options {
        held_us: micros(args.held_ms),
        parents: args.parents.into(),
        held_pps: args.held_mpps.map(|mpps| mpps * 1e6),
        sizes: args.frames.sizes(),
        shards: args.shards,
        crossing: args.crossing,
        ..options(args.subscribers, args.seconds)?
    };
    let report = dataplane::bench::run(&options)?;
    let figures = report::Figures::new(&options, args.held_ms, &report);
    report::print(&options, &figures, &report);
    write(args.json.as_deref(), &figures)
}

/// A time in microseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1,000,000")]
fn micros(ms: f64) -> u64 {
    (ms.clamp(0.0, 1e3) * 1e3).round() as u64
}

/// The figures as a file, if one is wanted.
fn write(path: Option<&Path>, figures: &impl Serialize) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(figures)?;
    std::fs::write(path, text + "\n").with_context(|| format!("{} cannot be written", path.display()))
}

/// Conforming traffic of 64-byte frames.
fn options(subscribers: u32, seconds: f64) -> Result<Options> {
    if !(0.1..=3_600.0).contains(&seconds) {
        bail!("--seconds is {seconds}, outside 0.1 to 3600");
    }
    Ok(Options::new(subscribers, Duration::from_secs_f64(seconds), cpus()?))
}

/// The first CPU for the generator and this thread, the last one for the path.
fn cpus() -> Result<(u32, u32)> {
    let all = core_affinity::get_core_ids().context("the CPUs of this process cannot be read")?;
    let (Some(&first), Some(&last)) = (all.first(), all.last()) else {
        bail!("this process has no CPU");
    };
    core_affinity::set_for_current(first);
    Ok((u32::try_from(first.id)?, u32::try_from(last.id)?))
}
