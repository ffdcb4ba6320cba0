// SPDX-License-Identifier: Apache-2.0
//! Keys and lengths on their own, the writer over collisions and growth, and readers beside a busy writer.
//! Precedence against an oracle stands with the registry's tests, every interleaving in `tests/loom.rs`.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use proptest::prelude::*;

use super::classify::{Class, Classifier};
use super::key::{Family, Group, Key, Seed};
use super::program::{Fields, Program};
use super::*;
use crate::change::Direction;
use crate::packet::{PortId, QueueId};

fn v4(address: u32, length: u8) -> Key {
    Key::new(Group::Prefix).prefix(Family::V4, length, u128::from(address))
}

/// A downward IPv4 packet to `address`.
pub(crate) fn packet_to(address: u32) -> wire::Parsed {
    wire::Parsed { dst: u128::from(address), kind: wire::Kind::Ipv4, ..wire::parse(&[], 0) }
}

fn classify(reader: &Classifier, addresses: &[u32]) -> Vec<Class> {
    let parsed: Vec<_> = addresses.iter().map(|&address| packet_to(address)).collect();
    let mut classes = Vec::new();
    reader.classify(PortId(0), Direction::Down, &parsed, |_, class| classes.push(class));
    classes
}

const PEERS: [PortId; 2] = [PortId(1), PortId(0)];

#[test]
fn a_bucket_is_one_cache_line() {
    assert_eq!(size_of::<Bucket>(), 64);
    assert_eq!(align_of::<Bucket>(), 64);
}

#[test]
fn groups_are_numbered_in_the_order_of_precedence() {
    for (place, group) in Group::ALL.into_iter().enumerate() {
        assert_eq!(group as usize, place);
        assert_eq!(Key::new(group).group(), group);
    }
}

#[test]
fn every_part_of_a_key_tells_it_from_others() {
    let base = Key::new(Group::SessionMacInPair).session(7).mac([2, 0, 0, 0, 0, 1]).outer(100).inner(42);
    let others = [
        base.port(PortId(0)),
        base.port(PortId(255)),
        Key::new(Group::SessionMacInPair).session(8).mac([2, 0, 0, 0, 0, 1]).outer(100).inner(42),
        Key::new(Group::SessionMacInPair).session(7).mac([3, 0, 0, 0, 0, 1]).outer(100).inner(42),
        Key::new(Group::SessionMacInPair).session(7).mac([2, 0, 0, 0, 0, 1]).outer(101).inner(42),
        Key::new(Group::SessionMacInPair).session(7).mac([2, 0, 0, 0, 0, 1]).outer(100).inner(43),
        Key::new(Group::SessionMacInPair).session(7).mac([2, 0, 0, 0, 0, 1]).outer(42).inner(100),
        Key::new(Group::SessionMacInOuter).session(7).mac([2, 0, 0, 0, 0, 1]).outer(100).inner(42),
    ];
    let seed = Seed::new(1);
    for (place, other) in others.iter().enumerate() {
        assert_ne!(base, *other, "{place}");
        assert_ne!(seed.hash(&base), seed.hash(other), "{place}");
    }
    assert_eq!(base.port(PortId(3)).any_port(), base);
    assert!(base.port(PortId(0)).ported() && !base.ported());
}

#[test]
fn a_prefix_key_forgets_host_bits_at_every_length() {
    for length in 0..=128_u8 {
        let full = Key::new(Group::Prefix).prefix(Family::V6, length, u128::MAX);
        let network = if length == 0 { 0 } else { u128::MAX << (128 - u32::from(length)) };
        assert_eq!(full, Key::new(Group::Prefix).prefix(Family::V6, length, network));
        assert_eq!(full.prefix_length(), Some((Family::V6, length)));
        if length < 128 {
            assert_ne!(full, Key::new(Group::Prefix).prefix(Family::V6, length + 1, u128::MAX));
        }
    }
    for length in 0..=32 {
        assert_eq!(v4(u32::MAX, length).prefix_length(), Some((Family::V4, length)));
        assert_ne!(
            v4(0, length),
            Key::new(Group::Prefix).prefix(Family::V6, length, 0),
            "families are apart at length {length}"
        );
    }
}

#[test]
fn a_full_table_takes_a_new_one_and_readers_follow() {
    let mut writer = TableWriter::new(1, 1).unwrap();
    let reader = writer.reader(&PEERS);
    let mut all: Vec<(Key, u32)> = Vec::new();
    let mut rebuilds = 0;
    for address in 0..10_000_u32 {
        let key = v4(address, 32);
        all.push((key, address * 2));
        match writer.insert(&key, address * 2) {
            Ok(()) => {}
            Err(NoPlace::Full) => {
                writer.rebuild(&all.iter().copied()).unwrap();
                rebuilds += 1;
            }
            Err(NoPlace::Collision) => panic!("64-bit hashes of 10,000 keys do not collide"),
        }
    }
    assert!(rebuilds > 5, "{rebuilds}");
    assert_eq!(writer.len(), all.len());
    assert_eq!(writer.reap(), 0, "nobody holds a replaced table between bursts");
    let addresses: Vec<_> = (0..10_001).collect();
    let classes = classify(&reader, &addresses);
    for (address, class) in addresses.iter().zip(&classes).take(10_000) {
        assert_eq!(*class, Class::Subscriber(QueueId(address * 2)));
    }
    assert!(matches!(classes.last(), Some(Class::Unknown(UnknownKind::Ipv4))));
}

#[test]
fn the_table_fills_to_its_load_with_few_keys_away_from_home() {
    let mut writer = TableWriter::new(100_000, 7).unwrap();
    let room = writer.table.room();
    for address in 0..u32::try_from(room).unwrap() {
        writer.insert(&v4(address, 32), address).unwrap();
    }
    assert_eq!(writer.insert(&v4(u32::MAX, 32), 0), Err(NoPlace::Full));
    for address in 0..u32::try_from(room).unwrap() {
        assert_eq!(writer.get(&v4(address, 32)), Some(address));
    }
}

#[test]
fn buckets_hold_nearly_all_their_slots_by_moving_keys() {
    let buckets = Buckets::new((0..1024).map(|_| Bucket::empty()).collect::<Box<[_]>>());
    let seed = Seed::new(3);
    let mut held = Vec::new();
    for address in 0.. {
        let hash = seed.hash(&v4(address, 32));
        if buckets.put(hash, address) == Err(buckets::Full) {
            break;
        }
        held.push((hash, address));
    }
    assert!(held.len() * 100 > buckets.slots() * 95, "{} of {}", held.len(), buckets.slots());
    for &(hash, address) in &held {
        assert_eq!(buckets.get(hash), Some(address));
    }
    // half of them go, the rest stays
    let (gone, stay) = held.split_at(held.len() / 2);
    for &(hash, address) in gone {
        assert_eq!(buckets.remove(hash), Some(address));
        assert_eq!(buckets.remove(hash), None);
    }
    assert!(gone.iter().all(|&(hash, _)| buckets.get(hash).is_none()));
    assert!(stay.iter().all(|&(hash, address)| buckets.get(hash) == Some(address)));
}

#[test]
fn keys_that_collide_get_a_table_with_another_seed() {
    let mut writer = TableWriter::new(64, 1).unwrap();
    // twelve bits, in both halves, so that second buckets differ
    writer.shrink_hash(0x3f_0000_003f);
    let mut all: Vec<(Key, u32)> = Vec::new();
    let mut collisions = 0;
    for address in 0..100 {
        all.push((v4(address, 32), address));
        if let Err(no_place) = writer.insert(&v4(address, 32), address) {
            assert_eq!(no_place, NoPlace::Collision);
            collisions += 1;
            writer.rebuild(&all.iter().copied()).unwrap();
        }
        for (key, value) in &all {
            assert_eq!(writer.get(key), Some(*value));
        }
    }
    assert!(collisions > 0, "100 keys over 4,096 hashes");
}

#[test]
fn when_every_seed_collides_the_old_table_stays() {
    let mut writer = TableWriter::new(64, 1).unwrap();
    writer.shrink_hash(1);
    writer.insert(&v4(1, 32), 1).unwrap();
    let reader = writer.reader(&PEERS);
    let three = (1..=3).map(|address| (v4(address, 32), address));
    assert!(matches!(writer.rebuild(&three), Err(TableError::Collisions { keys: 3, tries: MAX_TRIES })));
    assert_eq!(writer.get(&v4(1, 32)), Some(1));
    assert_eq!(classify(&reader, &[1]), [Class::Subscriber(QueueId(1))]);
}

#[test]
fn a_burst_keeps_its_table_and_never_frees_it() {
    let mut writer = TableWriter::new(16, 1).unwrap();
    writer.insert(&v4(1, 32), 2).unwrap();
    let held = writer.shared.load();
    writer.rebuild(&[(v4(1, 32), 4)].into_iter()).unwrap();
    assert_eq!(writer.reap(), 1, "a reader is in its burst");
    assert_eq!(held.buckets.get(held.seed.hash(&v4(1, 32))), Some(2));
    drop(held);
    assert_eq!(writer.retired.len(), 1, "dropping the last reader's hold freed nothing");
    assert_eq!(writer.reap(), 0);
}

#[test]
fn a_reader_with_an_old_program_is_sent_back_when_its_prefix_has_made_way_for_another() {
    let mut writer = TableWriter::new(16, 1).unwrap();
    writer.insert(&v4(0x0a00_0000, 8), 2).unwrap();
    let old = writer.table.program.load_full();
    writer.insert(&v4(0x0a00_0001, 32), 2).unwrap();
    writer.turn();
    writer.remove(&v4(0x0a00_0000, 8));
    let new = writer.table.program.load_full();
    let lengths = |program: &Program| program.steps(wire::Kind::Ipv4).len();
    assert_eq!((lengths(&old), lengths(&new)), (1, 1), "the old program leads to no key any more");
    assert_ne!(old, new);
    assert_eq!(writer.table.generation.load(Relaxed), 1, "what sends that reader back");
    assert_eq!(writer.reap(), 1, "it holds the old program");
    drop(old);
    assert_eq!(writer.reap(), 0);
}

/// Tells readers to stop, also when the writer panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// What the stress writer does with keys that come and go.
fn churn(writer: &mut TableWriter, stay: &[(Key, u32)], rounds: u32) {
    let mut live = HashSet::new();
    let mut state = 0x1234_5678_u32;
    for round in 0..rounds {
        // xorshift32 (Marsaglia 2003)
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        let address = 0x0b00_0000 | state >> 12;
        let length = 24 + u8::try_from(state & 7).unwrap();
        let network = address >> (32 - length) << (32 - length);
        let key = v4(network, length);
        if live.remove(&key) {
            writer.remove(&key);
        } else {
            live.insert(key);
            if writer.insert(&key, round & !1).is_err() {
                // start over with the keys that stay: a table grown or shrunk under the readers
                live.clear();
                writer.rebuild(&stay.iter().copied()).unwrap();
            }
        }
    }
}

#[test]
fn readers_beside_a_busy_writer_find_every_key_that_stays() {
    let mut writer = TableWriter::new(600, 5).unwrap();
    let stay: Vec<_> = (0..500_u32).map(|number| (v4(0x0a00_0000 | number << 8, 24), number * 2)).collect();
    for (key, value) in &stay {
        writer.insert(key, *value).unwrap();
    }
    let reader = writer.reader(&PEERS);
    let stop = AtomicBool::new(false);
    let looked_up = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (reader, stop) = (reader.clone(), &stop);
                scope.spawn(move || {
                    let addresses: Vec<_> =
                        (0..500_u32).map(|number| 0x0a00_0000 | number << 8 | 1).collect();
                    let mut rounds = 0_u64;
                    while !stop.load(Relaxed) || rounds == 0 {
                        for (number, class) in (0..).zip(classify(&reader, &addresses)) {
                            assert_eq!(class, Class::Subscriber(QueueId(number * 2)), "round {rounds}");
                        }
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        let stopper = StopOnDrop(&stop);
        churn(&mut writer, &stay, 200_000);
        drop(stopper);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>()
    });
    assert!(looked_up >= 2);
    assert_eq!(writer.reap(), 0);
}

proptest! {
    #[test]
    fn a_packet_is_looked_up_by_each_length_in_use_longest_first(
        lengths in prop::collection::btree_set(0_u8..=128, 0..20),
        address in any::<u128>(),
    ) {
        let prefix = |length| Key::new(Group::Prefix).prefix(Family::V6, length, address);
        let mut writer = TableWriter::new(64, 1).unwrap();
        for &length in &lengths {
            writer.insert(&prefix(length), 0).unwrap();
        }
        let parsed = wire::Parsed { dst: address, kind: wire::Kind::Ipv6, ..wire::parse(&[], 0) };
        let fields = Fields::of(&parsed, Direction::Down, PortId(1));
        let program = writer.table.program.load_full();
        let keys: Vec<_> = program.steps(parsed.kind).iter().filter_map(|step| step.key(&fields)).collect();
        prop_assert_eq!(keys, lengths.iter().rev().map(|&length| prefix(length)).collect::<Vec<_>>());
        prop_assert_eq!(program.steps(wire::Kind::Ipv4).len(), 0);
        for &length in &lengths {
            writer.remove(&prefix(length));
        }
        prop_assert_eq!(&*writer.table.program.load_full(), &Program::default());
        drop(program);
        prop_assert_eq!(writer.reap(), 0);
    }

    #[test]
    fn the_writer_is_a_map(operations in prop::collection::vec((0_u32..200, 0_u8..4, any::<u32>()), 0..400)) {
        let mut writer = TableWriter::new(8, 1).unwrap();
        let mut oracle = HashMap::new();
        for (address, what, value) in operations {
            let key = v4(address, 32);
            let held = oracle.contains_key(&key);
            match what {
                0 if held => { writer.remove(&key); oracle.remove(&key); }
                1 if held => { writer.set(&key, value); oracle.insert(key, value); }
                _ if held => {}
                _ => {
                    oracle.insert(key, value);
                    if writer.insert(&key, value).is_err() {
                        let all: Vec<_> = oracle.iter().map(|(key, value)| (*key, *value)).collect();
                        writer.rebuild(&all.iter().copied()).unwrap();
                    }
                }
            }
            prop_assert_eq!(writer.len(), oracle.len());
        }
        for address in 0..200 {
            prop_assert_eq!(writer.get(&v4(address, 32)), oracle.get(&v4(address, 32)).copied());
        }
    }
}
