// SPDX-License-Identifier: Apache-2.0
//! Cocoa (Bachl, Fabini and Zseby 2019, "Cocoa: Congestion Control Aware Queuing"; CN-TU/cocoa-qdisc): `fq` whose
//! limit of a flow is learnt, so that a loss-based flow neither idles the link nor keeps a standing queue.
//!
//! A flow's limit starts at `flow_limit_packets`. Intervals run from one full FIFO to the next. When it is full again:
//! 1. the flow was idle in this interval, was not enlarged in it, and a guard interval runs: the limit grows by what the
//!    flow would have sent while idle, at most to `max_increase` times itself, and the packet is kept;
//! 2. no guard interval runs yet, or the flow was enlarged: a guard interval of `guard_multiplier` times the longest
//!    interval (at most `max_guard`) begins, and the packet is dropped;
//! 3. the guard interval is over: the limit shrinks by what always waited in its longest interval, the excess is dropped
//!    from the tail, and a guard interval begins, the packet is dropped;
//! 4. otherwise the interval is remembered if it is the longest and the packet is dropped.
//!
//! Invariants: the limit is at least one packet; no more than the limit waits, but for one packet kept by an enlargement
//! below one packet. Departures from the module, which lives in a kernel's `fq`: queues are hashed and so may hold
//! several flows (as `fq` here); an interval in which nothing left shrinks nothing (the module would take 2^64 packets);
//! a flow is forgotten after 10 s without a packet (the module's garbage collector does so when flows are many); over
//! the owner's limit the longest FIFO loses its tail, as in `fq`; pacing is left out. No ECN: drops are its signal.

use crate::drr::Drr;
use crate::single::{delay_within, within};
use crate::{Arrival, Arriving, Cause, End, FqConfig, Leaving, Nanos, ParamError, Qdisc, Verdict};

/// Without a packet for so long a flow is a new one (`FLOW_TIMEOUT`).
const FORGET: Nanos = Nanos::from_secs(10);

/// Parameters of Cocoa.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CocoaConfig {
    /// Of the scheduler; `flow_limit_packets` is where every flow's limit starts.
    pub fq: FqConfig,
    /// The guard interval in longest intervals, 1 to 100.
    pub guard_multiplier: f64,
    /// How many times larger the limit may become at once, 1 to 100.
    pub max_increase: f64,
    /// The longest guard interval.
    pub max_guard: Nanos,
}

impl Default for CocoaConfig {
    /// The module's own.
    fn default() -> Self {
        Self {
            fq: FqConfig::default(),
            guard_multiplier: 1.25,
            max_increase: 2.0,
            max_guard: Nanos::from_secs(1),
        }
    }
}

impl CocoaConfig {
    /// Whether every value lies within its limits.
    ///
    /// # Errors
    ///
    /// The first that does not, with its limits.
    pub fn validate(&self) -> Result<(), ParamError> {
        self.fq.validate()?;
        factor_within("guard_multiplier", self.guard_multiplier)?;
        factor_within("max_increase", self.max_increase)?;
        delay_within("max_guard_us", self.max_guard, 1)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and what is not a number becomes 0"
)]
fn factor_within(key: &'static str, factor: f64) -> Result<(), ParamError> {
    // away from the limits, so that the whole number shown is outside exactly if the factor is
    let whole = if factor > 1.0 { factor.ceil() } else { factor.floor() };
    within(key, whole as u64, 1, 100)
}

/// From one full FIFO to the next.
#[derive(Clone, Copy, Debug)]
struct Interval {
    start: Nanos,
    /// How much of it the flow had nothing waiting.
    idle: Nanos,
    /// The fewest packets that a departure left behind; `u32::MAX` without one.
    least: u32,
    sent: u32,
}

impl Interval {
    const fn new(start: Nanos) -> Self {
        Self { start, idle: Nanos::ZERO, least: u32::MAX, sent: 0 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    limit: u32,
    enlarged: bool,
    /// When the guard interval ends.
    guard: Option<Nanos>,
    idle_since: Option<Nanos>,
    current: Interval,
    /// Length of the longest interval since the guard interval began, and its `least`.
    longest: (Nanos, u32),
}

impl Flow {
    const fn new(limit: u32, now: Nanos) -> Self {
        Self {
            limit,
            enlarged: false,
            guard: None,
            idle_since: None,
            current: Interval::new(now),
            longest: (Nanos::ZERO, u32::MAX),
        }
    }

    /// Ends the current interval and remembers it if it is the longest.
    fn close(&mut self, now: Nanos) {
        let length = now.since(self.current.start);
        if length >= self.longest.0 {
            self.longest = (length, self.current.least);
        }
        self.current = Interval::new(now);
    }

    /// A guard interval begins.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a time is positive, below 2^53 ns for 104 days, and bounded just after"
    )]
    fn begin_guard(&mut self, config: &CocoaConfig, now: Nanos) {
        let length = Nanos((self.longest.0.0 as f64 * config.guard_multiplier) as u64);
        self.guard = (length > Nanos::ZERO).then_some(now + length.min(config.max_guard));
        self.longest = (Nanos::ZERO, u32::MAX);
        self.enlarged = false;
        self.idle_since = None;
    }

    /// The limit after the enlargement of case 1.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "positive, and `as` saturates"
    )]
    fn enlarged_limit(&self, config: &CocoaConfig, now: Nanos) -> u32 {
        let idle = self.current.idle;
        let active = now.since(self.current.start).since(idle).0.max(1) as f64;
        let missed = (f64::from(self.current.sent) / active * idle.0 as f64) as u32;
        let most = (f64::from(self.limit) * config.max_increase) as u32;
        self.limit.saturating_add(missed).min(most)
    }

    /// A packet comes and the FIFO is full; whether it is kept.
    fn full(&mut self, config: &CocoaConfig, now: Nanos, held: u32) -> bool {
        match self.guard {
            Some(_) if self.current.idle > Nanos::ZERO && !self.enlarged => {
                self.limit = self.enlarged_limit(config, now);
                self.enlarged = true;
                return true;
            }
            Some(_) if self.enlarged => {
                // what was before the enlargement says nothing any more
                self.longest.0 = Nanos::ZERO;
                self.close(now);
                self.begin_guard(config, now);
            }
            None => {
                self.close(now);
                self.begin_guard(config, now);
            }
            Some(guard) if now > guard => {
                self.close(now);
                if self.longest.1 != u32::MAX {
                    self.limit = self.limit.saturating_sub(self.longest.1.min(held)).max(1);
                }
                self.begin_guard(config, now);
            }
            Some(_) => self.close(now),
        }
        false
    }
}

/// Cocoa of one queue id.
#[derive(Debug)]
pub struct Cocoa {
    config: CocoaConfig,
    drr: Drr,
    flows: Box<[Flow]>,
    /// A queue that may hold more than its limit since that shrank.
    shrunk: Option<u32>,
    now: Nanos,
}

impl Cocoa {
    /// Empty queues; takes all the memory it will ever hold.
    ///
    /// # Errors
    ///
    /// A value outside its limits.
    pub fn new(config: CocoaConfig) -> Result<Self, ParamError> {
        config.validate()?;
        let drr = Drr::new(config.fq.flows, config.fq.quantum);
        // not idle since any time: the first packet starts the flow
        let unused = Flow::new(config.fq.flow_limit_packets, Nanos::ZERO);
        let flows = vec![unused; drr.backlogs.queues() as usize].into_boxed_slice();
        Ok(Self { config, drr, flows, shrunk: None, now: Nanos::ZERO })
    }

    /// The limit of a queue, for tests and the lab.
    pub fn limit(&self, queue: u32) -> Option<u32> {
        self.flows.get(queue as usize).map(|flow| flow.limit)
    }

    /// A packet left a queue; `sent` counts it as served.
    fn left(&mut self, queue: u32, bytes: u32, served: bool) {
        self.drr.take(queue, bytes);
        let held = self.drr.backlogs.packets(queue);
        let flow = &mut self.flows[queue as usize];
        if served {
            flow.current.sent = flow.current.sent.saturating_add(1);
            flow.current.least = flow.current.least.min(held);
        }
        if held == 0 {
            flow.idle_since = Some(self.now);
        }
    }
}

impl Qdisc for Cocoa {
    fn queues(&self) -> u32 {
        self.drr.backlogs.queues()
    }

    fn arrive(&mut self, packet: &Arriving) -> Arrival {
        self.now = packet.now;
        let queue = self.drr.queue_of(packet.key.flow);
        let held = self.drr.backlogs.packets(queue);
        let flow = &mut self.flows[queue as usize];
        if held == 0 {
            match flow.idle_since {
                Some(since) if packet.now.since(since) <= FORGET => {}
                _ => *flow = Flow::new(self.config.fq.flow_limit_packets, packet.now),
            }
        }
        let limit = flow.limit;
        if held >= limit && !flow.full(&self.config, packet.now, held) {
            self.shrunk = (flow.limit < limit).then_some(queue);
            return Arrival::Drop(Cause::Limit);
        }
        if let Some(since) = flow.idle_since.take() {
            flow.current.idle += packet.now.since(since);
        }
        self.drr.add(queue, packet.bytes);
        Arrival::Queue(queue)
    }

    fn shed(&mut self, over_limit: bool) -> Option<(u32, End)> {
        if let Some(queue) = self.shrunk {
            if self.drr.backlogs.packets(queue) > self.flows[queue as usize].limit {
                return Some((queue, End::Tail));
            }
            self.shrunk = None;
        }
        if over_limit { self.drr.backlogs.fat().map(|queue| (queue, End::Tail)) } else { None }
    }

    fn select(&mut self, _now: Nanos) -> Option<u32> {
        self.drr.select()
    }

    fn decide(&mut self, packet: &Leaving) -> Verdict {
        self.now = packet.now;
        self.left(packet.queue, packet.bytes, true);
        Verdict::Pass
    }

    fn sent(&mut self, queue: u32, bytes: u32) {
        self.drr.charge(queue, bytes);
    }

    fn removed(&mut self, queue: u32, bytes: u32) {
        self.left(queue, bytes, false);
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.drr.memory() + size_of_val(&*self.flows)
    }
}

#[cfg(test)]
mod tests;
