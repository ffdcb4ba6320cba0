// SPDX-License-Identifier: Apache-2.0
//! PIE against a transcription of RFC 8033, its lazy updates against a timer, and its figures by hand.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const MTU: u32 = 1538;

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn pie() -> Pie {
    Pie::new(PieConfig::default(), 1).unwrap()
}

/// Appendix A, with the blocks of 5.1, 5.3, 5.4 (`drop_early()` of appendix B) and 5.5; times in seconds.
struct Rfc {
    queue: VecDeque<(u64, u32)>,
    dice: Dice,
    tail_drop_third: u32,
    active: bool,
    burst_allowance: u64,
    drop_prob: f64,
    accu_prob: f64,
    current_qdelay: f64,
    qdelay_old: f64,
    last_timestamp: Option<u64>,
}

impl Rfc {
    const QDELAY_REF: f64 = 0.015;
    const T_UPDATE: u64 = 15_000_000;
    const MAX_BURST: u64 = 150_000_000;

    fn new(seed: u64, tail_drop_third: u32) -> Self {
        Self {
            queue: VecDeque::new(),
            dice: Dice::new(seed),
            tail_drop_third,
            active: tail_drop_third == 0,
            burst_allowance: Self::MAX_BURST,
            drop_prob: 0.0,
            accu_prob: 0.0,
            current_qdelay: 0.0,
            qdelay_old: 0.0,
            last_timestamp: None,
        }
    }

    fn byte_length(&self) -> u32 {
        self.queue.iter().map(|packet| packet.1).sum()
    }

    /// The timer: called whenever time passes.
    fn timer(&mut self, now: u64) {
        let last = self.last_timestamp.get_or_insert(now);
        while now - *last >= Self::T_UPDATE {
            *last += Self::T_UPDATE;
            if self.active {
                return self.calculate_drop_prob(now);
            }
        }
    }

    fn calculate_drop_prob(&mut self, now: u64) {
        let mut p =
            0.125 * (self.current_qdelay - Self::QDELAY_REF) + 1.25 * (self.current_qdelay - self.qdelay_old);
        if self.drop_prob < 0.000_001 {
            p /= 2048.0;
        } else if self.drop_prob < 0.000_01 {
            p /= 512.0;
        } else if self.drop_prob < 0.000_1 {
            p /= 128.0;
        } else if self.drop_prob < 0.001 {
            p /= 32.0;
        } else if self.drop_prob < 0.01 {
            p /= 8.0;
        } else if self.drop_prob < 0.1 {
            p /= 2.0;
        }
        if self.drop_prob >= 0.1 && p > 0.02 {
            p = 0.02;
        }
        self.drop_prob += p;
        if self.current_qdelay == 0.0 && self.qdelay_old == 0.0 {
            self.drop_prob *= 0.98;
        }
        self.drop_prob = self.drop_prob.clamp(0.0, 1.0);
        self.qdelay_old = self.current_qdelay;
        self.burst_allowance = self.burst_allowance.saturating_sub(Self::T_UPDATE);
        self.timer(now);
    }

    /// What happens to the packet: 'd'ropped, 'm'arked or 'e'nqueued.
    fn enque(&mut self, now: u64, size: u32, ecn: bool) -> char {
        let mut outcome = 'e';
        if !self.active && self.byte_length() >= self.tail_drop_third {
            self.active = true;
            self.burst_allowance = Self::MAX_BURST;
            self.qdelay_old = 0.0;
            self.accu_prob = 0.0;
            self.last_timestamp = Some(now);
        }
        if self.active && self.burst_allowance == 0 && self.drop_early() {
            outcome = if self.drop_prob < 0.1 && ecn { 'm' } else { 'd' };
            self.accu_prob = 0.0;
        }
        if outcome != 'd' {
            self.queue.push_back((now, size));
        }
        if self.drop_prob == 0.0
            && self.current_qdelay < Self::QDELAY_REF / 2.0
            && self.qdelay_old < Self::QDELAY_REF / 2.0
        {
            self.active = self.tail_drop_third == 0;
            self.burst_allowance = Self::MAX_BURST;
        }
        outcome
    }

    fn drop_early(&mut self) -> bool {
        if (self.qdelay_old < Self::QDELAY_REF / 2.0 && self.drop_prob < 0.2) || self.byte_length() <= 2 * MTU
        {
            return false;
        }
        if self.drop_prob == 0.0 {
            self.accu_prob = 0.0;
        }
        self.accu_prob += self.drop_prob;
        if self.accu_prob < 0.85 {
            return false;
        }
        if self.accu_prob >= 8.5 {
            return true;
        }
        f64::from(self.dice.word()) / TWO_POW_32 < self.drop_prob
    }

    fn deque(&mut self, now: u64) -> Option<u32> {
        let (timestamp, size) = self.queue.pop_front()?;
        #[expect(clippy::cast_precision_loss, reason = "delays are below 2^53 ns")]
        let delay = (now - timestamp) as f64 / 1e9;
        self.current_qdelay = if self.queue.is_empty() { 0.0 } else { delay };
        Some(size)
    }
}

/// One phase of a schedule.
#[derive(Clone, Copy, Debug)]
struct Phase {
    arrivals: u32,
    /// Between two arrivals.
    gap: u64,
    /// Time of a packet at the link.
    service: u64,
    /// After the phase.
    pause: u64,
    ecn: Ecn,
}

/// PIE and the transcription over one schedule; marks and drops seen.
fn replay(seed: u64, active_bytes: u32, phases: &[Phase]) -> (u32, u32) {
    let mut rfc = Rfc::new(seed, active_bytes);
    let mut ours = Pie::new(PieConfig { active_bytes, ..PieConfig::default() }, seed).unwrap();
    let mut queue = VecDeque::new();
    let (mut now, mut marks, mut drops) = (0, 0, 0);
    let serve = |rfc: &mut Rfc, ours: &mut Pie, queue: &mut VecDeque<(u64, u32)>, at: u64| {
        if !queue.is_empty() {
            rfc.timer(at);
        }
        let expected = rfc.deque(at);
        let got = ours.select(Nanos(at)).map(|_| {
            let (timestamp, bytes) = queue.pop_front().unwrap();
            let sojourn = Nanos(at - timestamp);
            ours.decide(&Leaving { now: Nanos(at), bytes, sojourn, ..Leaving::default() });
            bytes
        });
        assert_eq!(expected, got);
    };
    for phase in phases {
        let mut departure = now;
        for k in 0..phase.arrivals {
            now += phase.gap;
            while departure <= now {
                serve(&mut rfc, &mut ours, &mut queue, departure);
                departure += phase.service;
            }
            let bytes = 200 + k * 7_919 % (MTU - 199);
            rfc.timer(now);
            let expected = rfc.enque(now, bytes, phase.ecn != Ecn::NotEct);
            let got =
                ours.arrive(&Arriving { now: Nanos(now), bytes, ecn: phase.ecn, ..Arriving::default() });
            let got = match got {
                Arrival::Queue(0) => 'e',
                Arrival::Mark(0, Cause::Law) => 'm',
                Arrival::Drop(Cause::Law) => 'd',
                other => panic!("{other:?}"),
            };
            assert_eq!(expected, got, "seed {seed}, at {now}: {ours:?}");
            assert_eq!(rfc.drop_prob.to_bits(), ours.drop_prob.to_bits(), "seed {seed}, at {now}");
            if got != 'd' {
                queue.push_back((now, bytes));
            }
            marks += u32::from(got == 'm');
            drops += u32::from(got == 'd');
        }
        now = now.max(departure) + phase.pause;
    }
    (marks, drops)
}

fn phase() -> impl Strategy<Value = Phase> {
    (50_u32..1_500, 200_000_u64..2_000_000, 200_000_u64..2_500_000, 0_u64..4_000_000_000, any::<bool>())
        .prop_map(|(arrivals, gap, service, pause, ecn)| {
            let ecn = if ecn { Ecn::Ect0 } else { Ecn::NotEct };
            Phase { arrivals, gap, service, pause, ecn }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn it_does_what_the_pseudocode_does(
        seed: u64,
        active_bytes in prop_oneof![Just(0_u32), 1_000_u32..100_000],
        phases in prop::collection::vec(phase(), 1..6),
    ) {
        replay(seed, active_bytes, &phases);
    }

    /// A timer that comes on time, and no timer at all.
    #[test]
    fn lazy_updates_equal_a_timer(
        steps in prop::collection::vec((0_u64..400_000_000, 0_u64..60_000_000, any::<bool>()), 1..60),
        prob in 0.0_f64..1.0,
        active_bytes in prop_oneof![Just(0_u32), Just(20_000_u32)],
    ) {
        let config = PieConfig { active_bytes, ..PieConfig::default() };
        let mut lazy = Pie { drop_prob: prob, ..Pie::new(config, 5).unwrap() };
        let mut timed = lazy;
        let mut now = Nanos(3);
        for (gap, sojourn, arrives) in steps {
            let end = now + Nanos(gap);
            while let Some(at) = timed.next_update.filter(|at| *at <= end) {
                timed.advance(at);
            }
            now = end;
            if arrives || lazy.waiting.packets == 0 {
                let packet = Arriving { now, bytes: MTU, ..Arriving::default() };
                prop_assert_eq!(lazy.arrive(&packet), timed.arrive(&packet));
            } else {
                let packet = Leaving { now, bytes: MTU, sojourn: Nanos(sojourn), ..Leaving::default() };
                prop_assert_eq!(lazy.decide(&packet), timed.decide(&packet));
            }
            prop_assert_eq!(lazy, timed);
        }
    }
}

#[test]
fn the_schedules_make_the_pseudocode_mark_and_drop() {
    let busy = |ecn| Phase { arrivals: 5_000, gap: 500_000, service: 700_000, pause: 0, ecn };
    for active_bytes in [0, 50_000] {
        let (marks, drops) = replay(9, active_bytes, &[busy(Ecn::NotEct)]);
        assert!(marks == 0 && drops > 500, "{marks}, {drops}");
        let (marks, drops) = replay(9, active_bytes, &[busy(Ecn::Ect0)]);
        assert!(marks >= 5 && drops > 500, "p passes 10 % soon: {marks}, {drops}");
    }
}

#[test]
fn any_number_of_idle_updates_at_once_equals_one_after_the_other() {
    for prob in [1e-9, 1e-6, 0.01, 0.099, 0.5, 1.0] {
        let start = Pie { drop_prob: prob, qdelay_old: ms(20), next_update: Some(ms(15)), ..pie() };
        let mut timed = start;
        for n in 1..=100_000_u64 {
            timed.advance(Nanos(n * 15_000_000));
            if n < 1_000 || n % 9_973 == 0 {
                let mut lazy = start;
                lazy.advance(Nanos(n * 15_000_000 + 14_999_999));
                assert_eq!(lazy, timed, "{prob} after {n}");
            }
        }
        assert_eq!((timed.drop_prob.to_bits(), timed.burst_allowance), (0.0_f64.to_bits(), Nanos::ZERO));
    }
}

#[test]
fn an_idle_queue_comes_to_rest_long_before_the_replay_ends() {
    for alpha_hz in [1e-6, 0.125, 10.0] {
        let config = PieConfig { alpha_hz, ..PieConfig::default() };
        let mut pie = Pie { drop_prob: 1.0, ..Pie::new(config, 1).unwrap() };
        let updates = (0..MAX_REPLAY).take_while(|_| pie.update()).count();
        assert!(updates < 2_000 && pie.drop_prob <= 0.0, "{alpha_hz}: {updates}");
    }
}

/// From p, one update at a latency of 30 ms after 20 ms: 0.125 * 15 ms + 1.25 * 10 ms = 0.014375 over the divisor.
#[test]
fn the_step_is_scaled_by_the_table() {
    let table =
        [(0.0, 2048.0), (1e-6, 512.0), (1e-5, 128.0), (1e-4, 32.0), (1e-3, 8.0), (0.01, 2.0), (0.1, 1.0)];
    for (prob, divisor) in table {
        let mut pie = Pie { drop_prob: prob, qdelay: ms(30), qdelay_old: ms(20), ..pie() };
        pie.update();
        let step = pie.drop_prob - prob;
        assert!((step - 0.014_375 / divisor).abs() < 1e-12, "{prob}: {step}");
    }
}

#[test]
fn steps_above_two_percent_are_capped_from_ten_percent_on() {
    for (prob, expected) in [(0.0999, 0.0999 + 0.134_375 / 2.0), (0.1, 0.12), (0.5, 0.52), (0.99, 1.0)] {
        let mut pie = Pie { drop_prob: prob, qdelay: ms(110), qdelay_old: ms(12), ..pie() };
        pie.update();
        assert!((pie.drop_prob - expected).abs() < 1e-12, "{prob}: {}", pie.drop_prob);
    }
}

#[test]
fn p_decays_by_two_percent_while_the_latency_is_zero() {
    let mut pie = Pie { drop_prob: 0.5, ..pie() };
    pie.update();
    assert!((pie.drop_prob - (0.5 - 0.001_875) * 0.98).abs() < 1e-12);
    let mut loaded = Pie { drop_prob: 0.5, qdelay: ms(1), qdelay_old: ms(1), ..pie };
    loaded.drop_prob = 0.5;
    loaded.update();
    assert!((loaded.drop_prob - (0.5 - 0.00175)).abs() < 1e-12);
}

/// A congested queue with this p, its burst allowance used up.
fn congested(drop_prob: f64) -> Pie {
    Pie {
        drop_prob,
        burst_allowance: Nanos::ZERO,
        qdelay: ms(20),
        qdelay_old: ms(20),
        waiting: Backlog { packets: 100, bytes: 100 * MTU },
        next_update: Some(Nanos::MAX),
        ..pie()
    }
}

/// Indices of arrivals acted on; what waits stays as it is.
fn acted(pie: &Pie, arrivals: usize) -> Vec<usize> {
    let mut pie = *pie;
    let waiting = pie.waiting;
    (0..arrivals)
        .filter(|_| {
            pie.waiting = waiting;
            pie.arrive(&Arriving { bytes: MTU, ..Arriving::default() }) != Arrival::Queue(0)
        })
        .collect()
}

#[test]
fn drops_are_spaced_between_the_bounds_of_the_derandomisation() {
    for prob in [0.01, 0.05, 0.3] {
        let drops = acted(&congested(prob), 200_000);
        for pair in drops.windows(2) {
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let spacing = (pair[1] - pair[0]) as f64;
            assert!(spacing * prob > 0.85 - prob && spacing * prob < 8.5 + 2.0 * prob, "{prob}: {spacing}");
        }
        assert!(!drops.is_empty());
    }
}

#[test]
fn the_allowance_spares_a_burst_for_its_time() {
    let mut pie = pie();
    pie.drop_prob = 1.0;
    pie.qdelay = ms(400);
    pie.qdelay_old = ms(400);
    let mut first = None;
    for k in 0..400_u64 {
        let packet = Arriving { now: ms(k), bytes: MTU, ..Arriving::default() };
        if matches!(pie.arrive(&packet), Arrival::Drop(_)) {
            first = first.or(Some(k));
        }
    }
    assert_eq!(first, Some(150), "ten updates of 15 ms after the first packet");
}

#[test]
fn two_mtu_or_half_a_target_are_no_queue() {
    let two = Pie { waiting: Backlog { packets: 2, bytes: 2 * MTU }, ..congested(1.0) };
    assert!(acted(&two, 100).is_empty());
    let more = Pie { waiting: Backlog { packets: 3, bytes: 2 * MTU + 1 }, ..two };
    assert!(!acted(&more, 100).is_empty());
    let short = Pie { qdelay_old: Nanos(7_499_999), ..congested(0.199) };
    assert!(acted(&short, 1_000).is_empty());
    assert!(!acted(&Pie { qdelay_old: Nanos(7_500_000), ..short }, 1_000).is_empty());
    assert!(!acted(&Pie { drop_prob: 0.2, ..short }, 1_000).is_empty());
}

#[test]
fn pie_sleeps_until_the_queue_is_long_enough_and_again_once_quiet() {
    let config = PieConfig { active_bytes: 10 * MTU, ..PieConfig::default() };
    let mut pie = Pie::new(config, 1).unwrap();
    for k in 0..10 {
        pie.arrive(&Arriving { now: ms(k), bytes: MTU, ..Arriving::default() });
        assert!(!pie.active);
    }
    pie.qdelay = ms(8);
    pie.arrive(&Arriving { now: ms(10), bytes: MTU, ..Arriving::default() });
    assert!(pie.active);
    assert_eq!(pie.next_update, Some(ms(25)), "the interval starts with it");
    pie.qdelay = ms(7);
    pie.arrive(&Arriving { now: ms(11), bytes: MTU, ..Arriving::default() });
    assert!(!pie.active);
}

#[test]
fn a_queue_emptied_has_no_latency() {
    for shed in [false, true] {
        let mut pie = Pie { waiting: Backlog { packets: 1, bytes: MTU }, qdelay: ms(50), ..pie() };
        if shed {
            pie.removed(0, MTU);
        } else {
            pie.decide(&Leaving { bytes: MTU, sojourn: ms(30), ..Leaving::default() });
        }
        assert_eq!(pie.qdelay, Nanos::ZERO);
    }
}

#[test]
fn below_the_threshold_ect_is_marked_and_from_it_on_all_is_dropped() {
    let (drop, mark, pass) = (Arrival::Drop(Cause::Law), Arrival::Mark(0, Cause::Law), Arrival::Queue(0));
    let table = [(Ecn::NotEct, drop), (Ecn::Ect1, mark), (Ecn::Ect0, mark), (Ecn::Ce, pass)];
    for (ecn, below) in table {
        for (prob, expected) in [(0.099, below), (0.1, drop), (1.0, drop)] {
            let mut pie = Pie { accu_prob: 9.0, ..congested(prob) };
            assert_eq!(
                pie.arrive(&Arriving { bytes: MTU, ecn, ..Arriving::default() }),
                expected,
                "{ecn:?} {prob}"
            );
            assert_eq!(pie.accu_prob.to_bits(), 0.0_f64.to_bits(), "starts again after each action");
            assert_eq!(pie.waiting.packets, 100 + u32::from(expected != drop));
        }
    }
}

#[test]
fn parameters_outside_their_limits_are_refused() {
    let good = PieConfig::default();
    assert!(Pie::new(good, 0).is_ok());
    for bad in [
        PieConfig { target: Nanos::ZERO, ..good },
        PieConfig { tupdate: Nanos(999), ..good },
        PieConfig { alpha_hz: f64::NAN, ..good },
        PieConfig { beta_hz: 0.0, ..good },
        PieConfig { max_burst: ms(5_000), ..good },
        PieConfig { ecn_threshold_percent: 101, ..good },
        PieConfig { mtu: 70_000, ..good },
    ] {
        assert!(Pie::new(bad, 0).is_err(), "{bad:?}");
    }
}
