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
        let classic_weight = if classic_percent > 100 { 100 } else { classic_percent as i32 };
        Self { classic_weight, start: mtu as i32 * (2 * classic_weight - 100) }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of L and C sent over `packets` departures with both queues always waiting.
    fn shares(percent: u8, l_bytes: u32, c_bytes: u32, packets: u32) -> (u64, u64) {
        let wrr = Wrr::new(percent, 1514);
        let (mut credit, mut l, mut c) = (wrr.start(), 0, 0);
        for _ in 0..packets {
            match Wrr::select(credit, true, true).unwrap() {
                Queue::L4s => {
                    l += u64::from(l_bytes);
                    credit = wrr.charge(credit, Queue::L4s, l_bytes);
                }
                Queue::Classic => {
                    c += u64::from(c_bytes);
                    credit = wrr.charge(credit, Queue::Classic, c_bytes);
                }
            }
        }
        (l, c)
    }

    #[test]
    fn the_credit_starts_where_the_kernels_does() {
        assert_eq!(Wrr::new(10, 1514).start(), -121_120);
        assert_eq!(Wrr::new(50, 1514).start(), 0);
        assert_eq!(Wrr::new(0, 1514).start(), -151_400);
    }

    #[test]
    fn equal_packets_share_by_weight() {
        for (percent, ratio) in [(10, 9), (25, 3), (50, 1)] {
            let (l, c) = shares(percent, 1514, 1514, 100_000);
            assert!(l.abs_diff(ratio * c) <= c / 1000, "{percent}: {l} to {c}");
        }
        let (l, c) = shares(6, 1514, 1514, 100_000);
        assert_eq!(l * 10 / c, 156, "15.7 to 1");
    }

    #[test]
    fn unequal_packets_share_bytes_by_weight() {
        let (l, c) = shares(10, 100, 1514, 1_000_000);
        assert_eq!((l * 100 + c * 50) / (c * 100), 9, "{l} to {c}");
        let (l, c) = shares(10, 9000, 64, 1_000_000);
        assert_eq!((l * 100 + c * 50) / (c * 100), 9, "{l} to {c}");
    }

    #[test]
    fn weight_zero_is_strict_priority_for_l_and_a_hundred_for_c() {
        assert_eq!(shares(0, 1514, 1514, 10_000).1, 0);
        assert_eq!(shares(100, 1514, 1514, 10_000).0, 0);
    }

    #[test]
    fn a_c_head_waits_for_at_most_nine_packets_of_l() {
        let wrr = Wrr::new(10, 1514);
        let (mut credit, mut waited, mut longest) = (wrr.start(), 0, 0);
        for _ in 0..1_000 {
            let queue = Wrr::select(credit, true, true).unwrap();
            credit = wrr.charge(credit, queue, 1514);
            waited = if queue == Queue::L4s { waited + 1 } else { 0 };
            longest = longest.max(waited);
        }
        assert_eq!(longest, 9);
    }

    #[test]
    fn it_is_work_conserving() {
        for credit in [i32::MIN, -1, 0, 1, i32::MAX] {
            assert_eq!(Wrr::select(credit, false, false), None);
            assert_eq!(Wrr::select(credit, true, false), Some(Queue::L4s));
            assert_eq!(Wrr::select(credit, false, true), Some(Queue::Classic));
        }
    }

    #[test]
    fn extreme_sizes_saturate() {
        let wrr = Wrr::new(10, u16::MAX);
        assert_eq!(wrr.charge(i32::MAX, Queue::L4s, u32::MAX), i32::MAX);
        assert_eq!(wrr.charge(i32::MIN, Queue::Classic, u32::MAX), i32::MIN);
    }
}
