// SPDX-License-Identifier: Apache-2.0
//! The packet path's parts, each in a function of its own, for `tests/gate` to count the instructions of under callgrind.
//!
//! `instructions CASE` prepares a case and runs it once; what `measured_*` does is what counts. Nothing depends on the
//! clock, on addresses or on chance, so the count is the same on each run of one binary. Prints the packets (or ids) that
//! the count is for; without a case, the names of all.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;

use aqm::{BitsPerSec, Cause, Ecn, FlowKey, Nanos, Rule, Stamp};
use engine::{
    Change, Class, Classifier, Direction, Fifo, Meta, Packet, PiBanks, PortId, PortShared, Profiles, QueueId,
    QueueKind, QueueSpec, RecordEdit, Registry, RegistryOptions, RegistryPort, RingDrops, Shard,
    ShardCounters, ShardOptions,
};
use model::Config;
use model::Subscriber;
use model::config::Role;
use model::subscriber::{DEFAULT_PROFILE, Match, Vlan};
use wire::Parsed;

/// Subscribers, each with a VLAN pair.
const SUBSCRIBERS: u16 = 4_000;
/// Packets of a round, in bursts.
const PACKETS: usize = 4_096;
const BURST: usize = 32;
const VIDS: u16 = 100;
const START: Nanos = Nanos::from_secs(1);
/// A packet of `BYTES` and its overhead takes 1 ms at the low rate and no time at the high one.
const BYTES: u16 = 1_000;
const SLOW: BitsPerSec = BitsPerSec(8_304_000);
const FAST: BitsPerSec = BitsPerSec(100_000_000_000);

type Case = (&'static str, fn() -> usize);
/// All of them.
const CASES: [Case; 6] = [
    ("parse", parse),
    ("classify", classify),
    ("enqueue", enqueue),
    ("dequeue", dequeue),
    ("held", held),
    ("pi", pi),
];

#[expect(clippy::print_stdout, reason = "what tests/gate reads")]
fn main() {
    let wanted = std::env::args().nth(1).filter(|name| !name.starts_with('-'));
    for (name, case) in CASES {
        match &wanted {
            None => println!("{name}"),
            Some(wanted) if wanted == name => println!("{}", case()),
            Some(_) => {}
        }
    }
}

/// A packet without content.
struct Light(Meta);

#[derive(Default)]
struct LightFifo(VecDeque<Light>);

impl Fifo<Light> for LightFifo {
    fn push(&mut self, packet: Light) {
        self.0.push_back(packet);
    }
    fn pop(&mut self) -> Option<Light> {
        self.0.pop_front()
    }
    fn front(&self) -> Option<Meta> {
        self.0.front().map(Packet::meta)
    }
}

impl Packet for Light {
    type Fifo = LightFifo;
    fn meta(&self) -> Meta {
        self.0
    }
    fn set_meta(&mut self, meta: Meta) {
        self.0 = meta;
    }
    fn frame_bytes(&self) -> u32 {
        u32::from(self.0.l3_bytes) + 14
    }
    fn buffers(&self) -> u32 {
        1
    }
    fn flow_key(&self, _: u64) -> FlowKey {
        FlowKey::default()
    }
    fn mark_ce(&mut self, _: Cause) {}
}

/// A frame as the benchmark's: 802.1ad, 802.1Q, PPPoE, IPv4, UDP.
fn frame(subscriber: u16) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&[0x88, 0xa8]);
    frame[14..16].copy_from_slice(&(1 + subscriber / VIDS).to_be_bytes());
    frame[16..18].copy_from_slice(&[0x81, 0]);
    frame[18..20].copy_from_slice(&(1 + subscriber % VIDS).to_be_bytes());
    frame[20..24].copy_from_slice(&[0x88, 0x64, 0x11, 0]);
    frame[25] = 7;
    frame[27] = 32;
    frame[29] = 0x21;
    frame[30..50]
        .copy_from_slice(&[0x45, 1, 0, 30, 0, 0, 0x40, 0, 64, 17, 0, 0, 198, 18, 0, 1, 100, 64, 0, 1]);
    frame
}

/// Subscribers in an order that repeats after `SUBSCRIBERS`.
fn subscriber(packet: usize) -> u16 {
    u16::try_from(packet * 1_999 % usize::from(SUBSCRIBERS)).expect("few")
}

#[inline(never)]
fn measured_parse(frames: &[[u8; 60]], out: &mut [Parsed]) {
    for (frame, out) in frames.iter().zip(out) {
        *out = wire::parse(black_box(frame), 60);
    }
}

fn frames() -> Vec<[u8; 60]> {
    (0..PACKETS).map(|packet| frame(subscriber(packet))).collect()
}

fn parse() -> usize {
    let (frames, mut out) = (frames(), vec![wire::parse(&[], 0); PACKETS]);
    measured_parse(&frames, &mut out);
    assert!(out.iter().all(|parsed| parsed.l3_bytes == 30), "they are IP");
    PACKETS
}

#[inline(never)]
fn measured_classify(classifier: &Classifier, parsed: &[Parsed], out: &mut [Class]) {
    let mut out = out.iter_mut();
    for parsed in parsed.chunks(BURST) {
        classifier.classify(PortId(0), Direction::Down, black_box(parsed), |_, class| {
            if let Some(place) = out.next() {
                *place = class;
            }
        });
    }
}

fn profiles() -> Arc<Profiles> {
    Arc::new(Profiles::new(&Config::default().profiles).expect("the default profile is right"))
}

fn classify() -> usize {
    let port =
        |name: &str, role, peer| RegistryPort { name: name.into(), role, peer: PortId(peer), rate: None };
    let options = RegistryOptions {
        shards: 1,
        capacity: 2 * u32::from(SUBSCRIBERS) + 8,
        ports: vec![port("core", Role::Core, 1), port("access", Role::Access, 0)],
        profiles: profiles(),
        unknown_bps: None,
        seed: 1,
    };
    let (mut registry, classifier) = Registry::new(options).expect("a registry");
    let record = |subscriber: u16| Subscriber {
        id: subscriber.to_string(),
        down_bps: 1_000_000,
        up_bps: 1_000_000,
        profile: DEFAULT_PROFILE.into(),
        parent: None,
        matches: Match {
            vlan: Some(Vlan { outer: 1 + subscriber / VIDS, inner: Some(1 + subscriber % VIDS) }),
            ..Match::default()
        },
    };
    let records: Vec<_> = (0..SUBSCRIBERS).map(record).collect();
    let edits: Vec<_> = records.iter().map(RecordEdit::Put).collect();
    let plan = registry.plan(&edits).expect("room");
    registry.commit(plan).expect("fresh");
    let parsed: Vec<_> = frames().iter().map(|frame| wire::parse(frame, 60)).collect();
    let mut out = vec![Class::Control; PACKETS];
    measured_classify(&classifier, &parsed, &mut out);
    assert!(out.iter().all(|class| matches!(class, Class::Subscriber(_))), "everybody is found");
    PACKETS
}

/// A shard with `SUBSCRIBERS` ids.
struct Rig {
    shard: Shard<Light>,
    banks: Arc<PiBanks>,
    now: Nanos,
    out: Vec<Light>,
}

impl Rig {
    fn new(rate: BitsPerSec) -> Self {
        let profiles = profiles();
        let capacity = u32::from(SUBSCRIBERS);
        let banks = Arc::new(PiBanks::new(&profiles, 0, 1, capacity));
        let mut shard = Shard::new(ShardOptions {
            index: 0,
            shards: 1,
            capacity,
            buffers: 1 << 20,
            seed: 1,
            flow_seed: 1,
            profiles: Arc::clone(&profiles),
            banks: Arc::clone(&banks),
            ports: [PortShared::new(None)].into(),
            counters: Arc::<ShardCounters>::default(),
            ring_drops: Arc::new(RingDrops::new(capacity as usize)),
            parents: Arc::default(),
        });
        let spec = QueueSpec {
            rate,
            profile: profiles.index(DEFAULT_PROFILE).expect("it is always there"),
            direction: Direction::Down,
            egress_hint: PortId(0),
            kind: QueueKind::Subscriber,
            parent: None,
        };
        for id in (0..capacity).map(QueueId) {
            shard.apply(START, Change::Create { id, spec });
        }
        Self { shard, banks, now: START, out: Vec::with_capacity(BURST) }
    }

    fn packets(&self) -> Vec<Light> {
        let packet = |at: usize| {
            Light(Meta {
                queue_id: QueueId(subscriber(at).into()),
                arrival: Stamp::at(self.now),
                l3_bytes: BYTES,
                ip_offset: 30,
                ecn: if at.is_multiple_of(2) { Ecn::NotEct } else { Ecn::Ect1 },
                rule: Rule::None,
                egress: PortId(0),
            })
        };
        (0..PACKETS).map(packet).collect()
    }

    /// A round that is not measured: memory of the FIFOs, burst credit.
    fn warm(&mut self) {
        for packet in self.packets() {
            self.shard.enqueue(self.now, packet);
        }
        while self.shard.queued() > 0 {
            self.now += Nanos::from_micros(50);
            self.drain();
        }
        self.now += Nanos::from_millis(1);
    }

    fn drain(&mut self) {
        while self.shard.dequeue(self.now, PortId(0), &mut self.out, BURST) > 0 {
            self.out.clear();
        }
    }
}

#[inline(never)]
fn measured_enqueue(shard: &mut Shard<Light>, now: Nanos, packets: Vec<Light>) {
    let mut packets = packets.into_iter().peekable();
    while packets.peek().is_some() {
        let burst: [Option<Light>; BURST] = std::array::from_fn(|_| packets.next());
        burst.iter().flatten().for_each(|packet| shard.prefetch(packet.meta()));
        burst.into_iter().flatten().for_each(|packet| shard.enqueue(now, packet));
    }
}

fn enqueue() -> usize {
    let mut rig = Rig::new(FAST);
    rig.warm();
    let packets = rig.packets();
    measured_enqueue(&mut rig.shard, rig.now, packets);
    assert_eq!(rig.shard.queued(), PACKETS as u64, "all were taken");
    PACKETS
}

#[inline(never)]
fn measured_dequeue(rig: &mut Rig) {
    rig.drain();
}

fn dequeue() -> usize {
    let mut rig = Rig::new(FAST);
    rig.warm();
    for packet in rig.packets() {
        rig.shard.enqueue(rig.now, packet);
    }
    rig.now += Nanos::from_micros(200);
    measured_dequeue(&mut rig);
    assert_eq!(rig.shard.queued(), 0, "all were due");
    PACKETS
}

#[inline(never)]
fn measured_held(rig: &mut Rig, packets: Vec<Light>) {
    let mut packets = packets.into_iter().peekable();
    while packets.peek().is_some() {
        for packet in packets.by_ref().take(BURST) {
            rig.shard.enqueue(rig.now, packet);
        }
        rig.now += Nanos::from_micros(8);
        rig.drain();
    }
}

/// In and out in turn, nearly every packet in debt: what a packet costs from enqueue to departure.
fn held() -> usize {
    let mut rig = Rig::new(SLOW);
    rig.warm();
    for _ in 0..2 {
        let packets = rig.packets();
        rig.shard_round(packets);
    }
    let packets = rig.packets();
    measured_held(&mut rig, packets);
    PACKETS
}

impl Rig {
    /// A round like the measured one, to get into the state it leaves.
    fn shard_round(&mut self, packets: Vec<Light>) {
        for (at, packet) in packets.into_iter().enumerate() {
            self.shard.enqueue(self.now, packet);
            if at % BURST == BURST - 1 {
                self.now += Nanos::from_micros(8);
                self.drain();
            }
        }
    }
}

#[inline(never)]
fn measured_pi(banks: &PiBanks, now: Nanos) -> u32 {
    banks.update(0, now, &mut |_, _| ())
}

fn pi() -> usize {
    let mut rig = Rig::new(BitsPerSec(64_000));
    // more than two MTU for each stay
    for _ in 0..8 {
        let packets = rig.packets();
        rig.shard_round(packets);
    }
    let visited = measured_pi(&rig.banks, rig.now + Nanos::from_millis(16));
    assert_eq!(visited, u32::from(SUBSCRIBERS), "all wait");
    visited as usize
}
