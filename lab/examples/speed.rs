// SPDX-License-Identifier: Apache-2.0
//! How many packets a second of wall time the simulator forwards: `cargo run --release -p lab --example speed`.
//!
//! One Prague and one CUBIC over 200 Mb/s with 10 ms, 20 s of virtual time; the best of several runs counts, because a
//! shared machine only ever makes one slower.

use std::time::Instant;

use lab::{Scenario, run};

const SCENARIO: &str = "
name = \"speed\"
duration_s = 20
warmup_s = 0
[link]
rate_bps = 200_000_000
[[flow]]
cc = \"prague\"
rtt_ms = 10
[[flow]]
cc = \"cubic\"
rtt_ms = 10
";

#[expect(clippy::disallowed_methods, reason = "it measures wall time")]
#[expect(clippy::print_stdout, reason = "it is a measurement for people")]
#[expect(clippy::cast_precision_loss, reason = "a count of packets")]
fn main() {
    let runs = std::env::args().nth(1).and_then(|runs| runs.parse().ok()).unwrap_or(7_u32);
    let scenario = Scenario::parse(SCENARIO).expect("the scenario is right");
    let mut best = 0.0_f64;
    for _ in 0..runs {
        let began = Instant::now();
        let outcome = run(&scenario, 1).expect("the profile is right");
        let packets = outcome.queues.l4s.packets + outcome.queues.classic.packets;
        let rate = packets as f64 / began.elapsed().as_secs_f64();
        println!("{packets} packets, {:.2} million a second", rate / 1e6);
        best = best.max(rate);
    }
    println!("best: {:.2} million packets a second", best / 1e6);
}
