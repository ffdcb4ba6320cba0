// SPDX-License-Identifier: Apache-2.0
//! The packet path measured: the workers of `sluice run` on one lcore, fed by a generator on another.
//!
//! Nothing of the path is a copy: ports are net_ring ports, lcore work is [`RxWorker`](crate::rx::RxWorker) and
//! [`TxWorker`](crate::tx::TxWorker) joined as in `compact`, records go in through [`Handle`]. PI passes
//! run on the generator's lcore, as they do on a control lcore.
//!
//! **Held traffic.** A shaper that is not in debt lets a packet through, so at thousands of packets a second and
//! 100,000 subscribers hardly any packet drawn at random would wait. Therefore all subscribers get packets in turn
//! (see `generator`), and their rates add up to a little less than the path can carry, which a warm-up finds out: every
//! subscriber is in debt all the time, and the generator keeps as many packets in flight as make the wait.

mod conduct;
mod crowd;
mod frame;
mod generator;
mod late;
mod ledger;
mod lookup;
mod parents;
mod path;
mod rig;
mod scenes;
mod tables;

use std::time::Duration;

use dpdk::LcorePanic;
use engine::DropReason;
use mem::Tsc;

use crate::error::{ApplyError, LaunchError};
use crate::probe::Stage;
use conduct::Bench;
pub use crowd::{Churn, Flood, Overload, churn, flood, overload};
use frame::MOST_SUBSCRIBERS;
pub use frame::Sizes;
use generator::Order;
pub use lookup::{Lookup, lookup};
pub use scenes::{Changes, Lateness, backlog, changes, lateness};
pub use tables::{Memory, memory, pi_passes};

/// A rate that no path here exceeds, for planning.
const PLANNED_PPS: f64 = 20e6;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Subscribers, 1 to 16 million.
    pub subscribers: u32,
    /// Room for subscribers beyond those.
    pub spare: u32,
    /// How long packets are held, about; 0: not at all.
    pub held_us: u64,
    /// What the rates add up to where packets are held, in packets a second; `None`: a warm-up finds what is possible.
    pub held_pps: Option<f64>,
    /// Whether the AQM and the limit are so patient that nothing that waits is dropped.
    pub patient: bool,
    /// Sizes of frames.
    pub sizes: Sizes,
    /// Levels of aggregates above them, up to 8; none of them is a bottleneck.
    pub parents: usize,
    /// Time measured in all.
    pub duration: Duration,
    /// CPUs of generator and path.
    pub cpus: (u32, u32),
    /// Shards that feed themselves, each on a CPU of its own; 0: one shard, its generator on the other CPU.
    pub shards: u32,
    /// Whether a shard's generator feeds all subscribers, not only that shard's: packets go from core to core then.
    pub crossing: bool,
    /// Rate of both ports; `None`: one that limits nothing.
    pub port_bps: Option<u64>,
    /// Packets that may wait where the generator does not limit them.
    pub buffers: u32,
    /// Whether to use huge pages where free.
    pub hugepages: bool,
    /// Seed of the generator.
    pub seed: u64,
}

impl Options {
    /// Conforming 64-byte frames, generator and path on CPUs of their own.
    pub fn new(subscribers: u32, duration: Duration, cpus: (u32, u32)) -> Self {
        Self {
            subscribers,
            spare: 0,
            held_us: 0,
            parents: 0,
            held_pps: None,
            patient: false,
            sizes: Sizes::Fixed(64),
            duration,
            cpus,
            shards: 0,
            crossing: false,
            port_bps: None,
            buffers: 0,
            hugepages: true,
            seed: 1,
        }
    }
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The rig did not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Shards do not have the subscribers that their generators feed.
    #[error("subscriber {0} is not in the shard that feeds it")]
    Elsewhere(u32),
    /// A record was refused.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// An lcore died.
    #[error(transparent)]
    Panic(#[from] LcorePanic),
    /// More than can be told apart.
    #[error("{0} subscribers are none or more than {MOST_SUBSCRIBERS}")]
    Subscribers(u32),
    /// The shaper does not hold what it should.
    #[error("only {held} of {wanted} packets are held: the path carries too little, or others take its CPU")]
    NotHeld {
        /// In the shard.
        held: u64,
        /// In flight.
        wanted: u64,
    },
    /// Packets were lost or made up.
    #[error("the books do not balance: {0}")]
    Books(Books),
}

/// Where the packets went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Made by the generator and put into the port's ring.
    pub generated: u64,
    /// Back at the generator.
    pub returned: u64,
    /// Dropped by reason, in the order of [`DropReason::ALL`].
    pub dropped: [u64; DropReason::COUNT],
    /// Dropped because no record matched.
    pub unmatched: u64,
    /// In the shard at the end.
    pub queued: u64,
}

impl Books {
    /// Whether every packet is somewhere, once.
    pub fn balance(&self) -> bool {
        self.generated == self.returned + self.all_dropped() + self.queued
    }

    fn all_dropped(&self) -> u64 {
        self.dropped.iter().sum::<u64>() + self.unmatched
    }
}

impl std::fmt::Display for Books {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "generated {} = returned {} + dropped", self.generated, self.returned)?;
        for (reason, packets) in DropReason::ALL.iter().zip(self.dropped) {
            if packets > 0 {
                write!(out, " {packets} ({})", reason.label())?;
            }
        }
        write!(out, " {} (unmatched) + queued {}", self.unmatched, self.queued)
    }
}

/// One window's figures.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Packets sent a second, in millions.
    pub mpps: f64,
    /// Busy nanoseconds a packet.
    pub ns_per_packet: f64,
    /// What each lcore sent in its own busy time, added up: packets a second, in millions, of lcores that do nothing
    /// else and are never interrupted.
    pub whole_mpps: f64,
    /// Part of the time the lcore found work.
    pub busy: f64,
    /// Part of the time that was lost to interruptions of the lcore.
    pub lost: f64,
    /// Nanoseconds a packet by stage, in the order of [`stages`]; from a window of its own.
    pub stages: Vec<f64>,
}

impl Window {
    /// Packets a second of lcores that do nothing else and are never interrupted.
    fn capacity(&self) -> f64 {
        (self.whole_mpps * 1e6).min(PLANNED_PPS)
    }

    /// What went through in a second without interruptions of the path.
    fn reached(&self) -> f64 {
        self.mpps * 1e6 / (1.0 - self.lost).max(0.1)
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// The windows.
    pub windows: Vec<Window>,
    /// Microseconds of PI passes.
    pub passes_us: Vec<f64>,
    /// Memory of shard, table, banks, counters and the control side's book, a subscriber.
    pub bytes_per_subscriber: f64,
    /// Mean wait of the packets measured.
    pub held_us: f64,
    /// What the rates added up to where packets were held, in packets a second.
    pub held_pps: f64,
    /// Speed of the port's clock at the end: 1 unless the path was the bottleneck.
    pub clock_speed: f64,
    /// Packets marked CE, as a part of all sent.
    pub marked: f64,
    /// Whether packet buffers lay on huge pages.
    pub huge: bool,
    /// Where the packets went.
    pub books: Books,
}

/// Names of the stages; whether each belongs to the engine (all but rx, parse and tx).
pub fn stages() -> impl Iterator<Item = (&'static str, bool)> {
    Stage::ALL.iter().map(|stage| (stage.label(), !matches!(stage, Stage::Rx | Stage::Parse | Stage::Tx)))
}

/// Packet buffers of a box, and the memory for them in megabytes: what `sluice run` plans for two ports of that rate and
/// so many lcores.
pub fn planned_buffers(port_bps: u64, rx_lcores: u32, tx_lcores: u32) -> (u32, u32) {
    let lcore = |id| model::config::Lcore { id, cpu: id };
    let port = |name: &str, role, peer| model::config::Port {
        name: name.to_owned(),
        device: String::new(),
        role,
        peer,
        rate_bps: Some(port_bps),
        mtu: 1_600,
    };
    let mut config = model::Config::default();
    config.dataplane.lcores = model::config::Lcores::Split {
        control: lcore(0),
        rx: (1..=rx_lcores).map(lcore).collect(),
        tx: (1 + rx_lcores..=rx_lcores + tx_lcores).map(lcore).collect(),
    };
    config.ports =
        vec![port("core", model::config::Role::Core, 1), port("access", model::config::Role::Access, 0)];
    let buffers = crate::memory::buffers(&config);
    (buffers, crate::memory::mb(buffers, true))
}

/// Names of the reasons in [`Books`].
pub fn drop_reasons() -> impl Iterator<Item = (&'static str, DropReason)> {
    DropReason::ALL.into_iter().map(|reason| (reason.label(), reason))
}

/// Measures.
pub fn run(options: &Options) -> Result<Report, BenchError> {
    let held = u32::try_from(conduct::flight(options, PLANNED_PPS)).unwrap_or(u32::MAX);
    let order = |seed| match options.held_us {
        0 => Order::random(options.subscribers, seed),
        _ => Order::turn(options.subscribers, seed),
    };
    let (measured, end) = with(options, held, order, None, |bench| {
        let measured = bench.conduct()?;
        Ok(measured)
    })?;
    Ok(measured.report(end))
}

/// Builds a rig, conducts a measurement on it and takes it down; up to `held` packets will wait.
fn with<T>(
    options: &Options,
    held: u32,
    order: impl Fn(u64) -> Order,
    apart: Option<u32>,
    conduct: impl FnOnce(&mut Bench<'_>) -> Result<T, BenchError>,
) -> Result<(T, conduct::End), BenchError> {
    if !(1..=MOST_SUBSCRIBERS).contains(&options.subscribers) {
        return Err(BenchError::Subscribers(options.subscribers));
    }
    let rig = rig::build(options, held)?;
    let mut bench = Bench::start(options, rig, order, apart)?;
    let measured = conduct(&mut bench);
    bench.finish(measured)
}

/// A clock where no EAL has measured the TSC.
#[expect(clippy::disallowed_methods, reason = "the TSC's rate is measured against the system's clock")]
fn calibrated() -> Tsc {
    let (begin, ticks) = (std::time::Instant::now(), mem::read_tsc());
    std::thread::sleep(Duration::from_millis(50));
    let (took, ticks) = (begin.elapsed(), mem::read_tsc() - ticks);
    let hz = u128::from(ticks) * 1_000_000_000 / took.as_nanos().max(1);
    Tsc::new(u64::try_from(hz).unwrap_or(1).max(1))
}

/// The middle value, or the mean of the two in the middle; 0 of none.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
    let lower = sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
    f64::midpoint(lower, upper)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn books_balance_only_if_every_packet_is_somewhere() {
        let mut books = Books { generated: 10, returned: 6, queued: 1, unmatched: 1, ..Books::default() };
        books.dropped[DropReason::Tail as usize] = 2;
        assert!(books.balance());
        books.returned = 5;
        assert!(!books.balance());
        assert!(books.to_string().contains("2 (tail)"));
    }
}
