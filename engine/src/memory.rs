// SPDX-License-Identifier: Apache-2.0
//! The engine's tables: slices on huge pages where there are any, or TLB misses cost as much as all else.

use mem::{HugeSlice, Zeroable};

/// `len` elements, each made from its index.
///
/// # Panics
/// Where the system has no memory left for them: as any allocation ends then.
pub(crate) fn slice<T>(len: usize, element: impl FnMut(usize) -> T) -> HugeSlice<T> {
    HugeSlice::from_fn(len, element).unwrap_or_else(|error| panic!("no memory for {len} elements: {error}"))
}

/// `len` elements of zero whose memory comes when it is first written.
///
/// # Panics
/// As [`slice`] does.
pub(crate) fn lazy<T: Zeroable>(len: usize) -> HugeSlice<T> {
    HugeSlice::lazy(len).unwrap_or_else(|error| panic!("no address space for {len} elements: {error}"))
}
