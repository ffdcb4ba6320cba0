// SPDX-License-Identifier: Apache-2.0
//! The clock of `sluice traffic`: the one place here that reads time.

use std::time::Instant;

use cc::Nanos;

/// Monotonic time since it was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "this file owns the clock of `sluice traffic`")]
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start, never zero, so that a timestamp of zero can be told from none.
    pub(super) fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1))
    }
}
