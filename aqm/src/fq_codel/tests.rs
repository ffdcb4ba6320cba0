// SPDX-License-Identifier: Apache-2.0
//! Against the prose of RFC 8290 and the pseudocode of RFC 8289 over plain queues; marks by codepoint; random schedules.

use std::collections::VecDeque;

use super::*;
use crate::owner::{Owner, Packet, Random, random_schedule};
use crate::{FlowKey, MAX_FLOWS};

const MTU: u32 = 1538;

fn key(flow: u32) -> FlowKey {
    FlowKey { flow: flow.wrapping_mul(0x9e37_79b9), ..FlowKey::default() }
}

fn fq_codel(config: FqCodelConfig) -> FqCodel {
    FqCodel::new(config).unwrap()
}

/// RFC 8289 section 5.5, a packet at a time; times in nanoseconds, 0 for none.
#[derive(Clone, Debug, Default)]
struct Codel {
    first_above_time: u64,
    drop_next: u64,
    count: u64,
    lastcount: u64,
    dropping: bool,
}

#[derive(Clone, Debug, Default)]
struct ModelQueue {
    packets: VecDeque<Packet>,
    credits: i64,
    codel: Codel,
}

impl ModelQueue {
    fn bytes(&self) -> u64 {
        self.packets.iter().map(|packet| u64::from(packet.bytes)).sum()
    }
}

/// RFC 8290 section 4 over plain queues.
struct Model {
    queues: Vec<ModelQueue>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    config: FqCodelConfig,
    limit: usize,
    dropped: Vec<u64>,
}

impl Model {
    fn new(config: FqCodelConfig, limit: usize) -> Self {
        let queues = vec![ModelQueue::default(); config.flows as usize];
        Self { queues, new: VecDeque::new(), old: VecDeque::new(), config, limit, dropped: Vec::new() }
    }

    fn enqueue(&mut self, queue: usize, packet: Packet) {
        self.dropped.clear();
        self.queues[queue].packets.push_back(packet);
        if !self.new.contains(&queue) && !self.old.contains(&queue) {
            self.queues[queue].credits = i64::from(self.config.quantum);
            self.new.push_back(queue);
        }
        while self.queues.iter().map(|queue| queue.packets.len()).sum::<usize>() > self.limit {
            let most = self.queues.iter().map(ModelQueue::bytes).max().unwrap();
            let longest = self.queues.iter().position(|queue| queue.bytes() == most).unwrap();
            let mut gone = 0;
            for _ in 0..64 {
                let packet = self.queues[longest].packets.pop_front().unwrap();
                gone += u64::from(packet.bytes);
                self.dropped.push(packet.number);
                if gone >= most / 2 {
                    break;
                }
            }
            if self.queues[longest].packets.is_empty() {
                self.queues[longest].codel.first_above_time = 0;
                self.queues[longest].codel.dropping = false;
            }
        }
    }

    fn dodequeue(&mut self, queue: usize, now: u64) -> (Option<Packet>, bool) {
        let target = self.config.codel.target.0;
        let queue = &mut self.queues[queue];
        let Some(packet) = queue.packets.pop_front() else {
            queue.codel.first_above_time = 0;
            return (None, false);
        };
        let sojourn = now - packet.arrived.0;
        if sojourn < target || queue.bytes() <= u64::from(MTU) {
            queue.codel.first_above_time = 0;
            (Some(packet), false)
        } else if queue.codel.first_above_time == 0 {
            queue.codel.first_above_time = now + self.config.codel.interval.0;
            (Some(packet), false)
        } else {
            (Some(packet), now >= queue.codel.first_above_time)
        }
    }

    fn control_law(&self, t: u64, count: u64) -> u64 {
        let interval = self.config.codel.interval.0;
        t + (interval * interval / count).isqrt()
    }

    /// A mark in place of a drop, if the packet can have one.
    fn marked(packet: &mut Option<Packet>) -> bool {
        let ect = packet.is_some_and(|packet| packet.ecn.is_ect());
        if ect && let Some(packet) = packet {
            packet.ecn = Ecn::Ce;
        }
        ect
    }

    fn codel_dequeue(&mut self, queue: usize, now: u64) -> Option<Packet> {
        let (mut packet, mut ok) = self.dodequeue(queue, now);
        if self.queues[queue].codel.dropping {
            if !ok {
                self.queues[queue].codel.dropping = false;
            }
            while self.queues[queue].codel.dropping && now >= self.queues[queue].codel.drop_next {
                self.queues[queue].codel.count += 1;
                let codel = &self.queues[queue].codel;
                let next = self.control_law(codel.drop_next, codel.count);
                if Self::marked(&mut packet) {
                    self.queues[queue].codel.drop_next = next;
                    break;
                }
                self.dropped.push(packet.unwrap().number);
                (packet, ok) = self.dodequeue(queue, now);
                if ok {
                    self.queues[queue].codel.drop_next = next;
                } else {
                    self.queues[queue].codel.dropping = false;
                }
            }
        } else if ok {
            if !Self::marked(&mut packet) {
                self.dropped.push(packet.unwrap().number);
                (packet, _) = self.dodequeue(queue, now);
            }
            let interval = self.config.codel.interval.0;
            let codel = &mut self.queues[queue].codel;
            codel.dropping = true;
            let delta = codel.count - codel.lastcount;
            let recent = now < codel.drop_next || now - codel.drop_next < 16 * interval;
            codel.count = if delta > 1 && recent { delta } else { 1 };
            codel.lastcount = codel.count;
            self.queues[queue].codel.drop_next = self.control_law(now, self.queues[queue].codel.count);
        }
        packet
    }

    fn dequeue(&mut self, now: u64) -> Option<Packet> {
        self.dropped.clear();
        loop {
            let from_new = !self.new.is_empty();
            let queue = *self.new.front().or(self.old.front())?;
            if self.queues[queue].credits <= 0 {
                self.queues[queue].credits += i64::from(self.config.quantum);
                if from_new {
                    self.new.pop_front()
                } else {
                    self.old.pop_front()
                };
                self.old.push_back(queue);
                continue;
            }
            let Some(mut packet) = self.codel_dequeue(queue, now) else {
                if from_new {
                    self.new.pop_front();
                    self.old.push_back(queue);
                } else {
                    self.old.pop_front();
                }
                continue;
            };
            self.queues[queue].credits -= i64::from(packet.bytes);
            let looks = if self.config.ce_threshold_l4s {
                matches!(packet.ecn, Ecn::Ect1 | Ecn::Ce)
            } else {
                packet.ecn.is_ect()
            };
            if let Some(threshold) = self.config.ce_threshold
                && looks
                && now - packet.arrived.0 > threshold.0
            {
                packet.ecn = Ecn::Ce;
            }
            return Some(packet);
        }
    }
}

/// Runs both over one random schedule; how many packets were dropped, shed and marked.
fn compare(config: FqCodelConfig, limit: usize, ect: bool, seed: u32) -> (u64, u64, u64) {
    let mut random = Random(seed.into());
    let mut owner = Owner::new(fq_codel(config), limit, 1_000_000_000);
    let mut model = Model::new(config, limit);
    let mut now = Nanos::from_secs(1);
    let flows: Vec<FlowKey> =
        (0..=random.below(8)).map(|_| FlowKey { flow: random.hash(), ..FlowKey::default() }).collect();
    let mut lull = 0;
    for step in 0..20_000 {
        now += random.time(200_000);
        if lull == 0 {
            lull = if random.below(2_000) == 0 { 1_000 } else { 0 };
        } else {
            lull -= 1;
        }
        // mostly more than the service, with lulls that empty the queues
        if lull == 0 && random.below(16) < 8 {
            let key = random.pick(&flows);
            let ecn = if ect { random.pick(&Ecn::ALL) } else { Ecn::NotEct };
            let number = owner.counts.came;
            let bytes = 64 + random.below(1_474);
            let Arrival::Queue(queue) = owner.arrive(now, key, ecn, bytes) else { panic!("seed {seed}") };
            model.enqueue(queue as usize, Packet { number, key, ecn, bytes, arrived: now });
            let gone: Vec<u64> = owner.last_shed.iter().map(|(_, _, packet)| packet.number).collect();
            assert_eq!(gone, model.dropped, "seed {seed}, step {step}: shed");
        } else if random.below(16) < 14 {
            let got = owner.serve(now).map(|(_, packet)| (packet.number, packet.ecn));
            let expected = model.dequeue(now.0).map(|packet| (packet.number, packet.ecn));
            let dropped: Vec<u64> = owner.last_dropped.iter().map(|packet| packet.number).collect();
            assert_eq!(dropped, model.dropped, "seed {seed}, step {step}: dropped");
            assert_eq!(got, expected, "seed {seed}, step {step}");
        }
    }
    (owner.counts.dropped, owner.counts.shed, owner.counts.marked)
}

fn fast() -> FqCodelConfig {
    let codel = CodelConfig { target: Nanos::from_millis(1), interval: Nanos::from_millis(20), mtu: MTU };
    FqCodelConfig { codel, flows: 16, quantum: 300, ..FqCodelConfig::default() }
}

#[test]
fn it_sends_and_drops_what_the_rfc_does() {
    let mut total = (0, 0, 0);
    for seed in 0..60_u32 {
        let (dropped, shed, marked) = compare(fast(), 40 + 10 * seed as usize, false, seed);
        total = (total.0 + dropped, total.1 + shed, total.2 + marked);
    }
    assert!(total.0 > 1_000 && total.1 > 1_000 && total.2 == 0, "{total:?}");
}

#[test]
fn it_marks_what_the_rfc_does() {
    let mut total = (0, 0, 0);
    for seed in 100..160_u32 {
        let threshold = [None, Some(Nanos::from_micros(500)), Some(Nanos::from_millis(3))][seed as usize % 3];
        let config = FqCodelConfig { ce_threshold: threshold, ce_threshold_l4s: seed % 2 == 0, ..fast() };
        let (dropped, shed, marked) = compare(config, 1_000, true, seed);
        total = (total.0 + dropped, total.1 + shed, total.2 + marked);
    }
    assert!(total.0 > 500 && total.2 > 5_000, "{total:?}");
}

/// Marks and drops of 2,000 packets of one codepoint that wait for 50 ms each behind one another.
fn standing(config: FqCodelConfig, ecn: Ecn, wait: Nanos) -> (u64, u64) {
    let mut owner = Owner::new(fq_codel(config), 10_000, 100_000_000);
    let step = Nanos::from_millis(1);
    let ahead = wait.0 / step.0;
    let mut now = Nanos::from_secs(1);
    for tick in 0..2_000 + ahead {
        owner.arrive(now, key(1), ecn, 1500);
        if tick >= ahead {
            owner.serve(now);
        }
        now += step;
    }
    (owner.counts.marked, owner.counts.dropped)
}

#[test]
fn the_ecn_table() {
    let plain = FqCodelConfig::default();
    let wait = Nanos::from_millis(50);
    let (marked, dropped) = standing(plain, Ecn::NotEct, wait);
    assert!(marked == 0 && dropped > 20, "{marked}, {dropped}");
    for ecn in [Ecn::Ect0, Ecn::Ect1] {
        let (marked, dropped) = standing(plain, ecn, wait);
        assert!(marked > 100 && marked < 1_000 && dropped == 0, "{ecn:?}: {marked}, {dropped}");
    }
    assert_eq!(standing(plain, Ecn::Ce, wait), (0, 0), "it has its mark");
    // below CoDel's target only the threshold acts
    let short = Nanos::from_millis(3);
    for (l4s, ecn, all) in [
        (false, Ecn::NotEct, false),
        (false, Ecn::Ect0, true),
        (false, Ecn::Ect1, true),
        (false, Ecn::Ce, false),
        (true, Ecn::NotEct, false),
        (true, Ecn::Ect0, false),
        (true, Ecn::Ect1, true),
        (true, Ecn::Ce, false),
    ] {
        let threshold = Some(Nanos::from_millis(1));
        let config = FqCodelConfig { ce_threshold: threshold, ce_threshold_l4s: l4s, ..plain };
        assert_eq!(standing(config, ecn, short), (if all { 2_000 } else { 0 }, 0), "{l4s}, {ecn:?}");
        let config = FqCodelConfig { ce_threshold: Some(short), ..config };
        assert_eq!(standing(config, ecn, short), (0, 0), "not above it: {l4s}, {ecn:?}");
    }
}

#[test]
fn the_threshold_and_codel_name_their_causes() {
    let config = FqCodelConfig { ce_threshold: Some(Nanos::from_millis(1)), ..FqCodelConfig::default() };
    let mut qdisc = fq_codel(config);
    let mut causes = Vec::new();
    for packet in 0..3_000_u64 {
        let now = Nanos::from_millis(packet);
        for _ in 0..if packet == 0 { 10 } else { 1 } {
            qdisc.arrive(&Arriving { now, bytes: 1500, ecn: Ecn::Ect1, ..Arriving::default() });
        }
        let queue = qdisc.select(now).unwrap();
        let leaving = Leaving { now, queue, bytes: 1500, ecn: Ecn::Ect1, ..Leaving::default() };
        let rule = if packet % 2 == 0 { Rule::None } else { Rule::Exclude };
        let verdict = qdisc.decide(&Leaving { sojourn: Nanos::from_millis(9), rule, ..leaving });
        match (verdict, rule) {
            (Verdict::Drop(Cause::Law), Rule::Exclude) => {}
            (_, Rule::Exclude) => assert_eq!(verdict, Verdict::Pass, "Not-ECT by rule"),
            (Verdict::Mark(cause), _) => causes.push(cause),
            (verdict, _) => panic!("{verdict:?}"),
        }
        if !matches!(verdict, Verdict::Drop(_)) {
            qdisc.sent(queue, 1500);
        }
    }
    let native = causes.iter().filter(|&&cause| cause == Cause::Native).count();
    assert!(native > 1_000 && native < causes.len(), "{native} of {}", causes.len());
}

#[test]
fn a_batch_takes_half_the_longest_queue_but_at_most_64_packets() {
    for (held, gone) in [(20, 10), (100, 50), (127, 64), (1_000, 64)] {
        let mut owner = Owner::new(fq_codel(FqCodelConfig::default()), held, 100_000_000);
        owner.arrive(Nanos::ZERO, key(2), Ecn::NotEct, 1000);
        for _ in 1..held {
            owner.arrive(Nanos::ZERO, key(1), Ecn::NotEct, 1000);
            assert!(owner.last_shed.is_empty());
        }
        owner.arrive(Nanos::ZERO, key(1), Ecn::NotEct, 1000);
        assert_eq!(owner.last_shed.len(), gone, "{held}");
        let numbers: Vec<u64> = owner.last_shed.iter().map(|(_, _, packet)| packet.number).collect();
        assert_eq!(numbers, (1..=gone as u64).collect::<Vec<_>>(), "from the head of the longest");
        assert!(owner.last_shed.iter().all(|(_, end, _)| *end == End::Head));
    }
}

#[test]
fn a_sparse_flow_waits_for_no_bulk_flow_and_is_not_acted_on() {
    let mut owner = Owner::new(fq_codel(FqCodelConfig::default()), 10_000, 12_000_000);
    let mut now = Nanos::from_secs(1);
    let mut waits = Vec::new();
    for packet in 0..20_000_u64 {
        // two bulk flows keep 30 packets each, one flow sends 100 bytes each 20 ms; a packet a millisecond leaves
        for flow in [1, 2] {
            let queue = owner.qdisc.drr.queue_of(key(flow).flow);
            while owner.fifos[queue as usize].len() < 30 {
                owner.arrive(now, key(flow), Ecn::Ect0, 1500);
            }
        }
        if packet % 20 == 0 {
            owner.arrive(now, key(3), Ecn::Ect0, 100);
        }
        now += Nanos::from_millis(1);
        let (_, sent) = owner.serve(now).unwrap();
        if sent.key == key(3) {
            assert_eq!(sent.ecn, Ecn::Ect0);
            waits.push(now.since(sent.arrived));
        }
    }
    assert_eq!(waits.len(), 1_000);
    // the first waits for the quantum of two flows that are as new
    assert!(waits[1..].iter().all(|wait| *wait <= Nanos::from_millis(2)), "{waits:?}");
    assert!(owner.counts.marked > 100);
}

#[test]
fn random_schedules_lose_nothing_and_never_stall() {
    let (mut dropped, mut shed, mut marked) = (0, 0, 0);
    for seed in 0..300 {
        let config = FqCodelConfig { flows: 1 + seed % 20, ..fast() };
        let threshold = (seed % 3 == 0).then_some(Nanos::from_micros(10 * u64::from(seed)));
        let config = FqCodelConfig { ce_threshold: threshold, ..config };
        let counts = random_schedule(|| fq_codel(config), seed);
        dropped += counts.dropped;
        shed += counts.shed;
        marked += counts.marked;
    }
    assert!(dropped > 100 && shed > 1_000 && marked > 1_000, "{dropped}, {shed}, {marked}");
}

#[test]
fn memory_and_limits() {
    let qdisc = fq_codel(FqCodelConfig::default());
    assert_eq!((qdisc.queues(), qdisc.memory()), (1024, size_of::<FqCodel>() + 1024 * 40));
    let good = FqCodelConfig::default();
    for bad in [
        FqCodelConfig { flows: 0, ..good },
        FqCodelConfig { flows: MAX_FLOWS + 1, ..good },
        FqCodelConfig { quantum: 0, ..good },
        FqCodelConfig { ce_threshold: Some(Nanos::MAX), ..good },
        FqCodelConfig { codel: CodelConfig { target: Nanos::ZERO, ..good.codel }, ..good },
    ] {
        assert!(matches!(FqCodel::new(bad), Err(ParamError::Range { .. })), "{bad:?}");
    }
}
