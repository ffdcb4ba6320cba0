// SPDX-License-Identifier: Apache-2.0
//! Ports on a real EAL: net_null and net_ring, states, queues, links, counters.

use core::ffi::c_void;
use std::slice::from_ref;
use std::sync::atomic::{AtomicU64, Ordering};

use dpdk::{Burst, Consumer, MtuOutcome, Port, PortError, PortOptions, Producer, ring};

use crate::common::{burst, eal, name, number, pool};

/// A port of rings with one queue each way, and the far ends of its rings.
fn ring_port() -> (Port, Producer, Consumer) {
    let (into, rx) = ring(eal(), &name("rx"), 127, None).unwrap();
    let (tx, out) = ring(eal(), &name("tx"), 127, None).unwrap();
    (Port::from_rings(eal(), &name("net_ring_t"), vec![rx], vec![tx]).unwrap(), into, out)
}

#[test]
fn a_null_port_delivers_and_takes() {
    let pool = pool(512);
    let mut port = Port::open(eal(), "net_null0").unwrap();
    assert_eq!((port.device(), port.driver()), ("net_null0", "net_null"));
    let configured = port.configure(&PortOptions::default(), from_ref(&pool)).unwrap();
    assert!(!configured.rss, "one queue needs no RSS");
    let mut queues = port.start().unwrap();
    let mut burst = Burst::<32>::new();
    assert_eq!(queues.rx[0].burst(&mut burst), 32);
    assert_eq!(queues.rx[0].burst(&mut burst), 0, "a full burst takes no more");
    assert!(burst.as_slice().iter().all(|p| p.pkt_len() == 64 && p.segments() == 1 && p.port() == port.id()));
    assert_eq!(pool.in_use(), 32);
    assert_eq!(queues.tx[0].burst(&mut burst), 32);
    assert!(burst.is_empty());
    assert_eq!(pool.in_use(), 0, "net_null frees what it is given");
    let stats = port.stats();
    assert_eq!((stats.ipackets, stats.opackets, stats.imissed, stats.oerrors), (32, 32, 0, 0));
    assert_eq!((queues.rx[0].index(), queues.tx[0].index()), (0, 0));
    assert!(port.link().up);
    assert_eq!(port.link().speed_bps, Some(10_000_000_000));
    drop(queues);
    port.stop().unwrap();
}

#[test]
fn a_port_is_stopped_only_when_its_queues_are_back() {
    let pool = pool(64);
    let (mut port, _into, _out) = ring_port();
    assert!(matches!(port.start(), Err(PortError::State { state: "not configured", .. })));
    assert!(matches!(port.stop(), Err(PortError::State { .. })));
    port.configure(&PortOptions::default(), from_ref(&pool)).unwrap();
    let queues = port.start().unwrap();
    assert!(matches!(port.start(), Err(PortError::State { state: "running", .. })));
    let again = port.configure(&PortOptions::default(), &[pool]);
    assert!(matches!(again, Err(PortError::State { action: "configured", state: "running", .. })));
    let refused = port.stop().unwrap_err();
    assert!(matches!(refused, PortError::QueuesInUse { queues: 2, .. }), "{refused}");
    drop(queues.rx);
    assert!(matches!(port.stop(), Err(PortError::QueuesInUse { queues: 1, .. })));
    drop(queues.tx);
    port.stop().unwrap();
    // Down and up again: the queues work as before.
    let queues = port.start().unwrap();
    assert_eq!((queues.rx.len(), queues.tx.len()), (1, 1));
}

#[test]
fn a_ring_port_hands_packets_over() {
    let pool = pool(256);
    let (mut port, mut into, mut out) = ring_port();
    port.configure(&PortOptions::default(), from_ref(&pool)).unwrap();
    let mut queues = port.start().unwrap();
    let mut packets = burst(&pool, 0..32);
    let addresses: Vec<*const u8> = packets.as_slice().iter().map(dpdk::Mbuf::address).collect();
    assert_eq!(into.enqueue(&mut packets), 32);
    assert_eq!(queues.rx[0].burst(&mut packets), 32);
    assert_eq!(packets.as_slice().iter().map(dpdk::Mbuf::address).collect::<Vec<_>>(), addresses, "no copy");
    assert_eq!(queues.tx[0].burst(&mut packets), 32);
    let mut received = Burst::<64>::new();
    assert_eq!(out.dequeue(&mut received), 32);
    assert_eq!(received.as_slice().iter().map(number).collect::<Vec<_>>(), (0..32).collect::<Vec<_>>());
    drop(received);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_full_tx_queue_gives_back_what_it_does_not_take() {
    let pool = pool(256);
    let (mut port, _into, mut out) = ring_port();
    port.configure(&PortOptions::default(), from_ref(&pool)).unwrap();
    let mut queues = port.start().unwrap();
    let mut sent = 0_u32;
    let mut packets = Burst::<32>::new();
    while packets.is_empty() {
        packets = burst(&pool, sent..sent + 30);
        sent += u32::try_from(queues.tx[0].burst(&mut packets)).unwrap();
    }
    assert_eq!(sent, 127);
    assert_eq!(packets.as_slice().iter().map(number).collect::<Vec<_>>(), (127..150).collect::<Vec<_>>());
    let refused = queues.tx[0].send(packets.pop().unwrap()).unwrap_err();
    assert_eq!(number(&refused), 149);
    let mut received = Burst::<64>::new();
    assert_eq!(out.dequeue(&mut received), 64);
    received.clear();
    assert_eq!(queues.tx[0].burst(&mut packets), 22, "there is room again");
    queues.tx[0].send(refused).unwrap();
    let mut expected = 64;
    while out.dequeue(&mut received) > 0 {
        for packet in received.drain() {
            assert_eq!(number(&packet), expected);
            expected += 1;
        }
    }
    assert_eq!((expected, pool.in_use()), (150, 0));
}

#[test]
fn a_ring_port_may_have_several_queues() {
    let pool = pool(256);
    let (mut rx, mut into, mut tx, mut out) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let (producer, consumer) = ring(eal(), &name("q"), 63, None).unwrap();
        into.push(producer);
        rx.push(consumer);
        let (producer, consumer) = ring(eal(), &name("q"), 63, None).unwrap();
        tx.push(producer);
        out.push(consumer);
    }
    let mut port = Port::from_rings(eal(), &name("net_ring_m"), rx, tx).unwrap();
    let options = PortOptions { rx_queues: 3, tx_queues: 3, ..PortOptions::default() };
    assert!(!port.configure(&options, from_ref(&pool)).unwrap().rss, "rings do not hash");
    let mut queues = port.start().unwrap();
    for (n, producer) in (0_u32..).zip(&mut into) {
        producer.enqueue(&mut burst(&pool, n * 10..n * 10 + 5));
    }
    for (n, queue) in (0_u32..).zip(&mut queues.rx) {
        let mut packets = Burst::<32>::new();
        assert_eq!(queue.burst(&mut packets), 5);
        assert_eq!(
            packets.as_slice().iter().map(number).collect::<Vec<_>>(),
            (n * 10..n * 10 + 5).collect::<Vec<_>>()
        );
        queues.tx[2 - n as usize].burst(&mut packets);
    }
    let counts: Vec<u32> = out.iter().map(Consumer::len).collect();
    assert_eq!(counts, [5, 5, 5]);
    drop(out);
    drop((queues, port));
    assert_eq!(pool.in_use(), 0, "rings that go with the port free what they hold");
}

#[test]
fn a_port_with_too_few_queues_says_so() {
    let pool = pool(64);
    let mut port = Port::open(eal(), "net_null1").unwrap();
    let (rx, tx) = port.max_queues();
    let options = PortOptions { rx_queues: rx + 1, ..PortOptions::default() };
    let sentence = port.configure(&options, from_ref(&pool)).unwrap_err().to_string();
    let wanted = rx + 1;
    assert_eq!(
        sentence,
        format!(
            "port \"net_null1\" (net_null) has at most {rx} rx queue(s), {wanted} are needed: use fewer rx lcores"
        )
    );
    let options = PortOptions { tx_queues: tx + 1, ..PortOptions::default() };
    assert!(matches!(
        port.configure(&options, from_ref(&pool)),
        Err(PortError::TooFewQueues { way: "tx", .. })
    ));
    let options = PortOptions { rx_queues: 0, ..PortOptions::default() };
    assert!(matches!(port.configure(&options, from_ref(&pool)), Err(PortError::NoQueues { .. })));
    let options = PortOptions { rx_queues: 3, ..PortOptions::default() };
    let refused = port.configure(&options, &[pool.clone(), pool]);
    assert!(matches!(refused, Err(PortError::Pools { queues: 3, pools: 2, .. })));
}

#[test]
fn a_port_that_does_not_exist_is_refused_by_name() {
    let sentence = Port::open(eal(), "net_null7,size=64").unwrap_err().to_string();
    assert!(sentence.starts_with("port \"net_null7\" does not exist: "), "{sentence}");
    assert!(sentence.ends_with("check `device`"), "{sentence}");
}

#[test]
fn links_and_mtu_follow_what_is_set_where_the_driver_can() {
    let pool = pool(64);
    let (mut port, _into, _out) = ring_port();
    let options = PortOptions { mtu: Some(1600), ..PortOptions::default() };
    let configured = port.configure(&options, from_ref(&pool)).unwrap();
    assert_eq!(configured.mtu, MtuOutcome::Unsupported, "no error: net_ring has no MTU to set");
    let _queues = port.start().unwrap();
    assert!(port.link().up);
    port.set_link(false).unwrap();
    assert!(!port.link().up);
    port.set_link(true).unwrap();
    assert!(port.link().up);
    let mut null = Port::open(eal(), "net_null2").unwrap();
    let configured = null.configure(&options, &[pool]).unwrap();
    assert_eq!((configured.mtu, null.mtu()), (MtuOutcome::Set(1600), Some(1600)));
}

#[test]
fn a_port_dropped_with_a_queue_out_stays_usable() {
    let pool = pool(64);
    let (mut port, mut into, _out) = ring_port();
    port.configure(&PortOptions::default(), from_ref(&pool)).unwrap();
    let mut queues = port.start().unwrap();
    drop(port);
    into.enqueue(&mut burst(&pool, 0..4));
    let mut packets = Burst::<32>::new();
    assert_eq!(queues.rx[0].burst(&mut packets), 4);
}

/// Called as dpdk-pdump's is: counts the packets of a burst.
unsafe extern "C" fn count_rx(
    _: u16,
    _: u16,
    _: *mut *mut dpdk_sys::rte_mbuf,
    packets: u16,
    _: u16,
    counter: *mut c_void,
) -> u16 {
    // SAFETY: the test passes a counter that lives for ever.
    unsafe { &*counter.cast::<AtomicU64>() }.fetch_add(packets.into(), Ordering::Relaxed);
    packets
}

/// As above, and frees all packets but the first.
unsafe extern "C" fn keep_one(
    _: u16,
    _: u16,
    packets: *mut *mut dpdk_sys::rte_mbuf,
    count: u16,
    counter: *mut c_void,
) -> u16 {
    // SAFETY: as above.
    unsafe { &*counter.cast::<AtomicU64>() }.fetch_add(count.into(), Ordering::Relaxed);
    for i in 1..count.into() {
        // SAFETY: the burst has `count` packets.
        let packet = unsafe { packets.wrapping_add(i).read() };
        // SAFETY: a callback may free packets that it takes out of the burst.
        unsafe { dpdk_sys::shim_pktmbuf_free(packet) };
    }
    count.min(1)
}

#[test]
fn callbacks_of_others_see_the_packets_of_their_queue() {
    static RECEIVED: AtomicU64 = AtomicU64::new(0);
    static SENT: AtomicU64 = AtomicU64::new(0);
    let pool = pool(256);
    let (mut rx, mut into, mut tx, mut out) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..2 {
        let (producer, consumer) = ring(eal(), &name("c"), 63, None).unwrap();
        into.push(producer);
        rx.push(consumer);
        let (producer, consumer) = ring(eal(), &name("c"), 63, None).unwrap();
        tx.push(producer);
        out.push(consumer);
    }
    let mut port = Port::from_rings(eal(), &name("net_ring_c"), rx, tx).unwrap();
    let options = PortOptions { rx_queues: 2, tx_queues: 2, ..PortOptions::default() };
    port.configure(&options, from_ref(&pool)).unwrap();
    let mut queues = port.start().unwrap();
    let (received, sent) = ((&raw const RECEIVED).cast_mut().cast(), (&raw const SENT).cast_mut().cast());
    // SAFETY: the functions and counters live for ever.
    let added = unsafe { dpdk_sys::rte_eth_add_rx_callback(port.id(), 1, Some(count_rx), received) };
    assert!(!added.is_null());
    // SAFETY: as above.
    let added = unsafe { dpdk_sys::rte_eth_add_tx_callback(port.id(), 1, Some(keep_one), sent) };
    assert!(!added.is_null());
    let mut packets = Burst::<32>::new();
    for (queue, producer) in into.iter_mut().enumerate() {
        producer.enqueue(&mut burst(&pool, 0..20));
        assert_eq!(queues.rx[queue].burst(&mut packets), 20);
        queues.tx[queue].burst(&mut packets);
        assert!(packets.is_empty());
    }
    assert_eq!(
        (RECEIVED.load(Ordering::Relaxed), SENT.load(Ordering::Relaxed)),
        (20, 20),
        "those of queue 1"
    );
    assert_eq!(
        out.iter().map(Consumer::len).collect::<Vec<_>>(),
        [20, 1],
        "19 were taken out by the callback"
    );
    assert_eq!(pool.in_use(), 21);
}
