// SPDX-License-Identifier: Apache-2.0
//! Slices of fixed length on huge pages.
//!
//! Invariant: a [`HugeSlice`] owns one private anonymous mapping in which all `len` elements are initialised
//! and every page has been touched, so the packet path meets no page fault; but for those that [`HugeSlice::lazy`]
//! makes. Backing, in this order: reserved
//! 2 MiB pages if enough are free, transparent huge pages if the kernel grants them, plain pages.

use core::mem::{align_of, needs_drop, size_of};
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
use std::io;

use libc::c_void;

const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;
/// Below this size reserved pages would be wasted on slack.
const HUGE_FROM: usize = 1 << 20;

/// Types for which memory full of zeroes is a valid value.
///
/// # Safety
///
/// All-zero bytes must be a valid value, and the type must not need dropping.
pub unsafe trait Zeroable {}

macro_rules! zeroable {
    ($($t:ty),*) => {$(
        // SAFETY: plain integers and atomics of them are valid when zero (test: `zeroed_memory_reads_as_zero`).
        unsafe impl Zeroable for $t {}
    )*};
}
zeroable!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);
zeroable!(AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, AtomicI64);

// SAFETY: an array is zero exactly when its elements are (test: `zeroed_memory_reads_as_zero`).
unsafe impl<T: Zeroable, const N: usize> Zeroable for [T; N] {}

/// What lies under a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Reserved 2 MiB pages.
    Reserved,
    /// Pages the kernel was asked to make huge (transparent huge pages).
    Transparent,
    /// Pages of 4 KiB.
    Plain,
}

/// A boxed slice of fixed length on huge pages.
pub struct HugeSlice<T> {
    start: NonNull<T>,
    len: usize,
    mapped: usize,
    backing: Backing,
}

// SAFETY: it owns its elements as a `Box<[T]>` does; the mapping belongs to no thread.
unsafe impl<T: Send> Send for HugeSlice<T> {}
// SAFETY: a shared reference gives only `&[T]`.
unsafe impl<T: Sync> Sync for HugeSlice<T> {}

impl<T> HugeSlice<T> {
    /// `len` elements, each made by `element` from its index.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory left for it.
    pub fn from_fn(len: usize, mut element: impl FnMut(usize) -> T) -> io::Result<Self> {
        let mut slice = Self::map(len)?;
        // Grows with each written element, so that a panic in `element` drops exactly those.
        slice.len = 0;
        for index in 0..len {
            let value = element(index);
            // SAFETY: index < len, so the place lies inside the mapping.
            let place = unsafe { slice.start.add(index) };
            // SAFETY: the mapping is aligned for T (checked by `map`), and this place is not initialised yet
            // (test: `elements_are_made_in_order_and_dropped_once`).
            unsafe { place.write(value) };
            slice.len = index + 1;
        }
        Ok(slice)
    }

    /// `len` copies of `value`.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory left for it.
    pub fn filled(len: usize, value: &T) -> io::Result<Self>
    where
        T: Clone,
    {
        Self::from_fn(len, |_| value.clone())
    }

    /// `len` elements of zero.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory left for it.
    pub fn zeroed(len: usize) -> io::Result<Self>
    where
        T: Zeroable,
    {
        // Fresh private anonymous pages read as zero; `map` has touched each.
        Self::map(len)
    }

    /// `len` elements of zero in plain pages that come when they are first written: for what most elements never
    /// need. The first write to a page of 4 KiB takes a page fault.
    ///
    /// # Errors
    ///
    /// When the kernel has no address space left for it.
    pub fn lazy(len: usize) -> io::Result<Self>
    where
        T: Zeroable,
    {
        assert!(align_of::<T>() <= PAGE, "a mapping is aligned to pages, no more");
        let bytes = len.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        if bytes == 0 {
            return Self::map(len);
        }
        let mapped = round_up(bytes, PAGE)?;
        let start = mmap(mapped, libc::MAP_NORESERVE)?;
        // a huge page at each first write would take 2 MiB and 100 us; a kernel without them need not be told
        let _ = advise(start, mapped, libc::MADV_NOHUGEPAGE);
        // fresh private anonymous pages read as zero, written or not
        Ok(Self { start: start.cast(), len, mapped, backing: Backing::Plain })
    }

    /// What lies under it, for a log line or a metric.
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// Bytes of address space held.
    pub fn mapped_bytes(&self) -> usize {
        self.mapped
    }

    /// A mapping for `len` elements, all bytes zero, every page present. `len` is set, so the caller answers
    /// for the elements being valid.
    fn map(len: usize) -> io::Result<Self> {
        assert!(align_of::<T>() <= PAGE, "a mapping is aligned to pages, no more");
        let bytes = len.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        if bytes == 0 {
            return Ok(Self { start: NonNull::dangling(), len, mapped: 0, backing: Backing::Plain });
        }
        let (start, mapped, backing) = map_bytes(bytes)?;
        Ok(Self { start: start.cast(), len, mapped, backing })
    }
}

impl<T> Deref for HugeSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is aligned and `len` elements from it are initialised and owned by self, which is
        // borrowed for as long as the slice (test: `elements_are_made_in_order_and_dropped_once`).
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for HugeSlice<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; self is borrowed mutably, so nobody else sees the elements.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for HugeSlice<T> {
    fn drop(&mut self) {
        if needs_drop::<T>() {
            let elements: *mut [T] = &raw mut **self;
            // SAFETY: the `len` elements are initialised, and nobody sees them after this
            // (test: `elements_are_made_in_order_and_dropped_once`).
            unsafe { core::ptr::drop_in_place(elements) };
        }
        if self.mapped > 0 {
            unmap(self.start.cast(), self.mapped);
        }
    }
}

impl<T> core::fmt::Debug for HugeSlice<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HugeSlice")
            .field("len", &self.len)
            .field("backing", &self.backing)
            .finish_non_exhaustive()
    }
}

/// At least `bytes` of zeroed, touched memory, with its real length and backing.
fn map_bytes(bytes: usize) -> io::Result<(NonNull<u8>, usize, Backing)> {
    if bytes >= HUGE_FROM {
        let length = round_up(bytes, HUGE_PAGE)?;
        if let Ok(start) = mmap(length, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB) {
            // Touching by the kernel turns a refusal (a hugetlb cgroup limit) into an error instead of SIGBUS.
            if advise(start, length, libc::MADV_POPULATE_WRITE).is_ok() {
                return Ok((start, length, Backing::Reserved));
            }
            unmap(start, length);
        }
        if let Some((start, length)) = map_aligned(length) {
            let backing = match advise(start, length, libc::MADV_HUGEPAGE) {
                Ok(()) => Backing::Transparent,
                Err(_) => Backing::Plain,
            };
            touch(start, length);
            return Ok((start, length, backing));
        }
    }
    let length = round_up(bytes, PAGE)?;
    let start = mmap(length, 0)?;
    touch(start, length);
    Ok((start, length, Backing::Plain))
}

/// A mapping that begins on a huge page, cut out of a larger one: else its first and last huge page would be
/// made of small ones.
fn map_aligned(length: usize) -> Option<(NonNull<u8>, usize)> {
    let wide = length.checked_add(HUGE_PAGE)?;
    let start = mmap(wide, 0).ok()?;
    let before = start.addr().get().next_multiple_of(HUGE_PAGE) - start.addr().get();
    let after = HUGE_PAGE - before;
    // SAFETY: before <= HUGE_PAGE < wide, so the sum stays inside the mapping (test: `large_slices_begin_on_a_huge_page`).
    let aligned = unsafe { start.add(before) };
    // SAFETY: before + length <= wide, so this is at most the mapping's end.
    let end = unsafe { aligned.add(length) };
    if before > 0 {
        unmap(start, before);
    }
    if after > 0 {
        unmap(end, after);
    }
    Some((aligned, length))
}

fn round_up(bytes: usize, to: usize) -> io::Result<usize> {
    bytes.checked_next_multiple_of(to).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

fn mmap(length: usize, flags: i32) -> io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new private anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe { libc::mmap(core::ptr::null_mut(), length, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

fn advise(start: NonNull<u8>, length: usize, advice: i32) -> io::Result<()> {
    // SAFETY: the range is a mapping made by `mmap` above that nobody else holds, and no advice in use
    // (HUGEPAGE, NOHUGEPAGE, POPULATE_WRITE) changes what it contains.
    let result = unsafe { libc::madvise(start.as_ptr().cast::<c_void>(), length, advice) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn touch(start: NonNull<u8>, length: usize) {
    for offset in (0..length).step_by(PAGE) {
        // SAFETY: offset < length, inside the mapping.
        let at = unsafe { start.add(offset) };
        // SAFETY: the mapping is writable, fresh (all zero) and not shared; zero stays zero
        // (test: `zeroed_memory_reads_as_zero`).
        unsafe { at.write_volatile(0) };
    }
}

fn unmap(start: NonNull<u8>, length: usize) {
    // SAFETY: the range is a mapping of our own, or its head or tail, and nobody keeps a pointer into it.
    let result = unsafe { libc::munmap(start.as_ptr().cast::<c_void>(), length) };
    debug_assert_eq!(result, 0, "munmap of our own mapping");
}

#[cfg(test)]
mod tests;
