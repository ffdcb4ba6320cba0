// SPDX-License-Identifier: Apache-2.0
//! Curvy RED of a DualQ (RFC 9332 appendix B): two FIFOs, 0 for L and 1 for C.
//!
//! Figure 10 in integers: likelihoods in units of 2^-32 from exact ranges (figure 11 takes 2^30 ns for a second), Q_C in
//! nanoseconds with the shift of figure 11. The overload protection of A.2 and the table of codepoints are DualPI2's, as
//! the appendix says they would be. Invariant: ECT(1) is never marked with p_C, wherever it waits.
//!
//! Departures: figure 9 prints minTh = 500 ms beside a range of 500 ms, which no queue would reach; 500 us is the
//! default here. The figure's scheduler names L even if only C waits; here the queue that waits is served. A head is
//! taken to have come when the packet before it did, unless it came to an empty queue: that errs by one gap between
//! two arrivals. While C is empty each packet of L counts as a sample of 0 in Q_C, which would stand still otherwise.

use crate::recur::Dice;
use crate::single::{delay_within, mark, within};
use crate::table::{Treatment, classify, treatment};
use crate::{Arrival, Arriving, Backlog, Cause, End, Leaving, Nanos, ParamError, Qdisc, Queue, Verdict};

/// Parameters of Curvy RED, with the names of figure 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurvyRedConfig {
    /// k': the coupling factor is 2^k'.
    pub k_prime: u32,
    /// The head of C waits for this much longer than that of L.
    pub tshift: Nanos,
    /// g_C: the weight of a sample in Q_C is 2^-g_C.
    pub g_c: u32,
    /// S_C: p_C would reach 1 at minTh + 2^S_C seconds.
    pub s_c: i32,
    /// minTh: neither p_C nor p_CL below this Q_C.
    pub min_th: Nanos,
    /// T: all of L is marked above this delay.
    pub t: Nanos,
    /// U, the curviness: p_CL is raised to this power and p_C to twice of it.
    pub u: u32,
}

impl Default for CurvyRedConfig {
    fn default() -> Self {
        Self {
            k_prime: 1,
            tshift: Nanos::from_millis(50),
            g_c: 5,
            s_c: -1,
            min_th: Nanos::from_micros(500),
            t: Nanos::from_millis(1),
            u: 1,
        }
    }
}

impl CurvyRedConfig {
    /// Whether every value lies within its limits.
    ///
    /// # Errors
    ///
    /// The first that does not, with its limits.
    pub fn validate(&self) -> Result<(), ParamError> {
        within("k_prime", self.k_prime.into(), 0, 7)?;
        delay_within("tshift_us", self.tshift, 0)?;
        within("g_c", self.g_c.into(), 0, 16)?;
        within("s_c + 12", u64::try_from(self.s_c + LEAST_S_C).unwrap_or(u64::MAX), 0, 14)?;
        delay_within("min_th_us", self.min_th, 0)?;
        delay_within("t_us", self.t, 0)?;
        within("u", self.u.into(), 1, 8)
    }
}

/// S_C from -12 (0.24 ms) to 2 (4 s).
const LEAST_S_C: i32 = 12;
/// A likelihood of 1.
const ONE: u64 = 1 << 32;
/// Indices of the FIFOs.
const L: usize = Queue::L4s as usize;
const C: usize = Queue::Classic as usize;

/// What is known of a FIFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fifo {
    waiting: Backlog,
    /// When its head came, or at the earliest.
    head_came: Nanos,
}

/// The two FIFOs under Curvy RED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurvyRed {
    config: CurvyRedConfig,
    dice: Dice,
    fifos: [Fifo; 2],
    /// Where the last packet joined.
    newest: usize,
    /// Q_C in nanoseconds.
    q_c: i64,
}

impl CurvyRed {
    /// Two empty queues.
    ///
    /// # Errors
    ///
    /// A value outside its limits.
    pub fn new(config: CurvyRedConfig, seed: u64) -> Result<Self, ParamError> {
        config.validate()?;
        Ok(Self { config, dice: Dice::new(seed), fifos: [Fifo::default(); 2], newest: C, q_c: 0 })
    }

    /// A sample of the delay of C.
    fn smooth(&mut self, delay: Nanos) {
        self.q_c += (delay.0.cast_signed() - self.q_c) >> self.config.g_c;
    }

    /// (Q_C - minTh) over a range of 2^-`halvings` of that of C, at most 1.
    fn scaled(&self, halvings: u32) -> u64 {
        let over = self.q_c.saturating_sub_unsigned(self.config.min_th.0);
        let over = u128::try_from(over).unwrap_or(0);
        // over * 2^32 / (10^9 * 2^(S_C - halvings)), the exponent kept at 0 or above on both sides
        let exponent = (self.config.s_c + LEAST_S_C).unsigned_abs();
        let scaled = (over << (32 + LEAST_S_C.unsigned_abs() + halvings)) / (1_000_000_000_u128 << exponent);
        u64::try_from(scaled).map_or(ONE, |scaled| scaled.min(ONE))
    }

    /// `likelihood > maxrand(u)`.
    fn acts(&mut self, likelihood: u64, u: u32) -> bool {
        (0..u).all(|_| likelihood > u64::from(self.dice.word()))
    }

    /// Lines 4 to 6, for each treatment.
    fn decide_l(&mut self, packet: &Leaving, delay: Nanos) -> Verdict {
        let (u, k) = (self.config.u, self.config.k_prime);
        let (sqrt_p_c, p_cl) = (self.scaled(0), self.scaled(k));
        let treatment = treatment(Queue::L4s, packet.ecn, packet.rule, true);
        if p_cl >= ONE {
            if self.acts(sqrt_p_c, 2 * u) {
                return Verdict::Drop(Cause::Overload);
            }
            return if treatment.may_mark() { mark(packet.ecn, Cause::Coupled) } else { Verdict::Pass };
        }
        let native = delay > self.config.t;
        let (likelihood, cause) = if native { (ONE, Cause::Native) } else { (p_cl, Cause::Coupled) };
        let acts = match treatment {
            Treatment::L4sMark => native || self.acts(likelihood, u),
            _ => self.acts(likelihood >> k, 2 * u),
        };
        match (acts, treatment.may_mark()) {
            (false, _) => Verdict::Pass,
            (true, true) => mark(packet.ecn, cause),
            (true, false) => Verdict::Drop(cause),
        }
    }

    /// Lines 10a to 15, for each treatment.
    fn decide_c(&mut self, packet: &Leaving) -> Verdict {
        let (u, sqrt_p_c, p_cl) = (self.config.u, self.scaled(0), self.scaled(self.config.k_prime));
        let overload = p_cl >= ONE;
        let treatment = treatment(Queue::Classic, packet.ecn, packet.rule, true);
        if treatment == Treatment::CoupledMark && !overload {
            let acts = self.acts(p_cl, u);
            return if acts { mark(packet.ecn, Cause::Coupled) } else { Verdict::Pass };
        }
        match (self.acts(sqrt_p_c, 2 * u), overload) {
            (true, true) => Verdict::Drop(Cause::Overload),
            (true, false) if treatment.may_mark() => mark(packet.ecn, Cause::Law),
            (true, false) => Verdict::Drop(Cause::Law),
            (false, true) if treatment == Treatment::CoupledMark => mark(packet.ecn, Cause::Coupled),
            (false, _) => Verdict::Pass,
        }
    }

    fn fifo(&mut self, queue: u32) -> &mut Fifo {
        &mut self.fifos[if queue == Queue::L4s as u32 { L } else { C }]
    }
}

impl Qdisc for CurvyRed {
    fn queues(&self) -> u32 {
        2
    }

    fn arrive(&mut self, packet: &Arriving) -> Arrival {
        let queue = classify(packet.ecn, packet.rule, true, false);
        self.newest = queue as usize;
        let fifo = &mut self.fifos[queue as usize];
        if fifo.waiting.packets == 0 {
            fifo.head_came = packet.now;
        }
        fifo.waiting.join(packet.bytes);
        Arrival::Queue(queue as u32)
    }

    fn shed(&mut self, over_limit: bool) -> Option<(u32, End)> {
        let waits = |queue: usize| self.fifos[queue].waiting.packets > 0;
        let queue = [self.newest, L, C].into_iter().find(|queue| over_limit && waits(*queue))?;
        Some((u32::from(queue != L), End::Tail))
    }

    fn select(&mut self, _now: Nanos) -> Option<u32> {
        let [l, c] = self.fifos;
        let queue = match (l.waiting.packets > 0, c.waiting.packets > 0) {
            (false, false) => return None,
            // lq.time() + tshift >= cq.time(), whatever the time is
            (true, true) if c.head_came + self.config.tshift < l.head_came => Queue::Classic,
            (true, _) => Queue::L4s,
            (false, true) => Queue::Classic,
        };
        Some(queue as u32)
    }

    fn decide(&mut self, packet: &Leaving) -> Verdict {
        let fifo = self.fifo(packet.queue);
        fifo.waiting.leave(packet.bytes);
        fifo.head_came = Nanos(packet.now.0.saturating_sub(packet.sojourn.0));
        let delay = if fifo.waiting.packets > 0 { packet.sojourn } else { Nanos::ZERO };
        if packet.queue == Queue::L4s as u32 {
            if self.fifos[C].waiting.packets == 0 {
                self.smooth(Nanos::ZERO);
            }
            self.decide_l(packet, delay)
        } else {
            self.smooth(delay);
            self.decide_c(packet)
        }
    }

    fn sent(&mut self, _queue: u32, _bytes: u32) {}

    fn removed(&mut self, queue: u32, bytes: u32) {
        self.fifo(queue).waiting.leave(bytes);
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
    }
}

#[cfg(test)]
mod tests;
