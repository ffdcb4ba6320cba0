// SPDX-License-Identifier: Apache-2.0
//! `make demo`: shows Sluice at its main job, then cleans up all it made.
//!
//! Exit code 0 at its own end, and after Ctrl-C with `--keep`; 130 after Ctrl-C before its end; 1 after a failure.
//! Invariant: every way out returns from `run`, where all guards live.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tests::demo::namespaces::Namespaces;
use tests::demo::rings::Rings;
use tests::demo::{Outcome, Schedule, Screen, World, play};
use tests::machine;

/// 128 and the number of SIGINT, as shells have it.
const INTERRUPTED: u8 = 130;

/// Three subscribers, L4S beside CUBIC for each, through DualPI2 and then through a FIFO.
#[derive(Parser, Debug)]
struct Options {
    /// Keep serving until Ctrl-C, instead of the comparison.
    #[arg(long)]
    keep: bool,
    /// Run in one process even where namespaces can be made.
    #[arg(long)]
    in_process: bool,
    /// Seconds of each of the two parts.
    #[arg(long, default_value_t = 17, value_parser = clap::value_parser!(u64).range(2..=3_600))]
    seconds: u64,
    /// Where to write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Options {
    fn schedule(&self) -> Schedule {
        // slow start and its queue take four seconds at most
        let warm_up = (self.seconds / 2).min(4);
        Schedule {
            part: Duration::from_secs(self.seconds),
            warm_up: Duration::from_secs(warm_up),
            keep: self.keep,
        }
    }
}

/// The world there is.
fn world(options: &Options, screen: &mut Screen) -> Result<Box<dyn World>> {
    let why =
        if options.in_process { Some("--in-process asks for it".to_owned()) } else { machine::no_scene() };
    if let Some(why) = why {
        return Ok(Box::new(Rings::set(&why)?));
    }
    screen.say("Setting up namespaces, delay lines and Sluice ...")?;
    Ok(Box::new(Namespaces::set()?))
}

fn run(options: &Options, stop: &AtomicBool, screen: &mut Screen) -> Result<Outcome> {
    let mut world = world(options, screen)?;
    let outcome = play(world.as_mut(), &options.schedule(), stop, screen);
    if outcome.as_ref().is_ok_and(Outcome::interrupted) {
        screen.gap()?;
        screen.say("Stopped; cleaning up ...")?;
    }
    outcome
}

#[expect(clippy::disallowed_methods, reason = "says how long it took")]
fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot watch for signals")?;
    }
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    let begin = Instant::now();
    let mut screen = Screen::stdout();
    let outcome = run(&options, &stop, &mut screen)?;
    // everything is gone by now
    screen.say(&format!("All that was made is gone again; {} s in all.", begin.elapsed().as_secs()))?;
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{:#}\n", outcome.json()))
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let cut_short = outcome.interrupted() && !options.keep;
    Ok(if cut_short { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}
