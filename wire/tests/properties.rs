// SPDX-License-Identifier: Apache-2.0
//! What holds for any bytes.

use proptest::prelude::*;
use wire::{parse, parse_into, set_ce};

mod promises;

/// The one's complement sum of a header, done in full.
fn sum(header: &[u8]) -> u32 {
    let mut sum: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// The header checksum, computed in full over a header whose checksum field does not count.
fn full_checksum(header: &[u8]) -> [u8; 2] {
    let mut header = header.to_vec();
    header[10..12].fill(0);
    let sum = u16::try_from(sum(&header)).expect("16 bits");
    (!sum).to_be_bytes()
}

/// EtherTypes, tags, PPPoE and IP headers in any order, so that random frames get past the first branch.
fn fragments_of_headers() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(vec![0x81, 0x00, 0x00, 0x64]),
        Just(vec![0x88, 0xa8, 0x00, 0x2a]),
        Just(vec![0x91, 0x00, 0xff, 0xff]),
        Just(vec![0x88, 0x64, 0x11, 0x00, 0x00, 0x17, 0x00, 0x30, 0x00, 0x21]),
        Just(vec![0x88, 0x63, 0x11, 0x09, 0x00, 0x00, 0x00, 0x04]),
        Just(vec![0x88, 0x47, 0x00, 0x00, 0x11, 0x40]),
        Just(vec![0x08, 0x00]),
        Just(vec![0x86, 0xdd]),
        Just(vec![0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]),
        (any::<u8>(), any::<[u8; 2]>(), any::<[u8; 17]>()).prop_map(|(ihl, total, rest)| {
            [&[0x40 | ihl & 15, 1, total[0] & 1, total[1]][..], &rest].concat()
        }),
        (any::<u8>(), 0_u8..64, any::<[u8; 33]>())
            .prop_map(|(length, next, rest)| { [&[0x60, 0x10, 0, 0, 0, length, next][..], &rest].concat() }),
        proptest::collection::vec(prop_oneof![Just(0), Just(44), Just(43), Just(60), any::<u8>()], 0..24),
    ];
    (any::<[u8; 12]>(), proptest::collection::vec(piece, 0..12))
        .prop_map(|(macs, pieces)| [&macs[..], &pieces.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic_or_leave_the_frame(head in proptest::collection::vec(any::<u8>(), 0..200), more: u16) {
        promises::check(&[&more.to_le_bytes()[..], &head].concat());
        parse(&head, more.into());
        parse(&head, u32::MAX);
    }

    #[test]
    fn a_place_that_is_used_again_keeps_nothing_of_the_frame_before(first in fragments_of_headers(), second in fragments_of_headers()) {
        let length = |frame: &[u8]| u32::try_from(frame.len()).expect("short");
        let mut place = parse(&first, length(&first));
        parse_into(&second, length(&second), &mut place);
        prop_assert_eq!(place, parse(&second, length(&second)));
    }

    #[test]
    fn no_mixture_of_headers_makes_it_panic_or_leave_the_frame(head in fragments_of_headers(), more: u16) {
        promises::check(&[&more.to_le_bytes()[..], &head].concat());
    }

    #[test]
    fn the_checksum_after_a_mark_is_what_a_full_computation_gives(mut header in any::<[u8; 60]>(), ihl in 5_usize..=15) {
        header[0] = 0x40 | u8::try_from(ihl).expect("4 bits");
        let header = &mut header[..ihl * 4];
        let checksum = full_checksum(header);
        header[10..12].copy_from_slice(&checksum);
        let codepoint = header[1] & 3;
        prop_assert_eq!(set_ce(header), codepoint == 1 || codepoint == 2);
        prop_assert_eq!(&header[10..12], &full_checksum(header));
        prop_assert_eq!(header[1] & 3, if codepoint == 0 { 0 } else { 3 });
    }

    #[test]
    fn a_wrong_checksum_stays_wrong_by_the_same_amount(mut header in any::<[u8; 20]>(), ecn in 1_u8..3) {
        header[0] = 0x45;
        header[1] = header[1] & !3 | ecn;
        let before = sum(&header) % 0xffff;
        prop_assert!(set_ce(&mut header));
        prop_assert_eq!(sum(&header) % 0xffff, before);
    }

    #[test]
    fn a_mark_changes_one_codepoint_of_ipv6_and_nothing_else(before in any::<[u8; 40]>()) {
        let mut header = before;
        header[0] = 0x60 | header[0] & 15;
        let mut expected = header;
        let codepoint = header[1] >> 4 & 3;
        if codepoint != 0 {
            expected[1] |= 0x30;
        }
        prop_assert_eq!(set_ce(&mut header), codepoint == 1 || codepoint == 2);
        prop_assert_eq!(header, expected);
    }

    #[test]
    fn a_mark_takes_any_slice(mut bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let before = bytes.clone();
        prop_assert_eq!(set_ce(&mut bytes), bytes != before);
        prop_assert_eq!(bytes.get(12..), before.get(12..));
    }
}
