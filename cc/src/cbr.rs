// SPDX-License-Identifier: Apache-2.0
//! A constant bit rate that answers neither marks nor losses: the unresponsive traffic of the overload tests. With
//! `on` and `off` times it sends in the first and rests in the second, over and over from the first packet on.

use crate::{Ack, Codepoint, Kind, Loss, Nanos, Sender, SenderOptions, State};

/// See the module.
#[derive(Clone, Debug)]
pub struct Cbr {
    rate_bps: u64,
    mss: u32,
    codepoint: Codepoint,
    on: Nanos,
    off: Nanos,
    /// When it began.
    start: Option<Nanos>,
}

impl Cbr {
    /// At `options.rate_bps` (at least 1 b/s).
    pub fn new(options: &SenderOptions) -> Self {
        Self {
            rate_bps: options.rate_bps.max(1),
            mss: options.mss,
            codepoint: options.codepoint.unwrap_or(Kind::Cbr.default_codepoint()),
            on: options.on,
            off: options.off,
            start: None,
        }
    }
}

impl Sender for Cbr {
    fn on_ack(&mut self, _ack: &Ack) {}

    fn on_loss(&mut self, _loss: &Loss) {}

    fn on_spurious_loss(&mut self, _now: Nanos) {}

    fn on_rto(&mut self, _now: Nanos) {}

    fn silent_until(&mut self, now: Nanos) -> Option<Nanos> {
        let start = *self.start.get_or_insert(now);
        if self.on == Nanos::ZERO || self.off == Nanos::ZERO {
            return None;
        }
        let period = self.on + self.off;
        let phase = now.since(start).0 % period.0;
        (phase >= self.on.0).then(|| now + Nanos(period.0 - phase))
    }

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
