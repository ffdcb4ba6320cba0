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
mod frame;
mod generator;
mod path;
mod rig;

use std::time::Duration;

use dpdk::LcorePanic;
use engine::DropReason;

use crate::error::{ApplyError, LaunchError};
use crate::probe::Stage;
use conduct::Bench;
use frame::MOST_SUBSCRIBERS;
pub use frame::Sizes;

/// A rate that no path here exceeds, for planning, and what a packet takes then.
const PLANNED_PPS: f64 = 20e6;
const LEAST_NS: f64 = 1e9 / PLANNED_PPS;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Subscribers, 1 to 16 million.
    pub subscribers: u32,
    /// How long packets are held, about; 0: not at all.
    pub held_us: u64,
    /// Sizes of frames.
    pub sizes: Sizes,
    /// Time measured in all.
    pub duration: Duration,
    /// CPUs of generator and path.
    pub cpus: (u32, u32),
    /// Whether to use huge pages where free.
    pub hugepages: bool,
    /// Seed of the generator.
    pub seed: u64,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The rig did not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
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
    /// Part of the time the lcore found work.
    pub busy: f64,
    /// Part of the time that was lost to interruptions of the lcore.
    pub lost: f64,
    /// Nanoseconds a packet by stage, in the order of [`stages`]; from a window of its own.
    pub stages: Vec<f64>,
}

impl Window {
    /// Packets a second of an lcore that does nothing else and is never interrupted.
    fn capacity(&self) -> f64 {
        1e9 / self.ns_per_packet.max(LEAST_NS)
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

/// Measures.
pub fn run(options: &Options) -> Result<Report, BenchError> {
    if !(1..=MOST_SUBSCRIBERS).contains(&options.subscribers) {
        return Err(BenchError::Subscribers(options.subscribers));
    }
    let held = conduct::flight(options, PLANNED_PPS);
    let rig = rig::build(options, u32::try_from(held).unwrap_or(u32::MAX))?;
    let mut bench = Bench::start(options, rig)?;
    let measured = bench.conduct();
    bench.finish(measured)
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
