// SPDX-License-Identifier: Apache-2.0
//! Nodes: made where an aggregate gets its first child, shared out to children, given back.
//!
//! Invariant: the packet path takes no memory. A child whose packets leave by another port takes its aggregates along
//! to that lane, so there is always room for a node of each on every lane that its direction leaves by.

use aqm::Nanos;

use super::{NODE, NONE, PAGE, Tree};
use crate::change::Direction;
use crate::parents::ParentId;
use crate::parents::node::Node;

impl Tree {
    /// The node of an aggregate on a lane, made if there is none.
    fn node_on(&mut self, now: Nanos, id: ParentId, direction: Direction, lane: u8) -> Option<u32> {
        let entry = *self.book.get(id.index())?;
        let known = self.nodes_of(id, direction).find(|&node| self.nodes[node].lane == lane);
        if known.is_some() {
            return known;
        }
        let outer = match entry.outer {
            Some(outer) => self.node_on(now, outer, direction, lane)?,
            None => NONE,
        };
        if entry.nodes[direction as usize] == NONE {
            self.pairs[direction as usize] += 1;
            self.reserve();
        }
        let place = self.place()?;
        let mut node = Node::default();
        (node.outer, node.direction, node.lane) = (outer, direction, lane);
        node.next = entry.nodes[direction as usize];
        node.parent = u32::try_from(id.index()).unwrap_or(NONE);
        node.set_rate(entry.rates[direction as usize], now);
        self.nodes[place] = node;
        self.made = self.made.wrapping_add(1);
        if let Some(entry) = self.book.get_mut(id.index()) {
            entry.nodes[direction as usize] = place;
        }
        Some(place)
    }

    /// Takes memory for a node of each aggregate on each lane that its packets may leave by. An aggregate's first node in
    /// a direction is made by a change, the others by packets too.
    fn reserve(&mut self) {
        let needed: usize = self.pairs.iter().zip(self.lanes).map(|(pairs, lanes)| pairs * lanes).sum();
        while self.room < needed && self.nodes.touch(self.room) {
            self.room += PAGE;
        }
    }

    /// Tells whether any node was made meanwhile: a child that takes its aggregates along to another lane may leave a node
    /// empty, whose place the next one made takes.
    #[inline]
    pub(crate) fn made(&self) -> u32 {
        self.made
    }

    /// A place for another node.
    fn place(&mut self) -> Option<u32> {
        let place = self.free;
        if place != NONE {
            self.free = self.nodes[place].next;
            return Some(place);
        }
        let place = self.taken;
        // there is room, but for packets of a direction on a lane that it does not leave by
        self.nodes.touch(place as usize).then(|| self.taken += 1)?;
        Some(place)
    }

    /// Takes a node without children out of its aggregate's list.
    pub(super) fn free_node(&mut self, place: u32) {
        let Node { parent, direction, next, .. } = self.nodes[place];
        let way = direction as usize;
        if let Some(entry) = self.book.get_mut(parent as usize) {
            if entry.nodes[way] == place {
                entry.nodes[way] = next;
                self.pairs[way] -= usize::from(next == NONE);
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
        self.nodes[place].next = core::mem::replace(&mut self.free, place);
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
        self.add_child(now, node);
        Some(node)
    }

    fn add_child(&mut self, now: Nanos, mut node: u32) {
        while node != NONE {
            self.nodes[node].children += 1;
            if self.nodes[node].children > 1 {
                return;
            }
            if let Some(shared) = self.shared_of(node) {
                shared.enter();
            }
            self.follow_sharing(now, node);
            self.take_over_debt(node);
            node = self.nodes[node].outer;
        }
    }

    /// A node loses a child that is in no calendar.
    pub(crate) fn detach(&mut self, now: Nanos, mut node: u32) {
        while node != NONE {
            self.nodes[node].children -= 1;
            if self.nodes[node].children > 0 {
                return;
            }
            self.leave_debt(node);
            if let Some(shared) = self.shared_of(node) {
                shared.leave(now);
            }
            let Node { parent, outer, .. } = self.nodes[node];
            self.unlink(NODE | node);
            if !self.book.get(parent as usize).is_some_and(|entry| entry.live || entry.below > 0) {
                self.free_node(node);
            }
            node = outer;
        }
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
        node.restart();
        if children > 0 {
            self.add_child(now, new);
            self.detach(now, old);
        }
    }
}
