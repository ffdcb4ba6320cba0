// SPDX-License-Identifier: Apache-2.0
//! What whole-system tests judge by: every packet accounted for, always; delays and rates where the machine let
//! the packet lcore run.
//!
//! Delays and rates are those of real time on a machine that others use too. A run that misses them while the packet
//! lcore itself lost `GAP_US` or more at a stretch says nothing about Sluice: it is repeated, and after `TRIES`
//! such runs these checks are skipped by name. Conservation and ECN are checked in every run.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use model::stats::{QueueStats, SubscriberStats};

use crate::machine::{no_namespaces, wait_for};
use crate::shaper::Shaper;

/// A stretch without the packet lcore that spoils a run: what Sluice itself counts as a long gap.
pub const GAP_US: u64 = 2_000;
/// Runs before checks of delay and rate are skipped.
pub const TRIES: usize = 3;

/// What a run says about delays and rates: nothing, or what is wrong.
pub type Timed = Result<(), String>;

/// Whether namespaces can be made; where not, the test is skipped by name.
pub fn may_make_namespaces(name: &str) -> bool {
    if let Some(why) = no_namespaces() {
        crate::skip(name, &why);
        return false;
    }
    // everything but Sluice's packet lcores runs on CPU 0
    core_affinity::set_for_current(core_affinity::CoreId { id: 0 });
    true
}

/// Runs until a run was good or the machine did not spoil it; a run returns its verdict and the longest stretch that
/// its packet lcore lost meanwhile (`Shaper::gap_us`).
#[expect(clippy::print_stdout, reason = "a test speaks to whoever runs it")]
pub fn undisturbed(name: &str, mut run: impl FnMut() -> Result<(Timed, u64)>) {
    if !may_make_namespaces(name) {
        return;
    }
    let mut gaps = Vec::new();
    for _ in 0..TRIES {
        let (verdict, gap) = run().unwrap_or_else(|error| panic!("{error:#}"));
        println!("{name}: longest gap of the lcore {gap} us, {verdict:?}");
        match verdict {
            Ok(()) => return,
            Err(wrong) => assert!(gap >= GAP_US, "{wrong}"),
        }
        gaps.push(gap);
    }
    let what = format!("{name} (delay and rate checks)");
    crate::skip(&what, &format!("the packet lcore lost {gaps:?} us at a stretch"));
}

/// Whether a value lies where it should.
#[expect(clippy::print_stdout, reason = "a test speaks to whoever runs it")]
pub fn within(what: &str, value: f64, low: f64, high: f64) -> Timed {
    println!("{what}: {value:.3} (between {low:.3} and {high:.3})");
    if (low..=high).contains(&value) {
        Ok(())
    } else {
        Err(format!("{what} is {value:.3}, not {low:.3} to {high:.3}"))
    }
}

/// All of them, or all that is wrong.
pub fn all(verdicts: impl IntoIterator<Item = Timed>) -> Timed {
    let wrong: Vec<String> = verdicts.into_iter().filter_map(Result::err).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// Lets real traffic take real time.
#[expect(clippy::disallowed_methods, reason = "real traffic takes real time")]
pub fn let_flow(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds));
}

/// The queues of a subscriber.
pub fn queues(stats: &SubscriberStats) -> [&QueueStats; 4] {
    [&stats.down.l4s, &stats.down.classic, &stats.up.l4s, &stats.up.classic]
}

/// Each packet that came for these subscribers is accounted for.
pub fn conserved_for(shaper: &Shaper, ids: &[&str]) -> Result<()> {
    for id in ids {
        let stats = shaper.stats(id)?;
        for queue in queues(&stats) {
            let unpresented = queue.dropped_tail + queue.dropped_pool + queue.dropped_other;
            let dropped = queue.dropped_ect + queue.dropped_not_ect + unpresented;
            ensure!(queue.arrived == queue.forwarded + dropped + queue.queued, "{id}: {queue:?}");
            ensure!(queue.presented == queue.arrived - unpresented, "{id}: {queue:?}");
        }
    }
    Ok(())
}

/// Kinds of traffic without a subscriber that always pass.
const CONTROL: [&str; 8] =
    ["arp", "nd", "dhcpv4", "dhcpv6", "pppoe_discovery", "ppp_lcp", "ppp_auth", "ppp_ncp"];

/// Where the frames of all ports went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ledger {
    /// Received.
    pub rx: f64,
    /// Handed to drivers.
    pub tx: f64,
    /// Dropped in queues.
    pub queues: f64,
    /// Dropped since they contradict themselves.
    pub bad: f64,
    /// Traffic without a subscriber.
    pub unknown: f64,
    /// Taken for a port whose link died first.
    pub link: f64,
}

impl Ledger {
    /// As it is now.
    pub fn of(shaper: &Shaper) -> Result<Self> {
        let sum = |name: &str, with: &str| shaper.metric_sum(name, &[with]);
        let kinds = "sluice_unclassified_packets_total";
        let bad = sum(kinds, "kind=\"bad_")?;
        let mut control = 0.0;
        for kind in CONTROL {
            control += sum(kinds, &format!("kind=\"{kind}\""))?;
        }
        Ok(Self {
            rx: sum("sluice_port_packets_total", "way=\"rx\"")?,
            tx: sum("sluice_port_packets_total", "way=\"tx\"")?,
            queues: shaper.metric_sum("sluice_queue_dropped_total", &[])?,
            bad,
            unknown: shaper.metric_sum(kinds, &[])? - bad - control,
            link: sum("sluice_port_drops_total", "reason=\"link\"")?,
        })
    }

    /// What is missing; `unknown_dropped` says what the configuration does with unknown traffic.
    pub fn missing(&self, unknown_dropped: bool) -> f64 {
        let unknown = if unknown_dropped { self.unknown } else { 0.0 };
        self.rx - self.tx - self.queues - self.bad - unknown - self.link
    }
}

/// Waits until nothing is on its way any more, which must come when all traffic has ended, and holds all frames of
/// all ports against where they went.
#[expect(clippy::print_stdout, reason = "a test speaks to whoever runs it")]
pub fn conserved(shaper: &Shaper, ids: &[&str], unknown_dropped: bool) -> Result<Ledger> {
    let mut last = Ledger::default();
    let balanced = wait_for(Duration::from_secs(5), || match Ledger::of(shaper) {
        Ok(ledger) => {
            last = ledger;
            ledger.missing(unknown_dropped).abs() < 0.5
        }
        Err(_) => false,
    });
    println!("{last:?}");
    if !balanced {
        bail!("{} frames are missing: {last:?}", last.missing(unknown_dropped));
    }
    conserved_for(shaper, ids)?;
    for reason in ["imissed", "ierrors", "rx_nombuf"] {
        let frames = shaper.metric_sum("sluice_port_drops_total", &[&format!("reason=\"{reason}\"")])?;
        ensure!(frames < 0.5, "ports lost {frames} frames: {reason}");
    }
    Ok(last)
}
