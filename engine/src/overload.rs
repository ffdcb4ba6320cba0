// SPDX-License-Identifier: Apache-2.0
//! Overload reports with hysteresis (RFC 9332 2.5.2.3): start and duration, and no event storm.
//!
//! Entering overload is reported at once, and so is leaving it, which also latches a timer. While the timer runs
//! a queue id may enter and leave as often as it likes: the time is added up in silence. The next report comes the
//! first time it is out of overload once the timer has run out, and latches it again. Departure from the RFC: a
//! queue id that is in overload when its timer runs out is reported as started then, so that a lasting overload is
//! seen before it ends.
//!
//! Invariants: between two reports of leaving lies at least the hold time; durations reported add up to the time
//! spent in overload; memory is fixed at construction, and what finds no room is counted.

use std::collections::{HashMap, VecDeque};

use aqm::Nanos;

use crate::packet::QueueId;

#[cfg(test)]
mod tests;

/// What is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverloadEvent {
    /// A queue id is in overload.
    Start {
        /// Which.
        id: QueueId,
        /// Since when.
        start: Nanos,
    },
    /// A queue id has left overload.
    End {
        /// Which.
        id: QueueId,
        /// When the first episode that this report covers began.
        start: Nanos,
        /// Time in overload, pauses left out.
        duration: Nanos,
        /// How often it went into overload.
        episodes: u32,
    },
}

/// Where a queue id stands.
#[derive(Clone, Copy, Debug)]
struct Track {
    /// In overload since.
    since: Option<Nanos>,
    /// When the first episode not reported as ended began.
    first: Nanos,
    /// Time in overload of ended episodes not reported.
    total: Nanos,
    /// Episodes not reported as ended.
    episodes: u32,
    /// The timer runs.
    latched: bool,
}

impl Track {
    fn enter(&mut self, now: Nanos) {
        if self.episodes == 0 {
            self.first = now;
        }
        self.since = Some(now);
        self.episodes = self.episodes.saturating_add(1);
    }

    fn leave(&mut self, now: Nanos) {
        if let Some(since) = self.since.take() {
            self.total += now.since(since);
        }
    }

    /// Reports all that ended, latches the timer.
    fn report(&mut self, id: QueueId) -> OverloadEvent {
        let event =
            OverloadEvent::End { id, start: self.first, duration: self.total, episodes: self.episodes };
        *self = Self { since: None, first: Nanos::ZERO, total: Nanos::ZERO, episodes: 0, latched: true };
        event
    }
}

/// Follows the overload of queue ids; belongs to the lcore that runs the PI pass.
#[derive(Debug)]
pub struct OverloadMonitor {
    hold: Nanos,
    capacity: usize,
    tracks: HashMap<QueueId, Track>,
    /// Running timers, in the order they run out.
    timers: VecDeque<(Nanos, QueueId)>,
    missed: u64,
}

impl OverloadMonitor {
    /// Follows up to `capacity` queue ids at a time; `hold` is the time a timer runs.
    pub fn new(capacity: usize, hold: Nanos) -> Self {
        Self {
            hold,
            capacity,
            tracks: HashMap::with_capacity(capacity),
            timers: VecDeque::with_capacity(capacity),
            missed: 0,
        }
    }

    /// A queue id enters (`on`) or leaves overload. Repeating what it is in changes nothing.
    pub fn set(&mut self, now: Nanos, id: QueueId, on: bool, emit: &mut dyn FnMut(OverloadEvent)) {
        match (self.tracks.get_mut(&id), on) {
            (Some(track), true) if track.since.is_none() => track.enter(now),
            (Some(track), false) if track.since.is_some() => {
                track.leave(now);
                if !track.latched {
                    emit(track.report(id));
                    self.latch(now, id);
                }
            }
            (None, true) => self.begin(now, id, emit),
            _ => {}
        }
    }

    fn begin(&mut self, now: Nanos, id: QueueId, emit: &mut dyn FnMut(OverloadEvent)) {
        if self.tracks.len() >= self.capacity {
            self.missed = self.missed.saturating_add(1);
            return;
        }
        let track = Track { since: Some(now), first: now, total: Nanos::ZERO, episodes: 1, latched: false };
        self.tracks.insert(id, track);
        emit(OverloadEvent::Start { id, start: now });
    }

    fn latch(&mut self, now: Nanos, id: QueueId) {
        debug_assert!(self.timers.len() < self.capacity, "one timer a queue id");
        self.timers.push_back((now + self.hold, id));
    }

    /// Lets timers run out; call it every pass, it costs nothing while none is due.
    pub fn poll(&mut self, now: Nanos, emit: &mut dyn FnMut(OverloadEvent)) {
        while let Some(&(due, id)) = self.timers.front()
            && due <= now
        {
            self.timers.pop_front();
            self.run_out(now, id, emit);
        }
    }

    fn run_out(&mut self, now: Nanos, id: QueueId, emit: &mut dyn FnMut(OverloadEvent)) {
        let Some(track) = self.tracks.get_mut(&id) else {
            return;
        };
        if track.since.is_some() {
            track.latched = false;
            emit(OverloadEvent::Start { id, start: track.first });
        } else if track.episodes > 0 {
            emit(track.report(id));
            self.latch(now, id);
        } else {
            self.tracks.remove(&id);
        }
    }

    /// Drops what is known of a queue id that goes out of use.
    pub fn forget(&mut self, id: QueueId) {
        if self.tracks.remove(&id).is_some() {
            self.timers.retain(|&(_, timed)| timed != id);
        }
    }

    /// Queue ids that went into overload while there was no room to follow them.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Queue ids followed now.
    pub fn followed(&self) -> usize {
        self.tracks.len()
    }
}
