// SPDX-License-Identifier: Apache-2.0
//! PIE (RFC 8033): one FIFO, marks and drops decided at arrival.
//!
//! Appendix A with what sections 5.1 (ECN), 5.3 (active and inactive), 5.4 (derandomisation) and 5.5 (capped steps) add.
//! The latency is the sojourn of the packet last taken and 0 once nothing waits (section 4.3 and Linux), so nothing is
//! estimated. Where appendix B differs from the sections the sections hold, as in Linux: the burst allowance is looked
//! at before the dice, p decays while the latency is 0, and PIE is quiet below half of the target.
//!
//! Updates are lazy. Invariant: between two departures the latency is constant, so the updates missed are made up for
//! before the next event and give what a timer would have given, bit for bit. At most [`MAX_REPLAY`] are made up for:
//! p has come to rest long before on an idle queue, and only a link that stood still with a queue gets there.
//! Departure: the tail drop threshold is the owner's, so the activity threshold is a parameter (`active_bytes`).

use crate::recur::Dice;
use crate::single::{act, delay_within, gain_within, mtu_within, within};
use crate::{Arrival, Arriving, Backlog, Cause, Ecn, End, Leaving, Nanos, ParamError, Qdisc, Rule, Verdict};

/// Parameters of PIE.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PieConfig {
    /// QDELAY_REF.
    pub target: Nanos,
    /// T_UPDATE.
    pub tupdate: Nanos,
    /// Integral gain.
    pub alpha_hz: f64,
    /// Proportional gain.
    pub beta_hz: f64,
    /// MAX_BURST: how long a burst after quiet is spared.
    pub max_burst: Nanos,
    /// `mark_ecnth`: from this p on ECN-capable packets are dropped as well.
    pub ecn_threshold_percent: u32,
    /// Bytes that must wait before PIE becomes active: a third of the tail drop threshold in section 5.3. 0: always
    /// active, as in appendix A and Linux.
    pub active_bytes: u32,
    /// Largest packet in bytes as the shaper counts it; nothing is done while no more than two wait.
    pub mtu: u32,
}

impl Default for PieConfig {
    /// RFC 8033 appendix A.
    fn default() -> Self {
        Self {
            target: Nanos::from_millis(15),
            tupdate: Nanos::from_millis(15),
            alpha_hz: 0.125,
            beta_hz: 1.25,
            max_burst: Nanos::from_millis(150),
            ecn_threshold_percent: 10,
            active_bytes: 0,
            mtu: 1538,
        }
    }
}

impl PieConfig {
    /// Whether every value lies within its limits.
    ///
    /// # Errors
    ///
    /// The first that does not, with its limits.
    pub fn validate(&self) -> Result<(), ParamError> {
        delay_within("target_us", self.target, 1)?;
        delay_within("tupdate_us", self.tupdate, 1)?;
        delay_within("max_burst_us", self.max_burst, 0)?;
        gain_within("alpha_hz", self.alpha_hz)?;
        gain_within("beta_hz", self.beta_hz)?;
        within("ecn_threshold_percent", self.ecn_threshold_percent.into(), 0, 100)?;
        mtu_within(self.mtu)
    }
}

/// Updates made up for at one event: two minutes of the default T_UPDATE.
const MAX_REPLAY: u64 = 8_192;

/// Section 4.2: below this p the step is divided by that.
const SCALES: [(f64, f64); 6] =
    [(0.000_001, 2048.0), (0.000_01, 512.0), (0.000_1, 128.0), (0.001, 32.0), (0.01, 8.0), (0.1, 2.0)];

/// Section 5.4: no drop before the accumulated p has reached it.
const ACCU_LOW: f64 = 0.85;
/// Section 5.4: a drop once it has.
const ACCU_HIGH: f64 = 8.5;
/// Section 5.5: the largest step up from p of 10 % on.
const MAX_STEP: f64 = 0.02;

/// One FIFO under PIE.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pie {
    config: PieConfig,
    dice: Dice,
    waiting: Backlog,
    active: bool,
    burst_allowance: Nanos,
    drop_prob: f64,
    accu_prob: f64,
    /// The sojourn of the packet last taken, 0 once nothing waits.
    qdelay: Nanos,
    qdelay_old: Nanos,
    /// When the next update is due; none before the first event.
    next_update: Option<Nanos>,
}

impl Pie {
    /// An empty queue.
    ///
    /// # Errors
    ///
    /// A value outside its limits.
    pub fn new(config: PieConfig, seed: u64) -> Result<Self, ParamError> {
        config.validate()?;
        Ok(Self {
            config,
            dice: Dice::new(seed),
            waiting: Backlog::default(),
            active: config.active_bytes == 0,
            burst_allowance: config.max_burst,
            drop_prob: 0.0,
            accu_prob: 0.0,
            qdelay: Nanos::ZERO,
            qdelay_old: Nanos::ZERO,
            next_update: None,
        })
    }

    /// The drop probability, for tests and the lab.
    pub const fn drop_prob(&self) -> f64 {
        self.drop_prob
    }

    /// Makes the updates that were due until now.
    fn advance(&mut self, now: Nanos) {
        let tupdate = self.config.tupdate;
        let next = self.next_update.unwrap_or(now + tupdate);
        let due = if now < next { 0 } else { now.since(next).0 / tupdate.0 + 1 };
        self.next_update = Some(next + Nanos(due * tupdate.0));
        if !self.active {
            return;
        }
        for _ in 0..due.min(MAX_REPLAY) {
            if !self.update() {
                break;
            }
        }
        self.burst_allowance = self.burst_allowance.since(Nanos(due * tupdate.0));
    }

    /// `calculate_drop_prob()` but for the burst allowance; whether it changed anything.
    fn update(&mut self) -> bool {
        let (qdelay, old) = (seconds(self.qdelay), seconds(self.qdelay_old));
        let mut p = self.config.alpha_hz * (qdelay - seconds(self.config.target))
            + self.config.beta_hz * (qdelay - old);
        if let Some((_, scale)) = SCALES.iter().find(|(below, _)| self.drop_prob < *below) {
            p /= scale;
        } else if p > MAX_STEP {
            p = MAX_STEP;
        }
        let mut next = self.drop_prob + p;
        if self.qdelay == Nanos::ZERO && self.qdelay_old == Nanos::ZERO {
            next *= 0.98;
        }
        next = next.clamp(0.0, 1.0);
        let changes = next.to_bits() != self.drop_prob.to_bits() || self.qdelay != self.qdelay_old;
        self.drop_prob = next;
        self.qdelay_old = self.qdelay;
        changes
    }

    /// No congestion: section 4.4.
    fn is_quiet(&self) -> bool {
        let half = self.half_target();
        self.drop_prob <= 0.0 && self.qdelay < half && self.qdelay_old < half
    }

    fn half_target(&self) -> Nanos {
        Nanos(self.config.target.0 / 2)
    }

    /// `drop_early()` of appendix B.
    fn acts(&mut self) -> bool {
        let spared = self.qdelay_old < self.half_target() && self.drop_prob < 0.2;
        if spared || u64::from(self.waiting.bytes) <= 2 * u64::from(self.config.mtu) {
            return false;
        }
        if self.drop_prob <= 0.0 {
            self.accu_prob = 0.0;
        }
        self.accu_prob += self.drop_prob;
        let acts = self.accu_prob >= ACCU_HIGH
            || (self.accu_prob >= ACCU_LOW && f64::from(self.dice.word()) < self.drop_prob * TWO_POW_32);
        if acts {
            self.accu_prob = 0.0;
        }
        acts
    }

    /// What acting on a packet means: a mark while p is below the threshold.
    fn verdict(&self, ecn: Ecn, rule: Rule) -> Verdict {
        if self.drop_prob * 100.0 < f64::from(self.config.ecn_threshold_percent) {
            act(ecn, rule)
        } else {
            Verdict::Drop(Cause::Law)
        }
    }
}

const TWO_POW_32: f64 = 4_294_967_296.0;

#[expect(clippy::cast_precision_loss, reason = "delays are far below 2^53 ns")]
fn seconds(delay: Nanos) -> f64 {
    delay.0 as f64 / 1e9
}

impl Qdisc for Pie {
    fn queues(&self) -> u32 {
        1
    }

    fn arrive(&mut self, packet: &Arriving) -> Arrival {
        self.advance(packet.now);
        if !self.active && self.waiting.bytes >= self.config.active_bytes {
            self.active = true;
            self.burst_allowance = self.config.max_burst;
            self.qdelay_old = Nanos::ZERO;
            self.accu_prob = 0.0;
            self.next_update = Some(packet.now + self.config.tupdate);
        }
        let acts = self.active && self.burst_allowance == Nanos::ZERO && self.acts();
        let verdict = if acts { self.verdict(packet.ecn, packet.rule) } else { Verdict::Pass };
        if self.is_quiet() {
            self.active = self.config.active_bytes == 0;
            self.burst_allowance = self.config.max_burst;
        }
        match verdict {
            Verdict::Drop(cause) => return Arrival::Drop(cause),
            Verdict::Pass | Verdict::Mark(_) => self.waiting.join(packet.bytes),
        }
        if let Verdict::Mark(cause) = verdict { Arrival::Mark(0, cause) } else { Arrival::Queue(0) }
    }

    fn shed(&mut self, over_limit: bool) -> Option<(u32, End)> {
        if !over_limit || self.waiting.packets == 0 {
            return None;
        }
        self.accu_prob = 0.0;
        Some((0, End::Tail))
    }

    fn select(&mut self, _now: Nanos) -> Option<u32> {
        (self.waiting.packets > 0).then_some(0)
    }

    fn decide(&mut self, packet: &Leaving) -> Verdict {
        self.advance(packet.now);
        self.waiting.leave(packet.bytes);
        self.qdelay = if self.waiting.packets == 0 { Nanos::ZERO } else { packet.sojourn };
        Verdict::Pass
    }

    fn sent(&mut self, _queue: u32, _bytes: u32) {}

    fn removed(&mut self, _queue: u32, bytes: u32) {
        self.waiting.leave(bytes);
        if self.waiting.packets == 0 {
            self.qdelay = Nanos::ZERO;
        }
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
    }
}

#[cfg(test)]
mod tests;
