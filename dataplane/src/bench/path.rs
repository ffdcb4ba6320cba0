// SPDX-License-Identifier: Apache-2.0
//! The lcore under test: the loop of `compact` without the control part, with its time measured; or, where shards feed
//! themselves, with a generator's part in turn.
//!
//! Invariant: the workers are those of `sluice run`. Busy time is that of loops that found work; a loop longer than
//! `GAP` was interrupted and counts as lost instead. With `staged` set, stages are measured by reading the TSC at
//! each lap, whose own cost is subtracted; an out-of-order CPU lets a stage's loads end in the next one, so the sum
//! is exact and the borders are not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use aqm::Nanos;
use engine::{AllTotals, Counter, ShardCounters};

use super::generator::{Ended, Feed, Generator, PAUSE, after_a_pause};
use super::late::Late;
use crate::handle::Inner;
use crate::lcore::{LcoreShared, Phase, Pulse};
use crate::probe::{Probe, Stage};
use crate::rx::{PortCounters, Rings, RxWorker};
use crate::tx::TxWorker;

/// A loop moves at most 32 packets each way: undisturbed that would be 8 us a packet. Whoever else gets the CPU keeps
/// it for a millisecond or more.
const GAP: Nanos = Nanos::from_micros(250);
/// Stages.
pub(super) const STAGES: usize = Stage::ALL.len();

/// What the lcore shows of its time. It is the only writer of the counters.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Whether stages are measured.
    pub(super) staged: AtomicBool,
    /// Nanoseconds of loops that found work.
    pub(super) busy: Counter,
    /// Nanoseconds of loops that were interrupted.
    pub(super) lost: Counter,
    /// Ticks by stage, of loops that found work and were not interrupted.
    pub(super) ticks: [Counter; STAGES],
    /// Loops longer than `PAUSE` and what they moved accounts for, and the nanoseconds they took.
    pub(super) pauses: Counter,
    pub(super) paused: Counter,
    /// Loops longer than `PAUSE` that the packets they moved account for: no pause, but work.
    pub(super) long: Counter,
    /// The longest loop since it was last set to 0.
    pub(super) longest: AtomicU64,
    /// Whether it has not caught up yet after a pause.
    pub(super) behind: AtomicBool,
    /// How late what left from a pause on was, until the lcore had caught up: until a loop found nothing to do.
    pub(super) late_then: Mutex<Late>,
}

/// Watches an lcore's own clock: what a pause causes is told apart from what the path does.
struct Clock<'a> {
    tally: &'a Tally,
    feed: &'a Feed,
    shard: Option<&'a Arc<ShardCounters>>,
    /// What the lcore takes from ports and gives to them.
    moved: Vec<Arc<PortCounters>>,
    moved_before: u64,
    last: Nanos,
    pause: Option<Pause>,
}

/// What a pause caused and has not ended yet.
struct Pause {
    /// For others: they are told until then.
    until: Nanos,
    /// What was counted when it began, until a loop has found nothing to do.
    before: Option<Late>,
}

impl<'a> Clock<'a> {
    fn new(inner: &'a Inner, tally: &'a Tally, feed: &'a Feed, shard: usize) -> Self {
        let of = |counters: &[Arc<PortCounters>]| counters.get(shard).map(Arc::clone);
        let moved = inner.ports.iter().flat_map(|port| [of(&port.rx), of(&port.tx)]).flatten().collect();
        let shard = inner.shards.get(shard);
        Self { tally, feed, shard, moved, moved_before: 0, last: inner.now(), pause: None }
    }

    /// A loop begins at `now`; the one before found work or not.
    #[inline]
    fn begin(&mut self, now: Nanos, worked: bool) {
        let took = now.since(self.last);
        self.last = now;
        if took > GAP {
            self.tally.lost.add(took.0);
        } else if worked {
            self.tally.busy.add(took.0);
        }
        let moved: u64 = self.moved.iter().map(|counters| counters.packets.get()).sum();
        let work = Nanos((moved - self.moved_before) * self.feed.cost.load(Relaxed));
        self.moved_before = moved;
        if took.0 > self.tally.longest.load(Relaxed) || took > PAUSE || self.pause.is_some() {
            self.note(now, took, work, worked);
        }
    }

    #[cold]
    fn note(&mut self, now: Nanos, took: Nanos, work: Nanos, worked: bool) {
        self.tally.longest.fetch_max(took.0, Relaxed);
        let paused = took > PAUSE + work;
        if took > PAUSE && !paused {
            self.tally.long.add(1);
        }
        if paused {
            self.tally.pauses.add(1);
            self.tally.paused.add(took.0);
            let over = after_a_pause(now, took);
            self.feed.disturbed.store(true, Relaxed);
            let (until, before) = match self.pause.take() {
                Some(Pause { until, before: Some(before) }) => (over.max(until), before),
                Some(Pause { until, before: None }) => (over.max(until), self.lateness()),
                None => (over, self.lateness()),
            };
            self.tally.behind.store(true, Relaxed);
            self.pause = Some(Pause { until, before: Some(before) });
            return;
        }
        let Some(pause) = &mut self.pause else { return };
        let caught_up = !worked;
        if let Some(before) = pause.before.take_if(|_| caught_up) {
            let then = self.lateness().since(&before);
            self.tally.late_then.lock().unwrap_or_else(PoisonError::into_inner).add(&then);
            self.tally.behind.store(false, Relaxed);
        }
        let over = self.pause.as_ref().is_some_and(|pause| now > pause.until);
        let settled = over && self.pause.take_if(|pause| pause.before.is_none()).is_some();
        // near saturation what piled up meanwhile takes long to go; beyond it there is no end to that
        if settled || over && self.feed.overloaded.load(Relaxed) {
            self.feed.disturbed.store(false, Relaxed);
        }
    }

    fn lateness(&self) -> Late {
        let mut totals = AllTotals::default();
        self.shard.iter().for_each(|shard| shard.add_to(&mut totals));
        Late::of(&totals.lag)
    }
}

/// Stages of the loop that runs.
struct Laps {
    last: u64,
    ticks: [u64; STAGES],
    counts: [u64; STAGES],
    /// Ticks of one lap by itself.
    cost: u64,
    /// Ticks of `GAP`.
    gap: u64,
}

impl Probe for Laps {
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "one place for each value of the enum")]
    fn lap(&mut self, stage: Stage) {
        let now = mem::read_tsc();
        self.ticks[stage as usize] += now.wrapping_sub(self.last);
        self.counts[stage as usize] += 1;
        self.last = now;
    }
}

impl Laps {
    /// Measures what a lap costs; the TSC runs at `hz`.
    fn new(hz: u64) -> Self {
        let gap = hz / 1_000_000 * (GAP.0 / 1_000);
        let mut laps = Self { last: mem::read_tsc(), ticks: [0; STAGES], counts: [0; STAGES], cost: 0, gap };
        let cost = (0..64).map(|_| {
            laps.clear();
            (0..256).for_each(|_| laps.lap(Stage::Other));
            laps.ticks.iter().sum::<u64>() / 256
        });
        laps.cost = cost.min().unwrap_or(0);
        laps
    }

    fn clear(&mut self) {
        self.ticks = [0; STAGES];
        self.counts = [0; STAGES];
        self.last = mem::read_tsc();
    }

    /// Counts the loop, unless it was interrupted.
    fn commit(&self, tally: &Tally) {
        if self.ticks.iter().sum::<u64>() > self.gap {
            return;
        }
        for ((into, &ticks), &laps) in tally.ticks.iter().zip(&self.ticks).zip(&self.counts) {
            into.add(ticks.saturating_sub(laps * self.cost));
        }
    }
}

/// Runs until the phase ends.
pub(super) fn run(
    inner: &Inner,
    tally: &Tally,
    feed: &Feed,
    mut rx: Box<RxWorker>,
    mut tx: Box<TxWorker>,
) -> Ended {
    let Some(lcore) = inner.lcores.first() else {
        return Ended::default();
    };
    let mut pulse = Pulse::new(lcore);
    let mut laps = Laps::new(inner.clock.hz());
    let mut clock = Clock::new(inner, tally, feed, 0);
    let mut worked = false;
    while inner.phase.get() < Phase::Drain {
        let now = inner.now();
        clock.begin(now, worked);
        pulse.beat(now);
        worked = if tally.staged.load(Relaxed) {
            laps.lap(Stage::Other);
            let worked = rx.poll(now, &mut *tx, &mut laps) | tx.poll(now, &mut laps);
            if worked {
                laps.commit(tally);
            }
            laps.clear();
            worked
        } else {
            rx.poll(now, &mut *tx, &mut ()) | tx.poll(now, &mut ())
        };
        pulse.worked(worked);
    }
    tx.close(inner.now());
    Ended::default()
}

/// The same for shard `index` of several, whose generator takes turns with it.
pub(super) fn run_fed(
    inner: &Inner,
    tally: &Tally,
    feed: &Feed,
    index: usize,
    (mut rx, mut rings, mut tx): (Box<RxWorker>, Rings, Box<TxWorker>),
    mut generator: Generator,
) -> Ended {
    // one lcore does the work of three: all are to show that they live
    let lcores: Vec<&LcoreShared> = inner.lcores.iter().map(AsRef::as_ref).collect();
    let mine = lcores.iter().enumerate().filter(|(at, _)| at % inner.shards.len() == index);
    let mut pulses: Vec<Pulse<'_>> = mine.map(|(_, lcore)| Pulse::new(lcore)).collect();
    let mut clock = Clock::new(inner, tally, feed, index);
    let mut worked = false;
    while inner.phase.get() < Phase::Drain {
        let now = inner.now();
        clock.begin(now, worked);
        for pulse in &mut pulses {
            pulse.beat(now);
        }
        worked = generator.step(now, inner, feed);
        worked |= rx.poll(now, &mut rings, &mut ());
        worked |= tx.poll(now, &mut ());
    }
    tx.close(inner.now());
    generator.end()
}
