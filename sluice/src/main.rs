// SPDX-License-Identifier: Apache-2.0
//! `sluice`: the command. One module a subcommand; no algorithm lives here.
//!
//! Exit codes: 0 good, 1 the thing asked for failed (message on stderr), 2 usage.
#![forbid(unsafe_code)]

mod bench;
mod bundle;
mod check;
mod health;
mod lab;
mod lab_paper;
mod log;
mod pcap;
mod plane;
mod preflight;
mod replay;
mod run;
mod strangers;
mod subs;
mod top;
mod traffic;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Shapes every subscriber of a network to its rate, inline between two ports, with DualPI2 queues for L4S.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Forward: ports, lcores, HTTP.
    Run(run::RunArgs),
    /// Validate a configuration or a subscriber file, or with --preflight this machine.
    Check(check::CheckArgs),
    /// Run a capture through parse, classify, shape and AQM in virtual time.
    Replay(replay::ReplayArgs),
    /// Whether a running shaper is ready: exit code 0 or 1.
    Health(health::HealthArgs),
    /// Gather what a report of a fault needs into one file, without secrets.
    SupportBundle(bundle::BundleArgs),
    /// Read and change the subscribers of a running shaper.
    Subs(subs::SubsArgs),
    /// Watch a running shaper in the terminal: throughput, delay, marks, drops, the busiest and the worst.
    Top(top::TopArgs),
    /// Send and receive real UDP traffic under congestion control.
    Traffic(traffic::TrafficArgs),
    /// Run senders against AQMs in virtual time.
    Lab(lab::LabArgs),
    /// Measure the packet path.
    Bench(bench::BenchArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(args),
        Command::Health(args) => health::run(&args),
        Command::SupportBundle(args) => bundle::run(&args),
        Command::Replay(args) => replay::run(args),
        Command::Subs(args) => subs::run(args),
        Command::Top(args) => top::run(&args),
        Command::Traffic(args) => traffic::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Bench(args) => bench::run(args),
    };
    done.unwrap_or_else(|error| {
        complain(&error);
        ExitCode::FAILURE
    })
}

#[expect(clippy::print_stderr, reason = "the one place where a command says why it failed")]
fn complain(error: &anyhow::Error) {
    eprintln!("sluice: {error:#}");
}
