// SPDX-License-Identifier: Apache-2.0
//! Aggregates for the benchmark: PON ports of 64 subscribers, and above each 16 of a level another.

use model::Parent;
use model::subscriber::MAX_RATE_BPS;

/// Subscribers of an aggregate of the lowest level, and aggregates of another.
const SUBSCRIBERS: u32 = 64;
const AGGREGATES: u32 = 16;

fn name(level: usize, number: u32) -> String {
    format!("level-{level}-{number}")
}

/// The aggregate right above a subscriber.
pub(super) fn of(subscriber: u32, levels: usize) -> Option<String> {
    (levels > 0).then(|| name(0, subscriber / SUBSCRIBERS))
}

/// All above so many subscribers; the path never fills one.
pub(super) fn all(subscribers: u32, levels: usize) -> Vec<Parent> {
    let mut parents = Vec::new();
    let mut count = subscribers.div_ceil(SUBSCRIBERS);
    for level in 0..levels {
        let last = level + 1 == levels;
        parents.extend((0..count).map(|number| Parent {
            id: name(level, number),
            parent: (!last).then(|| name(level + 1, number / AGGREGATES)),
            down_bps: MAX_RATE_BPS,
            up_bps: MAX_RATE_BPS,
        }));
        count = count.div_ceil(AGGREGATES);
    }
    parents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_aggregate_named_is_there() {
        let mut forest = model::Forest::default();
        let parents = all(1_000_000, 8);
        for parent in parents.iter().rev() {
            forest.place(&parent.id, parent.parent.as_deref()).expect("in order");
        }
        for subscriber in [0, 63, 64, 999_999] {
            assert!(forest.contains(&of(subscriber, 8).expect("one")));
        }
        assert_eq!((of(7, 0), all(7, 0)), (None, vec![]));
        assert_eq!(all(1_000_000, 1).len(), 15_625);
    }
}
