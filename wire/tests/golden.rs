// SPDX-License-Identifier: Apache-2.0
//! Frames built by scapy (`data/golden.py`) are parsed as expected, and the CE mark gives exactly the frame expected.

use std::{fmt::Write as _, fs};

use serde_json::{Value, json};
use wire::{Kind, parse, set_ce};

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hex is a string");
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex digits")).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string");
        text
    })
}

fn label(kind: Kind) -> String {
    match kind {
        Kind::Ipv4 => "ipv4".into(),
        Kind::Ipv6 => "ipv6".into(),
        Kind::NotIp(reason) => format!("not_ip:{}", reason.label()),
        Kind::Control(control) => format!("control:{}", control.label()),
        Kind::Bad(bad) => format!("bad:{}", bad.label()),
    }
}

/// What the parser says, in the manner of the file's `expected`.
fn seen(frame: &[u8]) -> Value {
    let frame_bytes = u32::try_from(frame.len()).expect("a frame");
    let parsed = parse(frame, frame_bytes);
    let mut seen = json!({
        "kind": label(parsed.kind),
        "ip_offset": parsed.ip_offset,
        "l3_bytes": parsed.l3_bytes,
        "vlans": parsed.vlans[..usize::from(parsed.vlan_count)],
        "pppoe_session": parsed.pppoe_session,
        "ports": parsed.ports.map(|ports| [ports.src, ports.dst]),
    });
    if parsed.is_ip() {
        seen["tos"] = json!(parsed.tos);
        let v4 = frame[usize::from(parsed.ip_offset)] >> 4 == 4;
        for (name, address) in [("src", parsed.src), ("dst", parsed.dst)] {
            seen[name] = if v4 {
                let address = u32::try_from(address).expect("the low 32 bits");
                json!(std::net::Ipv4Addr::from_bits(address).to_string())
            } else {
                json!(std::net::Ipv6Addr::from_bits(address).to_string())
            };
        }
    }
    seen
}

/// The frame after a CE mark where the parser says an IP header is.
fn marked(mut frame: Vec<u8>) -> Vec<u8> {
    let frame_bytes = u32::try_from(frame.len()).expect("a frame");
    let offset = usize::from(parse(&frame, frame_bytes).ip_offset);
    if offset > 0 {
        let before = frame.clone();
        assert_eq!(set_ce(&mut frame[offset..]), frame != before, "it says whether it changed the frame");
    }
    frame
}

#[test]
fn every_golden_packet_is_parsed_and_marked_as_its_file_says() {
    let text = fs::read_to_string("tests/data/golden.json").expect("the data file");
    let cases: Vec<Value> = serde_json::from_str(&text).expect("a list of cases");
    assert!(cases.len() > 100, "the file holds {} cases", cases.len());
    let mut wrong = String::new();
    for case in &cases {
        let frame = bytes(&case["in"]);
        let (seen, out) = (seen(&frame), hex(&marked(frame)));
        if seen != case["expected"] {
            writeln!(wrong, "{}\n  seen     {seen}\n  expected {}", case["description"], case["expected"])
                .expect("string");
        }
        if out != case["out"] {
            writeln!(wrong, "{}\n  out      {out}\n  expected {}", case["description"], case["out"])
                .expect("string");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn the_golden_packets_meet_every_reason_that_a_whole_frame_can_have() {
    let text = fs::read_to_string("tests/data/golden.json").expect("the data file");
    let cases: Vec<Value> = serde_json::from_str(&text).expect("a list of cases");
    let kinds: Vec<&str> = cases.iter().filter_map(|case| case["expected"]["kind"].as_str()).collect();
    let reasons = wire::NotIp::ALL
        .iter()
        .map(|reason| format!("not_ip:{}", reason.label()))
        .chain(wire::Control::ALL.iter().map(|control| format!("control:{}", control.label())))
        .chain(wire::Bad::ALL.iter().map(|bad| format!("bad:{}", bad.label())))
        .filter(|label| label != "bad:split_header");
    for label in reasons {
        assert!(kinds.contains(&label.as_str()), "no case for {label}");
    }
}

/// The golden frame of that description.
fn golden(description: &str) -> Vec<u8> {
    let text = fs::read_to_string("tests/data/golden.json").expect("the data file");
    let cases: Vec<Value> = serde_json::from_str(&text).expect("a list of cases");
    let case = cases.iter().find(|case| case["description"] == description);
    bytes(&case.expect("a case of that description")["in"])
}

/// What is made of the first `head` bytes of a golden frame when the rest lies in other segments.
fn segmented(description: &str, head: usize) -> wire::Parsed {
    let frame = golden(description);
    parse(&frame[..head], u32::try_from(frame.len()).expect("a frame"))
}

#[test]
fn a_header_cut_by_the_first_segments_end_is_split_and_one_cut_by_the_frames_end_is_short() {
    let split = segmented("IPv4, ECT(1)", 33);
    assert_eq!((split.kind, split.ip_offset), (Kind::Bad(wire::Bad::SplitHeader), 0));
    assert_eq!(parse(&golden("IPv4, ECT(1)")[..33], 33).kind, Kind::Bad(wire::Bad::Short));
    assert_eq!(segmented("IPv4 with options", 37).kind, Kind::Bad(wire::Bad::SplitHeader));
}

#[test]
fn what_lies_in_a_later_segment_is_not_known_and_not_bad() {
    let parsed = segmented("IPv4, ECT(1)", 34);
    assert_eq!((parsed.kind, parsed.ports, parsed.l3_bytes), (Kind::Ipv4, None, 76));
    let parsed = segmented("IPv6 hop-by-hop", 54);
    assert_eq!((parsed.kind, parsed.ports, parsed.l3_bytes), (Kind::Ipv6, None, 68));
    assert_eq!(segmented("neighbour solicitation", 55).kind, Kind::Ipv6);
    assert_eq!(segmented("neighbour solicitation", 56).kind, Kind::Control(wire::Control::Nd));
}

#[test]
fn bytes_beyond_the_frame_are_never_looked_at() {
    let text = fs::read_to_string("tests/data/golden.json").expect("the data file");
    let cases: Vec<Value> = serde_json::from_str(&text).expect("a list of cases");
    for case in &cases {
        let frame = bytes(&case["in"]);
        for length in 0..frame.len() {
            let frame_bytes = u32::try_from(length).expect("a frame");
            assert_eq!(
                parse(&frame, frame_bytes),
                parse(&frame[..length], frame_bytes),
                "{}",
                case["description"]
            );
        }
    }
}
