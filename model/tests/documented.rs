// SPDX-License-Identifier: Apache-2.0
//! `docs/configuration.md` names every key that the parser knows, and no other. The parser is asked as a user would:
//! what it says of a key that is unknown lists those that are known.

use std::collections::{BTreeMap, BTreeSet};

use model::{Config, Subscriber};
use serde_json::json;

const DOCUMENT: &str = include_str!("../../docs/configuration.md");
/// Too far from any key to be taken for a slip.
const UNKNOWN: &str = "qqqqqqqqqqqqqqqqqqqqqqqq";

type Names = BTreeSet<String>;

/// The keys of each section by its heading.
fn documented() -> BTreeMap<&'static str, Names> {
    let mut sections: BTreeMap<&str, Names> = BTreeMap::new();
    let mut heading = "";
    for line in DOCUMENT.lines() {
        if line.starts_with('#') {
            heading = line.trim_start_matches('#').trim();
            sections.entry(heading).or_default();
        } else if let Some((key, _)) = line.strip_prefix("| `").and_then(|rest| rest.split_once('`')) {
            assert!(sections.entry(heading).or_default().insert(key.to_owned()), "{heading} has {key} twice");
        }
    }
    sections
}

/// What `text`, which gives a key of that name, is told to use instead.
fn known(text: &str) -> Names {
    let problems = Config::parse("f", text).expect_err("a key is unknown").to_string();
    let list = problems.split_once("the keys here are ").unwrap_or_else(|| panic!("{problems}")).1;
    list.lines().next().expect("a line").split(", ").map(str::to_owned).collect()
}

/// The members of a record, from the error about one that it does not have.
fn members(record: &serde_json::Value, prefix: &str) -> Names {
    let error = Subscriber::from_value(record).expect_err("a field is unknown").to_string();
    let list = error.split_once("expected ").unwrap_or_else(|| panic!("{error}")).1;
    list.split('`').skip(1).step_by(2).map(|name| format!("{prefix}{name}")).collect()
}

/// The AQMs, from the error about one that there is not.
fn aqms() -> Vec<String> {
    let problems = Config::parse("f", "[profile.x]\naqm = \"none\"").expect_err("no AQM").to_string();
    let list = problems.split_once("(available: ").expect("a list").1;
    list.trim_end_matches(')').split(", ").map(str::to_owned).collect()
}

#[test]
fn every_table_has_the_keys_that_the_parser_knows() {
    let documented = documented();
    let tables = [
        ("`[dataplane]`", format!("[dataplane]\n{UNKNOWN} = 1")),
        ("`dataplane.lcores`", format!("[dataplane.lcores]\n{UNKNOWN} = 1")),
        ("`[[port]]`", format!("[[port]]\n{UNKNOWN} = 1")),
        ("`[classify]`", format!("[classify]\n{UNKNOWN} = 1")),
        ("`classify.rules`", format!("[classify.rules]\n{UNKNOWN} = 1")),
        ("`overhead`", format!("[profile.x.overhead]\n{UNKNOWN} = 1")),
        ("`[api]`", format!("[api]\n{UNKNOWN} = 1")),
        ("`[log]`", format!("[log]\n{UNKNOWN} = 1")),
        ("`[store]`", format!("[store]\n{UNKNOWN} = 1")),
    ];
    for (heading, text) in &tables {
        assert_eq!(documented.get(heading), Some(&known(text)), "{heading}");
    }
    for table in known(&format!("{UNKNOWN} = 1")) {
        let has = |heading: &&str| {
            [format!("`[{table}]`"), format!("`[[{table}]]`"), format!("`[{table}.NAME]`")]
                .iter()
                .any(|name| name == heading)
        };
        assert!(documented.keys().any(has), "no section on {table}");
    }
}

#[test]
fn every_aqm_has_its_keys() {
    let documented = documented();
    let common = &documented["`[profile.NAME]`"];
    let aqms = aqms();
    assert!(aqms.len() > 2, "{aqms:?}");
    for aqm in aqms {
        let name = format!("`aqm = \"{aqm}\"`");
        let section = documented.iter().find(|(heading, _)| heading.contains(&name));
        let (_, own) = section.unwrap_or_else(|| panic!("no section on {name}"));
        let all: Names = common.union(own).cloned().collect();
        assert_eq!(all, known(&format!("[profile.x]\naqm = \"{aqm}\"\n{UNKNOWN} = 1")), "{name}");
    }
}

#[test]
fn a_record_has_its_members() {
    let mut all = members(&json!({UNKNOWN: 1}), "");
    all.extend(members(&json!({"match": {UNKNOWN: 1}}), "match."));
    for key in ["vlan", "pppoe"] {
        all.extend(members(&json!({"match": {key: {UNKNOWN: 1}}}), &format!("match.{key}.")));
    }
    assert_eq!(documented()["`[[subscriber]]`"], all);
}
