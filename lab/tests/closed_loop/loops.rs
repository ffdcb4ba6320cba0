// SPDX-License-Identifier: Apache-2.0
//! Senders and AQMs against each other.

use aqm::Nanos;
use cc::Kind;
use lab::run;

use crate::rig::{fifo, flow, linux, scenario, udp};

#[test]
fn a_lone_reno_fills_a_fifo_link() {
    let outcome = run(&scenario(20_000_000, fifo(), vec![flow(Kind::Reno, 20)]), 1).unwrap();
    assert!(outcome.utilisation > 0.99, "{}", outcome.utilisation);
    assert!(outcome.utilisation < 1.001, "{}", outcome.utilisation);
    assert_eq!(outcome.queues.l4s.packets, 0);
}

#[test]
fn prague_beside_cubic_shares_a_dualq_and_waits_less() {
    let mut base = scenario(50_000_000, linux(), vec![flow(Kind::Prague, 20), flow(Kind::Cubic, 20)]);
    base.duration = Nanos::from_secs(40);
    base.warmup = Nanos::from_secs(10);
    for seed in 1..=3 {
        let outcome = run(&base, seed).unwrap();
        let (l, c) = (&outcome.queues.l4s, &outcome.queues.classic);
        let ratio = outcome.flows[0].rate_bps / outcome.flows[1].rate_bps;
        // the kernel shows 1.3 with its DCTCP and 2.1 with a paced Prague
        assert!((1.0..2.5).contains(&ratio), "seed {seed}: rates {ratio}");
        assert!(outcome.utilisation > 0.99, "seed {seed}: {}", outcome.utilisation);
        assert!(l.delay_ms.mean < 0.5 && l.delay_ms.p99 < 1.2, "seed {seed}: {:?}", l.delay_ms);
        assert!((10.0..16.0).contains(&c.delay_ms.mean), "seed {seed}: {:?}", c.delay_ms);
        assert!(l.dropped_ratio == 0.0, "seed {seed}");
        assert!((0.02..0.07).contains(&l.marked_ratio), "seed {seed}: {}", l.marked_ratio);
    }
}

#[test]
fn a_lone_prague_over_a_step_is_marked_in_bursts() {
    let outcome = run(&scenario(40_000_000, linux(), vec![flow(Kind::Prague, 5)]), 1).unwrap();
    // 2.5 % is what an even stream of marks would show (facts 7.1); measured were 6.45 %
    assert!(outcome.flows[0].marked_ratio > 0.025, "{}", outcome.flows[0].marked_ratio);
    assert!(outcome.utilisation > 0.98, "{}", outcome.utilisation);
}

#[test]
fn what_answers_nothing_is_dropped_by_the_square_of_p() {
    for offered in [60_000_000, 75_000_000, 100_000_000] {
        let outcome = run(&scenario(50_000_000, linux(), vec![udp(offered)]), 1).unwrap();
        let queue = &outcome.queues.classic;
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let wanted = 1.0 - 50e6 / offered as f64;
        assert!((queue.dropped_ratio / wanted - 1.0).abs() < 0.02, "{offered}: {}", queue.dropped_ratio);
        assert!((queue.p_prime_squared_mean / wanted - 1.0).abs() < 0.05, "{offered}: {queue:?}");
        assert!((outcome.flows[0].dropped_ratio / wanted - 1.0).abs() < 0.02, "{offered}");
        assert!((14.0..16.5).contains(&queue.delay_ms.mean), "{offered}: {:?}", queue.delay_ms);
    }
}
