// SPDX-License-Identifier: Apache-2.0
//! `sluice lab paper`: the published cases beside ours.
//!
//! The lab runs and judges; this chooses what, shows progress and writes the table, the JSON, the page and the
//! results page of the repository. Exit 1 if any judged cell is outside its band.

use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Instant;

use ::lab::paper::{self, Done, Options, Report, Stamp};
use anyhow::{Context as _, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

/// Arguments of `sluice lab paper`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct PaperArgs {
    /// Write the result to this file.
    #[arg(long, value_name = "R.json")]
    json: Option<PathBuf>,
    /// Write a page that opens without a network into this folder, as index.html.
    #[arg(long, value_name = "DIR")]
    html: Option<PathBuf>,
    /// Only cells that fit: a glob over names such as overload/c/100/l4s-delay-mean, or of a case or a folder of
    /// them. Several may be given.
    #[arg(long, value_name = "GLOB", conflicts_with = "short")]
    only: Vec<String>,
    /// The set for CI, under 3 minutes.
    #[arg(long)]
    short: bool,
    /// Seeds of each case.
    #[arg(long, value_name = "N", default_value_t = paper::DEFAULT_SEEDS, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Threads; 0: one for each CPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Show also figures that have no verdict.
    #[arg(long)]
    all: bool,
    /// Write the results page of the repository to this file.
    #[arg(long, value_name = "FILE.md", requires_all = ["date", "commit"])]
    markdown: Option<PathBuf>,
    /// The date on the results page.
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
    /// The commit on the results page.
    #[arg(long, value_name = "COMMIT")]
    commit: Option<String>,
}

/// Runs, judges and reports.
#[expect(clippy::disallowed_methods, reason = "says how fast the simulator was; no result hangs on it")]
pub(crate) fn run(args: &PaperArgs) -> Result<ExitCode> {
    let (cases, deviations) = (paper::cases()?, paper::deviations()?);
    let threads = match args.threads {
        0 => available_parallelism().map_or(1, std::num::NonZero::get),
        threads => threads,
    };
    let only = if args.short { paper::SHORT.map(str::to_owned).to_vec() } else { args.only.clone() };
    let options = Options { only, seeds: args.seeds, threads };
    let bar = bar();
    let start = Instant::now();
    let watch = |done: Done| {
        bar.set_length(done.runs as u64);
        bar.inc(1);
    };
    let report = paper::judge(&cases, &deviations, &options, &paper::simulate, &watch);
    bar.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();
    if report.cases.is_empty() {
        bail!("no cell fits {}", options.only.join(", "));
    }
    show(&report, args.all, seconds)?;
    write(&report, args)?;
    Ok(if report.good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// On a terminal's stderr; nothing elsewhere.
fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} runs, {eta} left");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show(report: &Report, all: bool, seconds: f64) -> Result<()> {
    let mut out = std::io::stdout().lock();
    write!(out, "{}", report.table(out.is_terminal(), all))?;
    #[expect(clippy::cast_precision_loss, reason = "packets, for a rate")]
    let rate = report.packets as f64 / seconds / 1e6;
    writeln!(out, "{} packets in {seconds:.1} s: {rate:.2} million a second", report.packets)?;
    Ok(())
}

fn write(report: &Report, args: &PaperArgs) -> Result<()> {
    let put = |path: &Path, text: &str| {
        fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
    };
    if let Some(path) = &args.json {
        put(path, &(report.json() + "\n"))?;
    }
    if let Some(folder) = &args.html {
        fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        put(&folder.join("index.html"), &report.html())?;
    }
    if let (Some(path), Some(date), Some(commit)) = (&args.markdown, &args.date, &args.commit) {
        put(path, &report.markdown(&Stamp { date: date.clone(), commit: commit.clone() }))?;
    }
    Ok(())
}
