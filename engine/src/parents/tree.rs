// SPDX-License-Identifier: Apache-2.0
//! The aggregates of one shard: who is below whom, whose turn it is, and when.
//!
//! An entry of a node's calendar is a queue id of the shard (its place) or another node ([`NODE`] and its place),
//! linked through a [`Link`] each has. The roots stand on the wheels of the shard's lanes, which are the shard's
//! business (`shard::parents`).
//!
//! Invariant: a node outlives its children; a node with entries is linked in the node above or, without one, armed.

mod calendars;
mod clocks;
mod members;

use std::sync::Arc;

use aqm::{BitsPerSec, Nanos};

use super::calendar::{NONE as NO_ENTRY, NOWHERE};
use super::node::Node;
use super::paged::Paged;
use super::shared::{ParentsShared, Shared};
use super::{MAX_LEVELS, MAX_PARENTS, ParentId, ParentPart, ParentSnapshot, ParentSpec, ParentUse};
use crate::change::Direction;

/// Marks a node among entries.
pub(crate) const NODE: u32 = 1 << 31;
/// No node, no entry.
pub(crate) const NONE: u32 = NO_ENTRY;

/// An entry's place in a calendar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    next: u32,
    prev: u32,
    /// Low half of its slot.
    slot: u32,
    place: u8,
}

impl Default for Link {
    fn default() -> Self {
        Self { next: NONE, prev: NONE, slot: 0, place: NOWHERE }
    }
}

impl Link {
    /// Whether it is in a calendar.
    pub(super) const fn is_placed(&self) -> bool {
        self.place != NOWHERE
    }
}

/// Bytes of a queue id below an aggregate, and of an aggregate without its nodes.
pub(super) const BYTES_PER_ID: usize = size_of::<Link>();
pub(super) const BYTES_PER_AGGREGATE: usize = size_of::<Entry>();

/// What the shard knows of an aggregate.
#[derive(Clone, Copy, Debug)]
struct Entry {
    live: bool,
    outer: Option<ParentId>,
    /// Aggregates right below, and whether the one above counts this as such: until it is gone for good.
    below: u32,
    counted: bool,
    rates: [BitsPerSec; 2],
    /// First node in each direction.
    nodes: [u32; 2],
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            live: false,
            outer: None,
            below: 0,
            counted: false,
            rates: [BitsPerSec(0); 2],
            nodes: [NONE; 2],
        }
    }
}

/// A way from a node to its root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    nodes: [u32; DEEPEST],
    len: usize,
}

/// What a way holds: a registry lets none be longer than half of it.
const DEEPEST: usize = 2 * MAX_LEVELS;

impl Way {
    /// The nodes, the root last.
    #[inline]
    pub(crate) fn nodes(&self) -> &[u32] {
        &self.nodes[..self.len]
    }
}

/// Nodes of a page, as a power of two.
const PAGE_BITS: u32 = 6;
const PAGE: usize = 1 << PAGE_BITS;

/// See the module.
#[derive(Debug)]
pub(crate) struct Tree {
    book: Paged<Entry, 8>,
    nodes: Paged<Node, PAGE_BITS>,
    links: Paged<Link, 9>,
    /// Nodes taken so far; the first of those given back.
    taken: u32,
    free: u32,
    /// Nodes made so far, modulo 2^32: while it stays, no place has become another node's.
    made: u32,
    /// Lanes by which each direction leaves; pairs of an aggregate and a direction that have nodes; nodes there is room
    /// for: see [`Self::reserve`].
    lanes: [usize; 2],
    pairs: [usize; 2],
    room: usize,
    shared: Arc<ParentsShared>,
}

impl Tree {
    /// None yet; for a shard with so many queue ids and lanes.
    pub(crate) fn new(ids: usize, lanes: usize, shared: Arc<ParentsShared>) -> Self {
        Self {
            book: Paged::new(MAX_PARENTS),
            nodes: Paged::new(MAX_PARENTS * 2 * lanes),
            links: Paged::new(ids),
            taken: 0,
            free: NONE,
            made: 0,
            lanes: [lanes; 2],
            pairs: [0; 2],
            room: 0,
            shared,
        }
    }

    /// Down packets leave by so many lanes, up packets by so many: there are nodes for no more.
    pub(crate) fn leaves_by(&mut self, lanes: [usize; 2]) {
        self.lanes = lanes;
    }

    fn shared_of(&self, node: u32) -> Option<&Shared> {
        let node = &self.nodes[node];
        let id = ParentId::new(node.parent)?;
        Some(self.shared.of(id, node.direction))
    }

    /// Whether children may be put below an aggregate.
    pub(crate) fn knows(&self, id: ParentId) -> bool {
        self.book.get(id.index()).is_some_and(|entry| entry.live)
    }

    /// An aggregate is this from now on; `None`: that makes no sense. Else whether it has moved.
    pub(crate) fn set(&mut self, now: Nanos, id: ParentId, spec: &ParentSpec) -> Option<bool> {
        if !self.may_be_below(id, spec.parent) || !self.book.touch(id.index()) {
            return None;
        }
        let entry = self.book.get_mut(id.index())?;
        let (old, counted, first) = (entry.outer, entry.counted, entry.nodes);
        (entry.live, entry.outer, entry.rates, entry.counted) = (true, spec.parent, spec.rates, true);
        let moved = old != spec.parent;
        if let Some(above) = spec.parent.and_then(|above| self.book.get_mut(above.index())) {
            above.below += 1;
        }
        if counted && let Some(old) = old {
            self.forget_below(old);
        }
        for (way, direction) in Direction::BOTH.into_iter().enumerate() {
            let mut node = first[way];
            while node != NONE {
                self.set_rate(now, node, spec.rates[direction as usize]);
                node = self.nodes[node].next;
            }
        }
        Some(moved)
    }

    /// Whether an aggregate may have this one above it: there is one, and neither loop nor too many levels.
    fn may_be_below(&self, id: ParentId, outer: Option<ParentId>) -> bool {
        let mut above = outer;
        for _ in 0..MAX_LEVELS {
            let Some(next) = above else { return true };
            let Some(entry) = self.book.get(next.index()).filter(|entry| entry.live) else { return false };
            if next == id {
                return false;
            }
            above = entry.outer;
        }
        false
    }

    fn set_rate(&mut self, now: Nanos, place: u32, rate: BitsPerSec) {
        let node = &mut self.nodes[place];
        node.set_rate(rate, now);
        let (_, quantum) = node.quantum();
        if let Some(shared) = self.shared_of(place) {
            shared.hasten(now + quantum);
        }
    }

    /// The first node of an aggregate in one direction, or [`NONE`].
    pub(crate) fn first_of(&self, id: ParentId, direction: Direction) -> u32 {
        self.book.get(id.index()).map_or(NONE, |entry| entry.nodes[direction as usize])
    }

    /// The next node of the same, or [`NONE`].
    pub(crate) fn next_of(&self, node: u32) -> u32 {
        self.nodes[node].next
    }

    /// Nodes of an aggregate in one direction.
    fn nodes_of(&self, id: ParentId, direction: Direction) -> impl Iterator<Item = u32> + '_ {
        let some = |node: u32| Some(node).filter(|&node| node != NONE);
        std::iter::successors(some(self.first_of(id, direction)), move |&node| some(self.next_of(node)))
    }

    /// An aggregate is no more; it goes with the last that is below it. Whether it was there.
    pub(crate) fn remove(&mut self, id: ParentId) -> bool {
        let Some(entry) = self.book.get_mut(id.index()).filter(|entry| entry.live) else {
            return false;
        };
        entry.live = false;
        self.let_go(id);
        true
    }

    /// An aggregate has one less right below it.
    fn forget_below(&mut self, id: ParentId) {
        if let Some(entry) = self.book.get_mut(id.index()) {
            entry.below -= 1;
            if !entry.live {
                self.let_go(id);
            }
        }
    }

    /// Lets a dead aggregate go, unless others are below it: nodes without children at once, the others with their
    /// last child.
    fn let_go(&mut self, id: ParentId) {
        let Some(entry) = self.book.get_mut(id.index()).filter(|entry| entry.below == 0) else {
            return;
        };
        let counted = core::mem::replace(&mut entry.counted, false);
        let outer = entry.outer;
        for direction in Direction::BOTH {
            let mut node = self.first_of(id, direction);
            while node != NONE {
                let next = self.next_of(node);
                if self.nodes[node].children == 0 {
                    self.free_node(node);
                }
                node = next;
            }
        }
        if counted && let Some(outer) = outer {
            self.forget_below(outer);
        }
    }

    /// The aggregate of a node.
    pub(crate) fn parent_of(&self, node: u32) -> Option<ParentId> {
        ParentId::new(self.nodes[node].parent)
    }

    /// The lane of a node, and whether it has no node above.
    pub(crate) fn lane(&self, node: u32) -> usize {
        usize::from(self.nodes[node].lane)
    }

    /// The node above.
    pub(crate) fn outer(&self, node: u32) -> u32 {
        self.nodes[node].outer
    }

    /// Whether anybody waits for a node.
    pub(crate) fn waits(&self, node: u32) -> bool {
        self.nodes[node].waits
    }

    /// Asks the caches for what a packet of a node's child touches.
    #[inline]
    pub(crate) fn prefetch(&self, node: u32) {
        if let Some(node) = self.nodes.get(node as usize) {
            mem::prefetch(core::ptr::from_ref(node));
        }
    }

    /// One aggregate as this shard sees it at `now`.
    pub(crate) fn snapshot(&self, now: Nanos, id: ParentId) -> Option<ParentSnapshot> {
        self.book.get(id.index()).filter(|entry| entry.live)?;
        let part = |direction| {
            let mut sum = ParentPart { speed: 1.0, ..ParentPart::default() };
            for place in self.nodes_of(id, direction) {
                let node = &self.nodes[place];
                sum.packets += node.packets;
                sum.bytes += node.bytes;
                sum.children += node.children;
                sum.waiting += node.calendar.entries;
                sum.speed = sum.speed.min(1.0 - f64::from(node.drag_at(now)));
            }
            sum
        };
        Some(ParentSnapshot { parts: Direction::BOTH.map(part) })
    }

    /// The use of one aggregate as this shard sees it.
    pub(crate) fn usage(&self, id: ParentId) -> Option<ParentUse> {
        let entry = self.book.get(id.index()).filter(|entry| entry.live)?;
        let mut sum = ParentUse::default();
        for (way, &first) in entry.nodes.iter().enumerate() {
            let mut place = first;
            while place != NONE {
                let node = &self.nodes[place];
                sum.bytes[way] += node.bytes;
                sum.speed[way] = sum.speed[way].min(1.0 - node.drag);
                place = node.next;
            }
        }
        Some(sum)
    }

    /// Aggregates that a queue id's change names must be there.
    pub(crate) fn serves(&self, parent: Option<ParentId>) -> bool {
        parent.is_none_or(|id| self.knows(id))
    }
}

/// A clock that lies behind another by a slip, modulo 2^64.
#[inline]
pub(crate) const fn behind(outer: Nanos, slip: u64) -> Nanos {
    Nanos(outer.0.wrapping_sub(slip))
}
