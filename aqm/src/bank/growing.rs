// SPDX-License-Identifier: Apache-2.0
//! Parameters by number, read by lcores while more come.
//!
//! Invariant: what is there stays as it is, so a number means the same for ever; one control thread adds.

use core::sync::atomic::{AtomicU16, Ordering};
use std::sync::OnceLock;

use crate::pi::PiParams;

/// Profiles that may come beside those a bank is made with.
pub const MORE_PROFILES: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct Growing {
    first: PiParams,
    places: Box<[OnceLock<PiParams>]>,
    count: AtomicU16,
}

impl Growing {
    /// Of these; `first` stands for a number that is not there.
    pub(super) fn new(first: PiParams, all: &[PiParams]) -> Self {
        let places = (0..all.len() + MORE_PROFILES).map(|_| OnceLock::new()).collect();
        let made = Self { first, places, count: AtomicU16::new(0) };
        let fit = all.iter().all(|params| made.push(*params));
        debug_assert!(fit, "there is room for those it is made with");
        made
    }

    /// One more, if there is room.
    pub(super) fn push(&self, params: PiParams) -> bool {
        let place = self.count.load(Ordering::Relaxed);
        let taken = self.places.get(usize::from(place)).is_some_and(|slot| slot.set(params).is_ok());
        if taken {
            self.count.store(place + 1, Ordering::Release);
        }
        taken
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed).into()
    }

    #[inline]
    pub(super) fn get(&self, place: u16) -> &PiParams {
        self.places.get(usize::from(place)).and_then(OnceLock::get).unwrap_or(&self.first)
    }
}
