// SPDX-License-Identifier: Apache-2.0
//! The four cases of a full FIFO with figures by hand, a loss-based sender against it, and random schedules.

use super::*;
use crate::owner::{Owner, random_schedule};
use crate::{Ecn, FlowKey};

fn one_queue() -> Owner<Cocoa> {
    let fq = FqConfig { flows: 1, ..FqConfig::default() };
    let cocoa = Cocoa::new(CocoaConfig { fq, ..CocoaConfig::default() }).unwrap();
    Owner::new(cocoa, 10_000, 100_000_000)
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn fill(owner: &mut Owner<Cocoa>, now: Nanos, packets: u32) {
    for packet in 0..packets {
        let arrival = owner.arrive(now, FlowKey::default(), Ecn::NotEct, 1500);
        assert_eq!(arrival, Arrival::Queue(0), "packet {packet} of {packets}");
    }
}

fn refused(owner: &mut Owner<Cocoa>, now: Nanos) {
    assert_eq!(owner.arrive(now, FlowKey::default(), Ecn::NotEct, 1500), Arrival::Drop(Cause::Limit));
}

fn serve(owner: &mut Owner<Cocoa>, now: Nanos, packets: u32) {
    for _ in 0..packets {
        owner.serve(now).unwrap();
    }
}

#[test]
fn the_four_cases_of_a_full_queue() {
    let mut owner = one_queue();
    fill(&mut owner, ms(0), 100);
    // case 2: no guard interval yet; it is the bound of 1 s, not 1.25 s
    refused(&mut owner, ms(1_000));
    assert_eq!(owner.qdisc.flows[0].guard, Some(ms(2_000)));
    // case 1: 100 packets in 500 ms and 200 ms of idleness are 40 packets more
    serve(&mut owner, ms(1_500), 100);
    fill(&mut owner, ms(1_700), 100);
    fill(&mut owner, ms(1_700), 1);
    assert_eq!(owner.qdisc.limit(0), Some(140));
    // case 2 again: it was enlarged; 1.25 times 700 ms
    fill(&mut owner, ms(1_700), 39);
    refused(&mut owner, ms(1_700));
    assert_eq!(owner.qdisc.flows[0].guard, Some(ms(2_575)));
    // case 4: never idle, 110 and then 90 always waited; the longer interval is remembered
    serve(&mut owner, ms(1_900), 30);
    fill(&mut owner, ms(1_950), 30);
    refused(&mut owner, ms(2_000));
    serve(&mut owner, ms(2_100), 50);
    fill(&mut owner, ms(2_150), 50);
    refused(&mut owner, ms(2_200));
    assert_eq!(owner.qdisc.flows[0].longest, (ms(300), 110));
    // case 3: the guard interval is over and this interval the longest; 130 always waited
    serve(&mut owner, ms(2_600), 10);
    fill(&mut owner, ms(2_650), 10);
    refused(&mut owner, ms(2_700));
    assert_eq!(owner.qdisc.limit(0), Some(10));
    assert_eq!((owner.last_shed.len(), owner.waiting), (130, 10));
    assert!(owner.last_shed.iter().all(|(_, end, _)| *end == End::Tail));
    assert_eq!(owner.qdisc.flows[0].guard, Some(ms(2_700 + 625)));
}

#[test]
fn an_enlargement_at_most_doubles() {
    let mut owner = one_queue();
    fill(&mut owner, ms(0), 100);
    refused(&mut owner, ms(1_000));
    serve(&mut owner, ms(1_001), 100);
    // 100 packets in 1 ms: 50,000 in the 500 ms of idleness
    fill(&mut owner, ms(1_501), 101);
    assert_eq!(owner.qdisc.limit(0), Some(200));
}

#[test]
fn a_limit_never_falls_below_one_packet_and_an_interval_without_departures_shrinks_nothing() {
    let mut owner = one_queue();
    fill(&mut owner, ms(0), 100);
    refused(&mut owner, ms(1));
    refused(&mut owner, ms(1_000));
    assert_eq!(owner.qdisc.limit(0), Some(100));
    for round in 2..40_u64 {
        // a queue that never shrinks but for one packet
        serve(&mut owner, ms(1_000 * round), 1);
        while owner.arrive(ms(1_000 * round), FlowKey::default(), Ecn::NotEct, 1500) == Arrival::Queue(0) {}
        let limit = owner.qdisc.limit(0).unwrap();
        assert!(limit >= 1 && owner.waiting <= limit as usize + 1, "{limit}, {}", owner.waiting);
    }
}

#[test]
fn a_flow_is_forgotten_after_ten_seconds_without_a_packet() {
    let mut owner = one_queue();
    fill(&mut owner, ms(0), 100);
    refused(&mut owner, ms(1_000));
    serve(&mut owner, ms(1_500), 100);
    fill(&mut owner, ms(1_700), 101);
    serve(&mut owner, ms(1_800), 101);
    fill(&mut owner, ms(11_800), 1);
    assert_eq!(owner.qdisc.limit(0), Some(140));
    serve(&mut owner, ms(11_900), 1);
    fill(&mut owner, ms(21_901), 1);
    assert_eq!(owner.qdisc.limit(0), Some(100));
}

/// A sender that adds a packet to its window each round trip and halves it at a loss, over a link that takes a packet a
/// millisecond after `rtt_ms`. Busy share of the second half in percent, and the mean queue of its second half.
#[expect(clippy::cast_precision_loss, reason = "a few hundred packets")]
fn aimd(owner: &mut Owner<Cocoa>, rtt_ms: u64) -> (u64, u64) {
    let (mut window, mut flying, mut halved) = (10.0, 0_u64, 0_u64);
    let mut returns = std::collections::VecDeque::new();
    let (mut busy, mut queued) = (0, 0);
    let ticks = 400_000;
    for tick in 0..ticks {
        while returns.front().is_some_and(|&at| at <= tick) {
            returns.pop_front();
            flying -= 1;
            window += 1.0 / window;
        }
        while (flying as f64) < window {
            if matches!(owner.arrive(ms(tick), FlowKey::default(), Ecn::NotEct, 1500), Arrival::Queue(_)) {
                flying += 1;
            } else {
                if tick >= halved {
                    window = (window / 2.0_f64).max(2.0);
                    halved = tick + rtt_ms + owner.waiting as u64;
                }
                flying -= owner.last_shed.len() as u64;
                break;
            }
        }
        let sent = owner.serve(ms(tick)).is_some();
        if sent {
            returns.push_back(tick + rtt_ms);
        }
        if tick > ticks / 2 {
            busy += u64::from(sent);
            queued += owner.waiting as u64;
        }
    }
    (busy * 100 / (ticks / 2), queued / (ticks / 2))
}

#[test]
fn a_loss_based_flow_gets_the_queue_it_needs_and_little_more() {
    // a bandwidth-delay product of 300 packets: 100 packets of queue are too few for halving, 300 just enough
    let (busy, _) = aimd(&mut one_queue(), 300);
    assert!(busy >= 95, "{busy} %");
    // one of 20 packets: 100 packets would always be half full
    let mut owner = one_queue();
    let (busy, queued) = aimd(&mut owner, 20);
    assert!(busy >= 95 && queued <= 40, "{busy} %, {queued} packets");
}

#[test]
fn every_codepoint_is_treated_alike_and_none_is_marked() {
    let mut results = Vec::new();
    for ecn in Ecn::ALL {
        let mut owner = one_queue();
        for tick in 0..20_000_u64 {
            owner.arrive(ms(tick), FlowKey::default(), ecn, 1500);
            if tick % 2 == 0 {
                owner.serve(ms(tick));
            }
        }
        assert_eq!((owner.counts.marked, owner.counts.dropped), (0, 0));
        results.push(owner.counts);
    }
    assert!(results.iter().all(|counts| *counts == results[0]) && results[0].refused > 0);
}

#[test]
fn random_schedules_lose_nothing_and_never_stall() {
    let (mut refused, mut shed) = (0, 0);
    for seed in 0..300 {
        let fq = FqConfig { flows: 1 + seed % 20, quantum: 1514, flow_limit_packets: 10 };
        let config = CocoaConfig { fq, max_guard: Nanos(1 << (10 + seed % 20)), ..CocoaConfig::default() };
        let counts = random_schedule(|| Cocoa::new(config).unwrap(), seed);
        refused += counts.refused;
        shed += counts.shed;
    }
    assert!(refused > 1_000 && shed > 100, "{refused}, {shed}");
}

#[test]
fn memory_and_limits() {
    let cocoa = Cocoa::new(CocoaConfig::default()).unwrap();
    assert_eq!(cocoa.memory(), size_of::<Cocoa>() + 1024 * (16 + size_of::<Flow>()));
    assert!(size_of::<Flow>() <= 88);
    let good = CocoaConfig::default();
    for bad in [
        CocoaConfig { guard_multiplier: 0.99, ..good },
        CocoaConfig { guard_multiplier: 100.5, ..good },
        CocoaConfig { max_increase: f64::NAN, ..good },
        CocoaConfig { max_increase: f64::INFINITY, ..good },
        CocoaConfig { max_guard: Nanos::ZERO, ..good },
    ] {
        assert!(matches!(Cocoa::new(bad), Err(ParamError::Range { .. })), "{bad:?}");
    }
}
