# SPDX-License-Identifier: Apache-2.0
"""The mixes of drive.lua as capture files, for where Pktgen is not installed, and what came back held against them.

Every frame of a capture differs from every other, so a frame that comes back is known: it must be the one that was
sent, or that one with CE set and a right checksum where it was ECT(0) or ECT(1)."""

import math
import struct

DST_MAC, SRC_MAC = bytes.fromhex("020000000001"), bytes.fromhex("0200000000fe")
SRC4, SRC6 = bytes([198, 51, 100, 7]), bytes.fromhex("20010db8ffff00000000000000000007")

# Codepoints a mix cycles through, as range.tos does.
MIXES = {
    "not_ect": [0], "ect1": [1], "ect0": [2], "ect1_ect0": [1, 2], "not_ect_ect1": [0, 1], "not_ect_ect0": [0, 2],
    "all": [0, 1, 2, 3],
}
CE = 3
# 64 to 1516 bytes with FCS in steps of 121, as sizes.lua; without FCS here.
SIZES = range(60, 1515, 121)
ENCAPSULATIONS = ["ipv4", "ipv6", "vlan", "qinq", "pppoe"]
ETHERTYPE = {4: b"\x08\x00", 6: b"\x86\xdd"}


def checksum(header):
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def udp(length, ident):
    """A UDP header (no checksum) and its payload, which begins with a number no other frame has."""
    return struct.pack("!HHHHI", 443, 5001, length, 0, ident) + bytes(length - 12)


def ipv4(host, codepoint, length, ident):
    header = struct.pack("!BBHHHBBH4s4s", 0x45, codepoint, length, ident & 0xFFFF, 0, 61, 17, 0, SRC4,
                         bytes([100, 64, host >> 8, host & 255]))
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + udp(length - 20, ident)


def ipv6(host, codepoint, length, ident):
    destination = bytes.fromhex("20010db80000") + struct.pack("!H", host) + bytes(7) + b"\1"
    return (struct.pack("!IHBB", 6 << 28 | codepoint << 20, length - 40, 17, 61) + SRC6 + destination
            + udp(length - 40, ident))


def frame(encapsulation, host, codepoint, size, ident):
    """`size`: bytes without FCS. The outer tag is 0x8100, for net_af_packet loses 0x88a8."""
    tags = {"vlan": b"\x81\x00\x00\x64", "qinq": b"\x81\x00\x00\x64\x81\x00\x00\x2a"}.get(encapsulation, b"")
    build, version = (ipv6, 6) if encapsulation == "ipv6" else (ipv4, 4)
    overhead = 14 + len(tags) + (8 if encapsulation == "pppoe" else 0)
    packet = build(host, codepoint, max(size - overhead, 60 if version == 6 else 40), ident)
    if encapsulation == "pppoe":
        link = b"\x88\x64\x11\x00" + struct.pack("!HHH", 23, len(packet) + 2, 0x0021)
    else:
        link = tags + ETHERTYPE[version]
    return DST_MAC + SRC_MAC + link + packet


# Frames of a capture: net_pcap with infinite_rx keeps each in a buffer.
MOST = 8192


def frames(mix, hosts, sizes, encapsulations):
    """All that varies advances in step, as Pktgen's ranges do; the periods must have no common factor."""
    ranges = [hosts, MIXES[mix], sizes, encapsulations]
    count = min(math.prod(len(values) for values in ranges), MOST)
    if math.lcm(*(len(values) for values in ranges)) < count:
        raise ValueError("ranges with a common factor never meet")
    made = []
    for ident in range(count):
        host, codepoint_, size, encapsulation = (values[ident % len(values)] for values in ranges)
        made.append(frame(encapsulation, host, codepoint_, size, ident))
    return made


def write(path, made):
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for data in made:
            file.write(struct.pack("<IIII", 0, 0, len(data), len(data)) + data)


def read(path):
    """The frames of a capture of this byte order."""
    with open(path, "rb") as file:
        data = file.read()
    at = 24
    while at + 16 <= len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        yield data[at + 16 : at + 16 + length]
        at += 16 + length


def ip_offset(data):
    at = 12
    while data[at : at + 2] == b"\x81\x00":
        at += 4
    return at + 10 if data[at : at + 2] == b"\x88\x64" else at + 2


def codepoint(data):
    at = ip_offset(data)
    return data[at + 1] & 3 if data[at] >> 4 == 4 else data[at + 1] >> 4 & 3


def marked(data):
    """The frame with CE, its checksum computed in full."""
    at = ip_offset(data)
    out = bytearray(data)
    if out[at] >> 4 == 4:
        out[at + 1] |= CE
        out[at + 10 : at + 12] = b"\0\0"
        out[at + 10 : at + 12] = struct.pack("!H", checksum(bytes(out[at : at + 20])))
    else:
        out[at + 1] |= CE << 4
    return bytes(out)


class Returned:
    """Counts of what came back."""

    def __init__(self, sent, path):
        as_sent = {data: codepoint(data) for data in sent}
        with_ce = {marked(data): codepoint(data) for data in sent if codepoint(data) in (1, 2)}
        self.packets = self.marked = self.strange = 0
        self.by_codepoint = [0, 0, 0, 0]
        for data in read(path):
            self.packets += 1
            # a mark gives no frame that was sent too, for each has a number of its own
            if data in as_sent:
                self.by_codepoint[as_sent[data]] += 1
            elif data in with_ce:
                self.by_codepoint[with_ce[data]] += 1
                self.marked += 1
            else:
                self.strange += 1
