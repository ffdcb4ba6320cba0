// SPDX-License-Identifier: Apache-2.0
//! Mbufs, bursts, pools, the intrusive FIFO and rings on a real EAL. Every test ends with all buffers at home.

use std::collections::VecDeque;
use std::thread;

use dpdk::{Burst, Mbuf, MbufFifo, Mempool, PoolError, PoolOptions, Words, ring};
use proptest::prelude::*;

use crate::common::{burst, eal, name, number, numbered, pool};

#[test]
fn dropping_an_mbuf_returns_it_to_its_pool() {
    let pool = pool(8);
    let packets: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!((packets.len(), pool.in_use(), pool.available()), (8, 8, 0));
    assert!(pool.alloc().is_none(), "the pool is dry");
    drop(packets);
    assert_eq!((pool.in_use(), pool.available()), (0, 8));
}

#[test]
fn bulk_allocation_is_all_or_nothing() {
    let pool = pool(40);
    let mut burst = Burst::<32>::new();
    assert!(pool.alloc_bulk(&mut burst, 30));
    assert!(!pool.alloc_bulk(&mut burst, 3), "more than the burst has room for");
    let mut other = Burst::<32>::new();
    assert!(!pool.alloc_bulk(&mut other, 11), "more than the pool has");
    assert_eq!((burst.len(), other.len(), pool.in_use()), (30, 0, 30));
    burst.clear();
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn mbufs_freed_by_another_thread_return_to_the_pool() {
    let pool = pool(64);
    let packets: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).collect();
    thread::spawn(move || drop(packets)).join().unwrap();
    assert_eq!(pool.available(), 64);
}

#[test]
fn a_pool_with_mbufs_out_is_not_freed() {
    let pool = pool(8);
    let mut packet = numbered(&pool, 7);
    let taken = pool.name().to_owned();
    drop(pool);
    assert_eq!(number(&packet), 7, "its memory is still there");
    packet.data_mut()[3] = 8;
    assert_eq!(number(&packet), 8);
    let again = PoolOptions { name: taken.clone(), buffers: 8, cache: 0, data_room: 2176, socket: None };
    assert_eq!(Mempool::create(eal(), &again).unwrap_err(), PoolError::Exists { name: taken });
}

#[test]
fn the_name_of_a_pool_that_is_gone_is_free() {
    let options = PoolOptions { name: name("again"), buffers: 8, cache: 0, data_room: 2176, socket: None };
    drop(Mempool::create(eal(), &options).unwrap());
    Mempool::create(eal(), &options).unwrap();
}

#[test]
fn pools_that_make_no_sense_are_refused_by_a_sentence() {
    let good = PoolOptions { name: name("bad"), buffers: 64, cache: 0, data_room: 2176, socket: None };
    let refuse = |options: PoolOptions| Mempool::create(eal(), &options).unwrap_err().to_string();
    assert!(
        refuse(PoolOptions { name: "x".repeat(26), ..good.clone() }).contains("1 to 25 plain characters")
    );
    assert!(refuse(PoolOptions { buffers: 0, ..good.clone() }).contains("no buffers"));
    assert!(refuse(PoolOptions { cache: 60, ..good.clone() }).contains("at most 42 are possible"));
    assert!(refuse(PoolOptions { data_room: 128, ..good.clone() }).contains("hold no data"));
    let large = refuse(PoolOptions { buffers: 4_000_000, ..good });
    assert!(large.contains("4000000 buffers need about 9278 MB"), "{large}");
}

#[test]
fn data_grows_and_shrinks_at_both_ends() {
    let pool = pool(2);
    let mut packet = pool.alloc().unwrap();
    assert_eq!((packet.data().len(), packet.headroom(), packet.tailroom()), (0, 128, 2048));
    assert!(packet.extend(b"payload"));
    packet.prepend(4).unwrap()[..4].copy_from_slice(b"tag.");
    assert_eq!(packet.data(), b"tag.payload");
    assert_eq!((packet.pkt_len(), packet.segments(), packet.headroom()), (11, 1, 124));
    assert!(packet.adj(8));
    assert_eq!(packet.data(), b"oad");
    assert!(!packet.adj(4), "shorter than that");
    assert!(packet.prepend(133).is_none(), "more than the headroom");
    assert!(packet.append(2046).is_none(), "more than the tailroom");
    assert_eq!(packet.append(2).unwrap().len(), 2);
    assert_eq!((packet.data().len(), packet.pkt_len()), (5, 5));
}

#[test]
fn a_chain_is_one_packet() {
    let pool = pool(8);
    let mut packet = numbered(&pool, 1);
    packet.chain(numbered(&pool, 2)).unwrap();
    packet.chain(numbered(&pool, 3)).unwrap();
    assert_eq!((packet.segments(), packet.pkt_len(), packet.data().len()), (3, 12, 4));
    assert_eq!(packet.to_vec(), [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]);
    assert!(packet.append(1).is_none(), "only whole packets of one segment grow at the end");
    packet.prepend(1).unwrap()[0] = 9;
    assert_eq!((packet.pkt_len(), packet.to_vec()[0]), (13, 9));
    // On the FIFO it stays one packet: `next` is not its link.
    let mut fifo = MbufFifo::new();
    fifo.push(packet);
    fifo.push(numbered(&pool, 4));
    let packet = fifo.pop().unwrap();
    assert_eq!((packet.segments(), packet.to_vec().len()), (3, 13));
    assert_eq!(number(&fifo.pop().unwrap()), 4);
    drop(packet);
    assert_eq!(pool.in_use(), 0, "all segments are home");
}

#[test]
fn words_are_kept_and_touch_nothing_else() {
    let pool = pool(2);
    let mut packet = numbered(&pool, 5);
    let words = Words { id: 0xdead_beef, stamp: u32::MAX, packet: 0x0102_0304, port: 0xabcd };
    packet.set_words(words);
    assert_eq!(packet.words(), words);
    assert_eq!((number(&packet), packet.pkt_len(), packet.segments()), (5, 4, 1));
}

#[test]
fn a_burst_gives_back_what_was_put_in() {
    let pool = pool(64);
    let mut full = burst(&pool, 0..32);
    assert!(full.is_full() && full.room() == 0);
    let refused = full.push(numbered(&pool, 99)).unwrap_err();
    assert_eq!(number(&refused), 99);
    assert_eq!(number(&full.pop().unwrap()), 31);
    assert_eq!(full.as_slice().iter().map(number).collect::<Vec<_>>(), (0..31).collect::<Vec<_>>());
    full.as_mut_slice()[0].data_mut()[3] = 50;
    let mut drain = full.drain();
    assert_eq!((drain.len(), number(&drain.next().unwrap())), (31, 50));
    assert_eq!(number(&drain.next().unwrap()), 1);
    drop(drain);
    assert!(full.is_empty() && full.pop().is_none());
    drop(refused);
    assert_eq!(pool.in_use(), 0, "what a drain did not give is freed");
}

#[test]
fn a_dropped_burst_frees_its_packets() {
    let pool = pool(64);
    drop(burst(&pool, 0..20));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn an_empty_fifo_is_eight_bytes_and_a_dropped_one_frees_its_packets() {
    let pool = pool(64);
    let mut fifo = MbufFifo::default();
    assert_eq!(size_of_val(&fifo), 8);
    assert!(fifo.is_empty() && fifo.front().is_none() && fifo.pop().is_none());
    (0..10).for_each(|n| fifo.push(numbered(&pool, n)));
    assert_eq!(pool.in_use(), 10);
    drop(fifo);
    assert_eq!(pool.in_use(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Push(u32),
    Pop,
    Clear,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step =
        prop_oneof![6 => any::<u32>().prop_map(Step::Push), 5 => Just(Step::Pop), 1 => Just(Step::Clear)];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn behaves_like_a_deque(steps in steps()) {
        let pool = pool(256);
        let mut fifo = MbufFifo::new();
        let mut oracle: VecDeque<u32> = VecDeque::new();
        for step in steps {
            match step {
                Step::Push(n) => {
                    let mut packet = numbered(&pool, n);
                    packet.set_words(Words { id: n, stamp: n ^ 1, packet: n ^ 2, port: 7 });
                    fifo.push(packet);
                    oracle.push_back(n);
                }
                Step::Pop => prop_assert_eq!(fifo.pop().map(|p| number(&p)), oracle.pop_front()),
                Step::Clear => {
                    drop(std::mem::take(&mut fifo));
                    oracle.clear();
                }
            }
            let front = fifo.front().map(|(w, bytes)| (w.stamp, w.packet, w.port, bytes));
            prop_assert_eq!(front, oracle.front().map(|n| (n ^ 1, n ^ 2, 7, 4)));
            prop_assert_eq!(fifo.is_empty(), oracle.is_empty());
            prop_assert_eq!(pool.in_use() as usize, oracle.len());
        }
        drop(fifo);
        prop_assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn packets_move_between_fifos_in_order(targets in proptest::collection::vec(0..4_usize, 0..200)) {
        let pool = pool(256);
        let mut fifos: [MbufFifo; 4] = Default::default();
        let mut oracle: [VecDeque<u32>; 4] = Default::default();
        for (n, to) in (0_u32..).zip(targets) {
            fifos[to].push(numbered(&pool, n));
            oracle[to].push_back(n);
            // One in three moves on to the next queue, as a packet does that changes hands.
            if n % 3 == 0 {
                let next = (to + 1) % 4;
                if let Some(packet) = fifos[to].pop() {
                    fifos[next].push(packet);
                }
                let moved = oracle[to].pop_front();
                oracle[next].extend(moved);
            }
        }
        for (fifo, oracle) in fifos.iter_mut().zip(oracle) {
            let numbers: Vec<u32> = std::iter::from_fn(|| fifo.pop()).map(|p| number(&p)).collect();
            prop_assert_eq!(numbers, Vec::from(oracle));
        }
        prop_assert_eq!(pool.in_use(), 0);
    }
}

#[test]
fn what_a_full_ring_refuses_stays_in_order() {
    let pool = pool(128);
    let (mut producer, mut consumer) = ring(eal(), &name("full"), 31, None).unwrap();
    assert_eq!(producer.capacity(), 31);
    assert_eq!(producer.enqueue(&mut burst(&pool, 0..20)), 20);
    let mut more = burst(&pool, 20..50);
    assert_eq!(producer.enqueue(&mut more), 11);
    assert_eq!(more.as_slice().iter().map(number).collect::<Vec<_>>(), (31..50).collect::<Vec<_>>());
    assert_eq!(number(&producer.push(numbered(&pool, 50)).unwrap_err()), 50);
    assert_eq!((producer.len(), consumer.len()), (31, 31));
    let mut out = Burst::<64>::new();
    assert_eq!(consumer.dequeue(&mut out), 31);
    assert_eq!(consumer.dequeue(&mut out), 0);
    assert_eq!(out.as_slice().iter().map(number).collect::<Vec<_>>(), (0..31).collect::<Vec<_>>());
    assert_eq!(producer.enqueue(&mut more), 19);
    drop((out, more));
    assert_eq!(pool.in_use(), 19);
    drop((producer, consumer));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn packets_left_in_a_ring_are_freed() {
    let pool = pool(64);
    let (mut producer, consumer) = ring(eal(), &name("left"), 63, None).unwrap();
    producer.enqueue(&mut burst(&pool, 0..32));
    drop(consumer);
    assert_eq!(pool.in_use(), 32, "the other half is still there");
    drop(producer);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_ring_keeps_order_between_threads() {
    const PACKETS: u32 = 20_000;
    let pool = pool(512);
    let (mut producer, mut consumer) = ring(eal(), &name("threads"), 127, None).unwrap();
    let source = pool.clone();
    let sender = thread::spawn(move || {
        let mut next = 0;
        while next < PACKETS {
            let Some(mut packet) = source.alloc() else {
                thread::yield_now();
                continue;
            };
            assert!(packet.extend(&next.to_be_bytes()));
            while let Err(back) = producer.push(packet) {
                packet = back;
                thread::yield_now();
            }
            next += 1;
        }
    });
    let mut expected = 0;
    let mut burst = Burst::<32>::new();
    while expected < PACKETS {
        if consumer.dequeue(&mut burst) == 0 {
            thread::yield_now();
        }
        for packet in burst.drain() {
            assert_eq!(number(&packet), expected);
            expected += 1;
        }
    }
    sender.join().unwrap();
    assert!(consumer.is_empty());
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn rings_that_make_no_sense_are_refused() {
    let taken = name("taken");
    let _ring = ring(eal(), &taken, 7, None).unwrap();
    assert_eq!(ring(eal(), &taken, 7, None).unwrap_err(), PoolError::Exists { name: taken });
    assert!(matches!(ring(eal(), &name("none"), 0, None), Err(PoolError::RingSize { capacity: 0, .. })));
    assert!(matches!(ring(eal(), &name("huge"), u32::MAX, None), Err(PoolError::RingSize { .. })));
    assert!(matches!(ring(eal(), &"x".repeat(29), 7, None), Err(PoolError::Name { .. })));
}
