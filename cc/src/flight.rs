// SPDX-License-Identifier: Apache-2.0
//! Packets on their way: what was sent, what selective acknowledgements say of it, what counts as lost.
//!
//! Packet numbers are those of transmissions. A packet is lost when one sent `packet_threshold` later has been
//! acknowledged, or when it is older than 9/8 of the round-trip time and a later one has been (RFC 9002 section
//! 6.1, the thresholds of RFC 8985). Numbers are kept for a while after that, so that a late arrival is found out.
//!
//! Each packet carries the state of the connection when it was sent, from which an acknowledgement makes a
//! [`RateSample`] (draft-cheng-iccrg-delivery-rate-estimation-02, with the loss and CE counts that BBRv2 adds).
//!
//! Invariants: `in_flight()` is the sum of the bytes of the packets flying; every packet sent is flying, acknowledged
//! or lost, exactly one of them; at most `max_packets` are remembered.

use std::collections::VecDeque;

use crate::{EcnCounts, Nanos};

/// Packets below the largest number that an [`AckFrame`] tells one by one.
pub const BITMAP_PACKETS: u64 = 256;
/// A packet declared lost is remembered until this many later ones are acknowledged.
const LOST_MEMORY: u64 = BITMAP_PACKETS / 2;

/// What a receiver reports: all counts are cumulative, so a lost acknowledgement costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckFrame {
    /// Largest number received.
    pub largest: u64,
    /// All numbers below that the sender still cared about have been received.
    pub cumulative: u64,
    /// Bit i of word w: number `largest - (64 w + i)` has been received.
    pub bitmap: [u64; 4],
    /// Distinct packets received.
    pub received: u64,
    /// Their ECN fields as they arrived.
    pub ecn: EcnCounts,
    /// Numbers up to `largest` not received; falls when one comes late.
    pub missing: u64,
    /// Timestamp of the newest packet, as it carried it.
    pub echo: Nanos,
    /// How long that packet waited for this acknowledgement.
    pub held: Nanos,
}

/// Limits of loss detection.
#[derive(Clone, Copy, Debug)]
pub struct FlightOptions {
    /// kPacketThreshold of RFC 9002, DupThresh of RFC 5681.
    pub packet_threshold: u64,
    /// Packets remembered at most.
    pub max_packets: usize,
}

impl Default for FlightOptions {
    fn default() -> Self {
        Self { packet_threshold: 3, max_packets: 1 << 17 }
    }
}

/// What an acknowledgement brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Newly {
    /// Packets newly acknowledged, late ones included.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of them had been declared lost.
    pub late: u64,
}

/// Packets newly lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewlyLost {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) largest: u64,
}

/// How fast the path delivered, measured over the round trip of one packet: the newest an acknowledgement brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSample {
    /// Bytes delivered from when it was sent to now.
    pub delivered: u64,
    /// The longer of the times in which they were sent and acknowledged.
    pub interval: Nanos,
    /// Bytes delivered in all when it was sent.
    pub prior_delivered: u64,
    /// Bytes in flight just after it was sent, its own included.
    pub tx_in_flight: u64,
    /// Bytes declared lost since it was sent.
    pub lost: u64,
    /// Packets reported as CE since it was sent.
    pub ce_packets: u64,
    /// Something else than the control held the connection back when it was sent.
    pub app_limited: bool,
}

/// One packet declared lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostPacket {
    /// Its bytes.
    pub bytes: u64,
    /// Bytes in flight just after it was sent, its own included.
    pub tx_in_flight: u64,
    /// Bytes declared lost since it was sent, its own included.
    pub lost: u64,
    /// Something else than the control held the connection back when it was sent.
    pub app_limited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Flying,
    Acked,
    Lost,
}

/// A packet and the connection as it was when it left; one cache line.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Nanos,
    bytes: u32,
    fate: Fate,
    app_limited: bool,
    /// `P.first_sent_time` and `P.delivered_time` of the draft.
    sending_since: Nanos,
    delivered_at: Nanos,
    delivered: u64,
    lost: u64,
    ce: u64,
    in_flight: u64,
}

/// Totals behind the samples (`C.` of the draft).
#[derive(Clone, Copy, Debug, Default)]
struct Delivery {
    delivered: u64,
    delivered_at: Nanos,
    first_sent: Nanos,
    lost: u64,
    ce: u64,
    /// Samples of packets sent before this many bytes are delivered are application limited; 0: none.
    limited_until: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Flight {
    options: FlightOptions,
    packets: VecDeque<Sent>,
    /// Number of the first of `packets`.
    base: u64,
    flying: u64,
    /// One past the highest number acknowledged.
    acked_through: u64,
    /// All numbers below have been judged: acknowledged or lost.
    judged: u64,
    /// The last frame's view, to find what is new in the next.
    known_bits: [u64; 4],
    known_largest: u64,
    known_cumulative: u64,
    delivery: Delivery,
    /// The newest packet of the acknowledgement in work.
    newest: Option<Sent>,
}

impl Flight {
    /// Nothing sent.
    pub fn new(options: FlightOptions) -> Self {
        Self {
            options,
            packets: VecDeque::new(),
            base: 0,
            flying: 0,
            acked_through: 0,
            judged: 0,
            known_bits: [0; 4],
            known_largest: 0,
            known_cumulative: 0,
            delivery: Delivery::default(),
            newest: None,
        }
    }

    /// The number the next packet will carry.
    pub fn next_seq(&self) -> u64 {
        self.base + self.packets.len() as u64
    }

    /// Lowest number whose fate is still of interest; the receiver need not care about lower ones.
    pub fn oldest(&self) -> u64 {
        self.base
    }

    /// Bytes flying.
    pub fn in_flight(&self) -> u64 {
        self.flying
    }

    /// One past the highest number acknowledged.
    pub fn acked_through(&self) -> u64 {
        self.acked_through
    }

    /// Whether no more may be sent before some are judged.
    pub fn is_full(&self) -> bool {
        self.packets.len() >= self.options.max_packets
    }

    /// Records a packet; returns its number.
    pub fn sent(&mut self, now: Nanos, bytes: u32) -> u64 {
        let seq = self.next_seq();
        if self.flying == 0 {
            self.delivery.first_sent = now;
            self.delivery.delivered_at = now;
        }
        self.flying += u64::from(bytes);
        self.packets.push_back(Sent {
            at: now,
            bytes,
            fate: Fate::Flying,
            app_limited: self.delivery.limited_until > 0,
            sending_since: self.delivery.first_sent,
            delivered_at: self.delivery.delivered_at,
            delivered: self.delivery.delivered,
            lost: self.delivery.lost,
            ce: self.delivery.ce,
            in_flight: self.flying,
        });
        seq
    }

    /// Something else than the control holds back: what flies now gives no full picture of the path.
    pub(crate) fn mark_app_limited(&mut self) {
        self.delivery.limited_until = (self.delivery.delivered + self.flying).max(1);
    }

    /// Bytes delivered since the start.
    pub fn delivered(&self) -> u64 {
        self.delivery.delivered
    }

    /// Bytes declared lost since the start, late arrivals included.
    pub fn lost(&self) -> u64 {
        self.delivery.lost
    }

    /// The sample of the acknowledgement just applied, which reported `ce_packets`.
    ///
    /// `None` where the interval is shorter than `min_rtt`, which no honest one is.
    pub(crate) fn rate_sample(&mut self, now: Nanos, ce_packets: u64, min_rtt: Nanos) -> Option<RateSample> {
        let delivery = &mut self.delivery;
        delivery.ce += ce_packets;
        if delivery.limited_until > 0 && delivery.delivered > delivery.limited_until {
            delivery.limited_until = 0;
        }
        let newest = self.newest.take()?;
        delivery.delivered_at = now;
        delivery.first_sent = newest.at;
        let interval = newest.at.since(newest.sending_since).max(now.since(newest.delivered_at));
        (interval >= min_rtt && interval > Nanos::ZERO).then(|| RateSample {
            delivered: delivery.delivered - newest.delivered,
            interval,
            prior_delivered: newest.delivered,
            tx_in_flight: newest.in_flight,
            lost: delivery.lost - newest.lost,
            ce_packets: delivery.ce - newest.ce,
            app_limited: newest.app_limited,
        })
    }

    /// Whether a frame can be an answer to what was sent.
    pub fn is_plausible(&self, frame: &AckFrame) -> bool {
        frame.largest < self.next_seq()
            && frame.cumulative <= frame.largest + 1
            && frame.received <= frame.largest + 1
    }

    /// Applies a plausible frame.
    pub fn on_ack(&mut self, frame: &AckFrame) -> Newly {
        let mut newly = Newly::default();
        if !self.is_plausible(frame) {
            return newly;
        }
        // What the receiver was told to give up lies below `base`, so all from there on has really come.
        for seq in self.base.max(self.known_cumulative)..frame.cumulative {
            self.acknowledge(seq, &mut newly);
        }
        self.known_cumulative = self.known_cumulative.max(frame.cumulative);
        if frame.largest >= self.known_largest {
            let shift = frame.largest - self.known_largest;
            let known = shifted(self.known_bits, shift);
            for (word, (bits, known)) in frame.bitmap.iter().zip(known).enumerate() {
                let mut new = bits & !known;
                while new != 0 {
                    let back = word as u64 * 64 + u64::from(new.trailing_zeros());
                    if let Some(seq) = frame.largest.checked_sub(back) {
                        self.acknowledge(seq, &mut newly);
                    }
                    new &= new - 1;
                }
            }
            self.known_bits = frame.bitmap;
            self.known_largest = frame.largest;
        }
        self.acked_through = self.acked_through.max(frame.largest + 1);
        newly
    }

    fn acknowledge(&mut self, seq: u64, newly: &mut Newly) {
        let Some(index) = seq.checked_sub(self.base).and_then(|i| usize::try_from(i).ok()) else {
            return;
        };
        let Some(sent) = self.packets.get_mut(index) else {
            return;
        };
        match sent.fate {
            Fate::Acked => return,
            Fate::Lost => newly.late += 1,
            Fate::Flying => self.flying -= u64::from(sent.bytes),
        }
        sent.fate = Fate::Acked;
        newly.packets += 1;
        newly.bytes += u64::from(sent.bytes);
        self.delivery.delivered += u64::from(sent.bytes);
        if self.newest.is_none_or(|newest| (sent.delivered, sent.at) >= (newest.delivered, newest.at)) {
            self.newest = Some(*sent);
        }
    }

    /// Declares packets lost by the two thresholds and forgets what needs no more attention.
    ///
    /// `each` is told of every one.
    pub(crate) fn detect_losses(
        &mut self,
        now: Nanos,
        rtt: Nanos,
        mut each: impl FnMut(&LostPacket),
    ) -> NewlyLost {
        let mut lost = NewlyLost::default();
        let patience = rtt.scaled(9, 8);
        while let Some(sent) = self.at(self.judged) {
            let seq = self.judged;
            if sent.fate == Fate::Flying {
                let passed = seq + self.options.packet_threshold < self.acked_through;
                let old = seq + 1 < self.acked_through && sent.at + patience <= now;
                if !(passed || old) {
                    break;
                }
                self.lose(seq, &mut lost, &mut each);
            }
            self.judged += 1;
        }
        self.forget();
        lost
    }

    /// The timer ran out: all that flies is lost.
    pub(crate) fn lose_all(&mut self, mut each: impl FnMut(&LostPacket)) -> NewlyLost {
        let mut lost = NewlyLost::default();
        for seq in self.judged..self.next_seq() {
            if self.at(seq).is_some_and(|sent| sent.fate == Fate::Flying) {
                self.lose(seq, &mut lost, &mut each);
            }
        }
        self.judged = self.next_seq();
        self.forget();
        lost
    }

    /// When the oldest packet flying will be declared lost by its age, if a later one has been acknowledged.
    pub(crate) fn loss_time(&self, rtt: Nanos) -> Option<Nanos> {
        let sent = self.at(self.judged).filter(|sent| sent.fate == Fate::Flying)?;
        (self.judged + 1 < self.acked_through).then(|| sent.at + rtt.scaled(9, 8))
    }

    fn at(&self, seq: u64) -> Option<Sent> {
        let index = usize::try_from(seq.checked_sub(self.base)?).ok()?;
        self.packets.get(index).copied()
    }

    fn lose(&mut self, seq: u64, lost: &mut NewlyLost, each: &mut impl FnMut(&LostPacket)) {
        let Some(sent) = usize::try_from(seq - self.base).ok().and_then(|i| self.packets.get_mut(i)) else {
            return;
        };
        sent.fate = Fate::Lost;
        self.flying -= u64::from(sent.bytes);
        lost.packets += 1;
        lost.bytes += u64::from(sent.bytes);
        lost.largest = lost.largest.max(seq);
        self.delivery.lost += u64::from(sent.bytes);
        each(&LostPacket {
            bytes: u64::from(sent.bytes),
            tx_in_flight: sent.in_flight,
            lost: self.delivery.lost - sent.lost,
            app_limited: sent.app_limited,
        });
    }

    fn forget(&mut self) {
        while self.base < self.judged {
            let Some(front) = self.packets.front() else {
                return;
            };
            let recent = self.base + LOST_MEMORY >= self.acked_through;
            if front.fate == Fate::Lost && recent && !self.is_full() {
                return;
            }
            self.packets.pop_front();
            self.base += 1;
        }
    }
}

/// A bitmap as seen from a largest number that is `by` higher.
fn shifted(bits: [u64; 4], by: u64) -> [u64; 4] {
    let mut out = [0; 4];
    if by >= BITMAP_PACKETS {
        return out;
    }
    let (words, rest) = ((by / 64) as usize, (by % 64) as u32);
    for word in words..4 {
        let low = bits[word - words] << rest;
        let carry = if rest > 0 && word > words { bits[word - words - 1] >> (64 - rest) } else { 0 };
        out[word] = low | carry;
    }
    out
}

#[cfg(test)]
mod tests;
