// SPDX-License-Identifier: Apache-2.0
//! The AQMs' keys: defaults as the interface has them, values taken over, refusals with line and key.

use super::*;
use crate::Config;
use crate::profile::{Cake, Cocoa, Codel, CodelAf, CurvyRed, DualPi2, Fq, FqCodel, HostFairness, Pie, Tins};

fn parse(text: &str) -> Profile {
    Profile::parse("f", text, Overhead::ETHERNET).unwrap_or_else(|problems| panic!("{problems}"))
}

fn bad(text: &str) -> String {
    Profile::parse("f", text, Overhead::ETHERNET).expect_err("the text has problems").to_string()
}

/// Every key at the value that the interface gives as its default.
const DEFAULTS: [(&str, &str); 11] = [
    ("codel_af", "target_us = 5000\ninterval_us = 100000\nsparse = false\necn = true"),
    (
        "dualpi2",
        "target_us = 15000\ntupdate_us = 16000\nalpha_hz = 0.16\nbeta_hz = 3.2\ncoupling = 2\nramp_min_us = 800\n\
         ramp_range_us = 400\nfloor_packets = 2\nclassic_protection_percent = 10\noverload = \"drop\"\n\
         any_ect = false\nqueue_protection = false\ncompat = \"rfc\"\necn = true",
    ),
    (
        "pi2",
        "target_us = 15000\ntupdate_us = 16000\nalpha_hz = 0.16\nbeta_hz = 3.2\ncoupling = 2\necn = true",
    ),
    (
        "pie",
        "target_us = 15000\ntupdate_us = 15000\nalpha_hz = 0.125\nbeta_hz = 1.25\nmax_burst_us = 150000\n\
         ecn_threshold_percent = 10\necn = true",
    ),
    ("codel", "target_us = 5000\ninterval_us = 100000\necn = true"),
    (
        "fq_codel",
        "target_us = 5000\ninterval_us = 100000\nflows = 1024\nquantum_bytes = 1514\nce_threshold_l4s = false\n\
         ecn = true",
    ),
    ("fq", "flows = 1024\nquantum_bytes = 1514\nflow_limit_packets = 100\necn = false"),
    ("cake", "tins = \"besteffort\"\nhost_fairness = \"triple-isolate\"\nrtt_us = 100000\necn = true"),
    (
        "cocoa",
        "flows = 1024\nquantum_bytes = 1514\nflow_limit_packets = 100\nguard_multiplier = 1.25\n\
         max_increase = 2.0\nmax_guard_us = 1000000\necn = false",
    ),
    (
        "curvy_red",
        "k_prime = 1\ntshift_us = 50000\ng_c = 5\ns_c = -1\nmin_th_us = 500\nt_us = 1000\nu = 1\necn = true",
    ),
    ("fifo", "ecn = false"),
];

#[test]
fn what_is_left_out_has_the_interfaces_default() {
    for (name, keys) in DEFAULTS {
        let (short, long) = (format!("aqm = \"{name}\""), format!("aqm = \"{name}\"\n{keys}"));
        assert_eq!(parse(&short), parse(&long), "{name}");
        assert_eq!(parse(&short).aqm.name(), name);
        let spelled = parse(&short).to_value();
        for line in keys.lines() {
            let key = line.split(' ').next().expect("a word");
            assert!(!spelled[key].is_null() || name == "pi2", "{name}: {key} is not written");
        }
    }
}

#[test]
fn every_key_is_taken_over() {
    let cases = [
        (
            "aqm = \"pie\"\ntarget_us = 1\ntupdate_us = 200\nalpha_hz = 3\nbeta_hz = 4\nmax_burst_us = 0\n\
             ecn_threshold_percent = 100",
            Aqm::Pie(Pie {
                target_us: 1,
                tupdate_us: 200,
                alpha_hz: 3.0,
                beta_hz: 4.0,
                max_burst_us: 0,
                ecn_threshold_percent: 100,
            }),
        ),
        (
            "aqm = \"codel\"\ntarget_us = 1\ninterval_us = 2",
            Aqm::Codel(Codel { target_us: 1, interval_us: 2 }),
        ),
        (
            "aqm = \"fq_codel\"\ntarget_us = 1\ninterval_us = 2\nflows = 3\nquantum_bytes = 300\n\
             ce_threshold_us = 0\nce_threshold_l4s = true",
            Aqm::FqCodel(FqCodel {
                codel: Codel { target_us: 1, interval_us: 2 },
                flows: 3,
                quantum_bytes: 300,
                ce_threshold_us: Some(0),
                ce_threshold_l4s: true,
            }),
        ),
        (
            "aqm = \"fq\"\nflows = 3\nquantum_bytes = 300\nflow_limit_packets = 9",
            Aqm::Fq(Fq { flows: 3, quantum_bytes: 300, flow_limit_packets: 9 }),
        ),
        (
            "aqm = \"cake\"\ntins = \"diffserv4\"\nhost_fairness = \"none\"\nrtt_us = 5",
            Aqm::Cake(Cake { tins: Tins::Diffserv4, host_fairness: HostFairness::None, rtt_us: 5 }),
        ),
        (
            "aqm = \"cocoa\"\nflows = 3\nguard_multiplier = 1.5\nmax_increase = 3\nmax_guard_us = 7",
            Aqm::Cocoa(Cocoa {
                fq: Fq { flows: 3, ..Fq::default() },
                guard_multiplier: 1.5,
                max_increase: 3.0,
                max_guard_us: 7,
            }),
        ),
        (
            "aqm = \"curvy_red\"\nk_prime = 2\ntshift_us = 3\ng_c = 4\ns_c = -5\nmin_th_us = 6\nt_us = 7\nu = 8",
            Aqm::CurvyRed(CurvyRed {
                k_prime: 2,
                tshift_us: 3,
                g_c: 4,
                s_c: -5,
                min_th_us: 6,
                t_us: 7,
                u: 8,
            }),
        ),
        (
            "aqm = \"codel_af\"\ntarget_us = 1\ninterval_us = 2\nsparse = true",
            Aqm::CodelAf(CodelAf { codel: Codel { target_us: 1, interval_us: 2 }, sparse: true }),
        ),
        ("queue_protection = true", Aqm::DualPi2(DualPi2 { queue_protection: true, ..DualPi2::default() })),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text).aqm, expected, "{text}");
    }
}

#[test]
fn wrong_keys_and_values_are_named() {
    let cases = [
        ("aqm = \"pie\"\nflows = 1", "f:2: flows: unknown key"),
        ("aqm = \"codel\"\ntarget_us = 0", "f:2: target_us: 0 is not an integer from 1 to 4294000"),
        (
            "aqm = \"codel\"\ntarget_us = 9\ninterval_us = 8",
            "f:2: target_us: is longer than the interval, 8 us",
        ),
        ("aqm = \"fq\"\nflows = 0", "f:2: flows: 0 is not an integer from 1 to 32768"),
        (
            "aqm = \"fq\"\nquantum_bytes = 255",
            "f:2: quantum_bytes: 255 is not an integer from 256 to 1048576",
        ),
        (
            "aqm = \"fq_codel\"\nce_threshold_l4s = true",
            "f:2: ce_threshold_l4s: has no meaning without ce_threshold_us",
        ),
        ("aqm = \"cake\"\ntins = \"many\"", "f:2: tins: \"many\" is none of \"besteffort\", \"diffserv4\""),
        (
            "aqm = \"cake\"\nhost_fairness = \"flows\"",
            "f:2: host_fairness: \"flows\" is none of \"triple-isolate\", \"none\"",
        ),
        ("aqm = \"cocoa\"\nmax_increase = 0.5", "f:2: max_increase: 0.5 is not a number from 1 to 100"),
        ("aqm = \"curvy_red\"\ns_c = 3", "f:2: s_c: 3 is not an integer from -12 to 2"),
        (
            "aqm = \"red\"",
            "f:1: aqm: \"red\" is not an AQM (available: dualpi2, pi2, pie, codel, fq_codel, fq, cake, cocoa, \
             curvy_red, codel_af, fifo)",
        ),
        ("aqm =", "f:1: not TOML: "),
    ];
    for (text, expected) in cases {
        let problems = bad(text);
        assert!(problems.starts_with(expected), "{text}: {problems}");
    }
}

#[test]
fn a_table_of_its_own_has_the_overhead_it_is_given_unless_it_names_one() {
    let none = Overhead { bytes: 0, mpu: 0, cells: Cells::None };
    let overhead = |text: &str| Profile::parse("f", text, none).expect("it is good").overhead;
    assert_eq!(overhead("aqm = \"codel\""), none);
    assert_eq!(overhead("overhead = \"ethernet\""), Overhead::ETHERNET);
    let config = Config::parse("f", "[profile.x]\naqm = \"codel\"").expect("it is good");
    assert_eq!(config.profiles["x"].overhead, Overhead::ETHERNET);
}
