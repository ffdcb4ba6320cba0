// SPDX-License-Identifier: Apache-2.0
//! The closed loop: senders, the bottleneck, the way to the receivers and back, in virtual time.
//!
//! ```text
//! sender -> bottleneck (engine) -> serialisation -> loss, jitter -> rtt/2 -> receiver
//!    ^                                                                          |
//!    +----------------------- rtt/2 <- [reverse link (engine)] <----------------+
//! ```
//!
//! Senders stand right before the bottleneck and have no line rate of their own: what a window sends at once arrives
//! at once. A packet counts as delivered when its transmission starts.
//!
//! Invariants: of events at one moment PI ticks come first, then departures, then the events of the queue in order of
//! entry; nothing depends on a clock, an address or a hash seed; per packet nothing is allocated once the rings have
//! grown.

mod draws;
mod endpoint;
mod events;
mod flows;
mod line;
mod meter;
mod parcel;
mod spread;

use aqm::{BitsPerSec, Nanos};
use cc::{AckFrame, Codepoint, Next};
use engine::Packet;

use crate::Error;
use crate::outcome::Outcome;
use crate::scenario::Scenario;
use draws::{Draws, Purpose};
use endpoint::{Account, Coming, Constant, Endpoint, Load, Source, ecn_of, from_cc, to_cc};
use events::{Events, What};
use line::{Label, Line, LineOptions};
use meter::{Departure, Meter};

/// Virtual time at which a run begins: the engine has times before it.
const BEGIN: Nanos = Nanos::from_secs(1);
/// A frame that carries a bare acknowledgement, on the wire.
const ACK_BYTES: u32 = 64;
/// The reverse link draws from seeds of its own.
const REVERSE_SEED: u64 = 0x5eed_0fac;
/// How often a watcher hears of the progress.
const WATCH: Nanos = Nanos::from_millis(250);

/// Runs a scenario to its end. The same scenario and seed give the same result, byte for byte.
///
/// # Errors
/// When an AQM refuses its parameters.
pub fn run(scenario: &Scenario, seed: u64) -> Result<Outcome, Error> {
    run_watched(scenario, seed, &mut |_| {})
}

/// As [`run`], and tells `watcher` now and then how much virtual time has passed.
///
/// # Errors
/// When an AQM refuses its parameters.
pub fn run_watched(scenario: &Scenario, seed: u64, watcher: &mut dyn FnMut(Nanos)) -> Result<Outcome, Error> {
    let mut world = World::new(scenario, seed)?;
    let mut until = BEGIN;
    while until < world.end {
        until = (until + WATCH).min(world.end);
        world.run_until(until);
        watcher(until.since(BEGIN));
    }
    Ok(world.outcome())
}

/// Everything there is.
#[derive(Debug)]
struct World<'s> {
    scenario: &'s Scenario,
    seed: u64,
    now: Nanos,
    end: Nanos,
    events: Events,
    forward: Line<Load>,
    reverse: Option<Line<AckFrame>>,
    flows: Vec<Endpoint>,
    /// Arrivals and sizes of each entry of short flows.
    webs: Vec<[Draws; 2]>,
    loss: Draws,
    jitter: Draws,
    /// When the last packet got through the jitter.
    jittered: Nanos,
    meter: Meter,
}

impl<'s> World<'s> {
    fn new(scenario: &'s Scenario, seed: u64) -> Result<Self, Error> {
        let profile = scenario.profile_in_force();
        let rate = line_rate(scenario, scenario.link.steps.first().map_or(BitsPerSec(1), |step| step.rate));
        let forward = Line::new(&LineOptions { profile: &profile, rate, seed, now: BEGIN })?;
        let reverse = match &scenario.link.reverse {
            None => None,
            Some(link) => Some(Line::new(&LineOptions {
                profile: &link.profile,
                rate: link.rate,
                seed: seed ^ REVERSE_SEED,
                now: BEGIN,
            })?),
        };
        let entries = 0..u32::try_from(scenario.web.len()).unwrap_or(u32::MAX);
        let mut world = Self {
            scenario,
            seed,
            now: BEGIN,
            end: BEGIN + scenario.duration,
            events: Events::default(),
            forward,
            reverse,
            flows: Vec::new(),
            webs: entries
                .map(|n| [Purpose::Arrivals(n), Purpose::Sizes(n)].map(|p| Draws::new(seed, p)))
                .collect(),
            loss: Draws::new(seed, Purpose::Loss),
            jitter: Draws::new(seed, Purpose::Jitter),
            jittered: BEGIN,
            meter: Meter::new(scenario, BEGIN),
        };
        world.prepare();
        Ok(world)
    }

    /// Puts in what is known in advance.
    fn prepare(&mut self) {
        self.events.put(BEGIN + self.scenario.warmup, What::Warm);
        for (at, step) in self.scenario.link.steps.iter().zip(0..).map(|(step, n)| (step.at, n)).skip(1) {
            self.events.put(BEGIN + at, What::Step(step));
        }
        if self.scenario.link.burst > Nanos::ZERO {
            self.events.put(BEGIN + self.scenario.link.burst, What::Rest);
        }
        self.open_flows();
    }

    /// Everything that happens before `until`.
    fn run_until(&mut self, until: Nanos) {
        loop {
            let reverse = self.reverse.as_ref().map_or(Nanos::MAX, Line::due);
            let link = self.forward.due().min(reverse);
            let event = self.events.due();
            let at = link.min(event);
            if at >= until {
                self.now = until;
                return;
            }
            self.now = self.now.max(at);
            if link <= event {
                self.links();
            } else if let Some((_, what)) = self.events.take() {
                self.happens(what);
            }
        }
    }

    /// Something is due at a link.
    #[inline]
    fn links(&mut self) {
        let now = self.now;
        if self.forward.due() <= now {
            if !self.forward.tick(now) {
                self.depart();
            }
        } else if let Some(reverse) = &mut self.reverse
            && !reverse.tick(now)
        {
            self.depart_reverse();
        }
    }

    fn happens(&mut self, what: What) {
        match what {
            What::Wake(flow) => self.wake(flow),
            What::Data(flow) => self.receive(flow),
            What::AckDue(flow) => self.ack_due(flow),
            What::Ack(flow) => self.acknowledged(flow),
            What::Arrival(entry) => self.open_web(entry),
            What::Step(step) => {
                if let Some(step) = self.scenario.link.steps.get(step as usize) {
                    self.forward.set_rate(self.now, line_rate(self.scenario, step.rate));
                }
            }
            What::Rest => {
                let burst = self.scenario.link.burst;
                self.forward.rest(self.now, burst);
                self.events.put(self.now + burst + burst, What::Rest);
            }
            What::Warm => self.meter.warmed(self.forward.totals()),
        }
    }

    /// A packet leaves the bottleneck.
    #[inline]
    fn depart(&mut self) {
        let now = self.now;
        let Some(parcel) = self.forward.depart(now) else { return };
        let ecn = parcel.meta().ecn;
        let queue = self.forward.queue_of(ecn);
        let bytes = parcel.frame_bytes();
        let flow = &mut self.flows[parcel.flow as usize];
        let dropped = parcel.load.seq.saturating_sub(flow.expected);
        flow.expected = parcel.load.seq + 1;
        let link = &self.scenario.link;
        let lost = link.loss > 0.0 && self.loss.happens(link.loss);
        self.meter.departed(&Departure {
            now,
            account: flow.account,
            queue,
            bytes,
            delay: now.since(parcel.sent),
            marked: parcel.marked,
            cause: parcel.cause,
            lost,
            dropped,
            p_prime: self.forward.p_prime(bytes, self.forward.queued()),
        });
        if lost || matches!(flow.source, Source::Constant(_)) {
            return;
        }
        let mut at = now + self.forward.serialisation(&parcel);
        if link.jitter > Nanos::ZERO {
            at = (at + part(link.jitter, self.jitter.unit())).max(self.jittered);
            self.jittered = at;
        }
        let codepoint = if parcel.marked { Codepoint::Ce } else { Codepoint::from_bits(ecn as u8) };
        let at = at + flow.half;
        if flow.deliver(Coming { at, load: parcel.load, sent: parcel.sent, codepoint }) {
            self.events.put(at, What::Data(parcel.flow));
        }
    }

    /// An acknowledgement leaves the reverse link.
    fn depart_reverse(&mut self) {
        let now = self.now;
        let Some(reverse) = &mut self.reverse else { return };
        let Some(parcel) = reverse.depart(now) else { return };
        let flow = &mut self.flows[parcel.flow as usize];
        let at = now + reverse.serialisation(&parcel) + flow.half;
        if flow.answer(at, parcel.load) {
            self.events.put(at, What::Ack(parcel.flow));
        }
    }

    /// Data reach their receiver.
    #[inline]
    fn receive(&mut self, id: u32) {
        let now = self.now;
        loop {
            let flow = &mut self.flows[id as usize];
            let Some(coming) = flow.data.front().copied() else { return };
            if coming.at > now {
                self.events.put(coming.at, What::Data(id));
                return;
            }
            flow.data.pop_front();
            if let Source::Responsive(ends) = &mut flow.source {
                let Coming { load, sent, codepoint, .. } = coming;
                let bytes = flow.packet_bytes;
                ends.rx.on_packet(to_cc(now), load.seq, load.oldest, codepoint, to_cc(sent), bytes);
            }
            self.acknowledge(id);
        }
    }

    fn ack_due(&mut self, id: u32) {
        let flow = &mut self.flows[id as usize];
        if flow.ack_wake <= self.now {
            flow.ack_wake = Nanos::MAX;
        }
        self.acknowledge(id);
    }

    /// Sends the acknowledgement that is due, or comes back when it will be.
    #[inline]
    fn acknowledge(&mut self, id: u32) {
        let now = self.now;
        let flow = &mut self.flows[id as usize];
        let Source::Responsive(ends) = &mut flow.source else { return };
        let Some(due) = ends.rx.ack_due().map(from_cc) else { return };
        if due > now {
            if due < flow.ack_wake {
                flow.ack_wake = due;
                self.events.put(due, What::AckDue(id));
            }
            return;
        }
        let Some(frame) = ends.rx.acknowledge(to_cc(now)) else { return };
        if let Some(reverse) = &mut self.reverse {
            let label = Label { flow: id, key: flow.key, ecn: aqm::Ecn::NotEct, packet_bytes: ACK_BYTES };
            reverse.arrive(now, label, frame);
        } else {
            let at = now + flow.half;
            if flow.answer(at, frame) {
                self.events.put(at, What::Ack(id));
            }
        }
    }

    /// Acknowledgements reach their sender.
    #[inline]
    fn acknowledged(&mut self, id: u32) {
        let now = self.now;
        let flow = &mut self.flows[id as usize];
        while let Some((at, frame)) = flow.acks.front().copied() {
            if at > now {
                self.events.put(at, What::Ack(id));
                break;
            }
            flow.acks.pop_front();
            if let Source::Responsive(ends) = &mut flow.source {
                ends.tx.on_ack(to_cc(now), &frame);
                self.meter.smoothed_rtt(now, flow.account, from_cc(ends.tx.rtt().smoothed()));
            }
        }
        self.pump(id);
    }

    fn wake(&mut self, id: u32) {
        let flow = &mut self.flows[id as usize];
        if flow.wake != self.now {
            // Out of date: an earlier one came in between.
            return;
        }
        flow.wake = Nanos::MAX;
        if let Source::Constant(source) = flow.source {
            self.emit(id, source);
        } else {
            self.pump(id);
        }
    }

    /// The next packet of a constant rate.
    fn emit(&mut self, id: u32, mut source: Constant) {
        let flow = &mut self.flows[id as usize];
        if self.now >= flow.stop {
            return;
        }
        let Self { forward, events, now, .. } = self;
        let load = Load { seq: source.sent, oldest: 0 };
        let label = Label { flow: id, key: flow.key, ecn: flow.ecn, packet_bytes: flow.packet_bytes };
        forward.arrive(*now, label, load);
        source.sent += 1;
        flow.wake = source.leaves(source.sent);
        events.put(flow.wake, What::Wake(id));
        flow.source = Source::Constant(source);
    }

    /// Lets a sender do what it can.
    #[inline]
    fn pump(&mut self, id: u32) {
        let Self { flows, forward, events, meter, now, .. } = self;
        let (now, flow) = (*now, &mut flows[id as usize]);
        let Source::Responsive(ends) = &mut flow.source else { return };
        let tx = &mut ends.tx;
        let at = to_cc(now);
        if tx.deadline().is_some_and(|due| due <= at) {
            tx.on_timer(at);
        }
        if now >= flow.stop {
            return;
        }
        let wake = loop {
            match tx.next(at) {
                Next::Send => {
                    let packet = tx.commit(at);
                    let label = Label {
                        flow: id,
                        key: flow.key,
                        ecn: ecn_of(packet.codepoint),
                        packet_bytes: packet.bytes,
                    };
                    forward.arrive(now, label, Load { seq: packet.seq, oldest: packet.oldest });
                }
                Next::At(at) => break Some(at),
                Next::Wait => break None,
                Next::Done => {
                    if let Account::Web(entry) = flow.account {
                        meter.completed(now, entry, flow.start);
                    }
                    flow.source = Source::Gone;
                    return;
                }
            }
        };
        let due = [wake, tx.deadline()].into_iter().flatten().min();
        if let Some(due) = due.map(|due| from_cc(due).max(now + Nanos(1)))
            && due < flow.wake
        {
            flow.wake = due;
            events.put(due, What::Wake(id));
        }
    }

    fn outcome(mut self) -> Outcome {
        let totals = self.forward.totals();
        debug_assert!(
            totals.iter().all(|t| t.arrived == t.forwarded + t.dropped + t.queued),
            "a packet is forwarded, dropped or queued: {totals:?}"
        );
        let capacity = self.scenario.capacity_bits();
        self.meter.outcome(self.scenario, self.seed, totals, capacity)
    }
}

/// The rate at which the link sends while it does: a bursty one rests half of the time.
fn line_rate(scenario: &Scenario, rate: BitsPerSec) -> BitsPerSec {
    if scenario.link.burst > Nanos::ZERO { BitsPerSec(rate.0 * 2) } else { rate }
}

/// A part from 0 to 1 of a time.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times here are far below 2^53 ns, and parts not negative"
)]
fn part(time: Nanos, part: f64) -> Nanos {
    Nanos((time.0 as f64 * part) as u64)
}
