// SPDX-License-Identifier: Apache-2.0
//! The demo: three subscribers, L4S beside CUBIC for each of them, a live table, and the same through a plain FIFO.
//!
//! The play is the same in both worlds it can be set in: namespaces with kernel TCP ([`namespaces`]), or one process
//! with Sluice on rings ([`rings`]). A [`World`] is what it needs of one. Invariant: whatever ends the play, an error
//! or `stop`, leaves by return, so every guard of the world is dropped.

pub mod namespaces;
pub mod rings;
mod screen;
mod table;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use model::stats::{QueueStats, SubscriberStats};
use serde_json::{Value, json};

use crate::machine::wait_for;
use crate::scene::Span;
use crate::topology::CUSTOMERS;
use crate::verdict::GAP_US;

pub use screen::Screen;

/// How often the play looks around.
const LOOK: Duration = Duration::from_millis(50);
/// Profiles, as both worlds define them: the same limit of 250 ms.
pub const PROFILES: &str = "aqm = \"dualpi2\"\n[profile.fifo]\naqm = \"fifo\"";

/// How long it goes on.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// One part: traffic through one AQM.
    pub part: Duration,
    /// How much of its beginning is left out of the comparison.
    pub warm_up: Duration,
    /// No comparison: the first part goes on until somebody stops it.
    pub keep: bool,
}

/// Both flows of a subscriber, seen from their receivers, the warm-up left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Goodput {
    /// The L4S flow's, in bits per second.
    pub prague_bps: f64,
    /// CUBIC's.
    pub cubic_bps: f64,
    /// Packets of the L4S flow that came with CE.
    pub prague_ce: u64,
    /// Packets that came with an ECN field they cannot have: CE on Not-ECT, or anything but ECT(1) and CE.
    pub wrong_ecn: u64,
}

/// A subscriber's record and counters.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Its rate now.
    pub down_bps: u64,
    /// Its counters.
    pub stats: SubscriberStats,
}

/// Frames through all ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Received.
    pub received: u64,
    /// Sent.
    pub sent: u64,
    /// Dropped and counted, whatever the reason.
    pub dropped: u64,
}

/// Where the play is set.
pub trait World {
    /// What the audience should know, a line each.
    fn about(&self) -> Vec<String>;
    /// A subscriber; `None`: somebody has removed it.
    fn look(&self, id: &str) -> Result<Option<Look>>;
    /// Puts all subscribers on a profile.
    fn set_profile(&self, profile: &str) -> Result<()>;
    /// Starts both flows of every subscriber.
    fn start(&mut self, schedule: &Schedule) -> Result<()>;
    /// Waits for the flows' end: what they saw, in the order of [`CUSTOMERS`].
    fn finish(&mut self) -> Result<Vec<Goodput>>;
    /// Regular work; an error if something that must live has died.
    fn tick(&mut self) -> Result<()>;
    /// Frames through all ports so far.
    fn account(&self) -> Result<Account>;
    /// Longest stretch the packet lcore has lost so far, in microseconds.
    fn gap_us(&self) -> Result<u64>;
}

/// All subscribers at one time.
#[derive(Clone, Debug)]
struct Snapshot(Vec<(Instant, Look)>);

impl Snapshot {
    #[expect(clippy::disallowed_methods, reason = "the demo shows real time and owns this clock")]
    fn take(world: &dyn World) -> Result<Self> {
        let look = |id| world.look(id).map(|look| (Instant::now(), look.unwrap_or_default()));
        CUSTOMERS.iter().map(|customer| look(customer.id)).collect::<Result<_>>().map(Self)
    }

    /// What happened to each subscriber between `before` and this.
    fn since(&self, before: &Self) -> Vec<Line> {
        let pairs = before.0.iter().zip(&self.0).zip(&CUSTOMERS);
        pairs
            .map(|(((from, then), (to, now)), customer)| {
                let seconds = to.duration_since(*from).as_secs_f64();
                let (was, is) = (&then.stats.down, &now.stats.down);
                Line {
                    id: customer.id,
                    plan_bps: now.down_bps,
                    seconds,
                    l4s: span(&was.l4s, &is.l4s),
                    classic: span(&was.classic, &is.classic),
                }
            })
            .collect()
    }
}

/// A record made anew counts from zero.
fn span(was: &QueueStats, is: &QueueStats) -> Span {
    let fresh = QueueStats::default();
    Span::between(if is.arrived < was.arrived { &fresh } else { was }, is)
}

/// One subscriber over a span of time.
#[derive(Clone, Debug)]
pub struct Line {
    /// Whose.
    pub id: &'static str,
    /// Its rate at the end.
    pub plan_bps: u64,
    /// How long the span is.
    pub seconds: f64,
    /// L queue.
    pub l4s: Span,
    /// C queue, or the only one.
    pub classic: Span,
}

/// What one part showed after its warm-up.
#[derive(Clone, Debug)]
pub struct Part {
    /// The profile's AQM.
    pub aqm: &'static str,
    /// Subscribers, in the order of [`CUSTOMERS`].
    pub lines: Vec<Line>,
    /// Their flows.
    pub goodput: Vec<Goodput>,
}

/// What the whole play showed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Through DualPI2, then through the FIFO; fewer if somebody stopped it.
    pub parts: Vec<Part>,
    /// Frames, when all had come to rest.
    pub account: Option<Account>,
    /// Longest stretch the packet lcore lost.
    pub gap_us: u64,
}

impl Outcome {
    /// Whether it was stopped before its end.
    pub fn interrupted(&self) -> bool {
        self.account.is_none()
    }

    /// As JSON, for tests and for whoever wants to keep it.
    pub fn json(&self) -> Value {
        let queue = |span: &Span| {
            json!({
                "forwarded": span.forwarded, "marked": span.marked,
                "dropped": span.dropped_aqm + span.dropped_other,
                "mean_us": span.mean_us, "p50_us": span.p50_us, "p99_us": span.p99_us,
            })
        };
        let line = |(line, flows): (&Line, &Goodput)| {
            json!({
                "id": line.id, "plan_bps": line.plan_bps, "rate_bps": table::counted_bps(line),
                "l4s": queue(&line.l4s), "classic": queue(&line.classic),
                "prague_bps": flows.prague_bps, "cubic_bps": flows.cubic_bps,
                "prague_ce": flows.prague_ce, "wrong_ecn": flows.wrong_ecn,
            })
        };
        let part = |part: &Part| {
            let lines = part.lines.iter().zip(&part.goodput).map(line);
            json!({ "aqm": part.aqm, "subscribers": lines.collect::<Vec<_>>() })
        };
        let account =
            self.account.map(|a| json!({ "received": a.received, "sent": a.sent, "dropped": a.dropped }));
        let parts: Vec<Value> = self.parts.iter().map(part).collect();
        json!({ "parts": parts, "account": account, "gap_us": self.gap_us })
    }
}

/// Plays all of it, or as much as `stop` allows.
pub fn play(
    world: &mut dyn World,
    schedule: &Schedule,
    stop: &AtomicBool,
    screen: &mut Screen,
) -> Result<Outcome> {
    let outcome = both_parts(world, schedule, stop, screen);
    if outcome.is_err() {
        // where something has died, that says more than what went wrong for want of it; its sockets close first
        let mut dead = Ok(());
        wait_for(Duration::from_secs(1), || {
            dead = world.tick();
            dead.is_err()
        });
        dead?;
    }
    outcome
}

fn both_parts(
    world: &mut dyn World,
    schedule: &Schedule,
    stop: &AtomicBool,
    screen: &mut Screen,
) -> Result<Outcome> {
    for line in world.about() {
        screen.say(&line)?;
    }
    let mut parts = Vec::new();
    for (profile, aqm) in [("default", "dualpi2"), ("fifo", "fifo")] {
        if profile != "default" {
            world.set_profile(profile)?;
        }
        match part(world, schedule, stop, screen, aqm)? {
            Some(part) => parts.push(part),
            None => return Ok(Outcome { parts, account: None, gap_us: world.gap_us()? }),
        }
    }
    let account = settle(world)?;
    screen.gap()?;
    for line in table::comparison(&parts) {
        screen.say(&line)?;
    }
    let Account { received, sent, dropped } = account;
    screen.say(&format!(
        "Every frame is accounted for: {received} in = {sent} out + {dropped} dropped and counted."
    ))?;
    screen
        .say(&format!("{} packets came marked CE, all of them ECT(1) before.", marks_are_right(&parts)?))?;
    let gap_us = world.gap_us()?;
    if gap_us > GAP_US {
        let ms = gap_us / 1_000;
        screen.say(&format!(
            "Other work kept Sluice's CPU busy for up to {ms} ms at a stretch; delays include that."
        ))?;
    }
    Ok(Outcome { parts, account: Some(account), gap_us })
}

/// Packets that came with CE; an error where any packet came with an ECN field it cannot have.
fn marks_are_right(parts: &[Part]) -> Result<u64> {
    let wrong: u64 = parts.iter().flat_map(|part| &part.goodput).map(|flows| flows.wrong_ecn).sum();
    // all that goes to C here is Not-ECT
    let in_c: u64 = parts.iter().flat_map(|part| &part.lines).map(|line| line.classic.marked).sum();
    if wrong + in_c > 0 {
        bail!("{wrong} packets came with an ECN field they cannot have, {in_c} were marked in C");
    }
    Ok(parts.iter().flat_map(|part| &part.goodput).map(|flows| flows.prague_ce).sum())
}

/// One part; `None` if it was stopped.
#[expect(clippy::disallowed_methods, reason = "the demo shows real time and owns this clock")]
fn part(
    world: &mut dyn World,
    schedule: &Schedule,
    stop: &AtomicBool,
    screen: &mut Screen,
    aqm: &'static str,
) -> Result<Option<Part>> {
    if stop.load(Relaxed) {
        return Ok(None);
    }
    screen.gap()?;
    screen.say(&table::title(aqm))?;
    world.start(schedule)?;
    let begin = Instant::now();
    let mut last = Snapshot::take(world)?;
    let (mut warm, mut second) = (last.clone(), 0);
    while schedule.keep || begin.elapsed() < schedule.part {
        second += 1;
        if !wait(world, begin + Duration::from_secs(second), stop)? {
            return Ok(None);
        }
        let now = Snapshot::take(world)?;
        let total = (!schedule.keep).then_some(schedule.part.as_secs());
        screen.block(&table::live(aqm, second, total, &now.since(&last)))?;
        if Duration::from_secs(second) <= schedule.warm_up {
            warm = now.clone();
        }
        last = now;
    }
    let goodput = world.finish()?;
    Ok(Some(Part { aqm, lines: last.since(&warm), goodput }))
}

/// Waits until `until`; false if somebody stopped it.
#[expect(clippy::disallowed_methods, reason = "the demo shows real time and owns this clock")]
fn wait(world: &mut dyn World, until: Instant, stop: &AtomicBool) -> Result<bool> {
    loop {
        if stop.load(Relaxed) {
            return Ok(false);
        }
        world.tick()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(true);
        }
        std::thread::sleep(left.min(LOOK));
    }
}

/// Waits until nothing is on its way, and holds the counters to their promise.
fn settle(world: &mut dyn World) -> Result<Account> {
    let balanced = |account: &Account| account.received == account.sent + account.dropped;
    wait_for(Duration::from_secs(5), || {
        let _ = world.tick();
        world.account().is_ok_and(|account| balanced(&account))
    });
    let account = world.account()?;
    if !balanced(&account) {
        bail!("frames are missing: {account:?}");
    }
    for customer in &CUSTOMERS {
        let Some(Look { stats, .. }) = world.look(customer.id)? else {
            bail!("{} is gone", customer.id);
        };
        for queue in [&stats.down.l4s, &stats.down.classic, &stats.up.l4s, &stats.up.classic] {
            let early = queue.dropped_tail + queue.dropped_pool + queue.dropped_other;
            let dropped = early + queue.dropped_ect + queue.dropped_not_ect;
            if queue.arrived != queue.forwarded + dropped + queue.queued
                || queue.presented + early != queue.arrived
            {
                bail!("packets of {} are missing: {queue:?}", customer.id);
            }
        }
    }
    Ok(account)
}
