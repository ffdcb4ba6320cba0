// SPDX-License-Identifier: Apache-2.0
//! Conservation of packets over random fates.

use proptest::prelude::*;

use super::queue::{Arrivals, Ledger, QueueLine};
use super::*;

/// A queue's line with its ledger.
struct Own {
    arrivals: Arrivals,
    line: QueueLine,
    ledger: Box<Ledger>,
}

impl Default for Own {
    fn default() -> Self {
        Self { arrivals: Arrivals::default(), line: QueueLine::default(), ledger: Box::new([0; _]) }
    }
}

impl Own {
    fn came(&mut self, ecn: Ecn) {
        self.arrivals.count(ecn, &mut self.line, &mut self.ledger);
    }

    fn sent(&mut self, bytes: u32, delay: u32) {
        self.line.forwarded(bytes, Delay::of(delay), &mut self.ledger);
    }

    fn read(&self) -> QueueCounters {
        self.line.read(self.arrivals, &self.ledger)
    }
}

#[test]
fn counts_outgrow_their_line_and_lose_nothing() {
    let mut own = Own::default();
    let (packets, bytes, delay) = (200_000_u64, 60_000_u32, 1_u32 << 20);
    for _ in 0..packets {
        own.came(Ecn::Ce);
        own.sent(bytes, delay);
        own.line.marked(&mut own.ledger);
    }
    let stats = own.read().stats(0);
    assert_eq!(
        (stats.arrived, stats.arrived_ce, stats.forwarded, stats.marked),
        (packets, packets, packets, packets)
    );
    assert_eq!(stats.forwarded_bytes, packets * u64::from(bytes));
    let sum = 200_000.0 * f64::from(delay) * 0.064;
    assert!((stats.delay_us.sum - sum).abs() < 1.0, "{} us", stats.delay_us.sum);
    assert_eq!(stats.delay_us.count.last().copied(), Some(packets));
}

#[test]
fn what_passes_counts_as_what_comes_and_leaves_in_no_time() {
    for (packets, bytes) in [(1, 40), (255, 64), (256, 64), (1_000, 9_000), (70_000, 65_535), (70_000, 1)] {
        let (mut own, mut other) = (Own::default(), Own::default());
        for n in 0..packets {
            let ecn = [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce][n % 4];
            own.arrivals.pass(ecn, bytes, &mut own.line, &mut own.ledger);
            other.came(ecn);
            other.sent(bytes.into(), 0);
            // others between them wait
            if n % 1_000 == 7 {
                for one in [&mut own, &mut other] {
                    one.came(ecn);
                    one.sent(1_500, 9_999);
                }
            }
        }
        assert_eq!(own.read(), other.read(), "{packets} of {bytes}");
    }
}

#[test]
fn a_queue_of_few_packets_has_no_ledger() {
    let mut own = Own::default();
    for _ in 0..255 {
        own.came(Ecn::Ect1);
        own.sent(1_500, 10_000);
    }
    assert!(!own.line.has_carried());
    assert_eq!(own.read().forwarded_packets(), 255);
}

#[test]
fn reasons_are_numbered_in_the_order_of_all() {
    for (index, reason) in DropReason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, index);
    }
}

#[test]
fn ring_drops_fold_into_arrived_and_other_once() {
    let drops = RingDrops::new(4);
    drops.add(QueueId(3), Queue::L4s);
    drops.add(QueueId(3), Queue::Classic);
    drops.add(QueueId(3), Queue::Classic);
    drops.add(QueueId(4), Queue::Classic);
    assert_eq!(drops.take(QueueId(2)), [0, 0]);
    let mut own = Own::default();
    let [_, classic] = drops.take(QueueId(3));
    own.line.fold_ring_drops(classic, &mut own.ledger);
    assert_eq!(drops.take(QueueId(3)), [0, 0]);
    let stats = own.read().stats(0);
    assert_eq!((stats.arrived, stats.dropped_other, stats.presented), (2, 2, 0));
}

/// What may happen to a packet.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Sent { bytes: u32, delay: u32, mark: bool },
    Dropped(DropReason),
    Waits,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        (40_u32..9000, 0_u32..1 << 24, any::<bool>()).prop_map(|(bytes, delay, mark)| Fate::Sent {
            bytes,
            delay,
            mark
        }),
        prop::sample::select(&DropReason::ALL[..]).prop_map(Fate::Dropped),
        Just(Fate::Waits),
    ]
}

fn packet() -> impl Strategy<Value = (bool, bool, Ecn, Fate)> {
    (any::<bool>(), any::<bool>(), prop::sample::select(&Ecn::ALL[..]), fate())
}

proptest! {
    #[test]
    fn counters_conserve_packets(packets in prop::collection::vec(packet(), 0..200)) {
        let mut own: [[Own; 2]; 2] = Default::default();
        let shard = ShardCounters::default();
        let rx = RxCounters::default();
        let mut waiting = [[0_u64; 2]; 2];
        for &(up, classic, ecn, fate) in &packets {
            let direction = if up { Direction::Up } else { Direction::Down };
            let queue = if classic { Queue::Classic } else { Queue::L4s };
            let own = &mut own[usize::from(up)][usize::from(classic)];
            if let Fate::Dropped(DropReason::Ring) = fate {
                rx.ring_full(direction, queue, ecn);
                own.line.fold_ring_drops(1, &mut own.ledger);
                continue;
            }
            own.came(ecn);
            shard.arrived(direction, queue);
            match fate {
                Fate::Sent { bytes, delay, mark } => {
                    own.sent(bytes, delay);
                    shard.forwarded(direction, queue, bytes, Delay::of(delay));
                    if mark {
                        own.line.marked(&mut own.ledger);
                        shard.marked(direction, queue);
                    }
                }
                Fate::Dropped(reason) => {
                    own.line.dropped(reason, ecn, &mut own.ledger);
                    shard.dropped(direction, queue, reason, ecn);
                }
                Fate::Waits => waiting[usize::from(up)][usize::from(classic)] += 1,
            }
        }
        let mut totals = AllTotals::default();
        shard.add_to(&mut totals);
        rx.add_to(&mut totals);
        let mut seen = 0;
        for direction in Direction::BOTH {
            for queue in Queue::BOTH {
                let (d, q) = (direction as usize, queue as usize);
                let stats = own[d][q].read().stats(waiting[d][q]);
                let sum = totals.queue(direction, queue);
                prop_assert_eq!(
                    stats.arrived,
                    stats.forwarded + stats.dropped_ect + stats.dropped_not_ect + stats.dropped_tail
                        + stats.dropped_pool + stats.dropped_other + stats.queued
                );
                prop_assert_eq!(
                    stats.presented,
                    stats.arrived - stats.dropped_tail - stats.dropped_pool - stats.dropped_other
                );
                prop_assert_eq!(sum.arrived, stats.arrived);
                prop_assert_eq!(sum.forwarded, stats.forwarded);
                prop_assert_eq!(sum.bytes, stats.forwarded_bytes);
                prop_assert_eq!(sum.marked, stats.marked);
                prop_assert_eq!(sum.delay.count(), stats.forwarded);
                prop_assert_eq!(sum.arrived, sum.forwarded + sum.dropped_packets() + stats.queued);
                prop_assert_eq!(sum.presented() + stats.queued, stats.presented);
                prop_assert_eq!(stats.delay_us.count.last().copied(), Some(stats.forwarded));
                seen += stats.arrived;
            }
        }
        prop_assert_eq!(seen, packets.len() as u64);
    }
}
