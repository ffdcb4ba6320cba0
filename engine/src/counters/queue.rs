// SPDX-License-Identifier: Apache-2.0
//! Counters of one queue of one queue id.
//!
//! A packet that leaves touches one cache line of them, [`QueueLine`], beside the hot record: the delay histogram in 8
//! bits a bin and the sums in as few bits as hold a while. One that comes is counted in the record itself ([`Arrivals`]). What overflows goes to a [`Ledger`] of 64-bit cells, whose memory comes
//! when it is first written: a queue that never carried 256 packets alike has none. Drops are rare, or of a queue that
//! has a ledger in the cache, and are counted there alone.
//!
//! Invariant: a count is its part in the line plus its cell; [`QueueCounters`] are read from both at one moment.

use aqm::Ecn;
use model::stats::QueueStats;

use super::DropReason;
use crate::histogram::{BINS, Delay, Totals};

/// Cells of a ledger behind those of the bins.
#[derive(Clone, Copy)]
#[repr(usize)]
enum Cell {
    Bytes = BINS,
    DelaySum,
    Arrived,
    ArrivedCe,
    Marked,
    DroppedEct,
    DroppedNotEct,
    DroppedTail,
    DroppedPool,
    DroppedOther,
}

/// Cells of a ledger: whole cache lines.
const CELLS: usize = 56;
const _: () = assert!(Cell::DroppedOther as usize == CELLS - 1, "each count has a cell");

/// What outgrew a queue's line.
pub(crate) type Ledger = [u64; CELLS];

/// Packets that came for a queue, and those of them that left at the same moment, which count nowhere else until they
/// outgrow this.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrivals {
    all: u16,
    passed_bytes: u16,
    passed: u8,
    ce: u8,
}

impl Arrivals {
    /// A packet came, whatever becomes of it.
    #[inline]
    pub(crate) fn count(&mut self, ecn: Ecn, line: &mut QueueLine, ledger: &mut Ledger) {
        if bump(&mut self.all) {
            line.carry(ledger, Cell::Arrived as usize, 1 << u16::BITS);
        }
        if ecn == Ecn::Ce {
            let overflowed;
            (self.ce, overflowed) = self.ce.overflowing_add(1);
            if overflowed {
                line.carry(ledger, Cell::ArrivedCe as usize, 1 << u8::BITS);
            }
        }
    }

    /// A packet came and leaves at once. Its line is not touched, as a rule.
    #[inline]
    pub(crate) fn pass(&mut self, ecn: Ecn, bytes: u16, line: &mut QueueLine, ledger: &mut Ledger) {
        self.count(ecn, line, ledger);
        let (passed, outgrown) = self.passed.overflowing_add(1);
        let (passed_bytes, too_many) = self.passed_bytes.overflowing_add(bytes);
        (self.passed, self.passed_bytes) = (passed, passed_bytes);
        if outgrown {
            line.carry(ledger, 0, 1 << u8::BITS);
        }
        if too_many {
            line.carry_bytes(1 << u16::BITS, ledger);
        }
    }
}

/// The line of a queue that its packets touch when they leave.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct QueueLine {
    bytes: u32,
    /// Of delays, in units of 64 ns.
    sum: u32,
    /// The longest delay, likewise.
    max: u32,
    marked: u16,
    bins: [u8; BINS],
    /// Its ledger holds something.
    carried: bool,
}

const _: () = assert!(size_of::<QueueLine>() == 64, "a line");

impl Default for QueueLine {
    fn default() -> Self {
        Self { bytes: 0, sum: 0, max: 0, marked: 0, bins: [0; BINS], carried: false }
    }
}

impl QueueLine {
    /// A packet begins to leave; `bytes` without overhead.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a delay's bin is below BINS (tested)")]
    pub(crate) fn forwarded(&mut self, bytes: u32, delay: Delay, ledger: &mut Ledger) {
        let bin = delay.bin();
        let overflowed;
        (self.bins[bin], overflowed) = self.bins[bin].overflowing_add(1);
        if overflowed {
            self.carry(ledger, bin, 1 << u8::BITS);
        }
        self.add_bytes(bytes, ledger);
        if add(&mut self.sum, delay.units()) {
            self.carry(ledger, Cell::DelaySum as usize, 1 << u32::BITS);
        }
        self.max = self.max.max(delay.units());
    }

    #[inline]
    fn add_bytes(&mut self, bytes: u32, ledger: &mut Ledger) {
        if add(&mut self.bytes, bytes) {
            self.carry(ledger, Cell::Bytes as usize, 1 << u32::BITS);
        }
    }

    /// The same, kept off the packet path.
    #[cold]
    #[inline(never)]
    fn carry_bytes(&mut self, bytes: u32, ledger: &mut Ledger) {
        self.add_bytes(bytes, ledger);
    }

    /// Adds to a cell. Rare, and kept off the packet path.
    #[cold]
    #[inline(never)]
    #[expect(clippy::indexing_slicing, reason = "bins and cells lie within a ledger")]
    fn carry(&mut self, ledger: &mut Ledger, cell: usize, more: u64) {
        self.carried = true;
        ledger[cell] += more;
    }

    /// Whether its ledger holds something.
    pub(crate) fn has_carried(&self) -> bool {
        self.carried
    }

    /// A packet was changed to CE.
    #[inline]
    pub(crate) fn marked(&mut self, ledger: &mut Ledger) {
        if bump(&mut self.marked) {
            self.carry(ledger, Cell::Marked as usize, 1 << u16::BITS);
        }
    }

    /// A packet was dropped; `ecn` as it arrived.
    pub(crate) fn dropped(&mut self, reason: DropReason, ecn: Ecn, ledger: &mut Ledger) {
        let cell = match reason {
            DropReason::Aqm | DropReason::Overload if ecn.is_ect() => Cell::DroppedEct,
            DropReason::Aqm | DropReason::Overload => Cell::DroppedNotEct,
            DropReason::Tail => Cell::DroppedTail,
            DropReason::Pool => Cell::DroppedPool,
            DropReason::Ring | DropReason::Removed | DropReason::Link => Cell::DroppedOther,
        };
        self.carry(ledger, cell as usize, 1);
    }

    /// Adds packets that a full ring kept from this queue.
    pub(crate) fn fold_ring_drops(&mut self, packets: u32, ledger: &mut Ledger) {
        if packets > 0 {
            self.carry(ledger, Cell::Arrived as usize, packets.into());
            self.carry(ledger, Cell::DroppedOther as usize, packets.into());
        }
    }

    /// The counts: those here and, if it has carried, those in the ledger.
    #[expect(clippy::indexing_slicing, reason = "bins and cells lie within a ledger")]
    pub(crate) fn read(&self, arrivals: Arrivals, ledger: &Ledger) -> QueueCounters {
        let ledger = if self.carried { ledger } else { &[0; CELLS] };
        let cell = |cell: Cell| ledger[cell as usize];
        let mut bins = [0; BINS];
        for ((count, &here), &there) in bins.iter_mut().zip(&self.bins).zip(ledger) {
            *count = there + u64::from(here);
        }
        // a moment lasts less than a unit: the first bin
        bins[0] += u64::from(arrivals.passed);
        QueueCounters {
            arrived: cell(Cell::Arrived) + u64::from(arrivals.all),
            arrived_ce: cell(Cell::ArrivedCe) + u64::from(arrivals.ce),
            forwarded: bins.iter().sum(),
            forwarded_bytes: cell(Cell::Bytes) + u64::from(self.bytes) + u64::from(arrivals.passed_bytes),
            marked: cell(Cell::Marked) + u64::from(self.marked),
            dropped_ect: cell(Cell::DroppedEct),
            dropped_not_ect: cell(Cell::DroppedNotEct),
            dropped_tail: cell(Cell::DroppedTail),
            dropped_pool: cell(Cell::DroppedPool),
            dropped_other: cell(Cell::DroppedOther),
            delay: Totals::new(&bins, cell(Cell::DelaySum) + u64::from(self.sum), self.max),
        }
    }
}

/// Adds one; whether it overflowed.
#[inline]
fn bump(count: &mut u16) -> bool {
    let overflowed;
    (*count, overflowed) = count.overflowing_add(1);
    overflowed
}

/// Adds `more`; whether it overflowed.
#[inline]
fn add(sum: &mut u32, more: u32) -> bool {
    let overflowed;
    (*sum, overflowed) = sum.overflowing_add(more);
    overflowed
}

/// The counters of one queue of one queue id at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    arrived: u64,
    arrived_ce: u64,
    forwarded: u64,
    forwarded_bytes: u64,
    marked: u64,
    dropped_ect: u64,
    dropped_not_ect: u64,
    dropped_tail: u64,
    dropped_pool: u64,
    dropped_other: u64,
    delay: Totals,
}

impl QueueCounters {
    /// Packets sent.
    pub fn forwarded_packets(&self) -> u64 {
        self.forwarded
    }

    /// Their bytes, overhead not counted.
    pub fn forwarded_bytes(&self) -> u64 {
        self.forwarded_bytes
    }

    /// The sum of their delays in microseconds.
    pub fn delay_sum_us(&self) -> f64 {
        self.delay.sum_us()
    }

    /// Packets changed to CE here.
    pub fn marked_packets(&self) -> u64 {
        self.marked
    }

    /// All packets dropped here.
    pub fn dropped_packets(&self) -> u64 {
        self.dropped_ect + self.dropped_not_ect + self.dropped_tail + self.dropped_pool + self.dropped_other
    }

    /// Packets that came.
    pub fn arrived_packets(&self) -> u64 {
        self.arrived
    }

    /// As the interfaces show it, with `queued` packets waiting.
    pub fn stats(&self, queued: u64) -> QueueStats {
        QueueStats {
            arrived: self.arrived,
            arrived_ce: self.arrived_ce,
            presented: self.arrived - self.dropped_tail - self.dropped_pool - self.dropped_other,
            forwarded: self.forwarded,
            forwarded_bytes: self.forwarded_bytes,
            marked: self.marked,
            dropped_ect: self.dropped_ect,
            dropped_not_ect: self.dropped_not_ect,
            dropped_tail: self.dropped_tail,
            dropped_pool: self.dropped_pool,
            dropped_other: self.dropped_other,
            queued,
            delay_us: (&self.delay).into(),
        }
    }
}
