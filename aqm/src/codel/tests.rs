// SPDX-License-Identifier: Apache-2.0
//! CoDel against a transcription of RFC 8289 section 5, and its figures by hand.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::{BitsPerSec, Cause, Ecn, Rule};

const MTU: u64 = 1538;
const PACE: Pace = Pace(0);

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// The pseudocode of sections 5.2 to 5.6, with `bytes()` and the queue inside; the drops are listed.
#[derive(Default)]
struct Rfc {
    queue: VecDeque<(u64, u64, u64)>,
    dropped: Vec<u64>,
    first_above_time: u64,
    drop_next: u64,
    count: u32,
    lastcount: u32,
    dropping: bool,
}

impl Rfc {
    const TARGET: u64 = 5_000_000;
    const INTERVAL: u64 = 100_000_000;

    fn control_law(t: u64, count: u32) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 1e8")]
        let step = (1e8 / f64::from(count).sqrt()) as u64;
        t + step
    }

    fn dodequeue(&mut self, now: u64) -> (Option<u64>, bool) {
        let Some((id, tstamp, _)) = self.queue.pop_front() else {
            self.first_above_time = 0;
            return (None, false);
        };
        let bytes: u64 = self.queue.iter().map(|packet| packet.2).sum();
        let mut ok_to_drop = false;
        if now - tstamp < Self::TARGET || bytes <= MTU {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = now + Self::INTERVAL;
        } else if now >= self.first_above_time {
            ok_to_drop = true;
        }
        (Some(id), ok_to_drop)
    }

    fn dequeue(&mut self, now: u64) -> Option<u64> {
        let (mut packet, mut ok) = self.dodequeue(now);
        if self.dropping {
            if !ok {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                self.dropped.extend(packet);
                self.count += 1;
                (packet, ok) = self.dodequeue(now);
                if ok {
                    self.drop_next = Self::control_law(self.drop_next, self.count);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok {
            self.dropped.extend(packet);
            (packet, _) = self.dodequeue(now);
            self.dropping = true;
            let delta = self.count - self.lastcount;
            let recent = now.saturating_sub(self.drop_next) < 16 * Self::INTERVAL;
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.drop_next = Self::control_law(now, self.count);
            self.lastcount = self.count;
        }
        packet
    }
}

/// The same over a [`Qdisc`], as its owner does it.
struct Ours {
    queue: VecDeque<(u64, u64, u64)>,
    dropped: Vec<u64>,
    codel: Codel,
}

impl Ours {
    fn dequeue(&mut self, now: u64) -> Option<u64> {
        loop {
            let queue = self.codel.select(Nanos(now))?;
            let (id, tstamp, bytes) = self.queue.pop_front().unwrap();
            let bytes = u32::try_from(bytes).unwrap();
            let sojourn = Nanos(now - tstamp);
            let packet = Leaving { now: Nanos(now), queue, bytes, sojourn, ..Leaving::default() };
            if self.codel.decide(&packet) == Verdict::Pass {
                self.codel.sent(queue, bytes);
                return Some(id);
            }
            self.dropped.push(id);
        }
    }
}

/// Both over phases of (packets, time of one at the link, pause after them); the packets dropped.
fn replay(start: u64, phases: &[(u64, u64, u64)]) -> usize {
    let mut rfc = Rfc::default();
    let codel = Codel::new(CodelConfig::default()).unwrap();
    let mut ours = Ours { queue: VecDeque::new(), dropped: Vec::new(), codel };
    let (mut now, mut id) = (start, 0);
    for &(packets, service, pause) in phases {
        let (mut arrival, mut departure) = (now, now);
        for k in 0..packets {
            id += 1;
            arrival += 100_000 + (k * 7_919) % 1_900_000;
            while departure <= arrival {
                assert_eq!(rfc.dequeue(departure), ours.dequeue(departure));
                departure += service;
            }
            let bytes = 64 + (k * 131) % (MTU - 63);
            rfc.queue.push_back((id, arrival, bytes));
            ours.queue.push_back((id, arrival, bytes));
            ours.codel.arrive(&Arriving { bytes: u32::try_from(bytes).unwrap(), ..Arriving::default() });
        }
        now = departure + pause;
    }
    assert_eq!(rfc.dropped, ours.dropped);
    assert_eq!(rfc.queue, ours.queue);
    rfc.dropped.len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Load between 0.3 and 3 times the rate of a link that changes, with pauses.
    #[test]
    fn it_drops_what_the_pseudocode_drops(
        start in 0_u64..1 << 50,
        phases in prop::collection::vec((40_u64..800, 300_000_u64..3_000_000, 0_u64..3_000_000_000), 1..12),
    ) {
        replay(start, &phases);
    }
}

#[test]
fn the_schedules_make_the_pseudocode_drop() {
    let dropped =
        replay(0, &[(800, 1_500_000, 0), (50, 300_000, 500_000_000), (800, 2_000_000, 3_000_000_000)]);
    assert!(dropped > 50, "{dropped}");
}

/// Times at which packets spaced by `gap` that waited for `sojourn` are acted on, over `span` from `start`.
fn acts(state: &mut CodelState, start: Nanos, span: Nanos, gap: Nanos, sojourn: Nanos) -> Vec<Nanos> {
    (0..span.0 / gap.0)
        .map(|k| Nanos(k * gap.0))
        .filter(|at| state.decide(&CodelConfig::default(), start + *at, sojourn, 10 * MTU, PACE))
        .collect()
}

#[test]
fn the_first_action_comes_after_an_interval_and_the_next_at_interval_over_sqrt_count() {
    let got = acts(&mut CodelState::new(), ms(7), ms(400), Nanos::from_micros(10), ms(6));
    // 100; then at 200 (count 1), 200 + 100/sqrt 2, + 100/sqrt 3, each seen by the next packet
    let expected = [100_000_000, 200_000_000, 270_720_000, 328_450_000, 378_450_000];
    assert_eq!(got, expected.map(Nanos));
}

#[test]
fn a_sojourn_at_target_counts_and_one_below_starts_the_interval_again() {
    let mut state = CodelState::new();
    assert!(acts(&mut state, ms(0), ms(99), ms(1), ms(5)).is_empty());
    assert!(!state.decide(&CodelConfig::default(), ms(99), Nanos(4_999_999), 10 * MTU, PACE));
    assert_eq!(acts(&mut state, ms(100), ms(150), ms(1), ms(5)), [ms(100)]);
}

#[test]
fn no_more_than_an_mtu_left_behind_is_no_queue() {
    let mut state = CodelState::new();
    for k in 0..1_000 {
        assert!(!state.decide(&CodelConfig::default(), ms(k), ms(500), MTU, PACE));
    }
    let mut state = CodelState::new();
    assert!((0..1_000).any(|k| state.decide(&CodelConfig::default(), ms(k), ms(500), MTU + 1, PACE)));
}

#[test]
fn at_low_rates_the_target_is_the_time_of_an_mtu() {
    // 1 Mb/s: 12.304 ms
    let pace = Pace::of(BitsPerSec(1_000_000));
    let acted = |sojourn| {
        let mut state = CodelState::new();
        (0..300).any(|k| {
            state.decide(&CodelConfig::default(), ms(k), Nanos::from_micros(sojourn), 10 * MTU, pace)
        })
    };
    assert!(!acted(12_303));
    assert!(acted(12_304));
}

/// 16 intervals are 1.6 s.
#[test]
fn the_count_resumes_within_16_intervals_and_never_after_whatever_a_clock_would_wrap_at() {
    let below = |state: &mut CodelState, now| {
        assert!(!state.decide(&CodelConfig::default(), now, Nanos::ZERO, 10 * MTU, PACE));
    };
    let mut first = CodelState::new();
    let acted = acts(&mut first, ms(0), ms(2_000), Nanos::from_micros(10), ms(6)).len();
    assert!(acted > 50, "{acted}");
    below(&mut first, ms(2_000));
    let again = |gap: Nanos| {
        let mut state = first;
        acts(&mut state, ms(2_000) + gap, ms(300), Nanos::from_micros(10), ms(6)).len()
    };
    let resumed = again(ms(1_000));
    assert!(resumed > 10, "{resumed}: resumes where it left");
    let fresh = again(ms(1_600));
    assert_eq!(fresh, 3, "starts over");
    for wrap in [1_u64 << 32, 1 << 38, 1 << 42, 1 << 48] {
        for off in [0, 1_000_000, 200_000_000] {
            assert_eq!(again(Nanos(wrap + off)), fresh, "{wrap} + {off}");
        }
    }
}

#[test]
fn an_interval_that_a_narrow_clock_would_not_see_past_is_over() {
    for stall in [1_u64 << 31, 1 << 37, 1 << 38, 1 << 43] {
        let mut state = CodelState::new();
        assert!(!state.decide(&CodelConfig::default(), ms(1), ms(6), 10 * MTU, PACE));
        assert!(
            state.decide(&CodelConfig::default(), ms(1) + Nanos(stall), ms(6), 10 * MTU, PACE),
            "{stall}"
        );
    }
}

#[test]
fn a_queue_emptied_by_others_is_below_target() {
    let mut codel = Codel::new(CodelConfig::default()).unwrap();
    let arriving = Arriving { bytes: 1_500, ..Arriving::default() };
    codel.arrive(&arriving);
    assert!(!codel.state.decide(&codel.config, ms(0), ms(6), 10 * MTU, PACE));
    codel.removed(0, 1_500);
    assert_eq!(codel.state, CodelState::new());
}

#[test]
fn the_last_packet_is_never_acted_on() {
    let mut codel = Codel::new(CodelConfig::default()).unwrap();
    for k in 0..2_000 {
        codel.arrive(&Arriving { bytes: 1_500, ..Arriving::default() });
        let packet = Leaving { now: ms(k), bytes: 1_500, sojourn: ms(900), ..Leaving::default() };
        assert_eq!(codel.decide(&packet), Verdict::Pass);
        assert_eq!(codel.select(ms(k)), None);
    }
}

#[test]
fn the_law_marks_ect_drops_not_ect_and_leaves_ce() {
    let expected = [
        (Ecn::NotEct, Verdict::Drop(Cause::Law)),
        (Ecn::Ect1, Verdict::Mark(Cause::Law)),
        (Ecn::Ect0, Verdict::Mark(Cause::Law)),
        (Ecn::Ce, Verdict::Pass),
    ];
    for (ecn, verdict) in expected {
        let mut codel = Codel::new(CodelConfig::default()).unwrap();
        (0..10).for_each(|_| {
            codel.arrive(&Arriving { bytes: 1_500, ..Arriving::default() });
        });
        let mut packet = Leaving { bytes: 1_500, sojourn: ms(9), ecn, ..Leaving::default() };
        assert_eq!(codel.decide(&packet), Verdict::Pass);
        packet.now = ms(100);
        assert_eq!(codel.decide(&packet), verdict, "{ecn:?}");
    }
    assert_eq!(act(Ecn::Ect1, Rule::Exclude), Verdict::Drop(Cause::Law));
    assert_eq!(act(Ecn::Ect0, Rule::Exclude), Verdict::Mark(Cause::Law));
}

#[test]
fn parameters_outside_their_limits_are_refused() {
    let good = CodelConfig::default();
    assert!(Codel::new(good).is_ok());
    for bad in [
        CodelConfig { target: Nanos::ZERO, ..good },
        CodelConfig { interval: ms(4), ..good },
        CodelConfig { interval: ms(5_000), ..good },
        CodelConfig { mtu: 63, ..good },
    ] {
        assert!(Codel::new(bad).is_err(), "{bad:?}");
    }
}
