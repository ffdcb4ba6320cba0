// SPDX-License-Identifier: Apache-2.0
//! What a frame can be. Every variant has a stable label, for counters and JSON.

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An IPv4 packet.
    Ipv4,
    /// An IPv6 packet.
    Ipv6,
    /// A sound frame that carries no IP, or none that is proven; never changed.
    NotIp(NotIp),
    /// Traffic that keeps a subscriber's line alive; passes unshaped.
    Control(Control),
    /// A frame that contradicts itself.
    Bad(Bad),
}

/// Gives an enum its list and its labels.
macro_rules! labelled {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident => $label:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// All of them; the place of each is its value `as usize`.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Its name in counters and JSON; does not change.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$variant => $label,)+ }
            }
        }
    };
}

labelled! {
    /// Why a sound frame is not seen as IP.
    NotIp {
        /// An EtherType we do not look into.
        EtherType => "ethertype",
        /// IEEE 802.3 with a length: STP, IS-IS and other LLC.
        Llc => "llc",
        /// Link Layer Discovery Protocol.
        Lldp => "lldp",
        /// Slow protocols: LACP, OAM.
        SlowProtocol => "slow_protocol",
        /// Port authentication (IEEE 802.1X).
        Eapol => "eapol",
        /// Connectivity fault management (IEEE 802.1ag).
        Cfm => "cfm",
        /// ARP that is not a request or reply of IPv4 over Ethernet.
        Arp => "arp_other",
        /// PPPoE discovery with a code nobody defined.
        PppoeDiscovery => "pppoe_discovery_other",
        /// A PPP protocol that is neither IP nor control.
        Ppp => "ppp_other",
        /// MPLS whose payload is not proven to be IP: a pseudowire, or a damaged packet.
        Mpls => "mpls_unproven",
        /// An MPLS stack of more labels than we look through.
        MplsDepth => "mpls_depth",
    }
}

labelled! {
    /// Control traffic, matched narrowly.
    Control {
        /// ARP request or reply of IPv4 over Ethernet (RFC 826).
        Arp => "arp",
        /// Neighbour discovery (RFC 4861).
        Nd => "nd",
        /// DHCP for IPv4 (RFC 2131).
        Dhcpv4 => "dhcpv4",
        /// DHCP for IPv6 (RFC 8415).
        Dhcpv6 => "dhcpv6",
        /// PPPoE discovery (RFC 2516).
        PppoeDiscovery => "pppoe_discovery",
        /// PPP link control and link quality (RFC 1661, RFC 1989).
        PppLink => "ppp_lcp",
        /// PPP authentication: PAP, CHAP, EAP (RFC 1334, 1994, 3748).
        PppAuth => "ppp_auth",
        /// PPP network control: IPCP, IPV6CP, CCP, ECP, MPLSCP (RFC 1332, 5072, 1962, 1968, 3032).
        PppNetwork => "ppp_ncp",
    }
}

labelled! {
    /// How a frame contradicts itself.
    Bad {
        /// It ends inside a header.
        Short => "short",
        /// Its first segment ends inside a header, though the frame goes on.
        SplitHeader => "split_header",
        /// More than three VLAN tags.
        TooManyTags => "too_many_tags",
        /// An IEEE 802.3 length past its end.
        LlcLength => "llc_length",
        /// PPPoE of another version or type, or session data with a code.
        PppoeHeader => "pppoe_header",
        /// A PPPoE length past the frame's end, or too small for a protocol.
        PppoeLength => "pppoe_length",
        /// An IP version other than what the EtherType or PPP protocol says.
        IpVersion => "ip_version",
        /// An IPv4 header length below 20 bytes.
        Ipv4HeaderLength => "ipv4_header_length",
        /// An IPv4 total length below the header's or past the end.
        Ipv4TotalLength => "ipv4_total_length",
        /// An IPv6 payload length past the end.
        Ipv6PayloadLength => "ipv6_payload_length",
        /// IPv6 extension headers past the payload's end, or too many of them.
        Ipv6Extensions => "ipv6_extensions",
        /// An IPv6 jumbogram (RFC 2675): no frame here is that long.
        Ipv6Jumbogram => "ipv6_jumbogram",
    }
}
