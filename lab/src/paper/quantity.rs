// SPDX-License-Identifier: Apache-2.0
//! What a cell measures, read out of one outcome. Ratios in percent, rates in Mb/s, delays in ms.

use std::fmt;

use crate::outcome::{DelayMs, FlowOutcome, Outcome, QueueOutcome};

/// One of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// L.
    L4s,
    /// C, or the only one.
    Classic,
}

/// One figure of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "quantiles are what their names say")]
pub enum Stat {
    Mean,
    P25,
    P50,
    P99,
    Max,
}

/// A figure of one run.
#[derive(Clone, Debug, PartialEq)]
pub enum Quantity {
    /// Delay in a queue, ms.
    Delay(Queue, Stat),
    /// Packets of a queue forwarded with CE, %.
    Marked(Queue),
    /// Packets of a queue dropped, %.
    Dropped(Queue),
    /// Of the link, %.
    Utilisation,
    /// Mean rate of a label's flows, times a factor (published rates may count IP packets or payload), Mb/s.
    Rate(String, f64),
    /// Sum of a label's rates, times a factor, Mb/s.
    Total(String, f64),
    /// Mean rate of the first label over that of the second.
    Ratio(String, String),
    /// Sum of the first label's rates in that of both, %.
    Share(String, String),
    /// The same, judged only by who has more.
    Winner(String, String),
    /// Packets of a label forwarded with CE, %.
    MarkedOf(String),
    /// Packets of a label dropped, %.
    DroppedOf(String),
    /// Mean smoothed round-trip time of a label, ms.
    Rtt(String),
    /// The same less the base round-trip time, ms: queue and serialisation.
    QueueOf(String, f64),
    /// Jain's index of all flows' rates.
    Jain,
    /// C drop over the mean of p'^2 at the same packets.
    CouplingSquare,
    /// C drop over (half the marks of a label)^2.
    CouplingMarks(String),
    /// Completion time of short flows of a congestion control: median, ms.
    WebP50(String),
    /// The same: 99th percentile, ms.
    WebP99(String),
}

impl Quantity {
    /// Its value in this run; `None` where there is none (no such flow, division by nothing).
    pub fn of(&self, run: &Outcome) -> Option<f64> {
        let value = match self {
            Self::Delay(queue, stat) => some_packets(side(run, *queue)).map(|q| stat.of(&q.delay_ms))?,
            Self::Marked(queue) => some_packets(side(run, *queue))?.marked_ratio * 100.0,
            Self::Dropped(queue) => side(run, *queue).dropped_ratio * 100.0,
            Self::Utilisation => run.utilisation * 100.0,
            Self::Rate(label, factor) => total(run, label)? / count(run, label) * factor,
            Self::Total(label, factor) => total(run, label)? * factor,
            Self::Ratio(a, b) => (total(run, a)? / count(run, a)) / (total(run, b)? / count(run, b)),
            Self::Share(a, b) | Self::Winner(a, b) => {
                let (a, b) = (total(run, a)?, total(run, b)?);
                a / (a + b) * 100.0
            }
            Self::MarkedOf(label) => weighted(run, label, |flow| flow.marked_ratio, delivered)? * 100.0,
            Self::DroppedOf(label) => weighted(run, label, |flow| flow.dropped_ratio, arrived)? * 100.0,
            Self::Rtt(label) => plain(run, label, |flow| flow.rtt_ms)?,
            Self::QueueOf(label, base) => plain(run, label, |flow| flow.rtt_ms)? - base,
            Self::Jain => jain(run)?,
            Self::CouplingSquare => {
                run.queues.classic.dropped_ratio / run.queues.classic.p_prime_squared_mean
            }
            Self::CouplingMarks(label) => {
                let half = weighted(run, label, |flow| flow.marked_ratio, delivered)? / 2.0;
                run.queues.classic.dropped_ratio / (half * half)
            }
            Self::WebP50(cc) => run.web.iter().find(|web| web.cc == *cc)?.completion_ms.p50,
            Self::WebP99(cc) => run.web.iter().find(|web| web.cc == *cc)?.completion_ms.p99,
        };
        value.is_finite().then_some(value)
    }

    /// Its unit, empty for ratios of two like things.
    pub const fn unit(&self) -> &'static str {
        match self {
            Self::Delay(..) | Self::Rtt(_) | Self::QueueOf(..) | Self::WebP50(_) | Self::WebP99(_) => "ms",
            Self::Marked(_)
            | Self::Dropped(_)
            | Self::Utilisation
            | Self::MarkedOf(_)
            | Self::DroppedOf(_)
            | Self::Share(..)
            | Self::Winner(..) => "%",
            Self::Rate(..) | Self::Total(..) => "Mb/s",
            Self::Ratio(..) | Self::Jain | Self::CouplingSquare | Self::CouplingMarks(_) => "",
        }
    }
}

impl fmt::Display for Quantity {
    /// The last part of a cell's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delay(queue, stat) => write!(f, "{}-delay-{}", queue.label(), stat.label()),
            Self::Marked(queue) => write!(f, "{}-marked", queue.label()),
            Self::Dropped(queue) => write!(f, "{}-dropped", queue.label()),
            Self::Utilisation => f.write_str("utilisation"),
            Self::Rate(label, _) => write!(f, "{label}-rate"),
            Self::Total(label, _) => write!(f, "{label}-total"),
            Self::Ratio(..) => f.write_str("rate-ratio"),
            Self::Share(label, _) => write!(f, "{label}-share"),
            Self::Winner(..) => f.write_str("winner"),
            Self::MarkedOf(label) => write!(f, "{label}-marked"),
            Self::DroppedOf(label) => write!(f, "{label}-dropped"),
            Self::Rtt(label) => write!(f, "{label}-rtt"),
            Self::QueueOf(label, _) => write!(f, "{label}-queue"),
            Self::Jain => f.write_str("jain"),
            Self::CouplingSquare => f.write_str("drop-by-p2"),
            Self::CouplingMarks(_) => f.write_str("drop-by-marks"),
            Self::WebP50(cc) => write!(f, "web-{cc}-p50"),
            Self::WebP99(cc) => write!(f, "web-{cc}-p99"),
        }
    }
}

impl Queue {
    const fn label(self) -> &'static str {
        match self {
            Self::L4s => "l4s",
            Self::Classic => "classic",
        }
    }
}

impl Stat {
    const fn label(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::P25 => "p25",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Max => "max",
        }
    }

    const fn of(self, delay: &DelayMs) -> f64 {
        match self {
            Self::Mean => delay.mean,
            Self::P25 => delay.p25,
            Self::P50 => delay.p50,
            Self::P99 => delay.p99,
            Self::Max => delay.max,
        }
    }
}

const fn side(run: &Outcome, queue: Queue) -> &QueueOutcome {
    match queue {
        Queue::L4s => &run.queues.l4s,
        Queue::Classic => &run.queues.classic,
    }
}

fn some_packets(queue: &QueueOutcome) -> Option<&QueueOutcome> {
    (queue.packets > 0).then_some(queue)
}

fn flows<'a>(run: &'a Outcome, label: &'a str) -> impl Iterator<Item = &'a FlowOutcome> {
    run.flows.iter().filter(move |flow| flow.label == label)
}

fn count(run: &Outcome, label: &str) -> f64 {
    flows(run, label).fold(0.0, |count, _| count + 1.0)
}

/// Sum of a label's rates, Mb/s; `None`: no such flow.
fn total(run: &Outcome, label: &str) -> Option<f64> {
    flows(run, label).map(|flow| flow.rate_bps / 1e6).reduce(|sum, rate| sum + rate)
}

fn delivered(flow: &FlowOutcome) -> f64 {
    flow.rate_bps
}

fn arrived(flow: &FlowOutcome) -> f64 {
    // a flow that lost everything delivered nothing, and weighs nothing: its arrivals are not in the outcome
    if flow.dropped_ratio < 1.0 { flow.rate_bps / (1.0 - flow.dropped_ratio) } else { 0.0 }
}

/// Mean over a label's flows by packets.
fn weighted(
    run: &Outcome,
    label: &str,
    value: impl Fn(&FlowOutcome) -> f64,
    weight: impl Fn(&FlowOutcome) -> f64,
) -> Option<f64> {
    let (sum, weights) = flows(run, label)
        .fold((0.0, 0.0), |(sum, weights), flow| (sum + value(flow) * weight(flow), weights + weight(flow)));
    (weights > 0.0).then(|| sum / weights)
}

/// Mean over a label's flows.
fn plain(run: &Outcome, label: &str, value: impl Fn(&FlowOutcome) -> f64) -> Option<f64> {
    let n = count(run, label);
    (n > 0.0).then(|| flows(run, label).map(value).sum::<f64>() / n)
}

fn jain(run: &Outcome) -> Option<f64> {
    let (n, sum, squares) = run.flows.iter().fold((0.0, 0.0, 0.0), |(n, sum, squares), flow| {
        (n + 1.0, sum + flow.rate_bps, squares + flow.rate_bps * flow.rate_bps)
    });
    (squares > 0.0).then(|| sum * sum / (n * squares))
}
