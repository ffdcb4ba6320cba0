// SPDX-License-Identifier: Apache-2.0
//! The data files have every row of the facts, and made-up outcomes are judged as they should be.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::*;
use crate::outcome::{FlowOutcome, Outcome, QueueOutcome, Queues, Series};

fn all() -> Vec<Case> {
    cases().unwrap()
}

fn named<'a>(cases: &'a [Case], prefix: &str) -> Vec<&'a Case> {
    cases.iter().filter(|case| case.name.starts_with(prefix)).collect()
}

fn options(only: &[&str]) -> Options {
    Options { only: only.iter().map(|glob| (*glob).to_owned()).collect(), seeds: 5, threads: 2 }
}

/// An outcome in which every label of the scenario has this rate, and the queues these delays.
fn made_up(toml: &str, rate_mbps: f64) -> Outcome {
    let flow = |label: &str| FlowOutcome {
        label: label.to_owned(),
        cc: String::new(),
        rate_bps: rate_mbps * 1e6,
        marked_ratio: 0.1486,
        dropped_ratio: 0.0056,
        rtt_ms: 25.0,
    };
    let queue = QueueOutcome {
        packets: 1000,
        marked_ratio: 0.1,
        dropped_ratio: 0.0056,
        p_prime_squared_mean: 0.0056,
        ..QueueOutcome::default()
    };
    let labels = toml.lines().filter_map(|line| line.strip_prefix("label = \"")?.strip_suffix('"'));
    Outcome {
        name: "paper".to_owned(),
        seed: 1,
        utilisation: 0.99,
        queues: Queues { l4s: QueueOutcome { dropped_ratio: 0.0, ..queue.clone() }, classic: queue },
        flows: labels.map(flow).collect(),
        groups: Vec::new(),
        web: Vec::new(),
        series: Series {
            step_s: 1.0,
            rates: vec![("prague".to_owned(), vec![1e6, 2e6])],
            cdf: [vec![(0.1, 0.5), (1.0, 1.0)], vec![(10.0, 1.0)]],
            ..Series::default()
        },
    }
}

#[test]
fn every_published_row_is_there() {
    let cases = all();
    let count = |prefix: &str| named(&cases, prefix).len();
    assert_eq!(count("overload/"), 6 * 2);
    assert_eq!(count("coupling/"), 3 * 2 + 3);
    assert_eq!(count("mixed/dualpi2/"), 8 * 2);
    assert_eq!((count("mixed/pie/"), count("mixed/fq_codel/")), (11, 11));
    assert_eq!((count("grid/long/"), count("grid/web/")), (25 * 4, 25 * 4));
    assert_eq!((count("mix/long/"), count("mix/web/")), (2 * 16 * 4, 2 * 16 * 4));
    // 9 bottlenecks x 12 pairs x 5 buffers, those of dualpi2 twice, and 4 rows of several flows
    assert_eq!(count("deploy/"), 8 * 12 * 5 + 2 * 12 * 5 + 2 * 4);
    assert_eq!(count("critics/s1/"), 28 * 3);
    assert_eq!(count("critics/bursts/"), 27 + 23);
    assert_eq!(count("cocoa/"), 6);
    assert_eq!(count("rfc7928/"), 18 * 7);
    // 38 rows, 29 of them of dualpi2
    assert_eq!(count("kernel/"), 38 + 29);
    for qdisc in ["dualpi2", "pie", "codel", "fq_codel", "cake", "pfifo"] {
        assert!(count(&format!("kernel/{qdisc}/")) > 0, "{qdisc}");
    }
}

#[test]
fn every_published_pair_of_the_deployment_is_judged() {
    let cases = all();
    let judged = |case: &&&Case| case.arm == Arm::Published && case.cells.len() >= 2;
    let count = named(&cases, "deploy/").iter().filter(judged).count();
    assert_eq!(count, 19);
}

#[test]
fn cells_have_names_of_their_own() {
    let cases = all();
    let mut names = BTreeSet::new();
    for case in &cases {
        for cell in &case.cells {
            let name = case.cell_name(cell);
            assert!(names.insert(name.clone()), "{name} twice");
        }
    }
}

#[test]
fn published_bands_bind_the_linux_compatible_mode_and_no_other() {
    for case in all() {
        let dualpi2 = case.setup.profile.iter().any(|key| key == "aqm = \"dualpi2\"");
        let linux = case.setup.profile.iter().any(|key| key == "compat = \"linux\"");
        let free = case.name.starts_with("rfc7928/");
        assert_eq!(linux, dualpi2 && case.arm == Arm::Published && !free, "{}", case.name);
        assert_eq!(case.arm == Arm::Default, case.name.ends_with("/default"), "{}", case.name);
    }
}

#[test]
fn scenarios_are_toml_of_the_contract() {
    for case in all() {
        let toml = case.setup.toml();
        let table: toml::Table = toml::from_str(&toml).unwrap_or_else(|error| panic!("{error}\n{toml}"));
        assert!(table.contains_key("link") && table.contains_key("profile"), "{toml}");
        assert!(case.setup.duration_s > case.setup.warmup_s);
        crate::Scenario::parse(&toml).unwrap_or_else(|problems| panic!("{}: {problems}", case.name));
    }
}

#[test]
fn bands_are_those_of_the_issue() {
    let cases = all();
    let band = |name: &str| {
        let (case, cell) = name.rsplit_once('/').unwrap();
        let case = cases.iter().find(|other| other.name == case).unwrap_or_else(|| panic!("{name}"));
        let cell = case.cells.iter().find(|other| other.quantity.to_string() == cell);
        cell.unwrap_or_else(|| panic!("{name}")).band.clone()
    };
    let near = |relative: f64, absolute: f64| Band::Near { relative, absolute };
    for (name, wanted) in [
        ("overload/c/50/l4s-delay-mean", near(0.2, 0.5)),
        ("overload/c/50/prague-marked", near(0.1, 1.5)),
        ("overload/l/100/udp-dropped", near(0.1, 1.5)),
        ("coupling/reno/c/50/drop-by-p2", near(0.05, 0.0)),
        ("coupling/cubic/l/50/drop-by-marks", near(0.05, 0.0)),
        ("mixed/dualpi2/5-5/rate-ratio", near(0.3, 0.0)),
        ("mixed/dualpi2/5-5/l4s-delay-p99", Band::AtMost(1.2)),
        ("mixed/dualpi2/5-5/classic-delay-mean", near(0.0, 2.0)),
        ("mixed/pie/5-5/classic-delay-mean", near(0.0, 2.0)),
        ("mixed/dualpi2/100-none/utilisation", near(0.0, 1.0)),
        ("grid/long/40x10/l4s-delay-p50", Band::AtMost(2.0 * 1514.0 * 8.0 / 40e3)),
        ("grid/long/120x10/l4s-delay-p50", Band::AtMost(0.3)),
        ("grid/web/12x10/l4s-delay-p99", Band::AtMost(3.0 * 1514.0 * 8.0 / 12e3)),
        ("grid/web/40x10/l4s-delay-p99", Band::AtMost(2.0)),
        ("grid/web/40x10/utilisation", Band::AtLeast(98.0)),
        ("grid/long/40x10/l4s-dropped", Band::AtMost(0.0)),
        ("deploy/pie/prague-cubic/2bdp/prague-share", near(0.0, 10.0)),
        ("deploy/pie/prague-cubic/2bdp/winner", Band::SameSide(50.0)),
        ("kernel/dualpi2/A-rtt20/l-total", near(0.2, 0.0)),
        ("kernel/dualpi2/A-rtt20/l4s-delay-mean", near(0.3, 0.0)),
        ("kernel/dualpi2/A-rtt20/l-marked", near(0.4, 0.0)),
        ("kernel/cake/B-cake-2C/c-dropped", near(0.4, 0.0)),
        ("overload/c/50/default/l4s-delay-p99", Band::AtMost(1.5)),
        ("grid/long/4x10/default/l4s-delay-p99", Band::AtMost(3.0 * 1514.0 * 8.0 / 4e3)),
        ("mixed/dualpi2/5-5/default/rate-ratio", near(0.5, 0.0)),
        ("mixed/dualpi2/5-5/default/utilisation", near(0.0, 1.0)),
    ] {
        assert_eq!(band(name), wanted, "{name}");
    }
}

#[test]
fn flows_under_a_tenth_of_a_megabit_are_left_out() {
    let cases = all();
    let case = cases.iter().find(|case| case.name == "overload/c/200").unwrap();
    let reported = |name: &str| {
        let cell = case.cells.iter().find(|cell| cell.quantity.to_string() == name).unwrap();
        matches!(cell.band, Band::Reported(_))
    };
    assert!(reported("prague-marked") && reported("prague-dropped") && reported("cubic-dropped"));
    assert!(!reported("udp-dropped") && !reported("classic-delay-mean"));
}

#[test]
fn losses_in_l_are_judged_from_four_packets_a_flow_on() {
    let cases = all();
    let judged = |name: &str| {
        let case = cases.iter().find(|case| case.name == name).unwrap();
        let cell = case.cells.iter().find(|cell| cell.quantity.to_string() == "l4s-dropped").unwrap();
        !matches!(cell.band, Band::Reported(_))
    };
    // 4 Mb/s x 20 ms = 6.6 packets for 2 flows, 4 Mb/s x 115 ms = 38
    assert!(!judged("grid/long/4x5") && judged("grid/long/4x100") && judged("grid/long/12x5"));
}

#[test]
fn a_cell_outside_fails_the_report_and_a_deviation_does_not_save_it() {
    let cases = all();
    let deviations =
        [Deviation { cells: "mixed/dualpi2/5-100/rate-ratio".to_owned(), why: "found why".to_owned() }];
    let simulate = |toml: &str, _: u64| Ok(made_up(toml, 10.0));
    let judge = |only: &str| judge(&cases, &deviations, &options(&[only]), &simulate, &|_| ());
    // equal rates: 1.01 was published for the one, 6.07 for the other
    let good = judge("mixed/dualpi2/5-5/rate-ratio");
    assert!(good.good());
    assert_eq!(good.summary(), Summary { within: 1, outside: 0, reported: 0 });
    let bad = judge("mixed/dualpi2/5-100/rate-ratio");
    assert!(!bad.good());
    let cell = bad.cells().next().unwrap();
    assert_eq!((cell.verdict, cell.deviation.as_deref()), (Verdict::Outside, Some("found why")));
    assert_eq!((cell.low, cell.high), (Some(6.07 - 6.07 * 0.3), Some(6.07 + 6.07 * 0.3)));
}

#[test]
fn a_run_that_fails_is_outside_with_its_error() {
    let cases = all();
    let simulate = |_: &str, _: u64| Err("no such AQM".to_owned());
    let report = judge(&cases, &[], &options(&["cocoa/cubic/cocoa"]), &simulate, &|_| ());
    assert_eq!(report.summary(), Summary { within: 0, outside: 2, reported: 0 });
    assert!(report.cells().all(|cell| cell.cause.as_deref() == Some("no such AQM")));
}

#[test]
fn the_default_mode_is_held_against_the_row_above_where_nothing_was_published() {
    let cases = all();
    // the linux-compatible arm runs with it though it was not asked for
    let simulate = |toml: &str, seed: u64| {
        let mut outcome = made_up(toml, 10.0);
        outcome.utilisation = if toml.contains("linux") {
            0.985
        } else {
            0.990 + f64::from(u8::try_from(seed).unwrap()) * 1e-3
        };
        Ok(outcome)
    };
    let report = judge(&cases, &[], &options(&["grid/long/40x10/default/utilisation"]), &simulate, &|_| ());
    let cell = report.cells().next().unwrap();
    assert_eq!(report.cells().count(), 1);
    assert!(cell.beside && (cell.reference.unwrap() - 98.5).abs() < 1e-9, "{cell:?}");
    assert!((cell.ours.unwrap() - 99.3).abs() < 1e-9 && (cell.max.unwrap() - 99.5).abs() < 1e-9);
    assert_eq!(cell.verdict, Verdict::Within);
}

#[test]
fn equal_scenarios_run_once_and_each_with_every_seed() {
    let cases = all();
    let ran = Mutex::new(Vec::new());
    let simulate = |toml: &str, seed: u64| {
        ran.lock().unwrap().push((toml.to_owned(), seed));
        Ok(made_up(toml, 10.0))
    };
    // dualpi2 ran with 10000 packets whatever the buffer: 3 scenarios at 4 buffers of 40 s and 1 of 60 s
    let only = options(&["deploy/dualpi2/prague-bbr1/*bdp/prague-share"]);
    let report = judge(&cases, &[], &only, &simulate, &|_| ());
    assert_eq!(report.cases.len(), 5);
    let ran = ran.into_inner().unwrap();
    assert_eq!(ran.len(), 2 * 5);
    assert_eq!(ran.iter().collect::<BTreeSet<_>>().len(), ran.len());
}

#[test]
fn threads_show_nowhere() {
    let cases = all();
    let simulate = |toml: &str, seed: u64| {
        Ok(made_up(
            toml,
            f64::from(u8::try_from(seed).unwrap()) + f64::from(u32::try_from(toml.len()).unwrap()),
        ))
    };
    let run = |threads: usize| {
        let options = Options { threads, ..options(&["overload", "kernel"]) };
        judge(&cases, &[], &options, &simulate, &|_| ())
    };
    let (one, four) = (run(1), run(4));
    assert_eq!((one.json(), one.html()), (four.json(), four.html()));
}

#[test]
fn the_json_has_the_shape_it_is_documented_with() {
    let cases = all();
    let simulate = |toml: &str, _: u64| Ok(made_up(toml, 10.0));
    let report = judge(&cases, &[], &options(&["overload/c/50"]), &simulate, &|_| ());
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    let keys =
        |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(keys(&json), set(&["seeds", "packets", "summary", "cases"]));
    assert_eq!(keys(&json["summary"]), set(&["within", "outside", "reported"]));
    let case = &json["cases"][0];
    assert_eq!(keys(case), set(&["name", "default_mode", "source", "seeds", "error", "cells"]));
    let cell = [
        "name",
        "quantity",
        "unit",
        "reference",
        "beside",
        "ours",
        "min",
        "max",
        "band",
        "low",
        "high",
        "verdict",
        "cause",
        "deviation",
    ];
    assert_eq!(keys(&case["cells"][0]), set(&cell));
    assert_eq!(case["cells"][2]["name"], "overload/c/50/prague-marked");
    assert_eq!(case["cells"][2]["verdict"], "within");
}

#[test]
fn the_page_needs_no_network() {
    let cases = all();
    let simulate = |toml: &str, _: u64| Ok(made_up(toml, 10.0));
    let report = judge(&cases, &[], &options(&["overload", "grid"]), &simulate, &|_| ());
    let page = report.html();
    assert!(
        !page.contains("http:") && !page.contains("https:") && !page.contains("//"),
        "a reference outwards"
    );
    for wanted in [
        "<polyline",
        "prefers-color-scheme:dark",
        "rate ratio, long flows, linux-compatible",
        "overload/c/100",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
}

#[test]
fn tables_show_published_ours_spread_band_and_verdict() {
    let cases = all();
    let simulate = |toml: &str, _: u64| Ok(made_up(toml, 10.0));
    let report = judge(&cases, &[], &options(&["mixed/dualpi2/5-5"]), &simulate, &|_| ());
    let table = report.table(false, false);
    let line = table.lines().find(|line| line.starts_with("mixed/dualpi2/5-5/rate-ratio")).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>()[1..], ["1.01", "1", "1..1", "±30", "%", "within"]);
    assert!(!table.contains("classic-delay-p99") && report.table(false, true).contains("classic-delay-p99"));
    let stamp = Stamp { date: "2026-11-30".to_owned(), commit: "abc".to_owned() };
    let page = report.markdown(&stamp);
    assert!(page.contains("Made on 2026-11-30 from commit abc") && page.contains("seeds 1 to 5"), "{page}");
    assert!(page.contains("| mixed/dualpi2/5-5/rate-ratio | 1.01 | 1 | 1..1 | ±30 % | within |"), "{page}");
}

#[test]
fn the_short_set_selects_cases_and_deviations_parse() {
    let cases = all();
    for glob in SHORT {
        let simulate = |toml: &str, _: u64| Ok(made_up(toml, 10.0));
        let report = judge(&cases, &[], &options(&[glob]), &simulate, &|_| ());
        assert!(!report.cases.is_empty(), "{glob}");
    }
    let cells: Vec<_> =
        cases.iter().flat_map(|case| case.cells.iter().map(|cell| case.cell_name(cell))).collect();
    for deviation in deviations().unwrap() {
        let fits = cells.iter().any(|cell| super::glob::selects(&deviation.cells, cell));
        assert!(fits, "{} fits no cell", deviation.cells);
    }
}
