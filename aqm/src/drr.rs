// SPDX-License-Identifier: Apache-2.0
//! Deficit round robin over hashed flow queues with a list of new and a list of old ones (RFC 8290 section 4).
//!
//! Invariants: a queue with packets is on one of the lists; a queue is at the end of the old list at least once before
//! it can be new again, so old queues are not starved by ones that come and go (RFC 8290 4.2); two queues that always
//! wait differ by less than a quantum and a packet in what they got.
//! The lists are chains of 16-bit indices: only heads are ever taken, so one index a queue is enough. Work a packet is
//! constant for packets of at most a quantum; a longer one costs its queue `bytes / quantum` turns, each constant.
//! Credits are exhausted at zero, as "has dequeued at least a quantum" says and Linux does.

use crate::backlogs::Backlogs;

/// The most flow queues there may be.
pub const MAX_FLOWS: u32 = 32_768;

/// The smallest quantum, as of Linux sch_fq_codel.
pub(crate) const MIN_QUANTUM: u32 = 256;
/// The largest that still is a turn and not a pause for the others.
pub(crate) const MAX_QUANTUM: u32 = 1 << 20;

const NONE: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// On no list.
    Out,
    New,
    Old,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    deficit: i32,
    next: u16,
    place: Place,
}

const _: () = assert!(size_of::<Flow>() <= 8);

/// A chain from head to tail.
#[derive(Clone, Copy, Debug)]
struct Chain {
    head: u16,
    tail: u16,
}

/// The scheduler with the backlogs it schedules.
#[derive(Debug)]
pub(crate) struct Drr {
    flows: Box<[Flow]>,
    pub(crate) backlogs: Backlogs,
    new: Chain,
    old: Chain,
    quantum: i32,
}

impl Drr {
    /// `flows` queues (1 to [`MAX_FLOWS`]) that get `quantum` bytes (256 or more) a turn.
    pub(crate) fn new(flows: u32, quantum: u32) -> Self {
        let flows = flows.clamp(1, MAX_FLOWS);
        let quantum = quantum.clamp(MIN_QUANTUM, MAX_QUANTUM);
        let empty = Chain { head: NONE, tail: NONE };
        Self {
            flows: vec![Flow { deficit: 0, next: NONE, place: Place::Out }; flows as usize]
                .into_boxed_slice(),
            backlogs: Backlogs::new(flows),
            new: empty,
            old: empty,
            quantum: quantum.cast_signed(),
        }
    }

    /// The queue of a flow: its hash scaled to their number.
    pub(crate) fn queue_of(&self, hash: u32) -> u32 {
        ((u64::from(hash) * self.flows.len() as u64) >> 32) as u32
    }

    /// A packet joins a queue, which becomes new if it was on no list.
    pub(crate) fn add(&mut self, queue: u32, bytes: u32) {
        self.backlogs.add(queue, bytes);
        let flow = &mut self.flows[queue as usize];
        if flow.place == Place::Out {
            flow.deficit = self.quantum;
            self.append(queue, Place::New);
        }
    }

    /// A packet was taken from a queue, for whatever reason.
    pub(crate) fn take(&mut self, queue: u32, bytes: u32) {
        self.backlogs.take(queue, bytes);
    }

    /// A packet of a queue was sent.
    pub(crate) fn charge(&mut self, queue: u32, bytes: u32) {
        let flow = &mut self.flows[queue as usize];
        flow.deficit = flow.deficit.saturating_sub_unsigned(bytes);
    }

    /// The queue to serve; `None` if nothing waits. Asking twice changes nothing.
    pub(crate) fn select(&mut self) -> Option<u32> {
        loop {
            let (at, place) = match (self.new.head, self.old.head) {
                (NONE, NONE) => return None,
                (NONE, at) => (at, Place::Old),
                (at, _) => (at, Place::New),
            };
            let queue = u32::from(at);
            let flow = &mut self.flows[usize::from(at)];
            if flow.deficit <= 0 {
                flow.deficit += self.quantum;
                self.take_head(place);
                self.append(queue, Place::Old);
            } else if self.backlogs.packets(queue) > 0 {
                return Some(queue);
            } else {
                self.take_head(place);
                match place {
                    Place::New => self.append(queue, Place::Old),
                    _ => self.flows[usize::from(at)].place = Place::Out,
                }
            }
        }
    }

    fn take_head(&mut self, place: Place) {
        let chain = if place == Place::New { &mut self.new } else { &mut self.old };
        if chain.head == chain.tail {
            *chain = Chain { head: NONE, tail: NONE };
        } else {
            chain.head = self.flows[usize::from(chain.head)].next;
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "there are at most MAX_FLOWS")]
    fn append(&mut self, queue: u32, place: Place) {
        let at = queue as u16;
        let flow = &mut self.flows[queue as usize];
        flow.place = place;
        flow.next = NONE;
        let chain = if place == Place::New { &mut self.new } else { &mut self.old };
        if chain.tail == NONE {
            chain.head = at;
        } else {
            self.flows[usize::from(chain.tail)].next = at;
        }
        chain.tail = at;
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        self.flows.len() * size_of::<Flow>() + self.backlogs.memory()
    }
}

#[cfg(test)]
mod tests;
