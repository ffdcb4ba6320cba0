// SPDX-License-Identifier: Apache-2.0
//! Sharing between tins, hosts and flows; marks by codepoint; collisions; random schedules.

use std::collections::BTreeSet;

use super::*;
use crate::FlowKey;
use crate::owner::{Owner, Random, random_schedule};

fn cake(config: CakeConfig) -> Cake {
    Cake::new(config).unwrap()
}

fn owner(config: CakeConfig, bps: u64) -> Owner<Cake> {
    Owner::new(cake(config), 100_000, bps)
}

fn diffserv4() -> CakeConfig {
    CakeConfig { tins: Tins::Diffserv4, ..CakeConfig::default() }
}

/// A flow between two hosts.
fn key(flow: u32, source: u32, destination: u32) -> FlowKey {
    let spread = |value: u32| Random(value.into()).hash();
    FlowKey {
        flow: spread(flow),
        source: spread(1_000 + source),
        destination: spread(2_000 + destination),
        dscp: 0,
    }
}

/// Bytes each of some flows gets while all of them always wait, and the rate is `bps`; the first fifth is not counted.
fn shares(owner: &mut Owner<Cake>, flows: &[(FlowKey, u32)], bps: u64, packets: u32) -> Vec<u64> {
    let mut now = Nanos::from_secs(1);
    let mut held = vec![0; flows.len()];
    let mut got = vec![0; flows.len()];
    for packet in 0..packets {
        for (at, &(key, bytes)) in flows.iter().enumerate() {
            while held[at] < 6 {
                owner.arrive(now, key, Ecn::Ect0, bytes);
                held[at] += 1;
            }
        }
        let (_, sent) = owner.serve(now).unwrap();
        for gone in owner.last_dropped.iter().chain([&sent]) {
            held[flows.iter().position(|(key, _)| *key == gone.key).unwrap()] -= 1;
        }
        if packet >= packets / 5 {
            got[flows.iter().position(|(key, _)| *key == sent.key).unwrap()] += u64::from(sent.bytes);
        }
        now += Pace::of(crate::BitsPerSec(bps)).time(sent.bytes.into());
    }
    for tin in &owner.qdisc.tins {
        tin.check(&owner.qdisc.backlogs);
    }
    got
}

/// Within a percent of its part of the whole, in 10,000ths.
fn assert_parts(got: &[u64], parts: &[u64]) {
    let total: u64 = got.iter().sum();
    for (got, part) in got.iter().zip(parts) {
        let got = got * 10_000 / total;
        assert!(got.abs_diff(*part) <= 100, "{got} for {part} of {parts:?}");
    }
}

#[test]
fn flows_of_different_packet_sizes_get_equal_bytes() {
    for host_fairness in [false, true] {
        for bps in [1_000_000, 20_000_000, 1_000_000_000] {
            let config = CakeConfig { host_fairness, ..CakeConfig::default() };
            let flows = [(key(1, 1, 1), 1514), (key(2, 2, 2), 200), (key(3, 3, 3), 700)];
            let got = shares(&mut owner(config, bps), &flows, bps, 30_000);
            assert_parts(&got, &[3_333, 3_333, 3_333]);
        }
    }
}

#[test]
fn one_flow_of_a_host_gets_as_much_as_eight_of_another() {
    let bps = 50_000_000;
    // by source, by destination, and without host fairness
    for (by_source, host_fairness) in [(true, true), (false, true), (true, false)] {
        let flows: Vec<(FlowKey, u32)> = (0..9)
            .map(|flow| {
                let (host, other) = (u32::from(flow > 0), 10 + flow);
                (if by_source { key(flow, host, other) } else { key(flow, other, host) }, 1500)
            })
            .collect();
        let config = CakeConfig { host_fairness, ..CakeConfig::default() };
        let got = shares(&mut owner(config, bps), &flows, bps, 60_000);
        if host_fairness {
            assert_parts(&got, &[5_000, 625, 625, 625, 625, 625, 625, 625, 625]);
        } else {
            assert_parts(&got, &[1_111; 9]);
        }
    }
}

#[test]
fn many_flows_of_a_host_get_no_more_together_at_any_rate() {
    for bps in [5_000_000, 1_000_000_000] {
        let flows: Vec<(FlowKey, u32)> =
            (0..151).map(|flow| (key(flow, u32::from(flow > 0), 10 + flow), 1500)).collect();
        let got = shares(&mut owner(CakeConfig::default(), bps), &flows, bps, 60_000);
        let (one, many) = (got[0], got[1..].iter().sum::<u64>());
        assert_parts(&[one, many], &[5_000, 5_000]);
    }
}

/// DSCPs of best effort, bulk (CS1), video (AF41) and voice (EF).
const DSCPS: [u8; 4] = [0, 8, 34, 46];

fn tin_shares(tins: &[usize], bps: u64) -> Vec<u64> {
    let flow = |&tin: &usize| (FlowKey { dscp: DSCPS[tin], ..key(u32::try_from(tin).unwrap(), 1, 1) }, 1500);
    let flows: Vec<(FlowKey, u32)> = tins.iter().map(flow).collect();
    shares(&mut owner(diffserv4(), bps), &flows, bps, 50_000)
}

#[test]
fn tins_share_the_rate_as_in_sch_cake() {
    for bps in [2_000_000, 100_000_000] {
        // a quarter, a half, a sixteenth, and the rest
        assert_parts(&tin_shares(&[0, 1, 2, 3], bps), &[1_875, 625, 5_000, 2_500]);
        assert_parts(&tin_shares(&[0, 1], bps), &[9_375, 625]);
        assert_parts(&tin_shares(&[0, 3], bps), &[7_500, 2_500]);
        // shares that do not fill the rate, in packet times by hand. Video is due 2 after it is served, voice 4: voice
        // goes every third time, when both are due in 1
        assert_parts(&tin_shares(&[2, 3], bps), &[6_667, 3_333]);
        // bulk is due 16 after it is served and voice always in 3: bulk goes when it is due in 2, after 14
        assert_parts(&tin_shares(&[1, 3], bps), &[714, 9_286]);
        assert_parts(&tin_shares(&[1], bps), &[10_000]);
    }
}

#[test]
fn a_tin_below_its_share_goes_first() {
    let mut owner = owner(diffserv4(), 12_000_000);
    let (bulk, voice) = (key(1, 1, 1), FlowKey { dscp: 46, ..key(2, 2, 2) });
    let mut now = Nanos::from_secs(1);
    let mut waits = Vec::new();
    for tick in 0..20_000_u32 {
        while owner.waiting < 50 {
            owner.arrive(now, bulk, Ecn::Ect0, 1500);
        }
        if tick % 20 == 0 {
            owner.arrive(now, voice, Ecn::NotEct, 200);
        }
        now += Nanos::from_millis(1);
        let (_, sent) = owner.serve(now).unwrap();
        if sent.key == voice {
            waits.push(now.since(sent.arrived));
        }
    }
    assert_eq!(waits.len(), 1_000);
    assert!(waits.iter().all(|wait| *wait == Nanos::from_millis(1)));
}

#[test]
fn a_sparse_flow_goes_before_bulk_flows_of_its_tin() {
    let mut owner = owner(CakeConfig::default(), 12_000_000);
    let mut now = Nanos::from_secs(1);
    let mut waits = Vec::new();
    for tick in 0..20_000_u32 {
        for flow in 0..3 {
            if owner.waiting < 50 {
                owner.arrive(now, key((tick + flow) % 3, 1, 1), Ecn::Ect0, 1500);
            }
        }
        if tick % 20 == 10 {
            owner.arrive(now, key(9, 1, 1), Ecn::NotEct, 200);
        }
        now += Nanos::from_millis(1);
        let (_, sent) = owner.serve(now).unwrap();
        if sent.key == key(9, 1, 1) {
            waits.push(now.since(sent.arrived));
        }
    }
    assert_eq!(waits.len(), 1_000);
    assert!(waits.iter().all(|wait| *wait == Nanos::from_millis(1)), "{waits:?}");
    assert!(owner.counts.marked > 100);
}

#[test]
fn the_map_of_codepoints_is_diffserv4() {
    let mut expected = [0; 64];
    for (tin, dscps) in [
        (1, &[1_usize, 8][..]),
        (2, &[4, 16, 18, 20, 22, 24, 26, 28, 30, 34, 36, 38]),
        (3, &[32, 40, 44, 46, 48, 56]),
    ] {
        for &dscp in dscps {
            expected[dscp] = tin;
        }
    }
    for dscp in 0..64_u8 {
        assert_eq!(Tins::Diffserv4.of(dscp), expected[usize::from(dscp)], "{dscp}");
        assert_eq!(Tins::BestEffort.of(dscp), 0);
        let mut owner = owner(diffserv4(), 1_000_000);
        let arrival = owner.arrive(Nanos::ZERO, FlowKey { dscp, ..key(1, 1, 1) }, Ecn::NotEct, 100);
        let Arrival::Queue(queue) = arrival else { panic!("{arrival:?}") };
        assert_eq!((queue / QUEUES) as usize, expected[usize::from(dscp)]);
    }
}

#[test]
fn a_hundred_flows_do_not_collide_where_plain_hashing_would() {
    let (mut plain, mut sets) = (0, 0);
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut owner = owner(CakeConfig::default(), 100_000_000);
        let mut queues = BTreeSet::new();
        let mut direct = BTreeSet::new();
        for _ in 0..100 {
            let flow = random.hash();
            let key = FlowKey { flow, ..FlowKey::default() };
            let Arrival::Queue(queue) = owner.arrive(Nanos::ZERO, key, Ecn::NotEct, 1500) else { panic!() };
            assert_eq!(owner.arrive(Nanos::ZERO, key, Ecn::NotEct, 1500), Arrival::Queue(queue));
            queues.insert(queue);
            direct.insert(flow % QUEUES);
        }
        plain += u32::from(direct.len() < 100);
        sets += u32::from(queues.len() < 100);
        assert_eq!(owner.qdisc.tins[0].collisions() > 0, queues.len() < 100);
    }
    assert!(plain > 190, "{plain} of 200");
    assert_eq!(sets, 0, "100 flows in 1024 queues of 8 ways");
}

#[test]
fn more_flows_than_queues_share_them() {
    let mut random = Random(3);
    let mut owner = owner(CakeConfig::default(), 100_000_000);
    for _ in 0..5_000 {
        let key = FlowKey { flow: random.hash(), source: random.hash(), destination: random.hash(), dscp: 0 };
        owner.arrive(Nanos::ZERO, key, Ecn::NotEct, 1500);
    }
    assert!(owner.qdisc.tins[0].collisions() > 3_900);
    assert!(owner.fifos.iter().all(|fifo| !fifo.is_empty()), "all are in use");
    owner.qdisc.tins[0].check(&owner.qdisc.backlogs);
    let mut now = Nanos::ZERO;
    while owner.serve(now).is_some() {
        now += Nanos::from_micros(120);
        if random.below(4) == 0 {
            let key = FlowKey { flow: random.hash(), source: random.hash(), destination: 0, dscp: 0 };
            owner.arrive(now, key, Ecn::NotEct, 1500);
        }
        if random.below(100) == 0 {
            owner.qdisc.tins[0].check(&owner.qdisc.backlogs);
        }
    }
}

/// Marks and drops of 2,000 packets of one codepoint that wait for 50 ms behind one another.
fn standing(ecn: Ecn) -> (u64, u64) {
    let mut owner = owner(CakeConfig::default(), 100_000_000);
    let mut now = Nanos::from_secs(1);
    for tick in 0..2_050 {
        owner.arrive(now, key(1, 1, 1), ecn, 1500);
        if tick >= 50 {
            owner.serve(now);
        }
        now += Nanos::from_millis(1);
    }
    (owner.counts.marked, owner.counts.dropped)
}

#[test]
fn the_ecn_table() {
    let (marked, dropped) = standing(Ecn::NotEct);
    assert!(marked == 0 && dropped > 20, "{marked}, {dropped}");
    for ecn in [Ecn::Ect0, Ecn::Ect1] {
        let (marked, dropped) = standing(ecn);
        assert!(marked > 100 && marked < 1_000 && dropped == 0, "{ecn:?}: {marked}, {dropped}");
    }
    assert_eq!(standing(Ecn::Ce), (0, 0), "it has its mark");
}

#[test]
fn an_unresponsive_flow_is_dropped_by_blue_whatever_its_codepoint_and_others_are_not() {
    for ecn in Ecn::ALL {
        let mut owner = Owner::new(cake(CakeConfig::default()), 500, 12_000_000);
        let (flood, polite) = (key(1, 1, 1), key(2, 2, 2));
        let mut now = Nanos::from_secs(1);
        let mut blue = 0;
        for tick in 0..20_000_u32 {
            for _ in 0..2 {
                owner.arrive(now, flood, ecn, 1500);
            }
            if tick % 4 == 0 {
                owner.arrive(now, polite, Ecn::NotEct, 1500);
            }
            assert!(owner.last_shed.iter().all(|(_, end, packet)| packet.key == flood && *end == End::Head));
            now += Nanos::from_millis(1);
            owner.serve(now);
            assert!(owner.last_dropped.iter().all(|packet| packet.key == flood));
            blue += owner.last_dropped.len();
        }
        assert!(blue > 100 && owner.counts.shed > 100, "{ecn:?}: {blue}, {}", owner.counts.shed);
    }
}

#[test]
fn the_last_packet_of_a_queue_is_not_dropped() {
    let mut owner = owner(CakeConfig::default(), 100_000_000);
    let mut now = Nanos::from_secs(1);
    for _ in 0..1_000 {
        owner.arrive(now, key(1, 1, 1), Ecn::NotEct, 1500);
        now += Nanos::from_millis(200);
        assert!(owner.serve(now).is_some());
    }
    assert_eq!(owner.counts.dropped, 0);
}

#[test]
fn the_quantum_is_a_4096th_of_a_second_within_its_limits() {
    // bytes of a flow's first turn: 300 at the least, 1514 at the most
    for (bps, quantum) in [(1_000_000, 300_u32), (20_000_000, 610), (1_000_000_000, 1514)] {
        let mut owner = owner(CakeConfig::default(), bps);
        for flow in [1, 2] {
            for _ in 0..40 {
                owner.arrive(Nanos::ZERO, key(flow, flow, flow), Ecn::NotEct, 50);
            }
        }
        let mut bytes = 0;
        while owner.serve(Nanos::ZERO).unwrap().1.key == key(1, 1, 1) {
            bytes += 50;
        }
        assert_eq!(bytes, quantum.next_multiple_of(50), "{bps}");
    }
}

#[test]
fn a_change_of_rate_is_taken_up_with_the_next_packet() {
    let mut owner = owner(CakeConfig::default(), 100_000_000);
    owner.arrive(Nanos::ZERO, key(1, 1, 1), Ecn::NotEct, 1500);
    owner.pace = Pace::of(crate::BitsPerSec(1_000_000));
    owner.arrive(Nanos::ZERO, key(1, 1, 1), Ecn::NotEct, 1500);
    assert_eq!(owner.qdisc.pace, owner.pace);
}

#[test]
fn random_schedules_lose_nothing_and_never_stall() {
    let (mut dropped, mut shed, mut marked) = (0, 0, 0);
    for seed in 0..200_u32 {
        let tins = if seed % 2 == 0 { Tins::BestEffort } else { Tins::Diffserv4 };
        let rtt = Nanos::from_micros(100 + 100 * u64::from(seed));
        let config = CakeConfig { tins, host_fairness: seed % 3 > 0, rtt, ..CakeConfig::default() };
        let counts = random_schedule(|| cake(config), seed);
        dropped += counts.dropped;
        shed += counts.shed;
        marked += counts.marked;
    }
    assert!(dropped > 1_000 && shed > 1_000 && marked > 1_000, "{dropped}, {shed}, {marked}");
}

#[test]
fn memory_and_limits() {
    let plain = CakeConfig { host_fairness: false, ..CakeConfig::default() };
    // 56 bytes a flow, 8 of backlog, 16 of hosts
    for (config, tins, flow) in [(plain, 1, 64), (CakeConfig::default(), 1, 80), (diffserv4(), 4, 80)] {
        let cake = cake(config);
        assert_eq!(cake.queues(), 1024 * tins);
        let flows = 1024 * flow * tins as usize;
        assert!(cake.memory() > flows && cake.memory() < flows + 1_200, "{}", cake.memory());
    }
    let good = CakeConfig::default();
    for bad in [CakeConfig { rtt: Nanos::ZERO, ..good }, CakeConfig { mtu: 0, ..good }] {
        assert!(matches!(Cake::new(bad), Err(ParamError::Range { .. })), "{bad:?}");
    }
}
