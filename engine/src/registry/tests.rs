// SPDX-License-Identifier: Apache-2.0
//! What operators do, then random batches against a model of the shards and an oracle of precedence.

mod oracle;
mod random;

use std::collections::BTreeMap;

use model::Subscriber;
use model::profile::Profile;
use serde_json::json;

use super::*;
use crate::table::{Class, UnknownKind};

/// Two core and two access ports: 0 - 1 and 2 - 3.
fn options(shards: u32, capacity: u32) -> RegistryOptions {
    let port = |name: &str, role, peer| RegistryPort {
        name: name.to_owned(),
        role,
        peer: PortId(peer),
        rate: Some(BitsPerSec(10_000_000_000)),
    };
    let profiles: BTreeMap<_, _> =
        ["default", "gold"].map(|name| (name.to_owned(), Profile::default())).into_iter().collect();
    RegistryOptions {
        shards,
        capacity,
        ports: vec![
            port("core", Role::Core, 1),
            port("access", Role::Access, 0),
            port("core2", Role::Core, 3),
            port("access2", Role::Access, 2),
        ],
        profiles: Arc::new(Profiles::new(&profiles).unwrap()),
        unknown_bps: None,
        seed: 1,
    }
}

fn subscriber(id: &str, down_bps: u64, matches: &serde_json::Value) -> Subscriber {
    let record = json!({"id": id, "down_bps": down_bps, "up_bps": 1_000_000, "match": matches});
    Subscriber::from_value(&record).unwrap()
}

fn changes(routed: &[Routed]) -> Vec<Change> {
    routed.iter().map(|routed| routed.change).collect()
}

/// Plans and carries out one record.
fn put(registry: &mut Registry, subscriber: &Subscriber) -> Vec<Change> {
    let plan = registry.upsert(subscriber).unwrap();
    let before = changes(plan.before());
    let committed = registry.commit(plan).unwrap();
    assert_eq!(committed.after, []);
    before
}

fn to(address: &str) -> wire::Parsed {
    let address: std::net::Ipv4Addr = address.parse().unwrap();
    wire::Parsed { dst: u128::from(u32::from(address)), kind: wire::Kind::Ipv4, ..wire::parse(&[], 0) }
}

const UNKNOWN: Class = Class::Unknown(UnknownKind::Ipv4);

#[test]
fn a_new_subscriber_is_created_in_both_directions_before_its_keys_are_found() {
    let (mut registry, reader) = Registry::new(options(2, 100)).unwrap();
    let plan = registry.upsert(&subscriber("a", 10_000_000, &json!({"ipv4": ["10.0.0.1/32"]}))).unwrap();
    assert_eq!(reader.classify_one(PortId(0), Direction::Down, &to("10.0.0.1")), UNKNOWN);
    let [
        Routed { shard: s0, change: Change::Create { id: down, spec } },
        Routed { shard: s1, change: Change::Create { id: up, spec: up_spec } },
    ] = plan.before()
    else {
        panic!("{:?}", plan.before())
    };
    assert_eq!((spec.direction, up_spec.direction), (Direction::Down, Direction::Up));
    assert_eq!((spec.rate, up_spec.rate), (BitsPerSec(10_000_000), BitsPerSec(1_000_000)));
    assert_eq!((spec.egress_hint, up_spec.egress_hint), (PortId(1), PortId(0)));
    assert_eq!((*s0, *s1), (down.0 as usize % 2, up.0 as usize % 2));
    let (down, up) = (*down, *up);
    registry.commit(plan).unwrap();
    assert_eq!(registry.ids("a"), Some((down, up)));
    assert_eq!(registry.owner(up), Some(("a", Direction::Up)));
    assert_eq!(reader.classify_one(PortId(0), Direction::Down, &to("10.0.0.1")), Class::Subscriber(down));
    let from = wire::Parsed { src: to("10.0.0.1").dst, dst: 0, ..to("10.0.0.1") };
    assert_eq!(reader.classify_one(PortId(1), Direction::Up, &from), Class::Subscriber(up));
}

#[test]
fn putting_the_same_record_again_plans_nothing() {
    let (mut registry, _) = Registry::new(options(2, 100)).unwrap();
    let record = subscriber("a", 10_000_000, &json!({"ipv4": ["10.0.0.1/32"], "vlan": {"outer": 5}}));
    assert_eq!(put(&mut registry, &record).len(), 2);
    let plan = registry.upsert(&record).unwrap();
    assert!(plan.is_empty() && plan.before().is_empty());
    assert!(registry.remove("nobody").unwrap().is_empty());
}

#[test]
fn a_rate_change_updates_that_direction_only_and_keeps_the_ids() {
    let (mut registry, _) = Registry::new(options(2, 100)).unwrap();
    let matches = json!({"ipv4": ["10.0.0.1/32"]});
    put(&mut registry, &subscriber("a", 10_000_000, &matches));
    let ids = registry.ids("a").unwrap();
    let changes = put(&mut registry, &subscriber("a", 20_000_000, &matches));
    assert!(matches!(changes[..], [Change::Update { id, spec }]
        if id == ids.0 && spec.rate == BitsPerSec(20_000_000)));
    assert_eq!(registry.ids("a"), Some(ids));
}

#[test]
fn a_change_of_prefixes_sends_the_shards_nothing() {
    let (mut registry, reader) = Registry::new(options(2, 100)).unwrap();
    put(&mut registry, &subscriber("a", 10_000_000, &json!({"ipv4": ["10.0.0.1/32", "10.0.0.2/32"]})));
    let (down, _) = registry.ids("a").unwrap();
    let next = subscriber("a", 10_000_000, &json!({"ipv4": ["10.0.0.2/32", "10.0.1.0/24"]}));
    assert_eq!(put(&mut registry, &next), []);
    let found = ["10.0.0.1", "10.0.0.2", "10.0.1.77"]
        .map(|address| reader.classify_one(PortId(0), Direction::Down, &to(address)));
    assert_eq!(found, [UNKNOWN, Class::Subscriber(down), Class::Subscriber(down)]);
}

#[test]
fn ids_of_a_removed_subscriber_come_back_only_when_released() {
    // ports take 8, one pair is left
    let (mut registry, reader) = Registry::new(options(1, 10)).unwrap();
    let record = |id: &str, address: &str| subscriber(id, 1_000_000, &json!({"ipv4": [address]}));
    put(&mut registry, &record("a", "10.0.0.1/32"));
    let ids = registry.ids("a").unwrap();
    let plan = registry.remove("a").unwrap();
    assert_eq!(plan.before(), []);
    assert_eq!(registry.pairs(), 1);
    assert!(!registry.fits(&[RecordEdit::Put(&record("b", "10.0.0.2/32"))]));
    assert!(matches!(registry.upsert(&record("b", "10.0.0.2/32")), Err(RegistryError::Full { .. })));
    let committed = registry.commit(plan).unwrap();
    assert_eq!(changes(&committed.after), [Change::Remove { id: ids.0 }, Change::Remove { id: ids.1 }]);
    assert_eq!(reader.classify_one(PortId(0), Direction::Down, &to("10.0.0.1")), UNKNOWN);
    assert_eq!((registry.ids("a"), registry.owner(ids.0)), (None, None));
    let full = registry.upsert(&record("b", "10.0.0.2/32")).unwrap_err();
    assert_eq!(
        full.to_string(),
        "1 new subscribers need 1 pairs of queue ids, but 0 are free of the 1 there are (1 come back when the \
         shards have let go of them)"
    );
    // but it will have room, which is what tells a caller to wait
    assert!(registry.fits(&[RecordEdit::Put(&record("b", "10.0.0.2/32"))]));
    registry.release(committed.ticket);
    put(&mut registry, &record("b", "10.0.0.2/32"));
    assert_eq!(registry.ids("b"), Some(ids));
}

#[test]
fn a_batch_fits_by_what_it_leaves_behind() {
    // ports take 8, three pairs are left
    let (mut registry, _) = Registry::new(options(1, 14)).unwrap();
    let record =
        |n: u8| subscriber(&format!("s{n}"), 1_000_000, &json!({"ipv4": [format!("10.0.0.{n}/32")]}));
    let records: Vec<_> = (0..7).map(record).collect();
    (0..3).for_each(|n| drop(put(&mut registry, &records[n])));
    let put = |n: usize| RecordEdit::Put(&records[n]);
    let all_new = [
        RecordEdit::Remove("s0"),
        RecordEdit::Remove("s1"),
        RecordEdit::Remove("s2"),
        put(3),
        put(4),
        put(5),
    ];
    // known records take no room, unknown removals give none
    for (edits, fits) in [
        (&all_new[..], true),
        (&[put(0), put(1), put(2)], true),
        (&[put(3)], false),
        (&[RecordEdit::Remove("nobody"), put(3)], false),
        (&[RecordEdit::Remove("s0"), put(1), put(3)], true),
        (&[RecordEdit::Remove("s0"), put(3), put(4)], false),
    ] {
        assert_eq!(registry.fits(edits), fits, "{edits:?}");
    }
    // what fits and cannot be planned at once goes in two steps
    assert!(matches!(registry.plan(&all_new), Err(RegistryError::Full { needed: 3, free: 0, .. })));
    let first = registry.plan(&all_new[..3]).unwrap();
    let committed = registry.commit(first).unwrap();
    assert!(matches!(registry.plan(&all_new[3..]), Err(RegistryError::Full { resting: 3, .. })));
    registry.release(committed.ticket);
    let second = registry.plan(&all_new[3..]).unwrap();
    registry.commit(second).unwrap();
    assert_eq!((registry.len(), registry.pairs()), (3, 3));
}

#[test]
fn a_key_passes_from_one_record_to_another_within_a_batch() {
    let (mut registry, reader) = Registry::new(options(2, 100)).unwrap();
    let matches = json!({"ipv4": ["10.0.0.1/32"]});
    put(&mut registry, &subscriber("old", 1_000_000, &matches));
    let new = subscriber("new", 1_000_000, &matches);
    let conflict = registry.upsert(&new).unwrap_err();
    assert_eq!(conflict.to_string(), "prefix 10.0.0.1/32 of \"new\" is already claimed by \"old\"");
    assert_eq!(conflict.id(), Some("new"));
    let plan = registry.plan(&[RecordEdit::Put(&new), RecordEdit::Remove("old")]).unwrap();
    registry.commit(plan).unwrap();
    let (down, _) = registry.ids("new").unwrap();
    assert_eq!(reader.classify_one(PortId(0), Direction::Down, &to("10.0.0.1")), Class::Subscriber(down));
    assert_eq!((registry.len(), registry.keys()), (1, 1));
}

#[test]
fn a_key_with_and_without_a_port_is_one_key_and_ports_are_apart() {
    let (mut registry, reader) = Registry::new(options(2, 100)).unwrap();
    let on = |id: &str, port: Option<&str>| {
        subscriber(id, 1_000_000, &json!({"ipv4": ["10.0.0.1/32"], "port": port}))
    };
    put(&mut registry, &on("a", Some("access")));
    assert!(matches!(registry.upsert(&on("b", None)), Err(RegistryError::Conflict(_))));
    put(&mut registry, &on("b", Some("access2")));
    let ids = ["a", "b"].map(|name| registry.ids(name).unwrap());
    // down: the access port is the one the packet leaves by
    for (ingress, (down, up)) in [PortId(0), PortId(2)].into_iter().zip(ids) {
        assert_eq!(reader.classify_one(ingress, Direction::Down, &to("10.0.0.1")), Class::Subscriber(down));
        let from = wire::Parsed { src: to("10.0.0.1").dst, ..to("0.0.0.0") };
        let access = PortId(ingress.0 + 1);
        assert_eq!(reader.classify_one(access, Direction::Up, &from), Class::Subscriber(up));
    }
}

#[test]
fn errors_name_the_subscriber_and_the_value_and_change_nothing() {
    let (mut registry, _) = Registry::new(options(2, 100)).unwrap();
    put(&mut registry, &subscriber("a", 1_000_000, &json!({"ipv4": ["10.0.0.1/32"]})));
    let mut record = subscriber("b", 1_000_000, &json!({"ipv4": ["10.0.0.2/32"], "port": "core"}));
    let error = registry.upsert(&record).unwrap_err();
    assert_eq!(
        error.to_string(),
        "subscriber \"b\" is limited to port \"core\", which is not an access port of this configuration"
    );
    record.matches.port = None;
    record.profile = "silver".to_owned();
    let error = registry.upsert(&record).unwrap_err();
    assert_eq!(error.to_string(), "subscriber \"b\" asks for profile \"silver\", which does not exist");
    assert_eq!((registry.len(), registry.keys(), registry.free_pairs()), (1, 1, 100 / 2 - 4 - 1));
}

#[test]
fn a_plan_older_than_the_last_commit_is_refused() {
    let (mut registry, _) = Registry::new(options(2, 100)).unwrap();
    let first = registry.upsert(&subscriber("a", 1_000_000, &json!({"ipv4": ["10.0.0.1/32"]}))).unwrap();
    let second = registry.upsert(&subscriber("b", 1_000_000, &json!({"ipv4": ["10.0.0.1/32"]}))).unwrap();
    registry.commit(first).unwrap();
    assert!(matches!(registry.commit(second), Err(RegistryError::Stale { plan: 0, commits: 1 })));
    assert_eq!((registry.ids("b"), registry.len()), (None, 1));
}

#[test]
fn keys_whose_hashes_collide_get_another_seed_and_where_none_helps_the_old_state_stays() {
    let host = |number: u8| {
        let prefix = format!("10.0.0.{number}/32");
        subscriber(&format!("s{number}"), 1_000_000, &json!({"ipv4": [prefix]}))
    };
    let (mut registry, reader) = Registry::new(options(2, 400)).unwrap();
    registry.table.shrink_hash(0x3f_0000_003f);
    for number in 1..=100 {
        put(&mut registry, &host(number));
        for held in 1..=number {
            let (down, _) = registry.ids(&format!("s{held}")).unwrap();
            let class = reader.classify_one(PortId(0), Direction::Down, &to(&format!("10.0.0.{held}")));
            assert_eq!(class, Class::Subscriber(down));
        }
    }

    let (mut registry, reader) = Registry::new(options(2, 400)).unwrap();
    registry.table.shrink_hash(1);
    put(&mut registry, &host(1));
    let (one, free) = (registry.ids("s1").unwrap().0, registry.free_pairs());
    let three = [host(2), host(3), host(4)];
    let plan = registry.plan(&three.each_ref().map(RecordEdit::Put)).unwrap();
    let error = registry.commit(plan).unwrap_err();
    assert_eq!(error.to_string(), "4 subscriber keys collide under each of 16 seeds");
    assert_eq!((registry.len(), registry.keys(), registry.free_pairs()), (1, 1, free));
    assert_eq!(reader.classify_one(PortId(0), Direction::Down, &to("10.0.0.1")), Class::Subscriber(one));
}

#[test]
fn reserved_ids_are_apart_from_each_other_and_from_subscribers() {
    let (mut registry, _) =
        Registry::new(RegistryOptions { unknown_bps: Some(5_000_000), ..options(3, 20) }).unwrap();
    put(&mut registry, &subscriber("a", 1_000_000, &json!({"ipv4": ["10.0.0.1/32"]})));
    let mut all: Vec<_> =
        (0..4).map(|port| registry.reserved(PortId(port))).flat_map(|r| [r.unknown, r.control]).collect();
    let (down, up) = registry.ids("a").unwrap();
    all.extend([down, up]);
    let creations = registry.create_reserved();
    for routed in &creations {
        let Change::Create { id, spec } = routed.change else { panic!("{routed:?}") };
        assert_eq!(routed.shard, id.0 as usize % 3);
        let reserved = registry.reserved(spec.egress_hint);
        let (rate, reserved) = match spec.kind {
            QueueKind::Unknown => (5_000_000, reserved.unknown),
            // from the port
            QueueKind::Control => (0, reserved.control),
            QueueKind::Subscriber => panic!("{spec:?}"),
        };
        assert_eq!((spec.rate, id), (BitsPerSec(rate), reserved));
        let way = if spec.egress_hint.0 % 2 == 1 { Direction::Down } else { Direction::Up };
        assert_eq!(spec.direction, way, "what leaves by an access port goes down");
    }
    assert_eq!(creations.len(), 8);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 10);
}

#[test]
fn options_that_contradict_themselves_are_refused_in_words() {
    let text = |options| Registry::new(options).unwrap_err().to_string();
    assert_eq!(text(options(0, 100)), "there must be at least one shard");
    assert_eq!(text(options(1, 7)), "4 ports need 8 queue ids of 7");
    let mut lone = options(1, 100);
    lone.ports.truncate(1);
    assert_eq!(text(lone), "peer 1 of port \"core\" is none of the 1 ports");
}

#[test]
fn down_ids_spread_evenly_over_any_number_of_shards() {
    for shards in 1..=8_u32 {
        let (mut registry, _) = Registry::new(options(shards, 2_000)).unwrap();
        let records: Vec<_> = (0..840)
            .map(|number| {
                let prefix = format!("10.0.{}.{}/32", number / 256, number % 256);
                subscriber(&format!("s{number}"), 1_000_000, &json!({"ipv4": [prefix]}))
            })
            .collect();
        let edits: Vec<_> = records.iter().map(RecordEdit::Put).collect();
        let plan = registry.plan(&edits).unwrap();
        registry.commit(plan).unwrap();
        let mut load = vec![0_i32; shards as usize];
        for (_, down, up) in registry.subscribers() {
            assert_eq!(down.0 ^ up.0, 1);
            load[registry.shard(down)] += 1;
        }
        let (least, most) = (load.iter().min().unwrap(), load.iter().max().unwrap());
        assert!(most - least <= 2, "{shards} shards: {load:?}");
    }
}

fn aggregate(id: &str, above: Option<&str>, down_bps: u64) -> model::Parent {
    model::Parent { id: id.into(), parent: above.map(str::to_owned), down_bps, up_bps: 1_000_000 }
}

#[test]
fn aggregates_go_to_every_shard_before_those_below_them() {
    let (mut registry, _) = Registry::new(options(2, 100)).unwrap();
    let (pon, site) = (aggregate("pon", Some("site"), 5_000_000), aggregate("site", None, 9_000_000));
    let below = Subscriber {
        parent: Some("pon".into()),
        ..subscriber("a", 1_000_000, &json!({"ipv4": ["10.0.0.1/32"]}))
    };
    let unknown = registry.plan(&[RecordEdit::Put(&below)]).unwrap_err();
    assert_eq!((unknown.id(), unknown.to_string().contains("\"pon\"")), (Some("a"), true));
    let edits = [RecordEdit::Put(&below), RecordEdit::PutParent(&pon), RecordEdit::PutParent(&site)];
    let plan = registry.plan(&edits).unwrap();
    let kinds: Vec<_> = plan
        .before()
        .iter()
        .map(|routed| match routed.change {
            Change::Parent { spec, .. } => (routed.shard, spec.rates[0].0),
            Change::Create { .. } => (9, 9),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, [(0, 9_000_000), (1, 9_000_000), (0, 5_000_000), (1, 5_000_000), (9, 9), (9, 9)]);
    registry.commit(plan).unwrap();
    assert!(registry.plan(&edits).unwrap().is_empty(), "the same again is nothing");
    assert_eq!(registry.parents(), 2);
    // nothing can stand below what goes, nor above itself
    let gone = [RecordEdit::RemoveParent("pon"), RecordEdit::Put(&below)];
    assert!(matches!(registry.plan(&gone), Err(RegistryError::UnknownParent { .. })));
    let turned = aggregate("site", Some("pon"), 9_000_000);
    assert!(matches!(
        registry.plan(&[RecordEdit::PutParent(&turned)]),
        Err(RegistryError::DeepParent { .. })
    ));
    // the two change places in one batch, each shard told in an order that never makes a loop
    let top = aggregate("pon", None, 5_000_000);
    let plan = registry.plan(&[RecordEdit::PutParent(&turned), RecordEdit::PutParent(&top)]).unwrap();
    let order = changes(plan.before()).into_iter().map(|change| match change {
        Change::Parent { id, .. } => id,
        other => panic!("{other:?}"),
    });
    let (pon, site) = (registry.parent("pon").unwrap(), registry.parent("site").unwrap());
    assert_eq!(order.collect::<Vec<_>>(), [pon, pon, site, site]);
}

fn commit(registry: &mut Registry, edit: RecordEdit<'_>) -> Committed {
    let plan = registry.plan(&[edit]).unwrap();
    registry.commit(plan).unwrap()
}

#[test]
fn numbers_of_removed_aggregates_come_back_when_released() {
    let (mut registry, _) = Registry::new(options(2, 100)).unwrap();
    commit(&mut registry, RecordEdit::PutParent(&aggregate("a", None, 1_000_000)));
    let first = registry.parent("a").unwrap();
    let gone = commit(&mut registry, RecordEdit::RemoveParent("a"));
    assert_eq!(changes(&gone.after), [Change::RemoveParent { id: first }; 2]);
    assert_eq!(registry.present(Change::RemoveParent { id: first }), Change::RemoveParent { id: first });
    commit(&mut registry, RecordEdit::PutParent(&aggregate("b", None, 1_000_000)));
    assert_ne!(registry.parent("b"), Some(first), "it is at rest");
    registry.release(gone.ticket);
    commit(&mut registry, RecordEdit::PutParent(&aggregate("c", None, 1_000_000)));
    assert_eq!(registry.parent("c"), Some(first));
}

#[test]
fn children_of_a_root_share_a_shard_in_each_direction_while_they_fit() {
    for shards in [1, 2, 3, 4] {
        // 4 ports and 60 pairs
        let (mut registry, _) = Registry::new(options(shards, 128)).unwrap();
        let parents = [aggregate("x", None, 1_000_000), aggregate("y", Some("x"), 1_000_000)];
        let mut edits: Vec<_> = parents.iter().map(RecordEdit::PutParent).collect();
        let records: Vec<_> = (0..60)
            .map(|n| Subscriber {
                parent: (n % 3 != 2).then(|| if n % 3 == 0 { "x".into() } else { "y".into() }),
                ..subscriber(&format!("{n:02}"), 1_000_000, &json!({"vlan": {"outer": n + 1}}))
            })
            .collect();
        edits.extend(records.iter().take(20).map(RecordEdit::Put));
        let plan = registry.plan(&edits).unwrap();
        registry.commit(plan).unwrap();
        for record in &records[20..] {
            put(&mut registry, record);
        }
        let below: Vec<_> = records.iter().filter(|record| record.parent.is_some()).collect();
        let place = |record: &&Subscriber| {
            let (down, up) = registry.ids(&record.id).unwrap();
            (registry.shard(down), registry.shard(up))
        };
        let home = place(&below[0]);
        let at_home = below.iter().filter(|record| place(record) == home).count();
        // a shard's part of 60 pairs, less what stands there without a parent
        let fit = 60 / shards as usize;
        assert!(
            at_home <= fit.max(40) && at_home >= (fit * 2 / 3).min(40),
            "{shards} shards: {at_home} of 40"
        );
        assert_eq!(registry.free_pairs(), 0, "all the same all pairs are used");
    }
}
