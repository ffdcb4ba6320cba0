// SPDX-License-Identifier: Apache-2.0
//! Makes frames, takes them back, and runs the PI passes: on an lcore of its own, or in turn with the path's work where
//! shards feed themselves.
//!
//! A closed loop: it keeps `target` packets between the ring it fills and the ring it empties, and writes each
//! packet's headers anew before it goes again. Conforming traffic goes to subscribers drawn at random. Held traffic
//! goes to all in turn, in an order shuffled once: so each gets its packets evenly spaced, and where the shaper's
//! rates add up to less than the path can carry each packet waits for target / rate (Little's law).
//!
//! Invariant: packets sent = returned + dropped by the path + in flight.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use aqm::{Nanos, Stamp};
use crossbeam_utils::CachePadded;
use dpdk::{Burst, Consumer, Mempool, Producer};
use engine::Counter;

use super::frame::{self, Sizes, Template};
use super::ledger::Ledger;
use crate::control::ControlWorker;
use crate::handle::Inner;
use crate::rx::BURST;

/// ECN fields in turn: half of the packets are ECT(1).
const ECN: [u8; 2] = [0b00, 0b01];
/// Time lost is made up for if it was no more than this: others take the generator's CPU for milliseconds.
const MADE_UP: Nanos = Nanos::from_millis(20);
/// PI passes whose time is kept.
const PASSES: usize = 1 << 16;

/// Lcores that may generate.
pub(super) const MOST_LCORES: usize = 2;
/// Loops longer than this, and than what they moved accounts for, were interrupted as far as delays go.
pub(super) const PAUSE: Nanos = Nanos::from_micros(10);

/// What the generators are told and what they show.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// Packets to keep in flight; 0: none, and none is sent.
    pub(super) target: AtomicU64,
    /// Packets a second to send at most; 0: no limit.
    pub(super) pace: AtomicU64,
    /// Of 65,536 packets so many go to subscriber 0, who gets no others then.
    pub(super) flood: AtomicU32,
    /// Packets the path has dropped, as others have counted them.
    pub(super) dropped: AtomicU64,
    /// Whether time lost is lost: what should have been sent meanwhile is not sent at once afterwards.
    pub(super) steady: AtomicBool,
    /// Whether more is sent than the ports carry.
    pub(super) overloaded: AtomicBool,
    /// Whether PI passes are timed.
    pub(super) measuring: AtomicBool,
    /// Under which number delays are kept; 0: not.
    pub(super) epoch: AtomicUsize,
    /// What a packet costs the path at most, in or out, in nanoseconds; 0: not known yet.
    pub(super) cost: AtomicU64,
    /// Whether the path was interrupted lately.
    pub(super) disturbed: AtomicBool,
    /// Ends the generators.
    pub(super) stop: AtomicBool,
    /// Packets put into the path's rings, by generator.
    pub(super) sent: [CachePadded<Counter>; MOST_LCORES],
    /// Packets that came out.
    pub(super) returned: [CachePadded<Counter>; MOST_LCORES],
}

impl Feed {
    pub(super) fn all_sent(&self) -> u64 {
        self.sent.iter().map(|sent| sent.get()).sum()
    }

    pub(super) fn all_returned(&self) -> u64 {
        self.returned.iter().map(|returned| returned.get()).sum()
    }
}

/// What a generator leaves behind.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// Nanoseconds of PI passes while `measuring`.
    pub(super) passes: Vec<u64>,
    pub(super) ledger: Option<Box<Ledger>>,
}

/// Whose turn it is.
pub(super) enum Order {
    /// Uniformly at random.
    Random {
        /// Of so many.
        subscribers: u32,
        /// The first of them, and how far apart they are.
        first: u32,
        step: u32,
        /// State of the generator (xorshift64*, Vigna 2016); never 0.
        state: u64,
    },
    /// All in turn.
    Turn {
        /// In this order.
        shuffled: Vec<u32>,
        /// Who is next.
        at: usize,
    },
}

/// A random number below `end`.
#[inline]
fn below(state: &mut u64, end: u32) -> u32 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
    ((random * u64::from(end)) >> 32) as u32
}

impl Order {
    /// At random.
    pub(super) fn random(subscribers: u32, seed: u64) -> Self {
        Self::Random { subscribers, first: 0, step: 1, state: seed | 1 }
    }

    /// Of random ones those that are `first` modulo `step`.
    pub(super) fn only(self, first: u32, step: u32) -> Self {
        match self {
            Self::Random { subscribers, state, .. } => {
                Self::Random { subscribers: (subscribers - first).div_ceil(step), first, step, state }
            }
            turn @ Self::Turn { .. } => turn,
        }
    }

    /// In turn, shuffled.
    pub(super) fn turn(subscribers: u32, seed: u64) -> Self {
        Self::weighted(subscribers, seed, |_| 1)
    }

    /// In turn, shuffled (Fisher and Yates), each as often in a round as its weight says.
    pub(super) fn weighted(subscribers: u32, seed: u64, weight: impl Fn(u32) -> u32) -> Self {
        let often = |subscriber| std::iter::repeat_n(subscriber, weight(subscriber) as usize);
        let mut shuffled: Vec<u32> = (0..subscribers).flat_map(often).collect();
        let mut state = seed | 1;
        for last in (1..u32::try_from(shuffled.len()).unwrap_or(u32::MAX)).rev() {
            shuffled.swap(last as usize, below(&mut state, last + 1) as usize);
        }
        Self::Turn { shuffled, at: 0 }
    }

    /// The next one; `flood` of 65,536 times subscriber 0, and then never else.
    #[inline]
    pub(super) fn next(&mut self, flood: u32) -> u32 {
        match self {
            Self::Random { subscribers, state, .. } if flood > 0 => {
                if below(state, 1 << 16) < flood {
                    0
                } else {
                    1 + below(state, *subscribers - 1)
                }
            }
            Self::Random { subscribers, first, step, state } => below(state, *subscribers) * *step + *first,
            Self::Turn { shuffled, at } => {
                let subscriber = shuffled.get(*at).copied().unwrap_or(0);
                *at = if *at + 1 < shuffled.len() { *at + 1 } else { 0 };
                subscriber
            }
        }
    }
}

/// Limits the rate of sending, in bursts.
struct Pacer {
    /// Packets that may be sent.
    allowance: f64,
    last: Nanos,
}

impl Pacer {
    /// Whether a burst may be sent at `now`, at `pace` packets a second.
    #[expect(clippy::cast_precision_loss, reason = "a rate and a fraction of a second")]
    fn admits(&mut self, now: Nanos, pace: u64, steady: bool) -> bool {
        let made_up = if steady { Nanos::ZERO } else { MADE_UP };
        let most = (2.0 * BURST as f64).max(pace as f64 * made_up.0 as f64 / 1e9);
        let earned = now.since(self.last).0 as f64 * pace as f64 / 1e9;
        self.last = now;
        self.allowance = if pace == 0 { most } else { most.min(self.allowance + earned) };
        self.allowance >= BURST as f64
    }

    #[expect(clippy::cast_precision_loss, reason = "at most a burst")]
    fn sent(&mut self, packets: usize) {
        self.allowance -= packets as f64;
    }
}

/// How a generator is built.
pub(super) struct Setup {
    pub(super) pool: Mempool,
    /// What it fills and empties.
    pub(super) ends: (Producer, Consumer),
    pub(super) order: Order,
    pub(super) sizes: Sizes,
    /// Alone on its CPU.
    pub(super) alone: bool,
    /// Which of the generators it is.
    pub(super) index: usize,
    /// Where it notes what comes back.
    pub(super) ledger: Option<Box<Ledger>>,
    /// PI passes, if it runs them.
    pub(super) control: Option<ControlWorker>,
}

/// A generator.
pub(super) struct Generator {
    setup: Setup,
    /// One for each size and ECN field.
    templates: Vec<[Template; 2]>,
    sizes: Vec<u16>,
    made: usize,
    written: usize,
    hand: Burst<BURST>,
    back: Burst<BURST>,
    /// Packets in hand whose headers are written.
    ready: usize,
    pacer: Pacer,
    passes: Vec<u64>,
    others: Others,
    last: Nanos,
    /// When an interruption of this lcore is over with all it caused.
    quiet_at: Nanos,
}

impl Generator {
    pub(super) fn new(setup: Setup) -> Self {
        let sizes = setup.sizes.pattern();
        let mut distinct = sizes.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let templates = distinct.iter().map(|&size| ECN.map(|ecn| Template::new(size, ecn))).collect();
        Self {
            setup,
            templates,
            sizes,
            made: 0,
            written: 0,
            hand: Burst::new(),
            back: Burst::new(),
            ready: 0,
            pacer: Pacer { allowance: 0.0, last: Nanos::ZERO },
            passes: Vec::with_capacity(PASSES),
            others: Others::default(),
            last: Nanos::ZERO,
            quiet_at: Nanos::ZERO,
        }
    }

    /// Runs on an lcore of its own until told to stop.
    pub(super) fn run(mut self, inner: &Inner, shared: &Feed) -> Ended {
        while !shared.stop.load(Relaxed) {
            let moved = self.step(inner.now(), inner, shared);
            if shared.target.load(Relaxed) == 0 && !moved {
                nap();
            } else if !moved && !self.setup.alone {
                std::thread::yield_now();
            }
        }
        self.end()
    }

    /// What is left when it is told to stop.
    pub(super) fn end(self) -> Ended {
        Ended { passes: self.passes, ledger: self.setup.ledger }
    }

    /// One loop; whether any packet moved.
    pub(super) fn step(&mut self, now: Nanos, inner: &Inner, shared: &Feed) -> bool {
        let took = now.since(self.last);
        self.last = now;
        if took > PAUSE {
            self.quiet_at = after_a_pause(now, took);
        }
        if let Some(control) = &mut self.setup.control
            && control.poll(now, &|| inner.now())
            && shared.measuring.load(Relaxed)
            && self.passes.len() < PASSES
        {
            self.passes.push(inner.now().since(now).0);
        }
        let got = self.take_back(now, shared);
        let target = shared.target.load(Relaxed);
        let in_flight = self.others.in_flight(self.setup.index, shared);
        let wanted = usize::try_from(target.saturating_sub(in_flight)).unwrap_or(usize::MAX);
        while self.hand.len() > wanted {
            self.hand.pop();
            self.ready = self.ready.min(self.hand.len());
        }
        got + self.send(now, shared, wanted) > 0
    }

    fn take_back(&mut self, now: Nanos, shared: &Feed) -> usize {
        let Self { setup, hand, back, .. } = self;
        let got = match &mut setup.ledger {
            None => setup.ends.1.dequeue(hand),
            Some(ledger) => {
                let got = setup.ends.1.dequeue(back);
                let quiet = now >= self.quiet_at && !shared.disturbed.load(Relaxed);
                let epoch = shared.epoch.load(Relaxed);
                let packets = back.as_slice();
                for packet in packets {
                    mem::prefetch(packet.data_address());
                }
                for packet in packets {
                    ledger.returned(packet.data(), now, epoch, quiet);
                }
                // at once, or they would seem late; what there is no use for is freed
                back.drain().for_each(|packet| drop(hand.push(packet)));
                got
            }
        };
        if let Some(returned) = shared.returned.get(setup.index) {
            returned.add(got as u64);
        }
        got
    }

    /// Sends what is in hand, topped up with new packets to what is wanted, unless the pace says to wait.
    fn send(&mut self, now: Nanos, shared: &Feed, wanted: usize) -> usize {
        let steady = shared.steady.load(Relaxed);
        if wanted == 0 || !self.pacer.admits(now, shared.pace.load(Relaxed), steady) {
            return 0;
        }
        self.top_up(wanted);
        let flood = shared.flood.load(Relaxed);
        let Self { setup, hand, templates, written, ready, .. } = self;
        for packet in hand.as_mut_slice().iter_mut().skip(*ready) {
            let bytes = packet.pkt_len();
            let of_size = templates.iter().find(|[one, _]| u32::from(one.bytes) == bytes);
            if let Some(template) = of_size.and_then(|of_size| of_size.get(*written % ECN.len())) {
                template.write(setup.order.next(flood), packet.data_mut());
                *written += 1;
            }
        }
        let mut whose = [0; BURST];
        if setup.ledger.is_some() {
            let units = Stamp::at(now).0;
            // all of them: the ring may take more than it had room for a moment ago
            for (packet, whose) in hand.as_mut_slice().iter_mut().zip(&mut whose) {
                frame::stamp(packet.data_mut(), units);
                *whose = frame::read(packet.data()).map_or(u32::MAX, |(subscriber, _)| subscriber);
            }
        }
        let sent = setup.ends.0.enqueue(hand);
        if let Some(ledger) = &mut setup.ledger {
            ledger.sent(whose.get(..sent).unwrap_or_default());
        }
        *ready = hand.len();
        if let Some(counter) = shared.sent.get(setup.index) {
            counter.add(sent as u64);
        }
        self.pacer.sent(sent);
        sent
    }

    /// New packets of the next sizes, their payload zeroes, until there are as many in hand as are wanted and fit.
    fn top_up(&mut self, wanted: usize) {
        let Self { setup, hand, sizes, made, .. } = self;
        let from = hand.len();
        let short = wanted.saturating_sub(from).min(hand.room());
        if !setup.pool.alloc_bulk(hand, short) {
            // the pool has fewer
            while hand.len() < from + short
                && let Some(packet) = setup.pool.alloc()
            {
                // there is room
                let _ = hand.push(packet);
            }
        }
        let fresh = hand.as_mut_slice().get_mut(from..).unwrap_or_default();
        for packet in fresh.iter() {
            mem::prefetch(packet.data_address());
        }
        for packet in fresh {
            let size = sizes.get(*made % sizes.len()).copied().unwrap_or(64);
            if let Some(payload) = packet.append(size - 4) {
                payload.fill(0);
            }
            *made += 1;
        }
    }
}

/// What the other generators have sent less what they got back: looked up in one loop of `LOOPS`, since it lies in
/// the other CPUs' caches.
#[derive(Default)]
struct Others {
    balance: u64,
    loops: u32,
}

impl Others {
    const LOOPS: u32 = 16;

    /// Packets in flight, as generator `index` sees it.
    fn in_flight(&mut self, index: usize, shared: &Feed) -> u64 {
        let balance = |at: usize| {
            let count = |of: &[CachePadded<Counter>; MOST_LCORES]| of.get(at).map_or(0, |count| count.get());
            // of one generator it may be negative: the others got its packets
            count(&shared.sent).wrapping_sub(count(&shared.returned))
        };
        if self.loops.is_multiple_of(Self::LOOPS) {
            let others = (0..MOST_LCORES).filter(|&at| at != index);
            self.balance = others.map(balance).fold(0, u64::wrapping_add);
        }
        self.loops = self.loops.wrapping_add(1);
        let sum = self.balance.wrapping_add(balance(index)).wrapping_sub(shared.dropped.load(Relaxed));
        u64::try_from(sum.cast_signed()).unwrap_or(0)
    }
}

/// When what an interruption of `took`, just over, has caused is over too.
pub(super) fn after_a_pause(now: Nanos, took: Nanos) -> Nanos {
    now + Nanos(took.0.saturating_mul(2)) + Nanos::from_micros(100)
}

#[expect(clippy::disallowed_methods, reason = "nothing is sent and nothing comes: the CPU is others'")]
fn nap() {
    std::thread::sleep(Duration::from_millis(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_turn_everybody_comes_once_a_round_and_in_no_order() {
        let mut order = Order::turn(1000, 7);
        let round: Vec<u32> = (0..1000).map(|_| order.next(0)).collect();
        let mut sorted = round.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
        assert_ne!(round, sorted);
        assert_eq!((0..1000).map(|_| order.next(0)).collect::<Vec<_>>(), round);
    }

    #[test]
    fn a_round_holds_everybody_as_often_as_his_weight_and_a_flood_only_the_flooded() {
        let mut order = Order::weighted(30, 7, |subscriber| 1 << (subscriber % 3));
        let mut counts = [0_u32; 30];
        for _ in 0..70 {
            counts[order.next(0) as usize] += 1;
        }
        assert!(
            (0_u32..).zip(counts).all(|(subscriber, count)| count == 1 << (subscriber % 3)),
            "{counts:?}"
        );
        let mut order = Order::random(10, 7);
        let flooded = (0..100_000).filter(|_| order.next(1 << 14) == 0).count();
        assert!((24_000..26_000).contains(&flooded), "{flooded}");
    }

    #[test]
    fn a_pace_is_kept_and_lost_time_made_up_for_within_bounds() {
        let mut pacer = Pacer { allowance: 0.0, last: Nanos::ZERO };
        let sent = |pacer: &mut Pacer, from_us: u64, to_us: u64| {
            let mut sent = 0;
            for us in from_us..to_us {
                if pacer.admits(Nanos::from_micros(us), 1_000_000, false) {
                    pacer.sent(BURST);
                    sent += BURST;
                }
            }
            sent
        };
        assert_eq!(sent(&mut pacer, 1, 10_000) / BURST, 10_000 / BURST);
        let after_a_pause = sent(&mut pacer, 20_000, 40_000) / BURST * BURST;
        assert!((29_900..=30_000).contains(&after_a_pause), "{after_a_pause}");
        let after_a_long_one = sent(&mut pacer, 1_000_000, 1_040_000);
        assert!((59_900..=60_000).contains(&after_a_long_one), "{after_a_long_one}");
        for _ in 0..1_000 {
            assert!(pacer.admits(Nanos::from_millis(30), 0, false));
            pacer.sent(BURST);
        }
        assert!(
            pacer.admits(Nanos::from_millis(30), 1, false),
            "what was sent without a limit does not count"
        );
    }

    #[test]
    fn a_steady_pace_makes_up_for_nothing() {
        let mut pacer = Pacer { allowance: 0.0, last: Nanos::ZERO };
        let mut sent = 0;
        while pacer.admits(Nanos::from_millis(10), 1_000_000, true) {
            pacer.sent(BURST);
            sent += BURST;
        }
        assert_eq!(sent, 2 * BURST);
    }

    #[test]
    fn a_generator_of_several_draws_from_its_own_and_from_all_of_them() {
        let mut order = Order::random(11, 7).only(1, 3);
        let mut drawn = [0; 11];
        for _ in 0..1_000 {
            drawn[order.next(0) as usize] += 1;
        }
        let who: Vec<usize> = (0..11).filter(|&who| drawn[who] > 0).collect();
        assert_eq!(who, [1, 4, 7, 10]);
    }

    #[test]
    fn what_others_sent_counts_as_in_flight_and_comes_back_anywhere() {
        let shared = Feed::default();
        shared.sent[0].add(100);
        shared.sent[1].add(50);
        shared.returned[1].add(70);
        for index in 0..2 {
            assert_eq!(Others::default().in_flight(index, &shared), 80);
        }
        shared.dropped.store(90, Relaxed);
        assert_eq!(Others::default().in_flight(0, &shared), 0, "counted late");
    }

    #[test]
    fn at_random_all_are_about_as_frequent() {
        let mut order = Order::random(10, 7);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[order.next(0) as usize] += 1;
        }
        // 10,000 expected, standard deviation 95
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }
}
