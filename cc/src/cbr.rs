// SPDX-License-Identifier: Apache-2.0
//! A constant bit rate that answers neither marks nor losses: the unresponsive traffic of the overload tests.

use crate::{Ack, Codepoint, Kind, Loss, Nanos, Sender, SenderOptions, State};

/// See the module.
#[derive(Clone, Debug)]
pub struct Cbr {
    rate_bps: u64,
    mss: u32,
    codepoint: Codepoint,
}

impl Cbr {
    /// At `options.rate_bps` (at least 1 b/s).
    pub fn new(options: &SenderOptions) -> Self {
        Self {
            rate_bps: options.rate_bps.max(1),
            mss: options.mss,
            codepoint: options.codepoint.unwrap_or(Kind::Cbr.default_codepoint()),
        }
    }
}

impl Sender for Cbr {
    fn on_ack(&mut self, _ack: &Ack) {}

    fn on_loss(&mut self, _loss: &Loss) {}

    fn on_spurious_loss(&mut self, _now: Nanos) {}

    fn on_rto(&mut self, _now: Nanos) {}

    fn cwnd(&self) -> u64 {
        u64::MAX
    }

    fn pacing_bps(&self, _now: Nanos) -> Option<u64> {
        Some(self.rate_bps)
    }

    fn burst(&self) -> u64 {
        u64::from(self.mss)
    }

    fn packet_bytes(&self) -> u32 {
        self.mss
    }

    fn codepoint(&self) -> Codepoint {
        self.codepoint
    }

    fn state(&self) -> State {
        State::default()
    }
}
