// SPDX-License-Identifier: Apache-2.0
//! The lcore under test: the loop of `compact` without the control part, with its time measured.
//!
//! Invariant: the workers are those of `sluice run`. Busy time is that of loops that found work; a loop longer than
//! `GAP` was interrupted and counts as lost instead. With `staged` set, stages are measured by reading the TSC at
//! each lap, whose own cost is subtracted; an out-of-order CPU lets a stage's loads end in the next one, so the sum
//! is exact and the borders are not.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use aqm::Nanos;
use engine::Counter;

use crate::handle::Inner;
use crate::lcore::{Phase, Pulse};
use crate::probe::{Probe, Stage};
use crate::rx::RxWorker;
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
pub(super) fn run(inner: &Inner, tally: &Tally, mut rx: Box<RxWorker>, mut tx: Box<TxWorker>) {
    let Some(lcore) = inner.lcores.first() else {
        return;
    };
    let mut pulse = Pulse::new(lcore);
    let mut laps = Laps::new(inner.clock.hz());
    let mut last = inner.now();
    let mut worked = false;
    while inner.phase.get() < Phase::Drain {
        let now = inner.now();
        let took = now.since(last);
        let interrupted = took > GAP;
        if interrupted {
            tally.lost.add(took.0);
        } else if worked {
            tally.busy.add(took.0);
        }
        last = now;
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
}
