// SPDX-License-Identifier: Apache-2.0
//! The shaper in virtual time: one shard, its PI banks and the table, driven by the capture's timestamps.
//!
//! Of events at one moment PI ticks come first, then departures of what waits, then the arrival, which may leave at
//! once. Virtual time begins at one second with the first packet, so that timestamps of any epoch will do; a packet
//! stamped before its predecessor arrives with it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use aqm::{BitsPerSec, Nanos, Stamp};
use engine::{
    Class, Classifier, Direction, DscpRules, Meta, PiBanks, PortId, PortShared, Profiles, QueueId,
    QueueSnapshot, Registry, RegistryOptions, RegistryPort, Reserved, RingDrops, Shard, ShardCounters,
    ShardOptions,
};
use model::Config;
use model::config::{Role, Unknown};
use model::stats::{DirectionStats, ParentDirectionStats};
use serde_json::{Map, Value, json};
use wire::{Kind, Parsed};

use super::frame::Frame;
use crate::pcap::Record;

/// When the first packet arrives.
const START: Nanos = Nanos::from_secs(1);
/// Packets taken out in one call.
const BURST: usize = 64;
/// Buffers where the configuration names no number: more than the byte limits let queues hold.
const BUFFERS: u32 = 1 << 30;
/// PI ticks that an idle time counts at most; at the default gains p' falls from 1 to 0 in 417.
const IDLE_TICKS: u64 = 1 << 16;
/// One call makes up for so many of them (`PiBank::MAX_LATE_TICKS`).
const TICKS_AT_ONCE: u64 = 8;
/// What cannot leave although it is due is asked again after this long.
const RETRY: Nanos = Nanos(64);

/// Takes a frame that leaves, with the time since the epoch at which its transmission starts.
type Sink<'a> = dyn FnMut(Nanos, &Frame) -> io::Result<()> + 'a;

/// The shaper.
pub(super) struct Machine {
    shard: Shard<Frame>,
    banks: Arc<PiBanks>,
    registry: Registry,
    classifier: Classifier,
    rules: DscpRules,
    unknown: Unknown,
    direction: Direction,
    ingress: PortId,
    egress: PortId,
    reserved: Reserved,
    now: Nanos,
    /// The epoch's time at virtual time zero, once a packet has come; may lie before the epoch.
    epoch: Option<i128>,
    /// Nothing can leave before.
    hold: Nanos,
    outgoing: Vec<Frame>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    packets_in: u64,
    packets_out: u64,
    bad: BTreeMap<&'static str, u64>,
    unclassified: BTreeMap<&'static str, u64>,
    dropped_unknown: u64,
}

/// Ports as the engine wants them: those of the configuration, or a pair where it has none.
fn ports(config: &Config) -> Vec<RegistryPort> {
    let port = |name: &str, role, peer: usize, rate: Option<u64>| RegistryPort {
        name: name.to_owned(),
        role,
        // ports are at most 64
        peer: PortId(u8::try_from(peer).unwrap_or(u8::MAX)),
        rate: rate.map(BitsPerSec),
    };
    if config.ports.is_empty() {
        return vec![port("core", Role::Core, 1, None), port("access", Role::Access, 0, None)];
    }
    config.ports.iter().map(|p| port(&p.name, p.role, p.peer, p.rate_bps)).collect()
}

/// The port packets of a direction come in by.
fn ingress(ports: &[RegistryPort], direction: Direction, name: Option<&str>) -> anyhow::Result<PortId> {
    let (role, word) = match direction {
        Direction::Down => (Role::Core, "core"),
        Direction::Up => (Role::Access, "access"),
    };
    let mut numbered = ports.iter().zip(0..);
    let found = numbered.find(|(port, _)| port.role == role && name.is_none_or(|name| port.name == name));
    match (found, name) {
        (Some((_, number)), _) => Ok(PortId(number)),
        (None, Some(name)) => bail!("--port {name}: the configuration has no {word} port of that name"),
        (None, None) => bail!("the configuration has no {word} port for --direction {}", direction.label()),
    }
}

impl Machine {
    /// Builds it and lets all subscribers in.
    pub(super) fn new(config: &Config, direction: Direction, port: Option<&str>) -> anyhow::Result<Self> {
        let ports = ports(config);
        let ingress = ingress(&ports, direction, port)?;
        let egress = ports.get(usize::from(ingress.0)).map(|port| port.peer).unwrap_or_default();
        let profiles = Arc::new(Profiles::new(&config.profiles)?);
        let ids = 2 * (ports.len() + config.subscribers.len());
        let capacity = u32::try_from(ids).context("too many subscribers")?;
        let lines: Arc<[PortShared]> = ports.iter().map(|port| PortShared::new(port.rate)).collect();
        let (mut registry, classifier) = Registry::new(RegistryOptions {
            shards: 1,
            capacity,
            ports,
            profiles: Arc::clone(&profiles),
            unknown_bps: config.classify.unknown_bps,
            seed: config.dataplane.seed,
        })?;
        let banks = Arc::new(PiBanks::new(&profiles, 0, 1, capacity));
        let mut shard = Shard::new(ShardOptions {
            index: 0,
            shards: 1,
            capacity,
            buffers: config.dataplane.buffers.unwrap_or(BUFFERS),
            seed: config.dataplane.seed,
            flow_seed: config.dataplane.seed,
            profiles,
            banks: Arc::clone(&banks),
            ports: lines,
            counters: Arc::new(ShardCounters::default()),
            ring_drops: Arc::new(RingDrops::new(usize::try_from(capacity).unwrap_or(usize::MAX))),
            parents: Arc::default(),
        });
        admit(&mut registry, &mut shard, config)?;
        Ok(Self {
            shard,
            banks,
            classifier,
            rules: DscpRules::new(&config.classify.rules),
            unknown: config.classify.unknown,
            direction,
            ingress,
            egress,
            reserved: registry.reserved(egress),
            registry,
            now: START,
            epoch: None,
            hold: Nanos::ZERO,
            outgoing: Vec::with_capacity(BURST),
            counts: Counts::default(),
        })
    }

    /// A packet of the capture arrives.
    pub(super) fn arrive(&mut self, record: Record, sink: &mut Sink<'_>) -> io::Result<()> {
        self.counts.packets_in += 1;
        let stamped = i128::from(record.at.0);
        let epoch = *self.epoch.get_or_insert(stamped - i128::from(START.0));
        let at = Nanos(u64::try_from(stamped - epoch).unwrap_or(0)).max(self.now);
        self.run_until(at, sink)?;
        self.now = at;
        if let Some(frame) = self.classify(record) {
            self.shard.enqueue(at, frame);
            self.depart(sink)?;
        }
        Ok(())
    }

    /// Parses a frame and decides whose it is; `None` where it goes nowhere, and is counted.
    fn classify(&mut self, record: Record) -> Option<Frame> {
        // A file may claim more captured than there was on the wire.
        let captured = u32::try_from(record.data.len()).unwrap_or(u32::MAX);
        let frame_bytes = record.frame_bytes.max(captured);
        let parsed = wire::parse(&record.data, frame_bytes);
        let queue_id = match self.classifier.classify_one(self.ingress, self.direction, &parsed) {
            Class::Subscriber(id) => id,
            Class::Control => {
                let label = if let Kind::Control(what) = parsed.kind { what.label() } else { "control" };
                *self.counts.unclassified.entry(label).or_default() += 1;
                self.reserved.control
            }
            Class::Unknown(kind) => {
                *self.counts.unclassified.entry(kind.label()).or_default() += 1;
                if self.unknown == Unknown::Drop {
                    self.counts.dropped_unknown += 1;
                    return None;
                }
                self.reserved.unknown
            }
            Class::Bad(why) => {
                *self.counts.bad.entry(why.label()).or_default() += 1;
                return None;
            }
        };
        Some(Frame { meta: self.meta(queue_id, &parsed), data: record.data, wire_bytes: frame_bytes })
    }

    fn meta(&self, queue_id: QueueId, parsed: &Parsed) -> Meta {
        let (ecn, rule) = self.rules.label(parsed);
        Meta {
            queue_id,
            arrival: Stamp::at(self.now),
            l3_bytes: parsed.l3_bytes,
            ip_offset: parsed.ip_offset,
            ecn,
            rule,
            egress: self.egress,
        }
    }

    /// Everything that happens up to `end`, that moment included.
    fn run_until(&mut self, end: Nanos, sink: &mut Sink<'_>) -> io::Result<()> {
        while self.shard.queued() > 0 {
            let next = self.next_departure().min(self.next_tick());
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            self.tick();
            self.depart(sink)?;
        }
        if self.shard.queued() == 0 {
            self.rest(end);
        }
        Ok(())
    }

    fn next_departure(&self) -> Nanos {
        self.shard.next_event(self.egress).map_or(Nanos::MAX, |at| at.max(self.hold))
    }

    fn next_tick(&self) -> Nanos {
        (0..self.banks.len()).map(|bank| self.banks.due(bank).max(START)).min().unwrap_or(Nanos::MAX)
    }

    /// PI ticks that are due now.
    fn tick(&mut self) {
        for bank in 0..self.banks.len() {
            if self.banks.due(bank).max(START) <= self.now {
                self.banks.update(bank, self.now, &mut |_, _| {});
            }
        }
    }

    /// PI ticks while nothing waits, several at once.
    fn rest(&mut self, end: Nanos) {
        for bank in 0..self.banks.len() {
            let tupdate = self.banks.tupdate(bank).0.max(1);
            for _ in 0..IDLE_TICKS / TICKS_AT_ONCE {
                let due = self.banks.due(bank).max(START);
                if due > end {
                    break;
                }
                let more = (end.since(due).0 / tupdate).min(TICKS_AT_ONCE - 1);
                self.banks.update(bank, due + Nanos(more * tupdate), &mut |_, _| {});
            }
            // Of a longer rest only the moment of the last tick is kept.
            let due = self.banks.due(bank).max(START);
            if due <= end {
                let whole = end.since(due).0 / tupdate * tupdate;
                self.banks.update(bank, due + Nanos(whole), &mut |_, _| {});
            }
        }
    }

    /// Whatever may leave now.
    fn depart(&mut self, sink: &mut Sink<'_>) -> io::Result<()> {
        loop {
            let before = self.shard.queued();
            let sent = self.shard.dequeue(self.now, self.egress, &mut self.outgoing, BURST);
            let at = self.epoch_time();
            for frame in self.outgoing.drain(..) {
                sink(at, &frame)?;
                self.counts.packets_out += 1;
            }
            let more_is_due = self.shard.queued() > 0 && self.next_departure() <= self.now;
            if !more_is_due {
                return Ok(());
            }
            if sent == 0 && self.shard.queued() == before {
                self.hold = self.now + RETRY;
                return Ok(());
            }
        }
    }

    fn epoch_time(&self) -> Nanos {
        let at = self.epoch.unwrap_or(0) + i128::from(self.now.0);
        Nanos(u64::try_from(at).unwrap_or(u64::MAX))
    }

    /// The capture is over: lets out what waits.
    pub(super) fn drain(&mut self, sink: &mut Sink<'_>) -> io::Result<()> {
        while self.shard.queued() > 0 && self.next_departure() < Nanos::MAX {
            self.run_until(self.next_departure(), sink)?;
        }
        Ok(())
    }

    /// The counts, if they agree with each other.
    pub(super) fn report(&mut self) -> anyhow::Result<Value> {
        let key = self.direction.label();
        let names: Vec<(String, QueueId)> = self
            .registry
            .subscribers()
            .map(|(name, down, up)| {
                (name.to_owned(), if self.direction == Direction::Down { down } else { up })
            })
            .collect();
        let mut subscribers = Map::new();
        let mut dropped = 0;
        for (name, id) in names {
            let (stats, lost) = self.stats(id)?;
            dropped += lost;
            subscribers.insert(name, json!({ key: stats }));
        }
        let parents = self.parents()?;
        let (unknown, lost_unknown) = self.stats(self.reserved.unknown)?;
        let (control, lost_control) = self.stats(self.reserved.control)?;
        dropped += lost_unknown + lost_control;
        let c = &self.counts;
        let bad: u64 = c.bad.values().sum();
        ensure!(
            c.packets_in == c.packets_out + bad + c.dropped_unknown + dropped && self.shard.queued() == 0,
            "the counts do not agree: {} in, {} out, {bad} bad, {} unknown and {dropped} dropped, {} waiting",
            c.packets_in,
            c.packets_out,
            c.dropped_unknown,
            self.shard.queued(),
        );
        Ok(json!({
            "packets_in": c.packets_in,
            "packets_out": c.packets_out,
            "bad": c.bad,
            "unclassified": c.unclassified,
            "unclassified_dropped": c.dropped_unknown,
            "unknown": { key: unknown },
            "control": { key: control },
            "subscribers": subscribers,
            "parents": parents,
        }))
    }

    /// What went through each aggregate, with the queues of all below it in sum.
    fn parents(&mut self) -> anyhow::Result<Map<String, Value>> {
        let way = usize::from(self.direction != Direction::Down);
        let nobody = DirectionStats::from(&QueueSnapshot::default());
        let mut all = BTreeMap::new();
        for one in self.registry.aggregates() {
            let part = self.shard.parent(one.id).unwrap_or_default().parts[way];
            let stats = ParentDirectionStats {
                l4s: Some(nobody.l4s.clone()),
                classic: Some(nobody.classic.clone()),
                ..ParentDirectionStats::from(&part)
            };
            all.insert(one.id, (one.name.to_owned(), one.spec.parent, stats));
        }
        let below: Vec<_> = self.registry.subscribers().map(|(_, down, up)| [down, up]).collect();
        for ids in below {
            let (mut at, stats) = (self.registry.above(ids[0]), self.stats(ids[way])?.0);
            while let Some((_, above, sums)) = at.and_then(|at| all.get_mut(&at)) {
                sums.add_below(&stats);
                at = *above;
            }
        }
        let key = self.direction.label();
        Ok(all.into_values().map(|(name, _, stats)| (name, json!({ key: stats }))).collect())
    }

    /// A queue id's statistics and how many packets it dropped.
    fn stats(&mut self, id: QueueId) -> anyhow::Result<(DirectionStats, u64)> {
        let snapshot = self.shard.snapshot(id).with_context(|| format!("queue id {} is gone", id.0))?;
        ensure!(snapshot.conserves(), "queue id {} does not account for all its packets", id.0);
        let dropped = snapshot.l4s.counters.dropped_packets() + snapshot.classic.counters.dropped_packets();
        Ok((DirectionStats::from(&snapshot), dropped))
    }
}

/// Creates aggregates, the queue ids of ports and subscribers, then the keys that lead to them.
fn admit(registry: &mut Registry, shard: &mut Shard<Frame>, config: &Config) -> anyhow::Result<()> {
    for routed in registry.create_reserved() {
        shard.apply(START, routed.change);
    }
    let parents = config.parents.iter().map(engine::RecordEdit::PutParent);
    let subscribers = config.subscribers.iter().map(engine::RecordEdit::Put);
    let edits: Vec<_> = parents.chain(subscribers).collect();
    let plan = registry.plan(&edits)?;
    for routed in plan.before() {
        shard.apply(START, routed.change);
    }
    registry.commit(plan)?;
    Ok(())
}
