// SPDX-License-Identifier: Apache-2.0
//! Whose turn it is below a node, and when it is a node's turn.

use aqm::Nanos;

use super::{Link, NODE, NONE, Tree, behind};
use crate::parents::calendar::NOWHERE;
use crate::wheel::{low_half, slot_at, slot_from, slot_time};

impl Tree {
    #[inline]
    fn link_mut(&mut self, entry: u32) -> &mut Link {
        if entry & NODE == 0 { &mut self.links[entry] } else { &mut self.nodes[entry & !NODE].link }
    }

    fn link(&self, entry: u32) -> Link {
        if entry & NODE == 0 { self.links[entry] } else { self.nodes[entry & !NODE].link }
    }

    /// Puts an entry that is in no calendar into that of a node, for when the node's clock shows `due`; `time`: the
    /// node's time.
    #[inline]
    pub(crate) fn put(&mut self, node: u32, entry: u32, due: Nanos, time: Nanos) {
        let slot = slot_from(due);
        let calendar = &mut self.nodes[node].calendar;
        // what was due before that joins at the node's time: it is no lag
        if calendar.entries == 0 {
            calendar.cursor = slot_at(time);
        }
        calendar.entries += 1;
        self.nodes[node].waits = true;
        self.settle(node, entry, slot);
    }

    /// Links an entry into its place.
    #[expect(clippy::cast_possible_truncation, reason = "slots within the horizon differ in their low half")]
    fn settle(&mut self, node: u32, entry: u32, slot: u64) {
        let calendar = &mut self.nodes[node].calendar;
        let (place, slot) = calendar.locate(slot);
        let next = core::mem::replace(&mut calendar.heads[usize::from(place)], entry);
        calendar.mark(place, true);
        *self.link_mut(entry) = Link { next, prev: NONE, slot: slot as u32, place };
        if next != NONE {
            self.link_mut(next).prev = entry;
        }
    }

    /// Whether an entry is in a calendar.
    #[inline]
    pub(crate) fn is_placed(&self, entry: u32) -> bool {
        self.link(entry).is_placed()
    }

    /// Takes an entry out of the calendar of its node, if it is in it.
    pub(crate) fn unlink_from(&mut self, node: u32, entry: u32) {
        let link = self.link(entry);
        if !link.is_placed() || node == NONE {
            return;
        }
        self.link_mut(entry).place = NOWHERE;
        if link.next != NONE {
            self.link_mut(link.next).prev = link.prev;
        }
        if link.prev != NONE {
            self.link_mut(link.prev).next = link.next;
        }
        let calendar = &mut self.nodes[node].calendar;
        calendar.entries -= 1;
        if link.prev == NONE {
            calendar.heads[usize::from(link.place)] = link.next;
            calendar.mark(link.place, link.next != NONE);
        }
        let left = calendar.entries;
        self.nodes[node].waits = left > 0;
    }

    /// Takes a node out of the calendar of the node above, if it is in it.
    pub(crate) fn unlink(&mut self, entry: u32) {
        let outer = self.nodes[entry & !NODE].outer;
        self.unlink_from(outer, entry);
    }

    /// The slot of the first entries that are due when a node's clock shows `time`.
    #[inline]
    pub(crate) fn first_due(&mut self, node: u32, time: Nanos) -> Option<u64> {
        if self.nodes[node].calendar.entries == 0 {
            return None;
        }
        let now = slot_at(time);
        loop {
            let first = self.nodes[node].calendar.first().filter(|first| first.slot <= now)?;
            if first.is_exact() {
                return Some(first.slot);
            }
            self.cascade(node, first.slot, first.place);
        }
    }

    /// The cursor comes to a coarse place: its entries move down.
    fn cascade(&mut self, node: u32, slot: u64, place: u8) {
        let calendar = &mut self.nodes[node].calendar;
        calendar.cursor = slot;
        let mut entry = core::mem::replace(&mut calendar.heads[usize::from(place)], NONE);
        calendar.mark(place, false);
        while entry != NONE {
            let link = self.link(entry);
            let ahead = link.slot.wrapping_sub(low_half(slot));
            self.settle(node, entry, slot + u64::from(ahead));
            entry = link.next;
        }
    }

    /// Takes an entry of the first due slot, which is served from now on.
    #[inline]
    pub(crate) fn take(&mut self, node: u32, slot: u64) -> Option<u32> {
        let calendar = &mut self.nodes[node].calendar;
        calendar.cursor = slot;
        let place = calendar.locate(slot).0;
        let entry = calendar.heads[usize::from(place)];
        if entry == NONE {
            return None;
        }
        self.unlink_from(node, entry);
        Some(entry)
    }

    /// Takes any entry.
    pub(crate) fn take_any(&mut self, node: u32) -> Option<u32> {
        let calendar = &self.nodes[node].calendar;
        let entry = calendar.heads[usize::from(calendar.first()?.place)];
        self.unlink_from(node, entry);
        Some(entry)
    }

    /// Whether a packet of a node's child may leave at once: nobody is due before it and all aggregates pay.
    #[inline]
    pub(crate) fn is_clear(&mut self, node: u32, now: Nanos, at: Nanos) -> bool {
        let (mut place, mut behind_by) = (node, self.slips(node));
        while place != NONE {
            if !self.pays(place, now) || self.first_due(place, behind(at, behind_by)).is_some() {
                return false;
            }
            behind_by = behind_by.wrapping_sub(self.slip(place));
            place = self.nodes[place].outer;
        }
        true
    }

    /// When it is a node's turn, on the clock above it, whose time is `outer`; `None`: nobody waits.
    pub(crate) fn turn(&mut self, node: u32, now: Nanos, outer: Nanos) -> Option<Nanos> {
        let first = self.nodes[node].calendar.first()?;
        let due = Nanos(slot_time(first.slot).0.wrapping_add(self.slip(node)));
        if self.pays(node, now) {
            return Some(due);
        }
        Some(due.max(outer + self.nodes[node].due.since(now)))
    }

    /// The slot of what a node has due when the clock above shows `at`; the clock slips by what it waited too long.
    pub(crate) fn serve(&mut self, node: u32, now: Nanos, at: Nanos) -> Option<u64> {
        let clock = behind(at, self.slip(node));
        let slot = self.first_due(node, clock)?;
        if !self.is_too_long(node, clock.since(slot_time(slot))) {
            return Some(slot);
        }
        let slot = self.truly_due(node, now, clock)?;
        self.let_slip(node, now, clock.since(slot_time(slot)));
        Some(slot)
    }

    /// The slot of the first id whose turn it is: a node may stand too early, for its own calendar tells but coarse
    /// times of what is far. Such are put where they belong.
    fn truly_due(&mut self, node: u32, now: Nanos, clock: Nanos) -> Option<u64> {
        loop {
            let slot = self.first_due(node, clock)?;
            let entry = self.first_entry(node, slot);
            if entry == NONE || entry & NODE == 0 {
                return Some(slot);
            }
            let inner = behind(slot_time(slot), self.slip(entry & !NODE));
            if self.truly_due(entry & !NODE, now, inner).is_some() {
                return Some(slot);
            }
            self.look_again(node, now, slot);
        }
    }

    /// Puts a node that stands too early where it belongs.
    #[cold]
    fn look_again(&mut self, node: u32, now: Nanos, slot: u64) {
        let Some(entry) = self.take(node, slot) else { return };
        let time = slot_time(slot);
        if let Some(due) = self.turn(entry & !NODE, now, time) {
            self.put(node, entry, due, time);
        }
    }

    /// The entry that [`Self::take`] takes.
    fn first_entry(&self, node: u32, slot: u64) -> u32 {
        let calendar = &self.nodes[node].calendar;
        calendar.heads.get((slot & 15) as usize).copied().unwrap_or(NONE)
    }

    /// Whether a node stands in the calendar above no later than `slot`.
    pub(crate) fn stands_by(&self, node: u32, slot: u64) -> bool {
        let this = &self.nodes[node];
        if !this.link.is_placed() || this.outer == NONE {
            return false;
        }
        let cursor = self.nodes[this.outer].calendar.cursor;
        u64::from(this.link.slot.wrapping_sub(low_half(cursor))) + cursor <= slot
    }

    /// A root's entry on the wheel: whether there is one, and its slot's low half.
    pub(crate) fn armed(&self, node: u32) -> Option<u32> {
        let node = &self.nodes[node];
        node.armed.then_some(node.slot)
    }

    /// Notes a root's entry on the wheel.
    pub(crate) fn set_armed(&mut self, node: u32, slot: Option<u64>) {
        let node = &mut self.nodes[node];
        node.armed = slot.is_some();
        node.slot = slot.map_or(node.slot, low_half);
    }
}
