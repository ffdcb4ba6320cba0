// SPDX-License-Identifier: Apache-2.0
//! Runs the scenarios of cases, each pair of scenario and seed once, and judges the means over the seeds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::band::Verdict;
use super::case::{Arm, Case, Cell, Reference};
use super::deviation::{Deviation, find};
use super::glob::selects;
use super::report::{CaseResult, CellResult, Report};
use crate::outcome::{Outcome, Series};
use crate::scenario::Scenario;

/// Seeds of each case unless told otherwise; the issue wants at least 5.
pub const DEFAULT_SEEDS: u64 = 5;

/// The set for CI, under 3 minutes on 2 cores.
pub const SHORT: [&str; 8] = [
    "overload/c/100/*-delay-mean",
    "overload/c/100/*-dropped",
    "overload/c/100/prague-marked",
    "overload/c/100/drop-by-*",
    "overload/c/200/udp-dropped",
    "mixed/dualpi2/5-5",
    "mixed/dualpi2/5-100",
    "kernel/dualpi2/A-rtt20",
];

/// What is run, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only cells that fit one of these globs; empty: all.
    pub only: Vec<String>,
    /// Seeds of each case (cases of rare events run a multiple).
    pub seeds: u64,
    /// Threads.
    pub threads: usize,
}

/// Runs a scenario file with a seed.
pub type Simulate<'a> = dyn Fn(&str, u64) -> Result<Outcome, String> + Sync + 'a;

/// What a run cost, for whoever watches.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Runs there are.
    pub runs: usize,
    /// Packets that crossed the bottleneck after warm-up.
    pub packets: u64,
}

/// One scenario file with one seed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Job {
    toml: String,
    seed: u64,
}

type Results = BTreeMap<Job, Result<Outcome, String>>;

/// The real thing: the simulator.
///
/// # Errors
///
/// A scenario that does not parse or that an AQM refuses.
pub fn simulate(toml: &str, seed: u64) -> Result<Outcome, String> {
    let scenario = Scenario::parse(toml).map_err(|error| error.to_string())?;
    crate::run(&scenario, seed).map_err(|error| error.to_string())
}

/// Runs what `options` select of `cases` and judges it.
pub fn judge(
    cases: &[Case],
    deviations: &[Deviation],
    options: &Options,
    simulate: &Simulate<'_>,
    watch: &(dyn Fn(Done) + Sync),
) -> Report {
    let chosen: Vec<_> = cases.iter().filter_map(|case| choose(case, &options.only)).collect();
    // the published arm that a chosen default arm is held against runs too
    let wanted: BTreeSet<_> = chosen.iter().flat_map(|case| [case.name.as_str(), case.beside()]).collect();
    let running: Vec<_> = cases.iter().filter(|case| wanted.contains(case.name.as_str())).collect();
    let results = run_all(&jobs(&running, options.seeds), options.threads, simulate, watch);
    let packets = results.values().flatten().map(packets).sum();
    let runs = Runs { results: &results, seeds: options.seeds, cases: &running, deviations };
    Report { seeds: options.seeds, packets, cases: chosen.iter().map(|case| runs.judge(case)).collect() }
}

/// The case with the cells that are asked for; `None`: none are.
fn choose(case: &Case, only: &[String]) -> Option<Case> {
    let asked =
        |cell: &&Cell| only.is_empty() || only.iter().any(|glob| selects(glob, &case.cell_name(cell)));
    let cells: Vec<_> = case.cells.iter().filter(asked).cloned().collect();
    (!cells.is_empty()).then(|| Case { cells, ..case.clone() })
}

/// Each pair of scenario and seed once, the costly ones first so that the threads end together.
fn jobs(cases: &[&Case], seeds: u64) -> Vec<Job> {
    let mut costs: BTreeMap<Job, f64> = BTreeMap::new();
    for case in cases {
        let cost = case.setup.mbps() * f64::from(case.setup.duration_s);
        for seed in 1..=seeds * case.seeds {
            costs.insert(Job { toml: case.setup.toml(), seed }, cost);
        }
    }
    let mut jobs: Vec<_> = costs.into_iter().collect();
    jobs.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    jobs.into_iter().map(|(job, _)| job).collect()
}

/// Runs the jobs on so many threads. A result is found by its job: the order of running shows nowhere.
fn run_all(jobs: &[Job], threads: usize, simulate: &Simulate<'_>, watch: &(dyn Fn(Done) + Sync)) -> Results {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Results::new());
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut result = simulate(&job.toml, job.seed);
            watch(Done { runs: jobs.len(), packets: result.as_ref().map_or(0, packets) });
            if let (Ok(outcome), true) = (&mut result, job.seed > 1) {
                // plots are drawn of the first seed
                outcome.series = Series::default();
            }
            let mut results = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            results.insert(job.clone(), result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn packets(outcome: &Outcome) -> u64 {
    outcome.queues.l4s.packets + outcome.queues.classic.packets
}

/// Everything a verdict needs.
struct Runs<'a> {
    results: &'a Results,
    seeds: u64,
    cases: &'a [&'a Case],
    deviations: &'a [Deviation],
}

/// Mean, least and greatest over the seeds.
#[derive(Clone, Copy)]
struct Spread {
    mean: f64,
    min: f64,
    max: f64,
}

impl Runs<'_> {
    fn judge(&self, case: &Case) -> CaseResult {
        let outcomes = self.outcomes(case);
        let error = outcomes.iter().find_map(|outcome| outcome.as_ref().err().cloned());
        let series = outcomes.first().and_then(|first| first.as_ref().ok()).map(|first| first.series.clone());
        CaseResult {
            name: case.name.clone(),
            default_mode: case.arm == Arm::Default,
            source: case.source.clone(),
            seeds: self.seeds * case.seeds,
            cells: case.cells.iter().map(|cell| self.cell(case, cell, error.as_deref())).collect(),
            error,
            series: series.unwrap_or_default(),
        }
    }

    fn cell(&self, case: &Case, cell: &Cell, error: Option<&str>) -> CellResult {
        let name = case.cell_name(cell);
        let reference = match cell.reference {
            Reference::None => None,
            Reference::Published(value) => Some(value),
            Reference::Beside => self.beside(case, cell).map(|spread| spread.mean),
        };
        let spread = if error.is_some() { None } else { self.spread(case, cell) };
        let ours = spread.map(|spread| spread.mean);
        let mut verdict = cell.band.verdict(reference, ours);
        if error.is_some() || (cell.reference == Reference::Beside && reference.is_none()) {
            verdict = Verdict::Outside;
        }
        let why = match (&cell.band, verdict) {
            (_, Verdict::Outside) => error.map(str::to_owned),
            (super::Band::Reported(why), _) => Some(why.clone()),
            (_, Verdict::Reported) => Some("no published value".to_owned()),
            _ => None,
        };
        let borders = cell.band.range(reference);
        let border = |value: f64| value.is_finite().then_some(value);
        CellResult {
            quantity: cell.quantity.to_string(),
            unit: cell.quantity.unit(),
            reference,
            beside: cell.reference == Reference::Beside,
            ours,
            min: spread.map(|spread| spread.min),
            max: spread.map(|spread| spread.max),
            band: cell.band.to_string(),
            low: borders.and_then(|(low, _)| border(low)),
            high: borders.and_then(|(_, high)| border(high)),
            verdict,
            cause: why,
            deviation: match verdict {
                Verdict::Outside => find(self.deviations, &name).map(str::to_owned),
                _ => None,
            },
            name,
        }
    }

    fn beside(&self, case: &Case, cell: &Cell) -> Option<Spread> {
        let other = self.cases.iter().find(|other| other.name == case.beside() && other.name != case.name)?;
        self.spread(other, cell)
    }

    /// Over the seeds that show the figure at all; `None`: no seed does.
    fn spread(&self, case: &Case, cell: &Cell) -> Option<Spread> {
        let outcomes = self.outcomes(case);
        let values: Vec<_> =
            outcomes.iter().filter_map(|outcome| cell.quantity.of(outcome.as_ref().ok()?)).collect();
        let n = values.iter().fold(0.0, |n, _| n + 1.0);
        (n > 0.0).then(|| Spread {
            mean: values.iter().sum::<f64>() / n,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }

    fn outcomes(&self, case: &Case) -> Vec<&Result<Outcome, String>> {
        let toml = case.setup.toml();
        let job = |seed| Job { toml: toml.clone(), seed };
        (1..=self.seeds * case.seeds).filter_map(|seed| self.results.get(&job(seed))).collect()
    }
}
