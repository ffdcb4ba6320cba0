// SPDX-License-Identifier: Apache-2.0
//! Bands and verdicts. A band becomes a closed range of our value, given what was published; nothing else decides.

use std::fmt;

use serde::Serialize;

/// How far ours may be from what was published.
#[derive(Clone, Debug, PartialEq)]
pub enum Band {
    /// Within `relative` of it or within `absolute` of it, whichever is wider; either may be 0.
    Near {
        /// Share of the published value.
        relative: f64,
        /// In the quantity's own unit.
        absolute: f64,
    },
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// On the published side of this value.
    SameSide(f64),
    /// No verdict, with the cause.
    Reported(String),
}

impl Band {
    /// Within a share of the published value.
    pub const fn relative(relative: f64) -> Self {
        Self::Near { relative, absolute: 0.0 }
    }

    /// Within so many units of the published value.
    pub const fn absolute(absolute: f64) -> Self {
        Self::Near { relative: 0.0, absolute }
    }

    /// No verdict.
    pub fn reported(cause: &str) -> Self {
        Self::Reported(cause.to_owned())
    }

    /// The closed range that ours has to be in; `None`: no verdict, or it hangs on a published value that is not
    /// there.
    pub fn range(&self, published: Option<f64>) -> Option<(f64, f64)> {
        match (self, published) {
            (Self::Near { relative, absolute }, Some(published)) => {
                let reach = (relative * published.abs()).max(*absolute);
                Some((published - reach, published + reach))
            }
            (Self::AtMost(most), _) => Some((f64::NEG_INFINITY, *most)),
            (Self::AtLeast(least), _) => Some((*least, f64::INFINITY)),
            (Self::SameSide(middle), Some(published)) if published > *middle => {
                Some((*middle, f64::INFINITY))
            }
            (Self::SameSide(middle), Some(published)) if published < *middle => {
                Some((f64::NEG_INFINITY, *middle))
            }
            _ => None,
        }
    }

    /// The verdict on `ours`, the mean over the seeds. A value that no run shows is outside, not unknown.
    pub fn verdict(&self, published: Option<f64>, ours: Option<f64>) -> Verdict {
        match (self.range(published), ours) {
            (None, _) => Verdict::Reported,
            (Some((low, high)), Some(ours)) if low <= ours && ours <= high => Verdict::Within,
            _ => Verdict::Outside,
        }
    }
}

impl fmt::Display for Band {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Near { relative, absolute } => match (*relative > 0.0, *absolute > 0.0) {
                (true, true) => write!(f, "±{:.0} % or ±{absolute}", relative * 100.0),
                (false, _) => write!(f, "±{absolute}"),
                (true, false) => write!(f, "±{:.0} %", relative * 100.0),
            },
            Self::AtMost(most) => write!(f, "≤ {}", short(*most)),
            Self::AtLeast(least) => write!(f, "≥ {}", short(*least)),
            Self::SameSide(middle) => write!(f, "same side of {}", short(*middle)),
            Self::Reported(_) => f.write_str("–"),
        }
    }
}

/// Three significant digits, without what means nothing.
pub(super) fn short(value: f64) -> String {
    let size = value.abs();
    let digits = match size {
        _ if size >= 99.95 => 1,
        _ if size >= 9.995 => 2,
        _ if size >= 0.9995 => 3,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// What a cell comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// In the band.
    Within,
    /// Not in it.
    Outside,
    /// No verdict; the cause stands beside it.
    Reported,
}

impl Verdict {
    /// Its name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Within => "within",
            Self::Outside => "outside",
            Self::Reported => "reported",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(range: Option<(f64, f64)>, low: f64, high: f64) -> bool {
        range.is_some_and(|(l, h)| (l - low).abs() < 1e-12 && (h - high).abs() < 1e-12)
    }

    #[test]
    fn the_wider_of_a_share_and_an_amount_counts() {
        let delay = Band::Near { relative: 0.2, absolute: 0.5 };
        assert!(near(delay.range(Some(15.0)), 12.0, 18.0));
        assert!(near(delay.range(Some(0.13)), -0.37, 0.63));
        assert!(near(Band::relative(0.3).range(Some(6.07)), 4.249, 7.891));
        assert!(near(Band::absolute(1.0).range(Some(99.92)), 98.92, 100.92));
    }

    #[test]
    fn borders_belong_to_the_band_and_nothing_beyond_them_does() {
        let cases = [
            (Band::AtMost(1.2), None, 1.2, Verdict::Within),
            (Band::AtMost(1.2), None, 1.200_001, Verdict::Outside),
            (Band::AtLeast(98.0), None, 98.0, Verdict::Within),
            (Band::AtLeast(98.0), None, 97.999, Verdict::Outside),
            (Band::absolute(1.5), Some(10.0), 11.5, Verdict::Within),
            (Band::absolute(1.5), Some(10.0), 11.501, Verdict::Outside),
            (Band::relative(0.4), Some(0.0), 0.0, Verdict::Within),
            (Band::relative(0.4), Some(0.0), 0.001, Verdict::Outside),
            (Band::SameSide(50.0), Some(44.9), 12.0, Verdict::Within),
            (Band::SameSide(50.0), Some(44.9), 50.1, Verdict::Outside),
            (Band::SameSide(50.0), Some(93.0), 50.1, Verdict::Within),
        ];
        for (band, published, ours, wanted) in cases {
            assert_eq!(band.verdict(published, Some(ours)), wanted, "{band} {published:?} {ours}");
        }
    }

    #[test]
    fn a_value_that_no_run_shows_is_outside() {
        assert_eq!(Band::relative(0.3).verdict(Some(1.0), None), Verdict::Outside);
        assert_eq!(Band::AtMost(1.0).verdict(None, Some(f64::NAN)), Verdict::Outside);
    }

    #[test]
    fn without_a_published_value_there_is_no_verdict() {
        assert_eq!(Band::relative(0.3).verdict(None, Some(1.0)), Verdict::Reported);
        assert_eq!(Band::reported("why").verdict(Some(1.0), Some(5.0)), Verdict::Reported);
    }

    #[test]
    fn numbers_are_short() {
        for (value, wanted) in [
            (0.0, "0"),
            (-0.000_001, "0"),
            (0.043, "0.043"),
            (1.0, "1"),
            (14.863, "14.86"),
            (344.593, "344.6"),
            (100.0, "100"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(short(value), wanted);
        }
    }
}
