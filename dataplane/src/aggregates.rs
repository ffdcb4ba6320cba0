// SPDX-License-Identifier: Apache-2.0
//! Aggregates as the control side shows them: one, and those that are busiest or slowed most.

use engine::{AggregateView, ParentId, ParentUse, QueueId, QueueSnapshot};
use model::stats::{
    Direction, DirectionStats, ParentDirectionStats, ParentStats, ParentTop, ParentTopBy, ParentTopEntry,
    ParentTopQuery,
};

use crate::handle::{Handle, Inner};
use crate::sweeps::{as_f64, ask, used};
use crate::tx::{Order, Reply, SWEEP};

/// Subscribers below an aggregate whose queues are asked one by one for its sums; of more, none are, for each
/// takes a loop of its lcore.
const SUMMED: u64 = 4096;
/// Records looked at in one go.
const LOOKED_AT: usize = 65_536;

/// Asks every shard for the use of all aggregates, a few at a time.
pub(crate) fn usage(inner: &Inner) -> Vec<Option<ParentUse>> {
    let (end, shards) = {
        let desk = inner.desk();
        (desk.registry.aggregates_end(), desk.shards.len())
    };
    let mut by_id = vec![None::<ParentUse>; end];
    for shard in 0..shards {
        for (piece, from) in by_id.chunks_mut(SWEEP).zip((0..).step_by(SWEEP)) {
            let answer = ask(inner, shard, Order::Parents(from), |reply| match reply {
                Reply::Parents(of, uses) if of == from => Some(uses),
                _ => None,
            });
            let Some(uses) = answer else { return by_id };
            for (sum, part) in piece.iter_mut().zip(uses) {
                if let Some(part) = part {
                    sum.get_or_insert_default().add(&part);
                }
            }
        }
    }
    by_id
}

/// What was sent meanwhile, and how fast the clock runs now.
fn since(now: Option<ParentUse>, before: Option<ParentUse>) -> Option<ParentUse> {
    let before = before.unwrap_or_default().bytes;
    let now = now?;
    // an aggregate of another number's past may have sent more
    let sent = |way: usize| now.bytes[way].checked_sub(before[way]).unwrap_or(now.bytes[way]);
    Some(ParentUse { bytes: [sent(0), sent(1)], speed: now.speed })
}

/// Subscribers at every level below each aggregate, and aggregates right below it, by number.
fn below<'a>(all: impl Iterator<Item = AggregateView<'a>>, end: usize) -> Vec<(u64, u64)> {
    let (mut counts, mut above) = (vec![(0, 0); end], vec![None; end]);
    for one in all {
        counts[one.id.index()].0 = u64::from(one.subscribers);
        above[one.id.index()] = one.spec.parent;
    }
    let own: Vec<u64> = counts.iter().map(|(subscribers, _)| *subscribers).collect();
    for (place, own) in own.into_iter().enumerate() {
        let step = |id: &ParentId| above.get(id.index()).copied().flatten();
        let way = std::iter::successors(above[place], step).take(engine::MAX_LEVELS);
        for (level, id) in way.enumerate() {
            if let Some(counts) = counts.get_mut(id.index()) {
                counts.0 += own;
                counts.1 += u64::from(level == 0);
            }
        }
    }
    counts
}

/// Whether each aggregate, by number, is this one or stands below it.
fn within<'a>(all: impl Iterator<Item = AggregateView<'a>>, end: usize, id: ParentId) -> Vec<bool> {
    let mut above = vec![None; end];
    for one in all {
        above[one.id.index()] = Some((one.id, one.spec.parent));
    }
    let step = |at: &ParentId| above.get(at.index()).copied().flatten().and_then(|(_, parent)| parent);
    let way = |own| std::iter::successors(Some(own), step).take(engine::MAX_LEVELS);
    above.iter().map(|one| one.is_some_and(|(own, _)| way(own).any(|at| at == id))).collect()
}

impl Handle {
    /// How many aggregates it has room for.
    pub const fn parents_capacity(&self) -> u64 {
        engine::MAX_PARENTS as u64
    }

    /// An aggregate over all shards; `None` where there is none of that name or an lcore does not answer.
    pub fn parent_stats(&self, id: &str) -> Option<ParentStats> {
        let (id, mut stats, subscribers) = {
            let mut desk = self.0.desk();
            let id = desk.registry.parent(id)?;
            let parts = self.0.parent(&mut desk, id)?.parts;
            let registry = &desk.registry;
            let counts = below(registry.aggregates(), registry.aggregates_end());
            let subscribers = counts.get(id.index()).map_or(0, |counts| counts.0);
            (id, parts.map(|part| ParentDirectionStats::from(&part)), subscribers)
        };
        if subscribers > SUMMED {
            for way in &mut stats {
                way.subscribers = subscribers;
            }
        } else {
            self.sum_below(id, &mut stats)?;
        }
        let [down, up] = stats;
        Some(ParentStats { down, up })
    }

    /// Adds the queues of all subscribers below; nothing if an lcore does not answer. Others get their turn between any
    /// two questions, so one that goes meanwhile is left out.
    fn sum_below(&self, id: ParentId, stats: &mut [ParentDirectionStats; 2]) -> Option<()> {
        let nobody = DirectionStats::from(&QueueSnapshot::default());
        for way in stats.iter_mut() {
            (way.l4s, way.classic) = (Some(nobody.l4s.clone()), Some(nobody.classic.clone()));
        }
        let mut next = Some(0);
        while let Some(from) = next {
            let (ids, then) = {
                let desk = self.0.desk();
                let within = within(desk.registry.aggregates(), desk.registry.aggregates_end(), id);
                let takes = |above: ParentId| within.get(above.index()).is_some_and(|within| *within);
                desk.registry.below(takes, from, LOOKED_AT)
            };
            for ids in ids {
                for (id, way) in ids.into_iter().zip(stats.iter_mut()) {
                    if let Some(queues) = self.queues(id)? {
                        way.add_below(&queues);
                    }
                }
            }
            next = then;
        }
        Some(())
    }

    /// One id's queues, if it is still there; nothing if its lcore does not answer.
    #[expect(clippy::option_option, reason = "no answer is not the answer that there is no such id")]
    fn queues(&self, id: QueueId) -> Option<Option<DirectionStats>> {
        let shard = self.0.desk().registry.shard(id);
        ask(&self.0, shard, Order::Snapshot(id), |reply| match reply {
            Reply::Snapshot(of, snapshot) if of == id => Some(snapshot.as_ref().map(DirectionStats::from)),
            _ => None,
        })
    }

    /// The first of the aggregates, best first.
    pub fn top_parents(&self, query: &ParentTopQuery) -> ParentTop {
        let (meanwhile, over) =
            used(&self.0, &self.0.parent_usage, usage, query.window_s, |now, before| since(*now, *before));
        let over_ns = as_f64(over.0.max(1));
        let desk = self.0.desk();
        let registry = &desk.registry;
        let counts = below(registry.aggregates(), registry.aggregates_end());
        let way = usize::from(query.dir != Direction::Down);
        let above = query.parent.as_ref().map(|parent| registry.parent(parent));
        let mut found: Vec<_> = registry
            .aggregates()
            .filter(|one| above.is_none_or(|above| above.is_some() && one.spec.parent == above))
            .map(|one| {
                let used = meanwhile.get(one.id.index()).copied().flatten().unwrap_or_default();
                let rate_bps = as_f64(used.bytes[way]) * 8e9 / over_ns;
                let load = rate_bps / as_f64(one.spec.rates[way].0.max(1));
                (one, rate_bps, load, f64::from(used.speed[way]))
            })
            .collect();
        found.sort_by(|a, b| {
            let by = match query.by {
                // what is a hundredth of a percent slower is not
                ParentTopBy::Clock => round(a.3).total_cmp(&round(b.3)).then_with(|| b.2.total_cmp(&a.2)),
                ParentTopBy::Load => b.2.total_cmp(&a.2),
                ParentTopBy::Bytes => b.1.total_cmp(&a.1),
            };
            by.then_with(|| a.0.name.cmp(b.0.name))
        });
        found.truncate(query.n as usize);
        let items = found.into_iter().map(|(one, rate_bps, load, clock_speed)| {
            let (subscribers, parents) = counts.get(one.id.index()).copied().unwrap_or_default();
            ParentTopEntry {
                id: one.name.to_owned(),
                parent: one.spec.parent.and_then(|id| registry.parent_name(id)).map(str::to_owned),
                configured_bps: one.spec.rates[way].0,
                rate_bps,
                load,
                clock_speed,
                subscribers,
                parents,
            }
        });
        ParentTop { window_s: as_f64(over.0) / 1e9, items: items.collect() }
    }
}

fn round(speed: f64) -> f64 {
    (speed * 1e4).round()
}
