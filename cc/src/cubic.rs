// SPDX-License-Identifier: Apache-2.0
//! CUBIC, RFC 9438: window growth by time since the last reduction, with the Reno-friendly region, fast
//! convergence, HyStart++ (RFC 9406) and RFC 3168's ECN with the same factor.
//!
//! Invariant: the window is at least one segment, and falls at most once per round trip. Windows are in segments
//! (f64), as in the RFC's formulas; the cube root comes from `libm`.

use crate::epoch::Epoch;
use crate::hystart::{CSS_GROWTH_DIVISOR, Growth, HyStart};
use crate::sender::window_pace_bps;
use crate::{Ack, Codepoint, Kind, Loss, Nanos, Sender, SenderOptions, State};

/// Aggressiveness in segments per second cubed, RFC 9438 section 4.1.2 and 5.1.
const C: f64 = 0.4;
/// Multiplicative decrease factor, RFC 9438 section 4.6.
const BETA: f64 = 0.7;
/// Additive increase of the Reno-friendly window, 3(1-b)/(1+b), RFC 9438 section 4.3.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// A stage of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Stage {
    /// Start of time t.
    started: Nanos,
    /// Seconds from the start to the plateau.
    k: f64,
    /// The plateau.
    w_max: f64,
    /// Estimate of Reno's window.
    w_est: f64,
}

/// What a reduction on loss replaced, for undoing it (RFC 9438 section 4.9.1).
#[derive(Clone, Copy, Debug)]
struct Undo {
    cwnd: f64,
    ssthresh: f64,
    w_max: f64,
    stage: Option<Stage>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Cubic {
    mss: u32,
    codepoint: Codepoint,
    paced: bool,
    max_cwnd: f64,
    cwnd: f64,
    ssthresh: f64,
    w_max: f64,
    cwnd_prior: f64,
    stage: Option<Stage>,
    /// The next stage follows a timeout or the end of slow start without a loss: K = 0.
    fresh: bool,
    /// Only in the first slow start (RFC 9406 section 4.1).
    hystart: Option<HyStart>,
    recovery: Option<Epoch>,
    undo: Option<Undo>,
    srtt: Nanos,
    last_ack: Nanos,
}

impl Cubic {
    /// In slow start with the initial window of RFC 6928.
    pub fn new(options: &SenderOptions) -> Self {
        let mss = options.mss.max(1);
        Self {
            mss,
            codepoint: options.codepoint.unwrap_or(Kind::Cubic.default_codepoint()),
            paced: options.paced,
            max_cwnd: (to_f64(options.max_cwnd) / f64::from(mss)).max(2.0),
            cwnd: f64::from(options.initial_packets.max(1)),
            ssthresh: f64::INFINITY,
            w_max: 0.0,
            cwnd_prior: 0.0,
            stage: None,
            fresh: true,
            hystart: options.hystart.then(HyStart::new),
            recovery: None,
            undo: None,
            srtt: Nanos::ZERO,
            last_ack: Nanos::ZERO,
        }
    }

    /// Figure 5 of RFC 9438 with the window for FlightSize, as section 4.6 allows to those whose window does not
    /// grow while something else limits the flow; `least` is 2 on loss, 1 on ECE.
    fn reduce(&mut self, now: Nanos, next_seq: u64, least: f64) {
        self.shrink_plateau();
        self.ssthresh = self.cwnd * BETA;
        self.cwnd = self.ssthresh.max(least);
        self.ssthresh = self.ssthresh.max(2.0);
        self.stage = None;
        self.fresh = false;
        self.recovery = Some(Epoch::start(now, next_seq));
    }

    /// Fast convergence, RFC 9438 section 4.7.
    fn shrink_plateau(&mut self) {
        self.cwnd_prior = self.cwnd;
        self.w_max = if self.cwnd < self.w_max { self.cwnd * (1.0 + BETA) / 2.0 } else { self.cwnd };
    }

    fn remember(&mut self) {
        self.undo =
            Some(Undo { cwnd: self.cwnd, ssthresh: self.ssthresh, w_max: self.w_max, stage: self.stage });
    }

    fn slow_start(&mut self, ack: &Ack, segments: f64) {
        let growth = self.hystart.as_mut().map_or(Growth::Full, |hystart| hystart.on_ack(ack));
        match growth {
            Growth::Full => self.cwnd += segments,
            Growth::Slower => self.cwnd += segments / CSS_GROWTH_DIVISOR,
            Growth::Leave => self.ssthresh = self.cwnd,
        }
        self.cwnd = self.cwnd.min(self.ssthresh);
        if self.cwnd >= self.ssthresh {
            self.hystart = None;
            self.fresh = self.fresh || growth == Growth::Leave;
        }
    }

    fn begin_stage(&mut self, now: Nanos) -> Stage {
        let cwnd = self.cwnd;
        let stage = if self.fresh || self.w_max <= cwnd {
            self.w_max = cwnd;
            Stage { started: now, k: 0.0, w_max: cwnd, w_est: cwnd }
        } else {
            let k = libm::cbrt((self.w_max - cwnd) / C);
            Stage { started: now, k, w_max: self.w_max, w_est: cwnd }
        };
        self.fresh = false;
        stage
    }

    fn avoid_congestion(&mut self, ack: &Ack, segments: f64) {
        let mut stage = match self.stage {
            Some(stage) => stage,
            None => self.begin_stage(ack.now),
        };
        let t = ack.now.since(stage.started).as_secs_f64();
        // Once it has caught up with the window before the reduction it grows as Reno does (section 4.3).
        let alpha = if stage.w_est >= self.cwnd_prior { 1.0 } else { ALPHA };
        stage.w_est += alpha * segments / self.cwnd;
        if stage.window_at(t) < stage.w_est {
            self.cwnd = self.cwnd.max(stage.w_est);
        } else {
            let target = stage.window_at(t + ack.srtt.as_secs_f64()).clamp(self.cwnd, 1.5 * self.cwnd);
            self.cwnd += segments * (target - self.cwnd) / self.cwnd;
        }
        self.stage = Some(stage);
    }

    /// Time in which the application held back does not count (RFC 9438 section 5.8).
    fn skip_idle_time(&mut self, ack: &Ack) {
        if let Some(stage) = &mut self.stage {
            stage.started = (stage.started + ack.now.since(self.last_ack)).min(ack.now);
        }
    }

    fn segments(&self, bytes: u64) -> f64 {
        to_f64(bytes) / f64::from(self.mss)
    }
}

impl Stage {
    /// W_cubic(t), figure 1 of RFC 9438.
    fn window_at(&self, t: f64) -> f64 {
        let d = t - self.k;
        C * d * d * d + self.w_max
    }
}

impl Sender for Cubic {
    fn on_ack(&mut self, ack: &Ack) {
        self.srtt = ack.srtt;
        if self.recovery.is_some_and(|epoch| epoch.round_is_over(ack.acked_through)) {
            self.recovery = None;
        }
        if self.recovery.is_none() {
            let segments = self.segments(ack.bytes);
            if ack.ce_packets > 0 {
                self.undo = None;
                self.reduce(ack.now, ack.next_seq, 1.0);
            } else if ack.app_limited {
                self.skip_idle_time(ack);
            } else if self.cwnd < self.ssthresh {
                self.slow_start(ack, segments);
            } else {
                self.avoid_congestion(ack, segments);
            }
            self.cwnd = self.cwnd.min(self.max_cwnd);
        }
        self.last_ack = ack.now;
    }

    fn on_loss(&mut self, loss: &Loss) {
        if self.recovery.is_some_and(|epoch| !epoch.is_before(loss.largest)) {
            return;
        }
        self.remember();
        self.hystart = None;
        self.reduce(loss.now, loss.next_seq, 2.0);
    }

    fn on_spurious_loss(&mut self, _now: Nanos) {
        if let Some(undo) = self.undo.take() {
            self.cwnd = self.cwnd.max(undo.cwnd);
            self.ssthresh = undo.ssthresh;
            self.w_max = undo.w_max;
            self.stage = undo.stage;
            self.recovery = None;
        }
    }

    fn on_rto(&mut self, _now: Nanos) {
        // A second time-out in a row holds the threshold (RFC 5681 section 3.1).
        if self.cwnd > 1.0 {
            self.remember();
            self.shrink_plateau();
            self.ssthresh = (self.cwnd * BETA).max(2.0);
        }
        self.cwnd = 1.0;
        self.stage = None;
        self.fresh = true;
        self.recovery = None;
        self.hystart = None;
    }

    fn cwnd(&self) -> u64 {
        to_u64(self.cwnd * f64::from(self.mss)).max(u64::from(self.mss))
    }

    fn pacing_bps(&self, _now: Nanos) -> Option<u64> {
        if !self.paced {
            return None;
        }
        window_pace_bps(self.cwnd(), self.srtt, self.cwnd < self.ssthresh / 2.0)
    }

    fn burst(&self) -> u64 {
        2 * u64::from(self.mss)
    }

    fn packet_bytes(&self) -> u32 {
        self.mss
    }

    fn codepoint(&self) -> Codepoint {
        self.codepoint
    }

    fn state(&self) -> State {
        State {
            ssthresh: self.ssthresh.is_finite().then(|| to_u64(self.ssthresh * f64::from(self.mss))),
            alpha: None,
            slow_start: self.cwnd < self.ssthresh,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "windows stay below 2^53 bytes")]
fn to_f64(x: u64) -> f64 {
    x as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn to_u64(x: f64) -> u64 {
    x as u64
}
