// SPDX-License-Identifier: Apache-2.0
//! Aggregates whose children change place: their packets leave by one port now and by another then, they move below
//! other aggregates and back, and so do the aggregates. What was sent stays counted, and nothing is left behind.

#![expect(clippy::cast_precision_loss, reason = "bytes and times far below 2^53")]

mod common;

use aqm::{BitsPerSec, Nanos};
use common::{FIFO, Offer, Rig, Setup, TestPacket};
use engine::{Change, Packet, ParentId, ParentSpec, PortId, QueueId, QueueSpec, Shard};

/// Bytes of a full packet of 1,500 on the line.
const FULL: u64 = 1_538;
const POLL: Nanos = Nanos::from_micros(20);

fn parent(n: u32) -> ParentId {
    ParentId::new(n).expect("small")
}

fn aggregate(rig: &mut Rig, n: u32, above: Option<u32>, bps: u64) {
    let spec = ParentSpec { parent: above.map(parent), rates: [BitsPerSec(bps); 2] };
    rig.apply(Change::Parent { id: parent(n), spec });
}

fn spec(bps: u64, below: Option<u32>) -> QueueSpec {
    QueueSpec { parent: below.map(parent), ..Rig::spec(bps, FIFO) }
}

fn join(rig: &mut Rig, id: u32, bps: u64, below: Option<u32>) {
    rig.apply(Change::Create { id: QueueId(id), spec: spec(bps, below) });
}

fn moved(rig: &mut Rig, id: u32, bps: u64, below: Option<u32>) {
    rig.apply(Change::Update { id: QueueId(id), spec: spec(bps, below) });
}

/// Polls all ports of all shards for `span`; `each` sees what left.
fn run(rig: &mut Rig, span: Nanos, each: &mut impl FnMut(&mut Rig, u32, u64)) {
    let end = rig.now + span;
    while rig.now < end {
        rig.now += POLL;
        let mut left = Vec::new();
        for shard in 0..rig.shards.len() {
            for port in 0..u8::try_from(rig.ports.len()).expect("few") {
                let mut note = |_, packet: &TestPacket| left.push(packet.meta());
                while rig.dequeue(shard, port, 32, &mut note) == 32 {}
            }
        }
        for meta in left {
            each(rig, meta.queue_id.0, u64::from(meta.l3_bytes) + 38);
        }
    }
}

/// Greedy children of an aggregate of 20 Mb/s, whose packets leave by port `egress(n)` for their n-th, for a second;
/// bits per second of all of them.
fn rate_of(shards: u32, children: u32, egress: impl Fn(u32, u64) -> u8) -> f64 {
    let mut rig = Rig::new(&Setup { shards, ports: vec![None, None], ..Setup::default() });
    aggregate(&mut rig, 1, None, 1_000_000_000);
    aggregate(&mut rig, 0, Some(1), 20_000_000);
    let (mut sent, mut bytes) = (vec![0_u64; 64], 0);
    let mut offer = |rig: &mut Rig, id: u32| {
        sent[id as usize] += 1;
        let egress = egress(id, sent[id as usize]);
        rig.offer(Offer { egress, ..Offer::new(id, 1_500) });
    };
    for id in 0..children {
        join(&mut rig, id, 100_000_000, Some(0));
        (0..4).for_each(|_| offer(&mut rig, id));
    }
    let mut each = |rig: &mut Rig, id: u32, more: u64| {
        bytes += more;
        offer(rig, id);
    };
    run(&mut rig, Nanos::from_millis(100), &mut each);
    run(&mut rig, Nanos::from_secs(2), &mut each);
    rig.check_conservation();
    assert_eq!(rig.shards.iter().map(Shard::wheel_refused).sum::<u64>(), 0);
    bytes as f64 * 8.0 / 2.1
}

#[test]
fn an_aggregate_sends_no_more_however_its_children_change_ports() {
    for shards in [1, 2] {
        for children in [1, 2, 3, 10] {
            for every in [1, 2, 7, 100] {
                let rate = rate_of(shards, children, |id, n| u8::from((n / every + u64::from(id)) % 2 == 0));
                let what =
                    format!("{shards} shards, {children} children, port changed every {every}: {rate}");
                assert!(rate < 20e6 * 1.02 + 2.0 * FULL as f64 * 8.0, "{what}");
                assert!(rate > 20e6 * 0.97, "{what}");
            }
        }
    }
}

#[test]
fn an_aggregate_sends_no_more_while_one_child_comes_and_goes_beside_others_that_stay() {
    for every in [1, 3, 50] {
        let rate = rate_of(2, 4, |id, n| u8::from(id == 3 && n / every % 2 == 0));
        assert!(rate < 20e6 * 1.02 + 2.0 * FULL as f64 * 8.0, "every {every}: {rate}");
        assert!(rate > 20e6 * 0.97, "every {every}: {rate}");
    }
}

#[test]
fn an_aggregate_sends_no_more_while_children_are_put_elsewhere_and_back() {
    let mut rig = Rig::new(&Setup::default());
    aggregate(&mut rig, 0, None, 20_000_000);
    aggregate(&mut rig, 1, None, 1_000_000);
    join(&mut rig, 0, 100_000_000, Some(0));
    (0..4).for_each(|_| rig.offer(Offer::new(0, 1_500)));
    let mut bytes = 0;
    for turn in 0..2_000 {
        let mut each = |rig: &mut Rig, id: u32, more: u64| {
            bytes += more;
            rig.offer(Offer::new(id, 1_500));
        };
        run(&mut rig, POLL, &mut each);
        // without the time in which the other could send
        moved(&mut rig, 0, 100_000_000, (turn % 2 == 0).then_some(1));
        moved(&mut rig, 0, 100_000_000, Some(0));
    }
    let allowed = 20_000_000.0 * 2_000.0 * 20e-6 + 3.0 * FULL as f64 * 8.0;
    assert!((bytes * 8) as f64 <= allowed, "{} of {allowed}", bytes * 8);
    rig.check_conservation();
}

#[test]
fn entries_of_very_many_roots_that_change_are_never_refused() {
    const ROOTS: u32 = 3_000;
    let mut rig = Rig::new(&Setup { capacity: 2 * ROOTS, ..Setup::default() });
    aggregate(&mut rig, ROOTS, None, 10_000_000_000);
    aggregate(&mut rig, ROOTS + 1, None, 10_000_000_000);
    for root in 0..ROOTS {
        aggregate(&mut rig, root, None, 64_000 + 100 * u64::from(root));
        // one that waits and one that does not
        join(&mut rig, 2 * root, 1_000_000, Some(root));
        join(&mut rig, 2 * root + 1, 1_000_000, Some(root));
        (0..4).for_each(|_| rig.offer(Offer::new(2 * root, 1_500)));
    }
    run(&mut rig, Nanos::from_millis(40), &mut |rig, id, _| rig.offer(Offer::new(id, 1_500)));
    // all wait for their roots; no time passes in which what is left behind would come up
    for turn in 0..60_u8 {
        for root in 0..ROOTS {
            let above = [Some(ROOTS), None, Some(ROOTS + 1), None][usize::from(turn % 4)];
            aggregate(&mut rig, root, above, 64_000 + 100 * u64::from(root) + u64::from(turn));
        }
        for root in (0..ROOTS).step_by(3) {
            moved(&mut rig, 2 * root, 1_000_000, (turn % 2 == 0).then_some((root + 1) % ROOTS));
        }
        assert_eq!(rig.shards[0].wheel_refused(), 0, "turn {turn}");
    }
    for root in (0..ROOTS).step_by(7) {
        rig.apply(Change::RemoveParent { id: parent(root) });
        for id in [2 * root, 2 * root + 1] {
            moved(&mut rig, id, 1_000_000, None);
        }
    }
    let mut left = vec![0; 2 * ROOTS as usize];
    run(&mut rig, Nanos::from_secs(1), &mut |rig, id, _| {
        left[id as usize] += 1;
        rig.offer(Offer::new(id, 1_500));
    });
    assert_eq!(rig.shards[0].wheel_refused(), 0);
    let forgotten = (0..ROOTS).filter(|root| left[2 * *root as usize] == 0).count();
    assert_eq!(forgotten, 0, "all that wait are served");
    rig.check_conservation();
}

#[test]
fn the_clock_of_an_aggregate_runs_again_once_it_is_idle() {
    let mut rig = Rig::new(&Setup::default());
    aggregate(&mut rig, 0, None, 10_000_000);
    for id in 0..10 {
        join(&mut rig, id, 10_000_000, Some(0));
        (0..8).for_each(|_| rig.offer(Offer::new(id, 1_500)));
    }
    run(&mut rig, Nanos::from_millis(500), &mut |rig, id, _| rig.offer(Offer::new(id, 1_500)));
    let speed = |rig: &Rig| rig.shards[0].parent(parent(0)).expect("it is there").parts[0].speed;
    assert!((speed(&rig) - 0.1).abs() < 0.02, "saturated: {}", speed(&rig));
    while rig.queued() > 0 {
        run(&mut rig, Nanos::from_millis(1), &mut |_, _, _| {});
    }
    run(&mut rig, Nanos::from_millis(20), &mut |_, _, _| {});
    assert!((speed(&rig) - 1.0).abs() < 1e-9, "idle: {}", speed(&rig));
    // a slow one that sends seldom is no less saturated; it may lag by 16 packets, or 3 s
    aggregate(&mut rig, 0, None, 64_000);
    (0..10).for_each(|id| (0..4).for_each(|_| rig.offer(Offer::new(id, 1_500))));
    run(&mut rig, Nanos::from_secs(9), &mut |rig, id, _| rig.offer(Offer::new(id, 1_500)));
    assert!(speed(&rig) < 0.05, "slow: {}", speed(&rig));
    assert_eq!(rig.shards[0].next_event(PortId(9)), None);
}

/// An aggregate that is removed lives on while it has children. When the last takes it along to another port, its place
/// here may become at once what it is there; whoever was serving it, or emptying it for a dead link, must not go on with it.
#[test]
fn a_removed_aggregate_that_moves_leaves_nobody_going_round() {
    for round in 0..200_u32 {
        let mut rig = Rig::new(&Setup { ports: vec![None, None, None], ..Setup::default() });
        aggregate(&mut rig, 1, None, 1_000_000);
        aggregate(&mut rig, 0, Some(1), 64_000 << (round % 5));
        let children = 1 + round % 3;
        for id in 0..children {
            join(&mut rig, id, 50_000_000, Some(0));
            for n in 0..12 {
                let egress = u8::try_from((round + id + n / (1 + round % 4)) % 3).expect("small");
                rig.offer(Offer { egress, ..Offer::new(id, 1_500) });
            }
        }
        run(&mut rig, Nanos::from_millis(u64::from(round % 7)), &mut |_, _, _| ());
        rig.apply(Change::RemoveParent { id: parent(0) });
        rig.apply(Change::RemoveParent { id: parent(1) });
        run(&mut rig, Nanos::from_millis(u64::from(20 * (round % 11))), &mut |_, _, _| ());
        let (now, port) = (rig.now, PortId(u8::try_from(round % 3).expect("small")));
        rig.shards.iter_mut().for_each(|shard| shard.set_link(now, port, false));
        let end = rig.now + Nanos::from_secs(20);
        rig.run_events(end, |_, _| ());
        assert_eq!(rig.queued(), 0, "round {round}");
        rig.check_conservation();
    }
}

/// Greedy children of an aggregate of 20 Mb/s, of 10 Mb/s each, two on each of two ports: bits per second that left by each.
fn rates_by_port(slow_bps: u64) -> [f64; 2] {
    let ports = vec![Some(slow_bps), None];
    let mut rig = Rig::new(&Setup { shards: 2, ports, ..Setup::default() });
    aggregate(&mut rig, 0, None, 20_000_000);
    let offer = |rig: &mut Rig, id: u32| {
        let egress = u8::from(id >= 4);
        rig.offer(Offer { egress, ..Offer::new(id, 1_500) });
    };
    for id in 0..8 {
        join(&mut rig, id, 10_000_000, Some(0));
        (0..4).for_each(|_| offer(&mut rig, id));
    }
    run(&mut rig, Nanos::from_secs(1), &mut |rig, id, _| offer(rig, id));
    let mut bytes = [0_u64; 2];
    run(&mut rig, Nanos::from_secs(4), &mut |rig, id, more| {
        bytes[usize::from(id >= 4)] += more;
        offer(rig, id);
    });
    rig.check_conservation();
    bytes.map(|bytes| bytes as f64 * 2.0)
}

/// What a port holds back of an aggregate's children is no reason to hold them back once more: the aggregate's clock is
/// slowed there by the port already, and it never runs backwards.
#[test]
fn children_behind_a_slow_port_get_what_it_gives_and_the_others_the_rest() {
    for slow in [500_000, 2_000_000, 8_000_000] {
        let [slowed, free] = rates_by_port(slow);
        let all = slowed + free;
        assert!(slowed > slow as f64 * 0.95, "port of {slow}: {slowed} beside {free}");
        assert!((all - 20e6).abs() < 20e6 * 0.02, "port of {slow}: {slowed} beside {free}");
    }
}

/// An lcore that stalls takes its clock back by the stall; the aggregate's went on elsewhere meanwhile. Its children come
/// back at once.
#[test]
fn children_of_an_lcore_that_stalled_are_served_again_at_once() {
    let mut rig = Rig::new(&Setup { shards: 2, ports: vec![None], ..Setup::default() });
    aggregate(&mut rig, 0, None, 20_000_000);
    for id in 0..8 {
        join(&mut rig, id, 10_000_000, Some(0));
        (0..4).for_each(|_| rig.offer(Offer::new(id, 1_500)));
    }
    run(&mut rig, Nanos::from_secs(1), &mut |rig, id, _| rig.offer(Offer::new(id, 1_500)));
    // only the shard of the even ids is polled
    let end = rig.now + Nanos::from_secs(3);
    while rig.now < end {
        rig.now += POLL;
        let mut left = Vec::new();
        rig.dequeue(0, 0, 32, |_, packet| left.push(packet.meta().queue_id.0));
        for id in left {
            rig.offer(Offer::new(id, 1_500));
        }
    }
    let mut bytes = [0_u64; 2];
    run(&mut rig, Nanos::from_millis(400), &mut |rig, id, more| {
        bytes[(id % 2) as usize] += more;
        rig.offer(Offer::new(id, 1_500));
    });
    let share = bytes[1] as f64 / (bytes[0] + bytes[1]) as f64;
    assert!((share - 0.5).abs() < 0.05, "{bytes:?}");
    rig.check_conservation();
}
