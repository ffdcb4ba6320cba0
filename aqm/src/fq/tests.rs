// SPDX-License-Identifier: Apache-2.0
//! Limits, sharing, and random schedules.

use super::*;
use crate::owner::{Owner, Random, random_schedule};
use crate::{Ecn, FlowKey};

fn key(flow: u32) -> FlowKey {
    // spread over the queues whatever their number
    FlowKey { flow: flow.wrapping_mul(0x9e37_79b9), ..FlowKey::default() }
}

fn small() -> FqConfig {
    FqConfig { flows: 16, quantum: 1514, flow_limit_packets: 10 }
}

#[test]
fn a_flow_is_cut_at_its_limit_from_the_tail() {
    let mut owner = Owner::new(Fq::new(small()).unwrap(), 1000, 10_000_000);
    for _ in 0..10 {
        assert!(matches!(owner.arrive(Nanos::ZERO, key(1), Ecn::Ect0, 1500), Arrival::Queue(_)));
    }
    assert_eq!(owner.arrive(Nanos::ZERO, key(1), Ecn::Ect0, 1500), Arrival::Drop(Cause::Limit));
    assert!(matches!(owner.arrive(Nanos::ZERO, key(2), Ecn::Ect0, 1500), Arrival::Queue(_)));
    let mut numbers = Vec::new();
    while let Some((_, packet)) = owner.serve(Nanos::ZERO) {
        numbers.push(packet.number);
    }
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11]);
}

#[test]
fn over_the_owners_limit_the_longest_flow_loses_its_tail() {
    let mut owner =
        Owner::new(Fq::new(FqConfig { flow_limit_packets: 1000, ..small() }).unwrap(), 50, 10_000_000);
    for _ in 0..50 {
        owner.arrive(Nanos::ZERO, key(1), Ecn::NotEct, 1500);
    }
    for _ in 0..20 {
        let (long, short) = (owner.qdisc.drr.queue_of(key(1).flow), owner.qdisc.drr.queue_of(key(2).flow));
        owner.arrive(Nanos::ZERO, key(2), Ecn::NotEct, 1500);
        assert_eq!(owner.last_shed.len(), 1);
        let (queue, end, packet) = owner.last_shed[0];
        assert_eq!((queue, end), (long, End::Tail));
        assert!(packet.number < 50 && short != long);
    }
}

#[test]
fn under_overload_each_of_unequal_flows_gets_its_share_of_the_limit() {
    let mut owner =
        Owner::new(Fq::new(FqConfig { flow_limit_packets: 1000, ..small() }).unwrap(), 300, 10_000_000);
    let mut random = Random(1);
    let mut sent = [0_u64; 3];
    for _ in 0..60_000 {
        // one flow sends eight times as much as each of the others, all of them more than their share
        let flow = if random.below(10) < 8 { 0 } else { 1 + random.below(2) };
        owner.arrive(Nanos::ZERO, key(flow), Ecn::NotEct, 1000);
        if random.below(10) == 0 {
            let (_, packet) = owner.serve(Nanos::ZERO).unwrap();
            sent[(0..3).position(|flow| key(flow) == packet.key).unwrap()] += 1;
        }
    }
    let mean = sent.iter().sum::<u64>() / 3;
    assert!(sent.iter().all(|&sent| sent.abs_diff(mean) <= mean / 50), "{sent:?}");
    let held: Vec<usize> =
        owner.fifos.iter().map(std::collections::VecDeque::len).filter(|&n| n > 0).collect();
    assert!(held.iter().all(|&held| held.abs_diff(100) <= 64), "{held:?}");
}

#[test]
fn every_codepoint_passes_untouched() {
    for ecn in Ecn::ALL {
        let mut owner = Owner::new(Fq::new(small()).unwrap(), 100, 10_000_000);
        for _ in 0..10 {
            owner.arrive(Nanos::ZERO, key(1), ecn, 1500);
        }
        while let Some((_, packet)) = owner.serve(Nanos::from_secs(10)) {
            assert_eq!(packet.ecn, ecn);
        }
        assert_eq!((owner.counts.sent, owner.counts.marked, owner.counts.dropped), (10, 0, 0));
    }
}

#[test]
fn random_schedules_lose_nothing_and_never_stall() {
    let mut refused = 0;
    for seed in 0..300 {
        let config = FqConfig { flows: 1 + seed % 20, ..small() };
        refused += random_schedule(|| Fq::new(config).unwrap(), seed).refused;
    }
    assert!(refused > 1000, "limits are reached: {refused}");
}

#[test]
fn memory_is_that_of_its_arrays() {
    let fq = Fq::new(FqConfig::default()).unwrap();
    assert_eq!(fq.queues(), 1024);
    assert_eq!(fq.memory(), size_of::<Fq>() + 1024 * 16);
}

#[test]
fn values_outside_their_limits_are_refused() {
    let good = FqConfig::default();
    for bad in [
        FqConfig { flows: 0, ..good },
        FqConfig { flows: crate::MAX_FLOWS + 1, ..good },
        FqConfig { quantum: 255, ..good },
        FqConfig { flow_limit_packets: 0, ..good },
    ] {
        assert!(matches!(Fq::new(bad), Err(ParamError::Range { .. })), "{bad:?}");
    }
}
