// SPDX-License-Identifier: Apache-2.0
//! Rate strings as other shapers write them, turned into b/s down and up.
//!
//! Two grammars, which disagree on direction and on unit, so the caller says which one a string is in:
//! - accel-ppp (`[shaper]`): `N` or `DOWN/UP` (also `\` or `:` between), kbit/s unless a suffix B, K, M or G follows;
//!   `0,` before it names the time range that always holds; Cisco's `rate-limit output|input ... BPS BURST BURST`.
//! - Mikrotik-Rate-Limit: `RX[/TX] [bursts, thresholds, times, priority, minima]`, in b/s unless a suffix k, M or G
//!   follows. RX is what the router receives, so it is the subscriber's *up*: the directions are swapped.
//!
//! Departure: accel-ppp itself takes `G` for 10^7 kbit/s, ten times too much; here it is 10^6. One rate alone is both.
//! Bursts are read past: a subscriber is shaped to its rate.

use crate::subscriber::{MAX_RATE_BPS, MIN_RATE_BPS};

/// What a rate string says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Towards the subscriber.
    pub down_bps: u64,
    /// From the subscriber.
    pub up_bps: u64,
    /// Whether the string had more (bursts, priorities, minima), which was left out.
    pub more: bool,
}

/// Which grammar a string is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grammar {
    /// accel-ppp's `[shaper]`.
    Accel,
    /// The RADIUS attribute Mikrotik-Rate-Limit, `rate-limit` of a PPP profile, `max-limit` of a simple queue.
    Mikrotik,
}

impl Grammar {
    /// The column such strings stand in.
    pub const fn column(self) -> &'static str {
        match self {
            Self::Accel => "Filter-Id",
            Self::Mikrotik => "Mikrotik-Rate-Limit",
        }
    }

    /// Reads a string.
    ///
    /// # Errors
    ///
    /// One sentence, with the string.
    pub fn read(self, text: &str) -> Result<Rates, String> {
        match self {
            Self::Accel => accel(text),
            Self::Mikrotik => mikrotik(text),
        }
    }
}

/// Reads a string of accel-ppp.
///
/// # Errors
///
/// One sentence, with the string.
pub fn accel(text: &str) -> Result<Rates, String> {
    let text = text.trim();
    if text.contains("rate-limit ") {
        return cisco(text);
    }
    let rates = match text.split_once(',') {
        None => text,
        Some((range, rates)) if range.trim().parse() == Ok(0_u32) => rates,
        Some((range, _)) => {
            return Err(format!("\"{text}\" holds only in the time range {}", range.trim()));
        }
    };
    let kilobits = |text: &str| scaled(text, 1_000, &[('B', 1), ('K', 1_000), ('M', MEGA), ('G', GIGA)]);
    let mut words = rates.split_whitespace();
    let (down, up) = pair(words.next().unwrap_or_default(), ['/', '\\', ':']);
    let rates = [kilobits(down), kilobits(up)];
    let [Some(down_bps), Some(up_bps)] = rates else {
        return Err(format!("\"{text}\" is no rate; wanted is kbit/s as DOWN/UP, for instance 50000/10000"));
    };
    within(text, Rates { down_bps, up_bps, more: words.next().is_some() })
}

/// Reads a Mikrotik-Rate-Limit.
///
/// # Errors
///
/// One sentence, with the string.
pub fn mikrotik(text: &str) -> Result<Rates, String> {
    let text = text.trim();
    let bits = |text: &str| scaled(text, 1, &[('K', 1_000), ('M', MEGA), ('G', GIGA)]);
    let mut words = text.split_whitespace();
    let (rx, tx) = pair(words.next().unwrap_or_default(), ['/'; 3]);
    let [Some(up_bps), Some(down_bps)] = [bits(rx), bits(tx)] else {
        return Err(format!("\"{text}\" is no rate; wanted is RX/TX (up, then down), for instance 10M/50M"));
    };
    within(text, Rates { down_bps, up_bps, more: words.next().is_some() })
}

const MEGA: u64 = 1_000_000;
const GIGA: u64 = 1_000_000_000;

/// Cisco's form, as accel-ppp takes it: output is down. A string with one direction alone is no plan.
fn cisco(text: &str) -> Result<Rates, String> {
    let rate = |direction: &str| {
        let (_, rest) = text.split_once(&format!("rate-limit {direction} "))?;
        let mut words = rest.split_whitespace().peekable();
        if words.peek() == Some(&"access-group") {
            words.nth(1)?;
        }
        words.next()?.parse::<u64>().ok()
    };
    match (rate("output"), rate("input")) {
        (Some(down_bps), Some(up_bps)) => within(text, Rates { down_bps, up_bps, more: true }),
        (Some(_), None) => Err(format!("\"{text}\" has no `rate-limit input`, the rate up")),
        _ => Err(format!("\"{text}\" has no `rate-limit output`, the rate down")),
    }
}

/// The two of `A/B`; one alone is both.
fn pair(text: &str, separators: [char; 3]) -> (&str, &str) {
    text.split_once(separators).unwrap_or((text, text))
}

/// A decimal number with one of `suffixes` (either case) behind it, or in `unit`, as b/s; `None` unless it is a whole
/// number of b/s.
pub(super) fn scaled(text: &str, unit: u64, suffixes: &[(char, u64)]) -> Option<u64> {
    let last = text.chars().next_back()?;
    let suffix = suffixes.iter().find(|(name, _)| name.eq_ignore_ascii_case(&last));
    let (number, unit) = match suffix {
        Some((_, unit)) => (text.get(..text.len() - 1)?, *unit),
        None => (text, unit),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || number.ends_with('.') {
        return None;
    }
    let mut bps = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.trim_end_matches('0').bytes() {
        place = place.is_multiple_of(10).then_some(place / 10)?;
        bps = bps.checked_add(place * u64::from(digit - b'0'))?;
    }
    Some(bps)
}

fn within(text: &str, rates: Rates) -> Result<Rates, String> {
    for bps in [rates.down_bps, rates.up_bps] {
        if !(MIN_RATE_BPS..=MAX_RATE_BPS).contains(&bps) {
            let unlimited = if bps == 0 { " (0 stands for no limit there)" } else { "" };
            return Err(format!("\"{text}\" is {bps} b/s{unlimited}, not from 64 kb/s to 400 Gb/s"));
        }
    }
    Ok(rates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(down_bps: u64, up_bps: u64) -> Rates {
        Rates { down_bps, up_bps, more: false }
    }

    #[test]
    fn accel_ppp_counts_kilobits_and_has_down_first() {
        let cases = [
            ("1000", rates(1_000_000, 1_000_000)),
            ("2000/3000", rates(2_000_000, 3_000_000)),
            (r"2000\3000", rates(2_000_000, 3_000_000)),
            ("2000:3000", rates(2_000_000, 3_000_000)),
            ("50M/10m", rates(50_000_000, 10_000_000)),
            ("512K/64000B", rates(512_000, 64_000)),
            ("1G/100M", rates(1_000_000_000, 100_000_000)),
            ("2.5M/1M", rates(2_500_000, 1_000_000)),
            ("0,2000/3000", rates(2_000_000, 3_000_000)),
        ];
        for (text, expected) in cases {
            assert_eq!(accel(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn mikrotik_counts_bits_and_has_up_first() {
        let cases = [
            ("10M/50M", rates(50_000_000, 10_000_000)),
            ("10M", rates(10_000_000, 10_000_000)),
            ("512k/2M", rates(2_000_000, 512_000)),
            ("64000/128000", rates(128_000, 64_000)),
            ("1G/1.5G", rates(1_500_000_000, 1_000_000_000)),
        ];
        for (text, expected) in cases {
            assert_eq!(mikrotik(text), Ok(expected), "{text}");
        }
        let bursts = "10M/50M 20M/100M 8M/40M 16/16 8 1M/5M";
        assert_eq!(mikrotik(bursts), Ok(Rates { more: true, ..rates(50_000_000, 10_000_000) }));
    }

    #[test]
    fn cisco_strings_name_each_direction() {
        let text = "lcp:interface-config#1=rate-limit output access-group 101 50000000 9375000 18750000 \
                    conform-action transmit exceed-action drop;lcp:interface-config#2=rate-limit input \
                    10000000 1875000 3750000 conform-action transmit exceed-action drop";
        assert_eq!(accel(text), Ok(Rates { more: true, ..rates(50_000_000, 10_000_000) }));
        let one = accel("lcp:interface-config=rate-limit output 50000000 9375000 18750000").unwrap_err();
        assert!(one.ends_with("has no `rate-limit input`, the rate up"), "{one}");
        assert!(accel("rate-limit input x").unwrap_err().contains("no `rate-limit output`"));
    }

    #[test]
    fn what_is_no_plan_is_refused_with_the_string() {
        let (accel, mikrotik) = (Grammar::Accel, Grammar::Mikrotik);
        let cases = [
            (accel, "", "wanted is kbit/s"),
            (accel, "fast", "\"fast\" is no rate"),
            (accel, "10M/", "is no rate"),
            (accel, "7,2000/3000", "holds only in the time range 7"),
            (accel, "63/64", "is 63000 b/s, not from"),
            (mikrotik, "0/0", "(0 stands for no limit there)"),
            (mikrotik, "10M/500G", "is 500000000000 b/s, not from"),
            (mikrotik, "-1M/1M", "is no rate"),
            (mikrotik, "99999999999999999999G", "is no rate"),
        ];
        for (grammar, text, expected) in cases {
            let error = grammar.read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_fraction_of_a_bit_is_none() {
        assert_eq!(scaled("1.5", 1, &[]), None);
        assert_eq!(scaled("1.50", 10, &[]), Some(15));
        assert_eq!(scaled("0.0000001", MEGA, &[]), None);
        assert_eq!(scaled("1.", MEGA, &[]), None);
        assert_eq!(scaled(".5", MEGA, &[]), None);
        assert_eq!(scaled("é", 1, &[('K', 1)]), None);
    }
}
