// SPDX-License-Identifier: Apache-2.0
//! Ethernet, VLAN tags and PPPoE: the way to the IP header.
//!
//! Source: IEEE 802.3, IEEE 802.1Q, RFC 2516, RFC 1661. The tags 0x8100, 0x88a8 and 0x9100 are taken in any order.

use crate::{Bad, Kind, MAX_VLANS, NotIp, Parsed, control, ip, mpls};

/// A frame: what of it is in memory in one piece, and how long it is.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    /// The first segment, never longer than the frame.
    pub(crate) head: &'a [u8],
    /// Length of the whole frame.
    pub(crate) bytes: usize,
}

impl<'a> Frame<'a> {
    /// `N` bytes at `at`.
    #[inline]
    pub(crate) fn chunk<const N: usize>(self, at: usize) -> Result<&'a [u8; N], Bad> {
        match self.head.get(at..).and_then(|rest| rest.first_chunk()) {
            Some(chunk) => Ok(chunk),
            None => Err(self.short()),
        }
    }

    /// Why a header is not there in full.
    #[cold]
    pub(crate) const fn short(self) -> Bad {
        if self.head.len() < self.bytes { Bad::SplitHeader } else { Bad::Short }
    }
}

/// Big-endian 16 bits.
#[inline]
pub(crate) const fn be16(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low])
}

/// EtherTypes (IEEE registration authority's list).
mod ether {
    pub(super) const IPV4: u16 = 0x0800;
    pub(super) const ARP: u16 = 0x0806;
    pub(super) const C_TAG: u16 = 0x8100;
    pub(super) const IPV6: u16 = 0x86dd;
    pub(super) const SLOW: u16 = 0x8809;
    pub(super) const MPLS: u16 = 0x8847;
    pub(super) const MPLS_UPSTREAM: u16 = 0x8848;
    pub(super) const PPPOE_DISCOVERY: u16 = 0x8863;
    pub(super) const PPPOE_SESSION: u16 = 0x8864;
    pub(super) const EAPOL: u16 = 0x888e;
    pub(super) const S_TAG: u16 = 0x88a8;
    pub(super) const LLDP: u16 = 0x88cc;
    pub(super) const CFM: u16 = 0x8902;
    /// Not registered, but what older QinQ gear sends.
    pub(super) const OLD_S_TAG: u16 = 0x9100;
    /// Values below are lengths.
    pub(super) const FIRST: u16 = 0x0600;
}

/// Parses a frame. `head` is its first segment (or all of it) and `frame_bytes` the length of the whole, without FCS.
///
/// Where it counts, [`parse_into`] an array: a result that is returned and then copied costs about 8 ns more, for the
/// copy's wide loads wait for the parser's narrow stores.
#[inline]
pub fn parse(head: &[u8], frame_bytes: u32) -> Parsed {
    let mut parsed = Parsed::default();
    parse_into(head, frame_bytes, &mut parsed);
    parsed
}

/// [`parse`] into a place that is there already, 9 to 14 ns a frame; what it held is gone.
pub fn parse_into(head: &[u8], frame_bytes: u32, parsed: &mut Parsed) {
    let bytes = usize::try_from(frame_bytes).unwrap_or(usize::MAX);
    let head = head.get(..bytes).unwrap_or(head);
    *parsed = Parsed::default();
    parsed.kind = match ethernet(Frame { head, bytes }, parsed) {
        Ok(kind) => kind,
        Err(bad) => Kind::Bad(bad),
    };
}

/// The Ethernet header, its tags and what they carry.
#[inline]
fn ethernet(frame: Frame<'_>, parsed: &mut Parsed) -> Result<Kind, Bad> {
    let header = frame.chunk::<14>(0)?;
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *header;
    parsed.dst_mac = [d0, d1, d2, d3, d4, d5];
    parsed.src_mac = [s0, s1, s2, s3, s4, s5];
    let mut ethertype = be16(t0, t1);
    let mut at = header.len();
    if is_tag(ethertype) {
        (ethertype, at) = tags(frame, ethertype, at, parsed)?;
    }
    parsed.l3_bytes = u16::try_from(frame.bytes - at).unwrap_or(u16::MAX);
    match ethertype {
        ether::IPV4 => ip::ipv4(frame, at, frame.bytes, parsed),
        ether::IPV6 => ip::ipv6(frame, at, frame.bytes, parsed),
        ether::PPPOE_SESSION => pppoe_session(frame, at, parsed),
        ether::MPLS | ether::MPLS_UPSTREAM => mpls::labels(frame, at, parsed),
        _ => other(frame, ethertype, at),
    }
}

/// Whether an EtherType announces a VLAN tag.
#[inline]
const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, ether::C_TAG | ether::S_TAG | ether::OLD_S_TAG)
}

/// The VLAN tags: gives the EtherType behind them and where its payload begins.
#[inline]
fn tags(frame: Frame<'_>, first: u16, first_at: usize, parsed: &mut Parsed) -> Result<(u16, usize), Bad> {
    let (mut ethertype, mut at) = (first, first_at);
    for _ in 0..MAX_VLANS {
        let tag = frame.chunk::<4>(at)?;
        at += tag.len();
        let vid = be16(tag[0], tag[1]) & 0x0fff;
        if vid != 0 {
            parsed.vlans[usize::from(parsed.vlan_count)] = vid;
            parsed.vlan_count += 1;
        }
        ethertype = be16(tag[2], tag[3]);
        if !is_tag(ethertype) {
            return Ok((ethertype, at));
        }
    }
    parsed.l3_bytes = u16::try_from(frame.bytes - at).unwrap_or(u16::MAX);
    debug_assert!(is_tag(ethertype), "a loop that ended has met another tag");
    Err(Bad::TooManyTags)
}

/// A PPPoE session frame (RFC 2516 sections 4 and 6) and its PPP protocol. A protocol field compressed to one
/// byte (RFC 1661 section 6.5) is taken too: RFC 2516 advises against it, and some peers negotiate it.
#[inline]
fn pppoe_session(frame: Frame<'_>, at: usize, parsed: &mut Parsed) -> Result<Kind, Bad> {
    let header = frame.chunk::<6>(at)?;
    if header[0] != control::PPPOE_VERSION_TYPE || header[1] != 0 {
        return Err(Bad::PppoeHeader);
    }
    parsed.pppoe_session = Some(be16(header[2], header[3]));
    let at = at + header.len();
    let end = at + usize::from(be16(header[4], header[5]));
    if end > frame.bytes || end == at {
        return Err(Bad::PppoeLength);
    }
    let [high] = *frame.chunk::<1>(at)?;
    let (protocol, at) = if high & 1 == 1 {
        (u16::from(high), at + 1)
    } else {
        let [high, low] = *frame.chunk::<2>(at)?;
        (be16(high, low), at + 2)
    };
    if at > end {
        return Err(Bad::PppoeLength);
    }
    match protocol {
        control::PPP_IPV4 => ip::ipv4(frame, at, end, parsed),
        control::PPP_IPV6 => ip::ipv6(frame, at, end, parsed),
        _ => Ok(control::ppp(protocol)),
    }
}

/// Frames that carry no IP.
#[cold]
fn other(frame: Frame<'_>, ethertype: u16, at: usize) -> Result<Kind, Bad> {
    Ok(match ethertype {
        ether::ARP => control::arp(frame.chunk(at)?),
        ether::PPPOE_DISCOVERY => return control::pppoe_discovery(frame, at),
        ether::LLDP => Kind::NotIp(NotIp::Lldp),
        ether::SLOW => Kind::NotIp(NotIp::SlowProtocol),
        ether::EAPOL => Kind::NotIp(NotIp::Eapol),
        ether::CFM => Kind::NotIp(NotIp::Cfm),
        length if length < ether::FIRST => {
            if usize::from(length) > frame.bytes - at {
                return Err(Bad::LlcLength);
            }
            Kind::NotIp(NotIp::Llc)
        }
        _ => Kind::NotIp(NotIp::EtherType),
    })
}
