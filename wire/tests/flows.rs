// SPDX-License-Identifier: Apache-2.0
//! Flow keys: what belongs together, what does not, and that no bytes are too few.

use std::collections::HashSet;

use etherparse::{IpNumber, Ipv4Header, PacketBuilder};
use proptest::prelude::*;
use wire::flow_key;

const SEED: u64 = 7;

fn udp4(source: [u8; 4], destination: [u8; 4], ports: [u16; 2], dscp: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ipv4(source, destination, 64).udp(ports[0], ports[1]);
    builder.write(&mut bytes, &[0; 32]).expect("it fits");
    bytes[1] = dscp << 2;
    bytes
}

fn udp6(source: [u8; 16], destination: [u8; 16], ports: [u16; 2]) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ipv6(source, destination, 64)
        .udp(ports[0], ports[1])
        .write(&mut bytes, &[0; 32])
        .expect("it fits");
    bytes
}

#[test]
fn hosts_are_the_same_in_every_flow_of_theirs_and_in_both_directions() {
    let one = flow_key(&udp4([10, 0, 0, 1], [10, 0, 0, 2], [5, 6], 46), SEED).expect("IP");
    let other = flow_key(&udp4([10, 0, 0, 1], [10, 0, 0, 3], [5, 6], 0), SEED).expect("IP");
    let back = flow_key(&udp4([10, 0, 0, 2], [10, 0, 0, 1], [6, 5], 0), SEED).expect("IP");
    assert_eq!(one.source, other.source);
    assert_ne!(one.destination, other.destination);
    assert_eq!((one.source, one.destination), (back.destination, back.source));
    assert_eq!((one.dscp, other.dscp), (46, 0));
    assert_eq!(HashSet::from([one.flow, other.flow, back.flow]).len(), 3);
}

#[test]
fn addresses_ports_and_protocol_tell_flows_apart_and_nothing_else_does() {
    let base = udp4([10, 0, 0, 1], [10, 0, 0, 2], [1000, 2000], 0);
    let key = |bytes: &[u8]| flow_key(bytes, SEED).expect("IP").flow;
    for at in [9, 12, 15, 16, 19, 20, 21, 22, 23] {
        let mut other = base.clone();
        other[at] ^= 4;
        // the protocol becomes 21, which has no ports
        assert_ne!(key(&other), key(&base), "byte {at}");
    }
    for at in [1, 4, 8, 10, 24, 26, 28] {
        let mut other = base.clone();
        other[at] ^= 4;
        assert_eq!(key(&other), key(&base), "byte {at}");
    }
    assert_ne!(flow_key(&base, SEED), flow_key(&base, SEED + 1));
}

#[test]
fn all_fragments_of_a_packet_are_one_flow() {
    let whole = udp4([10, 0, 0, 1], [10, 0, 0, 2], [1000, 2000], 0);
    let fragment = |field: u16| {
        let mut bytes = whole.clone();
        bytes[6..8].copy_from_slice(&field.to_be_bytes());
        bytes
    };
    let first = flow_key(&fragment(0x2000), SEED).expect("IP");
    assert_eq!(Some(first), flow_key(&fragment(0x2003), SEED));
    assert_eq!(Some(first), flow_key(&fragment(0x0009), SEED));
    assert_ne!(Some(first), flow_key(&whole, SEED));
    assert_eq!(flow_key(&fragment(0x4000), SEED), flow_key(&whole, SEED), "don't fragment is no fragment");
    // IPv6: next header 44, fragment header, UDP
    let six = |offset_and_more: u16| {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 16, 44, 64];
        bytes.extend([1; 16]);
        bytes.extend([2; 16]);
        bytes.extend([17, 0]);
        bytes.extend(offset_and_more.to_be_bytes());
        bytes.extend([0, 0, 0, 9, 0, 1, 0, 2, 0, 8, 0, 0]);
        bytes
    };
    let first = flow_key(&six(1), SEED).expect("IP");
    assert_eq!(Some(first), flow_key(&six(8), SEED), "the last has no M bit");
    let atomic = flow_key(&six(0), SEED);
    assert_ne!(Some(first), atomic);
    assert_eq!(
        atomic.map(|key| key.flow),
        flow_key(&udp6([1; 16], [2; 16], [1, 2]), SEED).map(|key| key.flow)
    );
}

#[test]
fn what_has_no_ports_is_a_flow_of_its_hosts_and_protocol() {
    let header = |protocol| {
        let header = Ipv4Header::new(8, 64, protocol, [10, 0, 0, 1], [10, 0, 0, 2]).expect("it fits");
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend([8; 8]);
        bytes
    };
    let esp = flow_key(&header(IpNumber::ENCAPSULATING_SECURITY_PAYLOAD), SEED);
    let icmp = flow_key(&header(IpNumber::ICMP), SEED);
    assert!(esp.is_some() && icmp.is_some() && esp != icmp);
}

#[test]
fn what_is_not_ip_has_no_key() {
    for bytes in [&[][..], &[0x45], &[0x45; 19], &[0x60; 39], &[0x00; 60], &[0xff; 60]] {
        assert_eq!(flow_key(bytes, SEED), None, "{bytes:?}");
    }
}

#[test]
fn flows_spread_evenly() {
    // 16,384 flows that differ in one port: over 1,024 queues a mean of 16 with a spread of 4
    let mut queues = [0_u32; 1_024];
    for port in 0..16_384 {
        let key = flow_key(&udp4([10, 0, 0, 1], [10, 0, 0, 2], [port, 443], 0), SEED).expect("IP");
        queues[key.flow as usize % 1_024] += 1;
    }
    let variance = queues.iter().map(|&n| (f64::from(n) - 16.0).powi(2)).sum::<f64>() / 1_024.0;
    assert!((12.0..20.0).contains(&variance), "variance {variance}, of a Poisson law 16");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..100), version in 0..3_u8, seed: u64) {
        if let (Some(first), 1..) = (bytes.first_mut(), version) {
            *first = *first & 15 | (version * 2 + 2) << 4;
        }
        let key = flow_key(&bytes, seed);
        prop_assert_eq!(key, flow_key(&bytes, seed));
    }

    #[test]
    fn what_lies_beyond_the_headers_does_not_count(ports: [u16; 2], more in proptest::collection::vec(any::<u8>(), 0..50)) {
        let packet = udp4([10, 0, 0, 1], [10, 0, 0, 2], ports, 0);
        let head = &packet[..28];
        prop_assert_eq!(flow_key(head, SEED), flow_key(&[head, &more].concat(), SEED));
    }
}
