// SPDX-License-Identifier: Apache-2.0
//! BBR in its three versions: [`Bbr1`], and [`Bbr2`] which is version 2 or 3 by its parameters.
//!
//! This file has what they share: packet-timed rounds, the estimate of ACK aggregation, the search for a full pipe,
//! the size of a burst. All of it after Linux `tcp_bbr.c`, in bytes and f64 where that has packets and fixed point.

mod bounds;
mod cycle;
mod v1;
mod v2;
mod version;

use crate::{Ack, Nanos};

pub use v1::Bbr1;
pub use v2::Bbr2;

/// Least window in packets (`bbr_cwnd_min_target`).
const MIN_PACKETS: u64 = 4;
/// The pace stays this much below the estimate, to keep queues short (`bbr_pacing_margin_percent`).
const PACING_MARGIN: f64 = 0.99;
/// Before the first sample the path is taken to have this round trip (`bbr_init_pacing_rate_from_rtt`).
const NOMINAL_RTT: Nanos = Nanos::from_millis(1);
/// How long `ProbeRTT` keeps the window down (`bbr_probe_rtt_mode_ms`).
const PROBE_RTT_TIME: Nanos = Nanos::from_millis(200);
/// Time over which min RTT is the least sample (`bbr_min_rtt_win_sec`).
const MIN_RTT_WINDOW: Nanos = Nanos::from_secs(10);
/// Rounds over which ACK aggregation is the greatest seen, twice (`bbr_extra_acked_win_rtts`).
const AGGREGATION_ROUNDS: u32 = 5;
/// Aggregation beyond what the path delivers in this time is not provided for, s (`bbr_extra_acked_max_us`).
const AGGREGATION_TIME: f64 = 0.1;
/// Packets after which an aggregation epoch begins anew (`bbr_ack_epoch_acked_reset_thresh`).
const AGGREGATION_RESET: u64 = 1 << 20;
/// The pipe is full when the rate does not grow by this factor (`bbr_full_bw_thresh`)...
const FULL_GROWTH: f64 = 1.25;
/// ...in this many rounds (`bbr_full_bw_cnt`).
const FULL_ROUNDS: u32 = 3;
/// Greatest burst, bytes (`GSO_LEGACY_MAX_SIZE` less headers).
const MAX_BURST: u64 = 65_535 - 320;

/// Phases that all versions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// Rounds timed by packets: one ends when a packet sent after its start has been delivered.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    next_delivered: u64,
    count: u64,
    /// The acknowledgement in work began one.
    started: bool,
}

impl Rounds {
    fn update(&mut self, ack: &Ack) {
        self.started = ack.rate.is_some_and(|rate| rate.prior_delivered >= self.next_delivered);
        if self.started {
            self.next_delivered = ack.delivered;
            self.count += 1;
        }
    }

    fn restart(&mut self, delivered: u64) {
        self.next_delivered = delivered;
    }
}

/// How much more than expected acknowledgements bring at once (`bbr_update_ack_aggregation`).
#[derive(Clone, Copy, Debug, Default)]
struct Aggregation {
    extra: [u64; 2],
    index: usize,
    rounds: u32,
    epoch: Nanos,
    acked: u64,
}

impl Aggregation {
    fn update(&mut self, ack: &Ack, new_round: bool, window: u32, bw: f64, limits: (u64, u64)) {
        if ack.rate.is_none() {
            return;
        }
        if new_round {
            self.rounds += 1;
            if self.rounds >= window {
                self.rounds = 0;
                self.index = 1 - self.index;
                self.extra[self.index] = 0;
            }
        }
        let (cwnd, reset) = limits;
        let mut expected = to_u64(bw * ack.now.since(self.epoch).as_secs_f64());
        if self.acked <= expected || self.acked + ack.bytes >= reset {
            self.acked = 0;
            self.epoch = ack.now;
            expected = 0;
        }
        self.acked += ack.bytes;
        let extra = self.acked.saturating_sub(expected).min(cwnd);
        self.extra[self.index] = self.extra[self.index].max(extra);
    }

    /// Bytes to add to the window.
    fn allowance(&self, bw: f64) -> u64 {
        self.extra[0].max(self.extra[1]).min(to_u64(bw * AGGREGATION_TIME))
    }
}

/// Whether the pipe is full: the rate has stopped growing.
#[derive(Clone, Copy, Debug, Default)]
struct FullPipe {
    bw: f64,
    rounds: u32,
    /// In the present search.
    now: bool,
    /// Ever.
    reached: bool,
}

impl FullPipe {
    /// Versions 1 and 2: once, round by round, on the filtered rate.
    fn check_once(&mut self, max_bw: f64, new_round: bool, app_limited: bool) {
        if self.reached || !new_round || app_limited {
            return;
        }
        if max_bw >= self.bw * FULL_GROWTH {
            self.bw = max_bw;
            self.rounds = 0;
            return;
        }
        self.rounds += 1;
        self.reached = self.rounds >= FULL_ROUNDS;
    }

    /// Version 3: again in each probe, on the latest rate.
    fn check(&mut self, sample_bw: f64, new_round: bool, app_limited: bool) {
        if self.now || app_limited {
            return;
        }
        if sample_bw >= self.bw * FULL_GROWTH {
            self.restart(sample_bw);
            return;
        }
        if new_round {
            self.rounds += 1;
            self.now = self.rounds >= FULL_ROUNDS;
            self.reached |= self.now;
        }
    }

    /// Searches anew from a rate.
    fn restart(&mut self, bw: f64) {
        self.bw = bw;
        self.rounds = 0;
        self.now = false;
    }
}

/// Bytes of a burst, `bbr_tso_segs_goal`: what the pace (bytes a second) sends in 1/1024 s and, with `min_rtt`,
/// an allowance that halves with each 512 us of it (`bbr_tso_rtt_shift`).
fn burst(pace: f64, mss: u64, min_rtt: Option<Nanos>) -> u64 {
    let by_rtt = min_rtt
        .map_or(0, |rtt| 65_536_u64.checked_shr(u32::try_from(rtt.0 / 512_000).unwrap_or(64)).unwrap_or(0));
    let bytes = (to_u64(pace / 1024.0) + by_rtt).min(MAX_BURST);
    let least = if min_rtt.is_none() && pace * 8.0 < 1_200_000.0 { 1 } else { 2 };
    (bytes / mss).max(least) * mss
}

/// The rate of a sample, bytes a second; zero without one.
fn sample_bw(ack: &Ack) -> f64 {
    ack.rate.map_or(0.0, |rate| to_f64(rate.delivered) / rate.interval.as_secs_f64())
}

/// `bbr_bdp`: bytes at rate `bw` in a round trip, `gain` times.
fn bdp(bw: f64, min_rtt: Nanos, gain: f64) -> u64 {
    to_u64(libm::ceil(bw * min_rtt.as_secs_f64() * gain))
}

/// A linear congruential generator (Knuth's MMIX constants) for what BBR leaves to chance.
#[derive(Clone, Copy, Debug)]
struct Dice(u64);

impl Dice {
    /// Uniform in 0..1.
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from((self.0 >> 32) as u32) / 4_294_967_296.0
    }

    /// Uniform in 0..n.
    fn below(&mut self, n: usize) -> usize {
        let roll = to_u64(self.roll() * to_f64(n as u64));
        usize::try_from(roll).unwrap_or(0).min(n.saturating_sub(1))
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
