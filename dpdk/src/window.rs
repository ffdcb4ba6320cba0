// SPDX-License-Identifier: Apache-2.0
//! Mbuf pointers in 32 bits.
//!
//! An mbuf is aligned to 64 bytes, so 32 bits reach 256 GiB: `(address - base) >> 6`. Invariant: the base is fixed
//! when the first pool is made, half a window below it; every mbuf of every pool is checked to lie above the base
//! and inside the window before the pool is handed out, so neither direction can go wrong and 0 means "none".

use core::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use dpdk_sys as sys;

/// Bytes that 32 bits of 64-byte steps reach.
const WINDOW: u64 = 1 << 38;
const STEP_BITS: u32 = 6;

/// 0 until the first pool is made.
static BASE: AtomicU64 = AtomicU64::new(0);

/// Fixes the base, if none is yet, so that `first` lies in the middle of the window.
pub(crate) fn settle(first: u64) {
    let base = (first.saturating_sub(WINDOW / 2) & !(WINDOW / 4 - 1)).max(1 << STEP_BITS);
    // A failure means that it is fixed already, which is as good.
    let _ = BASE.compare_exchange(0, base, Ordering::Relaxed, Ordering::Relaxed);
}

/// Whether an mbuf at `address` can be compressed.
pub(crate) fn holds(address: u64) -> bool {
    fits(BASE.load(Ordering::Relaxed), address)
}

fn fits(base: u64, address: u64) -> bool {
    base != 0
        && address.is_multiple_of(1 << STEP_BITS)
        && address.checked_sub(base).is_some_and(|offset| offset > 0 && offset < WINDOW)
}

/// The mbuf's number; never 0.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "every mbuf was checked to lie in the window")]
pub(crate) fn compress(m: NonNull<sys::Mbuf>) -> u32 {
    let address = m.addr().get() as u64;
    debug_assert!(holds(address), "mbuf at {address:#x} is of no checked pool");
    ((address - BASE.load(Ordering::Relaxed)) >> STEP_BITS) as u32
}

/// The address behind a number that [`compress`] gave.
#[inline]
pub(crate) fn expand(number: u32) -> NonNull<sys::Mbuf> {
    debug_assert_ne!(number, 0);
    let address = BASE.load(Ordering::Relaxed) + (u64::from(number) << STEP_BITS);
    let pointer = core::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0));
    // SAFETY: base and number are positive, so the address is not null
    // (test: `a_number_leads_back_to_its_address`).
    unsafe { NonNull::new_unchecked(pointer) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_window_ends_after_256_gib() {
        let base = 1 << 32;
        assert!(!fits(base, base), "0 means none");
        assert!(fits(base, base + 64));
        assert!(!fits(base, base + 65), "not aligned");
        assert!(fits(base, base + WINDOW - 64));
        assert!(!fits(base, base + WINDOW));
        assert!(!fits(base, base - 64));
        assert!(!fits(0, 64), "no pool yet");
    }

    proptest! {
        // Addresses only: nothing is dereferenced. One base serves the whole process, as in production.
        #[test]
        fn a_number_leads_back_to_its_address(offset in 1_u64..(WINDOW / 4) >> STEP_BITS) {
            let first = 0x7f00_0000_0000;
            settle(first);
            let address = first + (offset << STEP_BITS);
            prop_assert!(holds(address));
            let pointer = NonNull::new(core::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap())).unwrap();
            prop_assert_eq!(expand(compress(pointer)), pointer);
        }
    }
}
