// SPDX-License-Identifier: Apache-2.0
//! Cases in which somebody is watched among many: an overloaded port, a flood at one subscriber, coming and going.
//!
//! The generator sends at a pace of its own here, whatever comes back, stamps each frame and reads each that returns.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use engine::DropReason;

use super::conduct::{Bench, WARM_UP, memory_bytes};
use super::frame::record;
use super::generator::Order;
use super::ledger::{EPOCHS, Ledger};
use super::{BenchError, Books, Options, median, with};
use crate::handle::Batch;

/// No limit to what is in flight but the pool's.
const OPEN_LOOP: u64 = u64::MAX >> 1;
/// Overload: the least plan; others have two and four times as much, all are offered in proportion.
const PLAN_BPS: u64 = 64_000;
/// Overload: subscribers who send far less than their plan, and that.
const SPARSE: u32 = 1_000;
const SPARSE_BPS: u64 = 10_000_000;
/// Wire bytes of the generator's smallest frames, and of the full packet that everybody may send at once after idling.
const WIRE_BYTES: u64 = 84;
const CREDIT_BYTES: u64 = 1_538;
/// Plans of everybody in a flood and of the one flooded.
const CALM_BPS: u64 = 1_000_000_000;
const FLOODED_BPS: u64 = 10_000_000;
/// Turns of calm and flood.
const TURNS: usize = 5;
/// Churn: what is removed and added together, a second's part.
const BATCHES: u32 = 100;

fn weight(subscriber: u32) -> u32 {
    if subscriber < SPARSE { 1 } else { 1 << (subscriber % 3) }
}

/// A port offered twice its rate.
#[derive(Clone, Debug)]
pub struct Overload {
    /// What the port carries, what it was offered and what it sent, in Mpps.
    pub port_mpps: f64,
    /// Offered.
    pub offered_mpps: f64,
    /// Sent.
    pub sent_mpps: f64,
    /// Jain's index over what each subscriber got divided by his plan; sparse ones left out.
    pub jain: f64,
    /// Mean packets a subscriber got: below about 50 the index is held down by counting.
    pub mean_packets: f64,
    /// Part of subscribers who got nothing.
    pub none: f64,
    /// Most packets that waited, and room for them.
    pub most_queued: u64,
    /// Room.
    pub room: u64,
    /// Delay of sparse subscribers, and the part left out because of interruptions.
    pub sparse_p50_us: f64,
    /// 99 %.
    pub sparse_p99_us: f64,
    /// Left out.
    pub left_out: f64,
    /// Packets that sparse subscribers lost since the start.
    pub sparse_lost: u64,
    /// Part of the time that was lost to interruptions of the path's lcore: a port makes up for 100 us of each.
    pub lost: f64,
    /// Speed of the port's clock.
    pub clock_speed: f64,
    /// Where the packets went.
    pub books: Books,
}

/// Offers twice `options.port_bps`; `options.buffers` packets may wait.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub fn overload(options: &Options) -> Result<Overload, BenchError> {
    let port_pps = options.port_bps.unwrap_or(0) as f64 / 8.0 / WIRE_BYTES as f64;
    let order = |seed| Order::weighted(options.subscribers, seed, weight);
    let plan =
        |subscriber| if subscriber < SPARSE { SPARSE_BPS } else { PLAN_BPS * u64::from(weight(subscriber)) };
    let (seen, end) = with(options, options.buffers, order, Some(SPARSE), |bench| {
        bench.subscribe(|subscriber| record(subscriber, plan(subscriber)))?;
        pace(bench, 2.0 * port_pps);
        bench.feed.overloaded.store(true, Relaxed);
        bench.feed.target.store(OPEN_LOOP, Relaxed);
        // what is made up for after an interruption would wait in the path's ring for longer than delays are left out
        bench.feed.steady.store(true, Relaxed);
        // until all have sent what they may after idling: so far everybody is entitled to as much, whatever its plan
        let credit = u64::from(options.subscribers) * CREDIT_BYTES / WIRE_BYTES;
        bench.pass((options.duration / 2).max(Duration::from_secs_f64(credit as f64 / port_pps.max(1.0))));
        bench.learn_cost();
        let lost = bench.lost();
        bench.feed.epoch.store(1, Relaxed);
        let (offered, mut most) = (bench.feed.all_sent(), 0);
        let before = bench.inner().now();
        let returned = bench.feed.all_returned();
        for _ in 0..50 {
            bench.pass(options.duration / 50);
            most = bench.held().max(most);
        }
        let took = bench.inner().now().since(before).0 as f64 / 1e3;
        bench.feed.epoch.store(0, Relaxed);
        let mpps = |count: u64| count as f64 / took;
        let (offered, sent) =
            (mpps(bench.feed.all_sent() - offered), mpps(bench.feed.all_returned() - returned));
        let room = bench.inner().pools.first().map_or(0, |pool| u64::from(pool.buffers()));
        let lost = (bench.lost() - lost) as f64 / 1e3 / took;
        Ok((offered, sent, most, room, lost))
    })?;
    let (offered_mpps, sent_mpps, most_queued, room, lost) = seen;
    let ledger = end.ledger.unwrap_or_else(|| Box::new(Ledger::new(0, 0)));
    let ordinary = ledger.served().iter().zip(0_u32..).skip(SPARSE as usize);
    let shares: Vec<f64> = ordinary.map(|(&got, who)| f64::from(got) / f64::from(weight(who))).collect();
    let none = shares.iter().filter(|&&share| share == 0.0).count() as f64 / shares.len().max(1) as f64;
    let mean_packets =
        ledger.served().iter().copied().map(f64::from).sum::<f64>() / f64::from(options.subscribers);
    let sparse = |q| ledger.delays(1).map_or(0.0, |[_, sparse]| sparse.quantile_us(q));
    Ok(Overload {
        port_mpps: port_pps / 1e6,
        offered_mpps,
        sent_mpps,
        jain: jain(&shares),
        mean_packets,
        none,
        most_queued,
        room,
        sparse_p50_us: sparse(0.5),
        sparse_p99_us: sparse(0.99),
        left_out: ledger.left_out(1),
        sparse_lost: ledger.lost()[1],
        lost,
        clock_speed: end.clock_speed,
        books: end.books,
    })
}

/// Jain's index.
#[expect(clippy::cast_precision_loss, reason = "a count")]
fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    sum * sum / (squares * values.len() as f64).max(f64::MIN_POSITIVE)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "packets a second")]
fn pace(bench: &Bench<'_>, pps: f64) {
    bench.feed.pace.store(pps as u64, Relaxed);
}

/// One subscriber flooded among conforming ones.
#[derive(Clone, Debug)]
pub struct Flood {
    /// What all are offered without the flood and with it, in Mpps.
    pub calm_mpps: f64,
    /// With it.
    pub flood_mpps: f64,
    /// What the others lost in the whole run, and the flooded one.
    pub others_lost: u64,
    /// The flooded one.
    pub flooded_lost: u64,
    /// Delays of the others without the flood and with it: medians over turns of the 50 and 99 %.
    pub calm_p50_us: f64,
    /// With it.
    pub flood_p50_us: f64,
    /// 99 % without.
    pub calm_p99_us: f64,
    /// 99 % with.
    pub flood_p99_us: f64,
    /// Part of the delays left out because of interruptions, without and with.
    pub left_out: [f64; 2],
    /// Where the packets went.
    pub books: Books,
}

/// `calm_pps` of conforming traffic, and in every second turn as much to one subscriber besides as makes `total_pps`;
/// `options.buffers` packets may wait.
pub fn flood(options: &Options, calm_pps: f64, total_pps: f64) -> Result<Flood, BenchError> {
    let order = |seed| Order::random(options.subscribers, seed);
    let plan = |subscriber| if subscriber == 0 { FLOODED_BPS } else { CALM_BPS };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of 65,536")]
    let part = ((1.0 - calm_pps / total_pps.max(calm_pps)) * 65_536.0) as u32;
    let (offered, end) = with(options, options.buffers, order, Some(1), |bench| {
        bench.subscribe(|subscriber| record(subscriber, plan(subscriber)))?;
        bench.feed.target.store(OPEN_LOOP, Relaxed);
        // what is made up for after an interruption would wait in the path's ring for longer than delays are left out
        bench.feed.steady.store(true, Relaxed);
        let turn = options.duration / u32::try_from(2 * TURNS).unwrap_or(1);
        let mut offered = [Vec::new(), Vec::new()];
        for epoch in 0..2 * TURNS {
            let flooded = epoch % 2;
            bench.feed.flood.store(if flooded == 1 { part } else { 0 }, Relaxed);
            pace(bench, if flooded == 1 { total_pps } else { calm_pps });
            bench.pass(WARM_UP);
            bench.learn_cost();
            let (before, begin) = (bench.feed.all_sent(), bench.inner().now());
            bench.feed.epoch.store(1 + epoch, Relaxed);
            bench.pass(turn);
            bench.feed.epoch.store(0, Relaxed);
            #[expect(clippy::cast_precision_loss, reason = "figures for people")]
            let mpps =
                (bench.feed.all_sent() - before) as f64 / bench.inner().now().since(begin).0 as f64 * 1e3;
            offered[flooded].push(mpps);
        }
        Ok(offered)
    })?;
    let ledger = end.ledger.unwrap_or_else(|| Box::new(Ledger::new(0, 0)));
    let epochs = |flooded: usize| (0..TURNS).map(move |turn| 1 + 2 * turn + flooded);
    let delay = |flooded, q| {
        let of =
            epochs(flooded).filter_map(|epoch| ledger.delays(epoch)).map(|[others, _]| others.quantile_us(q));
        let some: Vec<f64> = of.filter(|delay| !delay.is_nan()).collect();
        if some.is_empty() { f64::NAN } else { median(some) }
    };
    let [others_lost, flooded_lost] = ledger.lost();
    let [calm, flood] = offered;
    Ok(Flood {
        calm_mpps: median(calm),
        flood_mpps: median(flood),
        others_lost,
        flooded_lost,
        calm_p50_us: delay(0, 0.5),
        flood_p50_us: delay(1, 0.5),
        calm_p99_us: delay(0, 0.99),
        flood_p99_us: delay(1, 0.99),
        left_out: [0, 1].map(|flooded| median(epochs(flooded).map(|epoch| ledger.left_out(epoch)))),
        books: end.books,
    })
}

/// Subscribers who come and go.
#[derive(Clone, Debug)]
pub struct Churn {
    /// Added and removed in all, and a second.
    pub changed: u64,
    /// A second.
    pub per_second: f64,
    /// Traffic meanwhile, in Mpps.
    pub mpps: f64,
    /// What everybody else lost.
    pub lost: u64,
    /// Memory after a tenth of the run, and at the end.
    pub early_bytes: u64,
    /// At the end.
    pub end_bytes: u64,
    /// Delay's 99 %: over the first tenth of the run, the last, and the worst of all parts.
    pub first_p99_us: f64,
    /// Last.
    pub last_p99_us: f64,
    /// Worst.
    pub worst_p99_us: f64,
    /// Part of the delays left out because of interruptions, at most.
    pub left_out: f64,
    /// Median and longest time of a batch.
    pub batch_us: f64,
    /// Longest.
    pub batch_worst_us: f64,
}

/// Adds and removes `per_second` subscribers a second each beside conforming traffic of `pps`; `options.spare` is room
/// for those who come.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub fn churn(options: &Options, per_second: u32, pps: f64) -> Result<Churn, BenchError> {
    let order = |seed| Order::random(options.subscribers, seed);
    let (run, end) = with(options, 0, order, Some(0), |bench| {
        bench.subscribe(|subscriber| record(subscriber, CALM_BPS))?;
        pace(bench, pps);
        bench.feed.steady.store(true, Relaxed);
        bench.flow(OPEN_LOOP);
        bench.learn_cost();
        let mut run = Coming { batch: (per_second / BATCHES).max(1), ..Coming::default() };
        let (begin, sent) = (bench.inner().now(), bench.feed.all_sent());
        let span = Duration::from_secs(1) / BATCHES;
        let total = options.duration.as_secs_f64();
        loop {
            let gone = Duration::from_nanos(bench.inner().now().since(begin).0).as_secs_f64();
            if gone >= total {
                break;
            }
            let part = gone / total;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a part of the epochs"
            )]
            bench.feed.epoch.store(1 + (part * (EPOCHS - 2) as f64) as usize, Relaxed);
            if part > 0.1 && run.early == 0 {
                run.early = memory_bytes();
            }
            // as many as the time that has passed asks for: a batch that came late is made up for
            if (run.changed as f64) < gone * f64::from(per_second) {
                run.turn(bench)?;
            } else {
                bench.pass(span / 4);
            }
        }
        bench.feed.epoch.store(0, Relaxed);
        run.end = memory_bytes();
        let took = bench.inner().now().since(begin).0 as f64;
        run.rate = (run.changed as f64 / took * 1e9, (bench.feed.all_sent() - sent) as f64 / took * 1e3);
        Ok(run)
    })?;
    let ledger = end.ledger.unwrap_or_else(|| Box::new(Ledger::new(0, 0)));
    let p99: Vec<f64> = (1..EPOCHS - 1)
        .filter_map(|epoch| ledger.delays(epoch))
        .filter(|[others, _]| others.count() > 1_000)
        .map(|[others, _]| others.quantile_us(0.99))
        .collect();
    let tenth = (p99.len() / 10).max(1);
    Ok(Churn {
        changed: run.changed,
        per_second: run.rate.0,
        mpps: run.rate.1,
        lost: ledger.lost()[0] + end.books.unmatched,
        early_bytes: run.early,
        end_bytes: run.end,
        first_p99_us: median(p99.iter().copied().take(tenth)),
        last_p99_us: median(p99.iter().rev().copied().take(tenth)),
        worst_p99_us: p99.iter().copied().fold(0.0, f64::max),
        left_out: (1..EPOCHS - 1).map(|epoch| ledger.left_out(epoch)).fold(0.0, f64::max),
        batch_worst_us: run.took.iter().copied().fold(0.0, f64::max),
        batch_us: median(run.took),
    })
}

/// Those who come and go.
#[derive(Default)]
struct Coming {
    batch: u32,
    serial: u32,
    changed: u64,
    here: VecDeque<u32>,
    early: u64,
    end: u64,
    /// Changes a second, and Mpps.
    rate: (f64, f64),
    took: Vec<f64>,
}

impl Coming {
    /// A batch comes and, once half of the room is taken, as many go.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn turn(&mut self, bench: &Bench<'_>) -> Result<(), BenchError> {
        let options = bench.options;
        let come: Vec<u32> = (0..self.batch)
            .map(|next| options.subscribers + (self.serial + next) % options.spare.max(1))
            .collect();
        self.serial += self.batch;
        let go = if self.here.len() * 2 >= options.spare as usize { self.batch as usize } else { 0 };
        let gone: Vec<String> = self.here.drain(..go).map(|who| record(who, CALM_BPS).id).collect();
        let puts = come.iter().map(|&who| record(who, CALM_BPS)).collect();
        let asked = bench.inner().now();
        bench.handle.apply(&Batch { removes: gone, puts, ..Batch::default() })?;
        bench.handle.tick();
        self.took.push(bench.inner().now().since(asked).0 as f64 / 1e3);
        self.here.extend(come);
        self.changed += u64::from(self.batch);
        bench.feed.dropped.store(bench.books().all_dropped(), Relaxed);
        Ok(())
    }
}

impl Books {
    /// Packets dropped for one reason.
    pub fn dropped_by(&self, reason: DropReason) -> u64 {
        self.dropped.get(reason as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_1_for_equals_and_a_half_where_half_get_all() {
        assert!((jain(&[3.0; 8]) - 1.0).abs() < 1e-12);
        assert!((jain(&[1.0, 0.0, 1.0, 0.0]) - 0.5).abs() < 1e-12);
        assert!(jain(&[]).abs() < 1e-12);
    }

    #[test]
    fn plans_are_1_2_and_4() {
        let plans: Vec<u32> = (SPARSE..SPARSE + 3).map(weight).collect();
        assert_eq!(plans.iter().sum::<u32>(), 7);
        assert_eq!(weight(0), 1);
    }
}
