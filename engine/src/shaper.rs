// SPDX-License-Identifier: Apache-2.0
//! The shaper of one queue id: a theoretical departure time.
//!
//! A departure moves it on by bytes x pace in 32.32 fixed point; the fraction is kept, so that there is no
//! drift: n packets of b bytes take n * b / rate but for the pace's own error (6e-9). After idling it may lie
//! behind the wheel's time by a bounded credit, so that a burst of at most max(250 us, 2 MTU) leaves at once
//! (RFC 9331 5.5 wants no more than 250 us).

use aqm::{BitsPerSec, Nanos, Pace};

/// Burst allowed after idling, as time at the rate; never less than two full packets.
pub(crate) const BURST: Nanos = Nanos::from_micros(250);

/// A packet that is due in less leaves soon.
const SOON: Nanos = Nanos::from_millis(1);

/// When a queue id may send next, in its wheel's time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shaper {
    pace: Pace,
    due: Nanos,
    /// 2^-32 ns beyond `due`.
    fraction: u32,
    /// How far `due` may lie behind after idling, in nanoseconds.
    credit: u32,
}

impl Shaper {
    /// One that has been idle for long.
    pub(crate) fn new(rate: BitsPerSec) -> Self {
        Self { pace: Pace::of(rate), due: Nanos::ZERO, fraction: 0, credit: 0 }
    }

    /// Grants the burst after idling. One packet may always leave once `due` is reached, so the credit is the burst
    /// less one `mtu`; less a part of another, `phase` / 2^16, so that those who come back together do not stay in step.
    pub(crate) fn grant_burst(&mut self, mtu: u32, phase: u16) {
        let packet = self.pace.time(u64::from(mtu));
        let apart = self.pace.time((u64::from(mtu) * u64::from(phase)) >> 16);
        let credit = BURST.max(packet + packet).since(packet).since(apart);
        self.credit = u32::try_from(credit.0).unwrap_or(u32::MAX);
    }

    /// When the next packet may leave.
    #[inline]
    pub(crate) fn due(&self) -> Nanos {
        self.due
    }

    /// What a byte costs.
    #[inline]
    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    /// Comes back from idling at `now`: credit for what was not sent is cut to what was granted.
    #[inline]
    pub(crate) fn join(&mut self, now: Nanos) {
        let earliest = now.since(Nanos(self.credit.into()));
        if self.due < earliest {
            self.due = earliest;
            self.fraction = 0;
        }
    }

    /// What will be left of the credit and a bit beyond, [`SOON`], when `bytes` more have left; and those two together.
    /// `None`: what comes then is not due soon.
    pub(crate) fn unspent(&self, now: Nanos, bytes: u64) -> Option<(u32, u32)> {
        let due = self.due.max(now.since(Nanos(self.credit.into()))) + self.pace.time(bytes);
        let unspent = (now + SOON).0.checked_sub(due.0)?;
        let all = SOON.0 + u64::from(self.credit);
        Some((u32::try_from(unspent).unwrap_or(u32::MAX), u32::try_from(all).unwrap_or(u32::MAX)))
    }

    /// Comes back from idling at `now` as a link does: nothing that was not sent is made up for.
    #[inline]
    pub(crate) fn join_link(&mut self, now: Nanos) {
        if self.due < now {
            self.due = now;
            self.fraction = 0;
        }
    }

    /// A packet of `bytes` leaves.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low half is the fraction; the high half fits for u32 bytes at any pace of a record"
    )]
    pub(crate) fn sent(&mut self, bytes: u32) {
        let cost = u128::from(self.pace.0) * u128::from(bytes) + u128::from(self.fraction);
        self.fraction = cost as u32;
        self.due += Nanos((cost >> 32) as u64);
    }

    /// Whether [`Self::police`] would let a packet pass.
    pub(crate) fn has_room(&self, now: Nanos, burst: Nanos) -> bool {
        self.due <= now + burst
    }

    /// As a policer, in real time: whether a packet of `bytes` stays within the rate and a `burst`; if so it
    /// counts.
    pub(crate) fn police(&mut self, now: Nanos, burst: Nanos, bytes: u32) -> bool {
        if !self.has_room(now, burst) {
            return false;
        }
        if self.due < now {
            self.due = now;
            self.fraction = 0;
        }
        self.sent(bytes);
        true
    }

    /// Another rate from `now` on: what is left of the wait is rescaled. Where it grows, no more than a full packet's
    /// wait does: what is beyond that is the clock's lag, and would become hours on the way from 100 Gb/s to 64 kb/s.
    #[expect(clippy::cast_possible_truncation, reason = "saturated just before")]
    pub(crate) fn set_rate(&mut self, rate: BitsPerSec, now: Nanos, mtu: u32) {
        let old = core::mem::replace(&mut self.pace, Pace::of(rate));
        let wait = self.due.since(now);
        if wait > Nanos::ZERO && old.0 > 0 {
            let packet = if self.pace > old { wait.min(old.time(mtu.into())) } else { wait };
            let rescaled = u128::from(packet.0) * u128::from(self.pace.0) / u128::from(old.0);
            self.due = now + Nanos(rescaled.min(u128::from(u64::MAX)) as u64) + wait.since(packet);
            self.fraction = 0;
        }
    }

    /// Moves to a wheel whose time is `to` where the old one's is `from`.
    pub(crate) fn change_clock(&mut self, from: Nanos, to: Nanos) {
        self.due = if self.due >= from { to + self.due.since(from) } else { to.since(from.since(self.due)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u32 = 1_538;

    fn due_at(bps: u64, due: Nanos) -> Shaper {
        Shaper { due, ..Shaper::new(BitsPerSec(bps)) }
    }

    #[test]
    fn millions_of_packets_do_not_drift() {
        // 3 Mb/s is 2,666.66 ns a byte, 7 Gb/s 1.142857: neither is a whole number
        for (bps, bytes) in [(64_000, 1_538), (3_000_000, 84), (7_000_000_000, 614), (100_000_000_000, 84)] {
            let mut shaper = Shaper::new(BitsPerSec(bps));
            let packets = 3_000_000_u64;
            for _ in 0..packets {
                shaper.sent(bytes);
            }
            let exact = u128::from(packets) * u128::from(bytes) * 8_000_000_000 / u128::from(bps);
            let off = u128::from(shaper.due().0).abs_diff(exact);
            assert!(off <= exact / 100_000_000 + 1, "{bps} b/s is {off} ns off after {exact} ns");
        }
    }

    /// Packets of `bytes` that may leave at once after a long idle time.
    fn burst(bps: u64, bytes: u32, phase: u16) -> u32 {
        let now = Nanos::from_secs(100);
        let mut shaper = Shaper::new(BitsPerSec(bps));
        shaper.grant_burst(MTU, phase);
        shaper.join(now);
        let mut packets = 0;
        while shaper.due() <= now {
            shaper.sent(bytes);
            packets += 1;
        }
        packets
    }

    #[test]
    fn the_burst_after_idling_is_250_us_or_two_full_packets() {
        assert_eq!(burst(64_000, MTU, 0), 2);
        assert_eq!(burst(10_000_000, MTU, 0), 2);
        // 250 us at 1 Gb/s are 31,250 bytes
        assert_eq!(burst(1_000_000_000, MTU, 0), 31_250 / MTU);
        assert!(u64::from(burst(1_000_000_000, 84, 0)) * 84 <= 31_250);
        assert!(u64::from(burst(100_000_000_000, 84, 0)) * 84 <= 3_125_000);
    }

    #[test]
    fn a_link_gives_no_credit_for_idling() {
        let now = Nanos::from_secs(100);
        let mut shaper = Shaper::new(BitsPerSec(1_000_000_000));
        shaper.join_link(now);
        shaper.sent(1_500);
        assert_eq!(shaper.due(), now + Nanos(12_000));
        shaper.join_link(now);
        assert_eq!(shaper.due(), now + Nanos(12_000), "nor takes a wait back");
    }

    #[test]
    fn a_phase_costs_less_than_a_packet_and_never_the_first() {
        for bps in [64_000, 10_000_000, 1_000_000_000] {
            let most = burst(bps, MTU, 0);
            assert!((most - 1..=most).contains(&burst(bps, MTU, u16::MAX)) && most > 1);
        }
    }

    #[test]
    fn a_pending_wait_follows_the_rate() {
        let now = Nanos::from_millis(1_000);
        let mut shaper = due_at(64_000, now);
        shaper.sent(1_600); // 200 ms
        let later = Nanos::from_millis(1_050);
        shaper.set_rate(BitsPerSec(640_000), later, MTU);
        assert_eq!(shaper.due(), Nanos::from_millis(1_065));
        shaper.set_rate(BitsPerSec(320_000), later, MTU);
        assert_eq!(shaper.due(), Nanos::from_millis(1_080));
    }

    #[test]
    fn of_a_long_wait_only_a_packet_grows_with_a_slower_rate() {
        let now = Nanos::from_millis(10);
        let mut shaper = due_at(100_000_000_000, now + Nanos::from_millis(5));
        shaper.set_rate(BitsPerSec(64_000), now, MTU);
        let wait = shaper.due().since(now);
        let packet = Pace::of(BitsPerSec(64_000)).time(MTU.into());
        assert!(wait <= packet + Nanos::from_millis(6), "{wait:?}");
        shaper.set_rate(BitsPerSec(100_000_000_000), now, MTU);
        assert!(shaper.due().since(now) < Nanos::from_micros(1), "and all of it shrinks with a faster one");
    }

    #[test]
    fn a_rate_change_gives_no_credit() {
        let now = Nanos::from_millis(10);
        let mut shaper = due_at(64_000, Nanos::from_millis(9));
        shaper.set_rate(BitsPerSec(1_000_000), now, MTU);
        assert_eq!(shaper.due(), Nanos::from_millis(9));
    }

    #[test]
    fn another_clock_keeps_wait_and_credit() {
        let mut shaper = due_at(64_000, Nanos(5_000));
        shaper.change_clock(Nanos(4_000), Nanos(100));
        assert_eq!(shaper.due(), Nanos(1_100));
        shaper.change_clock(Nanos(1_200), Nanos(10_000));
        assert_eq!(shaper.due(), Nanos(9_900));
    }
}
