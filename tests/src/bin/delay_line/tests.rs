// SPDX-License-Identifier: Apache-2.0
//! Tags on real packets, and a line between rings with time made up.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

use dpdk::{Burst, Consumer, Mbuf, Producer, ring};

use super::*;
use crate::tags::{Retag, pop_tags, push_tags};

fn eal() -> &'static Eal {
    static EAL: OnceLock<Eal> = OnceLock::new();
    EAL.get_or_init(|| {
        let cpu = tests_cpu();
        let prefix = format!("delay-line-test-{}", std::process::id());
        Eal::init(&EalOptions::new(&prefix, vec![Lcore { id: 0, cpu }], Memory::NoHuge { mb: 64 })).unwrap()
    })
}

/// The first CPU this process may use.
fn tests_cpu() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().split([',', '-']).next().unwrap().parse().unwrap()
}

fn name(stem: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{stem}{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn pool() -> Mempool {
    let options = PoolOptions { name: name("pool"), buffers: 512, cache: 0, data_room: 2176, socket: None };
    Mempool::create(eal(), &options).unwrap()
}

fn packet(pool: &Mempool, bytes: &[u8]) -> Mbuf {
    let mut packet = pool.alloc().unwrap();
    assert!(packet.extend(bytes));
    packet
}

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

/// An Ethernet frame with these bytes behind the MACs.
fn frame(rest: &[u8]) -> Vec<u8> {
    [&MACS[..], rest].concat()
}

fn ipv4(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let mut header = vec![0x08, 0x00, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0];
    header.extend(from);
    header.extend(to);
    frame(&header)
}

fn qinq() -> Tagged {
    "100.64.0.50=0x8100:100,0x8100:42".parse().unwrap()
}

#[test]
fn tags_are_read_from_the_command_line() {
    let tagged: Tagged = "2001:db8::1=0x88a8:7,8100:4095".parse().unwrap();
    assert_eq!(tagged.host, "2001:db8::1".parse::<std::net::IpAddr>().unwrap());
    assert_eq!(tagged.tags, [(0x88a8, 7), (0x8100, 4095)]);
    for wrong in [
        "10.0.0.1",
        "10.0.0=0x8100:1",
        "10.0.0.1=",
        "10.0.0.1=0x8100",
        "10.0.0.1=0x8100:4096",
        "10.0.0.1=0xz:1",
    ] {
        assert!(wrong.parse::<Tagged>().is_err(), "{wrong}");
    }
    assert!("10.0.0.1=8100:1,8100:1,8100:1,8100:1".parse::<Tagged>().is_err(), "four tags");
}

#[test]
fn what_a_host_sends_and_gets_is_tagged_and_nothing_else() {
    let (pool, hosts) = (pool(), [qinq()]);
    let host = [100, 64, 0, 50];
    let mut arp = vec![0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1];
    arp.extend([100, 64, 0, 1, 0, 0, 0, 0, 0, 0]);
    arp.extend(host);
    for bytes in [ipv4(host, [9, 9, 9, 9]), ipv4([9, 9, 9, 9], host), frame(&arp)] {
        let mut packet = packet(&pool, &bytes);
        assert_eq!(push_tags(&hosts, &mut packet), Retag::Done);
        let tagged = [&MACS[..], &[0x81, 0, 0, 100, 0x81, 0, 0, 42], &bytes[12..]].concat();
        assert_eq!(packet.data(), tagged);
        assert_eq!(pop_tags(&hosts, &mut packet), Retag::Done);
        assert_eq!(packet.data(), bytes, "popping undoes it");
    }
    for bytes in [
        ipv4([100, 64, 0, 51], [9, 9, 9, 9]),
        frame(&[0x88, 0x63, 0, 0]),
        frame(&[0x08, 0x00]),
        MACS.to_vec(),
    ] {
        let mut packet = packet(&pool, &bytes);
        assert_eq!(push_tags(&hosts, &mut packet), Retag::None);
        assert_eq!(packet.data(), bytes);
    }
}

#[test]
fn a_host_of_ipv6_is_tagged() {
    let pool = pool();
    let hosts = ["2001:db8::1=0x88a8:5".parse().unwrap()];
    let mut header = vec![0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 59, 64];
    header.extend([0; 16]);
    header.extend("2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    let mut packet = packet(&pool, &frame(&header));
    assert_eq!(push_tags(&hosts, &mut packet), Retag::Done);
    assert_eq!(packet.data()[12..18], [0x88, 0xa8, 0, 5, 0x86, 0xdd]);
}

#[test]
fn only_exactly_these_vids_are_popped() {
    let (pool, hosts) = (pool(), [qinq()]);
    let ip = &ipv4([1, 1, 1, 1], [2, 2, 2, 2])[12..];
    let tag = |tpid: u16, vid: u16| [tpid.to_be_bytes(), vid.to_be_bytes()].concat();
    let cases = [
        (vec![tag(0x8100, 100), tag(0x8100, 42)], Retag::Done),
        // Another outer TPID, and priority bits: the same VIDs.
        (vec![tag(0x88a8, 100), tag(0x8100, 0xe02a)], Retag::Done),
        (vec![tag(0x8100, 42), tag(0x8100, 100)], Retag::None),
        (vec![tag(0x8100, 100)], Retag::None),
        (vec![tag(0x8100, 100), tag(0x8100, 42), tag(0x8100, 1)], Retag::None),
        (vec![], Retag::None),
    ];
    for (tags, expected) in cases {
        let bytes = frame(&[&tags.concat()[..], ip].concat());
        let mut packet = packet(&pool, &bytes);
        assert_eq!(pop_tags(&hosts, &mut packet), expected, "{tags:x?}");
        let left = if expected == Retag::Done { frame(ip) } else { bytes };
        assert_eq!(packet.data(), left);
    }
}

#[test]
fn a_frame_without_headroom_cannot_be_tagged() {
    let pool = pool();
    let mut packet = packet(&pool, &ipv4([100, 64, 0, 50], [2, 2, 2, 2])[12..]);
    // The headroom is full: nothing goes in front any more.
    let room = packet.headroom();
    let bytes = packet.prepend(room).unwrap();
    bytes[usize::from(room) - 12..usize::from(room)].copy_from_slice(&MACS);
    let front = ipv4([100, 64, 0, 50], [2, 2, 2, 2]);
    bytes[..front.len()].copy_from_slice(&front);
    assert_eq!(push_tags(&[qinq()], &mut packet), Retag::NoRoom);
}

/// A line between two rings: what goes in, what comes out, and the port, which must live as long.
fn line(delay_ns: u64, limit: usize, out_capacity: u32) -> (Line, Producer, Consumer, Port) {
    let (into, rx) = ring(eal(), &name("in"), 511, None).unwrap();
    let (tx, out) = ring(eal(), &name("out"), out_capacity, None).unwrap();
    let mut port = Port::from_rings(eal(), &name("net_ring_dl"), vec![rx], vec![tx]).unwrap();
    port.configure(&PortOptions::default(), &[pool()]).unwrap();
    let mut queues = port.start().unwrap();
    let queues = (queues.rx.remove(0), queues.tx.remove(0));
    (Line::new(queues, delay_ns, limit, 0), into, out, port)
}

fn put(pool: &Mempool, into: &mut Producer, numbers: std::ops::Range<u32>) {
    for n in numbers {
        into.push(packet(pool, &n.to_be_bytes())).unwrap();
    }
}

fn take(out: &mut Consumer) -> Vec<u32> {
    let mut numbers = Vec::new();
    let mut burst = Burst::<32>::new();
    while out.dequeue(&mut burst) > 0 {
        numbers.extend(burst.drain().map(|p| u32::from_be_bytes(p.data().try_into().unwrap())));
    }
    numbers
}

fn count(line: &Line, key: &str) -> u64 {
    line.json()[key].as_u64().unwrap()
}

#[test]
fn frames_leave_after_the_delay_in_order() {
    let (mut line, mut into, mut out, _port) = line(1_000, 400, 511);
    let (pool, mut burst) = (pool(), Burst::new());
    put(&pool, &mut into, 0..50);
    line.receive(&mut burst, 100);
    put(&pool, &mut into, 50..70);
    line.receive(&mut burst, 300);
    assert_eq!(line.due(), Some(50 + 1_000), "in the middle of 0 and 100 they came");
    line.send(1_049, |_| Retag::None);
    assert!(take(&mut out).is_empty());
    line.send(1_050, |_| Retag::None);
    assert_eq!(take(&mut out), (0..50).collect::<Vec<_>>());
    line.send(1_199, |_| Retag::None);
    assert!(take(&mut out).is_empty());
    line.send(5_000, |_| Retag::None);
    assert_eq!(take(&mut out), (50..70).collect::<Vec<_>>());
    assert_eq!((line.due(), count(&line, "received"), count(&line, "sent")), (None, 70, 70));
    assert_eq!(line.json()["late"]["max_us"], 3);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn what_does_not_fit_is_counted() {
    let (mut line, mut into, mut out, _port) = line(1_000, 40, 511);
    let (pool, mut burst) = (pool(), Burst::new());
    put(&pool, &mut into, 0..100);
    line.receive(&mut burst, 100);
    line.receive(&mut burst, 200);
    line.receive(&mut burst, 300);
    assert_eq!((count(&line, "received"), count(&line, "held"), count(&line, "dropped_full")), (100, 40, 60));
    line.send(2_000, |_| Retag::None);
    assert_eq!(take(&mut out), (0..40).collect::<Vec<_>>());
    put(&pool, &mut into, 100..102);
    line.receive(&mut burst, 2_000);
    line.send(4_000, |_| Retag::NoRoom);
    assert_eq!((count(&line, "dropped_untaggable"), count(&line, "sent"), count(&line, "held")), (2, 40, 0));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_port_that_takes_nothing_stops_the_line_and_loses_nothing() {
    let (mut line, mut into, mut out, _port) = line(1_000, 400, 63);
    let (pool, mut burst) = (pool(), Burst::new());
    put(&pool, &mut into, 0..200);
    line.receive(&mut burst, 100);
    let mut got = Vec::new();
    for now in [1_100, 1_200, 1_300, 1_400, 1_500] {
        line.send(now, |_| Retag::None);
        assert_eq!(count(&line, "received"), count(&line, "sent") + count(&line, "held"));
        got.extend(take(&mut out));
    }
    assert_eq!(got, (0..200).collect::<Vec<_>>());
    assert_eq!((count(&line, "tx_refusals"), count(&line, "held")), (3, 0));
}
