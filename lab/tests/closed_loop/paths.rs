// SPDX-License-Identifier: Apache-2.0
//! Links: loss, jitter, rate steps, bursts.

use aqm::{BitsPerSec, Nanos};
use cc::Kind;
use lab::{RateStep, run};

use crate::rig::{dualpi2, fifo, flow, scenario, udp};

#[test]
fn a_load_of_exactly_the_rate_gets_through_without_queue() {
    let outcome = run(&scenario(50_000_000, fifo(), vec![udp(50_000_000)]), 1).unwrap();
    assert!((outcome.utilisation - 1.0).abs() < 1e-4, "{}", outcome.utilisation);
    assert!(outcome.queues.classic.delay_ms.max < 0.004, "{:?}", outcome.queues.classic.delay_ms);
}

#[test]
fn random_loss_takes_its_share() {
    let mut lossy = scenario(50_000_000, fifo(), vec![udp(40_000_000)]);
    lossy.link.loss = 0.05;
    let outcome = run(&lossy, 1).unwrap();
    let delivered = outcome.flows[0].rate_bps / 40e6;
    assert!((delivered - 0.95).abs() < 0.003, "{delivered}");
    assert_eq!(outcome.flows[0].dropped_ratio.to_bits(), 0, "the bottleneck dropped nothing");
}

#[test]
fn jitter_delays_by_half_of_its_bound_on_average_and_reorders_nothing() {
    // one packet in 12 ms: the order holds nobody up
    let rtt = |jitter_ms| {
        let mut path = scenario(1_000_000, fifo(), vec![flow(Kind::Reno, 20)]);
        path.link.buffer_packets = Some(1);
        path.link.jitter = Nanos::from_millis(jitter_ms);
        let outcome = run(&path, 1).unwrap();
        (outcome.flows[0].rtt_ms, outcome.queues.classic.delay_ms.mean)
    };
    let (with, queue_with) = rtt(10);
    let (without, queue) = rtt(0);
    let more = (with - queue_with) - (without - queue);
    assert!((4.0..7.0).contains(&more), "{more} ms");
}

#[test]
fn senders_follow_a_rate_step() {
    let mut steps = scenario(50_000_000, dualpi2(), vec![flow(Kind::Prague, 20)]);
    steps.warmup = Nanos::from_secs(12);
    steps.link.steps.push(RateStep { at: Nanos::from_secs(10), rate: BitsPerSec(10_000_000) });
    let outcome = run(&steps, 1).unwrap();
    assert!((0.97..1.001).contains(&outcome.utilisation), "{}", outcome.utilisation);
    assert!((9.5e6..10.1e6).contains(&outcome.flows[0].rate_bps), "{}", outcome.flows[0].rate_bps);
    let rates = &outcome.series.rates[0].1;
    assert!((45e6..51e6).contains(&rates[90]), "before the step: {}", rates[90]);
}

#[test]
fn a_bursty_link_keeps_its_mean_rate() {
    let mut bursty = scenario(20_000_000, fifo(), vec![udp(30_000_000)]);
    bursty.link.burst = Nanos::from_millis(4);
    bursty.link.buffer_packets = Some(100);
    let outcome = run(&bursty, 1).unwrap();
    assert!((outcome.utilisation - 1.0).abs() < 0.002, "{}", outcome.utilisation);
    bursty.flows = vec![udp(10_000_000)];
    let outcome = run(&bursty, 1).unwrap();
    let delay = outcome.queues.classic.delay_ms;
    // who comes in a rest waits for its end: up to 4 ms, and what gathered goes at 40 Mb/s
    assert!((3.9..4.5).contains(&delay.max), "{delay:?}");
    assert!((outcome.flows[0].rate_bps / 10e6 - 1.0).abs() < 0.002, "{}", outcome.flows[0].rate_bps);
}
