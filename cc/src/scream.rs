// SPDX-License-Identifier: Apache-2.0
//! SCReAM, RFC 8298: a window that holds the queue at a delay target, for a source that always has data.
//!
//! What remains of the RFC without a media encoder is the network congestion control of section 4.1.2 and its pace
//! (section 4.1.3): fast increase until the delay trend or a congestion event ends it, then LEDBAT's off-target
//! growth; x 0.8 on loss and on CE a factor, each once a round trip. The rate cap stands for the encoder's greatest rate.
//!
//! With ECT(1) the reaction to CE is proportional to the marked fraction, as the RFC's section 4.1.2.1 leaves open and
//! Ericsson's SCReAM does in its L4S mode: an average as DCTCP's (gain 1/16, once a round trip) of which half is cut off,
//! and growth of one packet a round trip in unmarked packets: (1 + sqrt 3)/p packets at random marks. Else CE
//! multiplies the window by `BETA_ECN`.
//!
//! Invariants: at most one reduction a round trip; the window is at least `MIN_CWND` or two packets; alpha in 0..=1.
//! Departures: queue delay is the round trip less its least, not a one-way delay (the same with an empty way back);
//! the delay target does not rise for competing flows (section 4.1.2.3 needs a history of 10 s and can take the
//! flow's own queue for another's); bytes in flight leave lost packets out.

use crate::epoch::Epoch;
use crate::{Ack, Codepoint, Kind, Loss, Nanos, Sender, SenderOptions, State};

/// Scale on loss, RFC 8298 section 4.1.1.1.
const BETA_LOSS: f64 = 0.8;
/// Scale on CE of a Classic AQM.
const BETA_ECN: f64 = 0.9;
/// Gain of the window's growth (`GAIN`).
const GAIN: f64 = 1.0;
/// Weight of a sample in the average of the delay fraction (`QDELAY_WEIGHT`).
const QDELAY_WEIGHT: f64 = 0.1;
/// Trend that shows congestion (`QDELAY_TREND_TH`).
const QDELAY_TREND_TH: f64 = 0.2;
/// Trend below which fast increase may come back (`QDELAY_TREND_LO`).
const QDELAY_TREND_LO: f64 = 0.2;
/// After this long below it (`T_RESUME_FAST_INCREASE`).
const T_RESUME_FAST_INCREASE: Nanos = Nanos::from_secs(5);
/// Least window, bytes (`MIN_CWND`).
const MIN_CWND: f64 = 3000.0;
/// The window keeps to what flew in the last 5 s, times this (`MAX_BYTES_IN_FLIGHT_HEAD_ROOM`).
const HEAD_ROOM: f64 = 1.1;
/// Least pace, bits a second (`RATE_PACE_MIN`).
const RATE_PACE_MIN: f64 = 50_000.0;
/// The delay fraction is sampled this often, section 4.1.2.
const TREND_PERIOD: Nanos = Nanos::from_millis(50);
/// Samples the trend looks at.
const TREND_SAMPLES: u8 = 20;
/// Gain of the marked fraction's average, as DCTCP's.
const ALPHA_GAIN: f64 = 1.0 / 16.0;

/// See the module.
#[derive(Clone, Debug)]
pub struct Scream {
    mss: f64,
    codepoint: Codepoint,
    max_cwnd: f64,
    /// Bits a second; `None`: no cap.
    rate_cap: Option<f64>,
    /// s.
    target: f64,
    /// Bytes.
    cwnd: f64,
    srtt: f64,
    fast_increase: bool,
    calm_since: Nanos,
    fraction_avg: f64,
    history: [f64; TREND_SAMPLES as usize],
    slot: usize,
    sampled: Nanos,
    trend: f64,
    alpha: f64,
    window: Option<Epoch>,
    observed: (u64, u64),
    reduced: Option<Epoch>,
    /// Window before the last reduction on loss.
    undo: Option<f64>,
    /// Most that flew in this and the last spell of 2.5 s, and when this began.
    most_in_flight: [f64; 2],
    spell: Nanos,
}

impl Scream {
    /// In fast increase from the initial window of RFC 6928 (the RFC's two packets suit an encoder's slow start).
    pub fn new(options: &SenderOptions) -> Self {
        let mss = f64::from(options.mss.max(1));
        Self {
            mss,
            codepoint: options.codepoint.unwrap_or(Kind::Scream.default_codepoint()),
            max_cwnd: to_f64(options.max_cwnd),
            rate_cap: (options.rate_bps > 0).then(|| to_f64(options.rate_bps).max(RATE_PACE_MIN)),
            target: options.delay_target.as_secs_f64().max(1e-4),
            cwnd: mss * f64::from(options.initial_packets.max(2)),
            srtt: 0.0,
            fast_increase: true,
            calm_since: Nanos::ZERO,
            fraction_avg: 0.0,
            history: [0.0; TREND_SAMPLES as usize],
            slot: 0,
            sampled: Nanos::ZERO,
            trend: 0.0,
            alpha: 0.0,
            window: None,
            observed: (0, 0),
            reduced: None,
            undo: None,
            most_in_flight: [0.0; 2],
            spell: Nanos::ZERO,
        }
    }

    fn least(&self) -> f64 {
        MIN_CWND.min(self.max_cwnd).max(2.0 * self.mss)
    }

    /// `update_variables` of section 4.1.2.
    fn update_trend(&mut self, now: Nanos, fraction: f64) {
        self.fraction_avg += QDELAY_WEIGHT * (fraction - self.fraction_avg);
        if now.since(self.sampled) < TREND_PERIOD {
            return;
        }
        self.sampled = now;
        self.slot = (self.slot + 1) % self.history.len();
        self.history[self.slot] = fraction;
        let mean = self.history.iter().sum::<f64>() / f64::from(TREND_SAMPLES);
        let at = |k: usize| self.history[(self.slot + 1 + k) % self.history.len()] - mean;
        let power: f64 = (0..self.history.len()).map(|k| at(k) * at(k)).sum();
        let lagged: f64 = (1..self.history.len()).map(|k| at(k - 1) * at(k)).sum();
        let a = if power > 0.0 { lagged / power } else { 0.0 };
        self.trend = (a * self.fraction_avg).clamp(0.0, 1.0);
        if self.trend >= QDELAY_TREND_LO {
            self.calm_since = now;
        }
    }

    fn observe_marks(&mut self, ack: &Ack) {
        self.observed.0 += ack.packets;
        self.observed.1 += ack.ce_packets;
        let over = self.window.is_none_or(|window| window.round_is_over(ack.acked_through));
        if over && self.observed.0 > 0 {
            if self.window.is_some() {
                let fraction = (to_f64(self.observed.1) / to_f64(self.observed.0)).min(1.0);
                self.alpha += ALPHA_GAIN * (fraction - self.alpha);
                self.observed = (0, 0);
            }
            self.window = Some(Epoch::start(ack.now, ack.next_seq));
        }
    }

    fn observe_flight(&mut self, ack: &Ack) {
        if ack.now.since(self.spell) >= Nanos::from_millis(2500) {
            self.spell = ack.now;
            self.most_in_flight = [self.most_in_flight[1], 0.0];
        }
        self.most_in_flight[1] = self.most_in_flight[1].max(to_f64(ack.prior_in_flight));
    }

    fn reduce(&mut self, factor: f64, now: Nanos, next_seq: u64) {
        self.fast_increase = false;
        self.calm_since = now;
        self.cwnd = (self.cwnd * factor).max(self.least());
        self.reduced = Some(Epoch::start(now, next_seq));
    }

    /// What CE multiplies the window by.
    fn ecn_factor(&self) -> f64 {
        if self.codepoint != Codepoint::Ect1 {
            BETA_ECN
        } else if self.fast_increase {
            0.5
        } else {
            1.0 - self.alpha / 2.0
        }
    }

    /// `update_cwnd` of section 4.1.2.2.
    fn update_cwnd(&mut self, ack: &Ack, qdelay: f64) {
        let bytes = to_f64(ack.bytes);
        let in_flight = to_f64(ack.in_flight);
        if self.fast_increase && self.trend >= QDELAY_TREND_TH {
            self.fast_increase = false;
            self.calm_since = ack.now;
        }
        if self.fast_increase {
            if in_flight * 1.5 + bytes > self.cwnd {
                self.cwnd += bytes;
            }
            return;
        }
        let off_target = (self.target - qdelay) / self.target;
        // A single sample far off must not take more than LEDBAT's loss would.
        let delta = GAIN * off_target.max(-1.0) * bytes * self.mss / self.cwnd;
        if off_target <= 0.0 || in_flight * 1.25 + bytes > self.cwnd {
            self.cwnd += delta;
        }
        let most = self.most_in_flight[0].max(self.most_in_flight[1]);
        self.cwnd = self.cwnd.min((most + bytes) * HEAD_ROOM).max(self.least());
        if ack.now.since(self.calm_since) > T_RESUME_FAST_INCREASE && self.alpha < 1e-3 && off_target > 0.5 {
            self.fast_increase = true;
        }
    }
}

impl Sender for Scream {
    fn on_ack(&mut self, ack: &Ack) {
        self.srtt = ack.srtt.as_secs_f64();
        self.observe_marks(ack);
        self.observe_flight(ack);
        let qdelay = ack.rtt.unwrap_or(ack.srtt).since(ack.min_rtt).as_secs_f64();
        self.update_trend(ack.now, qdelay / self.target);
        if self.reduced.is_some_and(|epoch| epoch.round_is_over(ack.acked_through)) {
            self.reduced = None;
        }
        if ack.ce_packets > 0 && self.reduced.is_none() && self.codepoint != Codepoint::NotEct {
            self.undo = None;
            self.reduce(self.ecn_factor(), ack.now, ack.next_seq);
        } else if !ack.app_limited && ack.ce_packets == 0 {
            self.update_cwnd(ack, qdelay);
        }
        self.cwnd = self.cwnd.min(self.max_cwnd).max(self.least());
    }

    fn on_loss(&mut self, loss: &Loss) {
        if self.reduced.is_some_and(|epoch| !epoch.is_before(loss.largest)) {
            return;
        }
        self.undo = Some(self.cwnd);
        self.reduce(BETA_LOSS, loss.now, loss.next_seq);
    }

    fn on_spurious_loss(&mut self, _now: Nanos) {
        if let Some(cwnd) = self.undo.take() {
            self.cwnd = self.cwnd.max(cwnd);
            self.reduced = None;
        }
    }

    fn on_rto(&mut self, now: Nanos) {
        self.undo = Some(self.cwnd);
        self.fast_increase = false;
        self.calm_since = now;
        self.cwnd = self.least();
        self.reduced = None;
    }

    fn cwnd(&self) -> u64 {
        to_u64(self.cwnd)
    }

    /// `calculate_send_window` and section 4.1.3: the window in a round trip, with room for a burst; the cap.
    fn pacing_bps(&self, _now: Nanos) -> Option<u64> {
        let by_window = (self.srtt > 0.0).then(|| {
            let gain = if self.fast_increase { 2.0 } else { 1.25 };
            (self.cwnd * 8.0 / self.srtt * gain).max(RATE_PACE_MIN)
        });
        match (by_window, self.rate_cap) {
            (Some(pace), Some(cap)) => Some(to_u64(pace.min(cap))),
            (pace, cap) => pace.or(cap).map(to_u64),
        }
    }

    fn burst(&self) -> u64 {
        to_u64(self.mss)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "came from a u32")]
    fn packet_bytes(&self) -> u32 {
        self.mss as u32
    }

    fn codepoint(&self) -> Codepoint {
        self.codepoint
    }

    fn state(&self) -> State {
        State { ssthresh: None, alpha: Some(self.alpha), slow_start: self.fast_increase }
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
