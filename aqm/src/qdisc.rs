// SPDX-License-Identifier: Apache-2.0
//! The seam for disciplines that keep state of their own: one queue or many, decisions at arrival and departure.
//!
//! The owner holds the packets, in FIFOs numbered from 0, and the limit on all of them together. It asks
//! [`Qdisc::arrive`] about each packet that comes, [`Qdisc::shed`] until it says `None` after each arrival,
//! [`Qdisc::select`] for the queue to serve, and [`Qdisc::decide`] about the packet taken from it; one that survives
//! is followed by [`Qdisc::sent`]. A packet that leaves in any other way is told to [`Qdisc::removed`].
//!
//! Invariants: what a discipline believes to wait is what the FIFOs hold; `select` names a queue whenever one holds a
//! packet (also right after the AQM dropped the last packet of another); Not-ECT and CE are never given a mark.

use core::fmt::Debug;

use crate::{Cause, Ecn, Nanos, Pace, Rule, Verdict};

/// What tells flows and hosts apart: hashes, drawn with a secret seed where the sender must not choose them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Of addresses, protocol and ports.
    pub flow: u32,
    /// Of the source address.
    pub source: u32,
    /// Of the destination address.
    pub destination: u32,
    /// The DSCP, for tins.
    pub dscp: u8,
}

/// A packet that comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arriving {
    /// When.
    pub now: Nanos,
    /// Its length as the shaper counts it.
    pub bytes: u32,
    /// Its ECN field.
    pub ecn: Ecn,
    /// What the rules on its DSCP say.
    pub rule: Rule,
    /// Whose it is.
    pub key: FlowKey,
    /// Time of a byte at the served rate.
    pub pace: Pace,
}

/// What to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Append it to this queue.
    Queue(u32),
    /// Set CE and append it; only ever said of ECT(0) and ECT(1).
    Mark(u32, Cause),
    /// Drop it; [`Cause::Limit`] if the discipline's own limit is reached.
    Drop(Cause),
}

/// Which end of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The oldest packet.
    Head,
    /// The youngest.
    Tail,
}

/// A packet just taken from the head of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaving {
    /// When.
    pub now: Nanos,
    /// The queue it was taken from.
    pub queue: u32,
    /// Its length as the shaper counts it.
    pub bytes: u32,
    /// Its ECN field.
    pub ecn: Ecn,
    /// What the rules on its DSCP say.
    pub rule: Rule,
    /// How long it waited.
    pub sojourn: Nanos,
    /// Time of a byte at the served rate.
    pub pace: Pace,
}

/// A discipline with state of its own. Lengths are those the shaper counts.
pub trait Qdisc: Debug + Send {
    /// FIFOs the owner holds for it; constant.
    fn queues(&self) -> u32;

    /// A packet comes. Unless it is to be dropped it counts as waiting from now on.
    fn arrive(&mut self, packet: &Arriving) -> Arrival;

    /// Asked after each arrival until it says `None`: a queue, one end of which must go at once.
    /// `over_limit`: the owner's limit on everything is exceeded; the answer may be `None` only if nothing waits.
    fn shed(&mut self, over_limit: bool) -> Option<(u32, End)>;

    /// The queue to serve; `None` if nothing waits. Asking again without an arrival or departure between changes
    /// nothing.
    fn select(&mut self, now: Nanos) -> Option<u32>;

    /// The head of the selected queue has been taken and no longer waits: what happens to it.
    fn decide(&mut self, packet: &Leaving) -> Verdict;

    /// The packet that `decide` let pass or marked left.
    fn sent(&mut self, queue: u32, bytes: u32);

    /// A packet went in another way: shed, its link is down, its subscriber is removed.
    fn removed(&mut self, queue: u32, bytes: u32);

    /// Bytes of memory it holds, itself included, without the owner's FIFOs.
    fn memory(&self) -> usize;
}

#[cfg(test)]
pub(crate) mod driver;
#[cfg(test)]
mod tests;
