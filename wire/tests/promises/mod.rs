// SPDX-License-Identifier: Apache-2.0
//! What the crate promises of any frame; shared by the property tests, the corpus test and the fuzz target.

use wire::{Kind, parse, set_ce};

/// Checks a fuzzer's input: two octets that say how much longer the frame is than its first segment, and the segment.
pub(crate) fn check(input: &[u8]) {
    let Some((more, head)) = input.split_first_chunk::<2>() else {
        return;
    };
    let length = u32::try_from(head.len()).expect("inputs are short");
    check_frame(head, length);
    check_frame(head, length + u32::from(u16::from_le_bytes(*more)));
}

/// Checks one frame, all of it or its first segment.
fn check_frame(head: &[u8], frame_bytes: u32) {
    let parsed = parse(head, frame_bytes);
    let (offset, l3_bytes) = (u32::from(parsed.ip_offset), u32::from(parsed.l3_bytes));
    assert!(offset + l3_bytes <= frame_bytes, "{parsed:?} leaves its {frame_bytes} bytes");
    match parsed.kind {
        Kind::Ipv4 | Kind::Ipv6 => assert!(parsed.is_ip()),
        Kind::Bad(_) | Kind::NotIp(_) => {
            assert_eq!((offset, parsed.src, parsed.dst, parsed.ports), (0, 0, 0, None));
        }
        Kind::Control(_) => {}
    }
    if parsed.is_ip() {
        check_mark(head, frame_bytes);
    }
}

/// The header a mark is set in is in memory and inside the frame, so only its codepoint can refuse the mark.
fn check_mark(head: &[u8], frame_bytes: u32) {
    let parsed = parse(head, frame_bytes);
    let header = usize::from(parsed.ip_offset);
    let least = if head[header] >> 4 == 4 { 20 } else { 40 };
    assert!(parsed.l3_bytes >= least, "{parsed:?} is shorter than its header");
    let mut marked = head.to_vec();
    let changed = set_ce(&mut marked[header..]);
    assert_eq!(changed, matches!(parsed.ecn_bits(), 1 | 2), "Not-ECT and CE stay, the rest is marked");
    let again = parse(&marked, frame_bytes);
    assert_eq!(again.ecn_bits(), if changed { 3 } else { parsed.ecn_bits() });
    assert_eq!((again.kind, again.l3_bytes), (parsed.kind, parsed.l3_bytes), "a mark changes nothing else");
}
