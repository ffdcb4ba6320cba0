// SPDX-License-Identifier: Apache-2.0
//! Round-trip time and retransmission time-out, RFC 6298.
//!
//! Invariant: `rto()` lies between the two limits. Departure: the least time-out is 200 ms by default, as in Linux;
//! the RFC's 1 s would let a lost tail stand for longer than most flows last.

use crate::Nanos;

/// Limits of the estimator.
#[derive(Clone, Copy, Debug)]
pub struct RttOptions {
    /// Time-out before any sample (RFC 6298 2.1).
    pub initial_rto: Nanos,
    /// Least time-out.
    pub min_rto: Nanos,
    /// Greatest time-out, backed off or not (RFC 6298 2.5: at least 60 s).
    pub max_rto: Nanos,
}

impl Default for RttOptions {
    fn default() -> Self {
        Self {
            initial_rto: Nanos::from_secs(1),
            min_rto: Nanos::from_millis(200),
            max_rto: Nanos::from_secs(60),
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    options: RttOptions,
    smoothed: Option<Nanos>,
    variation: Nanos,
    least: Nanos,
    latest: Nanos,
    /// Doublings since the last sample.
    backoff: u32,
}

impl RttEstimator {
    /// Without a sample.
    pub fn new(options: RttOptions) -> Self {
        Self {
            options,
            smoothed: None,
            variation: Nanos::ZERO,
            least: Nanos::MAX,
            latest: Nanos::ZERO,
            backoff: 0,
        }
    }

    /// A new sample (RFC 6298 2.2, 2.3).
    pub fn sample(&mut self, rtt: Nanos) {
        self.latest = rtt;
        self.least = self.least.min(rtt);
        self.backoff = 0;
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = Nanos(rtt.0 / 2);
            }
            Some(smoothed) => {
                let deviation = smoothed.0.abs_diff(rtt.0);
                self.variation = Nanos(self.variation.0 - self.variation.0 / 4 + deviation / 4);
                self.smoothed = Some(Nanos(smoothed.0 - smoothed.0 / 8 + rtt.0 / 8));
            }
        }
    }

    /// The timer ran out: the next one is twice as long (RFC 6298 5.5).
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    /// The time-out that applies now.
    pub fn rto(&self) -> Nanos {
        let base = match self.smoothed {
            None => self.options.initial_rto,
            Some(smoothed) => smoothed + self.variation.scaled(4, 1),
        };
        let bounded = base.max(self.options.min_rto);
        bounded.scaled(1 << self.backoff, 1).min(self.options.max_rto)
    }

    /// Smoothed; zero before the first sample.
    pub fn smoothed(&self) -> Nanos {
        self.smoothed.unwrap_or(Nanos::ZERO)
    }

    /// The latest sample; zero before the first.
    pub fn latest(&self) -> Nanos {
        self.latest
    }

    /// The least sample; `None` before the first.
    pub fn least(&self) -> Option<Nanos> {
        self.smoothed.map(|_| self.least)
    }
}
