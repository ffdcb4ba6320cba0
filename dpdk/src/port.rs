// SPDX-License-Identifier: Apache-2.0
//! Ports: opening, configuring, starting, stopping, watching.
//!
//! Invariant: queue handles exist only between `start` and `stop`, and `stop` is refused while one is out, so nobody
//! polls a queue whose memory the driver may free. A port holds its pools and, for a port made of rings, their
//! halves. RX offloads are off (no LRO, no VLAN strip); a frame may have several segments where the driver can send
//! such.

mod interface;
mod options;
mod queue;
mod setup;
mod watch;

use core::ffi::c_uint;
use core::mem::MaybeUninit;
use std::ffi::CString;
use std::sync::{Arc, Mutex};

use dpdk_sys as sys;

use crate::eal::{Eal, Shared, log_tail, mark, name_of, pci_address, since};
use crate::error::PortError;
use crate::pool::Mempool;
use crate::ring::{Consumer, Producer};
use interface::Interface;
use queue::Lease;

pub use options::{Configured, Link, MtuOutcome, PortOptions, PortStats};
pub use queue::{Queues, RxQueue, TxQueue};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Opened,
    Configured,
    Started,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Opened => "not configured",
            Self::Configured => "stopped",
            Self::Started => "running",
        }
    }
}

/// A port of ours.
#[derive(Debug)]
pub struct Port {
    id: u16,
    device: String,
    driver: String,
    state: State,
    rx_queues: u16,
    tx_queues: u16,
    /// Where EAL's log stood when the last step began.
    log_mark: usize,
    /// One clone for each queue handle that is out.
    lease: Arc<Lease>,
    /// One at a time asks the driver about the port: DPDK promises no more of its control functions.
    asking: Mutex<()>,
    /// The network interface below an af_packet port, whose driver does not know the link's state.
    interface: Option<Interface>,
    // What must outlive the driver's port, which `drop` closes first.
    pools: Vec<Mempool>,
    rings: (Vec<Consumer>, Vec<Producer>),
    eal: Arc<Shared>,
}

impl Port {
    /// The port of a device that EAL was started with: a vdev (arguments after a comma are ignored) or a PCI address.
    ///
    /// # Errors
    ///
    /// When EAL has no such port.
    pub fn open(eal: &Eal, device: &str) -> Result<Self, PortError> {
        let name = name_of(device);
        let id = find(name).or_else(|| find(&pci_address(name)));
        let id = id.ok_or_else(|| not_found(name, &log_tail()))?;
        let mut port = Self::with_id(eal, name, id, (Vec::new(), Vec::new()))?;
        if port.driver == "net_af_packet" {
            port.interface = crate::eal::argument(device, "iface").and_then(Interface::open);
        }
        Ok(port)
    }

    /// A port whose rx queues are what is put into the rings of `rx`, and whose tx queues put into those of `tx`
    /// (net_ring). Packets are handed over, never copied.
    ///
    /// # Errors
    ///
    /// When there is no queue in one direction, or the name is taken.
    pub fn from_rings(
        eal: &Eal,
        name: &str,
        rx: Vec<Consumer>,
        tx: Vec<Producer>,
    ) -> Result<Self, PortError> {
        if rx.is_empty() || tx.is_empty() {
            return Err(PortError::NoQueues { device: name.to_owned() });
        }
        let failed = |reason: String| PortError::NotFound { device: name.to_owned(), reason };
        let c_name = CString::new(name).map_err(|_| failed("its name contains a 0".to_owned()))?;
        let rx_raw: Vec<*mut sys::rte_ring> = rx.iter().map(Consumer::raw).collect();
        let tx_raw: Vec<*mut sys::rte_ring> = tx.iter().map(Producer::raw).collect();
        let (rx_count, tx_count) = (count(rx_raw.len()), count(tx_raw.len()));
        // SAFETY: EAL runs; both arrays are as long as stated and live through the call, which copies them; the rings
        // live as long as the port, which holds their halves (test: `a_ring_port_hands_packets_over`).
        let id = unsafe {
            sys::rte_eth_from_rings(c_name.as_ptr(), rx_raw.as_ptr(), rx_count, tx_raw.as_ptr(), tx_count, 0)
        };
        let Ok(id) = u16::try_from(id) else {
            return Err(failed(std::io::Error::from_raw_os_error(Eal::errno()).to_string()));
        };
        Self::with_id(eal, name, id, (rx, tx))
    }

    fn with_id(
        eal: &Eal,
        device: &str,
        id: u16,
        rings: (Vec<Consumer>, Vec<Producer>),
    ) -> Result<Self, PortError> {
        let mut port = Self {
            id,
            device: device.to_owned(),
            driver: String::new(),
            state: State::Opened,
            rx_queues: 0,
            tx_queues: 0,
            log_mark: mark(),
            lease: Arc::new(Lease),
            asking: Mutex::new(()),
            interface: None,
            pools: Vec::new(),
            rings,
            eal: eal.shared(),
        };
        port.driver = options::driver_name(&port.info()?);
        Ok(port)
    }

    fn info(&self) -> Result<sys::rte_eth_dev_info, PortError> {
        let mut info = MaybeUninit::<sys::rte_eth_dev_info>::zeroed();
        // SAFETY: the port exists as long as self, and `info` has room for the answer.
        let result = unsafe { sys::rte_eth_dev_info_get(self.id, info.as_mut_ptr()) };
        self.accept(result, "describe itself")?;
        // SAFETY: zeroes are a valid value of this plain C structure, and DPDK has filled it in.
        Ok(unsafe { info.assume_init() })
    }

    /// Starts the port and hands out its queues.
    ///
    /// # Errors
    ///
    /// When it is not configured, runs already, or the driver refuses.
    pub fn start(&mut self) -> Result<Queues, PortError> {
        if self.state != State::Configured {
            return Err(self.wrong_state("started"));
        }
        self.log_mark = mark();
        // SAFETY: the port is configured and its queues are set up.
        let result = unsafe { sys::rte_eth_dev_start(self.id) };
        self.accept(result, "start")?;
        self.state = State::Started;
        Ok(queue::hand_out(self.id, self.rx_queues, self.tx_queues, &self.lease))
    }

    /// Stops the port; its queue handles must all be gone. What the driver holds of packets is freed by it.
    ///
    /// # Errors
    ///
    /// When it does not run, queue handles are out, or the driver refuses.
    pub fn stop(&mut self) -> Result<(), PortError> {
        if self.state != State::Started {
            return Err(self.wrong_state("stopped"));
        }
        let queues = Arc::strong_count(&self.lease) - 1;
        if queues > 0 {
            return Err(PortError::QueuesInUse { device: self.device.clone(), queues });
        }
        self.log_mark = mark();
        // SAFETY: the port runs and nobody polls it.
        let result = unsafe { sys::rte_eth_dev_stop(self.id) };
        self.accept(result, "stop")?;
        self.state = State::Configured;
        Ok(())
    }

    fn accept(&self, result: i32, step: &'static str) -> Result<(), PortError> {
        if result >= 0 {
            return Ok(());
        }
        let (device, driver) = (self.device.clone(), self.driver.clone());
        let mut reason = reason(result);
        if let Some(line) = since(self.log_mark).last() {
            reason = format!("{reason}; it said \"{}\"", without_function(line));
        }
        Err(PortError::Refused { device, driver, step, reason })
    }

    fn wrong_state(&self, action: &'static str) -> PortError {
        PortError::State { device: self.device.clone(), action, state: self.state.name() }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if Arc::strong_count(&self.lease) > 1 {
            // Somebody still polls: the port and its pools stay as they are until the process ends.
            self.eal.keep_memory.store(true, std::sync::atomic::Ordering::Relaxed);
            std::mem::forget((std::mem::take(&mut self.pools), std::mem::take(&mut self.rings)));
            return;
        }
        if self.state == State::Started {
            // SAFETY: the port runs and nobody polls it.
            let _ = unsafe { sys::rte_eth_dev_stop(self.id) };
        }
        // SAFETY: the port is stopped and nobody uses its number any more; pools and rings are dropped after this.
        let _ = unsafe { sys::rte_eth_dev_close(self.id) };
    }
}

fn find(name: &str) -> Option<u16> {
    let name = CString::new(name).ok()?;
    let mut id = 0;
    // SAFETY: EAL runs (callers hold it), the name ends in 0, and `id` has room for the answer.
    let result = unsafe { sys::rte_eth_dev_get_port_by_name(name.as_ptr(), &raw mut id) };
    (result == 0).then_some(id)
}

/// Why EAL has no such port: what its driver said in the log before it gave up, if anything.
fn not_found(name: &str, log: &[String]) -> PortError {
    let device = name.to_owned();
    let gave_up = format!("failed to initialize {name} device");
    let of_driver = |line: &&String| {
        // Drivers also say that they cannot serve other processes, which nobody asked for.
        !line.starts_with("EAL:") && !line.contains("vdev_probe()") && !line.contains("mp action")
    };
    let mut said: Vec<&str> = match log.iter().position(|line| line.contains(&gave_up)) {
        Some(end) => log
            .iter()
            .take(end)
            .rev()
            .take_while(of_driver)
            .take(2)
            .map(|line| without_function(line))
            .collect(),
        None => log.iter().rev().find(|line| line.contains(name)).map(String::as_str).into_iter().collect(),
    };
    said.reverse();
    if said.iter().any(|line| line.contains("PACKET_FANOUT")) {
        return PortError::FanoutTaken { device };
    }
    let reason = if said.is_empty() {
        "it was not among the devices given at start, or no DPDK driver took it".to_owned()
    } else {
        format!("its driver said \"{}\"", said.join("; "))
    };
    PortError::NotFound { device, reason: format!("{reason}; check `device`") }
}

/// A log line without the "function(): " that drivers begin with.
fn without_function(line: &str) -> &str {
    line.split_once("(): ").map_or(line, |(_, text)| text)
}

fn reason(error: i32) -> String {
    std::io::Error::from_raw_os_error(error.saturating_neg()).to_string()
}

fn count(len: usize) -> c_uint {
    c_uint::try_from(len).unwrap_or(c_uint::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(log: &[&str]) -> String {
        let log: Vec<String> = log.iter().map(|line| (*line).to_owned()).collect();
        not_found("net_tap1", &log).to_string()
    }

    #[test]
    fn what_a_driver_said_before_it_gave_up_is_quoted() {
        let log = [
            "EAL: Selected IOVA mode 'VA'",
            "set_interface_name(): TAP invalid remote interface name (x)",
            "rte_pmd_tap_probe(): Failed to create pmd for net_tap1 as dtap%d",
            "vdev_probe(): failed to initialize net_tap1 device",
            "EAL: Bus (vdev) probe failed.",
        ];
        assert_eq!(
            said(&log),
            "port \"net_tap1\" does not exist: its driver said \"TAP invalid remote interface name (x); Failed to create \
             pmd for net_tap1 as dtap%d\"; check `device`"
        );
    }

    #[test]
    fn what_was_said_of_other_devices_is_not_quoted() {
        let log = [
            "open_rx(): no such file",
            "vdev_probe(): failed to initialize net_tap11 device",
            "vdev_probe(): failed to initialize net_tap1 device",
        ];
        assert!(said(&log).contains("or no DPDK driver took it"), "{}", said(&log));
    }

    #[test]
    fn an_unlucky_process_number_is_told_apart() {
        let log = [
            "rte_pmd_init_internals(): net_tap1: could not set PACKET_FANOUT on AF_PACKET socket for m1:Invalid argument",
            "vdev_probe(): failed to initialize net_tap1 device",
        ];
        assert!(said(&log).contains("start again, which takes another number"), "{}", said(&log));
    }
}
