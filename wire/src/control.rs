// SPDX-License-Identifier: Apache-2.0
//! Control traffic: what must pass unshaped so that a subscriber's line comes up and stays up.
//!
//! Matched narrowly, so that nobody far away can dress up as it: ARP and PPPoE do not cross a router, neighbour
//! discovery needs hop limit 255 (RFC 4861 6.1), DHCPv6 and DHCPv4 need link scope. The one DHCPv4 message that
//! goes to an ordinary address, a server's answer to a client without one (RFC 2131 4.1), must name the address and
//! the MAC it is sent to. All other unicast DHCP (renewals, relays) is the subscriber's ordinary traffic.

use crate::{
    Bad, Control, Kind, NotIp, Parsed, Ports,
    link::{Frame, be16},
};

/// PPPoE version 1, type 1 (RFC 2516 section 4).
pub(crate) const PPPOE_VERSION_TYPE: u8 = 0x11;
/// PPP protocol number of IPv4 (IANA).
pub(crate) const PPP_IPV4: u16 = 0x0021;
/// PPP protocol number of IPv6 (IANA).
pub(crate) const PPP_IPV6: u16 = 0x0057;

/// ARP (RFC 826): a request or reply of IPv4 over Ethernet.
pub(crate) const fn arp(packet: &[u8; 28]) -> Kind {
    match packet {
        [0, 1, 0x08, 0x00, 6, 4, 0, 1 | 2, ..] => Kind::Control(Control::Arp),
        _ => Kind::NotIp(NotIp::Arp),
    }
}

/// PPPoE discovery: PADO, PADI, PADG, PADC, PADQ, PADR, PADS, PADT (RFC 2516 section 5, RFC 5578).
pub(crate) fn pppoe_discovery(frame: Frame<'_>, at: usize) -> Result<Kind, Bad> {
    let header = frame.chunk::<6>(at)?;
    if header[0] != PPPOE_VERSION_TYPE {
        return Err(Bad::PppoeHeader);
    }
    if at + header.len() + usize::from(be16(header[4], header[5])) > frame.bytes {
        return Err(Bad::PppoeLength);
    }
    Ok(match header[1] {
        0x07 | 0x09 | 0x0a | 0x0b | 0x0c | 0x19 | 0x65 | 0xa7 => Kind::Control(Control::PppoeDiscovery),
        _ => Kind::NotIp(NotIp::PppoeDiscovery),
    })
}

/// A PPP protocol that is not IP (IANA's PPP DLL protocol numbers).
#[cold]
pub(crate) const fn ppp(protocol: u16) -> Kind {
    match protocol {
        // LCP, LQR
        0xc021 | 0xc025 => Kind::Control(Control::PppLink),
        // PAP, CHAP, EAP
        0xc023 | 0xc223 | 0xc227 => Kind::Control(Control::PppAuth),
        // IPCP, ECP, IPV6CP, CCP, MPLSCP
        0x8021 | 0x8053 | 0x8057 | 0x80fd | 0x8281 => Kind::Control(Control::PppNetwork),
        _ => Kind::NotIp(NotIp::Ppp),
    }
}

/// Neighbour discovery by its ICMPv6 type and code: RS, RA, NS, NA, redirect (RFC 4861 section 4).
#[inline]
pub(crate) const fn is_nd(hop_limit: u8, icmp_type: u8, icmp_code: u8) -> bool {
    hop_limit == 255 && icmp_code == 0 && matches!(icmp_type, 133..=137)
}

const DHCPV4_SERVER: u16 = 67;
const DHCPV4_CLIENT: u16 = 68;
const IPV4_BROADCAST: u128 = 0xffff_ffff;

/// Whether a whole UDP datagram is DHCP between a client and a server on its link. `udp` is where its header begins.
#[inline]
pub(crate) fn is_dhcpv4(frame: Frame<'_>, udp: usize, ports: Ports, parsed: &Parsed) -> bool {
    match (ports.src, ports.dst) {
        (DHCPV4_CLIENT, DHCPV4_SERVER) => parsed.dst == IPV4_BROADCAST && is_ipv4_source(parsed.src),
        (DHCPV4_SERVER, DHCPV4_CLIENT) => {
            is_ipv4_source(parsed.src)
                && (parsed.dst == IPV4_BROADCAST || names_its_client(frame, udp + 8, parsed))
        }
        _ => false,
    }
}

/// Whether an IPv4 address may send: no loopback, multicast, reserved or broadcast address.
const fn is_ipv4_source(address: u128) -> bool {
    let first = address >> 24;
    first != 127 && first < 224
}

/// Whether a BOOTP reply gives the address it is sent to, to the MAC it is sent to.
fn names_its_client(frame: Frame<'_>, at: usize, parsed: &Parsed) -> bool {
    /// BOOTREPLY, Ethernet, MAC of 6 octets (RFC 2131 section 2).
    const REPLY: [u8; 3] = [2, 1, 6];
    /// Begins the options (RFC 2131 section 3).
    const COOKIE: [u8; 4] = [99, 130, 83, 99];
    let Ok(bootp) = frame.chunk::<240>(at) else {
        return false;
    };
    bootp[..3] == REPLY
        && bootp[16..20] == parsed.dst.to_be_bytes()[12..]
        && bootp[28..34] == parsed.dst_mac
        && bootp[236..] == COOKIE
}

const DHCPV6_CLIENT: u16 = 546;
const DHCPV6_SERVER: u16 = 547;
/// All_DHCP_Relay_Agents_and_Servers, ff02::1:2 (RFC 8415 section 7.1).
const DHCPV6_SERVERS: u128 = 0xff02_0000_0000_0000_0000_0000_0001_0002;

/// Whether a UDP datagram is DHCPv6 between neighbours.
#[inline]
pub(crate) const fn is_dhcpv6(ports: Ports, parsed: &Parsed) -> bool {
    match (ports.src, ports.dst) {
        (DHCPV6_CLIENT, DHCPV6_SERVER) => {
            is_link_local(parsed.src) && (is_link_local(parsed.dst) || parsed.dst == DHCPV6_SERVERS)
        }
        (DHCPV6_SERVER, DHCPV6_CLIENT) => is_link_local(parsed.src) && is_link_local(parsed.dst),
        _ => false,
    }
}

/// fe80::/10.
const fn is_link_local(address: u128) -> bool {
    address >> 118 == 0xfe80 >> 6
}
