// SPDX-License-Identifier: Apache-2.0
//! Figures as short as a column: three digits and a unit.

/// `9.51 G`, `12.0 k`, `7`: three digits and the letter of a thousand's power.
pub(super) fn short(value: f64) -> String {
    let units = [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")];
    // a sum of nothing is -0
    let value = value + 0.0;
    // what rounds up to 1000 of a unit is 1 of the next
    match units.into_iter().find(|(unit, _)| value >= unit * 0.9995) {
        Some((unit, letter)) => format!("{}{letter}", three(value / unit)),
        None if value > 0.0 && value < 9.95 => format!("{value:.1}"),
        None => format!("{value:.0}"),
    }
}

/// A time in seconds as `850 us`, `3.10 ms`, `1.20 s`; a dash where there is none.
pub(super) fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds < 999.5e-6 => format!("{:.0} us", seconds * 1e6),
        Some(seconds) if seconds < 0.9995 => format!("{} ms", three(seconds * 1e3)),
        Some(seconds) => format!("{} s", three(seconds)),
    }
}

/// A share of one.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn three(value: f64) -> String {
    match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let cases = [
            (0.0, "0"),
            (-0.0, "0"),
            (0.25, "0.2"),
            (12.4, "12"),
            (999.4, "999"),
            (999.6, "1.00 k"),
            (9_996.0, "10.0 k"),
            (123_456.0, "123 k"),
            (999_999.0, "1.00 M"),
            (9.51e9, "9.51 G"),
            (4e14, "400 T"),
        ];
        for (value, expected) in cases {
            assert_eq!(short(value), expected, "{value}");
        }
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        let cases = [
            (None, "-"),
            (Some(0.0), "0 us"),
            (Some(850e-6), "850 us"),
            (Some(999.6e-6), "1.00 ms"),
            (Some(0.015), "15.0 ms"),
            (Some(0.999_6), "1.00 s"),
            (Some(75.0), "75.0 s"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(time(seconds), expected, "{seconds:?}");
        }
        assert_eq!(percent(0.127), "13 %");
    }
}
