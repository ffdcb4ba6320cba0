// SPDX-License-Identifier: Apache-2.0
//! "Once per round trip": a span that ends when a packet sent after its start is acknowledged and, where asked
//! for, a time has passed as well (Prague's virtual RTT).

use crate::{Ack, Nanos};

/// One such span.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Epoch {
    next_seq: u64,
    started: Nanos,
}

impl Epoch {
    /// Begins now: `next_seq` is the number the next packet sent will carry.
    pub(crate) fn start(now: Nanos, next_seq: u64) -> Self {
        Self { next_seq, started: now }
    }

    /// Whether a packet sent after the start has been acknowledged and `at_least` has passed.
    pub(crate) fn is_over(&self, ack: &Ack, at_least: Nanos) -> bool {
        self.round_is_over(ack.acked_through) && ack.now.since(self.started) >= at_least
    }

    /// Whether a packet sent after the start has been acknowledged (`acked_through`: highest number plus one).
    pub(crate) fn round_is_over(&self, acked_through: u64) -> bool {
        acked_through > self.next_seq
    }

    /// Whether packet `seq` was sent after the start.
    pub(crate) fn is_before(&self, seq: u64) -> bool {
        seq >= self.next_seq
    }

    /// When it began.
    pub(crate) fn started(&self) -> Nanos {
        self.started
    }
}
