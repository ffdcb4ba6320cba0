// SPDX-License-Identifier: Apache-2.0
//! `sluice bench`: what the packet path costs here.
//!
//! `dataplane::bench` measures; this chooses CPUs, takes medians and reports. Nothing here makes the machine quiet:
//! `make bench` does, and this says how much of the time others took.

mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use dataplane::bench::{Options, Sizes};
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
}

#[derive(clap::Args)]
struct EngineArgs {
    /// Subscribers.
    #[arg(long, value_name = "N")]
    subscribers: u32,
    /// How long the shaper holds each packet, about, in milliseconds; 0: traffic conforms.
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    held_ms: f64,
    /// Time measured, in seconds.
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    seconds: f64,
    /// Size of the frames, FCS included.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=2000))]
    packet_bytes: u16,
    /// 64, 594 and 1518 bytes, 7 : 4 : 1.
    #[arg(long, conflicts_with = "packet_bytes")]
    imix: bool,
    /// Write the figures to this file.
    #[arg(long, value_name = "R.json")]
    json: Option<PathBuf>,
}

/// Measures and reports.
pub(crate) fn run(args: BenchArgs) -> Result<ExitCode> {
    let What::Engine(args) = args.what;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let options = options(&args)?;
    let report = dataplane::bench::run(&options)?;
    let figures = report::Figures::new(&options, args.held_ms, &report);
    report::print(&options, &figures, &report);
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&figures)?;
        std::fs::write(path, text + "\n").with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn options(args: &EngineArgs) -> Result<Options> {
    if !(0.0..=1_000.0).contains(&args.held_ms) {
        bail!("--held-ms is {}, outside 0 to 1000", args.held_ms);
    }
    if !(0.1..=3_600.0).contains(&args.seconds) {
        bail!("--seconds is {}, outside 0.1 to 3600", args.seconds);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1,000,000")]
    let held_us = (args.held_ms * 1e3).round() as u64;
    Ok(Options {
        subscribers: args.subscribers,
        held_us,
        sizes: if args.imix { Sizes::Imix } else { Sizes::Fixed(args.packet_bytes) },
        duration: Duration::from_secs_f64(args.seconds),
        cpus: cpus()?,
        hugepages: true,
        seed: 1,
    })
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
