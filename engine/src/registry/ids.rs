// SPDX-License-Identifier: Apache-2.0
//! Which queue ids are free.
//!
//! Ids come in pairs 2k and 2k+1, one a direction; which of the two is the down id is chosen so that every shard
//! gets about as many down ids. Invariants: a pair is free, in use or at rest, never two of these; a pair at rest
//! comes back only by [`IdPool::release`]. The same calls give the same ids.

use std::collections::VecDeque;

use super::Ticket;
use crate::packet::QueueId;

/// Free, used and resting pairs.
#[derive(Debug)]
pub(super) struct IdPool {
    shards: u32,
    /// Pairs from here to `end` were never used.
    fresh: u32,
    end: u32,
    free: VecDeque<u32>,
    /// Pairs at rest, in the order of their tickets.
    resting: VecDeque<(Ticket, Vec<u32>)>,
    ticket: u64,
    /// Down ids in use, by shard.
    down: Vec<u32>,
}

/// Pairs picked for a plan; nothing is taken until [`IdPool::take`].
#[derive(Debug)]
pub(super) struct Picked {
    /// The down id of each pair.
    pub(super) ids: Vec<QueueId>,
    reused: usize,
    fresh: u32,
    down: Vec<u32>,
}

impl IdPool {
    /// Pairs from `first` on, as many as fit below `capacity` ids.
    pub(super) fn new(shards: u32, first: u32, capacity: u32) -> Self {
        let end = (capacity / 2).max(first);
        let down = vec![0; shards as usize];
        Self { shards, fresh: first, end, free: VecDeque::new(), resting: VecDeque::new(), ticket: 0, down }
    }

    /// Pairs that can be picked now.
    pub(super) fn available(&self) -> usize {
        self.free.len() + (self.end - self.fresh) as usize
    }

    /// Pairs at rest.
    pub(super) fn resting(&self) -> usize {
        self.resting.iter().map(|(_, pairs)| pairs.len()).sum()
    }

    /// `count` pairs, those longest free first; `None` if there are not so many.
    pub(super) fn pick(&self, count: usize) -> Option<Picked> {
        if count > self.available() {
            return None;
        }
        let mut down = self.down.clone();
        let pairs = self.free.iter().copied().chain(self.fresh..self.end).take(count);
        let ids = pairs.map(|pair| orient(pair, self.shards, &mut down)).collect();
        let reused = count.min(self.free.len());
        let fresh = u32::try_from(count - reused).unwrap_or(u32::MAX);
        Some(Picked { ids, reused, fresh, down })
    }

    /// Takes what was picked; nothing may have been taken or given back since.
    pub(super) fn take(&mut self, picked: Picked) {
        self.free.drain(..picked.reused);
        self.fresh += picked.fresh;
        self.down = picked.down;
    }

    /// Puts pairs, by their down ids, to rest under a new ticket.
    pub(super) fn rest(&mut self, down_ids: &[QueueId]) -> Ticket {
        self.ticket += 1;
        let ticket = Ticket(self.ticket);
        if down_ids.is_empty() {
            return ticket;
        }
        for id in down_ids {
            if let Some(load) = self.down.get_mut((id.0 % self.shards) as usize) {
                *load -= 1;
            }
        }
        self.resting.push_back((ticket, down_ids.iter().map(|id| id.0 / 2).collect()));
        ticket
    }

    /// Frees what rests under `ticket` and older ones.
    pub(super) fn release(&mut self, ticket: Ticket) {
        while self.resting.front().is_some_and(|(oldest, _)| *oldest <= ticket) {
            if let Some((_, pairs)) = self.resting.pop_front() {
                self.free.extend(pairs);
            }
        }
    }
}

/// The id of the pair that becomes the down id: the one whose shard has fewer of them.
fn orient(pair: u32, shards: u32, down: &mut [u32]) -> QueueId {
    let load = |id: u32| down.get((id % shards) as usize).copied().unwrap_or(0);
    let (even, odd) = (pair * 2, pair * 2 + 1);
    let id = if load(even) <= load(odd) { even } else { odd };
    if let Some(load) = down.get_mut((id % shards) as usize) {
        *load += 1;
    }
    QueueId(id)
}
