// SPDX-License-Identifier: Apache-2.0
//! `fq`: one FIFO a flow, served by deficit round robin; no AQM.
//!
//! The scheduler is that of RFC 8290 section 4 without its CoDel (Shreedhar and Varghese 1995 with new flows first); a
//! flow's FIFO drops from its tail at `flow_limit_packets`. Over the owner's limit the tail of the longest FIFO goes.
//! Linux sch_fq (whose pacing is a sender's matter and not built here) drops the arriving packet there instead, which
//! lets one flow keep the others out.

use crate::drr::{Drr, MAX_FLOWS, MAX_QUANTUM, MIN_QUANTUM};
use crate::single::within;
use crate::{Arrival, Arriving, Cause, End, Leaving, Nanos, ParamError, Qdisc, Verdict};

/// Parameters of `fq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqConfig {
    /// Flow queues, 1 to [`crate::MAX_FLOWS`].
    pub flows: u32,
    /// Bytes a flow gets a turn; at least 256.
    pub quantum: u32,
    /// Packets one flow may hold, at least one.
    pub flow_limit_packets: u32,
}

impl Default for FqConfig {
    /// 1024 flows of 1514 bytes a turn and 100 packets, as Linux sch_fq limits a flow.
    fn default() -> Self {
        Self { flows: 1024, quantum: 1514, flow_limit_packets: 100 }
    }
}

impl FqConfig {
    /// Whether every value lies within its limits.
    ///
    /// # Errors
    ///
    /// The first that does not, with its limits.
    pub fn validate(&self) -> Result<(), ParamError> {
        flows_within(self.flows, self.quantum)?;
        within("flow_limit_packets", self.flow_limit_packets.into(), 1, 1_000_000)
    }
}

/// Whether a number of flow queues and a quantum make sense.
pub(crate) fn flows_within(flows: u32, quantum: u32) -> Result<(), ParamError> {
    within("flows", flows.into(), 1, MAX_FLOWS.into())?;
    within("quantum_bytes", quantum.into(), MIN_QUANTUM.into(), MAX_QUANTUM.into())
}

/// Fair queueing of one queue id.
#[derive(Debug)]
pub struct Fq {
    drr: Drr,
    flow_limit: u32,
}

impl Fq {
    /// Empty queues; takes all the memory it will ever hold.
    ///
    /// # Errors
    ///
    /// A value outside its limits.
    pub fn new(config: FqConfig) -> Result<Self, ParamError> {
        config.validate()?;
        Ok(Self { drr: Drr::new(config.flows, config.quantum), flow_limit: config.flow_limit_packets })
    }
}

impl Qdisc for Fq {
    fn queues(&self) -> u32 {
        self.drr.backlogs.queues()
    }

    fn arrive(&mut self, packet: &Arriving) -> Arrival {
        let queue = self.drr.queue_of(packet.key.flow);
        if self.drr.backlogs.packets(queue) >= self.flow_limit {
            return Arrival::Drop(Cause::Limit);
        }
        self.drr.add(queue, packet.bytes);
        Arrival::Queue(queue)
    }

    fn shed(&mut self, over_limit: bool) -> Option<(u32, End)> {
        if over_limit { self.drr.backlogs.fat().map(|queue| (queue, End::Tail)) } else { None }
    }

    fn select(&mut self, _now: Nanos) -> Option<u32> {
        self.drr.select()
    }

    fn decide(&mut self, packet: &Leaving) -> Verdict {
        self.drr.take(packet.queue, packet.bytes);
        Verdict::Pass
    }

    fn sent(&mut self, queue: u32, bytes: u32) {
        self.drr.charge(queue, bytes);
    }

    fn removed(&mut self, queue: u32, bytes: u32) {
        self.drr.take(queue, bytes);
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.drr.memory()
    }
}

#[cfg(test)]
mod tests;
