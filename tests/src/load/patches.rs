// SPDX-License-Identifier: Apache-2.0
//! Single changes from several connections, each waiting for its answer before it asks again.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::http::Connection;
use super::{Options, id, now};

/// What came of it.
pub(super) struct Patched {
    pub(super) per_s: f64,
    /// Median, 99th percentile, longest.
    pub(super) ms: [f64; 3],
    /// Records and the last rate that was acknowledged.
    pub(super) acknowledged: HashMap<u32, u64>,
}

#[derive(Default)]
struct Share {
    micros: Vec<u32>,
    acknowledged: HashMap<u32, u64>,
}

pub(super) fn run(api: &str, options: Options) -> Result<Patched> {
    let begin = now();
    let shares: Vec<Result<Share>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..options.connections).map(|number| scope.spawn(move || one(api, options, number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Ok(Share::default()))).collect()
    });
    let seconds = begin.elapsed().as_secs_f64();
    let (mut micros, mut acknowledged) = (Vec::new(), HashMap::new());
    for share in shares {
        let share = share?;
        micros.extend(share.micros);
        acknowledged.extend(share.acknowledged);
    }
    micros.sort_unstable();
    let at = |part: usize| micros.get((micros.len() * part / 1000).min(micros.len() - 1)).copied();
    let ms = |part| at(part).map_or(f64::NAN, |micros| f64::from(micros) / 1000.0);
    ensure!(!micros.is_empty(), "nothing was changed");
    let count = u32::try_from(micros.len()).context("too many")?;
    Ok(Patched { per_s: f64::from(count) / seconds, ms: [ms(500), ms(990), ms(1000)], acknowledged })
}

/// One connection; records of its own, so that the last acknowledged is the last there is.
fn one(api: &str, options: Options, number: u32) -> Result<Share> {
    let mut connection = Connection::open(api)?;
    let mut share = Share::default();
    let end = now() + Duration::from_secs_f64(options.seconds);
    let own = options.records / options.connections;
    let mut random = u64::from(number) + 1;
    let mut rate = 30_000_000;
    while now() < end {
        // Knuth's MMIX: which record is next
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let place = u32::try_from(random >> 33).unwrap_or(0) % own;
        let record = place * options.connections + number;
        rate += 1;
        let begin = now();
        let path = format!("/v1/subscribers/{}", id(record));
        let (status, body) = connection.call("PATCH", &path, &format!("{{\"down_bps\":{rate}}}"))?;
        let took = begin.elapsed();
        ensure!(status == 200, "{status} {body}");
        share.micros.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
        share.acknowledged.insert(record, rate);
    }
    Ok(share)
}
