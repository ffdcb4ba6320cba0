// SPDX-License-Identifier: Apache-2.0
//! Which queue a packet belongs to and what the AQM may do to it there, as two total functions of queue, codepoint,
//! rule and the L4S switch (RFC 9331 section 5, RFC 9332 2.5.1.1).
//!
//! Invariant: no combination is left undefined, rules are looked at before the ECN field (RFC 9331 5.4.1.2), and no
//! treatment gives ECT(1) a mark of Classic strength. A packet keeps its treatment whatever p' is.
//!
//! Choices where the RFCs leave one:
//! - ECT(0) in L without a rule got there by `any_ect`, which says that ECT(0) senders are scalable (DCTCP in a data
//!   centre), so it is marked as L4S; by rule it is marked with the Classic likelihood (p_L/k)^2.
//! - L4S off: `l4s_dscp` asks for a service that is off, so it no longer overrides; NQB asks for scheduling only and
//!   stays in L, unmarked, whatever its codepoint.
//! - CE in C stays CE: it counts as an ECT packet that carries its mark already and is dropped in overload only.

use crate::{Ecn, Queue, Rule};

/// What the AQM does to a packet. p_C = p'^2, p_CL = k * p', p_L = max(native, p_CL); overload is p_CL at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Treatment {
    /// In L: CE with p_L. Overload: dropped with p_C, else CE.
    L4sMark,
    /// In L, ECT(0) by rule: CE with (p_L/k)^2. Overload: dropped with p_C, else CE.
    L4sClassicMark,
    /// In L, Not-ECT by rule: dropped with (p_L/k)^2. Overload: dropped with p_C.
    L4sClassicDrop,
    /// In L by the NQB rule and neither ECT(1) nor CE: never marked, dropped as `L4sClassicDrop`.
    NonQueueBuilding,
    /// In C: dropped with p_C. Not-ECT, and ECT(1) that counts as Not-ECT.
    ClassicDrop,
    /// In C: CE with p_C. Overload: dropped with p_C.
    ClassicMark,
    /// In C, ECT(1) or CE: CE with p_CL. Overload: dropped with p_C, else CE.
    CoupledMark,
}

impl Treatment {
    /// Whether a packet with this treatment may ever be changed to CE.
    pub const fn may_mark(self) -> bool {
        matches!(self, Self::L4sMark | Self::L4sClassicMark | Self::ClassicMark | Self::CoupledMark)
    }
}

/// The queue of a DualQ that a packet goes to. `any_ect`: ECT(0) goes to L too.
pub const fn classify(ecn: Ecn, rule: Rule, l4s: bool, any_ect: bool) -> Queue {
    match rule {
        Rule::Nqb => Queue::L4s,
        Rule::ForceClassic | Rule::Exclude => Queue::Classic,
        _ if !l4s => Queue::Classic,
        Rule::ForceL4s => Queue::L4s,
        Rule::None => match ecn {
            Ecn::Ect1 | Ecn::Ce => Queue::L4s,
            Ecn::Ect0 if any_ect => Queue::L4s,
            Ecn::Ect0 | Ecn::NotEct => Queue::Classic,
        },
    }
}

/// What happens to a packet of `queue`; defined also where [`classify`] would have chosen the other queue, as `pi2`
/// puts every packet in C.
pub const fn treatment(queue: Queue, ecn: Ecn, rule: Rule, l4s: bool) -> Treatment {
    match queue {
        Queue::L4s => in_l(ecn, rule, l4s),
        Queue::Classic => in_c(ecn, rule, l4s),
    }
}

const fn in_l(ecn: Ecn, rule: Rule, l4s: bool) -> Treatment {
    match (rule, ecn) {
        (_, Ecn::Ect1 | Ecn::Ce) | (Rule::None, Ecn::Ect0) if l4s => Treatment::L4sMark,
        (Rule::Nqb, _) => Treatment::NonQueueBuilding,
        (_, Ecn::Ect0 | Ecn::Ce) => Treatment::L4sClassicMark,
        (_, Ecn::NotEct | Ecn::Ect1) => Treatment::L4sClassicDrop,
    }
}

const fn in_c(ecn: Ecn, rule: Rule, l4s: bool) -> Treatment {
    let as_l4s = l4s && !matches!(rule, Rule::Exclude);
    match ecn {
        Ecn::Ect1 | Ecn::Ce if as_l4s => Treatment::CoupledMark,
        Ecn::NotEct | Ecn::Ect1 => Treatment::ClassicDrop,
        Ecn::Ect0 | Ecn::Ce => Treatment::ClassicMark,
    }
}

#[cfg(test)]
mod tests;
