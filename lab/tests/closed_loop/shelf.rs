// SPDX-License-Identifier: Apache-2.0
//! The folder of scenarios an operator starts from: each is read, run for a short while, and shows what it says.

use std::path::Path;

use aqm::Nanos;
use lab::{Outcome, Scenario, plot, run};

/// Reads a scenario of the folder and cuts it short.
fn outcome(name: &str, seconds: u64, change: impl FnOnce(&mut Scenario)) -> Outcome {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(format!("{name}.toml"));
    let mut scenario = Scenario::read(&path).expect("a good file");
    assert_eq!(scenario.name, name);
    scenario.duration = scenario.duration.min(Nanos::from_secs(seconds));
    scenario.warmup = Nanos(scenario.duration.0 / 3);
    change(&mut scenario);
    run(&scenario, 1).expect("the profile is right")
}

fn rate(outcome: &Outcome, label: &str) -> f64 {
    outcome.groups.iter().find(|group| group.label == label).expect(label).rate_bps_mean
}

/// Draw them anew by `LAB_BLESS=1 cargo test -p lab picture`.
#[test]
fn every_scenario_has_its_picture() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut scenarios = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            scenarios += 1;
            if std::env::var_os("LAB_BLESS").is_some() {
                let outcome = run(&Scenario::read(&path).unwrap(), 1).unwrap();
                std::fs::write(path.with_extension("svg"), plot::svg(&plot::charts(&outcome))).unwrap();
            }
            let text = std::fs::read_to_string(path.with_extension("svg")).expect("a picture");
            let name = Scenario::read(&path).unwrap().name;
            assert!(text.starts_with("<svg") && text.contains(&format!("{name}: queue delay")), "{path:?}");
        }
    }
    assert_eq!(scenarios, 6);
}

#[test]
fn a_video_call_does_not_notice_a_speed_test() {
    let outcome = outcome("speedtest-beside-video-call", 12, |_| {});
    let (l, c) = (&outcome.queues.l4s, &outcome.queues.classic);
    assert!(l.delay_ms.p99 < 1.5 && c.delay_ms.p50 > 8.0, "{:?} {:?}", l.delay_ms, c.delay_ms);
    assert!(l.dropped_ratio.to_bits() == 0 && (2.8e6..3.2e6).contains(&rate(&outcome, "video call")));
    assert!(outcome.utilisation > 0.98);
}

#[test]
fn a_game_waits_for_the_pi_target_not_for_a_buffer() {
    let with = outcome("game-beside-download", 12, |_| {});
    let without =
        outcome("game-beside-download", 12, |scenario| scenario.profile.aqm = model::profile::Aqm::Fifo);
    let (good, bad) = (with.queues.classic.delay_ms, without.queues.classic.delay_ms);
    assert!(good.mean < 16.0 && bad.mean > 3.0 * good.mean, "{good:?} {bad:?}");
    assert!((rate(&with, "game") / 72e3 - 1.0).abs() < 0.03);
}

#[test]
fn cloud_gaming_stays_below_a_millisecond() {
    let outcome = outcome("cloud-gaming-l4s", 15, |_| {});
    let (l, c) = (&outcome.queues.l4s, &outcome.queues.classic);
    assert!(
        l.delay_ms.p99 < 1.5 && l.delay_ms.p50 < 0.6 && c.delay_ms.p50 > 5.0,
        "{:?} {:?}",
        l.delay_ms,
        c.delay_ms
    );
    assert!(rate(&outcome, "game video") > 10e6, "{}", rate(&outcome, "game video"));
    assert!(outcome.web[0].completed > 20 && outcome.web[0].completion_ms.p50 > 20.0, "{:?}", outcome.web);
}

#[test]
fn four_flows_are_not_crowded_out_by_forty() {
    let outcome = outcome("4-beside-40-flows", 12, |_| {});
    let ratio = rate(&outcome, "prague") / rate(&outcome, "cubic");
    assert!((0.5..2.0).contains(&ratio), "{ratio}");
    assert!(outcome.queues.l4s.delay_ms.p99 < 1.5, "{:?}", outcome.queues.l4s.delay_ms);
}

#[test]
fn a_threshold_above_the_burst_keeps_a_bursty_link_in_use() {
    let alone = |min_us: u64| {
        let outcome = outcome("bursty-wifi", 15, |scenario| {
            scenario.flows.truncate(1);
            if let model::profile::Aqm::DualPi2(keys) = &mut scenario.profile.aqm {
                keys.native = model::profile::Native::Ramp { min_us, range_us: 400 };
            }
        });
        outcome.utilisation
    };
    let (above, below) = (alone(5_000), alone(800));
    assert!(above > 0.95 && below < above - 0.1, "{above} with a threshold above the burst, {below} below");
}

#[test]
fn a_slow_line_serves_both_and_l_waits_less() {
    let outcome = outcome("dsl-2mbit", 40, |_| {});
    let (l, c) = (&outcome.queues.l4s, &outcome.queues.classic);
    assert!(l.delay_ms.p99 < c.delay_ms.p99 && l.delay_ms.p50 < 15.0, "{:?} {:?}", l.delay_ms, c.delay_ms);
    assert!(rate(&outcome, "prague") > 0.3e6 && rate(&outcome, "cubic") > 0.3e6, "{:?}", outcome.groups);
}

#[test]
fn the_picture_shows_what_the_run_had() {
    let outcome = outcome("cloud-gaming-l4s", 6, |_| {});
    let charts = plot::charts(&outcome);
    assert_eq!(charts.iter().map(|chart| chart.lines.len()).collect::<Vec<_>>(), [2, 3, 2]);
    let last = charts[0].lines[0].points.last().unwrap();
    assert!((last.0 - outcome.queues.l4s.delay_ms.max).abs() < 1e-9 && (last.1 - 100.0).abs() < 1e-9);
}
