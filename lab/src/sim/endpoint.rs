// SPDX-License-Identifier: Apache-2.0
//! Both ends of a flow, and what is on its way between the bottleneck and them.
//!
//! A responsive flow is a `cc::Transmitter` and a `cc::Receiver`, driven as `sluice traffic` drives them. `udp` is a
//! clock alone: nothing comes back.

use std::collections::VecDeque;

use aqm::{Ecn, FlowKey, Nanos};
use cc::{AckFrame, Codepoint, Receiver, Transmitter};

/// What a data packet carries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Its number.
    pub(crate) seq: u64,
    /// Lowest number of interest.
    pub(crate) oldest: u64,
}

/// A data packet on its way to the receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coming {
    pub(crate) at: Nanos,
    pub(crate) load: Load,
    pub(crate) sent: Nanos,
    pub(crate) codepoint: Codepoint,
}

/// A sender that listens.
#[derive(Debug)]
pub(crate) struct Responsive {
    pub(crate) tx: Transmitter,
    pub(crate) rx: Receiver,
}

/// A sender that does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constant {
    /// Packets sent.
    pub(crate) sent: u64,
    pub(crate) began: Nanos,
    pub(crate) rate_bps: u64,
    pub(crate) packet_bytes: u32,
    pub(crate) on: Nanos,
    pub(crate) off: Nanos,
}

impl Constant {
    /// When packet `n` leaves: evenly in the time it sends, which the rests stretch.
    pub(crate) fn leaves(&self, n: u64) -> Nanos {
        let bits = u128::from(n) * u128::from(self.packet_bytes) * 8;
        let sending = bits * 1_000_000_000 / u128::from(self.rate_bps.max(1));
        let rests = match (self.on.0, self.off.0) {
            (0, _) | (_, 0) => 0,
            (on, off) => sending / u128::from(on) * u128::from(off),
        };
        self.began + Nanos(u64::try_from(sending + rests).unwrap_or(u64::MAX))
    }
}

/// What sends.
#[derive(Debug)]
pub(crate) enum Source {
    Responsive(Box<Responsive>),
    Constant(Constant),
    /// A short flow that is over.
    Gone,
}

/// Whose figures a flow adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// A long-running flow, by its place in the result.
    Flow(u32),
    /// Short flows of an entry.
    Web(u32),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) source: Source,
    pub(crate) account: Account,
    pub(crate) key: FlowKey,
    /// What `udp` sets; responsive senders say it with each packet.
    pub(crate) ecn: Ecn,
    pub(crate) packet_bytes: u32,
    /// Half the base round-trip time.
    pub(crate) half: Nanos,
    pub(crate) start: Nanos,
    pub(crate) stop: Nanos,
    /// When the earliest wake-up in the event queue is; others are out of date.
    pub(crate) wake: Nanos,
    /// The same for the delayed acknowledgement.
    pub(crate) ack_wake: Nanos,
    pub(crate) data: VecDeque<Coming>,
    pub(crate) acks: VecDeque<(Nanos, AckFrame)>,
    /// The number the next packet to leave the bottleneck carries if none is dropped.
    pub(crate) expected: u64,
}

impl Endpoint {
    /// A data packet comes at `at`, or after the one before it. Whether it is the only one on its way.
    #[inline]
    pub(crate) fn deliver(&mut self, coming: Coming) -> bool {
        let last = self.data.back().map_or(Nanos::ZERO, |before| before.at);
        self.data.push_back(Coming { at: coming.at.max(last), ..coming });
        self.data.len() == 1
    }

    /// The same for an acknowledgement.
    #[inline]
    pub(crate) fn answer(&mut self, at: Nanos, frame: AckFrame) -> bool {
        let last = self.acks.back().map_or(Nanos::ZERO, |before| before.0);
        self.acks.push_back((at.max(last), frame));
        self.acks.len() == 1
    }
}

/// Time of the lab as `cc` has it.
pub(crate) const fn to_cc(time: Nanos) -> cc::Nanos {
    cc::Nanos(time.0)
}

/// And back.
pub(crate) const fn from_cc(time: cc::Nanos) -> Nanos {
    Nanos(time.0)
}

/// The ECN field as the engine has it.
pub(crate) const fn ecn_of(codepoint: Codepoint) -> Ecn {
    Ecn::from_bits(codepoint as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_rate_does_not_drift_and_rests_when_it_should() {
        let mut udp = Constant {
            sent: 0,
            began: Nanos::from_secs(1),
            rate_bps: 7_000_000,
            packet_bytes: 1_514,
            on: Nanos::ZERO,
            off: Nanos::from_millis(5),
        };
        let n = 1_000_000;
        assert_eq!(udp.leaves(n).since(udp.began), Nanos(n * 1_514 * 8 * 1_000 / 7));
        // 1.73 ms a packet: numbers 0 to 5 in the first 10 ms, then 5 ms later the others
        udp.on = Nanos::from_millis(10);
        let steady = |n: u64| Nanos(n * 12_112_000 / 7);
        assert_eq!(udp.leaves(5).since(udp.began), steady(5));
        assert_eq!(udp.leaves(6).since(udp.began), steady(6) + udp.off);
        assert_eq!(udp.leaves(12).since(udp.began), steady(12) + udp.off + udp.off);
    }
}
