// SPDX-License-Identifier: Apache-2.0
//! FQ-CoDel (RFC 8290): deficit round robin over hashed flow queues, each under CoDel of its own.
//!
//! Invariant: on any schedule it sends, marks and drops what the prose of section 4 does, transcribed in the tests.
//! `ce_threshold` (5.2.7) marks after CoDel has let a packet pass, as Linux does; with `ce_threshold_l4s` it looks at
//! ECT(1) only (the kernel's selector 0x1/0x1 takes CE as well, which has its mark already). Its marks are
//! [`Cause::Native`], CoDel's [`Cause::Law`].
//!
//! Over the owner's limit half the bytes of the longest queue go from its head, at most 64 packets, in one batch as in
//! Linux (the RFC's prose says half the packets): the pass over the backlogs is paid once a batch. Departures from
//! Linux: a queue's own backlog, not that of all, is what CoDel leaves alone below one MTU (RFC 8289 applied to each
//! queue); a batch does not raise CoDel's count, of which the RFC knows nothing.

use crate::drr::Drr;
use crate::fq::flows_within;
use crate::single::{act, delay_within};
use crate::{
    Arrival, Arriving, Cause, CodelConfig, CodelState, Ecn, End, Leaving, Nanos, ParamError, Qdisc, Rule,
    Verdict,
};

/// Packets a batch takes at most (`drop_batch` of Linux, 64 in RFC 8290 4.1).
const DROP_BATCH: u32 = 64;

/// Parameters of FQ-CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodelConfig {
    /// Of each queue's CoDel.
    pub codel: CodelConfig,
    /// Flow queues, 1 to [`crate::MAX_FLOWS`].
    pub flows: u32,
    /// Bytes a flow gets a turn; at least 256.
    pub quantum: u32,
    /// ECT packets that waited longer are marked.
    pub ce_threshold: Option<Nanos>,
    /// Only ECT(1) looks at the threshold.
    pub ce_threshold_l4s: bool,
}

impl Default for FqCodelConfig {
    /// RFC 8290 section 5.2.
    fn default() -> Self {
        Self {
            codel: CodelConfig::default(),
            flows: 1024,
            quantum: 1514,
            ce_threshold: None,
            ce_threshold_l4s: false,
        }
    }
}

impl FqCodelConfig {
    /// Whether every value lies within its limits.
    ///
    /// # Errors
    ///
    /// The first that does not, with its limits.
    pub fn validate(&self) -> Result<(), ParamError> {
        self.codel.validate()?;
        flows_within(self.flows, self.quantum)?;
        match self.ce_threshold {
            Some(threshold) => delay_within("ce_threshold_us", threshold, 0),
            None => Ok(()),
        }
    }
}

/// What is left to drop of a batch.
#[derive(Clone, Copy, Debug)]
struct Batch {
    queue: u32,
    packets: u32,
    bytes: u32,
}

/// FQ-CoDel of one queue id.
#[derive(Debug)]
pub struct FqCodel {
    config: FqCodelConfig,
    drr: Drr,
    states: Box<[CodelState]>,
    batch: Option<Batch>,
}

impl FqCodel {
    /// Empty queues; takes all the memory it will ever hold.
    ///
    /// # Errors
    ///
    /// A value outside its limits.
    pub fn new(config: FqCodelConfig) -> Result<Self, ParamError> {
        config.validate()?;
        let drr = Drr::new(config.flows, config.quantum);
        let states = vec![CodelState::new(); drr.backlogs.queues() as usize].into_boxed_slice();
        Ok(Self { config, drr, states, batch: None })
    }

    fn above_threshold(&self, packet: &Leaving) -> bool {
        let looks = match packet.ecn {
            Ecn::NotEct | Ecn::Ce => false,
            Ecn::Ect0 => !self.config.ce_threshold_l4s,
            Ecn::Ect1 => packet.rule != Rule::Exclude,
        };
        looks && self.config.ce_threshold.is_some_and(|threshold| packet.sojourn > threshold)
    }
}

impl Qdisc for FqCodel {
    fn queues(&self) -> u32 {
        self.drr.backlogs.queues()
    }

    fn arrive(&mut self, packet: &Arriving) -> Arrival {
        self.batch = None;
        let queue = self.drr.queue_of(packet.key.flow);
        self.drr.add(queue, packet.bytes);
        Arrival::Queue(queue)
    }

    fn shed(&mut self, over_limit: bool) -> Option<(u32, End)> {
        if self.batch.is_none() && over_limit {
            let queue = self.drr.backlogs.longest()?;
            // at least one packet goes, however short the queue
            let bytes = (self.drr.backlogs.bytes(queue) / 2).max(1);
            self.batch = Some(Batch { queue, packets: DROP_BATCH, bytes });
        }
        let batch = self.batch?;
        if self.drr.backlogs.packets(batch.queue) == 0 {
            self.batch = None;
            return if over_limit { self.shed(over_limit) } else { None };
        }
        Some((batch.queue, End::Head))
    }

    fn select(&mut self, _now: Nanos) -> Option<u32> {
        self.drr.select()
    }

    fn decide(&mut self, packet: &Leaving) -> Verdict {
        self.drr.take(packet.queue, packet.bytes);
        let left = self.drr.backlogs.bytes(packet.queue).into();
        let state = &mut self.states[packet.queue as usize];
        if state.decide(&self.config.codel, packet.now, packet.sojourn, left, packet.pace) {
            act(packet.ecn, packet.rule)
        } else if self.above_threshold(packet) {
            Verdict::Mark(Cause::Native)
        } else {
            Verdict::Pass
        }
    }

    fn sent(&mut self, queue: u32, bytes: u32) {
        self.drr.charge(queue, bytes);
    }

    fn removed(&mut self, queue: u32, bytes: u32) {
        self.drr.take(queue, bytes);
        if self.drr.backlogs.packets(queue) == 0 {
            self.states[queue as usize].emptied();
        }
        if let Some(batch) = self.batch.filter(|batch| batch.queue == queue) {
            let (packets, bytes) = (batch.packets - 1, batch.bytes.saturating_sub(bytes));
            self.batch = (packets > 0 && bytes > 0).then_some(Batch { packets, bytes, ..batch });
        }
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.drr.memory() + size_of_val(&*self.states)
    }
}

#[cfg(test)]
mod tests;
