// SPDX-License-Identifier: Apache-2.0
//! Traffic that belongs to no subscriber: what keeps a line alive always passes, untouched and counted by kind; the
//! rest follows `classify.unknown` and `classify.unknown_bps`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use tests::direct::{Direct, Line, Plan, address, address6, server, server6};
use tests::frames::{BROADCAST, Capture, ethernet, icmpv6, ipv4, ipv6, send, udp};
use tests::machine::wait_for;
use tests::scene::precise;
use tests::shaper::Shaper;
use tests::traffic::{run_udp, summary, traffic_server};
use tests::verdict::{conserved, may_make_namespaces, undisturbed, within};

/// The MAC address of a stranger, so that nobody's kernel takes part.
const STRANGER: [u8; 6] = [2, 0, 0, 0, 0x77, 1];
/// Frames of each kind.
const EACH: usize = 3;
/// Who has no record.
const NOBODY: u8 = 99;

/// One kind of control traffic and a frame of it.
struct Sample {
    kind: &'static str,
    frame: Vec<u8>,
}

fn link_local(last: u8) -> [u8; 16] {
    let mut address = [0; 16];
    (address[0], address[1], address[15]) = (0xfe, 0x80, last);
    address
}

/// A neighbour solicitation (RFC 4861 4.3) for fe80::2, sent to its solicited-node group.
fn solicitation(hop_limit: u8) -> Vec<u8> {
    let mut group = [0; 16];
    group[..2].copy_from_slice(&[0xff, 0x02]);
    group[11..].copy_from_slice(&[1, 0xff, 0, 0, 2]);
    let message = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &link_local(2), &[1, 1], &STRANGER].concat();
    let message = icmpv6(link_local(1), group, &message);
    let packet = ipv6(link_local(1), group, 58, hop_limit, &message);
    ethernet([0x33, 0x33, 0xff, 0, 0, 2], STRANGER, 0x86dd, &packet)
}

/// The fixed part of a DHCP discover (RFC 2131 figure 1), the cookie, message type 1, the end.
fn discover(destination: [u8; 4], source: [u8; 4]) -> Vec<u8> {
    let mut message = vec![0; 240];
    message[..4].copy_from_slice(&[1, 1, 6, 0]);
    message[28..34].copy_from_slice(&STRANGER);
    message[236..].copy_from_slice(&[0x63, 0x82, 0x53, 0x63]);
    message.extend([53, 1, 1, 0xff]);
    let packet = ipv4(source, destination, 17, &udp(68, 67, &message));
    ethernet(BROADCAST, STRANGER, 0x0800, &packet)
}

fn samples() -> [Sample; 4] {
    let who_has = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &STRANGER, &[100, 64, 9, 9], &[0; 6], &[100, 64, 9, 8]];
    // version and type 1, PADI, no session, one empty service name (RFC 2516 section 5.1)
    let padi = [0x11, 0x09, 0, 0, 0, 4, 1, 1, 0, 0];
    [
        Sample { kind: "arp", frame: ethernet(BROADCAST, STRANGER, 0x0806, &who_has.concat()) },
        Sample { kind: "nd", frame: solicitation(255) },
        Sample { kind: "dhcpv4", frame: discover([255; 4], [0; 4]) },
        Sample { kind: "pppoe_discovery", frame: ethernet(BROADCAST, STRANGER, 0x8863, &padi) },
    ]
}

/// Frames that dress up as control traffic and are none: a solicitation that has crossed a router, and a discover
/// to somebody far away.
fn impostors() -> [(&'static str, Vec<u8>); 2] {
    [("unknown_ipv6", solicitation(64)), ("unknown_ipv4", discover([198, 51, 100, 7], [100, 64, 9, 9]))]
}

fn count(shaper: &Shaper, dir: &str, kind: &str) -> Result<f64> {
    shaper.metric_sum(
        "sluice_unclassified_packets_total",
        &[&format!("dir=\"{dir}\""), &format!("kind=\"{kind}\"")],
    )
}

/// Sends `frames` `EACH` times from one end and says how often each came out at the other.
fn pass(network: &Direct, up: bool, frames: &[Vec<u8>], wait: Duration) -> Result<Vec<usize>> {
    let pair = &network.pairs[0];
    let ends = [(&pair.client, &pair.client_end), (&pair.server, &pair.server_end)];
    let [(from, out), (to, into)] = if up { ends } else { [ends[1], ends[0]] };
    let folder: &Path = &network.folder;
    let capture = Capture::start(to, into, &format!("came-{up}"), folder)?;
    let all: Vec<Vec<u8>> = (0..EACH).flat_map(|_| frames.to_vec()).collect();
    send(from, out, &all, folder)?;
    let mut counts = Vec::new();
    wait_for(wait, || {
        counts = capture.wait_for_each(frames, Duration::ZERO);
        counts.iter().all(|&count| count >= EACH)
    });
    Ok(counts)
}

/// Control traffic of every kind passes and is counted, in both directions.
fn control_passes(network: &Direct) -> Result<()> {
    let samples = samples();
    let frames: Vec<Vec<u8>> = samples.iter().map(|sample| sample.frame.clone()).collect();
    for (dir, up) in [("up", true), ("down", false)] {
        let before: Result<Vec<f64>> =
            samples.iter().map(|sample| count(&network.shaper, dir, sample.kind)).collect();
        let came = pass(network, up, &frames, Duration::from_secs(10))?;
        for ((sample, before), came) in samples.iter().zip(before?).zip(came) {
            ensure!(came == EACH, "{dir}: {} of {EACH} {} frames came", came, sample.kind);
            let counted = count(&network.shaper, dir, sample.kind)? - before;
            ensure!(counted >= precise(EACH as u64), "{dir}: {counted} {} counted", sample.kind);
        }
    }
    Ok(())
}

/// What only looks like control traffic goes where unknown traffic goes.
fn impostors_are_unknown(network: &Direct, passes: bool) -> Result<()> {
    let (kinds, frames): (Vec<_>, Vec<_>) = impostors().into_iter().unzip();
    let before: Result<Vec<f64>> = kinds.iter().map(|kind| count(&network.shaper, "up", kind)).collect();
    let wait = if passes { Duration::from_secs(10) } else { Duration::from_millis(500) };
    let came = pass(network, true, &frames, wait)?;
    for ((kind, before), came) in kinds.iter().zip(before?).zip(came) {
        ensure!(came == if passes { EACH } else { 0 }, "{came} of {EACH} false {kind} frames came");
        let counted = count(&network.shaper, "up", kind)? - before;
        ensure!(counted >= precise(EACH as u64), "{counted} {kind} counted");
    }
    Ok(())
}

fn plan(classify: &'static str) -> Plan {
    Plan { classify, hosts: &[NOBODY], ..Plan::default() }
}

#[test]
fn control_traffic_passes_and_unknown_addresses_reach_the_server_with_unknown_pass() {
    let name = "control_traffic_passes_and_unknown_addresses_reach_the_server_with_unknown_pass";
    if !may_make_namespaces(name) {
        return;
    }
    let network = Direct::set(&plan("unknown = \"pass\"")).unwrap();
    let run = || -> Result<()> {
        control_passes(&network)?;
        impostors_are_unknown(&network, true)?;
        for (from, to, kind) in [
            (address(0, NOBODY), server(0), "unknown_ipv4"),
            (address6(0, NOBODY), server6(0), "unknown_ipv6"),
        ] {
            let before = [count(&network.shaper, "up", kind)?, count(&network.shaper, "down", kind)?];
            let reached = wait_for(Duration::from_secs(5), || network.reaches(0, &from, &to));
            ensure!(reached, "{from} does not reach {to}");
            let after = [count(&network.shaper, "up", kind)?, count(&network.shaper, "down", kind)?];
            ensure!(after[0] > before[0] && after[1] > before[1], "{kind}: {before:?}, then {after:?}");
        }
        conserved(&network.shaper, &["a"], false).map(drop)
    };
    run().unwrap_or_else(|error| panic!("{error:#}; sluice said: {}", network.shaper.output()));
}

#[test]
fn control_traffic_passes_and_unknown_addresses_are_dropped_and_counted_with_unknown_drop() {
    let name = "control_traffic_passes_and_unknown_addresses_are_dropped_and_counted_with_unknown_drop";
    if !may_make_namespaces(name) {
        return;
    }
    let network = Direct::set(&plan("unknown = \"drop\"")).unwrap();
    let run = || -> Result<()> {
        control_passes(&network)?;
        impostors_are_unknown(&network, false)?;
        let line = Line { id: "late", host: NOBODY, ..Plan::default().lines[0] };
        for (from, to, kind) in [
            (address(0, NOBODY), server(0), "unknown_ipv4"),
            (address6(0, NOBODY), server6(0), "unknown_ipv6"),
        ] {
            let before = [count(&network.shaper, "up", kind)?, count(&network.shaper, "down", kind)?];
            ensure!(!network.reaches(0, &from, &to), "{from} reaches {to}");
            let back = network.pairs[0].server.sh(&format!("ping -n -q -c 1 -W 1 {from}"));
            ensure!(back.is_err(), "the server reaches {from}");
            let after = [count(&network.shaper, "up", kind)?, count(&network.shaper, "down", kind)?];
            ensure!(after[0] > before[0] && after[1] > before[1], "{kind}: {before:?}, then {after:?}");
        }
        // and a record is all that was missing
        let (status, body) = network.shaper.put("/v1/subscribers/late", &line.record())?;
        ensure!(status == 201, "{status} {body}");
        network.wait_for_path(&line)?;
        conserved(&network.shaper, &["a", "late"], true).map(drop)
    };
    run().unwrap_or_else(|error| panic!("{error:#}; sluice said: {}", network.shaper.output()));
}

#[test]
fn unknown_traffic_shares_one_queue_of_unknown_bps() {
    const LIMIT: f64 = 5e6;
    let name = "unknown_traffic_shares_one_queue_of_unknown_bps";
    undisturbed(name, || {
        let hosts: &[u8] = &[NOBODY, NOBODY - 1];
        let plan = Plan { classify: "unknown = \"pass\"\nunknown_bps = 5000000", hosts, ..Plan::default() };
        let network = Direct::set(&plan)?;
        let (client, folder) = (&network.pairs[0].client, network.folder.as_path());
        let mut flows = Vec::new();
        for (host, port) in hosts.iter().zip([8490, 8491]) {
            let at = format!("{}:{port}", server(0));
            let serving = traffic_server(&network.pairs[0].server, &at, folder)?;
            let options =
                ["--direction", "down", "--seconds", "5", "--rate-bps", "8000000", "--ecn", "not_ect"];
            flows.push((serving, run_udp(client, (&address(0, *host), &at), "cbr", &options, folder)?));
        }
        let mut packets = 0;
        for (_serving, flow) in flows {
            let seen = summary(&flow.finish(Duration::from_secs(30))?)?;
            packets += seen["packets"].as_u64().unwrap_or(0);
        }
        let conserved = conserved(&network.shaper, &["a"], false)?;
        ensure!(conserved.queues > 0.0, "twice the rate and no drop");
        // 1400 bytes cost 1466 with overhead = "ethernet"; 5 s of sending and what the queue held at the end
        let held = precise(packets) * 1_466.0 * 8.0 / 5.0;
        let verdict = within("unknown traffic, Mb/s", held / 1e6, LIMIT * 0.97 / 1e6, LIMIT * 1.08 / 1e6);
        Ok((verdict, network.shaper.gap_us()?))
    });
}
