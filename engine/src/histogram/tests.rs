// SPDX-License-Identifier: Apache-2.0
//! Bins against their definition, quantiles against a sorted list.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "the oracle works with small counts and exact values"
)]

use proptest::prelude::*;

use super::*;

/// Values of every magnitude, not only large ones.
fn value() -> impl Strategy<Value = u32> {
    (any::<u32>(), 0_u32..32).prop_map(|(value, shift)| value >> shift)
}

fn bounds(bin: usize) -> (u64, u64) {
    let upper = LOWER.get(bin + 1).map_or(u64::from(u32::MAX) + 1, |&edge| u64::from(edge));
    (u64::from(LOWER[bin]), upper)
}

#[test]
fn edges_rise_and_every_edge_begins_its_own_bin() {
    for (bin, &edge) in LOWER.iter().enumerate() {
        let (lower, upper) = bounds(bin);
        assert!(lower < upper, "bin {bin}");
        assert_eq!(bin_of(edge), bin);
        assert_eq!(bin_of(u32::try_from(upper - 1).unwrap()), bin);
    }
}

#[test]
fn bins_are_at_most_a_quarter_wide_from_50_us_to_100_ms() {
    let mut seen = 0;
    for bin in 0..BINS {
        let (lower, upper) = bounds(bin);
        if upper * 64 > 50_000 && lower * 64 < 100_000_000 {
            assert!((upper - lower) * 4 <= lower, "bin {bin}: {lower}..{upper}");
            seen += 1;
        }
    }
    assert_eq!(seen, 35);
}

#[test]
fn the_last_edge_is_infinity_and_the_others_are_finite() {
    let edges: Vec<_> = upper_edges_us().collect();
    assert_eq!(edges.len(), BINS);
    assert_eq!(edges[0], Some(2.048));
    assert_eq!(edges.iter().filter(|edge| edge.is_none()).count(), 1);
    assert_eq!(edges[BINS - 1], None);
}

#[test]
fn an_empty_histogram_gives_zeros() {
    let stats = DelayStats::from(&SharedHistogram::default().totals());
    assert_eq!((stats.mean, stats.p50, stats.p99, stats.max, stats.sum), (0.0, 0.0, 0.0, 0.0, 0.0));
    assert!(stats.count.iter().all(|&count| count == 0));
    assert_eq!(stats.count.len(), stats.le.len());
}

#[test]
fn every_value_there_is_lies_in_its_bin() {
    let mut bin = 0;
    for value in 0..=(1_u32 << LAST_OCTAVE) + 9 {
        if LOWER.get(bin + 1).is_some_and(|&edge| value >= edge) {
            bin += 1;
        }
        assert_eq!(bin_of(value), bin, "{value}");
    }
    assert_eq!(bin_of(u32::MAX), BINS - 1);
}

proptest! {
    #[test]
    fn a_value_lies_in_its_bin(value in value()) {
        let (lower, upper) = bounds(bin_of(value));
        prop_assert!(lower <= u64::from(value) && u64::from(value) < upper);
    }

    #[test]
    fn quantiles_lie_in_the_bin_of_the_sorted_oracle(
        mut values in prop::collection::vec(value(), 1..300),
        q in 0.0_f64..=1.0,
    ) {
        let shared = SharedHistogram::default();
        for &value in &values {
            shared.record(Delay::of(value), 1);
        }
        let totals = shared.totals();
        values.sort_unstable();
        let rank = ((values.len() as f64 * q).ceil() as usize).max(1);
        let (lower, upper) = bounds(bin_of(values[rank - 1]));
        let got = totals.quantile_us(q);
        prop_assert!(micros(lower) <= got && got <= micros(upper), "{} not in {}..{}", got, micros(lower), micros(upper));
        prop_assert!(got <= totals.max_us());
        prop_assert_eq!(totals.max_us(), micros(u64::from(values[values.len() - 1])));
        let sum: u64 = values.iter().map(|&value| u64::from(value)).sum();
        prop_assert!((totals.mean_us() - micros(sum) / values.len() as f64).abs() < 1e-6 * totals.max_us().max(1.0));
    }

    #[test]
    fn adding_is_recording_both(left in prop::collection::vec(value(), 0..50), right in prop::collection::vec(value(), 0..50)) {
        let apart = (SharedHistogram::default(), SharedHistogram::default());
        let both = SharedHistogram::default();
        for &value in &left { apart.0.record(Delay::of(value), 1); both.record(Delay::of(value), 1); }
        for &value in &right { apart.1.record(Delay::of(value), 1); both.record(Delay::of(value), 1); }
        let mut sum = apart.0.totals();
        sum.add(&apart.1.totals());
        prop_assert_eq!(&sum, &both.totals());
        prop_assert_eq!(sum.cumulative().last(), Some((left.len() + right.len()) as u64));
    }
}

#[test]
fn sums_of_what_is_shown_are_what_is_shown_of_sums() {
    let [mut one, mut other] = [Totals::default(), Totals::default()];
    for (totals, values) in [(&mut one, 1..400_u32), (&mut other, 300..5_000)] {
        let shared = SharedHistogram::default();
        values.step_by(7).for_each(|units| shared.record(Delay::of(units * 40), 1 + units % 3));
        totals.add(&shared.totals());
    }
    let shown = |totals: &Totals| model::stats::QueueStats { delay_us: totals.into(), ..Default::default() };
    let mut sum = model::stats::QueueStats::default();
    sum.add(&shown(&one));
    sum.add(&shown(&other));
    one.add(&other);
    let (sum, all) = (sum.delay_us, shown(&one).delay_us);
    assert_eq!((&sum.count, &sum.le, sum.max), (&all.count, &all.le, all.max));
    for (got, wanted) in [(sum.sum, all.sum), (sum.mean, all.mean), (sum.p50, all.p50), (sum.p99, all.p99)] {
        assert!((got - wanted).abs() <= 1e-6 * wanted, "{got}, {wanted}");
    }
}
