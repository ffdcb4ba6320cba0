// SPDX-License-Identifier: Apache-2.0
//! Cases of their own, one path, one generator: many who wait, half load, changes under full load.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::conduct::{Bench, OPEN_BPS, OPEN_FLIGHT, WARM_UP};
use super::frame::record;
use super::generator::Order;
use super::{BenchError, Options, PLANNED_PPS, Report, conduct, median, with};
use crate::handle::Batch;

/// Spans in which changes come, each after one in which none do.
const SPAN: Duration = Duration::from_millis(100);
/// Time between two changes.
const CHANGE_EVERY: Duration = Duration::from_millis(1);
/// Rates that changes alternate between: both far above what a subscriber gets.
const CHANGED_BPS: [u64; 2] = [OPEN_BPS / 2, OPEN_BPS];

/// Every subscriber has `each` packets waiting all the time, at `plan_bps`.
pub fn backlog(options: &Options, plan_bps: u64, each: u32) -> Result<Report, BenchError> {
    let waiting = options.subscribers.saturating_mul(each);
    let order = |seed| Order::turn(options.subscribers, seed);
    let (measured, end) = with(options, waiting, order, None, |bench| {
        bench.subscribe(|subscriber| record(subscriber, plan_bps))?;
        bench.flow(u64::from(waiting));
        // what a subscriber may send at once after idling is gone by then
        let full = bench.wait(WARM_UP * 10, |bench| bench.held() * 10 >= u64::from(waiting) * 9);
        if !full {
            return Err(BenchError::NotHeld { held: bench.held(), wanted: waiting.into() });
        }
        bench.pass(Duration::from_secs(1));
        Ok(bench.measure(0.0))
    })?;
    Ok(measured.report(end))
}

/// How late departures were.
#[derive(Clone, Debug, Default)]
pub struct Lateness {
    /// What held traffic reached just before, in Mpps of a lcore that nobody interrupts.
    pub full_mpps: f64,
    /// What the subscribers' rates added up to, half of that, and what was sent, in Mpps.
    pub half_mpps: f64,
    /// Sent.
    pub mpps: f64,
    /// Part of the time the path found work.
    pub busy: f64,
    /// Departures counted, and those left out because of pauses.
    pub departures: u64,
    /// Left out.
    pub left_out: u64,
    /// Microseconds that half, 99 and 99.9 % were not later than; the upper edge of the bin of the 99 %.
    pub p50_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// Upper edge of its bin.
    pub p99_edge_us: f64,
    /// 99.9 %.
    pub p999_us: f64,
    /// 99 % of all, nothing left out.
    pub all_p99_us: f64,
    /// Loops of the lcore longer than 10 us and what the packets they moved account for, and the part of the time
    /// they took.
    pub pauses: u64,
    /// Loops longer than 10 us that their packets account for: these count.
    pub long: u64,
    /// Part of the time.
    pub paused: f64,
    /// The longest of them.
    pub longest_us: f64,
}

/// Half the load that held traffic can reach; `options.held_us` is not 0.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub fn lateness(options: &Options) -> Result<Lateness, BenchError> {
    let held = u32::try_from(conduct::flight(options, PLANNED_PPS)).unwrap_or(u32::MAX);
    let order = |seed| Order::turn(options.subscribers, seed);
    let (late, _) = with(options, held, order, None, |bench| {
        bench.hold_all()?;
        let full = bench.window(WARM_UP * 2).reached();
        let pps = full / 2.0;
        // time that others took from the generator is not to be made up for at more than half load
        bench.feed.steady.store(true, Relaxed);
        bench.rates(pps)?;
        bench.press(pps);
        bench.learn_cost();
        let clock = |bench: &Bench<'_>| {
            let of = bench.tallies.first();
            of.map_or([0; 3], |tally| [tally.pauses.get(), tally.paused.get(), tally.long.get()])
        };
        bench.longest_us();
        let (before, then_before) = bench.lateness();
        let clock_before = clock(bench);
        let window = bench.window(options.duration);
        let clock_after = clock(bench);
        let [pauses, lost_ns, long] = [0, 1, 2].map(|at: usize| clock_after[at] - clock_before[at]);
        let (after, then_after) = bench.lateness();
        let (all, then) = (after.since(&before), then_after.since(&then_before));
        let undisturbed = all.since(&then);
        Ok(Lateness {
            full_mpps: full / 1e6,
            half_mpps: pps / 1e6,
            mpps: window.mpps,
            busy: window.busy,
            departures: undisturbed.count(),
            left_out: then.count(),
            p50_us: undisturbed.quantile_us(0.5).0,
            p99_us: undisturbed.quantile_us(0.99).0,
            p99_edge_us: undisturbed.quantile_us(0.99).1,
            p999_us: undisturbed.quantile_us(0.999).0,
            all_p99_us: all.quantile_us(0.99).0,
            pauses,
            long,
            paused: lost_ns as f64 / options.duration.as_nanos() as f64,
            longest_us: bench.longest_us(),
        })
    })?;
    Ok(late)
}

/// What changes did under full load.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Rates changed and subscribers created.
    pub rates: u64,
    /// Created.
    pub created: u64,
    /// Packets lost, and packets sent meanwhile.
    pub lost: u64,
    /// Sent.
    pub sent: u64,
    /// Part of the time the path was busy while changes came.
    pub busy: f64,
    /// Median over spans of 100 ms of the longest loop, with changes and without.
    pub longest_us: f64,
    /// Without.
    pub longest_without_us: f64,
    /// The longest loop of all, with changes and without.
    pub worst_us: f64,
    /// Without.
    pub worst_without_us: f64,
    /// Median and longest time until a change was in force.
    pub took_us: f64,
    /// Longest.
    pub took_worst_us: f64,
}

/// Conforming traffic as fast as it goes; meanwhile rates change and subscribers come (`options.spare` at most), in
/// every second span of 100 ms.
pub fn changes(options: &Options) -> Result<Changes, BenchError> {
    let order = |seed| Order::random(options.subscribers, seed);
    let (changes, end) = with(options, 0, order, None, |bench| {
        bench.subscribe(|subscriber| record(subscriber, OPEN_BPS))?;
        bench.flow(OPEN_FLIGHT);
        let sent = bench.feed.all_sent();
        let mut run = Run::default();
        let spans = (options.duration.as_secs_f64() / SPAN.as_secs_f64() / 2.0).ceil();
        for _ in (0_u32..).take_while(|&span| f64::from(span) < spans) {
            bench.longest_us();
            bench.pass(SPAN);
            run.without.push(bench.longest_us());
            run.span(bench)?;
        }
        run.sent = bench.feed.all_sent() - sent;
        Ok(run)
    })?;
    let worst = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    Ok(Changes {
        rates: changes.rates,
        created: changes.created.into(),
        lost: end.books.all_dropped(),
        sent: changes.sent,
        busy: median(changes.busy),
        worst_us: worst(&changes.with),
        worst_without_us: worst(&changes.without),
        longest_us: median(changes.with),
        longest_without_us: median(changes.without),
        took_worst_us: worst(&changes.took),
        took_us: median(changes.took),
    })
}

/// Changes under way.
#[derive(Default)]
struct Run {
    rates: u64,
    created: u32,
    sent: u64,
    with: Vec<f64>,
    without: Vec<f64>,
    busy: Vec<f64>,
    took: Vec<f64>,
}

impl Run {
    /// A span with a change of rate or a new subscriber every millisecond.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn span(&mut self, bench: &Bench<'_>) -> Result<(), BenchError> {
        let options = bench.options;
        let busy = |bench: &Bench<'_>| bench.tallies.iter().map(|tally| tally.busy.get()).sum::<u64>();
        let (begin, busy_before) = (bench.inner().now(), busy(bench));
        bench.longest_us();
        while bench.inner().now().since(begin).0 < u64::try_from(SPAN.as_nanos()).unwrap_or(u64::MAX) {
            let asked = bench.inner().now();
            let serial = u32::try_from(self.rates).unwrap_or(u32::MAX);
            let record = if serial > self.created && self.created < options.spare {
                self.created += 1;
                record(options.subscribers + self.created - 1, OPEN_BPS)
            } else {
                self.rates += 1;
                let whose = serial.wrapping_mul(0x9e37_79b9) % options.subscribers;
                record(whose, CHANGED_BPS[(serial % 2) as usize])
            };
            bench.handle.apply(&Batch { puts: vec![record], ..Batch::default() })?;
            self.took.push(bench.inner().now().since(asked).0 as f64 / 1e3);
            bench.pass(CHANGE_EVERY);
        }
        self.with.push(bench.longest_us());
        let took = bench.inner().now().since(begin).0.max(1);
        self.busy.push((busy(bench) - busy_before) as f64 / took as f64);
        bench.feed.dropped.store(bench.books().all_dropped(), Relaxed);
        Ok(())
    }
}
