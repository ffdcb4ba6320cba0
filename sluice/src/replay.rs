// SPDX-License-Identifier: Apache-2.0
//! `sluice replay`: a capture through parse, classify, shape and AQM in virtual time. No DPDK, no root.
//!
//! Capture timestamps are arrivals, output timestamps the start of transmission. The same input, configuration and
//! seed give the same bytes. Invariant: every packet of the input is in the output, or counted as bad, as dropped for
//! a reason, or as unknown where the configuration drops that; the run fails where the sums do not agree.

mod frame;
mod machine;
mod output;
mod summary;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use model::Config;
use serde_json::Value;

use crate::pcap::{Reader, Writer};
use machine::Machine;
use output::Output;

/// Arguments of `sluice replay`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayArgs {
    /// Configuration with the subscribers.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Which way the captured packets go.
    #[arg(long, value_enum)]
    direction: DirectionArg,
    /// Port the packets come in by; left out: the first of the role that the direction asks for.
    #[arg(long, value_name = "NAME")]
    port: Option<String>,
    /// Capture to read: classic pcap.
    #[arg(long = "in", value_name = "FILE")]
    input: PathBuf,
    /// Capture to write: classic pcap, nanoseconds.
    #[arg(long = "out", value_name = "FILE")]
    output: PathBuf,
    /// Also write the counts as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DirectionArg {
    /// Towards subscribers.
    Down,
    /// From subscribers.
    Up,
}

impl From<DirectionArg> for engine::Direction {
    fn from(arg: DirectionArg) -> Self {
        match arg {
            DirectionArg::Down => Self::Down,
            DirectionArg::Up => Self::Up,
        }
    }
}

/// Replays a capture.
///
/// # Errors
///
/// Where a file cannot be read or written, or the configuration is wrong. What stood under the names of the outputs
/// is then as it was.
#[expect(clippy::needless_pass_by_value, reason = "every command takes its arguments by value")]
pub(crate) fn run(args: ReplayArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.config)?;
    let machine = Machine::new(&config, args.direction.into(), args.port.as_deref())?;
    let report = replay(machine, &args)?;
    let direction = engine::Direction::from(args.direction).label();
    let summary = summary::text(&report, direction, config.subscribers.len());
    std::io::stdout().lock().write_all(summary.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn replay(mut machine: Machine, args: &ReplayArgs) -> anyhow::Result<Value> {
    let unreadable = || format!("cannot read {}", args.input.display());
    let unwritable = || cannot_write(&args.output);
    let input = File::open(&args.input).with_context(unreadable)?;
    for output in [Some(&args.output), args.json.as_ref()].into_iter().flatten() {
        if is_same_file(&args.input, output) {
            bail!("{} is both input and output", args.input.display());
        }
    }
    let mut reader = Reader::new(BufReader::new(input)).with_context(unreadable)?;
    let output = Output::create(&args.output).with_context(unwritable)?;
    let mut writer = Writer::new(output).with_context(unwritable)?;
    while let Some(record) = reader.next().with_context(unreadable)? {
        machine
            .arrive(record, &mut |at, frame| writer.write(at, frame.wire_bytes, &frame.data))
            .with_context(unwritable)?;
    }
    machine
        .drain(&mut |at, frame| writer.write(at, frame.wire_bytes, &frame.data))
        .with_context(unwritable)?;
    let output = writer.finish().with_context(unwritable)?;
    let report = machine.report()?;
    let json = args.json.as_deref().map(|path| counts(path, &report)).transpose()?;
    output.commit().with_context(unwritable)?;
    if let Some((path, json)) = args.json.as_ref().zip(json) {
        json.commit().with_context(|| cannot_write(path))?;
    }
    Ok(report)
}

fn counts(path: &Path, report: &Value) -> anyhow::Result<Output> {
    let write = || -> std::io::Result<Output> {
        let mut output = Output::create(path)?;
        writeln!(output, "{report:#}")?;
        output.flush()?;
        Ok(output)
    };
    write().with_context(|| cannot_write(path))
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    let (Ok(a), Ok(b)) = (a.canonicalize(), b.canonicalize()) else {
        return false;
    };
    a == b
}
