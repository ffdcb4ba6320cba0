// SPDX-License-Identifier: Apache-2.0
//! An owner for any [`Qdisc`] in tests: it holds the packets in plain FIFOs, drives random schedules, and checks on
//! each step what the trait promises.
//!
//! ```text
//! let report = random(|seed| Box::new(Discipline::new(config, seed)), 0..50, Some(bytes));
//! ```

use std::collections::VecDeque;
use std::ops::Range;

use crate::{
    Arrival, Arriving, BitsPerSec, Cause, Ecn, End, FlowKey, Leaving, Nanos, Pace, Qdisc, Rule, Verdict,
};

/// What happened to packets of one codepoint, in the order of [`Ecn::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) arrived: u64,
    pub(crate) marked: u64,
    /// By the law: anything but [`Cause::Limit`].
    pub(crate) dropped: u64,
    /// By the discipline's own limit, or shed.
    pub(crate) limited: u64,
    /// By the owner.
    pub(crate) removed: u64,
    pub(crate) sent: u64,
}

impl Counts {
    fn gone(&self) -> u64 {
        self.dropped + self.limited + self.removed + self.sent
    }
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    came: Nanos,
    bytes: u32,
    /// As it came.
    ecn: Ecn,
    /// As it is.
    now_ecn: Ecn,
    rule: Rule,
}

/// Holds the FIFOs of a discipline.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) qdisc: Box<dyn Qdisc>,
    pub(crate) counts: [Counts; 4],
    fifos: Vec<VecDeque<Packet>>,
    /// Packets the owner holds at most.
    limit: usize,
}

impl Owner {
    pub(crate) fn new(qdisc: Box<dyn Qdisc>, limit: usize) -> Self {
        let queues = qdisc.queues() as usize;
        Self { qdisc, counts: <[Counts; 4]>::default(), fifos: vec![VecDeque::new(); queues], limit }
    }

    /// Packets that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.fifos.iter().map(VecDeque::len).sum()
    }

    /// A packet comes; whatever must be shed is.
    pub(crate) fn arrive(&mut self, packet: &Arriving) {
        self.counts[packet.ecn as usize].arrived += 1;
        let arrival = self.qdisc.arrive(packet);
        let (queue, now_ecn) = match arrival {
            Arrival::Queue(queue) => (queue, packet.ecn),
            Arrival::Mark(queue, _) => {
                self.mark(packet.ecn);
                (queue, Ecn::Ce)
            }
            Arrival::Drop(cause) => {
                self.dropped(packet.ecn, cause);
                return self.shed();
            }
        };
        let &Arriving { now: came, bytes, ecn, rule, .. } = packet;
        self.fifos[queue as usize].push_back(Packet { came, bytes, ecn, now_ecn, rule });
        self.shed();
    }

    fn shed(&mut self) {
        for _ in 0..=self.waiting() {
            let over = self.waiting() > self.limit;
            let Some((queue, end)) = self.qdisc.shed(over) else {
                assert!(!over, "over the limit with {} waiting, and nothing to shed", self.waiting());
                return;
            };
            let fifo = &mut self.fifos[queue as usize];
            let packet = match end {
                End::Head => fifo.pop_front(),
                End::Tail => fifo.pop_back(),
            };
            let packet = packet.expect("sheds from a queue that holds a packet");
            self.counts[packet.ecn as usize].limited += 1;
            self.qdisc.removed(queue, packet.bytes);
        }
        panic!("shed more than there was");
    }

    /// Takes packets until one survives; the queue and length of that one.
    pub(crate) fn serve(&mut self, now: Nanos, pace: Pace) -> Option<(u32, u32)> {
        loop {
            let selected = self.qdisc.select(now);
            assert_eq!(selected, self.qdisc.select(now), "select changed its mind");
            let Some(queue) = selected else {
                assert_eq!(self.waiting(), 0, "stalled with packets waiting");
                return None;
            };
            let packet = self.fifos[queue as usize].pop_front().expect("selects a queue that holds a packet");
            let Packet { came, bytes, ecn, now_ecn, rule } = packet;
            let sojourn = now.since(came);
            let verdict =
                self.qdisc.decide(&Leaving { now, queue, bytes, ecn: now_ecn, rule, sojourn, pace });
            match verdict {
                Verdict::Pass => {}
                Verdict::Mark(_) => self.mark(now_ecn),
                Verdict::Drop(cause) => {
                    self.dropped(ecn, cause);
                    continue;
                }
            }
            self.qdisc.sent(queue, bytes);
            self.counts[ecn as usize].sent += 1;
            return Some((queue, bytes));
        }
    }

    /// All packets go in another way, FIFO by FIFO.
    pub(crate) fn flush(&mut self) {
        for queue in 0..self.qdisc.queues() {
            while let Some(packet) = self.fifos[queue as usize].pop_front() {
                self.counts[packet.ecn as usize].removed += 1;
                self.qdisc.removed(queue, packet.bytes);
            }
        }
    }

    /// Arrived = gone + waiting, for each codepoint.
    pub(crate) fn check(&self) {
        for ecn in Ecn::ALL {
            let waiting = self.fifos.iter().flatten().filter(|packet| packet.ecn == ecn).count() as u64;
            let counts = self.counts[ecn as usize];
            assert_eq!(counts.arrived, counts.gone() + waiting, "{ecn:?}: {counts:?}");
        }
    }

    fn mark(&mut self, ecn: Ecn) {
        assert!(matches!(ecn, Ecn::Ect0 | Ecn::Ect1), "{ecn:?} was marked");
        self.counts[ecn as usize].marked += 1;
    }

    fn dropped(&mut self, ecn: Ecn, cause: Cause) {
        let counts = &mut self.counts[ecn as usize];
        *(if cause == Cause::Limit { &mut counts.limited } else { &mut counts.dropped }) += 1;
    }
}

/// SplitMix64, for schedules.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// Says which seed failed.
struct Announce(u64);

impl Drop for Announce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("failed with seed {}", self.0);
        }
    }
}

/// One random schedule: spells of load from 0.2 to 4 times the link's rate with silences, stalls and flushes between.
fn schedule(owner: &mut Owner, random: &mut Random, memory: Option<usize>) {
    let mut now = Nanos(random.below(1 << 40));
    for _ in 0..4 + random.below(8) {
        let mbps = [1, 10, 50, 200][usize::try_from(random.below(4)).unwrap()];
        let pace = Pace::of(BitsPerSec(mbps * 1_000_000));
        let (load_percent, flows) = (20 + random.below(380), 1 + random.below(20));
        let mut departure = now;
        for _ in 0..random.below(1_500) {
            let bytes = 64 + u32::try_from(random.below(1_475)).unwrap();
            now += Nanos(pace.time(u64::from(bytes) * 200).0 / load_percent * (random.below(100) + 1) / 100);
            while departure <= now {
                let taken = owner.serve(departure, pace).map_or(64, |(_, bytes)| bytes);
                departure += pace.time(taken.into());
            }
            let flow = u32::try_from(random.below(flows)).unwrap().wrapping_mul(2_654_435_769);
            let key = FlowKey { flow, source: flow >> 3, destination: flow >> 5, dscp: 0 };
            let ecn = Ecn::ALL[usize::try_from(random.below(4)).unwrap()];
            let rule = if random.below(4) == 0 {
                Rule::ALL[usize::try_from(random.below(5)).unwrap()]
            } else {
                Rule::None
            };
            owner.arrive(&Arriving { now, bytes, ecn, rule, key, pace });
            if let Some(memory) = memory {
                assert!(owner.qdisc.memory() <= memory, "{} bytes", owner.qdisc.memory());
            }
        }
        owner.check();
        match random.below(5) {
            0 => owner.flush(),
            1 => now += Nanos(random.below(400_000_000_000)),
            2 => while owner.serve(now, pace).is_some() {},
            _ => now += Nanos(random.below(50_000_000)),
        }
        now = now.max(departure);
        owner.check();
    }
    let pace = Pace::of(BitsPerSec(10_000_000));
    while let Some((_, bytes)) = owner.serve(now, pace) {
        now += pace.time(bytes.into());
    }
    owner.check();
    assert_eq!(owner.waiting(), 0);
}

/// Random schedules on a discipline made for each seed; `memory`: bytes it may never exceed. What happened to each
/// codepoint, all seeds together.
pub(crate) fn random(
    make: impl Fn(u64) -> Box<dyn Qdisc>,
    seeds: Range<u64>,
    memory: Option<usize>,
) -> [Counts; 4] {
    let mut total = <[Counts; 4]>::default();
    for seed in seeds {
        let _announce = Announce(seed);
        let mut random = Random::new(seed);
        let limit = [1, 20, 300, 3_000][usize::try_from(random.below(4)).unwrap()];
        let mut owner = Owner::new(make(seed), limit);
        schedule(&mut owner, &mut random, memory);
        for (total, counts) in total.iter_mut().zip(owner.counts) {
            total.arrived += counts.arrived;
            total.marked += counts.marked;
            total.dropped += counts.dropped;
            total.limited += counts.limited;
            total.removed += counts.removed;
            total.sent += counts.sent;
        }
    }
    total
}
