// SPDX-License-Identifier: Apache-2.0
//! The receiving side: counts packets by their ECN field, remembers which came, says when to acknowledge.
//!
//! Invariants: `received + missing` is the largest number plus one; the ECN counts add up to `received`.
//! An acknowledgement is due at every second packet, at once when a number is out of order or the CE state changes
//! (RFC 5681 section 4.2, RFC 8257 section 3.2), and else after a delay.

use crate::{AckFrame, BITMAP_PACKETS, Codepoint, Nanos};

/// A jump of the packet number beyond this is no packet of ours.
const MAX_JUMP: u64 = 1 << 24;

/// Packets by their ECN field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnCounts {
    /// 00.
    pub not_ect: u64,
    /// 01.
    pub ect1: u64,
    /// 10.
    pub ect0: u64,
    /// 11.
    pub ce: u64,
}

impl EcnCounts {
    /// One more.
    pub fn count(&mut self, codepoint: Codepoint) {
        let counter = match codepoint {
            Codepoint::NotEct => &mut self.not_ect,
            Codepoint::Ect1 => &mut self.ect1,
            Codepoint::Ect0 => &mut self.ect0,
            Codepoint::Ce => &mut self.ce,
        };
        *counter += 1;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.not_ect.saturating_add(self.ect1).saturating_add(self.ect0).saturating_add(self.ce)
    }
}

/// When to acknowledge.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverOptions {
    /// At every such packet.
    pub every: u32,
    /// And this long after a packet at the latest.
    pub max_delay: Nanos,
}

impl Default for ReceiverOptions {
    fn default() -> Self {
        Self { every: 2, max_delay: Nanos::from_millis(25) }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Receiver {
    options: ReceiverOptions,
    largest: Option<u64>,
    bitmap: [u64; 4],
    cumulative: u64,
    received: u64,
    bytes: u64,
    duplicates: u64,
    ecn: EcnCounts,
    last_was_ce: bool,
    echo: Nanos,
    echo_at: Nanos,
    pending: u32,
    due: Option<Nanos>,
}

impl Receiver {
    /// Nothing received.
    pub fn new(options: ReceiverOptions) -> Self {
        Self {
            options,
            largest: None,
            bitmap: [0; 4],
            cumulative: 0,
            received: 0,
            bytes: 0,
            duplicates: 0,
            ecn: EcnCounts::default(),
            last_was_ce: false,
            echo: Nanos::ZERO,
            echo_at: Nanos::ZERO,
            pending: 0,
            due: None,
        }
    }

    /// A packet arrived: its number, the sender's oldest number of interest, ECN field, timestamp and bytes.
    ///
    /// Returns whether it is a new one; duplicates, numbers too old to tell and absurd ones are not.
    pub fn on_packet(
        &mut self,
        now: Nanos,
        seq: u64,
        oldest: u64,
        ecn: Codepoint,
        sent: Nanos,
        bytes: u32,
    ) -> bool {
        let expected = self.largest.map_or(0, |largest| largest + 1);
        if seq > expected + MAX_JUMP || oldest > seq || !self.remember(seq) {
            self.duplicates += 1;
            return false;
        }
        self.received += 1;
        self.bytes += u64::from(bytes);
        self.ecn.count(ecn);
        self.advance(oldest);
        let is_ce = ecn == Codepoint::Ce;
        let at_once = seq != expected || is_ce != self.last_was_ce || self.pending + 1 >= self.options.every;
        self.last_was_ce = is_ce;
        self.echo = sent;
        self.echo_at = now;
        self.pending += 1;
        let delayed = self.due.unwrap_or(now + self.options.max_delay);
        self.due = Some(if at_once { now } else { delayed });
        true
    }

    /// Marks `seq` as received; false if it already was, or is too old to know.
    fn remember(&mut self, seq: u64) -> bool {
        let Some(largest) = self.largest else {
            self.largest = Some(seq);
            self.bitmap = [1, 0, 0, 0];
            return true;
        };
        if seq > largest {
            self.shift(seq - largest);
            self.largest = Some(seq);
            self.bitmap[0] |= 1;
            return true;
        }
        let back = largest - seq;
        if back >= BITMAP_PACKETS || seq < self.cumulative {
            return false;
        }
        let word = &mut self.bitmap[(back / 64) as usize];
        let bit = 1 << (back % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn shift(&mut self, by: u64) {
        for _ in 0..by.min(BITMAP_PACKETS) as u32 {
            let mut carry = 0;
            for word in &mut self.bitmap {
                let out = *word >> 63;
                *word = *word << 1 | carry;
                carry = out;
            }
        }
    }

    fn advance(&mut self, oldest: u64) {
        self.cumulative = self.cumulative.max(oldest);
        let end = self.largest.map_or(0, |largest| largest + 1);
        while self.cumulative < end && self.has(end - 1 - self.cumulative) {
            self.cumulative += 1;
        }
    }

    fn has(&self, back: u64) -> bool {
        back < BITMAP_PACKETS && self.bitmap[(back / 64) as usize] >> (back % 64) & 1 == 1
    }

    /// When an acknowledgement is due; `None` while there is nothing to say.
    pub fn ack_due(&self) -> Option<Nanos> {
        self.due
    }

    /// The acknowledgement to send now; `None` before the first packet.
    pub fn acknowledge(&mut self, now: Nanos) -> Option<AckFrame> {
        self.pending = 0;
        self.due = None;
        self.report(now)
    }

    /// The same without changing when the next one is due.
    pub fn report(&self, now: Nanos) -> Option<AckFrame> {
        let largest = self.largest?;
        Some(AckFrame {
            largest,
            cumulative: self.cumulative,
            bitmap: self.bitmap,
            received: self.received,
            ecn: self.ecn,
            missing: (largest + 1).saturating_sub(self.received),
            echo: self.echo,
            held: now.since(self.echo_at),
        })
    }

    /// Distinct packets received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Packets that came twice, too late to tell, or with a number that cannot be.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// ECN fields of the packets received.
    pub fn ecn(&self) -> EcnCounts {
        self.ecn
    }

    /// Numbers up to the largest that have not come.
    pub fn missing(&self) -> u64 {
        self.largest.map_or(0, |largest| (largest + 1).saturating_sub(self.received))
    }
}

#[cfg(test)]
mod tests;
