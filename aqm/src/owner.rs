// SPDX-License-Identifier: Apache-2.0
//! The owner of a discipline's FIFOs, for tests: it asks what the engine asks and holds the answers against what it
//! keeps itself, packet by packet.
//!
//! Checked always: `select` names a queue that holds a packet whenever one waits, and the same one when asked again;
//! what is shed waits; Not-ECT and CE are never marked; nothing is lost or counted twice; memory never grows.

use std::collections::VecDeque;

use crate::{Arrival, Arriving, BitsPerSec, Cause, Ecn, End, FlowKey, Leaving, Nanos, Pace, Qdisc, Verdict};

/// A packet as the owner keeps it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) number: u64,
    pub(crate) key: FlowKey,
    pub(crate) ecn: Ecn,
    pub(crate) bytes: u32,
    pub(crate) arrived: Nanos,
}

/// What became of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) came: u64,
    pub(crate) refused: u64,
    pub(crate) shed: u64,
    pub(crate) dropped: u64,
    pub(crate) removed: u64,
    pub(crate) sent: u64,
    pub(crate) marked: u64,
}

/// A discipline with its FIFOs.
pub(crate) struct Owner<Q> {
    pub(crate) qdisc: Q,
    pub(crate) fifos: Vec<VecDeque<Packet>>,
    pub(crate) limit: usize,
    pub(crate) pace: Pace,
    pub(crate) counts: Counts,
    pub(crate) waiting: usize,
    /// Flow and queue of each packet that was shed, in order.
    pub(crate) last_shed: Vec<(u32, End, Packet)>,
    /// Packets the AQM dropped in the last [`Self::serve`].
    pub(crate) last_dropped: Vec<Packet>,
    memory: usize,
}

impl<Q: Qdisc> Owner<Q> {
    pub(crate) fn new(qdisc: Q, limit: usize, bps: u64) -> Self {
        let queues = qdisc.queues() as usize;
        let memory = qdisc.memory();
        Self {
            qdisc,
            fifos: vec![VecDeque::new(); queues],
            limit,
            pace: Pace::of(BitsPerSec(bps)),
            counts: Counts::default(),
            waiting: 0,
            last_shed: Vec::new(),
            last_dropped: Vec::new(),
            memory,
        }
    }

    /// A packet comes.
    pub(crate) fn arrive(&mut self, now: Nanos, key: FlowKey, ecn: Ecn, bytes: u32) -> Arrival {
        let mut packet = Packet { number: self.counts.came, key, ecn, bytes, arrived: now };
        self.counts.came += 1;
        let arriving = Arriving { now, bytes, ecn, key, pace: self.pace, ..Arriving::default() };
        let arrival = self.qdisc.arrive(&arriving);
        let queue = match arrival {
            Arrival::Queue(queue) => Some(queue),
            Arrival::Mark(queue, _) => {
                assert!(matches!(ecn, Ecn::Ect0 | Ecn::Ect1), "a mark on {ecn:?}");
                packet.ecn = Ecn::Ce;
                self.counts.marked += 1;
                Some(queue)
            }
            Arrival::Drop(_) => None,
        };
        match queue {
            Some(queue) => {
                self.fifos[queue as usize].push_back(packet);
                self.waiting += 1;
            }
            None => self.counts.refused += 1,
        }
        self.shed();
        self.check();
        arrival
    }

    fn shed(&mut self) {
        self.last_shed.clear();
        loop {
            let over = self.waiting > self.limit;
            let Some((queue, end)) = self.qdisc.shed(over) else {
                assert!(!over || self.waiting == 0, "over the limit with {} waiting", self.waiting);
                return;
            };
            let fifo = &mut self.fifos[queue as usize];
            let packet = match end {
                End::Head => fifo.pop_front(),
                End::Tail => fifo.pop_back(),
            };
            let packet = packet.expect("what is shed waits");
            self.qdisc.removed(queue, packet.bytes);
            self.waiting -= 1;
            self.counts.shed += 1;
            self.last_shed.push((queue, end, packet));
        }
    }

    /// Whom the discipline would serve.
    pub(crate) fn select(&mut self, now: Nanos) -> Option<u32> {
        let selected = self.qdisc.select(now);
        for _ in 0..2 {
            assert_eq!(self.qdisc.select(now), selected, "asked again");
        }
        match selected {
            Some(queue) => assert!(!self.fifos[queue as usize].is_empty(), "queue {queue} is empty"),
            None => assert_eq!(self.waiting, 0, "a stall"),
        }
        selected
    }

    /// The next packet that leaves, with its mark, and its queue.
    pub(crate) fn serve(&mut self, now: Nanos) -> Option<(u32, Packet)> {
        self.last_dropped.clear();
        while let Some(queue) = self.select(now) {
            let mut packet = self.fifos[queue as usize].pop_front().unwrap();
            self.waiting -= 1;
            let leaving = Leaving {
                now,
                queue,
                bytes: packet.bytes,
                ecn: packet.ecn,
                sojourn: now.since(packet.arrived),
                pace: self.pace,
                ..Leaving::default()
            };
            match self.qdisc.decide(&leaving) {
                Verdict::Pass => {}
                Verdict::Mark(_) => {
                    assert!(matches!(packet.ecn, Ecn::Ect0 | Ecn::Ect1), "a mark on {:?}", packet.ecn);
                    packet.ecn = Ecn::Ce;
                    self.counts.marked += 1;
                }
                Verdict::Drop(cause) => {
                    assert_ne!(cause, Cause::Limit);
                    self.counts.dropped += 1;
                    self.last_dropped.push(packet);
                    self.check();
                    continue;
                }
            }
            self.qdisc.sent(queue, packet.bytes);
            self.counts.sent += 1;
            self.check();
            return Some((queue, packet));
        }
        None
    }

    /// Takes a packet out in another way.
    pub(crate) fn remove(&mut self, queue: u32, end: End) {
        let fifo = &mut self.fifos[queue as usize];
        let packet = match end {
            End::Head => fifo.pop_front(),
            End::Tail => fifo.pop_back(),
        };
        if let Some(packet) = packet {
            self.qdisc.removed(queue, packet.bytes);
            self.waiting -= 1;
            self.counts.removed += 1;
        }
        self.check();
    }

    fn check(&self) {
        let c = self.counts;
        assert_eq!(
            c.came,
            c.refused + c.shed + c.dropped + c.removed + c.sent + self.waiting as u64,
            "{c:?}"
        );
        assert_eq!(self.qdisc.memory(), self.memory, "memory is taken in `new`");
    }
}

/// SplitMix64, for schedules.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A time below the given one.
    pub(crate) fn time(&mut self, below: u64) -> Nanos {
        Nanos(self.next() % below)
    }

    /// From 0 to `below` - 1.
    pub(crate) fn below(&mut self, below: u32) -> u32 {
        self.hash() % below
    }

    /// One of some values.
    pub(crate) fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.hash() as usize % values.len()]
    }

    /// A 32-bit hash.
    pub(crate) fn hash(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }
}

/// A random schedule of arrivals, departures, removals and pauses over a handful of flows, then a drain. The seed is in
/// the message of whatever fails.
pub(crate) fn random_schedule<Q: Qdisc>(make: impl Fn() -> Q, seed: u32) -> Counts {
    struct Seed(u32);
    impl Drop for Seed {
        fn drop(&mut self) {
            if std::thread::panicking() {
                println!("failed with seed {}", self.0);
            }
        }
    }
    let _seed = Seed(seed);
    let mut random = Random(seed.into());
    let limit = 1 + random.below(300) as usize;
    let mut owner = Owner::new(make(), limit, 1_000_000 << random.below(8));
    let flows: Vec<FlowKey> = (0..=random.below(40))
        .map(|_| FlowKey {
            flow: random.hash(),
            source: random.below(4),
            destination: random.below(4),
            dscp: u8::try_from(random.below(64)).unwrap(),
        })
        .collect();
    let mut now = random.time(1 << 40);
    let arrivals = 1 + random.below(10);
    let step = 1 << (10 + random.below(16));
    for _ in 0..2_000 {
        match random.below(20) {
            die if die < arrivals => {
                let (key, ecn) = (random.pick(&flows), random.pick(&Ecn::ALL));
                owner.arrive(now, key, ecn, random.below(9_000));
            }
            10 => {
                let queue = owner.select(now);
                let end = random.pick(&[End::Head, End::Tail]);
                owner.remove(queue.unwrap_or(0), end);
            }
            11 => now += random.time(1 << 30),
            12..16 => now += random.time(step),
            _ => {
                owner.serve(now);
            }
        }
    }
    while owner.serve(now).is_some() {
        now += random.time(step);
    }
    assert_eq!(owner.waiting, 0);
    owner.counts
}
