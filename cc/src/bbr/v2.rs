// SPDX-License-Identifier: Apache-2.0
//! BBR versions 2 and 3 (google/bbr branches v2alpha and v3; draft-ietf-ccwg-bbr), which tells them apart by
//! [`Version`].
//!
//! To version 1's model they add bounds that losses and marks teach: `inflight_hi`, the most that flew without more
//! than 2 % loss or 50 % CE in a probe, and for the time between probes `bw_lo` and `inflight_lo`, cut by 0.3 in
//! rounds with loss and by alpha/3 in rounds with CE. `bounds.rs` has them, `cycle.rs` the phases of `ProbeBW`.
//!
//! Invariants: the window is at least four packets but right after a timeout; alpha in 0..=1; no CE is answered with
//! Not-ECT or where min RTT has never been at most `ecn_max_rtt`.
//! Departures: no special pace after an idle time, no fast path (it only saves work), no loss probes; recovery ends, as
//! in QUIC, when a packet sent after its start is acknowledged.

use super::bounds::Signals;
use super::cycle::{Phase, Probe};
use super::version::{
    CWND_GAIN, DRAIN_GAIN, ECN_ALPHA_GAIN, PROBE_RTT_GAIN, PROBE_RTT_WINDOW, UP_GAIN, V2, V3, Version,
};
use super::{
    AGGREGATION_RESET, AGGREGATION_ROUNDS, Aggregation, Dice, FullPipe, MIN_PACKETS, MIN_RTT_WINDOW, Mode,
    NOMINAL_RTT, PACING_MARGIN, PROBE_RTT_TIME, Rounds, bdp, burst, sample_bw, to_f64, to_u64,
};
use crate::epoch::Epoch;
use crate::{Ack, Codepoint, Kind, Loss, LostPacket, Nanos, Sender, SenderOptions, State};

/// Where loss recovery stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Recovery {
    None,
    Fast(Epoch),
    /// After a timeout at this time.
    Timeout(Nanos),
}

/// Bounds to go back to when a loss turns out not to have been one.
#[derive(Clone, Copy, Debug)]
struct Undo {
    bw_lo: f64,
    inflight_lo: u64,
    inflight_hi: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Bbr2 {
    pub(super) version: Version,
    pub(super) mss: u64,
    codepoint: Codepoint,
    ecn_max_rtt: Nanos,
    max_cwnd: u64,
    initial: u64,
    pub(super) cwnd: u64,
    prior_cwnd: u64,
    /// Bytes a second.
    pace: f64,
    pacing_gain: f64,
    cwnd_gain: f64,
    pub(super) mode: Mode,
    pub(super) rounds: Rounds,
    /// Greatest rate of the last probing cycle and of this one.
    pub(super) bw_hi: [f64; 2],
    pub(super) bw_lo: f64,
    /// `u64::MAX`: none.
    pub(super) inflight_hi: u64,
    pub(super) inflight_lo: u64,
    pub(super) full: FullPipe,
    aggregation: Aggregation,
    pub(super) signals: Signals,
    pub(super) probe: Probe,
    /// Least round trip in 10 s, and in 5 s, with their times.
    pub(super) min_rtt: (Nanos, Nanos),
    probe_min_rtt: (Nanos, Nanos),
    seen_rtt: bool,
    probe_rtt_done: Option<Nanos>,
    probe_rtt_round: bool,
    pub(super) recovery: Recovery,
    /// The round after a mark, in which Linux is in CWR.
    pub(super) marked: Option<Epoch>,
    undo: Option<Undo>,
    pub(super) ecn_eligible: bool,
    pub(super) alpha: f64,
    /// Bytes and CE since alpha was last updated.
    observed: (u64, u64),
    pub(super) dice: Dice,
}

impl Bbr2 {
    /// Version 2, in Startup with the initial window of RFC 6928.
    pub fn v2(options: &SenderOptions) -> Self {
        Self::new(options, V2, Kind::Bbr2)
    }

    /// Version 3.
    pub fn v3(options: &SenderOptions) -> Self {
        Self::new(options, V3, Kind::Bbr3)
    }

    fn new(options: &SenderOptions, version: Version, kind: Kind) -> Self {
        let mss = u64::from(options.mss.max(1));
        let initial = mss * u64::from(options.initial_packets.max(1));
        Self {
            version,
            mss,
            codepoint: options.codepoint.unwrap_or(kind.default_codepoint()),
            ecn_max_rtt: options.ecn_max_rtt,
            max_cwnd: options.max_cwnd.max(MIN_PACKETS * mss),
            initial,
            cwnd: initial,
            prior_cwnd: 0,
            pace: version.startup.0 * to_f64(initial) / NOMINAL_RTT.as_secs_f64() * PACING_MARGIN,
            pacing_gain: version.startup.0,
            cwnd_gain: version.startup.1,
            mode: Mode::Startup,
            rounds: Rounds::default(),
            bw_hi: [0.0; 2],
            bw_lo: f64::INFINITY,
            inflight_hi: u64::MAX,
            inflight_lo: u64::MAX,
            full: FullPipe::default(),
            aggregation: Aggregation::default(),
            signals: Signals::new(),
            probe: Probe::default(),
            min_rtt: (Nanos::MAX, Nanos::ZERO),
            probe_min_rtt: (Nanos::MAX, Nanos::ZERO),
            seen_rtt: false,
            probe_rtt_done: None,
            probe_rtt_round: false,
            recovery: Recovery::None,
            marked: None,
            undo: None,
            ecn_eligible: false,
            alpha: 1.0,
            observed: (0, 0),
            dice: Dice(options.seed),
        }
    }

    pub(super) fn max_bw(&self) -> f64 {
        self.bw_hi[0].max(self.bw_hi[1])
    }

    pub(super) fn bw(&self) -> f64 {
        self.max_bw().min(self.bw_lo)
    }

    pub(super) fn least(&self) -> u64 {
        MIN_PACKETS * self.mss
    }

    fn bdp(&self, bw: f64, gain: f64) -> u64 {
        if self.min_rtt.0 == Nanos::MAX { self.initial } else { bdp(bw, self.min_rtt.0, gain) }
    }

    /// `bbr_quantization_budget`.
    fn quantized(&self, bytes: u64) -> u64 {
        let up = self.mode == Mode::ProbeBw && self.probe.phase == Phase::Up;
        bytes.max(3 * self.burst()).max(self.least()) + if up { 2 * self.mss } else { 0 }
    }

    /// `bbr_inflight`.
    pub(super) fn inflight(&self, bw: f64, gain: f64) -> u64 {
        self.quantized(self.bdp(bw, gain))
    }

    /// `bbr_packets_in_net_at_edt`, where the packet to leave next leaves now.
    pub(super) fn in_network(&self, in_flight: u64) -> u64 {
        in_flight + if self.pacing_gain > 1.0 { self.burst() } else { 0 }
    }

    fn save_cwnd(&mut self) {
        let undisturbed = matches!(self.recovery, Recovery::None) && self.mode != Mode::ProbeRtt;
        self.prior_cwnd = if undisturbed { self.cwnd } else { self.prior_cwnd.max(self.cwnd) };
    }

    /// `bbr_update_ecn_alpha`, once a round.
    fn update_alpha(&mut self) {
        let (bytes, ce) = self.observed;
        let short = self.ecn_max_rtt == Nanos::ZERO || self.min_rtt.0 <= self.ecn_max_rtt;
        self.ecn_eligible |= self.codepoint != Codepoint::NotEct && short;
        if !self.ecn_eligible || bytes == 0 {
            return;
        }
        let ratio = (to_f64(ce * self.mss) / to_f64(bytes)).min(1.0);
        self.alpha += ECN_ALPHA_GAIN * (ratio - self.alpha);
        self.observed = (0, 0);
        self.check_startup_ecn(ratio);
    }

    fn update_model(&mut self, ack: &Ack) {
        let bw = sample_bw(ack);
        self.update_signals(ack, bw);
        let limits = (self.cwnd, AGGREGATION_RESET * self.mss);
        let window = if self.full.reached { AGGREGATION_ROUNDS } else { 1 };
        let estimate = self.bw();
        self.aggregation.update(ack, self.rounds.started, window, estimate, limits);
        self.check_startup_loss(ack);
        let app_limited = ack.rate.is_none_or(|rate| rate.app_limited);
        if self.version.plateau_ends_probe {
            self.full.check(bw, self.rounds.started, app_limited);
        } else {
            let max_bw = self.max_bw();
            self.full.check_once(max_bw, self.rounds.started, app_limited);
        }
        self.check_drain(ack);
        self.update_cycle(ack, bw);
        self.update_min_rtt(ack);
    }

    fn check_drain(&mut self, ack: &Ack) {
        if self.mode == Mode::Startup && self.full.reached {
            self.mode = Mode::Drain;
            self.signals.reset();
        }
        let full = self.inflight(self.max_bw(), 1.0);
        if self.mode == Mode::Drain && self.in_network(ack.in_flight) <= full {
            self.mode = Mode::ProbeBw;
            self.start_down(ack.now, ack.delivered);
        }
    }

    /// `bbr_update_min_rtt`: both filters, and `ProbeRTT` when the shorter runs out.
    fn update_min_rtt(&mut self, ack: &Ack) {
        let expired = self.seen_rtt && ack.now > self.probe_min_rtt.1 + PROBE_RTT_WINDOW;
        if let Some(rtt) = ack.rtt.filter(|rtt| *rtt < self.probe_min_rtt.0 || expired) {
            self.probe_min_rtt = (rtt, ack.now);
        }
        if self.probe_min_rtt.0 <= self.min_rtt.0 || ack.now > self.min_rtt.1 + MIN_RTT_WINDOW {
            self.min_rtt = self.probe_min_rtt;
        }
        if expired && self.mode != Mode::ProbeRtt {
            self.save_cwnd();
            self.mode = Mode::ProbeRtt;
            self.probe_rtt_done = None;
            self.stop_probing(ack.delivered);
        }
        if self.mode != Mode::ProbeRtt {
            return;
        }
        match self.probe_rtt_done {
            None if ack.in_flight <= self.probe_rtt_cwnd() => {
                self.probe_rtt_done = Some(ack.now + PROBE_RTT_TIME);
                self.probe_rtt_round = false;
                self.rounds.restart(ack.delivered);
            }
            None => {}
            Some(end) => {
                self.probe_rtt_round |= self.rounds.started;
                if self.probe_rtt_round && ack.now > end {
                    self.exit_probe_rtt(ack);
                }
            }
        }
    }

    fn exit_probe_rtt(&mut self, ack: &Ack) {
        self.probe_min_rtt.1 = ack.now;
        self.cwnd = self.cwnd.max(self.prior_cwnd);
        self.reset_lower_bounds();
        if self.full.reached {
            self.mode = Mode::ProbeBw;
            self.start_down(ack.now, ack.delivered);
            self.start_cruise();
        } else {
            self.mode = Mode::Startup;
        }
    }

    fn probe_rtt_cwnd(&self) -> u64 {
        self.bdp(self.bw(), PROBE_RTT_GAIN).max(self.least())
    }

    /// `bbr_update_gains`.
    fn update_gains(&mut self) {
        (self.pacing_gain, self.cwnd_gain) = match (self.mode, self.probe.phase) {
            (Mode::Startup, _) => self.version.startup,
            (Mode::Drain, _) => (DRAIN_GAIN, self.version.startup.1),
            (Mode::ProbeBw, Phase::Up) => (UP_GAIN, self.version.up_cwnd_gain),
            (Mode::ProbeBw, Phase::Down) => (self.version.down_gain, CWND_GAIN),
            (Mode::ProbeBw, Phase::Cruise | Phase::Refill) => (1.0, CWND_GAIN),
            (Mode::ProbeRtt, _) => (1.0, 1.0),
        };
    }

    fn set_pace(&mut self, ack: &Ack) {
        if !self.seen_rtt && ack.srtt > Nanos::ZERO {
            self.seen_rtt = true;
            let rate = to_f64(self.cwnd) / ack.srtt.as_secs_f64();
            self.pace = self.version.startup.0 * rate * PACING_MARGIN;
        }
        let pace = self.bw() * self.pacing_gain * PACING_MARGIN;
        if self.full.reached || pace > self.pace {
            self.pace = pace.max(1.0);
        }
    }

    fn set_cwnd(&mut self, ack: &Ack) {
        let bw = self.bw();
        let target = self.quantized(self.bdp(bw, self.cwnd_gain) + self.aggregation.allowance(bw));
        if self.full.reached {
            self.cwnd = (self.cwnd + ack.bytes).min(target);
        } else if self.cwnd < target || self.cwnd < 2 * self.initial {
            self.cwnd += ack.bytes;
        }
        self.cwnd = self.cwnd.max(self.least()).min(self.max_cwnd);
        if self.mode == Mode::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
        self.bound_cwnd();
    }

    /// `bbr_bound_cwnd_for_inflight_model`.
    fn bound_cwnd(&mut self) {
        let cap = match (self.mode, self.probe.phase) {
            (Mode::ProbeBw, Phase::Cruise) | (Mode::ProbeRtt, _) => self.with_headroom(),
            (Mode::ProbeBw, _) => self.inflight_hi,
            (Mode::Startup | Mode::Drain, _) => u64::MAX,
        };
        self.cwnd = self.cwnd.min(cap.min(self.inflight_lo).max(self.least()));
    }

    fn end_recovery(&mut self, ack: &Ack) {
        let over = match self.recovery {
            Recovery::None => false,
            Recovery::Fast(epoch) => epoch.round_is_over(ack.acked_through),
            Recovery::Timeout(at) => ack.rtt.is_some_and(|rtt| Nanos(ack.now.0.saturating_sub(rtt.0)) >= at),
        };
        if over {
            if matches!(self.recovery, Recovery::Timeout(_)) {
                self.cwnd = self.cwnd.max(self.prior_cwnd);
            }
            self.recovery = Recovery::None;
        }
    }

    fn remember(&mut self) {
        self.undo =
            Some(Undo { bw_lo: self.bw_lo, inflight_lo: self.inflight_lo, inflight_hi: self.inflight_hi });
    }
}

impl Sender for Bbr2 {
    fn on_ack(&mut self, ack: &Ack) {
        self.rounds.update(ack);
        self.observed.0 += ack.bytes;
        self.observed.1 += ack.ce_packets;
        if self.rounds.started {
            self.probe.rounds_since += 1;
            self.update_alpha();
        }
        self.signals.ecn_in_round |= self.ecn_eligible && ack.ce_packets > 0;
        self.signals.update_latest(ack, sample_bw(ack));
        if self.marked.is_some_and(|epoch| epoch.round_is_over(ack.acked_through)) {
            self.marked = None;
        }
        if ack.ce_packets > 0 && self.marked.is_none() {
            self.marked = Some(Epoch::start(ack.now, ack.next_seq));
        }
        self.end_recovery(ack);
        self.update_model(ack);
        self.update_gains();
        self.set_pace(ack);
        self.set_cwnd(ack);
        self.signals.advance(ack, sample_bw(ack));
    }

    fn on_packet_lost(&mut self, packet: &LostPacket) {
        self.note_lost(packet);
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.signals.losses += loss.packets;
        match self.recovery {
            Recovery::None => {
                self.save_cwnd();
                self.remember();
                self.recovery = Recovery::Fast(Epoch::start(loss.now, loss.next_seq));
            }
            Recovery::Fast(epoch) if epoch.is_before(loss.largest) => {
                self.recovery = Recovery::Fast(Epoch::start(loss.now, loss.next_seq));
            }
            Recovery::Fast(_) | Recovery::Timeout(_) => {}
        }
    }

    fn is_holding_back(&self) -> bool {
        self.mode == Mode::ProbeRtt
    }

    fn on_spurious_loss(&mut self, _now: Nanos) {
        self.full.restart(0.0);
        self.signals.loss_in_round = false;
        if let Some(undo) = self.undo.take() {
            self.bw_lo = self.bw_lo.max(undo.bw_lo);
            self.inflight_lo = self.inflight_lo.max(undo.inflight_lo);
            self.inflight_hi = self.inflight_hi.max(undo.inflight_hi);
        }
        self.recovery = Recovery::None;
        self.cwnd = self.cwnd.max(self.prior_cwnd).max(self.least());
    }

    fn on_rto(&mut self, now: Nanos) {
        self.save_cwnd();
        self.remember();
        self.full.restart(0.0);
        if !self.is_probing() && self.inflight_lo == u64::MAX {
            self.inflight_lo = self.cwnd.max(self.prior_cwnd);
        }
        self.recovery = Recovery::Timeout(now);
        self.cwnd = self.mss;
    }

    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn pacing_bps(&self, _now: Nanos) -> Option<u64> {
        Some(to_u64(self.pace * 8.0).max(1))
    }

    fn burst(&self) -> u64 {
        burst(self.pace, self.mss, Some(self.min_rtt.0))
    }

    fn packet_bytes(&self) -> u32 {
        u32::try_from(self.mss).unwrap_or(u32::MAX)
    }

    fn codepoint(&self) -> Codepoint {
        self.codepoint
    }

    fn state(&self) -> State {
        State {
            ssthresh: None,
            alpha: self.ecn_eligible.then_some(self.alpha),
            slow_start: self.mode == Mode::Startup,
        }
    }
}
