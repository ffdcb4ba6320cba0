// SPDX-License-Identifier: Apache-2.0
//! What every lcore shows of itself, and the phases all of them go through.
//!
//! Invariant: an lcore's figures have one writer, that lcore; anybody reads them.

use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use aqm::Nanos;
use crossbeam_utils::CachePadded;
use engine::Counter;
use model::config::Lcore;
use model::stats::LcoreRole;

/// An lcore that has not looped for this long counts as stalled.
pub(crate) const STALL: Nanos = Nanos::from_millis(500);
/// A gap between two loops that subscribers can feel: twice the native ramp of L.
const LONG_GAP: Nanos = Nanos::from_micros(2_000);

/// What the lcores are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Receive nothing yet: the records are on their way, and traffic must not pass unshaped before them.
    Load = 0,
    /// Forward.
    Run = 1,
    /// Receive no more; send what is queued.
    Drain = 2,
    /// End.
    Stop = 3,
}

/// The phase of the whole data plane.
#[derive(Debug, Default)]
pub(crate) struct PhaseCell(AtomicU8);

impl PhaseCell {
    pub(crate) fn get(&self) -> Phase {
        match self.0.load(Relaxed) {
            0 => Phase::Load,
            1 => Phase::Run,
            2 => Phase::Drain,
            _ => Phase::Stop,
        }
    }

    /// Moves on; never back.
    pub(crate) fn advance(&self, to: Phase) {
        self.0.fetch_max(to as u8, Relaxed);
    }
}

/// What an lcore shows of itself.
#[derive(Debug)]
pub(crate) struct LcoreShared {
    pub(crate) lcore: Lcore,
    pub(crate) role: LcoreRole,
    pub(crate) shard: Option<u32>,
    seen: CachePadded<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Time of the last loop; 0 before the first.
    at: AtomicU64,
    /// Loops so far: after one more, nothing of an older state is held (a quiescent point).
    rounds: AtomicU64,
    busy: Counter,
    longest_gap: AtomicU64,
    /// Gaps of at least `LONG_GAP`.
    long_gaps: Counter,
    ended: AtomicBool,
}

impl LcoreShared {
    pub(crate) fn new(lcore: Lcore, role: LcoreRole, shard: Option<u32>) -> Self {
        Self { lcore, role, shard, seen: CachePadded::default() }
    }

    /// When it was last seen; `None` before its first loop.
    pub(crate) fn last_seen(&self) -> Option<Nanos> {
        Some(Nanos(self.seen.at.load(Relaxed))).filter(|&at| at > Nanos::ZERO)
    }

    /// Loops so far.
    pub(crate) fn rounds(&self) -> u64 {
        self.seen.rounds.load(Acquire)
    }

    /// Time spent in loops that found work.
    pub(crate) fn busy(&self) -> Nanos {
        Nanos(self.seen.busy.get())
    }

    /// Times that at least `LONG_GAP` lay between two loops.
    pub(crate) fn long_gaps(&self) -> u64 {
        self.seen.long_gaps.get()
    }

    /// Notes that it loops no more.
    pub(crate) fn end(&self) {
        self.seen.ended.store(true, Release);
    }

    /// Whether it loops no more.
    pub(crate) fn has_ended(&self) -> bool {
        self.seen.ended.load(Acquire)
    }

    /// Longest time between two loops.
    pub(crate) fn longest_gap(&self) -> Nanos {
        Nanos(self.seen.longest_gap.load(Relaxed))
    }
}

/// An lcore's own side of [`LcoreShared`].
#[derive(Debug)]
pub(crate) struct Pulse<'a> {
    shared: &'a LcoreShared,
    last: Option<Nanos>,
    longest: Nanos,
    rounds: u64,
    worked: bool,
}

impl<'a> Pulse<'a> {
    pub(crate) fn new(shared: &'a LcoreShared) -> Self {
        Self { shared, last: None, longest: Nanos::ZERO, rounds: shared.rounds(), worked: false }
    }

    /// Begins a loop at `now`; `worked` says what the one before found.
    #[inline]
    pub(crate) fn beat(&mut self, now: Nanos) {
        let seen = &self.shared.seen;
        if let Some(last) = self.last {
            let gap = now.since(last);
            if gap > self.longest {
                self.longest = gap;
                seen.longest_gap.store(gap.0, Relaxed);
            }
            if gap >= LONG_GAP {
                seen.long_gaps.add(1);
            }
            if self.worked {
                seen.busy.add(gap.0);
            }
        }
        self.last = Some(now);
        self.worked = false;
        seen.at.store(now.0.max(1), Relaxed);
        self.rounds += 1;
        seen.rounds.store(self.rounds, Release);
    }

    /// Notes that this loop found work.
    #[inline]
    pub(crate) fn worked(&mut self, worked: bool) {
        self.worked |= worked;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_shows_gaps_and_only_loops_with_work_as_busy() {
        let shared = LcoreShared::new(Lcore { id: 1, cpu: 1 }, LcoreRole::Tx, Some(0));
        assert_eq!(shared.last_seen(), None);
        let mut pulse = Pulse::new(&shared);
        pulse.beat(Nanos(100));
        pulse.worked(true);
        pulse.beat(Nanos(130));
        pulse.beat(Nanos(1_130));
        assert_eq!(shared.busy(), Nanos(30));
        assert_eq!(shared.longest_gap(), Nanos(1_000));
        assert_eq!(shared.last_seen(), Some(Nanos(1_130)));
        assert_eq!(shared.rounds(), 3);
    }

    #[test]
    fn a_phase_never_goes_back() {
        let phase = PhaseCell::default();
        assert_eq!(phase.get(), Phase::Load);
        phase.advance(Phase::Run);
        assert_eq!(phase.get(), Phase::Run);
        phase.advance(Phase::Stop);
        phase.advance(Phase::Drain);
        assert_eq!(phase.get(), Phase::Stop);
    }
}
