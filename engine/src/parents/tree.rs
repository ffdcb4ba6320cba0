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

use std::sync::Arc;

use aqm::{BitsPerSec, Nanos};

use super::calendar::{NONE as NO_ENTRY, NOWHERE};
use super::node::Node;
use super::paged::Paged;
use super::shared::{ParentsShared, Shared};
use super::{MAX_LEVELS, MAX_PARENTS, ParentId, ParentPart, ParentSnapshot, ParentSpec};
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

/// See the module.
#[derive(Debug)]
pub(crate) struct Tree {
    book: Paged<Entry, 8>,
    nodes: Paged<Node, 6>,
    links: Paged<Link, 9>,
    /// Nodes taken so far; those given back.
    taken: u32,
    free: Vec<u32>,
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
            free: Vec::new(),
            shared,
        }
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
        let (spans, (_, quantum)) = (node.spans, node.quantum());
        if spans && let Some(shared) = self.shared_of(place) {
            shared.hasten(now + quantum);
        }
    }

    /// Nodes of an aggregate in one direction.
    pub(crate) fn nodes_of(&self, id: ParentId, direction: Direction) -> Vec<u32> {
        let first = self.book.get(id.index()).map_or(NONE, |entry| entry.nodes[direction as usize]);
        let next = |place: &u32| Some(self.nodes[*place].next).filter(|&next| next != NONE);
        std::iter::successors(Some(first).filter(|&first| first != NONE), next).collect()
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
            for node in self.nodes_of(id, direction) {
                if self.nodes[node].children == 0 {
                    self.free_node(node);
                }
            }
        }
        if counted && let Some(outer) = outer {
            self.forget_below(outer);
        }
    }

    /// The node of an aggregate on a lane, made if there is none.
    fn node_on(&mut self, now: Nanos, id: ParentId, direction: Direction, lane: u8) -> Option<u32> {
        let entry = *self.book.get(id.index())?;
        let known = self.nodes_of(id, direction).into_iter().find(|&node| self.nodes[node].lane == lane);
        if known.is_some() {
            return known;
        }
        let outer = match entry.outer {
            Some(outer) => self.node_on(now, outer, direction, lane)?,
            None => NONE,
        };
        let place = self.free.pop().unwrap_or(self.taken);
        if place == self.taken {
            if !self.nodes.touch(place as usize) {
                return None;
            }
            self.taken += 1;
        }
        let mut node = Node::default();
        (node.outer, node.direction, node.lane) = (outer, direction, lane);
        node.next = entry.nodes[direction as usize];
        node.parent = u32::try_from(id.index()).unwrap_or(NONE);
        node.set_rate(entry.rates[direction as usize], now);
        self.nodes[place] = node;
        if let Some(entry) = self.book.get_mut(id.index()) {
            entry.nodes[direction as usize] = place;
        }
        Some(place)
    }

    /// Takes a node without children out of its aggregate's list.
    fn free_node(&mut self, place: u32) {
        let Node { parent, direction, next, .. } = self.nodes[place];
        let way = direction as usize;
        if let Some(entry) = self.book.get_mut(parent as usize) {
            if entry.nodes[way] == place {
                entry.nodes[way] = next;
            } else {
                let mut at = entry.nodes[way];
                while at != NONE {
                    let after = self.nodes[at].next;
                    if after == place {
                        self.nodes[at].next = next;
                    }
                    at = after;
                }
            }
        }
        self.free.push(place);
    }

    /// A queue id's place gets a link, and its aggregate's node on a lane another child: the node.
    pub(crate) fn attach(
        &mut self,
        now: Nanos,
        local: usize,
        id: ParentId,
        direction: Direction,
        lane: u8,
    ) -> Option<u32> {
        if !self.links.touch(local) {
            return None;
        }
        let node = self.node_on(now, id, direction, lane)?;
        self.add_child(node);
        Some(node)
    }

    fn add_child(&mut self, mut node: u32) {
        while node != NONE {
            self.nodes[node].children += 1;
            if self.nodes[node].children > 1 {
                return;
            }
            if let Some(shared) = self.shared_of(node) {
                shared.enter();
            }
            self.follow_sharing(node);
            node = self.nodes[node].outer;
        }
    }

    /// A node loses a child that is in no calendar.
    pub(crate) fn detach(&mut self, mut node: u32) {
        while node != NONE {
            self.nodes[node].children -= 1;
            if self.nodes[node].children > 0 {
                return;
            }
            if let Some(shared) = self.shared_of(node) {
                shared.leave();
            }
            let Node { parent, outer, .. } = self.nodes[node];
            self.unlink(NODE | node);
            if !self.book.get(parent as usize).is_some_and(|entry| entry.live || entry.below > 0) {
                self.free_node(node);
            }
            node = outer;
        }
    }

    /// The aggregate of a node.
    pub(crate) fn parent_of(&self, node: u32) -> Option<ParentId> {
        ParentId::new(self.nodes[node].parent)
    }

    /// Puts a node below its aggregate's new outer one; its clock goes on from where it is. `at`: its lane's time.
    /// It must be in no calendar.
    pub(crate) fn reparent(&mut self, now: Nanos, at: Nanos, place: u32) {
        let Some(entry) = self.book.get(self.nodes[place].parent as usize).copied() else { return };
        let Node { outer: old, direction, lane, children, .. } = self.nodes[place];
        let new = entry.outer.and_then(|outer| self.node_on(now, outer, direction, lane)).unwrap_or(NONE);
        if new == old {
            return;
        }
        let (before, after) = (self.time(old, at), self.time(new, at));
        let node = &mut self.nodes[place];
        node.slip = node.slip.wrapping_add(after.0.wrapping_sub(before.0));
        node.outer = new;
        let slip = self.slip(place);
        self.nodes[place].reset_measure(slip);
        if children > 0 {
            self.add_child(new);
            self.detach(old);
        }
    }

    /// The lane of a node, and whether it has no node above.
    pub(crate) fn lane(&self, node: u32) -> usize {
        usize::from(self.nodes[node].lane)
    }

    /// The node above.
    pub(crate) fn outer(&self, node: u32) -> u32 {
        self.nodes[node].outer
    }

    /// Whether a node has no children.
    pub(crate) fn is_empty(&self, node: u32) -> bool {
        self.nodes[node].children == 0
    }

    /// Asks the caches for what a packet of a node's child touches.
    #[inline]
    pub(crate) fn prefetch(&self, node: u32) {
        if let Some(node) = self.nodes.get(node as usize) {
            mem::prefetch(core::ptr::from_ref(node));
        }
    }

    /// One aggregate as this shard sees it.
    pub(crate) fn snapshot(&self, id: ParentId) -> Option<ParentSnapshot> {
        self.book.get(id.index()).filter(|entry| entry.live)?;
        let part = |direction| {
            let mut sum = ParentPart { speed: 1.0, ..ParentPart::default() };
            for place in self.nodes_of(id, direction) {
                let node = &self.nodes[place];
                sum.packets += node.packets;
                sum.bytes += node.bytes;
                sum.children += node.children;
                sum.waiting += node.calendar.entries;
                sum.speed = sum.speed.min(1.0 - f64::from(node.drag));
            }
            sum
        };
        Some(ParentSnapshot { parts: Direction::BOTH.map(part) })
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

/// The half of a slot's number that links keep.
#[expect(clippy::cast_possible_truncation, reason = "slots within the horizon differ in it")]
const fn low_half(slot: u64) -> u32 {
    slot as u32
}
