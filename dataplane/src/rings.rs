// SPDX-License-Identifier: Apache-2.0
//! A data plane whose ports are rings: real lcores and shards without a NIC, an interface or root.
//!
//! Invariant: only the ports differ from [`launch`](crate::launch): no device is opened, `device` is only a name, and
//! whoever holds the [`Wire`]s is the network. For the demo and for whole-system tests.

use dpdk::{Consumer, Mempool, Port, Producer};
use model::Config;

use crate::error::LaunchError;
use crate::launch::{self, Plane};
use crate::memory;
use crate::open::{self, Opened};

/// Frames that fit each way of a wire.
const WIRE: u32 = 4_095;

/// The far end of a port.
#[derive(Debug)]
pub struct Wire {
    /// What is put here arrives at the port.
    pub into: Producer,
    /// What the port sends comes here; one thread takes it, or the port backs up.
    pub out: Consumer,
}

/// A running data plane and what it is connected to.
pub struct OnRings {
    /// The data plane.
    pub plane: Plane,
    /// One for each port, in the order of the configuration.
    pub wires: Vec<Wire>,
    /// Where frames to send come from.
    pub pool: Mempool,
}

/// Starts EAL, a ring port for each port of `config`, and lcores.
pub fn launch_on_rings(config: &Config) -> Result<OnRings, LaunchError> {
    let buffers = memory::buffers(config);
    // EAL has no device to open
    let bare = Config { ports: Vec::new(), ..config.clone() };
    let eal = open::eal(&bare, buffers)?;
    let mut opened = Opened::default();
    let mut wires = Vec::new();
    for port_config in &config.ports {
        let name = &port_config.name;
        let (into, rx) = dpdk::ring(&eal, &format!("in-{name}"), WIRE, None)?;
        let (tx, out) = dpdk::ring(&eal, &format!("out-{name}"), WIRE, None)?;
        let port = Port::from_rings(&eal, &format!("wire_{name}"), vec![rx], vec![tx])?;
        opened.add(&eal, config, port_config, port, buffers)?;
        wires.push(Wire { into, out });
    }
    let pool = opened.pools.values().next().cloned();
    let pool = pool.ok_or(LaunchError::FewBuffers { buffers: 0, least: buffers })?;
    let plane = launch::on(config, eal, opened)?;
    Ok(OnRings { plane, wires, pool })
}
