// SPDX-License-Identifier: Apache-2.0
//! What the engine asks of a packet: a move-only handle that carries its metadata and hangs on intrusive FIFOs.
//!
//! Invariant: dropping the handle frees the packet, so a packet is in exactly one place: a burst, a FIFO or gone.

use aqm::{Cause, Ecn, FlowKey, Rule, Stamp};

/// A dense index: one a subscriber and direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u32);

/// Index of a port within the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u8);

/// What travels with a packet from RX to its departure (15 bytes; fits the first line of an mbuf).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Whose it is.
    pub queue_id: QueueId,
    /// When the RX burst that brought it was taken.
    pub arrival: Stamp,
    /// Length the shaper's overhead is added to: that of the (inner) IP packet, or the Ethernet payload of a
    /// frame that is not IP.
    pub l3_bytes: u16,
    /// Where the IP header that carries `ecn` begins; 0 where there is none that may be changed.
    pub ip_offset: u8,
    /// The ECN field as it arrived, or CE once a discipline has marked it on arrival.
    pub ecn: Ecn,
    /// What the rules on its DSCP say.
    pub rule: Rule,
    /// The port it leaves by.
    pub egress: PortId,
}

/// A move-only packet handle.
pub trait Packet: Sized {
    /// An intrusive queue of such packets; must be cheap when empty (an idle subscriber holds two).
    type Fifo: Fifo<Self>;

    /// The metadata.
    fn meta(&self) -> Meta;

    /// Stores the metadata.
    fn set_meta(&mut self, meta: Meta);

    /// Whole length of the frame in memory, in bytes, without FCS.
    fn frame_bytes(&self) -> u32;

    /// Packet buffers it holds (segments).
    fn buffers(&self) -> u32;

    /// What tells its flow and hosts apart, hashed with `seed`, from the packet's own memory; the default where there
    /// is no IP. Only disciplines with flows ask.
    fn flow_key(&self, seed: u64) -> FlowKey;

    /// Destination and source MAC, the frame's first bytes. Only control traffic is asked.
    fn macs(&self) -> [u8; 12] {
        [0; 12]
    }

    /// Sets CE in the IP header at `meta().ip_offset`, with the IPv4 checksum (RFC 1624). `cause` is for those who
    /// count.
    fn mark_ce(&mut self, cause: Cause);
}

/// First in, first out.
pub trait Fifo<P>: Default {
    /// Appends.
    fn push(&mut self, packet: P);

    /// Takes the oldest.
    fn pop(&mut self) -> Option<P>;

    /// Metadata of the oldest, without taking it.
    fn front(&self) -> Option<Meta>;

    /// Asks the caches for the oldest, to be taken soon.
    #[inline]
    fn prefetch_front(&self) {}

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.front().is_none()
    }
}
