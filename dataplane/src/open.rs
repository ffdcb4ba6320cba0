// SPDX-License-Identifier: Apache-2.0
//! Opening what DPDK owns: EAL, pools, ports, rings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use aqm::BitsPerSec;
use dpdk::{
    Consumer, Eal, EalOptions, Lcore, Memory, Mempool, MtuOutcome, PoolOptions, Port, PortOptions, Producer,
    Queues, RxQueue, TxQueue,
};
use engine::{Direction, PortShared};
use model::Config;
use model::config::{HugePages, Lcores, Role};

use crate::error::LaunchError;
use crate::handle::PortEntry;
use crate::memory;
use crate::rx::PortCounters;

/// What tells instances on one machine apart, unless `eal_args` says otherwise.
const FILE_PREFIX: &str = "sluice";

/// Memory that a configuration takes at start, on all NUMA nodes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryNeed {
    /// On huge pages.
    pub huge_mb: u32,
    /// Without them.
    pub plain_mb: u32,
}

/// What [`crate::launch`] will ask for.
pub fn memory_need(config: &Config) -> MemoryNeed {
    need(config, memory::buffers(config))
}

fn need(config: &Config, buffers: u32) -> MemoryNeed {
    let nodes = if config.ports.iter().any(|port| is_pci(&port.device)) { numa_nodes() } else { 1 };
    let of = |huge| memory::mb(buffers, huge).saturating_mul(nodes);
    MemoryNeed { huge_mb: of(true), plain_mb: of(false) }
}

/// Starts the EAL with memory for that many buffers.
pub(crate) fn eal(config: &Config, buffers: u32) -> Result<Eal, LaunchError> {
    let lcore = |lcore: &model::config::Lcore| Lcore { id: lcore.id, cpu: lcore.cpu };
    let lcores: Vec<Lcore> = match &config.dataplane.lcores {
        Lcores::Compact(one) => vec![lcore(one)],
        // the first is EAL's main lcore
        Lcores::Split { control, rx, tx } => [control].into_iter().chain(rx).chain(tx).map(lcore).collect(),
    };
    let MemoryNeed { huge_mb: huge, plain_mb: plain } = need(config, buffers);
    let memory = match config.dataplane.hugepages {
        HugePages::Require => Memory::Huge { mb: huge },
        HugePages::Never => Memory::NoHuge { mb: plain },
        HugePages::Auto if dpdk::free_huge_mb() >= u64::from(huge) => Memory::Huge { mb: huge },
        HugePages::Auto => {
            let free_mb = dpdk::free_huge_mb();
            tracing::warn!(need_mb = huge, free_mb, "too few free huge pages: running without them, slower");
            Memory::NoHuge { mb: plain }
        }
    };
    let mut options = EalOptions::new(FILE_PREFIX, lcores, memory);
    for port in &config.ports {
        let list = if is_pci(&port.device) { &mut options.allow } else { &mut options.vdevs };
        list.push(port.device.clone());
    }
    options.extra.clone_from(&config.dataplane.eal_args);
    Ok(Eal::init(&options)?)
}

/// NUMA nodes of this machine: each may get a pool.
fn numa_nodes() -> u32 {
    let nodes =
        (0..64).filter(|node| std::path::Path::new(&format!("/sys/devices/system/node/node{node}")).exists());
    u32::try_from(nodes.count()).unwrap_or(1).max(1)
}

/// Whether a device is a PCI address (`0000:3b:00.0` or `3b:00.0`) rather than a vdev.
pub fn is_pci(device: &str) -> bool {
    let address = device.split(',').next().unwrap_or_default();
    address.contains(':')
        && address.contains('.')
        && address.chars().all(|c| c.is_ascii_hexdigit() || ":.".contains(c))
}

/// The queues of a port that no lcore has taken yet.
type QueuesLeft = (Vec<Option<RxQueue>>, Vec<Option<TxQueue>>);

/// Opened ports with what belongs to them.
#[derive(Default)]
pub(crate) struct Opened {
    pub(crate) entries: Vec<PortEntry>,
    queues: Vec<QueuesLeft>,
    /// By NUMA node.
    pub(crate) pools: BTreeMap<Option<u32>, Mempool>,
    /// Buffers of the smallest pool: packets of any port may fill what the shards hold.
    pub(crate) buffers: u32,
    /// Rx queues of all ports.
    pub(crate) rx_queues: u64,
    /// Most descriptors of a tx queue.
    pub(crate) tx_descriptors: u16,
}

/// Opens, configures and starts all ports.
pub(crate) fn ports(eal: &Eal, config: &Config, buffers: u32) -> Result<Opened, LaunchError> {
    if config.ports.len() > usize::from(u8::MAX) {
        return Err(LaunchError::TooManyPorts(config.ports.len()));
    }
    let mut opened = Opened::default();
    for port_config in &config.ports {
        let port = Port::open(eal, &port_config.device)?;
        opened.add(eal, config, port_config, port, buffers)?;
    }
    Ok(opened)
}

fn pool(eal: &Eal, buffers: u32, socket: Option<u32>) -> Result<Mempool, LaunchError> {
    let name = socket.map_or_else(|| "packets".to_owned(), |socket| format!("packets{socket}"));
    let options = PoolOptions { name, buffers, cache: memory::CACHE, data_room: memory::DATA_ROOM, socket };
    Ok(Mempool::create(eal, &options)?)
}

/// Rx and tx queues of a port: an rx queue for each RX lcore where the device has so many, else one; a tx queue for
/// each shard. Two drivers need more, which lcores then share out among them.
fn queue_counts(driver: &str, most_rx: u16, rx_lcores: u16, shards: u16) -> (u16, u16) {
    let rx = if most_rx >= rx_lcores { rx_lcores } else { 1 };
    match driver {
        // flows are spread over all sockets it has opened (qpairs), whether anybody reads them or not
        "net_af_packet" => (most_rx, shards),
        // takes no configuration but one with as many of one kind as of the other
        "net_tap" => (rx.max(shards), rx.max(shards)),
        _ => (rx, shards),
    }
}

/// Which of `lcores` RX lcores polls queue `queue` of the `queues` of port `port`. Where each port has a queue for
/// every lcore, each lcore gets one of each port; else the lcores get ports in turn.
fn poller(port: usize, queue: usize, queues: usize, lcores: usize) -> usize {
    let first = if queues >= lcores { 0 } else { port };
    (first + queue) % lcores
}

/// Configures and starts a port.
fn configure(
    port: &mut Port,
    config: &Config,
    port_config: &model::config::Port,
    pool: &Mempool,
    most_tx: &mut u16,
) -> Result<Queues, LaunchError> {
    let (rx_lcores, shards) = memory::workers(config);
    let (rx_lcores, shards) =
        (u16::try_from(rx_lcores).unwrap_or(u16::MAX), u16::try_from(shards).unwrap_or(u16::MAX));
    let (most_rx, _) = port.max_queues();
    let (rx_queues, tx_queues) = queue_counts(port.driver(), most_rx, rx_lcores, shards);
    let rate = port_config.rate_bps.or(port.link().speed_bps);
    let options = PortOptions {
        rx_queues,
        tx_queues,
        rx_descriptors: memory::RX_DESCRIPTORS,
        tx_descriptors: memory::tx_descriptors(rate),
        mtu: Some(port_config.mtu),
        promiscuous: true,
    };
    let done = port.configure(&options, std::slice::from_ref(pool))?;
    let (name, driver) = (port_config.name.as_str(), port.driver());
    if let MtuOutcome::Refused { wanted, reason } = &done.mtu {
        tracing::warn!(port = name, driver, wanted, %reason, "the MTU could not be set");
    }
    let kernel_spreads = ["net_af_packet", "net_tap"].contains(&driver);
    if options.rx_queues > 1 && !done.rss && !kernel_spreads {
        tracing::warn!(port = name, driver, "the device spreads no flows over its rx queues (no RSS)");
    }
    *most_tx = (*most_tx).max(done.tx_descriptors);
    tracing::info!(port = name, driver, rx_queues = options.rx_queues, tx_queues = options.tx_queues, "port");
    Ok(port.start()?)
}

/// Rate of a port's shaper.
pub(crate) fn shaper_rate(entry: &PortEntry) -> Option<BitsPerSec> {
    PortShared::shaper_rate(entry.rate_bps(), entry.port.link().speed_bps.map(BitsPerSec))
}

/// Where packets that come in by a port of this role go.
pub(crate) fn direction(role: Role) -> Direction {
    match role {
        Role::Core => Direction::Down,
        Role::Access => Direction::Up,
    }
}

impl Opened {
    /// Configures and starts a port; the pool of its NUMA node is made with `buffers` if there is none yet.
    pub(crate) fn add(
        &mut self,
        eal: &Eal,
        config: &Config,
        port_config: &model::config::Port,
        mut port: Port,
        buffers: u32,
    ) -> Result<(), LaunchError> {
        let socket = port.socket();
        let pool = match self.pools.get(&socket) {
            Some(pool) => pool.clone(),
            None => self.pools.entry(socket).or_insert(pool(eal, buffers, socket)?).clone(),
        };
        let queues = configure(&mut port, config, port_config, &pool, &mut self.tx_descriptors)?;
        let counters = |count: usize| (0..count).map(|_| Arc::<PortCounters>::default()).collect();
        self.entries.push(PortEntry {
            peer: config.ports.get(port_config.peer).map(|peer| peer.name.clone()).unwrap_or_default(),
            rate_bps: AtomicU64::new(port_config.rate_bps.unwrap_or(0)),
            config: port_config.clone(),
            port,
            rx: counters(queues.rx.len()),
            tx: counters(queues.tx.len()),
            lost: (0..memory::workers(config).1).map(|_| Arc::default()).collect(),
        });
        let (rx, tx) = (queues.rx.into_iter().map(Some).collect(), queues.tx.into_iter().map(Some).collect());
        self.queues.push((rx, tx));
        self.rx_queues = self.queues.iter().map(|(rx, _)| rx.len() as u64).sum();
        self.buffers = self.pools.values().map(Mempool::buffers).min().unwrap_or(0);
        Ok(())
    }

    /// The tx queues of a shard, one for each port.
    pub(crate) fn tx_queues(&mut self, shard: usize) -> Vec<TxQueue> {
        self.queues.iter_mut().filter_map(|(_, tx)| tx.get_mut(shard)?.take()).collect()
    }

    /// What RX lcore `index` of `lcores` polls.
    pub(crate) fn rx_queues(
        &mut self,
        index: usize,
        lcores: usize,
    ) -> Vec<(usize, RxQueue, Arc<PortCounters>)> {
        let mut mine = Vec::new();
        for (port, ((rx, _), entry)) in self.queues.iter_mut().zip(&self.entries).enumerate() {
            let queues = rx.len();
            for (queue, (slot, counters)) in rx.iter_mut().zip(&entry.rx).enumerate() {
                if poller(port, queue, queues, lcores) == index {
                    mine.extend(slot.take().map(|queue| (port, queue, Arc::clone(counters))));
                }
            }
        }
        mine
    }
}

/// The rings between RX lcores and shards.
pub(crate) struct Rings {
    /// By RX lcore, then shard.
    pub(crate) producers: Vec<Vec<Producer>>,
    /// By shard, then RX lcore.
    pub(crate) consumers: Vec<Vec<Consumer>>,
}

/// One ring for each RX lcore and shard, on the shard's NUMA node if that is known.
pub(crate) fn rings(eal: &Eal, rx_lcores: u32, nodes: &[Option<u32>]) -> Result<Rings, LaunchError> {
    let mut rings = Rings { producers: Vec::new(), consumers: nodes.iter().map(|_| Vec::new()).collect() };
    for rx in 0..rx_lcores {
        let mut producers = Vec::new();
        for ((shard, consumers), &node) in rings.consumers.iter_mut().enumerate().zip(nodes) {
            let name = format!("rx{rx}-shard{shard}");
            // a node may have no memory for DPDK
            let (producer, consumer) = dpdk::ring(eal, &name, memory::RING, node)
                .or_else(|_| dpdk::ring(eal, &name, memory::RING, None))?;
            producers.push(producer);
            consumers.push(consumer);
        }
        rings.producers.push(producers);
    }
    Ok(rings)
}

#[cfg(test)]
mod tests {
    use super::{is_pci, poller, queue_counts};

    #[test]
    fn a_port_has_an_rx_queue_for_each_lcore_if_it_can_and_a_tx_queue_for_each_shard() {
        assert_eq!(queue_counts("net_ixgbe", 128, 2, 3), (2, 3));
        assert_eq!(queue_counts("net_pcap", 1, 2, 1), (1, 1), "others poll other ports");
        assert_eq!(queue_counts("net_af_packet", 2, 1, 2), (2, 2), "every socket is read");
        assert_eq!(queue_counts("net_af_packet", 1, 2, 1), (1, 1));
        assert_eq!(queue_counts("net_tap", 16, 1, 2), (2, 2));
        assert_eq!(queue_counts("net_tap", 16, 3, 1), (3, 3));
    }

    #[test]
    fn every_queue_is_polled_and_lcores_share_them() {
        let pollers = |ports: usize, queues: usize, lcores: usize| -> Vec<usize> {
            let all = (0..ports).flat_map(|port| (0..queues).map(move |queue| (port, queue)));
            all.map(|(port, queue)| poller(port, queue, queues, lcores)).collect()
        };
        assert_eq!(pollers(2, 2, 2), [0, 1, 0, 1], "one of each port");
        assert_eq!(pollers(2, 2, 1), [0, 0, 0, 0]);
        assert_eq!(pollers(4, 1, 2), [0, 1, 0, 1], "ports in turn");
        assert_eq!(pollers(1, 5, 2), [0, 1, 0, 1, 0]);
        assert_eq!(pollers(3, 2, 3), [0, 1, 1, 2, 2, 0]);
    }

    #[test]
    fn a_pci_address_is_told_from_a_vdev() {
        for device in ["0000:3b:00.0", "3b:00.1", "0000:03:00.0,rxq_cqe_comp_en=1"] {
            assert!(is_pci(device), "{device}");
        }
        for device in ["net_af_packet0,iface=core0", "net_null0", "net_pcap0,rx_pcap=a.b:c.pcap"] {
            assert!(!is_pci(device), "{device}");
        }
    }
}
