// SPDX-License-Identifier: Apache-2.0
//! What a service manager is told, by sd_notify(3): ready, reloading, stopping, a status line, and that the lcores
//! live. Without `NOTIFY_SOCKET` nothing happens.
//!
//! Invariant: the watchdog is fed by a thread of its own, and only while every lcore has been seen lately. The end of
//! the supervisor or of HTTP therefore starves it not, since forwarding goes on; a stalled or dead lcore does.

use std::thread::Builder;
use std::time::Duration;

use anyhow::{Context as _, Result};
use dataplane::Handle;
use sd_notify::NotifyState;
use tracing::{debug, info};

/// Meals within one period of the watchdog: a late one does not end the process.
const MEALS: u32 = 4;
/// Longest between two.
const LONGEST: Duration = Duration::from_secs(2);

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        debug!(%error, "the service manager was not reached");
    }
}

/// Forwarding has begun.
pub(super) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The configuration is read again; [`ready`] follows.
pub(super) fn reloading() {
    // systemd 253 and newer wants to know when
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// It ends.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("draining")]);
}

/// One line for `systemctl status`.
pub(super) fn status(line: &str) {
    tell(&[NotifyState::Status(line)]);
}

/// Feeds the watchdog as long as the lcores live, if the service manager has set one.
pub(super) fn feed_watchdog(handle: Handle) -> Result<()> {
    let Some(period) = sd_notify::watchdog_enabled() else {
        return Ok(());
    };
    info!(?period, "the service manager's watchdog is fed while the lcores live");
    let run = move || {
        loop {
            if handle.lives() {
                tell(&[NotifyState::Watchdog]);
            }
            pause(interval(period));
        }
    };
    Builder::new().name("watchdog".into()).spawn(run).context("the watchdog thread cannot be started")?;
    Ok(())
}

/// Between two meals.
fn interval(period: Duration) -> Duration {
    (period / MEALS).min(LONGEST)
}

#[expect(clippy::disallowed_methods, reason = "this thread owns the clock of the watchdog")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_meals_fit_into_a_period() {
        for seconds in [1, 10, 60] {
            let period = Duration::from_secs(seconds);
            assert!(interval(period) * MEALS <= period && interval(period) <= LONGEST);
        }
    }
}
