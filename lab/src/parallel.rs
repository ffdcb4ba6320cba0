// SPDX-License-Identifier: Apache-2.0
//! Many runs on a few threads. Each run stands alone, so results do not depend on how many threads there are.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::{Error, Outcome, Scenario, run};

/// Runs each scenario with its seed, on up to `threads` threads; results in the order of `jobs`.
pub fn run_all(jobs: &[(Scenario, u64)], threads: usize) -> Vec<Result<Outcome, Error>> {
    run_all_watched(jobs, threads, &|| {})
}

/// As [`run_all`], and calls `done` after each run, from the thread that made it.
pub fn run_all_watched(
    jobs: &[(Scenario, u64)],
    threads: usize,
    done: &(dyn Fn() + Sync),
) -> Vec<Result<Outcome, Error>> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<Outcome, Error>>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    let (Some((scenario, seed)), Some(place)) = (jobs.get(at), results.get(at)) else {
                        return;
                    };
                    let result = run(scenario, *seed);
                    *place.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(result);
                    done();
                }
            });
        }
    });
    let taken = results
        .into_iter()
        .filter_map(|place| place.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner));
    taken.collect()
}
