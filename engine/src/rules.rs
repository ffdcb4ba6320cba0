// SPDX-License-Identifier: Apache-2.0
//! The rules on the DSCP, which come before the ECN field (RFC 9331 5.4.1.2).

use aqm::{Ecn, Rule};
use wire::Parsed;

/// The rule for each DSCP.
#[derive(Clone, Debug)]
pub struct DscpRules([Rule; 64]);

impl DscpRules {
    /// From validated lists: each DSCP stands in at most one.
    pub fn new(lists: &model::config::Rules) -> Self {
        let mut rules = [Rule::None; 64];
        let lists = [
            (&lists.nqb_dscp, Rule::Nqb),
            (&lists.exclude_dscp, Rule::Exclude),
            (&lists.classic_dscp, Rule::ForceClassic),
            (&lists.l4s_dscp, Rule::ForceL4s),
        ];
        for (list, rule) in lists {
            for &dscp in list {
                if let Some(slot) = rules.get_mut(usize::from(dscp)) {
                    *slot = rule;
                }
            }
        }
        Self(rules)
    }

    /// The ECN field and the rule of a packet; Not-ECT and none for what is not IP and so never changed.
    #[inline]
    pub fn label(&self, parsed: &Parsed) -> (Ecn, Rule) {
        if parsed.ip_offset == 0 {
            return (Ecn::NotEct, Rule::None);
        }
        let rule = self.0.get(usize::from(parsed.dscp())).copied().unwrap_or_default();
        (Ecn::from_bits(parsed.ecn_bits()), rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists() -> model::config::Rules {
        model::config::Rules {
            nqb_dscp: vec![45],
            exclude_dscp: vec![0, 63],
            classic_dscp: vec![8],
            l4s_dscp: vec![46],
        }
    }

    #[test]
    fn each_dscp_has_the_rule_of_its_list() {
        let DscpRules(table) = DscpRules::new(&lists());
        assert_eq!(table[45], Rule::Nqb);
        assert_eq!((table[0], table[63]), (Rule::Exclude, Rule::Exclude));
        assert_eq!((table[8], table[46]), (Rule::ForceClassic, Rule::ForceL4s));
        assert_eq!(table.iter().filter(|&&rule| rule == Rule::None).count(), 59);
    }

    #[test]
    fn what_is_not_ip_is_not_ect_and_under_no_rule() {
        let parsed = wire::parse(&[0; 64], 64);
        assert_eq!(parsed.ip_offset, 0);
        assert_eq!(DscpRules::new(&lists()).label(&parsed), (Ecn::NotEct, Rule::None));
    }
}
