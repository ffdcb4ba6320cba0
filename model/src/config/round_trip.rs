// SPDX-License-Identifier: Apache-2.0
//! Any configuration survives writing and reading; no text makes the reader panic.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

/// An AQM that takes keys other than those of `dualpi2`, with some of them.
fn any_other_aqm() -> impl Strategy<Value = String> {
    let key = |name: &'static str, range: std::ops::Range<u32>| {
        proptest::option::of(range)
            .prop_map(move |given| given.map_or(String::new(), |value| format!("{name} = {value}\n")))
    };
    let codel = || (key("target_us", 1..99_999), key("interval_us", 100_000..1_000_000));
    let fq = || (key("flows", 1..32_769), key("quantum_bytes", 256..10_000));
    let pie = (codel().0, key("tupdate_us", 100..99_999), 1e-6..1e6f64, key("max_burst_us", 0..9_999))
        .prop_map(|(t, u, a, b)| {
            format!("aqm = \"pie\"\n{t}{u}{b}alpha_hz = {a:e}\necn_threshold_percent = 7\n")
        });
    let fq_codel = (codel(), fq(), key("ce_threshold_us", 0..5_000))
        .prop_map(|((t, i), (f, q), ce)| format!("aqm = \"fq_codel\"\n{t}{i}{f}{q}{ce}"));
    let plain = (fq(), key("flow_limit_packets", 1..1_000))
        .prop_map(|((f, q), limit)| format!("aqm = \"fq\"\n{f}{q}{limit}"));
    let cocoa = (fq(), key("max_guard_us", 1..4_294_001), 1.0..100.0f64, 1.0..100.0f64).prop_map(
        |((f, q), max, multiplier, increase)| {
            format!(
                "aqm = \"cocoa\"\n{f}{q}{max}guard_multiplier = {multiplier:e}\nmax_increase = {increase:e}\n"
            )
        },
    );
    let cake = (prop_oneof![Just("besteffort"), Just("diffserv4")], any::<bool>(), key("rtt_us", 1..999_999))
        .prop_map(|(tins, hosts, rtt)| {
            let hosts = if hosts { "triple-isolate" } else { "none" };
            format!("aqm = \"cake\"\ntins = \"{tins}\"\nhost_fairness = \"{hosts}\"\n{rtt}")
        });
    let curvy = (-12..=2i32, key("tshift_us", 0..99_999), key("min_th_us", 0..999_999), key("g_c", 0..17))
        .prop_map(|(s_c, tshift, minth, g_c)| {
            format!("aqm = \"curvy_red\"\ns_c = {s_c}\n{tshift}{minth}{g_c}")
        });
    prop_oneof![
        Just("aqm = \"fifo\"\n".to_owned()),
        pie,
        codel().prop_map(|(target, interval)| format!("aqm = \"codel\"\n{target}{interval}")),
        codel()
            .prop_map(|(target, interval)| format!("aqm = \"codel_af\"\n{target}{interval}sparse = true\n")),
        fq_codel,
        plain,
        cocoa,
        cake,
        curvy,
    ]
}

/// A profile in TOML, any keys in range.
fn any_profile() -> impl Strategy<Value = String> {
    let aqm = prop_oneof![Just("dualpi2"), Just("pi2")];
    let native = prop_oneof![
        Just(String::new()),
        (0..10_000u32).prop_map(|us| format!("step_us = {us}\n")),
        (0..10_000u32, 1..10_000u32)
            .prop_map(|(min, range)| format!("ramp_min_us = {min}\nramp_range_us = {range}\n")),
        (0..10_000u32).prop_map(|us| format!("compat = \"linux\"\nstep_us = {us}\n")),
    ];
    let gains = prop_oneof![
        (1e-6..1e6f64, 1e-6..1e6f64)
            .prop_map(|(alpha, beta)| format!("alpha_hz = {alpha:e}\nbeta_hz = {beta:e}\n")),
        (1000..1_000_000u32).prop_map(|us| format!("max_rtt_us = {us}\n")),
    ];
    let overhead =
        (-64..=256i32, 0..=256u32).prop_map(|(b, m)| format!("overhead = \"overhead {b} mpu {m} ptm\"\n"));
    let limit = (100..40_000_000u32, proptest::option::of(1..1000u32)).prop_map(|(us, packets)| {
        let packets = packets.map(|n| format!("limit_packets = {n}\n")).unwrap_or_default();
        format!("limit_us = {us}\n{packets}")
    });
    let pi2 = (aqm, native, gains).prop_map(|(aqm, native, gains)| {
        let protection = if aqm == "dualpi2" { "queue_protection = true\n" } else { "" };
        format!("aqm = \"{aqm}\"\n{native}{gains}{protection}")
    });
    let own = prop_oneof![pi2, any_other_aqm()];
    (own, overhead, limit, any::<bool>(), proptest::option::of(any::<bool>())).prop_map(
        |(own, overhead, limit, l4s, ecn)| {
            let ecn = ecn.map_or(String::new(), |ecn| format!("ecn = {ecn}\n"));
            format!("{own}l4s = {l4s}\n{ecn}{overhead}{limit}")
        },
    )
}

proptest! {
    #[test]
    fn any_configuration_is_a_fixed_point(
        profiles in proptest::collection::vec(any_profile(), 0..4),
        subscribers in proptest::collection::btree_map("[a-z]{1,6}", 64_000..400_000_000_000u64, 0..4),
        parents in proptest::collection::vec(64_000..400_000_000_000u64, 0..8),
        seed in 0..u64::MAX / 2,
        dscps in proptest::collection::btree_set(0..64u8, 0..8),
        cpu in 0..9u32,
    ) {
        let mut text = format!("[dataplane]\nseed = {seed}\nlcores = {{ compact = \"1@{cpu}\" }}\n");
        let dscps: Vec<_> = dscps.into_iter().collect();
        write!(text, "[classify.rules]\nnqb_dscp = []\nclassic_dscp = {dscps:?}\n").unwrap();
        for (place, profile) in profiles.iter().enumerate() {
            write!(text, "[profile.p{place}]\n{profile}").unwrap();
        }
        // each below the one before, which comes after it
        for (place, rate) in parents.iter().enumerate().rev() {
            write!(text, "[[parent]]\nid = \"p{place}\"\ndown_bps = {rate}\nup_bps = {rate}\n").unwrap();
            if let Some(above) = place.checked_sub(1) {
                writeln!(text, "parent = \"p{above}\"").unwrap();
            }
        }
        for (place, (id, rate)) in subscribers.iter().enumerate() {
            write!(text, "[[subscriber]]\nid = \"{id}\"\ndown_bps = {rate}\nup_bps = 64000\n\
                              match = {{ ipv4 = [\"10.0.0.{place}\"] }}\n").unwrap();
        }
        let config = Config::parse("f", &text).map_err(|problems| TestCaseError::fail(format!("{problems}\n{text}")))?;
        let written = config.to_toml();
        let again = Config::parse("g", &written).map_err(|problems| TestCaseError::fail(format!("{problems}\n{written}")))?;
        prop_assert_eq!(&again, &config);
        prop_assert_eq!(again.to_toml(), written);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[\\[\\]a-z_.=\"0-9 \n]{0,80}") {
        let _ = Config::parse("f", &text);
    }
}
