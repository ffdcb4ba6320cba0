// SPDX-License-Identifier: Apache-2.0
//! BBR version 1: draft-cardwell-iccrg-bbr-congestion-control-00 in the form of Linux `tcp_bbr.c`.
//!
//! The path is modelled by the greatest delivery rate of 10 rounds and the least round trip of 10 seconds; the pace
//! is a gain times that rate, the window twice the product. Loss changes the window for one round only (packet
//! conservation), CE changes nothing.
//!
//! Invariants: the window is at least four packets outside recovery, exactly four at most in `ProbeRTT`.
//! Departures: no long-term sampling for policers (Linux `lt_bw`, not in the draft; it acts from 20 % loss on); no
//! special pace after an idle time; recovery ends, as in QUIC, when a packet sent after its start is acknowledged.

use super::{
    AGGREGATION_RESET, AGGREGATION_ROUNDS, Aggregation, Dice, FullPipe, MIN_PACKETS, MIN_RTT_WINDOW, Mode,
    NOMINAL_RTT, PACING_MARGIN, PROBE_RTT_TIME, Rounds, bdp, burst, sample_bw, to_f64, to_u64,
};
use crate::epoch::Epoch;
use crate::{Ack, Codepoint, Kind, Loss, Nanos, Sender, SenderOptions, State};

/// 2/ln 2: doubles the rate each round (`bbr_high_gain`).
const HIGH_GAIN: f64 = 2.885;
/// Gain of the window in steady state (`bbr_cwnd_gain`).
const CWND_GAIN: f64 = 2.0;
/// Gains of the pace, one a min RTT (`bbr_pacing_gain`).
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// A cycle begins at any phase but the one that drains (`bbr_cycle_rand`).
const CYCLE_RAND: usize = 7;
/// Rounds of the rate filter (`bbr_bw_rtts`).
const BW_ROUNDS: usize = 10;

/// Greatest rate of the last rounds.
#[derive(Clone, Copy, Debug, Default)]
struct MaxBw {
    rounds: [(u64, f64); BW_ROUNDS],
    slot: usize,
    max: f64,
}

impl MaxBw {
    fn update(&mut self, round: u64, bw: f64) {
        let newest = &mut self.rounds[self.slot];
        if newest.0 == round {
            newest.1 = newest.1.max(bw);
            self.max = self.max.max(bw);
        } else {
            self.slot = (self.slot + 1) % BW_ROUNDS;
            self.rounds[self.slot] = (round, bw);
            let oldest = (round + 1).saturating_sub(BW_ROUNDS as u64);
            let recent = self.rounds.iter().filter(|entry| entry.0 >= oldest);
            self.max = recent.fold(0.0, |max, entry| max.max(entry.1));
        }
    }
}

/// Where loss recovery stands.
#[derive(Clone, Copy, Debug)]
enum Recovery {
    None,
    /// After a loss; the next acknowledgement is the first if `true`.
    Fast(Epoch, bool),
    /// After a timeout at this time.
    Timeout(Nanos),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Bbr1 {
    mss: u64,
    codepoint: Codepoint,
    max_cwnd: u64,
    initial: u64,
    cwnd: u64,
    prior_cwnd: u64,
    /// Bytes a second.
    pace: f64,
    pacing_gain: f64,
    cwnd_gain: f64,
    mode: Mode,
    rounds: Rounds,
    max_bw: MaxBw,
    full: FullPipe,
    aggregation: Aggregation,
    /// Least round trip and when it was seen.
    min_rtt: (Nanos, Nanos),
    seen_rtt: bool,
    cycle: usize,
    cycle_at: Nanos,
    probe_rtt_done: Option<Nanos>,
    probe_rtt_round: bool,
    recovery: Recovery,
    conserving: bool,
    /// Bytes lost since the last acknowledgement.
    losses: u64,
    dice: Dice,
}

impl Bbr1 {
    /// In Startup with the initial window of RFC 6928.
    pub fn new(options: &SenderOptions) -> Self {
        let mss = u64::from(options.mss.max(1));
        let initial = mss * u64::from(options.initial_packets.max(1));
        Self {
            mss,
            codepoint: options.codepoint.unwrap_or(Kind::Bbr1.default_codepoint()),
            max_cwnd: options.max_cwnd.max(MIN_PACKETS * mss),
            initial,
            cwnd: initial,
            prior_cwnd: 0,
            pace: HIGH_GAIN * to_f64(initial) / NOMINAL_RTT.as_secs_f64() * PACING_MARGIN,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            mode: Mode::Startup,
            rounds: Rounds::default(),
            max_bw: MaxBw::default(),
            full: FullPipe::default(),
            aggregation: Aggregation::default(),
            min_rtt: (Nanos::MAX, Nanos::ZERO),
            seen_rtt: false,
            cycle: 0,
            cycle_at: Nanos::ZERO,
            probe_rtt_done: None,
            probe_rtt_round: false,
            recovery: Recovery::None,
            conserving: false,
            losses: 0,
            dice: Dice(options.seed),
        }
    }

    fn least(&self) -> u64 {
        MIN_PACKETS * self.mss
    }

    /// `bbr_quantization_budget`.
    fn quantized(&self, bytes: u64) -> u64 {
        let extra = if self.mode == Mode::ProbeBw && self.cycle == 0 { 2 * self.mss } else { 0 };
        let padded = bytes.saturating_add(3 * self.burst());
        padded.div_ceil(2 * self.mss) * 2 * self.mss + extra
    }

    /// `bbr_inflight`.
    fn inflight(&self, gain: f64) -> u64 {
        self.quantized(self.bdp(gain))
    }

    fn bdp(&self, gain: f64) -> u64 {
        if self.min_rtt.0 == Nanos::MAX { self.initial } else { bdp(self.max_bw.max, self.min_rtt.0, gain) }
    }

    /// `bbr_packets_in_net_at_edt`, where the packet to leave next leaves now.
    fn in_network(&self, in_flight: u64) -> u64 {
        in_flight + if self.pacing_gain > 1.0 { self.burst() } else { 0 }
    }

    fn save_cwnd(&mut self) {
        let undisturbed = matches!(self.recovery, Recovery::None) && self.mode != Mode::ProbeRtt;
        self.prior_cwnd = if undisturbed { self.cwnd } else { self.prior_cwnd.max(self.cwnd) };
    }

    fn update_model(&mut self, ack: &Ack, losses: u64) {
        self.rounds.update(ack);
        if self.rounds.started {
            self.conserving = false;
        }
        if let Some(rate) = ack.rate {
            let bw = sample_bw(ack);
            if !rate.app_limited || bw >= self.max_bw.max {
                self.max_bw.update(self.rounds.count, bw);
            }
        }
        let limits = (self.cwnd, AGGREGATION_RESET * self.mss);
        self.aggregation.update(ack, self.rounds.started, AGGREGATION_ROUNDS, self.max_bw.max, limits);
        if self.mode == Mode::ProbeBw && self.is_phase_over(ack, losses) {
            self.advance_cycle(ack.now);
        }
        let app_limited = ack.rate.is_none_or(|rate| rate.app_limited);
        self.full.check_once(self.max_bw.max, self.rounds.started, app_limited);
        self.check_drain(ack);
        self.update_min_rtt(ack);
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (1.0 / HIGH_GAIN, HIGH_GAIN),
            Mode::ProbeBw => (CYCLE[self.cycle], CWND_GAIN),
            Mode::ProbeRtt => (1.0, 1.0),
        };
    }

    /// `bbr_is_next_cycle_phase`.
    fn is_phase_over(&self, ack: &Ack, losses: u64) -> bool {
        let is_long = ack.now.since(self.cycle_at) > self.min_rtt.0;
        let in_network = self.in_network(ack.prior_in_flight);
        if self.pacing_gain > 1.0 {
            is_long && (losses > 0 || in_network >= self.inflight(self.pacing_gain))
        } else if self.pacing_gain < 1.0 {
            is_long || in_network <= self.inflight(1.0)
        } else {
            is_long
        }
    }

    fn advance_cycle(&mut self, now: Nanos) {
        self.cycle = (self.cycle + 1) % CYCLE.len();
        self.cycle_at = now;
    }

    fn start_probe_bw(&mut self, now: Nanos) {
        self.mode = Mode::ProbeBw;
        self.cycle = CYCLE.len() - 1 - self.dice.below(CYCLE_RAND);
        self.advance_cycle(now);
    }

    fn check_drain(&mut self, ack: &Ack) {
        if self.mode == Mode::Startup && self.full.reached {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && self.in_network(ack.in_flight) <= self.inflight(1.0) {
            self.start_probe_bw(ack.now);
        }
    }

    /// `bbr_update_min_rtt`: the filter, and `ProbeRTT` when it runs out.
    fn update_min_rtt(&mut self, ack: &Ack) {
        let expired = self.seen_rtt && ack.now > self.min_rtt.1 + MIN_RTT_WINDOW;
        if let Some(rtt) = ack.rtt.filter(|rtt| *rtt <= self.min_rtt.0 || expired) {
            self.min_rtt = (rtt, ack.now);
        }
        if expired && self.mode != Mode::ProbeRtt {
            self.save_cwnd();
            self.mode = Mode::ProbeRtt;
            self.probe_rtt_done = None;
        }
        if self.mode != Mode::ProbeRtt {
            return;
        }
        match self.probe_rtt_done {
            None if ack.in_flight <= self.least() => {
                self.probe_rtt_done = Some(ack.now + PROBE_RTT_TIME);
                self.probe_rtt_round = false;
                self.rounds.restart(ack.delivered);
            }
            None => {}
            Some(end) => {
                self.probe_rtt_round |= self.rounds.started;
                if self.probe_rtt_round && ack.now > end {
                    self.min_rtt.1 = ack.now;
                    self.cwnd = self.cwnd.max(self.prior_cwnd);
                    if self.full.reached {
                        self.start_probe_bw(ack.now);
                    } else {
                        self.mode = Mode::Startup;
                    }
                }
            }
        }
    }

    fn set_pace(&mut self, ack: &Ack) {
        if !self.seen_rtt && ack.srtt > Nanos::ZERO {
            self.seen_rtt = true;
            self.pace = HIGH_GAIN * to_f64(self.cwnd) / ack.srtt.as_secs_f64() * PACING_MARGIN;
        }
        let pace = self.max_bw.max * self.pacing_gain * PACING_MARGIN;
        if self.full.reached || pace > self.pace {
            self.pace = pace.max(1.0);
        }
    }

    /// `bbr_set_cwnd_to_recover_or_restore`: true while packets are conserved.
    fn recover(&mut self, ack: &Ack, losses: u64) -> bool {
        self.cwnd = self.cwnd.saturating_sub(losses).max(self.mss);
        let over = match self.recovery {
            Recovery::None => false,
            Recovery::Fast(epoch, true) => {
                self.recovery = Recovery::Fast(epoch, false);
                self.conserving = true;
                self.rounds.restart(ack.delivered);
                self.cwnd = ack.in_flight + ack.bytes;
                false
            }
            Recovery::Fast(epoch, false) => epoch.round_is_over(ack.acked_through),
            Recovery::Timeout(at) => ack.rtt.is_some_and(|rtt| Nanos(ack.now.0.saturating_sub(rtt.0)) >= at),
        };
        if over {
            self.recovery = Recovery::None;
            self.conserving = false;
            self.cwnd = self.cwnd.max(self.prior_cwnd);
        }
        if self.conserving {
            self.cwnd = self.cwnd.max(ack.in_flight + ack.bytes);
        }
        self.conserving
    }

    fn set_cwnd(&mut self, ack: &Ack, losses: u64) {
        if !self.recover(ack, losses) {
            let target = self.bdp(self.cwnd_gain) + self.aggregation.allowance(self.max_bw.max);
            let target = self.quantized(target);
            if self.full.reached {
                self.cwnd = (self.cwnd + ack.bytes).min(target);
            } else if self.cwnd < target || ack.delivered < self.initial {
                self.cwnd += ack.bytes;
            }
            self.cwnd = self.cwnd.max(self.least());
        }
        self.cwnd = self.cwnd.min(self.max_cwnd);
        if self.mode == Mode::ProbeRtt {
            self.cwnd = self.cwnd.min(self.least());
        }
    }
}

impl Sender for Bbr1 {
    fn on_ack(&mut self, ack: &Ack) {
        let losses = core::mem::take(&mut self.losses);
        self.update_model(ack, losses);
        self.set_pace(ack);
        self.set_cwnd(ack, losses);
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.losses += loss.bytes;
        match self.recovery {
            Recovery::None => {
                self.save_cwnd();
                self.recovery = Recovery::Fast(Epoch::start(loss.now, loss.next_seq), true);
            }
            Recovery::Fast(epoch, first) if epoch.is_before(loss.largest) => {
                self.recovery = Recovery::Fast(Epoch::start(loss.now, loss.next_seq), first);
            }
            Recovery::Fast(..) | Recovery::Timeout(_) => {}
        }
    }

    fn is_holding_back(&self) -> bool {
        self.mode == Mode::ProbeRtt
    }

    fn on_spurious_loss(&mut self, _now: Nanos) {
        self.full.restart(0.0);
        self.recovery = Recovery::None;
        self.conserving = false;
        self.cwnd = self.cwnd.max(self.prior_cwnd).max(self.least());
    }

    fn on_rto(&mut self, now: Nanos) {
        self.save_cwnd();
        self.recovery = Recovery::Timeout(now);
        self.conserving = false;
        self.losses = 0;
        self.full.restart(0.0);
        self.cwnd = self.mss;
    }

    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn pacing_bps(&self, _now: Nanos) -> Option<u64> {
        Some(to_u64(self.pace * 8.0).max(1))
    }

    fn burst(&self) -> u64 {
        burst(self.pace, self.mss, None)
    }

    fn packet_bytes(&self) -> u32 {
        u32::try_from(self.mss).unwrap_or(u32::MAX)
    }

    fn codepoint(&self) -> Codepoint {
        self.codepoint
    }

    fn state(&self) -> State {
        State { ssthresh: None, alpha: None, slow_start: self.mode == Mode::Startup }
    }
}
