// SPDX-License-Identifier: Apache-2.0
//! What losses and marks teach BBR versions 2 and 3: short-term lower and long-term upper bounds.

use super::cycle::{AckPhase, Phase};
use super::v2::{Bbr2, Recovery};
use super::version::{BETA, ECN_FACTOR, ECN_THRESH, FULL_ECN_ROUNDS, HEADROOM, LOSS_THRESH};
use super::{Mode, to_f64, to_u64};
use crate::{Ack, LostPacket};

/// Signs of congestion, by loss round and probing cycle.
#[derive(Clone, Copy, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "loss and CE, each by round and by cycle, are not states of one thing"
)]
pub(super) struct Signals {
    pub(super) loss_in_round: bool,
    pub(super) ecn_in_round: bool,
    pub(super) loss_in_cycle: bool,
    pub(super) ecn_in_cycle: bool,
    /// Greatest rate (bytes a second) and volume delivered in the round.
    bw_latest: f64,
    inflight_latest: u64,
    /// The loss round ends when a packet sent after this was delivered is.
    pub(super) round_delivered: u64,
    round_started: bool,
    /// Packets lost since the last acknowledgement.
    pub(super) losses: u64,
    /// Acknowledgements with losses in this round of Startup.
    loss_events: u32,
    /// Rounds of Startup with many marks.
    ecn_rounds: u32,
}

impl Signals {
    /// The first loss round begins with the first flight.
    pub(super) fn new() -> Self {
        Self { round_delivered: 1, ..Self::default() }
    }

    /// `bbr_reset_congestion_signals`.
    pub(super) fn reset(&mut self) {
        *self = Self {
            round_delivered: self.round_delivered,
            round_started: self.round_started,
            losses: self.losses,
            loss_events: self.loss_events,
            ecn_rounds: self.ecn_rounds,
            ..Self::default()
        };
    }

    /// `bbr_update_latest_delivery_signals`.
    pub(super) fn update_latest(&mut self, ack: &Ack, bw: f64) {
        self.round_started = false;
        let Some(rate) = ack.rate else {
            return;
        };
        self.bw_latest = self.bw_latest.max(bw);
        self.inflight_latest = self.inflight_latest.max(rate.delivered);
        if rate.prior_delivered >= self.round_delivered {
            self.round_delivered = ack.delivered;
            self.round_started = true;
        }
    }

    /// `bbr_advance_latest_delivery_signals`, and the flags of the cycle.
    pub(super) fn advance(&mut self, ack: &Ack, bw: f64) {
        if let Some(rate) = ack.rate {
            if self.round_started {
                self.bw_latest = bw;
                self.inflight_latest = rate.delivered;
            }
            self.loss_in_cycle |= rate.lost > 0;
            self.ecn_in_cycle |= rate.ce_packets > 0;
        }
        self.losses = 0;
    }
}

/// Loss and marks over the flight of one packet.
#[derive(Clone, Copy, Debug)]
struct Toll {
    tx_in_flight: u64,
    lost: u64,
    delivered: u64,
    ce: u64,
    app_limited: bool,
}

impl Bbr2 {
    /// `bbr_update_congestion_signals`.
    pub(super) fn update_signals(&mut self, ack: &Ack, bw: f64) {
        let Some(rate) = ack.rate else {
            return;
        };
        if !rate.app_limited || bw >= self.max_bw() {
            self.bw_hi[1] = self.bw_hi[1].max(bw);
        }
        self.signals.loss_in_round |= self.signals.losses > 0;
        if self.signals.round_started {
            self.adapt_lower_bounds();
            self.signals.loss_in_round = false;
            self.signals.ecn_in_round = false;
        }
    }

    /// `bbr_adapt_lower_bounds`, once a round and not while probing.
    fn adapt_lower_bounds(&mut self) {
        if self.is_probing() {
            return;
        }
        let mut by_ecn = u64::MAX;
        if self.signals.ecn_in_round {
            self.inflight_lo = self.cwnd_if_unset(self.inflight_lo);
            by_ecn = to_u64(to_f64(self.inflight_lo) * (1.0 - self.alpha * ECN_FACTOR));
        }
        if self.signals.loss_in_round {
            self.bw_lo = if self.bw_lo.is_finite() { self.bw_lo } else { self.max_bw() };
            self.inflight_lo = self.cwnd_if_unset(self.inflight_lo);
            self.bw_lo = self.signals.bw_latest.max(self.bw_lo * (1.0 - BETA));
            let cut = to_u64(to_f64(self.inflight_lo) * (1.0 - BETA));
            self.inflight_lo = self.signals.inflight_latest.max(cut);
        }
        self.inflight_lo = self.inflight_lo.min(by_ecn);
        self.bw_lo = self.bw_lo.max(1.0);
    }

    fn cwnd_if_unset(&self, bound: u64) -> u64 {
        if bound == u64::MAX { self.cwnd } else { bound }
    }

    pub(super) fn reset_lower_bounds(&mut self) {
        self.bw_lo = f64::INFINITY;
        self.inflight_lo = u64::MAX;
    }

    /// `bbr_is_inflight_too_high`.
    fn is_too_high(&self, toll: &Toll) -> bool {
        let by_loss = toll.lost > 0 && to_f64(toll.lost) > to_f64(toll.tx_in_flight) * LOSS_THRESH;
        let marked = to_f64(toll.ce * self.mss);
        let by_ecn = self.ecn_eligible && toll.ce > 0 && marked > to_f64(toll.delivered) * ECN_THRESH;
        by_loss || by_ecn
    }

    fn toll(ack: &Ack) -> Option<Toll> {
        ack.rate.map(|rate| Toll {
            tx_in_flight: rate.tx_in_flight,
            lost: rate.lost,
            delivered: rate.delivered,
            ce: rate.ce_packets,
            app_limited: rate.app_limited,
        })
    }

    /// `bbr_skb_marked_lost`: the flight before a lost packet of a probe is judged at once.
    pub(super) fn note_lost(&mut self, packet: &LostPacket) {
        if !self.signals.loss_in_round {
            self.signals.round_delivered = self.probe.delivered;
        }
        self.signals.loss_in_round = true;
        self.signals.loss_in_cycle = true;
        if !self.probe.samples {
            return;
        }
        let toll = Toll {
            tx_in_flight: packet.tx_in_flight,
            lost: packet.lost,
            delivered: 0,
            ce: 0,
            app_limited: packet.app_limited,
        };
        if self.is_too_high(&toll) {
            let tx_in_flight = inflight_at_threshold(packet);
            self.handle_too_high(&Toll { tx_in_flight, ..toll });
        }
    }

    /// `bbr_handle_inflight_too_high`, once a probe.
    fn handle_too_high(&mut self, toll: &Toll) {
        self.probe.was_too_high = true;
        self.probe.samples = false;
        if !toll.app_limited {
            let target = self.inflight(self.bw(), 1.0).min(self.cwnd);
            self.inflight_hi = toll.tx_in_flight.max(to_u64(to_f64(target) * (1.0 - BETA)));
        }
        if self.mode == Mode::ProbeBw && self.probe.phase == Phase::Up {
            self.start_down(self.probe.now, self.probe.delivered);
        }
    }

    /// `bbr_adapt_upper_bounds`: true if it decided the next phase.
    pub(super) fn adapt_upper_bounds(&mut self, ack: &Ack) -> bool {
        let Some(toll) = Self::toll(ack) else {
            return false;
        };
        let in_probe_bw = self.mode == Mode::ProbeBw;
        if self.rounds.started && self.probe.acks == AckPhase::Starting {
            self.probe.acks = AckPhase::Feedback;
        }
        if self.rounds.started && self.probe.acks == AckPhase::Stopping {
            self.probe.samples = false;
            self.probe.acks = AckPhase::Init;
            if in_probe_bw && !toll.app_limited {
                self.advance_max_bw();
            }
            if in_probe_bw && self.probe.stopped_risky && !self.probe.was_too_high {
                self.start_refill(0, ack.delivered);
                return true;
            }
        }
        if self.is_too_high(&toll) {
            if self.probe.samples {
                self.handle_too_high(&toll);
            }
        } else if self.inflight_hi != u64::MAX {
            self.inflight_hi = self.inflight_hi.max(toll.tx_in_flight);
            if in_probe_bw && self.probe.phase == Phase::Up {
                self.raise_inflight_hi(ack);
            }
        }
        false
    }

    /// Keeps the greatest rate of the last one or two cycles.
    fn advance_max_bw(&mut self) {
        if self.bw_hi[1] > 0.0 {
            self.bw_hi = [self.bw_hi[1], 0.0];
        }
    }

    /// `bbr_inflight_with_headroom`.
    pub(super) fn with_headroom(&self) -> u64 {
        if self.inflight_hi == u64::MAX {
            return u64::MAX;
        }
        let headroom = to_u64(to_f64(self.inflight_hi) * HEADROOM).max(self.mss);
        self.inflight_hi.saturating_sub(headroom).max(self.least())
    }

    /// `bbr_check_loss_too_high_in_startup`.
    pub(super) fn check_startup_loss(&mut self, ack: &Ack) {
        if self.full.reached {
            return;
        }
        if self.signals.losses > 0 {
            self.signals.loss_events += 1;
        }
        if self.signals.round_started
            && matches!(self.recovery, Recovery::Fast(_))
            && self.signals.loss_events >= self.version.full_loss_count
            && Self::toll(ack).is_some_and(|toll| self.is_too_high(&toll))
        {
            self.leave_startup();
        } else if self.signals.round_started {
            self.signals.loss_events = 0;
        }
    }

    /// `bbr_check_ecn_too_high_in_startup`, once a round.
    pub(super) fn check_startup_ecn(&mut self, ratio: f64) {
        if self.full.reached {
            return;
        }
        self.signals.ecn_rounds = if ratio >= ECN_THRESH { self.signals.ecn_rounds + 1 } else { 0 };
        if self.signals.ecn_rounds >= FULL_ECN_ROUNDS {
            self.leave_startup();
        }
    }

    /// `bbr_handle_queue_too_high_in_startup`.
    fn leave_startup(&mut self) {
        self.full.reached = true;
        let latest = if self.version.keep_latest { self.signals.inflight_latest } else { 0 };
        self.inflight_hi = self.inflight(self.max_bw(), 1.0).max(latest);
    }
}

/// `bbr_inflight_hi_from_lost_skb`: what flew when the loss within the packet's flight crossed the threshold.
fn inflight_at_threshold(packet: &LostPacket) -> u64 {
    let before = packet.tx_in_flight.saturating_sub(packet.bytes);
    let lost_before = to_f64(packet.lost.saturating_sub(packet.bytes));
    let budget = to_f64(before) * LOSS_THRESH;
    let prefix = if lost_before >= budget { 0.0 } else { (budget - lost_before) / (1.0 - LOSS_THRESH) };
    before + to_u64(prefix)
}
