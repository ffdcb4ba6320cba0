// SPDX-License-Identifier: Apache-2.0
//! Queue protection: its figures by hand, the case of docsis-ns3, and a bully beside a light flow.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::{BitsPerSec, Pace, Ramp};

/// A flow whose two buckets are these.
const fn flow(first: u32, second: u32) -> u32 {
    0xabc0_0000 | second << 5 | first
}

fn protection() -> QueueProtection {
    QueueProtection::new(QueueProtectionConfig::default()).unwrap()
}

fn us(us: u64) -> Nanos {
    Nanos::from_micros(us)
}

#[test]
fn a_byte_at_likelihood_one_scores_two_to_the_eleven_nanoseconds() {
    let mut p = protection();
    let now = us(10);
    assert_eq!(p.fill(3, now, 0, Prob::ONE), Nanos::ZERO);
    p.buckets[3].expiry = now;
    assert_eq!(p.fill(3, now, 1_500, Prob::ONE), Nanos(1_500 << 11));
    assert_eq!(p.fill(3, now, 1_500, Prob::from_f64(0.5)), Nanos((1_500 << 11) + (750 << 11)));
    assert_eq!(p.fill(3, now, 1_500, Prob::ZERO), Nanos(2_250 << 11));
}

#[test]
fn scores_drain_with_time_and_stop_at_five_seconds() {
    let mut p = protection();
    let f = flow(1, 2);
    p.judge(f, us(0), 1_000, Prob::ONE, us(0));
    assert_eq!(p.buckets[1].expiry, Nanos(1_000 << 11));
    p.judge(f, us(1_000), 1_000, Prob::ONE, us(0));
    assert_eq!(p.buckets[1].expiry, Nanos(2_000 << 11), "1 ms drained of the score");
    p.judge(f, us(10_000), 1_000, Prob::ONE, us(0));
    assert_eq!(p.buckets[1].expiry, us(10_000) + Nanos(1_000 << 11), "starts again once drained");
    (0..10_000).for_each(|_| {
        p.judge(f, us(20_000), 1_500, Prob::ONE, us(0));
    });
    assert_eq!(p.buckets[1].expiry, us(20_000) + Nanos::from_secs(5));
    p.judge(f, Nanos::ZERO, u32::MAX, Prob::ONE, Nanos::MAX);
}

#[test]
fn the_second_bucket_then_the_dregs_are_used_when_taken() {
    let mut p = protection();
    assert_eq!(p.pick(flow(1, 2), us(1)), 1);
    p.buckets[1].expiry = us(1_000);
    assert_eq!(p.pick(flow(1, 3), us(1)), 3);
    p.buckets[3].expiry = us(1_000);
    assert_eq!(p.pick(flow(1, 3) | 1 << 20, us(1)), BUCKETS, "both are taken");
    assert_eq!(p.pick(flow(1, 3), us(1)), 3, "its own");
    assert_eq!(p.pick(flow(1, 2), us(1)), 1, "its own");
    assert_eq!(p.pick(flow(1, 3) | 1 << 20, us(1_000)), 1, "the first that expired");
    assert_eq!(p.pick(flow(1, 3), us(1_000)), 3, "its own goes before one expired");
}

/// 1 ms * 4 ms: at twice the delay half the score is enough.
#[test]
fn sanctions_begin_where_the_product_says() {
    let sanctioned = |score: Nanos, delay: Nanos| {
        let mut p = protection();
        let f = flow(7, 8);
        p.buckets[7] = Bucket { expiry: us(50) + score, flow: f };
        p.judge(f, us(50), 1_500, Prob::ZERO, delay)
    };
    assert!(!sanctioned(us(5_000_000), us(1_000)), "never at the critical delay or below");
    assert!(!sanctioned(us(3_996), us(1_001)), "3.996 * 1.001 < 4");
    assert!(sanctioned(us(4_000), us(1_001)));
    assert!(!sanctioned(us(2_000), us(2_000)));
    assert!(sanctioned(us(2_001), us(2_000)));
    assert!(sanctioned(us(100), us(40_001)));
}

/// docsis-ns3, suite queue-protection: five flows, five packets, five successes, no sanction.
#[test]
fn five_flows_of_docsis_ns3_all_succeed() {
    let mut p = protection();
    let pace = Pace::of(BitsPerSec(50_000_000));
    let ramp = Ramp::new(us(476), us(524), 0);
    let mut bytes = 0;
    for k in 0..5_u32 {
        bytes += 1_028;
        let delay = pace.time(bytes);
        assert!(!p.judge(flow(k, k + 9), us(1), 1_028, ramp.likelihood(bytes, pace), delay), "{k}");
    }
}

/// A flow of a load: its hash, packet size and rate in Mb/s.
type Load = (u32, u32, u64);

/// L of 50 Mb/s with the DOCSIS ramp, two seconds: packets judged and sanctioned of each flow, and the longest delay.
fn run(loads: &[Load]) -> (Vec<(u32, u32)>, Nanos) {
    let mut p = protection();
    let pace = Pace::of(BitsPerSec(50_000_000));
    let ramp = Ramp::new(us(640), us(524), 0);
    let mut arrivals: Vec<(u64, usize)> = Vec::new();
    for (index, (_, bytes, mbps)) in loads.iter().enumerate() {
        let gap = u64::from(*bytes) * 8_000 / mbps;
        arrivals.extend((0..2_000_000_000 / gap).map(|k| (k * gap + index as u64 * 7_001, index)));
    }
    arrivals.sort_unstable();
    let mut counts = vec![(0, 0); loads.len()];
    let (mut queue, mut free, mut longest) = (VecDeque::new(), 0_u64, Nanos::ZERO);
    for (at, index) in arrivals {
        let (flow, bytes, _) = loads[index];
        while queue.front().is_some_and(|(end, _)| *end <= at) {
            queue.pop_front();
        }
        let backlog: u64 = queue.iter().map(|(_, bytes)| u64::from(*bytes)).sum::<u64>() + u64::from(bytes);
        let delay = pace.time(backlog);
        counts[index].0 += 1;
        if p.judge(flow, Nanos(at), bytes, ramp.likelihood(backlog, pace), delay) {
            counts[index].1 += 1;
        } else {
            free = free.max(at) + pace.time(bytes.into()).0;
            queue.push_back((free, bytes));
            longest = longest.max(delay);
        }
    }
    (counts, longest)
}

#[test]
fn five_flows_at_moderate_load_are_never_sanctioned() {
    let loads: Vec<Load> = (0..5).map(|k| (flow(k, k + 11), 1_028, 8)).collect();
    let (counts, longest) = run(&loads);
    for (judged, sanctioned) in &counts {
        assert!(*judged > 1_900 && *sanctioned == 0, "{counts:?}");
    }
    assert!(longest < us(1_000), "{longest:?}");
}

#[test]
fn a_bully_is_sanctioned_and_the_light_flow_beside_it_is_not() {
    let (counts, longest) = run(&[(flow(1, 2), 1_500, 80), (flow(3, 4), 200, 1)]);
    let (bully, light) = (counts[0], counts[1]);
    assert!(bully.1 * 10 > bully.0 * 3, "a good part of what is above capacity (37.5 %): {bully:?}");
    assert!(light.0 > 1_200 && light.1 == 0, "{light:?}");
    assert!(longest < us(2_000), "{longest:?}");
}

/// `pick_bucket()` and `fill_bucket()` as they are printed, in floating point.
struct Printed {
    t_exp: [f64; BUCKETS + 1],
    id: [u32; BUCKETS + 1],
}

impl Printed {
    fn qprotect(&mut self, uflw: u32, now: f64, size: f64, prob: f64, qdelay: f64) -> (bool, f64) {
        let (mut h32, mut hsav, mut found) = (uflw, BUCKETS, false);
        for _ in 0..2 {
            let h = (h32 & 31) as usize;
            if self.id[h] == uflw {
                if self.t_exp[h] <= now {
                    self.t_exp[h] = now;
                }
                (hsav, found) = (h, true);
                break;
            } else if hsav == BUCKETS && self.t_exp[h] <= now {
                hsav = h;
            }
            h32 >>= 5;
        }
        if !found {
            if self.t_exp[hsav] <= now {
                self.t_exp[hsav] = now;
            }
            self.id[hsav] = uflw;
        }
        self.t_exp[hsav] += prob * size * 2048.0;
        if self.t_exp[hsav] > now + 5e9 {
            self.t_exp[hsav] = now + 5e9;
        }
        let product = qdelay * (self.t_exp[hsav] - now);
        (qdelay > 1e6 && product > 4e12, product)
    }
}

proptest! {
    #[test]
    fn it_judges_as_the_pseudocode_does(
        packets in prop::collection::vec((0_u32..60, 0_u64..3_000_000, 64_u32..1_600, 0.0_f64..1.0, 0_u64..4_000_000), 1..400),
    ) {
        let mut ours = protection();
        let mut printed = Printed { t_exp: [0.0; BUCKETS + 1], id: [0; BUCKETS + 1] };
        let mut now = 1_u64;
        for (f, gap, bytes, prob, delay) in packets {
            now += gap;
            let uflw = (f + 1).wrapping_mul(2_654_435_769);
            let prob = Prob::from_f64(prob);
            #[expect(clippy::cast_precision_loss, reason = "below 2^53 ns")]
            let (t, d) = (now as f64, delay as f64);
            let (expected, product) = printed.qprotect(uflw, t, f64::from(bytes), prob.as_f64(), d);
            let got = ours.judge(uflw, Nanos(now), bytes, prob, Nanos(delay));
            // roundings of the two differ by some nanoseconds of score
            prop_assert!(expected == got || (product / 4e12 - 1.0).abs() < 1e-3, "{product}");
        }
        for (bucket, t_exp) in ours.buckets.iter().zip(printed.t_exp) {
            #[expect(clippy::cast_precision_loss, reason = "below 2^53 ns")]
            let got = bucket.expiry.0 as f64;
            prop_assert!((got - t_exp).abs() < 1e3, "{got} for {t_exp}");
        }
    }
}

#[test]
fn parameters_outside_their_limits_are_refused() {
    let good = QueueProtectionConfig::default();
    for bad in [
        QueueProtectionConfig { critical_delay: Nanos::ZERO, ..good },
        QueueProtectionConfig { critical_score: us(5_000_000), ..good },
        QueueProtectionConfig { lg_aging: 31, ..good },
    ] {
        assert!(QueueProtection::new(bad).is_err(), "{bad:?}");
    }
}
