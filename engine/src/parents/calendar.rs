// SPDX-License-Identifier: Apache-2.0
//! Who waits for an aggregate, by the time at which it is their turn on the aggregate's clock: a timing wheel in five
//! levels of 16 places, the finest as wide as a slot of the shard's wheel.
//!
//! An entry lies on the level of the highest digit in which its slot differs from the cursor and moves down when the
//! cursor reaches its place, so it is touched at most five times, however many wait. Lists are linked through the
//! entries ([`super::tree`]); here is where they begin.
//!
//! Invariant: the cursor passes no place that holds an entry, and an entry is never in a place before the cursor.

/// Bits of a digit.
const DIGIT: u32 = 4;
/// Places of a level.
const WIDTH: u64 = 1 << DIGIT;
const LEVELS: u32 = 5;
const PLACES: usize = 5 << DIGIT;
/// The coarsest level is a ring: an entry lies less than a turn ahead, at most so many slots. 2 s; what is due later
/// is put back when it comes up.
const HORIZON: u64 = (WIDTH - 1) << (DIGIT * (LEVELS - 1));

/// No place.
pub(super) const NOWHERE: u8 = u8::MAX;
/// No entry.
pub(super) const NONE: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub(super) struct Calendar {
    /// The slot being served.
    pub(super) cursor: u64,
    /// Entries.
    pub(super) entries: u32,
    /// Which places hold any, a bit each.
    used: [u16; LEVELS as usize],
    /// First entry of each place.
    pub(super) heads: [u32; PLACES],
}

impl Default for Calendar {
    fn default() -> Self {
        Self { cursor: 0, entries: 0, used: [0; LEVELS as usize], heads: [NONE; PLACES] }
    }
}

/// The first place in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct First {
    /// No entry's slot is before this.
    pub(super) slot: u64,
    pub(super) place: u8,
}

impl First {
    /// Whether `slot` is that of all entries in the place.
    pub(super) const fn is_exact(self) -> bool {
        (self.place as u64) < WIDTH
    }
}

impl Calendar {
    /// Where an entry for `slot` goes, and the slot it gets: none before the cursor, none beyond the horizon.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a digit and a level are small")]
    pub(super) fn locate(&self, slot: u64) -> (u8, u64) {
        let slot = slot.clamp(self.cursor, self.cursor + HORIZON);
        let differs = slot ^ self.cursor;
        let level = (differs.checked_ilog2().unwrap_or(0) / DIGIT).min(LEVELS - 1);
        let digit = (slot >> (DIGIT * level)) & (WIDTH - 1);
        ((u64::from(level) * WIDTH + digit) as u8, slot)
    }

    /// Notes that a place holds an entry, or none any more.
    #[inline]
    pub(super) fn mark(&mut self, place: u8, holds: bool) {
        let (level, bit) = (usize::from(place >> DIGIT), 1_u16 << (u64::from(place) % WIDTH));
        if holds {
            self.used[level] |= bit;
        } else {
            self.used[level] &= !bit;
        }
    }

    /// The first place in use: finer levels are earlier.
    #[inline]
    pub(super) fn first(&self) -> Option<First> {
        if self.entries == 0 {
            return None;
        }
        let (level, used) = self.used.iter().enumerate().find(|(_, used)| **used != 0)?;
        let shift = DIGIT * u32::try_from(level).unwrap_or(0);
        let digit = (self.cursor >> shift) & (WIDTH - 1);
        // only the coarsest level can have turned
        let turned = used.rotate_right(u32::try_from(digit).unwrap_or(0));
        let ahead = u64::from(turned.trailing_zeros());
        let slot = ((self.cursor >> shift) + ahead) << shift;
        let place = level as u64 * WIDTH + ((digit + ahead) & (WIDTH - 1));
        Some(First { slot: slot.max(self.cursor), place: u8::try_from(place).unwrap_or(NOWHERE) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lie_in_the_order_of_their_slots() {
        for cursor in [0_u64, 5, 15, 16, 0xFFFF, 0xF_FFFF, 0x1234_5678, u64::from(u32::MAX)] {
            for slot in [0, 1, 3, 14, 15, 16, 17, 255, 256, 4_095, 4_096, 65_535, 65_536, 900_000, 5_000_000]
            {
                let mut calendar = Calendar { cursor, ..Calendar::default() };
                let (place, slot) = calendar.locate(cursor + slot);
                calendar.mark(place, true);
                calendar.entries = 1;
                let first = calendar.first().expect("one");
                assert_eq!(first.place, place, "{cursor:x} {slot:x}");
                assert!(first.slot <= slot && first.slot >= cursor, "{cursor:x} {slot:x}: {first:?}");
                assert!(!first.is_exact() || first.slot == slot);
                calendar.mark(place, false);
                assert_eq!(calendar.first(), None);
            }
        }
    }

    #[test]
    fn what_is_past_or_beyond_the_horizon_is_brought_in() {
        let calendar = Calendar { cursor: 1_000, ..Calendar::default() };
        assert_eq!(calendar.locate(3).1, 1_000);
        assert_eq!(calendar.locate(u64::MAX).1, 1_000 + HORIZON);
    }
}
