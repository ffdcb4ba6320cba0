// SPDX-License-Identifier: Apache-2.0
//! The lab's packet: a few words that are moved, never allocated; the FIFO is a ring that keeps its memory.

use std::collections::VecDeque;

use aqm::{Cause, FlowKey, Nanos};
use engine::{Fifo, Meta, Packet};

/// A packet on a link, with what its receiver needs of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parcel<T> {
    meta: Meta,
    frame_bytes: u32,
    /// Whose it is.
    pub(crate) flow: u32,
    /// When it came to the link.
    pub(crate) sent: Nanos,
    /// Marked here.
    pub(crate) marked: bool,
    /// By what.
    pub(crate) cause: Option<Cause>,
    /// What it carries.
    pub(crate) load: T,
}

impl<T> Parcel<T> {
    pub(crate) fn new(meta: Meta, frame_bytes: u32, flow: u32, sent: Nanos, load: T) -> Self {
        Self { meta, frame_bytes, flow, sent, marked: false, cause: None, load }
    }
}

impl<T: Copy> Packet for Parcel<T> {
    type Fifo = Ring<T>;

    #[inline]
    fn meta(&self) -> Meta {
        self.meta
    }

    fn set_meta(&mut self, meta: Meta) {
        self.meta = meta;
    }

    #[inline]
    fn frame_bytes(&self) -> u32 {
        self.frame_bytes
    }

    #[inline]
    fn buffers(&self) -> u32 {
        1
    }

    /// Each flow comes from a host of its own to the one subscriber.
    #[inline]
    fn flow_key(&self, seed: u64) -> FlowKey {
        let hash = hash(seed ^ u64::from(self.flow));
        FlowKey { flow: hash[0], source: hash[1], destination: 0, dscp: 0 }
    }

    #[inline]
    fn mark_ce(&mut self, cause: Cause) {
        debug_assert!(self.meta.ecn.is_ect(), "Not-ECT is never marked");
        self.marked = true;
        self.cause = Some(cause);
    }
}

/// Two hashes (SplitMix64).
#[expect(clippy::cast_possible_truncation, reason = "takes the halves")]
const fn hash(seed: u64) -> [u32; 2] {
    let mut word = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^= word >> 31;
    [word as u32, (word >> 32) as u32]
}

/// First in, first out.
#[derive(Debug)]
pub(crate) struct Ring<T>(VecDeque<Parcel<T>>);

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Copy> Fifo<Parcel<T>> for Ring<T> {
    #[inline]
    fn push(&mut self, packet: Parcel<T>) {
        self.0.push_back(packet);
    }

    #[inline]
    fn pop(&mut self) -> Option<Parcel<T>> {
        self.0.pop_front()
    }

    #[inline]
    fn front(&self) -> Option<Meta> {
        self.0.front().map(|packet| packet.meta)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
