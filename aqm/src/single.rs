// SPDX-License-Identifier: Apache-2.0
//! What disciplines of one or two plain FIFOs share: counting what waits, what an acting law does to a codepoint, and
//! the limits of their parameters.
//!
//! A law acts by a mark on ECT(0) and ECT(1), by a drop on Not-ECT, and on CE not at all (the mark is there already, so
//! that marks count changes to CE). `exclude_dscp` makes ECT(1) Not-ECT (RFC 9331 5.4.1.2); the other rules choose
//! between the queues of a DualQ and mean nothing here.

use crate::{Backlog, Cause, Ecn, Nanos, ParamError, Rule, Verdict};

/// What a law that acts does to a packet.
pub(crate) const fn act(ecn: Ecn, rule: Rule) -> Verdict {
    match (ecn, rule) {
        (Ecn::NotEct, _) | (Ecn::Ect1, Rule::Exclude) => Verdict::Drop(Cause::Law),
        (Ecn::Ect0 | Ecn::Ect1, _) => Verdict::Mark(Cause::Law),
        (Ecn::Ce, _) => Verdict::Pass,
    }
}

/// A mark where it changes the packet.
pub(crate) const fn mark(ecn: Ecn, cause: Cause) -> Verdict {
    match ecn {
        Ecn::Ect0 | Ecn::Ect1 => Verdict::Mark(cause),
        Ecn::NotEct | Ecn::Ce => Verdict::Pass,
    }
}

impl Backlog {
    /// One more packet waits.
    pub(crate) const fn join(&mut self, bytes: u32) {
        self.packets = self.packets.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// One packet fewer waits.
    pub(crate) fn leave(&mut self, bytes: u32) {
        debug_assert!(self.packets > 0 && self.bytes >= bytes, "{bytes} bytes from {self:?}");
        self.packets = self.packets.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Delays are at most what 32 bits of nanoseconds hold.
const MAX_DELAY_US: u64 = 4_294_000;

/// Whether a value lies within its limits.
pub(crate) const fn within(key: &'static str, value: u64, min: u64, max: u64) -> Result<(), ParamError> {
    if value < min || value > max {
        return Err(ParamError::Range { key, value, min, max });
    }
    Ok(())
}

/// Whether a delay is at least `min_us` and fits.
pub(crate) const fn delay_within(key: &'static str, delay: Nanos, min_us: u64) -> Result<(), ParamError> {
    within(key, delay.0 / 1_000, min_us, MAX_DELAY_US)
}

/// Whether an MTU makes sense.
pub(crate) fn mtu_within(mtu: u32) -> Result<(), ParamError> {
    within("mtu", mtu.into(), 64, 65_535)
}

/// The kernel's limit of a gain: 2^31 - 1 in units of 1/256 Hz.
const MAX_GAIN_HZ: f64 = 8_388_607.0;

/// Whether a gain is a positive number within reason.
pub(crate) fn gain_within(key: &'static str, hz: f64) -> Result<(), ParamError> {
    if hz > 0.0 && hz <= MAX_GAIN_HZ { Ok(()) } else { Err(ParamError::Gain { key, hz }) }
}
