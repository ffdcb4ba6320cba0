// SPDX-License-Identifier: Apache-2.0
//! A port offered twice its rate by many: it stays full, shares follow plans, buffers are bounded, and who sends far
//! less than its plan waits for nobody and loses nothing, also where fewer packets may wait than subscribers send.

#![expect(clippy::cast_precision_loss, reason = "counts and times far below 2^53")]

mod common;

use aqm::{Ecn, Nanos};
use common::{DUALPI2, Offer, Rig, Setup, jain};
use engine::{DropReason, Packet, QueueId};

/// Bytes of a 64-byte frame on the port.
const WIRE: u64 = 84;
/// L3 bytes of one.
const L3_BYTES: u16 = 46;
const POLL: Nanos = Nanos::from_micros(20);
/// The least plan; others have two and four times as much.
const PLAN_BPS: u64 = 64_000;
const SPARSE_BPS: u64 = 10_000_000;

/// What is offered, to whom, and what may wait.
struct Case {
    subscribers: u32,
    /// The first so many send far less than their plan.
    sparse: u32,
    port_pps: u64,
    buffers: u32,
    /// Packets that a sparse one sends at once.
    burst: u32,
}

/// What became of it.
struct Seen {
    case: Case,
    rig: Rig,
    sent: u64,
    served: Vec<u32>,
    delays: Vec<Nanos>,
    most_buffers: u32,
    /// What sparse subscribers had lost when the measurement began: who comes back from idling at once with all others
    /// has nothing yet that tells it from them.
    lost_before: u64,
    span: Nanos,
}

fn weight(case: &Case, id: u32) -> u32 {
    if id < case.sparse { 1 } else { 1 << (id % 3) }
}

impl Case {
    /// Offers twice the port for `warm_up` and then for `span`, by turns in an order shuffled once, each as often in a
    /// round as its plan says.
    fn run(self, warm_up: Nanos, span: Nanos) -> Seen {
        let setup = Setup {
            capacity: self.subscribers,
            buffers: self.buffers,
            ports: vec![Some(self.port_pps * WIRE * 8)],
            ..Setup::default()
        };
        let mut rig = Rig::new(&setup);
        for id in 0..self.subscribers {
            let plan = if id < self.sparse { SPARSE_BPS } else { PLAN_BPS * u64::from(weight(&self, id)) };
            rig.create(id, plan, DUALPI2);
        }
        let order = self.order();
        let mut seen = Seen {
            sent: 0,
            served: vec![0; self.subscribers as usize],
            delays: Vec::new(),
            most_buffers: 0,
            lost_before: 0,
            span,
            rig,
            case: self,
        };
        let mut next = 0_u64;
        let begin = seen.rig.now;
        while seen.rig.now < begin + warm_up + span {
            if seen.rig.now < begin + warm_up && seen.rig.now + POLL >= begin + warm_up {
                seen.lost_before = seen.sparse_lost();
            }
            seen.rig.now += POLL;
            let wanted = seen.rig.now.since(begin).0 * 2 * seen.case.port_pps / 1_000_000_000;
            while next < wanted {
                seen.offer(order[usize::try_from(next).expect("64 bits") % order.len()], next);
                next += 1;
            }
            seen.poll(begin + warm_up);
        }
        seen
    }

    /// Fisher and Yates with xorshift64.
    fn order(&self) -> Vec<u32> {
        let often = |id| std::iter::repeat_n(id, weight(self, id) as usize);
        let mut order: Vec<u32> = (0..self.subscribers).flat_map(often).collect();
        let mut state = 1_u64;
        for last in (1..order.len()).rev() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            order.swap(last, usize::try_from(state % (last as u64 + 1)).expect("64 bits"));
        }
        order
    }
}

impl Seen {
    fn offer(&mut self, id: u32, serial: u64) {
        let ecn = if serial.is_multiple_of(2) { Ecn::NotEct } else { Ecn::Ect1 };
        let packets = if id < self.case.sparse { self.case.burst } else { 1 };
        for _ in 0..packets {
            self.rig.offer(Offer { ecn, ..Offer::new(id, L3_BYTES) });
        }
    }

    fn poll(&mut self, measured_from: Nanos) {
        let Self { case, rig, sent, served, delays, .. } = self;
        let mut each = |now: Nanos, packet: &common::TestPacket| {
            let meta = packet.meta();
            if now < measured_from {
                return;
            }
            *sent += 1;
            served[meta.queue_id.0 as usize] += 1;
            if meta.queue_id.0 < case.sparse {
                delays.push(aqm::Stamp::at(now).since(meta.arrival));
            }
        };
        while rig.dequeue(0, 0, 32, &mut each) == 32 {}
        self.most_buffers = self.most_buffers.max(self.rig.shards[0].buffers_used());
    }

    /// Packets that sparse subscribers lost.
    fn sparse_lost(&mut self) -> u64 {
        let lost = |id| {
            let snapshot = self.rig.shards[0].snapshot(QueueId(id)).expect("it is there");
            snapshot.l4s.counters.dropped_packets() + snapshot.classic.counters.dropped_packets()
        };
        (0..self.case.sparse).map(lost).sum()
    }

    fn check(&mut self) {
        let port = self.case.port_pps as f64 * self.span.0 as f64 / 1e9;
        let used = self.sent as f64 / port;
        assert!(used > 0.98 && used < 1.01, "{used} of the port");
        let ordinary = (self.case.sparse..self.case.subscribers).map(|id| (id, self.served[id as usize]));
        let shares: Vec<f64> =
            ordinary.map(|(id, got)| f64::from(got) / f64::from(weight(&self.case, id))).collect();
        assert!(jain(&shares) > 0.98, "{}", jain(&shares));
        for plan in 0..3 {
            let of = shares
                .iter()
                .zip(self.case.sparse..)
                .filter(|(_, id)| id % 3 == plan)
                .map(|(share, _)| share);
            let (sum, count) = of.fold((0.0, 0.0), |(sum, count), share| (sum + share, count + 1.0));
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            assert!((sum / count / mean - 1.0).abs() < 0.05, "plan {plan}: {} of {mean}", sum / count);
        }
        self.delays.sort_unstable();
        let p99 = self.delays[self.delays.len() * 99 / 100];
        assert!(p99 < Nanos::from_millis(2), "sparse: {p99:?}");
        assert_eq!(self.sparse_lost() - self.lost_before, 0, "what sparse subscribers lost");
        assert!(self.most_buffers <= self.case.buffers);
        self.rig.check_conservation();
        assert_eq!(self.rig.shards[0].wheel_refused(), 0);
    }
}

const CROWD: Case = Case { subscribers: 8_000, sparse: 400, port_pps: 200_000, buffers: 16_000, burst: 1 };

#[test]
fn a_port_offered_twice_its_rate_stays_full_and_sparse_subscribers_wait_for_nobody() {
    CROWD.run(Nanos::from_millis(1_500), Nanos::from_secs(2)).check();
}

#[test]
fn sparse_subscribers_get_buffers_where_a_quarter_of_the_others_could_have_one_each() {
    let case = Case { buffers: 2_000, burst: 3, ..CROWD };
    case.run(Nanos::from_millis(1_500), Nanos::from_secs(2)).check();
}

#[test]
fn a_flooded_queue_that_its_aqm_drops_is_no_burst_of_work() {
    let poll = Nanos::from_micros(20);
    let mut rig = Rig::new(&Setup::default());
    rig.create(0, 2_000_000, DUALPI2);
    (1..50).for_each(|id| rig.create(id, 100_000_000, DUALPI2));
    let dropped = |rig: &Rig| rig.dropped(DropReason::Aqm) + rig.dropped(DropReason::Overload);
    let (mut most, mut before) = (0, 0);
    for step in 0..60_000_u32 {
        // 1 Mpps to one, and somebody else each time
        for n in 0..20 {
            rig.offer(Offer { ecn: Ecn::from_bits(n % 2), ..Offer::new(0, L3_BYTES) });
        }
        rig.offer(Offer::new(1 + step % 49, L3_BYTES));
        rig.now += poll;
        if step.is_multiple_of(800) {
            rig.tick();
        }
        while rig.dequeue(0, 0, 32, |_, _| {}) == 32 {}
        let now = dropped(&rig);
        most = most.max(now - before);
        before = now;
    }
    assert!(before > 3_000, "its AQM drops: {before}");
    // ten slots a call, eight of them dropped in each
    assert!(most <= 8 * 12, "{most} in a call");
    for id in 1..50 {
        let snapshot = rig.shards[0].snapshot(QueueId(id)).expect("it is there");
        assert_eq!(snapshot.classic.counters.dropped_packets(), 0, "id {id}");
    }
    rig.check_conservation();
}
