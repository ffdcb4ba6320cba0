// SPDX-License-Identifier: Apache-2.0
//! A slab: things of one kind at numbered places; a place given back is the next one taken.
//!
//! Invariant: a [`Slot`] names its thing until [`Slab::remove`], and is held in one place, so it never names
//! another's.

use core::num::NonZeroU32;

/// A place, in 4 bytes, also where there may be none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(NonZeroU32);

impl Slot {
    const fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Things at their places; grows, and shrinks never.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<Slot>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    /// Takes a place; `None` once 2^32 - 2 are taken.
    pub(crate) fn insert(&mut self, thing: T) -> Option<Slot> {
        if let Some(slot) = self.free.pop() {
            *self.entries.get_mut(slot.index())? = Some(thing);
            return Some(slot);
        }
        let slot = Slot(NonZeroU32::new(u32::try_from(self.entries.len() + 1).ok()?)?);
        self.entries.push(Some(thing));
        Some(slot)
    }

    /// Gives a place back.
    pub(crate) fn remove(&mut self, slot: Slot) -> Option<T> {
        let thing = self.entries.get_mut(slot.index())?.take();
        if thing.is_some() {
            self.free.push(slot);
        }
        thing
    }

    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        self.entries.get(slot.index())?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.entries.get_mut(slot.index())?.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_given_back_are_taken_again_and_name_nobody_meanwhile() {
        let mut slab = Slab::new();
        let slots: Vec<_> = (0..3).map(|n| slab.insert(n).expect("there is room")).collect();
        assert_eq!(slab.remove(slots[1]), Some(1));
        assert_eq!(slab.get(slots[1]), None);
        assert_eq!(slab.remove(slots[1]), None);
        assert_eq!(slab.insert(7), Some(slots[1]));
        assert_eq!(slots.iter().filter_map(|&slot| slab.get(slot)).copied().collect::<Vec<_>>(), [0, 7, 2]);
        *slab.get_mut(slots[2]).expect("it is there") = 9;
        assert_eq!(slab.get(slots[2]), Some(&9));
    }
}
