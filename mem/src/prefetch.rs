// SPDX-License-Identifier: Apache-2.0
//! Prefetch hints.
//!
//! Invariant: a prefetch instruction is a hint; it never faults whatever the address (Intel SDM vol. 2,
//! PREFETCHh), so these functions are safe for every pointer, dangling ones included.

use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// Asks for the cache line at `at`, to be read soon.
#[inline]
pub fn prefetch<T: ?Sized>(at: *const T) {
    // SAFETY: PREFETCHT0 never faults and changes no memory, whatever the address
    // (test: `hints_take_any_address`).
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
}

/// Asks for the cache line at `at`, to be written soon: one that another core wrote last comes in one go instead of two.
#[inline]
pub fn prefetch_write<T: ?Sized>(at: *const T) {
    // SAFETY: PREFETCHW never faults and changes no memory, whatever the address, and does nothing where a CPU does
    // not know it (Intel SDM vol. 2, PREFETCHW; test: `hints_take_any_address`).
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) at.cast::<u8>(), options(nostack, preserves_flags, readonly));
    }
}

/// Asks for the line in which element `index` begins; an index past the end is harmless.
#[inline]
pub fn prefetch_index<T>(slice: &[T], index: usize) {
    prefetch(slice.as_ptr().wrapping_add(index));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_take_any_address() {
        let array = [0_u64; 4];
        for address in [0_usize, 1, 0xdead_beef, usize::MAX, array.as_ptr() as usize] {
            prefetch(address as *const u8);
            prefetch_write(address as *const u8);
        }
        prefetch_index(&array, 3);
        prefetch_index(&array, usize::MAX);
        assert_eq!(array, [0; 4], "a hint changes nothing");
    }
}
