// SPDX-License-Identifier: Apache-2.0
//! What tells BBR versions 2 and 3 apart, and the constants they share.
//!
//! Sources: `tcp_bbr2.c` of google/bbr branch v2alpha, and `tcp_bbr.c` of its branch v3. Both use ECN only where the
//! least round trip is at most 5 ms (`bbr_ecn_max_rtt_us = 5000`; 0: at any), and v2alpha only after
//! `ecn_enable = 1`. Its users in the open Internet set `ecn_max_rtt_us = 0`.

use crate::Nanos;

/// Scale-down of bounds on loss (`bbr_beta`).
pub(super) const BETA: f64 = 0.3;
/// Gain of alpha's moving average (`bbr_ecn_alpha_gain`).
pub(super) const ECN_ALPHA_GAIN: f64 = 1.0 / 16.0;
/// On CE `inflight_lo` falls by this times alpha (`bbr_ecn_factor`).
pub(super) const ECN_FACTOR: f64 = 1.0 / 3.0;
/// Marked fraction that is too high (`bbr_ecn_thresh`).
pub(super) const ECN_THRESH: f64 = 0.5;
/// Rounds above it that end Startup (`bbr_full_ecn_cnt`).
pub(super) const FULL_ECN_ROUNDS: u32 = 2;
/// Lost fraction that is too high (`bbr_loss_thresh`).
pub(super) const LOSS_THRESH: f64 = 0.02;
/// Part of `inflight_hi` left to others (`bbr_inflight_headroom`).
pub(super) const HEADROOM: f64 = 0.15;
/// Rounds between probes at most (`bbr_bw_probe_max_rounds`).
pub(super) const PROBE_MAX_ROUNDS: u64 = 63;
/// Rounds left to chance (`bbr_bw_probe_rand_rounds`).
pub(super) const PROBE_RAND_ROUNDS: usize = 2;
/// Time between probes (`bbr_bw_probe_base_us`).
pub(super) const PROBE_BASE: Nanos = Nanos::from_secs(2);
/// And what is left to chance of it (`bbr_bw_probe_rand_us`).
pub(super) const PROBE_RAND: Nanos = Nanos::from_secs(1);
/// Time without a lower sample after which `ProbeRTT` begins (`bbr_probe_rtt_win_ms`).
pub(super) const PROBE_RTT_WINDOW: Nanos = Nanos::from_secs(5);
/// Window in `ProbeRTT`, of the estimated product (`bbr_probe_rtt_cwnd_gain`).
pub(super) const PROBE_RTT_GAIN: f64 = 0.5;
/// Pace while draining what Startup left (`bbr_drain_gain`).
pub(super) const DRAIN_GAIN: f64 = 1.0 / 2.885;
/// Gain of the window in steady state (`bbr_cwnd_gain`).
pub(super) const CWND_GAIN: f64 = 2.0;
/// Pace while probing upward (`bbr_pacing_gain`).
pub(super) const UP_GAIN: f64 = 1.25;

/// What the versions differ in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    /// Gains of pace and window in Startup.
    pub(super) startup: (f64, f64),
    /// Pace while probing downward.
    pub(super) down_gain: f64,
    /// What the window gains while probing upward.
    pub(super) up_cwnd_gain: f64,
    /// Acknowledgements with losses in a round that end Startup.
    pub(super) full_loss_count: u32,
    /// Once marks cease, probe anew with this part of `inflight_hi`; 0: not.
    pub(super) ecn_reprobe_gain: f64,
    /// `ProbeUP` ends when the rate stops growing, and not when 1.25 times the product flies.
    pub(super) plateau_ends_probe: bool,
    /// What Startup had delivered in its last round bounds `inflight_hi` from below.
    pub(super) keep_latest: bool,
}

pub(super) const V2: Version = Version {
    startup: (2.885, 2.885),
    down_gain: 0.75,
    up_cwnd_gain: 2.0,
    full_loss_count: 8,
    ecn_reprobe_gain: 0.0,
    plateau_ends_probe: false,
    keep_latest: false,
};

pub(super) const V3: Version = Version {
    startup: (2.77, 2.0),
    down_gain: 0.91,
    up_cwnd_gain: 2.25,
    full_loss_count: 6,
    ecn_reprobe_gain: 0.5,
    plateau_ends_probe: true,
    keep_latest: true,
};
