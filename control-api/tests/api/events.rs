// SPDX-License-Identifier: Apache-2.0
//! `/v1/events`.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use model::stats::{Direction, Event, EventKind};
use serde_json::{Value, json};

use crate::rig::{Rig, record};

/// An open stream, read line by line.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(rig: &Rig) -> Self {
        let mut socket = TcpStream::connect(rig.client.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(socket, "GET /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n")
            .unwrap();
        let mut stream = Self(BufReader::new(socket));
        let head: Vec<_> =
            std::iter::from_fn(|| Some(stream.line())).take_while(|line| !line.is_empty()).collect();
        assert_eq!(head[0], "HTTP/1.1 200 OK");
        assert!(head.contains(&"content-type: text/event-stream".to_owned()), "{head:?}");
        // The first words show that the subscription stands.
        while !stream.line().starts_with(": sluice") {}
        stream
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
        line.trim_end().to_owned()
    }

    /// The next event's name and data.
    fn next(&mut self) -> (String, Value) {
        loop {
            if let Some(name) = self.line().strip_prefix("event: ") {
                let data = self.line();
                return (
                    name.to_owned(),
                    serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap(),
                );
            }
        }
    }
}

#[test]
fn events_of_the_data_plane_and_of_changes_are_streamed() {
    let rig = Rig::new();
    let mut stream = Stream::open(&rig);
    let kind = EventKind::OverloadStart { id: "cust-1".into(), dir: Direction::Down };
    rig.shaper.events.send(Event { at_ms: 5, kind }).unwrap();
    let expected = json!({"at_ms": 5, "event": "overload_start", "id": "cust-1", "dir": "down"});
    assert_eq!(stream.next(), ("overload_start".to_owned(), expected));
    rig.put("cust-1", 1);
    let (name, data) = stream.next();
    assert_eq!((name.as_str(), &data["created"], &data["deleted"]), ("config", &json!(1), &json!(0)));
    assert!(data["at_ms"].as_u64().unwrap() > 1_600_000_000_000);
    let body = [record("cust-2", 2).to_string(), record("cust-3", 3).to_string()].join("\n");
    rig.client.call("POST", "/v1/subscribers/bulk?mode=replace", body).json(200);
    let (_, data) = stream.next();
    assert_eq!((&data["created"], &data["updated"], &data["deleted"]), (&json!(2), &json!(0), &json!(1)));
}

#[test]
fn a_slow_reader_is_told_what_it_missed() {
    let rig = Rig::new();
    let mut stream = Stream::open(&rig);
    // More than the channel holds and than the kernel's buffers take.
    for n in 0..100_000 {
        let kind = EventKind::Link { port: "x".repeat(100), up: n % 2 == 0, speed_bps: None };
        rig.shaper.events.send(Event { at_ms: n, kind }).unwrap();
    }
    let missed = std::iter::from_fn(|| Some(stream.next())).find(|(name, _)| name == "lagged").unwrap().1;
    assert!(missed["missed"].as_u64().unwrap() > 0);
}

#[test]
fn the_number_of_streams_is_bounded_and_the_end_frees_one() {
    let rig = Rig::with(|options| options.limits.event_streams = 1);
    let stream = Stream::open(&rig);
    rig.client.get("/v1/events").problem(503);
    drop(stream);
    // The server learns of it by itself; nobody has to send an event.
    while rig.client.call("HEAD", "/v1/events", "").status == 503 {}
}

#[test]
fn shutdown_ends_open_streams() {
    let rig = Rig::new();
    let mut stream = Stream::open(&rig);
    let Rig { handle, .. } = rig;
    handle.shutdown();
    let mut rest = String::new();
    while stream.0.read_line(&mut rest).is_ok_and(|bytes| bytes > 0) {}
    assert!(rest.ends_with("0\r\n\r\n"), "the stream was cut, not ended: {rest:?}");
}
