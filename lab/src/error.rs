// SPDX-License-Identifier: Apache-2.0
//! What can go wrong before a run.

use engine::ProfileError;

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An AQM refuses its parameters.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}
