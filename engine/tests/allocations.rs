// SPDX-License-Identifier: Apache-2.0
//! Nothing on the packet path allocates: enqueue, dequeue, PI pass, changes and links, counted by the allocator.

mod common;

use aqm::{BitsPerSec, Ecn, Nanos, Stamp};
use common::{DUALPI2, FIFO, LINUX, MANAGED, Offer, PI2, PROTECTED, Rig, Setup};
use engine::{Change, ParentId, ParentSpec, PortId, QueueId, QueueSpec};

/// A millisecond of overload for every id, with PI passes, changes of rate and a link that goes and comes.
fn busy_millisecond(rig: &mut Rig, step: u32) {
    for turn in 0..200_u32 {
        let id = turn % 32;
        let ecn = Ecn::from_bits((turn % 4).to_le_bytes()[0]);
        rig.offer(Offer { ecn, flow: turn % 5, ..Offer::new(id, 1500) });
    }
    rig.now += Nanos::from_micros(500);
    while rig.dequeue(0, 0, 32, |_, _| {}) == 32 {}
    if step.is_multiple_of(16) {
        rig.tick();
    }
    rig.update(step % 32, 1_000_000 * u64::from(1 + step % 50), profile(step % 32));
    if step.is_multiple_of(97) {
        rig.shards[0].set_link(rig.now, PortId(0), false);
        rig.shards[0].set_link(rig.now, PortId(0), true);
    }
    rig.now += Nanos::from_micros(500);
    while rig.dequeue(0, 0, 32, |_, _| {}) == 32 {}
}

fn profile(id: u32) -> u16 {
    let plain = [DUALPI2, FIFO, LINUX, PI2, PROTECTED];
    let all = plain.iter().chain(&MANAGED);
    all.clone().nth(id as usize % all.count()).copied().unwrap_or(DUALPI2)
}

#[test]
fn a_busy_shard_allocates_nothing() {
    let mut rig = Rig::new(&Setup { ports: vec![Some(1_000_000_000)], buffers: 4_096, ..Setup::default() });
    for id in 0..32 {
        rig.create(id, 20_000_000, profile(id));
    }
    // the rig's own queues are deques that grow until they have seen their fill
    for step in 0..6_000 {
        busy_millisecond(&mut rig, step);
    }
    let counted = allocation_counter::measure(|| {
        for step in 6_000..7_000 {
            busy_millisecond(&mut rig, step);
        }
    });
    assert_eq!(counted.count_total, 0, "{counted:?}");
    assert!(rig.forwarded() > 50_000 && rig.marked() > 0, "the shard was busy: {}", rig.forwarded());
    rig.check_conservation();
}

/// A millisecond of ids below aggregates whose packets leave by one port now and by another then.
fn wandering_millisecond(rig: &mut Rig, step: u32) {
    for id in 0..32 {
        let egress = u8::from((step / (1 + id % 5)).is_multiple_of(2));
        rig.offer(Offer { egress, ..Offer::new(id, 1_500) });
    }
    rig.now += Nanos::from_millis(1);
    for port in 0..2 {
        while rig.dequeue(0, port, 32, |_, _| {}) == 32 {}
    }
}

#[test]
fn children_of_aggregates_that_change_ports_allocate_nothing() {
    let mut rig =
        Rig::new(&Setup { ports: vec![Some(1_000_000_000); 2], buffers: 4_096, ..Setup::default() });
    let parent = |n| ParentId::new(n).expect("small");
    for n in 0..200 {
        // a tree: 40 below each of four, and a site above
        let above = match n {
            0 => None,
            1..5 => Some(parent(0)),
            _ => Some(parent(1 + n % 4)),
        };
        let bps = if n < 5 { 1_000_000_000 } else { 10_000_000 };
        let spec = ParentSpec { parent: above, rates: [BitsPerSec(bps); 2] };
        rig.apply(Change::Parent { id: parent(n), spec });
    }
    for id in 0..32 {
        let spec = QueueSpec { parent: Some(parent(5 + 6 * id)), ..Rig::spec(20_000_000, FIFO) };
        rig.apply(Change::Create { id: QueueId(id), spec });
    }
    // by port 0 alone, until the rig's own queues have seen their fill
    for _ in 0..2_000 {
        wandering_millisecond(&mut rig, 1_000_000);
    }
    let before = rig.forwarded();
    let counted = allocation_counter::measure(|| {
        for step in 0..3_000 {
            wandering_millisecond(&mut rig, step);
        }
    });
    assert_eq!(counted.count_total, 0, "{counted:?}");
    assert!(rig.forwarded() > before + 30_000, "{}", rig.forwarded() - before);
    rig.check_conservation();
}

#[test]
fn the_counter_counts() {
    let counted = allocation_counter::measure(|| drop(std::hint::black_box(vec![Stamp::default(); 9])));
    assert_eq!(counted.count_total, 1);
}
