// SPDX-License-Identifier: Apache-2.0
//! The controller against the oracle table of facts 2.3, an independent computation, and its own explicit ticks.

use proptest::prelude::*;

use super::*;

const TARGET: Nanos = Nanos::from_millis(15);

fn pi(config: &DualPi2Config) -> PiParams {
    PiParams::new(config).unwrap()
}

fn both() -> [PiParams; 2] {
    [pi(&DualPi2Config::default()), pi(&DualPi2Config::linux())]
}

/// From p' = 0 and last = 0: delay in ms, then p' of the kernel's integers, and p', p_C, p_CL as printed.
const ORACLE: [(u64, u32, f64, f64, f64); 10] = [
    (5, 61_796_875, 0.0144, 0.0002, 0.029),
    (10, 133_906_250, 0.0312, 0.0010, 0.062),
    (15, 206_015_625, 0.0480, 0.0023, 0.096),
    (20, 278_125_000, 0.0648, 0.0042, 0.130),
    (30, 422_343_750, 0.0983, 0.0097, 0.197),
    (50, 710_781_250, 0.1655, 0.0274, 0.331),
    (100, 1_431_875_000, 0.3334, 0.1111, 0.667),
    (150, 2_152_968_750, 0.5013, 0.2513, 1.0),
    (250, 3_595_156_250, 0.8371, 0.7007, 1.0),
    (500, u32::MAX, 1.0, 1.0, 1.0),
];

#[test]
fn one_step_matches_the_kernel_bit_for_bit() {
    let pi = pi(&DualPi2Config::linux());
    for (ms, expected, p, p_c, p_cl) in ORACLE {
        let got = pi.step(Prob::ZERO, Nanos::from_millis(ms), Nanos::ZERO, TARGET);
        assert_eq!(got.0, expected, "{ms} ms");
        assert!((got.as_f64() - p).abs() < 6e-5, "{ms} ms: p' {}", got.as_f64());
        assert!((got.squared().as_f64() - p_c).abs() < 6e-5, "{ms} ms: p_C {}", got.squared().as_f64());
        assert!((got.times(2).as_f64() - p_cl).abs() < 6e-4, "{ms} ms: p_CL {}", got.times(2).as_f64());
        assert_eq!(pi.is_overload(got), ms >= 150, "{ms} ms");
    }
}

#[test]
fn one_step_of_the_rfc_mode_follows_the_gains_as_configured() {
    let pi = pi(&DualPi2Config::default());
    for (ms, ..) in ORACLE {
        let delay = Nanos::from_millis(ms);
        let exact = (0.16 * (f64::from(u32::try_from(ms).unwrap()) - 15.0)
            + 3.2 * f64::from(u32::try_from(ms).unwrap()))
            / 1e3;
        let got = pi.step(Prob::ZERO, delay, Nanos::ZERO, TARGET).as_f64();
        assert!((got - exact.min(1.0)).abs() <= 1e-6 * exact, "{ms} ms: {got} for {exact}");
    }
}

#[test]
fn differences_are_signed_so_a_delay_below_target_lowers_p() {
    for pi in both() {
        let half = Prob::from_f64(0.5);
        let lower = pi.step(half, Nanos::from_millis(5), Nanos::from_millis(5), TARGET);
        assert!((half.as_f64() - lower.as_f64() - 0.0016).abs() < 1e-5);
        let falling = pi.step(half, Nanos::from_millis(20), Nanos::from_millis(30), TARGET);
        assert!((half.as_f64() - falling.as_f64() - 0.0312).abs() < 1e-4);
    }
}

#[test]
fn an_idle_queue_takes_as_many_ticks_to_zero_as_the_kernel() {
    let pi = pi(&DualPi2Config::linux());
    assert_eq!(pi.step(Prob::ONE, Nanos::ZERO, Nanos::ZERO, TARGET).0, u32::MAX - 10_312_500);
    for (from, ticks) in [(1.0, 417), (0.5, 209)] {
        let p = Prob::from_f64(from);
        assert!(pi.idle(p, Nanos::ZERO, ticks - 1, TARGET) > Prob::ZERO);
        assert_eq!(pi.idle(p, Nanos::ZERO, ticks, TARGET), Prob::ZERO);
    }
}

#[test]
fn idle_ticks_at_once_equal_a_hundred_thousand_explicit_ones() {
    // alpha so small that the fall lasts beyond 10^5 ticks, beside the defaults
    let slow = |config: DualPi2Config| pi(&DualPi2Config { alpha_hz: 0.004, ..config });
    let params = [both(), [slow(DualPi2Config::default()), slow(DualPi2Config::linux())]].concat();
    for pi in params {
        for last in [Nanos::ZERO, Nanos(64), Nanos::from_millis(7), Nanos::from_secs(4)] {
            for target in [TARGET, Nanos(1), Nanos::from_micros(37)] {
                let start = Prob::from_f64(0.9999);
                let (mut p, mut seen) = (start, last);
                for ticks in 0..=100_000_u64 {
                    if ticks < 1_000 || ticks % 97 == 0 || ticks > 99_990 {
                        assert_eq!(pi.idle(start, last, ticks, target), p, "{ticks} ticks, last {last:?}");
                    }
                    p = pi.step(p, Nanos::ZERO, seen, target);
                    seen = Nanos::ZERO;
                }
            }
        }
    }
}

#[test]
fn overflow_caps_p_at_one_kth() {
    for base in [DualPi2Config::default(), DualPi2Config::linux()] {
        for coupling in [1, 2, 3, 255] {
            let pi = pi(&DualPi2Config { overload: Overload::Overflow, coupling, ..base });
            let p = pi.step(Prob::ZERO, Nanos::from_secs(4), Nanos::ZERO, TARGET);
            assert_eq!(p.0, u32::MAX / coupling);
            assert!(pi.is_overload(p));
            assert!(!pi.is_overload(Prob(p.0 - 1)));
        }
    }
}

#[test]
fn overload_begins_where_p_cl_reaches_one() {
    let at = |config: DualPi2Config, p: u32| pi(&config).is_overload(Prob(p));
    let rfc = |coupling| DualPi2Config { coupling, ..DualPi2Config::default() };
    assert!(at(rfc(2), 1 << 31) && !at(rfc(2), (1 << 31) - 1));
    assert!(at(rfc(1), u32::MAX) && !at(rfc(1), u32::MAX - 1));
    assert!(at(rfc(3), u32::MAX / 3));
    // the kernel asks for k * p' beyond 1, which k = 1 never reaches
    let linux = |coupling| DualPi2Config { coupling, ..DualPi2Config::linux() };
    assert!(at(linux(2), 1 << 31) && !at(linux(2), (1 << 31) - 1));
    assert!(!at(linux(1), u32::MAX));
    assert!(!at(linux(3), u32::MAX / 3) && at(linux(3), u32::MAX / 3 + 1));
}

/// The kernel's update, written out in wide integers.
fn kernel_step(p: u32, delay: u64, last: u64, target: u64) -> u32 {
    let error = i128::from(delay) - i128::from(target);
    let growth = i128::from(delay) - i128::from(last);
    let delta = error * 44 + growth * 879;
    let scaled = (delta.abs() >> 6) * delta.signum();
    u32::try_from((i128::from(p) + scaled).clamp(0, i128::from(u32::MAX))).unwrap()
}

proptest! {
    #[test]
    fn any_step_matches_the_kernels_formula(p: u32, delay in 0..4_294_967_295_u64, last in 0..4_294_967_295_u64, target in 0..4_000_000_000_u64) {
        let got = pi(&DualPi2Config::linux()).step(Prob(p), Nanos(delay), Nanos(last), Nanos(target));
        prop_assert_eq!(got.0, kernel_step(p, delay, last, target));
    }

    #[test]
    fn idle_equals_explicit_ticks_for_any_gains(
        p: u32, last in 0..4_294_967_295_u64, ticks in 0..400_u64, target in 0..4_000_000_000_u64,
        alpha in 1e-7..1e4_f64, beta in 1e-7..1e4_f64, linux: bool, overflow: bool, coupling in 1..256_u32,
    ) {
        let base = if linux { DualPi2Config::linux() } else { DualPi2Config::default() };
        let overload = if overflow { Overload::Overflow } else { Overload::Drop };
        let pi = pi(&DualPi2Config { alpha_hz: alpha, beta_hz: beta, coupling, overload, ..base });
        let start = Prob(p.min(pi.cap));
        let (mut explicit, mut seen) = (start, Nanos(last));
        for _ in 0..ticks {
            explicit = pi.step(explicit, Nanos::ZERO, seen, Nanos(target));
            seen = Nanos::ZERO;
        }
        prop_assert_eq!(pi.idle(start, Nanos(last), ticks, Nanos(target)), explicit);
    }

    #[test]
    fn numeric_extremes_neither_panic_nor_leave_the_range(
        p: u32, delay: u64, last: u64, target: u64, ticks: u64, linux: bool, overflow: bool, gain in 1e-9..8_388_607.0_f64,
    ) {
        let base = if linux { DualPi2Config::linux() } else { DualPi2Config::default() };
        let overload = if overflow { Overload::Overflow } else { Overload::Drop };
        let pi = pi(&DualPi2Config { alpha_hz: gain, beta_hz: gain, overload, ..base });
        let stepped = pi.step(Prob(p), Nanos(delay), Nanos(last), Nanos(target));
        prop_assert!(stepped.0 <= pi.cap);
        let rested = pi.idle(Prob(p.min(pi.cap)), Nanos(last), ticks, Nanos(target));
        prop_assert!(rested.0 <= pi.cap);
    }
}
