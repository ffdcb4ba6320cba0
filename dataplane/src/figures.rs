// SPDX-License-Identifier: Apache-2.0
//! Published counters as the figures that the control side shows.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aqm::{BitsPerSec, Queue};
use engine::{AllTotals, Counter, Direction, DropReason, QueueTotals, Totals, upper_edges_us};
use model::stats::{
    BufferState, DirectionMetrics, Histogram, KindCount, LcoreState, MetricsSnapshot, ParentCounts,
    PortDrops, PortState, QueueMetrics, Reasons, SubscriberCounts,
};

use crate::handle::{Handle, Inner, PortEntry};
use crate::rx::PortCounters;
use crate::tx::Held;

impl Handle {
    /// All of a scrape.
    pub fn metrics(&self) -> MetricsSnapshot {
        let inner = &self.0;
        let mut totals = AllTotals::default();
        for shard in &inner.shards {
            shard.add_to(&mut totals);
        }
        for (rx, _) in &inner.rx {
            rx.add_to(&mut totals);
        }
        MetricsSnapshot {
            down: direction(inner, &totals, Direction::Down),
            up: direction(inner, &totals, Direction::Up),
            ports: self.ports(),
            lcores: self.lcores(),
            buffers: buffers(inner),
            shaper_lag: histogram(&totals.lag),
            pi_update: histogram(&inner.control.pass.totals()),
            subscribers: SubscriberCounts {
                configured: inner.configured.load(Relaxed),
                active: active(inner),
            },
            parents: ParentCounts {
                configured: inner.parents_configured.load(Relaxed),
                saturated: inner.parents.saturated(inner.now()),
            },
            limits: limits(inner, &totals),
            dpdk: dpdk::version(),
        }
    }

    /// Ports, in the order of the configuration.
    pub fn ports(&self) -> Vec<PortState> {
        self.0
            .ports
            .iter()
            .zip(self.0.shared_ports.iter())
            .map(|(entry, shared)| port(entry, shared))
            .collect()
    }

    /// Lcores.
    pub fn lcores(&self) -> Vec<LcoreState> {
        let watches = self.0.lcore_watches();
        let states = self.0.lcores.iter().enumerate().map(|(index, lcore)| {
            let seen = watches.get(index).copied().unwrap_or_default();
            LcoreState {
                lcore: lcore.lcore.id,
                cpu: lcore.lcore.cpu,
                role: lcore.role,
                shard: lcore.shard,
                busy_ratio: seen.busy_ratio,
                stalled: seen.stalled,
                stalls: seen.stalls,
                longest_gap_us: lcore.longest_gap().0 / 1_000,
                long_gaps: lcore.long_gaps(),
            }
        });
        states.collect()
    }
}

/// Subscribers with packets queued: those of the direction in which more of them have. One that waits in the other
/// direction only may be missed, since its two queues belong to different lcores.
fn active(inner: &Inner) -> u64 {
    let in_direction = |place: usize| -> u64 {
        inner.held.iter().filter_map(|held| held.active.get(place)).map(|active| active.load(Relaxed)).sum()
    };
    in_direction(0).max(in_direction(1))
}

/// How often a limit of the data plane's own was hit.
fn limits(inner: &Inner, totals: &AllTotals) -> Vec<KindCount> {
    let held = |of: fn(&Held) -> &AtomicU64| inner.held.iter().map(|held| of(held).load(Relaxed)).sum();
    let counts = [
        ("control", totals.control_limited.iter().sum()),
        ("misdirected", held(|held| &held.misdirected)),
        ("wheel", held(|held| &held.wheel_refused)),
        ("overloads_followed", inner.control.missed.load(Relaxed)),
        ("overload_reports", inner.control.lost.get()),
    ];
    counts.map(|(kind, packets)| KindCount { kind: kind.to_owned(), packets }).to_vec()
}

/// A direction as the interfaces name it.
pub(crate) fn shown(direction: Direction) -> model::stats::Direction {
    match direction {
        Direction::Down => model::stats::Direction::Down,
        Direction::Up => model::stats::Direction::Up,
    }
}

fn direction(inner: &Inner, totals: &AllTotals, direction: Direction) -> DirectionMetrics {
    let mut unclassified = Vec::new();
    for (_, kinds) in &inner.rx {
        kinds.add_to(direction, &mut unclassified);
    }
    let [down, up] = &inner.episodes;
    let episodes = if direction == Direction::Down { down } else { up };
    DirectionMetrics {
        l4s: queue(totals.queue(direction, Queue::L4s)),
        classic: queue(totals.queue(direction, Queue::Classic)),
        unclassified,
        overload_episodes: episodes.load(Relaxed),
    }
}

fn queue(totals: &QueueTotals) -> QueueMetrics {
    QueueMetrics {
        arrived: totals.arrived,
        presented: totals.presented(),
        forwarded: totals.forwarded,
        forwarded_bytes: totals.bytes,
        marked: totals.marked,
        dropped_ect: reasons(totals, 1),
        dropped_not_ect: reasons(totals, 0),
        delay: histogram(&totals.delay),
    }
}

fn reasons(totals: &QueueTotals, ect: usize) -> Reasons {
    let dropped = |reason: DropReason| {
        totals.dropped.get(reason as usize).and_then(|by_ecn| by_ecn.get(ect)).copied().unwrap_or(0)
    };
    Reasons {
        aqm: dropped(DropReason::Aqm),
        overload: dropped(DropReason::Overload),
        tail: dropped(DropReason::Tail),
        pool: dropped(DropReason::Pool),
        ring: dropped(DropReason::Ring),
        removed: dropped(DropReason::Removed),
        link: dropped(DropReason::Link),
    }
}

/// In seconds.
fn histogram(totals: &Totals) -> Histogram {
    Histogram {
        le: upper_edges_us().flatten().map(|edge| edge / 1e6).collect(),
        count: totals.cumulative().collect(),
        sum: totals.sum_us() / 1e6,
    }
}

fn buffers(inner: &Inner) -> BufferState {
    let (free, all) = inner.pools.iter().fold((0, 0), |(free, all), pool| {
        (free + u64::from(pool.available()), all + u64::from(pool.buffers()))
    });
    BufferState { free, used: all.saturating_sub(free) }
}

fn port(entry: &PortEntry, shared: &engine::PortShared) -> PortState {
    let stats = entry.port.stats();
    let link = entry.port.link();
    let sum = |counters: &[std::sync::Arc<PortCounters>], of: fn(&PortCounters) -> &Counter| {
        counters.iter().map(|counters| of(counters).get()).sum::<u64>()
    };
    let drops = [
        ("imissed", stats.imissed),
        ("ierrors", stats.ierrors),
        ("rx_nombuf", stats.rx_nombuf),
        ("oerrors", stats.oerrors),
        ("link", entry.lost.iter().map(|lost| lost.get()).sum()),
    ];
    PortState {
        name: entry.config.name.clone(),
        device: entry.config.device.clone(),
        role: entry.config.role,
        peer: entry.peer.clone(),
        driver: entry.port.driver().to_owned(),
        mac: entry.port.mac().map(|byte| format!("{byte:02x}")).join(":"),
        link: shared.is_up(),
        speed_bps: link.speed_bps,
        mtu: entry.port.mtu().map_or(0, u32::from),
        rate_bps: shared.rate().map(|BitsPerSec(bps)| bps),
        clock_speed: shared.clock_speed(),
        rx_packets: sum(&entry.rx, |counters| &counters.packets),
        rx_bytes: sum(&entry.rx, |counters| &counters.bytes),
        tx_packets: sum(&entry.tx, |counters| &counters.packets),
        tx_bytes: sum(&entry.tx, |counters| &counters.bytes),
        drops: drops.map(|(reason, packets)| PortDrops { reason: reason.to_owned(), packets }).to_vec(),
    }
}
