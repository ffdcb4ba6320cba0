// SPDX-License-Identifier: Apache-2.0
//! `sluice lab`: closed loops in virtual time. Reads a scenario, runs it, shows the result; all else is in `lab`.

mod table;

use std::fs;
use std::io::{self, IsTerminal, Write as _};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::lab::{Outcome, Scenario, plot, run_all_watched, run_watched};
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use model::profile::{LINUX_LIMIT_PACKETS, MAX_LIMIT_US};
use serde_json::json;

/// Arguments of `sluice lab`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum LabCommand {
    /// Run one scenario.
    Run(RunArgs),
    /// Run one scenario under several AQMs.
    Compare(CompareArgs),
    /// Hold the published cases against ours.
    Paper(crate::lab_paper::PaperArgs),
}

/// Arguments of `sluice lab run`.
#[derive(Args, Clone, Debug)]
struct RunArgs {
    /// Scenario (TOML)
    scenario: PathBuf,
    /// The same seed gives the same result
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw delay and rates into NAME.svg in this folder
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

/// Arguments of `sluice lab compare`.
#[derive(Args, Clone, Debug)]
struct CompareArgs {
    /// Scenario (TOML); its profile is the first of those compared
    scenario: PathBuf,
    /// AQMs, each with its defaults; dualpi2-linux is `compat = "linux"`
    #[arg(long, value_delimiter = ',', required = true)]
    aqm: Vec<String>,
    /// Runs of each; figures are means
    #[arg(long, default_value_t = 1)]
    seeds: u32,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs `sluice lab`.
///
/// # Errors
///
/// If a file cannot be read or written, or a scenario is wrong.
#[expect(clippy::needless_pass_by_value, reason = "every command takes its arguments by value")]
pub(crate) fn run(args: LabArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        LabCommand::Run(args) => run_one(args),
        LabCommand::Compare(args) => compare(args),
        LabCommand::Paper(args) => crate::lab_paper::run(args),
    }
}

fn run_one(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let scenario = Scenario::read(&args.scenario)?;
    let bar = bar(scenario.duration.0 / 1_000_000);
    let outcome = run_watched(&scenario, args.seed, &mut |now| bar.set_position(now.0 / 1_000_000))?;
    bar.finish_and_clear();
    if let Some(path) = &args.json {
        write(path, &format!("{}\n", serde_json::to_string_pretty(&outcome)?))?;
    }
    if let Some(folder) = &args.svg {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        write(
            &folder.join(format!("{}.svg", file_name(&scenario.name))),
            &plot::svg(&plot::charts(&outcome)),
        )?;
    }
    io::stdout().lock().write_all(table::outcome(&outcome).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn compare(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let scenario = Scenario::read(&args.scenario)?;
    let seeds = u64::from(args.seeds.max(1));
    let mut jobs = Vec::new();
    for aqm in &args.aqm {
        let variant = with_aqm(&scenario, aqm)?;
        jobs.extend((1..=seeds).map(|seed| (variant.clone(), seed)));
    }
    let bar = bar(jobs.len() as u64);
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let results = run_all_watched(&jobs, threads, &|| bar.inc(1));
    bar.finish_and_clear();
    let outcomes = results.into_iter().collect::<Result<Vec<Outcome>, _>>()?;
    let each = usize::try_from(seeds)?;
    let rows: Vec<_> = args.aqm.iter().zip(outcomes.chunks(each)).collect();
    if let Some(path) = &args.json {
        let all: Vec<_> = rows.iter().map(|(aqm, runs)| json!({ "aqm": aqm, "runs": runs })).collect();
        write(path, &format!("{:#}\n", json!({ "name": scenario.name, "compared": all })))?;
    }
    io::stdout().lock().write_all(table::comparison(&scenario.name, &rows).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The scenario under another AQM: what all profiles have in common stays, keys of the AQM are its defaults.
fn with_aqm(scenario: &Scenario, aqm: &str) -> anyhow::Result<Scenario> {
    let (name, linux) = match aqm.strip_suffix("-linux") {
        Some(name @ ("dualpi2" | "pi2")) => (name, true),
        _ => (aqm, false),
    };
    let compat = if linux { "\ncompat = \"linux\"" } else { "" };
    let text = format!("[profile]\naqm = \"{name}\"{compat}\n");
    let other = match Scenario::parse(&text) {
        Ok(parsed) => parsed.profile,
        Err(problems) => bail!("--aqm {aqm}: {}", problems.0.first().map_or("", |problem| &problem.message)),
    };
    let mut variant = scenario.clone();
    let old = &scenario.profile;
    variant.profile = model::Profile { overhead: old.overhead, mtu: old.mtu, ..other };
    // The kernel's limits come with its arithmetic and are no choice of the scenario's.
    let kernels = old.limit_us == MAX_LIMIT_US && old.limit_packets == Some(LINUX_LIMIT_PACKETS);
    if !linux && !kernels {
        (variant.profile.limit_us, variant.profile.limit_packets) = (old.limit_us, old.limit_packets);
    }
    Ok(variant)
}

/// A progress bar on a terminal; it draws nothing in the first half second, and nowhere else.
fn bar(length: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent}% {eta} left");
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// A name that leads nowhere else.
fn file_name(name: &str) -> String {
    let safe = name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' });
    safe.collect::<String>().trim_start_matches('.').to_owned()
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_aqm_keeps_what_profiles_have_in_common() {
        let text =
            "[profile]\naqm = \"dualpi2\"\ntarget_us = 5000\nlimit_us = 100000\noverhead = \"docsis\"\n";
        let scenario = Scenario::parse(text).unwrap();
        let fifo = with_aqm(&scenario, "fifo").unwrap().profile;
        assert_eq!(
            (fifo.aqm.clone(), fifo.limit_us, fifo.overhead.bytes),
            (model::profile::Aqm::Fifo, 100_000, 18)
        );
        let linux = with_aqm(&scenario, "dualpi2-linux").unwrap().profile;
        assert_eq!(linux.limit_packets, Some(LINUX_LIMIT_PACKETS));
        let error = with_aqm(&scenario, "red").unwrap_err().to_string();
        assert!(error.contains("red"), "{error}");
    }

    #[test]
    fn names_lead_to_no_other_folder() {
        assert_eq!(file_name("../../etc/passwd"), "-..-etc-passwd");
        assert_eq!(file_name("cloud-gaming-l4s"), "cloud-gaming-l4s");
    }
}
