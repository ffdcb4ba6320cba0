// SPDX-License-Identifier: Apache-2.0
//! The express way against the long one: packets that leave as they come, and the same packets through FIFO and wheel.

mod common;

use std::collections::BTreeMap;

use aqm::{BitsPerSec, Ecn, Nanos, Pace};
use common::{DUALPI2, FIFO, LINUX, Offer, PI2, PROTECTED, Rig, Setup};
use proptest::collection::vec;
use proptest::prelude::*;

/// A slot of the wheel.
const SLOT: Nanos = Nanos(2_048);
const IDS: u32 = 4;
/// None so low that its queue overflows.
const RATES: [u64; IDS as usize] = [20_000_000, 50_000_000, 200_000_000, 10_000_000_000];

/// What an lcore does in a loop: time passes, a burst comes.
#[derive(Clone, Debug)]
struct Loop {
    wait: u64,
    burst: Vec<(u32, u16, u8)>,
}

fn loops() -> impl Strategy<Value = Vec<Loop>> {
    let wait = prop_oneof![4 => 200..4_000_u64, 2 => 4_000..200_000_u64, 1 => 0..200_000_u64];
    let packet = (0..IDS, prop_oneof![Just(46_u16), Just(562), Just(1_500)], 0..4_u8);
    vec((wait, vec(packet, 0..12)).prop_map(|(wait, burst)| Loop { wait, burst }), 1..120)
}

fn offer((id, l3_bytes, ecn): (u32, u16, u8)) -> Offer {
    Offer { ecn: Ecn::from_bits(ecn), ..Offer::new(id, l3_bytes) }
}

/// When each packet left, by its serial number, and the counters.
fn departures(
    loops: &[Loop],
    profile: u16,
    port: Option<u64>,
    express: bool,
) -> (BTreeMap<u64, Nanos>, Rig, usize) {
    let mut rig = Rig::new(&Setup { capacity: IDS, ports: vec![port], ..Setup::default() });
    for (id, bps) in (0..IDS).zip(RATES) {
        rig.create(id, bps, profile);
    }
    let (mut left, mut passed) = (BTreeMap::new(), 0);
    for one in loops {
        rig.now += Nanos(one.wait);
        rig.dequeue(0, 0, 32, |at, packet| _ = left.insert(packet.serial, at));
        let burst = one.burst.iter().copied().map(offer);
        if express {
            passed += rig.burst(burst, 32, |at, packet| _ = left.insert(packet.serial, at));
        } else {
            burst.for_each(|offer| rig.offer(offer));
        }
        rig.check_conservation();
    }
    let end = rig.now + Nanos::from_secs(100);
    rig.run_events(end, |at, packet| _ = left.insert(packet.serial, at));
    assert_eq!(rig.queued(), 0);
    rig.check_ids(IDS);
    (left, rig, passed)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// On a port with room each packet leaves no later than by the long way, and all do that leave by it.
    #[test]
    fn no_packet_is_later(loops in loops()) {
        let (long, _, _) = departures(&loops, FIFO, None, false);
        let (express, rig, _) = departures(&loops, FIFO, None, true);
        prop_assert_eq!(express.keys().collect::<Vec<_>>(), long.keys().collect::<Vec<_>>());
        prop_assert_eq!(rig.forwarded(), long.len() as u64);
        for (serial, &at) in &express {
            let by_the_long_way = long[serial];
            prop_assert!(at <= by_the_long_way + SLOT, "packet {} leaves at {:?} for {:?}", serial, at, by_the_long_way);
        }
    }

    /// Whoever takes the express way stays within his rate and burst: n packets take no less than n - 1 of them do, less
    /// the burst that idling grants and what the loop before may catch up on.
    #[test]
    fn the_rate_holds(loops in loops(), profile in prop_oneof![Just(DUALPI2), Just(PI2), Just(FIFO)]) {
        let mut rig = Rig::new(&Setup { capacity: IDS, ..Setup::default() });
        let mut sent: Vec<Vec<(Nanos, Nanos, u32)>> = vec![Vec::new(); IDS as usize];
        for (id, bps) in (0..IDS).zip(RATES) {
            rig.create(id, bps, profile);
        }
        for one in &loops {
            let before = rig.now;
            rig.now += Nanos(one.wait);
            let mut note = |at: Nanos, packet: &common::TestPacket| {
                let meta = engine::Packet::meta(packet);
                sent[meta.queue_id.0 as usize].push((before, at, u32::from(meta.l3_bytes + 38).max(84)));
            };
            rig.dequeue(0, 0, 32, &mut note);
            rig.burst(one.burst.iter().copied().map(offer), 32, &mut note);
        }
        for (sent, bps) in sent.iter().zip(RATES) {
            let pace = Pace::of(BitsPerSec(bps));
            let burst = Nanos::from_micros(250).max(pace.time(2 * 1_538)) + SLOT;
            for (first, &(before, ..)) in sent.iter().enumerate() {
                let mut bytes = 0;
                for &(_, at, size) in &sent[first..] {
                    let took = at.since(before);
                    prop_assert!(took + burst >= pace.time(bytes), "{bps} b/s: {bytes} bytes in {took:?}: {sent:?}");
                    bytes += u64::from(size);
                }
            }
        }
    }

    /// Queues of their own keep their packets' order, whichever way each takes.
    #[test]
    fn order_holds(loops in loops(), profile in prop_oneof![Just(DUALPI2), Just(LINUX), Just(PROTECTED)]) {
        let (left, rig, _) = departures(&loops, profile, Some(50_000_000), true);
        prop_assert_eq!(left.len() as u64, rig.forwarded());
        let mut last: BTreeMap<(u32, bool), Nanos> = BTreeMap::new();
        let offers = loops.iter().flat_map(|one| &one.burst);
        for ((id, _, ecn), serial) in offers.copied().zip(1..) {
            if let Some(&at) = left.get(&serial) {
                let low_latency = profile != PROTECTED && ecn & 1 == 1;
                let before = last.insert((id, low_latency), at);
                prop_assert!(before.is_none_or(|before| before <= at) || profile == PROTECTED);
            }
        }
    }
}

/// One packet a loop for each of four.
fn sparse(loops: usize) -> Vec<Loop> {
    let burst = (0..IDS).map(|id| (id, 46, 1)).collect::<Vec<_>>();
    vec![Loop { wait: 50_000_000, burst }; loops]
}

#[test]
fn conforming_packets_take_it() {
    let (left, rig, passed) = departures(&sparse(100), DUALPI2, Some(1_000_000_000), true);
    assert_eq!((left.len(), passed), (400, 400));
    let totals = rig.totals();
    assert_eq!(totals.lag.count(), 400, "none is late, each is counted");
    assert!(totals.lag.max_us() < 0.001);
}

#[test]
fn the_kernels_controller_and_queue_protection_see_every_packet() {
    for profile in [LINUX, PROTECTED] {
        assert_eq!(departures(&sparse(100), profile, None, true).2, 0);
    }
}

#[test]
fn nobody_passes_what_is_due() {
    let mut rig = Rig::new(&Setup { capacity: IDS, ports: vec![Some(1_000_000)], ..Setup::default() });
    for id in 0..IDS {
        rig.create(id, 10_000_000_000, FIFO);
    }
    // more than the port's burst, so that some of it is due and waits
    (0..40).for_each(|_| rig.offer(Offer::new(0, 1_500)));
    rig.now += SLOT;
    rig.dequeue(0, 0, 32, |_, _| ());
    assert!(rig.queued() > 30);
    assert_eq!(rig.burst([Offer::new(1, 46)], 32, |_, _| ()), 0);
}

#[test]
fn room_is_never_exceeded() {
    let mut rig = Rig::new(&Setup { capacity: IDS, ..Setup::default() });
    rig.create(0, 100_000_000_000, FIFO);
    let burst = |rig: &mut Rig, room| rig.burst((0..20).map(|_| Offer::new(0, 46)), room, |_, _| ());
    assert_eq!(burst(&mut rig, 0), 0);
    while rig.queued() > 0 {
        rig.now += SLOT;
        rig.dequeue(0, 0, 32, |_, _| ());
    }
    assert_eq!(burst(&mut rig, 7), 7);
    assert_eq!(rig.queued(), 13);
}

#[test]
fn a_closed_port_lets_nobody_pass() {
    let mut rig = Rig::new(&Setup { capacity: IDS, ..Setup::default() });
    rig.create(0, 100_000_000_000, FIFO);
    assert_eq!(rig.burst([Offer::new(0, 46)], 32, |_, _| ()), 1);
    let packet = rig.packet(Offer::new(0, 46));
    assert!(!rig.shards[0].passes(rig.now, &packet), "it is shut after a burst");
}
