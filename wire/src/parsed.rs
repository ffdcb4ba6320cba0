// SPDX-License-Identifier: Apache-2.0
//! The result of a parse.

use crate::{Bad, Kind};

/// VLAN tags a frame may carry: S-tag, C-tag and one more (a transport tag or a priority tag).
pub const MAX_VLANS: usize = 3;

/// Ports of the transport header (TCP, UDP, UDP-Lite, DCCP, SCTP).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
}

/// What a frame is. Where `kind` is [`Kind::Bad`] the fields hold what was found before the fault, and
/// `ip_offset` is 0, so nobody changes the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Source address; IPv4 in the low 32 bits; 0 where there is no IP.
    pub src: u128,
    /// Destination address, likewise.
    pub dst: u128,
    /// Destination MAC.
    pub dst_mac: [u8; 6],
    /// Source MAC.
    pub src_mac: [u8; 6],
    /// VLAN ids, outermost first; those past `vlan_count` are 0.
    pub vlans: [u16; MAX_VLANS],
    /// Length the shaper's overhead is added to, in bytes: the IP packet by its own header (Ethernet padding left
    /// out), or for a frame that is not IP its Ethernet payload, what follows the last VLAN tag.
    pub l3_bytes: u16,
    /// Session id of a PPPoE session frame.
    pub pppoe_session: Option<u16>,
    /// Ports; none on fragments but the first, and none where the transport header is not in the first segment.
    pub ports: Option<Ports>,
    /// What it is.
    pub kind: Kind,
    /// VLAN ids in `vlans`. A priority tag (VID 0) names no VLAN and is not among them (IEEE 802.1Q).
    pub vlan_count: u8,
    /// Where the IP header begins; 0: there is none that may be changed.
    pub ip_offset: u8,
    /// The TOS or Traffic Class octet.
    pub tos: u8,
    /// The protocol above IP, after the extension headers.
    pub protocol: u8,
}

impl Default for Parsed {
    /// What an empty frame is parsed as.
    #[inline]
    fn default() -> Self {
        Self {
            src: 0,
            dst: 0,
            dst_mac: [0; 6],
            src_mac: [0; 6],
            vlans: [0; MAX_VLANS],
            l3_bytes: 0,
            pppoe_session: None,
            ports: None,
            kind: Kind::Bad(Bad::Short),
            vlan_count: 0,
            ip_offset: 0,
            tos: 0,
            protocol: 0,
        }
    }
}

impl Parsed {
    /// The ECN field, by its value on the wire (0-3).
    #[inline]
    pub const fn ecn_bits(&self) -> u8 {
        self.tos & 3
    }

    /// The DSCP (0-63).
    #[inline]
    pub const fn dscp(&self) -> u8 {
        self.tos >> 2
    }

    /// The outermost VLAN id.
    #[inline]
    pub const fn outer_vlan(&self) -> Option<u16> {
        if self.vlan_count > 0 { Some(self.vlans[0]) } else { None }
    }

    /// The VLAN id inside the outermost one.
    #[inline]
    pub const fn inner_vlan(&self) -> Option<u16> {
        if self.vlan_count > 1 { Some(self.vlans[1]) } else { None }
    }

    /// Whether it is an IP packet, control traffic carried in IP among them.
    #[inline]
    pub const fn is_ip(&self) -> bool {
        self.ip_offset != 0
    }
}
