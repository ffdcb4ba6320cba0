// SPDX-License-Identifier: Apache-2.0
//! Counters of all ids, swept off the lcores now and then, so that what happened within a window can be told.
//!
//! Invariant: nothing is swept unless somebody asks; an idle subscriber or aggregate then costs nothing.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use aqm::Nanos;

use crate::handle::{Inner, lock};
use crate::tx::{Order, Reply};

/// How often they are swept while somebody asks.
const EVERY: Nanos = Nanos::from_secs(5);
/// For how long after the last question.
const FOR: Nanos = Nanos::from_secs(600);
/// Sweeps kept: windows reach back so far.
const KEPT: usize = 13;
/// Window of a first question, which finds no earlier sweep.
const FIRST_WINDOW: Duration = Duration::from_secs(1);

/// The counters of all ids at one moment, by id.
type Sweep<T> = (Nanos, Vec<T>);

/// The last sweeps.
#[derive(Debug)]
pub(crate) struct Sweeps<T> {
    kept: VecDeque<Sweep<T>>,
    asked: Option<Nanos>,
}

impl<T> Default for Sweeps<T> {
    fn default() -> Self {
        Self { kept: VecDeque::new(), asked: None }
    }
}

impl<T> Sweeps<T> {
    /// Sweeps if it is time.
    pub(crate) fn if_due(&mut self, inner: &Inner, sweep: impl FnOnce(&Inner) -> Vec<T>) {
        let now = inner.now();
        let asked = self.asked.is_some_and(|at| now.since(at) < FOR);
        let due = self.kept.back().is_none_or(|(last, _)| now.since(*last) >= EVERY);
        if asked && due {
            self.take(inner, sweep);
        } else if !asked {
            self.kept.clear();
        }
    }

    fn take(&mut self, inner: &Inner, sweep: impl FnOnce(&Inner) -> Vec<T>) {
        let by_id = sweep(inner);
        if self.kept.len() >= KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((inner.now(), by_id));
    }

    /// The kept sweep whose age is nearest to `window`.
    fn back(&self, now: Nanos, window: Nanos) -> Option<&Sweep<T>> {
        self.kept.iter().min_by_key(|(at, _)| now.since(*at).0.abs_diff(window.0))
    }
}

/// What happened to every id over about `window_s` up to now, by `since` (now, before), and over how long that really
/// was.
#[expect(clippy::disallowed_methods, reason = "a first question waits for a window to measure over")]
pub(crate) fn used<T: Copy + Default>(
    inner: &Inner,
    sweeps: &Mutex<Sweeps<T>>,
    sweep: impl Fn(&Inner) -> Vec<T>,
    window_s: f64,
    since: impl Fn(&T, &T) -> T,
) -> (Vec<T>, Nanos) {
    let first = {
        let mut sweeps = lock(sweeps);
        sweeps.asked = Some(inner.now());
        let first = sweeps.kept.is_empty();
        if first {
            sweeps.take(inner, &sweep);
        }
        first
    };
    if first {
        std::thread::sleep(FIRST_WINDOW.min(Duration::from_secs_f64(window_s.clamp(0.1, 60.0))));
    }
    let sweeps = lock(sweeps);
    let mut now = sweep(inner);
    let at = inner.now();
    let Some((back, before)) = sweeps.back(at, Nanos::from_millis(millis(window_s))) else {
        return (Vec::new(), Nanos::ZERO);
    };
    for (id, used) in now.iter_mut().enumerate() {
        *used = since(used, &before.get(id).copied().unwrap_or_default());
    }
    (now, at.since(*back))
}

/// One answer of a shard that `is_it` takes; nothing where it is not there or an lcore has stalled.
pub(crate) fn ask<T>(
    inner: &Inner,
    shard: usize,
    order: Order,
    is_it: impl Fn(Reply) -> Option<T>,
) -> Option<T> {
    let mut desk = inner.desk();
    let shard = desk.shards.get_mut(shard)?;
    while shard.replies.pop().is_ok() {}
    if !inner.send(shard, order) {
        return None;
    }
    let mut answer = None;
    // an lcore that stalls now has stopped answering: do not wait for it with everything at a standstill
    inner.wait(|| {
        answer = shard.replies.pop().ok().and_then(&is_it);
        answer.is_some() || inner.silent(inner.now()).next().is_some()
    });
    answer
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(crate) fn as_f64(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped first")]
fn millis(seconds: f64) -> u64 {
    (seconds.clamp(0.1, 60.0) * 1_000.0) as u64
}
