// SPDX-License-Identifier: Apache-2.0
//! The control lcore: one pass over each PI bank every Tupdate, and overload reports.
//!
//! Invariant: it alone calls `PiBanks::update`; it never waits for another lcore. Passes that came late are not
//! made up for here (the bank replays missed ticks itself, bounded); the next is due one Tupdate after the last was.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aqm::Nanos;
use engine::{Delay, OverloadEvent, OverloadMonitor, PiBanks, SharedHistogram};

/// Queue ids whose overload is followed at a time.
const OVERLOADS: usize = 4_096;
/// The latch timer of RFC 9332 2.5.2.3.
const HOLD: Nanos = Nanos::from_secs(10);
/// Passes behind after which the schedule starts anew.
const BEHIND: u64 = 64;

/// One bank and when its next tick is due.
struct Due {
    shard: usize,
    bank: usize,
    at: Nanos,
}

/// The control side of an lcore.
pub(crate) struct ControlWorker {
    banks: Vec<Arc<PiBanks>>,
    due: Vec<Due>,
    monitor: OverloadMonitor,
    events: rtrb::Producer<OverloadEvent>,
    shared: Arc<ControlCounters>,
}

/// What the control lcore shows.
#[derive(Debug, Default)]
pub(crate) struct ControlCounters {
    /// How long passes took, in units of 64 ns.
    pub(crate) pass: SharedHistogram,
    /// Reports that found no room.
    pub(crate) lost: engine::Counter,
    /// Queue ids whose overload could not be followed.
    pub(crate) missed: AtomicU64,
}

impl ControlWorker {
    pub(crate) fn new(
        banks: Vec<Arc<PiBanks>>,
        events: rtrb::Producer<OverloadEvent>,
        shared: Arc<ControlCounters>,
    ) -> Self {
        let due = banks.iter().enumerate().flat_map(|(shard, banks)| {
            (0..banks.len()).map(move |bank| Due { shard, bank, at: Nanos::ZERO })
        });
        let due = due.collect();
        Self { banks, due, monitor: OverloadMonitor::new(OVERLOADS, HOLD), events, shared }
    }

    /// Runs the passes that are due; `clock` is read around each. Whether there was one.
    pub(crate) fn poll(&mut self, now: Nanos, clock: &dyn Fn() -> Nanos) -> bool {
        let Self { banks, due, monitor, events, shared } = self;
        let mut emit = |event: OverloadEvent| {
            if events.push(event).is_err() {
                shared.lost.add(1);
            }
        };
        let mut worked = false;
        for next in due.iter_mut().filter(|next| next.at <= now) {
            let Some(banks) = banks.get(next.shard) else {
                continue;
            };
            let begin = clock();
            banks.update(next.bank, now, &mut |id, on| monitor.set(now, id, on, &mut emit));
            let took = clock().since(begin);
            let units = u32::try_from(took.0 >> aqm::Stamp::SHIFT).unwrap_or(u32::MAX);
            shared.pass.record(Delay::of(units), 1);
            let tupdate = banks.tupdate(next.bank);
            next.at = if now.since(next.at).0 > tupdate.0.saturating_mul(BEHIND) { now } else { next.at };
            next.at += tupdate;
            worked = true;
        }
        monitor.poll(now, &mut emit);
        shared.missed.store(monitor.missed(), Relaxed);
        worked
    }

    /// When the next pass is due.
    pub(crate) fn next_due(&self) -> Nanos {
        self.due.iter().map(|next| next.at).min().unwrap_or(Nanos::MAX)
    }
}
