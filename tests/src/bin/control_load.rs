// SPDX-License-Identifier: Apache-2.0
//! `control-load`: what the control side bears with a given number of records, printed and as JSON. Needs root.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use tests::load::{Options, run};

/// Bulk and single changes against a running shaper with traffic.
#[derive(Parser)]
struct Arguments {
    /// Records.
    #[arg(long, default_value_t = 1_000_000)]
    records: u32,
    /// Seconds of single changes.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Connections they come from.
    #[arg(long, default_value_t = 8)]
    connections: u32,
    /// Where the figures go as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[expect(clippy::print_stdout, reason = "a command's output")]
fn main() -> Result<()> {
    let Arguments { records, seconds, connections, json } = Arguments::parse();
    // everything but the packet lcore runs on CPU 0
    core_affinity::set_for_current(core_affinity::CoreId { id: 0 });
    let figures = run(Options { records, seconds, connections }, |line| println!("{line}"))?;
    let text = serde_json::to_string_pretty(&figures.json())?;
    println!("{text}");
    if let Some(path) = json {
        std::fs::write(path, text)?;
    }
    Ok(())
}
