// SPDX-License-Identifier: Apache-2.0
//! What the generator learns from packets that come back: whose they were and how long they took.
//!
//! Invariant: a packet is counted as sent when it is put into the path's ring and as returned when it is taken back, so
//! once nothing is in flight the difference of a subscriber's two counts is what he lost. Delays are kept only while an
//! [`Epoch`] is open and neither lcore was interrupted lately; what was left out is counted.

use aqm::{Nanos, Stamp};

use super::frame;

/// Spans of time that delays are kept apart for; 0 is none.
pub(super) const EPOCHS: usize = 64;
/// Values of a scale below which each has a bin of its own, and bins to an octave from there on: 3 % wide.
const FINE: u32 = 32;
/// Octaves above.
const OCTAVES: u32 = 27;
/// Bins.
const BINS: usize = (FINE * (OCTAVES + 1)) as usize;

/// Delays in bins 3 % wide, in units of 64 ns.
#[derive(Clone, Debug)]
pub(super) struct Delays {
    bins: Box<[u32; BINS]>,
    count: u64,
}

impl Default for Delays {
    fn default() -> Self {
        Self { bins: Box::new([0; BINS]), count: 0 }
    }
}

/// The bin of a value, and the least value of a bin.
const fn bin_of(units: u32) -> usize {
    if units < FINE {
        return units as usize;
    }
    let octave = units.ilog2() - FINE.ilog2();
    (FINE * (octave + 1) + (units >> octave) - FINE) as usize
}

const fn least_of(bin: u32) -> u64 {
    if bin < FINE {
        return bin as u64;
    }
    let octave = bin / FINE - 1;
    ((FINE + bin % FINE) as u64) << octave
}

impl Delays {
    #[inline]
    fn record(&mut self, units: u32) {
        if let Some(bin) = self.bins.get_mut(bin_of(units)) {
            *bin += 1;
        }
        self.count += 1;
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Microseconds that a part `q` of them do not exceed, to 3 %; of none, no number.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank is a count times 0..=1"
    )]
    pub(super) fn quantile_us(&self, q: f64) -> f64 {
        if self.count == 0 {
            return f64::NAN;
        }
        let rank = ((self.count as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        for (bin, &count) in (1_u32..).zip(self.bins.iter()) {
            seen += u64::from(count);
            if seen >= rank {
                return (least_of(bin) << Stamp::SHIFT) as f64 / 1e3;
            }
        }
        0.0
    }
}

/// Counts and delays.
#[derive(Debug)]
pub(super) struct Ledger {
    /// By subscriber, since the start.
    sent: Vec<u32>,
    returned: Vec<u32>,
    /// By subscriber, while an epoch was open.
    served: Vec<u32>,
    /// Subscribers below this are watched apart from the others.
    apart: u32,
    /// By epoch: the others and those apart.
    delays: Vec<[Delays; 2]>,
    /// Packets whose delay was not kept, by epoch.
    left_out: Vec<u64>,
}

impl Ledger {
    pub(super) fn new(subscribers: u32, apart: u32) -> Self {
        let zeroes = || vec![0; subscribers as usize];
        Self {
            sent: zeroes(),
            returned: zeroes(),
            served: zeroes(),
            apart,
            delays: (0..EPOCHS).map(|_| Default::default()).collect(),
            left_out: vec![0; EPOCHS],
        }
    }

    /// Frames of these subscribers went into the ring.
    #[inline]
    pub(super) fn sent(&mut self, whose: &[u32]) {
        for &subscriber in whose {
            if let Some(count) = self.sent.get_mut(subscriber as usize) {
                *count += 1;
            }
        }
    }

    /// A frame has come back; `quiet` unless somebody was interrupted lately.
    #[inline]
    pub(super) fn returned(&mut self, frame: &[u8], now: Nanos, epoch: usize, quiet: bool) {
        let Some((subscriber, stamp)) = frame::read(frame) else {
            return;
        };
        let at = subscriber as usize;
        if let Some(count) = self.returned.get_mut(at) {
            *count += 1;
        }
        if epoch == 0 {
            return;
        }
        if let Some(count) = self.served.get_mut(at) {
            *count += 1;
        }
        if !quiet {
            if let Some(count) = self.left_out.get_mut(epoch) {
                *count += 1;
            }
            return;
        }
        if let Some([others, apart]) = self.delays.get_mut(epoch) {
            let of = if subscriber < self.apart { apart } else { others };
            of.record(Stamp::at(now).0.wrapping_sub(stamp));
        }
    }

    /// Packets of the others that did not come back, and of those apart.
    pub(super) fn lost(&self) -> [u64; 2] {
        let mut lost = [0; 2];
        for ((subscriber, &sent), &returned) in (0_u32..).zip(&self.sent).zip(&self.returned) {
            lost[usize::from(subscriber < self.apart)] += u64::from(sent.saturating_sub(returned));
        }
        lost
    }

    /// Packets served while an epoch was open, by subscriber.
    pub(super) fn served(&self) -> &[u32] {
        &self.served
    }

    /// Delays of the others and of those apart.
    pub(super) fn delays(&self, epoch: usize) -> Option<&[Delays; 2]> {
        self.delays.get(epoch)
    }

    /// Part of an epoch's packets whose delay was not kept.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub(super) fn left_out(&self, epoch: usize) -> f64 {
        let out = self.left_out.get(epoch).copied().unwrap_or(0) as f64;
        let kept: u64 = self.delays(epoch).map_or(0, |of| of.iter().map(Delays::count).sum());
        out / (out + kept as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Template, stamp};
    use super::*;

    #[test]
    fn bins_are_in_order_and_3_percent_wide() {
        let mut before = 0;
        for units in (0..5_000).chain((1..500).map(|n| n * 8_388_607)) {
            let bin = bin_of(units);
            assert!(bin >= before && bin < BINS, "{units}");
            before = bin;
            let bin = u32::try_from(bin).unwrap();
            let (least, next) = (least_of(bin), least_of(bin + 1));
            assert!(least <= u64::from(units) && u64::from(units) < next, "{units}: {least} to {next}");
            assert!(next - least <= 1 + least / 32);
        }
    }

    #[test]
    fn what_does_not_come_back_is_lost_and_interruptions_are_left_out() {
        let mut ledger = Ledger::new(10, 1);
        let template = Template::new(64, 0);
        let mut frame = [0; 60];
        for (subscriber, back) in [(0, false), (0, true), (3, true), (4, true), (5, false)] {
            template.write(subscriber, &mut frame);
            stamp(&mut frame, Stamp::at(Nanos::from_micros(10)).0);
            ledger.sent(&[subscriber]);
            if back {
                ledger.returned(&frame, Nanos::from_micros(110), 1, subscriber != 4);
            }
        }
        assert_eq!(ledger.lost(), [1, 1]);
        let [others, apart] = ledger.delays(1).unwrap();
        assert_eq!((others.count(), apart.count()), (1, 1));
        assert!((97.0..=104.0).contains(&others.quantile_us(0.99)), "{}", others.quantile_us(0.99));
        assert!((ledger.left_out(1) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(ledger.served()[..5], [1, 0, 0, 1, 1]);
    }
}
