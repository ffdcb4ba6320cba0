// SPDX-License-Identifier: Apache-2.0
//! What a packet costs on the subscriber's line: tc-cake's overhead arithmetic on the length of the IP packet.
//!
//! Source: tc-cake(8) and `cake_calc_overhead` of the kernel's `sch_cake`: add `bytes`, raise to `mpu`, then
//! count whole ATM cells (48 bytes of payload in 53) or PTM words (65 bytes for each 64 begun).

use model::profile::{Cells, Overhead};

/// What a frame takes on a port beyond its bytes in memory: FCS, preamble and gap.
pub const PORT_FRAME_OVERHEAD: u32 = 24;

/// Bytes that an IP packet of `l3_bytes` occupies on the line; never 0.
#[inline]
pub const fn line_bytes(overhead: Overhead, l3_bytes: u16) -> u32 {
    let sum = l3_bytes as i32 + overhead.bytes as i32;
    let least = if overhead.mpu == 0 { 1 } else { overhead.mpu as i32 };
    let bytes = if sum > least { sum } else { least }.cast_unsigned();
    match overhead.cells {
        Cells::None => bytes,
        Cells::Atm => bytes.div_ceil(48) * 53,
        Cells::Ptm => bytes + bytes.div_ceil(64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn keyword(bytes: i16, mpu: u16, cells: Cells) -> Overhead {
        Overhead { bytes, mpu, cells }
    }

    #[test]
    fn keywords_of_tc_cake_give_hand_computed_sizes() {
        let cases = [
            ("raw", keyword(0, 0, Cells::None), 1500, 1500),
            ("ethernet", keyword(38, 84, Cells::None), 1500, 1538),
            ("ethernet, least frame", keyword(38, 84, Cells::None), 40, 84),
            ("ethernet, just above the least frame", keyword(38, 84, Cells::None), 47, 85),
            ("ethernet ether-vlan", keyword(42, 84, Cells::None), 1500, 1542),
            ("docsis", keyword(18, 64, Cells::None), 1500, 1518),
            ("docsis, least frame", keyword(18, 64, Cells::None), 20, 64),
            // 1548 bytes are 32.25 cells
            ("conservative", keyword(48, 0, Cells::Atm), 1500, 33 * 53),
            // a TCP ACK in PPPoA VC-MUX: 50 bytes, two cells
            ("pppoa-vcmux", keyword(10, 0, Cells::Atm), 40, 2 * 53),
            ("pppoa-vcmux, full cells", keyword(8, 0, Cells::Atm), 40, 53),
            // 1530 bytes begin 24 words of 64
            ("pppoe-ptm", keyword(30, 0, Cells::Ptm), 1500, 1530 + 24),
            ("bridged-ptm, whole words", keyword(22, 0, Cells::Ptm), 42, 65),
            ("negative", keyword(-14, 0, Cells::None), 1500, 1486),
        ];
        for (name, overhead, l3_bytes, expected) in cases {
            assert_eq!(line_bytes(overhead, l3_bytes), expected, "{name}");
        }
    }

    #[test]
    fn no_packet_is_free() {
        assert_eq!(line_bytes(keyword(-64, 0, Cells::None), 10), 1);
        assert_eq!(line_bytes(keyword(-64, 0, Cells::Atm), 0), 53);
    }

    #[test]
    fn the_largest_packet_does_not_wrap() {
        assert_eq!(line_bytes(keyword(256, 0, Cells::None), u16::MAX), 65_535 + 256);
        assert_eq!(line_bytes(keyword(256, 0, Cells::Atm), u16::MAX), 1371 * 53);
    }
}
