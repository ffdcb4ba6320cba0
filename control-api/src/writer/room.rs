// SPDX-License-Identifier: Apache-2.0
//! Whether the outcome of a group has room in the shaper, before the store hears of it.
//!
//! Were it found out afterwards, a death in between would leave the store with more than fits, and a restart would
//! have to shut somebody out who had been let in. A store that holds too much already (its shaper has become smaller)
//! may still shrink, and change as long as it does not grow.

use super::{Change, Writer};
use crate::problem::Problem;
use crate::shaper::ShaperError;

impl Writer {
    /// 507 where these changes would leave the store or the shaper with more than the shaper has room for.
    pub(crate) fn check_room(&self, changes: &[Change]) -> Result<(), Problem> {
        let [mut created, mut deleted, mut entering, mut leaving] = [0_u64; 4];
        for change in changes {
            let shaped = change.old.is_some() && !self.unapplied.has(&change.id);
            created += u64::from(change.old.is_none() && change.new.is_some());
            deleted += u64::from(change.old.is_some() && change.new.is_none());
            entering += u64::from(!shaped && change.new.is_some());
            leaving += u64::from(shaped && change.new.is_none());
        }
        if entering == 0 {
            return Ok(());
        }
        let stored = self.directory.len() as u64;
        let shaped = stored.saturating_sub(self.unapplied.len() as u64);
        let capacity = self.capacity()?;
        let store_overflows = created > deleted && stored + created - deleted > capacity;
        let shaper_overflows = entering > leaving && shaped + entering - leaving > capacity;
        if store_overflows || shaper_overflows {
            return Err(super::refusal(&ShaperError::Full { capacity }));
        }
        Ok(())
    }

    fn capacity(&self) -> Result<u64, Problem> {
        self.guarded(|shaper| Ok(shaper.capacity())).map_err(|error| super::refusal(&error))
    }
}
