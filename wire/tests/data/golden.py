#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes golden.json: frames built by scapy (Debian: python3-scapy), what they must be parsed as, and what they must
become by a CE mark. Lengths and checksums come from scapy, expectations from the layout written here, neither from
the crate. Run by hand when a case is added: ./golden.py > golden.json"""

import json

from scapy.all import (
    ARP, BOOTP, DHCP, Dot1AD, Dot1Q, Dot3, Ether, GRE, ICMP, ICMPv6EchoRequest, ICMPv6ND_NS, ICMPv6ND_RA,
    ICMPv6ND_RS, ICMPv6MLReport2, IP, IPOption_Router_Alert, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, LLC, Padding, PPP_IPCP, PPPoE, PPPoED, Raw, STP, TCP, UDP, raw,
)
from scapy.contrib.mpls import MPLS
from scapy.layers.dhcp6 import DHCP6_Advertise, DHCP6_Solicit
from scapy.layers.ppp import PPP_CHAP, PPP_LCP, PPP_PAP_Request
from scapy.layers.vxlan import VXLAN

CPE, BNG = "02:00:00:00:00:01", "02:00:00:00:00:fe"
V4 = dict(src="198.51.100.7", dst="100.64.0.42")
V6 = dict(src="2001:db8:ffff::7", dst="2001:db8:42::1")
cases = []


def eth(**kw):
    return Ether(**{"src": BNG, "dst": CPE, **kw})


def ip4(tos=1, **kw):
    return IP(**{**V4, "tos": tos, "id": 7, "ttl": 61, **kw})


def ip6(tc=1, **kw):
    return IPv6(**{**V6, "tc": tc, "hlim": 61, **kw})


def ppp(protocol):
    """A PPP protocol field; scapy's own compresses it."""
    return Raw(protocol.to_bytes(2, "big"))


def case(description, frame, kind, offset=0, l3=None, header=None, **expected):
    """`header`: the IP header as scapy built it, for the fields and the marked frame."""
    data = raw(frame)
    out = bytearray(data)
    want = {"kind": kind, "ip_offset": offset, "l3_bytes": l3}
    if offset:
        header = IP(data[offset:]) if data[offset] >> 4 == 4 else IPv6(data[offset:])
        tos = header.tos if header.version == 4 else header.tc
        want |= {"src": header.src, "dst": header.dst, "tos": tos}
        want["l3_bytes"] = l3 or (header.len if header.version == 4 else 40 + header.plen)
        if tos & 3:
            if header.version == 4:
                header.tos = tos | 3
                del header.chksum
            else:
                header.tc = tos | 3
            out[offset : offset + 40] = raw(header)[:40]
            assert len(out) >= len(data)
            out = out[: len(data)]
    want |= {"vlans": [], "pppoe_session": None, "ports": None, **expected}
    cases.append({"description": description, "in": data.hex(), "expected": want, "out": bytes(out).hex()})


def bad(description, data, reason, l3, **expected):
    case(description, Raw(bytes(data)), f"bad:{reason}", l3=l3, **expected)


P = [443, 50000]
tcp, udp = TCP(sport=443, dport=50000), UDP(sport=443, dport=50000)
data = Raw(b"sluice" * 6)

# -- IP, wherever it lies ------------------------------------------------------------------------------------------
case("IPv4, ECT(1)", eth() / ip4() / tcp / data, "ipv4", 14, ports=P)
case("IPv4, ECT(0)", eth() / ip4(2) / tcp / data, "ipv4", 14, ports=P)
case("IPv4, CE stays", eth() / ip4(3) / tcp / data, "ipv4", 14, ports=P)
case("IPv4, Not-ECT is never changed", eth() / ip4(0) / tcp / data, "ipv4", 14, ports=P)
case("IPv4, DSCP 45 and ECT(1)", eth() / ip4(45 << 2 | 1) / udp / data, "ipv4", 14, ports=P)
case("IPv6, DSCP 46 and ECT(0)", eth() / ip6(46 << 2 | 2, fl=0xABCDE) / udp / data, "ipv6", 14, ports=P)
case("IPv6, Not-ECT is never changed", eth() / ip6(0xFC) / udp / data, "ipv6", 14, ports=P)
case("IPv4 whose checksum becomes 0x0000 by the mark (RFC 1624 section 4)",
    eth() / ip4(1, id=next(i for i in range(65536) if IP(raw(ip4(3, id=i) / tcp / data)).chksum == 0)) / tcp / data,
    "ipv4", 14, ports=P)
case("IPv4 whose checksum was 0x0000 before the mark",
    eth() / ip4(1, id=next(i for i in range(65536) if IP(raw(ip4(1, id=i) / tcp / data)).chksum == 0)) / tcp / data,
    "ipv4", 14, ports=P)
case("IPv4 with options", eth() / ip4(options=[IPOption_Router_Alert()]) / udp / data, "ipv4", 14, ports=P)
case("IPv4 with 40 bytes of options", eth() / ip4(options=[IPOption_Router_Alert()] * 10) / tcp, "ipv4", 14, ports=P)
case("IPv4 with Ethernet padding", eth() / ip4() / TCP(sport=443, dport=50000) / Padding(b"\0" * 6), "ipv4", 14,
    l3=40, ports=P)
case("IPv4 of 21 bytes with a trailer of 25", eth() / ip4(proto=17) / Raw(b"x") / Padding(b"\xff" * 25), "ipv4", 14, l3=21)
case("IPv4 ICMP has no ports", eth() / ip4() / ICMP() / data, "ipv4", 14)
case("IPv4 first fragment has ports", eth() / ip4(flags="MF") / udp / data, "ipv4", 14, ports=P)
case("IPv4 later fragment has no ports", eth() / ip4(frag=5, proto=17) / data, "ipv4", 14)
case("IPv4 last octet of a UDP header only", eth() / ip4(proto=17) / Raw(b"abc"), "ipv4", 14)
case("one VLAN", eth() / Dot1Q(vlan=100) / ip4() / tcp, "ipv4", 18, ports=P, vlans=[100])
case("VLAN with PCP and DEI set", eth() / Dot1Q(vlan=4094, prio=7, id=1) / ip6() / tcp, "ipv6", 18, ports=P, vlans=[4094])
case("a priority tag is no VLAN", eth() / Dot1Q(vlan=0, prio=5) / ip4() / tcp, "ipv4", 18, ports=P)
case("QinQ 88a8", eth() / Dot1AD(vlan=100) / Dot1Q(vlan=42) / ip6() / tcp, "ipv6", 22, ports=P, vlans=[100, 42])
case("QinQ 8100", eth() / Dot1Q(vlan=100) / Dot1Q(vlan=42) / ip4() / tcp, "ipv4", 22, ports=P, vlans=[100, 42])
case("QinQ 9100", eth(type=0x9100) / Raw(raw(Dot1Q(vlan=100) / Dot1Q(vlan=42) / ip4() / tcp)), "ipv4", 22, ports=P,
    vlans=[100, 42])
case("three tags", eth() / Dot1AD(vlan=7) / Dot1AD(vlan=100) / Dot1Q(vlan=42) / ip4() / tcp, "ipv4", 26, ports=P,
    vlans=[7, 100, 42])
case("PPPoE IPv4", eth() / PPPoE(sessionid=23) / ppp(0x21) / ip4() / tcp, "ipv4", 22, ports=P, pppoe_session=23)
case("PPPoE IPv6", eth() / PPPoE(sessionid=0xFFFE) / ppp(0x57) / ip6() / tcp, "ipv6", 22, ports=P,
    pppoe_session=0xFFFE)
case("PPPoE in QinQ", eth() / Dot1AD(vlan=100) / Dot1Q(vlan=42) / PPPoE(sessionid=23) / ppp(0x21) / ip4(2) / udp,
    "ipv4", 30, ports=P, vlans=[100, 42], pppoe_session=23)
case("PPPoE with a compressed protocol field", eth() / PPPoE(sessionid=23, len=41) / Raw(b"\x21" + raw(ip4() / tcp)), "ipv4",
    21, ports=P, pppoe_session=23)
case("PPPoE with Ethernet padding", eth() / PPPoE(sessionid=23, len=30) / ppp(0x21) / ip4() / UDP(sport=443, dport=50000)
    / Padding(b"\0" * 10), "ipv4", 22, l3=28, ports=P, pppoe_session=23)
one, two = MPLS(label=16001, s=1, ttl=9), MPLS(label=16001, s=0, ttl=9) / MPLS(label=299792, s=1, ttl=9)
case("MPLS, IPv4 proven", eth() / one / ip4() / tcp / data, "ipv4", 18, ports=P)
case("MPLS, IPv6 proven", eth() / one / ip6() / tcp / data, "ipv6", 18, ports=P)
case("MPLS, IPv4 in a padded frame", eth() / one / ip4() / UDP(sport=443, dport=50000) / Padding(b"\0" * 14), "ipv4", 18,
    l3=28, ports=P)
case("MPLS of two labels in QinQ", eth() / Dot1AD(vlan=100) / Dot1Q(vlan=42) / two / ip4() / tcp, "ipv4", 30, ports=P,
    vlans=[100, 42])
four = MPLS(label=1, s=0) / MPLS(label=2, s=0) / MPLS(label=3, s=0) / MPLS(label=4, s=1)
case("MPLS of four labels", eth() / four / ip6() / tcp, "ipv6", 30, ports=P)
case("MPLS upstream-assigned", eth(type=0x8848) / one / ip4() / tcp, "ipv4", 18, ports=P)
case("VXLAN: the outer header counts", eth() / ip4() / UDP(sport=9, dport=4789) / VXLAN(vni=5) / eth() / ip4(0) / tcp,
    "ipv4", 14, ports=[9, 4789])
case("GRE: the outer header counts", eth() / ip4() / GRE() / ip4(0) / tcp, "ipv4", 14)
case("IPv6 hop-by-hop", eth() / ip6() / IPv6ExtHdrHopByHop() / tcp, "ipv6", 14, ports=P)
case("IPv6 with all headers that have an order", eth() / ip6() / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt()
    / IPv6ExtHdrRouting(addresses=["2001:db8::9"]) / IPv6ExtHdrFragment(id=1) / IPv6ExtHdrDestOpt() / tcp, "ipv6", 14, ports=P)
case("IPv6 first fragment has ports", eth() / ip6() / IPv6ExtHdrFragment(m=1, id=1) / udp / data, "ipv6", 14, ports=P)
case("IPv6 later fragment has no ports", eth() / ip6() / IPv6ExtHdrFragment(offset=9, nh=17, id=1) / data, "ipv6", 14)
case("IPv6 without a next header", eth() / ip6(nh=59), "ipv6", 14)
case("MLD is not neighbour discovery", eth() / ip6(0, hlim=1) / IPv6ExtHdrHopByHop() / ICMPv6MLReport2(), "ipv6", 14)

# -- pseudowires: never touched ------------------------------------------------------------------------------------
inner = Ether(src=BNG, dst="4a:00:00:00:00:01") / ip4() / tcp / data
case("pseudowire, MAC begins with 4", eth() / one / inner, "not_ip:mpls_unproven", l3=len(inner) + 4)
inner = Ether(src=BNG, dst="6a:00:00:00:00:01") / ip6() / tcp / data
case("pseudowire, MAC begins with 6", eth() / one / inner, "not_ip:mpls_unproven", l3=len(inner) + 4)
body = raw(Ether(src=BNG, dst="02:00:00:00:00:01") / ip4() / tcp / data)
case("pseudowire with a control word", eth() / two / Raw(b"\0\0\0\1" + body), "not_ip:mpls_unproven", l3=len(body) + 12)
length = len(body)
inner = Ether(src=BNG, dst=f"45:01:{length >> 8:02x}:{length & 255:02x}:00:01") / ip4() / tcp / data
case("pseudowire, MAC reads as 45 with the right total length: the checksum tells", eth() / one / inner,
    "not_ip:mpls_unproven", l3=length + 4)
inner = Ether(src=BNG, dst=f"60:10:00:00:{(length - 40) >> 8:02x}:{(length - 40) & 255:02x}") / ip4() / tcp / data
case("pseudowire, MAC reads as IPv6 with the right payload length: next header and addresses tell", eth() / one / inner,
    "not_ip:mpls_unproven", l3=length + 4)
inner = Ether(src=BNG, dst="60:00:00:00:00:06") / ARP() / Padding(b"\0" * 18)
case("pseudowire, MAC reads as IPv6 with a shorter payload in the least frame", eth() / one / inner,
    "not_ip:mpls_unproven", l3=64)
for what, source, octet in [("next header", "02:00:00:00:00:01", 0xFF), ("source address", "06:00:60:00:00:01", 0xFF),
                            ("destination address", "06:00:00:00:00:01", 0x40)]:
    inner = Ether(src=source, dst="60:00:00:00:00:22", type=0x88B5) / Raw(bytes([octet]) * 60)
    case(f"pseudowire, MAC reads as IPv6, only its {what} tells", eth() / one / inner, "not_ip:mpls_unproven", l3=78)
header = bytearray(b"\x4f\x01\x00\x28" + bytes(56))
header[10:12] = (0xFFFF - 0x4F01 - 0x28).to_bytes(2, "big")
case("MPLS, IPv4 header longer than its packet is not proven", eth(type=0x8847) / Raw(raw(one) + bytes(header)[:40]),
    "not_ip:mpls_unproven", l3=44)
case("MPLS, IPv4 header longer than its packet, in a padded frame", eth(type=0x8847) / Raw(raw(MPLS(s=1)) + b"\x46\x01\x00\x14"
    + bytes(6) + (0xFFFF - 0x4601 - 0x14).to_bytes(2, "big") + bytes(34)), "not_ip:mpls_unproven", l3=50)
case("MPLS, IPv4 with a wrong checksum is not proven", eth() / one / ip4(chksum=1) / tcp, "not_ip:mpls_unproven", l3=44)
case("MPLS, IPv4 shorter than a long frame is not proven", eth() / one / ip4() / tcp / Padding(b"\0" * 60),
    "not_ip:mpls_unproven", l3=104)
case("MPLS, five labels", eth() / MPLS(label=9, s=0) / four / ip4() / tcp, "not_ip:mpls_depth", l3=60)

# -- other frames that carry no IP ---------------------------------------------------------------------------------
case("LLDP", eth(dst="01:80:c2:00:00:0e", type=0x88CC) / Raw(b"\0" * 46), "not_ip:lldp", l3=46)
case("LACP", eth(dst="01:80:c2:00:00:02", type=0x8809) / Raw(b"\1" + b"\0" * 109), "not_ip:slow_protocol", l3=110)
case("EAPOL", eth(type=0x888E) / Raw(b"\2\1\0\0"), "not_ip:eapol", l3=4)
case("CFM in a VLAN", eth() / Dot1Q(vlan=3, type=0x8902) / Raw(b"\0" * 20), "not_ip:cfm", l3=20, vlans=[3])
case("STP", Dot3(src=BNG, dst="01:80:c2:00:00:00") / LLC() / STP() / Padding(b"\0" * 8), "not_ip:llc", l3=46)
case("64 zero bytes, as net_null delivers them", Raw(b"\0" * 64), "not_ip:llc", l3=50)
case("an EtherType nobody looks into", eth(type=0x88B5) / data, "not_ip:ethertype", l3=36)
case("a PPP protocol that is neither IP nor control", eth() / PPPoE(sessionid=9) / ppp(0xFD) / data, "not_ip:ppp_other",
    l3=44, pppoe_session=9)
case("reverse ARP operation", eth() / ARP(op=3), "not_ip:arp_other", l3=28)

# -- control traffic, and what dresses up as it --------------------------------------------------------------------
case("ARP request in QinQ", eth(dst="ff:ff:ff:ff:ff:ff") / Dot1AD(vlan=100) / Dot1Q(vlan=42) / ARP(), "control:arp", l3=28,
    vlans=[100, 42])
case("ARP reply, padded", eth() / ARP(op=2) / Padding(b"\0" * 18), "control:arp", l3=46)
LL = dict(src="fe80::1", dst="fe80::2")
case("neighbour solicitation", eth() / ip6(0, **LL, hlim=255) / ICMPv6ND_NS(tgt="fe80::2"), "control:nd", 14)
case("router solicitation in PPPoE", eth() / PPPoE(sessionid=5) / ppp(0x57) / ip6(0, src="fe80::1", dst="ff02::2", hlim=255)
    / ICMPv6ND_RS(), "control:nd", 22, pppoe_session=5)
case("router advertisement", eth() / ip6(0, src="fe80::1", dst="ff02::1", hlim=255) / ICMPv6ND_RA(), "control:nd", 14)
case("neighbour solicitation from beyond a router", eth() / ip6(0, hlim=254) / ICMPv6ND_NS(tgt="fe80::2"), "ipv6", 14)
case("neighbour solicitation with a code", eth() / ip6(0, **LL, hlim=255) / ICMPv6ND_NS(code=1, tgt="fe80::2"), "ipv6", 14)
case("padding that reads as a neighbour solicitation", eth() / ip6(0, **LL, hlim=255, nh=58, plen=0)
    / Padding(b"\x87\0" + bytes(22)), "ipv6", 14)
case("echo request with hop limit 255", eth() / ip6(0, hlim=255) / ICMPv6EchoRequest(), "ipv6", 14)
case("fragmented neighbour solicitation", eth() / ip6(0, **LL, hlim=255) / IPv6ExtHdrFragment(m=1, id=1)
    / ICMPv6ND_NS(tgt="fe80::2"), "ipv6", 14)
mac = bytes.fromhex(CPE.replace(":", ""))
discover = BOOTP(op=1, chaddr=mac) / DHCP(options=[("message-type", "discover"), "end"])
offer = BOOTP(op=2, chaddr=mac, yiaddr=V4["dst"]) / DHCP(options=[("message-type", "offer"), "end"])
case("DHCP discover", eth(dst="ff:ff:ff:ff:ff:ff") / ip4(0, src="0.0.0.0", dst="255.255.255.255") / UDP(sport=68, dport=67)
    / discover, "control:dhcpv4", 14, ports=[68, 67])
case("DHCP discover, fragmented", eth() / ip4(0, src="0.0.0.0", dst="255.255.255.255", flags="MF") / UDP(sport=68, dport=67)
    / discover, "ipv4", 14, ports=[68, 67])
case("DHCP offer to all", eth() / ip4(0, src="10.0.0.1", dst="255.255.255.255") / UDP(sport=67, dport=68) / offer,
    "control:dhcpv4", 14, ports=[67, 68])
case("DHCP offer to the address and MAC it gives", eth() / ip4(0, src="10.0.0.1") / UDP(sport=67, dport=68) / offer,
    "control:dhcpv4", 14, ports=[67, 68])
def unicast(octets):
    return eth() / ip4(0, src="10.0.0.1") / UDP(sport=67, dport=68) / Raw(octets)


case("DHCP request on the way of an offer", unicast(b"\1" + raw(offer)[1:]), "ipv4", 14, ports=[67, 68])
case("BOOTP reply without DHCP's cookie", unicast(raw(offer)[:236] + bytes(9)), "ipv4", 14, ports=[67, 68])
case("DHCP offer to another MAC than it names", eth(dst=BNG) / ip4(0, src="10.0.0.1") / UDP(sport=67, dport=68) / offer,
    "ipv4", 14, ports=[67, 68])
case("DHCP offer to another address than it gives", eth() / ip4(0, src="10.0.0.1", dst="100.64.0.43") / UDP(sport=67, dport=68)
    / offer, "ipv4", 14, ports=[67, 68])
case("DHCP ports on a flood to a subscriber", eth() / ip4(0) / UDP(sport=67, dport=68) / Raw(b"\2" * 300), "ipv4", 14,
    ports=[67, 68])
case("DHCP renewal is the subscriber's own traffic", eth() / ip4(0, src="100.64.0.42", dst="10.0.0.1") / UDP(sport=68, dport=67)
    / discover, "ipv4", 14, ports=[68, 67])
case("DHCP from a multicast source", eth() / ip4(0, src="224.0.0.1", dst="255.255.255.255") / UDP(sport=68, dport=67) / discover,
    "ipv4", 14, ports=[68, 67])
case("DHCPv6 solicit", eth() / ip6(0, src="fe80::1", dst="ff02::1:2") / UDP(sport=546, dport=547) / DHCP6_Solicit(),
    "control:dhcpv6", 14, ports=[546, 547])
case("DHCPv6 advertise", eth() / ip6(0, **LL) / UDP(sport=547, dport=546) / DHCP6_Advertise(), "control:dhcpv6", 14,
    ports=[547, 546])
case("DHCPv6 ports with global addresses", eth() / ip6(0) / UDP(sport=547, dport=546) / DHCP6_Advertise(), "ipv6", 14,
    ports=[547, 546])
case("DHCPv6 ports from a neighbour to a global address", eth() / ip6(0, src="fe80::1") / UDP(sport=547, dport=546)
    / DHCP6_Advertise(), "ipv6", 14, ports=[547, 546])
case("DHCPv6 solicit from a global address", eth() / ip6(0, dst="ff02::1:2") / UDP(sport=546, dport=547) / DHCP6_Solicit(),
    "ipv6", 14, ports=[546, 547])
case("DHCPv6 solicit to a global address", eth() / ip6(0, src="fe80::1") / UDP(sport=546, dport=547) / DHCP6_Solicit(),
    "ipv6", 14, ports=[546, 547])
case("PPPoE PADI", eth(dst="ff:ff:ff:ff:ff:ff") / PPPoED(code=9) / Raw(b"\1\1\0\0"), "control:pppoe_discovery", l3=10)
case("PPPoE PADT in a VLAN", eth() / Dot1Q(vlan=100) / PPPoED(code=0xA7, sessionid=7), "control:pppoe_discovery", l3=6,
    vlans=[100])
case("PPPoE discovery with an unknown code", eth() / PPPoED(code=0x42), "not_ip:pppoe_discovery_other", l3=6)
for name, proto, kind, payload in [
    ("LCP", 0xC021, "ppp_lcp", PPP_LCP()), ("LQR", 0xC025, "ppp_lcp", Raw(b"\0" * 48)),
    ("PAP", 0xC023, "ppp_auth", PPP_PAP_Request(username=b"cpe", password=b"x")), ("CHAP", 0xC223, "ppp_auth", PPP_CHAP()),
    ("IPCP", 0x8021, "ppp_ncp", PPP_IPCP()), ("IPV6CP", 0x8057, "ppp_ncp", PPP_IPCP()),
]:
    frame = eth() / PPPoE(sessionid=5) / ppp(proto) / payload
    case(f"PPP {name}", frame, f"control:{kind}", l3=len(raw(frame)) - 14, pppoe_session=5)

# -- frames that contradict themselves -----------------------------------------------------------------------------
v4, v6 = raw(eth() / ip4() / tcp), raw(eth() / ip6() / tcp)


def patched(data, at, *octets):
    return data[:at] + bytes(octets) + data[at + len(octets) :]


bad("empty frame", b"", "short", 0)
bad("13 bytes", v4[:13], "short", 0)
bad("ends inside a VLAN tag", raw(eth() / Dot1Q(vlan=1))[:17], "short", 0)
bad("ends inside an IPv4 header", v4[:33], "short", 19)
bad("ends inside an IPv6 header", v6[:53], "short", 39)
bad("ends inside a label", raw(eth() / two)[:21], "short", 7)
bad("ends inside a PPPoE header", raw(eth() / PPPoE(sessionid=1))[:19], "short", 5)
bad("ends inside an ARP packet", raw(eth() / ARP())[:41], "short", 27)
bad("four tags", raw(eth() / Dot1Q(vlan=1) / Dot1Q(vlan=2) / Dot1Q(vlan=3) / Dot1Q(vlan=4) / ip4() / tcp), "too_many_tags", 44,
    vlans=[1, 2, 3])
bad("nothing but tags", bytes(12) + b"\x81\x00" * 700, "too_many_tags", 1386, vlans=[0x100, 0x100, 0x100])
bad("an LLC length past the end", raw(eth(type=60) / Raw(b"\0" * 59)), "llc_length", 59)
bad("IPv4 EtherType, version 6", patched(v4, 14, 0x65), "ip_version", 40)
bad("IPv6 EtherType, version 4", patched(v6, 14, 0x40), "ip_version", 60)
bad("IPv4 header length 16", patched(v4, 14, 0x44), "ipv4_header_length", 40)
bad("IPv4 total length below its header", patched(v4, 16, 0, 19), "ipv4_total_length", 40)
bad("IPv4 total length 0", patched(v4, 16, 0, 0), "ipv4_total_length", 40)
bad("IPv4 total length one past the end", patched(v4, 16, 0, 41), "ipv4_total_length", 40)
bad("IPv4 options past the total length", patched(v4, 14, 0x4F), "ipv4_total_length", 40)
bad("IPv6 payload length one past the end", patched(v6, 18, 0, 21), "ipv6_payload_length", 60)
bad("IPv6 hop-by-hop header past the payload", raw(eth() / ip6(nh=0) / Raw(b"\x06\x01" + bytes(12))), "ipv6_extensions", 54)
bad("IPv6 fragment header cut", raw(eth() / ip6(nh=44) / Raw(b"\x06\x00\x00\x00")), "ipv6_extensions", 44)
bad("IPv6 extension header without a payload", raw(eth() / ip6(nh=43)), "ipv6_extensions", 40)
bad("nine IPv6 extension headers", raw(eth() / ip6(nh=60) / Raw(b"\x3c\x00\x01\x04\0\0\0\0" * 9 + bytes(20))),
    "ipv6_extensions", 132)
bad("IPv6 jumbogram", raw(eth() / ip6(nh=0, plen=0) / Raw(b"\x06\x00\xc2\x04\0\1\0\0" + bytes(20))), "ipv6_jumbogram", 68)
pppoe = raw(eth() / PPPoE(sessionid=23) / ppp(0x21) / ip4() / tcp)
bad("PPPoE version 2", patched(pppoe, 14, 0x21), "pppoe_header", 48)
bad("PPPoE discovery version 2", patched(raw(eth() / PPPoED(code=9)), 14, 0x21), "pppoe_header", 6)
bad("PPPoE length 0 at the frame's end", patched(pppoe, 18, 0, 0)[:20], "pppoe_length", 6, pppoe_session=23)
bad("PPPoE session data with a code", patched(pppoe, 15, 9), "pppoe_header", 48)
bad("PPPoE length past the end", patched(pppoe, 18, 0, 43), "pppoe_length", 48, pppoe_session=23)
bad("PPPoE length 0", patched(pppoe, 18, 0, 0), "pppoe_length", 48, pppoe_session=23)
bad("PPPoE length 1 with a protocol of two", patched(pppoe, 18, 0, 1), "pppoe_length", 48, pppoe_session=23)
bad("IPv4 longer than its PPPoE payload", patched(pppoe, 18, 0, 41), "ipv4_total_length", 48, pppoe_session=23)
bad("PPPoE discovery length past the end", raw(eth() / PPPoED(code=9, len=1)), "pppoe_length", 6)

print("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]")
