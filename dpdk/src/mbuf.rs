// SPDX-License-Identifier: Apache-2.0
//! One packet: a move-only handle that frees its buffers when dropped.
//!
//! Invariant: the handle is the only reference to its mbuf (reference count 1, no clones), so its fields are plain
//! memory of ours. A frame may have several segments; only the first one's bytes are reachable here, which is
//! enough for headers, and the chain is never taken apart.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use dpdk_sys as sys;

/// The words of an mbuf's first cache line that are ours between RX and TX.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Free for use until the packet is pushed onto an [`MbufFifo`](crate::MbufFifo), which keeps its link here:
    /// after that it reads as something else.
    pub id: u32,
    /// Free for use.
    pub stamp: u32,
    /// Free for use.
    pub packet: u32,
    /// Free for use.
    pub port: u16,
}

/// A packet.
#[repr(transparent)]
#[derive(Debug)]
pub struct Mbuf(NonNull<sys::Mbuf>);

// SAFETY: an mbuf belongs to whoever holds the handle; pools take it back from any thread
// (test: `mbufs_freed_by_another_thread_return_to_the_pool`).
unsafe impl Send for Mbuf {}

impl Mbuf {
    /// Takes over a packet.
    ///
    /// # Safety
    ///
    /// `m` is a valid packet from a pool made by this crate (or a chain of such) and nobody else will use or free it.
    #[inline]
    pub(crate) unsafe fn from_raw(m: NonNull<sys::Mbuf>) -> Self {
        Self(m)
    }

    /// Hands the packet to somebody who will free it.
    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<sys::Mbuf> {
        ManuallyDrop::new(self).0
    }

    #[inline]
    pub(crate) fn raw(&self) -> &sys::Mbuf {
        // SAFETY: the handle owns a valid mbuf, borrowed for as long as self is (module invariant; every test of
        // `tests/packets.rs` reads through here).
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn raw_mut(&mut self) -> &mut sys::Mbuf {
        // SAFETY: as in `raw`, and self is borrowed mutably.
        unsafe { self.0.as_mut() }
    }

    /// Where the mbuf lies, for a prefetch.
    #[inline]
    pub fn address(&self) -> *const u8 {
        self.0.as_ptr().cast_const().cast()
    }

    /// Where the frame begins, for a prefetch.
    #[inline]
    pub fn data_address(&self) -> *const u8 {
        let m = self.raw();
        m.buf_addr.wrapping_add(usize::from(m.data_off))
    }

    /// Where a frame begins that a driver has just received, as a rule: for a prefetch that cannot wait for the mbuf.
    #[inline]
    pub fn usual_data_address(&self) -> *const u8 {
        self.address().wrapping_add(size_of::<sys::Mbuf>() + sys::K_PKTMBUF_HEADROOM as usize)
    }

    /// The first segment.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let length = usize::from(self.raw().data_len);
        // SAFETY: a driver, or `append` and `prepend` below, made `data_len` bytes from `data_off` valid; they
        // lie in the mbuf's own buffer, which nobody else writes (test: `data_grows_and_shrinks_at_both_ends`).
        unsafe { core::slice::from_raw_parts(self.data_address(), length) }
    }

    /// The first segment, to change.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        debug_assert_eq!(self.raw().refcnt, 1, "nobody else holds it");
        let length = usize::from(self.raw().data_len);
        // SAFETY: as in `data`; self is borrowed mutably.
        unsafe { core::slice::from_raw_parts_mut(self.data_address().cast_mut(), length) }
    }

    /// Length of the whole frame in bytes, over all segments, without FCS.
    #[inline]
    pub fn pkt_len(&self) -> u32 {
        self.raw().pkt_len
    }

    /// Segments, that is buffers held.
    #[inline]
    pub fn segments(&self) -> u16 {
        self.raw().nb_segs
    }

    /// DPDK's number of the port it came from.
    #[inline]
    pub fn port(&self) -> u16 {
        self.raw().port
    }

    /// The words that travel with it.
    #[inline]
    pub fn words(&self) -> Words {
        let m = self.raw();
        let [id, stamp] = m.hash;
        Words { id, stamp, packet: m.packet_type, port: m.vlan_tci_outer }
    }

    /// Stores the words that travel with it.
    #[inline]
    pub fn set_words(&mut self, words: Words) {
        let m = self.raw_mut();
        m.hash = [words.id, words.stamp];
        m.packet_type = words.packet;
        m.vlan_tci_outer = words.port;
    }

    /// Bytes free before the frame.
    pub fn headroom(&self) -> u16 {
        self.raw().data_off
    }

    /// Bytes free after the first segment.
    pub fn tailroom(&self) -> u16 {
        let m = self.raw();
        m.buf_len - m.data_off - m.data_len
    }

    /// Makes room for `bytes` more at the front and gives the first segment from its new start; `None`, and no
    /// change, if there is not that much headroom. The new bytes hold whatever was there.
    pub fn prepend(&mut self, bytes: u16) -> Option<&mut [u8]> {
        let m = self.raw_mut();
        let data_off = m.data_off.checked_sub(bytes)?;
        let data_len = m.data_len.checked_add(bytes)?;
        m.data_off = data_off;
        m.data_len = data_len;
        m.pkt_len += u32::from(bytes);
        Some(self.data_mut())
    }

    /// Takes `bytes` off the front; false, and no change, if the first segment is shorter.
    pub fn adj(&mut self, bytes: u16) -> bool {
        let m = self.raw_mut();
        let Some(data_len) = m.data_len.checked_sub(bytes) else {
            return false;
        };
        m.data_len = data_len;
        m.data_off += bytes;
        m.pkt_len -= u32::from(bytes);
        true
    }

    /// Makes room for `bytes` more at the end of a frame of one segment and gives those bytes; `None`, and no
    /// change, if there is not that much room or there are more segments. They hold whatever was there.
    pub fn append(&mut self, bytes: u16) -> Option<&mut [u8]> {
        if self.segments() != 1 || self.tailroom() < bytes {
            return None;
        }
        let m = self.raw_mut();
        let before = usize::from(m.data_len);
        m.data_len += bytes;
        m.pkt_len += u32::from(bytes);
        self.data_mut().get_mut(before..)
    }

    /// Appends these bytes; false, and no change, where [`append`](Self::append) gives `None`.
    pub fn extend(&mut self, bytes: &[u8]) -> bool {
        let Ok(length) = u16::try_from(bytes.len()) else {
            return false;
        };
        let Some(room) = self.append(length) else {
            return false;
        };
        room.copy_from_slice(bytes);
        true
    }

    /// Hangs the segments of `tail` behind its own.
    ///
    /// # Errors
    ///
    /// Gives `tail` back when the chain would be too long to count.
    pub fn chain(&mut self, tail: Mbuf) -> Result<(), Mbuf> {
        let segments = self.segments().checked_add(tail.segments());
        let (Some(segments), Some(length)) = (segments, self.pkt_len().checked_add(tail.pkt_len())) else {
            return Err(tail);
        };
        let mut last = self.0;
        loop {
            // SAFETY: `last` is a segment of this chain, which self owns; DPDK keeps `next` valid or null
            // (test: `a_chain_is_one_packet`).
            let next = unsafe { (*last.as_ptr()).next };
            match NonNull::new(next) {
                Some(next) => last = next,
                None => break,
            }
        }
        // SAFETY: `last` is the last segment of a chain that self owns mutably; `tail` gives up its own.
        unsafe { (*last.as_ptr()).next = tail.into_raw().as_ptr() };
        let m = self.raw_mut();
        m.nb_segs = segments;
        m.pkt_len = length;
        Ok(())
    }

    /// The bytes of all segments, for a test or a capture file.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.pkt_len() as usize);
        let mut at = Some(self.0);
        while let Some(segment) = at {
            // A handle on loan: it must not free.
            let segment = ManuallyDrop::new(Mbuf(segment));
            bytes.extend_from_slice(segment.data());
            at = NonNull::new(segment.raw().next);
        }
        bytes
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the handle owns the packet and is gone after this; its pool exists as long as it has mbufs out
        // (see `pool`; test: `dropping_an_mbuf_returns_it_to_its_pool`).
        unsafe { sys::shim_pktmbuf_free(self.0.as_ptr().cast()) };
    }
}
