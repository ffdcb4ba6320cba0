// SPDX-License-Identifier: Apache-2.0
//! Derivation from round-trip times (facts 2.2, with iproute2's selftests) and the limits.

use super::*;
use crate::DualPi2Params;

/// One row: times in ms (0: left out), what follows in us and Hz, and the gains in 1/256 Hz as iproute2 cuts them.
struct Row {
    max_typical: (u64, u64),
    target_tupdate_us: (u64, u64),
    alpha_beta: (f64, f64),
    wire: (u32, u32),
}

const fn row(
    max_typical: (u64, u64),
    delays_us: (u64, u64),
    alpha_beta: (f64, f64),
    wire: (u32, u32),
) -> Row {
    Row { max_typical, target_tupdate_us: delays_us, alpha_beta, wire }
}

const RTTS: [Row; 6] = [
    row((100, 15), (15_000, 15_000), (0.15, 3.0), (38, 767)),
    row((200, 20), (20_000, 20_000), (0.05, 1.5), (12, 383)),
    row((300, 0), (50_000, 50_000), (0.0556, 1.0), (14, 256)),
    row((50, 0), (8_333, 8_333), (0.333, 6.0), (85, 1535)),
    row((30, 5), (5_000, 5_000), (0.556, 10.0), (142, 2560)),
    row((10, 1), (1_000, 1_000), (1.0, 30.0), (256, 7680)),
];

fn given(ms: u64) -> Option<Nanos> {
    (ms > 0).then(|| Nanos::from_millis(ms))
}

#[test]
fn round_trip_times_give_target_interval_and_gains() {
    for row in RTTS {
        let (max, typical) = row.max_typical;
        let gains = RttGains::new(given(typical), given(max)).unwrap();
        assert_eq!((gains.target.0 / 1_000, gains.tupdate.0 / 1_000), row.target_tupdate_us, "max {max}");
        assert!(
            (gains.alpha_hz / row.alpha_beta.0 - 1.0).abs() < 2e-3,
            "max {max}: alpha {}",
            gains.alpha_hz
        );
        assert!((gains.beta_hz / row.alpha_beta.1 - 1.0).abs() < 1e-9, "max {max}: beta {}", gains.beta_hz);
        let linux = DualPi2Config::linux().with_rtts(given(typical), given(max)).unwrap();
        assert!((linux.alpha_hz * 256.0 - f64::from(row.wire.0)).abs() < 1e-9, "max {max}");
        assert!((linux.beta_hz * 256.0 - f64::from(row.wire.1)).abs() < 1e-9, "max {max}");
    }
}

#[test]
fn a_typical_rtt_alone_implies_a_greatest_six_times_as_long() {
    let alone = RttGains::new(given(15), None).unwrap();
    assert_eq!(alone, RttGains::new(given(15), given(90)).unwrap());
    assert_eq!(alone.target, Nanos::from_millis(15));
}

#[test]
fn the_interval_is_never_below_a_microsecond() {
    let gains = RttGains::new(Some(Nanos(1_000)), Some(Nanos(1_000))).unwrap();
    assert_eq!(gains.tupdate, Nanos(1_000));
}

#[test]
fn senseless_round_trip_times_are_refused() {
    let us = |us| Some(Nanos::from_micros(us));
    for (typical, max) in [
        (None, None),
        (us(20), us(10)),
        (us(0), us(10)),
        (us(0), None),
        (None, us(5)),
        (us(1), us(u64::MAX / 1_000)),
    ] {
        assert!(matches!(RttGains::new(typical, max), Err(ParamError::Rtt { .. })), "{typical:?} {max:?}");
    }
}

#[test]
fn showing_and_applying_the_gains_is_a_fixed_point() {
    for base in [DualPi2Config::default(), DualPi2Config::linux()] {
        let mut config = base.with_rtts(given(15), given(100)).unwrap();
        let first = DualPi2Params::new(&config).unwrap();
        for _ in 0..11 {
            config = DualPi2Config { alpha_hz: config.alpha_hz, beta_hz: config.beta_hz, ..config };
            assert_eq!(DualPi2Params::new(&config).unwrap(), first);
        }
    }
}

fn refused(key: &str, change: impl FnOnce(&mut DualPi2Config)) {
    let mut config = DualPi2Config::default();
    change(&mut config);
    let error = DualPi2Params::new(&config).unwrap_err();
    assert!(error.to_string().contains(key), "{key}: {error}");
}

#[test]
fn each_limit_is_checked_and_named() {
    refused("target_us", |c| c.target = Nanos::from_secs(5));
    refused("tupdate_us", |c| c.tupdate = Nanos(999));
    refused("tupdate_us", |c| c.tupdate = Nanos::MAX);
    refused("alpha_hz", |c| c.alpha_hz = 0.0);
    refused("alpha_hz", |c| c.alpha_hz = f64::NAN);
    refused("beta_hz", |c| c.beta_hz = -1.0);
    refused("beta_hz", |c| c.beta_hz = f64::INFINITY);
    refused("coupling", |c| c.coupling = 0);
    refused("coupling", |c| c.coupling = 256);
    refused("floor_packets", |c| c.floor_packets = 1_001);
    refused("mtu", |c| c.mtu = 63);
    refused("classic_protection_percent", |c| {
        c.classic_protection_percent = 101;
    });
    refused("ramp_min_us", |c| c.native = Native::Ramp { min: Nanos::MAX, range: Nanos::ZERO });
    refused("ramp_range_us", |c| c.native = Native::Ramp { min: Nanos::ZERO, range: Nanos::MAX });
    refused("step_us", |c| c.native = Native::Step { threshold: Nanos::MAX });
    refused("step_us", |c| c.compat = Compat::Linux);
    for config in [DualPi2Config::default(), DualPi2Config::linux()] {
        assert_eq!(config.validate(), Ok(()));
    }
}
