// SPDX-License-Identifier: Apache-2.0
//! Single-producer single-consumer rings of packets between two threads.
//!
//! Invariant: one [`Producer`] and one [`Consumer`] exist for a ring, neither can be copied, and each is used by one
//! thread at a time, which is all that the single-producer and single-consumer flavours of `rte_ring` ask. Packets
//! left in a ring are freed with it.

use core::ffi::{c_uint, c_void};
use core::ptr::NonNull;
use std::ffi::CString;
use std::sync::Arc;

use dpdk_sys as sys;

use crate::burst::Burst;
use crate::eal::{Eal, Shared};
use crate::error::PoolError;
use crate::mbuf::Mbuf;

/// Longest name a ring may have.
const NAME_BYTES: usize = 28;
/// Largest ring that `rte_ring` allows.
const MOST: u32 = 0x7fff_ffff >> 1;

struct Ring {
    raw: NonNull<sys::rte_ring>,
    capacity: u32,
    _eal: Arc<Shared>,
}

// SAFETY: the two halves touch different indices of the ring; `rte_ring` orders them (test: `a_ring_keeps_order_between_threads`).
unsafe impl Send for Ring {}
// SAFETY: as above; `len` only reads both indices.
unsafe impl Sync for Ring {}

/// The half that puts packets in.
#[derive(Debug)]
pub struct Producer(Arc<Ring>);

/// The half that takes packets out.
#[derive(Debug)]
pub struct Consumer(Arc<Ring>);

/// A ring that holds at least `capacity` packets (a power of two less one).
///
/// # Errors
///
/// When the name is taken or too long, or there is no memory.
pub fn ring(
    eal: &Eal,
    name: &str,
    capacity: u32,
    socket: Option<u32>,
) -> Result<(Producer, Consumer), PoolError> {
    let owned = || name.to_owned();
    if name.is_empty() || name.len() > NAME_BYTES {
        return Err(PoolError::Name { name: owned() });
    }
    if capacity == 0 || capacity > MOST {
        return Err(PoolError::RingSize { name: owned(), capacity });
    }
    let size = (capacity + 1).next_power_of_two();
    let c_name = CString::new(name).map_err(|_| PoolError::Name { name: owned() })?;
    let socket = socket.and_then(|s| i32::try_from(s).ok()).unwrap_or(sys::K_SOCKET_ID_ANY);
    let flags = sys::K_RING_F_SP_ENQ | sys::K_RING_F_SC_DEQ;
    // SAFETY: EAL is initialised (we hold it), and the name lives through the call, which copies it.
    let raw = unsafe { sys::rte_ring_create(c_name.as_ptr(), size, socket, flags) };
    let Some(raw) = NonNull::new(raw) else {
        return Err(match Eal::errno() {
            libc::EEXIST => PoolError::Exists { name: owned() },
            errno => PoolError::Refused {
                name: owned(),
                reason: std::io::Error::from_raw_os_error(errno).to_string(),
            },
        });
    };
    let ring = Arc::new(Ring { raw, capacity: size - 1, _eal: eal.shared() });
    Ok((Producer(Arc::clone(&ring)), Consumer(ring)))
}

impl Producer {
    /// Puts in as many packets as fit, first to last; those that did not fit stay in `burst`, at its front.
    #[inline]
    pub fn enqueue<const N: usize>(&mut self, burst: &mut Burst<N>) -> usize {
        let count = c_uint::try_from(burst.len()).unwrap_or(0);
        let objects: *const *mut c_void = burst.as_raw().cast_const().cast();
        // SAFETY: `burst` holds `count` packets, this is the only producer (taken by `&mut`), and the ring exists.
        let put = unsafe { sys::shim_ring_sp_enqueue_burst(self.0.raw.as_ptr(), objects, count) } as usize;
        // SAFETY: the ring has taken over exactly the first `put` packets
        // (test: `what_a_full_ring_refuses_stays_in_order`).
        unsafe { burst.forget_front(put) };
        put
    }

    /// Puts one packet in.
    ///
    /// # Errors
    ///
    /// Gives it back when the ring is full.
    #[inline]
    pub fn push(&mut self, packet: Mbuf) -> Result<(), Mbuf> {
        let raw = packet.into_raw();
        let object: *mut c_void = raw.as_ptr().cast();
        // SAFETY: one valid packet, the only producer, and the ring exists.
        let put = unsafe { sys::shim_ring_sp_enqueue_burst(self.0.raw.as_ptr(), &raw const object, 1) };
        if put == 1 {
            return Ok(());
        }
        // SAFETY: the ring did not take it, so it is still ours.
        Err(unsafe { Mbuf::from_raw(raw) })
    }

    /// Packets in the ring, about.
    #[inline]
    pub fn len(&self) -> u32 {
        self.0.len()
    }

    /// Whether it is empty, about.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Packets it can hold.
    pub fn capacity(&self) -> u32 {
        self.0.capacity
    }

    pub(crate) fn raw(&self) -> *mut sys::rte_ring {
        self.0.raw.as_ptr()
    }
}

impl Consumer {
    /// Appends what is there to `burst`, as far as it has room, oldest first.
    #[inline]
    pub fn dequeue<const N: usize>(&mut self, burst: &mut Burst<N>) -> usize {
        let room = c_uint::try_from(burst.room()).unwrap_or(0);
        let objects: *mut *mut c_void = burst.free_raw().cast();
        // SAFETY: there is room for `room` pointers, this is the only consumer (taken by `&mut`), and the ring exists.
        let got = unsafe { sys::shim_ring_sc_dequeue_burst(self.0.raw.as_ptr(), objects, room) } as usize;
        // SAFETY: `got` packets were written, which the ring gave up (test: `a_ring_keeps_order_between_threads`).
        unsafe { burst.grown(got) };
        got
    }

    /// Packets in the ring, about.
    #[inline]
    pub fn len(&self) -> u32 {
        self.0.len()
    }

    /// Whether it is empty, about.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Packets it can hold.
    pub fn capacity(&self) -> u32 {
        self.0.capacity
    }

    pub(crate) fn raw(&self) -> *mut sys::rte_ring {
        self.0.raw.as_ptr()
    }
}

impl Ring {
    #[inline]
    fn len(&self) -> u32 {
        // SAFETY: the ring exists as long as self; the count is a snapshot of two indices.
        unsafe { sys::shim_ring_count(self.raw.as_ptr()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        loop {
            let mut object: *mut c_void = core::ptr::null_mut();
            // SAFETY: both halves are gone, so this is the only consumer.
            let got = unsafe { sys::shim_ring_sc_dequeue_burst(self.raw.as_ptr(), &raw mut object, 1) };
            let Some(m) = NonNull::new(object.cast()).filter(|_| got == 1) else {
                break;
            };
            // SAFETY: the ring held only packets and gave this one up (test: `packets_left_in_a_ring_are_freed`).
            drop(unsafe { Mbuf::from_raw(m) });
        }
        // SAFETY: nobody has a handle any more.
        unsafe { sys::rte_ring_free(self.raw.as_ptr()) };
    }
}

impl core::fmt::Debug for Ring {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ring")
            .field("len", &self.len())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
