// SPDX-License-Identifier: Apache-2.0
//! The conductor of a benchmark: starts the lcores, gives subscribers their records, tells the generators what to keep in
//! flight, takes windows, closes the books.
//!
//! Invariant: whatever happens in between, all lcores have ended when [`Bench::finish`] returns.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use aqm::Queue;
use dpdk::LcoreHandle;
use engine::{AllTotals, Direction, DropReason};
use model::Subscriber;
use model::subscriber::{MAX_RATE_BPS, MIN_RATE_BPS};

use super::frame::record;
use super::generator::{Ended, Feed, Generator, Order, Setup};
use super::late::Late;
use super::ledger::Ledger;
use super::parents;
use super::path::{self, STAGES, Tally};
use super::rig::{self, Rig};
use super::{BenchError, Books, Options, PLANNED_PPS, Report, Window};
use crate::error::{ApplyError, LaunchError};
use crate::handle::{Batch, Handle, Inner};
use crate::launch::Builder;
use crate::lcore::Phase;
use crate::rx::{Rings, RxWorker};
use crate::tx::TxWorker;

/// Rate of a subscriber whose traffic is not held.
pub(super) const OPEN_BPS: u64 = 100_000_000_000;
/// Packets in flight of conforming traffic: as many as a NIC's ring holds.
pub(super) const OPEN_FLIGHT: u64 = 1_024;
/// Packets in flight of held traffic, at least.
const HELD_FLIGHT: u64 = 256;
/// Packets in flight at most.
const MOST_FLIGHT: u64 = 1 << 20;
/// Held traffic: what the subscribers' rates add up to, of what the path can carry; less where that turns out to be
/// too much, so many times.
const HELD_LOAD: f64 = 0.9;
const HELD_TRIES: u32 = 8;
/// Records applied at a time.
const BATCH: u32 = 4_096;
/// Measured windows, and the part of each in which stages are measured.
const WINDOWS: u32 = 5;
const STAGED_PART: f64 = 0.3;
/// Warm-ups.
pub(super) const WARM_UP: Duration = Duration::from_millis(300);
/// How often the conductor looks.
pub(super) const LOOK: Duration = Duration::from_millis(5);
/// Longest wait for all packets to be held, and for all to come back.
const PRIME: Duration = Duration::from_secs(2);
pub(super) const SETTLE: Duration = Duration::from_secs(5);

/// Packets to keep in flight at a rate.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "about"
)]
pub(super) fn flight(options: &Options, pps: f64) -> u64 {
    if options.held_us == 0 {
        return OPEN_FLIGHT;
    }
    ((pps * options.held_us as f64 / 1e6) as u64).clamp(HELD_FLIGHT, MOST_FLIGHT)
}

/// A rig that runs.
pub(super) struct Bench<'a> {
    pub(super) options: &'a Options,
    pub(super) handle: Handle,
    pub(super) feed: Arc<Feed>,
    /// One for each shard.
    pub(super) tallies: Vec<Arc<Tally>>,
    lcores: Vec<LcoreHandle<Ended>>,
    huge: bool,
    /// Memory before the path was built, and what it and all records take.
    before: u64,
    bytes: u64,
    /// How long the records took last.
    pub(super) load: Duration,
    unused: Vec<(dpdk::Producer, dpdk::Consumer)>,
    // dropped last
    eal: dpdk::Eal,
}

/// What is known at a moment.
struct Sample {
    at_ns: u64,
    /// By lcore.
    sent: Vec<u64>,
    busy: Vec<u64>,
    lost: u64,
    ticks: [u64; STAGES],
}

pub(super) struct Measured {
    windows: Vec<Window>,
    held_us: f64,
    marked: f64,
    held_pps: f64,
}

/// What is left when all has ended.
pub(super) struct End {
    pub(super) books: Books,
    pub(super) clock_speed: f64,
    pub(super) huge: bool,
    pub(super) passes_us: Vec<f64>,
    pub(super) ledger: Option<Box<Ledger>>,
    pub(super) bytes_per_subscriber: f64,
}

impl<'a> Bench<'a> {
    /// Builds the path and starts all lcores; nothing is sent yet. `apart`: keep a ledger, with that many subscribers
    /// apart.
    pub(super) fn start(
        options: &'a Options,
        rig: Rig,
        order: impl Fn(u64) -> Order,
        apart: Option<u32>,
    ) -> Result<Self, BenchError> {
        let Rig { config, opened, pool, ends, unused, huge, eal } = rig;
        let before = memory_bytes();
        let ids = 2 * (options.subscribers + options.spare + 2);
        let parts = Builder::new(&config, ids, &eal, &opened)?.build(&eal, opened)?;
        let (inner, feed) = (parts.inner, Arc::<Feed>::default());
        let alone = options.cpus.0 != options.cpus.1;
        let mut control = Some(parts.control);
        let orders = |index: usize| {
            let order = order(options.seed + index as u64);
            match u32::try_from(index) {
                Ok(first) if options.shards > 1 && !options.crossing => order.only(first, options.shards),
                _ => order,
            }
        };
        let generators = ends.into_iter().zip(0..).map(|(ends, index)| {
            Generator::new(Setup {
                pool: pool.clone(),
                ends,
                order: orders(index),
                sizes: options.sizes,
                alone,
                index,
                ledger: apart.map(|apart| Box::new(Ledger::new(options.subscribers, apart))),
                control: control.take(),
            })
        });
        let mut bench = Self {
            options,
            handle: Handle(Arc::clone(&inner)),
            feed: Arc::clone(&feed),
            tallies: Vec::new(),
            lcores: Vec::new(),
            huge,
            before,
            bytes: 0,
            load: Duration::ZERO,
            unused,
            eal,
        };
        let rx = parts.rx.into_iter().map(|(rx, rings)| (Box::new(rx), rings));
        let workers = rx.zip(parts.tx.into_iter().map(Box::new));
        for ((workers, generator), index) in workers.zip(generators.collect::<Vec<_>>()).zip(0..) {
            bench.launch(index, workers, generator)?;
        }
        Ok(bench)
    }

    /// Starts a shard and its generator, on one lcore or on two.
    fn launch(
        &mut self,
        index: usize,
        ((rx, rings), tx): ((Box<RxWorker>, Rings), Box<TxWorker>),
        generator: Generator,
    ) -> Result<(), BenchError> {
        let tally = Arc::<Tally>::default();
        let (inner, feed) = (Arc::clone(&self.handle.0), Arc::clone(&self.feed));
        self.tallies.push(Arc::clone(&tally));
        if self.options.shards > 0 {
            let lcore = if index == 0 { rig::PATH } else { rig::GENERATOR };
            let job = move || path::run_fed(&inner, &tally, &feed, index, (rx, rings, tx), generator);
            self.lcores.push(self.eal.launch(lcore, job).map_err(LaunchError::from)?);
            return Ok(());
        }
        let path = {
            let (inner, feed) = (Arc::clone(&inner), Arc::clone(&feed));
            self.eal.launch(rig::PATH, move || path::run(&inner, &tally, &feed, rx, tx))
        };
        self.lcores.push(path.map_err(LaunchError::from)?);
        let generator = self.eal.launch(rig::GENERATOR, move || generator.run(&inner, &feed));
        self.lcores.push(generator.map_err(LaunchError::from)?);
        Ok(())
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.handle.0
    }

    /// The engine's own figures: [`super::run`].
    pub(super) fn conduct(&mut self) -> Result<Measured, BenchError> {
        if self.options.held_us == 0 {
            self.subscribe(|subscriber| record(subscriber, OPEN_BPS))?;
            if !self.options.crossing {
                self.at_home()?;
            }
            self.flow(OPEN_FLIGHT * u64::from(self.options.shards.max(1)));
            return Ok(self.measure(0.0));
        }
        let held_pps = self.hold_all()?;
        Ok(self.measure(held_pps))
    }

    /// Looks whether every subscriber is in the shard whose generator feeds it.
    fn at_home(&self) -> Result<(), BenchError> {
        let shards = self.options.shards.max(1);
        let desk = self.inner().desk();
        let feeder = |subscriber: u32| (subscriber % shards) as usize;
        let home = |subscriber| {
            let (down, _) = desk.registry.ids(&record(subscriber, OPEN_BPS).id)?;
            Some(desk.registry.shard(down))
        };
        match (0..self.options.subscribers).find(|&who| shards > 1 && home(who) != Some(feeder(who))) {
            Some(who) => Err(BenchError::Elsewhere(who)),
            None => Ok(()),
        }
    }

    /// Lets so many packets go round, and warms up.
    pub(super) fn flow(&self, flight: u64) {
        self.feed.target.store(flight, Relaxed);
        self.pass(WARM_UP);
    }

    /// Gives every subscriber a record; nothing is sent meanwhile.
    pub(super) fn subscribe(&mut self, record: impl Fn(u32) -> Subscriber) -> Result<(), BenchError> {
        let flowing = self.feed.target.swap(0, Relaxed);
        let seen = self.wait(SETTLE, |bench| {
            let inner = bench.inner();
            inner.silent(inner.now()).next().is_none() && bench.books().queued == 0
        });
        if !seen {
            return Err(ApplyError::Unavailable("the path's lcore does not start").into());
        }
        let levels = self.options.parents;
        let above = parents::all(self.options.subscribers, levels);
        self.handle.apply(&Batch { parents: above, ..Batch::default() })?;
        let begin = self.inner().now();
        for first in (0..self.options.subscribers).step_by(BATCH as usize) {
            let end = self.options.subscribers.min(first + BATCH);
            let below = |who| Subscriber { parent: parents::of(who, levels), ..record(who) };
            let puts = (first..end).map(below).collect();
            self.handle.apply(&Batch { puts, ..Batch::default() })?;
        }
        self.load = Duration::from_nanos(self.inner().now().since(begin).0);
        self.bytes = memory_bytes().saturating_sub(self.before);
        self.feed.target.store(flowing, Relaxed);
        Ok(())
    }

    /// Finds the rates that the path can just about carry, unless they are told, and waits until all is held; what the
    /// rates add up to.
    pub(super) fn hold_all(&mut self) -> Result<f64, BenchError> {
        // not far from what follows: the wait that a change of rate finds pending is rescaled, lag included
        let mut pps = self.options.held_pps.unwrap_or(PLANNED_PPS);
        self.rates(pps)?;
        if self.options.held_pps.is_none() {
            self.flow(OPEN_FLIGHT);
            // rates beyond what held traffic can reach show what a packet costs then
            let open = self.window(WARM_UP);
            self.rates(open.capacity())?;
            self.press(open.capacity());
            let busy = self.window(WARM_UP);
            tracing::debug!(?open, ?busy, "warm-up");
            pps = busy.capacity() * HELD_LOAD;
            self.rates(pps)?;
        }
        let mut reached = None;
        for _ in 0..HELD_TRIES {
            let wanted = self.press(pps);
            let all = self.wait(PRIME, |bench| bench.held() * 10 >= wanted * 8);
            let mean = self.mean_held(pps);
            tracing::debug!(pps, wanted, mean, feed = ?self.feed, all, "held traffic");
            if all && mean * 10 >= wanted * 8 {
                return Ok(pps);
            }
            if all {
                // with each round of all subscribers more waits
                reached = Some(pps);
                continue;
            }
            if let Some(pps) = reached {
                return Ok(pps);
            }
            // nothing waits where less comes than the rates allow: where others take the generator's CPU, and where the
            // path could carry more than it can make
            let came = self.window(WARM_UP);
            tracing::debug!(?came, "not held");
            pps = HELD_LOAD * pps.min(came.mpps * 1e6).max(pps / 2.0);
            self.rates(pps)?;
        }
        let not_held = || BenchError::NotHeld { held: self.held(), wanted: flight(self.options, pps) };
        reached.ok_or_else(not_held)
    }

    /// How many packets are in the shards in the mean of a round of all subscribers.
    fn mean_held(&self, pps: f64) -> u64 {
        let round = Duration::from_secs_f64(f64::from(self.options.subscribers) / pps);
        let (sum, looks) = (Cell::new(0), Cell::new(0));
        self.wait(WARM_UP.max(round), |bench| {
            sum.set(sum.get() + bench.held());
            looks.set(looks.get() + 1);
            false
        });
        sum.get() / looks.get().max(1)
    }

    /// Sets rates that add up to `pps`.
    pub(super) fn rates(&mut self, pps: f64) -> Result<(), BenchError> {
        let options = self.options;
        self.subscribe(|subscriber| record(subscriber, held_bps(options, pps)))
    }

    /// Where the rates add up to `pps`, lets everybody's turn come twice; how many packets are to be held.
    ///
    /// The rounds must take as long as a packet at a subscriber's rate, less the wait: at full speed all would send
    /// within a part of that time and the first of them would hold up the others.
    pub(super) fn press(&self, pps: f64) -> u64 {
        let wanted = flight(self.options, pps);
        self.feed.pace.store(pace(self.options, pps, wanted), Relaxed);
        self.feed.target.store(wanted, Relaxed);
        let round = Duration::from_secs_f64(f64::from(self.options.subscribers) / pps);
        self.pass(WARM_UP.max(round * 2));
        wanted
    }

    /// Packets in the shards.
    pub(super) fn held(&self) -> u64 {
        self.inner().held.iter().map(|held| held.packets.load(Relaxed)).sum()
    }

    pub(super) fn measure(&self, held_pps: f64) -> Measured {
        let before = self.totals();
        self.feed.measuring.store(true, Relaxed);
        let window = self.options.duration / WINDOWS;
        let staged = |on| {
            self.tallies.iter().for_each(|tally| tally.staged.store(on, Relaxed));
            self.pass(LOOK);
        };
        let windows = (0..WINDOWS).map(|_| {
            let plain = self.window(window.mul_f64(1.0 - STAGED_PART));
            staged(true);
            let part = self.window(window.mul_f64(STAGED_PART));
            staged(false);
            Window { stages: part.stages, ..plain }
        });
        let windows = windows.collect();
        self.feed.measuring.store(false, Relaxed);
        let (held_us, marked) = difference(&before, &self.totals());
        Measured { windows, held_us, marked, held_pps }
    }

    /// Figures of a span of time that begins now.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub(super) fn window(&self, span: Duration) -> Window {
        let before = self.sample();
        self.pass(span);
        let after = self.sample();
        let took = (after.at_ns - before.at_ns).max(1) as f64;
        let by_lcore = |after: &[u64], before: &[u64]| -> Vec<f64> {
            after.iter().zip(before).map(|(after, before)| (after - before) as f64).collect()
        };
        let (sent, busy) = (by_lcore(&after.sent, &before.sent), by_lcore(&after.busy, &before.busy));
        let whole = sent.iter().zip(&busy).map(|(sent, busy)| sent / busy.max(1.0) * 1e3).sum();
        let (packets, busy) = (sent.iter().sum::<f64>().max(1.0), busy.iter().sum::<f64>());
        let hz = self.inner().clock.hz() as f64;
        let ticks = after.ticks.iter().zip(before.ticks);
        let lcores = self.tallies.len().max(1) as f64;
        Window {
            mpps: packets / took * 1e3,
            ns_per_packet: busy / packets,
            whole_mpps: whole,
            busy: busy / took / lcores,
            lost: (after.lost - before.lost) as f64 / took / lcores,
            stages: ticks.map(|(after, before)| (after - before) as f64 / hz * 1e9 / packets).collect(),
        }
    }

    fn sample(&self) -> Sample {
        let ports = &self.inner().ports;
        let sent =
            |lcore: usize| ports.iter().filter_map(move |port| port.tx.get(lcore)).map(|tx| tx.packets.get());
        Sample {
            at_ns: self.inner().now().0,
            sent: (0..self.tallies.len()).map(|lcore| sent(lcore).sum()).collect(),
            busy: self.tallies.iter().map(|tally| tally.busy.get()).collect(),
            lost: self.lost(),
            ticks: std::array::from_fn(|stage| {
                self.tallies.iter().filter_map(|tally| tally.ticks.get(stage)).map(engine::Counter::get).sum()
            }),
        }
    }

    pub(super) fn totals(&self) -> AllTotals {
        let mut totals = AllTotals::default();
        self.inner().shards.iter().for_each(|shard| shard.add_to(&mut totals));
        self.inner().rx.iter().for_each(|(rx, _)| rx.add_to(&mut totals));
        totals
    }

    /// How late departures were since the start: all of them, and those that pauses made late.
    pub(super) fn lateness(&self) -> (Late, Late) {
        // what an interruption caused is counted apart when it is over
        self.wait(WARM_UP, |bench| !bench.tallies.iter().any(|tally| tally.behind.load(Relaxed)));
        let mut then = Late::default();
        for tally in &self.tallies {
            then.add(&tally.late_then.lock().unwrap_or_else(PoisonError::into_inner));
        }
        (Late::of(&self.totals().lag), then)
    }

    /// Tells the lcores what a packet costs, so that they know work from pauses.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds")]
    pub(super) fn learn_cost(&self) {
        self.feed.cost.store(self.window(WARM_UP).ns_per_packet as u64, Relaxed);
    }

    /// Nanoseconds lost to interruptions since the start.
    pub(super) fn lost(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.lost.get()).sum()
    }

    /// The longest loop since the last call.
    pub(super) fn longest_us(&self) -> f64 {
        let longest = self.tallies.iter().map(|tally| tally.longest.swap(0, Relaxed)).max().unwrap_or(0);
        Duration::from_nanos(longest).as_secs_f64() * 1e6
    }

    pub(super) fn books(&self) -> Books {
        let totals = self.totals();
        let mut books = Books {
            generated: self.feed.all_sent(),
            returned: self.feed.all_returned(),
            queued: self.held(),
            ..Books::default()
        };
        for direction in Direction::BOTH {
            for queue in Queue::BOTH {
                for (into, reason) in books.dropped.iter_mut().zip(DropReason::ALL) {
                    *into += totals.queue(direction, queue).dropped_by(reason);
                }
            }
            let mut kinds = Vec::new();
            self.inner().rx.iter().for_each(|(_, counters)| counters.add_to(direction, &mut kinds));
            books.unmatched += kinds.iter().map(|kind| kind.packets).sum::<u64>();
        }
        books
    }

    /// Lets time pass.
    pub(super) fn pass(&self, span: Duration) {
        self.wait(span, |_| false);
    }

    /// Waits until `done`, at most `span`, and keeps the generator informed; whether it was.
    pub(super) fn wait(&self, span: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let inner = self.inner();
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let end = inner.now().0 + nanos(span);
        loop {
            self.feed.dropped.store(self.books().all_dropped(), Relaxed);
            if done(self) {
                return true;
            }
            let left = end.saturating_sub(inner.now().0);
            if left == 0 {
                return false;
            }
            nap(LOOK.min(Duration::from_nanos(left)));
        }
    }

    /// Stops all lcores and closes the books, whatever came before.
    pub(super) fn finish<T>(self, measured: Result<T, BenchError>) -> Result<(T, End), BenchError> {
        let clock_speed = self.inner().shared_ports.last().map_or(1.0, engine::PortShared::clock_speed);
        self.feed.target.store(0, Relaxed);
        self.wait(SETTLE, |bench| bench.books().queued == 0 && bench.books().balance());
        let books = self.books();
        self.feed.stop.store(true, Relaxed);
        self.inner().phase.advance(Phase::Stop);
        let (mut passes, mut ledger) = (Vec::new(), None);
        for lcore in self.lcores {
            let ended = lcore.join()?;
            passes.extend(ended.passes);
            ledger = ledger.or(ended.ledger);
        }
        drop((self.handle, self.unused));
        drop(self.eal);
        let measured = measured?;
        if !books.balance() {
            return Err(BenchError::Books(books));
        }
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let end = End {
            books,
            clock_speed,
            huge: self.huge,
            passes_us: passes.iter().map(|&ns| ns as f64 / 1e3).collect(),
            ledger,
            bytes_per_subscriber: self.bytes as f64 / f64::from(self.options.subscribers),
        };
        Ok((measured, end))
    }
}

impl Measured {
    /// Together with what was left at the end.
    pub(super) fn report(self, end: End) -> Report {
        Report {
            windows: self.windows,
            passes_us: end.passes_us,
            bytes_per_subscriber: end.bytes_per_subscriber,
            held_us: self.held_us,
            held_pps: self.held_pps,
            clock_speed: end.clock_speed,
            marked: self.marked,
            huge: end.huge,
            books: end.books,
        }
    }
}

/// The generator's pace where `held` packets are to wait and the rates add up to `pps`: as many packets more in a
/// round.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "about"
)]
fn pace(options: &Options, pps: f64, held: u64) -> u64 {
    (pps * (1.0 + held as f64 / f64::from(options.subscribers))) as u64
}

/// Rate of a subscriber where all together get `pps` packets.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what a record may have"
)]
fn held_bps(options: &Options, pps: f64) -> u64 {
    let l3_bytes = f64::from(options.sizes.mean()) - 34.0;
    let bits = 8.0 * (l3_bytes + f64::from(rig::HELD_OVERHEAD));
    let bps = pps / f64::from(options.subscribers) * bits;
    (bps as u64).clamp(MIN_RATE_BPS, MAX_RATE_BPS)
}

/// Mean delay of what was sent between two moments, and the part of it that was marked.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn difference(before: &AllTotals, after: &AllTotals) -> (f64, f64) {
    let sum = |totals: &AllTotals| {
        Queue::BOTH.iter().fold((0.0, 0.0, 0.0), |(delay, packets, marked), &queue| {
            let of = totals.queue(Direction::Down, queue);
            (delay + of.delay.sum_us(), packets + of.forwarded as f64, marked + of.marked as f64)
        })
    };
    let (before, after) = (sum(before), sum(after));
    let packets = (after.1 - before.1).max(1.0);
    ((after.0 - before.0) / packets, (after.2 - before.2) / packets)
}

#[expect(clippy::disallowed_methods, reason = "the conductor owns the benchmark's time")]
pub(super) fn nap(span: Duration) {
    std::thread::sleep(span);
}

/// Memory of this process that is in use, huge pages included; 0 where the kernel does not say.
pub(super) fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok())
    };
    let kb = field("VmRSS").unwrap_or(0) + field("HugetlbPages").unwrap_or(0);
    kb * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(held_us: u64) -> Options {
        Options { held_us, ..Options::new(100_000, Duration::from_secs(1), (0, 1)) }
    }

    #[test]
    fn what_is_in_flight_makes_the_wait() {
        assert_eq!(flight(&options(0), 5e6), OPEN_FLIGHT);
        assert_eq!(flight(&options(2_000), 5e6), 10_000);
        assert_eq!(flight(&options(1), 5e6), HELD_FLIGHT);
    }

    #[test]
    fn a_round_is_shorter_than_a_packets_time_by_the_wait() {
        let options = options(2_000);
        let pace = pace(&options, 5e6, flight(&options, 5e6));
        assert_eq!(pace, 5_500_000);
        // a packet's time is 20 ms, a round 18.2 ms
    }

    #[test]
    fn rates_add_up_to_the_packets_asked_for() {
        let options = options(2_000);
        let bits = 8.0 * (30.0 + f64::from(rig::HELD_OVERHEAD));
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let pps = held_bps(&options, 5e6) as f64 / bits * 100_000.0;
        assert!((pps - 5e6).abs() < 50.0, "{pps}");
    }
}
