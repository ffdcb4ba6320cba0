// SPDX-License-Identifier: Apache-2.0
//! Which kinds of key and which prefix lengths are in use, so that a packet is looked up only by those.
//!
//! Invariant: a kind or length is marked before its first key is in the table and unmarked after its last one has
//! left, so a reader never leaves out a key that is there.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Release},
};

use super::key::{Family, Group, Key};

/// Lengths of one family, scope and "with port or without", as bits: bit n of word n / 64 is length n.
#[derive(Debug, Default)]
struct LengthBits([AtomicU64; 3]);

/// What is in use; written by one thread.
#[derive(Debug, Default)]
pub(crate) struct InUse {
    /// Groups with a key for any port, and, 16 bits up, with a key limited to a port.
    groups: AtomicU32,
    /// By scope, family, and port (any, limited).
    lengths: [[[LengthBits; 2]; 2]; 3],
}

/// A set of prefix lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lengths([u64; 3]);

impl Lengths {
    pub(crate) fn contains(self, length: u8) -> bool {
        self.0
            .get(usize::from(length >> 6))
            .is_some_and(|word| word >> (length & 63) & 1 == 1)
    }

    /// Takes the longest out.
    #[inline]
    pub(crate) fn pop_longest(&mut self) -> Option<u8> {
        for (base, word) in [128, 64, 0].into_iter().zip(self.0.iter_mut().rev()) {
            if *word != 0 {
                #[expect(clippy::cast_possible_truncation, reason = "the place of a bit, 0 to 63")]
                let bit = word.ilog2() as u8;
                *word &= !(1 << bit);
                return Some(base + bit);
            }
        }
        None
    }

    #[must_use]
    pub(crate) fn or(self, other: Self) -> Self {
        let ([low, high, all], [other_low, other_high, other_all]) = (self.0, other.0);
        Self([low | other_low, high | other_high, all | other_all])
    }
}

impl InUse {
    /// Bit set of groups (bit = group number) with keys for any port in the low 16 bits, with keys limited to a port
    /// in the high ones.
    #[inline]
    pub(crate) fn groups(&self) -> u32 {
        self.groups.load(Acquire)
    }

    /// Lengths in use: any port, limited to a port.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "scopes are 0 to 2, families 0 and 1")]
    pub(crate) fn lengths(&self, scope: usize, family: Family) -> [Lengths; 2] {
        self.lengths[scope][family as usize]
            .each_ref()
            .map(|bits| Lengths(bits.0.each_ref().map(|word| word.load(Acquire))))
    }

    fn mark(&self, class: Class) {
        self.groups
            .store(self.groups.load(Acquire) | class.group_bit(), Release);
        if let Some((word, bit)) = self.length_word(class) {
            word.store(word.load(Acquire) | bit, Release);
        }
    }

    fn unmark_length(&self, class: Class) {
        if let Some((word, bit)) = self.length_word(class) {
            word.store(word.load(Acquire) & !bit, Release);
        }
    }

    fn unmark_group(&self, class: Class) {
        self.groups
            .store(self.groups.load(Acquire) & !class.group_bit(), Release);
    }

    fn length_word(&self, class: Class) -> Option<(&AtomicU64, u64)> {
        let (family, length) = class.prefix?;
        let scope = class.group.prefix_scope()?;
        let bits = self
            .lengths
            .get(scope)?
            .get(family as usize)?
            .get(usize::from(class.ported))?;
        Some((bits.0.get(usize::from(length >> 6))?, 1 << (length & 63)))
    }
}

/// What keys of one kind and length have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Class {
    group: Group,
    ported: bool,
    prefix: Option<(Family, u8)>,
}

impl Class {
    fn of(key: &Key) -> Self {
        Self {
            group: key.group(),
            ported: key.ported(),
            prefix: key.prefix_length(),
        }
    }

    const fn group_bit(self) -> u32 {
        1 << (self.group as u32 + if self.ported { 16 } else { 0 })
    }
}

/// The writer's count of keys in each class.
#[derive(Debug, Default)]
pub(crate) struct Census {
    classes: std::collections::HashMap<Class, u64>,
    groups: std::collections::HashMap<u32, u64>,
}

impl Census {
    /// Before a key is added.
    pub(crate) fn added(&mut self, key: &Key, in_use: &InUse) {
        let class = Class::of(key);
        *self.classes.entry(class).or_default() += 1;
        *self.groups.entry(class.group_bit()).or_default() += 1;
        in_use.mark(class);
    }

    /// After a key was removed.
    pub(crate) fn removed(&mut self, key: &Key, in_use: &InUse) {
        let class = Class::of(key);
        if count_down(&mut self.classes, &class) {
            in_use.unmark_length(class);
        }
        if count_down(&mut self.groups, &class.group_bit()) {
            in_use.unmark_group(class);
        }
    }
}

/// One less; whether that was the last.
fn count_down<K: std::hash::Hash + Eq>(counts: &mut std::collections::HashMap<K, u64>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else {
        debug_assert!(false, "removed what was never added");
        return false;
    };
    *count -= 1;
    let last = *count == 0;
    if last {
        counts.remove(key);
    }
    last
}
