// SPDX-License-Identifier: Apache-2.0
//! Over loopback with real sockets; a relay in between plays the network that marks or drops.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use cc::{AckFrame, Codepoint, EcnCounts, Kind, Nanos};
use clap::Parser;
use proptest::prelude::*;
use serde_json::Value;

use super::proto::{CONTROL_BYTES, Data, Message, Request, decode, encode};
use super::report::Counts;
use super::socket::{Buffers, Peer, Socket, wait};
use super::{Direction, RunArgs, ServeArgs, TrafficArgs, client, server};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    traffic: TrafficArgs,
}

fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(["traffic"].iter().chain(words))
}

fn run_args(connect: SocketAddr, more: &[&str]) -> RunArgs {
    let address = connect.to_string();
    let mut words = [&["run", "--connect", &address], more].concat();
    if !more.contains(&"--seconds") {
        words.extend(["--seconds", "1"]);
    }
    match parse(&words).unwrap().traffic.command {
        super::TrafficCommand::Run(args) => args,
        super::TrafficCommand::Serve(_) => unreachable!("asked for run"),
    }
}

/// A thread that ends when this is dropped.
struct Helper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<String>>,
}

impl Helper {
    fn finish(mut self) -> String {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn serve(listen: SocketAddr, max_flows: u32) -> (SocketAddr, Helper) {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let (ready, address) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut out = Vec::new();
        let args = ServeArgs { listen, max_flows };
        server::serve(&args, &flag, &mut out, |address| ready.send(address).unwrap()).unwrap();
        String::from_utf8(out).unwrap()
    });
    (address.recv().unwrap(), Helper { stop, thread: Some(thread) })
}

fn v4() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Runs a client; its counts and the lines it printed.
fn run(connect: SocketAddr, more: &[&str]) -> (Counts, Vec<Value>) {
    let mut out = Vec::new();
    let counts = client::run(&run_args(connect, more), &AtomicBool::new(false), &mut out).unwrap();
    let lines = String::from_utf8(out).unwrap();
    (counts, lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// Forwards between one client and `to`; `rule` sees the count of datagrams towards `to` and says what becomes of
/// each: its codepoint, or nothing.
fn relay(
    to: SocketAddr,
    rule: impl Fn(u64, Codepoint) -> Option<Codepoint> + Send + 'static,
) -> (SocketAddr, Helper) {
    let front = Socket::bind(v4()).unwrap();
    let back = Socket::bind(v4()).unwrap();
    let address = front.local_addr().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let mut buffers = Buffers::new();
        let (mut client, mut n) = (None, 0);
        while !flag.load(Ordering::Relaxed) {
            wait([(&front, false), (&back, false)].into_iter(), Nanos::from_millis(20)).unwrap();
            let towards = Peer { address: to, from: None };
            front
                .receive(&mut buffers, |datagram| {
                    client = Some(Peer { address: datagram.from, from: None });
                    n += 1;
                    if let Some(ecn) = rule(n, datagram.ecn) {
                        let _ = back.send(towards, ecn, datagram.bytes);
                    }
                })
                .unwrap();
            back.receive(&mut buffers, |datagram| {
                if let Some(client) = client {
                    let _ = front.send(client, datagram.ecn, datagram.bytes);
                }
            })
            .unwrap();
        }
        String::new()
    });
    (address, Helper { stop, thread: Some(thread) })
}

#[test]
fn prague_crosses_ipv4_and_ipv6_both_ways_on_ect1() {
    for listen in [v4(), (Ipv6Addr::LOCALHOST, 0).into()] {
        let (address, server) = serve(listen, 8);
        for direction in ["up", "down"] {
            let (counts, lines) = run(address, &["--direction", direction]);
            assert!(counts.packets > 1000, "{address} {direction}: {counts:?}");
            assert_eq!(counts.ecn.total(), counts.ecn.ect1, "{address} {direction}: {counts:?}");
            let summary = lines.last().unwrap();
            assert_eq!(summary["summary"], true);
            assert_eq!(summary["ecn"]["not_ect"], 0);
            assert!(summary["rtt_us"]["min"].as_u64() <= summary["rtt_us"]["max"].as_u64());
            assert!(summary["rate_bps"].as_u64().unwrap() > 10_000_000);
            assert_eq!(lines.len(), 2, "one line a second and the summary");
        }
        let log = server.finish();
        assert_eq!(log.lines().filter(|line| line.contains("session_end")).count(), 2, "{log}");
        assert!(log.lines().last().unwrap().contains("\"ignored\":0"), "{log}");
    }
}

#[test]
fn a_constant_rate_is_kept_and_every_packet_is_accounted_for() {
    let (address, server) = serve(v4(), 8);
    for direction in ["up", "down"] {
        let (counts, lines) = run(
            address,
            &["--cc", "cbr", "--rate-bps", "8000000", "--packet-bytes", "1000", "--direction", direction],
        );
        let packets = counts.packets + counts.lost;
        // A busy machine may cost some, a pacer that makes up for too much would show above.
        assert!((900..=1025).contains(&packets), "{direction}: {packets}");
        assert_eq!(counts.bytes, counts.packets * 1000);
        assert_eq!(lines.last().unwrap()["ecn"]["not_ect"], counts.packets);
    }
    drop(server);
}

#[test]
fn the_codepoint_asked_for_is_what_arrives() {
    let (address, _server) = serve(v4(), 8);
    for (ecn, pick) in
        [("not_ect", (|e| e.not_ect) as fn(EcnCounts) -> u64), ("ect0", |e| e.ect0), ("ect1", |e| e.ect1)]
    {
        let (counts, _) = run(address, &["--cc", "cbr", "--rate-bps", "4000000", "--ecn", ecn]);
        assert_eq!(pick(counts.ecn), counts.packets, "{ecn}: {counts:?}");
    }
}

#[test]
fn several_flows_have_sockets_of_their_own() {
    let (address, server) = serve(v4(), 8);
    let (counts, lines) = run(address, &["--cc", "cbr", "--rate-bps", "2000000", "--flows", "3"]);
    let rates = lines.last().unwrap()["flow_rates_bps"].as_array().unwrap().clone();
    assert_eq!(rates.len(), 3);
    assert!(rates.iter().all(|rate| rate.as_u64().unwrap() > 1_500_000), "{rates:?}");
    assert!(counts.packets > 3 * 160);
    let log = server.finish();
    assert_eq!(log.lines().filter(|line| line.contains("session_end")).count(), 3, "{log}");
}

#[test]
fn marks_on_the_path_are_seen_and_slow_the_flow_down() {
    let (address, _server) = serve(v4(), 8);
    let mark =
        |n: u64, ecn| Some(if ecn == Codepoint::Ect1 && n.is_multiple_of(2) { Codepoint::Ce } else { ecn });
    let (path, _relay) = relay(address, mark);
    let (counts, lines) = run(path, &["--seconds", "3"]);
    let per_mille = counts.marked * 1000 / counts.packets;
    assert!((450..550).contains(&per_mille), "{counts:?}");
    assert_eq!(counts.ecn.ce, counts.marked);
    // Half marked holds Prague near 1 Mb/s at any round trip up to 25 ms (facts 7.1); loopback alone does 1 Gb/s.
    let last = &lines[lines.len() - 2];
    let rate = last["rate_bps"].as_u64().unwrap();
    assert!((100_000..10_000_000).contains(&rate), "{last}");
}

#[test]
fn a_path_that_rewrites_ect1_is_found_out() {
    let (address, _server) = serve(v4(), 8);
    let (path, _relay) = relay(address, |_, _| Some(Codepoint::NotEct));
    let (counts, _) = run(path, &[]);
    assert_eq!(counts.ecn.not_ect, counts.ecn.total());
    assert!(counts.packets > 100);
    assert_eq!(counts.marked, 0);
}

#[test]
fn losses_on_the_path_are_found_and_counted() {
    let (address, _server) = serve(v4(), 8);
    // The handshake is at most four datagrams.
    let (path, _relay) = relay(address, |n, ecn| (n < 5 || n % 50 != 0).then_some(ecn));
    let (counts, _) = run(path, &["--cc", "reno"]);
    let per_mille = counts.lost * 1000 / (counts.packets + counts.lost);
    assert!((17..24).contains(&per_mille), "{counts:?}");
}

#[test]
fn garbage_is_ignored_and_answered_with_nothing() {
    let (address, server) = serve(v4(), 8);
    let stranger = Socket::bind(v4()).unwrap();
    let peer = Peer { address, from: None };
    let mut sent = 0_u64;
    let mut buffer = [0; CONTROL_BYTES];
    for message in [
        Message::Bye,
        Message::Accept,
        Message::Data(Data { seq: u64::MAX, ..Data::default() }),
        Message::Ack(AckFrame { largest: u64::MAX, ..AckFrame::default() }),
    ] {
        let length = encode(&mut buffer, 7, &message);
        for cut in [length, length - 1, 3] {
            stranger.send(peer, Codepoint::Ce, &buffer[..cut]).unwrap();
            sent += 1;
        }
    }
    stranger.send(peer, Codepoint::Ce, &[0xff; 1400]).unwrap();
    let (counts, _) = run(address, &["--cc", "cbr", "--rate-bps", "1000000"]);
    assert!(counts.packets > 50);
    let mut answers = 0;
    stranger.receive(&mut Buffers::new(), |_| answers += 1).unwrap();
    assert_eq!(answers, 0);
    let log = server.finish();
    assert!(log.lines().last().unwrap().contains(&format!("\"ignored\":{}", sent + 1)), "{log}");
}

fn hello(cookie: u64) -> Message {
    let request = Request {
        direction: Direction::Down,
        kind: Kind::Cbr,
        codepoint: None,
        rtt_independence: true,
        hystart: true,
        packet_bytes: 1000,
        seconds: 1,
        rate_bps: 80_000_000,
    };
    Message::Hello { cookie, request }
}

#[test]
fn a_hello_without_the_cookie_gets_a_short_retry_and_no_data() {
    let (address, _server) = serve(v4(), 8);
    let client = Socket::bind(v4()).unwrap();
    let peer = Peer { address, from: None };
    let mut buffer = [0; CONTROL_BYTES];
    let length = encode(&mut buffer, 9, &hello(0));
    client.send(peer, Codepoint::NotEct, &buffer[..length]).unwrap();
    let mut answers = Vec::new();
    for _ in 0..10 {
        wait([(&client, false)].into_iter(), Nanos::from_millis(30)).unwrap();
        client
            .receive(&mut Buffers::new(), |datagram| {
                answers.push(datagram.bytes.to_vec());
            })
            .unwrap();
    }
    assert_eq!(answers.len(), 1);
    assert!(answers[0].len() <= length);
    assert!(matches!(decode(&answers[0]), Some((9, Message::Retry { .. }))));
}

#[test]
fn a_full_server_says_so() {
    let (address, _server) = serve(v4(), 1);
    let mut out = Vec::new();
    let args = run_args(address, &["--flows", "2"]);
    let error = client::run(&args, &AtomicBool::new(false), &mut out).unwrap_err();
    assert!(error.to_string().contains("no room"), "{error:#}");
}

#[test]
fn an_interrupt_ends_with_a_summary() {
    let (address, _server) = serve(v4(), 8);
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let mut args = run_args(address, &["--cc", "cbr", "--rate-bps", "1000000"]);
    args.seconds = 3600;
    let (started, running) = mpsc::channel();
    let client = std::thread::spawn(move || {
        let mut out = Announce(Vec::new(), started);
        client::run(&args, &flag, &mut out).map(|counts| (counts, out.0)).unwrap()
    });
    running.recv().unwrap();
    stop.store(true, Ordering::Relaxed);
    let (counts, out) = client.join().unwrap();
    assert!(counts.packets > 50);
    assert!(String::from_utf8(out).unwrap().lines().last().unwrap().contains("\"summary\":true"));
}

/// Says when the first line is written.
struct Announce(Vec<u8>, mpsc::Sender<()>);

impl std::io::Write for Announce {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = self.1.send(());
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_command_line_is_checked() {
    let connect = ["run", "--connect", "127.0.0.1:1"];
    let message = |more: &[&str]| {
        parse(&[&connect, more].concat()).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(message(&["--cc", "bbr3"]), "");
    assert!(
        message(&["--cc", "vegas"])
            .contains("use prague, cubic, reno, dctcp, bbr1, bbr2, bbr3, scream or cbr")
    );
    assert!(message(&["--cc", "cbr"]).contains("--rate-bps"));
    assert!(message(&["--packet-bytes", "10"]).contains("128..=8952"));
    assert!(message(&["--seconds", "0"]).contains("1..=86400"));
    assert!(message(&["--ecn", "ce"]).contains("not_ect"));
    assert_eq!(message(&[]), "");
}

fn any_message() -> impl Strategy<Value = Message> {
    let frame =
        (any::<[u64; 2]>(), any::<[u64; 4]>(), any::<[u64; 8]>()).prop_map(|(a, bitmap, b)| AckFrame {
            largest: a[0],
            cumulative: a[1],
            bitmap,
            received: b[0],
            ecn: EcnCounts { not_ect: b[1], ect1: b[2], ect0: b[3], ce: b[4] },
            missing: b[5],
            echo: Nanos(b[6]),
            held: Nanos(b[7]),
        });
    let data = (any::<[u64; 5]>(), any::<u32>()).prop_map(|(w, lost)| Data {
        seq: w[0],
        oldest: w[1],
        sent: Nanos(w[2]),
        cwnd_bytes: w[3],
        rtt: Nanos(w[4]),
        lost,
    });
    prop_oneof![
        any::<u64>().prop_map(hello),
        any::<u64>().prop_map(|cookie| Message::Retry { cookie }),
        Just(Message::Accept),
        Just(Message::Full),
        Just(Message::Bye),
        data.prop_map(Message::Data),
        frame.prop_map(Message::Ack),
    ]
}

proptest! {
    #[test]
    fn messages_survive_the_wire_and_no_prefix_is_taken_for_one(token in any::<u64>(), message in any_message()) {
        let mut buffer = [0; CONTROL_BYTES];
        let length = encode(&mut buffer, token, &message);
        prop_assert!(length <= CONTROL_BYTES);
        prop_assert_eq!(decode(&buffer[..length]), Some((token, message)));
        if let Message::Data(_) = message {
            prop_assert_eq!(length, super::proto::DATA_BYTES);
        } else {
            for cut in 0..length {
                prop_assert_eq!(decode(&buffer[..cut]), None);
            }
        }
    }

    #[test]
    fn any_bytes_are_decoded_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200), ours in any::<bool>()) {
        let mut bytes = bytes;
        if ours {
            bytes.splice(0..bytes.len().min(5), *b"SLTR\x01");
        }
        let _ = decode(&bytes);
    }
}

#[test]
fn the_help_names_every_congestion_control() {
    let mut command = <Cli as clap::CommandFactory>::command();
    let run = command.find_subcommand_mut("run").unwrap();
    let help = run.render_long_help().to_string();
    let cc = help.split_once("--cc").unwrap().1.split_once("--ecn").unwrap().0.to_owned();
    for kind in Kind::ALL {
        assert!(cc.contains(kind.label()), "{kind}: {cc}");
    }
}
