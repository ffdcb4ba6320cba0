// SPDX-License-Identifier: Apache-2.0
//! The conductor of a benchmark: starts both lcores, tells the generator what to keep in flight, takes windows,
//! closes the books.
//!
//! Invariant: whatever happens in between, both lcores have ended when [`Bench::finish`] returns.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use aqm::Queue;
use dpdk::LcoreHandle;
use engine::{AllTotals, Direction, DropReason};
use model::subscriber::{MAX_RATE_BPS, MIN_RATE_BPS};

use super::frame::record;
use super::generator::{Feed, Generator, Order};
use super::path::{self, STAGES, Tally};
use super::rig::{self, Rig};
use super::{BenchError, Books, Options, PLANNED_PPS, Report, Window};
use crate::error::{ApplyError, LaunchError};
use crate::handle::{Handle, Inner};
use crate::launch::Builder;
use crate::lcore::Phase;

/// Rate of a subscriber whose traffic is not held.
const OPEN_BPS: u64 = 100_000_000_000;
/// Packets in flight of conforming traffic: as many as a NIC's ring holds.
const OPEN_FLIGHT: u64 = 1_024;
/// Packets in flight of held traffic, at least.
const HELD_FLIGHT: u64 = 256;
/// Packets in flight at most.
const MOST_FLIGHT: u64 = 1 << 20;
/// Held traffic: what the subscribers' rates add up to, of what the path can carry; less where that turns out to be
/// too much, so many times.
const HELD_LOAD: f64 = 0.9;
const HELD_TRIES: u32 = 4;
/// Records applied at a time.
const BATCH: u32 = 4_096;
/// Measured windows, and the part of each in which stages are measured.
const WINDOWS: u32 = 5;
const STAGED_PART: f64 = 0.3;
/// Warm-ups.
const WARM_UP: Duration = Duration::from_millis(300);
/// How often the conductor looks.
const LOOK: Duration = Duration::from_millis(5);
/// Longest wait for all packets to be held, and for all to come back.
const PRIME: Duration = Duration::from_secs(2);
const SETTLE: Duration = Duration::from_secs(5);

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
    options: &'a Options,
    handle: Handle,
    feed: Arc<Feed>,
    tally: Arc<Tally>,
    generator: LcoreHandle<Vec<u64>>,
    path: LcoreHandle<()>,
    huge: bool,
    /// Memory before, then the difference.
    bytes: u64,
    unused: (dpdk::Producer, dpdk::Consumer),
    // dropped last
    eal: dpdk::Eal,
}

/// What is known at a moment.
struct Sample {
    at_ns: u64,
    sent: u64,
    busy: u64,
    lost: u64,
    ticks: [u64; STAGES],
}

pub(super) struct Measured {
    windows: Vec<Window>,
    held_us: f64,
    marked: f64,
}

impl<'a> Bench<'a> {
    /// Builds the path and starts both lcores; nothing is sent yet.
    pub(super) fn start(options: &'a Options, rig: Rig) -> Result<Self, BenchError> {
        let Rig { config, opened, pool, ends, unused, huge, eal } = rig;
        let before = memory_bytes();
        let ids = 2 * (options.subscribers + 2);
        let parts = Builder::new(&config, ids, &eal, &opened)?.build(&eal, opened)?;
        let (inner, feed, tally) = (parts.inner, Arc::<Feed>::default(), Arc::<Tally>::default());
        let order = match options.held_us {
            0 => Order::random(options.subscribers, options.seed),
            _ => Order::turn(options.subscribers, options.seed),
        };
        let alone = options.cpus.0 != options.cpus.1;
        let generator = Generator::new(pool, ends, order, options.sizes, alone);
        let path = {
            let (inner, tally) = (Arc::clone(&inner), Arc::clone(&tally));
            let workers = parts.rx.into_iter().zip(parts.tx).next();
            eal.launch(rig::PATH, move || {
                if let Some(((rx, _), tx)) = workers {
                    path::run(&inner, &tally, Box::new(rx), Box::new(tx));
                }
            })
        };
        let path = path.map_err(LaunchError::from)?;
        let generator = {
            let (inner, feed) = (Arc::clone(&inner), Arc::clone(&feed));
            eal.launch(rig::GENERATOR, move || generator.run(&inner, &feed, parts.control))
        };
        let generator = generator.map_err(LaunchError::from)?;
        Ok(Self {
            options,
            handle: Handle(inner),
            feed,
            tally,
            generator,
            path,
            huge,
            bytes: before,
            unused,
            eal,
        })
    }

    fn inner(&self) -> &Inner {
        &self.handle.0
    }

    pub(super) fn conduct(&mut self) -> Result<Measured, BenchError> {
        // not far from what follows: the wait that a change of rate finds pending is rescaled, lag included
        self.subscribe(match self.options.held_us {
            0 => OPEN_BPS,
            _ => held_bps(self.options, PLANNED_PPS),
        })?;
        self.bytes = memory_bytes().saturating_sub(self.bytes);
        self.warm_up()?;
        Ok(self.measure())
    }

    /// Gives every subscriber this rate.
    fn subscribe(&self, down_bps: u64) -> Result<(), BenchError> {
        let seen = self.wait(SETTLE, |bench| bench.inner().silent(bench.inner().now()).next().is_none());
        if !seen {
            return Err(ApplyError::Unavailable("the path's lcore does not start").into());
        }
        for first in (0..self.options.subscribers).step_by(BATCH as usize) {
            let end = self.options.subscribers.min(first + BATCH);
            let records: Vec<_> = (first..end).map(|subscriber| record(subscriber, down_bps)).collect();
            self.handle.apply(&[], &records)?;
        }
        Ok(())
    }

    /// Warms up. Held traffic: finds the rates that the path can just about carry, and waits until all is held.
    fn warm_up(&self) -> Result<(), BenchError> {
        self.feed.target.store(OPEN_FLIGHT, Relaxed);
        self.pass(WARM_UP);
        if self.options.held_us == 0 {
            return Ok(());
        }
        // rates beyond what held traffic can reach show what a packet costs then
        let open = self.window(WARM_UP);
        self.hold(open.capacity())?;
        let busy = self.window(WARM_UP);
        tracing::debug!(?open, ?busy, "warm-up");
        let mut pps = busy.capacity();
        for _ in 0..HELD_TRIES {
            pps *= HELD_LOAD;
            let wanted = self.hold(pps)?;
            let all = self.wait(PRIME, |bench| bench.held() * 10 >= wanted * 8);
            tracing::debug!(pps, wanted, held = self.held(), feed = ?self.feed, all, "held traffic");
            if all {
                return Ok(());
            }
        }
        Err(BenchError::NotHeld { held: self.held(), wanted: flight(self.options, pps) })
    }

    /// Sets rates that add up to `pps` and lets everybody's turn come twice; how many packets are to be held.
    ///
    /// The rounds must take as long as a packet at a subscriber's rate, less the wait: at full speed all would send
    /// within a part of that time and the first of them would hold up the others.
    fn hold(&self, pps: f64) -> Result<u64, BenchError> {
        let wanted = flight(self.options, pps);
        self.subscribe(held_bps(self.options, pps))?;
        self.feed.pace.store(pace(self.options, pps, wanted), Relaxed);
        self.feed.target.store(wanted, Relaxed);
        let round = Duration::from_secs_f64(f64::from(self.options.subscribers) / pps);
        self.pass(WARM_UP.max(round * 2));
        Ok(wanted)
    }

    /// Packets in the shard.
    fn held(&self) -> u64 {
        self.inner().held.iter().map(|held| held.packets.load(Relaxed)).sum()
    }

    fn measure(&self) -> Measured {
        let before = self.totals();
        self.feed.measuring.store(true, Relaxed);
        let window = self.options.duration / WINDOWS;
        let windows = (0..WINDOWS).map(|_| {
            let plain = self.window(window.mul_f64(1.0 - STAGED_PART));
            self.tally.staged.store(true, Relaxed);
            self.pass(LOOK);
            let staged = self.window(window.mul_f64(STAGED_PART));
            self.tally.staged.store(false, Relaxed);
            self.pass(LOOK);
            Window { stages: staged.stages, ..plain }
        });
        let windows = windows.collect();
        self.feed.measuring.store(false, Relaxed);
        let (held_us, marked) = difference(&before, &self.totals());
        Measured { windows, held_us, marked }
    }

    /// Figures of a span of time that begins now.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn window(&self, span: Duration) -> Window {
        let before = self.sample();
        self.pass(span);
        let after = self.sample();
        let took = (after.at_ns - before.at_ns).max(1) as f64;
        let packets = (after.sent - before.sent).max(1) as f64;
        let hz = self.inner().clock.hz() as f64;
        let ticks = after.ticks.iter().zip(before.ticks);
        Window {
            mpps: packets / took * 1e3,
            ns_per_packet: (after.busy - before.busy) as f64 / packets,
            busy: (after.busy - before.busy) as f64 / took,
            lost: (after.lost - before.lost) as f64 / took,
            stages: ticks.map(|(after, before)| (after - before) as f64 / hz * 1e9 / packets).collect(),
        }
    }

    fn sample(&self) -> Sample {
        let sent = self.inner().ports.iter().flat_map(|port| &port.tx).map(|tx| tx.packets.get());
        Sample {
            at_ns: self.inner().now().0,
            sent: sent.sum(),
            busy: self.tally.busy.get(),
            lost: self.tally.lost.get(),
            ticks: self.tally.ticks.each_ref().map(engine::Counter::get),
        }
    }

    fn totals(&self) -> AllTotals {
        let mut totals = AllTotals::default();
        self.inner().shards.iter().for_each(|shard| shard.add_to(&mut totals));
        self.inner().rx.iter().for_each(|(rx, _)| rx.add_to(&mut totals));
        totals
    }

    fn books(&self) -> Books {
        let totals = self.totals();
        let mut books = Books {
            generated: self.feed.sent.get(),
            returned: self.feed.returned.get(),
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
    fn pass(&self, span: Duration) {
        self.wait(span, |_| false);
    }

    /// Waits until `done`, at most `span`, and keeps the generator informed; whether it was.
    fn wait(&self, span: Duration, done: impl Fn(&Self) -> bool) -> bool {
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

    /// Stops both lcores and closes the books, whatever came before.
    pub(super) fn finish(self, measured: Result<Measured, BenchError>) -> Result<Report, BenchError> {
        let clock_speed = self.inner().shared_ports.last().map_or(1.0, engine::PortShared::clock_speed);
        self.feed.target.store(0, Relaxed);
        self.wait(SETTLE, |bench| bench.books().queued == 0 && bench.books().balance());
        let books = self.books();
        self.feed.stop.store(true, Relaxed);
        self.inner().phase.advance(Phase::Stop);
        let passes = self.generator.join()?;
        self.path.join()?;
        drop((self.handle, self.unused));
        drop(self.eal);
        let measured = measured?;
        if !books.balance() {
            return Err(BenchError::Books(books));
        }
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        Ok(Report {
            windows: measured.windows,
            passes_us: passes.iter().map(|&ns| ns as f64 / 1e3).collect(),
            bytes_per_subscriber: self.bytes as f64 / f64::from(self.options.subscribers),
            held_us: measured.held_us,
            clock_speed,
            marked: measured.marked,
            huge: self.huge,
            books,
        })
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
fn nap(span: Duration) {
    std::thread::sleep(span);
}

/// Memory of this process that is in use, huge pages included; 0 where the kernel does not say.
fn memory_bytes() -> u64 {
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
    use super::super::Sizes;
    use super::*;

    fn options(held_us: u64) -> Options {
        Options {
            subscribers: 100_000,
            held_us,
            sizes: Sizes::Fixed(64),
            duration: Duration::from_secs(1),
            cpus: (0, 1),
            hugepages: true,
            seed: 1,
        }
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
