// SPDX-License-Identifier: Apache-2.0
//! From a configuration to running lcores.
//!
//! Invariant: everything that can fail fails here, before the first packet is taken.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use dpdk::{Consumer, Eal, LcoreHandle, Producer, TxQueue};
use engine::{
    Classifier, OverloadEvent, ParentsShared, PiBanks, PortId, PortShared, Profiles, Registry,
    RegistryOptions, RegistryPort, RingDrops, RxCounters, Shard, ShardCounters, ShardOptions,
};
use mem::Tsc;
use model::Config;
use model::config::{Lcore, Lcores, Role};
use model::stats::LcoreRole;

use crate::control::{ControlCounters, ControlWorker};
use crate::error::LaunchError;
use crate::handle::{Desk, Handle, Inner, ShardDesk};
use crate::kinds::KindCounters;
use crate::lcore::{LcoreShared, Phase, PhaseCell};
use crate::memory;
use crate::open::{self, Opened};
use crate::run::Job;
use crate::rx::{Rings, RxPort, RxRules, RxShared, RxWorker, SharedRules};
use crate::sweeps::Sweeps;
use crate::tx::{self, Held, Order, TxPort, TxWorker};

/// Orders that may wait for a shard.
const ORDERS: usize = 1 << 14;
/// Answers that may wait for the control side.
const REPLIES: usize = 4;
/// Overload reports that may wait for the control side.
const REPORTS: usize = 1 << 12;

/// A running data plane.
pub struct Plane {
    handle: Handle,
    packet_lcores: Vec<LcoreHandle<()>>,
    control_lcore: Option<LcoreHandle<()>>,
    // dropped last: ports and pools live in `handle`
    _eal: Eal,
}

impl Plane {
    /// The control side's hold on it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Returns when every lcore has ended. One that dies takes the others along, so that whoever watches the process
    /// starts it anew: a box that forwards by halves serves nobody.
    pub fn wait(self) -> Result<(), LaunchError> {
        let inner = &self.handle.0;
        while inner.phase.get() < Phase::Drain {
            if let Some(dead) = inner.dead() {
                tracing::error!(
                    lcore = dead.lcore.id,
                    role = dead.role.label(),
                    "an lcore has died: stopping"
                );
                inner.phase.advance(Phase::Drain);
            }
            nap();
        }
        let mut outcome = Ok(());
        for lcore in self.packet_lcores {
            outcome = outcome.and(join(lcore));
        }
        inner.phase.advance(Phase::Stop);
        if let Some(lcore) = self.control_lcore {
            outcome = outcome.and(join(lcore));
        }
        outcome
    }
}

fn join(lcore: LcoreHandle<()>) -> Result<(), LaunchError> {
    let id = lcore.lcore();
    lcore.join().map_err(|panic| LaunchError::Died { lcore: id, panic: panic.to_string() })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the thread that waits for the lcores looks at them now and then"
)]
fn nap() {
    std::thread::sleep(Duration::from_millis(50));
}

/// Starts EAL, ports and lcores. Ports receive nothing before [`Handle::begin`].
pub fn launch(config: &Config) -> Result<Plane, LaunchError> {
    let buffers = memory::buffers(config);
    // told here in the operator's words, before a pool trips over it in its own
    let descriptors = config.ports.iter().map(|port| memory::tx_descriptors(port.rate_bps)).max();
    memory::shard_share(config, buffers, memory::rx_queues(config), descriptors.unwrap_or(0))
        .map_err(|least| LaunchError::FewBuffers { buffers, least })?;
    let eal = open::eal(config, buffers)?;
    let opened = open::ports(&eal, config, buffers)?;
    on(config, eal, opened)
}

/// Starts lcores on opened ports.
pub(crate) fn on(config: &Config, eal: Eal, opened: Opened) -> Result<Plane, LaunchError> {
    let parts = Builder::new(config, capacity(config), &eal, &opened)?.build(&eal, opened)?;
    start(eal, config, parts)
}

/// Queue ids of all shards together: two a subscriber and two a port.
fn capacity(config: &Config) -> u32 {
    let ports = u32::try_from(config.ports.len()).unwrap_or(u32::MAX);
    config.dataplane.subscribers.saturating_add(ports).saturating_mul(2)
}

/// All that runs, not yet running.
pub(crate) struct Parts {
    pub(crate) inner: Arc<Inner>,
    pub(crate) rx: Vec<(RxWorker, Rings)>,
    pub(crate) tx: Vec<TxWorker>,
    pub(crate) control: ControlWorker,
}

/// What is the same for all shards and lcores while they are built.
pub(crate) struct Builder<'a> {
    config: &'a Config,
    capacity: u32,
    clock: Tsc,
    shards: u32,
    buffers: u32,
    profiles: Arc<Profiles>,
    ports: Arc<[PortShared]>,
    ring_drops: Arc<RingDrops>,
    rules: SharedRules,
    parents: Arc<ParentsShared>,
    registry: Registry,
    classifier: Classifier,
}

impl<'a> Builder<'a> {
    /// With queue ids below `capacity`: two a subscriber and two a port.
    pub(crate) fn new(
        config: &'a Config,
        capacity: u32,
        eal: &Eal,
        opened: &Opened,
    ) -> Result<Self, LaunchError> {
        let (_, shards) = memory::workers(config);
        let buffers = memory::shard_share(config, opened.buffers, opened.rx_queues, opened.tx_descriptors)
            .map_err(|least| LaunchError::FewBuffers { buffers: opened.buffers, least })?;
        let profiles = Arc::new(Profiles::new(&config.profiles)?);
        let rates = opened.entries.iter().map(open::shaper_rate);
        let ports: Arc<[PortShared]> = rates.clone().map(PortShared::new).collect();
        let registry_ports = config.ports.iter().zip(rates).map(|(port, rate)| RegistryPort {
            name: port.name.clone(),
            role: port.role,
            peer: PortId(u8::try_from(port.peer).unwrap_or(u8::MAX)),
            rate,
        });
        let (registry, classifier) = Registry::new(RegistryOptions {
            shards,
            capacity,
            ports: registry_ports.collect(),
            profiles: Arc::clone(&profiles),
            unknown_bps: config.classify.unknown_bps,
            // only the place of keys depends on it: nobody can choose packets that collide
            seed: RandomState::new().build_hasher().finish(),
        })?;
        let ring_drops = Arc::new(RingDrops::new(capacity as usize));
        let clock = Tsc::new(eal.tsc_hz());
        Ok(Self {
            config,
            capacity,
            clock,
            shards,
            buffers,
            profiles,
            ports,
            ring_drops,
            rules: Arc::new(ArcSwap::from_pointee(RxRules::new(&config.classify))),
            parents: Arc::default(),
            registry,
            classifier,
        })
    }

    pub(crate) fn build(self, eal: &Eal, mut opened: Opened) -> Result<Parts, LaunchError> {
        let (rx_lcores, _) = memory::workers(self.config);
        let nodes = self.nodes(eal);
        let rings = match self.config.dataplane.lcores {
            // RX hands over by itself
            Lcores::Compact(_) => open::Rings { producers: vec![Vec::new()], consumers: vec![Vec::new()] },
            Lcores::Split { .. } => open::rings(eal, rx_lcores, &nodes)?,
        };
        // what only a shard's lcore touches, or nearly so, lies on that lcore's node
        let bank = |(shard, &node): (u32, &Option<u32>)| {
            mem::on_node(node, || Arc::new(PiBanks::new(&self.profiles, shard, self.shards, self.capacity)))
        };
        let banks: Vec<Arc<PiBanks>> = (0..).zip(&nodes).map(bank).collect();
        let (mut tx, mut shards) = (Vec::new(), Vec::new());
        for (((index, banks), rings), &node) in (0..).zip(&banks).zip(rings.consumers).zip(&nodes) {
            let queues = opened.tx_queues(index as usize);
            let (worker, shard) = mem::on_node(node, || self.shard(index, banks, rings, queues, &opened));
            tx.push(worker);
            shards.push(shard);
        }
        let (reports, overloads) = rtrb::RingBuffer::new(REPORTS);
        let counters = Arc::new(ControlCounters::default());
        let control = ControlWorker::new(banks.clone(), reports, Arc::clone(&counters));
        let rx = self.rx_workers(rings.producers, &mut opened);
        let inner = self.inner(opened, (shards, banks), rx.counters, counters, overloads);
        Ok(Parts { inner, rx: rx.workers, tx, control })
    }

    /// NUMA node of each shard's lcore.
    fn nodes(&self, eal: &Eal) -> Vec<Option<u32>> {
        match &self.config.dataplane.lcores {
            Lcores::Compact(lcore) => vec![eal.socket_of(lcore.id)],
            Lcores::Split { tx, .. } => tx.iter().map(|lcore| eal.socket_of(lcore.id)).collect(),
        }
    }

    /// What the control side holds; the reserved queue ids are on their way to the shards.
    fn inner(
        self,
        opened: Opened,
        (shards, banks): (Vec<BuiltShard>, Vec<Arc<PiBanks>>),
        rx: Vec<RxFigures>,
        control: Arc<ControlCounters>,
        overloads: rtrb::Consumer<OverloadEvent>,
    ) -> Arc<Inner> {
        let (shard_counters, held) =
            shards.iter().map(|s| (Arc::clone(&s.counters), Arc::clone(&s.held))).unzip();
        let create = self.registry.create_reserved();
        let mut desk = Desk {
            registry: self.registry,
            shards: shards.into_iter().map(|shard| shard.desk).collect(),
            overloads,
            leaving: VecDeque::new(),
            debts: VecDeque::new(),
        };
        for routed in create {
            if let Some(shard) = desk.shards.get_mut(routed.shard) {
                // the ring is new and holds far more than two orders a port
                let _ = shard.orders.push(Order::Change(routed.change));
            }
        }
        Arc::new(Inner {
            clock: self.clock,
            phase: PhaseCell::default(),
            lcores: lcores(self.config),
            ports: opened.entries,
            shared_ports: self.ports,
            rules: self.rules,
            shards: shard_counters,
            held,
            rx,
            control,
            banks,
            pools: opened.pools.into_values().collect(),
            desk: Mutex::new(desk),
            usage: Mutex::new(Sweeps::default()),
            parent_usage: Mutex::new(Sweeps::default()),
            lcore_watches: Mutex::default(),
            episodes: <[AtomicU64; 2]>::default(),
            configured: AtomicU64::new(0),
            parents: Arc::clone(&self.parents),
            parents_configured: AtomicU64::new(0),
        })
    }

    fn shard(
        &self,
        index: u32,
        banks: &Arc<PiBanks>,
        rings: Vec<Consumer>,
        queues: Vec<TxQueue>,
        opened: &Opened,
    ) -> (TxWorker, BuiltShard) {
        let counters = Arc::new(ShardCounters::default());
        let shard = Shard::new(ShardOptions {
            index,
            shards: self.shards,
            capacity: self.capacity,
            buffers: self.buffers,
            seed: self.config.dataplane.seed,
            // nobody can choose flows that share a queue
            flow_seed: RandomState::new().build_hasher().finish(),
            profiles: Arc::clone(&self.profiles),
            banks: Arc::clone(banks),
            ports: Arc::clone(&self.ports),
            counters: Arc::clone(&counters),
            ring_drops: Arc::clone(&self.ring_drops),
            parents: Arc::clone(&self.parents),
        })
        .leaving_by(leaving_by(self.config));
        let ports = queues.into_iter().zip(&opened.entries).zip(0..).map(|((queue, entry), id)| {
            let counters = entry.tx.get(index as usize).map(Arc::clone).unwrap_or_default();
            let lost = entry.lost.get(index as usize).map(Arc::clone).unwrap_or_default();
            TxPort::new(PortId(id), queue, counters, lost)
        });
        let (orders, from_control) = rtrb::RingBuffer::new(ORDERS);
        let (to_control, replies) = rtrb::RingBuffer::new(REPLIES);
        let held = Arc::new(Held::default());
        let desk = tx::Desk { orders: from_control, replies: to_control };
        let worker =
            TxWorker::new(shard, rings, ports.collect(), Arc::clone(&self.ports), desk, Arc::clone(&held));
        (worker, BuiltShard { desk: ShardDesk { orders, replies }, counters, held })
    }

    /// One worker for each RX lcore, with the queues it polls.
    fn rx_workers(&self, producers: Vec<Vec<Producer>>, opened: &mut Opened) -> RxBuilt {
        let shared =
            Arc::new(RxShared { rules: Arc::clone(&self.rules), ring_drops: Arc::clone(&self.ring_drops) });
        let mut built = RxBuilt { workers: Vec::new(), counters: Vec::new() };
        let lcores = producers.len();
        for (index, rings) in producers.into_iter().enumerate() {
            let ports = opened.rx_queues(index, lcores).into_iter().map(|(port, queue, counters)| {
                let config = &self.config.ports[port];
                let egress = PortId(u8::try_from(config.peer).unwrap_or(u8::MAX));
                RxPort {
                    port: PortId(u8::try_from(port).unwrap_or(u8::MAX)),
                    egress,
                    direction: open::direction(config.role),
                    reserved: self.registry.reserved(egress),
                    queue,
                    counters,
                }
            });
            let (counters, kinds) = (Arc::default(), Arc::new(KindCounters::new()));
            let (shared, classifier) = (Arc::clone(&shared), self.classifier.clone());
            let own = (Arc::clone(&counters), Arc::clone(&kinds));
            let worker = RxWorker::new(ports.collect(), shared, classifier, self.shards, own.0, own.1);
            built.workers.push((worker, Rings(rings)));
            built.counters.push((counters, kinds));
        }
        built
    }
}

/// The control side's part of a shard.
struct BuiltShard {
    desk: ShardDesk,
    counters: Arc<ShardCounters>,
    held: Arc<Held>,
}

/// What an RX lcore shows.
type RxFigures = (Arc<RxCounters>, Arc<KindCounters>);

struct RxBuilt {
    workers: Vec<(RxWorker, Rings)>,
    counters: Vec<RxFigures>,
}

/// Ports by which packets leave, down and up.
fn leaving_by(config: &Config) -> [usize; 2] {
    [Role::Access, Role::Core].map(|role| config.ports.iter().filter(|port| port.role == role).count())
}

/// What each lcore shows of itself, in the order of the jobs: RX, TX, control.
fn lcores(config: &Config) -> Vec<Arc<LcoreShared>> {
    let shared = |lcore: &Lcore, role, shard| Arc::new(LcoreShared::new(*lcore, role, shard));
    match &config.dataplane.lcores {
        Lcores::Compact(lcore) => vec![shared(lcore, LcoreRole::Compact, Some(0))],
        Lcores::Split { control, rx, tx } => {
            let rx = rx.iter().map(|lcore| shared(lcore, LcoreRole::Rx, None));
            let tx = tx.iter().zip(0..).map(|(lcore, shard)| shared(lcore, LcoreRole::Tx, Some(shard)));
            rx.chain(tx).chain([shared(control, LcoreRole::Control, None)]).collect()
        }
    }
}

/// One job for each lcore, in the order of [`lcores`].
fn jobs(config: &Config, rx: Vec<(RxWorker, Rings)>, tx: Vec<TxWorker>, control: ControlWorker) -> Vec<Job> {
    let rx = rx.into_iter().map(|(rx, rings)| (Box::new(rx), rings));
    let tx = tx.into_iter().map(Box::new);
    let control = Box::new(control);
    match &config.dataplane.lcores {
        Lcores::Compact(_) => {
            rx.zip(tx).zip([control]).map(|(((rx, _), tx), control)| Job::Compact(rx, tx, control)).collect()
        }
        Lcores::Split { .. } => rx
            .map(|(rx, rings)| Job::Rx(rx, rings))
            .chain(tx.map(Job::Tx))
            .chain([Job::Control(control)])
            .collect(),
    }
}

fn start(eal: Eal, config: &Config, parts: Parts) -> Result<Plane, LaunchError> {
    let Parts { inner, rx, tx, control } = parts;
    let jobs = jobs(config, rx, tx, control);
    let mut packet_lcores = Vec::new();
    let mut control_lcore = None;
    for ((index, job), lcore) in jobs.into_iter().enumerate().zip(&inner.lcores) {
        let shared = Arc::clone(&inner);
        let handle = eal.launch(lcore.lcore.id, move || job.run(&shared, index))?;
        if lcore.role == LcoreRole::Control {
            control_lcore = Some(handle);
        } else {
            packet_lcores.push(handle);
        }
    }
    Ok(Plane { handle: Handle(inner), packet_lcores, control_lcore, _eal: eal })
}
