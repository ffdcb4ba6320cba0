// SPDX-License-Identifier: Apache-2.0
//! IPv4 (RFC 791) and IPv6 (RFC 8200).
//!
//! Lengths come from the IP header, which leaves out Ethernet's padding, and are held against the frame's (or the
//! PPPoE payload's) end. The IPv4 checksum is not verified: the box is no router, and what it forwards keeps the
//! checksum it came with. Addresses alone say whose a packet is, so a transport header that is cut off, or lies in
//! a later segment, only means that its ports are not known.

use crate::{
    Bad, Control, Kind, Parsed, Ports, control,
    link::{Frame, be16},
};

const HOP_BY_HOP: u8 = 0;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const ICMPV6: u8 = 58;
const DESTINATION: u8 = 60;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// Extension headers we look through. RFC 8200 section 4.1 has each once, destination options twice.
const MAX_EXTENSIONS: usize = 8;

/// An IPv4 packet at `at`; what carries it ends at `end`.
#[inline]
pub(crate) fn ipv4(frame: Frame<'_>, at: usize, end: usize, parsed: &mut Parsed) -> Result<Kind, Bad> {
    let header = frame.chunk::<20>(at)?;
    if header[0] >> 4 != 4 {
        return Err(Bad::IpVersion);
    }
    let header_bytes = usize::from(header[0] & 15) * 4;
    if header_bytes < header.len() {
        return Err(Bad::Ipv4HeaderLength);
    }
    let total = be16(header[2], header[3]);
    let packet_end = at + usize::from(total);
    if usize::from(total) < header_bytes || packet_end > end {
        return Err(Bad::Ipv4TotalLength);
    }
    let transport = at + header_bytes;
    if transport > frame.head.len() {
        return Err(frame.short());
    }
    set_offset(at, total, parsed);
    parsed.tos = header[1];
    parsed.protocol = header[9];
    let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
    parsed.src = u128::from(u32::from_be_bytes([s0, s1, s2, s3]));
    parsed.dst = u128::from(u32::from_be_bytes([d0, d1, d2, d3]));
    // the more-fragments bit and the offset
    let fragment = be16(header[6], header[7]) & 0x3fff;
    if fragment & 0x1fff != 0 {
        return Ok(Kind::Ipv4);
    }
    parsed.ports = ports(frame, transport, packet_end, parsed.protocol);
    if let (UDP, 0, Some(ports)) = (parsed.protocol, fragment, parsed.ports)
        && control::is_dhcpv4(frame, transport, ports, parsed)
    {
        return Ok(Kind::Control(Control::Dhcpv4));
    }
    Ok(Kind::Ipv4)
}

/// An IPv6 packet at `at`; what carries it ends at `end`.
#[inline]
pub(crate) fn ipv6(frame: Frame<'_>, at: usize, end: usize, parsed: &mut Parsed) -> Result<Kind, Bad> {
    let header = frame.chunk::<40>(at)?;
    if header[0] >> 4 != 6 {
        return Err(Bad::IpVersion);
    }
    let payload = be16(header[4], header[5]);
    let transport = at + header.len();
    let packet_end = transport + usize::from(payload);
    if packet_end > end {
        return Err(Bad::Ipv6PayloadLength);
    }
    let mut upper = Upper { protocol: header[6], at: Some(transport), whole: true };
    if is_extension(upper.protocol) {
        if payload == 0 {
            return Err(if upper.protocol == HOP_BY_HOP { Bad::Ipv6Jumbogram } else { Bad::Ipv6Extensions });
        }
        upper = extensions(frame, header[6], transport, packet_end)?;
    }
    let Ok(length) = u16::try_from(packet_end - at) else {
        return Err(Bad::Ipv6PayloadLength);
    };
    set_offset(at, length, parsed);
    parsed.tos = header[0] << 4 | header[1] >> 4;
    parsed.protocol = upper.protocol;
    let (addresses, _) = header[8..].as_chunks::<16>();
    parsed.src = u128::from_be_bytes(addresses[0]);
    parsed.dst = u128::from_be_bytes(addresses[1]);
    let Some(transport) = upper.at else {
        return Ok(Kind::Ipv6);
    };
    if upper.protocol == ICMPV6 {
        return Ok(icmpv6(frame, transport, packet_end, header[7], upper.whole));
    }
    parsed.ports = ports(frame, transport, packet_end, upper.protocol);
    if let (UDP, true, Some(ports)) = (upper.protocol, upper.whole, parsed.ports)
        && control::is_dhcpv6(ports, parsed)
    {
        return Ok(Kind::Control(Control::Dhcpv6));
    }
    Ok(Kind::Ipv6)
}

/// Stores where the IP header begins and how long its packet is.
#[inline]
fn set_offset(at: usize, length: u16, parsed: &mut Parsed) {
    // at most 14 bytes of Ethernet, 12 of tags and 16 of labels
    parsed.ip_offset = u8::try_from(at).unwrap_or(0);
    parsed.l3_bytes = length;
}

/// The first four bytes of a transport header, where they are ports and in memory.
#[inline]
fn ports(frame: Frame<'_>, at: usize, end: usize, protocol: u8) -> Option<Ports> {
    if !matches!(protocol, TCP | UDP | DCCP | SCTP | UDP_LITE) || at + 4 > end {
        return None;
    }
    let header = frame.head.get(at..)?.first_chunk::<4>()?;
    Some(Ports { src: be16(header[0], header[1]), dst: be16(header[2], header[3]) })
}

/// ICMPv6: neighbour discovery or ordinary traffic. A fragment is never the former (RFC 6980).
fn icmpv6(frame: Frame<'_>, at: usize, end: usize, hop_limit: u8, whole: bool) -> Kind {
    match frame.head.get(at..end.min(frame.head.len())) {
        Some([icmp_type, code, ..]) if whole && control::is_nd(hop_limit, *icmp_type, *code) => {
            Kind::Control(Control::Nd)
        }
        _ => Kind::Ipv6,
    }
}

/// What follows the extension headers.
struct Upper {
    /// Its protocol.
    protocol: u8,
    /// Where it begins, if that is in memory and the packet is no later fragment.
    at: Option<usize>,
    /// Whether the packet is no fragment.
    whole: bool,
}

/// Whether a next header is an extension header we look through.
#[inline]
const fn is_extension(next: u8) -> bool {
    matches!(next, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION)
}

/// Walks the extension headers (RFC 8200 section 4) from `at` to the packet's `end`.
fn extensions(frame: Frame<'_>, first: u8, at: usize, end: usize) -> Result<Upper, Bad> {
    let (mut next, mut at, mut whole) = (first, at, true);
    for _ in 0..MAX_EXTENSIONS {
        if !is_extension(next) {
            return Ok(Upper { protocol: next, at: Some(at), whole });
        }
        if at + 8 > end {
            return Err(Bad::Ipv6Extensions);
        }
        let Ok(header) = frame.chunk::<4>(at) else {
            // in a later segment: the addresses still say whose it is
            return Ok(Upper { protocol: next, at: None, whole });
        };
        if next == FRAGMENT {
            // reserved and M: an atomic fragment (RFC 6946) has neither offset nor M
            let (offset, more) = (be16(header[2], header[3]) >> 3, header[3] & 1);
            if offset != 0 {
                return Ok(Upper { protocol: header[0], at: None, whole: false });
            }
            whole &= more == 0;
            at += 8;
        } else {
            at += (usize::from(header[1]) + 1) * 8;
        }
        if at > end {
            return Err(Bad::Ipv6Extensions);
        }
        next = header[0];
    }
    if is_extension(next) {
        Err(Bad::Ipv6Extensions)
    } else {
        Ok(Upper { protocol: next, at: Some(at), whole })
    }
}

/// Whether the IP packet that a frame's head begins with is a fragment, any of its packet; what is not there in full is
/// none.
pub(crate) fn is_fragment(packet: Frame<'_>) -> bool {
    match packet.head {
        [first, _, _, _, _, _, high, low, ..] if first >> 4 == 4 => be16(*high, *low) & 0x3fff != 0,
        [first, _, _, _, _, _, next, ..] if first >> 4 == 6 && is_extension(*next) => {
            extensions(packet, *next, 40, usize::MAX).is_ok_and(|upper| !upper.whole)
        }
        _ => false,
    }
}
