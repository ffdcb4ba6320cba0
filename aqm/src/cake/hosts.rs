// SPDX-License-Identifier: Apache-2.0
//! Bulk flows of each host of a tin, by source and by destination, in set-associative tables as the flows are.
//!
//! Invariant: the sum of the counts of a side is the number of bulk flows of the tin. An entry without bulk flows may
//! be taken over by another host; a flow that held it then counts for that one, as in sch_cake.

use super::tin::{QUEUES, WAYS};
use crate::FlowKey;

#[derive(Clone, Copy, Debug, Default)]
struct Host {
    tag: u32,
    bulk: u16,
}

/// Entries of a flow's two hosts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pair {
    source: u16,
    destination: u16,
}

/// Both sides.
#[derive(Debug)]
pub(super) struct Hosts {
    sources: Box<[Host]>,
    destinations: Box<[Host]>,
}

impl Hosts {
    pub(super) fn new() -> Self {
        let side = || vec![Host::default(); QUEUES as usize].into_boxed_slice();
        Self { sources: side(), destinations: side() }
    }

    /// The entries of the hosts of a flow.
    pub(super) fn find(&mut self, key: &FlowKey) -> Pair {
        Pair {
            source: find(&mut self.sources, key.source),
            destination: find(&mut self.destinations, key.destination),
        }
    }

    /// A flow of these hosts becomes bulk.
    pub(super) fn add(&mut self, pair: Pair) {
        self.sources[usize::from(pair.source)].bulk += 1;
        self.destinations[usize::from(pair.destination)].bulk += 1;
    }

    /// A flow of these hosts is bulk no more.
    pub(super) fn take(&mut self, pair: Pair) {
        for host in [
            &mut self.sources[usize::from(pair.source)],
            &mut self.destinations[usize::from(pair.destination)],
        ] {
            debug_assert!(host.bulk > 0);
            host.bulk = host.bulk.saturating_sub(1);
        }
    }

    /// Bulk flows of the busier host, at least 1.
    pub(super) fn load(&self, pair: Pair) -> u32 {
        let source = self.sources[usize::from(pair.source)].bulk;
        let destination = self.destinations[usize::from(pair.destination)].bulk;
        u32::from(source.max(destination).max(1))
    }

    /// Sums over both sides, for tests.
    #[cfg(test)]
    pub(super) fn bulk(&self) -> (u32, u32) {
        let sum = |side: &[Host]| side.iter().map(|host| u32::from(host.bulk)).sum();
        (sum(&self.sources), sum(&self.destinations))
    }

    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.sources) + size_of_val(&*self.destinations)
    }
}

/// The entry with the tag, else one without bulk flows, else the first of its set; it has the tag from now on.
#[expect(clippy::cast_possible_truncation, reason = "below QUEUES")]
fn find(side: &mut [Host], tag: u32) -> u16 {
    let direct = tag % QUEUES;
    let ways = || (0..WAYS).map(|way| direct - direct % WAYS + (direct + way) % WAYS);
    let at = ways()
        .find(|&at| side[at as usize].tag == tag)
        .or_else(|| ways().find(|&at| side[at as usize].bulk == 0))
        .unwrap_or(direct);
    side[at as usize].tag = tag;
    at as u16
}
