// SPDX-License-Identifier: Apache-2.0
//! The demo in one process: Sluice's own data plane on rings, and crate `cc`'s senders as its network.
//!
//! Needs neither root nor huge pages nor an interface. The lcore is DPDK's, a thread of ours is the network (module
//! [`net`]), and the figures come from the data plane's handle.

mod frame;
mod net;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use dataplane::{Handle, OnRings, Plane, launch_on_rings};
use model::stats::{MetricsSnapshot, QueueMetrics};
use model::{Config, Subscriber};

use super::{Account, Goodput, Look, PROFILES, Schedule, World};
use crate::scene::Traces;
use crate::topology::seed;
use net::{Flow, Network};

/// How often the control side looks at lcores and links.
const TICK: Duration = Duration::from_millis(100);

/// A data plane and the network around it.
pub struct Rings {
    records: Vec<Subscriber>,
    handle: Handle,
    plane: Option<Plane>,
    idle: Option<Network>,
    running: Option<JoinHandle<(Network, Vec<Flow>)>>,
    stop: Arc<AtomicBool>,
    ticked: Instant,
    why: String,
    _traces: Traces,
}

impl Rings {
    /// Starts the data plane; `why` says what kept the demo from namespaces.
    #[expect(clippy::disallowed_methods, reason = "the demo runs in real time and owns this clock")]
    pub fn set(why: &str) -> Result<Self> {
        let prefix = format!("slu-rings-{}", std::process::id());
        // dropped after EAL where this fails
        let traces = Traces::new(&prefix, None);
        let cpus: Vec<usize> =
            core_affinity::get_core_ids().unwrap_or_default().iter().map(|cpu| cpu.id).collect();
        let (own, lcore) = (cpus.first().copied().unwrap_or(0), cpus.get(1).or(cpus.first()).copied());
        let config = Config::parse("the demo's configuration", &config(&prefix, lcore.unwrap_or(0)))?;
        let OnRings { plane, wires, pool } = launch_on_rings(&config)?;
        core_affinity::set_for_current(core_affinity::CoreId { id: own });
        let [core, access] = <[_; 2]>::try_from(wires).ok().context("two ports have two wires")?;
        let handle = plane.handle();
        let made = Self {
            records: config.subscribers,
            handle,
            plane: Some(plane),
            idle: Some(Network::new(pool, core, access)),
            running: None,
            stop: Arc::default(),
            ticked: Instant::now(),
            why: why.to_owned(),
            _traces: traces,
        };
        made.set_profile("default")?;
        made.handle.begin();
        Ok(made)
    }

    /// The network thread's end, at once or when its flows have ended.
    fn join(&mut self, at_once: bool) -> Result<Vec<Flow>> {
        let Some(thread) = self.running.take() else {
            return Ok(Vec::new());
        };
        self.stop.store(at_once, Relaxed);
        let Ok((network, flows)) = thread.join() else {
            bail!("the network's thread has died");
        };
        self.idle = Some(network);
        Ok(flows)
    }
}

fn config(prefix: &str, cpu: usize) -> String {
    format!(
        r#"[dataplane]
lcores = {{ compact = "1@{cpu}" }}
hugepages = "never"
buffers = 32768
eal_args = ["--file-prefix={prefix}"]
[[port]]
name = "core"
device = "ring-core"
role = "core"
peer = "access"
[[port]]
name = "access"
device = "ring-access"
role = "access"
peer = "core"
[profile.default]
{PROFILES}
{}"#,
        seed()
    )
}

impl World for Rings {
    fn about(&self) -> Vec<String> {
        let about = "\
            Left out: namespaces, interfaces, the kernel's TCP, and the HTTP API.\n\
            Kept: Sluice's lcore with parser, shaper and AQM on DPDK rings, real IPv4, IPv6\n\
            and QinQ frames in real time, 10 ms base RTT. To each subscriber goes an L4S\n\
            flow (Prague on ECT(1)) beside CUBIC, both from Sluice's own crate of senders.";
        vec![format!("In one process, because {}.", self.why), about.to_owned()]
    }

    fn look(&self, id: &str) -> Result<Option<Look>> {
        let Some(record) = self.records.iter().find(|record| record.id == id) else {
            return Ok(None);
        };
        let stats = self.handle.stats(id).with_context(|| format!("the lcore says nothing about {id}"))?;
        Ok(Some(Look { down_bps: record.down_bps, stats }))
    }

    fn set_profile(&self, profile: &str) -> Result<()> {
        let on = |record: &Subscriber| Subscriber { profile: profile.to_owned(), ..record.clone() };
        let records: Vec<Subscriber> = self.records.iter().map(on).collect();
        Ok(self.handle.apply(&dataplane::Batch { puts: records, ..Default::default() })?)
    }

    fn start(&mut self, schedule: &Schedule) -> Result<()> {
        let network = self.idle.take().context("the network is busy")?;
        self.stop.store(false, Relaxed);
        let (stop, schedule) = (Arc::clone(&self.stop), *schedule);
        let thread = std::thread::Builder::new().name("network".to_owned());
        self.running = Some(thread.spawn(move || network.run(net::flows(), &schedule, &stop))?);
        Ok(())
    }

    fn finish(&mut self) -> Result<Vec<Goodput>> {
        let flows = self.join(false)?;
        let Account { received, sent, .. } = self.account()?;
        let own = self.idle.as_ref().map(Network::counts);
        if own != Some((received, sent)) {
            bail!("Sluice counts {received} frames in and {sent} out, the network (in, out) {own:?}");
        }
        Ok(net::goodput(&flows))
    }

    #[expect(clippy::disallowed_methods, reason = "the demo runs in real time and owns this clock")]
    fn tick(&mut self) -> Result<()> {
        if self.ticked.elapsed() >= TICK {
            self.ticked = Instant::now();
            self.handle.tick();
        }
        // a network that died shows in `finish`
        Ok(())
    }

    fn account(&self) -> Result<Account> {
        let MetricsSnapshot { down, up, ports, .. } = self.handle.metrics();
        let dropped = |queue: &QueueMetrics| queue.dropped_ect.total() + queue.dropped_not_ect.total();
        let bad = |kinds: &[model::stats::KindCount]| -> u64 {
            kinds.iter().filter(|kind| kind.kind.starts_with("bad_")).map(|kind| kind.packets).sum()
        };
        Ok(Account {
            received: ports.iter().map(|port| port.rx_packets).sum(),
            sent: ports.iter().map(|port| port.tx_packets).sum(),
            dropped: [&down, &up]
                .map(|way| dropped(&way.l4s) + dropped(&way.classic) + bad(&way.unclassified))
                .iter()
                .sum(),
        })
    }

    fn gap_us(&self) -> Result<u64> {
        Ok(self.handle.lcores().iter().map(|lcore| lcore.longest_gap_us).max().unwrap_or(0))
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // frames held by the network go home before the data plane ends
        let _ = self.join(true);
        self.idle = None;
        self.handle.stop();
        if let Some(plane) = self.plane.take() {
            // an lcore that died is logged there
            let _ = plane.wait();
        }
    }
}
