// SPDX-License-Identifier: Apache-2.0
//! `sluice run`: the shaper.
//!
//! Lcores forward; two more threads serve: the supervisor (store, HTTP, watching) and the one that waits for
//! signals. Both keep off the CPUs of packet lcores where there is another. Death of the supervisor or of HTTP stops
//! no packet, and signals still end the process. A third feeds the watchdog of a service manager that has one.

mod manager;
mod reload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Builder};
use std::time::Duration;

use anyhow::{Context as _, Result};
use control_api::{Options, Reload as _, Server, ServerHandle, Store};
use dataplane::{Handle, LaunchError};
use model::Config;
use model::config::Lcores;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{error, info, warn};

use crate::check::check_api;
use crate::log::{Logging, parse_filter};
use crate::plane::Plane;
use crate::strangers::Strangers;
use reload::Reloader;

/// How often the control side looks at lcores, links and events.
const TICK: Duration = Duration::from_millis(100);
/// Looks between two status lines.
const STATUS_EVERY: u32 = 10;

/// Arguments of `sluice run`.
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Validate only.
    #[arg(long)]
    check: bool,
    /// What is logged: error, warn, info, debug, trace, or TARGET=LEVEL,... as in `RUST_LOG`; goes before both that and
    /// `[log] level` of the configuration.
    #[arg(long, value_name = "FILTER", value_parser = parse_filter)]
    log: Option<String>,
}

/// Forwards until a signal.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    let config = Config::load(&args.config)?;
    let name = args.config.to_string_lossy();
    config.check_ports(&name)?;
    check_api(&name, &config).map_err(|problems| anyhow::anyhow!("{}", problems.trim_end()))?;
    if args.check {
        return Ok(ExitCode::SUCCESS);
    }
    let logging = Logging::start(args.log.as_deref(), config.log)?;
    keep_off_packet_cpus(&config);
    let signalled = on_signals(&[SIGTERM, SIGINT, SIGHUP])?;
    let (to_supervisor, from_main) = channel::<Handle>();
    let store = Store::open(&config.store)?;
    let control = Control {
        path: args.config.clone(),
        config: config.clone(),
        logging,
        signalled: Arc::clone(&signalled),
    };
    let supervisor = Builder::new()
        .name("supervisor".into())
        .spawn(move || control.supervise(store, &from_main))
        .context("the supervisor thread cannot be started")?;
    let plane = dataplane::launch(&config).map_err(|error| explain(error, &config))?;
    // a second value can only mean that this ran twice
    let handle = signalled.running.get_or_init(|| plane.handle());
    manager::feed_watchdog(handle.clone())?;
    to_supervisor.send(handle.clone()).context("the supervisor ended before it began")?;
    let forwarded = plane.wait();
    let served = supervisor.join();
    forwarded?;
    match served {
        Ok(outcome) => outcome.map(|()| ExitCode::SUCCESS),
        Err(_) => anyhow::bail!("the supervisor thread died"),
    }
}

/// Says so where the lcores that this machine has no CPUs for are those of the default.
fn explain(error: LaunchError, config: &Config) -> anyhow::Error {
    let unchosen = config.dataplane.lcores == Config::default().dataplane.lcores;
    if unchosen && matches!(error, LaunchError::Eal(_)) && error.to_string().starts_with("lcore ") {
        return anyhow::anyhow!("{error} (the default of dataplane.lcores); try lcores = {{ compact = 1 }}");
    }
    error.into()
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

/// What a signal brings about.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Reload,
    Stop,
    End,
}

/// `stopping`: whether the data plane is already; `None` while there is none.
const fn answer(signal: i32, stopping: Option<bool>) -> Answer {
    match (signal, stopping) {
        (SIGHUP, _) => Answer::Reload,
        (_, Some(true)) => Answer::End,
        _ => Answer::Stop,
    }
}

/// What the thread that waits for signals shares with the others.
#[derive(Default)]
struct Signalled {
    /// What SIGTERM and SIGINT stop; empty while there is none.
    running: OnceLock<Handle>,
    /// SIGHUP has come.
    hangup: AtomicBool,
}

/// From now on these signals stop the data plane put into the cell, or the process while there is none; a second one
/// ends the process at once. SIGHUP, which a closed terminal sends too, asks for a reload and stops nothing.
fn on_signals(caught: &[i32]) -> Result<Arc<Signalled>> {
    let signalled = Arc::new(Signalled::default());
    let mut signals = Signals::new(caught).context("SIGTERM, SIGINT and SIGHUP cannot be caught")?;
    let shared = Arc::clone(&signalled);
    let wait = move || {
        for signal in signals.forever() {
            let running = shared.running.get();
            match (answer(signal, running.map(Handle::stopping)), running) {
                (Answer::Reload, _) => shared.hangup.store(true, Relaxed),
                (Answer::Stop, Some(handle)) => handle.stop(),
                (Answer::Stop, None) => std::process::exit(0),
                (Answer::End, _) => std::process::exit(1),
            }
        }
    };
    Builder::new().name("signals".into()).spawn(wait).context("the signal thread cannot be started")?;
    Ok(signalled)
}

/// What the supervisor begins with.
struct Control {
    path: PathBuf,
    config: Config,
    logging: Logging,
    signalled: Arc<Signalled>,
}

impl Control {
    /// Store, HTTP, reloading, watching; returns once the data plane stops.
    fn supervise(self, store: Store, from_main: &Receiver<Handle>) -> Result<()> {
        // a launch that failed drops its sender: main says why
        let Ok(handle) = from_main.recv() else {
            return Ok(());
        };
        let stop = StopUnlessPanicking(handle.clone());
        let plane = Plane::new(handle.clone());
        let server = Server::start(Options::from_config(&self.config), Arc::new(plane.clone()), store)?;
        let serving = (server.protection(), server.profiles());
        let reloader = Reloader::new(self.path, self.logging, handle.clone(), serving, self.config);
        let reloader = Arc::new(reloader);
        handle.begin();
        watch(&handle, &plane, &server, &reloader, &self.signalled.hangup);
        info!("draining");
        manager::stopping();
        server.shutdown();
        drop(stop);
        Ok(())
    }
}

/// Looks around ten times a second until the data plane stops.
#[expect(clippy::disallowed_methods, reason = "the supervisor owns this clock")]
fn watch(
    handle: &Handle,
    plane: &Plane,
    server: &ServerHandle,
    reloader: &Arc<Reloader>,
    hangup: &AtomicBool,
) {
    let (mut said, mut strangers, mut status) = (None, Strangers::default(), None);
    for look in 0_u32.. {
        if handle.stopping() {
            return;
        }
        plane.tick();
        strangers.tick(|| handle.metrics()).iter().for_each(|warning| warn!("{warning}"));
        let failure = server.failure();
        if let Some(failure) = failure.filter(|_| failure != said) {
            error!("{failure}; forwarding goes on with the last settings");
        }
        said = failure;
        if status.is_none() && handle.lives() {
            server.on_reload(Arc::clone(reloader) as Arc<_>);
            status = Some(condition(handle));
            manager::ready(status.as_deref().unwrap_or_default());
        }
        if look % STATUS_EVERY == 0 && status.is_some() {
            let now = Some(condition(handle));
            if now != status {
                manager::status(now.as_deref().unwrap_or_default());
                status = now;
            }
        }
        if status.is_some() && hangup.swap(false, Relaxed) {
            // what came of it has been logged
            let _ = reloader.reload();
        }
        thread::sleep(TICK);
    }
}

/// One line for `systemctl status`.
fn condition(handle: &Handle) -> String {
    let reasons = handle.readiness();
    if reasons.is_empty() { "forwarding".to_owned() } else { format!("not ready: {}", reasons.join("; ")) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lcores_that_nobody_chose_are_told_to_be_the_default() {
        let error = || LaunchError::Eal(dpdk::EalError::NoSuchCpu { lcore: 2, cpu: 2, online: "0-1".into() });
        let said = explain(error(), &Config::default()).to_string();
        assert!(
            said.starts_with("lcore 2 does not exist: this machine has no CPU 2 online, only 0-1"),
            "{said}"
        );
        assert!(said.ends_with("(the default of dataplane.lcores); try lcores = { compact = 1 }"), "{said}");
        let chosen = Config::parse("f", "[dataplane]\nlcores = { compact = 2 }").unwrap();
        assert_eq!(explain(error(), &chosen).to_string(), error().to_string());
        let other = LaunchError::Eal(dpdk::EalError::Again);
        assert!(!explain(other, &Config::default()).to_string().contains("default"));
    }

    #[expect(clippy::disallowed_methods, reason = "another thread has to see the signal")]
    fn pause() {
        thread::sleep(Duration::from_millis(10));
    }

    #[test]
    fn a_hangup_ends_nothing_and_a_second_termination_all() {
        // without a handler the first would end this process
        let signalled = on_signals(&[SIGHUP]).unwrap();
        signal_hook::low_level::raise(SIGHUP).unwrap();
        assert!((0..1_000).any(|_| signalled.hangup.load(Relaxed) || {
            pause();
            false
        }));
        for stopping in [None, Some(false), Some(true)] {
            assert_eq!(answer(SIGHUP, stopping), Answer::Reload);
        }
        for signal in [SIGTERM, SIGINT] {
            assert_eq!(answer(signal, None), Answer::Stop);
            assert_eq!(answer(signal, Some(false)), Answer::Stop);
            assert_eq!(answer(signal, Some(true)), Answer::End);
        }
    }
}
