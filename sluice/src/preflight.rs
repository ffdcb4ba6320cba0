// SPDX-License-Identifier: Apache-2.0
//! `sluice check --preflight [FILE]`: whether this machine suits a configuration, with a fix for each thing that does not.
//!
//! Reads /proc and /sys, changes nothing, opens no device. `fail`: `sluice run` would refuse or could not forward;
//! `warn`: it runs, but slower or less evenly than the machine could.

mod devices;
mod host;
mod machine;
mod processors;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use model::Config;
use model::config::{Lcore, Lcores};
use serde::Serialize;

use machine::Machine;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Warn,
    Fail,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    /// What is there.
    found: String,
    /// What to do; none where all is well.
    fix: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, found: found.into(), fix: None }
    }

    fn warn(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, status: Status::Warn, found: found.into(), fix: Some(fix.into()) }
    }

    fn fail(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, status: Status::Fail, found: found.into(), fix: Some(fix.into()) }
    }
}

/// All of them.
#[derive(Serialize)]
pub(crate) struct Report {
    /// Nothing failed.
    ok: bool,
    checks: Vec<Check>,
}

/// Looks at this machine.
pub(crate) fn look(config: &Config) -> Report {
    look_at(&Machine::real(), config)
}

fn look_at(machine: &Machine, config: &Config) -> Report {
    let mut checks = host::checks(machine, config);
    checks.extend(processors::checks(machine, config));
    checks.extend(devices::checks(machine, config));
    Report { ok: checks.iter().all(|check| check.status != Status::Fail), checks }
}

/// Exit code 1 if something failed.
pub(crate) fn run(file: Option<&Path>, json: bool) -> Result<ExitCode> {
    let config = file.map_or_else(|| Ok(Config::default()), Config::load)?;
    let report = look(&config);
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        out.write_all(text(&report).as_bytes())?;
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(report: &Report) -> String {
    let line = |check: &Check| {
        let status = match check.status {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Fail => "FAIL",
        };
        let fix = check.fix.iter().map(|fix| format!("      {:<12} -> {fix}\n", ""));
        let fix: String = fix.collect();
        format!("{status:<5} {:<12} {}\n{fix}", check.name, check.found)
    };
    let count = |status| report.checks.iter().filter(|check| check.status == status).count();
    let lines: String = report.checks.iter().map(line).collect();
    let (failed, warned) = (count(Status::Fail), count(Status::Warn));
    format!("{lines}{} checks, {failed} failed, {warned} to improve\n", report.checks.len())
}

/// Lcores that poll for packets, and the CPUs they are on.
fn packet_lcores(config: &Config) -> Vec<Lcore> {
    match &config.dataplane.lcores {
        Lcores::Compact(lcore) => vec![*lcore],
        Lcores::Split { rx, tx, .. } => rx.iter().chain(tx).copied().collect(),
    }
}

/// All lcores.
fn all_lcores(config: &Config) -> Vec<Lcore> {
    let mut all = packet_lcores(config);
    if let Lcores::Split { control, .. } = &config.dataplane.lcores {
        all.push(*control);
    }
    all
}

/// CPU numbers as the kernel writes lists.
fn listed(cpus: &[u32]) -> String {
    let texts: Vec<_> = cpus.iter().map(u32::to_string).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests;
