// SPDX-License-Identifier: Apache-2.0
//! Queue protection (RFC 9957, DOCSIS 3.1 annex P): which packets of L are sent to C instead, judged before they join.
//!
//! Each flow owns a bucket while its queuing score lasts: the bytes it sent times the native likelihood of L at that
//! moment, drained at 2^LG_AGING bytes a second and kept as the time at which the bucket will have drained. A packet is
//! sanctioned if the delay is above CRITICALqL and its product with the score is above CRITICALqL * CRITICALqLSCORE.
//!
//! Invariants: never more state than [`QueueProtection`] itself; a flow that sends while the native likelihood is 0 gets
//! no score. A flow is its 32-bit hash: those that share it share a bucket, as all do that find both of theirs taken.
//! T_RES is 1 ns and times are 64 bits wide, so that expiry times need no recalibration.

use crate::single::{delay_within, within};
use crate::{Nanos, ParamError, Prob};

/// Parameters of queue protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueProtectionConfig {
    /// CRITICALqL: no sanctions up to this delay of L; the upper end of the ramp (MAXTH) by default.
    pub critical_delay: Nanos,
    /// CRITICALqLSCORE: the score that is too much at CRITICALqL.
    pub critical_score: Nanos,
    /// LG_AGING: scores drain at 2^this bytes a second, times 2^30 / 10^9.
    pub lg_aging: u32,
}

impl Default for QueueProtectionConfig {
    fn default() -> Self {
        Self {
            critical_delay: Nanos::from_micros(1_000),
            critical_score: Nanos::from_micros(4_000),
            lg_aging: 19,
        }
    }
}

/// Largest exponent of the drain rate: 2^0 bytes a nanosecond.
const LG_NANOS: u32 = 30;
/// BI_SIZE: bits of the hash that name a bucket.
const BI_SIZE: u32 = 5;
/// NBUCKETS, without the one of all that find none.
const BUCKETS: usize = 1 << BI_SIZE;
/// ATTEMPTS to find a bucket.
const ATTEMPTS: u32 = 2;
/// MAX_QLSCORE.
const MAX_SCORE: Nanos = Nanos::from_secs(5);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bucket {
    /// `t_exp`: when its score will have drained.
    expiry: Nanos,
    /// Its owner.
    flow: u32,
}

/// Queue protection of one L queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueProtection {
    config: QueueProtectionConfig,
    /// The last one is the dregs.
    buckets: [Bucket; BUCKETS + 1],
}

const _: () = assert!(size_of::<QueueProtection>() <= 560);

impl QueueProtection {
    /// All buckets free.
    ///
    /// # Errors
    ///
    /// A value outside its limits.
    pub fn new(config: QueueProtectionConfig) -> Result<Self, ParamError> {
        delay_within("critical_delay_us", config.critical_delay, 1)?;
        delay_within("critical_score_us", config.critical_score, 1)?;
        within("lg_aging", config.lg_aging.into(), 1, LG_NANOS.into())?;
        Ok(Self { config, buckets: [Bucket::default(); BUCKETS + 1] })
    }

    /// Whether a packet of `bytes` is sanctioned: it goes to C. `prob_native` and `q_delay` are those of L with it.
    pub fn judge(&mut self, flow: u32, now: Nanos, bytes: u32, prob_native: Prob, q_delay: Nanos) -> bool {
        let bucket = self.pick(flow, now);
        let score = self.fill(bucket, now, bytes, prob_native);
        let critical = self.config.critical_delay;
        let product = u128::from(critical.0) * u128::from(self.config.critical_score.0);
        q_delay > critical && u128::from(q_delay.0) * u128::from(score.0) > product
    }

    /// `pick_bucket()`: the flow's own, else the first of its two that has expired, else the dregs.
    fn pick(&mut self, flow: u32, now: Nanos) -> usize {
        let mut pick = BUCKETS;
        for attempt in 0..ATTEMPTS {
            let index = (flow >> (attempt * BI_SIZE)) as usize % BUCKETS;
            let bucket = self.buckets[index];
            if bucket.flow == flow {
                pick = index;
                break;
            }
            if pick == BUCKETS && bucket.expiry <= now {
                pick = index;
            }
        }
        let bucket = &mut self.buckets[pick];
        bucket.flow = flow;
        bucket.expiry = bucket.expiry.max(now);
        pick
    }

    /// `fill_bucket()`: the score with this packet.
    fn fill(&mut self, index: usize, now: Nanos, bytes: u32, prob_native: Prob) -> Nanos {
        let scaled = (u128::from(prob_native.0) * u128::from(bytes)) << (LG_NANOS - self.config.lg_aging);
        let drain = u64::try_from(scaled / u128::from(u32::MAX)).unwrap_or(u64::MAX);
        let bucket = &mut self.buckets[index];
        bucket.expiry = (bucket.expiry + Nanos(drain)).min(now + MAX_SCORE);
        bucket.expiry.since(now)
    }
}

#[cfg(test)]
mod tests;
