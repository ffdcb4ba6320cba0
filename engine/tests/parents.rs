// SPDX-License-Identifier: Apache-2.0
//! Aggregates: shares follow plans below a bottleneck at any level, nothing is left unused, nobody gets more than its
//! plan when load falls, sparse subscribers do not wait, and changes under load lose nothing.

#![expect(clippy::cast_precision_loss, reason = "bytes and times far below 2^53")]

mod common;

use aqm::{BitsPerSec, Ecn, Nanos};
use common::{DUALPI2, FIFO, FQ_CODEL, Offer, Rig, Setup, jain};
use engine::{Change, ParentId, ParentSpec, QueueId, QueueSpec};

/// Bytes of a full packet of 1,500 on the line.
const FULL: u64 = 1_538;
const POLL: Nanos = Nanos::from_micros(20);
const SECOND: Nanos = Nanos::from_secs(1);
const MILLI: Nanos = Nanos::from_millis(1);

fn parent(n: u32) -> ParentId {
    ParentId::new(n).expect("small")
}

/// Subscribers below aggregates that always have packets waiting, each with a byte count.
struct Crowd {
    rig: Rig,
    greedy: Vec<bool>,
    bytes: Vec<u64>,
    polled: Vec<bool>,
    l3_bytes: u16,
}

impl Crowd {
    fn new(ids: u32, shards: u32, port_bps: Option<u64>) -> Self {
        let setup = Setup { shards, capacity: ids, ports: vec![port_bps], ..Setup::default() };
        let all = ids as usize;
        Self {
            rig: Rig::new(&setup),
            greedy: vec![false; all],
            bytes: vec![0; all],
            polled: vec![true; shards as usize],
            l3_bytes: 1_500,
        }
    }

    /// An aggregate comes or changes.
    fn aggregate(&mut self, n: u32, above: Option<u32>, bps: u64) {
        let spec = ParentSpec { parent: above.map(parent), rates: [BitsPerSec(bps); 2] };
        self.rig.apply(Change::Parent { id: parent(n), spec });
    }

    fn spec(bps: u64, profile: u16, below: Option<u32>) -> QueueSpec {
        QueueSpec { parent: below.map(parent), ..Rig::spec(bps, profile) }
    }

    /// A greedy subscriber.
    fn join(&mut self, id: u32, bps: u64, profile: u16, below: Option<u32>) {
        self.rig.apply(Change::Create { id: QueueId(id), spec: Self::spec(bps, profile, below) });
        self.greedy[id as usize] = true;
        for _ in 0..8 {
            self.rig.offer(Offer::new(id, self.l3_bytes));
        }
    }

    fn update(&mut self, id: u32, bps: u64, below: Option<u32>) {
        self.rig.apply(Change::Update { id: QueueId(id), spec: Self::spec(bps, FIFO, below) });
    }

    fn poll(&mut self) {
        let mut sent = Vec::new();
        for shard in (0..self.polled.len()).filter(|&shard| self.polled[shard]) {
            let each = |_, packet: &common::TestPacket| sent.push(engine::Packet::meta(packet));
            let mut each = each;
            while self.rig.dequeue(shard, 0, 32, &mut each) == 32 {}
        }
        for meta in sent {
            let id = meta.queue_id.0;
            self.bytes[id as usize] += u64::from(meta.l3_bytes) + 38;
            if self.greedy[id as usize] {
                self.rig.offer(Offer::new(id, self.l3_bytes));
            }
        }
    }

    fn run(&mut self, span: Nanos) {
        let end = self.rig.now + span;
        while self.rig.now < end {
            self.rig.now += POLL;
            self.poll();
        }
    }

    /// Bits per second of each id over `span` from now.
    fn rates(&mut self, span: Nanos) -> Vec<f64> {
        let before = self.bytes.clone();
        self.run(span);
        let rate = |(after, before): (&u64, &u64)| (after - before) as f64 * 8e9 / span.0 as f64;
        self.bytes.iter().zip(&before).map(rate).collect()
    }

    fn check(&mut self) {
        self.rig.check_conservation();
        let ids = u32::try_from(self.bytes.len()).expect("few");
        self.rig.check_ids(ids);
        assert_eq!(self.rig.shards.iter().map(engine::Shard::wheel_refused).sum::<u64>(), 0);
        assert_eq!(self.rig.shards.iter().map(engine::Shard::misdirected).sum::<u64>(), 0);
    }
}

fn near(got: f64, wanted: f64, part: f64, what: &str) {
    assert!((got / wanted - 1.0).abs() < part, "{what}: {got} is not {wanted}");
}

#[test]
fn equal_children_of_a_bottleneck_get_equal_shares() {
    let mut crowd = Crowd::new(50, 1, None);
    crowd.aggregate(0, None, 250_000_000);
    (0..50).for_each(|id| crowd.join(id, 10_000_000, FIFO, Some(0)));
    crowd.run(Nanos::from_millis(100));
    let rates = crowd.rates(SECOND);
    assert!(jain(&rates) > 0.999, "{rates:?}");
    near(rates.iter().sum(), 250e6, 0.005, "the aggregate is used");
    let part = crowd.rig.shards[0].parent(parent(0)).expect("it is there").parts[0];
    near(part.speed, 0.5, 0.05, "its clock");
    assert_eq!(part.children, 50);
    assert_eq!(part.bytes, crowd.bytes.iter().sum::<u64>());
    crowd.check();
}

#[test]
fn shares_of_an_aggregate_follow_plans() {
    // down to slow plans whose packets wait for seconds
    for (speed, most) in [(3, 6), (12, 6), (2, 10)] {
        let mut crowd = Crowd::new(40, 1, None);
        let plans: Vec<u64> = (0..40).map(|id| 500_000 << (id % most)).collect();
        let sum: u64 = plans.iter().sum();
        crowd.aggregate(0, None, sum / speed);
        (0..40).for_each(|id| crowd.join(id, plans[id as usize], FIFO, Some(0)));
        crowd.run(SECOND);
        let rates = crowd.rates(Nanos::from_secs(10));
        let shares: Vec<f64> = rates.iter().zip(&plans).map(|(rate, &plan)| rate / plan as f64).collect();
        assert!(jain(&shares) > 0.995, "1/{speed}: {shares:?}");
        near(rates.iter().sum(), (sum / speed) as f64, 0.005, "all of it is used");
        for (id, share) in shares.iter().enumerate() {
            near(*share, 1.0 / speed as f64, 0.05, &format!("id {id} of {}", plans[id]));
        }
        crowd.check();
    }
}

#[test]
fn an_aggregate_that_plans_just_fill_is_used() {
    for (plan, load) in [(1_000_000, 99), (1_000_000, 101), (3_000_000, 99)] {
        let mut crowd = Crowd::new(300, 1, None);
        let rate = plan * 300 * 100 / load;
        crowd.aggregate(0, None, rate);
        (0..300).for_each(|id| crowd.join(id, plan, FIFO, Some(0)));
        crowd.run(SECOND);
        let total: f64 = crowd.rates(Nanos::from_secs(2)).iter().sum();
        let used = total / (plan * 300).min(rate) as f64;
        assert!(used > 0.98, "{load} % of {rate}: {used} of what could be");
    }
}

#[test]
fn what_idle_children_leave_goes_to_the_others_up_to_their_plans() {
    let mut crowd = Crowd::new(11, 1, None);
    crowd.aggregate(0, None, 100_000_000);
    (0..11).for_each(|id| crowd.join(id, 20_000_000, FIFO, Some(0)));
    crowd.run(SECOND);
    // six of 20 want 120: all of 100 is used
    (6..11).for_each(|id| crowd.greedy[id] = false);
    crowd.run(SECOND);
    let rates = crowd.rates(SECOND);
    near(rates.iter().sum(), 100e6, 0.005, "six greedy");
    near(rates[0], 100e6 / 6.0, 0.02, "one of six");
    // four want 80: each has its plan
    (4..6).for_each(|id| crowd.greedy[id] = false);
    crowd.run(SECOND);
    let rates = crowd.rates(SECOND);
    (0..4).for_each(|id| near(rates[id], 20e6, 0.005, "one of four"));
    crowd.check();
}

#[test]
fn nobody_exceeds_its_plan_when_most_stop_after_ten_seconds_at_twice_the_rate() {
    for levels in [1, 3] {
        let mut crowd = Crowd::new(20, 1, None);
        (0..levels).for_each(|n| crowd.aggregate(n, n.checked_sub(1), 100_000_000));
        (0..20).for_each(|id| crowd.join(id, 10_000_000, FIFO, Some(levels - 1)));
        crowd.run(Nanos::from_secs(10));
        (3..20).for_each(|id| crowd.greedy[id] = false);
        // what waited (2 ms at 100 Mb/s a level), two packets of burst, and one that ends the window
        let credit = 10e6 / 8.0 * 2e-3 * f64::from(levels) + 3.0 * FULL as f64;
        for window in 0..200 {
            let rates = crowd.rates(Nanos::from_millis(10));
            for (id, rate) in rates.iter().enumerate() {
                let allowed = 10e6 + credit * 8.0 / 0.01;
                assert!(*rate <= allowed, "{levels}, window {window}: id {id} at {rate}");
            }
        }
        let rates = crowd.rates(SECOND);
        for (id, rate) in rates.iter().enumerate() {
            assert!(*rate <= 10e6 + FULL as f64 * 8.0, "id {id} at {rate}");
            assert!(id >= 3 || *rate > 9.98e6, "id {id} at {rate}");
        }
        crowd.check();
    }
}

#[test]
fn nested_bottlenecks_leave_each_what_the_narrowest_above_it_allows() {
    // a site of 80 over A of 50 (plans of 200 below it) and B of 100 (plans of 50): B gets the rest, 30
    let mut crowd = Crowd::new(30, 1, None);
    crowd.aggregate(0, None, 80_000_000);
    crowd.aggregate(1, Some(0), 50_000_000);
    crowd.aggregate(2, Some(0), 100_000_000);
    (0..20).for_each(|id| crowd.join(id, 10_000_000, FIFO, Some(1)));
    (20..30).for_each(|id| crowd.join(id, 5_000_000, FIFO, Some(2)));
    crowd.run(SECOND);
    let rates = crowd.rates(Nanos::from_secs(4));
    near(rates.iter().sum(), 80e6, 0.005, "the site is used");
    (0..20).for_each(|id| near(rates[id], 2.5e6, 0.02, "a child of A"));
    (20..30).for_each(|id| near(rates[id], 3e6, 0.02, "a child of B"));
    crowd.check();
}

#[test]
fn a_site_alone_slows_all_its_subscribers_by_their_plans_at_any_depth() {
    let mut crowd = Crowd::new(48, 1, None);
    crowd.aggregate(0, None, 60_000_000);
    (1..8).for_each(|n| crowd.aggregate(n, Some(n - 1), 1_000_000_000));
    let plans: Vec<u64> = (0..48).map(|id| 1_000_000 << (id % 4)).collect();
    // six at each level
    (0..48).for_each(|id| crowd.join(id, plans[id as usize], FIFO, Some(id / 6)));
    crowd.run(SECOND);
    let rates = crowd.rates(Nanos::from_secs(4));
    let shares: Vec<f64> = rates.iter().zip(&plans).map(|(rate, &plan)| rate / plan as f64).collect();
    assert!(jain(&shares) > 0.99, "{shares:?}");
    near(rates.iter().sum(), 60e6, 0.005, "the site is used");
    crowd.check();
}

#[test]
fn an_aggregate_on_a_saturated_port_keeps_its_rate_and_its_neighbours_theirs() {
    // port 80: an aggregate of 50 with plans of 200, and 50 of plans beside it
    let mut crowd = Crowd::new(30, 1, Some(80_000_000));
    crowd.l3_bytes = 1_476; // 1,514 on the line and on the port
    crowd.aggregate(0, None, 50_000_000);
    (0..20).for_each(|id| crowd.join(id, 10_000_000, FIFO, Some(0)));
    (20..30).for_each(|id| crowd.join(id, 5_000_000, FIFO, None));
    crowd.run(SECOND);
    let rates = crowd.rates(Nanos::from_secs(4));
    near(rates.iter().sum(), 80e6, 0.01, "the port is used");
    (0..20).for_each(|id| near(rates[id], 2.5e6, 0.03, "below the aggregate"));
    (20..30).for_each(|id| near(rates[id], 3e6, 0.03, "beside it"));
    crowd.check();
}

#[test]
fn a_saturated_port_shares_by_plans_whoever_has_an_aggregate() {
    let mut crowd = Crowd::new(20, 1, Some(100_000_000));
    crowd.l3_bytes = 1_476;
    crowd.aggregate(0, None, 1_000_000_000);
    (0..20).for_each(|id| crowd.join(id, 10_000_000, FIFO, (id < 10).then_some(0)));
    crowd.run(SECOND);
    let rates = crowd.rates(Nanos::from_secs(2));
    assert!(jain(&rates) > 0.999, "{rates:?}");
    crowd.check();
}

#[test]
fn a_parent_over_two_shards_is_shared_by_demand_within_two_percent() {
    // even ids are on shard 0: 10 of them, and 30 odd ones
    let mut crowd = Crowd::new(60, 2, None);
    crowd.aggregate(0, None, 200_000_000);
    let ids: Vec<u32> = (0..10).map(|i| 2 * i).chain((0..30).map(|i| 2 * i + 1)).collect();
    let plan = |id: u32| 5_000_000 << (id / 2 % 3);
    for &id in &ids {
        crowd.join(id, plan(id), FIFO, Some(0));
    }
    let sum: u64 = ids.iter().map(|&id| plan(id)).sum();
    crowd.run(SECOND);
    let rates = crowd.rates(Nanos::from_secs(2));
    near(rates.iter().sum(), 200e6, 0.005, "all of it is used");
    for &id in &ids {
        near(rates[id as usize] / plan(id) as f64, 200e6 / sum as f64, 0.02, &format!("id {id}"));
    }
    // the demand of one shard goes: the other has all, within a millisecond or so
    ids.iter().filter(|id| *id % 2 == 1).for_each(|&id| crowd.greedy[id as usize] = false);
    crowd.run(Nanos::from_millis(100));
    let rates = crowd.rates(SECOND);
    let wanted: u64 = ids.iter().filter(|id| *id % 2 == 0).map(|&id| plan(id)).sum();
    near(rates.iter().sum(), wanted.min(200_000_000) as f64, 0.02, "the rest of one shard");
    crowd.check();
}

#[test]
fn demand_that_moves_between_shards_is_followed_within_a_millisecond() {
    let mut crowd = Crowd::new(2, 2, None);
    crowd.aggregate(0, None, 1_000_000_000);
    (0..2).for_each(|id| crowd.join(id, 1_000_000_000, FIFO, Some(0)));
    crowd.run(SECOND);
    for turn in 0..20 {
        let (on, off) = (turn % 2, 1 - turn % 2);
        crowd.greedy[off] = false;
        if !crowd.greedy[on] {
            crowd.greedy[on] = true;
            (0..10).for_each(|_| crowd.rig.offer(Offer::new(u32::try_from(on).expect("small"), 1_500)));
        }
        crowd.run(MILLI);
        let rates = crowd.rates(Nanos::from_millis(20));
        near(rates[on], 1e9, 0.02, &format!("turn {turn}"));
    }
}

/// Each of its places hears of a change: what they share must not be changed by each.
#[test]
fn a_parent_over_two_shards_changes_its_rate_at_once_and_by_no_more_than_asked() {
    let mut crowd = Crowd::new(20, 2, None);
    crowd.aggregate(0, None, 10_000_000_000);
    (0..20).for_each(|id| crowd.join(id, 600_000_000, FIFO, Some(0)));
    crowd.run(SECOND);
    for bps in [10_000_000, 10_000_000_000, 1_000_000, 64_000_000, 2_000_000_000, 10_000_000] {
        crowd.aggregate(0, None, bps);
        crowd.run(Nanos::from_millis(50));
        let rates = crowd.rates(Nanos::from_secs(4));
        near(rates.iter().sum(), bps as f64, 0.02, &format!("{bps} b/s"));
    }
    crowd.check();
}

#[test]
fn a_shard_that_dies_holds_up_nobody_below_the_same_parent() {
    let mut crowd = Crowd::new(20, 2, None);
    crowd.aggregate(0, None, 100_000_000);
    (0..20).for_each(|id| crowd.join(id, 10_000_000, FIFO, Some(0)));
    crowd.run(SECOND);
    crowd.polled[1] = false;
    crowd.run(Nanos::from_millis(10));
    let rates = crowd.rates(SECOND);
    (0..20).step_by(2).for_each(|id| near(rates[id], 10e6, 0.02, "one that lives"));
    crowd.polled[1] = true;
    crowd.run(Nanos::from_millis(10));
    let rates = crowd.rates(SECOND);
    (0..20).for_each(|id| near(rates[id], 5e6, 0.02, "all again"));
}

#[test]
fn sparse_children_do_not_wait_for_the_crowd() {
    for levels in [1, 8] {
        let mut crowd = Crowd::new(21, 1, None);
        (0..levels).for_each(|n| crowd.aggregate(n, n.checked_sub(1), 100_000_000));
        (0..20).for_each(|id| crowd.join(id, 10_000_000, DUALPI2, Some(levels - 1)));
        crowd.join(20, 10_000_000, DUALPI2, Some(levels - 1));
        crowd.greedy[20] = false;
        crowd.run(SECOND);
        let mut waits = Vec::new();
        for _ in 0..400 {
            crowd.run(Nanos::from_millis(3));
            let before = crowd.bytes[20];
            let from = crowd.rig.now;
            crowd.rig.offer(Offer { ecn: Ecn::Ect1, ..Offer::new(20, 200) });
            while crowd.bytes[20] == before {
                crowd.run(POLL);
                assert!(crowd.rig.now.since(from) < SECOND, "it leaves at last");
            }
            waits.push(crowd.rig.now.since(from));
        }
        waits.sort_unstable();
        assert!(waits[395] < Nanos::from_millis(1), "{levels} levels: {:?}", &waits[390..]);
        assert_eq!(crowd.rig.marked(), 0, "a sparse one is not marked");
        crowd.check();
    }
}

#[test]
fn the_aqm_knows_the_served_rate() {
    // an L queue at a tenth of its plan: 1 ms of it at the served rate is a tenth of the bytes
    let mut crowd = Crowd::new(10, 1, None);
    crowd.aggregate(0, None, 100_000_000);
    (0..10).for_each(|id| crowd.join(id, 100_000_000, DUALPI2, Some(0)));
    crowd.run(SECOND);
    let before = crowd.rig.marked();
    // ten full packets standing in L are 12 ms at 10 Mb/s, and 1.2 ms at the plan
    (0..10).for_each(|_| crowd.rig.offer(Offer { ecn: Ecn::Ect1, ..Offer::new(0, 1_500) }));
    crowd.run(Nanos::from_millis(50));
    let marked = crowd.rig.marked() - before;
    assert!(marked >= 6, "{marked} of 10 are marked");
}

#[test]
fn rates_of_aggregates_change_under_load() {
    let mut crowd = Crowd::new(20, 1, None);
    crowd.aggregate(0, None, 100_000_000);
    (0..20).for_each(|id| crowd.join(id, 10_000_000, if id == 3 { FQ_CODEL } else { FIFO }, Some(0)));
    for bps in [50_000_000, 5_000_000, 150_000_000, 1_000_000_000, 20_000_000] {
        crowd.aggregate(0, None, bps);
        crowd.run(Nanos::from_millis(300));
        let rates = crowd.rates(Nanos::from_secs(2));
        near(rates.iter().sum(), bps.min(200_000_000) as f64, 0.01, &format!("{bps}"));
        assert!(jain(&rates) > 0.98, "{rates:?}");
        crowd.check();
    }
}

#[test]
fn children_move_between_aggregates_with_what_they_have_queued() {
    let mut crowd = Crowd::new(20, 1, None);
    crowd.aggregate(0, None, 40_000_000);
    crowd.aggregate(1, None, 20_000_000);
    (0..20).for_each(|id| crowd.join(id, 10_000_000, FIFO, Some(0)));
    crowd.run(SECOND);
    let queued = crowd.rig.queued();
    (10..20).for_each(|id| crowd.update(id, 10_000_000, Some(1)));
    assert_eq!(crowd.rig.queued(), queued, "a move drops nothing");
    crowd.run(Nanos::from_millis(200));
    let rates = crowd.rates(Nanos::from_secs(2));
    (0..10).for_each(|id| near(rates[id], 4e6, 0.02, "of the first"));
    (10..20).for_each(|id| near(rates[id], 2e6, 0.02, "of the second"));
    // and out of any
    (10..20).for_each(|id| crowd.update(id, 10_000_000, None));
    crowd.run(Nanos::from_millis(200));
    let rates = crowd.rates(Nanos::from_secs(2));
    (10..20).for_each(|id| near(rates[id], 10e6, 0.01, "of none"));
    crowd.rig.apply(Change::RemoveParent { id: parent(1) });
    assert_eq!(crowd.rig.shards[0].parent(parent(1)), None);
    // and one is put under those that had none
    crowd.aggregate(2, Some(0), 1_000_000_000);
    (10..20).for_each(|id| crowd.update(id, 10_000_000, Some(2)));
    crowd.run(Nanos::from_millis(200));
    let rates = crowd.rates(Nanos::from_secs(2));
    (0..20).for_each(|id| near(rates[id], 2e6, 0.02, "of the first and what is below it"));
    crowd.check();
}

#[test]
fn aggregates_move_below_others_under_load() {
    let mut crowd = Crowd::new(20, 1, None);
    crowd.aggregate(0, None, 40_000_000);
    crowd.aggregate(1, None, 80_000_000);
    crowd.aggregate(2, None, 60_000_000);
    (0..10).for_each(|id| crowd.join(id, 10_000_000, FIFO, Some(0)));
    (10..20).for_each(|id| crowd.join(id, 10_000_000, FIFO, Some(1)));
    crowd.run(SECOND);
    let queued = crowd.rig.queued();
    crowd.aggregate(0, Some(2), 40_000_000);
    crowd.aggregate(1, Some(2), 80_000_000);
    assert_eq!(crowd.rig.queued(), queued);
    crowd.run(Nanos::from_millis(500));
    let rates = crowd.rates(Nanos::from_secs(2));
    (0..20).for_each(|id| near(rates[id], 3e6, 0.02, "below the third"));
    crowd.aggregate(1, None, 80_000_000);
    crowd.run(Nanos::from_millis(500));
    let rates = crowd.rates(Nanos::from_secs(2));
    (0..10).for_each(|id| near(rates[id], 4e6, 0.02, "still below"));
    (10..20).for_each(|id| near(rates[id], 8e6, 0.02, "on its own"));
    crowd.check();
}

#[test]
fn loops_and_what_is_not_there_are_refused() {
    let mut crowd = Crowd::new(2, 1, None);
    crowd.aggregate(0, None, 1_000_000);
    crowd.aggregate(1, Some(0), 1_000_000);
    crowd.aggregate(0, Some(1), 1_000_000);
    crowd.aggregate(0, Some(0), 1_000_000);
    crowd.aggregate(3, Some(9), 1_000_000);
    (2..12).for_each(|n| crowd.aggregate(n, Some(n - 1), 1_000_000));
    crowd.rig.apply(Change::Create { id: QueueId(0), spec: Crowd::spec(1_000_000, FIFO, Some(77)) });
    // two loops, one orphan, four too deep (two that hang on nothing among them) and a subscriber
    assert_eq!(crowd.rig.shards[0].misdirected(), 2 + 1 + 4 + 1);
}

#[test]
fn an_idle_aggregate_gives_no_more_than_its_burst() {
    let mut crowd = Crowd::new(40, 1, None);
    crowd.aggregate(0, None, 100_000_000);
    (0..40).for_each(|id| crowd.join(id, 100_000_000, FIFO, Some(0)));
    (0..40).for_each(|id| crowd.greedy[id] = false);
    crowd.run(SECOND);
    let before: u64 = crowd.bytes.iter().sum();
    (0..40).for_each(|id| (0..4).for_each(|_| crowd.rig.offer(Offer::new(id, 1_500))));
    crowd.run(MILLI);
    let sent = crowd.bytes.iter().sum::<u64>() - before;
    let allowed = 100_000_000 / 8 / 1_000 + 2 * FULL + 3_125;
    assert!(sent <= allowed, "{sent} of {allowed}");
}

#[test]
fn nothing_stands_still_below_many_levels_whatever_the_lcore_does() {
    for levels in [1, 4, 8] {
        let mut crowd = Crowd::new(2_000, 1, Some(10_000_000_000));
        crowd.l3_bytes = 46;
        // a tree as that of the benchmark: 64 subscribers a leaf, 16 nodes a node
        let mut next = 0;
        let mut level_above: Vec<u32> = Vec::new();
        for level in (0..levels).rev() {
            let count = (2_000_u32.div_ceil(64) >> (4 * level)).max(1);
            let here: Vec<u32> = (next..next + count).collect();
            for (place, &n) in here.iter().enumerate() {
                let above = level_above.get(place / 16).or(level_above.last()).copied();
                crowd.aggregate(n, above, 400_000_000_000);
            }
            next += count;
            level_above = here;
        }
        for id in 0..2_000 {
            crowd.join(
                id,
                64_000,
                DUALPI2,
                level_above.get(id as usize / 64).or(level_above.last()).copied(),
            );
        }
        let mut before = 0;
        for turn in 0..200_u64 {
            crowd.run(MILLI);
            if turn % 7 == 0 {
                crowd.rig.now += Nanos::from_millis(turn % 11);
            }
            if turn % 50 == 49 {
                let sent: u64 = crowd.bytes.iter().sum();
                assert!(sent > before, "{levels} levels, turn {turn}: nothing left since {before}");
                before = sent;
            }
        }
        let rates = crowd.rates(SECOND);
        near(rates.iter().sum(), 2_000.0 * 64_000.0, 0.01, &format!("{levels} levels"));
        // all fall silent, get another rate, and come back
        for bps in [134_400, 1_000_000, 64_000] {
            (0..2_000).for_each(|id| crowd.greedy[id] = false);
            while crowd.rig.queued() > 0 {
                crowd.run(MILLI);
            }
            for id in 0..2_000 {
                let above = level_above.get(id as usize / 64).or(level_above.last()).copied();
                crowd.rig.apply(Change::Update { id: QueueId(id), spec: Crowd::spec(bps, DUALPI2, above) });
            }
            for id in 0..2_000 {
                crowd.greedy[id as usize] = true;
                (0..4).for_each(|_| crowd.rig.offer(Offer::new(id, 46)));
                if id % 100 == 0 {
                    crowd.run(MILLI);
                }
            }
            crowd.run(MILLI);
            let rates = crowd.rates(SECOND);
            near(rates.iter().sum(), 2_000.0 * bps as f64, 0.01, &format!("{levels} levels at {bps}"));
        }
    }
}

#[test]
fn bursts_through_many_aggregates_stop_none_of_them() {
    // 20 ms a packet; 1,000 subscribers in 16 and 2 and 1 aggregates, used to 80 %
    let mut crowd = Crowd::new(1_000, 1, None);
    crowd.aggregate(0, None, 750_000_000);
    (1..3).for_each(|n| crowd.aggregate(n, Some(0), 750_000_000));
    (3..19).for_each(|n| crowd.aggregate(n, Some(1 + n % 2), 750_000_000));
    (0..1_000).for_each(|id| crowd.join(id, 600_000, FIFO, Some(3 + id % 16)));
    for turn in 0..400 {
        crowd.run(Nanos::from_millis(2));
        crowd.rig.now += Nanos::from_millis(turn % 9);
        crowd.poll();
        if turn % 20 == 19 {
            let rate: f64 = crowd.rates(Nanos::from_millis(100)).iter().sum();
            near(rate, 600e6, 0.05, &format!("turn {turn}"));
        }
    }
    crowd.check();
}

#[test]
fn an_lcore_that_stalls_slows_no_aggregate() {
    let mut crowd = Crowd::new(1_000, 1, None);
    crowd.l3_bytes = 46;
    (0..3).for_each(|n| crowd.aggregate(n, n.checked_sub(1), 400_000_000_000));
    (0..1_000).for_each(|id| crowd.join(id, 672_000, FIFO, Some(2)));
    for turn in 0..200 {
        crowd.run(Nanos::from_millis(2));
        crowd.rig.now += Nanos::from_millis(turn % 9);
        crowd.poll();
        for n in 0..3 {
            let part = crowd.rig.shards[0].parent(parent(n)).expect("it is there").parts[0];
            assert!(part.speed > 0.999 && part.waiting == 0, "turn {turn}, {n}: {part:?}");
        }
    }
}
