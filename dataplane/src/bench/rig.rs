// SPDX-License-Identifier: Apache-2.0
//! What the benchmark runs on: an EAL of its own and two ports made of rings.
//!
//! ```text
//! generator -> ring -> port "core" [rx lcore work, shard, tx lcore work] port "access" -> ring -> generator
//! ```
//!
//! Shards that feed themselves have a ring of each kind each: both ports have as many queues as there are shards.

use dpdk::{Consumer, Eal, EalOptions, Lcore, Memory, Mempool, Port, Producer};
use model::Config;
use model::config::{HugePages, Lcores, Port as PortConfig, Role, Unknown};
use model::profile::{Aqm, Cells, DualPi2, MAX_LIMIT_US, Overhead};
use model::subscriber::DEFAULT_PROFILE;

use super::Options;
use crate::error::LaunchError;
use crate::open::Opened;

/// So as to run beside a shaper.
const FILE_PREFIX: &str = "sluice-bench";
/// Lcores of generator and path.
pub(super) const GENERATOR: u32 = 0;
pub(super) const PATH: u32 = 1;
/// Packets that fit the ring the generator fills: as many as a NIC's.
const FEED: u32 = 1_023;
/// Buffers beyond those held: rings, descriptors planned for, caches.
const SPARE: u32 = 40_960;
/// Rate of both ports: the shapers run and do not limit.
const PORT_BPS: u64 = 400_000_000_000;
/// Held traffic: what each packet counts on top of its length, so that the credit of a subscriber that was idle, one
/// `HELD_MTU`, is half a packet, and nobody's first packets pass unheld. PI acts once two packets wait, which is early: of
/// 64-byte packets under the default profile 37 must.
pub(super) const HELD_OVERHEAD: i16 = 30_000;
const HELD_MTU: u32 = 16_000;
/// Counts frames as a port does and as rte_sched beside us: 30 bytes in front of the IP packet and 24 on the line.
const PORT_OVERHEAD: i16 = 54;
/// And a PI target that nobody's packets wait for, even where the path's lcore is held up by others.
const HELD_TARGET_US: u64 = 2_000_000;

/// Devices, memory and configuration.
pub(super) struct Rig {
    pub(super) config: Config,
    pub(super) opened: Opened,
    pub(super) pool: Mempool,
    /// What each generator fills and empties.
    pub(super) ends: Vec<(Producer, Consumer)>,
    /// Other ends of rings that carry nothing.
    pub(super) unused: Vec<(Producer, Consumer)>,
    /// Whether packet buffers are on huge pages.
    pub(super) huge: bool,
    // dropped last
    pub(super) eal: Eal,
}

/// Starts the EAL and opens the ports; up to `held` packets will wait in the shards.
pub(super) fn build(options: &Options, held: u32) -> Result<Rig, LaunchError> {
    let buffers = held + held / 4 + SPARE;
    let config = config(options, buffers);
    let huge = options.hugepages && dpdk::free_huge_mb() >= u64::from(mb(buffers, true));
    let memory =
        if huge { Memory::Huge { mb: mb(buffers, true) } } else { Memory::NoHuge { mb: mb(buffers, false) } };
    let lcores = vec![Lcore { id: GENERATOR, cpu: options.cpus.0 }, Lcore { id: PATH, cpu: options.cpus.1 }];
    let eal = Eal::init(&EalOptions::new(FILE_PREFIX, lcores, memory))?;
    let (mut ends, mut unused) = (Vec::new(), Vec::new());
    let (mut core, mut access) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for queue in 0..options.shards.max(1) {
        let (feed, rx) = dpdk::ring(&eal, &format!("bench-feed{queue}"), FEED, None)?;
        let (unused_tx, unused_back) = dpdk::ring(&eal, &format!("bench-unused-tx{queue}"), 63, None)?;
        let (unused_feed, unused_rx) = dpdk::ring(&eal, &format!("bench-unused-rx{queue}"), 63, None)?;
        // all packets fit: the path never waits for the generator to take them back
        let (tx, back) = dpdk::ring(&eal, &format!("bench-back{queue}"), buffers, None)?;
        core.0.push(rx);
        core.1.push(unused_tx);
        access.0.push(unused_rx);
        access.1.push(tx);
        ends.push((feed, back));
        unused.push((unused_feed, unused_back));
    }
    let ports = [
        Port::from_rings(&eal, "bench_core", core.0, core.1)?,
        Port::from_rings(&eal, "bench_access", access.0, access.1)?,
    ];
    let mut opened = Opened::default();
    for (port_config, port) in config.ports.iter().zip(ports) {
        opened.add(&eal, &config, port_config, port, buffers)?;
    }
    let pool = opened.pools.values().next().cloned();
    let pool = pool.ok_or(LaunchError::FewBuffers { buffers: 0, least: buffers })?;
    Ok(Rig { config, opened, pool, ends, unused, huge, eal })
}

/// Memory for buffers and rings; without huge pages no buffer crosses a page, so each takes one.
const fn mb(buffers: u32, huge: bool) -> u32 {
    let each = if huge { 2_560 } else { 4_096 };
    buffers / 1024 * each / 1024 + 64
}

fn config(options: &Options, buffers: u32) -> Config {
    let mut config = Config::default();
    let [generator, path] = [(GENERATOR, options.cpus.0), (PATH, options.cpus.1)]
        .map(|(id, cpu)| model::config::Lcore { id, cpu });
    config.dataplane.lcores = if options.shards == 0 {
        Lcores::Compact(path)
    } else {
        // the first shard where the only one is
        let fed = [path, generator][..options.shards.min(2) as usize].to_vec();
        Lcores::Split { control: path, rx: fed.clone(), tx: fed }
    };
    config.dataplane.hugepages = HugePages::Auto;
    config.dataplane.buffers = Some(buffers);
    config.classify.unknown = Unknown::Drop;
    let port = |name: &str, role, peer| PortConfig {
        name: name.to_owned(),
        device: format!("net_ring_{name}"),
        role,
        peer,
        rate_bps: Some(options.port_bps.unwrap_or(PORT_BPS)),
        mtu: 2_000,
    };
    config.ports = vec![port("core", Role::Core, 1), port("access", Role::Access, 0)];
    if let Some(profile) = config.profiles.get_mut(DEFAULT_PROFILE) {
        if options.patient || options.held_us > 0 {
            // an AQM that works (the PI controller sees every packet that waits) but finds nothing to drop
            profile.aqm = Aqm::DualPi2(DualPi2 { target_us: HELD_TARGET_US, ..DualPi2::default() });
            profile.limit_us = MAX_LIMIT_US;
            profile.overhead = Overhead { bytes: PORT_OVERHEAD, mpu: 0, cells: Cells::None };
        }
        if options.held_us > 0 {
            profile.overhead = Overhead { bytes: HELD_OVERHEAD, mpu: 0, cells: Cells::None };
            profile.mtu = HELD_MTU;
        }
    }
    config
}
