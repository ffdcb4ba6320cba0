// SPDX-License-Identifier: Apache-2.0
//! What is different between two configurations, key by key, as problems name keys (`port[0].rate_bps`).
//!
//! Invariant: two configurations that are equal differ in nothing, and two that are not differ in something.

use serde::Serialize;
use serde_json::Value;

use super::Config;

/// A key whose value in force is different.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The key with all that leads to it.
    pub key: String,
    /// Its value before; null: it was not there.
    pub from: Value,
    /// Its value now; null: it is no longer there.
    pub to: Value,
}

impl Config {
    /// What is different in `next`, in the order of keys. Lists of plain values and lists of another length are one
    /// change each, and so is a profile that comes or goes.
    pub fn changes(&self, next: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        compare("", &self.to_value(), &next.to_value(), &mut changes);
        changes
    }
}

fn compare(key: &str, from: &Value, to: &Value, changes: &mut Vec<Change>) {
    match (from, to) {
        (Value::Object(before), Value::Object(after)) => {
            let mut names: Vec<_> = before.keys().chain(after.keys()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                let of = |members: &serde_json::Map<_, _>| members.get(name).cloned().unwrap_or_default();
                compare(&key, &of(before), &of(after), changes);
            }
        }
        (Value::Array(before), Value::Array(after))
            if before.len() == after.len() && before.iter().chain(after).all(Value::is_object) =>
        {
            for (index, (from, to)) in before.iter().zip(after).enumerate() {
                compare(&format!("{key}[{index}]"), from, to, changes);
            }
        }
        _ if from == to => {}
        _ => changes.push(Change { key: key.to_owned(), from: from.clone(), to: to.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: &str = "[[port]]\nname=\"c\"\ndevice=\"net_null0\"\nrole=\"core\"\npeer=\"a\"\nrate_bps=1000000\n\
                         [[port]]\nname=\"a\"\ndevice=\"net_null1\"\nrole=\"access\"\npeer=\"c\"\n";

    fn config(text: &str) -> Config {
        Config::parse("f", text).unwrap()
    }

    fn keys(from: &str, to: &str) -> Vec<String> {
        config(from).changes(&config(to)).into_iter().map(|change| change.key).collect()
    }

    #[test]
    fn equal_configurations_differ_in_nothing_however_they_are_written() {
        assert!(keys(PORTS, PORTS).is_empty());
        assert!(keys("", "[log]\nlevel = \"info\"\n[dataplane]\nseed = 1").is_empty());
    }

    #[test]
    fn each_key_that_is_different_is_named_with_both_values() {
        let to = PORTS.replace("1000000", "2000000") + "mtu=1500\n[log]\nlevel=\"debug\"\n";
        let changes = config(PORTS).changes(&config(&to));
        let shown: Vec<_> = changes.iter().map(|c| format!("{} {} {}", c.key, c.from, c.to)).collect();
        assert_eq!(
            shown,
            ["log.level \"info\" \"debug\"", "port[0].rate_bps 1000000 2000000", "port[1].mtu 1600 1500"]
        );
    }

    #[test]
    fn what_comes_or_goes_is_one_change() {
        assert_eq!(keys("", PORTS), ["port"]);
        assert_eq!(keys("[profile.gold]\naqm = \"fifo\"", ""), ["profile.gold"]);
        assert_eq!(keys("", "[profile.default]\ntarget_us = 5000"), ["profile.default.target_us"]);
        assert_eq!(keys("", "[classify.rules]\nl4s_dscp = [46]"), ["classify.rules.l4s_dscp"]);
    }
}
