// SPDX-License-Identifier: Apache-2.0
//! Samples turned into figures: rates, delay quantiles, marks and drops over a stretch of time.
//!
//! Invariant: a figure covers exactly the time between two samples of one life of the shaper; when a counter fell, the
//! shaper was restarted, and what came before is forgotten.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use model::Subscriber;
use model::stats::{
    DelayStats, DirectionStats, LcoreState, ParentTopEntry, PortState, QueueStats, SubscriberStats, Top,
};
use serde_json::{Value, json};

use super::scrape::{Bins, Queue, Scrape, Way};

/// Delays, marks and drops are of so much time up to now.
pub(super) const WINDOW: Duration = Duration::from_secs(10);
/// Throughput is of at least so much.
const SHORT: Duration = Duration::from_millis(900);
/// Points of the lines of throughput.
const POINTS: usize = 240;

/// What was asked at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// When, on the viewer's clock.
    pub(super) at: Duration,
    pub(super) scrape: Scrape,
    pub(super) ports: Vec<PortState>,
    pub(super) lcores: Vec<LcoreState>,
    pub(super) top: Top,
    /// Aggregates that are slowed most, the way the list goes.
    pub(super) slowest: Vec<ParentTopEntry>,
    /// Of the subscriber that is looked at.
    pub(super) subject: Option<Subject>,
}

/// One subscriber: `None` in either where the shaper has no such record, or no counters of it now.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) id: String,
    pub(super) record: Option<Subscriber>,
    pub(super) stats: Option<SubscriberStats>,
}

/// Samples of the last seconds.
#[derive(Debug, Default)]
pub(super) struct History {
    samples: VecDeque<Sample>,
    /// b/s down and up, oldest first.
    pub(super) line: VecDeque<[f64; 2]>,
}

impl History {
    pub(super) fn push(&mut self, sample: Sample) {
        if self.samples.back().is_some_and(|last| Ways::between(last, &sample).is_none()) {
            self.samples.clear();
        }
        self.samples.push_back(sample);
        let now = self.samples.back().map(|last| last.at).unwrap_or_default();
        // one more than the window stays, so that the window is full
        while self.samples.get(1).is_some_and(|second| second.at + WINDOW <= now) {
            self.samples.pop_front();
        }
        if let Some(ways) = self.short() {
            self.line.push_back([ways.down.bps, ways.up.bps]);
            while self.line.len() > POINTS {
                self.line.pop_front();
            }
        }
    }

    pub(super) fn last(&self) -> Option<&Sample> {
        self.samples.back()
    }

    /// Figures of the last moment.
    pub(super) fn short(&self) -> Option<Ways> {
        let last = self.samples.back()?;
        let before = self.samples.iter().rev().find(|sample| sample.at + SHORT <= last.at);
        Ways::between(before.or_else(|| self.samples.front())?, last)
    }

    /// Figures of the window.
    pub(super) fn long(&self) -> Option<Ways> {
        Ways::between(self.samples.front()?, self.samples.back()?)
    }

    /// The subscriber that is looked at, and its figures of the window once there are two samples of it.
    pub(super) fn subject(&self) -> Option<(&Subject, Option<[Pair; 2]>)> {
        let last = self.samples.back()?;
        let subject = last.subject.as_ref()?;
        let same = |sample: &&Sample| {
            sample.at < last.at
                && sample.subject.as_ref().is_some_and(|old| old.id == subject.id && old.stats.is_some())
        };
        let pair = self.samples.iter().find(same).and_then(|first| {
            let seconds = last.at.saturating_sub(first.at).as_secs_f64();
            let (old, new) = (first.subject.as_ref()?.stats.as_ref()?, subject.stats.as_ref()?);
            let way = |old, new| Pair::between(&of_stats(old), &of_stats(new), seconds);
            Some([way(&old.down, &new.down)?, way(&old.up, &new.up)?])
        });
        Some((subject, pair))
    }
}

/// Both directions over a stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ways {
    pub(super) seconds: f64,
    pub(super) down: WayFigures,
    pub(super) up: WayFigures,
    /// Lateness of departures.
    pub(super) lag: Bins,
}

/// One direction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WayFigures {
    pub(super) bps: f64,
    pub(super) pps: f64,
    pub(super) queues: Pair,
    /// Packets a second of nobody.
    pub(super) unclassified: f64,
}

/// L and C.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pair {
    pub(super) l4s: QueueFigures,
    pub(super) classic: QueueFigures,
}

/// One queue, or all of a kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct QueueFigures {
    pub(super) bps: f64,
    pub(super) pps: f64,
    /// Marks a second.
    pub(super) marked: f64,
    /// Drops a second by reason, those that happened.
    pub(super) dropped: BTreeMap<String, f64>,
    pub(super) delay: Bins,
}

impl Ways {
    fn between(old: &Sample, new: &Sample) -> Option<Self> {
        let seconds = new.at.checked_sub(old.at)?.as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        let way = |old: &Way, new: &Way| -> Option<WayFigures> {
            let queues = Pair::between(
                &(old.l4s.clone(), old.classic.clone()),
                &(new.l4s.clone(), new.classic.clone()),
                seconds,
            )?;
            Some(WayFigures {
                bps: queues.l4s.bps + queues.classic.bps,
                pps: queues.l4s.pps + queues.classic.pps,
                queues,
                unclassified: rate(old.unclassified, new.unclassified, seconds)?,
            })
        };
        Some(Self {
            seconds,
            down: way(&old.scrape.down, &new.scrape.down)?,
            up: way(&old.scrape.up, &new.scrape.up)?,
            lag: new.scrape.lag.since(&old.scrape.lag)?,
        })
    }
}

impl WayFigures {
    /// Marks a second of both queues.
    pub(super) fn marked(&self) -> f64 {
        self.queues.l4s.marked + self.queues.classic.marked
    }

    /// Drops a second of both queues by reason.
    pub(super) fn dropped(&self) -> BTreeMap<String, f64> {
        let mut all = self.queues.l4s.dropped.clone();
        for (reason, rate) in &self.queues.classic.dropped {
            *all.entry(reason.clone()).or_default() += rate;
        }
        all
    }

    fn json(&self) -> Value {
        json!({
            "rate_bps": self.bps, "packets_per_s": self.pps, "unclassified_per_s": self.unclassified,
            "l4s": self.queues.l4s.json(), "classic": self.queues.classic.json(),
        })
    }
}

impl Pair {
    fn between(old: &(Queue, Queue), new: &(Queue, Queue), seconds: f64) -> Option<Self> {
        let l4s = QueueFigures::between(&old.0, &new.0, seconds)?;
        Some(Self { l4s, classic: QueueFigures::between(&old.1, &new.1, seconds)? })
    }
}

impl QueueFigures {
    fn between(old: &Queue, new: &Queue, seconds: f64) -> Option<Self> {
        let mut dropped = BTreeMap::new();
        for (reason, count) in &new.dropped {
            let before = old.dropped.get(reason).copied().unwrap_or(0.0);
            let rate = rate(before, *count, seconds)?;
            if rate > 0.0 {
                dropped.insert(reason.clone(), rate);
            }
        }
        Some(Self {
            bps: rate(old.bytes, new.bytes, seconds)? * 8.0,
            pps: rate(old.packets, new.packets, seconds)?,
            marked: rate(old.marked, new.marked, seconds)?,
            dropped,
            delay: new.delay.since(&old.delay)?,
        })
    }

    /// Drops a second, all reasons.
    pub(super) fn lost(&self) -> f64 {
        self.dropped.values().sum()
    }

    fn json(&self) -> Value {
        let us = |share| self.delay.quantile(share).map(|seconds| seconds * 1e6);
        json!({
            "rate_bps": self.bps, "packets_per_s": self.pps, "marked_per_s": self.marked,
            "dropped_per_s": self.dropped, "delay_us": {"p50": us(0.5), "p99": us(0.99)},
        })
    }
}

/// `None` if the counter fell.
fn rate(old: f64, new: f64, seconds: f64) -> Option<f64> {
    (new >= old).then(|| (new - old) / seconds)
}

/// A subscriber's counters in the form of a scrape's.
fn of_stats(stats: &DirectionStats) -> (Queue, Queue) {
    (of_queue(&stats.l4s), of_queue(&stats.classic))
}

#[expect(clippy::cast_precision_loss, reason = "counters to look at")]
fn of_queue(stats: &QueueStats) -> Queue {
    let dropped = [
        ("aqm", stats.dropped_ect + stats.dropped_not_ect),
        ("tail", stats.dropped_tail),
        ("pool", stats.dropped_pool),
        ("other", stats.dropped_other),
    ];
    Queue {
        packets: stats.forwarded as f64,
        bytes: stats.forwarded_bytes as f64,
        marked: stats.marked as f64,
        dropped: dropped.into_iter().map(|(reason, count)| (reason.to_owned(), count as f64)).collect(),
        delay: of_delay(&stats.delay_us),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counters to look at")]
fn of_delay(delay: &DelayStats) -> Bins {
    let edge = |edge: &Option<f64>| edge.map_or(f64::INFINITY, |us| us / 1e6);
    Bins(delay.le.iter().map(edge).zip(delay.count.iter().map(|count| *count as f64)).collect())
}

/// All of a screen for programs; `None` until two samples are there.
pub(super) fn json(history: &History) -> Option<Value> {
    let (ways, last) = (history.long()?, history.last()?);
    let scrape = &last.scrape;
    let lag = |share| ways.lag.quantile(share).map(|seconds| seconds * 1e6);
    Some(json!({
        "window_s": ways.seconds,
        "down": ways.down.json(),
        "up": ways.up.json(),
        "subscribers": {"configured": scrape.configured, "active": scrape.active},
        "parents": {
            "configured": scrape.parents, "slowed": {"down": scrape.down.slowed, "up": scrape.up.slowed},
            "slowest": last.slowest,
        },
        "buffers": {"free": scrape.buffers_free, "used": scrape.buffers_used},
        "shaper_lag_us": {"p50": lag(0.5), "p99": lag(0.99)},
        "overload_episodes": {"down": scrape.down.overloads, "up": scrape.up.overloads},
        "ports": last.ports,
        "lcores": last.lcores,
        "top": last.top,
    }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A sample at a time with so many bytes down through L, one packet per 1,000 of them.
    pub(crate) fn sample(at_ms: u64, bytes: f64) -> Sample {
        let mut sample = Sample { at: Duration::from_millis(at_ms), ..Sample::default() };
        let l4s = &mut sample.scrape.down.l4s;
        l4s.bytes = bytes;
        l4s.packets = bytes / 1_000.0;
        l4s.marked = bytes / 10_000.0;
        l4s.dropped.insert("aqm".to_owned(), bytes / 100_000.0);
        l4s.delay = Bins(vec![
            (0.000_5, bytes / 2_000.0),
            (0.001, bytes / 1_000.0),
            (f64::INFINITY, bytes / 1_000.0),
        ]);
        sample
    }

    #[test]
    fn rates_are_of_the_last_second_and_delays_of_the_window() {
        let mut history = History::default();
        for second in 0..=20_u32 {
            // 1 MB/s, and 2 MB/s in the last second
            let bytes = 1e6 * f64::from(second) + if second == 20 { 1e6 } else { 0.0 };
            history.push(sample(u64::from(second) * 1_000, bytes));
        }
        let short = history.short().unwrap();
        assert_eq!((short.down.bps, short.down.pps, short.seconds), (16e6, 2_000.0, 1.0));
        let long = history.long().unwrap();
        assert_eq!((long.seconds, long.down.bps), (10.0, 8.8e6));
        assert_eq!(long.down.queues.l4s.delay.quantile(0.5), Some(0.000_5));
        assert!((long.down.marked() - 110.0).abs() < 1e-9);
        assert_eq!(long.down.dropped(), BTreeMap::from([("aqm".to_owned(), 11.0)]));
        assert_eq!((history.line.len(), history.line.back()), (20, Some(&[16e6, 0.0])));
    }

    #[test]
    fn a_restarted_shaper_begins_a_new_history() {
        let mut history = History::default();
        history.push(sample(0, 5e6));
        history.push(sample(1_000, 6e6));
        assert!(history.long().is_some());
        history.push(sample(2_000, 1e3));
        assert!(history.long().is_none(), "one sample makes no figure");
        history.push(sample(3_000, 2e3));
        assert!((history.long().unwrap().down.bps - 8e3).abs() < 1e-9);
    }

    #[test]
    fn programs_get_null_where_nothing_was_measured() {
        let mut history = History::default();
        assert!(json(&history).is_none());
        history.push(sample(0, 1e6));
        history.push(sample(1_000, 1e6));
        let told = json(&history).unwrap();
        assert_eq!(told["down"]["rate_bps"], 0.0);
        assert_eq!(told["down"]["l4s"]["delay_us"]["p99"], Value::Null);
        history.push(sample(2_000, 2e6));
        let told = json(&history).unwrap();
        assert_eq!(told["down"]["l4s"]["delay_us"]["p50"], 500.0);
    }
}
