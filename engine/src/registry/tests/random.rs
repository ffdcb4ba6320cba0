// SPDX-License-Identifier: Apache-2.0
//! Random batches over a small world, where everything overlaps.

use std::collections::{BTreeMap, HashMap, HashSet};

use model::keys::{Edit, KeyIndex};
use model::subscriber::{MacAddr, Match, Pppoe, Vlan};
use proptest::prelude::*;
use wire::{Kind, NotIp, Parsed};

use super::*;
use crate::change::QueueSpec;
use crate::table::Classifier;

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Addresses within 10.0.0.0/28 and 2001:db8::/124, so that prefixes nest.
fn matches() -> impl Strategy<Value = Match> {
    let v4 = prop::collection::vec((0_u32..16, 26_u8..=32), 0..3);
    let v6 = prop::collection::vec((0_u128..16, 122_u8..=128), 0..2);
    let vlan = prop::option::weighted(0.5, (1_u16..3, prop::option::of(1_u16..3)));
    let pppoe = prop::option::weighted(0.3, (1_u16..3, prop::option::of(0_usize..2)));
    let port = prop::option::weighted(0.3, prop::sample::select(vec!["access", "access2"]));
    let parts = (v4, v6, vlan, pppoe, port);
    let matches = parts.prop_map(|(v4, v6, vlan, pppoe, port)| Match {
        ipv4: v4.into_iter().map(|(host, length)| ipv4(host, length)).collect(),
        ipv6: v6.into_iter().map(|(host, length)| ipv6(host, length)).collect(),
        vlan: vlan.map(|(outer, inner)| Vlan { outer, inner }),
        pppoe: pppoe.map(|(session, mac)| Pppoe { session, mac: mac.map(|mac| MacAddr(MACS[mac])) }),
        port: port.map(str::to_owned),
    });
    matches.prop_filter("a record matches somehow", |m| {
        !m.ipv4.is_empty() || !m.ipv6.is_empty() || m.vlan.is_some() || m.pppoe.is_some()
    })
}

fn ipv4(host: u32, length: u8) -> ipnet::Ipv4Net {
    ipnet::Ipv4Net::new((0x0a00_0000 | host).into(), length).unwrap().trunc()
}

fn ipv6(host: u128, length: u8) -> ipnet::Ipv6Net {
    ipnet::Ipv6Net::new((0x2001_0db8 << 96 | host).into(), length).unwrap().trunc()
}

#[derive(Clone, Debug)]
enum Step {
    Put { name: usize, rate: u64, gold: bool, matches: Match },
    Remove { name: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let put = (0_usize..12, 1_u64..3, any::<bool>(), matches());
    prop_oneof![
        3 => put.prop_map(|(name, rate, gold, matches)| Step::Put { name, rate, gold, matches }),
        1 => (0_usize..12).prop_map(|name| Step::Remove { name }),
    ]
}

fn packet() -> impl Strategy<Value = Parsed> {
    let addresses = (0_u8..5, 0_u32..16, 0_u32..16);
    let edge = (0_u8..4, [0_u16..3, 0_u16..3, 0_u16..3], prop::option::of(0_u16..3), 0_usize..2, 0_usize..2);
    (addresses, edge).prop_map(|((kind, src, dst), (vlan_count, vlans, pppoe_session, src_mac, dst_mac))| {
        let (kind, base) = match kind {
            0..2 => (Kind::Ipv4, 0x0a00_0000),
            2..4 => (Kind::Ipv6, 0x2001_0db8 << 96),
            _ => (Kind::NotIp(NotIp::Lldp), 0),
        };
        Parsed {
            kind,
            src: base | u128::from(src),
            dst: base | u128::from(dst),
            src_mac: MACS[src_mac],
            dst_mac: MACS[dst_mac],
            vlan_count: vlan_count.min(3),
            vlans,
            pppoe_session,
            ..wire::parse(&[], 0)
        }
    })
}

/// The registry with what must follow from it kept beside it.
struct World {
    registry: Registry,
    reader: Classifier,
    records: BTreeMap<String, Subscriber>,
    index: KeyIndex,
    /// Every id that some shard knows.
    shards: HashMap<QueueId, QueueSpec>,
    /// Removals not applied, with their tickets.
    leaving: Vec<Committed>,
    pairs: usize,
}

impl World {
    fn new(capacity: u32) -> Self {
        let (registry, reader) = Registry::new(options(3, capacity)).unwrap();
        let pairs = registry.free_pairs();
        Self {
            registry,
            reader,
            records: BTreeMap::new(),
            index: KeyIndex::default(),
            shards: HashMap::new(),
            leaving: Vec::new(),
            pairs,
        }
    }

    fn batch(&mut self, steps: &[Step]) {
        let records: Vec<_> = steps.iter().map(record).collect();
        let edits: Vec<_> = steps
            .iter()
            .zip(&records)
            .map(|(step, record)| match (step, record) {
                (Step::Put { .. }, Some(record)) => RecordEdit::Put(record),
                (Step::Remove { name } | Step::Put { name, .. }, _) => RecordEdit::Remove(NAMES[*name]),
            })
            .collect();
        let mut after = self.records.clone();
        for (step, record) in steps.iter().zip(&records) {
            let (Step::Put { name, .. } | Step::Remove { name }) = step;
            after.remove(NAMES[*name]);
            after.extend(record.iter().map(|record| (record.id.clone(), record.clone())));
        }
        let allowed = self.index_allows(&after);
        match self.registry.plan(&edits) {
            Ok(plan) => {
                assert!(allowed, "the registry took what the index of keys refuses");
                self.carry_out(plan, after);
            }
            Err(RegistryError::Conflict(conflict)) => assert!(!allowed, "{conflict}"),
            Err(RegistryError::Full { needed, free, .. }) => assert!(needed > free),
            Err(error) => panic!("{error}"),
        }
        self.check();
    }

    /// What `model` says about the records; takes them if it allows them and there is room.
    fn index_allows(&mut self, after: &BTreeMap<String, Subscriber>) -> bool {
        let names: HashSet<_> = self.records.keys().chain(after.keys()).collect();
        let edits: Vec<_> = names
            .into_iter()
            .map(|name| Edit { old: self.records.get(name), new: after.get(name) })
            .collect();
        self.index.check(&edits).is_ok()
    }

    fn carry_out(&mut self, plan: Plan, after: BTreeMap<String, Subscriber>) {
        for routed in plan.before() {
            self.apply(routed);
        }
        let committed = self.registry.commit(plan).unwrap();
        let names: HashSet<_> = self.records.keys().chain(after.keys()).cloned().collect();
        let edits: Vec<_> =
            names.iter().map(|name| Edit { old: self.records.get(name), new: after.get(name) }).collect();
        self.index.apply(&edits).unwrap();
        self.records = after;
        self.leaving.push(committed);
    }

    fn apply(&mut self, routed: &Routed) {
        match routed.change {
            Change::Create { id, spec } => {
                assert!(self.shards.insert(id, spec).is_none(), "{id:?} is in use");
            }
            Change::Update { id, spec } => {
                let old = self.shards.insert(id, spec).expect("an update of what exists");
                assert_ne!(old, spec, "an update changes something");
            }
            Change::Remove { id } => assert!(self.shards.remove(&id).is_some(), "{id:?} is not there"),
            Change::Parent { .. } | Change::RemoveParent { .. } => panic!("no aggregates here"),
        }
    }

    /// The oldest removals are applied and their ids released.
    fn let_go(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let committed = self.leaving.remove(0);
        for routed in &committed.after {
            self.apply(routed);
        }
        self.registry.release(committed.ticket);
    }

    fn check(&self) {
        let registry = &self.registry;
        assert_eq!(registry.len(), self.records.len());
        assert_eq!(
            registry.free_pairs() + registry.resting_pairs() + registry.len(),
            self.pairs,
            "pairs are conserved"
        );
        let mut keys = 0;
        for (name, record) in &self.records {
            let (down, up) = registry.ids(name).unwrap();
            assert_eq!(down.0 ^ up.0, 1);
            assert_eq!(self.shards[&down].rate.0, record.down_bps);
            assert_eq!(self.shards[&up].rate.0, record.up_bps);
            assert_eq!(registry.owner(down), Some((name.as_str(), Direction::Down)));
            keys += record.keys().collect::<HashSet<_>>().len();
        }
        assert_eq!(registry.keys(), keys);
        let leaving: usize = self.leaving.iter().map(|committed| committed.after.len()).sum();
        assert_eq!(self.shards.len(), self.records.len() * 2 + leaving);
        // nothing more to do
        let again: Vec<_> = self.records.values().map(RecordEdit::Put).collect();
        assert!(registry.plan(&again).unwrap().is_empty());
    }

    fn check_packets(&self, packets: &[Parsed]) {
        for direction in Direction::BOTH {
            for (core, access, name) in [(0, 1, "access"), (2, 3, "access2")] {
                let ingress = PortId(if direction == Direction::Down { core } else { access });
                self.reader.classify(ingress, direction, packets, |parsed, class| {
                    let found = match class {
                        Class::Subscriber(id) => {
                            let (owner, way) = self.registry.owner(id).unwrap();
                            assert_eq!(way, direction);
                            Some(owner)
                        }
                        Class::Unknown(_) => None,
                        other => panic!("{other:?}"),
                    };
                    let best = oracle::best(self.records.values(), parsed, direction, name);
                    assert_eq!(found, best, "{direction:?} {name} {parsed:?}\n{:#?}", self.records);
                });
            }
        }
    }
}

const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

fn record(step: &Step) -> Option<Subscriber> {
    match step {
        Step::Remove { .. } => None,
        Step::Put { name, rate, gold, matches } => Some(Subscriber {
            id: NAMES[*name].to_owned(),
            down_bps: rate * 1_000_000,
            up_bps: 1_000_000,
            profile: if *gold { "gold" } else { "default" }.to_owned(),
            parent: None,
            matches: matches.clone(),
        }),
    }
}

proptest! {
    #[test]
    fn batches_keep_ids_keys_and_shards_in_step(
        batches in prop::collection::vec((prop::collection::vec(step(), 1..5), any::<bool>()), 1..40),
        packets in prop::collection::vec(packet(), 40),
        capacity in prop::sample::select(vec![14_u32, 24, 64]),
    ) {
        let mut world = World::new(capacity);
        for (steps, let_go) in &batches {
            world.batch(steps);
            if *let_go {
                world.let_go();
                world.check();
            }
        }
        world.check_packets(&packets);
        while !world.leaving.is_empty() {
            world.let_go();
        }
        world.check();
        prop_assert_eq!(world.registry.resting_pairs(), 0);
    }

    #[test]
    fn the_best_match_wins_whatever_else_overlaps(
        steps in prop::collection::vec(step(), 1..60),
        packets in prop::collection::vec(packet(), 100),
    ) {
        let mut world = World::new(64);
        for step in &steps {
            world.batch(std::slice::from_ref(step));
        }
        world.check_packets(&packets);
    }
}
