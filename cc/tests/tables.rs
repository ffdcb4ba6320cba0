// SPDX-License-Identifier: Apache-2.0
//! Growth and back-off of each control, step by step, and bounds that hold whatever happens.

use cc::{
    Ack, Codepoint, Cubic, Kind, Loss, Nanos, Pacer, Prague, RateSample, Reno, RttEstimator, RttOptions,
    Sender, SenderOptions, Start, build,
};
use proptest::prelude::*;

const MSS: u64 = 1000;
const RTT: Nanos = Nanos::from_millis(50);

fn options() -> SenderOptions {
    SenderOptions { mss: 1000, ..SenderOptions::default() }
}

/// A whole window acknowledged in one round: `round` says which.
fn round(sender: &mut dyn Sender, round: u64, ce: u64) {
    let packets = sender.cwnd() / MSS;
    let now = Nanos(RTT.0 * (round + 1));
    sender.on_ack(&ack(now, round, packets, ce));
}

fn ack(now: Nanos, round: u64, packets: u64, ce: u64) -> Ack {
    Ack {
        now,
        packets,
        bytes: packets * MSS,
        ce_packets: ce,
        rtt: Some(RTT),
        srtt: RTT,
        min_rtt: RTT,
        in_flight: 0,
        acked_through: (round + 1) * 100_000,
        next_seq: (round + 1) * 100_000,
        ..Ack::default()
    }
}

fn loss(round: u64) -> Loss {
    Loss {
        now: Nanos(RTT.0 * (round + 1)),
        packets: 1,
        bytes: MSS,
        largest: (round + 1) * 100_000 - 1,
        next_seq: (round + 1) * 100_000,
        srtt: RTT,
    }
}

#[test]
fn reno_doubles_then_adds_one_and_halves() {
    let mut reno = Reno::new(&options());
    let mut windows = vec![reno.cwnd() / MSS];
    for n in 0..3 {
        round(&mut reno, n, 0);
        windows.push(reno.cwnd() / MSS);
    }
    reno.on_loss(&loss(3));
    windows.push(reno.cwnd() / MSS);
    for n in 4..8 {
        round(&mut reno, n, 0);
        windows.push(reno.cwnd() / MSS);
    }
    // The first round after the loss ends recovery and grows.
    assert_eq!(windows, [10, 20, 40, 80, 40, 41, 42, 43, 44]);
    reno.on_rto(Nanos::ZERO);
    assert_eq!((reno.cwnd(), reno.state().ssthresh), (MSS, Some(22 * MSS)));
    reno.on_rto(Nanos::ZERO);
    assert_eq!(reno.state().ssthresh, Some(22 * MSS), "a second time-out holds the threshold");
}

#[test]
fn one_round_trip_is_answered_once() {
    for kind in [Kind::Reno, Kind::Cubic, Kind::Dctcp, Kind::Prague] {
        let mut sender = build(kind, &SenderOptions { codepoint: Some(Codepoint::Ect0), ..options() });
        round(sender.as_mut(), 0, 0);
        round(sender.as_mut(), 1, 1);
        let after = sender.cwnd();
        sender.on_ack(&Ack { acked_through: 200_000, ..ack(Nanos(RTT.0 * 2 + 1), 1, 0, 3) });
        assert_eq!(sender.cwnd(), after, "{kind}: second mark of one round");
        if kind != Kind::Prague {
            sender.on_loss(&Loss { largest: 199_999, ..loss(1) });
            assert_eq!(sender.cwnd(), after, "{kind}: loss in the round of a mark");
        }
    }
}

#[test]
fn spurious_losses_give_the_window_back() {
    for kind in [Kind::Reno, Kind::Cubic, Kind::Dctcp, Kind::Prague] {
        let mut sender = build(kind, &options());
        for n in 0..4 {
            round(sender.as_mut(), n, 0);
        }
        let before = sender.cwnd();
        sender.on_loss(&loss(4));
        assert!(sender.cwnd() < before, "{kind}");
        sender.on_spurious_loss(Nanos::ZERO);
        assert!(sender.cwnd().abs_diff(before) <= MSS, "{kind}");
        sender.on_spurious_loss(Nanos::ZERO);
        assert!(sender.cwnd().abs_diff(before) <= MSS, "{kind}: only once");
    }
}

#[test]
fn an_application_that_holds_back_does_not_grow_the_window() {
    for kind in [Kind::Reno, Kind::Cubic, Kind::Dctcp, Kind::Prague] {
        let mut sender = build(kind, &options());
        round(sender.as_mut(), 0, 0);
        let before = sender.cwnd();
        for n in 1..10 {
            sender.on_ack(&Ack { app_limited: true, ..ack(Nanos(RTT.0 * (n + 1)), n, 10, 0) });
        }
        assert_eq!(sender.cwnd(), before, "{kind}");
    }
}

#[test]
fn cubic_falls_to_seven_tenths_and_is_back_at_the_plateau_after_k() {
    let mut cubic = Cubic::new(&SenderOptions { hystart: false, ..options() });
    for n in 0..4 {
        round(&mut cubic, n, 0);
    }
    assert_eq!(cubic.cwnd() / MSS, 160);
    cubic.on_loss(&loss(4));
    assert_eq!(cubic.cwnd() / MSS, 112);
    // K = cbrt(160 * 0.3 / 0.4) = 4.93 s, at 200 ms a round: too few rounds for Reno to be faster. Each aims one
    // round ahead.
    let rtt = Nanos::from_millis(200);
    for n in 0..25 {
        let packets = cubic.cwnd() / MSS;
        let now = Nanos(RTT.0 * 5 + rtt.0 * n);
        cubic.on_ack(&Ack { rtt: Some(rtt), srtt: rtt, ..ack(now, 5 + n, packets, 0) });
    }
    let plateau = cubic.cwnd();
    assert!(plateau.abs_diff(160 * MSS) < 2 * MSS, "{plateau}");
    // Fast convergence: a loss below the plateau lowers it to 85 % of the window.
    cubic.on_loss(&loss(40));
    let low = cubic.cwnd();
    cubic.on_loss(&loss(41));
    assert!(cubic.cwnd().abs_diff(low * 7 / 10) <= 1);
}

#[test]
fn hystart_leaves_slow_start_on_rising_delay_and_not_without() {
    let grow = |hystart, rise_ms: u64| {
        let mut cubic = Cubic::new(&SenderOptions { hystart, ..options() });
        let mut now = 0;
        for n in 0..14_u64 {
            now += RTT.0;
            let rtt = RTT + Nanos::from_millis(rise_ms * n);
            for sample in 0..16 {
                let packets = (cubic.cwnd() / MSS / 16).max(1);
                let acked_through = n * 1000 + sample + 1;
                let next_seq = (n + 1) * 1000 - 1;
                let a = ack(Nanos(now + sample), n, packets, 0);
                cubic.on_ack(&Ack { rtt: Some(rtt), acked_through, next_seq, ..a });
            }
        }
        (cubic.state().slow_start, cubic.cwnd() / MSS)
    };
    assert!(!grow(true, 10).0);
    assert!(grow(true, 0).0);
    assert!(grow(false, 10).0);
    assert!(grow(true, 10).1 * 4 < grow(false, 10).1);
}

#[test]
fn prague_alpha_is_a_moving_average_over_virtual_round_trips() {
    let mut prague = Prague::new(&options());
    round(&mut prague, 0, 0);
    // RTT is 50 ms, so each of these rounds is one period: all packets of one in four marked.
    let mut want = 0.0;
    for n in 1..200 {
        let packets = 40;
        let ce = if n % 4 == 0 { 40 } else { 0 };
        prague.on_ack(&ack(Nanos(RTT.0 * (n + 1)), n, packets, ce));
        want += (if n % 4 == 0 { 1.0 } else { 0.0 } - want) / 16.0;
        let got = prague.state().alpha.unwrap();
        assert!((got - want).abs() < 1e-9, "round {n}: {got} and {want}");
    }
}

#[test]
fn prague_updates_alpha_at_most_once_in_25_ms() {
    let mut prague = Prague::new(&options());
    let short = Nanos::from_millis(5);
    let mut changes = 0;
    let mut last = 0.0;
    for n in 0..100 {
        let now = Nanos(short.0 * (n + 1));
        prague.on_ack(&Ack { rtt: Some(short), srtt: short, ..ack(now, n, 10, 1) });
        let alpha = prague.state().alpha.unwrap();
        if alpha.to_bits() != f64::to_bits(last) {
            changes += 1;
            last = alpha;
        }
    }
    // 500 ms hold 20 periods of 25 ms; each ends at the first acknowledgement after it.
    assert!((16..=20).contains(&changes), "{changes}");
}

#[test]
fn prague_paces_three_percent_up_then_down_within_a_period() {
    let mut prague = Prague::new(&SenderOptions { start: Start::Additive, ..options() });
    round(&mut prague, 0, 0);
    let at = |ms| prague.pacing_bps(RTT + Nanos::from_millis(ms)).unwrap();
    let (first, second) = (at(1), at(49));
    assert_eq!(at(24), first);
    assert_eq!(at(26), second);
    let ratio = f64::from(u32::try_from(first).unwrap()) / f64::from(u32::try_from(second).unwrap());
    assert!((ratio - 1.03 / 0.97).abs() < 1e-3, "{ratio}");
}

#[test]
fn prague_sends_small_packets_at_low_rates() {
    let mut prague = Prague::new(&SenderOptions { start: Start::Additive, mss: 1400, ..options() });
    prague.on_ack(&Ack {
        rtt: Some(Nanos::from_millis(10)),
        srtt: Nanos::from_millis(10),
        ..ack(RTT, 0, 1, 1)
    });
    // 100 kb/s * 25 ms / 2 = 156 bytes.
    assert_eq!(prague.packet_bytes(), 156);
}

#[test]
fn rto_follows_rfc_6298() {
    let mut rtt = RttEstimator::new(RttOptions { min_rto: Nanos::ZERO, ..RttOptions::default() });
    assert_eq!(rtt.rto(), Nanos::from_secs(1));
    rtt.sample(Nanos::from_millis(80));
    assert_eq!(rtt.rto(), Nanos::from_millis(80 + 4 * 40));
    rtt.sample(Nanos::from_millis(160));
    // RTTVAR = 3/4 * 40 + 1/4 * 80 = 50; SRTT = 7/8 * 80 + 1/8 * 160 = 90.
    assert_eq!(rtt.rto(), Nanos::from_millis(90 + 4 * 50));
    rtt.back_off();
    rtt.back_off();
    assert_eq!(rtt.rto(), Nanos::from_millis(4 * 290));
    for _ in 0..40 {
        rtt.back_off();
    }
    assert_eq!(rtt.rto(), Nanos::from_secs(60));
}

#[test]
fn a_pacer_called_late_makes_up_within_its_allowance_only() {
    let count = |catch_up, stall_ms| {
        let mut pacer = Pacer::new(catch_up);
        let (mut now, mut sent) = (Nanos::from_secs(1), 0_u64);
        let mut stalled = false;
        while now < Nanos::from_secs(2) {
            if pacer.due(now) <= now {
                pacer.sent(now, 1250, 10_000_000, 1250);
                sent += 1;
            } else if sent == 500 && !stalled {
                stalled = true;
                now = now + Nanos::from_millis(stall_ms);
            } else {
                now = pacer.due(now);
            }
        }
        sent
    };
    assert_eq!(count(Nanos::ZERO, 0), 1000);
    assert_eq!(count(Nanos::from_millis(20), 10), 1000);
    assert_eq!(count(Nanos::ZERO, 10), 991);
}

/// A rate sample such as the flight makes: all of one packet's round trip, some of it lost and marked.
fn rates(now: Nanos, seq: u64, packets: u64) -> Ack {
    let delivered = seq * MSS;
    Ack {
        prior_in_flight: packets * MSS,
        delivered,
        lost: 0,
        rate: Some(RateSample {
            delivered: packets * MSS,
            interval: Nanos(now.0 % 100_000_000 + 1),
            prior_delivered: delivered.saturating_sub(packets * MSS),
            tx_in_flight: packets * MSS,
            lost: packets % 7 * MSS,
            ce_packets: packets % 3,
            app_limited: packets.is_multiple_of(11),
        }),
        cwnd_limited: packets.is_multiple_of(2),
        ..Ack::default()
    }
}

proptest! {
    #[test]
    fn a_pacer_never_exceeds_its_rate(
        rate in 100_000_u64..100_000_000_000,
        bytes in 64_u32..9000,
        burst in 0_u64..100_000,
        steps in proptest::collection::vec(0_u64..2_000_000, 1..200),
    ) {
        let mut pacer = Pacer::new(Nanos::ZERO);
        let start = Nanos::from_secs(5);
        let (mut now, mut sent) = (start, 0_u64);
        for step in steps {
            now = now + Nanos(step);
            for _ in 0..1000 {
                if pacer.due(now) > now { break; }
                pacer.sent(now, bytes, rate, burst);
                sent += u64::from(bytes);
            }
            let earned = u128::from(now.since(start).0) * u128::from(rate) / 8_000_000_000;
            let allowed = earned + u128::from(burst.max(u64::from(bytes))) + 2 * u128::from(bytes) + 1;
            prop_assert!(u128::from(sent) <= allowed, "{} of {}", sent, allowed);
        }
    }

    /// Whatever happens, the window, the pace, the packet and alpha keep their bounds.
    #[test]
    fn bounds_hold_whatever_happens(
        kind in 0..Kind::ALL.len(),
        start in any::<bool>(),
        independent in any::<bool>(),
        steps in proptest::collection::vec(
            (0_u8..10, 1_u64..2000, 0_u64..2000, 1_u64..2_000_000_000, any::<bool>()), 1..300),
    ) {
        let kind = Kind::ALL[kind];
        let start = if start { Start::SlowStart } else { Start::Additive };
        let max_cwnd = 10_000_000;
        let options = SenderOptions { rtt_independence: independent, start, max_cwnd, rate_bps: 1_000_000, ..options() };
        let mut sender = build(kind, &options);
        let (mut now, mut seq) = (Nanos::ZERO, 0);
        for (what, packets, ce, rtt, broken) in steps {
            now = now + Nanos(rtt / 3);
            seq += packets;
            let srtt = Nanos(rtt);
            match what {
                0 => sender.on_loss(&Loss { now, packets, bytes: packets * MSS, largest: seq, next_seq: seq + 5, srtt }),
                1 => sender.on_rto(now),
                2 => sender.on_spurious_loss(now),
                _ => sender.on_ack(&Ack {
                    now, packets, bytes: packets * MSS, ce_packets: if what < 6 { ce.min(packets) } else { 0 },
                    rtt: Some(srtt), srtt, min_rtt: srtt, in_flight: 0, acked_through: seq, next_seq: seq + 100,
                    app_limited: false, ecn_broken: broken, ..rates(now, seq, packets)
                }),
            }
            prop_assert!(sender.cwnd() >= 150, "{:?}", sender);
            if kind != Kind::Cbr {
                prop_assert!(sender.cwnd() <= max_cwnd * 104 / 100 + 2 * MSS, "{:?}", sender);
            }
            prop_assert!((150..=1000).contains(&sender.packet_bytes()), "{:?}", sender);
            prop_assert!(sender.burst() >= 1);
            if let Some(pace) = sender.pacing_bps(now) {
                let least = if kind == Kind::Prague { 97_000 } else { 1 };
                prop_assert!((least..=206_000_000_000).contains(&pace) || kind != Kind::Prague, "{} {:?}", pace, sender);
                prop_assert!(pace >= least);
            }
            if let Some(alpha) = sender.state().alpha {
                prop_assert!((0.0..=1.0).contains(&alpha));
            }
        }
    }
}
