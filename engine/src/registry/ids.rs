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
    first: u32,
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
    /// How many pairs were looked at, and those of them that were passed over.
    looked: usize,
    passed: VecDeque<u32>,
    down: Vec<u32>,
}

/// Picks pairs one by one, those longest free first.
pub(super) struct Picker<'a> {
    pool: &'a IdPool,
    picked: Picked,
}

impl Picker<'_> {
    /// A pair's down id; in shard `home` if one of the next few pairs has one there and that shard has no more than
    /// its part of all. `None`: there is no pair left.
    pub(super) fn next(&mut self, home: Option<u32>) -> Option<QueueId> {
        let home = home.filter(|&home| self.has_room(home));
        let pair = self.find(home)?;
        let shards = self.pool.shards;
        match home.and_then(|home| in_shard(pair, shards, home)) {
            Some(id) => {
                count(&mut self.picked.down, id, shards);
                Some(id)
            }
            None => Some(orient(pair, shards, &mut self.picked.down)),
        }
    }

    fn has_room(&self, home: u32) -> bool {
        let part = (self.pool.end - self.pool.first).div_ceil(self.pool.shards);
        self.picked.down.get(home as usize).is_some_and(|&load| load < part)
    }

    fn find(&mut self, home: Option<u32>) -> Option<u32> {
        let shards = self.pool.shards;
        let fits = |pair: u32| home.is_none_or(|home| in_shard(pair, shards, home).is_some());
        let look = 2 * shards as usize;
        if let Some(place) = self.picked.passed.iter().take(look).position(|&pair| fits(pair)) {
            return self.picked.passed.remove(place);
        }
        for _ in 0..look {
            let Some(pair) = self.pool.nth(self.picked.looked) else { break };
            self.picked.looked += 1;
            if fits(pair) {
                return Some(pair);
            }
            self.picked.passed.push_back(pair);
        }
        self.picked.passed.pop_front()
    }

    pub(super) fn end(self) -> Picked {
        self.picked
    }
}

impl IdPool {
    /// Pairs from `first` on, as many as fit below `capacity` ids.
    pub(super) fn new(shards: u32, first: u32, capacity: u32) -> Self {
        let end = (capacity / 2).max(first);
        let down = vec![0; shards as usize];
        Self {
            shards,
            first,
            fresh: first,
            end,
            free: VecDeque::new(),
            resting: VecDeque::new(),
            ticket: 0,
            down,
        }
    }

    /// Pairs that can be picked now.
    pub(super) fn available(&self) -> usize {
        self.free.len() + (self.end - self.fresh) as usize
    }

    /// Pairs at rest.
    pub(super) fn resting(&self) -> usize {
        self.resting.iter().map(|(_, pairs)| pairs.len()).sum()
    }

    /// Begins to pick.
    pub(super) fn picker(&self) -> Picker<'_> {
        let picked = Picked { looked: 0, passed: VecDeque::new(), down: self.down.clone() };
        Picker { pool: self, picked }
    }

    /// Pairs that can be picked, those longest free first.
    fn nth(&self, place: usize) -> Option<u32> {
        let fresh = || u32::try_from(place - self.free.len()).ok().map(|ahead| self.fresh + ahead);
        self.free.get(place).copied().or_else(fresh).filter(|&pair| pair < self.end)
    }

    /// Takes what was picked; nothing may have been taken or given back since.
    pub(super) fn take(&mut self, picked: Picked) {
        let reused = picked.looked.min(self.free.len());
        self.free.drain(..reused);
        self.fresh += u32::try_from(picked.looked - reused).unwrap_or(u32::MAX);
        picked.passed.into_iter().rev().for_each(|pair| self.free.push_front(pair));
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
    let id = QueueId(if load(even) <= load(odd) { even } else { odd });
    count(down, id, shards);
    id
}

fn count(down: &mut [u32], id: QueueId, shards: u32) {
    if let Some(load) = down.get_mut((id.0 % shards) as usize) {
        *load += 1;
    }
}

/// The id of a pair whose shard is `home`, if its partner's is that of the partners of all others there: so that what
/// is in one shard down is in one shard up.
fn in_shard(pair: u32, shards: u32, home: u32) -> Option<QueueId> {
    let either = shards.is_multiple_of(2);
    let ids = [pair * 2, pair * 2 + 1];
    ids.into_iter().take(if either { 2 } else { 1 }).find(|id| id % shards == home).map(QueueId)
}
