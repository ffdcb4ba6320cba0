// SPDX-License-Identifier: Apache-2.0
//! Packets built with etherparse, in every encapsulation, for IPv4 and IPv6 and all four ECN codepoints: what is
//! parsed, what a CE mark changes, and that etherparse finds the marked header sound.

use etherparse::{
    EtherType, IpFragOffset, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv4HeaderSlice, Ipv4Options,
    Ipv6Extensions, Ipv6FlowLabel, Ipv6FragmentHeader, Ipv6Header, Ipv6HeaderSlice, Ipv6RawExtHeader,
    Ipv6RoutingExtensions, PacketBuilder, SingleVlanHeader, VlanId,
};
use wire::{Kind, Parsed, Ports, parse, set_ce};

const SRC_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];
const DST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SRC4: [u8; 4] = [198, 51, 100, 7];
const DST4: [u8; 4] = [100, 64, 0, 42];
const SRC6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
const DST6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const PORTS: Ports = Ports { src: 443, dst: 50000 };
const DSCP: u8 = 10;

/// How the IP packet is carried: the octets between the MACs and the IP header are `link(ip)`.
struct Encapsulation {
    name: &'static str,
    link: fn(&[u8]) -> Vec<u8>,
    vlans: &'static [u16],
    session: Option<u16>,
}

/// The EtherType of an IP packet.
fn ether_type(ip: &[u8]) -> [u8; 2] {
    if ip[0] >> 4 == 4 { EtherType::IPV4 } else { EtherType::IPV6 }.0.to_be_bytes()
}

/// Tags of (TPID, VID), built by etherparse, around an EtherType.
fn tags(tags: &[(u16, u16)], inner: [u8; 2]) -> Vec<u8> {
    let mut octets = tags[0].0.to_be_bytes().to_vec();
    for (place, &(_, vid)) in tags.iter().enumerate() {
        let next = tags.get(place + 1).map_or(u16::from_be_bytes(inner), |tag| tag.0);
        let tag = SingleVlanHeader {
            vlan_id: VlanId::try_new(vid).expect("12 bits"),
            ether_type: EtherType(next),
            ..SingleVlanHeader::default()
        };
        octets.extend(tag.to_bytes());
    }
    octets
}

/// A PPPoE session header with its PPP protocol (RFC 2516 section 4, figure 2 of section 6).
fn pppoe(session: u16, ip: &[u8]) -> Vec<u8> {
    let length = u16::try_from(ip.len() + 2).expect("16 bits");
    let protocol: u16 = if ip[0] >> 4 == 4 { 0x0021 } else { 0x0057 };
    [&[0x11, 0][..], &session.to_be_bytes(), &length.to_be_bytes(), &protocol.to_be_bytes()].concat()
}

/// A label stack (RFC 3032 section 2.1).
fn mpls(labels: &[u32]) -> Vec<u8> {
    let last = labels.len() - 1;
    let entry =
        |(place, label): (usize, &u32)| (label << 12 | u32::from(place == last) << 8 | 64).to_be_bytes();
    labels.iter().enumerate().flat_map(entry).collect()
}

const PPPOE_SESSION: [u8; 2] = [0x88, 0x64];
const MPLS: [u8; 2] = [0x88, 0x47];

const ENCAPSULATIONS: [Encapsulation; 10] = [
    Encapsulation { name: "untagged", link: |ip| ether_type(ip).to_vec(), vlans: &[], session: None },
    Encapsulation {
        name: "VLAN",
        link: |ip| tags(&[(0x8100, 100)], ether_type(ip)),
        vlans: &[100],
        session: None,
    },
    Encapsulation {
        name: "QinQ",
        link: |ip| tags(&[(0x88a8, 100), (0x8100, 42)], ether_type(ip)),
        vlans: &[100, 42],
        session: None,
    },
    Encapsulation {
        name: "PPPoE",
        link: |ip| [PPPOE_SESSION.to_vec(), pppoe(23, ip)].concat(),
        vlans: &[],
        session: Some(23),
    },
    Encapsulation {
        name: "PPPoE in QinQ",
        link: |ip| [tags(&[(0x88a8, 100), (0x8100, 42)], PPPOE_SESSION), pppoe(23, ip)].concat(),
        vlans: &[100, 42],
        session: Some(23),
    },
    Encapsulation {
        name: "MPLS",
        link: |_| [MPLS.to_vec(), mpls(&[16001])].concat(),
        vlans: &[],
        session: None,
    },
    Encapsulation {
        name: "QinQ of 0x8100",
        link: |ip| tags(&[(0x8100, 100), (0x8100, 42)], ether_type(ip)),
        vlans: &[100, 42],
        session: None,
    },
    Encapsulation {
        name: "three tags, 0x9100 outermost",
        link: |ip| tags(&[(0x9100, 7), (0x88a8, 100), (0x8100, 42)], ether_type(ip)),
        vlans: &[7, 100, 42],
        session: None,
    },
    Encapsulation {
        name: "PPPoE in three tags",
        link: |ip| [tags(&[(0x9100, 7), (0x88a8, 100), (0x8100, 42)], PPPOE_SESSION), pppoe(9, ip)].concat(),
        vlans: &[7, 100, 42],
        session: Some(9),
    },
    Encapsulation {
        name: "four labels in three tags",
        link: |_| [tags(&[(0x88a8, 7), (0x88a8, 100), (0x8100, 42)], MPLS), mpls(&[1, 2, 3, 16001])].concat(),
        vlans: &[7, 100, 42],
        session: None,
    },
];

/// An IP packet of UDP built by etherparse from an IP header.
fn udp_packet(ip: IpHeaders) -> Vec<u8> {
    let builder = PacketBuilder::ip(ip).udp(PORTS.src, PORTS.dst);
    let mut packet = Vec::new();
    builder.write(&mut packet, b"sluice").expect("a packet");
    packet
}

fn ipv4(tos: u8, options: &[u8]) -> IpHeaders {
    let mut header = Ipv4Header::new(0, 61, IpNumber::UDP, SRC4, DST4).expect("a header");
    header.dscp = etherparse::IpDscp::try_new(tos >> 2).expect("6 bits");
    header.ecn = etherparse::IpEcn::try_new(tos & 3).expect("2 bits");
    header.options = Ipv4Options::try_from(options).expect("at most 40 bytes");
    IpHeaders::Ipv4(header, Ipv4Extensions::default())
}

fn ipv6(tos: u8, extensions: Ipv6Extensions) -> IpHeaders {
    let header = Ipv6Header {
        traffic_class: tos,
        flow_label: Ipv6FlowLabel::try_new(0xa_bcde).expect("20 bits"),
        hop_limit: 61,
        source: SRC6,
        destination: DST6,
        ..Ipv6Header::default()
    };
    IpHeaders::Ipv6(header, extensions)
}

fn frame(encapsulation: &Encapsulation, ip: &[u8]) -> Vec<u8> {
    [&DST_MAC[..], &SRC_MAC, &(encapsulation.link)(ip), ip].concat()
}

fn parsed(frame: &[u8]) -> Parsed {
    parse(frame, u32::try_from(frame.len()).expect("a frame"))
}

/// Asserts every field of the parse of `ip` in an encapsulation; gives the frame.
fn assert_parsed(encapsulation: &Encapsulation, ip: &[u8], tos: u8) -> Vec<u8> {
    let frame = frame(encapsulation, ip);
    let parsed = parsed(&frame);
    let v4 = ip[0] >> 4 == 4;
    let name = encapsulation.name;
    assert_eq!(parsed.kind, if v4 { Kind::Ipv4 } else { Kind::Ipv6 }, "{name}");
    assert_eq!((parsed.src_mac, parsed.dst_mac), (SRC_MAC, DST_MAC), "{name}");
    assert_eq!(&parsed.vlans[..usize::from(parsed.vlan_count)], encapsulation.vlans, "{name}");
    assert_eq!(parsed.outer_vlan(), encapsulation.vlans.first().copied(), "{name}");
    assert_eq!(parsed.inner_vlan(), encapsulation.vlans.get(1).copied(), "{name}");
    assert_eq!(parsed.pppoe_session, encapsulation.session, "{name}");
    assert_eq!(usize::from(parsed.ip_offset), frame.len() - ip.len(), "{name}");
    assert_eq!(usize::from(parsed.l3_bytes), ip.len(), "{name}");
    assert_eq!((parsed.tos, parsed.dscp(), parsed.ecn_bits()), (tos, tos >> 2, tos & 3), "{name}");
    let addresses = if v4 {
        (u128::from(u32::from_be_bytes(SRC4)), u128::from(u32::from_be_bytes(DST4)))
    } else {
        (u128::from_be_bytes(SRC6), u128::from_be_bytes(DST6))
    };
    assert_eq!((parsed.src, parsed.dst), addresses, "{name}");
    assert_eq!((parsed.protocol, parsed.ports), (IpNumber::UDP.0, Some(PORTS)), "{name}");
    frame
}

/// Asserts that etherparse reads the header with this ECN field and a right checksum.
fn assert_sound(ip: &[u8], tos: u8, name: &str) {
    if ip[0] >> 4 == 4 {
        let header = Ipv4HeaderSlice::from_slice(ip).expect("a header").to_header();
        assert_eq!((header.dscp.value(), header.ecn.value()), (tos >> 2, tos & 3), "{name}");
        assert_eq!(header.header_checksum, header.calc_header_checksum(), "{name}");
    } else {
        let header = Ipv6HeaderSlice::from_slice(ip).expect("a header").to_header();
        assert_eq!((header.traffic_class, header.flow_label.value()), (tos, 0xa_bcde), "{name}");
    }
}

#[test]
fn every_encapsulation_is_parsed_and_marked_for_both_versions_and_all_codepoints() {
    for encapsulation in &ENCAPSULATIONS {
        for codepoint in 0..4 {
            let tos = DSCP << 2 | codepoint;
            let ipv4 = [udp_packet(ipv4(tos, &[])), udp_packet(ipv4(tos, &[1; 40]))];
            for ip in ipv4.into_iter().chain([udp_packet(ipv6(tos, Ipv6Extensions::default()))]) {
                let mut frame = assert_parsed(encapsulation, &ip, tos);
                let unmarked = frame.clone();
                let offset = frame.len() - ip.len();
                let may_mark = codepoint == 1 || codepoint == 2;
                assert_eq!(set_ce(&mut frame[offset..]), may_mark, "{}", encapsulation.name);
                assert_sound(&frame[offset..], if may_mark { tos | 3 } else { tos }, encapsulation.name);
                let changed = frame.iter().zip(&unmarked).filter(|(now, before)| now != before).count();
                // the ECN octet, and for IPv4 one or both octets of the checksum
                assert!(
                    if may_mark { (1..=3).contains(&changed) } else { changed == 0 },
                    "{changed} octets changed"
                );
                assert_eq!(parsed(&frame).ecn_bits(), if may_mark { 3 } else { codepoint });
            }
        }
    }
}

#[test]
fn extension_headers_are_walked_to_the_ports_in_every_encapsulation() {
    let raw = |octets: &[u8]| Ipv6RawExtHeader::new_raw(IpNumber::UDP, octets).expect("a header");
    let extensions = Ipv6Extensions {
        hop_by_hop_options: Some(raw(&[1, 4, 0, 0, 0, 0])),
        destination_options: Some(raw(&[1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
        routing: Some(Ipv6RoutingExtensions {
            routing: raw(&[4, 0, 0, 0, 0, 0]),
            final_destination_options: Some(raw(&[1, 4, 0, 0, 0, 0])),
        }),
        fragment: Some(Ipv6FragmentHeader::new(IpNumber::UDP, IpFragOffset::ZERO, false, 1)),
        auth: None,
    };
    for encapsulation in &ENCAPSULATIONS {
        assert_parsed(encapsulation, &udp_packet(ipv6(1, extensions.clone())), 1);
    }
}

#[test]
fn ethernet_padding_is_not_counted_in_any_encapsulation() {
    for encapsulation in &ENCAPSULATIONS {
        let ip = udp_packet(ipv4(1, &[]));
        let mut frame = frame(encapsulation, &ip);
        let unpadded = frame.len();
        frame.resize(frame.len().max(64), 0);
        let parsed = parsed(&frame);
        assert_eq!(parsed.kind, Kind::Ipv4, "{} padded from {unpadded}", encapsulation.name);
        assert_eq!(usize::from(parsed.l3_bytes), ip.len(), "{}", encapsulation.name);
    }
}
