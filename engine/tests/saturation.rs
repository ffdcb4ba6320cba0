// SPDX-License-Identifier: Apache-2.0
//! Plans that oversubscribe a port: shares follow plans, on one shard and on two; nothing is caught up later.

#![expect(clippy::cast_precision_loss, reason = "bytes and times far below 2^53")]

mod common;

use aqm::{Ecn, Nanos};
use common::{FIFO, Offer, Rig, Setup, jain};
use engine::{Change, PortId, QueueId};

/// Bytes of a full packet of 1,500 on the line and on the port.
const FULL: u64 = 1_538;
const POLL: Nanos = Nanos::from_micros(20);

/// Subscribers that always have packets waiting, each with a byte count.
struct Crowd {
    rig: Rig,
    /// Whose demand is unlimited.
    greedy: Vec<bool>,
    bytes: Vec<u64>,
    /// Shards that are polled.
    polled: Vec<bool>,
}

impl Crowd {
    /// One subscriber for each (id, plan), on a port of `port_bps`.
    fn new(port_bps: u64, shards: u32, plans: &[(u32, u64)]) -> Self {
        let capacity = plans.iter().map(|plan| plan.0).max().expect("some") + 1;
        let mut rig = Rig::new(&Setup { shards, capacity, ports: vec![Some(port_bps)], ..Setup::default() });
        for &(id, bps) in plans {
            rig.create(id, bps, FIFO);
        }
        let all = capacity as usize;
        let mut crowd =
            Self { rig, greedy: vec![false; all], bytes: vec![0; all], polled: vec![true; shards as usize] };
        for &(id, _) in plans {
            crowd.start(id);
        }
        crowd
    }

    fn start(&mut self, id: u32) {
        self.greedy[id as usize] = true;
        for _ in 0..4 {
            self.rig.offer(Offer::new(id, 1_500));
        }
    }

    fn poll(&mut self) {
        let mut sent = Vec::new();
        for shard in (0..self.polled.len()).filter(|&shard| self.polled[shard]) {
            while self
                .rig
                .dequeue(shard, 0, 32, |_, packet| sent.push(engine::Packet::meta(packet).queue_id.0))
                == 32
            {}
        }
        for id in sent {
            self.bytes[id as usize] += FULL;
            if self.greedy[id as usize] {
                self.rig.offer(Offer::new(id, 1_500));
            }
        }
    }

    /// Polls for `span`.
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
}

const SECOND: Nanos = Nanos::from_secs(1);

#[test]
fn equal_subscribers_get_equal_shares() {
    let plans: Vec<_> = (0..50).map(|id| (id, 10_000_000)).collect();
    let mut crowd = Crowd::new(250_000_000, 1, &plans);
    crowd.run(Nanos::from_millis(100));
    let rates = crowd.rates(SECOND);
    assert!(jain(&rates) > 0.999, "{rates:?}");
    let total: f64 = rates.iter().sum();
    assert!((total / 250e6 - 1.0).abs() < 0.005, "the port is full: {total}");
    assert!((crowd.rig.ports[0].clock_speed() - 0.5).abs() < 0.02, "{}", crowd.rig.ports[0].clock_speed());
    crowd.rig.check_conservation();
}

#[test]
fn a_port_that_plans_just_fill_is_used() {
    // 300 subscribers due at random moments: their packets bunch up by chance, which must not slow the clock
    for (plan, load) in [(1_000_000, 99), (1_000_000, 101), (3_000_000, 99)] {
        let plans: Vec<_> = (0..300).map(|id| (id, plan)).collect();
        let port = plan * 300 * 100 / load;
        let mut crowd = Crowd::new(port, 1, &plans);
        crowd.run(SECOND);
        let total: f64 = crowd.rates(Nanos::from_secs(2)).iter().sum();
        let used = total / (plan * 300).min(port) as f64;
        assert!(used > 0.98, "{load} % of {port}: {used} of what could be");
    }
}

#[test]
fn shares_follow_plans() {
    let plans: Vec<_> = (0..40).map(|id| (id, 1_000_000 << (id % 6))).collect();
    let sum: u64 = plans.iter().map(|plan| plan.1).sum();
    let mut crowd = Crowd::new(sum / 3, 1, &plans);
    crowd.run(Nanos::from_millis(200));
    let rates = crowd.rates(Nanos::from_secs(3));
    for &(id, bps) in &plans {
        let share = rates[id as usize] / (bps as f64 / 3.0);
        assert!((share - 1.0).abs() < 0.02, "id {id} of {bps}: {share}");
    }
}

#[test]
fn shares_follow_plans_with_the_load_split_one_to_three_over_two_shards() {
    // even ids are on shard 0: 10 of them, and 30 odd ones
    let plans: Vec<_> = (0..10)
        .map(|i| (2 * i, 5_000_000 << (i % 3)))
        .chain((0..30).map(|i| (2 * i + 1, 5_000_000 << (i % 3))))
        .collect();
    let sum: u64 = plans.iter().map(|plan| plan.1).sum();
    let mut crowd = Crowd::new(sum / 2, 2, &plans);
    crowd.run(Nanos::from_millis(500));
    let rates = crowd.rates(Nanos::from_secs(2));
    for &(id, bps) in &plans {
        let share = rates[id as usize] / (bps as f64 / 2.0);
        assert!((share - 1.0).abs() < 0.02, "id {id} of {bps}: {share}");
    }
    let shares: Vec<f64> = plans.iter().map(|&(id, bps)| rates[id as usize] / bps as f64).collect();
    assert!(jain(&shares) > 0.99);
    crowd.rig.check_conservation();
}

#[test]
fn nobody_exceeds_its_plan_when_most_stop_after_ten_seconds_at_twice_the_port() {
    for shards in [1, 2] {
        let plans: Vec<_> = (0..20).map(|id| (id, 10_000_000)).collect();
        let mut crowd = Crowd::new(100_000_000, shards, &plans);
        crowd.run(Nanos::from_secs(10));
        for id in 3..20 {
            crowd.greedy[id] = false;
        }
        // what waited for the port (2 ms on one of 100 Mb/s), two packets of burst, and one that ends the window
        let credit = 10e6 / 8.0 * 2e-3 + 3.0 * FULL as f64;
        for window in 0..200 {
            let rates = crowd.rates(Nanos::from_millis(10));
            let allowed = 10e6 + credit * 8.0 / 0.01;
            for (id, rate) in rates.iter().enumerate() {
                assert!(*rate <= allowed, "{shards} shards, window {window}: id {id} at {rate}");
            }
        }
        let rates = crowd.rates(SECOND);
        for (id, rate) in rates.iter().enumerate() {
            assert!(*rate <= 10e6 + FULL as f64 * 8.0, "{shards} shards: id {id} at {rate}");
            assert!(id >= 3 || *rate > 9.98e6, "{shards} shards: id {id} at {rate}");
        }
        assert!(crowd.rig.ports[0].clock_speed() > 0.999);
    }
}

#[test]
fn a_stall_of_the_lcore_is_never_caught_up() {
    let mut crowd = Crowd::new(1_000_000_000, 1, &[(0, 100_000_000)]);
    crowd.run(Nanos::from_millis(50));
    crowd.rig.now += Nanos::from_millis(20);
    let rates = crowd.rates(Nanos::from_millis(20));
    // 787 us of lag on a port of 1 Gb/s, and the burst
    let allowed = 100e6 + (100e6 / 8.0 * 787e-6 + 2.0 * FULL as f64) * 8.0 / 0.02;
    assert!(rates[0] <= allowed, "{}", rates[0]);
    assert!(rates[0] >= 99e6, "{}", rates[0]);
}

#[test]
fn a_shard_that_dies_holds_nobody_up() {
    let plans: Vec<_> = (0..20).map(|id| (id, 10_000_000)).collect();
    let mut crowd = Crowd::new(100_000_000, 2, &plans);
    crowd.run(SECOND);
    crowd.polled[1] = false;
    crowd.run(Nanos::from_millis(10));
    let rates = crowd.rates(SECOND);
    for id in (0..20).step_by(2) {
        assert!((rates[id] / 10e6 - 1.0).abs() < 0.02, "id {id} at {}", rates[id]);
    }
    // it comes back: shares are even again, and it is owed nothing for the time it was away
    crowd.polled[1] = true;
    crowd.run(Nanos::from_millis(10));
    let rates = crowd.rates(SECOND);
    for (id, rate) in rates.iter().enumerate() {
        assert!((rate / 5e6 - 1.0).abs() < 0.02, "id {id} at {rate}");
    }
}

#[test]
fn shards_polled_at_different_paces_share_alike() {
    let plans: Vec<_> = (0..20).map(|id| (id, 10_000_000)).collect();
    let mut crowd = Crowd::new(100_000_000, 2, &plans);
    let before = crowd.bytes.clone();
    let end = crowd.rig.now + Nanos::from_secs(2);
    let mut turn = 0;
    while crowd.rig.now < end {
        crowd.rig.now += POLL;
        turn += 1;
        crowd.polled[1] = turn % 4 == 0;
        crowd.poll();
    }
    for (id, bytes) in crowd.bytes.iter().enumerate() {
        let rate = (bytes - before[id]) as f64 * 4.0;
        assert!((rate / 5e6 - 1.0).abs() < 0.02, "id {id} at {rate}");
    }
}

#[test]
fn a_sparse_subscriber_does_not_wait_for_the_crowd() {
    let plans: Vec<_> = (0..20).map(|id| (id, 10_000_000)).collect();
    let mut crowd = Crowd::new(100_000_000, 1, &plans);
    crowd.greedy[0] = false;
    crowd.run(SECOND);
    let mut worst = Nanos::ZERO;
    for _ in 0..200 {
        crowd.run(Nanos::from_millis(3));
        let before = crowd.bytes[0];
        let sent_at = crowd.rig.now;
        crowd.rig.offer(Offer::new(0, 100));
        while crowd.bytes[0] == before {
            crowd.run(POLL);
        }
        worst = worst.max(crowd.rig.now.since(sent_at));
    }
    // a packet time of the port is 123 us, and at most those due in its own slot are ahead
    assert!(worst < Nanos::from_millis(1), "{worst:?}");
}

#[test]
fn a_device_that_pushes_back_slows_the_clock_of_a_port_without_a_shaper() {
    let plans: Vec<_> = (0..10).map(|id| (id, 20_000_000)).collect();
    let mut crowd = Crowd::new(100_000_000, 1, &plans);
    crowd.rig.ports[0].set_rate(None);
    // the device takes 16 packets, then none until they are out at 100 Mb/s
    let mut busy_until = crowd.rig.now;
    let start = crowd.rig.now;
    let end = start + Nanos::from_secs(2);
    while crowd.rig.now < end {
        crowd.rig.now += POLL;
        let room = if crowd.rig.now >= busy_until { 16 } else { 0 };
        let mut sent = Vec::new();
        crowd.rig.dequeue(0, 0, room, |_, packet| sent.push(engine::Packet::meta(packet).queue_id.0));
        busy_until = busy_until.max(crowd.rig.now) + Nanos(sent.len() as u64 * FULL * 80);
        for id in sent {
            crowd.bytes[id as usize] += FULL;
            crowd.rig.offer(Offer::new(id, 1_500));
        }
    }
    let rates: Vec<f64> = crowd.bytes.iter().map(|&bytes| bytes as f64 * 4.0).collect();
    assert!(jain(&rates) > 0.999, "{rates:?}");
    let speed = crowd.rig.ports[0].clock_speed();
    assert!((speed - 0.5).abs() < 0.05, "{speed}");
}

#[test]
fn unknown_traffic_without_a_rate_leaves_subscribers_their_share() {
    let mut crowd = Crowd::new(100_000_000, 1, &[(0, 100_000_000), (1, 10_000_000)]);
    let mut spec = Rig::spec(0, FIFO);
    spec.kind = engine::QueueKind::Unknown;
    crowd.rig.apply(Change::Remove { id: QueueId(0) });
    crowd.rig.apply(Change::Create { id: QueueId(0), spec });
    crowd.start(0);
    crowd.run(SECOND);
    let rates = crowd.rates(SECOND);
    // it counts as a plan of the port's rate: 100 + 10 on 100
    assert!((rates[1] / (10e6 / 1.1) - 1.0).abs() < 0.02, "{rates:?}");
    assert!((rates[0] / (100e6 / 1.1) - 1.0).abs() < 0.02, "{rates:?}");
    // and follows it
    crowd.rig.ports[0].set_rate(Some(aqm::BitsPerSec(50_000_000)));
    crowd.run(SECOND);
    let rates = crowd.rates(SECOND);
    assert!((rates[0] / (50e6 / 1.2) - 1.0).abs() < 0.02, "{rates:?}");
}

#[test]
fn control_traffic_goes_ahead_of_all_and_no_further_than_its_part() {
    let mut crowd = Crowd::new(100_000_000, 1, &[(0, 100_000_000), (1, 100_000_000)]);
    let mut spec = Rig::spec(0, FIFO);
    spec.kind = engine::QueueKind::Control;
    crowd.rig.apply(Change::Remove { id: QueueId(1) });
    crowd.rig.apply(Change::Create { id: QueueId(1), spec });
    crowd.greedy[1] = false;
    crowd.run(SECOND);
    let before = crowd.bytes.clone();
    let end = crowd.rig.now + SECOND;
    let mut worst = Nanos::ZERO;
    while crowd.rig.now < end {
        crowd.rig.now += POLL;
        // 600 Mb/s of it
        crowd.rig.offer(Offer { ecn: Ecn::NotEct, ..Offer::new(1, 1_500) });
        let (asked, mut left) = (crowd.rig.now, None);
        let mut sent = Vec::new();
        crowd.rig.dequeue(0, 0, 32, |now, packet| {
            let id = engine::Packet::meta(packet).queue_id.0;
            if id == 1 {
                left = Some(now);
            }
            sent.push(id);
        });
        worst = worst.max(left.map_or(Nanos::ZERO, |left| left.since(asked)));
        for id in sent {
            crowd.bytes[id as usize] += FULL;
            if id == 0 {
                crowd.rig.offer(Offer::new(id, 1_500));
            }
        }
    }
    let rate = |id: usize| (crowd.bytes[id] - before[id]) as f64 * 8.0;
    assert!((rate(1) / 1e6 - 1.0).abs() < 0.12, "1 % of the port and a small burst: {}", rate(1));
    assert!((rate(0) / 99e6 - 1.0).abs() < 0.01, "control spends the port's shaper: {}", rate(0));
    assert_eq!(worst, Nanos::ZERO, "what is let in leaves with the next dequeue");
    let limited = crowd.rig.totals().control_limited;
    assert_eq!(limited[0], crowd.rig.dropped(engine::DropReason::Tail), "the excess is counted");
    assert!(limited[0] > 40_000);
    assert_eq!(crowd.rig.shards[0].next_event(PortId(7)), None);
    crowd.rig.check_conservation();
}
