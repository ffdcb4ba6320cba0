// SPDX-License-Identifier: Apache-2.0
//! Prague: the scalable control of L4S, after L4STeam's UDP Prague (`prague_cc.cpp`), with TCP Prague's slow start.
//!
//! Steps of one acknowledgement, in this order: mode (window or rate), alpha once per max(RTT, virtual RTT), end of
//! the loss state, increase for each unmarked packet, end of the CWR state, reduction by alpha/2, then pace, packet
//! size and burst. Steady state at RTTs up to 25 ms: r [Mb/s] = 1/p - 1.
//!
//! Invariants: at most one reduction a real and virtual round trip; alpha in 0..=1; pace in 100 kb/s..=100 Gb/s.
//! Departures: f64 where the source has 20-bit fixed point (alpha keeps no rounding residue); with a codepoint other
//! than ECT(1), by choice or because the path rewrites it, CE is answered by a halving as RFC 3168 asks, since it then
//! comes from a Classic AQM (the source sends Not-ECT and never sees CE again).

use crate::epoch::Epoch;
use crate::{Ack, Codepoint, Kind, Loss, Nanos, Sender, SenderOptions, State};

/// Virtual RTT, s: flows with less behave as if it were theirs.
const REF_RTT: f64 = 0.025;
/// Gain of alpha's moving average.
const GAIN: f64 = 1.0 / 16.0;
/// At RTTs up to this many seconds the rate is kept, not the window.
const RATE_MODE_RTT: f64 = 0.002;
/// Least pace, bytes a second (100 kb/s).
const MIN_RATE: f64 = 12_500.0;
/// Greatest pace, bytes a second (100 Gb/s).
const MAX_RATE: f64 = 12_500_000_000.0;
/// Least packet, bytes.
const MIN_PACKET: f64 = 150.0;
/// A burst is what the pace sends in this time, s.
const BURST_TIME: f64 = 250e-6;
/// Growth beyond one packet a virtual RTT: what the pace sends in this time, s.
const GROWTH_TIME: f64 = 0.001;
/// After CE the faster growth waits one round more for each of these bytes a second.
const GROWTH_RATE_STEP: f64 = 1_920_000.0;
/// And for this many rounds at least.
const GROWTH_ROUNDS: f64 = 7.0;
/// The pace swings this far to both sides within an alpha period, and the window leaves this much room.
const SWING: f64 = 0.03;

/// How a flow begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// As TCP Prague: the initial window, doubled each round trip until the first CE or loss halves it.
    #[default]
    SlowStart,
    /// As UDP Prague: 100 kb/s, then additive growth.
    Additive,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Avoid,
    Cwr(Epoch),
    Loss(Epoch),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Prague {
    mtu: f64,
    codepoint: Codepoint,
    rtt_independence: bool,
    start: Start,
    max_cwnd: f64,
    /// Fractional window, bytes.
    window: f64,
    /// Pace, bytes a second.
    rate: f64,
    rate_mode: bool,
    /// Smoothed and virtual RTT, s; zero before the first sample.
    srtt: f64,
    vrtt: f64,
    alpha: f64,
    alpha_epoch: Option<Epoch>,
    /// Packets and CE since alpha was last updated.
    period: (u64, u64),
    phase: Phase,
    /// Slow start up to this window, bytes.
    slow_start: Option<f64>,
    rounds_to_growth: f64,
    /// What the last loss took away: bytes of window, bytes a second of pace.
    undo: Option<(f64, f64)>,
}

impl Prague {
    /// A flow that has sent nothing yet.
    pub fn new(options: &SenderOptions) -> Self {
        let mtu = f64::from(options.mss.max(1));
        Self {
            mtu,
            codepoint: options.codepoint.unwrap_or(Kind::Prague.default_codepoint()),
            rtt_independence: options.rtt_independence,
            start: options.start,
            max_cwnd: to_f64(options.max_cwnd),
            window: f64::from(options.initial_packets.max(1)) * mtu,
            rate: MIN_RATE,
            rate_mode: false,
            srtt: 0.0,
            vrtt: REF_RTT,
            alpha: 0.0,
            alpha_epoch: None,
            period: (0, 0),
            phase: Phase::Avoid,
            slow_start: (options.start == Start::SlowStart).then_some(f64::INFINITY),
            rounds_to_growth: 0.0,
            undo: None,
        }
    }

    /// Bytes of a packet at the present pace: two a virtual RTT at least (step 9).
    fn packet(&self) -> f64 {
        (self.rate * self.vrtt / 2.0).max(MIN_PACKET).min(self.mtu)
    }

    fn learn_rtt(&mut self, srtt: Nanos) {
        let first = self.srtt == 0.0;
        self.srtt = srtt.as_secs_f64().max(1e-6);
        self.vrtt = if self.rtt_independence { self.srtt.max(REF_RTT) } else { self.srtt };
        if first {
            match self.start {
                Start::SlowStart => self.rate = self.window / self.srtt,
                Start::Additive => self.window = self.rate * self.srtt,
            }
        }
        let rate_mode = self.srtt <= RATE_MODE_RTT || self.srtt <= self.packet() / self.rate;
        if self.rate_mode && !rate_mode {
            self.window = self.rate * self.srtt;
        }
        self.rate_mode = rate_mode;
    }

    /// Step 2.
    fn update_alpha(&mut self, ack: &Ack) {
        self.period.0 += ack.packets;
        self.period.1 += ack.ce_packets;
        let Some(epoch) = self.alpha_epoch else {
            self.alpha_epoch = Some(Epoch::start(ack.now, ack.next_seq));
            return;
        };
        if epoch.is_over(ack, self.vrtt_nanos()) && self.period.0 > 0 {
            let fraction = (to_f64(self.period.1) / to_f64(self.period.0)).min(1.0);
            self.alpha += (fraction - self.alpha) * GAIN;
            self.rounds_to_growth = (self.rounds_to_growth - 1.0).max(0.0);
            self.period = (0, 0);
            self.alpha_epoch = Some(Epoch::start(ack.now, ack.next_seq));
        }
    }

    /// Step 6.
    fn increase(&mut self, unmarked: u64) {
        let acks = to_f64(unmarked);
        let packet = self.packet();
        if let Some(ssthresh) = self.slow_start {
            self.window += acks * packet;
            self.rate = self.window / self.srtt;
            if self.window >= ssthresh {
                self.slow_start = None;
            }
            return;
        }
        let fast = if self.rounds_to_growth == 0.0 { self.rate * GROWTH_TIME } else { 0.0 };
        let inc = fast.max(self.mtu);
        if self.rate_mode {
            self.rate += acks * inc / self.vrtt / (self.rate * self.vrtt / packet);
        } else {
            let share = self.srtt / self.vrtt;
            self.window += acks * packet * inc / self.window * share * share;
        }
    }

    /// Multiplies window or rate, whichever rules.
    fn scale(&mut self, factor: f64) {
        if self.rate_mode && self.slow_start.is_none() {
            self.rate *= factor;
        } else {
            self.window *= factor;
        }
    }

    /// Step 8, and the one-off halving that ends slow start.
    fn answer_ce(&mut self, ack: &Ack) {
        if !matches!(self.phase, Phase::Avoid) {
            return;
        }
        self.rounds_to_growth = libm::floor(self.rate / GROWTH_RATE_STEP) + GROWTH_ROUNDS;
        let halve = self.slow_start.is_some() || self.codepoint != Codepoint::Ect1;
        self.scale(if halve { 0.5 } else { 1.0 - self.alpha / 2.0 });
        self.slow_start = None;
        self.phase = Phase::Cwr(Epoch::start(ack.now, ack.next_seq));
    }

    /// Step 9: the one of window and rate that does not rule follows the other.
    fn follow(&mut self) {
        if !self.rate_mode || self.slow_start.is_some() {
            self.window = self.window.clamp(MIN_RATE * self.srtt, self.max_cwnd);
            self.rate = self.window / self.srtt;
        }
        self.rate = self.rate.clamp(MIN_RATE, MAX_RATE);
        if self.rate_mode && self.slow_start.is_none() {
            self.window = (self.rate * self.srtt).min(self.max_cwnd);
        }
    }

    fn vrtt_nanos(&self) -> Nanos {
        Nanos::from_secs_f64(self.vrtt)
    }
}

impl Sender for Prague {
    fn on_handshake(&mut self, rtt: Nanos) {
        self.learn_rtt(rtt);
    }

    fn on_ack(&mut self, ack: &Ack) {
        if ack.srtt == Nanos::ZERO {
            return;
        }
        if ack.ecn_broken && self.codepoint == Codepoint::Ect1 {
            self.codepoint = Codepoint::NotEct;
        }
        self.learn_rtt(ack.srtt);
        self.update_alpha(ack);
        let vrtt = self.vrtt_nanos();
        if matches!(self.phase, Phase::Loss(epoch) if epoch.is_over(ack, vrtt)) {
            self.phase = Phase::Avoid;
        }
        if !matches!(self.phase, Phase::Loss(_)) && !ack.app_limited {
            self.increase(ack.packets.saturating_sub(ack.ce_packets));
        }
        if matches!(self.phase, Phase::Cwr(epoch) if epoch.is_over(ack, vrtt)) {
            self.phase = Phase::Avoid;
        }
        if ack.ce_packets > 0 {
            self.answer_ce(ack);
        }
        self.follow();
    }

    /// Step 5.
    fn on_loss(&mut self, loss: &Loss) {
        if let Phase::Loss(epoch) = self.phase {
            let same_virtual_rtt = loss.now.since(epoch.started()) < self.vrtt_nanos();
            if same_virtual_rtt || !epoch.is_before(loss.largest) {
                return;
            }
        }
        self.rounds_to_growth = libm::floor(self.rate / 2.0 / self.mtu * (REF_RTT / self.vrtt) * REF_RTT);
        self.undo = Some((self.window / 2.0, self.rate / 2.0));
        self.scale(0.5);
        self.slow_start = None;
        self.phase = Phase::Loss(Epoch::start(loss.now, loss.next_seq));
        if self.srtt > 0.0 {
            self.follow();
        }
    }

    /// Step 3: once a reduction.
    fn on_spurious_loss(&mut self, _now: Nanos) {
        if let Some((window, rate)) = self.undo.take() {
            if self.rate_mode {
                self.rate += rate;
            } else {
                self.window += window;
            }
            self.phase = Phase::Avoid;
            if self.srtt > 0.0 {
                self.follow();
            }
        }
    }

    fn on_rto(&mut self, _now: Nanos) {
        let half = self.window / 2.0;
        let held = self.slow_start.filter(|_| self.window <= self.mtu);
        self.alpha = 0.0;
        self.alpha_epoch = None;
        self.period = (0, 0);
        self.phase = Phase::Avoid;
        self.undo = None;
        self.window = self.mtu;
        self.slow_start =
            (self.start == Start::SlowStart).then_some(held.unwrap_or(half.max(2.0 * self.mtu)));
        self.rate_mode = false;
        self.rate = MIN_RATE;
        if self.srtt > 0.0 {
            self.follow();
        }
    }

    fn cwnd(&self) -> u64 {
        let packet = self.packet();
        let packets = libm::floor(self.window * (1.0 + SWING) / packet + 1.0).max(2.0);
        to_u64(packets * packet)
    }

    /// Step 10, and twice the window a round trip while it may double (as Linux does).
    fn pacing_bps(&self, now: Nanos) -> Option<u64> {
        if self.srtt == 0.0 {
            return None;
        }
        let factor = match (self.slow_start, self.alpha_epoch) {
            (Some(ssthresh), _) if self.window < ssthresh / 2.0 => 2.0,
            (None, Some(epoch)) if now.since(epoch.started()).as_secs_f64() >= self.vrtt / 2.0 => 1.0 - SWING,
            (None, Some(_)) => 1.0 + SWING,
            _ => 1.0,
        };
        Some(to_u64(self.rate * factor * 8.0))
    }

    fn burst(&self) -> u64 {
        let packet = self.packet();
        to_u64(libm::floor(self.rate * BURST_TIME / packet).max(1.0) * packet)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and the MTU")]
    fn packet_bytes(&self) -> u32 {
        if self.srtt == 0.0 { self.mtu as u32 } else { self.packet() as u32 }
    }

    fn codepoint(&self) -> Codepoint {
        self.codepoint
    }

    fn state(&self) -> State {
        let ssthresh = self.slow_start.filter(|x| x.is_finite()).map(to_u64);
        State { ssthresh, alpha: Some(self.alpha), slow_start: self.slow_start.is_some() }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts and windows stay below 2^53")]
fn to_f64(x: u64) -> f64 {
    x as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn to_u64(x: f64) -> u64 {
    x as u64
}
