// SPDX-License-Identifier: Apache-2.0
//! `struct rte_mbuf` as Rust sees it.
//!
//! Why not bindgen's: its anonymous unions are named by position and were regrouped between DPDK 22.11 and
//! 24.11, while the offsets are the same. Invariant: every field lies where the C compiler puts it, which the
//! assertions below check at compile time against the installed headers.

use core::ffi::c_void;
use core::mem::{offset_of, size_of};

use crate::bindings as sys;

/// The first cache line, and `next` of the second. Field docs say what Sluice uses a field for.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Mbuf {
    /// Start of the buffer.
    pub buf_addr: *mut u8,
    /// Its I/O address.
    pub buf_iova: u64,
    /// Where the frame begins in the buffer.
    pub data_off: u16,
    /// References; 1 for every mbuf that Sluice holds.
    pub refcnt: u16,
    /// Segments of the frame.
    pub nb_segs: u16,
    /// Port it came from.
    pub port: u16,
    /// Offload flags.
    pub ol_flags: u64,
    /// Set by RX; free for use between RX and TX.
    pub packet_type: u32,
    /// Length of the frame over all segments.
    pub pkt_len: u32,
    /// Length of this segment.
    pub data_len: u16,
    /// VLAN tag, where a flag says so.
    pub vlan_tci: u16,
    /// RSS hash; free for use between RX and TX. 8 bytes that are only aligned to 4.
    pub hash: [u32; 2],
    /// Outer VLAN tag, where a flag says so; free for use between RX and TX.
    pub vlan_tci_outer: u16,
    /// Length of the buffer.
    pub buf_len: u16,
    /// Pool it goes back to.
    pub pool: *mut c_void,
    /// Next segment; the second cache line begins here.
    pub next: *mut Mbuf,
    rest: [u64; 7],
}

macro_rules! same_place {
    ($($field:ident is $offset:ident),* $(,)?) => {
        $(const _: () = assert!(offset_of!(Mbuf, $field) as u64 == sys::$offset as u64);)*
    };
}
same_place! {
    buf_addr is K_MBUF_BUF_ADDR,
    data_off is K_MBUF_DATA_OFF,
    refcnt is K_MBUF_REFCNT,
    nb_segs is K_MBUF_NB_SEGS,
    port is K_MBUF_PORT,
    ol_flags is K_MBUF_OL_FLAGS,
    packet_type is K_MBUF_PACKET_TYPE,
    pkt_len is K_MBUF_PKT_LEN,
    data_len is K_MBUF_DATA_LEN,
    vlan_tci is K_MBUF_VLAN_TCI,
    hash is K_MBUF_HASH,
    vlan_tci_outer is K_MBUF_VLAN_TCI_OUTER,
    buf_len is K_MBUF_BUF_LEN,
    pool is K_MBUF_POOL,
    next is K_MBUF_NEXT,
}
const _: () = assert!(size_of::<Mbuf>() as u64 == sys::K_MBUF_SIZE as u64);
const _: () = assert!(sys::K_MBUF_HASH_SIZE == 8);
