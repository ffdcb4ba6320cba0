// SPDX-License-Identifier: Apache-2.0
//! The same scenario and seed give the same bytes: twice, on one thread or two, and as long as the sources say so.

use std::path::PathBuf;

use aqm::Nanos;
use cc::Kind;
use lab::{RateStep, Reverse, Scenario, Size, Web, run, run_all};
use model::Profile;

use crate::rig::{dualpi2, flow, linux, scenario, udp};

/// All the simulator has, in five seconds.
fn everything(profile: Profile) -> Scenario {
    let flows = vec![flow(Kind::Prague, 10), flow(Kind::Cubic, 40), flow(Kind::Reno, 20), udp(1_000_000)];
    let mut all = scenario(20_000_000, profile, flows);
    (all.duration, all.warmup) = (Nanos::from_secs(5), Nanos::from_secs(1));
    all.link.jitter = Nanos::from_micros(300);
    all.link.loss = 0.0005;
    all.link.burst = Nanos::from_millis(1);
    all.link.steps.push(RateStep { at: Nanos::from_secs(3), rate: aqm::BitsPerSec(10_000_000) });
    all.link.reverse = Some(Reverse { rate: aqm::BitsPerSec(2_000_000), profile: dualpi2() });
    all.web.push(Web {
        cc: Kind::Cubic,
        rtt: Nanos::from_millis(15),
        ecn: lab::EcnChoice::Auto,
        arrivals_per_s: 5.0,
        size: Size::Pareto { shape: 0.9, min_bytes: 1_000, max_bytes: 100_000 },
    });
    all
}

fn json(scenario: &Scenario, seed: u64) -> String {
    let outcome = run(scenario, seed).expect("the profile is right");
    let mut text = serde_json::to_string_pretty(&outcome).expect("it is JSON");
    text.push('\n');
    text
}

#[test]
fn same_seed_same_bytes_and_another_seed_others() {
    let all = everything(dualpi2());
    assert_eq!(json(&all, 7), json(&all, 7));
    assert_ne!(json(&all, 7), json(&all, 8));
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let all = everything(linux());
    let jobs: Vec<_> = (1..=6).map(|seed| (all.clone(), seed)).collect();
    let texts = |threads| -> Vec<String> {
        let results = run_all(&jobs, threads);
        results.into_iter().map(|result| serde_json::to_string(&result.unwrap()).unwrap()).collect()
    };
    let one = texts(1);
    assert_eq!(one.len(), 6);
    assert_eq!(one, texts(3));
}

/// Results checked in, one for each AQM. Regenerate by hand, with the reason in the commit:
/// `LAB_BLESS=1 cargo test -p lab golden`.
#[test]
fn golden_results_are_as_they_were() {
    for name in ["dualpi2", "pi2", "pie", "codel", "fq_codel", "fq", "cake", "cocoa", "curvy_red", "fifo"] {
        let text = format!("aqm = \"{name}\"\nmtu = 1514");
        let profile = Profile::parse(name, &text, lab::NO_OVERHEAD).expect("an AQM with its defaults");
        let path: PathBuf =
            [env!("CARGO_MANIFEST_DIR"), "tests", "golden", &format!("{name}.json")].iter().collect();
        let is = json(&everything(profile), 1);
        if std::env::var_os("LAB_BLESS").is_some() {
            std::fs::write(&path, &is).expect("the folder is writable");
        }
        let was = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(was == is, "{name}: the result is not that of {}:\n{is}", path.display());
    }
}
