// SPDX-License-Identifier: Apache-2.0
//! A captured frame as the engine's packet: bytes on the heap, a queue that is a `VecDeque`.

use std::collections::VecDeque;

use aqm::{Cause, FlowKey};
use engine::{Fifo, Meta, Packet};

/// A frame and its metadata.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    pub(super) meta: Meta,
    /// What was captured of it.
    pub(super) data: Vec<u8>,
    /// Its length on the wire.
    pub(super) wire_bytes: u32,
}

impl Packet for Frame {
    type Fifo = FrameFifo;

    fn meta(&self) -> Meta {
        self.meta
    }

    fn set_meta(&mut self, meta: Meta) {
        self.meta = meta;
    }

    fn frame_bytes(&self) -> u32 {
        self.wire_bytes
    }

    fn buffers(&self) -> u32 {
        1
    }

    fn flow_key(&self, seed: u64) -> FlowKey {
        // without IP the offset is 0
        let at = usize::from(self.meta.ip_offset);
        let packet = self.data.get(at..).filter(|_| at > 0);
        packet.and_then(|packet| wire::flow_key(packet, seed)).map_or_else(FlowKey::default, |key| FlowKey {
            flow: key.flow,
            source: key.source,
            destination: key.destination,
            dscp: key.dscp,
        })
    }

    fn mark_ce(&mut self, _cause: Cause) {
        if let Some(header) = self.data.get_mut(usize::from(self.meta.ip_offset)..) {
            wire::set_ce(header);
        }
    }
}

/// Frames, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct FrameFifo(VecDeque<Frame>);

impl Fifo<Frame> for FrameFifo {
    fn push(&mut self, frame: Frame) {
        self.0.push_back(frame);
    }

    fn pop(&mut self) -> Option<Frame> {
        self.0.pop_front()
    }

    fn front(&self) -> Option<Meta> {
        self.0.front().map(|frame| frame.meta)
    }
}
