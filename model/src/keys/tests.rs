// SPDX-License-Identifier: Apache-2.0
//! Claims: the rules one by one, then whole histories against a list searched from end to end.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn record(id: &str, matches: &serde_json::Value) -> Subscriber {
    let value = serde_json::json!({"id": id, "down_bps": 64_000, "up_bps": 64_000, "match": matches});
    Subscriber::from_value(&value).unwrap()
}

macro_rules! record {
    ($id:expr, $($json:tt)+) => { record($id, &serde_json::json!($($json)+)) };
}

#[test]
fn a_vlan_is_a_key_alone_and_a_scope_beside_others() {
    let words = |subscriber: &Subscriber| subscriber.keys().map(|key| key.to_string()).collect::<Vec<_>>();
    let alone = record!("a", {"vlan": {"outer": 100, "inner": 42}, "port": "p"});
    assert_eq!(words(&alone), ["VLAN 100.42 on port p"]);
    let all = record!("a", {"ipv4": ["10.0.0.1"], "ipv6": ["2001:db8::/56"], "vlan": {"outer": 100},
        "pppoe": {"session": 23, "mac": "02:00:00:00:00:01"}});
    let expected = [
        "prefix 10.0.0.1/32 in VLAN 100",
        "prefix 2001:db8::/56 in VLAN 100",
        "PPPoE session 23 of 02:00:00:00:00:01 in VLAN 100",
    ];
    assert_eq!(words(&all), expected);
}

#[test]
fn a_second_claim_is_refused_and_names_both() {
    let mut index = KeyIndex::default();
    index.replace(None, Some(&record!("a", {"ipv4": ["10.0.0.1"]}))).unwrap();
    let error = index.replace(None, Some(&record!("b", {"ipv4": ["10.0.0.2", "10.0.0.1"]}))).unwrap_err();
    assert_eq!(error.to_string(), "prefix 10.0.0.1/32 of \"b\" is already claimed by \"a\"");
    assert_eq!(index.len(), 1, "a refused record leaves nothing behind");
}

#[test]
fn which_claims_exclude_each_other() {
    let vlan = |outer: u16, inner: Option<u16>| serde_json::json!({"outer": outer, "inner": inner});
    let cases = [
        (
            "the same prefix",
            record!("a", {"ipv4": ["10.0.0.0/8"]}),
            record!("b", {"ipv4": ["10.0.0.0/8"]}),
            true,
        ),
        (
            "another length",
            record!("a", {"ipv4": ["10.0.0.0/8"]}),
            record!("b", {"ipv4": ["10.0.0.0/9"]}),
            false,
        ),
        (
            "another VLAN",
            record!("a", {"ipv4": ["10.0.0.1"], "vlan": vlan(1, None)}),
            record!("b", {"ipv4": ["10.0.0.1"], "vlan": vlan(2, None)}),
            false,
        ),
        (
            "a narrower VLAN",
            record!("a", {"ipv4": ["10.0.0.1"], "vlan": vlan(1, None)}),
            record!("b", {"ipv4": ["10.0.0.1"], "vlan": vlan(1, Some(2))}),
            false,
        ),
        (
            "no VLAN and one",
            record!("a", {"ipv4": ["10.0.0.1"]}),
            record!("b", {"ipv4": ["10.0.0.1"], "vlan": vlan(1, None)}),
            false,
        ),
        (
            "a VLAN and a prefix in it",
            record!("a", {"vlan": vlan(1, None)}),
            record!("b", {"ipv4": ["10.0.0.1"], "vlan": vlan(1, None)}),
            false,
        ),
        ("the same VLAN", record!("a", {"vlan": vlan(1, None)}), record!("b", {"vlan": vlan(1, None)}), true),
        (
            "a VLAN and a pair",
            record!("a", {"vlan": vlan(1, None)}),
            record!("b", {"vlan": vlan(1, Some(1))}),
            false,
        ),
        (
            "two ports",
            record!("a", {"ipv4": ["10.0.0.1"], "port": "p"}),
            record!("b", {"ipv4": ["10.0.0.1"], "port": "q"}),
            false,
        ),
        (
            "one port",
            record!("a", {"ipv4": ["10.0.0.1"], "port": "p"}),
            record!("b", {"ipv4": ["10.0.0.1"], "port": "p"}),
            true,
        ),
        (
            "any port and one",
            record!("a", {"ipv4": ["10.0.0.1"]}),
            record!("b", {"ipv4": ["10.0.0.1"], "port": "p"}),
            true,
        ),
        (
            "one port and any",
            record!("a", {"ipv4": ["10.0.0.1"], "port": "p"}),
            record!("b", {"ipv4": ["10.0.0.1"]}),
            true,
        ),
        (
            "the same session",
            record!("a", {"pppoe": {"session": 1}}),
            record!("b", {"pppoe": {"session": 1}}),
            true,
        ),
        (
            "a session and one with MAC",
            record!("a", {"pppoe": {"session": 1}}),
            record!("b", {"pppoe": {"session": 1, "mac": "02:00:00:00:00:01"}}),
            false,
        ),
        (
            "two MACs",
            record!("a", {"pppoe": {"session": 1, "mac": "02:00:00:00:00:02"}}),
            record!("b", {"pppoe": {"session": 1, "mac": "02:00:00:00:00:01"}}),
            false,
        ),
        (
            "v4 and v6 of the same bits",
            record!("a", {"ipv4": ["0.0.0.0/0"]}),
            record!("b", {"ipv6": ["::/0"]}),
            false,
        ),
    ];
    for (name, a, b, excluded) in cases {
        let mut index = KeyIndex::default();
        index.replace(None, Some(&a)).unwrap();
        assert_eq!(index.replace(None, Some(&b)).is_err(), excluded, "{name}");
    }
}

#[test]
fn a_batch_may_hand_keys_from_one_record_to_another() {
    let mut index = KeyIndex::default();
    let (a1, b1) = (record!("a", {"ipv4": ["10.0.0.1"]}), record!("b", {"ipv4": ["10.0.0.2"]}));
    index.apply(&[Edit { old: None, new: Some(&a1) }, Edit { old: None, new: Some(&b1) }]).unwrap();
    let (a2, b2) = (record!("a", {"ipv4": ["10.0.0.2"]}), record!("b", {"ipv4": ["10.0.0.1"]}));
    let swap = [Edit { old: Some(&a1), new: Some(&a2) }, Edit { old: Some(&b1), new: Some(&b2) }];
    index.check(&swap).unwrap();
    assert_eq!(index.holder(&a1.keys().next().unwrap()), Some("a"), "a check changes nothing");
    index.apply(&swap).unwrap();
    assert_eq!(index.holder(&a1.keys().next().unwrap()), Some("b"));
    assert_eq!(index.holder(&b1.keys().next().unwrap()), Some("a"));
}

#[test]
fn a_refused_batch_changes_nothing_and_names_each_bad_edit() {
    let mut index = KeyIndex::default();
    let a = record!("a", {"ipv4": ["10.0.0.1"], "port": "p"});
    let b = record!("b", {"ipv4": ["10.0.0.2"]});
    index.replace(None, Some(&a)).unwrap();
    index.replace(None, Some(&b)).unwrap();
    let c = record!("c", {"ipv4": ["10.0.0.1", "10.0.0.3"]});
    let d = record!("d", {"ipv4": ["10.0.0.3"]});
    let edits = [
        Edit { old: Some(&b), new: None },
        Edit { old: None, new: Some(&c) },
        Edit { old: None, new: Some(&d) },
    ];
    let errors = index.apply(&edits).unwrap_err();
    let told: Vec<_> = errors.iter().map(|(place, conflict)| (*place, conflict.to_string())).collect();
    let expected = [
        (1, "prefix 10.0.0.1/32 of \"c\" is already claimed by \"a\"".to_owned()),
        (2, "prefix 10.0.0.3/32 of \"d\" is already claimed by \"c\"".to_owned()),
    ];
    assert_eq!(told, expected);
    assert_eq!(index.len(), 2);
    assert_eq!(index.holder(&b.keys().next().unwrap()), Some("b"));
    index.replace(Some(&b), None).unwrap();
    index.replace(None, Some(&d)).unwrap();
    assert_eq!(index.holder(&d.keys().next().unwrap()), Some("d"));
}

/// Records from so small a space that claims collide all the time.
fn crowded() -> impl Strategy<Value = Subscriber> {
    let vlan = proptest::option::of((1..3u16, proptest::option::of(1..3u16)));
    let pppoe = proptest::option::of((1..3u16, proptest::option::of(1..3u8)));
    let port = proptest::option::of("[pq]");
    (
        0..6u8,
        proptest::collection::vec(0..4u8, 0..3),
        proptest::collection::vec(0..2u8, 0..2),
        vlan,
        pppoe,
        port,
    )
        .prop_filter("a way to match", |(_, v4, v6, vlan, pppoe, _)| {
            !v4.is_empty() || !v6.is_empty() || vlan.is_some() || pppoe.is_some()
        })
        .prop_map(|(id, v4, v6, vlan, pppoe, port)| {
            record!(&format!("s{id}"), {
                "ipv4": v4.iter().map(|n| format!("10.0.0.{n}")).collect::<Vec<_>>(),
                "ipv6": v6.iter().map(|n| format!("2001:db8:{n}::/48")).collect::<Vec<_>>(),
                "vlan": vlan.map(|(outer, inner)| serde_json::json!({"outer": outer, "inner": inner})),
                "pppoe": pppoe.map(|(session, mac)| serde_json::json!({
                    "session": session, "mac": mac.map(|mac| format!("02:00:00:00:00:0{mac}")) })),
                "port": port,
            })
        })
}

fn excludes(a: &Key<'_>, b: &Key<'_>) -> bool {
    a.what == b.what && a.vlan == b.vlan && (a.port.is_none() || b.port.is_none() || a.port == b.port)
}

/// Whether these records can all be: every pair of keys of two records compared.
fn possible(records: &BTreeMap<String, Subscriber>) -> bool {
    let clash = |a: &Subscriber, b: &Subscriber| a.keys().any(|x| b.keys().any(|y| excludes(&x, &y)));
    records.values().all(|a| records.values().all(|b| a.id == b.id || !clash(a, b)))
}

proptest! {
    #[test]
    fn whole_histories_agree_with_a_naive_search(
        batches in proptest::collection::vec(
            proptest::collection::vec((crowded(), any::<bool>(), any::<bool>()), 1..5), 1..12),
    ) {
        let mut index = KeyIndex::default();
        let mut known: BTreeMap<String, Subscriber> = BTreeMap::new();
        for batch in batches {
            let mut after = known.clone();
            let mut dry = false;
            // The last word on an id counts, as in a bulk load.
            for (subscriber, keep, dry_run) in batch {
                dry = dry_run;
                if keep {
                    after.insert(subscriber.id.clone(), subscriber);
                } else {
                    after.remove(&subscriber.id);
                }
            }
            let ids: std::collections::BTreeSet<_> = known.keys().chain(after.keys()).cloned().collect();
            let edits: Vec<_> = ids
                .iter()
                .map(|id| Edit { old: known.get(id), new: after.get(id) })
                .filter(|edit| edit.old != edit.new)
                .collect();
            let verdict = if dry { index.check(&edits) } else { index.apply(&edits) };
            prop_assert_eq!(verdict.is_ok(), possible(&after));
            if verdict.is_ok() && !dry {
                known = after;
            }
            prop_assert_eq!(index.len(), known.values().map(|subscriber| subscriber.keys().count()).sum::<usize>());
            for subscriber in known.values() {
                for key in subscriber.keys() {
                    prop_assert_eq!(index.holder(&key), Some(subscriber.id.as_str()));
                }
            }
        }
    }
}
