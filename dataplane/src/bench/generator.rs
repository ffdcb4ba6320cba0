// SPDX-License-Identifier: Apache-2.0
//! The other lcore: makes frames, takes them back, and runs the PI passes.
//!
//! A closed loop: it keeps `target` packets between the ring it fills and the ring it empties, and writes each
//! packet's headers anew before it goes again. Conforming traffic goes to subscribers drawn at random. Held traffic
//! goes to all in turn, in an order shuffled once: so each gets its packets evenly spaced, and where the shaper's
//! rates add up to less than the path can carry each packet waits for target / rate (Little's law).
//!
//! Invariant: packets sent = returned + dropped by the path + in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use aqm::Nanos;
use dpdk::{Burst, Consumer, Mbuf, Mempool, Producer};
use engine::Counter;

use super::frame::{Sizes, Template};
use crate::control::ControlWorker;
use crate::handle::Inner;
use crate::rx::BURST;

/// ECN fields in turn: half of the packets are ECT(1).
const ECN: [u8; 2] = [0b00, 0b01];
/// Time lost is made up for if it was no more than this: others take the generator's CPU for milliseconds.
const MADE_UP: Nanos = Nanos::from_millis(20);
/// PI passes whose time is kept.
const PASSES: usize = 1 << 16;

/// What the generator is told and what it shows.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// Packets to keep in flight; 0: none, and none is sent.
    pub(super) target: AtomicU64,
    /// Packets a second to send at most; 0: no limit.
    pub(super) pace: AtomicU64,
    /// Packets the path has dropped, as others have counted them.
    pub(super) dropped: AtomicU64,
    /// Whether PI passes are timed.
    pub(super) measuring: AtomicBool,
    /// Ends the generator.
    pub(super) stop: AtomicBool,
    /// Packets put into the path's ring.
    pub(super) sent: Counter,
    /// Packets that came out.
    pub(super) returned: Counter,
}

/// Whose turn it is.
pub(super) enum Order {
    /// Uniformly at random.
    Random {
        /// How many there are.
        subscribers: u32,
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
        Self::Random { subscribers, state: seed | 1 }
    }

    /// In turn, shuffled (Fisher and Yates).
    pub(super) fn turn(subscribers: u32, seed: u64) -> Self {
        let mut shuffled: Vec<u32> = (0..subscribers).collect();
        let mut state = seed | 1;
        for last in (1..subscribers).rev() {
            shuffled.swap(last as usize, below(&mut state, last + 1) as usize);
        }
        Self::Turn { shuffled, at: 0 }
    }

    #[inline]
    fn next(&mut self) -> u32 {
        match self {
            Self::Random { subscribers, state } => below(state, *subscribers),
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
    fn admits(&mut self, now: Nanos, pace: u64) -> bool {
        let most = (2.0 * BURST as f64).max(pace as f64 * MADE_UP.0 as f64 / 1e9);
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

/// The generator.
pub(super) struct Generator {
    pool: Mempool,
    feed: Producer,
    back: Consumer,
    order: Order,
    /// One for each size and ECN field.
    templates: Vec<[Template; 2]>,
    sizes: Vec<u16>,
    made: usize,
    written: usize,
    /// Packets in hand whose headers are written.
    ready: usize,
    pacer: Pacer,
    /// Alone on its CPU.
    alone: bool,
}

impl Generator {
    pub(super) fn new(
        pool: Mempool,
        (feed, back): (Producer, Consumer),
        order: Order,
        sizes: Sizes,
        alone: bool,
    ) -> Self {
        let sizes = sizes.pattern();
        let mut distinct = sizes.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let templates = distinct.iter().map(|&size| ECN.map(|ecn| Template::new(size, ecn))).collect();
        let pacer = Pacer { allowance: 0.0, last: Nanos::ZERO };
        Self { pool, feed, back, order, templates, sizes, made: 0, written: 0, ready: 0, pacer, alone }
    }

    /// Runs until told to stop; nanoseconds of the PI passes run while `measuring`.
    pub(super) fn run(mut self, inner: &Inner, shared: &Arc<Feed>, mut control: ControlWorker) -> Vec<u64> {
        let mut passes = Vec::with_capacity(PASSES);
        let mut hand = Burst::<BURST>::new();
        while !shared.stop.load(Relaxed) {
            let now = inner.now();
            if control.poll(now, &|| inner.now()) && shared.measuring.load(Relaxed) && passes.len() < PASSES {
                passes.push(inner.now().since(now).0);
            }
            let target = shared.target.load(Relaxed);
            let moved = self.turn_around(now, shared, &mut hand, target);
            if target == 0 && !moved {
                nap();
            } else if !moved && !self.alone {
                std::thread::yield_now();
            }
        }
        passes
    }

    /// Takes packets back, tops them up or thins them out to the target, and sends them; whether any moved.
    fn turn_around(&mut self, now: Nanos, shared: &Feed, hand: &mut Burst<BURST>, target: u64) -> bool {
        let got = self.back.dequeue(hand);
        shared.returned.add(got as u64);
        let gone = shared.returned.get() + shared.dropped.load(Relaxed);
        let in_flight = shared.sent.get().saturating_sub(gone);
        let wanted = usize::try_from(target.saturating_sub(in_flight)).unwrap_or(usize::MAX);
        while hand.len() > wanted {
            hand.pop();
            self.ready = self.ready.min(hand.len());
        }
        while hand.len() < wanted && !hand.is_full() {
            let Some(packet) = self.make() else { break };
            // there is room
            let _ = hand.push(packet);
        }
        for packet in hand.as_mut_slice().iter_mut().skip(self.ready) {
            self.write(packet);
        }
        let mut sent = 0;
        if self.pacer.admits(now, shared.pace.load(Relaxed)) {
            sent = self.feed.enqueue(hand);
            shared.sent.add(sent as u64);
            self.pacer.sent(sent);
        }
        self.ready = hand.len();
        got + sent > 0
    }

    /// A new packet of the next size, its payload zeroes.
    fn make(&mut self) -> Option<Mbuf> {
        let size = self.sizes.get(self.made % self.sizes.len()).copied().unwrap_or(64);
        let mut packet = self.pool.alloc()?;
        packet.append(size - 4)?.fill(0);
        self.made += 1;
        Some(packet)
    }

    #[inline]
    fn write(&mut self, packet: &mut Mbuf) {
        let bytes = packet.pkt_len();
        let of_size = self.templates.iter().find(|[one, _]| u32::from(one.bytes) == bytes);
        if let Some(template) = of_size.and_then(|of_size| of_size.get(self.written % ECN.len())) {
            template.write(self.order.next(), packet.data_mut());
            self.written += 1;
        }
    }
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
        let round: Vec<u32> = (0..1000).map(|_| order.next()).collect();
        let mut sorted = round.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
        assert_ne!(round, sorted);
        assert_eq!((0..1000).map(|_| order.next()).collect::<Vec<_>>(), round);
    }

    #[test]
    fn a_pace_is_kept_and_lost_time_made_up_for_within_bounds() {
        let mut pacer = Pacer { allowance: 0.0, last: Nanos::ZERO };
        let sent = |pacer: &mut Pacer, from_us: u64, to_us: u64| {
            let mut sent = 0;
            for us in from_us..to_us {
                if pacer.admits(Nanos::from_micros(us), 1_000_000) {
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
            assert!(pacer.admits(Nanos::from_millis(30), 0));
            pacer.sent(BURST);
        }
        assert!(pacer.admits(Nanos::from_millis(30), 1), "what was sent without a limit does not count");
    }

    #[test]
    fn at_random_all_are_about_as_frequent() {
        let mut order = Order::random(10, 7);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[order.next() as usize] += 1;
        }
        // 10,000 expected, standard deviation 95
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }
}
