// SPDX-License-Identifier: Apache-2.0
//! What a port is configured with, and what it answers.

use std::ffi::CStr;

use dpdk_sys as sys;

use crate::pool::Mempool;

/// Bytes of a frame beside its payload: Ethernet header and up to three VLAN tags.
const HEADER_BYTES: u32 = 14 + 3 * 4;

/// What a port is configured with.
#[derive(Clone, Debug)]
pub struct PortOptions {
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// Descriptors of an rx queue; adjusted to what the device can.
    pub rx_descriptors: u16,
    /// Descriptors of a tx queue; adjusted to what the device can.
    pub tx_descriptors: u16,
    /// Largest payload of a frame; `None`: as it is.
    pub mtu: Option<u16>,
    /// Whether frames for other MACs are taken too.
    pub promiscuous: bool,
}

impl Default for PortOptions {
    fn default() -> Self {
        Self {
            rx_queues: 1,
            tx_queues: 1,
            rx_descriptors: 1024,
            tx_descriptors: 1024,
            mtu: None,
            promiscuous: true,
        }
    }
}

/// What came of the MTU. A device that cannot set it is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MtuOutcome {
    /// None was asked for.
    Kept,
    /// Set.
    Set(u16),
    /// The driver cannot set one.
    Unsupported,
    /// The driver can, but not this one.
    Refused {
        /// What was asked for.
        wanted: u16,
        /// What the driver said.
        reason: String,
    },
}

/// What a port's configuration came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configured {
    /// Descriptors of an rx queue.
    pub rx_descriptors: u16,
    /// Descriptors of a tx queue.
    pub tx_descriptors: u16,
    /// What came of the MTU.
    pub mtu: MtuOutcome,
    /// Whether it takes frames for other MACs.
    pub promiscuous: bool,
    /// Whether the device spreads flows over its rx queues (RSS on IP addresses).
    pub rss: bool,
    /// Whether it can send frames of several segments.
    pub multi_segment: bool,
}

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Whether frames can pass.
    pub up: bool,
    /// Speed, where the driver knows it. Virtual devices tell a made-up one.
    pub speed_bps: Option<u64>,
}

/// A port's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames received.
    pub ipackets: u64,
    /// Frames sent.
    pub opackets: u64,
    /// Bytes received.
    pub ibytes: u64,
    /// Bytes sent.
    pub obytes: u64,
    /// Frames lost because rx descriptors ran out.
    pub imissed: u64,
    /// Broken frames received.
    pub ierrors: u64,
    /// Frames the driver took and could not send.
    pub oerrors: u64,
    /// Frames lost because the pool was dry.
    pub rx_nombuf: u64,
}

impl From<&sys::rte_eth_stats> for PortStats {
    fn from(s: &sys::rte_eth_stats) -> Self {
        Self {
            ipackets: s.ipackets,
            opackets: s.opackets,
            ibytes: s.ibytes,
            obytes: s.obytes,
            imissed: s.imissed,
            ierrors: s.ierrors,
            oerrors: s.oerrors,
            rx_nombuf: s.rx_nombuf,
        }
    }
}

pub(super) fn driver_name(info: &sys::rte_eth_dev_info) -> String {
    if info.driver_name.is_null() {
        return String::new();
    }
    // SAFETY: a driver's name is a static string that ends in 0.
    unsafe { CStr::from_ptr(info.driver_name) }.to_string_lossy().into_owned()
}

/// DPDK's configuration, and whether it has RSS.
pub(super) fn device_conf(
    options: &PortOptions,
    pools: &[Mempool],
    info: &sys::rte_eth_dev_info,
) -> (sys::rte_eth_conf, bool) {
    let mut conf = sys::rte_eth_conf::default();
    // IP addresses only: fragments, which have no ports, stay with their flow.
    let hash = info.flow_type_rss_offloads & sys::K_RSS_IP;
    let rss = options.rx_queues > 1 && hash != 0;
    if rss {
        conf.rxmode.mq_mode = sys::K_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = hash;
    }
    let room = pools.iter().map(|p| u32::from(p.data_room())).min().unwrap_or(0);
    let frame = u32::from(options.mtu.unwrap_or(1500)) + HEADER_BYTES;
    if frame + sys::K_PKTMBUF_HEADROOM > room {
        // Frames longer than a buffer come in several segments.
        conf.rxmode.offloads |= info.rx_offload_capa & sys::K_RX_OFFLOAD_SCATTER;
    }
    conf.txmode.offloads = info.tx_offload_capa & sys::K_TX_OFFLOAD_MULTI_SEGS;
    (conf, rss)
}
