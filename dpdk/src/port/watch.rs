// SPDX-License-Identifier: Apache-2.0
//! Watching a port: link, counters, what it is. All of it may be asked while other threads use its queues.

use core::mem::MaybeUninit;
use std::sync::{MutexGuard, PoisonError};

use dpdk_sys as sys;

use super::interface::Interface;
use super::{Link, Port, PortStats, State};
use crate::error::PortError;

impl Port {
    fn ask(&self) -> MutexGuard<'_, ()> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the link administratively up or down, where the driver can; queues may be polled meanwhile.
    ///
    /// # Errors
    ///
    /// When the driver cannot or refuses.
    pub fn set_link(&self, up: bool) -> Result<(), PortError> {
        let change = if up { sys::rte_eth_dev_set_link_up } else { sys::rte_eth_dev_set_link_down };
        let _alone = self.ask();
        // SAFETY: the port exists, and nobody else asks or tells it anything (`_alone`).
        let result = unsafe { change(self.id) };
        self.accept(result, "change its link")
    }

    /// The link as it is now, without waiting. The state of an af_packet port is its interface's.
    pub fn link(&self) -> Link {
        let (mut mbps, mut up) = (0_u32, 0_i32);
        let _alone = self.ask();
        // SAFETY: the port exists, nobody else asks it (`_alone`), and both places live through the call.
        let result = unsafe { sys::shim_link_get(self.id, &raw mut mbps, &raw mut up) };
        let known = result == 0 && mbps != 0 && mbps != sys::K_LINK_SPEED_UNKNOWN;
        let driver_up = result == 0 && up != 0;
        let started = self.state == State::Started;
        Link {
            // Either the driver never says "down" (22.11) or a second late (24.11).
            up: self.interface.as_ref().map_or(driver_up, |interface| started && interface.is_running()),
            speed_bps: known.then(|| u64::from(mbps) * 1_000_000),
        }
    }

    /// Counters since the device was started.
    pub fn stats(&self) -> PortStats {
        let mut stats = MaybeUninit::<sys::rte_eth_stats>::zeroed();
        let _alone = self.ask();
        // SAFETY: the port exists, nobody else asks it (`_alone`), and `stats` has room for the answer. A driver
        // without counters leaves zeroes.
        let _ = unsafe { sys::rte_eth_stats_get(self.id, stats.as_mut_ptr()) };
        // SAFETY: integers only, all zeroed before.
        let mut stats = PortStats::from(unsafe { stats.assume_init_ref() });
        stats.imissed += self.interface.as_ref().map_or(0, Interface::missed);
        stats
    }

    /// The device's name, as given but without arguments.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The driver's name.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// DPDK's number of it, as in [`Mbuf::port`](crate::Mbuf::port).
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Most rx and tx queues it can have.
    pub fn max_queues(&self) -> (u16, u16) {
        self.info().map_or((0, 0), |info| (info.max_rx_queues, info.max_tx_queues))
    }

    /// NUMA node, if it is on one.
    pub fn socket(&self) -> Option<u32> {
        // SAFETY: the port exists.
        u32::try_from(unsafe { sys::rte_eth_dev_socket_id(self.id) }).ok()
    }

    /// Its MAC address.
    pub fn mac(&self) -> [u8; 6] {
        let mut mac = sys::rte_ether_addr::default();
        // SAFETY: the port exists, and `mac` has room for the answer.
        let _ = unsafe { sys::rte_eth_macaddr_get(self.id, &raw mut mac) };
        mac.addr_bytes
    }

    /// Its MTU.
    pub fn mtu(&self) -> Option<u16> {
        let mut mtu = 0;
        // SAFETY: the port exists, and `mtu` has room for the answer.
        let result = unsafe { sys::rte_eth_dev_get_mtu(self.id, &raw mut mtu) };
        (result == 0).then_some(mtu)
    }
}
