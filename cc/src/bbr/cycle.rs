// SPDX-License-Identifier: Apache-2.0
//! The phases of `ProbeBW` in BBR versions 2 and 3: down, cruise, refill, up.

use super::v2::{Bbr2, Recovery};
use super::version::{PROBE_BASE, PROBE_MAX_ROUNDS, PROBE_RAND, PROBE_RAND_ROUNDS, UP_GAIN};
use super::{Mode, to_f64, to_u64};
use crate::{Ack, Nanos};

/// Rounds of growth after which an increment doubles no more.
const MAX_UP_ROUNDS: u32 = 30;

/// Phase of `ProbeBW`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Push up what flies.
    Up,
    /// Drain what that left in the queue.
    #[default]
    Down,
    /// Use the pipe, with headroom.
    Cruise,
    /// Fill the pipe before the next push.
    Refill,
}

/// What acknowledgements tell of, relative to the last probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AckPhase {
    #[default]
    Init,
    Refilling,
    Starting,
    Feedback,
    Stopping,
}

/// State of probing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probe {
    pub(super) phase: Phase,
    pub(super) acks: AckPhase,
    started: Nanos,
    /// Time to the next probe, rounds since the last.
    wait: Nanos,
    pub(super) rounds_since: u64,
    /// Rounds of this push, packets acknowledged in it, and how many of them raise `inflight_hi` by one; 0: none do.
    up_rounds: u32,
    up_acks: u64,
    up_count: u64,
    /// Samples now are of a probe.
    pub(super) samples: bool,
    /// The last probe went too high.
    pub(super) was_too_high: bool,
    /// The last probe ended at `inflight_hi`.
    pub(super) stopped_risky: bool,
    /// Time and bytes delivered at the last acknowledgement.
    pub(super) now: Nanos,
    pub(super) delivered: u64,
}

impl Bbr2 {
    /// Startup, refill and up push against the bounds.
    pub(super) fn is_probing(&self) -> bool {
        let up = matches!(self.probe.phase, Phase::Refill | Phase::Up);
        self.mode == Mode::Startup || (self.mode == Mode::ProbeBw && up)
    }

    /// `bbr_update_cycle_phase`.
    pub(super) fn update_cycle(&mut self, ack: &Ack, bw: f64) {
        self.probe.now = ack.now;
        self.probe.delivered = ack.delivered;
        if !self.full.reached || self.adapt_upper_bounds(ack) || self.mode != Mode::ProbeBw {
            return;
        }
        let in_network = self.in_network(ack.prior_in_flight);
        match self.probe.phase {
            Phase::Cruise => {
                self.check_time_to_probe(ack);
            }
            Phase::Refill if self.rounds.started => {
                self.probe.samples = true;
                self.start_up(ack, bw);
            }
            Phase::Refill => {}
            Phase::Up => self.check_up(ack, in_network, bw),
            Phase::Down => {
                let low =
                    in_network <= self.with_headroom() && in_network <= self.inflight(self.max_bw(), 1.0);
                if !self.check_time_to_probe(ack) && low {
                    self.start_cruise();
                }
            }
        }
    }

    fn check_up(&mut self, ack: &Ack, in_network: u64, bw: f64) {
        let mut done = false;
        if self.probe.was_too_high && in_network >= self.inflight_hi {
            self.probe.stopped_risky = true;
            done = true;
        } else if self.version.plateau_ends_probe {
            if ack.cwnd_limited && self.cwnd >= self.inflight_hi {
                self.full.restart(bw);
            } else {
                done = self.full.now;
            }
        } else if ack.now.since(self.probe.started) > self.min_rtt.0 {
            done = in_network >= self.inflight(self.max_bw(), UP_GAIN);
        }
        if done {
            self.probe.was_too_high = false;
            self.start_down(ack.now, ack.delivered);
        }
    }

    /// `bbr_check_time_to_probe_bw`: true if it began.
    fn check_time_to_probe(&mut self, ack: &Ack) -> bool {
        let reprobe = self.version.ecn_reprobe_gain;
        if reprobe > 0.0
            && self.ecn_eligible
            && self.signals.ecn_in_cycle
            && !self.signals.loss_in_cycle
            && matches!(self.recovery, Recovery::None)
            && self.marked.is_none()
        {
            let packets = to_f64(self.inflight_hi) * reprobe / to_f64(self.mss);
            let rounds = to_u64(packets).max(1).ilog2().min(MAX_UP_ROUNDS);
            self.start_refill(rounds, ack.delivered);
            return true;
        }
        let target = self.inflight(self.bw(), 1.0).min(self.cwnd) / self.mss;
        let like_reno = self.probe.rounds_since >= target.min(PROBE_MAX_ROUNDS);
        if like_reno || ack.now.since(self.probe.started) > self.probe.wait {
            self.start_refill(0, ack.delivered);
            return true;
        }
        false
    }

    pub(super) fn start_refill(&mut self, up_rounds: u32, delivered: u64) {
        self.reset_lower_bounds();
        self.probe.up_rounds = up_rounds;
        self.probe.up_acks = 0;
        self.probe.stopped_risky = false;
        self.probe.acks = AckPhase::Refilling;
        self.rounds.restart(delivered);
        self.probe.phase = Phase::Refill;
    }

    fn start_up(&mut self, ack: &Ack, bw: f64) {
        self.probe.acks = AckPhase::Starting;
        self.rounds.restart(ack.delivered);
        self.probe.started = ack.now;
        if self.version.plateau_ends_probe {
            self.full.restart(bw);
        }
        self.probe.phase = Phase::Up;
        self.raise_slope();
    }

    /// Also picks when to probe next.
    pub(super) fn start_down(&mut self, now: Nanos, delivered: u64) {
        self.signals.reset();
        self.probe.up_count = 0;
        self.probe.rounds_since = self.dice.below(PROBE_RAND_ROUNDS) as u64;
        self.probe.wait = PROBE_BASE + Nanos::from_secs_f64(PROBE_RAND.as_secs_f64() * self.dice.roll());
        self.probe.started = now;
        self.stop_probing(delivered);
        self.probe.phase = Phase::Down;
    }

    /// From the next round on samples are of no probe.
    pub(super) fn stop_probing(&mut self, delivered: u64) {
        self.probe.acks = AckPhase::Stopping;
        self.rounds.restart(delivered);
    }

    pub(super) fn start_cruise(&mut self) {
        if self.inflight_lo != u64::MAX {
            self.inflight_lo = self.inflight_lo.min(self.inflight_hi);
        }
        self.probe.phase = Phase::Cruise;
    }

    /// `bbr_raise_inflight_hi_slope`: each round of a push doubles its volume.
    fn raise_slope(&mut self) {
        let growth = 1_u64 << self.probe.up_rounds;
        self.probe.up_rounds = (self.probe.up_rounds + 1).min(MAX_UP_ROUNDS);
        self.probe.up_count = (self.cwnd / self.mss / growth).max(1);
    }

    /// `bbr_probe_inflight_hi_upward`.
    pub(super) fn raise_inflight_hi(&mut self, ack: &Ack) {
        if !ack.cwnd_limited || self.cwnd < self.inflight_hi || self.probe.up_count == 0 {
            return;
        }
        self.probe.up_acks += ack.packets;
        let steps = self.probe.up_acks / self.probe.up_count;
        self.probe.up_acks -= steps * self.probe.up_count;
        self.inflight_hi = self.inflight_hi.saturating_add(steps * self.mss);
        if self.rounds.started {
            self.raise_slope();
        }
    }
}
