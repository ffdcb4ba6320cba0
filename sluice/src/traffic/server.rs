// SPDX-License-Identifier: Apache-2.0
//! `sluice traffic serve`: one socket, many flows, one loop.
//!
//! Invariants: at most `max_flows` flows, each of bounded memory and gone after 5 s of silence; data is sent only to
//! an address that returned the cookie it was sent; a datagram of no flow is counted and otherwise ignored.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use cc::{Codepoint, Nanos};
use rustix::io::Errno;
use serde_json::json;

use super::clock::Clock;
use super::flow::{End, Receiving, Sending, Wake, header_bytes};
use super::proto::{CONTROL_BYTES, Message, Request, decode, encode};
use super::report::{self, Counts, Span};
use super::socket::{Buffers, Datagram, Peer, Socket, wait, wake_precisely};
use super::{Direction, ServeArgs};

/// A flow whose peer is silent for this long is gone.
const SILENCE: Nanos = Nanos::from_secs(5);
/// A flow may outlive the time it asked for by this much.
const GRACE: Nanos = Nanos::from_secs(2);
/// Longest wait, so that signals are seen.
const TICK: Nanos = Nanos::from_millis(100);
/// How often the server reports while it has flows.
const REPORT: Nanos = Nanos::from_secs(1);

/// One flow.
#[derive(Debug)]
struct Session {
    end: End,
    peer: Peer,
    request: Request,
    heard: Nanos,
    /// A sender stops here.
    ends: Nanos,
    started: Nanos,
    wake: Wake,
}

#[derive(Debug)]
struct Server {
    socket: Socket,
    sessions: HashMap<(SocketAddr, u64), Session>,
    max_flows: usize,
    key: RandomState,
    /// Datagrams that were nobody's.
    ignored: u64,
    /// Of sessions that have ended.
    past: Counts,
}

/// Serves until `stop`. `ready` is told the address once it listens.
pub(super) fn serve(
    args: &ServeArgs,
    stop: &AtomicBool,
    out: &mut dyn Write,
    ready: impl FnOnce(SocketAddr),
) -> anyhow::Result<()> {
    let socket = Socket::bind(args.listen).with_context(|| format!("cannot listen on {}", args.listen))?;
    let address = socket.local_addr().context("the socket has no address")?;
    report::line(out, json!({ "listening": address.to_string() }), json!({}))?;
    ready(address);
    wake_precisely();
    let mut server = Server {
        socket,
        sessions: HashMap::new(),
        max_flows: usize::try_from(args.max_flows).unwrap_or(usize::MAX),
        key: RandomState::new(),
        ignored: 0,
        past: Counts::default(),
    };
    let clock = Clock::start();
    let mut buffers = Buffers::new();
    let mut ticker = Ticker::default();
    while !stop.load(Ordering::Relaxed) {
        server.turn(&clock, &mut buffers, out)?;
        ticker.tick(clock.now(), &mut server, out)?;
        let now = clock.now();
        let (at, writable) = server.next_wake(now);
        if at > now {
            wait([(&server.socket, writable)].into_iter(), at.since(now))?;
        }
    }
    for key in server.sessions.keys().copied().collect::<Vec<_>>() {
        server.end(clock.now(), key, out)?;
    }
    let counts = server.counts();
    let summary = Span { counts, length: clock.now(), ..Span::default() };
    report::line(out, summary.to_json(), json!({ "summary": true, "ignored": server.ignored }))?;
    Ok(())
}

impl Server {
    /// Reads a batch, lets every flow that is due act, and drops those that are over.
    fn turn(&mut self, clock: &Clock, buffers: &mut Buffers, out: &mut dyn Write) -> anyhow::Result<()> {
        let now = clock.now();
        let mut ended = Vec::new();
        let Self { socket, sessions, .. } = self;
        let mut strangers = Vec::new();
        socket.receive(buffers, |datagram| match decode(datagram.bytes) {
            Some((token, message)) => {
                let key = (datagram.from, token);
                match sessions.get_mut(&key) {
                    Some(session) if !matches!(message, Message::Hello { .. }) => {
                        // Read after the receive: an arrival before its packet's departure is no round trip.
                        session.hear(clock.now(), &message, &datagram);
                        if message == Message::Bye {
                            ended.push(key);
                        }
                    }
                    _ => strangers.push((token, message, Peer { address: datagram.from, from: datagram.to })),
                }
            }
            None => self.ignored += 1,
        })?;
        for (token, message, peer) in strangers {
            self.admit(now, token, &message, peer);
        }
        self.pump(clock, &mut ended)?;
        for key in ended {
            self.end(now, key, out)?;
        }
        Ok(())
    }

    fn pump(&mut self, clock: &Clock, ended: &mut Vec<(SocketAddr, u64)>) -> io::Result<()> {
        let read = || clock.now();
        for (key, session) in &mut self.sessions {
            let now = read();
            let is_over = session.is_over(now);
            if is_over {
                ended.push(*key);
            }
            let due = session.wake.writable || session.wake.at.is_some_and(|at| at <= now);
            if !is_over && due {
                match session.end.pump(&read, &self.socket) {
                    Ok(wake) => session.wake = wake,
                    // packets that never fit its path are this flow's own affair
                    Err(error) if error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()) => {
                        self.ignored += 1;
                        ended.push(*key);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// HELLO: a cookie first, a flow for who returns it.
    fn admit(&mut self, now: Nanos, token: u64, message: &Message, peer: Peer) {
        let Message::Hello { cookie, request } = message else {
            self.ignored += 1;
            return;
        };
        let expected = self.key.hash_one((peer.address, token));
        if *cookie != expected {
            self.answer(peer, token, &Message::Retry { cookie: expected });
            return;
        }
        let key = (peer.address, token);
        if !self.sessions.contains_key(&key) {
            if self.sessions.len() >= self.max_flows {
                self.answer(peer, token, &Message::Full);
                return;
            }
            self.sessions.insert(key, Session::new(now, token, peer, request));
        }
        self.answer(peer, token, &Message::Accept);
    }

    fn answer(&self, peer: Peer, token: u64, message: &Message) {
        let mut buffer = [0; CONTROL_BYTES];
        let length = encode(&mut buffer, token, message);
        // The client asks again if this does not leave.
        let _ = self.socket.send(peer, Codepoint::NotEct, &buffer[..length]);
    }

    fn end(&mut self, now: Nanos, key: (SocketAddr, u64), out: &mut dyn Write) -> io::Result<()> {
        let Some(mut session) = self.sessions.remove(&key) else {
            return Ok(());
        };
        if let End::Receiving(end) = &mut session.end {
            end.conclude(now, &self.socket);
        }
        self.answer(session.peer, key.1, &Message::Bye);
        let counts = session.end.counts();
        self.past = self.past.plus(counts);
        let span = Span {
            counts,
            rtt: session.end.take_rtt(),
            length: now.since(session.started),
            cwnd_bytes: session.end.cwnd_bytes(),
            header_bytes: header_bytes(&key.0),
        };
        let more = json!({
            "session_end": key.0.to_string(),
            "cc": session.request.kind.label(),
            "sending": matches!(session.end, End::Sending(_)),
        });
        report::line(out, span.to_json(), more)
    }

    fn counts(&self) -> Counts {
        self.sessions.values().fold(self.past, |sum, session| sum.plus(session.end.counts()))
    }

    fn next_wake(&self, now: Nanos) -> (Nanos, bool) {
        let mut at = now + TICK;
        let mut writable = false;
        for session in self.sessions.values() {
            at = at.min(session.wake.at.unwrap_or(Nanos::MAX));
            writable |= session.wake.writable;
        }
        (at, writable)
    }
}

impl Session {
    fn new(now: Nanos, token: u64, peer: Peer, request: &Request) -> Self {
        let end = match request.direction {
            Direction::Up => End::Receiving(Box::new(Receiving::new(token, peer))),
            Direction::Down => End::Sending(Box::new(Sending::new(token, peer, request))),
        };
        Self {
            end,
            peer,
            request: *request,
            heard: now,
            ends: now + Nanos::from_secs(request.seconds.into()) + GRACE,
            started: now,
            wake: Wake { at: Some(now), writable: false },
        }
    }

    fn hear(&mut self, now: Nanos, message: &Message, datagram: &Datagram<'_>) {
        if self.end.on_message(now, message, datagram) {
            self.heard = now;
            self.wake.at = Some(now);
        }
    }

    fn is_over(&self, now: Nanos) -> bool {
        now.since(self.heard) > SILENCE || now > self.ends
    }
}

/// Prints the server's line each second that there are flows.
#[derive(Debug, Default)]
struct Ticker {
    last: Nanos,
    counts: Counts,
}

impl Ticker {
    fn tick(&mut self, now: Nanos, server: &mut Server, out: &mut dyn Write) -> io::Result<()> {
        let length = now.since(self.last);
        if length < REPORT {
            return Ok(());
        }
        let counts = server.counts();
        if !server.sessions.is_empty() {
            let mut span = Span { counts: counts.less(self.counts), length, ..Span::default() };
            for session in server.sessions.values_mut() {
                span.rtt.merge(session.end.take_rtt());
                span.cwnd_bytes = span.cwnd_bytes.saturating_add(session.end.cwnd_bytes());
            }
            let more = json!({
                "t_s": report::seconds(now), "flows": server.sessions.len(), "ignored": server.ignored,
            });
            report::line(out, span.to_json(), more)?;
        }
        (self.last, self.counts) = (now, counts);
        Ok(())
    }
}
