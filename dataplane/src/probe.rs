// SPDX-License-Identifier: Apache-2.0
//! Where the time of a burst goes: the workers say when a stage ends, the benchmark listens.
//!
//! On the packet path proper nobody listens: the probe is `()`, whose laps compile to nothing.

/// A stage of the packet path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Stage {
    /// Polling the port.
    Rx,
    /// Reading headers.
    Parse,
    /// Looking the subscriber up.
    Classify,
    /// Metadata, and the ring to the shard, both its ends.
    Ring,
    /// Limits, FIFO, wheel.
    Enqueue,
    /// Wheel, scheduler, AQM, shapers.
    Dequeue,
    /// Handing over to the port.
    Tx,
    /// The rest of a loop: clock, pulse, orders.
    Other,
}

impl Stage {
    /// All of them, in the order of their value.
    pub(crate) const ALL: [Self; 8] = [
        Self::Rx,
        Self::Parse,
        Self::Classify,
        Self::Ring,
        Self::Enqueue,
        Self::Dequeue,
        Self::Tx,
        Self::Other,
    ];

    /// The name in reports.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Rx => "rx",
            Self::Parse => "parse",
            Self::Classify => "classify",
            Self::Ring => "ring",
            Self::Enqueue => "enqueue",
            Self::Dequeue => "dequeue",
            Self::Tx => "tx",
            Self::Other => "other",
        }
    }
}

/// Listens to the workers of an lcore.
pub(crate) trait Probe {
    /// What was done since the last lap belongs to `stage`.
    fn lap(&mut self, stage: Stage);
}

impl Probe for () {
    #[inline(always)]
    fn lap(&mut self, _: Stage) {}
}
