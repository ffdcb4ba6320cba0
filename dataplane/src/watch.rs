// SPDX-License-Identifier: Apache-2.0
//! What the control side remembers between two looks: how busy lcores were, which stalled, who used most.
//!
//! Invariant: whoever holds [`LcoreWatches`] waits for no lcore, so a stall is seen however many callers wait for the
//! lcore that stalled.

use std::sync::Arc;

use aqm::Nanos;
use engine::QueueId;
use model::stats::{Direction, Top, TopBy, TopEntry, TopQuery};

use crate::handle::{Handle, Inner};
use crate::lcore::{LcoreShared, STALL};
use crate::sweeps::{as_f64, ask, used};
use crate::tx::{Order, Reply, SWEEP};
use crate::usage::Usage;

/// Over how long busy ratios are taken.
const BUSY_OVER: Nanos = Nanos::from_secs(1);

/// How an lcore was when last looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LcoreWatch {
    pub(crate) busy_ratio: f64,
    pub(crate) stalled: bool,
    pub(crate) stalls: u64,
    busy: Nanos,
    at: Nanos,
    /// When it was first looked at: one that has not begun by then has as long as one that stops.
    first: Option<Nanos>,
}

impl LcoreWatch {
    /// Looks again.
    fn look(&mut self, lcore: &LcoreShared, now: Nanos) {
        let first = *self.first.get_or_insert(now);
        let stalled = now.since(lcore.last_seen().unwrap_or(first)) > STALL;
        if stalled && !self.stalled {
            self.stalls += 1;
            tracing::warn!(lcore = lcore.lcore.id, role = lcore.role.label(), "an lcore has stalled");
        }
        self.stalled = stalled;
        let over = now.since(self.at);
        if over >= BUSY_OVER {
            let busy = lcore.busy();
            self.busy_ratio = ratio(busy.since(self.busy), over).min(1.0);
            (self.busy, self.at) = (busy, now);
        }
    }
}

/// One for each lcore, in the order of the lcores.
pub(crate) type LcoreWatches = Vec<LcoreWatch>;

/// Looks at every lcore.
pub(crate) fn look(watches: &mut LcoreWatches, lcores: &[Arc<LcoreShared>], now: Nanos) {
    watches.resize(lcores.len(), LcoreWatch::default());
    for (watch, lcore) in watches.iter_mut().zip(lcores) {
        watch.look(lcore, now);
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn ratio(part: Nanos, whole: Nanos) -> f64 {
    part.0 as f64 / whole.0.max(1) as f64
}

/// Asks every shard for the usage of all its ids, a few at a time, so that no lcore is held up and a change waits for
/// one answer at most.
pub(crate) fn usage(inner: &Inner) -> Vec<Option<Usage>> {
    let (ids, shards) = {
        let desk = inner.desk();
        let last = desk.registry.subscribers().map(|(_, down, up)| down.0.max(up.0)).max();
        (last.map_or(0, |last| last as usize + 1), desk.shards.len())
    };
    let mut by_id = vec![None; ids];
    for index in 0..shards {
        for place in (0..ids.div_ceil(shards)).step_by(SWEEP) {
            let Ok(place) = u32::try_from(place) else { break };
            let answer = ask(inner, index, Order::Sweep(place), |reply| match reply {
                Reply::Sweep(of, usages) if of == place => Some(usages),
                _ => None,
            });
            let Some(usages) = answer else { return by_id };
            for (offset, usage) in usages.into_iter().enumerate() {
                if let Some(slot) = by_id.get_mut((place as usize + offset) * shards + index) {
                    *slot = usage;
                }
            }
        }
    }
    by_id
}

impl Handle {
    /// The first of the list, best first. Below an aggregate also those that send nothing.
    pub fn top(&self, query: &TopQuery) -> Top {
        let since = |now: &Option<Usage>, before: &Option<Usage>| {
            now.map(|usage| usage.since(&before.unwrap_or_default()))
        };
        let (usages, over) = used(&self.0, &self.0.usage, usage, query.window_s, since);
        let mut entries = self.entries(query, &usages, over);
        let key = |entry: &TopEntry| match query.by {
            TopBy::Bytes => entry.rate_bps,
            TopBy::Delay => entry.l4s_delay_us.max(entry.classic_delay_us),
            TopBy::Drops => as_f64(entry.dropped),
        };
        entries.sort_by(|a, b| key(b).total_cmp(&key(a)).then_with(|| a.id.cmp(&b.id)));
        entries.truncate(query.n as usize);
        Top { window_s: as_f64(over.0) / 1e9, items: entries }
    }

    fn entries(&self, query: &TopQuery, usages: &[Option<Usage>], over: Nanos) -> Vec<TopEntry> {
        let desk = self.0.desk();
        let used = |id: QueueId| usages.get(id.0 as usize).copied().flatten();
        let above = query.parent.as_ref().map(|parent| desk.registry.parent(parent));
        let subscribers = desk.registry.subscribers();
        let entries = subscribers.filter_map(|(name, down, up)| {
            if above.is_some_and(|above| above.is_none() || desk.registry.above(down) != above) {
                return None;
            }
            let usage = used(if query.dir == Direction::Down { down } else { up })?;
            let packets: u64 = usage.forwarded.iter().sum();
            if above.is_none() && packets == 0 && usage.dropped == 0 {
                return None;
            }
            let [l4s_delay_us, classic_delay_us] = usage.mean_delay_us();
            Some(TopEntry {
                id: name.to_owned(),
                bytes: usage.bytes,
                rate_bps: as_f64(usage.bytes) * 8e9 / as_f64(over.0.max(1)),
                packets,
                l4s_delay_us,
                classic_delay_us,
                marked: usage.marked,
                dropped: usage.dropped,
            })
        });
        entries.collect()
    }
}

#[cfg(test)]
mod tests {
    use model::config::Lcore;
    use model::stats::LcoreRole;

    use super::*;
    use crate::lcore::Pulse;

    /// How often the control side looks.
    const LOOK: u64 = 100;

    fn lcore() -> Arc<LcoreShared> {
        Arc::new(LcoreShared::new(Lcore { id: 3, cpu: 1 }, LcoreRole::Tx, Some(0)))
    }

    #[test]
    fn a_stall_is_seen_within_a_second_counted_once_and_over_with_the_next_loop() {
        let lcore = lcore();
        let (mut pulse, mut watches) = (Pulse::new(&lcore), LcoreWatches::new());
        let mut see = |ms: u64, beats: bool| {
            if beats {
                pulse.beat(Nanos::from_millis(ms));
            }
            look(&mut watches, std::slice::from_ref(&lcore), Nanos::from_millis(ms));
            (watches[0].stalled, watches[0].stalls)
        };
        for ms in (LOOK..=5_000).step_by(100) {
            assert_eq!(see(ms, true), (false, 0), "at {ms} ms");
        }
        let seen = (5_100..).step_by(100).find(|&ms| see(ms, false).0);
        assert!(seen.is_some_and(|ms| ms <= 6_000), "seen at {seen:?} ms");
        assert_eq!(see(9_000, false), (true, 1));
        assert_eq!(see(9_100, true), (false, 1));
        assert_eq!(see(9_700, false), (true, 2));
    }

    #[test]
    fn an_lcore_that_never_begins_has_stalled_but_not_at_the_first_look() {
        let (lcore, mut watches) = (lcore(), LcoreWatches::new());
        let begin = Nanos::from_secs(100);
        let mut see = |after: Nanos| {
            look(&mut watches, std::slice::from_ref(&lcore), begin + after);
            watches[0].stalled
        };
        assert!(!see(Nanos::ZERO));
        assert!(!see(STALL));
        assert!(see(STALL + Nanos::from_millis(LOOK)));
    }
}
