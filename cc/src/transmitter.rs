// SPDX-License-Identifier: Apache-2.0
//! A sending endpoint without socket or clock: congestion control, flight, retransmission timer and pacer in one.
//!
//! The caller asks [`Transmitter::next`] until it answers something else than `Send`, commits what it sends with
//! [`Transmitter::commit`], hands in acknowledgements, and calls [`Transmitter::on_timer`] at
//! [`Transmitter::deadline`].
//!
//! Invariant: sent = acknowledged + lost + flying, where a lost packet that comes late moves to acknowledged.

use crate::epoch::Epoch;
use crate::flight::NewlyLost;
use crate::{
    Ack, AckFrame, Codepoint, Flight, FlightOptions, Loss, Nanos, Pacer, RttEstimator, RttOptions, Sender,
};

/// What to build a transmitter from.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransmitterOptions {
    /// Loss detection.
    pub flight: FlightOptions,
    /// Retransmission timer.
    pub rtt: RttOptions,
    /// How late the caller may come and lose nothing of the pace.
    pub catch_up: Nanos,
    /// Packets to deliver; `None`: without end.
    pub packets: Option<u64>,
    /// Round-trip time of the handshake before the first packet; `None`: there was none.
    pub handshake: Option<Nanos>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send a packet and `commit` it.
    Send,
    /// Ask again at this time.
    At(Nanos),
    /// Ask again after an acknowledgement or the timer.
    Wait,
    /// All is delivered.
    Done,
}

/// A packet to put on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Its number.
    pub seq: u64,
    /// Lowest number of interest, for the receiver.
    pub oldest: u64,
    /// Its bytes.
    pub bytes: u32,
    /// The ECN field to set.
    pub codepoint: Codepoint,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets sent.
    pub sent: u64,
    /// Packets acknowledged.
    pub acked: u64,
    /// Their bytes.
    pub acked_bytes: u64,
    /// Packets declared lost and not seen since.
    pub lost: u64,
    /// Packets declared lost that came late.
    pub late: u64,
    /// Packets reported as CE.
    pub marked: u64,
    /// Time-outs.
    pub timeouts: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Transmitter {
    sender: Box<dyn Sender>,
    flight: Flight,
    rtt: RttEstimator,
    pacer: Pacer,
    /// Packets not yet sent or to be sent again.
    budget: Option<u64>,
    /// Start of the retransmission timer; `None` while nothing flies.
    timer: Option<Nanos>,
    totals: Totals,
    seen: AckFrame,
    sent_codepoint: Option<Codepoint>,
    app_limited: bool,
    /// The number next to be sent when the window last held back.
    held_at: u64,
    /// Losses of the last episode that have not come late, and when it began.
    episode: (u64, Epoch),
}

impl Transmitter {
    /// Around a congestion control.
    pub fn new(mut sender: Box<dyn Sender>, options: &TransmitterOptions) -> Self {
        let mut rtt = RttEstimator::new(options.rtt);
        if let Some(handshake) = options.handshake {
            rtt.sample(handshake);
            sender.on_handshake(handshake);
        }
        Self {
            sender,
            flight: Flight::new(options.flight),
            rtt,
            pacer: Pacer::new(options.catch_up),
            budget: options.packets,
            timer: None,
            totals: Totals::default(),
            seen: AckFrame::default(),
            sent_codepoint: None,
            app_limited: false,
            held_at: 0,
            episode: (0, Epoch::default()),
        }
    }

    /// What to do now.
    pub fn next(&mut self, now: Nanos) -> Next {
        if self.budget == Some(0) {
            self.app_limited = true;
            self.flight.mark_app_limited();
            self.pacer.rest();
            return if self.flight.in_flight() == 0 { Next::Done } else { Next::Wait };
        }
        if let Some(at) = self.sender.silent_until(now) {
            self.app_limited = true;
            self.pacer.rest();
            return Next::At(at);
        }
        let is_full = self.flight.is_full();
        self.app_limited = is_full;
        let bytes = u64::from(self.sender.packet_bytes());
        let fits = self.flight.in_flight().saturating_add(bytes) <= self.sender.cwnd();
        if (!fits && self.flight.in_flight() > 0) || is_full {
            if is_full {
                self.flight.mark_app_limited();
            } else {
                self.held_at = self.flight.next_seq();
            }
            self.pacer.rest();
            return Next::Wait;
        }
        let due = if self.sender.pacing_bps(now).is_some() { self.pacer.due(now) } else { now };
        if due > now { Next::At(due) } else { Next::Send }
    }

    /// A packet leaves now.
    pub fn commit(&mut self, now: Nanos) -> Outgoing {
        let bytes = self.sender.packet_bytes();
        let codepoint = self.sender.codepoint();
        if let Some(rate) = self.sender.pacing_bps(now) {
            self.pacer.sent(now, bytes, rate, self.sender.burst());
        }
        self.budget = self.budget.map(|left| left.saturating_sub(1));
        self.totals.sent += 1;
        self.sent_codepoint.get_or_insert(codepoint);
        self.timer.get_or_insert(now);
        let seq = self.flight.sent(now, bytes);
        Outgoing { seq, oldest: self.flight.oldest(), bytes, codepoint }
    }

    /// The host could not take a packet: the window was not what held it back.
    pub fn host_limited(&mut self) {
        self.app_limited = true;
        self.flight.mark_app_limited();
    }

    /// An acknowledgement arrived. Returns false for one that is old or answers nothing that was sent.
    pub fn on_ack(&mut self, now: Nanos, frame: &AckFrame) -> bool {
        if !self.flight.is_plausible(frame) || frame.received < self.seen.received {
            return false;
        }
        let prior_in_flight = self.flight.in_flight();
        let newly = self.flight.on_ack(frame);
        let marked = frame.ecn.ce.saturating_sub(self.seen.ecn.ce).min(newly.packets);
        // What does not fit this frame's packets is kept for the next.
        self.seen = AckFrame { ecn: frame.ecn, ..*frame };
        self.seen.ecn.ce = self.totals.marked + marked;
        self.totals.acked += newly.packets;
        self.totals.acked_bytes += newly.bytes;
        self.totals.marked += marked;
        let sample = self.sample_rtt(now, frame, newly.packets > 0);
        self.take_back(now, newly.late);
        self.find_losses(now);
        if newly.packets > 0 {
            let min_rtt = self.rtt.least().unwrap_or(Nanos::ZERO);
            let rate = self.flight.rate_sample(now, marked, min_rtt);
            self.timer = (self.flight.in_flight() > 0).then_some(now);
            self.sender.on_ack(&Ack {
                now,
                packets: newly.packets,
                bytes: newly.bytes,
                ce_packets: marked,
                rtt: sample,
                srtt: self.rtt.smoothed(),
                min_rtt,
                in_flight: self.flight.in_flight(),
                acked_through: self.flight.acked_through(),
                next_seq: self.flight.next_seq(),
                app_limited: self.app_limited,
                ecn_broken: self.is_ecn_broken(frame),
                prior_in_flight,
                delivered: self.flight.delivered(),
                lost: self.flight.lost(),
                rate,
                cwnd_limited: self.flight.acked_through() <= self.held_at,
            });
            if self.sender.is_holding_back() {
                self.flight.mark_app_limited();
            }
        }
        true
    }

    fn sample_rtt(&mut self, now: Nanos, frame: &AckFrame, news: bool) -> Option<Nanos> {
        if !news || frame.echo > now {
            return None;
        }
        let whole = now.since(frame.echo);
        // A receiver that claims to have held the packet for longer than it took is not believed.
        let rtt = Nanos(whole.0.checked_sub(frame.held.0).unwrap_or(whole.0)).max(Nanos(1));
        self.rtt.sample(rtt);
        Some(rtt)
    }

    fn take_back(&mut self, now: Nanos, late: u64) {
        if late == 0 {
            return;
        }
        self.totals.lost -= late;
        self.totals.late += late;
        self.budget = self.budget.map(|left| left.saturating_sub(late));
        let was = self.episode.0;
        self.episode.0 = was.saturating_sub(late);
        if was > 0 && self.episode.0 == 0 {
            self.sender.on_spurious_loss(now);
        }
    }

    fn find_losses(&mut self, now: Nanos) {
        let (patience, sender) = (self.patience(), &mut self.sender);
        let lost = self.flight.detect_losses(now, patience, |packet| sender.on_packet_lost(packet));
        if lost.packets == 0 {
            return;
        }
        self.count_lost(now, &lost);
        self.sender.on_loss(&Loss {
            now,
            packets: lost.packets,
            bytes: lost.bytes,
            largest: lost.largest,
            next_seq: self.flight.next_seq(),
            srtt: self.rtt.smoothed(),
        });
    }

    fn count_lost(&mut self, now: Nanos, lost: &NewlyLost) {
        self.totals.lost += lost.packets;
        self.budget = self.budget.map(|left| left.saturating_add(lost.packets));
        if self.episode.1.is_before(lost.largest) {
            self.episode = (0, Epoch::start(now, self.flight.next_seq()));
        }
        self.episode.0 += lost.packets;
    }

    /// The round-trip time that loss detection by age goes by (RFC 9002 6.1.2: the larger of smoothed and latest).
    fn patience(&self) -> Nanos {
        self.rtt.smoothed().max(self.rtt.latest()).max(Nanos::from_millis(1))
    }

    /// The receiver counts a codepoint that was never sent.
    fn is_ecn_broken(&self, frame: &AckFrame) -> bool {
        match self.sent_codepoint {
            Some(Codepoint::Ect1) => frame.ecn.not_ect > 0 || frame.ecn.ect0 > 0,
            Some(Codepoint::Ect0) => frame.ecn.not_ect > 0 || frame.ecn.ect1 > 0,
            _ => false,
        }
    }

    /// When `on_timer` must be called.
    pub fn deadline(&self) -> Option<Nanos> {
        let rto = self.timer.map(|start| start + self.rtt.rto());
        let loss = self.flight.loss_time(self.patience());
        match (rto, loss) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// A deadline has passed (harmless when none has).
    pub fn on_timer(&mut self, now: Nanos) {
        if self.flight.loss_time(self.patience()).is_some_and(|at| at <= now) {
            self.find_losses(now);
        }
        if self.timer.is_some_and(|start| start + self.rtt.rto() <= now) {
            self.time_out(now);
        }
    }

    fn time_out(&mut self, now: Nanos) {
        let sender = &mut self.sender;
        let lost = self.flight.lose_all(|packet| sender.on_packet_lost(packet));
        self.timer = None;
        if lost.packets == 0 {
            return;
        }
        self.rtt.back_off();
        self.totals.timeouts += 1;
        self.count_lost(now, &lost);
        self.sender.on_rto(now);
    }

    /// Counts since the start.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The congestion control.
    pub fn sender(&self) -> &dyn Sender {
        self.sender.as_ref()
    }

    /// Round-trip times.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Packets and bytes on their way.
    pub fn flight(&self) -> &Flight {
        &self.flight
    }
}

#[cfg(test)]
mod tests;
