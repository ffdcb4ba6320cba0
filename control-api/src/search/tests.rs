// SPDX-License-Identifier: Apache-2.0
use std::time::Duration;

use serde_json::{Value, json};

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "literals")]
fn subscriber(id: &str, matches: Value) -> Subscriber {
    let record = json!({"id": id, "down_bps": 1_000_000, "up_bps": 1_000_000, "match": matches});
    Subscriber::from_value(&record).unwrap()
}

fn put(index: &Index, old: Option<&Subscriber>, new: &Subscriber) {
    let id = Arc::from(new.id.as_str());
    index.apply([Edit { id: &id, old, new: Some(new) }].into_iter());
}

fn remove(index: &Index, old: &Subscriber) {
    let id = Arc::from(old.id.as_str());
    index.apply([Edit { id: &id, old: Some(old), new: None }].into_iter());
}

fn of(records: &[Subscriber]) -> Index {
    let index = Index::default();
    for record in records {
        put(&index, None, record);
    }
    index
}

fn find(index: &Index, text: &str) -> Vec<String> {
    let found = index.search(&Query::read(text).unwrap(), 10);
    assert!(!found.more);
    found.ids.iter().map(|(by, id)| format!("{} {id}", by.label())).collect()
}

#[test]
fn an_address_finds_every_prefix_around_it_the_longest_first() {
    let index = of(&[
        subscriber("wide", json!({"ipv4": ["100.64.0.0/16"], "ipv6": ["2001:db8::/32"]})),
        subscriber("host", json!({"ipv4": ["100.64.0.9/32"], "ipv6": ["2001:db8:0:42::/64"]})),
        subscriber("pair", json!({"ipv4": ["100.64.0.8/31"], "ipv6": ["2001:db8:0:42:8000::/65"]})),
        subscriber("other", json!({"ipv4": ["100.65.0.9/32"], "ipv6": ["2001:db9::/64"]})),
        subscriber("all", json!({"ipv4": ["0.0.0.0/0"], "ipv6": ["::/0"]})),
    ]);
    assert_eq!(find(&index, "100.64.0.9"), ["address host", "address pair", "address wide", "address all"]);
    assert_eq!(
        find(&index, "2001:db8:0:42:8000::1"),
        ["address pair", "address host", "address wide", "address all"]
    );
    assert_eq!(find(&index, "2001:db8:0:42::1"), ["address host", "address wide", "address all"]);
    // a prefix finds what lies in it as well
    assert_eq!(
        find(&index, "100.64.0.8/30"),
        ["address host", "address pair", "address wide", "address all"]
    );
}

#[test]
fn a_vlan_is_found_outside_and_inside_and_a_pair_whole() {
    let index = of(&[
        subscriber("pair", json!({"vlan": {"outer": 100, "inner": 7}})),
        subscriber("next", json!({"vlan": {"outer": 100, "inner": 8}})),
        subscriber("outer", json!({"vlan": {"outer": 100}, "ipv4": ["10.0.0.0/8"]})),
        subscriber("inner", json!({"vlan": {"outer": 9, "inner": 100}})),
    ]);
    assert_eq!(find(&index, "vlan:100"), ["vlan outer", "vlan next", "vlan pair", "vlan inner"]);
    assert_eq!(find(&index, "100.7"), ["vlan pair", "vlan outer"]);
    assert_eq!(find(&index, "vlan:7"), ["vlan pair"]);
}

#[test]
fn a_session_is_found_by_its_number_and_its_mac() {
    let index = of(&[
        subscriber("a", json!({"pppoe": {"session": 23, "mac": "02:00:00:00:00:01"}})),
        subscriber("b", json!({"pppoe": {"session": 24}})),
    ]);
    assert_eq!(find(&index, "pppoe:23"), ["pppoe a"]);
    assert_eq!(find(&index, "02:00:00:00:00:01"), ["pppoe a"]);
    assert_eq!(find(&index, "mac:02:00:00:00:00:02"), [""; 0]);
}

#[test]
fn names_are_found_whole_then_by_their_begin_then_inside_in_any_case() {
    let ids = ["42", "Cust-42", "cust-142", "cust-420", "420", "cust-7"];
    let records: Vec<_> =
        (0u8..).zip(ids).map(|(n, id)| subscriber(id, json!({"ipv4": [format!("10.0.0.{n}")]}))).collect();
    let index = of(&records);
    assert_eq!(find(&index, "id:42"), ["id 42", "id 420", "id Cust-42", "id cust-142", "id cust-420"]);
    assert_eq!(find(&index, "cUST-42"), ["id Cust-42", "id cust-420"]);
    assert_eq!(find(&index, "-42\ncust"), [""; 0]);
    assert_eq!(find(&index, ""), [""; 0]);
    let few = index.search(&Query::read("cust").unwrap(), 2);
    assert_eq!((few.ids.len(), few.more), (2, true));
}

#[test]
fn changes_are_seen_and_holes_are_closed() {
    let record = |n: u32, third: u8| {
        let [_, _, a, b] = n.to_be_bytes();
        subscriber(&format!("cust-{n}"), json!({"ipv4": [format!("10.{third}.{a}.{b}")]}))
    };
    let index = Index::default();
    for n in 0..10_000 {
        put(&index, None, &record(n, 0));
    }
    put(&index, Some(&record(7, 0)), &record(7, 1));
    assert_eq!(find(&index, "10.0.0.7"), [""; 0]);
    assert_eq!(find(&index, "10.1.0.7"), ["address cust-7"]);
    for n in 10..10_000 {
        remove(&index, &record(n, 0));
    }
    let columns = index.read();
    assert!(columns.v4.len() < 5_000 && columns.names.ids.len() == columns.v4.len());
    assert_eq!(columns.slots.len(), 10);
    drop(columns);
    assert_eq!(find(&index, "10.0.0.9"), ["address cust-9"]);
    assert_eq!(find(&index, "id:cust-7"), ["id cust-7"]);
    assert_eq!(find(&index, "10.0.39.15"), [""; 0]);
}

/// Time that this thread had a CPU: what others do beside it does not count.
fn cpu() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(told.split(' ').next().unwrap().parse().unwrap())
}

/// Two IPv6 prefixes, an IPv4 address and a VLAN pair each.
fn a_million() -> Index {
    let index = Index::default();
    let mut columns = index.write();
    for n in 0..1_000_000_u32 {
        let [_, a, b, _] = n.to_be_bytes();
        let v6 = |base: u128, shift: u32| (base + (u128::from(n) << shift)).into();
        let matches = Match {
            ipv4: vec![Ipv4Net::new_assert((0x0a00_0000 + n).into(), 32)],
            ipv6: vec![
                Ipv6Net::new_assert(v6(0x2001_0db8 << 96, 64), 64),
                Ipv6Net::new_assert(v6(0x2001_0db9 << 96, 72), 56),
            ],
            vlan: Some(Vlan { outer: u16::from(a) + 1, inner: Some(u16::from(b) + 1) }),
            ..Match::default()
        };
        columns.insert(&Arc::from(format!("cust-{n:07}")), &matches);
    }
    drop(columns);
    index
}

/// The promise is 50 ms in a release build; tests run with fewer optimisations.
#[test]
fn a_million_records_are_searched_in_milliseconds() {
    let index = a_million();
    let texts =
        ["10.15.1.2", "2001:db9:5:100::1", "vlan:9.9", "cust-0999999", "99-9", "10.0.0.0/8", "st-0", "c"];
    for text in texts {
        let query = Query::read(text).unwrap();
        let best = (0..3).map(|_| {
            let begin = cpu();
            let found = index.search(&query, 50);
            assert_eq!(found.ids.is_empty(), text == "99-9", "{text}");
            cpu().saturating_sub(begin)
        });
        let best = best.min().unwrap();
        println!("{text}: {best:?}");
        assert!(best < Duration::from_millis(100), "{text}: {best:?}");
    }
}
