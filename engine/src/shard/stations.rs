// SPDX-License-Identifier: Apache-2.0
//! Shares of control traffic: no station can take what keeps the others' sessions alive.
//!
//! Control traffic of a port has a rate of its own (1 % of the port's). Within it each station, told apart by a keyed
//! hash of the MAC on the access side, may take an eighth, and what goes to a group address a half.
//!
//! Invariant: a station that stays below its share is refused only where the whole rate is used up.

use aqm::{BitsPerSec, Nanos};

use crate::change::Direction;
use crate::shaper::Shaper;

/// Stations told apart; more share a place.
const PLACES: usize = 256;
/// What a station may take of the rate, and what group addresses may together.
const STATION_PART: u64 = 8;
const GROUP_PART: u64 = 2;

/// The shares of one control id.
#[derive(Clone, Debug)]
pub(super) struct Stations {
    seed: u64,
    rate: BitsPerSec,
    places: Box<[Shaper]>,
    group: Shaper,
}

impl Stations {
    /// All idle.
    pub(super) fn new(rate: BitsPerSec, seed: u64) -> Self {
        let station = Shaper::new(part(rate, STATION_PART));
        let places = vec![station; PLACES].into_boxed_slice();
        Self { seed, rate, places, group: Shaper::new(part(rate, GROUP_PART)) }
    }

    /// Another rate; shares begin anew.
    pub(super) fn set_rate(&mut self, rate: BitsPerSec) {
        if rate != self.rate {
            self.rate = rate;
            self.places.fill(Shaper::new(part(rate, STATION_PART)));
            self.group = Shaper::new(part(rate, GROUP_PART));
        }
    }

    /// Whether a frame of `bytes` stays within the share of its station; if so it counts.
    pub(super) fn admits(
        &mut self,
        now: Nanos,
        direction: Direction,
        macs: [u8; 12],
        (burst, bytes): (Nanos, u32),
    ) -> bool {
        let (destination, source) = macs.split_at(6);
        let station = if direction == Direction::Down { destination } else { source };
        let is_group = direction == Direction::Down && station.first().is_some_and(|byte| byte & 1 == 1);
        let share =
            if is_group { Some(&mut self.group) } else { self.places.get_mut(place(self.seed, station)) };
        share.is_none_or(|share| {
            let two = share.pace().time(2 * u64::from(bytes));
            share.police(now, burst.max(two), bytes)
        })
    }
}

fn part(rate: BitsPerSec, of: u64) -> BitsPerSec {
    BitsPerSec((rate.0 / of).max(1))
}

/// The place of a MAC (SplitMix64 of it and the seed).
#[expect(clippy::cast_possible_truncation, reason = "reduced to the number of places first")]
fn place(seed: u64, mac: &[u8]) -> usize {
    let mac = mac.iter().fold(0_u64, |mac, &byte| mac << 8 | u64::from(byte));
    let mut z = seed.wrapping_add((mac + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) % PLACES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: BitsPerSec = BitsPerSec(300_000);
    const BURST: Nanos = Nanos::from_millis(10);

    fn macs(down: u8, up: u8) -> [u8; 12] {
        [2, 0, 0, 0, 0, down, 2, 0, 0, 0, 1, up]
    }

    /// Frames of 100 bytes admitted within a second, of one station that offers one every `gap`.
    fn admitted(stations: &mut Stations, direction: Direction, macs: [u8; 12], gap: Nanos) -> u64 {
        let mut now = Nanos::from_secs(1);
        let mut frames = 0;
        while now < Nanos::from_secs(2) {
            frames += u64::from(stations.admits(now, direction, macs, (BURST, 100)));
            now += gap;
        }
        frames
    }

    #[test]
    fn a_flooding_station_gets_its_share_and_a_quiet_one_all_it_offers() {
        for direction in Direction::BOTH {
            let mut stations = Stations::new(RATE, 7);
            let flood = admitted(&mut stations, direction, macs(1, 1), Nanos::from_micros(100));
            // an eighth of 300 kb/s in frames of 800 bits, and the burst
            assert!((46..=50).contains(&flood), "{direction:?}: {flood}");
            let quiet = admitted(&mut stations, direction, macs(2, 2), Nanos::from_millis(100));
            assert_eq!(quiet, 10, "{direction:?}");
        }
    }

    #[test]
    fn group_addresses_share_a_half_and_cost_no_station_anything() {
        let mut stations = Stations::new(RATE, 7);
        let mut group = macs(9, 1);
        group[0] = 0xff;
        let flood = admitted(&mut stations, Direction::Down, group, Nanos::from_micros(100));
        assert!((186..=194).contains(&flood), "{flood}");
        assert_eq!(admitted(&mut stations, Direction::Down, macs(9, 1), Nanos::from_millis(100)), 10);
    }

    #[test]
    fn another_rate_is_another_share() {
        let mut stations = Stations::new(RATE, 7);
        stations.set_rate(BitsPerSec(2 * RATE.0));
        let flood = admitted(&mut stations, Direction::Up, macs(1, 1), Nanos::from_micros(100));
        assert!((92..=98).contains(&flood), "{flood}");
    }
}
