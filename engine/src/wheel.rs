// SPDX-License-Identifier: Apache-2.0
//! The wheel: which queue ids are due when. It schedules queue ids, never packets.
//!
//! Slots of 2.048 us hold lists of 64-byte chunks of 14 ids. Measured with 1 million ids: 6 ns a pop and insert,
//! against 160 for lists threaded through the subscribers' state, which are a chain of cache misses. A bitmap
//! of three levels finds the next slot in use, so empty time costs nothing. The horizon is 67 ms; what is due
//! later goes into the last slot and is put back when it comes up.
//!
//! Invariant: an entry comes out of the slot that [`Wheel::insert`] returned, and the wheel passes no slot that
//! holds one. The free list is as long as the worst spread of `entries` over slots needs; should it run dry
//! all the same, `insert` says so, and counts it.

use aqm::Nanos;
use mem::HugeSlice;

#[cfg(test)]
mod tests;

/// A slot's width, as a shift of nanoseconds: 2.048 us.
pub(crate) const SLOT_SHIFT: u32 = 11;

/// Slots: the horizon is 67 ms.
const SLOTS: usize = 1 << 15;
/// Ids in a chunk: with its link and its length it fills a cache line.
const CHUNK_IDS: usize = 14;
/// No chunk.
const NONE: u32 = u32::MAX;

/// The last slot that begins at or before `time`.
#[inline]
pub(crate) const fn slot_at(time: Nanos) -> u64 {
    time.0 >> SLOT_SHIFT
}

/// The first slot that begins at or after `time`: what is put there is never early.
#[inline]
pub(crate) const fn slot_from(time: Nanos) -> u64 {
    time.0.saturating_add((1 << SLOT_SHIFT) - 1) >> SLOT_SHIFT
}

/// When a slot begins.
#[inline]
pub(crate) const fn slot_time(slot: u64) -> Nanos {
    Nanos(slot << SLOT_SHIFT)
}

/// The half of a slot's number that records keep: it tells slots 2 hours apart, and none is ahead by more than 67 ms.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
pub(crate) const fn low_half(slot: u64) -> u32 {
    slot as u32
}

/// Ids that share a slot, and the chunk after them.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Chunk {
    ids: [u32; CHUNK_IDS],
    len: u32,
    next: u32,
}

/// Which queue ids are due when.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// First chunk of each slot.
    heads: Box<[u32]>,
    used: Occupancy,
    chunks: HugeSlice<Chunk>,
    free: u32,
    /// The slot being served, counted from time zero.
    current: u64,
    /// What was taken from the current slot and not yet served; entries put back meanwhile come after it.
    batch: u32,
    /// The next entry taken is the first of its chunk.
    begins: bool,
    entries: usize,
    refused: u64,
}

impl Wheel {
    /// A wheel that can always hold `entries` at a time.
    pub(crate) fn new(entries: usize) -> Self {
        // each list ends in at most one chunk that is not full: the slots' and the batch
        let count = (SLOTS + 1).min(entries) + entries / CHUNK_IDS + 1;
        let count = u32::try_from(count).unwrap_or(NONE - 1);
        let link = |i: u32| if i + 1 < count { i + 1 } else { NONE };
        let mut next = 0..count;
        let chunk = |_| Chunk { ids: [0; CHUNK_IDS], len: 0, next: next.next().map_or(NONE, link) };
        let chunks = crate::memory::slice(count as usize, chunk);
        Self {
            heads: vec![NONE; SLOTS].into_boxed_slice(),
            used: Occupancy::new(),
            chunks,
            free: 0,
            current: 0,
            batch: NONE,
            begins: true,
            entries: 0,
            refused: 0,
        }
    }

    /// The slot being served.
    pub(crate) fn current(&self) -> u64 {
        self.current
    }

    /// Entries held.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// Entries refused because the free list was dry.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Puts `id` into `slot`, or the nearest one within the horizon, and returns which; `None`: no room.
    #[inline]
    pub(crate) fn insert(&mut self, id: u32, slot: u64) -> Option<u64> {
        let slot = slot.clamp(self.current, self.current + (SLOTS as u64 - 1));
        let index = index_of(slot);
        let head = self.heads[index];
        let place = match self.chunks.get(head as usize) {
            Some(chunk) if (chunk.len as usize) < CHUNK_IDS => head,
            _ => self.add_chunk(index, head)?,
        };
        let chunk = &mut self.chunks[place as usize];
        chunk.ids[chunk.len as usize] = id;
        chunk.len += 1;
        self.entries += 1;
        Some(slot)
    }

    /// Asks the caches for what an insert into `slot` will touch.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u64) {
        mem::prefetch_index(&self.chunks, self.heads[index_of(slot)] as usize);
    }

    /// A fresh chunk in front of a slot's list.
    fn add_chunk(&mut self, index: usize, head: u32) -> Option<u32> {
        let fresh = self.free;
        let Some(chunk) = self.chunks.get_mut(fresh as usize) else {
            self.refused += 1;
            return None;
        };
        self.free = chunk.next;
        chunk.next = head;
        chunk.len = 0;
        self.heads[index] = fresh;
        self.used.set(index);
        Some(fresh)
    }

    /// The first slot that holds an entry, from the current one on.
    #[inline]
    pub(crate) fn first(&self) -> Option<u64> {
        if self.batch != NONE {
            return Some(self.current);
        }
        let from = index_of(self.current);
        let index = self.used.next_from(from).or_else(|| self.used.next_from(0))?;
        let ahead = index.wrapping_sub(from) & (SLOTS - 1);
        Some(self.current + ahead as u64)
    }

    /// Serves `slot` from now on. It never moves back, nor past a slot that holds an entry.
    #[inline]
    pub(crate) fn advance(&mut self, slot: u64) {
        let limit = self.first().unwrap_or(slot);
        self.current = self.current.max(slot.min(limit));
    }

    /// Takes an entry out of the current slot.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        if self.batch == NONE {
            let index = index_of(self.current);
            self.batch = core::mem::replace(&mut self.heads[index], NONE);
            self.used.clear(index);
        }
        let chunk = self.chunks.get_mut(self.batch as usize)?;
        chunk.len -= 1;
        let id = chunk.ids[chunk.len as usize];
        self.entries -= 1;
        self.begins = chunk.len == 0;
        if self.begins {
            let next = core::mem::replace(&mut chunk.next, self.free);
            self.free = core::mem::replace(&mut self.batch, next);
        }
        Some(id)
    }

    /// Takes `id` out of `slot`; whether it was there. Looks at all of the slot: for what no entry may be left behind of.
    pub(crate) fn remove(&mut self, id: u32, slot: u64) -> bool {
        let index = index_of(slot);
        let mut removed = None;
        if slot == self.current {
            removed = self.remove_from(self.batch, id).map(|head| self.batch = head);
        }
        if removed.is_none() {
            removed = self.remove_from(self.heads[index], id).map(|head| {
                self.heads[index] = head;
                if head == NONE {
                    self.used.clear(index);
                }
            });
        }
        self.entries -= usize::from(removed.is_some());
        removed.is_some()
    }

    /// Takes `id` out of a list, if it is in it: the list's first chunk then. Only that one may not be full, so its last
    /// entry fills the gap.
    fn remove_from(&mut self, head: u32, id: u32) -> Option<u32> {
        let mut at = head;
        let (place, within) = loop {
            let chunk = self.chunks.get(at as usize)?;
            let ids = chunk.ids.iter().take(chunk.len as usize);
            if let Some(within) = ids.clone().position(|&one| one == id) {
                break (at, within);
            }
            at = chunk.next;
        };
        let first = &mut self.chunks[head as usize];
        first.len -= 1;
        let (last, left, next) = (first.ids[first.len as usize], first.len, first.next);
        self.chunks[place as usize].ids[within] = last;
        if left > 0 {
            return Some(head);
        }
        self.chunks[head as usize].next = core::mem::replace(&mut self.free, head);
        Some(next)
    }

    /// Takes any entry out, wherever it is, with its slot; the wheel's time stays.
    pub(crate) fn take_any(&mut self) -> Option<(u64, u32)> {
        let now = self.current;
        let slot = self.first()?;
        self.current = slot;
        // a batch in hand belongs to the slot it was taken from, so it goes first and whole
        let id = self.pop();
        if self.batch != NONE && slot != now {
            let index = index_of(slot);
            self.heads[index] = core::mem::replace(&mut self.batch, NONE);
            self.used.set(index);
        }
        self.current = now;
        id.map(|id| (slot, id))
    }

    /// Whether [`Self::pop`] would begin a chunk.
    #[inline]
    pub(crate) fn begins_chunk(&self) -> bool {
        self.begins
    }

    /// The chunks that will be served after the one which [`Self::pop`] would begin, of this slot or later ones, up to
    /// the end of the ring: what to prefetch by.
    #[inline]
    pub(crate) fn ahead(&self) -> Ahead<'_> {
        let chunk = if self.batch == NONE { self.heads[index_of(self.current)] } else { self.batch };
        Ahead { wheel: self, chunk, from: index_of(self.current) }
    }
}

/// See [`Wheel::ahead`].
pub(crate) struct Ahead<'a> {
    wheel: &'a Wheel,
    chunk: u32,
    /// The slot it is of.
    from: usize,
}

impl<'a> Ahead<'a> {
    /// The next chunk, which is on its way into the caches once the one before was asked for.
    #[inline]
    pub(crate) fn step(&mut self) -> Option<&'a [u32]> {
        let wheel = self.wheel;
        let mut next = wheel.chunks.get(self.chunk as usize)?.next;
        if next == NONE {
            self.from = (self.from + 1 < SLOTS).then(|| wheel.used.next_from(self.from + 1))??;
            next = wheel.heads[self.from];
        }
        self.chunk = next;
        let chunk = wheel.chunks.get(next as usize)?;
        chunk.ids.get(..chunk.len as usize)
    }

    /// Asks the caches for the chunk after.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Some(chunk) = self.wheel.chunks.get(self.chunk as usize) {
            mem::prefetch_index(&self.wheel.chunks, chunk.next as usize);
        }
    }
}

/// The place of a slot in the ring.
#[expect(clippy::cast_possible_truncation, reason = "masked to the number of slots")]
const fn index_of(slot: u64) -> usize {
    slot as usize & (SLOTS - 1)
}

/// Which slots are in use: a bit a slot, a bit a word of them, a bit a word of those.
#[derive(Debug)]
struct Occupancy {
    slots: Box<[u64; SLOTS / 64]>,
    words: [u64; SLOTS / 64 / 64],
    top: u64,
}

impl Occupancy {
    fn new() -> Self {
        Self { slots: Box::new([0; SLOTS / 64]), words: [0; SLOTS / 64 / 64], top: 0 }
    }

    #[inline]
    fn set(&mut self, index: usize) {
        self.slots[index >> 6] |= 1 << (index & 63);
        self.words[index >> 12] |= 1 << (index >> 6 & 63);
        self.top |= 1 << (index >> 12);
    }

    #[inline]
    fn clear(&mut self, index: usize) {
        self.slots[index >> 6] &= !(1 << (index & 63));
        if self.slots[index >> 6] == 0 {
            self.words[index >> 12] &= !(1 << (index >> 6 & 63));
            if self.words[index >> 12] == 0 {
                self.top &= !(1 << (index >> 12));
            }
        }
    }

    /// The first slot in use at `from` or after it.
    #[inline]
    fn next_from(&self, from: usize) -> Option<usize> {
        let word = from >> 6;
        if let Some(bit) = lowest(self.slots[word] >> (from & 63)) {
            return Some(from + bit);
        }
        let group = word >> 6;
        if let Some(bit) = lowest(self.words[group] & above(word & 63)) {
            let word = group << 6 | bit;
            return lowest(self.slots[word]).map(|bit| word << 6 | bit);
        }
        let group = lowest(self.top & above(group))?;
        let word = group << 6 | lowest(self.words[group])?;
        lowest(self.slots[word]).map(|bit| word << 6 | bit)
    }
}

/// The lowest bit set.
#[inline]
const fn lowest(word: u64) -> Option<usize> {
    if word == 0 { None } else { Some(word.trailing_zeros() as usize) }
}

/// The bits above `bit` (0 to 63).
#[inline]
const fn above(bit: usize) -> u64 {
    (u64::MAX << bit) << 1
}
