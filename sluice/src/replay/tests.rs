// SPDX-License-Identifier: Apache-2.0
#![expect(clippy::cast_precision_loss, reason = "counts and spans of a test stay below 2^53")]

mod parents;

use etherparse::{Ipv4Header, PacketBuilder, SlicedPacket, VlanId};

use super::*;
use crate::pcap::Record;
use aqm::Nanos;
use engine::Direction;

const MS: u64 = 1_000_000;
const PAYLOAD: usize = 1_472;

/// What came out and the counts.
struct Outcome {
    out: Vec<(Nanos, Vec<u8>, u32)>,
    report: Value,
}

fn replay_records(config: &str, direction: Direction, records: &[Record]) -> Outcome {
    let config = Config::parse("test.toml", config).unwrap();
    let mut machine = Machine::new(&config, direction, None).unwrap();
    let mut out = Vec::new();
    let mut sink = |at, frame: &frame::Frame| {
        out.push((at, frame.data.clone(), frame.wire_bytes));
        Ok(())
    };
    for record in records {
        machine.arrive(record.clone(), &mut sink).unwrap();
    }
    machine.drain(&mut sink).unwrap();
    Outcome { out, report: machine.report().unwrap() }
}

fn down(config: &str, records: &[Record]) -> Outcome {
    replay_records(config, Direction::Down, records)
}

fn subscriber(id: &str, rate_bps: u64, matches: &str) -> String {
    format!(
        "[[subscriber]]\nid = \"{id}\"\ndown_bps = {rate_bps}\nup_bps = {rate_bps}\nmatch = {{ {matches} }}\n"
    )
}

fn udp4(to: [u8; 4], tos: u8, payload: usize) -> Vec<u8> {
    let mut header = Ipv4Header::new(0, 64, etherparse::IpNumber::UDP, [192, 0, 2, 1], to).unwrap();
    header.dscp = etherparse::IpDscp::try_new(tos >> 2).unwrap();
    header.ecn = etherparse::IpEcn::try_new(tos & 3).unwrap();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
        .ip(etherparse::IpHeaders::Ipv4(header, etherparse::Ipv4Extensions::default()))
        .udp(1000, 2000);
    let mut bytes = Vec::new();
    builder.write(&mut bytes, &vec![0x5a; payload]).unwrap();
    bytes
}

fn record(ns: u64, data: Vec<u8>) -> Record {
    let frame_bytes = u32::try_from(data.len()).unwrap();
    Record { at: Nanos(1_700_000_000_000_000_000 + ns), frame_bytes, data }
}

/// `count` packets, one each `every` ns.
fn stream(count: u64, every: u64, packet: &[u8]) -> Vec<Record> {
    (0..count).map(|n| record(n * every, packet.to_vec())).collect()
}

fn queue<'a>(outcome: &'a Outcome, id: &str, queue: &str) -> &'a Value {
    &outcome.report["subscribers"][id]["down"][queue]
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

fn ecn_of(frame: &[u8]) -> u8 {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    match sliced.net.unwrap() {
        etherparse::NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.calc_header_checksum(), header.header_checksum, "checksum");
            header.ecn.value()
        }
        etherparse::NetSlice::Ipv6(ip) => ip.header().traffic_class() & 3,
        etherparse::NetSlice::Arp(arp) => panic!("{arp:?}"),
    }
}

#[test]
fn departures_of_a_backlog_follow_the_rate_exactly() {
    // Frames of 1514 bytes count 1538 on an Ethernet line (1500 of IP and 38): 123.04 us at 100 Mb/s.
    for (rate, packet_ns) in [(100_000_000_u64, 123_040_u64), (1_000_000, 12_304_000), (2_000_000_000, 6_152)]
    {
        let config = format!(
            "[profile.default]\naqm = \"fifo\"\nlimit_us = 10000000\n{}",
            subscriber("a", rate, "ipv4 = [\"100.64.0.1\"]")
        );
        let records = stream(600, packet_ns / 3, &udp4([100, 64, 0, 1], 0, PAYLOAD));
        let Outcome { out, report } = down(&config, &records);
        assert_eq!(out.len(), 600, "{report}");
        let first = out[0].0.0;
        assert_eq!(first, records[0].at.0, "an idle subscriber's packet leaves at once");
        // After the burst of max(250 us, 2 MTU) the n-th leaves at n packet times, within a slot and a packet.
        let burst = (250_000 / packet_ns).max(2) * packet_ns;
        for (n, (at, ..)) in out.iter().enumerate() {
            let (at, ideal) = (at.0 - first, n as u64 * packet_ns);
            assert!(at + burst + packet_ns >= ideal, "packet {n} at {rate}: {at} ns, ideal {ideal}");
            assert!(at <= ideal + packet_ns + 4_096, "packet {n} at {rate}: {at} ns, ideal {ideal}");
        }
        let span = out[599].0.0 - out[99].0.0;
        assert!(span.abs_diff(500 * packet_ns) <= packet_ns.max(4_096), "{rate}: {span}");
    }
}

#[test]
fn l4s_packets_are_marked_with_valid_checksums_and_others_untouched() {
    let config = subscriber("a", 20_000_000, "ipv4 = [\"100.64.0.1/32\"]");
    // 1 s at 24 Mb/s of ECT(1), and 2 Mb/s of Not-ECT.
    let mut records = stream(2000, 500_000, &udp4([100, 64, 0, 1], 1, PAYLOAD));
    records.extend(stream(166, 6_000_000, &udp4([100, 64, 0, 1], 0, PAYLOAD)));
    records.sort_by_key(|record| record.at);
    let outcome = down(&config, &records);
    let l4s = queue(&outcome, "a", "l4s");
    let marked = number(&l4s["marked"]);
    let ce = outcome.out.iter().filter(|(_, data, _)| ecn_of(data) == 3).count() as u64;
    assert!(marked > 500, "{l4s}");
    assert_eq!(ce, marked);
    let plain = udp4([100, 64, 0, 1], 0, PAYLOAD);
    let not_ect = outcome.out.iter().filter(|(_, data, _)| ecn_of(data) == 0);
    assert!(not_ect.clone().count() > 50);
    assert!(not_ect.clone().all(|(_, data, _)| *data == plain));
    let l4s_packet = udp4([100, 64, 0, 1], 1, PAYLOAD);
    for (_, data, _) in outcome.out.iter().filter(|(_, data, _)| ecn_of(data) == 3) {
        assert_eq!(data.len(), l4s_packet.len());
        // Only the TOS octet and the checksum change.
        let changed: Vec<usize> = (0..data.len()).filter(|at| data[*at] != l4s_packet[*at]).collect();
        assert!(changed.iter().all(|at| [15, 24, 25].contains(at)), "{changed:?}");
    }
    assert_eq!(number(&outcome.report["packets_in"]), 2166);
}

#[test]
fn classic_overload_is_answered_by_drops_and_everything_is_counted() {
    let config = subscriber("a", 10_000_000, "ipv4 = [\"100.64.0.1\"]");
    let records = stream(10_000, 600_000, &udp4([100, 64, 0, 1], 0, PAYLOAD));
    let outcome = down(&config, &records);
    let classic = queue(&outcome, "a", "classic");
    let [arrived, forwarded, aqm] =
        ["arrived", "forwarded", "dropped_not_ect"].map(|key| number(&classic[key]));
    assert_eq!(arrived, 10_000);
    assert_eq!(forwarded, outcome.out.len() as u64);
    assert!(aqm > 1_000, "{classic}");
    assert_eq!(arrived, forwarded + aqm + number(&classic["dropped_tail"]));
    assert_eq!(number(&classic["marked"]), 0);
    // 20 Mb/s into 10: every packet of the output at the plan's rate.
    let seconds = (outcome.out.last().unwrap().0.0 - outcome.out[0].0.0) as f64 / 1e9;
    let rate = forwarded as f64 * 1538.0 * 8.0 / seconds;
    assert!((rate / 10e6 - 1.0).abs() < 0.002, "{rate}");
}

#[test]
fn every_aqm_replays_a_capture_and_has_all_in_classic() {
    let names = ["pi2", "pie", "codel", "fq_codel", "fq", "cake", "cocoa", "curvy_red", "codel_af", "fifo"];
    // 2 s at 13.9 Mb/s into 10, of two hosts and every codepoint
    let mut records: Vec<_> = Vec::new();
    for n in 0..2_264_u64 {
        let mut packet = udp4([100, 64, 0, 1], (n % 4) as u8, PAYLOAD);
        // source port
        packet[35] = (n % 3) as u8;
        records.push(record(n * 883_392, packet));
    }
    for name in names {
        let config = format!(
            "[profile.default]\naqm = \"{name}\"\n{}",
            subscriber("a", 10_000_000, "ipv4 = [\"100.64.0.1\"]")
        );
        let Outcome { out, report } = down(&config, &records);
        let stats = &report["subscribers"]["a"]["down"];
        let (l4s, classic) = (&stats["l4s"], &stats["classic"]);
        for key in ["arrived", "forwarded", "marked", "queued"] {
            assert_eq!(number(&l4s[key]), 0, "{name}: {key}");
        }
        assert_eq!(number(&classic["arrived"]), 2_264, "{name}");
        assert_eq!(number(&classic["forwarded"]), out.len() as u64, "{name}");
        let drops = ["dropped_ect", "dropped_not_ect", "dropped_tail"].map(|key| number(&classic[key]));
        assert_eq!(2_264, out.len() as u64 + drops.iter().sum::<u64>(), "{name}: {classic}");
        assert!(drops.iter().sum::<u64>() > 0, "{name}: {classic}");
        // what is marked is what was counted, with a good checksum; what is not is untouched
        let ce = out.iter().filter(|(_, data, _)| ecn_of(data) == 3).count() as u64;
        let came = records.iter().filter(|record| ecn_of(&record.data) == 3).count() as u64;
        let marked = number(&classic["marked"]);
        assert!(ce <= came + marked && ce >= marked, "{name}: {ce} CE, {marked} marked");
        assert_eq!(marked == 0, ["fq", "cocoa", "fifo"].contains(&name), "{name}: {marked} marked");
        let seconds = (out.last().unwrap().0.0 - out[0].0.0) as f64 / 1e9;
        let rate = out.len() as f64 * 1538.0 * 8.0 / seconds;
        assert!((rate / 10e6 - 1.0).abs() < 0.01, "{name}: {rate}");
        let again = down(&config, &records);
        assert_eq!((again.out, again.report), (out, report), "{name}: the same again");
    }
}

#[test]
fn the_same_input_and_seed_give_the_same_bytes_and_another_seed_others() {
    let records: Vec<_> = stream(3000, 500_000, &udp4([100, 64, 0, 1], 1, PAYLOAD));
    let subscriber = subscriber("a", 20_000_000, "ipv4 = [\"100.64.0.1\"]");
    let run = |seed: u32| {
        let outcome = down(
            &format!("[dataplane]\nseed = {seed}\n[profile.default]\ncompat = \"linux\"\n{subscriber}"),
            &records,
        );
        (outcome.out, outcome.report.to_string())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}

#[test]
fn unknown_traffic_passes_or_is_dropped_as_configured_and_is_counted_either_way() {
    let records = stream(10, MS, &udp4([198, 51, 100, 9], 0, 100));
    let pass = down("", &records);
    assert_eq!(pass.out.len(), 10);
    assert_eq!(pass.report["unclassified"]["unknown_ipv4"], 10);
    assert!(pass.out.iter().zip(&records).all(|(out, record)| out.0 == record.at), "no rate, no delay");
    let drop = down("[classify]\nunknown = \"drop\"", &records);
    assert_eq!(drop.out.len(), 0);
    assert_eq!(drop.report["unclassified"]["unknown_ipv4"], 10);
    assert_eq!(drop.report["unclassified_dropped"], 10);
    // 128 bytes of IP count 166; 10 packets in one moment at 1 Mb/s.
    let slow = down("[classify]\nunknown_bps = 1000000", &stream(20, 0, &udp4([198, 51, 100, 9], 0, 100)));
    let span = slow.out.last().unwrap().0.0 - slow.out[0].0.0;
    assert!(span > 15 * 1_328_000 - 3 * MS, "{span}");
}

#[test]
fn qinq_and_pppoe_and_ipv6_find_their_subscribers() {
    let config = [
        subscriber("qinq", 10_000_000, "vlan = { outer = 100, inner = 42 }"),
        subscriber("pppoe", 10_000_000, "pppoe = { session = 23 }"),
        subscriber("six", 10_000_000, "ipv6 = [\"2001:db8:42::/56\"]"),
        subscriber("inside", 10_000_000, "ipv4 = [\"100.64.9.0/24\"]"),
    ]
    .concat();
    let mut qinq = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .double_vlan(VlanId::try_new(100).unwrap(), VlanId::try_new(42).unwrap())
        .ipv4([192, 0, 2, 1], [10, 0, 0, 1], 64)
        .udp(1, 2)
        .write(&mut qinq, &[0; 64])
        .unwrap();
    let mut six = Vec::new();
    let mut to = [0; 16];
    to[..7].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8, 0, 0x42, 0]);
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv6([0x20; 16], to, 64)
        .udp(1, 2)
        .write(&mut six, &[0; 64])
        .unwrap();
    let session = |number: u8, to| {
        let plain = udp4(to, 1, 64);
        let ip = &plain[14..];
        let length = u16::try_from(ip.len() + 2).unwrap().to_be_bytes();
        let mut bytes =
            [&[4; 6][..], &[2; 6], &[0x88, 0x64, 0x11, 0x00, 0x00, number], &length, &[0, 0x21]].concat();
        bytes.extend(ip);
        bytes
    };
    let frames = [qinq, session(23, [10, 0, 0, 2]), six, session(99, [100, 64, 9, 7])];
    let records: Vec<_> = (0..).zip(frames).map(|(n, data)| record(n * MS, data)).collect();
    let outcome = down(&config, &records);
    for (id, in_queue) in [("qinq", "classic"), ("pppoe", "l4s"), ("six", "classic"), ("inside", "l4s")] {
        assert_eq!(queue(&outcome, id, in_queue)["forwarded"], 1, "{id}: {}", outcome.report);
    }
    assert_eq!(outcome.out.len(), 4);
    assert_eq!(outcome.report["unclassified"], serde_json::json!({}));
}

fn capture(name: &str) -> Vec<Record> {
    let path = format!("{}/../wire/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut reader = Reader::new(File::open(path).unwrap()).unwrap();
    std::iter::from_fn(|| reader.next().unwrap()).collect()
}

#[test]
fn captures_of_real_gear_pass_through_unchanged() {
    for (name, kinds) in [
        ("802.1ad_QinQ.pcap", serde_json::json!({ "arp": 2 })),
        ("pppoe.pcap", serde_json::json!({ "pppoe_discovery": 1 })),
    ] {
        let records = capture(name);
        let outcome = down("", &records);
        assert_eq!(outcome.report["unclassified"], kinds, "{name}");
        let text = summary::text(&outcome.report, "down", 0);
        assert!(text.contains(&format!("\n{} control packets", records.len())), "{name}: {text}");
        let passed: Vec<_> = outcome.out.iter().map(|(at, data, _)| (*at, data)).collect();
        let came: Vec<_> = records.iter().map(|record| (record.at, &record.data)).collect();
        assert_eq!(passed, came, "{name}");
    }
    // A tunnel's ends are subscribers like others; up matches the source.
    let records = capture("vxlan.pcap");
    let config = subscriber("end", 100_000_000, "ipv4 = [\"192.168.202.1\"]");
    let outcome = replay_records(&config, Direction::Up, &records);
    assert_eq!(outcome.out.len(), records.len());
    let forwarded = number(&outcome.report["subscribers"]["end"]["up"]["classic"]["forwarded"]);
    assert_eq!(forwarded + number(&outcome.report["unclassified"]["unknown_ipv4"]), records.len() as u64);
    assert!(forwarded > 0);
}

#[test]
fn a_snapped_record_counts_its_whole_length_and_keeps_both() {
    let config = format!(
        "[profile.default]\naqm = \"fifo\"\n{}",
        subscriber("a", 10_000_000, "ipv4 = [\"100.64.0.1\"]")
    );
    let whole = udp4([100, 64, 0, 1], 0, PAYLOAD);
    let records: Vec<_> =
        (0..50).map(|n| Record { at: Nanos(n), frame_bytes: 1514, data: whole[..64].to_vec() }).collect();
    let outcome = down(&config, &records);
    assert_eq!(outcome.out.len(), 50);
    assert!(outcome.out.iter().all(|(_, data, bytes)| data.len() == 64 && *bytes == 1514));
    let span = outcome.out[49].0.0 - outcome.out[0].0.0;
    assert!(span > 46 * 1_230_400, "{span}");
    // Cut inside a header nothing can be said of it.
    let cut = Record { at: Nanos(0), frame_bytes: 1514, data: whole[..20].to_vec() };
    let outcome = down(&config, &[cut]);
    assert_eq!(outcome.report["bad"], serde_json::json!({ "split_header": 1 }));
}

#[test]
fn bad_frames_are_counted_by_reason_and_go_nowhere() {
    let good = udp4([100, 64, 0, 1], 0, 100);
    let mut version = good.clone();
    version[14] = 0x65;
    let mut length = good.clone();
    length[16..18].copy_from_slice(&[0xff, 0xff]);
    let records = [good[..10].to_vec(), version, length, Vec::new()].map(|data| record(0, data));
    let outcome = down("", &records);
    let bad = serde_json::json!({ "ip_version": 1, "ipv4_total_length": 1, "short": 2 });
    assert_eq!(outcome.report["bad"], bad);
    assert_eq!(outcome.out.len(), 0);
}

#[test]
fn rules_on_the_dscp_are_followed() {
    let rules = "[classify.rules]\nclassic_dscp = [8]\nl4s_dscp = [46]\n";
    let config = format!("{rules}{}", subscriber("a", 10_000_000, "ipv4 = [\"100.64.0.1\"]"));
    let packets =
        [(8 << 2) | 1, (46 << 2), (45 << 2), 1, 0].map(|tos| record(0, udp4([100, 64, 0, 1], tos, 10)));
    let outcome = down(&config, &packets);
    assert_eq!(queue(&outcome, "a", "classic")["arrived"], 2);
    assert_eq!(queue(&outcome, "a", "l4s")["arrived"], 3);
}

#[test]
fn a_port_rate_shapes_all_of_the_port() {
    let config = [
        "[[port]]\nname = \"c\"\ndevice = \"net_null0\"\nrole = \"core\"\npeer = \"a\"\n",
        "[[port]]\nname = \"a\"\ndevice = \"net_null1\"\nrole = \"access\"\npeer = \"c\"\nrate_bps = 10000000\n",
        "[profile.default]\naqm = \"fifo\"\n",
        &subscriber("x", 10_000_000, "ipv4 = [\"100.64.0.1\"]"),
        &subscriber("y", 10_000_000, "ipv4 = [\"100.64.0.2\"]"),
    ]
    .concat();
    let mut records = stream(800, 1_250_000, &udp4([100, 64, 0, 1], 0, PAYLOAD));
    records.extend(stream(800, 1_250_000, &udp4([100, 64, 0, 2], 0, PAYLOAD)));
    records.sort_by_key(|record| record.at);
    let outcome = down(&config, &records);
    let seconds = (outcome.out.last().unwrap().0.0 - outcome.out[0].0.0) as f64 / 1e9;
    // 24 bytes a frame are counted on the port.
    let rate = outcome.out.len() as f64 * 1538.0 * 8.0 / seconds;
    assert!((rate / 10e6 - 1.0).abs() < 0.01, "{rate}");
    let [x, y] = ["x", "y"].map(|id| number(&queue(&outcome, id, "classic")["forwarded"]));
    assert!(x.abs_diff(y) * 50 <= x + y, "{x} and {y}");
}

#[test]
fn a_rest_lets_p_prime_fall_and_absurd_timestamps_do_no_harm() {
    let config = subscriber("a", 10_000_000, "ipv4 = [\"100.64.0.1\"]");
    let busy = stream(5_000, 600_000, &udp4([100, 64, 0, 1], 0, PAYLOAD));
    let p_prime = |more: &[Record]| {
        let outcome = down(&config, &[&busy, more].concat());
        outcome.report["subscribers"]["a"]["down"]["p_prime"].as_f64().unwrap()
    };
    let last = udp4([100, 64, 0, 1], 0, 10);
    let at_once = p_prime(&[]);
    assert!(at_once > 0.01, "{at_once}");
    let after = |seconds: u64| p_prime(&[record(seconds * 1_000_000_000, last.clone())]);
    let (second, hour) = (after(4), after(3_600));
    // 61 ticks of 16 ms without a queue take 0.16 * 15 ms off each, and the end of the queue 3.2 * 15 ms once.
    let fall = at_once - second;
    assert!((0.18..=0.21).contains(&fall), "{second} of {at_once}");
    assert!(hour.abs() < 1e-9, "{hour}");
    // The last second of a 32-bit clock, then the first.
    let end = Record { at: Nanos(u64::from(u32::MAX) * 1_000_000_000), frame_bytes: 52, data: last.clone() };
    let start = Record { at: Nanos(0), frame_bytes: 52, data: last };
    let outcome = down(&config, &[start.clone(), end.clone(), start, end]);
    assert_eq!(outcome.out.len(), 4);
    assert!(outcome.out.is_sorted_by_key(|(at, ..)| *at), "time never runs backwards");
}

#[test]
fn output_times_never_precede_their_arrival() {
    let config = subscriber("a", 30_000_000, "ipv4 = [\"100.64.0.1\"]");
    let mut records = Vec::new();
    for burst in 0..50 {
        records.extend(
            (0..20).map(|_| record(burst * 9_777_777, udp4([100, 64, 0, 1], (burst & 1) as u8, PAYLOAD))),
        );
    }
    let outcome = down(&config, &records);
    assert!(outcome.out.is_sorted_by_key(|(at, ..)| *at));
    // Within each queue order is kept, so the n-th of the output comes no earlier than the n-th arrival of its kind.
    for ecn in [0, 1] {
        let arrivals = records.iter().filter(|record| ecn_of(&record.data) == ecn).map(|record| record.at);
        let departures = outcome.out.iter().filter(|(_, data, _)| {
            let got = ecn_of(data);
            got == ecn || (ecn == 1 && got == 3)
        });
        assert!(departures.zip(arrivals).all(|((at, ..), arrival)| *at >= arrival));
    }
}

/// A directory of this test, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluice-replay-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn args(&self, input: &str, output: &str) -> ReplayArgs {
        ReplayArgs {
            config: self.0.join("c.toml"),
            direction: DirectionArg::Down,
            port: None,
            input: self.0.join(input),
            output: self.0.join(output),
            json: Some(self.0.join("r.json")),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_go_in_and_come_out_and_damaged_ones_leave_nothing_behind() {
    let scratch = Scratch::new("files");
    scratch.file("c.toml", subscriber("a", 10_000_000, "ipv4 = [\"100.64.0.1\"]").as_bytes());
    let mut writer = Writer::new(Vec::new()).unwrap();
    for r in stream(100, 100_000, &udp4([100, 64, 0, 1], 1, PAYLOAD)) {
        writer.write(r.at, r.frame_bytes, &r.data).unwrap();
    }
    let bytes = writer.finish().unwrap();
    scratch.file("in.pcap", &bytes);
    run(scratch.args("in.pcap", "out.pcap")).unwrap();
    let once = std::fs::read(scratch.0.join("out.pcap")).unwrap();
    run(scratch.args("in.pcap", "again.pcap")).unwrap();
    assert_eq!(once, std::fs::read(scratch.0.join("again.pcap")).unwrap());
    let report: Value = serde_json::from_slice(&std::fs::read(scratch.0.join("r.json")).unwrap()).unwrap();
    assert_eq!(report["packets_in"], 100);

    scratch.file("cut.pcap", &bytes[..bytes.len() - 1]);
    let message = format!("{:#}", run(scratch.args("cut.pcap", "half.pcap")).unwrap_err());
    assert!(message.contains("cut.pcap") && message.contains("inside record 100"), "{message}");
    assert!(!scratch.0.join("half.pcap").exists());

    let message = format!("{:#}", run(scratch.args("none.pcap", "o.pcap")).unwrap_err());
    assert!(message.contains("cannot read") && message.contains("none.pcap"), "{message}");
    let message = format!("{:#}", run(scratch.args("in.pcap", "in.pcap")).unwrap_err());
    assert!(message.contains("both input and output"), "{message}");
    assert_eq!(std::fs::read(scratch.0.join("in.pcap")).unwrap(), bytes, "the input is untouched");
}

#[test]
fn what_stood_under_a_name_is_replaced_at_the_end_or_stays() {
    let scratch = Scratch::new("stays");
    scratch.file("c.toml", subscriber("a", 10_000_000, "ipv4 = [\"100.64.0.1\"]").as_bytes());
    let mut writer = Writer::new(Vec::new()).unwrap();
    for r in stream(100, 100_000, &udp4([100, 64, 0, 1], 1, PAYLOAD)) {
        writer.write(r.at, r.frame_bytes, &r.data).unwrap();
    }
    let bytes = writer.finish().unwrap();
    scratch.file("in.pcap", &bytes);
    scratch.file("cut.pcap", &bytes[..bytes.len() - 1]);
    let json = scratch.file("r.json", b"counts of old");
    let out = scratch.file("out.pcap", b"a capture of old");
    let link = scratch.0.join("link.pcap");
    std::os::unix::fs::symlink(&out, &link).unwrap();
    let names = || {
        let entries = std::fs::read_dir(&scratch.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<std::collections::BTreeSet<_>>()
    };
    let before = names();
    for input in ["none.pcap", "cut.pcap", "c.toml"] {
        for output in ["out.pcap", "link.pcap", "new.pcap"] {
            run(scratch.args(input, output)).unwrap_err();
            assert_eq!(std::fs::read(&out).unwrap(), b"a capture of old", "{input}");
            assert_eq!(std::fs::read(&json).unwrap(), b"counts of old", "{input}");
            assert_eq!(names(), before, "{input} to {output}");
        }
    }
    // where the counts cannot be written the capture is not either
    let nowhere =
        ReplayArgs { json: Some(scratch.0.join("no/r.json")), ..scratch.args("in.pcap", "out.pcap") };
    assert!(format!("{:#}", run(nowhere).unwrap_err()).contains("no/r.json"));
    let onto_input =
        ReplayArgs { json: Some(scratch.0.join("in.pcap")), ..scratch.args("in.pcap", "out.pcap") };
    assert!(run(onto_input).unwrap_err().to_string().contains("both input and output"));
    assert_eq!((std::fs::read(&out).unwrap(), names()), (b"a capture of old".to_vec(), before.clone()));

    run(scratch.args("in.pcap", "link.pcap")).unwrap();
    assert!(link.is_symlink() && std::fs::read(&out).unwrap().len() > bytes.len() / 2);
    assert!(std::fs::read_to_string(&json).unwrap().contains("packets_in"));
    assert_eq!(names(), before);
}

#[test]
fn what_is_no_file_is_written_to_and_stays() {
    use std::os::unix::fs::FileTypeExt as _;
    let scratch = Scratch::new("pipe");
    scratch.file("c.toml", subscriber("a", 10_000_000, "ipv4 = [\"100.64.0.1\"]").as_bytes());
    let mut writer = Writer::new(Vec::new()).unwrap();
    for r in stream(100, 100_000, &udp4([100, 64, 0, 1], 1, PAYLOAD)) {
        writer.write(r.at, r.frame_bytes, &r.data).unwrap();
    }
    let bytes = writer.finish().unwrap();
    scratch.file("in.pcap", &bytes);
    scratch.file("cut.pcap", &bytes[..bytes.len() - 1]);
    let pipe = scratch.0.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (input, good) in [("in.pcap", true), ("cut.pcap", false)] {
        let from = pipe.clone();
        let reader = std::thread::spawn(move || std::fs::read(from).unwrap());
        assert_eq!(run(scratch.args(input, "pipe")).is_ok(), good);
        assert!(!reader.join().unwrap().is_empty());
        assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo(), "{input}");
    }
    // without an input nobody opens the pipe, where this would wait for a reader
    run(scratch.args("none.pcap", "pipe")).unwrap_err();
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn the_port_of_a_capture_can_be_named() {
    let port = |name: &str, role: &str, peer: &str| {
        format!(
            "[[port]]\nname = \"{name}\"\ndevice = \"net_null_{name}\"\nrole = \"{role}\"\npeer = \"{peer}\"\n"
        )
    };
    let ports = [
        port("c1", "core", "a1"),
        port("a1", "access", "c1"),
        port("c2", "core", "a2"),
        port("a2", "access", "c2"),
    ];
    let limited = subscriber("x", 1_000_000, "ipv4 = [\"100.64.0.1\"], port = \"a2\"");
    let config = Config::parse("c.toml", &[ports.concat(), limited].concat()).unwrap();
    let forwarded = |name| {
        let mut machine = Machine::new(&config, Direction::Down, name).unwrap();
        machine.arrive(record(0, udp4([100, 64, 0, 1], 0, 10)), &mut |_, _| Ok(())).unwrap();
        machine.report().unwrap()["subscribers"]["x"]["down"]["classic"]["forwarded"].clone()
    };
    assert_eq!((forwarded(None), forwarded(Some("c2"))), (0.into(), 1.into()));
    for wrong in ["a2", "none"] {
        let error = Machine::new(&config, Direction::Down, Some(wrong)).err().unwrap().to_string();
        assert!(error.contains("no core port of that name"), "{error}");
    }
}

#[test]
fn the_terminal_is_told_of_each_queue_and_of_packets_of_nobody() {
    let config = subscriber("a", 1_000_000, "ipv4 = [\"10.0.0.1\"]")
        + &subscriber("b", 1_000_000, "ipv4 = [\"10.0.0.2\"]");
    let mut records = stream(300, 2 * MS, &udp4([10, 0, 0, 1], 0, PAYLOAD));
    records.extend(stream(2, MS, &udp4([10, 0, 0, 9], 0, PAYLOAD)).into_iter().map(|mut record| {
        record.at = Nanos(record.at.0 + 600 * MS);
        record
    }));
    let outcome = down(&config, &records);
    let text = summary::text(&outcome.report, "down", 2);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], format!("302 packets in, {} out", number(&outcome.report["packets_out"])));
    assert_eq!(lines[1], "2 packets matched no subscriber");
    assert!(lines[2].starts_with("SUBSCRIBER  QUEUE  OUT  DROPPED  MARKED  P50 ms  P99 ms"), "{text}");
    let cells: Vec<_> = lines[3].split_whitespace().collect();
    let a = queue(&outcome, "a", "classic");
    let [out, p99] =
        [number(&a["forwarded"]).to_string(), format!("{:.2}", a["delay_us"]["p99"].as_f64().unwrap() / 1e3)];
    assert!(number(&a["forwarded"]) < 300, "the limit drops");
    assert_eq!([cells[0], cells[1], cells[2], cells[6]], ["a", "C", &out, &p99]);
    assert_eq!(cells[3].parse::<u64>().unwrap(), 300 - number(&a["forwarded"]));
    assert!(lines[4].starts_with("(unknown)"), "{text}");
    assert_eq!(lines.len(), 5, "b had no traffic: {text}");

    let none = down("", &records);
    let text = summary::text(&none.report, "down", 0);
    assert!(
        text.contains("302 packets matched no subscriber: the configuration names none (records of"),
        "{text}"
    );
}
