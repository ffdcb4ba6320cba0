// SPDX-License-Identifier: Apache-2.0
//! Who gets a buffer while most of them are taken: packets that are due, or soon. They hold a buffer for no longer than
//! that takes, so a few buffers do for all of them, and whoever stays below its plan loses nothing to those who do not.

use aqm::Nanos;

use super::Shard;
use crate::change::QueueKind;
use crate::packet::Packet;
use crate::parents::NONE;

impl<P: Packet> Shard<P> {
    /// Whether a packet that finds none of the common buffers may have one of those kept for what is due soon.
    #[cold]
    #[inline(never)]
    pub(super) fn admits_due(&mut self, now: Nanos, local: usize, buffers: u32) -> bool {
        let record = &self.records[local];
        if record.kind != QueueKind::Subscriber {
            return false;
        }
        // by the clock that its wait is told by, whichever port the packet is for
        let (waits, node, lane) = (record.bytes(), record.node, usize::from(record.lane));
        let at = self.lanes[lane].time(&self.options.ports[lane], now);
        let time = if node == NONE { at } else { self.tree.time(node, at) };
        let unspent = self.records[local].shaper.unspent(time, waits);
        unspent.is_some_and(|unspent| self.budget.admits_due(buffers, unspent))
    }
}
