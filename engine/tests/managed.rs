// SPDX-License-Identifier: Apache-2.0
//! Managed disciplines under their owner: order, limits, changes under load, drops of the last packet, ECN switches.

mod common;

use std::collections::BTreeMap;

use aqm::{Ecn, Nanos};
use common::{
    CODEL, CODEL_SHORT, DUALPI2, FIFO, FQ, FQ_CODEL, MANAGED, Offer, PIE, PROTECTED, Rig, Setup, TestPacket,
    profiles,
};
use engine::{DropReason, PortId, QueueId};

fn rig_with(bps: u64, profile: u16) -> Rig {
    let mut rig = Rig::new(&Setup::default());
    rig.create(0, bps, profile);
    rig
}

/// A packet of one of `flows` flows, and of every codepoint in turn.
fn mixed(n: u32, flows: u32) -> Offer {
    let ecn = Ecn::from_bits(n.to_le_bytes()[0]);
    Offer { ecn, flow: n.wrapping_mul(7) % flows, ..Offer::new(0, 1_500) }
}

/// Twice the rate for `steps` of 10 ms at 10 Mb/s; `each` sees what leaves.
fn overload(rig: &mut Rig, steps: u32, mut each: impl FnMut(Nanos, &TestPacket)) {
    for step in 0..steps {
        for n in 0..17 {
            rig.offer(mixed(step * 17 + n, 12));
        }
        let end = rig.now + Nanos::from_millis(10);
        rig.run_events(end, &mut each);
        rig.check_conservation();
    }
}

fn drain(rig: &mut Rig) {
    let end = rig.now + Nanos::from_secs(100);
    rig.run_events(end, |_, _| ());
    assert_eq!(rig.queued(), 0, "nothing is left behind");
    rig.check_conservation();
    rig.check_ids(1);
}

#[test]
fn every_discipline_keeps_the_rate_the_limit_and_the_order_of_each_flow() {
    for profile in MANAGED {
        let mut rig = rig_with(10_000_000, profile);
        let (mut last, mut bytes, start) = (BTreeMap::new(), 0_u64, rig.now);
        overload(&mut rig, 300, |_, packet| {
            bytes += 1_538;
            let earlier = last.insert(packet.flow, packet.serial);
            assert!(earlier.is_none_or(|serial| serial < packet.serial), "profile {profile}: out of order");
        });
        let rate = bytes * 8 * 1_000_000_000 / rig.now.since(start).0;
        // three packets do not last from one burst to the next
        let floor = if profile == CODEL_SHORT { 3_000_000 } else { 9_500_000 };
        assert!((floor..10_050_000).contains(&rate), "profile {profile}: {rate} b/s");
        let snapshot = rig.shards[0].snapshot(QueueId(0)).expect("live");
        assert!(snapshot.classic.queued * 1_538 <= 312_500, "profile {profile}: over its limit");
        assert!(snapshot.classic.counters.dropped_packets() > 0, "profile {profile}");
        assert_eq!(snapshot.l4s.counters.arrived_packets(), 0, "all is counted in classic");
        drain(&mut rig);
    }
}

#[test]
fn a_full_queue_drops_what_comes_and_keeps_what_waits() {
    let mut rig = rig_with(10_000_000, CODEL_SHORT);
    for _ in 0..20 {
        rig.offer(Offer::new(0, 100));
    }
    assert_eq!((rig.queued(), rig.dropped(DropReason::Tail)), (3, 17));
    let mut serials = Vec::new();
    let end = rig.now + Nanos::from_secs(1);
    rig.run_events(end, |_, packet| serials.push(packet.serial));
    assert_eq!(serials, [1, 2, 3], "tail drop");
}

#[test]
fn a_flow_of_too_many_packets_costs_the_others_none() {
    // 250 ms at 10 Mb/s hold 203 packets; flow 1 may have 100 of them
    let mut rig = rig_with(10_000_000, FQ);
    for n in 0..400 {
        rig.offer(Offer { flow: if n % 8 == 0 { 1 + n / 8 % 4 } else { 0 }, ..Offer::new(0, 1_500) });
    }
    let mut sent = BTreeMap::new();
    let end = rig.now + Nanos::from_secs(1);
    rig.run_events(end, |_, packet| *sent.entry(packet.flow).or_insert(0) += 1);
    for flow in 1..5 {
        assert!(sent[&flow] >= 12, "flow {flow} is within its share: {sent:?}");
    }
    rig.check_conservation();
}

#[test]
fn a_limit_that_shrinks_drops_nothing_that_waits() {
    for profile in MANAGED {
        let mut rig = rig_with(100_000_000, profile);
        for n in 0..100 {
            rig.offer(mixed(n, 12));
        }
        let (queued, dropped) = (rig.queued(), rig.dropped(DropReason::Tail));
        rig.update(0, 1_000_000, profile);
        assert_eq!((rig.queued(), rig.dropped(DropReason::Tail)), (queued, dropped));
        for n in 0..50 {
            rig.offer(mixed(n, 12));
            assert!(rig.queued() <= queued.max(21), "profile {profile}: it grows beyond its limit");
        }
        // 250 ms at 1 Mb/s are 31,250 bytes, 20 packets: each that comes costs about one
        // (RFC 8290 4.1 has FQ-CoDel drop up to 64 at once)
        if queued > 50 && ![CODEL_SHORT, FQ_CODEL].contains(&profile) {
            assert!(rig.queued() + 2 >= queued, "profile {profile}: {} of {queued} left", rig.queued());
        }
        drain(&mut rig);
    }
}

#[test]
fn packets_survive_any_change_of_profile_in_the_order_they_came() {
    let all: Vec<u16> = MANAGED.into_iter().chain([DUALPI2, FIFO, PROTECTED]).collect();
    for &from in &all {
        for &to in &all {
            let mut rig = rig_with(100_000_000, from);
            for n in 0..40 {
                rig.offer(Offer { ecn: Ecn::NotEct, ..mixed(n, 5) });
            }
            let before = rig.queued();
            let limited = rig.dropped(DropReason::Tail);
            rig.update(0, 100_000_000, to);
            let refused = rig.dropped(DropReason::Tail) + rig.dropped(DropReason::Aqm) - limited;
            assert_eq!(rig.queued() + refused, before, "{from} to {to}");
            // all within the limits, but for the short one, which is not held at a change
            assert_eq!(refused, 0, "{from} to {to}");
            rig.check_conservation();
            rig.check_ids(1);
            let mut last = BTreeMap::new();
            let end = rig.now + Nanos::from_secs(1);
            rig.run_events(end, |_, packet| {
                assert!(last.insert(packet.flow, packet.serial).is_none_or(|serial| serial < packet.serial));
            });
            drain(&mut rig);
        }
    }
}

#[test]
fn what_waits_in_l_goes_first_when_a_managed_discipline_comes() {
    let mut rig = rig_with(100_000_000, DUALPI2);
    for n in 0..40 {
        rig.offer(Offer { ecn: if n % 2 == 0 { Ecn::NotEct } else { Ecn::Ect1 }, ..Offer::new(0, 1_500) });
    }
    rig.update(0, 100_000_000, CODEL);
    rig.check_ids(1);
    let mut codepoints = Vec::new();
    let end = rig.now + Nanos::from_secs(1);
    rig.run_events(end, |_, packet| codepoints.push(engine::Packet::meta(packet).ecn));
    assert_eq!(codepoints.len(), 40);
    assert!(codepoints[..20].iter().all(|&ecn| ecn == Ecn::Ect1), "{codepoints:?}");
    rig.check_ids(1);
}

#[test]
fn removal_and_a_dead_link_drop_what_waits_and_count_it() {
    for profile in MANAGED {
        let mut rig = Rig::new(&Setup { ports: vec![None, None], ..Setup::default() });
        rig.create(0, 10_000_000, profile);
        for n in 0..40 {
            rig.offer(Offer { egress: u8::from(n % 4 == 3), ..mixed(n, 12) });
        }
        let queued = rig.queued();
        rig.shards[0].set_link(rig.now, PortId(0), false);
        let link = rig.dropped(DropReason::Link);
        assert!(link > 0 && rig.queued() == queued - link, "profile {profile}");
        rig.check_conservation();
        rig.shards[0].set_link(rig.now, PortId(0), true);
        for n in 0..10 {
            rig.offer(mixed(n, 12));
        }
        let queued = rig.queued();
        rig.apply(engine::Change::Remove { id: QueueId(0) });
        assert_eq!((rig.dropped(DropReason::Removed), rig.queued()), (queued, 0), "profile {profile}");
        rig.check_conservation();
        rig.create(0, 10_000_000, profile);
        rig.offer(mixed(1, 12));
        drain(&mut rig);
    }
}

#[test]
fn packets_of_two_ports_in_one_queue_leave_by_their_own() {
    for profile in MANAGED {
        let mut rig = Rig::new(&Setup { ports: vec![None, None], ..Setup::default() });
        rig.create(0, 10_000_000, profile);
        let mut by_port = [0_u32; 2];
        for step in 0..100 {
            for n in 0..10 {
                rig.offer(Offer { egress: u8::from(n % 3 == 0), ..mixed(step + n, 3) });
            }
            let end = rig.now + Nanos::from_millis(9);
            rig.run_events(end, |_, packet| by_port[usize::from(engine::Packet::meta(packet).egress.0)] += 1);
            rig.check_conservation();
        }
        assert!(by_port.iter().all(|&sent| sent > 50), "profile {profile}: {by_port:?}");
        drain(&mut rig);
    }
}

/// Facts 2.8: an AQM that drops the last packet while the scheduler looks at it must not stall its class.
#[test]
fn drops_of_the_last_packet_stall_nobody() {
    for profile in MANAGED {
        let mut rig = rig_with(2_000_000, profile);
        let mut n = 0_u32;
        for schedule in 0..20_000_u32 {
            for _ in 0..=(schedule % 5) {
                n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let ecn = Ecn::from_bits((n >> 24).to_le_bytes()[0]);
                rig.offer(Offer { ecn, flow: n >> 29, ..Offer::new(0, 4_000) });
            }
            for _ in 0..=(schedule % 4) {
                let Some(at) = rig.next_event() else {
                    assert_eq!(rig.queued(), 0, "profile {profile}, schedule {schedule}: stalled");
                    break;
                };
                rig.now = rig.now.max(at);
                rig.dequeue(0, 0, 2, |_, _| ());
            }
        }
        rig.check_conservation();
        drain(&mut rig);
    }
}

#[test]
fn the_switches_of_ecn_make_not_ect_of_what_they_turn_off() {
    let marked_of = |profile: u16, ecn: Ecn| {
        let mut rig = rig_with(10_000_000, profile);
        for step in 0..400 {
            for n in 0..10 + step % 3 {
                rig.offer(Offer { ecn, flow: n % 2, ..Offer::new(0, 1_500) });
            }
            let end = rig.now + Nanos::from_millis(10);
            rig.run_events(end, |_, _| ());
        }
        rig.check_ids(1);
        (rig.marked(), rig.dropped(DropReason::Aqm))
    };
    for ecn in [Ecn::Ect0, Ecn::Ect1] {
        let (marked, dropped) = marked_of(CODEL, ecn);
        assert!(marked > 0 && dropped == 0, "{ecn:?}: {marked} marked, {dropped} dropped");
    }
    // ecn = false
    let (marked, _) = marked_of(CODEL_SHORT, Ecn::Ect0);
    assert_eq!(marked, 0);
    // l4s = false
    let (marked, dropped) = marked_of(common::CODEL_NO_L4S, Ecn::Ect1);
    assert!(marked == 0 && dropped > 0, "{marked} marked, {dropped} dropped");
    let (marked, dropped) = marked_of(common::CODEL_NO_L4S, Ecn::Ect0);
    assert!(marked > 0 && dropped == 0, "{marked} marked, {dropped} dropped");
    // marks at arrival
    assert!(marked_of(PIE, Ecn::Ect0).0 > 0);
}

#[test]
fn queue_protection_sends_the_flow_that_builds_l_to_c() {
    let run = |profile: u16| {
        let mut rig = rig_with(20_000_000, profile);
        let mut delay = Nanos::ZERO;
        for step in 0..2_000_u32 {
            // 24 Mb/s of flow 1, 0.6 Mb/s of flow 2
            rig.offer(Offer { ecn: Ecn::Ect1, flow: 1, ..Offer::new(0, 1_500) });
            if step % 4 == 0 {
                rig.offer(Offer { ecn: Ecn::Ect1, flow: 2, ..Offer::new(0, 150) });
            }
            if step % 32 == 0 {
                rig.tick();
            }
            let end = rig.now + Nanos::from_micros(500);
            rig.run_events(end, |now, packet| {
                if packet.flow == 2 && step > 1_000 {
                    delay = delay.max(aqm::Stamp::at(now).since(engine::Packet::meta(packet).arrival));
                }
            });
        }
        rig.check_ids(1);
        let snapshot = rig.shards[0].snapshot(QueueId(0)).expect("live");
        (delay, snapshot.classic.counters.arrived_packets(), snapshot.l4s.counters.arrived_packets())
    };
    let (unprotected, in_c, _) = run(DUALPI2);
    assert_eq!(in_c, 0);
    let (protected, in_c, in_l) = run(PROTECTED);
    assert!(in_c > 300 && in_l > 500, "{in_c} sanctioned, {in_l} not");
    assert!(protected < unprotected, "the other flow waits {protected:?} at most, without {unprotected:?}");
}

#[test]
fn memory_is_that_of_the_state_and_no_other_profile_pays() {
    let profiles = profiles();
    let memory = |index| profiles.memory::<TestPacket>(index).expect("it is there");
    let plain = memory(DUALPI2);
    assert_eq!(plain.discipline, 0);
    assert_eq!(plain, memory(FIFO));
    let protected = memory(PROTECTED);
    assert!((500..600).contains(&protected.discipline), "{protected:?}");
    for profile in MANAGED {
        let own = memory(profile);
        assert!(own.discipline > 0, "profile {profile}");
        assert_eq!(own.total() - own.discipline, plain.total());
    }
    // a FIFO and its count each flow
    assert!(memory(FQ).discipline >= 1_024 * size_of::<(u64, u32)>());
    assert!(memory(CODEL).discipline < 400, "{:?}", memory(CODEL));
    assert_eq!(profiles.memory::<TestPacket>(99), None);
}
