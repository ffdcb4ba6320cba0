// SPDX-License-Identifier: Apache-2.0
//! A rig for shards in virtual time: packets that count how many of them live, ports, PI ticks, conservation.

#![expect(dead_code, reason = "each test binary uses its own part of the rig")]
#![expect(clippy::cast_precision_loss, reason = "ratios of counts far below 2^53")]

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use aqm::{BitsPerSec, Cause, Ecn, FlowKey, Nanos, Queue, Rule, Stamp};
use engine::{
    AllTotals, Change, Direction, DropReason, Fifo, Meta, Packet, PiBanks, PortId, PortShared, Profiles,
    QueueId, QueueKind, QueueSpec, RingDrops, Shard, ShardCounters, ShardOptions,
};
use model::profile::{
    Aqm, Cake, Cells, Cocoa, Codel, CodelAf, Compat, CurvyRed, DualPi2, Fq, FqCodel, Native, Overhead,
    Overload, Pie, Profile, Tins,
};

/// How many packets are alive, and how many buffers they hold.
#[derive(Debug, Default)]
pub(crate) struct Alive {
    pub(crate) packets: Cell<u64>,
    pub(crate) buffers: Cell<u64>,
}

/// A packet without content.
#[derive(Debug)]
pub(crate) struct TestPacket {
    meta: Meta,
    pub(crate) serial: u64,
    pub(crate) ce: bool,
    pub(crate) flow: u32,
    frame_bytes: u32,
    buffers: u32,
    alive: Rc<Alive>,
}

impl Drop for TestPacket {
    fn drop(&mut self) {
        self.alive.packets.set(self.alive.packets.get() - 1);
        self.alive.buffers.set(self.alive.buffers.get() - u64::from(self.buffers));
    }
}

#[derive(Debug, Default)]
pub(crate) struct TestFifo(VecDeque<TestPacket>);

impl Fifo<TestPacket> for TestFifo {
    fn push(&mut self, packet: TestPacket) {
        self.0.push_back(packet);
    }
    fn pop(&mut self) -> Option<TestPacket> {
        self.0.pop_front()
    }
    fn front(&self) -> Option<Meta> {
        self.0.front().map(Packet::meta)
    }
}

impl Packet for TestPacket {
    type Fifo = TestFifo;
    fn meta(&self) -> Meta {
        self.meta
    }
    fn set_meta(&mut self, meta: Meta) {
        self.meta = meta;
    }
    fn frame_bytes(&self) -> u32 {
        self.frame_bytes
    }
    fn buffers(&self) -> u32 {
        self.buffers
    }
    fn flow_key(&self, _seed: u64) -> FlowKey {
        let hash = |n: u32| n.wrapping_mul(0x9E37_79B9);
        FlowKey {
            flow: hash(self.flow),
            source: hash(self.flow / 4),
            destination: hash(self.flow % 3),
            dscp: 0,
        }
    }
    /// Each packet comes from a station of its own.
    fn macs(&self) -> [u8; 12] {
        let [.., a, b] = self.serial.to_be_bytes();
        [2, 0, 0, 0, a, b, 2, 0, 0, 1, a, b]
    }
    fn mark_ce(&mut self, _cause: Cause) {
        assert!(matches!(self.meta.ecn, Ecn::Ect0 | Ecn::Ect1), "only ECT is marked, and once");
        assert!(!self.ce, "and once");
        self.ce = true;
    }
}

/// What a packet is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) id: u32,
    pub(crate) l3_bytes: u16,
    pub(crate) ecn: Ecn,
    pub(crate) rule: Rule,
    pub(crate) egress: u8,
    pub(crate) buffers: u32,
    pub(crate) flow: u32,
}

impl Offer {
    /// A Not-ECT packet for port 0.
    pub(crate) fn new(id: u32, l3_bytes: u16) -> Self {
        Self { id, l3_bytes, ecn: Ecn::NotEct, rule: Rule::None, egress: 0, buffers: 1, flow: 0 }
    }
}

/// How the rig is built.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) shards: u32,
    pub(crate) capacity: u32,
    pub(crate) buffers: u32,
    pub(crate) ports: Vec<Option<u64>>,
    pub(crate) seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self { shards: 1, capacity: 64, buffers: 1 << 20, ports: vec![None], seed: 1 }
    }
}

/// Indices of the rig's profiles: names in order.
pub(crate) const DUALPI2: u16 = 0;
pub(crate) const FIFO: u16 = 1;
pub(crate) const LINUX: u16 = 2;
pub(crate) const OFF: u16 = 3;
pub(crate) const PI2: u16 = 4;
pub(crate) const RAW_FIFO: u16 = 5;
pub(crate) const SHORT: u16 = 6;
pub(crate) const CODEL: u16 = 7;
pub(crate) const CODEL_SHORT: u16 = 8;
pub(crate) const PIE: u16 = 9;
pub(crate) const FQ: u16 = 10;
pub(crate) const FQ_CODEL: u16 = 11;
pub(crate) const CAKE: u16 = 12;
pub(crate) const COCOA: u16 = 13;
pub(crate) const CURVY_RED: u16 = 14;
pub(crate) const PROTECTED: u16 = 15;
pub(crate) const CODEL_NO_L4S: u16 = 16;
pub(crate) const RAW_FQ: u16 = 17;
pub(crate) const CODEL_AF: u16 = 18;
pub(crate) const CODEL_AF_SPARSE: u16 = 19;
/// Those of managed disciplines.
pub(crate) const MANAGED: [u16; 10] =
    [CODEL, CODEL_SHORT, PIE, FQ, FQ_CODEL, CAKE, COCOA, CURVY_RED, CODEL_AF, CODEL_AF_SPARSE];
/// How many there are.
pub(crate) const PROFILES: u16 = 20;

pub(crate) const ETHERNET: Overhead = Overhead { bytes: 38, mpu: 84, cells: Cells::None };
pub(crate) const RAW: Overhead = Overhead { bytes: 0, mpu: 0, cells: Cells::None };

pub(crate) fn dualpi2() -> DualPi2 {
    DualPi2 {
        target_us: 15_000,
        tupdate_us: 16_000,
        alpha_hz: 0.16,
        beta_hz: 3.2,
        coupling: 2,
        native: Native::Ramp { min_us: 800, range_us: 400 },
        floor_packets: 2,
        classic_protection_percent: 10,
        overload: Overload::Drop,
        any_ect: false,
        queue_protection: false,
        compat: Compat::Rfc,
    }
}

pub(crate) fn profile(aqm: Aqm, overhead: Overhead) -> Profile {
    Profile { aqm, l4s: true, limit_us: 250_000, limit_packets: None, overhead, ecn: true, mtu: 1_538 }
}

pub(crate) fn profiles() -> Profiles {
    let linux = DualPi2 {
        compat: Compat::Linux,
        native: Native::Step { threshold_us: 1_000 },
        floor_packets: 0,
        tupdate_us: 8_000,
        ..dualpi2()
    };
    let atm = Overhead { bytes: 40, mpu: 0, cells: Cells::Atm };
    let list = [
        ("a-dualpi2", profile(Aqm::DualPi2(dualpi2()), ETHERNET)),
        ("b-fifo", profile(Aqm::Fifo, ETHERNET)),
        ("c-linux", profile(Aqm::DualPi2(linux), ETHERNET)),
        ("d-off", Profile { l4s: false, ..profile(Aqm::DualPi2(dualpi2()), atm) }),
        ("e-pi2", profile(Aqm::Pi2(dualpi2()), ETHERNET)),
        ("f-raw", profile(Aqm::Fifo, RAW)),
        (
            "g-short",
            Profile { limit_packets: Some(3), limit_us: 1_000, ..profile(Aqm::DualPi2(dualpi2()), RAW) },
        ),
        ("h-codel", profile(Aqm::Codel(Codel::default()), ETHERNET)),
        (
            "i-codel-short",
            Profile { ecn: false, limit_packets: Some(3), ..profile(Aqm::Codel(Codel::default()), RAW) },
        ),
        ("j-pie", profile(Aqm::Pie(Pie::default()), ETHERNET)),
        ("k-fq", profile(Aqm::Fq(Fq::default()), ETHERNET)),
        ("l-fq-codel", profile(Aqm::FqCodel(FqCodel { flows: 16, ..FqCodel::default() }), ETHERNET)),
        ("m-cake", profile(Aqm::Cake(Cake { tins: Tins::Diffserv4, ..Cake::default() }), ETHERNET)),
        ("n-cocoa", profile(Aqm::Cocoa(Cocoa::default()), ETHERNET)),
        ("o-curvy-red", profile(Aqm::CurvyRed(CurvyRed::default()), ETHERNET)),
        ("p-protected", profile(Aqm::DualPi2(DualPi2 { queue_protection: true, ..dualpi2() }), ETHERNET)),
        ("q-no-l4s", Profile { l4s: false, ..profile(Aqm::Codel(Codel::default()), ETHERNET) }),
        ("s-codel-af", profile(Aqm::CodelAf(CodelAf::default()), ETHERNET)),
        (
            "t-codel-af-sparse",
            profile(Aqm::CodelAf(CodelAf { sparse: true, ..CodelAf::default() }), ETHERNET),
        ),
        ("r-raw-fq", profile(Aqm::Fq(Fq { flow_limit_packets: 1_000_000, ..Fq::default() }), RAW)),
    ];
    let map: BTreeMap<_, _> = list.into_iter().map(|(name, profile)| (name.to_string(), profile)).collect();
    Profiles::new(&map).expect("the profiles are right")
}

/// Shards, ports and PI banks in virtual time.
pub(crate) struct Rig {
    pub(crate) shards: Vec<Shard<TestPacket>>,
    pub(crate) ports: Arc<[PortShared]>,
    pub(crate) now: Nanos,
    pub(crate) alive: Rc<Alive>,
    pub(crate) out: Vec<TestPacket>,
    pub(crate) overload_changes: u32,
    banks: Vec<Arc<PiBanks>>,
    counters: Vec<Arc<ShardCounters>>,
    ring_drops: Arc<RingDrops>,
    offered: u64,
    serial: u64,
}

impl Rig {
    pub(crate) fn new(setup: &Setup) -> Self {
        let profiles = Arc::new(profiles());
        let ports: Arc<[PortShared]> =
            setup.ports.iter().map(|&bps| PortShared::new(bps.map(BitsPerSec))).collect();
        let ring_drops = Arc::new(RingDrops::new(setup.capacity as usize));
        let parents = Arc::new(engine::ParentsShared::default());
        let banks: Vec<_> = (0..setup.shards)
            .map(|i| Arc::new(PiBanks::new(&profiles, i, setup.shards, setup.capacity)))
            .collect();
        let counters: Vec<_> = (0..setup.shards).map(|_| Arc::new(ShardCounters::default())).collect();
        let shards = (0..setup.shards).map(|index| {
            Shard::new(ShardOptions {
                index,
                shards: setup.shards,
                capacity: setup.capacity,
                buffers: setup.buffers,
                seed: setup.seed,
                flow_seed: setup.seed,
                profiles: Arc::clone(&profiles),
                banks: Arc::clone(&banks[index as usize]),
                ports: Arc::clone(&ports),
                counters: Arc::clone(&counters[index as usize]),
                ring_drops: Arc::clone(&ring_drops),
                parents: Arc::clone(&parents),
            })
        });
        Self {
            shards: shards.collect(),
            ports: Arc::clone(&ports),
            now: Nanos::from_secs(1),
            alive: Rc::default(),
            out: Vec::with_capacity(1_024),
            overload_changes: 0,
            banks,
            counters,
            ring_drops,
            offered: 0,
            serial: 0,
        }
    }

    /// Packets offered so far.
    pub(crate) fn offered(&self) -> u64 {
        self.offered
    }

    pub(crate) fn shard_of(&self, id: u32) -> usize {
        id as usize % self.shards.len()
    }

    pub(crate) fn apply(&mut self, change: Change) {
        match change.queue_id() {
            Some(id) => {
                let shard = self.shard_of(id.0);
                self.shards[shard].apply(self.now, change);
            }
            None => self.shards.iter_mut().for_each(|shard| shard.apply(self.now, change)),
        }
    }

    pub(crate) fn spec(bps: u64, profile: u16) -> QueueSpec {
        QueueSpec {
            rate: BitsPerSec(bps),
            profile,
            direction: Direction::Down,
            egress_hint: PortId(0),
            kind: QueueKind::Subscriber,
            parent: None,
        }
    }

    pub(crate) fn create(&mut self, id: u32, bps: u64, profile: u16) {
        self.apply(Change::Create { id: QueueId(id), spec: Self::spec(bps, profile) });
    }

    pub(crate) fn update(&mut self, id: u32, bps: u64, profile: u16) {
        self.apply(Change::Update { id: QueueId(id), spec: Self::spec(bps, profile) });
    }

    pub(crate) fn packet(&mut self, offer: Offer) -> TestPacket {
        self.alive.packets.set(self.alive.packets.get() + 1);
        self.alive.buffers.set(self.alive.buffers.get() + u64::from(offer.buffers));
        self.serial += 1;
        TestPacket {
            meta: Meta {
                queue_id: QueueId(offer.id),
                arrival: Stamp::at(self.now),
                l3_bytes: offer.l3_bytes,
                ip_offset: 14,
                ecn: offer.ecn,
                rule: offer.rule,
                egress: PortId(offer.egress),
            },
            serial: self.serial,
            ce: false,
            flow: offer.flow,
            frame_bytes: u32::from(offer.l3_bytes) + 14,
            buffers: offer.buffers,
            alive: Rc::clone(&self.alive),
        }
    }

    pub(crate) fn offer(&mut self, offer: Offer) {
        let packet = self.packet(offer);
        let shard = self.shard_of(offer.id);
        self.offered += 1;
        self.shards[shard].enqueue(self.now, packet);
    }

    /// Packets come as they do on an lcore: what nothing holds back leaves at once, up to `room` packets a port, and is
    /// seen by `each`; all else is queued.
    pub(crate) fn burst(
        &mut self,
        offers: impl IntoIterator<Item = Offer>,
        room: usize,
        mut each: impl FnMut(Nanos, &TestPacket),
    ) -> usize {
        let ports = u8::try_from(self.ports.len()).expect("few");
        for shard in &mut self.shards {
            (0..ports).for_each(|port| shard.open(self.now, PortId(port), room));
        }
        let (mut held_back, mut passed) = (Vec::new(), 0);
        for offer in offers {
            let packet = self.packet(offer);
            let shard = self.shard_of(offer.id);
            self.offered += 1;
            if self.shards[shard].passes(self.now, &packet) {
                passed += 1;
                each(self.now, &packet);
            } else {
                held_back.push((shard, packet));
            }
        }
        for (shard, packet) in held_back {
            self.shards[shard].enqueue(self.now, packet);
        }
        for shard in &mut self.shards {
            (0..ports).for_each(|port| shard.shut(PortId(port)));
        }
        passed
    }

    /// One dequeue; `each` sees what left.
    pub(crate) fn dequeue(
        &mut self,
        shard: usize,
        port: u8,
        room: usize,
        mut each: impl FnMut(Nanos, &TestPacket),
    ) -> usize {
        let mut out = std::mem::take(&mut self.out);
        let sent = self.shards[shard].dequeue(self.now, PortId(port), &mut out, room);
        assert_eq!(sent, out.len(), "what dequeue says is what it gave");
        assert!(sent <= room);
        for packet in out.drain(..) {
            each(self.now, &packet);
        }
        self.out = out;
        sent
    }

    /// The next time at which something could leave by any port.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        let ports = u8::try_from(self.ports.len()).expect("few");
        self.shards
            .iter()
            .flat_map(|shard| (0..ports).filter_map(|port| shard.next_event(PortId(port))))
            .min()
    }

    /// Dequeues by events until `end`.
    pub(crate) fn run_events(&mut self, end: Nanos, mut each: impl FnMut(Nanos, &TestPacket)) {
        while let Some(at) = self.next_event().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            for shard in 0..self.shards.len() {
                for port in 0..u8::try_from(self.ports.len()).expect("few") {
                    while self.dequeue(shard, port, 32, &mut each) == 32 {}
                }
            }
        }
        self.now = self.now.max(end);
    }

    /// One tick of every PI bank.
    pub(crate) fn tick(&mut self) {
        let changes = &mut self.overload_changes;
        for banks in &self.banks {
            for bank in 0..banks.len() {
                banks.update(bank, self.now, &mut |_, _| *changes += 1);
            }
        }
    }

    /// One tick of every PI bank; how many ids were looked at.
    pub(crate) fn visited_by_tick(&mut self) -> u32 {
        let visit = |banks: &std::sync::Arc<PiBanks>| -> u32 {
            (0..banks.len()).map(|bank| banks.update(bank, self.now, &mut |_, _| ())).sum()
        };
        self.banks.iter().map(visit).sum()
    }

    pub(crate) fn totals(&self) -> AllTotals {
        let mut totals = AllTotals::default();
        self.counters.iter().for_each(|counters| counters.add_to(&mut totals));
        totals
    }

    /// Drops for one reason, over directions and queues.
    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.sum(|queue| queue.dropped_by(reason))
    }

    pub(crate) fn forwarded(&self) -> u64 {
        self.sum(|queue| queue.forwarded)
    }

    pub(crate) fn marked(&self) -> u64 {
        self.sum(|queue| queue.marked)
    }

    fn sum(&self, part: impl Fn(&engine::QueueTotals) -> u64) -> u64 {
        let totals = self.totals();
        let all = Direction::BOTH
            .into_iter()
            .flat_map(|dir| Queue::BOTH.map(|queue| part(totals.queue(dir, queue))));
        all.sum()
    }

    pub(crate) fn queued(&self) -> u64 {
        self.shards.iter().map(Shard::queued).sum()
    }

    /// Every packet offered is sent, dropped and counted, or queued; what is queued is alive, and nothing else.
    pub(crate) fn check_conservation(&mut self) {
        let dropped = self.sum(engine::QueueTotals::dropped_packets);
        assert_eq!(self.sum(|queue| queue.arrived), self.offered, "every packet offered arrived");
        assert_eq!(self.offered, self.forwarded() + dropped + self.queued(), "sent, dropped or queued");
        assert_eq!(self.alive.packets.get(), self.queued(), "what is queued is alive");
        let buffers: u64 = self.shards.iter().map(|shard| u64::from(shard.buffers_used())).sum();
        assert_eq!(self.alive.buffers.get(), buffers, "buffers are those of what is queued");
        let waiting: u64 = self.shards.iter().flat_map(Shard::ids_waiting).sum();
        assert!(waiting <= self.queued(), "an id that waits has a packet");
    }

    /// As [`Self::check_conservation`], for each id.
    pub(crate) fn check_ids(&mut self, ids: u32) {
        for id in 0..ids {
            let shard = self.shard_of(id);
            if let Some(snapshot) = self.shards[shard].snapshot(QueueId(id)) {
                assert!(snapshot.conserves(), "id {id}: {snapshot:?}");
            }
        }
    }

    pub(crate) fn ring_drops(&self) -> &RingDrops {
        &self.ring_drops
    }
}

/// Jain's index.
pub(crate) fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    sum * sum / (squares * values.len() as f64)
}
