// SPDX-License-Identifier: Apache-2.0
//! What decides about a queue id's packets: the disciplines behind one set of questions.
//!
//! Those of two queues at most decide here; a managed one has its state in the shard's slab (`shard::managed`) and
//! is asked nothing here but what holds for all. Each names a packet's queue, the queue to serve next, and what happens to the packet taken. After a change
//! of profile the queue that a discipline does not use may still hold packets: those go first, as Classic.

use aqm::{Backlog, DualPi2, DualPi2Params, Ecn, Head, Left, PiParams, Queue, Rule, Verdict};

use crate::recipe::Recipe;
use crate::slab::Slot;

/// A profile's AQM with its parameters.
#[derive(Clone, Debug)]
pub(crate) enum Discipline {
    /// DualQ Coupled PI2 (RFC 9332).
    DualPi2(DualPi2Params),
    /// Its C queue alone.
    Pi2(DualPi2Params),
    /// Tail drop only.
    Fifo,
    /// With state of its own: queues and AQM behind [`aqm::Qdisc`].
    Managed(Recipe),
}

/// A queue id's state under its discipline; part of the hot record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum State {
    /// Nothing to remember.
    #[default]
    None,
    /// Of `dualpi2` and `pi2`.
    DualPi2(DualPi2),
    /// Where a managed discipline and its queues are.
    Managed(Slot),
    /// Of `dualpi2`, and where its queue protection is.
    Protected(DualPi2, Slot),
}

impl State {
    /// Whether a packet that comes takes the long way.
    #[inline]
    pub(crate) const fn is_special(&self) -> bool {
        matches!(self, Self::Managed(_) | Self::Protected(..))
    }

    /// Whether packets wait under a managed discipline.
    #[inline]
    pub(crate) const fn is_managed(&self) -> bool {
        matches!(self, Self::Managed(_))
    }
}

const _: () = assert!(size_of::<State>() <= 32, "it shares two cache lines with the rest of the record");

impl Discipline {
    /// State of a new queue id; that of a managed discipline is the shard's to add.
    pub(crate) fn state(&self, seed: u64) -> State {
        match self {
            Self::DualPi2(params) | Self::Pi2(params) => State::DualPi2(DualPi2::new(params, seed)),
            Self::Fifo | Self::Managed(_) => State::None,
        }
    }

    /// State that comes from another discipline: kept where it means something here.
    pub(crate) fn adopt(&self, state: State, seed: u64) -> State {
        match (self, state) {
            (Self::DualPi2(_) | Self::Pi2(_), State::DualPi2(_)) => state,
            _ => self.state(seed),
        }
    }

    /// Its PI controller.
    pub(crate) fn pi(&self) -> Option<PiParams> {
        match self {
            Self::DualPi2(params) | Self::Pi2(params) => Some(params.pi()),
            Self::Fifo | Self::Managed(_) => None,
        }
    }

    /// The queue of a packet.
    #[inline]
    pub(crate) fn classify(&self, ecn: Ecn, rule: Rule) -> Queue {
        match self {
            Self::DualPi2(params) => params.classify(ecn, rule),
            Self::Pi2(_) | Self::Fifo | Self::Managed(_) => Queue::Classic,
        }
    }

    /// The queue to serve; `None`: both are empty.
    #[inline]
    pub(crate) fn select(&self, state: &State, l: Backlog, c: Backlog) -> Option<Queue> {
        match (self, state) {
            (Self::DualPi2(params), State::DualPi2(aqm) | State::Protected(aqm, _)) => {
                aqm.select(params, l, c)
            }
            _ if l.packets > 0 => Some(Queue::L4s),
            _ => (c.packets > 0).then_some(Queue::Classic),
        }
    }

    /// Whether a decision about a packet of `bytes` that leaves this behind needs p'. With no packet: whether the
    /// heads of these queues are the PI controller's business (always in the kernel's arithmetic).
    #[inline]
    pub(crate) fn needs_p(&self, bytes: u32, l: Backlog, c: Backlog) -> bool {
        match self {
            Self::DualPi2(params) | Self::Pi2(params) => params.pi_applies(bytes, l, c),
            Self::Fifo | Self::Managed(_) => false,
        }
    }

    /// Whether a packet of `bytes` that leaves nothing behind passes without being asked about.
    #[inline]
    pub(crate) fn passes_lone(&self, bytes: u32) -> bool {
        match self {
            Self::DualPi2(params) | Self::Pi2(params) => params.passes_lone(bytes),
            Self::Fifo => true,
            Self::Managed(_) => false,
        }
    }

    /// What to do with the packet just taken; once a packet.
    #[inline]
    pub(crate) fn decide(&self, state: &mut State, head: &Head, left: &Left) -> Verdict {
        match (self, state) {
            (Self::DualPi2(params), State::DualPi2(aqm) | State::Protected(aqm, _)) => {
                aqm.decide(params, head, left)
            }
            (Self::Pi2(params), State::DualPi2(aqm)) => {
                aqm.decide(params, &Head { queue: Queue::Classic, ..*head }, left)
            }
            _ => Verdict::Pass,
        }
    }

    /// A packet of `queue` survived.
    #[inline]
    pub(crate) fn sent(&self, state: &mut State, queue: Queue, bytes: u32, other_waits: bool) {
        if let (Self::DualPi2(params), State::DualPi2(aqm) | State::Protected(aqm, _)) = (self, state) {
            aqm.sent(params, queue, bytes, other_waits);
        }
    }

    /// Both queues are empty.
    #[inline]
    pub(crate) fn drained(&self, state: &mut State) {
        if let (Self::DualPi2(params), State::DualPi2(aqm) | State::Protected(aqm, _)) = (self, state) {
            aqm.drained(params);
        }
    }
}
