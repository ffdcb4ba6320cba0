// SPDX-License-Identifier: Apache-2.0
//! Which shard a queue id belongs to, and where it lies there: remainder and quotient by the number of shards.
//!
//! The number is known only at start, and a division takes longer than all else that is done with an id; a
//! multiplication by its reciprocal gives the same (Lemire, Kaser and Kurz, 2019: exact for all 32-bit values).

use crate::packet::QueueId;

/// Ids over shards.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    shards: u32,
    /// 2^64 / shards, rounded up; 0 where there is one.
    reciprocal: u64,
}

impl Split {
    /// Over so many shards; none counts as one.
    pub const fn new(shards: u32) -> Self {
        if shards <= 1 {
            return Self { shards: 1, reciprocal: 0 };
        }
        Self { shards, reciprocal: u64::MAX / shards as u64 + 1 }
    }

    /// The place of an id and its shard.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a quotient of 32-bit numbers")]
    pub const fn of(self, id: QueueId) -> (u32, u32) {
        if self.shards == 1 {
            return (id.0, 0);
        }
        let place = ((self.reciprocal as u128 * id.0 as u128) >> 64) as u32;
        (place, id.0 - place * self.shards)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_division(id: u32, shards in prop_oneof![1_u32..300, any::<u32>()]) {
            let shards = shards.max(1);
            prop_assert_eq!(Split::new(shards).of(QueueId(id)), (id / shards, id % shards));
        }
    }
}
