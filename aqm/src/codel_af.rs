// SPDX-License-Identifier: Apache-2.0
//! CodelAF: one FIFO with a CoDel law for each flow, for approximate fairness (draft-morton-tsvwg-codel-approx-fair,
//! with the rules of `cnq_codel_af` in the SCE reference kernel, written anew).
//!
//! A flow is over its target when sojourn * its packets * flows > target * packets of all, so that a flow above its share
//! of the queue meets CoDel early and one below it late or never. The law is COBALT's: an action each interval /
//! sqrt(count) while over target, the count falling by the same schedule while below; and BLUE drops once four intervals
//! are exceeded in the same measure. SCE marks are left out.
//!
//! `sparse` is Cheap Nasty Queueing (draft-morton-tsvwg-cheap-nasty-queueing): a packet of a flow that holds none joins
//! FIFO 0, served first and without a law, and leaves a dummy in the bulk FIFO that counts for its flow until it would
//! have been served; dummies at the head go once no sparse packet waits, as in `twin_codel_af`.
//!
//! Invariants: a flow's last packet is never dropped at departure; memory is allocated once. Departures: flows are hash
//! buckets of a smaller table; the floor of four MTU times uses the served rate (the kernel compares with a field that it
//! never sets); a packet limit of its own bounds the list of what waits.

use std::collections::VecDeque;

use crate::recur::Dice;
use crate::single::{act, delay_within, mtu_within, within};
use crate::{Arrival, Arriving, Cause, End, Leaving, Nanos, Pace, ParamError, Prob, Qdisc, Verdict};

/// Parameters of CodelAF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelAfConfig {
    /// The sojourn accepted of a flow with its fair share of the queue.
    pub target: Nanos,
    /// A worst-case RTT.
    pub interval: Nanos,
    /// Hash buckets.
    pub flows: u32,
    /// Packets it holds at most.
    pub limit_packets: u32,
    /// Flows that hold no packet go first.
    pub sparse: bool,
    /// Largest packet in bytes as the shaper counts it.
    pub mtu: u32,
}

impl Default for CodelAfConfig {
    fn default() -> Self {
        Self {
            target: Nanos::from_millis(5),
            interval: Nanos::from_millis(100),
            flows: 1_024,
            limit_packets: 10_240,
            sparse: false,
            mtu: 1_538,
        }
    }
}

impl CodelAfConfig {
    /// Whether every value lies within its limits.
    ///
    /// # Errors
    ///
    /// The first that does not, with its limits.
    pub fn validate(&self) -> Result<(), ParamError> {
        delay_within("interval_us", self.interval, 1)?;
        within("target_us", self.target.0 / 1_000, 1, self.interval.0 / 1_000)?;
        within("flows", self.flows.into(), 1, DUMMY.into())?;
        within("limit_packets", self.limit_packets.into(), 1, 1 << 20)?;
        mtu_within(self.mtu)
    }

    /// From one action to the next.
    fn step(&self, count: u32) -> Nanos {
        let interval = self.interval.0.min(u32::MAX.into());
        Nanos((interval * interval / u64::from(count.max(1))).isqrt())
    }
}

/// A flow beyond this many intervals, in the measure of the target, drops by BLUE.
const BLUE_INTERVALS: u64 = 4;
/// Steps of BLUE: 1/256 up and 1/4096 down.
const BLUE_UP: u32 = 1 << 24;
const BLUE_DOWN: u32 = 1 << 20;
/// Set in a place of the bulk FIFO that holds no packet.
const DUMMY: u16 = 1 << 15;

/// What a flow holds and the state of its law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flow {
    /// Packets and dummies.
    backlog: u32,
    count: u32,
    /// When the next action is due, or while below target the next fall of the count.
    next: Nanos,
    over: bool,
    blue: Prob,
    blue_timer: Nanos,
}

/// What the law looks at.
#[derive(Clone, Copy, Debug)]
struct Sample {
    now: Nanos,
    sojourn: Nanos,
    /// Packets of the flow and of all, this one included, and flows that hold packets without it.
    flow_packets: u32,
    packets: u32,
    flows: u32,
    mtu_time: Nanos,
}

impl Sample {
    /// Whether the flow's weighted sojourn exceeds a delay.
    fn exceeds(&self, delay: Nanos) -> bool {
        let weighted = u128::from(self.sojourn.0) * u128::from(self.flow_packets) * u128::from(self.flows);
        weighted > u128::from(delay.0) * u128::from(self.packets)
    }
}

/// What to do with a packet before its codepoint is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Decision {
    /// CoDel: mark, or drop Not-ECT.
    act: bool,
    /// BLUE: drop whatever it is.
    blue: bool,
}

impl Flow {
    fn decide(&mut self, config: &CodelAfConfig, dice: &mut Dice, sample: &Sample) -> Decision {
        let now = sample.now;
        let over = sample.exceeds(config.target) && sample.sojourn.0 > sample.mtu_time.0.saturating_mul(4);
        let was_due = self.count > 0 && now >= self.next;
        let mut late = now > self.next;
        let enters = over && !self.over;
        if over != self.over {
            self.next = now + config.step(self.count);
        }
        self.over = over;
        if over {
            self.count = self.count.max(1);
        }
        let mut decision = Decision::default();
        if over && was_due && !enters {
            decision.act = true;
            self.count = self.count.saturating_add(1);
            self.next += config.step(self.count);
            late = now > self.next;
        } else if was_due && !over {
            self.fall(config, now, true);
            late = self.count > 0 && now > self.next;
        }
        self.raise_blue(config, sample);
        decision.blue = self.blue > Prob::ZERO && Prob(dice.word()) < self.blue;
        if self.count == 0 {
            self.next = now + config.interval;
        } else if late && !decision.blue {
            self.next = now;
        }
        decision
    }

    /// BLUE and the law at full strength beyond its threshold.
    fn raise_blue(&mut self, config: &CodelAfConfig, sample: &Sample) {
        if !sample.exceeds(Nanos(config.interval.0.saturating_mul(BLUE_INTERVALS))) {
            return;
        }
        if sample.now.since(self.blue_timer) > config.target {
            self.blue = Prob(self.blue.0.saturating_add(BLUE_UP));
            self.blue_timer = sample.now;
        }
        self.over = true;
        self.next = sample.now;
        self.count = self.count.max(1);
    }

    /// The count falls once for each time that is due, and `at_least_once` in any case.
    fn fall(&mut self, config: &CodelAfConfig, now: Nanos, at_least_once: bool) {
        // the steps from a count down to 1 sum up to less than 2 * interval * sqrt(count)
        let all = config.interval.0.saturating_mul(2 * (u64::from(self.count).isqrt() + 1));
        if now.since(self.next).0 > all {
            self.count = 0;
            return;
        }
        let mut due = at_least_once || now >= self.next;
        while due && self.count > 0 {
            self.count -= 1;
            self.next += config.step(self.count);
            due = now >= self.next;
        }
    }

    /// The flow holds nothing, or passes by as sparse.
    fn relax(&mut self, config: &CodelAfConfig, now: Nanos) {
        if self.blue > Prob::ZERO && now.since(self.blue_timer) > config.target {
            self.blue = Prob(self.blue.0.saturating_sub(BLUE_DOWN));
            self.blue_timer = now;
        }
        self.fall(config, now, false);
        if self.over {
            self.next = now + config.step(self.count);
            self.over = false;
        }
    }
}

/// One FIFO (two with `sparse`: 0 sparse, 1 bulk) under CodelAF.
#[derive(Debug)]
pub struct CodelAf {
    config: CodelAfConfig,
    dice: Dice,
    flows: Box<[Flow]>,
    /// Flows of the packets of the sparse FIFO.
    sparse: VecDeque<u16>,
    /// Flows of the packets and dummies of the bulk FIFO.
    bulk: VecDeque<u16>,
    dummies: u32,
    /// Flows with a backlog.
    active: u32,
    /// A flow to relax if it is idle: one each departure.
    sweep: usize,
    newest: u32,
}

impl CodelAf {
    /// Empty, with all memory it will need.
    ///
    /// # Errors
    ///
    /// A value outside its limits.
    pub fn new(config: CodelAfConfig, seed: u64) -> Result<Self, ParamError> {
        config.validate()?;
        let (flows, limit) = (config.flows as usize, config.limit_packets as usize);
        let (sparse, dummies) = if config.sparse { (limit.min(flows), flows) } else { (0, 0) };
        Ok(Self {
            config,
            dice: Dice::new(seed),
            flows: vec![Flow::default(); flows].into_boxed_slice(),
            sparse: VecDeque::with_capacity(sparse),
            bulk: VecDeque::with_capacity(limit + dummies),
            dummies: 0,
            active: 0,
            sweep: 0,
            newest: 0,
        })
    }

    const fn bulk_queue(&self) -> u32 {
        self.config.sparse as u32
    }

    fn bulk_packets(&self) -> usize {
        self.bulk.len() - self.dummies as usize
    }

    fn packets(&self) -> usize {
        self.bulk_packets() + self.sparse.len()
    }

    fn push_bulk(&mut self, place: u16) {
        let flow = &mut self.flows[usize::from(place & !DUMMY)];
        self.active += u32::from(flow.backlog == 0);
        flow.backlog += 1;
        self.dummies += u32::from(place & DUMMY != 0);
        self.bulk.push_back(place);
    }

    /// A place of the bulk FIFO is free.
    fn left_bulk(&mut self, place: u16) {
        let flow = &mut self.flows[usize::from(place & !DUMMY)];
        flow.backlog = flow.backlog.saturating_sub(1);
        self.active -= u32::from(flow.backlog == 0);
        self.dummies -= u32::from(place & DUMMY != 0);
    }

    fn drop_dummies_at_head(&mut self) {
        while let Some(place) = self.bulk.front().copied().filter(|place| place & DUMMY != 0) {
            self.bulk.pop_front();
            self.left_bulk(place);
        }
    }

    /// The head of the bulk FIFO under its flow's law.
    fn decide_bulk(&mut self, packet: &Leaving) -> Verdict {
        self.drop_dummies_at_head();
        let Some(place) = self.bulk.pop_front() else {
            debug_assert!(false, "a packet that never came");
            return Verdict::Pass;
        };
        self.left_bulk(place);
        let packets = self.packets();
        let flow = &mut self.flows[usize::from(place)];
        let sample = Sample {
            now: packet.now,
            sojourn: packet.sojourn,
            flow_packets: flow.backlog + 1,
            packets: u32::try_from(packets + 1).unwrap_or(u32::MAX),
            flows: self.active - self.dummies,
            mtu_time: Pace::time(packet.pace, self.config.mtu.into()),
        };
        let Decision { act: acts, blue } = flow.decide(&self.config, &mut self.dice, &sample);
        let last = flow.backlog == 0;
        let verdict = match (blue, acts) {
            (true, _) => Verdict::Drop(Cause::Law),
            (false, true) => act(packet.ecn, packet.rule),
            (false, false) => Verdict::Pass,
        };
        if last && matches!(verdict, Verdict::Drop(_)) { Verdict::Pass } else { verdict }
    }

    /// One idle flow a departure forgets a little.
    fn sweep(&mut self, now: Nanos) {
        if let Some(flow) = self.flows.get_mut(self.sweep).filter(|flow| flow.backlog == 0) {
            flow.relax(&self.config, now);
        }
        self.sweep = (self.sweep + 1) % self.flows.len();
    }
}

impl Qdisc for CodelAf {
    fn queues(&self) -> u32 {
        1 + self.bulk_queue()
    }

    fn arrive(&mut self, packet: &Arriving) -> Arrival {
        if self.packets() >= self.config.limit_packets as usize {
            return Arrival::Drop(Cause::Limit);
        }
        let Ok(place) = u16::try_from(packet.key.flow % self.config.flows) else {
            return Arrival::Drop(Cause::Limit);
        };
        if self.config.sparse && self.flows[usize::from(place)].backlog == 0 {
            self.newest = 0;
            self.sparse.push_back(place);
            self.push_bulk(place | DUMMY);
        } else {
            self.newest = self.bulk_queue();
            self.push_bulk(place);
        }
        Arrival::Queue(self.newest)
    }

    fn shed(&mut self, over_limit: bool) -> Option<(u32, End)> {
        if !over_limit {
            return None;
        }
        let bulk = (self.bulk_packets() > 0).then(|| self.bulk_queue());
        let sparse = (!self.sparse.is_empty()).then_some(0);
        let queue = if self.newest == self.bulk_queue() { bulk.or(sparse) } else { sparse.or(bulk) };
        queue.map(|queue| (queue, End::Tail))
    }

    fn select(&mut self, _now: Nanos) -> Option<u32> {
        if !self.sparse.is_empty() {
            return Some(0);
        }
        (self.bulk_packets() > 0).then(|| self.bulk_queue())
    }

    fn decide(&mut self, packet: &Leaving) -> Verdict {
        let verdict = if packet.queue == self.bulk_queue() {
            self.decide_bulk(packet)
        } else {
            if let Some(place) = self.sparse.pop_front() {
                self.flows[usize::from(place)].relax(&self.config, packet.now);
            }
            Verdict::Pass
        };
        if !matches!(verdict, Verdict::Drop(_)) {
            self.sweep(packet.now);
        }
        if self.sparse.is_empty() {
            self.drop_dummies_at_head();
        }
        verdict
    }

    fn sent(&mut self, _queue: u32, _bytes: u32) {}

    fn removed(&mut self, queue: u32, _bytes: u32) {
        if queue != self.bulk_queue() {
            self.sparse.pop_back();
        } else if let Some(index) = self.bulk.iter().rposition(|place| place & DUMMY == 0)
            && let Some(place) = self.bulk.remove(index)
        {
            self.left_bulk(place);
        }
        if self.sparse.is_empty() {
            self.drop_dummies_at_head();
        }
    }

    fn memory(&self) -> usize {
        let places = self.sparse.capacity() + self.bulk.capacity();
        size_of::<Self>() + size_of_val(&*self.flows) + places * size_of::<u16>()
    }
}

#[cfg(test)]
mod tests;
