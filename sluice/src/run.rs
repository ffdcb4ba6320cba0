// SPDX-License-Identifier: Apache-2.0
//! `sluice run`: the shaper.
//!
//! Lcores forward; two more threads serve: the supervisor (store, HTTP, watching) and the one that waits for
//! signals. Both keep off the CPUs of packet lcores where there is another. Death of the supervisor or of HTTP stops
//! no packet, and signals still end the process.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Builder};
use std::time::Duration;

use anyhow::{Context as _, Result};
use control_api::{Options, Server, Store};
use dataplane::Handle;
use model::Config;
use model::config::Lcores;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{error, info};
use tracing_subscriber::EnvFilter;

use crate::plane::Plane;

/// How often the control side looks at lcores, links and events.
const TICK: Duration = Duration::from_millis(100);

/// Arguments of `sluice run`.
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Validate only.
    #[arg(long)]
    check: bool,
}

/// Forwards until a signal.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    let config = Config::load(&args.config)?;
    config.check_ports(&args.config.to_string_lossy())?;
    if args.check {
        return Ok(ExitCode::SUCCESS);
    }
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // a journal or a file is no terminal: colours would be rubbish there
        .with_ansi(std::io::stderr().is_terminal())
        .init();

    keep_off_packet_cpus(&config);
    let running = end_on_signals()?;
    let (to_supervisor, from_main) = channel::<Handle>();
    let options = Options::from_config(&config);
    let store = Store::open(&config.store)?;
    let supervisor = Builder::new()
        .name("supervisor".into())
        .spawn(move || supervise(options, store, &from_main))
        .context("the supervisor thread cannot be started")?;
    let plane = dataplane::launch(&config)?;
    // a second value can only mean that this ran twice
    let handle = running.get_or_init(|| plane.handle());
    to_supervisor.send(handle.clone()).context("the supervisor ended before it began")?;
    let forwarded = plane.wait();
    let served = supervisor.join();
    forwarded?;
    match served {
        Ok(outcome) => outcome.map(|()| ExitCode::SUCCESS),
        Err(_) => anyhow::bail!("the supervisor thread died"),
    }
}

/// Moves this thread, and all that it starts, to the first CPU that no packet lcore polls on.
fn keep_off_packet_cpus(config: &Config) {
    let busy: Vec<u32> = match &config.dataplane.lcores {
        Lcores::Compact(lcore) => vec![lcore.cpu],
        Lcores::Split { rx, tx, .. } => rx.iter().chain(tx).map(|lcore| lcore.cpu).collect(),
    };
    let cpus = core_affinity::get_core_ids().unwrap_or_default();
    let free = cpus.into_iter().find(|cpu| u32::try_from(cpu.id).is_ok_and(|cpu| !busy.contains(&cpu)));
    if let Some(cpu) = free {
        core_affinity::set_for_current(cpu);
    }
}

/// From now on SIGTERM and SIGINT stop the data plane put into the cell, or the process while there is none; a second
/// one ends the process at once.
fn end_on_signals() -> Result<Arc<OnceLock<Handle>>> {
    let running = Arc::new(OnceLock::<Handle>::new());
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("SIGTERM and SIGINT cannot be caught")?;
    let cell = Arc::clone(&running);
    let wait = move || {
        for _ in signals.forever() {
            match cell.get() {
                Some(handle) if handle.stopping() => std::process::exit(1),
                Some(handle) => handle.stop(),
                None => std::process::exit(0),
            }
        }
    };
    Builder::new().name("signals".into()).spawn(wait).context("the signal thread cannot be started")?;
    Ok(running)
}

/// Store, HTTP, watching; returns once the data plane stops.
#[expect(
    clippy::disallowed_methods,
    reason = "the supervisor owns this clock: it looks around ten times a second"
)]
fn supervise(options: Options, store: Store, from_main: &Receiver<Handle>) -> Result<()> {
    // a launch that failed drops its sender: main says why
    let Ok(handle) = from_main.recv() else {
        return Ok(());
    };
    let stop = StopUnlessPanicking(handle.clone());
    let plane = Plane::new(handle.clone());
    let server = Server::start(options, Arc::new(plane.clone()), store)?;
    handle.begin();
    let mut said = None;
    while !handle.stopping() {
        plane.tick();
        let failure = server.failure();
        if let Some(failure) = failure.filter(|_| failure != said) {
            error!("{failure}; forwarding goes on with the last settings");
        }
        said = failure;
        thread::sleep(TICK);
    }
    info!("draining");
    server.shutdown();
    drop(stop);
    Ok(())
}

/// Stops the data plane where the control side could not start; where it died, forwarding goes on.
struct StopUnlessPanicking(Handle);

impl Drop for StopUnlessPanicking {
    fn drop(&mut self) {
        if thread::panicking() {
            error!("the control side has died; forwarding goes on with the last settings");
            self.0.begin();
        } else {
            self.0.stop();
        }
    }
}
