// SPDX-License-Identifier: Apache-2.0
//! MPLS label stacks (RFC 3032).
//!
//! A label says nothing of what it carries, so the payload is IP only where its whole header proves it. A guess
//! from the first nibble would take a pseudowire's Ethernet frame (RFC 4448) for IP when its destination MAC
//! begins with 4 or 6, and a CE mark would then corrupt somebody's MAC.

use crate::{
    Bad, Kind, NotIp, Parsed, ip,
    link::{Frame, be16},
    mark::fold,
};

/// Labels we look through.
const MAX_LABELS: usize = 4;

/// Bytes of one label.
const LABEL_BYTES: usize = 4;

/// An Ethernet header.
const ETHERNET_BYTES: usize = 14;

/// Longest frame that is padded: Ethernet's least 60 bytes and a captured FCS. Tags and labels may come on top.
const MAX_PADDED_FRAME: usize = 60 + 4;

/// The label stack at `at`, and IP behind it if proven.
pub(crate) fn labels(frame: Frame<'_>, at: usize, parsed: &mut Parsed) -> Result<Kind, Bad> {
    for depth in 0..MAX_LABELS {
        let label = frame.chunk::<LABEL_BYTES>(at + depth * LABEL_BYTES)?;
        let bottom_of_stack = label[2] & 1 == 1;
        if bottom_of_stack {
            return payload(frame, at + (depth + 1) * LABEL_BYTES, parsed);
        }
    }
    Ok(Kind::NotIp(NotIp::MplsDepth))
}

/// What lies under the bottom label.
fn payload(frame: Frame<'_>, at: usize, parsed: &mut Parsed) -> Result<Kind, Bad> {
    match frame.head.get(at).map(|first| first >> 4) {
        Some(4) if is_ipv4(frame, at) => ip::ipv4(frame, at, frame.bytes, parsed),
        Some(6) if is_ipv6(frame, at) => ip::ipv6(frame, at, frame.bytes, parsed),
        _ => Ok(Kind::NotIp(NotIp::Mpls)),
    }
}

/// Whether an IP packet of `length` bytes fills the frame from `at` on. Padding is allowed only where Ethernet needs
/// it; the least frame inside a pseudowire makes a longer one.
fn fills(frame: Frame<'_>, at: usize, length: usize) -> bool {
    let may_be_padded = frame.bytes - (at - ETHERNET_BYTES) <= MAX_PADDED_FRAME;
    match (frame.bytes - at).checked_sub(length) {
        Some(padding) => padding == 0 || may_be_padded,
        None => false,
    }
}

/// IPv4 proves itself by its header length, its total length and its checksum.
fn is_ipv4(frame: Frame<'_>, at: usize) -> bool {
    let Ok(first) = frame.chunk::<4>(at) else {
        return false;
    };
    let header_bytes = usize::from(first[0] & 15) * 4;
    let total = usize::from(be16(first[2], first[3]));
    if header_bytes < 20 || total < header_bytes || !fills(frame, at, total) {
        return false;
    }
    let Some(header) = frame.head.get(at..at + header_bytes) else {
        return false;
    };
    let (words, _) = header.as_chunks::<2>();
    let sum = words.iter().map(|&[high, low]| u32::from(be16(high, low))).sum();
    fold(sum) == 0xffff
}

/// IPv6 has no checksum: its payload length must fit, its next header must be one that is in use, and its
/// addresses must lie in assigned space.
fn is_ipv6(frame: Frame<'_>, at: usize) -> bool {
    let Ok(header) = frame.chunk::<40>(at) else {
        return false;
    };
    let payload = usize::from(be16(header[4], header[5]));
    fills(frame, at, header.len() + payload)
        && is_next_header(header[6])
        && is_unicast(header[8], header[9])
        && (is_unicast(header[24], header[25]) || header[24] == 0xff)
}

/// Next headers that are seen in use (IANA's protocol numbers).
const fn is_next_header(next: u8) -> bool {
    matches!(
        next,
        // hop-by-hop, IPv4, TCP, UDP, DCCP, IPv6, routing, fragment, RSVP, GRE, ESP, AH, ICMPv6, none, options
        0 | 4 | 6 | 17 | 33 | 41 | 43 | 44 | 46 | 47 | 50 | 51 | 58 | 59 | 60
        // EIGRP, OSPF, EtherIP, PIM, VRRP, L2TP, SCTP, mobility, UDP-Lite, MPLS, HIP, Ethernet
        | 88 | 89 | 97 | 103 | 112 | 115 | 132 | 135 | 136 | 137 | 139 | 143
    )
}

/// Unicast address space that IANA has assigned, by the first two octets: ::/8 (unspecified, mapped, NAT64),
/// 2000::/3, 5f00::/16 (SRv6, RFC 9602), fc00::/7, fe80::/10.
const fn is_unicast(first: u8, second: u8) -> bool {
    first == 0
        || first >> 5 == 0b001
        || (first == 0x5f && second == 0)
        || first >> 1 == 0xfc >> 1
        || (first == 0xfe && second >> 6 == 0b10)
}
