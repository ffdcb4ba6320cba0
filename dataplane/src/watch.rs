// SPDX-License-Identifier: Apache-2.0
//! What the control side remembers between two looks: how busy lcores were, which stalled, who used most.
//!
//! Invariant: usage is swept off the lcores only while somebody asks for `top`; otherwise an idle subscriber costs
//! nothing.

use std::collections::VecDeque;
use std::time::Duration;

use aqm::Nanos;
use engine::QueueId;
use model::stats::{Direction, TopBy, TopEntry, TopQuery};

use crate::handle::{Desk, Handle, Inner};
use crate::lcore::STALL;
use crate::tx::{Order, Reply, SWEEP};
use crate::usage::Usage;

/// Over how long busy ratios are taken.
const BUSY_OVER: Nanos = Nanos::from_secs(1);
/// How often usage is swept while somebody asks.
const SWEEP_EVERY: Nanos = Nanos::from_secs(5);
/// For how long after the last question.
const SWEEP_FOR: Nanos = Nanos::from_secs(600);
/// Sweeps kept: windows reach back so far.
const SWEEPS: usize = 13;
/// Window of a first question, which finds no earlier sweep.
const FIRST_WINDOW: Duration = Duration::from_secs(1);

/// How an lcore was when last looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LcoreWatch {
    pub(crate) busy_ratio: f64,
    pub(crate) stalled: bool,
    pub(crate) stalls: u64,
    busy: Nanos,
    at: Nanos,
}

/// Usage of all queue ids at one moment, by id.
#[derive(Debug)]
struct Sweep {
    at: Nanos,
    by_id: Vec<Option<Usage>>,
}

/// What the control side remembers.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) lcores: Vec<LcoreWatch>,
    sweeps: VecDeque<Sweep>,
    asked: Option<Nanos>,
}

impl Watch {
    /// Looks at every lcore, and sweeps usage if it is time.
    pub(crate) fn look(&mut self, inner: &Inner) {
        let now = inner.now();
        self.lcores.resize(inner.lcores.len(), LcoreWatch::default());
        for (watch, lcore) in self.lcores.iter_mut().zip(&inner.lcores) {
            let stalled = lcore.last_seen().is_none_or(|at| now.since(at) > STALL);
            if stalled && !watch.stalled {
                watch.stalls += 1;
                tracing::warn!(lcore = lcore.lcore.id, role = lcore.role.label(), "an lcore has stalled");
            }
            watch.stalled = stalled;
            let over = now.since(watch.at);
            if over >= BUSY_OVER {
                let busy = lcore.busy();
                watch.busy_ratio = ratio(busy.since(watch.busy), over).min(1.0);
                (watch.busy, watch.at) = (busy, now);
            }
        }
        let asked = self.asked.is_some_and(|at| now.since(at) < SWEEP_FOR);
        let due = self.sweeps.back().is_none_or(|last| now.since(last.at) >= SWEEP_EVERY);
        if asked && due {
            self.sweep(inner);
        } else if !asked {
            self.sweeps.clear();
        }
    }

    fn sweep(&mut self, inner: &Inner) {
        let mut desk = inner.desk();
        let by_id = sweep(inner, &mut desk);
        drop(desk);
        if self.sweeps.len() >= SWEEPS {
            self.sweeps.pop_front();
        }
        self.sweeps.push_back(Sweep { at: inner.now(), by_id });
    }

    /// The kept sweep whose age is nearest to `window`.
    fn back(&self, now: Nanos, window: Nanos) -> Option<&Sweep> {
        self.sweeps.iter().min_by_key(|sweep| now.since(sweep.at).0.abs_diff(window.0))
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn ratio(part: Nanos, whole: Nanos) -> f64 {
    part.0 as f64 / whole.0.max(1) as f64
}

/// Asks every shard for the usage of all its ids, a few at a time, so that no lcore is held up.
fn sweep(inner: &Inner, desk: &mut Desk) -> Vec<Option<Usage>> {
    let ids =
        desk.registry.subscribers().map(|(_, down, up)| down.0.max(up.0) + 1).max().unwrap_or(0) as usize;
    let mut by_id = vec![None; ids];
    let shards = desk.shards.len();
    for (index, shard) in desk.shards.iter_mut().enumerate() {
        while shard.replies.pop().is_ok() {}
        for place in (0..ids.div_ceil(shards)).step_by(SWEEP) {
            let Ok(place) = u32::try_from(place) else { break };
            if !inner.send(shard, Order::Sweep(place)) {
                return by_id;
            }
            let answered = inner.wait(|| match shard.replies.pop() {
                Ok(Reply::Sweep(of, usages)) if of == place => {
                    for (offset, usage) in usages.into_iter().enumerate() {
                        if let Some(slot) = by_id.get_mut((place as usize + offset) * shards + index) {
                            *slot = usage;
                        }
                    }
                    true
                }
                _ => false,
            });
            if !answered {
                return by_id;
            }
        }
    }
    by_id
}

impl Handle {
    /// The first of the list, best first.
    #[expect(clippy::disallowed_methods, reason = "a first question waits for a window to measure over")]
    pub fn top(&self, query: TopQuery) -> Vec<TopEntry> {
        let inner = &self.0;
        let first = {
            let mut watch = inner.watch();
            watch.asked = Some(inner.now());
            let first = watch.sweeps.is_empty();
            if first {
                watch.sweep(inner);
            }
            first
        };
        if first {
            std::thread::sleep(FIRST_WINDOW.min(Duration::from_secs_f64(query.window_s.clamp(0.1, 60.0))));
        }
        let (usages, over) = self.used(Nanos::from_millis(millis(query.window_s)));
        let mut entries = self.entries(&query, &usages, over);
        let key = |entry: &TopEntry| match query.by {
            TopBy::Bytes => entry.rate_bps,
            TopBy::Delay => entry.l4s_delay_us.max(entry.classic_delay_us),
            TopBy::Drops => as_f64(entry.dropped),
        };
        entries.sort_by(|a, b| key(b).total_cmp(&key(a)).then_with(|| a.id.cmp(&b.id)));
        entries.truncate(query.n as usize);
        entries
    }

    /// What every id used over about `window` up to now, and over how long that really was.
    fn used(&self, window: Nanos) -> (Vec<Option<Usage>>, Nanos) {
        let inner = &self.0;
        let watch = inner.watch();
        let mut desk = inner.desk();
        let mut now = sweep(inner, &mut desk);
        let at = inner.now();
        let Some(back) = watch.back(at, window) else {
            return (Vec::new(), Nanos::ZERO);
        };
        for (id, usage) in now.iter_mut().enumerate() {
            let before = back.by_id.get(id).copied().flatten().unwrap_or_default();
            *usage = usage.map(|usage| usage.since(&before));
        }
        (now, at.since(back.at))
    }

    fn entries(&self, query: &TopQuery, usages: &[Option<Usage>], over: Nanos) -> Vec<TopEntry> {
        let desk = self.0.desk();
        let used = |id: QueueId| usages.get(id.0 as usize).copied().flatten();
        let subscribers = desk.registry.subscribers();
        let entries = subscribers.filter_map(|(name, down, up)| {
            let usage = used(if query.dir == Direction::Down { down } else { up })?;
            let [l4s_delay_us, classic_delay_us] = usage.mean_delay_us();
            Some(TopEntry {
                id: name.to_owned(),
                bytes: usage.bytes,
                rate_bps: as_f64(usage.bytes) * 8e9 / as_f64(over.0.max(1)),
                packets: usage.forwarded.iter().sum(),
                l4s_delay_us,
                classic_delay_us,
                marked: usage.marked,
                dropped: usage.dropped,
            })
        });
        entries.filter(|entry| entry.packets > 0 || entry.dropped > 0).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped first")]
fn millis(seconds: f64) -> u64 {
    (seconds.clamp(0.1, 60.0) * 1_000.0) as u64
}
