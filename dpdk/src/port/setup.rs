// SPDX-License-Identifier: Apache-2.0
//! Configuring a port: queues, descriptors, MTU, promiscuous mode.
//!
//! Invariant: a port counts as configured only when every step has been taken; the pools it was given are held until
//! it is closed, since the driver keeps pointers to them.

use core::ffi::c_uint;

use dpdk_sys as sys;

use super::{Configured, MtuOutcome, Port, PortOptions, State, options, reason};
use crate::eal::mark;
use crate::error::PortError;
use crate::pool::Mempool;

impl Port {
    /// Sets the numbers of queues and descriptors, the MTU and promiscuous mode. `pools` is one pool for all rx
    /// queues or one for each. May be called again while the port is stopped.
    ///
    /// # Errors
    ///
    /// When the device has fewer queues or the driver refuses.
    pub fn configure(&mut self, options: &PortOptions, pools: &[Mempool]) -> Result<Configured, PortError> {
        if self.state == State::Started {
            return Err(self.wrong_state("configured"));
        }
        self.log_mark = mark();
        let info = self.info()?;
        self.check_queues(options, pools, &info)?;
        let (mut conf, rss) = options::device_conf(options, pools, &info);
        // SAFETY: the port exists, and `conf` lives through the call, which copies it.
        let result = unsafe {
            sys::rte_eth_dev_configure(self.id, options.rx_queues, options.tx_queues, &raw mut conf)
        };
        self.accept(result, "take its configuration")?;
        let mtu = self.set_mtu(options.mtu);
        let (mut rx_descriptors, mut tx_descriptors) = (options.rx_descriptors, options.tx_descriptors);
        // SAFETY: the port exists, and both numbers live through the call.
        let result = unsafe {
            sys::rte_eth_dev_adjust_nb_rx_tx_desc(self.id, &raw mut rx_descriptors, &raw mut tx_descriptors)
        };
        self.accept(result, "take its numbers of descriptors")?;
        self.pools = pools.to_vec();
        self.set_up_queues(options, (rx_descriptors, tx_descriptors))?;
        let promiscuous = options.promiscuous && self.make_promiscuous();
        self.rx_queues = options.rx_queues;
        self.tx_queues = options.tx_queues;
        self.state = State::Configured;
        let multi_segment = info.tx_offload_capa & sys::K_TX_OFFLOAD_MULTI_SEGS != 0;
        Ok(Configured { rx_descriptors, tx_descriptors, mtu, promiscuous, rss, multi_segment })
    }

    fn check_queues(
        &self,
        options: &PortOptions,
        pools: &[Mempool],
        info: &sys::rte_eth_dev_info,
    ) -> Result<(), PortError> {
        let device = || self.device.clone();
        if options.rx_queues == 0 || options.tx_queues == 0 {
            return Err(PortError::NoQueues { device: device() });
        }
        let ways =
            [("rx", options.rx_queues, info.max_rx_queues), ("tx", options.tx_queues, info.max_tx_queues)];
        for (way, wants, has) in ways {
            if wants > has {
                return Err(PortError::TooFewQueues {
                    device: device(),
                    driver: self.driver.clone(),
                    way,
                    wants,
                    has,
                });
            }
        }
        if pools.len() != 1 && pools.len() != usize::from(options.rx_queues) {
            return Err(PortError::Pools { device: device(), queues: options.rx_queues, pools: pools.len() });
        }
        Ok(())
    }

    fn set_mtu(&self, mtu: Option<u16>) -> MtuOutcome {
        let Some(mtu) = mtu else { return MtuOutcome::Kept };
        // SAFETY: the port exists.
        match unsafe { sys::rte_eth_dev_set_mtu(self.id, mtu) } {
            0 => MtuOutcome::Set(mtu),
            error if error == -libc::ENOTSUP => MtuOutcome::Unsupported,
            error => MtuOutcome::Refused { wanted: mtu, reason: reason(error) },
        }
    }

    fn set_up_queues(&self, options: &PortOptions, descriptors: (u16, u16)) -> Result<(), PortError> {
        let socket = self.socket().unwrap_or(c_uint::MAX);
        for queue in 0..options.rx_queues {
            let pool = self.pools.get(usize::from(queue)).or_else(|| self.pools.first());
            let pool = pool.map_or(core::ptr::null_mut(), Mempool::raw);
            // SAFETY: the port is configured with this queue, null asks for the driver's own settings, and the port
            // holds the pool until it is closed.
            let result = unsafe {
                sys::rte_eth_rx_queue_setup(self.id, queue, descriptors.0, socket, core::ptr::null(), pool)
            };
            self.accept(result, "set up an rx queue")?;
        }
        for queue in 0..options.tx_queues {
            // SAFETY: as above.
            let result = unsafe {
                sys::rte_eth_tx_queue_setup(self.id, queue, descriptors.1, socket, core::ptr::null())
            };
            self.accept(result, "set up a tx queue")?;
        }
        Ok(())
    }

    fn make_promiscuous(&self) -> bool {
        // SAFETY: the port exists.
        let result = unsafe { sys::rte_eth_promiscuous_enable(self.id) };
        result == 0
    }
}
