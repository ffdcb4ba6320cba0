// SPDX-License-Identifier: Apache-2.0
//! What happened between two snapshots, as rates, shares and quantiles.

use std::time::Duration;

use model::stats::{DirectionMetrics, Histogram, MetricsSnapshot, PortState, QueueMetrics, Reasons};
use serde::Serialize;
use serde_json::Value;

/// All of an interval that ends at `at_ms`.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    pub(super) at_ms: u64,
    over_s: f64,
    down: Way,
    up: Way,
    shaper_lag: Delay,
    pi_update: Delay,
    buffers: Buffers,
    subscribers: Subscribers,
    parents: Parents,
    /// In the order of the lcores.
    lcore_busy: Vec<f64>,
    ports: Ports,
}

#[derive(Debug, Serialize)]
struct Way {
    rate_bps: f64,
    packets_per_s: f64,
    dropped_per_s: f64,
    unclassified_per_s: f64,
    overload_episodes: u64,
    l4s: Queue,
    classic: Queue,
}

#[derive(Debug, Serialize)]
struct Queue {
    rate_bps: f64,
    packets_per_s: f64,
    marked_per_s: f64,
    /// Of what was sent.
    marked_ratio: f64,
    dropped_per_s: PerReason,
    delay: Delay,
}

#[derive(Debug, Serialize)]
struct PerReason {
    aqm: f64,
    overload: f64,
    tail: f64,
    pool: f64,
    ring: f64,
    removed: f64,
    link: f64,
}

/// `None` where nothing came.
#[derive(Debug, PartialEq, Serialize)]
#[expect(clippy::struct_field_names, reason = "names of the interface carry their unit")]
struct Delay {
    mean_us: Option<f64>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Buffers {
    free: u64,
    used: u64,
}

#[derive(Debug, Serialize)]
struct Subscribers {
    configured: u64,
    active: u64,
}

/// Aggregates, and those that are a bottleneck.
#[derive(Debug, Serialize)]
struct Parents {
    configured: u64,
    slowed_down: u64,
    slowed_up: u64,
}

/// One value for each port, in their order.
#[derive(Debug, Default, Serialize)]
struct Ports {
    rx_bps: Vec<f64>,
    tx_bps: Vec<f64>,
    dropped_per_s: Vec<f64>,
    clock_speed: Vec<f64>,
}

/// Of one interval.
#[derive(Clone, Copy)]
struct Over(f64);

impl Over {
    /// Growth a second; a counter that ran backwards, which none should, is 0.
    fn rate(self, before: u64, after: u64) -> f64 {
        round(exact(after.saturating_sub(before)) / self.0.max(1e-3))
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people; exact up to 2^53")]
fn exact(count: u64) -> f64 {
    count as f64
}

/// To a thousandth: what is beyond is noise, and would be most of the text.
fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

impl Point {
    pub(super) fn between(
        before: &MetricsSnapshot,
        after: &MetricsSnapshot,
        over: Duration,
        at_ms: u64,
    ) -> Self {
        let seconds = Over(over.as_secs_f64());
        Self {
            at_ms,
            over_s: round(seconds.0),
            down: Way::between(&before.down, &after.down, seconds),
            up: Way::between(&before.up, &after.up, seconds),
            shaper_lag: Delay::between(&before.shaper_lag, &after.shaper_lag),
            pi_update: Delay::between(&before.pi_update, &after.pi_update),
            buffers: Buffers { free: after.buffers.free, used: after.buffers.used },
            subscribers: Subscribers {
                configured: after.subscribers.configured,
                active: after.subscribers.active,
            },
            parents: Parents {
                configured: after.parents.configured,
                slowed_down: after.parents.saturated[0],
                slowed_up: after.parents.saturated[1],
            },
            lcore_busy: after.lcores.iter().map(|lcore| round(lcore.busy_ratio)).collect(),
            ports: Ports::between(&before.ports, &after.ports, seconds),
        }
    }

    pub(super) fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl Way {
    fn between(before: &DirectionMetrics, after: &DirectionMetrics, over: Over) -> Self {
        let strangers = |of: &DirectionMetrics| of.unclassified.iter().map(|kind| kind.packets).sum();
        let l4s = Queue::between(&before.l4s, &after.l4s, over);
        let classic = Queue::between(&before.classic, &after.classic, over);
        Self {
            rate_bps: round(l4s.rate_bps + classic.rate_bps),
            packets_per_s: round(l4s.packets_per_s + classic.packets_per_s),
            dropped_per_s: round(l4s.dropped_per_s.total() + classic.dropped_per_s.total()),
            unclassified_per_s: over.rate(strangers(before), strangers(after)),
            overload_episodes: after.overload_episodes.saturating_sub(before.overload_episodes),
            l4s,
            classic,
        }
    }
}

impl Queue {
    fn between(before: &QueueMetrics, after: &QueueMetrics, over: Over) -> Self {
        let (marked, sent) =
            (after.marked.saturating_sub(before.marked), after.forwarded.saturating_sub(before.forwarded));
        Self {
            rate_bps: round(8.0 * over.rate(before.forwarded_bytes, after.forwarded_bytes)),
            packets_per_s: over.rate(before.forwarded, after.forwarded),
            marked_per_s: over.rate(before.marked, after.marked),
            // packets marked and still queued may be more than were sent
            marked_ratio: if sent == 0 {
                0.0
            } else {
                round(exact(marked) / exact(sent) * 1e3).min(1e3) / 1e3
            },
            dropped_per_s: PerReason::between(before, after, over),
            delay: Delay::between(&before.delay, &after.delay),
        }
    }
}

impl PerReason {
    fn between(before: &QueueMetrics, after: &QueueMetrics, over: Over) -> Self {
        let rate = |of: fn(&Reasons) -> u64| {
            let both = |queue: &QueueMetrics| of(&queue.dropped_ect) + of(&queue.dropped_not_ect);
            over.rate(both(before), both(after))
        };
        Self {
            aqm: rate(|reasons| reasons.aqm),
            overload: rate(|reasons| reasons.overload),
            tail: rate(|reasons| reasons.tail),
            pool: rate(|reasons| reasons.pool),
            ring: rate(|reasons| reasons.ring),
            removed: rate(|reasons| reasons.removed),
            link: rate(|reasons| reasons.link),
        }
    }

    fn total(&self) -> f64 {
        self.aqm + self.overload + self.tail + self.pool + self.ring + self.removed + self.link
    }
}

impl Ports {
    fn between(before: &[PortState], after: &[PortState], over: Over) -> Self {
        let drops = |port: &PortState| port.drops.iter().map(|drops| drops.packets).sum();
        let mut ports = Self::default();
        // ports do not change while the program runs
        for (was, now) in before.iter().zip(after) {
            ports.rx_bps.push(round(8.0 * over.rate(was.rx_bytes, now.rx_bytes)));
            ports.tx_bps.push(round(8.0 * over.rate(was.tx_bytes, now.tx_bytes)));
            ports.dropped_per_s.push(over.rate(drops(was), drops(now)));
            ports.clock_speed.push(round(now.clock_speed));
        }
        ports
    }
}

impl Delay {
    fn between(before: &Histogram, after: &Histogram) -> Self {
        let grown =
            |bin: usize, count: u64| count.saturating_sub(before.count.get(bin).copied().unwrap_or(0));
        let counts: Vec<u64> =
            after.count.iter().enumerate().map(|(bin, count)| grown(bin, *count)).collect();
        let all = counts.last().copied().unwrap_or(0);
        let micros = |seconds: f64| round(seconds * 1e6);
        let quantile = |q: f64| (all > 0).then(|| micros(quantile(&after.le, &counts, q)));
        Self {
            mean_us: (all > 0).then(|| micros((after.sum - before.sum).max(0.0) / exact(all))),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
        }
    }
}

/// As Prometheus' `histogram_quantile`: evenly within its bin; beyond the last edge, that edge.
fn quantile(edges: &[f64], counts: &[u64], q: f64) -> f64 {
    let rank = exact(counts.last().copied().unwrap_or(0)) * q;
    let bin = counts.iter().position(|count| exact(*count) >= rank).unwrap_or(0);
    let upper = edges.get(bin).or(edges.last()).copied().unwrap_or(0.0);
    let lower = bin.checked_sub(1).and_then(|below| edges.get(below)).copied().unwrap_or(0.0);
    let below = bin.checked_sub(1).and_then(|below| counts.get(below)).copied().map_or(0.0, exact);
    let within = counts.get(bin).copied().map_or(0.0, exact) - below;
    if bin >= edges.len() || within <= 0.0 {
        upper
    } else {
        lower + (upper - lower) * (rank - below) / within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(count: [u64; 4], sum: f64) -> Histogram {
        Histogram { le: vec![0.001, 0.002, 0.004], count: count.to_vec(), sum }
    }

    #[test]
    fn quantiles_are_those_of_the_interval_alone() {
        let before = histogram([0, 0, 1_000, 1_000], 3.0);
        let after = histogram([50, 100, 1_100, 1_100], 3.125);
        let delay = Delay::between(&before, &after);
        assert_eq!(delay.mean_us, Some(1_250.0));
        assert_eq!(delay.p50_us, Some(1_000.0));
        assert_eq!(delay.p99_us, Some(1_980.0));
        let none = Delay { mean_us: None, p50_us: None, p99_us: None };
        assert_eq!(Delay::between(&after, &after), none);
        assert_eq!(Delay::between(&Histogram::default(), &Histogram::default()), none);
    }

    #[test]
    fn what_lies_beyond_the_last_edge_is_told_as_that_edge() {
        let delay = Delay::between(&Histogram::default(), &histogram([0, 0, 0, 10], 1.0));
        assert_eq!(delay.p99_us, Some(4_000.0));
    }

    #[test]
    fn rates_are_by_the_second_and_drops_by_reason() {
        let before = MetricsSnapshot::default();
        let mut after = MetricsSnapshot::default();
        after.down.l4s.forwarded = 100;
        after.down.l4s.forwarded_bytes = 100_000;
        after.down.l4s.marked = 25;
        after.down.classic.dropped_ect.aqm = 3;
        after.down.classic.dropped_not_ect.aqm = 5;
        after.down.classic.dropped_not_ect.tail = 2;
        after.up.overload_episodes = 1;
        let point = Point::between(&before, &after, Duration::from_secs(2), 7).to_value();
        assert_eq!(point["at_ms"], 7);
        assert_eq!(point["down"]["rate_bps"], 400_000.0);
        assert_eq!(point["down"]["l4s"]["marked_ratio"], 0.25);
        assert_eq!(point["down"]["l4s"]["marked_per_s"], 12.5);
        assert_eq!(point["down"]["classic"]["dropped_per_s"]["aqm"], 4.0);
        assert_eq!(point["down"]["dropped_per_s"], 5.0);
        assert_eq!(point["up"]["overload_episodes"], 1);
        assert_eq!(point["up"]["l4s"]["delay"]["p99_us"], Value::Null);
    }
}
