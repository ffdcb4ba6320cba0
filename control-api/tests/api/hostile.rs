// SPDX-License-Identifier: Apache-2.0
//! Clients that are slow, greedy or broken.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::rig::{Rig, record, soon};

const SHORT: Duration = Duration::from_millis(200);

fn connect(rig: &Rig) -> TcpStream {
    let socket = TcpStream::connect(rig.client.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket
}

/// All that the server sends until it closes; a reset counts as a close.
fn until_closed(mut socket: TcpStream) -> String {
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match socket.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("not closed: {error}"),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn half_a_head_or_none_is_cut_off() {
    let rig = Rig::with(|options| options.limits.head = SHORT);
    for start in ["", "GET /v1/sub", "GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: "] {
        let mut socket = connect(&rig);
        socket.write_all(start.as_bytes()).unwrap();
        until_closed(socket);
    }
    let mut idle = connect(&rig);
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").unwrap();
    assert!(until_closed(idle).starts_with("HTTP/1.1 200"));
    assert_eq!(rig.client.get("/healthz").status, 200);
}

#[test]
fn connections_that_do_nothing_keep_others_out_only_until_their_time_is_up() {
    let rig = Rig::with(|options| {
        options.limits.connections = 4;
        options.limits.head = SHORT;
    });
    let held: Vec<_> = (0..16).map(|_| connect(&rig)).collect();
    assert_eq!(rig.client.get("/healthz").status, 200);
    drop(held);
}

#[expect(clippy::disallowed_methods, reason = "that an answer is prompt is what is measured")]
fn took(call: impl FnOnce()) -> Duration {
    let begin = std::time::Instant::now();
    call();
    begin.elapsed()
}

#[expect(clippy::disallowed_methods, reason = "a slow client is slow")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[test]
fn hundreds_of_idle_connections_delay_nobody() {
    let rig = Rig::new();
    let held: Vec<_> = (0..300).map(|_| connect(&rig)).collect();
    let health = took(|| assert_eq!(rig.client.get("/healthz").status, 200));
    assert!(health < Duration::from_secs(1), "{health:?}");
    drop(held);
}

#[test]
fn when_all_places_are_taken_the_longest_idle_makes_room() {
    let rig = Rig::with(|options| {
        options.limits.connections = 4;
        options.limits.head = Duration::from_mins(1);
    });
    // nothing, half a head, an answer and then nothing
    let starts = ["", "GET /v1/sub", "GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"];
    let held: Vec<_> = (0..15)
        .map(|n| {
            let mut socket = connect(&rig);
            socket.write_all(starts[n % 3].as_bytes()).unwrap();
            socket
        })
        .collect();
    for _ in 0..3 {
        let health = took(|| assert_eq!(rig.client.get("/healthz").status, 200));
        assert!(health < Duration::from_secs(1), "{health:?}");
    }
    // those that came first went first
    until_closed(held.into_iter().next().unwrap());
}

#[test]
fn a_request_under_way_keeps_its_place() {
    let rig = Rig::with(|options| {
        options.limits.connections = 2;
        options.limits.bulk_requests = 1;
        options.limits.head = Duration::from_mins(1);
    });
    let line = record("new", 2).to_string();
    let mut busy = connect(&rig);
    let head = "POST /v1/subscribers/bulk HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length";
    write!(busy, "{head}: {}\r\n\r\n", line.len()).unwrap();
    busy.write_all(&line.as_bytes()[..10]).unwrap();
    assert!(soon(|| rig.client.call("POST", "/v1/subscribers/bulk", "").status == 503), "it is under way");
    let idle: Vec<_> = (0..10).map(|_| connect(&rig)).collect();
    assert_eq!(rig.client.get("/healthz").status, 200);
    busy.write_all(&line.as_bytes()[10..]).unwrap();
    assert!(until_closed(busy).starts_with("HTTP/1.1 200"));
    assert_eq!(rig.all(), [record("new", 2)]);
    drop(idle);
}

#[test]
fn a_bulk_that_drips_loses_its_place_and_one_that_keeps_pace_does_not() {
    let rig = Rig::with(|options| {
        options.limits.body_idle = Duration::from_secs(1);
        options.limits.bulk_pace = 100;
        options.limits.bulk_requests = 1;
    });
    let head = "POST /v1/subscribers/bulk HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n";
    let drip = |bytes: usize, times: usize| {
        let mut socket = connect(&rig);
        write!(socket, "{head}content-length: {}\r\n\r\n", bytes * times).unwrap();
        for _ in 0..times {
            pause(Duration::from_millis(100));
            if socket.write_all(" ".repeat(bytes).as_bytes()).is_err() {
                break;
            }
        }
        until_closed(socket)
    };
    let steady = drip(60, 25);
    assert!(steady.starts_with("HTTP/1.1 200"), "{steady}");
    // never still for long, and still no end in sight; what is written after the answer may reset it
    let slow = drip(1, 30);
    assert!(slow.starts_with("HTTP/1.1 408") || slow.is_empty(), "{slow}");
    rig.client.call("POST", "/v1/subscribers/bulk", record("a", 1).to_string()).json(200);
}

#[test]
fn a_second_host_is_refused() {
    let rig = Rig::new();
    for second in ["127.0.0.1", "rebind.example"] {
        let mut socket = connect(&rig);
        write!(
            socket,
            "GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nHost: {second}\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let answer = until_closed(socket);
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("\"field\":\"host\""), "{answer}");
    }
}

#[test]
fn a_body_that_trickles_is_refused() {
    let rig = Rig::with(|options| options.limits.body_idle = SHORT);
    for (method, path) in [("PUT", "/v1/subscribers/a"), ("POST", "/v1/subscribers/bulk")] {
        let mut socket = connect(&rig);
        write!(socket, "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\n{{")
            .unwrap();
        assert!(until_closed(socket).starts_with("HTTP/1.1 408"), "{method}");
    }
    assert!(rig.all().is_empty());
}

#[test]
fn a_body_has_its_time_even_if_it_never_pauses() {
    let rig = Rig::with(|options| options.limits.body = SHORT);
    let mut socket = connect(&rig);
    write!(socket, "PUT /v1/subscribers/a HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n")
        .unwrap();
    let mut writer = socket.try_clone().unwrap();
    let feeder = std::thread::spawn(move || while writer.write_all(b"1\r\n \r\n").is_ok() {});
    let answer = until_closed(socket);
    // Time or size, whichever bound was met first; never forever.
    assert!(
        answer.starts_with("HTTP/1.1 408") || answer.starts_with("HTTP/1.1 413") || answer.is_empty(),
        "{answer}"
    );
    feeder.join().unwrap();
}

#[test]
fn oversized_bodies_are_refused_announced_or_not() {
    let rig = Rig::with(|options| options.limits.bulk_bytes = 10_000);
    let huge = " ".repeat(70_000);
    rig.client.call("PUT", "/v1/subscribers/a", huge.clone()).problem(413);
    rig.client.call("POST", "/v1/subscribers/bulk", huge.clone()).problem(413);
    let mut socket = connect(&rig);
    let head = "PUT /v1/subscribers/a HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n";
    write!(socket, "{head}{:x}\r\n{huge}\r\n0\r\n\r\n", huge.len()).unwrap();
    assert!(until_closed(socket).starts_with("HTTP/1.1 413"));
    assert!(rig.all().is_empty());
}

#[test]
fn a_cut_bulk_changes_nothing() {
    let rig = Rig::new();
    rig.put("old", 1);
    let mut socket = connect(&rig);
    let line = record("new", 2);
    write!(socket, "POST /v1/subscribers/bulk?mode=replace HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9999\r\n\r\n{line}\n")
        .unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    until_closed(socket);
    assert_eq!(rig.all(), [record("old", 1)]);
}

#[test]
fn heads_that_are_too_large_or_no_http_are_refused() {
    let rig = Rig::new();
    let large = format!("GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    for start in [large.as_str(), "\x16\x03\x01\x02\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"] {
        let mut socket = connect(&rig);
        // It may be refused before all of it is taken.
        drop(socket.write_all(start.as_bytes()));
        assert!(!until_closed(socket).contains(" 200 "));
    }
    assert_eq!(rig.client.get("/healthz").status, 200);
}

#[test]
fn a_client_that_never_reads_its_answer_is_cut_off() {
    let rig = Rig::with(|options| {
        options.limits.write_stall = SHORT;
        options.limits.connections = 1;
        // Otherwise the pipelined rest would only be closed by this.
        options.limits.head = Duration::from_mins(1);
    });
    let lines: Vec<_> = (0..2000).map(|n| record(&format!("s{n:05}"), n).to_string()).collect();
    rig.client.call("POST", "/v1/subscribers/bulk", lines.join("\n")).json(200);
    let mut socket = connect(&rig);
    // Answers of some hundred kilobytes each, far more than socket buffers take.
    for _ in 0..100 {
        write!(socket, "GET /v1/subscribers?limit=2000 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").unwrap();
    }
    // The only place is free again once the stalled client is gone.
    assert_eq!(rig.client.get("/healthz").status, 200);
    drop(socket);
}

#[test]
fn web_pages_of_others_cannot_call_a_loopback_listener() {
    let rig = Rig::new();
    assert_eq!(rig.client.with("origin", "http://example.net").get("/v1/top").field(403), "origin");
    assert_eq!(rig.client.with("host", "rebind.example").get("/v1/top").field(403), "host");
    assert_eq!(rig.client.with("host", "localhost").get("/v1/top").status, 200);
    let form = rig.client.with("content-type", "text/plain");
    assert_eq!(form.call("POST", "/v1/subscribers/bulk?mode=replace", "").field(415), "content-type");
}
