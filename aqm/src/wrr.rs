// SPDX-License-Identifier: Apache-2.0
//! The scheduler of a DualQ: weighted round robin by a credit whose sign names the queue to serve.
//!
//! The arithmetic of Linux sch_dualpi2 in both modes (RFC 9332 A.1 recommends its two refinements): the credit changes
//! only under contention and only for packets that survive the AQM, and is reset in favour of L when both queues drain.
//! Invariant: while both queues wait, C gets `weight` percent of the bytes in the long run, and a C head waits for at
//! most (100 - weight) / weight MTU of L (9 at the default of 10).

use crate::Queue;

/// Weights of the two queues; the credit itself is an i32 that the caller keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrr {
    classic_weight: i32,
    start: i32,
}

impl Wrr {
    /// C's weight in percent (at most 100; 0: strict priority for L) and the MTU that sizes the starting credit.
    pub const fn new(classic_percent: u8, mtu: u16) -> Self {
        let classic_weight = if classic_percent > 100 {
            100
        } else {
            classic_percent as i32
        };
        Self {
            classic_weight,
            start: mtu as i32 * (2 * classic_weight - 100),
        }
    }

    /// The credit of drained queues.
    pub const fn start(&self) -> i32 {
        self.start
    }

    /// The queue to serve next.
    pub const fn select(credit: i32, l_waits: bool, c_waits: bool) -> Option<Queue> {
        match (l_waits, c_waits) {
            (false, false) => None,
            (true, false) => Some(Queue::L4s),
            (false, true) => Some(Queue::Classic),
            (true, true) => Some(if credit <= 0 { Queue::L4s } else { Queue::Classic }),
        }
    }

    /// The credit after `bytes` of `queue` were sent while the other queue waited.
    pub fn charge(&self, credit: i32, queue: Queue, bytes: u32) -> i32 {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        match queue {
            Queue::L4s => credit.saturating_add(self.classic_weight.saturating_mul(bytes)),
            Queue::Classic => credit.saturating_sub((100 - self.classic_weight).saturating_mul(bytes)),
        }
    }
}
