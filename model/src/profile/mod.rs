// SPDX-License-Identifier: Apache-2.0
//! Profiles: which AQM, with which parameters, which limits and which overhead.
//!
//! Defaults are those of RFC 9332 appendix A with the ramp of the design. Gains and times that follow from
//! round-trip times do so here, once and in exact arithmetic: tc's fixed point loses a count at each dump.

mod queues;

pub mod overhead;

pub use queues::{Cake, Cocoa, Codel, CodelAf, CurvyRed, Fq, FqCodel, HostFairness, Pie, Tins};

/// Longest `limit_us`. Where it is the default (`compat = "linux"`, which limits packets alone) it stands for none:
/// at 400 Gb/s its product with the rate still fits 64 bits.
pub const MAX_LIMIT_US: u64 = 40_000_000;
/// `step_us` of `compat = "linux"` (sch_dualpi2: 1 ms).
pub const LINUX_STEP_US: u64 = 1000;
/// `limit_packets` of `compat = "linux"` (sch_dualpi2).
pub const LINUX_LIMIT_PACKETS: u32 = 10_000;

/// A validated profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The AQM and its own keys.
    pub aqm: Aqm,
    /// Whether ECT(1) identifies L4S (RFC 9331 5.1).
    pub l4s: bool,
    /// Queue limit as time at the rate.
    pub limit_us: u64,
    /// Queue limit in packets; `None`: only the time limit.
    pub limit_packets: Option<u32>,
    /// What a packet costs beyond its IP length.
    pub overhead: Overhead,
    /// Whether an ECN-capable packet is marked rather than dropped.
    pub ecn: bool,
    /// Bytes of a full packet on the wire, for floors and thresholds.
    pub mtu: u32,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            aqm: Aqm::DualPi2(DualPi2::default()),
            l4s: true,
            limit_us: 250_000,
            limit_packets: None,
            overhead: Overhead::ETHERNET,
            ecn: true,
            mtu: 1538,
        }
    }
}

/// The AQMs of this version.
#[derive(Clone, Debug, PartialEq)]
pub enum Aqm {
    /// DualQ Coupled PI2 (RFC 9332 A).
    DualPi2(DualPi2),
    /// PI2 on a single queue: DualPI2's C queue alone.
    Pi2(DualPi2),
    /// PIE (RFC 8033).
    Pie(Pie),
    /// CoDel (RFC 8289).
    Codel(Codel),
    /// FQ-CoDel (RFC 8290).
    FqCodel(FqCodel),
    /// A FIFO a flow, served by deficit round robin.
    Fq(Fq),
    /// CAKE.
    Cake(Cake),
    /// `fq` with a buffer sized for each flow.
    Cocoa(Cocoa),
    /// DualQ Coupled Curvy RED (RFC 9332 B).
    CurvyRed(CurvyRed),
    /// CoDel with approximate fairness (draft-morton-tsvwg-codel-approx-fair).
    CodelAf(CodelAf),
    /// Tail drop only.
    Fifo,
}

impl Aqm {
    /// Its name in the configuration.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::DualPi2(_) => "dualpi2",
            Self::Pi2(_) => "pi2",
            Self::Pie(_) => "pie",
            Self::Codel(_) => "codel",
            Self::FqCodel(_) => "fq_codel",
            Self::Fq(_) => "fq",
            Self::Cake(_) => "cake",
            Self::Cocoa(_) => "cocoa",
            Self::CurvyRed(_) => "curvy_red",
            Self::CodelAf(_) => "codel_af",
            Self::Fifo => "fifo",
        }
    }

    /// Whether it marks rather than drops unless the profile says otherwise.
    pub const fn ecn_by_default(&self) -> bool {
        !matches!(self, Self::Fifo | Self::Fq(_) | Self::Cocoa(_))
    }
}

/// Keys of `dualpi2` and `pi2`, in the names of tc-dualpi2.
#[derive(Clone, Debug, PartialEq)]
pub struct DualPi2 {
    /// PI target delay.
    pub target_us: u64,
    /// PI update interval.
    pub tupdate_us: u64,
    /// Integral gain, per second.
    pub alpha_hz: f64,
    /// Proportional gain, per second.
    pub beta_hz: f64,
    /// k: p_CL = k * p'.
    pub coupling: u32,
    /// Native L marking.
    pub native: Native,
    /// Ramp floor in packets of `mtu` at the served rate; 0: none.
    pub floor_packets: u32,
    /// WRR weight of C in percent, 0 to 100.
    pub classic_protection_percent: u32,
    /// What happens past p_CL = 1.
    pub overload: Overload,
    /// ECT(0) goes to L too.
    pub any_ect: bool,
    /// Queue protection (RFC 9957).
    pub queue_protection: bool,
    /// Whose arithmetic.
    pub compat: Compat,
}

impl Default for DualPi2 {
    fn default() -> Self {
        Self {
            target_us: 15_000,
            tupdate_us: 16_000,
            alpha_hz: 0.16,
            beta_hz: 3.2,
            coupling: 2,
            native: Native::Ramp { min_us: 800, range_us: 400 },
            floor_packets: 2,
            classic_protection_percent: 10,
            overload: Overload::Drop,
            any_ect: false,
            queue_protection: false,
            compat: Compat::Rfc,
        }
    }
}

impl DualPi2 {
    /// What `compat = "linux"` implies.
    pub fn linux() -> Self {
        Self {
            native: Native::Step { threshold_us: LINUX_STEP_US },
            floor_packets: 0,
            compat: Compat::Linux,
            ..Self::default()
        }
    }

    /// Takes over what follows from round-trip times. The two times are rounded to whole microseconds, the gains
    /// are those of the exact times.
    pub fn tune(&mut self, tuning: RttTuning) {
        self.target_us = whole(tuning.target_us);
        self.tupdate_us = whole(tuning.tupdate_us);
        self.alpha_hz = tuning.alpha_hz;
        self.beta_hz = tuning.beta_hz;
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time of at most minutes, at least 1"
)]
fn whole(time_us: f64) -> u64 {
    time_us.round().max(1.0) as u64
}

/// What follows from round-trip times, exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RttTuning {
    /// The typical round-trip time.
    pub target_us: f64,
    /// The shorter of the typical and a third of the longest.
    pub tupdate_us: f64,
    /// 0.1 * Tupdate / RTT_max^2, per second.
    pub alpha_hz: f64,
    /// 0.3 / RTT_max, per second.
    pub beta_hz: f64,
}

impl RttTuning {
    /// From `typical_rtt_us`, `max_rtt_us` or both, as iproute2's tc-dualpi2 derives them (RFC 9332 appendix A.1
    /// figure 2): either is 6 times or a sixth of the other. `None` if the typical one is the longer, or neither
    /// is given.
    pub fn new(typical_us: Option<u64>, max_us: Option<u64>) -> Option<Self> {
        let (typical, max) = match (typical_us.map(exact), max_us.map(exact)) {
            (Some(typical), Some(max)) => (typical, max),
            (Some(typical), None) => (typical, typical * 6.0),
            (None, Some(max)) => (max / 6.0, max),
            (None, None) => return None,
        };
        let tupdate_us = typical.min(max / 3.0).max(1.0);
        let (interval_s, longest_s) = (tupdate_us / 1e6, max / 1e6);
        (typical <= max).then(|| Self {
            target_us: typical,
            tupdate_us,
            alpha_hz: 0.1 * interval_s / (longest_s * longest_s),
            beta_hz: 0.3 / longest_s,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of at most minutes")]
fn exact(time_us: u64) -> f64 {
    time_us as f64
}

/// The native AQM of L.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    /// Marks with 0 at `min_us` rising to 1 at `min_us + range_us` of backlog time.
    Ramp {
        /// Where it begins.
        min_us: u64,
        /// How wide it is.
        range_us: u64,
    },
    /// Marks all beyond this.
    Step {
        /// The threshold.
        threshold_us: u64,
    },
}

/// RFC 9332 4.2.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// L and C drop with p_C.
    Drop,
    /// p' is capped at 1/k; the queue limit does the rest.
    Overflow,
}

/// Which arithmetic `dualpi2` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compat {
    /// RFC 9332 with its recommendations: ramp, recur(), backlog time.
    Rfc,
    /// The kernel's integers, step, random rolls and sojourn.
    Linux,
}

/// Bytes on the line beyond the IP packet, as tc-cake counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// Added to the length of the IP packet, -64 to 256.
    pub bytes: i16,
    /// Least size after `bytes` are added.
    pub mpu: u16,
    /// Cell framing.
    pub cells: Cells,
}

/// Cell framing of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// Frames.
    None,
    /// ATM: 48 bytes of payload in 53.
    Atm,
    /// PTM: 64 bytes in 65.
    Ptm,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_follow_from_round_trip_times_as_in_iproute2() {
        // max, typical, then target, Tupdate (ms) and gains: the table of the iproute2 selftests, exact
        let cases = [
            (Some(100), Some(15), 15.0, 15.0, 0.15, 3.0),
            (Some(200), Some(20), 20.0, 20.0, 0.05, 1.5),
            (Some(300), None, 50.0, 50.0, 0.1 / 1.8, 1.0),
            (Some(50), None, 50.0 / 6.0, 50.0 / 6.0, 1.0 / 3.0, 6.0),
            (Some(30), Some(5), 5.0, 5.0, 5.0 / 9.0, 10.0),
            (Some(10), Some(1), 1.0, 1.0, 1.0, 30.0),
            (None, Some(15), 15.0, 15.0, 0.1 * 15.0 / 8.1, 10.0 / 3.0),
            // a typical time beyond a third of the longest does not slow the update
            (Some(30), Some(20), 20.0, 10.0, 10.0 / 9.0, 10.0),
        ];
        for (max, typical, target, tupdate, alpha, beta) in cases {
            let us = |ms: Option<u64>| ms.map(|ms| ms * 1000);
            let tuning = RttTuning::new(us(typical), us(max)).unwrap();
            let pairs = [
                (tuning.target_us, target * 1e3),
                (tuning.tupdate_us, tupdate * 1e3),
                (tuning.alpha_hz, alpha),
                (tuning.beta_hz, beta),
            ];
            for (is, wanted) in pairs {
                assert!((is / wanted - 1.0).abs() < 1e-12, "{max:?} {typical:?}: {is} is not {wanted}");
            }
        }
        assert_eq!(RttTuning::new(Some(2), Some(1)), None);
        assert_eq!(RttTuning::new(None, None), None);
    }

    #[test]
    fn tuning_rounds_times_but_not_gains() {
        let mut aqm = DualPi2::default();
        aqm.tune(RttTuning::new(None, Some(50_000)).unwrap());
        assert_eq!((aqm.target_us, aqm.tupdate_us), (8333, 8333));
        assert!((aqm.alpha_hz - 1.0 / 3.0).abs() < 1e-15);
    }
}
