// SPDX-License-Identifier: Apache-2.0
//! The PI controller of RFC 9332 figure 8: one step of p', and any number of idle steps at once.
//!
//! p' += alpha * (delay - target) + beta * (delay - last), clamped to 0..1, with signed differences throughout.
//! Invariant: [`PiParams::idle`] with n ticks equals n calls of [`PiParams::step`] with a delay of zero, bit for bit,
//! because each later idle step subtracts the same whole number.
//!
//! Two arithmetics: `Compat::Rfc` multiplies in f64 by the gains as configured and cuts the step to a whole unit of
//! p' (2^-32); `Compat::Linux` has the kernel's integer gains in units of 64 ns. Departure from the kernel: it stores a
//! step in 32 bits before it clamps, so that a jump of more than 1 in p' (500 ms from idle) wraps; here it clamps.

use crate::{Compat, DualPi2Config, Nanos, Overload, ParamError, Prob};

/// The controller of one profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PiParams {
    target: Nanos,
    tupdate: Nanos,
    gains: Gains,
    /// p' never exceeds it.
    cap: u32,
    /// p' from which p_CL is 1; beyond u32 where it cannot be reached.
    overload_at: u64,
}

/// Gains in units of p' a nanosecond, and the most that p' may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RfcGains {
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    pub(crate) cap: u32,
}

/// What one nanosecond of delay changes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gains {
    /// In units of p'.
    Rfc { alpha: f64, beta: f64 },
    /// In units of p' / 64.
    Linux { alpha: i64, beta: i64 },
}

impl PiParams {
    /// The controller of a configuration.
    ///
    /// # Errors
    ///
    /// A value outside its limits.
    pub fn new(config: &DualPi2Config) -> Result<Self, ParamError> {
        config.validate()?;
        let coupling = config.coupling;
        let saturated = u32::MAX / coupling;
        let gains = match config.compat {
            Compat::Rfc => {
                let unit = f64::from(u32::MAX) / 1e9;
                Gains::Rfc { alpha: config.alpha_hz * unit, beta: config.beta_hz * unit }
            }
            Compat::Linux => {
                Gains::Linux { alpha: linux_gain(config.alpha_hz), beta: linux_gain(config.beta_hz) }
            }
        };
        let overload_at = match (config.overload, config.compat) {
            (Overload::Overflow, _) => u64::from(saturated),
            (Overload::Drop, Compat::Rfc) => u64::from(u32::MAX.div_ceil(coupling)),
            (Overload::Drop, Compat::Linux) => u64::from(saturated) + 1,
        };
        let cap = if config.overload == Overload::Overflow { saturated } else { u32::MAX };
        Ok(Self { target: config.target, tupdate: config.tupdate, gains, cap, overload_at })
    }

    /// The target as configured; the one in force may be longer at low rates.
    pub const fn target(&self) -> Nanos {
        self.target
    }

    /// The update interval.
    pub const fn tupdate(&self) -> Nanos {
        self.tupdate
    }

    /// Whether p' has reached 1/k, where p_CL is 1.
    pub const fn is_overload(&self, p_prime: Prob) -> bool {
        p_prime.0 as u64 >= self.overload_at
    }

    /// What a step in f64 needs; `None` in the kernel's arithmetic.
    pub(crate) const fn rfc_gains(&self) -> Option<RfcGains> {
        match self.gains {
            Gains::Rfc { alpha, beta } => Some(RfcGains { alpha, beta, cap: self.cap }),
            Gains::Linux { .. } => None,
        }
    }

    /// The least p' at which it is in overload, if that can be reached.
    pub(crate) const fn overload_at(&self) -> u64 {
        self.overload_at
    }

    /// p' after one update that saw `delay` (zero: both queues empty), the one before having seen `last`.
    #[must_use]
    pub fn step(&self, p_prime: Prob, delay: Nanos, last: Nanos, target: Nanos) -> Prob {
        let change = self.change(delay.signed_since(target), delay.signed_since(last));
        let next = i64::from(p_prime.0).saturating_add(change);
        Prob(u32::try_from(next.clamp(0, i64::from(self.cap))).unwrap_or(self.cap))
    }

    /// p' after `ticks` updates that saw empty queues.
    #[must_use]
    pub fn idle(&self, p_prime: Prob, last: Nanos, ticks: u64, target: Nanos) -> Prob {
        if ticks == 0 {
            return p_prime;
        }
        let first = self.step(p_prime, Nanos::ZERO, last, target);
        if first == Prob::ZERO {
            return first;
        }
        let each = self.change(Nanos::ZERO.signed_since(target), 0).unsigned_abs();
        let fall = u32::try_from(each.saturating_mul(ticks - 1)).unwrap_or(u32::MAX);
        Prob(first.0.saturating_sub(fall))
    }

    /// The step in units of p', towards zero.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "delays are below 2^38 ns and so exact in f64; the cast back saturates"
    )]
    fn change(&self, error: i64, growth: i64) -> i64 {
        match self.gains {
            Gains::Rfc { alpha, beta } => (error as f64 * alpha + growth as f64 * beta) as i64,
            Gains::Linux { alpha, beta } => {
                error.saturating_mul(alpha).saturating_add(growth.saturating_mul(beta)) / LINUX_UNITS
            }
        }
    }
}

/// The kernel keeps gains in units of p' / 64 a nanosecond.
const LINUX_UNITS: i64 = 64;

/// The kernel's gain: a whole number of 1/256 Hz, scaled with truncation (0.16 gives 44, 3.2 gives 879).
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "limits of the gain were checked"
)]
fn linux_gain(hz: f64) -> i64 {
    let wire = (hz * 256.0).round().max(1.0) as u64;
    let scaled = ((wire * u64::from(u32::MAX)) >> 2) / 1_000_000_000;
    scaled.cast_signed()
}

#[cfg(test)]
mod tests;
