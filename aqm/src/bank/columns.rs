// SPDX-License-Identifier: Apache-2.0
//! What a bank's columns are made of: memory that its user provides, and pairs of 32-bit values in atomic words.

#![expect(clippy::inline_always, reason = "a pass compiles them for its own vectors")]

use core::fmt::Debug;
use core::ops::DerefMut;
use core::sync::atomic::{AtomicU64, Ordering};

pub use super::dense::LANES;

/// What a column may hold.
pub trait Element: Debug + Send + Sync + 'static {}

impl<T: Debug + Send + Sync + 'static> Element for T {}

/// Where a bank's columns lie: whoever has huge pages gives them.
pub trait Memory: Debug + 'static {
    /// A slice of fixed length.
    type Column<T: Element>: DerefMut<Target = [T]> + Debug + Send + Sync;

    /// `len` elements.
    fn column<T: Element>(len: usize, element: impl FnMut() -> T) -> Self::Column<T>;

    /// Reads the pairs of a word of ids, relaxed and in any order: low halves are those of even ids.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "takes the halves")]
    fn load(from: &[AtomicU64; PAIRS], into: &mut [u32; LANES]) {
        for (two, pair) in into.chunks_exact_mut(2).zip(from) {
            let pair = pair.load(Ordering::Relaxed);
            (two[0], two[1]) = (pair as u32, (pair >> 32) as u32);
        }
    }

    /// Writes them likewise; nobody else does.
    #[inline(always)]
    fn store(from: &[u32; LANES], into: &[AtomicU64; PAIRS]) {
        for (two, pair) in from.chunks_exact(2).zip(into) {
            pair.store(u64::from(two[0]) | u64::from(two[1]) << 32, Ordering::Relaxed);
        }
    }
}

/// The global allocator's memory.
#[derive(Debug)]
pub struct Heap;

impl Memory for Heap {
    type Column<T: Element> = Box<[T]>;

    fn column<T: Element>(len: usize, element: impl FnMut() -> T) -> Box<[T]> {
        core::iter::repeat_with(element).take(len).collect()
    }
}

/// 32 bits an id, two ids in an atomic word: a pass reads them in half as many loads. Invariant: one thread writes.
#[derive(Debug)]
pub(super) struct Pairs<M: Memory>(M::Column<[AtomicU64; PAIRS]>);

impl<M: Memory> Pairs<M> {
    /// Zeroes for whole words of ids.
    pub(super) fn new(words: usize) -> Self {
        Self(M::column(words, || core::array::from_fn(|_| AtomicU64::new(0))))
    }

    #[inline]
    fn pair(&self, index: usize) -> &AtomicU64 {
        &self.0[index / LANES][index % LANES / 2]
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "takes a half")]
    pub(super) fn get(&self, index: usize) -> u32 {
        (self.pair(index).load(Ordering::Relaxed) >> half(index)) as u32
    }

    /// The writer's thread only.
    #[inline]
    pub(super) fn set(&self, index: usize, value: u32) {
        let pair = self.pair(index);
        let other = pair.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << half(index));
        pair.store(other | u64::from(value) << half(index), Ordering::Relaxed);
    }

    /// Those of a word of ids.
    #[inline(always)]
    pub(super) fn read(&self, word: usize, into: &mut [u32; LANES]) {
        M::load(&self.0[word], into);
    }

    /// Sets those of a word; the writer's thread only.
    #[inline(always)]
    pub(super) fn write(&self, word: usize, from: &[u32; LANES]) {
        M::store(from, &self.0[word]);
    }
}

/// Pairs of a word of ids.
pub const PAIRS: usize = LANES / 2;

/// How far the half of an id lies from the right.
const fn half(index: usize) -> usize {
    index % 2 * 32
}
