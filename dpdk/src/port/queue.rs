// SPDX-License-Identifier: Apache-2.0
//! Receiving and sending bursts.
//!
//! The drivers' functions are called straight from `rte_eth_fp_ops`, as C's inlines do, callbacks included (so
//! dpdk-pdump sees the packets). Invariant: a handle exists only while its port runs and cannot be copied, so one
//! thread at a time uses a queue and the driver's data behind it is valid.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;

use dpdk_sys as sys;

use crate::burst::Burst;
use crate::mbuf::Mbuf;

/// Its clones count the queue handles that are out.
#[derive(Debug)]
pub(super) struct Lease;

/// The queues of a started port.
#[derive(Debug)]
pub struct Queues {
    /// Receive queues, 0 first.
    pub rx: Vec<RxQueue>,
    /// Transmit queues, 0 first.
    pub tx: Vec<TxQueue>,
}

#[derive(Debug)]
struct Handle {
    /// The port's entry in DPDK's static array.
    ops: *const sys::rte_eth_fp_ops,
    port: u16,
    queue: u16,
    _lease: Arc<Lease>,
}

// SAFETY: a queue may be used by any thread, one at a time (`&mut`); `ops` points into a static array.
unsafe impl Send for Handle {}

impl Handle {
    /// A copy of the port's functions, as they are now: a driver may change them at any time.
    #[inline]
    fn ops(&self) -> sys::rte_eth_fp_ops {
        // SAFETY: the entry of a started port in a static array. Only pointers are copied, each of which DPDK changes
        // by one store, as C's inlines rely on too (test: `a_null_port_delivers_and_takes`).
        unsafe { self.ops.read() }
    }
}

/// A receive queue.
#[derive(Debug)]
pub struct RxQueue(Handle);

/// A transmit queue.
#[derive(Debug)]
pub struct TxQueue(Handle);

pub(super) fn hand_out(port: u16, rx: u16, tx: u16, lease: &Arc<Lease>) -> Queues {
    let ops = (&raw mut sys::rte_eth_fp_ops).cast::<sys::rte_eth_fp_ops>().wrapping_add(usize::from(port));
    let handle = |queue| Handle { ops, port, queue, _lease: Arc::clone(lease) };
    Queues {
        rx: (0..rx).map(|queue| RxQueue(handle(queue))).collect(),
        tx: (0..tx).map(|queue| TxQueue(handle(queue))).collect(),
    }
}

/// Entry `queue` of one of the arrays of pointers in `rte_eth_fp_ops`.
///
/// # Safety
///
/// `array` has an entry for the queue.
#[inline]
unsafe fn entry(array: *mut *mut c_void, queue: u16) -> *mut c_void {
    let place = array.wrapping_add(usize::from(queue));
    // SAFETY: as the function demands; the pointers are aligned. Callbacks change while we look, hence atomically.
    let place = unsafe { AtomicPtr::from_ptr(place) };
    place.load(Ordering::Relaxed)
}

impl RxQueue {
    /// Appends what has arrived to `burst`, as far as it has room, and says how many.
    #[inline]
    pub fn burst<const N: usize>(&mut self, burst: &mut Burst<N>) -> usize {
        let room = u16::try_from(burst.room()).unwrap_or(u16::MAX);
        let packets: *mut *mut sys::rte_mbuf = burst.free_raw().cast();
        let (port, queue) = (self.0.port, self.0.queue);
        let ops = self.0.ops();
        let (receive, data, callbacks) = (ops.rx_pkt_burst, ops.rxq.data, ops.rxq.clbk);
        let Some(receive) = receive else { return 0 };
        // SAFETY: a started port has one entry of data a queue.
        let data = unsafe { entry(data, queue) };
        // SAFETY: the driver's function with its own data; there is room for `room` pointers; this is the only user
        // of the queue (`&mut`) (test: `a_null_port_delivers_and_takes`).
        let mut got = unsafe { receive(data, packets, room) };
        // SAFETY: as for the data.
        let callback = unsafe { entry(callbacks.cast(), queue) };
        if !callback.is_null() {
            // SAFETY: DPDK's own list of callbacks, called as C's inline does.
            got = unsafe { sys::rte_eth_call_rx_callbacks(port, queue, packets, got, room, callback) };
        }
        // SAFETY: the driver wrote `got` <= `room` packets, which are now ours.
        unsafe { burst.grown(usize::from(got)) };
        usize::from(got)
    }

    /// Its number within the port.
    pub fn index(&self) -> u16 {
        self.0.queue
    }
}

impl TxQueue {
    /// Gives the driver as many packets as it takes, first to last, and says how many; the others stay in `burst`, at
    /// its front.
    #[inline]
    pub fn burst<const N: usize>(&mut self, burst: &mut Burst<N>) -> usize {
        let mut count = u16::try_from(burst.len()).unwrap_or(u16::MAX);
        let packets: *mut *mut sys::rte_mbuf = burst.as_raw().cast();
        let (port, queue) = (self.0.port, self.0.queue);
        let ops = self.0.ops();
        let (transmit, data, callbacks) = (ops.tx_pkt_burst, ops.txq.data, ops.txq.clbk);
        let Some(transmit) = transmit else { return 0 };
        // SAFETY: a started port has one entry of data a queue.
        let callback = unsafe { entry(callbacks.cast(), queue) };
        if !callback.is_null() {
            // SAFETY: DPDK's own list of callbacks, called as C's inline does; it may free packets and close the gap.
            count = unsafe { sys::rte_eth_call_tx_callbacks(port, queue, packets, count, callback) };
            // SAFETY: the first `count` places hold packets, what followed was freed by the callback.
            unsafe { burst.set_len(usize::from(count)) };
        }
        // SAFETY: as for the callback.
        let data = unsafe { entry(data, queue) };
        // SAFETY: the driver's function with its own data and `count` packets of ours; this is the only user of the
        // queue (`&mut`) (test: `a_null_port_delivers_and_takes`).
        let sent = usize::from(unsafe { transmit(data, packets, count) });
        // SAFETY: the driver has taken over exactly the first `sent` packets.
        unsafe { burst.forget_front(sent) };
        sent
    }

    /// Sends one packet.
    ///
    /// # Errors
    ///
    /// Gives it back when the driver does not take it.
    pub fn send(&mut self, packet: Mbuf) -> Result<(), Mbuf> {
        let mut burst = Burst::<1>::new();
        burst.push(packet)?;
        self.burst(&mut burst);
        burst.pop().map_or(Ok(()), Err)
    }

    /// Its number within the port.
    pub fn index(&self) -> u16 {
        self.0.queue
    }
}
