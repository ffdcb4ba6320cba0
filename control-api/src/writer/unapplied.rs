// SPDX-License-Identifier: Apache-2.0
//! Records that the store holds and the shaper does not have, with why.
//!
//! Invariant: only the writer changes it; whoever answers requests reads it, and nobody waits for the shaper while
//! holding it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::shaper::ShaperError;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Unapplied(Mutex<HashMap<Arc<str>, ShaperError>>);

impl Unapplied {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, ShaperError>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.lock().contains_key(id)
    }

    /// Why the shaper does not have it, if it does not.
    pub(crate) fn why(&self, id: &str) -> Option<ShaperError> {
        self.lock().get(id).cloned()
    }

    /// Their names.
    pub(super) fn ids(&self) -> Vec<Arc<str>> {
        self.lock().keys().cloned().collect()
    }

    pub(super) fn add(&self, refused: impl IntoIterator<Item = (Arc<str>, ShaperError)>) {
        self.lock().extend(refused);
    }

    pub(super) fn remove<'a>(&self, ids: impl IntoIterator<Item = &'a str>) {
        let mut refused = self.lock();
        if !refused.is_empty() {
            ids.into_iter().for_each(|id| drop(refused.remove(id)));
        }
    }
}
