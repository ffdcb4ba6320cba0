// SPDX-License-Identifier: Apache-2.0
//! The event queue: what happens when, in virtual time.
//!
//! Invariant: events come out by time, those of one moment in the order in which they were put in; so a run depends
//! on nothing but its scenario and seed.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use aqm::Nanos;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A flow's sender has something to do: pace, timer, start.
    Wake(u32),
    /// Data reach a flow's receiver.
    Data(u32),
    /// A receiver's delayed acknowledgement is due.
    AckDue(u32),
    /// Acknowledgements reach a flow's sender.
    Ack(u32),
    /// A short flow of an entry comes.
    Arrival(u32),
    /// The link has another rate from now on.
    Step(u32),
    /// The bursty link begins to rest.
    Rest,
    /// Warm-up is over.
    Warm,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Time, then order of entry.
    key: u128,
    what: What,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest, as the heap wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Entry>,
    order: u64,
}

impl Events {
    /// `what` happens at `at`.
    #[inline]
    pub(crate) fn put(&mut self, at: Nanos, what: What) {
        self.order += 1;
        self.heap.push(Entry { key: u128::from(at.0) << 64 | u128::from(self.order), what });
    }

    /// When the next one happens; never if there is none.
    #[inline]
    pub(crate) fn due(&self) -> Nanos {
        self.heap.peek().map_or(Nanos::MAX, |entry| time_of(entry.key))
    }

    /// The next one.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<(Nanos, What)> {
        self.heap.pop().map(|entry| (time_of(entry.key), entry.what))
    }
}

const fn time_of(key: u128) -> Nanos {
    Nanos((key >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_order_of_entry() {
        let mut events = Events::default();
        for (at, flow) in [(7, 0), (3, 1), (7, 2), (3, 3), (1, 4), (7, 5)] {
            events.put(Nanos(at), What::Wake(flow));
        }
        let mut seen = Vec::new();
        while let Some((at, What::Wake(flow))) = events.take() {
            seen.push((at.0, flow));
        }
        assert_eq!(seen, [(1, 4), (3, 1), (3, 3), (7, 0), (7, 2), (7, 5)]);
        assert_eq!(events.due(), Nanos::MAX);
    }
}
