// SPDX-License-Identifier: Apache-2.0
//! An mbuf as the engine's packet: its metadata lives in words of the mbuf's first cache line.
//!
//! | word                   | holds                                                               |
//! |------------------------|---------------------------------------------------------------------|
//! | `id`                   | queue id; while the packet hangs on a FIFO, the FIFO's link         |
//! | `stamp`                | arrival                                                             |
//! | `packet`               | L3 length (16 bits), IP offset (8), ECN field (2), rule (3)         |
//! | `port`                 | port it leaves by                                                   |
//!
//! Invariant: a [`MbufPacket`] off the FIFO has all four set; on a FIFO the queue id is known to its owner, who
//! gives it back when the packet is taken.

use aqm::{Cause, Ecn, FlowKey, Rule, Stamp};
use dpdk::{Mbuf, MbufFifo, Words};
use engine::{Fifo, Meta, Packet, PortId, QueueId};

/// A packet in an mbuf.
#[derive(Debug)]
pub struct MbufPacket(Mbuf);

impl MbufPacket {
    /// Takes an mbuf over.
    #[inline]
    pub fn new(mbuf: Mbuf) -> Self {
        Self(mbuf)
    }

    /// The metadata of an mbuf that is a packet.
    #[inline]
    pub(crate) fn meta_of(mbuf: &Mbuf) -> Meta {
        Self::unpack(mbuf.words())
    }

    /// Gives the mbuf back, to be sent.
    #[inline]
    pub fn into_mbuf(self) -> Mbuf {
        self.0
    }

    /// Reads the metadata out of the words of an mbuf.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "each field is masked to its width")]
    fn unpack(words: Words) -> Meta {
        Meta {
            queue_id: QueueId(words.id),
            arrival: Stamp(words.stamp),
            l3_bytes: words.packet as u16,
            ip_offset: (words.packet >> 16) as u8,
            ecn: Ecn::from_bits((words.packet >> 24) as u8),
            rule: Rule::from_bits((words.packet >> 26) as u8 & 7),
            egress: PortId(words.port as u8),
        }
    }

    #[inline]
    fn pack(meta: Meta) -> Words {
        Words {
            id: meta.queue_id.0,
            stamp: meta.arrival.0,
            packet: u32::from(meta.l3_bytes)
                | u32::from(meta.ip_offset) << 16
                | u32::from(meta.ecn as u8) << 24
                | u32::from(meta.rule as u8) << 26,
            port: u16::from(meta.egress.0),
        }
    }
}

impl Packet for MbufPacket {
    type Fifo = PacketFifo;

    #[inline]
    fn meta(&self) -> Meta {
        Self::unpack(self.0.words())
    }

    #[inline]
    fn set_meta(&mut self, meta: Meta) {
        self.0.set_words(Self::pack(meta));
    }

    #[inline]
    fn frame_bytes(&self) -> u32 {
        self.0.pkt_len()
    }

    #[inline]
    fn buffers(&self) -> u32 {
        u32::from(self.0.segments())
    }

    fn flow_key(&self, seed: u64) -> FlowKey {
        // without IP the offset is 0
        let at = usize::from(self.meta().ip_offset);
        let packet = self.0.data().get(at..).filter(|_| at > 0);
        packet.and_then(|packet| wire::flow_key(packet, seed)).map_or_else(FlowKey::default, |key| FlowKey {
            flow: key.flow,
            source: key.source,
            destination: key.destination,
            dscp: key.dscp,
        })
    }

    fn macs(&self) -> [u8; 12] {
        self.0.data().first_chunk().copied().unwrap_or_default()
    }

    fn mark_ce(&mut self, _cause: Cause) {
        let offset = usize::from(self.meta().ip_offset);
        if let Some(header) = self.0.data_mut().get_mut(offset..) {
            wire::set_ce(header);
        }
    }
}

/// An intrusive queue of mbufs.
#[derive(Debug, Default)]
pub struct PacketFifo(MbufFifo);

impl Fifo<MbufPacket> for PacketFifo {
    #[inline]
    fn push(&mut self, packet: MbufPacket) {
        self.0.push(packet.0);
    }

    #[inline]
    fn pop(&mut self) -> Option<MbufPacket> {
        self.0.pop().map(MbufPacket)
    }

    #[inline]
    fn front(&self) -> Option<Meta> {
        self.0.front().map(|(words, _)| MbufPacket::unpack(words))
    }

    #[inline]
    fn prefetch_front(&self) {
        self.0.prefetch_front();
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn metadata_survives_the_words(
            id: u32, stamp: u32, l3_bytes: u16, ip_offset: u8, ecn in 0_u8..4, rule in 0_u8..5, egress: u8,
        ) {
            let meta = Meta {
                queue_id: QueueId(id),
                arrival: Stamp(stamp),
                l3_bytes,
                ip_offset,
                ecn: Ecn::from_bits(ecn),
                rule: Rule::from_bits(rule),
                egress: PortId(egress),
            };
            prop_assert_eq!(MbufPacket::unpack(MbufPacket::pack(meta)), meta);
        }
    }
}
