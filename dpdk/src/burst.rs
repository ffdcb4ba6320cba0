// SPDX-License-Identifier: Apache-2.0
//! A fixed array of packets: what one call to a driver or a ring takes or gives.
//!
//! Invariant: the first `len` places hold packets that the burst owns; the others hold nothing. It frees what it
//! still holds in one call.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use dpdk_sys as sys;

use crate::mbuf::Mbuf;

/// Up to `N` packets in order.
pub struct Burst<const N: usize = 32> {
    len: usize,
    packets: [MaybeUninit<Mbuf>; N],
}

impl<const N: usize> Burst<N> {
    /// An empty burst.
    pub const fn new() -> Self {
        assert!(N > 0 && N <= u16::MAX as usize, "drivers count packets in 16 bits");
        Self { len: 0, packets: [const { MaybeUninit::uninit() }; N] }
    }

    /// Packets in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is room for none.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len == N
    }

    /// Room left.
    #[inline]
    pub fn room(&self) -> usize {
        N - self.len
    }

    /// Appends a packet.
    ///
    /// # Errors
    ///
    /// Gives the packet back when the burst is full.
    #[inline]
    pub fn push(&mut self, packet: Mbuf) -> Result<(), Mbuf> {
        match self.packets.get_mut(self.len) {
            Some(place) => {
                place.write(packet);
                self.len += 1;
                Ok(())
            }
            None => Err(packet),
        }
    }

    /// Takes the last packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Mbuf> {
        let last = self.len.checked_sub(1)?;
        self.len = last;
        let place = self.packets.get(last)?;
        // SAFETY: place `last` held a packet, and `len` no longer counts it
        // (test: `a_burst_gives_back_what_was_put_in`).
        Some(unsafe { place.assume_init_read() })
    }

    /// The packets.
    #[inline]
    pub fn as_slice(&self) -> &[Mbuf] {
        // SAFETY: the first `len` places hold packets, and MaybeUninit<Mbuf> has Mbuf's layout.
        unsafe { core::slice::from_raw_parts(self.packets.as_ptr().cast(), self.len) }
    }

    /// The packets, to change.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [Mbuf] {
        // SAFETY: as in `as_slice`; self is borrowed mutably.
        unsafe { core::slice::from_raw_parts_mut(self.packets.as_mut_ptr().cast(), self.len) }
    }

    /// Takes all packets out, first to last; what the iterator has not given when it is dropped is freed.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_, N> {
        let end = self.len;
        self.len = 0;
        Drain { burst: self, next: 0, end }
    }

    /// Frees all packets in one call.
    #[inline]
    pub fn clear(&mut self) {
        self.free_from(0);
    }

    /// Frees the packets from `first` on.
    fn free_from(&mut self, first: usize) {
        let count = self.len.saturating_sub(first);
        if count == 0 {
            return;
        }
        self.len = first;
        let start = self.as_raw().wrapping_add(first);
        // SAFETY: `count` packets from place `first` are owned by the burst, and `len` no longer counts them
        // (test: `a_dropped_burst_frees_its_packets`). `count` <= N <= 65535.
        unsafe { sys::rte_pktmbuf_free_bulk(start.cast(), u32::try_from(count).unwrap_or(0)) };
    }

    /// The array as C sees it.
    #[inline]
    pub(crate) fn as_raw(&mut self) -> *mut *mut sys::Mbuf {
        self.packets.as_mut_ptr().cast()
    }

    /// The first free place, as C sees it.
    #[inline]
    pub(crate) fn free_raw(&mut self) -> *mut *mut sys::Mbuf {
        self.as_raw().wrapping_add(self.len)
    }

    /// Counts `count` more packets.
    ///
    /// # Safety
    ///
    /// So many valid packets were written to [`free_raw`](Self::free_raw), which now belong to the burst, and
    /// `count` is at most the room.
    #[inline]
    pub(crate) unsafe fn grown(&mut self, count: usize) {
        debug_assert!(count <= self.room());
        self.len += count;
    }

    /// Forgets the first `count` packets, moving the others to the front.
    ///
    /// # Safety
    ///
    /// Somebody else has taken over exactly those packets, and `count` is at most `len`.
    #[inline]
    pub(crate) unsafe fn forget_front(&mut self, count: usize) {
        debug_assert!(count <= self.len);
        let start = self.as_raw();
        let left = self.len - count;
        self.len = left;
        if left > 0 && count > 0 {
            // SAFETY: both ranges lie among the first `len` places, and `copy` allows overlap
            // (test: `what_a_full_ring_refuses_stays_in_order`).
            unsafe { core::ptr::copy(start.wrapping_add(count), start, left) };
        }
    }

    /// Sets the number of packets.
    ///
    /// # Safety
    ///
    /// The first `len` places hold packets of the burst, and the others hold none.
    #[inline]
    pub(crate) unsafe fn set_len(&mut self, len: usize) {
        debug_assert!(len <= N);
        self.len = len;
    }
}

impl<const N: usize> Default for Burst<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Drop for Burst<N> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<const N: usize> core::fmt::Debug for Burst<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Burst").field("len", &self.len).field("room", &self.room()).finish_non_exhaustive()
    }
}

/// Gives the packets of a burst, first to last.
pub struct Drain<'a, const N: usize> {
    burst: &'a mut Burst<N>,
    next: usize,
    end: usize,
}

impl<const N: usize> Iterator for Drain<'_, N> {
    type Item = Mbuf;

    #[inline]
    fn next(&mut self) -> Option<Mbuf> {
        if self.next == self.end {
            return None;
        }
        let pointer = self.burst.as_raw().wrapping_add(self.next);
        self.next += 1;
        // SAFETY: the place is among those that held packets when the drain began (test:
        // `a_burst_gives_back_what_was_put_in`).
        let raw = unsafe { pointer.read() };
        // SAFETY: the burst owned this packet, it was not null, and `next` has passed it.
        let raw = unsafe { NonNull::new_unchecked(raw) };
        // SAFETY: as above; the burst counts it no more, so the handle is the only owner.
        Some(unsafe { Mbuf::from_raw(raw) })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end - self.next;
        (left, Some(left))
    }
}

impl<const N: usize> ExactSizeIterator for Drain<'_, N> {}

impl<const N: usize> Drop for Drain<'_, N> {
    fn drop(&mut self) {
        for packet in self.by_ref() {
            drop(packet);
        }
    }
}
