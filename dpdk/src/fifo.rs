// SPDX-License-Identifier: Apache-2.0
//! The intrusive queue of packets: 8 bytes, however many wait.
//!
//! Invariant: `head` and `tail` are both 0 (empty) or numbers of the first and last packet (see `window`); each
//! packet's link is the first half of its mbuf's `hash`, that is [`Words::id`], 0 in the last one. The field `next`
//! is never used: a chained mbuf is one packet. Only the first cache line of an mbuf is touched.

use core::ptr::NonNull;

use dpdk_sys as sys;

use crate::mbuf::{Mbuf, Words};
use crate::window::{compress, expand};

/// First in, first out. Pushing overwrites the packet's [`Words::id`].
#[derive(Debug, Default)]
pub struct MbufFifo {
    head: u32,
    tail: u32,
}

const _: () = assert!(size_of::<MbufFifo>() == 8);

impl MbufFifo {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { head: 0, tail: 0 }
    }

    /// Whether there is no packet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == 0
    }

    /// Appends.
    #[inline]
    pub fn push(&mut self, packet: Mbuf) {
        let m = packet.into_raw();
        let number = compress(m);
        // Exposed so that `expand` may make a pointer of the number again.
        let _ = m.as_ptr().expose_provenance();
        // SAFETY: the queue has just taken the packet over (test: `behaves_like_a_deque`).
        unsafe { set_link(m, 0) };
        if self.head == 0 {
            self.head = number;
        } else {
            // SAFETY: `tail` is the number of the last packet of the queue, which owns it (test: as above).
            unsafe { set_link(expand(self.tail), number) };
        }
        self.tail = number;
    }

    /// Takes the oldest. Its [`Words::id`] means nothing any more.
    #[inline]
    pub fn pop(&mut self) -> Option<Mbuf> {
        if self.head == 0 {
            return None;
        }
        let m = expand(self.head);
        // SAFETY: `head` is the number of a packet that the queue owns (test: `behaves_like_a_deque`).
        self.head = unsafe { link(m) };
        if self.head == 0 {
            self.tail = 0;
        }
        // SAFETY: the queue no longer reaches the packet, so the handle is its only owner (test: as above).
        Some(unsafe { Mbuf::from_raw(m) })
    }

    /// The oldest one's words (`id` means nothing) and frame length, without taking it.
    #[inline]
    pub fn front(&self) -> Option<(Words, u32)> {
        if self.head == 0 {
            return None;
        }
        // SAFETY: `head` is the number of a packet that the queue owns; the handle is on loan and never dropped
        // (test: `behaves_like_a_deque`).
        let packet = core::mem::ManuallyDrop::new(unsafe { Mbuf::from_raw(expand(self.head)) });
        Some((packet.words(), packet.pkt_len()))
    }

    /// Asks for the oldest one's first cache line, to be changed soon.
    #[inline]
    pub fn prefetch_front(&self) {
        if self.head != 0 {
            mem::prefetch(expand(self.head).as_ptr().cast_const());
        }
    }
}

/// # Safety
///
/// `m` is a valid mbuf that the caller owns.
#[inline]
unsafe fn link(m: NonNull<sys::Mbuf>) -> u32 {
    // SAFETY: as the function demands.
    unsafe { (*m.as_ptr()).hash[0] }
}

/// # Safety
///
/// `m` is a valid mbuf that the caller owns.
#[inline]
unsafe fn set_link(m: NonNull<sys::Mbuf>, number: u32) {
    // SAFETY: as the function demands.
    unsafe { (*m.as_ptr()).hash[0] = number };
}

impl Drop for MbufFifo {
    fn drop(&mut self) {
        while let Some(packet) = self.pop() {
            drop(packet);
        }
    }
}
