// SPDX-License-Identifier: Apache-2.0
//! DualPI2 of one queue id: which queue to serve and what happens to the packet taken (RFC 9332 A.1, A.2 figure 7).
//!
//! `pi2` is the C branch alone: every packet in [`Queue::Classic`], same parameters.
//!
//! Invariants: a Not-ECT or CE packet is never given a mark (a CE packet that would get one passes, so that marks count
//! changes to CE); a mark on ECT(1) is never of Classic strength; in overload L and C drop with the same likelihood.
//! Departures from figure 7: one accumulator for each queue and purpose (`recur`), no PI action while less than 2 MTU
//! wait (A.1: the aggregate before the packet is taken; Linux tests what is left), the ramp's floor at the known rate.
//! With `Overload::Overflow` the AQM drops nothing in L, whatever its codepoint.

use crate::config::{Compat, DualPi2Config, Native, Overload, ParamError};
use crate::pi::PiParams;
use crate::ramp::Ramp;
use crate::recur::{Dice, Purpose};
use crate::table::{Treatment, classify, treatment};
use crate::wrr::Wrr;
use crate::{Ecn, Nanos, Pace, Prob, Queue, Rule};

/// What waits in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets.
    pub packets: u32,
    /// Bytes as the shaper counts them.
    pub bytes: u32,
}

/// The packet just taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The queue it was taken from.
    pub queue: Queue,
    /// Its ECN field.
    pub ecn: Ecn,
    /// What the rules say.
    pub rule: Rule,
    /// Its length as the shaper counts it.
    pub bytes: u32,
    /// How long it waited; used with `Compat::Linux` only.
    pub sojourn: Nanos,
    /// Whether L held enough when it arrived (`min_qlen_step`, 0 by default: true); `Compat::Linux` only.
    pub step_eligible: bool,
}

/// What the packet taken leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// In L.
    pub l: Backlog,
    /// In C.
    pub c: Backlog,
    /// Time of a byte at the served rate.
    pub pace: Pace,
    /// p' of the PI bank; not looked at unless [`DualPi2Params::pi_applies`].
    pub p_prime: Prob,
}

/// What to do with the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it as it is.
    Pass,
    /// Set CE and send it; only ever said of ECT(0) and ECT(1).
    Mark(Cause),
    /// Drop it and take the next.
    Drop(Cause),
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The native AQM of L had the higher likelihood.
    Native,
    /// p_CL, coupled across from the PI controller.
    Coupled,
    /// p_C.
    Pi,
    /// p_C with p_CL at 1: said of every drop in overload.
    Overload,
    /// The law of another discipline.
    Law,
    /// A limit of the discipline's own: counted as tail drop.
    Limit,
}

/// Parameters derived from a [`DualPi2Config`]; shared by all queue ids of a profile.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "switches of the configuration, each by its name there")]
pub struct DualPi2Params {
    pi: PiParams,
    wrr: Wrr,
    ramp: Ramp,
    /// The kernel's step on the sojourn.
    step: Nanos,
    coupling: u32,
    /// PI acts from this backlog on.
    pi_bytes: u64,
    overload: Overload,
    l4s: bool,
    any_ect: bool,
    queue_protection: bool,
    ecn: bool,
    compat: Compat,
}

impl DualPi2Params {
    /// Derives them.
    ///
    /// # Errors
    ///
    /// A value outside its limits.
    pub fn new(config: &DualPi2Config) -> Result<Self, ParamError> {
        let pi = PiParams::new(config)?;
        let mtu = u16::try_from(config.mtu).unwrap_or(u16::MAX);
        let percent = u8::try_from(config.classic_protection_percent).unwrap_or(100);
        let (min, range) = match config.native {
            Native::Ramp { min, range } => (min, range),
            Native::Step { threshold } => (threshold, Nanos::ZERO),
        };
        Ok(Self {
            pi,
            wrr: Wrr::new(percent, mtu),
            ramp: Ramp::new(min, range, u64::from(config.floor_packets) * u64::from(mtu)),
            step: min,
            coupling: config.coupling,
            pi_bytes: 2 * u64::from(mtu),
            overload: config.overload,
            l4s: config.l4s,
            any_ect: config.any_ect,
            queue_protection: config.queue_protection,
            ecn: config.ecn,
            compat: config.compat,
        })
    }

    /// The PI controller, for the bank.
    pub const fn pi(&self) -> PiParams {
        self.pi
    }

    /// The queue of a packet under `dualpi2`.
    pub const fn classify(&self, ecn: Ecn, rule: Rule) -> Queue {
        classify(ecn, rule, self.l4s, self.any_ect)
    }

    /// What may happen to a packet; `ecn = false` makes every packet Not-ECT here.
    pub const fn treatment(&self, queue: Queue, ecn: Ecn, rule: Rule) -> Treatment {
        treatment(queue, if self.ecn { ecn } else { Ecn::NotEct }, rule, self.l4s)
    }

    /// Whether PI may act on a packet of `bytes` that leaves this behind; if not, p' need not be read.
    pub fn pi_applies(&self, bytes: u32, l: Backlog, c: Backlog) -> bool {
        let left = u64::from(l.bytes) + u64::from(c.bytes);
        let waited = if self.compat == Compat::Linux { left } else { left + u64::from(bytes) };
        waited >= self.pi_bytes
    }

    /// Whether a packet of `bytes` that leaves both queues empty passes whatever it is, and leaves no trace in the
    /// state: no PI acts on so little, and a queue without a packet gives no native mark.
    #[inline]
    pub fn passes_lone(&self, bytes: u32) -> bool {
        self.compat == Compat::Rfc && u64::from(bytes) < self.pi_bytes
    }

    /// p' that applies, and whether it means overload drops.
    fn base(&self, head: &Head, left: &Left) -> (Prob, bool) {
        if !self.pi_applies(head.bytes, left.l, left.c) {
            return (Prob::ZERO, false);
        }
        (left.p_prime, self.pi.is_overload(left.p_prime) && self.overload == Overload::Drop)
    }

    /// The likelihood of a native mark at this backlog of L: none while it is at most one packet (Th_len).
    pub fn native(&self, l: Backlog, pace: Pace) -> Prob {
        if l.packets > 1 { self.ramp.likelihood(l.bytes.into(), pace) } else { Prob::ZERO }
    }
}

/// State of one queue id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DualPi2 {
    credit: i32,
    dice: Dice,
}

const _: () = assert!(size_of::<DualPi2>() <= 24);

impl DualPi2 {
    /// Drained, with phases drawn from `seed`.
    pub const fn new(params: &DualPi2Params, seed: u64) -> Self {
        Self { credit: params.wrr.start(), dice: Dice::new(seed) }
    }

    /// The queue to serve; none if both are empty. `pi2` never needs it.
    pub const fn select(&self, _params: &DualPi2Params, l: Backlog, c: Backlog) -> Option<Queue> {
        Wrr::select(self.credit, l.packets > 0, c.packets > 0)
    }

    /// What to do with the packet just taken; once a packet.
    pub fn decide(&mut self, params: &DualPi2Params, head: &Head, left: &Left) -> Verdict {
        let treatment = params.treatment(head.queue, head.ecn, head.rule);
        match (params.compat, head.queue) {
            (Compat::Rfc, Queue::L4s) => self.rfc_l(params, treatment, head, left),
            (Compat::Rfc, Queue::Classic) => self.rfc_c(params, treatment, head, left),
            (Compat::Linux, Queue::L4s) => self.linux_l(params, treatment, head, left),
            (Compat::Linux, Queue::Classic) => self.linux_c(params, treatment, head, left),
        }
    }

    /// A packet survived the AQM: the credit changes if the other queue has packets waiting.
    pub fn sent(&mut self, params: &DualPi2Params, queue: Queue, bytes: u32, other_waits: bool) {
        if other_waits {
            self.credit = params.wrr.charge(self.credit, queue, bytes);
        }
    }

    /// Both queues are empty: the credit starts again in favour of L.
    pub const fn drained(&mut self, params: &DualPi2Params) {
        self.credit = params.wrr.start();
    }

    /// The WRR credit, for tests and the lab.
    pub const fn credit(&self) -> i32 {
        self.credit
    }

    fn rfc_l(&mut self, params: &DualPi2Params, treatment: Treatment, head: &Head, left: &Left) -> Verdict {
        let (p, overload) = params.base(head, left);
        if overload {
            if self.dice.recur(Purpose::LDrop, p.squared()) {
                return Verdict::Drop(Cause::Overload);
            }
            return if treatment.may_mark() { mark(head.ecn, Cause::Coupled) } else { Verdict::Pass };
        }
        if params.queue_protection && head.ecn == Ecn::NotEct {
            return Verdict::Pass;
        }
        let (coupled, native) = (p.times(params.coupling), params.native(left.l, left.pace));
        let (p_l, cause) = if native > coupled { (native, Cause::Native) } else { (coupled, Cause::Coupled) };
        if treatment == Treatment::L4sMark {
            return if self.dice.recur(Purpose::LMark, p_l) { mark(head.ecn, cause) } else { Verdict::Pass };
        }
        if !self.dice.recur(Purpose::LDrop, p_l.over(params.coupling).squared()) {
            return Verdict::Pass;
        }
        if treatment.may_mark() {
            mark(head.ecn, cause)
        } else if params.overload == Overload::Overflow {
            Verdict::Pass
        } else {
            Verdict::Drop(cause)
        }
    }

    fn rfc_c(&mut self, params: &DualPi2Params, treatment: Treatment, head: &Head, left: &Left) -> Verdict {
        let (p, overload) = params.base(head, left);
        if treatment == Treatment::CoupledMark && !overload {
            let acts = self.dice.recur(Purpose::CoupledMark, p.times(params.coupling));
            return if acts { mark(head.ecn, Cause::Coupled) } else { Verdict::Pass };
        }
        let acts = self.dice.recur(Purpose::Classic, p.squared());
        classic(treatment, head.ecn, acts, overload)
    }

    /// The kernel's law for its class L4S (all in L but NQB) and LLLL (NQB, never touched).
    fn linux_l(&mut self, params: &DualPi2Params, treatment: Treatment, head: &Head, left: &Left) -> Verdict {
        if treatment == Treatment::NonQueueBuilding {
            return Verdict::Pass;
        }
        let ect = treatment.may_mark();
        let mut verdict = Verdict::Pass;
        if params.pi_applies(head.bytes, left.l, left.c) {
            let p = left.p_prime;
            if params.pi.is_overload(p) && params.overload == Overload::Drop {
                if self.dice.roll(p) && self.dice.roll(p) {
                    return Verdict::Drop(Cause::Overload);
                }
                verdict = if ect { mark(head.ecn, Cause::Coupled) } else { Verdict::Pass };
            } else if self.dice.roll(p.times(params.coupling)) {
                if !ect {
                    return Verdict::Drop(Cause::Coupled);
                }
                verdict = mark(head.ecn, Cause::Coupled);
            }
        }
        if !head.step_eligible || head.sojourn <= params.step {
            verdict
        } else if ect {
            mark(head.ecn, Cause::Native)
        } else {
            Verdict::Drop(Cause::Native)
        }
    }

    /// The kernel's law for C, and p_CL for ECT(1), which the kernel cannot have there.
    fn linux_c(&mut self, params: &DualPi2Params, treatment: Treatment, head: &Head, left: &Left) -> Verdict {
        if !params.pi_applies(head.bytes, left.l, left.c) {
            return Verdict::Pass;
        }
        let (p, overload) = params.base(head, left);
        if treatment == Treatment::CoupledMark && !overload {
            let acts = self.dice.roll(p.times(params.coupling));
            return if acts { mark(head.ecn, Cause::Coupled) } else { Verdict::Pass };
        }
        let acts = self.dice.roll(p) && self.dice.roll(p);
        classic(treatment, head.ecn, acts, overload)
    }
}

/// What the outcome of p_C means for a packet of C.
const fn classic(treatment: Treatment, ecn: Ecn, acts: bool, overload: bool) -> Verdict {
    match (acts, overload) {
        (true, true) => Verdict::Drop(Cause::Overload),
        (true, false) if treatment.may_mark() => mark(ecn, Cause::Pi),
        (true, false) => Verdict::Drop(Cause::Pi),
        (false, true) if matches!(treatment, Treatment::CoupledMark) => mark(ecn, Cause::Coupled),
        (false, _) => Verdict::Pass,
    }
}

/// A mark where it changes the packet.
const fn mark(ecn: Ecn, cause: Cause) -> Verdict {
    match ecn {
        Ecn::Ect0 | Ecn::Ect1 => Verdict::Mark(cause),
        Ecn::NotEct | Ecn::Ce => Verdict::Pass,
    }
}

#[cfg(test)]
mod tests;
