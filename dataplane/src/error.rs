// SPDX-License-Identifier: Apache-2.0
//! What can go wrong at launch and while it runs, each as one sentence.

use dpdk::{EalError, PoolError, PortError};
use engine::{ProfileError, RegistryError};

/// The data plane did not start.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The EAL.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// A pool or ring.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Too few buffers to forward with.
    #[error(
        "dataplane.buffers = {buffers} is too few: rings and descriptors of these lcores and ports need {least}"
    )]
    FewBuffers {
        /// As configured.
        buffers: u32,
        /// At least.
        least: u32,
    },
    /// An lcore ended by a bug.
    #[error("lcore {lcore} died: {panic}")]
    Died {
        /// Which.
        lcore: u32,
        /// What it said.
        panic: String,
    },
    /// More ports than a packet can name.
    #[error("{0} ports are more than 255")]
    TooManyPorts(usize),
    /// The book of subscribers.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// A change was refused; but for [`Halfway`](Self::Halfway), nothing of it was applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// No room.
    #[error("there is room for {capacity} subscribers")]
    Full {
        /// Subscribers.
        capacity: u64,
    },
    /// The record cannot be served.
    #[error("{id}: {reason}")]
    Refused {
        /// The record.
        id: String,
        /// One sentence.
        reason: String,
    },
    /// What the batch removes is removed, and what it puts could not follow.
    #[error("{0}")]
    Halfway(String),
    /// Not now.
    #[error("{0}")]
    Unavailable(&'static str),
}

/// Why profiles are not in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfilesError {
    /// They cannot be while it runs.
    #[error("{0}")]
    Restart(String),
    /// An lcore does not answer.
    #[error("an lcore does not answer: some subscribers keep the profiles they had; reload again")]
    Unfinished,
}
