// SPDX-License-Identifier: Apache-2.0
//! What a run is measured by. Counts begin when warm-up is over; the series begin with the run.

use aqm::{Cause, Nanos, Prob, Queue};

use super::endpoint::Account;
use super::line::Totals;
use super::spread::Spread;
use crate::outcome::{
    Completion, DelayMs, FlowOutcome, GroupOutcome, Outcome, QueueOutcome, Queues, Series, WebOutcome,
};
use crate::scenario::{Flow, Scenario};

/// Points of the series: ten a second for runs up to a minute, else one.
const SHORT_RUN: Nanos = Nanos::from_secs(60);
const FINE: Nanos = Nanos::from_millis(100);
const COARSE: Nanos = Nanos::from_secs(1);

/// A packet that leaves the bottleneck.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    pub(crate) now: Nanos,
    pub(crate) account: Account,
    pub(crate) queue: Queue,
    pub(crate) bytes: u32,
    pub(crate) delay: Nanos,
    /// It carries CE.
    pub(crate) marked: bool,
    /// What marked it here.
    pub(crate) cause: Option<Cause>,
    /// Lost at random right behind the bottleneck.
    pub(crate) lost: bool,
    /// Packets of its flow dropped since the one before it.
    pub(crate) dropped: u64,
    pub(crate) p_prime: Prob,
}

#[derive(Clone, Debug, Default)]
struct QueueMeter {
    delay: Spread,
    marked: u64,
    native: u64,
    coupled: u64,
    p_seen: u64,
    p_sum: f64,
    p_squares: f64,
}

#[derive(Clone, Debug, Default)]
struct FlowMeter {
    ran: Nanos,
    bytes: u64,
    delivered: u64,
    marked: u64,
    forwarded: u64,
    dropped: u64,
    rtt_sum: u128,
    rtt_count: u64,
    label: usize,
}

#[derive(Clone, Debug, Default)]
struct WebMeter {
    completed: Spread,
    label: usize,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    warm: Nanos,
    begin: Nanos,
    end: Nanos,
    queues: [QueueMeter; 2],
    flows: Vec<FlowMeter>,
    webs: Vec<WebMeter>,
    delivered_bytes: u64,
    at_warm: [Totals; 2],
    step: Nanos,
    labels: Vec<String>,
    /// Bytes by label and point.
    rates: Vec<Vec<u64>>,
    /// Sum in ns and count, by queue and point.
    delays: [Vec<(u64, u32)>; 2],
}

/// The names of the series: labels of flows in order, then the short flows.
fn labels(scenario: &Scenario) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    let flows = scenario.flows.iter().map(|flow| flow.label.clone());
    let webs = scenario.web.iter().map(|web| format!("web {}", web.cc));
    for label in flows.chain(webs) {
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    labels
}

impl Meter {
    /// Of a run that begins at `begin`.
    pub(crate) fn new(scenario: &Scenario, begin: Nanos) -> Self {
        let step = if scenario.duration <= SHORT_RUN { FINE } else { COARSE };
        let points = usize::try_from(scenario.duration.0.div_ceil(step.0)).unwrap_or(0) + 1;
        let labels = labels(scenario);
        let place = |label: &str| labels.iter().position(|known| known == label).unwrap_or(0);
        let flows = scenario.flows.iter().flat_map(|flow| {
            let one = FlowMeter { label: place(&flow.label), ..FlowMeter::default() };
            std::iter::repeat_n(one, flow.count as usize)
        });
        let webs = scenario
            .web
            .iter()
            .map(|web| WebMeter { completed: Spread::default(), label: place(&format!("web {}", web.cc)) });
        Self {
            warm: begin + scenario.warmup,
            begin,
            end: begin + scenario.duration,
            queues: Default::default(),
            flows: flows.collect(),
            webs: webs.collect(),
            delivered_bytes: 0,
            at_warm: Default::default(),
            step,
            rates: vec![vec![0; points]; labels.len()],
            labels,
            delays: [vec![(0, 0); points], vec![(0, 0); points]],
        }
    }

    /// A long-running flow runs from `start` to `stop`.
    pub(crate) fn flow_runs(&mut self, flow: u32, start: Nanos, stop: Nanos) {
        self.flows[flow as usize].ran = stop.min(self.end).since(start.max(self.warm));
    }

    /// Warm-up is over.
    pub(crate) fn warmed(&mut self, totals: [Totals; 2]) {
        self.at_warm = totals;
    }

    /// A packet leaves the bottleneck.
    #[inline]
    pub(crate) fn departed(&mut self, packet: &Departure) {
        self.series(packet);
        if packet.now < self.warm {
            return;
        }
        let queue = &mut self.queues[packet.queue as usize];
        queue.delay.add(packet.delay);
        queue.marked += u64::from(packet.marked);
        queue.native += u64::from(packet.cause == Some(Cause::Native));
        queue.coupled += u64::from(packet.cause == Some(Cause::Coupled));
        let p = packet.p_prime.as_f64();
        let seen = packet.dropped + 1;
        queue.p_seen += seen;
        #[expect(clippy::cast_precision_loss, reason = "a few drops")]
        let weight = seen as f64;
        queue.p_sum += weight * p;
        queue.p_squares += weight * p * p;
        if !packet.lost {
            self.delivered_bytes += u64::from(packet.bytes);
        }
        if let Account::Flow(flow) = packet.account {
            let flow = &mut self.flows[flow as usize];
            flow.forwarded += 1;
            flow.dropped += packet.dropped;
            if !packet.lost {
                flow.bytes += u64::from(packet.bytes);
                flow.delivered += 1;
                flow.marked += u64::from(packet.marked);
            }
        }
    }

    #[inline]
    fn series(&mut self, packet: &Departure) {
        let point = usize::try_from(packet.now.since(self.begin).0 / self.step.0).unwrap_or(usize::MAX);
        let label = match packet.account {
            Account::Flow(flow) => self.flows[flow as usize].label,
            Account::Web(web) => self.webs[web as usize].label,
        };
        if let Some(bytes) = self.rates[label].get_mut(point).filter(|_| !packet.lost) {
            *bytes += u64::from(packet.bytes);
        }
        if let Some((sum, count)) = self.delays[packet.queue as usize].get_mut(point) {
            *sum += packet.delay.0;
            *count += 1;
        }
    }

    /// A sender's smoothed round-trip time after an acknowledgement.
    #[inline]
    pub(crate) fn smoothed_rtt(&mut self, now: Nanos, account: Account, rtt: Nanos) {
        if let (Account::Flow(flow), true) = (account, now >= self.warm) {
            let flow = &mut self.flows[flow as usize];
            flow.rtt_sum += u128::from(rtt.0);
            flow.rtt_count += 1;
        }
    }

    /// A short flow came to its end.
    pub(crate) fn completed(&mut self, now: Nanos, web: u32, start: Nanos) {
        if start >= self.warm {
            self.webs[web as usize].completed.add(now.since(start));
        }
    }

    /// The result: `capacity_bits` is what the link could have carried after warm-up.
    pub(crate) fn outcome(
        &self,
        scenario: &Scenario,
        seed: u64,
        totals: [Totals; 2],
        capacity_bits: f64,
    ) -> Outcome {
        let [l4s, classic] = Queue::BOTH.map(|queue| self.queue(queue as usize, totals));
        let flows = self.flows(scenario);
        let groups = groups(&scenario.flows, &flows);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let delivered_bits = self.delivered_bytes as f64 * 8.0;
        Outcome {
            name: scenario.name.clone(),
            seed,
            utilisation: over(delivered_bits, capacity_bits),
            queues: Queues { l4s, classic },
            flows,
            groups,
            web: self.web(scenario),
            series: self.to_series(),
        }
    }

    fn queue(&self, at: usize, totals: [Totals; 2]) -> QueueOutcome {
        let meter = &self.queues[at];
        let packets = meter.delay.count();
        let arrived = totals[at].arrived - self.at_warm[at].arrived;
        QueueOutcome {
            packets,
            marked_ratio: ratio(meter.marked, packets),
            marked_native_ratio: ratio(meter.native, packets),
            marked_coupled_ratio: ratio(meter.coupled, packets),
            dropped_ratio: ratio(totals[at].dropped - self.at_warm[at].dropped, arrived),
            p_prime_mean: over(meter.p_sum, to_f64(meter.p_seen)),
            p_prime_squared_mean: over(meter.p_squares, to_f64(meter.p_seen)),
            delay_ms: delay(&meter.delay),
        }
    }

    fn flows(&self, scenario: &Scenario) -> Vec<FlowOutcome> {
        let kinds = scenario.flows.iter().flat_map(|flow| std::iter::repeat_n(flow, flow.count as usize));
        let flows = kinds.zip(&self.flows).map(|(flow, meter)| FlowOutcome {
            label: flow.label.clone(),
            cc: crate::scenario::cc_name(flow.cc).to_owned(),
            rate_bps: over(to_f64(meter.bytes) * 8e9, to_f64(meter.ran.0)),
            marked_ratio: ratio(meter.marked, meter.delivered),
            dropped_ratio: ratio(meter.dropped, meter.dropped + meter.forwarded),
            rtt_ms: over(mean_ns(meter.rtt_sum, meter.rtt_count), 1e6),
        });
        flows.collect()
    }

    fn web(&self, scenario: &Scenario) -> Vec<WebOutcome> {
        let entries = scenario.web.iter().zip(&self.webs).map(|(web, meter)| WebOutcome {
            cc: crate::scenario::cc_name(web.cc).to_owned(),
            completed: meter.completed.count(),
            completion_ms: Completion {
                p50: meter.completed.quantile_ms(50),
                p99: meter.completed.quantile_ms(99),
            },
        });
        entries.collect()
    }

    fn to_series(&self) -> Series {
        let step_s = to_f64(self.step.0) / 1e9;
        let rate = |bytes: &Vec<u64>| bytes.iter().map(|bytes| to_f64(*bytes) * 8.0 / step_s).collect();
        let mean = |(sum, count): &(u64, u32)| over(to_f64(*sum) / 1e6, f64::from(*count));
        Series {
            step_s,
            rates: self.labels.iter().cloned().zip(self.rates.iter().map(rate)).collect(),
            delay_ms: [0, 1].map(|queue| self.delays[queue].iter().map(mean).collect()),
            cdf: [0, 1].map(|queue| self.queues[queue].delay.cdf()),
        }
    }
}

fn groups(entries: &[Flow], flows: &[FlowOutcome]) -> Vec<GroupOutcome> {
    let mut groups: Vec<GroupOutcome> = Vec::new();
    for entry in entries {
        if groups.iter().any(|group| group.label == entry.label) {
            continue;
        }
        let rates: Vec<f64> =
            flows.iter().filter(|flow| flow.label == entry.label).map(|flow| flow.rate_bps).collect();
        let sum: f64 = rates.iter().sum();
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        let count = to_f64(rates.len() as u64);
        groups.push(GroupOutcome {
            label: entry.label.clone(),
            count: u32::try_from(rates.len()).unwrap_or(u32::MAX),
            rate_bps_mean: over(sum, count),
            jain: over(sum * sum, squares * count),
        });
    }
    groups
}

fn delay(spread: &Spread) -> DelayMs {
    DelayMs {
        mean: spread.mean_ms(),
        p1: spread.quantile_ms(1),
        p25: spread.quantile_ms(25),
        p50: spread.quantile_ms(50),
        p75: spread.quantile_ms(75),
        p99: spread.quantile_ms(99),
        max: spread.max_ms(),
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    over(to_f64(part), to_f64(whole))
}

/// The quotient, or 0 of nothing.
fn over(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "counts and times are far below 2^53")]
const fn to_f64(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "a relative error of 2^-53 is none")]
fn mean_ns(sum: u128, count: u64) -> f64 {
    if count == 0 { 0.0 } else { sum as f64 / count as f64 }
}
