// SPDX-License-Identifier: Apache-2.0
//! Things at numbered places, in pages that are taken when the first of their places is used and never moved.
//!
//! So a shard without aggregates holds no memory for them, and growth copies nothing.

use core::ops::{Index, IndexMut};

/// See the module. `BITS`: places of a page, as a power of two.
#[derive(Debug)]
pub(crate) struct Paged<T, const BITS: u32> {
    pages: Vec<Option<Box<[T]>>>,
    most: usize,
}

impl<T: Default, const BITS: u32> Paged<T, BITS> {
    /// Room for places below `limit`, none of them used.
    pub(crate) fn new(limit: usize) -> Self {
        Self { pages: Vec::new(), most: limit.div_ceil(1 << BITS) }
    }

    /// Takes the page of a place; whether the place is below the limit.
    pub(crate) fn touch(&mut self, place: usize) -> bool {
        let at = place >> BITS;
        if at >= self.most {
            return false;
        }
        if at >= self.pages.len() {
            self.pages.resize_with(at + 1, || None);
        }
        let Some(page) = self.pages.get_mut(at) else { return false };
        page.get_or_insert_with(|| (0..1_usize << BITS).map(|_| T::default()).collect());
        true
    }

    /// What is at a place whose page was taken.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> Option<&T> {
        self.pages.get(place >> BITS)?.as_ref()?.get(place & ((1 << BITS) - 1))
    }

    /// As [`Self::get`].
    #[inline]
    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.pages.get_mut(place >> BITS)?.as_mut()?.get_mut(place & ((1 << BITS) - 1))
    }
}

impl<T: Default, const BITS: u32> Index<u32> for Paged<T, BITS> {
    type Output = T;
    #[inline]
    #[expect(clippy::panic, reason = "as an index of a slice: whoever holds a place has touched it")]
    fn index(&self, place: u32) -> &T {
        let Some(thing) = self.get(place as usize) else { panic!("place {place} was never taken") };
        thing
    }
}

impl<T: Default, const BITS: u32> IndexMut<u32> for Paged<T, BITS> {
    #[inline]
    #[expect(clippy::panic, reason = "as an index of a slice: whoever holds a place has touched it")]
    fn index_mut(&mut self, place: u32) -> &mut T {
        let Some(thing) = self.get_mut(place as usize) else { panic!("place {place} was never taken") };
        thing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_with_their_first_place_and_stay() {
        let mut paged = Paged::<u64, 4>::new(40);
        assert!(paged.get(20).is_none());
        assert!(paged.touch(20));
        paged[20] = 7;
        assert!(paged.touch(31) && paged[20] == 7 && paged[31] == 0);
        assert!(paged.get(32).is_none() && paged.get_mut(3).is_none());
        assert!(!paged.touch(48), "three pages hold 48");
    }
}
