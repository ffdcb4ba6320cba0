// SPDX-License-Identifier: Apache-2.0
//! Parameters of DualPI2 and PI2 in plain units, their limits, and their derivation from round-trip times.
//!
//! Defaults: RFC 9332 figure 2, with the Tupdate and gains of its Linux reference (16 ms, 0.16, 3.2).
//! Invariant: what was configured is kept as it came; what the arithmetic makes of it is derived once, elsewhere, so
//! that showing and applying a configuration is a fixed point (Linux loses a count of each gain a cycle).

use thiserror::Error;

use crate::Nanos;

/// The native AQM of L.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    /// Likelihood 0 at `min` rising to 1 at `min + range`.
    Ramp {
        /// Where it begins.
        min: Nanos,
        /// How wide it is.
        range: Nanos,
    },
    /// All beyond the threshold.
    Step {
        /// The threshold.
        threshold: Nanos,
    },
}

/// What happens once p_CL reaches 1 (RFC 9332 4.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overload {
    /// L and C drop with p_C whatever the codepoint.
    #[default]
    Drop,
    /// p' is capped at 1/k; L is never dropped by the AQM, the queue limit does it.
    Overflow,
}

/// Whose arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compat {
    /// RFC 9332 with its recommendations: ramp, recur(), delay behind the packet.
    #[default]
    Rfc,
    /// The integers of Linux sch_dualpi2: step on the sojourn, random rolls.
    Linux,
}

/// Parameters of DualPI2; `pi2` takes the same and uses those of its C branch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "switches of the configuration, each by its name there")]
pub struct DualPi2Config {
    /// PI target delay.
    pub target: Nanos,
    /// PI update interval.
    pub tupdate: Nanos,
    /// Integral gain, per second of delay.
    pub alpha_hz: f64,
    /// Proportional gain, per second of delay.
    pub beta_hz: f64,
    /// k: p_CL = k * p'.
    pub coupling: u32,
    /// Native marking of L.
    pub native: Native,
    /// Floor of the ramp in MTU times at the served rate; 0: none. Not used with `Compat::Linux`.
    pub floor_packets: u32,
    /// Largest packet in bytes as the shaper counts it (the kernel's is 1514 on Ethernet).
    pub mtu: u32,
    /// WRR weight of C in percent; 0: strict priority for L.
    pub classic_protection_percent: u32,
    /// What happens once p_CL reaches 1.
    pub overload: Overload,
    /// ECT(0) goes to L too.
    pub any_ect: bool,
    /// Queue protection (RFC 9957) stands before L: Not-ECT there passes untouched outside overload (RFC 9332
    /// 2.5.1.1).
    pub queue_protection: bool,
    /// The L4S switch (RFC 9331 5.1).
    pub l4s: bool,
    /// Off: nothing is marked anywhere. Every packet is then treated as Not-ECT, ECT(1) in L too: it is dropped with
    /// the Classic likelihood (p_L/k)^2, to which an L4S sender responds as Reno does (RFC 9331 4.3).
    pub ecn: bool,
    /// Whose arithmetic.
    pub compat: Compat,
}

impl Default for DualPi2Config {
    fn default() -> Self {
        Self {
            target: Nanos::from_millis(15),
            tupdate: Nanos::from_millis(16),
            alpha_hz: 0.16,
            beta_hz: 3.2,
            coupling: 2,
            native: Native::Ramp { min: Nanos::from_micros(800), range: Nanos::from_micros(400) },
            floor_packets: 2,
            mtu: 1538,
            classic_protection_percent: 10,
            overload: Overload::Drop,
            any_ect: false,
            queue_protection: false,
            l4s: true,
            ecn: true,
            compat: Compat::Rfc,
        }
    }
}

impl DualPi2Config {
    /// The kernel's defaults in the kernel's arithmetic.
    pub fn linux() -> Self {
        Self {
            native: Native::Step { threshold: Nanos::from_millis(1) },
            floor_packets: 0,
            mtu: 1514,
            compat: Compat::Linux,
            ..Self::default()
        }
    }

    /// With target, Tupdate and gains from round-trip times. With `Compat::Linux` the gains are cut to the 1/256 Hz
    /// that iproute2 sends.
    ///
    /// # Errors
    ///
    /// [`ParamError::Rtt`] as [`RttGains::new`].
    pub fn with_rtts(self, typical: Option<Nanos>, max: Option<Nanos>) -> Result<Self, ParamError> {
        let gains = RttGains::new(typical, max)?;
        let cut = |hz: f64| {
            if self.compat == Compat::Linux { (hz * 256.0).trunc() / 256.0 } else { hz }
        };
        Ok(Self {
            target: gains.target,
            tupdate: gains.tupdate,
            alpha_hz: cut(gains.alpha_hz),
            beta_hz: cut(gains.beta_hz),
            ..self
        })
    }

    /// Whether every value lies within its limits.
    ///
    /// # Errors
    ///
    /// The first that does not, with its limits.
    pub fn validate(&self) -> Result<(), ParamError> {
        let within = |key, value: u64, min, max| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(ParamError::Range { key, value, min, max })
            }
        };
        let gain = |key, hz: f64| {
            if hz > 0.0 && hz <= MAX_GAIN_HZ { Ok(()) } else { Err(ParamError::Gain { key, hz }) }
        };
        within("target_us", self.target.0 / 1_000, 0, MAX_DELAY_US)?;
        within("tupdate_us", self.tupdate.0 / 1_000, 1, MAX_DELAY_US)?;
        gain("alpha_hz", self.alpha_hz)?;
        gain("beta_hz", self.beta_hz)?;
        within("coupling", self.coupling.into(), 1, 255)?;
        within("floor_packets", self.floor_packets.into(), 0, 1_000)?;
        within("mtu", self.mtu.into(), 64, 65_535)?;
        within("classic_protection_percent", self.classic_protection_percent.into(), 0, 100)?;
        match self.native {
            Native::Ramp { .. } if self.compat == Compat::Linux => Err(ParamError::LinuxRamp),
            Native::Ramp { min, range } => {
                within("ramp_min_us", min.0 / 1_000, 0, MAX_DELAY_US)?;
                within("ramp_range_us", range.0 / 1_000, 0, MAX_DELAY_US)
            }
            Native::Step { threshold } => within("step_us", threshold.0 / 1_000, 0, MAX_DELAY_US),
        }
    }
}

/// Delays are kept as 32 bits of nanoseconds.
const MAX_DELAY_US: u64 = 4_294_000;

/// The kernel's limit: 2^31 - 1 in units of 1/256 Hz.
const MAX_GAIN_HZ: f64 = 8_388_607.0;

/// Target, Tupdate and gains from round-trip times, as iproute2's `typical_rtt` and `max_rtt` do (RFC 9332 figure 2,
/// lines 12 to 14, with the target at the typical RTT).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RttGains {
    /// The typical RTT.
    pub target: Nanos,
    /// min(typical, max / 3), at least 1 us.
    pub tupdate: Nanos,
    /// 0.1 * Tupdate / max^2.
    pub alpha_hz: f64,
    /// 0.3 / max.
    pub beta_hz: f64,
}

impl RttGains {
    /// The one left out is derived: max = 6 * typical.
    ///
    /// # Errors
    ///
    /// [`ParamError::Rtt`] when both are missing, one is below 1 us or above 1000 s, or typical is above max.
    #[expect(clippy::cast_precision_loss, reason = "below 2^53 by the check")]
    pub fn new(typical: Option<Nanos>, max: Option<Nanos>) -> Result<Self, ParamError> {
        let (typical, max) = match (typical, max) {
            (Some(typical), Some(max)) => (typical, max),
            (Some(typical), None) => (typical, Nanos(typical.0.saturating_mul(6))),
            (None, Some(max)) => (Nanos(max.0 / 6), max),
            (None, None) => (Nanos::ZERO, Nanos::ZERO),
        };
        if typical > max || typical < Nanos::from_micros(1) || max > Nanos::from_secs(1_000) {
            return Err(ParamError::Rtt { typical, max });
        }
        let tupdate = Nanos(typical.0.min(max.0 / 3).max(1_000));
        let max_s = max.0 as f64 / 1e9;
        let alpha_hz = 0.1 * (tupdate.0 as f64 / 1e9) / (max_s * max_s);
        Ok(Self { target: typical, tupdate, alpha_hz, beta_hz: 0.3 / max_s })
    }
}

/// Why parameters were refused.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum ParamError {
    /// A number outside its limits.
    #[error("{key} is {value}, outside {min} to {max}")]
    Range {
        /// The key of the profile.
        key: &'static str,
        /// As given.
        value: u64,
        /// The least allowed.
        min: u64,
        /// The greatest allowed.
        max: u64,
    },
    /// A gain that is not a positive number within reason.
    #[error("{key} is {hz}, not above 0 and at most {MAX_GAIN_HZ}")]
    Gain {
        /// The key of the profile.
        key: &'static str,
        /// As given.
        hz: f64,
    },
    /// Round-trip times that make no sense.
    #[error("typical_rtt_us {} and max_rtt_us {} must be at least 1 us, at most 1000 s, and the typical not above the greatest", .typical.0 / 1_000, .max.0 / 1_000)]
    Rtt {
        /// As given or derived.
        typical: Nanos,
        /// As given or derived.
        max: Nanos,
    },
    /// The kernel has a step only.
    #[error("compat = \"linux\" has a step and no ramp: give step_us")]
    LinuxRamp,
}

#[cfg(test)]
mod tests;
