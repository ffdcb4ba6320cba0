// SPDX-License-Identifier: Apache-2.0
//! Huge-page slices: contents, order, drops, alignment.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use super::*;

#[test]
fn zeroed_memory_reads_as_zero() {
    for len in [0, 1, 511, 4096, 3 << 20] {
        let slice = HugeSlice::<[u32; 2]>::zeroed(len).unwrap();
        assert_eq!(slice.len(), len);
        assert!(slice.iter().all(|e| *e == [0, 0]), "length {len}");
    }
    let atomics = HugeSlice::<AtomicU64>::zeroed(1 << 18).unwrap();
    atomics[7].fetch_add(3, core::sync::atomic::Ordering::Relaxed);
    assert_eq!(atomics[7].load(core::sync::atomic::Ordering::Relaxed), 3);
}

/// Notes its index when dropped.
struct Noted(usize, Rc<RefCell<Vec<usize>>>);

impl Drop for Noted {
    fn drop(&mut self) {
        self.1.borrow_mut().push(self.0);
    }
}

#[test]
fn elements_are_made_in_order_and_dropped_once() {
    let dropped = Rc::new(RefCell::new(Vec::new()));
    let slice = HugeSlice::from_fn(100, |i| Noted(i, Rc::clone(&dropped))).unwrap();
    assert!(slice.iter().enumerate().all(|(i, n)| n.0 == i));
    assert!(dropped.borrow().is_empty());
    drop(slice);
    assert_eq!(*dropped.borrow(), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_panic_while_filling_drops_what_was_made() {
    let dropped = Rc::new(RefCell::new(Vec::new()));
    let made = catch_unwind(AssertUnwindSafe(|| {
        HugeSlice::from_fn(10, |i| {
            assert!(i < 4, "the fifth element cannot be made");
            Noted(i, Rc::clone(&dropped))
        })
    }));
    assert!(made.is_err());
    assert_eq!(*dropped.borrow(), [0, 1, 2, 3]);
}

#[test]
fn large_slices_begin_on_a_huge_page() {
    let slice = HugeSlice::<u64>::zeroed(1 << 20).unwrap();
    assert_eq!(slice.as_ptr().addr() % HUGE_PAGE, 0, "backing {:?}", slice.backing());
    assert_eq!(slice.mapped_bytes() % HUGE_PAGE, 0);
    assert_ne!(slice.backing(), Backing::Plain, "the kernel grants transparent huge pages here");
}

#[test]
fn what_is_written_is_read_back() {
    let mut slice = HugeSlice::filled(1 << 18, &7_u64).unwrap();
    for (i, e) in slice.iter_mut().enumerate() {
        *e += i as u64;
    }
    assert!(slice.iter().enumerate().all(|(i, e)| *e == 7 + i as u64));
}

#[test]
fn more_than_the_address_space_is_an_error() {
    assert!(HugeSlice::<u64>::zeroed(usize::MAX / 4).is_err());
    assert!(HugeSlice::<u64>::zeroed(1 << 45).is_err());
}

#[test]
fn a_lazy_slice_is_zero_and_holds_what_is_written() {
    let mut slice = HugeSlice::<[u64; 56]>::lazy(100_000).expect("address space");
    assert!(slice.iter().step_by(997).all(|cells| cells == &[0; 56]));
    slice[77_777][55] = 9;
    assert_eq!((slice[77_777][55], slice[77_777][54], slice[77_778][0]), (9, 0, 0));
    assert_eq!(slice.backing(), Backing::Plain);
    assert_eq!(HugeSlice::<u64>::lazy(0).expect("nothing").len(), 0);
}
