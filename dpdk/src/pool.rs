// SPDX-License-Identifier: Apache-2.0
//! Pools of packet buffers.
//!
//! Invariant: every mbuf of a pool lies in the window of `window`, and the pool's memory outlives each of them: it
//! is given back only when all its mbufs are home, else it stays until the process ends.

use core::ffi::{c_uint, c_void};
use core::ptr::NonNull;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dpdk_sys as sys;

use crate::burst::Burst;
use crate::eal::{Eal, Shared};
use crate::error::PoolError;
use crate::mbuf::Mbuf;
use crate::window;

/// Longest name a pool may have (`RTE_MEMPOOL_NAMESIZE` less the terminating 0).
const NAME_BYTES: usize = 25;
/// What a buffer takes beside its data: `rte_mbuf` and the pool's own header and trailer, rounded up.
const OVERHEAD_BYTES: u64 = 128 + 64 + 64;

/// What a pool is made of.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Unique in the process, at most 25 bytes.
    pub name: String,
    /// Buffers.
    pub buffers: u32,
    /// Buffers that each lcore keeps to itself: at most 512 and two thirds of all.
    pub cache: u32,
    /// Bytes of a buffer, the headroom of 128 included.
    pub data_room: u16,
    /// NUMA node; `None`: any.
    pub socket: Option<u32>,
}

impl PoolOptions {
    /// Memory it takes, in bytes, a little more than exactly.
    pub fn memory_bytes(&self) -> u64 {
        u64::from(self.buffers) * (u64::from(self.data_room).next_multiple_of(64) + OVERHEAD_BYTES)
    }
}

/// A pool; clones are the same pool.
#[derive(Clone)]
pub struct Mempool(Arc<Pool>);

struct Pool {
    raw: NonNull<sys::rte_mempool>,
    options: PoolOptions,
    eal: Arc<Shared>,
}

// SAFETY: a pool with DPDK's default (multi-producer, multi-consumer) ring may be used from any thread; the caches
// belong to lcores (test: `mbufs_freed_by_another_thread_return_to_the_pool`).
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Mempool {
    /// Makes a pool.
    ///
    /// # Errors
    ///
    /// When the options make no sense or there is not enough memory.
    pub fn create(eal: &Eal, options: &PoolOptions) -> Result<Self, PoolError> {
        check(options)?;
        let name = CString::new(options.name.as_str())
            .map_err(|_| PoolError::Name { name: options.name.clone() })?;
        let socket = options.socket.and_then(|s| i32::try_from(s).ok()).unwrap_or(sys::K_SOCKET_ID_ANY);
        // SAFETY: EAL is initialised (we hold it), and the name lives through the call, which copies it.
        let raw = unsafe {
            sys::rte_pktmbuf_pool_create(
                name.as_ptr(),
                options.buffers,
                options.cache,
                0,
                options.data_room,
                socket,
            )
        };
        let Some(raw) = NonNull::new(raw) else {
            return Err(refused(options));
        };
        let pool = Self(Arc::new(Pool { raw, options: options.clone(), eal: eal.shared() }));
        pool.check_window()?;
        Ok(pool)
    }

    /// One empty packet; `None` when the pool is dry.
    #[inline]
    pub fn alloc(&self) -> Option<Mbuf> {
        // SAFETY: the pool exists as long as self.
        let m = unsafe { sys::shim_pktmbuf_alloc(self.0.raw.as_ptr()) };
        // SAFETY: a fresh mbuf of this pool, whose mbufs were all checked, belongs to the caller
        // (test: `dropping_an_mbuf_returns_it_to_its_pool`).
        NonNull::new(m.cast()).map(|m| unsafe { Mbuf::from_raw(m) })
    }

    /// Appends `count` empty packets to `burst`; false, and none, when the pool has not so many or the burst has not
    /// that much room.
    #[inline]
    pub fn alloc_bulk<const N: usize>(&self, burst: &mut Burst<N>, count: usize) -> bool {
        if count > burst.room() {
            return false;
        }
        let wanted = c_uint::try_from(count).unwrap_or(0);
        // SAFETY: there is room for `count` pointers at `free_raw`, and the pool exists as long as self.
        let result =
            unsafe { sys::shim_pktmbuf_alloc_bulk(self.0.raw.as_ptr(), burst.free_raw().cast(), wanted) };
        if result != 0 {
            return false;
        }
        // SAFETY: all or nothing: `count` packets were written (test: `bulk_allocation_is_all_or_nothing`).
        unsafe { burst.grown(count) };
        true
    }

    /// Buffers in all.
    pub fn buffers(&self) -> u32 {
        self.0.options.buffers
    }

    /// Bytes of one buffer, the headroom included.
    pub fn data_room(&self) -> u16 {
        self.0.options.data_room
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.options.name
    }

    /// Buffers at home, those in lcores' caches included. Walks the caches: for metrics, not for packets.
    pub fn available(&self) -> u32 {
        self.0.available()
    }

    /// Buffers out.
    pub fn in_use(&self) -> u32 {
        self.buffers().saturating_sub(self.available())
    }

    pub(crate) fn raw(&self) -> *mut sys::rte_mempool {
        self.0.raw.as_ptr()
    }

    /// Checks each mbuf's address, having fixed the window by the first.
    fn check_window(&self) -> Result<(), PoolError> {
        let mut outside: Option<u64> = None;
        let state: *mut Option<u64> = &raw mut outside;
        // SAFETY: the callback has the type that DPDK asks for and `state` lives through the call.
        unsafe { sys::rte_mempool_obj_iter(self.raw(), Some(check_mbuf), state.cast()) };
        match outside {
            None => Ok(()),
            Some(address) => Err(PoolError::Window { name: self.0.options.name.clone(), address }),
        }
    }
}

/// Notes an address that cannot be compressed.
unsafe extern "C" fn check_mbuf(
    _: *mut sys::rte_mempool,
    state: *mut c_void,
    object: *mut c_void,
    _: c_uint,
) {
    let address = object.addr() as u64;
    window::settle(address);
    if !window::holds(address) {
        // SAFETY: `state` is the Option that `check_window` passed, which nobody else holds meanwhile.
        unsafe { *state.cast::<Option<u64>>() = Some(address) };
    }
}

fn check(options: &PoolOptions) -> Result<(), PoolError> {
    let name = || options.name.clone();
    if options.name.is_empty() || options.name.len() > NAME_BYTES {
        return Err(PoolError::Name { name: name() });
    }
    if options.buffers == 0 {
        return Err(PoolError::Empty { name: name() });
    }
    let most = sys::K_MEMPOOL_CACHE_MAX_SIZE.min(options.buffers / 3 * 2);
    if options.cache > most {
        return Err(PoolError::Cache { name: name(), cache: options.cache, most });
    }
    if u32::from(options.data_room) <= sys::K_PKTMBUF_HEADROOM {
        return Err(PoolError::DataRoom {
            name: name(),
            bytes: options.data_room,
            headroom: sys::K_PKTMBUF_HEADROOM,
        });
    }
    Ok(())
}

fn refused(options: &PoolOptions) -> PoolError {
    let name = options.name.clone();
    match Eal::errno() {
        libc::EEXIST => PoolError::Exists { name },
        // the second where the heap is there but too broken up
        libc::ENOMEM | libc::ENOBUFS => PoolError::Memory {
            name,
            buffers: options.buffers,
            mb: options.memory_bytes().div_ceil(1 << 20),
            socket: options.socket,
        },
        errno => PoolError::Refused { name, reason: std::io::Error::from_raw_os_error(errno).to_string() },
    }
}

impl Pool {
    fn available(&self) -> u32 {
        // SAFETY: the pool exists as long as self.
        unsafe { sys::rte_mempool_avail_count(self.raw.as_ptr()) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.available() == self.options.buffers {
            // SAFETY: all mbufs are home and nobody can take one: this was the last handle, and ports hold one
            // (test: `a_pool_with_mbufs_out_is_not_freed`).
            unsafe { sys::rte_mempool_free(self.raw.as_ptr()) };
        } else {
            // Mbufs are still out: their memory must stay.
            self.eal.keep_memory.store(true, Ordering::Relaxed);
        }
    }
}

impl core::fmt::Debug for Mempool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Mempool").field(&self.0.options).finish()
    }
}
