// SPDX-License-Identifier: Apache-2.0

use aqm::{BitsPerSec, Nanos};
use cc::Kind;
use model::profile::{Aqm, Native};

use super::*;

/// The contract's example, whole.
const CONTRACT: &str = r#"
name = "mixed-rtt-5-100"
duration_s = 120
warmup_s = 30
[link]
rate_bps = 40_000_000
buffer_packets = 0
burst_ms = 0
jitter_ms = 0
loss = 0.0
[profile]
aqm = "dualpi2"
[[flow]]
label = "prague"
cc = "prague"
count = 1
rtt_ms = 5
ecn = "auto"
rate_bps = 0
start_s = 0.0
stop_s = 0.0
rtt_independence = true
hystart = true
[[web]]
cc = "cubic"
rtt_ms = 10
arrivals_per_s = 10.0
size = { pareto = { shape = 0.9, min_bytes = 1000, max_bytes = 1_000_000 } }
"#;

fn message(text: &str) -> String {
    Scenario::parse(text).expect_err("it is wrong").to_string()
}

#[test]
fn every_key_of_the_contract_defaults_to_the_value_shown() {
    let whole = Scenario::parse(CONTRACT).unwrap();
    assert_eq!(Scenario::parse("[[flow]]\n[[web]]").unwrap(), whole);
    assert_eq!(whole.link.steps, [RateStep { at: Nanos::ZERO, rate: BitsPerSec(40_000_000) }]);
    assert_eq!((whole.profile.overhead, whole.profile.mtu), (NO_OVERHEAD, crate::FULL_PACKET));
    assert_eq!(whole.flows[0].cc, Kind::Prague);
    assert_eq!(whole.web[0].size, Size::Pareto { shape: 0.9, min_bytes: 1_000, max_bytes: 1_000_000 });
}

#[test]
fn all_other_keys_are_read_too() {
    let text = r#"
        duration_s = 2.5
        [link]
        steps = [{ at_s = 0, rate_bps = 50_000_000 }, { at_s = 1.5, rate_bps = 5_000_000 }]
        buffer_packets = 100
        burst_ms = 4
        jitter_ms = 0.5
        loss = 0.01
        [link.reverse]
        rate_bps = 1_000_000
        profile = { aqm = "fifo", limit_us = 50_000 }
        [profile]
        aqm = "dualpi2"
        step_us = 500
        mtu = 1500
        overhead = "ethernet"
        [[flow]]
        cc = "udp"
        rate_bps = 5_000_000
        packet_bytes = 200
        ecn = "ect1"
        on_ms = 20
        off_ms = 80
        start_s = 0.5
        stop_s = 2
        [[web]]
        size = { fixed = 20_000 }
    "#;
    let scenario = Scenario::parse(text).unwrap();
    assert_eq!(scenario.warmup, Nanos::from_millis(625), "a quarter of a short run");
    let Link { steps, buffer_packets, burst, jitter, loss, reverse } = &scenario.link;
    assert_eq!(steps[1], RateStep { at: Nanos::from_millis(1_500), rate: BitsPerSec(5_000_000) });
    assert_eq!(
        (*buffer_packets, *burst, *jitter),
        (Some(100), Nanos::from_millis(4), Nanos::from_micros(500))
    );
    assert!((loss - 0.01).abs() < 1e-12);
    let reverse = reverse.as_ref().unwrap();
    assert_eq!(
        (reverse.rate.0, &reverse.profile.aqm, reverse.profile.limit_us),
        (1_000_000, &Aqm::Fifo, 50_000)
    );
    let Aqm::DualPi2(keys) = &scenario.profile.aqm else { panic!("not dualpi2") };
    assert_eq!((keys.native, scenario.profile.mtu), (Native::Step { threshold_us: 500 }, 1_500));
    assert_eq!(scenario.profile.overhead.bytes, 38);
    let flow = &scenario.flows[0];
    assert_eq!((flow.label.as_str(), flow.cc, flow.ecn), ("udp", Kind::Cbr, EcnChoice::Ect1));
    assert_eq!((flow.on, flow.off, flow.packet_bytes), (Nanos::from_millis(20), Nanos::from_millis(80), 200));
    assert_eq!(flow.stop, Some(Nanos::from_secs(2)));
    assert_eq!(scenario.web[0].size, Size::Fixed(20_000));
    let capacity = 0.875 * 50e6 + 5e6;
    assert!((scenario.capacity_bits() - capacity).abs() < 1.0);
    assert_eq!(scenario.profile_in_force().limit_packets, Some(100));
}

#[test]
fn problems_name_the_key_and_the_line() {
    for (text, parts) in [
        ("duration = 3", vec!["scenario:1:", "duration"]),
        (
            "[link]\nrate_bps = 1\nburst_ms = -1",
            vec!["scenario:2: link.rate_bps", "scenario:3: link.burst_ms"],
        ),
        (
            "[[flow]]\n[[flow]]\nrtt_ms = -1\ncc = \"tahoe\"",
            vec![":3: flow[1].rtt_ms", ":4: flow[1].cc", "prague"],
        ),
        ("\n[[flow]]\nrate_mbps = 4", vec![":3:", "rate_mbps"]),
        ("[[flow]]\ncc = \"udp\"", vec!["flow[0].rate_bps", "udp needs a rate"]),
        ("[[flow]]\nrate_bps = 5_000_000", vec![":2: flow[0].rate_bps", "udp only"]),
        ("[profile]\n\ntaget_us = 1", vec![":3: profile.taget_us", "target_us"]),
        (
            "[link.reverse]\nrate_bps = 1_000_000\nprofile = { aqm = \"red\" }",
            vec![":3: link.reverse.profile.aqm"],
        ),
        ("duration_s = 10\nwarmup_s = 10", vec![":2: warmup_s"]),
        ("[link]\nsteps = [{ at_s = 1, rate_bps = 1_000_000 }]", vec![":2: link.steps", "at_s = 0"]),
        ("[[web]]\nsize = { fixed = 1, pareto = {} }", vec![":2: web[0].size"]),
        ("[[web]]\ncc = \"udp\"", vec![":2: web[0].cc"]),
        ("name = ", vec!["scenario:1:"]),
    ] {
        let message = message(text);
        for part in parts {
            assert!(message.contains(part), "{text:?}: {part:?} is not in {message:?}");
        }
    }
}
