// SPDX-License-Identifier: Apache-2.0
//! Each congestion control in a closed loop at a given mark or loss probability, held against its formula.

#![expect(clippy::cast_precision_loss, reason = "counts of a test stay below 2^53")]

mod path;

use cc::{Codepoint, Kind, Nanos, SenderOptions, Start, Transmitter, TransmitterOptions, build};
use path::{Dice, Evenly, Fate, Path};

const MSS: u32 = 1250;

fn endpoint(kind: Kind, options: SenderOptions) -> Transmitter {
    Transmitter::new(build(kind, &SenderOptions { mss: MSS, ..options }), &TransmitterOptions::default())
}

/// Mean window in packets over `seconds` after a warm-up, from what was delivered.
fn mean_window(path: &mut Path, warm_up: u64, seconds: u64, mut rule: impl FnMut() -> Fate) -> f64 {
    path.run(Nanos::from_secs(warm_up), |_, _| rule());
    let before = path.rx.received();
    path.run(Nanos::from_secs(warm_up + seconds), |_, _| rule());
    path.assert_conserved();
    let packets = (path.rx.received() - before) as f64;
    packets / seconds as f64 * path.rtt.as_secs_f64()
}

fn assert_near(what: &str, got: f64, want: f64, tolerance: f64) {
    let off = got / want - 1.0;
    assert!(off.abs() <= tolerance, "{what}: {got:.4}, formula {want:.4}, off by {:.1} %", off * 100.0);
}

#[test]
fn reno_window_is_the_square_root_law() {
    // RFC 3649 section 2, with an acknowledgement for every packet: W = 1.22 / sqrt(p).
    for p in [0.002, 0.0005, 0.0001] {
        let mut even = Evenly(0.0);
        let mut path = Path::new(endpoint(Kind::Reno, SenderOptions::default()), Nanos::from_millis(50), 1);
        let w = mean_window(&mut path, 60, 600, || if even.happens(p) { Fate::Drop } else { Fate::Pass });
        assert_near(&format!("reno p={p}"), w, 1.22 / p.sqrt(), 0.08);
    }
}

#[test]
fn reno_answers_classic_marks_as_losses() {
    let options = SenderOptions { codepoint: Some(Codepoint::Ect0), ..SenderOptions::default() };
    let p = 0.002;
    let mut even = Evenly(0.0);
    let mut path = Path::new(endpoint(Kind::Reno, options), Nanos::from_millis(50), 1);
    let w = mean_window(&mut path, 60, 600, || if even.happens(p) { Fate::Mark } else { Fate::Pass });
    assert_near("reno with ECN", w, 1.22 / p.sqrt(), 0.08);
    assert_eq!(path.tx.totals().lost, 0);
    assert!(path.marked > 100);
}

#[test]
fn cubic_window_is_that_of_rfc_9438_where_it_is_not_reno_friendly() {
    // RFC 9438 section 5.1, figure 7: W = (C (3 + b) / (4 (1 - b)))^(1/4) * RTT^(3/4) / p^(3/4).
    let rtt = Nanos::from_millis(200);
    for p in [2e-4, 5e-5] {
        let mut even = Evenly(0.0);
        let mut path = Path::new(endpoint(Kind::Cubic, SenderOptions::default()), rtt, 1);
        let w = mean_window(&mut path, 100, 1000, || if even.happens(p) { Fate::Drop } else { Fate::Pass });
        let want = (0.4_f64 * 3.7 / 1.2).powf(0.25) * rtt.as_secs_f64().powf(0.75) / p.powf(0.75);
        assert!(want > 1.22 / p.sqrt(), "the case must lie outside the Reno-friendly region");
        assert_near(&format!("cubic p={p}"), w, want, 0.10);
    }
}

#[test]
fn cubic_is_as_fast_as_reno_at_short_round_trips() {
    let p = 0.002;
    for codepoint in [Codepoint::NotEct, Codepoint::Ect0] {
        let options = SenderOptions { codepoint: Some(codepoint), ..SenderOptions::default() };
        let hit = if codepoint == Codepoint::NotEct { Fate::Drop } else { Fate::Mark };
        let mut even = Evenly(0.0);
        let mut path = Path::new(endpoint(Kind::Cubic, options), Nanos::from_millis(10), 1);
        let w = mean_window(&mut path, 20, 200, || if even.happens(p) { hit } else { Fate::Pass });
        assert_near("cubic as reno", w, 1.22 / p.sqrt(), 0.10);
    }
}

#[test]
fn dctcp_window_is_the_square_root_of_two_over_p_at_random_marks() {
    // One round in CWR without growth, 1/p packets with it: W = sqrt(2)/p (dctcp.rs).
    for p in [0.01, 0.02, 0.05] {
        let mut dice = Dice(5);
        let mut path = Path::new(endpoint(Kind::Dctcp, SenderOptions::default()), Nanos::from_millis(10), 1);
        let w = mean_window(&mut path, 20, 400, || if dice.happens(p) { Fate::Mark } else { Fate::Pass });
        assert_near(&format!("dctcp p={p}"), w, 2.0_f64.sqrt() / p, 0.08);
        assert_eq!(path.tx.totals().lost, 0);
    }
}

/// Rate in Mb/s of a Prague flow at marking probability `p`.
fn prague_mbps(p: f64, rtt: Nanos, options: SenderOptions) -> f64 {
    let mut dice = Dice(7);
    let mut path = Path::new(endpoint(Kind::Prague, options), rtt, 1);
    path.run(Nanos::from_secs(60), |_, _| if dice.happens(p) { Fate::Mark } else { Fate::Pass });
    let before = path.rx.bytes();
    path.run(Nanos::from_secs(160), |_, _| if dice.happens(p) { Fate::Mark } else { Fate::Pass });
    path.assert_conserved();
    assert_eq!(path.tx.totals().lost, 0);
    (path.rx.bytes() - before) as f64 * 8.0 / 100.0 / 1e6
}

#[test]
fn prague_rate_is_one_over_p_less_one_at_virtual_rtt() {
    // facts 7.1: r [Mb/s] = (1/p - 1) * 25 ms / max(RTT, 25 ms), for packets of 1250-1400 bytes. Two marks a
    // virtual round trip at this size; those without any make the flow a little faster than the formula.
    for (mbps, rtt_ms, p) in [
        (1.0, 10, 0.5),
        (5.0, 10, 0.167),
        (10.0, 25, 0.091),
        (20.0, 5, 0.048),
        (10.0, 50, 0.048),
        (5.0, 100, 0.048),
    ] {
        let got = prague_mbps(p, Nanos::from_millis(rtt_ms), SenderOptions::default());
        assert_near(&format!("prague at {mbps} Mb/s, {rtt_ms} ms"), got, mbps, 0.20);
    }
}

#[test]
fn prague_rate_mode_keeps_to_the_same_law() {
    for (mbps, p) in [(5.0, 0.167), (20.0, 0.048)] {
        let got = prague_mbps(p, Nanos::from_millis(1), SenderOptions::default());
        assert_near(&format!("prague at {mbps} Mb/s, 1 ms"), got, mbps, 0.20);
    }
}

#[test]
fn prague_without_rtt_independence_is_faster_at_shorter_round_trips() {
    let options = SenderOptions { rtt_independence: false, ..SenderOptions::default() };
    let short = prague_mbps(0.1, Nanos::from_millis(5), options);
    let long = prague_mbps(0.1, Nanos::from_millis(20), options);
    assert_near("ratio of rates", short / long, 4.0, 0.2);
    let independent = |ms| prague_mbps(0.1, Nanos::from_millis(ms), SenderOptions::default());
    assert_near("ratio with independence", independent(5) / independent(20), 1.0, 0.1);
}

#[test]
fn prague_on_loss_alone_is_a_halving_control() {
    // One halving a virtual round trip, growth of one packet in it: Reno at 25 ms. The faster growth of step 6
    // (R * 1 ms) sets in only above 11.2 Mb/s and long after a reduction.
    let p = 0.01;
    let mut even = Evenly(0.0);
    let rtt = Nanos::from_millis(25);
    let mut path = Path::new(endpoint(Kind::Prague, SenderOptions::default()), rtt, 1);
    let w = mean_window(&mut path, 30, 300, || if even.happens(p) { Fate::Drop } else { Fate::Pass });
    assert_near("prague on loss", w, 1.22 / p.sqrt(), 0.25);
    assert!(path.tx.totals().lost > 100);
}

#[test]
fn prague_additive_start_is_slow_and_slow_start_is_not() {
    let rate_after = |start, ms| {
        let options = SenderOptions { start, ..SenderOptions::default() };
        let mut path = Path::new(endpoint(Kind::Prague, options), Nanos::from_millis(25), 1);
        path.rate_bps = Some(100_000_000);
        path.run(Nanos::from_millis(ms), |_, held| if held > 20 { Fate::Mark } else { Fate::Pass });
        let before = path.rx.bytes();
        path.run(Nanos::from_millis(ms + 100), |_, held| if held > 20 { Fate::Mark } else { Fate::Pass });
        (path.rx.bytes() - before) as f64 * 80.0 / 1e6
    };
    // 0.1 Mb/s and one packet (0.4 Mb/s) more each 25 ms.
    assert_near("additive after 250 ms", rate_after(Start::Additive, 250), 0.1 + 0.4 * 12.0, 0.35);
    let slow_start = rate_after(Start::SlowStart, 250);
    assert!(slow_start > 40.0, "{slow_start} Mb/s");
}

#[test]
fn prague_holds_a_step_queue_short_and_the_link_full() {
    let options = SenderOptions::default();
    let mut path = Path::new(endpoint(Kind::Prague, options), Nanos::from_millis(10), 1);
    path.rate_bps = Some(40_000_000);
    // One millisecond at 40 Mb/s is four packets of 1250 bytes.
    path.run(Nanos::from_secs(10), |_, held| if held > 4 { Fate::Mark } else { Fate::Pass });
    let (before, marked) = (path.rx.bytes(), path.marked);
    let mut worst = 0;
    path.run(Nanos::from_secs(40), |_, held| {
        worst = worst.max(held);
        if held > 4 { Fate::Mark } else { Fate::Pass }
    });
    path.assert_conserved();
    let utilisation = (path.rx.bytes() - before) as f64 * 8.0 / 30.0 / 40e6;
    let share = (path.marked - marked) as f64 * 1250.0 / (path.rx.bytes() - before) as f64;
    assert!(utilisation > 0.95, "utilisation {utilisation:.3}");
    assert!(worst < 60, "{worst} packets");
    // facts 7.1: a step gives bursts of marks, well above the formula's 2.5 % at 40 Mb/s.
    assert!((0.025..0.15).contains(&share), "marked {share:.4}");
}

#[test]
fn cbr_keeps_its_rate_whatever_happens() {
    let options = SenderOptions { rate_bps: 10_000_000, ..SenderOptions::default() };
    let mut path = Path::new(endpoint(Kind::Cbr, options), Nanos::from_millis(10), 2);
    let mut dice = Dice(3);
    path.run(Nanos::from_secs(20), |_, _| if dice.happens(0.3) { Fate::Drop } else { Fate::Pass });
    path.assert_conserved();
    assert_near("cbr", path.tx.totals().sent as f64, 20.0 * 1000.0, 0.001);
}

#[test]
fn the_same_run_gives_the_same_counts() {
    for kind in Kind::ALL {
        let run = || {
            let options = SenderOptions { rate_bps: 5_000_000, ..SenderOptions::default() };
            let mut path = Path::new(endpoint(kind, options), Nanos::from_millis(20), 2);
            let mut dice = Dice(11);
            path.run(Nanos::from_secs(5), |_, _| if dice.happens(0.01) { Fate::Drop } else { Fate::Pass });
            (path.tx.totals(), path.tx.sender().cwnd(), path.rx.ecn())
        };
        assert_eq!(run(), run(), "{kind}");
    }
}
