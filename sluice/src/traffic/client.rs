// SPDX-License-Identifier: Apache-2.0
//! `sluice traffic run`: opens flows, drives them for a time, reports each second and at the end.
//!
//! Each flow has a socket of its own (its own 5-tuple). Phases of a flow: opening (HELLO until ACCEPT), running,
//! closing (a sender first waits for what is in flight, then BYE until it is answered, or two seconds).

mod reporter;

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use cc::{Codepoint, Nanos};

use super::clock::Clock;
use super::flow::{End, Receiving, Sending, Wake};
use super::proto::{CONTROL_BYTES, Message, Request, decode, encode};
use super::report::Counts;
use super::socket::{Buffers, Datagram, Peer, Socket, wait, wake_precisely};
use super::{Direction, RunArgs};
use reporter::Reporter;

/// HELLO and BYE are repeated after this long.
const REPEAT: Nanos = Nanos::from_millis(100);
/// The server has this long to answer.
const OPENING: Nanos = Nanos::from_secs(5);
/// What is in flight at the end has this long to arrive.
const DRAINING: Nanos = Nanos::from_secs(1);
/// And the server this long in all to say its last word.
const CLOSING: Nanos = Nanos::from_secs(2);
/// Longest wait, so that signals are seen.
const TICK: Nanos = Nanos::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening { cookie: u64, next_hello: Nanos },
    Running,
    Closing { since: Nanos, next_bye: Nanos },
    Closed,
}

#[derive(Debug)]
struct Flow {
    socket: Socket,
    token: u64,
    peer: Peer,
    request: Request,
    phase: Phase,
    end: End,
    wake: Wake,
    /// The server said it has no room.
    turned_away: bool,
    ignored: u64,
}

/// Runs to the end or until `stop`; the summary's counts are returned too.
pub(super) fn run(args: &RunArgs, stop: &AtomicBool, out: &mut dyn Write) -> anyhow::Result<Counts> {
    wake_precisely();
    let clock = Clock::start();
    let mut client = Client::open(args, &clock)?;
    client.open_all(stop)?;
    let started = clock.now();
    let counts = client.drive(started, stop, out)?;
    if counts.packets == 0 {
        bail!(
            "nothing arrived at the {} end",
            if args.direction == Direction::Up { "server's" } else { "own" }
        );
    }
    Ok(counts)
}

struct Client<'a> {
    args: &'a RunArgs,
    clock: &'a Clock,
    flows: Vec<Flow>,
    buffers: Buffers,
}

impl<'a> Client<'a> {
    fn open(args: &'a RunArgs, clock: &'a Clock) -> anyhow::Result<Self> {
        let request = Request {
            direction: args.direction,
            kind: args.cc,
            codepoint: args.ecn.map(Codepoint::from),
            rtt_independence: !args.no_rtt_independence,
            hystart: !args.no_hystart,
            packet_bytes: u16::try_from(args.packet_bytes).context("--packet-bytes is too large")?,
            seconds: args.seconds,
            rate_bps: args.rate_bps.unwrap_or(0),
        };
        let any: IpAddr = match args.connect.ip() {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let tokens = RandomState::new();
        let flows = (0..args.flows)
            .map(|n| {
                let from = args.bind.unwrap_or(any);
                let socket = Socket::bind(SocketAddr::new(from, 0))
                    .with_context(|| format!("cannot open a UDP socket on {from}"))?;
                Ok(Flow::new(socket, tokens.hash_one(n), args.connect, request, clock.now()))
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { args, clock, flows, buffers: Buffers::new() })
    }

    /// Until the server has accepted every flow.
    fn open_all(&mut self, stop: &AtomicBool) -> anyhow::Result<()> {
        let deadline = self.clock.now() + OPENING;
        while self.flows.iter().any(|flow| matches!(flow.phase, Phase::Opening { .. })) {
            self.turn()?;
            if self.flows.iter().any(|flow| flow.turned_away) {
                bail!("{} has no room for more flows", self.args.connect);
            }
            if self.clock.now() > deadline {
                bail!("{} does not answer: is `sluice traffic serve` running there?", self.args.connect);
            }
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted before the first packet");
            }
            self.sleep(deadline)?;
        }
        Ok(())
    }

    fn drive(&mut self, started: Nanos, stop: &AtomicBool, out: &mut dyn Write) -> anyhow::Result<Counts> {
        let ends = started + Nanos::from_secs(self.args.seconds.into());
        let mut reporter = Reporter::new(started);
        while self.clock.now() < ends && !stop.load(Ordering::Relaxed) {
            self.turn()?;
            reporter.tick(self, out)?;
            self.sleep(ends.min(reporter.due()))?;
        }
        let stopped = self.clock.now();
        reporter.last_tick(self, out)?;
        self.close_all(stopped)?;
        reporter.summary(self, started, stopped, out)
    }

    fn close_all(&mut self, now: Nanos) -> anyhow::Result<()> {
        for flow in &mut self.flows {
            flow.phase = Phase::Closing { since: now, next_bye: now };
        }
        let deadline = now + CLOSING;
        while self.clock.now() < deadline && self.flows.iter().any(|flow| flow.phase != Phase::Closed) {
            self.turn()?;
            self.sleep(deadline)?;
        }
        Ok(())
    }

    /// Reads a batch from each socket and lets every flow act.
    fn turn(&mut self) -> anyhow::Result<()> {
        for flow in &mut self.flows {
            flow.receive(self.clock, &mut self.buffers)?;
            flow.act(self.clock).with_context(|| {
                format!("cannot send packets of {} bytes to {}", self.args.packet_bytes, self.args.connect)
            })?;
        }
        Ok(())
    }

    fn sleep(&self, until: Nanos) -> io::Result<()> {
        let now = self.clock.now();
        let wake = self.flows.iter().filter_map(|flow| flow.wake.at).min().unwrap_or(Nanos::MAX);
        let at = wake.min(until).min(now + TICK);
        if at <= now {
            return Ok(());
        }
        wait(self.flows.iter().map(|flow| (&flow.socket, flow.wake.writable)), at.since(now))
    }

    fn counts(&self) -> Counts {
        self.flows.iter().fold(Counts::default(), |sum, flow| sum.plus(flow.end.counts()))
    }
}

impl Flow {
    fn new(socket: Socket, token: u64, address: SocketAddr, request: Request, now: Nanos) -> Self {
        let peer = Peer { address, from: None };
        let end = match request.direction {
            Direction::Up => End::Sending(Box::new(Sending::new(token, peer, &request))),
            Direction::Down => End::Receiving(Box::new(Receiving::new(token, peer))),
        };
        Self {
            socket,
            token,
            peer,
            request,
            phase: Phase::Opening { cookie: 0, next_hello: now },
            end,
            wake: Wake { at: Some(now), writable: false },
            turned_away: false,
            ignored: 0,
        }
    }

    fn receive(&mut self, clock: &Clock, buffers: &mut Buffers) -> io::Result<()> {
        let Self { socket, token, peer, phase, end, turned_away, ignored, .. } = self;
        socket.receive(buffers, |datagram| {
            let message = decode(datagram.bytes).filter(|(t, _)| t == token && datagram.from == peer.address);
            let Some((_, message)) = message else {
                *ignored += 1;
                return;
            };
            if matches!(message, Message::Full) {
                *turned_away = true;
            } else if !step(phase, end, clock.now(), &message, &datagram) {
                *ignored += 1;
            }
        })?;
        Ok(())
    }

    fn act(&mut self, clock: &Clock) -> io::Result<()> {
        let now = clock.now();
        match self.phase {
            Phase::Opening { cookie, next_hello } => {
                let mut next = next_hello;
                if next_hello <= now {
                    self.say(&Message::Hello { cookie, request: self.request });
                    next = now + REPEAT;
                }
                self.phase = Phase::Opening { cookie, next_hello: next };
                self.wake = Wake { at: Some(next), writable: false };
            }
            Phase::Running => self.wake = self.end.pump(&|| clock.now(), &self.socket)?,
            Phase::Closing { since, next_bye } => self.close(now, since, next_bye),
            Phase::Closed => self.wake = Wake { at: None, writable: false },
        }
        Ok(())
    }

    fn close(&mut self, now: Nanos, since: Nanos, next_bye: Nanos) {
        let mut next = next_bye;
        let is_drained = self.end.in_flight() == 0 || now.since(since) > DRAINING;
        if next_bye <= now {
            if is_drained {
                self.say(&Message::Bye);
            }
            next = now + REPEAT;
        }
        // A receiver has nothing to wait for: should its BYE be lost, the server stops by itself.
        let is_done = matches!(self.end, End::Receiving(_));
        self.phase = if is_done { Phase::Closed } else { Phase::Closing { since, next_bye: next } };
        self.wake = Wake { at: Some(next), writable: false };
    }

    fn say(&self, message: &Message) {
        let mut buffer = [0; CONTROL_BYTES];
        let length = encode(&mut buffer, self.token, message);
        // Repeated until it is answered.
        let _ = self.socket.send(self.peer, Codepoint::NotEct, &buffer[..length]);
    }
}

/// What a message does to a flow; false if nothing.
fn step(phase: &mut Phase, end: &mut End, now: Nanos, message: &Message, datagram: &Datagram<'_>) -> bool {
    match (*phase, message) {
        (Phase::Opening { .. }, Message::Retry { cookie }) => {
            *phase = Phase::Opening { cookie: *cookie, next_hello: now };
            true
        }
        (Phase::Opening { .. }, Message::Accept) => {
            *phase = Phase::Running;
            true
        }
        // The server's first data may overtake its ACCEPT.
        (Phase::Opening { .. }, Message::Data(_)) => {
            *phase = Phase::Running;
            end.on_message(now, message, datagram)
        }
        (Phase::Closing { .. }, Message::Bye) => {
            *phase = Phase::Closed;
            true
        }
        _ => end.on_message(now, message, datagram),
    }
}
