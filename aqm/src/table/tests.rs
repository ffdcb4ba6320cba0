// SPDX-License-Identifier: Apache-2.0
//! Every queue x codepoint x rule x L4S on and off, with the expected behaviour written out.

use super::*;

use Ecn::{Ce, Ect0, Ect1, NotEct};
use Queue::{Classic, L4s};
use Rule::{Exclude, ForceClassic, ForceL4s, None, Nqb};
use Treatment::{
    ClassicDrop, ClassicMark, CoupledMark, L4sClassicDrop, L4sClassicMark, L4sMark, NonQueueBuilding,
};

/// Rule, codepoint, queue, treatment there; L4S on.
const ON: [(Rule, Ecn, Queue, Treatment); 20] = [
    (None, NotEct, Classic, ClassicDrop),
    (None, Ect0, Classic, ClassicMark),
    (None, Ect1, L4s, L4sMark),
    (None, Ce, L4s, L4sMark),
    (ForceL4s, NotEct, L4s, L4sClassicDrop),
    (ForceL4s, Ect0, L4s, L4sClassicMark),
    (ForceL4s, Ect1, L4s, L4sMark),
    (ForceL4s, Ce, L4s, L4sMark),
    (ForceClassic, NotEct, Classic, ClassicDrop),
    (ForceClassic, Ect0, Classic, ClassicMark),
    (ForceClassic, Ect1, Classic, CoupledMark),
    (ForceClassic, Ce, Classic, CoupledMark),
    (Exclude, NotEct, Classic, ClassicDrop),
    (Exclude, Ect0, Classic, ClassicMark),
    (Exclude, Ect1, Classic, ClassicDrop),
    (Exclude, Ce, Classic, ClassicMark),
    (Nqb, NotEct, L4s, NonQueueBuilding),
    (Nqb, Ect0, L4s, NonQueueBuilding),
    (Nqb, Ect1, L4s, L4sMark),
    (Nqb, Ce, L4s, L4sMark),
];

/// The same with L4S off: ECT(1) as Not-ECT, CE in C, NQB in L unmarked.
const OFF: [(Rule, Ecn, Queue, Treatment); 20] = [
    (None, NotEct, Classic, ClassicDrop),
    (None, Ect0, Classic, ClassicMark),
    (None, Ect1, Classic, ClassicDrop),
    (None, Ce, Classic, ClassicMark),
    (ForceL4s, NotEct, Classic, ClassicDrop),
    (ForceL4s, Ect0, Classic, ClassicMark),
    (ForceL4s, Ect1, Classic, ClassicDrop),
    (ForceL4s, Ce, Classic, ClassicMark),
    (ForceClassic, NotEct, Classic, ClassicDrop),
    (ForceClassic, Ect0, Classic, ClassicMark),
    (ForceClassic, Ect1, Classic, ClassicDrop),
    (ForceClassic, Ce, Classic, ClassicMark),
    (Exclude, NotEct, Classic, ClassicDrop),
    (Exclude, Ect0, Classic, ClassicMark),
    (Exclude, Ect1, Classic, ClassicDrop),
    (Exclude, Ce, Classic, ClassicMark),
    (Nqb, NotEct, L4s, NonQueueBuilding),
    (Nqb, Ect0, L4s, NonQueueBuilding),
    (Nqb, Ect1, L4s, NonQueueBuilding),
    (Nqb, Ce, L4s, NonQueueBuilding),
];

/// What `pi2` does, where every packet is in C: codepoint, L4S on, L4S off; the rule matters only to exclude.
const PI2: [(Ecn, Treatment, Treatment); 4] = [
    (NotEct, ClassicDrop, ClassicDrop),
    (Ect0, ClassicMark, ClassicMark),
    (Ect1, CoupledMark, ClassicDrop),
    (Ce, CoupledMark, ClassicMark),
];

/// In L although the classifier would not send it there (a profile that changed while it waited).
const STRAY_IN_L: [(Rule, Ecn, bool, Treatment); 24] = [
    (None, NotEct, true, L4sClassicDrop),
    (None, Ect0, true, L4sMark),
    (ForceClassic, NotEct, true, L4sClassicDrop),
    (ForceClassic, Ect0, true, L4sClassicMark),
    (ForceClassic, Ect1, true, L4sMark),
    (ForceClassic, Ce, true, L4sMark),
    (Exclude, NotEct, true, L4sClassicDrop),
    (Exclude, Ect0, true, L4sClassicMark),
    (None, NotEct, false, L4sClassicDrop),
    (None, Ect0, false, L4sClassicMark),
    (None, Ect1, false, L4sClassicDrop),
    (None, Ce, false, L4sClassicMark),
    (ForceL4s, NotEct, false, L4sClassicDrop),
    (ForceL4s, Ect0, false, L4sClassicMark),
    (ForceL4s, Ect1, false, L4sClassicDrop),
    (ForceL4s, Ce, false, L4sClassicMark),
    (ForceClassic, NotEct, false, L4sClassicDrop),
    (ForceClassic, Ect0, false, L4sClassicMark),
    (ForceClassic, Ect1, false, L4sClassicDrop),
    (ForceClassic, Ce, false, L4sClassicMark),
    (Exclude, NotEct, false, L4sClassicDrop),
    (Exclude, Ect0, false, L4sClassicMark),
    (Exclude, Ect1, false, L4sClassicDrop),
    (Exclude, Ce, false, L4sClassicMark),
];

#[test]
fn every_case_has_the_queue_and_treatment_written_out() {
    for (l4s, cases) in [(true, ON), (false, OFF)] {
        for (rule, ecn, queue, expected) in cases {
            assert_eq!(classify(ecn, rule, l4s, false), queue, "{rule:?} {ecn:?} l4s {l4s}");
            assert_eq!(treatment(queue, ecn, rule, l4s), expected, "{rule:?} {ecn:?} l4s {l4s}");
        }
        let mut seen: Vec<_> = cases.iter().map(|case| (case.0 as u8, case.1 as u8)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), Rule::ALL.len() * Ecn::ALL.len(), "no case twice, none missing");
    }
}

#[test]
fn one_queue_for_all_never_marks_ect1_with_classic_strength() {
    for (ecn, on, off) in PI2 {
        for rule in Rule::ALL {
            let excluded = if rule == Exclude { off } else { on };
            assert_eq!(treatment(Classic, ecn, rule, true), excluded, "{ecn:?} {rule:?}");
            assert_eq!(treatment(Classic, ecn, rule, false), off, "{ecn:?} {rule:?}");
        }
    }
}

#[test]
fn strays_in_l_are_defined_too() {
    for (rule, ecn, l4s, expected) in STRAY_IN_L {
        assert_eq!(treatment(L4s, ecn, rule, l4s), expected, "{rule:?} {ecn:?} l4s {l4s}");
    }
    for ecn in [Ect1, Ce] {
        assert_eq!(treatment(L4s, ecn, Exclude, true), L4sMark, "queued before the rule came");
    }
}

#[test]
fn any_ect_moves_ect0_without_a_rule_and_nothing_else() {
    for rule in Rule::ALL {
        for ecn in Ecn::ALL {
            for l4s in [true, false] {
                let moved = rule == None && ecn == Ect0 && l4s;
                let (with, without) = (classify(ecn, rule, l4s, true), classify(ecn, rule, l4s, false));
                assert_eq!(with != without, moved, "{rule:?} {ecn:?} l4s {l4s}");
            }
        }
    }
    assert_eq!(treatment(L4s, Ect0, None, true), L4sMark, "its senders are scalable");
}

#[test]
fn no_case_marks_not_ect_or_gives_ect1_a_mark_of_classic_strength() {
    for queue in Queue::BOTH {
        for rule in Rule::ALL {
            for l4s in [true, false] {
                assert!(!treatment(queue, NotEct, rule, l4s).may_mark(), "{queue:?} {rule:?} {l4s}");
                let ect1 = treatment(queue, Ect1, rule, l4s);
                assert!(!matches!(ect1, ClassicMark | L4sClassicMark), "{queue:?} {rule:?} {l4s}");
                if !l4s {
                    assert!(!ect1.may_mark(), "off: as Not-ECT");
                }
                if rule == Nqb && queue == L4s {
                    assert!(!treatment(queue, Ect0, rule, l4s).may_mark());
                }
            }
        }
    }
}
