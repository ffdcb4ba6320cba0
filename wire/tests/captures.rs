// SPDX-License-Identifier: Apache-2.0
//! Captures of real traffic: tcpdump's `802.1ad_QinQ.pcap` and `pppoe.pcap`, and `vxlan.pcap`.

use std::fs;

use wire::{Control, Kind, Parsed, Ports, parse};

/// The frames of a classic little-endian capture with their lengths on the wire.
fn frames(name: &str) -> Vec<(Vec<u8>, u32)> {
    let file = fs::read(format!("tests/data/{name}")).expect("the capture");
    assert_eq!(file[..4], [0xd4, 0xc3, 0xb2, 0xa1], "classic, little-endian, microseconds");
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while let Some((header, after)) = rest.split_first_chunk::<16>() {
        let length =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (frame, next) = after.split_at(length(8) as usize);
        frames.push((frame.to_vec(), length(12)));
        rest = next;
    }
    assert!(rest.is_empty(), "no bytes left over");
    frames
}

fn parsed(name: &str) -> Vec<Parsed> {
    frames(name).iter().map(|(frame, wire_bytes)| parse(frame, *wire_bytes)).collect()
}

#[test]
fn arp_under_an_s_tag_and_a_c_tag_is_control_traffic_of_that_vlan_pair() {
    let parsed = parsed("802.1ad_QinQ.pcap");
    assert_eq!(parsed.len(), 2);
    for frame in &parsed {
        assert_eq!(frame.kind, Kind::Control(Control::Arp));
        assert_eq!((frame.outer_vlan(), frame.inner_vlan(), frame.vlan_count), (Some(200), Some(2001), 2));
        assert_eq!((frame.l3_bytes, frame.ip_offset), (42, 0));
    }
    assert_eq!(parsed[0].dst_mac, [0xff; 6]);
    assert_eq!(parsed[0].src_mac, parsed[1].dst_mac);
}

#[test]
fn a_padi_is_control_traffic() {
    let parsed = parsed("pppoe.pcap");
    assert_eq!(parsed.len(), 1);
    assert_eq!(parsed[0].kind, Kind::Control(Control::PppoeDiscovery));
    assert_eq!((parsed[0].l3_bytes, parsed[0].pppoe_session), (24, None));
    assert_eq!(parsed[0].src_mac, [0x00, 0x0c, 0x29, 0x90, 0x3a, 0x8b]);
}

#[test]
fn vxlan_is_udp_between_its_tunnel_ends() {
    let frames = frames("vxlan.pcap");
    let parsed = parsed("vxlan.pcap");
    let ends = [0xc0a8_cb01_u128, 0xc0a8_ca01];
    for (frame, (_, wire_bytes)) in parsed.iter().zip(&frames) {
        assert_eq!((frame.kind, frame.ip_offset, frame.protocol), (Kind::Ipv4, 14, 17));
        assert_eq!(u32::from(frame.l3_bytes), wire_bytes - 14);
        assert!(ends.contains(&frame.src) && ends.contains(&frame.dst) && frame.src != frame.dst);
        assert_eq!(frame.ports.map(|ports| ports.dst), Some(4789));
        assert_eq!(frame.ecn_bits(), 0);
    }
    assert_eq!(parsed[0].ports, Some(Ports { src: 0xb05d, dst: 4789 }));
    assert_eq!(parsed.len(), frames.len());
    assert_eq!(parsed.len(), 10);
}
