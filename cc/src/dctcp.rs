// SPDX-License-Identifier: Apache-2.0
//! DCTCP, RFC 8257: the window falls by alpha/2 once a window with marks, alpha being the moving average of the
//! marked fraction; Reno for the rest.
//!
//! Invariants: at most one reduction a round trip; alpha in 0..=1; the window is at least one packet.
//! The window does not grow in the round after a reduction (the CWR state of RFC 3168 section 6.1.2, as in Linux).
//! With marks that fall at random with probability p a cycle is then one round without growth and 1/p packets with
//! it, so that 1/(p W) = p W / 2 and W = sqrt(2)/p; the W = 2/p of the literature is for growth in every round.
//! Departures: the fraction is of packets, not bytes; counts come from AccECN-like totals, so the receiver's part of
//! section 3.2 is not needed; the window is a fraction and keeps what counts towards its next packet through a
//! reduction (Linux counts whole packets and lets small reductions and part increases fall away, which for alpha W < 2
//! amounts to a larger window); with a codepoint other than ECT(1) the answer to CE is the same (data centres use
//! ECT(0)).

use crate::epoch::Epoch;
use crate::sender::window_pace_bps;
use crate::{Ack, Codepoint, Kind, Loss, Nanos, Sender, SenderOptions, State};

/// Estimation gain g, RFC 8257 section 4.2.
const GAIN: f64 = 1.0 / 16.0;

/// See the module.
#[derive(Clone, Debug)]
pub struct Dctcp {
    mss: f64,
    codepoint: Codepoint,
    paced: bool,
    max_cwnd: f64,
    /// Bytes.
    cwnd: f64,
    ssthresh: f64,
    /// `DCTCP.Alpha`, RFC 8257 section 3.3.
    alpha: f64,
    /// The observation window, `DCTCP.WindowEnd`.
    window: Option<Epoch>,
    /// Packets and CE in it.
    observed: (u64, u64),
    reduced: Option<Epoch>,
    undo: Option<(f64, f64)>,
    srtt: Nanos,
}

impl Dctcp {
    /// With the initial window of RFC 6928 and alpha 1 (RFC 8257 section 4.2).
    pub fn new(options: &SenderOptions) -> Self {
        let mss = f64::from(options.mss.max(1));
        Self {
            mss,
            codepoint: options.codepoint.unwrap_or(Kind::Dctcp.default_codepoint()),
            paced: options.paced,
            max_cwnd: to_f64(options.max_cwnd).max(2.0 * mss),
            cwnd: mss * f64::from(options.initial_packets.max(1)),
            ssthresh: f64::INFINITY,
            alpha: 1.0,
            window: None,
            observed: (0, 0),
            reduced: None,
            undo: None,
            srtt: Nanos::ZERO,
        }
    }

    /// RFC 8257 section 3.3, steps 2 to 7.
    fn observe(&mut self, ack: &Ack) {
        self.observed.0 += ack.packets;
        self.observed.1 += ack.ce_packets;
        let Some(window) = self.window else {
            self.window = Some(Epoch::start(ack.now, ack.next_seq));
            return;
        };
        if window.round_is_over(ack.acked_through) && self.observed.0 > 0 {
            let fraction = (to_f64(self.observed.1) / to_f64(self.observed.0)).min(1.0);
            self.alpha += GAIN * (fraction - self.alpha);
            self.observed = (0, 0);
            self.window = Some(Epoch::start(ack.now, ack.next_seq));
        }
    }

    fn reduce(&mut self, factor: f64, now: Nanos, next_seq: u64) {
        self.ssthresh = (self.cwnd * factor).max(2.0 * self.mss);
        self.cwnd = self.ssthresh;
        self.reduced = Some(Epoch::start(now, next_seq));
    }

    fn grow(&mut self, bytes: u64) {
        let bytes = to_f64(bytes);
        if self.cwnd < self.ssthresh {
            self.cwnd += bytes.min(self.ssthresh - self.cwnd);
        } else {
            self.cwnd += self.mss * bytes / self.cwnd;
        }
        self.cwnd = self.cwnd.min(self.max_cwnd);
    }
}

impl Sender for Dctcp {
    fn on_ack(&mut self, ack: &Ack) {
        self.srtt = ack.srtt;
        self.observe(ack);
        if self.reduced.is_some_and(|epoch| epoch.round_is_over(ack.acked_through)) {
            self.reduced = None;
        }
        if self.reduced.is_some() {
            return;
        }
        if ack.ce_packets > 0 {
            self.undo = None;
            self.reduce(1.0 - self.alpha / 2.0, ack.now, ack.next_seq);
        } else if !ack.app_limited {
            self.grow(ack.bytes);
        }
    }

    /// As any TCP: by half, RFC 8257 section 3.5.
    fn on_loss(&mut self, loss: &Loss) {
        if self.reduced.is_some_and(|epoch| !epoch.is_before(loss.largest)) {
            return;
        }
        self.undo = Some((self.cwnd, self.ssthresh));
        self.reduce(0.5, loss.now, loss.next_seq);
    }

    fn on_spurious_loss(&mut self, _now: Nanos) {
        if let Some((cwnd, ssthresh)) = self.undo.take() {
            self.cwnd = self.cwnd.max(cwnd);
            self.ssthresh = ssthresh;
            self.reduced = None;
        }
    }

    fn on_rto(&mut self, _now: Nanos) {
        // A second time-out in a row holds the threshold (RFC 5681 section 3.1).
        if self.cwnd > self.mss {
            self.undo = Some((self.cwnd, self.ssthresh));
            self.ssthresh = (self.cwnd / 2.0).max(2.0 * self.mss);
        }
        self.cwnd = self.mss;
        self.reduced = None;
    }

    fn cwnd(&self) -> u64 {
        to_u64(self.cwnd)
    }

    fn pacing_bps(&self, _now: Nanos) -> Option<u64> {
        if !self.paced {
            return None;
        }
        window_pace_bps(self.cwnd(), self.srtt, self.cwnd < self.ssthresh / 2.0)
    }

    fn burst(&self) -> u64 {
        2 * u64::from(self.packet_bytes())
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "came from a u32")]
    fn packet_bytes(&self) -> u32 {
        self.mss as u32
    }

    fn codepoint(&self) -> Codepoint {
        self.codepoint
    }

    fn state(&self) -> State {
        State {
            ssthresh: self.ssthresh.is_finite().then(|| to_u64(self.ssthresh)),
            alpha: Some(self.alpha),
            slow_start: self.cwnd < self.ssthresh,
        }
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
