// SPDX-License-Identifier: Apache-2.0
//! Changes of the configuration as they travel to the lcore that owns a shard.
//!
//! Invariant: a queue id is created before a packet may carry it and removed after the last that could; an
//! update keeps queues, AQM state and counters.

use aqm::BitsPerSec;

use crate::packet::{PortId, QueueId};
use crate::parents::{ParentId, ParentSpec};

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Direction {
    /// Towards the subscriber.
    #[default]
    Down = 0,
    /// From the subscriber.
    Up = 1,
}

impl Direction {
    /// Both, down first.
    pub const BOTH: [Self; 2] = [Self::Down, Self::Up];

    /// The name in metrics and statistics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
        }
    }
}

/// Whose traffic a queue id carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueKind {
    /// A subscriber's.
    Subscriber,
    /// Everybody's that matches no subscriber.
    Unknown,
    /// Control traffic: unshaped but limited.
    Control,
}

/// What a queue id is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// Its rate; 0 for control and unknown traffic whose rate comes from the port it leaves by.
    pub rate: BitsPerSec,
    /// Index of its profile.
    pub profile: u16,
    /// Which way it goes.
    pub direction: Direction,
    /// The port it leaves by, where one is known in advance; a packet's own egress decides.
    pub egress_hint: PortId,
    /// Whose traffic it is.
    pub kind: QueueKind,
    /// The aggregate above it; subscribers only.
    pub parent: Option<ParentId>,
}

/// A change for one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A queue id comes into use.
    Create {
        /// Which.
        id: QueueId,
        /// What it is to do.
        spec: QueueSpec,
    },
    /// A queue id changes; queues and AQM state stay.
    Update {
        /// Which.
        id: QueueId,
        /// What it is to do from now on.
        spec: QueueSpec,
    },
    /// A queue id goes out of use; what waits is dropped as `removed`.
    Remove {
        /// Which.
        id: QueueId,
    },
    /// An aggregate comes or changes: for every shard.
    Parent {
        /// Which.
        id: ParentId,
        /// What it is to do from now on.
        spec: ParentSpec,
    },
    /// An aggregate goes; children that it still has keep it until they go. For every shard.
    RemoveParent {
        /// Which.
        id: ParentId,
    },
}

impl Change {
    /// The queue id it is about, if it is about one.
    pub const fn queue_id(&self) -> Option<QueueId> {
        match *self {
            Self::Create { id, .. } | Self::Update { id, .. } | Self::Remove { id } => Some(id),
            Self::Parent { .. } | Self::RemoveParent { .. } => None,
        }
    }
}
