// SPDX-License-Identifier: Apache-2.0
//! The CE mark (RFC 3168 section 5) with the IPv4 checksum kept by increment.
//!
//! Source: RFC 1624 equation 3, `HC' = ~(~HC + ~m + m')`. Equation 4 of the same RFC, and RFC 1141, can give
//! 0xffff where a full computation gives 0x0000; equation 3 cannot, since the folded sum is never zero.
//! Invariant: a header checksum that was wrong stays wrong by the same amount: the box repairs nobody's damage.

use crate::link::be16;

/// The value of the field that says congestion experienced.
const CE: u8 = 0b11;

/// Sets CE in the IP header that `ip_header` begins with. True if that changed it; false for Not-ECT, which is
/// never changed, for CE itself, and for what is no IP header or not there in full.
#[inline]
pub fn set_ce(ip_header: &mut [u8]) -> bool {
    match ip_header.first().map(|first| first >> 4) {
        Some(4) => set_ce_ipv4(ip_header),
        Some(6) => set_ce_ipv6(ip_header),
        _ => false,
    }
}

/// Whether a field of this value may become CE.
#[inline]
const fn may_mark(ecn: u8) -> bool {
    ecn != 0 && ecn != CE
}

/// IPv4: the field is the low two bits of the second octet.
#[inline]
fn set_ce_ipv4(ip_header: &mut [u8]) -> bool {
    let Some(header) = ip_header.first_chunk_mut::<20>() else {
        return false;
    };
    if !may_mark(header[1] & CE) {
        return false;
    }
    let before = be16(header[0], header[1]);
    header[1] |= CE;
    let after = be16(header[0], header[1]);
    let checksum = updated_checksum(be16(header[10], header[11]), before, after);
    [header[10], header[11]] = checksum.to_be_bytes();
    true
}

/// IPv6: the Traffic Class octet lies across the first two, so the field is bits 4 and 5 of the second.
#[inline]
fn set_ce_ipv6(ip_header: &mut [u8]) -> bool {
    let Some(header) = ip_header.first_chunk_mut::<40>() else {
        return false;
    };
    if !may_mark(header[1] >> 4 & CE) {
        return false;
    }
    header[1] |= CE << 4;
    true
}

/// RFC 1624 equation 3 for one 16-bit word that changed.
#[inline]
fn updated_checksum(checksum: u16, before: u16, after: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    !fold(sum)
}

/// A sum of 16-bit words with its carries added back in.
#[inline]
pub(crate) const fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let [_, _, high, low] = sum.to_be_bytes();
    be16(high, low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 1624 section 4: m = 0x5555 becomes 0x3285, HC 0xdd2f becomes 0x0000, not 0xffff.
    #[test]
    fn the_rfcs_example_gives_zero_and_not_minus_zero() {
        assert_eq!(updated_checksum(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn a_checksum_of_minus_zero_is_updated_like_one_of_zero() {
        for (before, after) in [(0x4501, 0x4503), (0x4502, 0x4503)] {
            assert_eq!(updated_checksum(0xffff, before, after), updated_checksum(0x0000, before, after));
        }
    }

    #[test]
    fn nothing_is_changed_without_a_whole_header() {
        let mut v4 = [0x45, 0x01, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 1, 1, 1, 1, 2, 2, 2];
        assert!(!set_ce(&mut v4));
        assert_eq!(v4[1], 0x01);
        let mut v6 = [0x60, 0x10, 0, 0, 0];
        assert!(!set_ce(&mut v6));
        assert_eq!(v6[1], 0x10);
        assert!(!set_ce(&mut []));
        let mut v5 = [0x51; 40];
        assert!(!set_ce(&mut v5));
        assert_eq!(v5, [0x51; 40]);
    }
}
