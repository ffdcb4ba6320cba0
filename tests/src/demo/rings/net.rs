// SPDX-License-Identifier: Apache-2.0
//! The network around Sluice's two ring ports, in one thread and in real time: a server with six senders beyond the
//! core port, the customers' receivers beyond the access port, and a delay of 5 ms behind each port.
//!
//! Invariant: every frame put into a ring is counted, and so is every one taken out, so that Sluice's own counters
//! can be held to them. A frame that a full ring or an empty pool refuses was never on the wire; its sender finds
//! out as from any loss.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use cc::{
    Codepoint, FlightOptions, Kind, Nanos, Next, Receiver, ReceiverOptions, SenderOptions, Transmitter,
    TransmitterOptions, build,
};
use dataplane::Wire;
use dpdk::{Burst, Mbuf, Mempool};

use super::super::{Goodput, Schedule};
use super::frame::{self, Message, Path};
use crate::scene::precise;
use crate::topology::{CUSTOMERS, Customer, SERVER, SERVER6};

/// Behind each port; there is no other delay, so the base round-trip time is twice that.
const DELAY: Nanos = Nanos::from_millis(5);
/// UDP payload of a full packet.
const PAYLOAD: u32 = 1_400;
/// Packets a flow may have in flight: more than any FIFO here holds.
const MOST_IN_FLIGHT: usize = 1 << 14;
/// What a sender may make up for, as in `sluice traffic`.
const CATCH_UP: Nanos = Nanos::from_millis(1);
/// Packets a flow may send before others have their turn.
const QUANTUM: u32 = 32;
/// Longest sleep.
const NAP: Duration = Duration::from_micros(50);
/// How long nothing may come before all counts as arrived: longer than any queue here is.
const QUIET: Nanos = Nanos::from_millis(400);

/// One flow with both its ends.
pub(super) struct Flow {
    path: Path,
    tx: Transmitter,
    rx: Receiver,
    /// Bytes received when the warm-up was over and when sending ended, each with its time.
    marks: [Option<(Nanos, u64)>; 2],
    /// Frames with a wrong checksum.
    unsound: u64,
}

/// Prague and CUBIC for each customer.
pub(super) fn flows() -> Vec<Flow> {
    let kinds = CUSTOMERS.iter().flat_map(|customer| [(customer, Kind::Prague), (customer, Kind::Cubic)]);
    (0..).zip(kinds).map(|(number, (customer, kind))| Flow::new(number, customer, kind)).collect()
}

/// What the flows saw, by customer.
pub(super) fn goodput(flows: &[Flow]) -> Vec<Goodput> {
    let pairs = flows.chunks_exact(2).map(|pair| {
        let (prague, cubic) = (&pair[0], &pair[1]);
        let (l4s, classic) = (prague.rx.ecn(), cubic.rx.ecn());
        Goodput {
            prague_bps: prague.goodput_bps(),
            cubic_bps: cubic.goodput_bps(),
            prague_ce: l4s.ce,
            // a checksum that a mark broke is a mark gone wrong
            wrong_ecn: l4s.not_ect
                + l4s.ect0
                + classic.ce
                + classic.ect0
                + classic.ect1
                + prague.unsound
                + cubic.unsound,
        }
    });
    pairs.collect()
}

impl Flow {
    fn new(number: u8, customer: &Customer, kind: Kind) -> Self {
        let parse = |address: &str| address.parse::<IpAddr>().ok();
        // as between namespaces: the dual-stack customer's Prague goes by IPv6
        let v6 = customer.ipv6.filter(|_| kind == Kind::Prague).and_then(parse).zip(parse(SERVER6));
        let v4 = || parse(customer.ipv4).zip(parse(SERVER));
        let (address, server) = v6.or_else(v4).unwrap_or((IpAddr::from([0; 4]), IpAddr::from([0; 4])));
        let tags =
            if customer.matches.contains("vlan") { vec![(0x88a8, 100), (0x8100, 42)] } else { Vec::new() };
        let options = SenderOptions {
            mss: PAYLOAD,
            max_cwnd: u64::from(PAYLOAD) * MOST_IN_FLIGHT as u64,
            ..SenderOptions::default()
        };
        let flight = FlightOptions { max_packets: MOST_IN_FLIGHT, ..FlightOptions::default() };
        let tx = TransmitterOptions { flight, catch_up: CATCH_UP, ..TransmitterOptions::default() };
        Self {
            path: Path { flow: number, tags, server, customer: address },
            tx: Transmitter::new(build(kind, &options), &tx),
            rx: Receiver::new(ReceiverOptions::default()),
            marks: [None; 2],
            unsound: 0,
        }
    }

    fn goodput_bps(&self) -> f64 {
        match self.marks {
            [Some((from, first)), Some((to, last))] if to > from => {
                precise(last - first) * 8.0 / to.since(from).as_secs_f64()
            }
            _ => 0.0,
        }
    }

    fn mark(&mut self, which: usize, now: Nanos) {
        let bytes = self.rx.bytes();
        if let Some(mark) = self.marks.get_mut(which) {
            mark.get_or_insert((now, bytes));
        }
    }
}

/// One port's surroundings: what it sent waits in `held`.
struct Side {
    wire: Wire,
    held: VecDeque<(Nanos, Mbuf)>,
    /// Frames put into the port, and taken from it.
    put: u64,
    taken: u64,
}

impl Side {
    fn new(wire: Wire) -> Self {
        Self { wire, held: VecDeque::new(), put: 0, taken: 0 }
    }

    /// Takes what the port has sent; whether there was any.
    fn take(&mut self, now: Nanos) -> bool {
        let mut burst = Burst::<32>::new();
        let (before, room) = (self.taken, u64::from(self.wire.out.capacity()));
        // no more than the ring holds, so that others have their turn
        while self.taken - before < room && self.wire.out.dequeue(&mut burst) > 0 {
            self.taken += burst.len() as u64;
            self.held.extend(burst.drain().map(|frame| (now + DELAY, frame)));
        }
        self.taken > before
    }

    /// The next frame whose time has come.
    fn due(&mut self, now: Nanos) -> Option<Mbuf> {
        let (at, _) = self.held.front()?;
        if *at > now { None } else { self.held.pop_front().map(|(_, frame)| frame) }
    }

    /// Puts a frame into the port; it is lost where there is no buffer or no room.
    fn put(&mut self, pool: &Mempool, frame: &[u8]) {
        let Some(mut mbuf) = pool.alloc() else { return };
        // a full ring gives it back, and it is freed
        if mbuf.extend(frame) && self.wire.into.push(mbuf).is_ok() {
            self.put += 1;
        }
    }
}

/// Both sides and where frames come from.
pub(super) struct Network {
    pool: Mempool,
    core: Side,
    access: Side,
    scratch: Vec<u8>,
}

/// When what is over.
struct Times {
    warm: Nanos,
    end: Nanos,
}

impl Network {
    pub(super) fn new(pool: Mempool, core: Wire, access: Wire) -> Self {
        Self { pool, core: Side::new(core), access: Side::new(access), scratch: Vec::new() }
    }

    /// Frames put into both ports, and taken from them.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.core.put + self.access.put, self.core.taken + self.access.taken)
    }

    /// Runs the flows until their time is over and all has arrived, or until `stop`.
    #[expect(
        clippy::disallowed_methods,
        reason = "the network of the demo runs in real time and owns this clock"
    )]
    pub(super) fn run(
        mut self,
        mut flows: Vec<Flow>,
        schedule: &Schedule,
        stop: &AtomicBool,
    ) -> (Self, Vec<Flow>) {
        let nanos = |span: Duration| Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        let end = if schedule.keep { Nanos::MAX } else { nanos(schedule.part) };
        let times = Times { warm: nanos(schedule.warm_up), end };
        let begin = Instant::now();
        let mut last_arrival = Nanos::ZERO;
        while !stop.load(Relaxed) {
            // from 1 ms on: a time of zero means "never" to some
            let now = nanos(begin.elapsed()) + Nanos::from_millis(1);
            let arrived = self.access.take(now) | self.core.take(now);
            if arrived {
                last_arrival = now;
            }
            let moved = arrived | self.deliver(now, &mut flows) | self.send(now, &mut flows, &times);
            if now > times.end && now.since(last_arrival) > QUIET {
                break;
            }
            if !moved {
                std::thread::sleep(NAP);
            }
        }
        (self, flows)
    }

    /// Hands over what has been under way long enough; whether there was any.
    fn deliver(&mut self, now: Nanos, flows: &mut [Flow]) -> bool {
        let mut moved = false;
        while let Some(mbuf) = self.access.due(now) {
            moved = true;
            let Some(read) = frame::read(mbuf.data()) else { continue };
            let Some(flow) = flows.get_mut(usize::from(read.flow)) else { continue };
            flow.unsound += u64::from(!read.sound);
            if let Message::Data { seq, oldest, sent } = read.message {
                flow.rx.on_packet(now, seq, oldest, read.ecn, sent, PAYLOAD);
                self.acknowledge(now, flow);
            }
        }
        while let Some(mbuf) = self.core.due(now) {
            moved = true;
            let Some(read) = frame::read(mbuf.data()) else { continue };
            let Some(flow) = flows.get_mut(usize::from(read.flow)) else { continue };
            flow.unsound += u64::from(!read.sound);
            if let Message::Ack(ack) = read.message {
                flow.tx.on_ack(now, &ack);
            }
        }
        moved
    }

    /// Acknowledges if it is time.
    fn acknowledge(&mut self, now: Nanos, flow: &mut Flow) {
        if flow.rx.ack_due().is_none_or(|due| due > now) {
            return;
        }
        if let Some(ack) = flow.rx.acknowledge(now) {
            frame::write(&mut self.scratch, &flow.path, Codepoint::NotEct, &Message::Ack(ack), 0);
            self.access.put(&self.pool, &self.scratch);
        }
    }

    /// Lets every flow send what is due; whether any did.
    fn send(&mut self, now: Nanos, flows: &mut [Flow], times: &Times) -> bool {
        let mut moved = false;
        for flow in flows {
            self.acknowledge(now, flow);
            if now >= times.warm {
                flow.mark(0, now);
            }
            if now >= times.end {
                flow.mark(1, now);
                continue;
            }
            if flow.tx.deadline().is_some_and(|at| at <= now) {
                flow.tx.on_timer(now);
            }
            moved |= self.send_one(now, flow);
        }
        moved
    }

    fn send_one(&mut self, now: Nanos, flow: &mut Flow) -> bool {
        for sent in 0..QUANTUM {
            if flow.tx.next(now) != Next::Send {
                return sent > 0;
            }
            let packet = flow.tx.commit(now);
            let message = Message::Data { seq: packet.seq, oldest: packet.oldest, sent: now };
            frame::write(&mut self.scratch, &flow.path, packet.codepoint, &message, packet.bytes as usize);
            self.core.put(&self.pool, &self.scratch);
        }
        // more could leave: this thread is what holds the flow back
        flow.tx.host_limited();
        true
    }
}
