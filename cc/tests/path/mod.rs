// SPDX-License-Identifier: Apache-2.0
//! A path in virtual time for the tests of this crate: a fixed round trip, an optional bottleneck, and a rule that
//! says for each packet what happens to it. It counts what it carries, so that tests can assert conservation.

use std::collections::{BTreeMap, VecDeque};

use cc::{AckFrame, Codepoint, Nanos, Next, Outgoing, Receiver, ReceiverOptions, Transmitter};

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    Mark,
    Drop,
}

enum Event {
    Data(Outgoing, Nanos),
    Ack(AckFrame),
}

/// A transmitter, a receiver and what lies between.
pub(crate) struct Path {
    pub(crate) tx: Transmitter,
    pub(crate) rx: Receiver,
    pub(crate) now: Nanos,
    pub(crate) rtt: Nanos,
    /// Bottleneck: bits per second; `None` for none.
    pub(crate) rate_bps: Option<u64>,
    pub(crate) dropped: u64,
    pub(crate) marked: u64,
    events: BTreeMap<(Nanos, u64), Event>,
    order: u64,
    busy_until: Nanos,
    /// Departure times of what the bottleneck holds.
    queue: VecDeque<Nanos>,
}

impl Path {
    pub(crate) fn new(tx: Transmitter, rtt: Nanos, every: u32) -> Self {
        let options = ReceiverOptions { every, ..ReceiverOptions::default() };
        Self {
            tx,
            rx: Receiver::new(options),
            now: Nanos::ZERO,
            rtt,
            rate_bps: None,
            dropped: 0,
            marked: 0,
            events: BTreeMap::new(),
            order: 0,
            busy_until: Nanos::ZERO,
            queue: VecDeque::new(),
        }
    }

    /// Runs until `end`; `rule` sees each packet and how many the bottleneck holds.
    pub(crate) fn run(&mut self, end: Nanos, mut rule: impl FnMut(&Outgoing, usize) -> Fate) {
        loop {
            let wake = self.send_all(&mut rule);
            let next_event = self.events.keys().next().map(|key| key.0);
            let times = [wake, next_event, self.rx.ack_due(), self.tx.deadline()];
            let Some(next) = times.into_iter().flatten().min() else {
                return;
            };
            if next >= end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            self.deliver();
        }
    }

    fn send_all(&mut self, rule: &mut impl FnMut(&Outgoing, usize) -> Fate) -> Option<Nanos> {
        loop {
            match self.tx.next(self.now) {
                Next::Send => {
                    let packet = self.tx.commit(self.now);
                    self.carry(packet, rule);
                }
                Next::At(at) => return Some(at),
                Next::Wait | Next::Done => return None,
            }
        }
    }

    fn carry(&mut self, mut packet: Outgoing, rule: &mut impl FnMut(&Outgoing, usize) -> Fate) {
        while self.queue.front().is_some_and(|at| *at <= self.now) {
            self.queue.pop_front();
        }
        match rule(&packet, self.queue.len()) {
            Fate::Drop => {
                self.dropped += 1;
                return;
            }
            Fate::Mark if packet.codepoint != Codepoint::NotEct => {
                self.marked += 1;
                packet.codepoint = Codepoint::Ce;
            }
            Fate::Mark | Fate::Pass => {}
        }
        let mut leaves = self.now;
        if let Some(rate) = self.rate_bps {
            let serialise = u64::from(packet.bytes) * 8 * 1_000_000_000 / rate;
            leaves = leaves.max(self.busy_until) + Nanos(serialise);
            self.busy_until = leaves;
            self.queue.push_back(leaves);
        }
        let arrives = leaves + Nanos(self.rtt.0 / 2);
        self.schedule(arrives, Event::Data(packet, self.now));
    }

    fn schedule(&mut self, at: Nanos, event: Event) {
        self.order += 1;
        self.events.insert((at, self.order), event);
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= self.now) {
            match entry.remove() {
                Event::Data(p, sent) => {
                    self.rx.on_packet(self.now, p.seq, p.oldest, p.codepoint, sent, p.bytes);
                    self.acknowledge();
                }
                Event::Ack(frame) => {
                    self.tx.on_ack(self.now, &frame);
                }
            }
        }
        self.acknowledge();
        self.tx.on_timer(self.now);
    }

    fn acknowledge(&mut self) {
        let due = self.rx.ack_due().is_some_and(|due| due <= self.now);
        if let Some(frame) = due.then(|| self.rx.acknowledge(self.now)).flatten() {
            self.schedule(self.now + Nanos(self.rtt.0 / 2), Event::Ack(frame));
        }
    }

    /// Every packet sent is accounted for, at both ends.
    pub(crate) fn assert_conserved(&self) {
        let t = self.tx.totals();
        let flying = self.events.values().filter(|e| matches!(e, Event::Data(..))).count() as u64;
        assert_eq!(t.sent, self.rx.received() + self.dropped + flying, "on the wire");
        assert_eq!(self.rx.ecn().total(), self.rx.received(), "ECN counts");
        assert!(self.rx.ecn().ce <= self.marked);
        assert!(t.acked <= self.rx.received());
        assert!(t.marked <= self.rx.ecn().ce);
        assert!(t.acked + t.lost <= t.sent);
        if self.tx.flight().in_flight() == 0 {
            assert_eq!(t.acked + t.lost, t.sent, "nothing flies");
        }
    }
}

/// Bernoulli draws from a linear congruential generator (Knuth's MMIX constants), the same on any machine.
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn happens(&mut self, p: f64) -> bool {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from((self.0 >> 32) as u32) / 4_294_967_296.0 < p
    }
}

/// Every 1/p-th time, evenly.
pub(crate) struct Evenly(pub f64);

impl Evenly {
    pub(crate) fn happens(&mut self, p: f64) -> bool {
        self.0 += p;
        let now = self.0 >= 1.0;
        if now {
            self.0 -= 1.0;
        }
        now
    }
}
