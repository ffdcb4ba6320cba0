// SPDX-License-Identifier: Apache-2.0
//! Records: the contract's own, every refusal, round trips and patches.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const CONTRACT: &str = r#"{"id": "cust-42", "down_bps": 100000000, "up_bps": 20000000, "profile": "default", "parent": null,
 "match": {"ipv4": ["100.64.0.42/32"], "ipv6": ["2001:db8:0:42::/64", "2001:db8:42::/56"],
           "vlan": {"outer": 100, "inner": 42}, "pppoe": {"session": 23, "mac": "02:00:00:00:00:01"}, "port": "access"}}"#;

fn record() -> serde_json::Value {
    serde_json::from_str(CONTRACT).unwrap()
}

#[test]
fn the_record_of_the_contract_comes_back_as_it_went_in() {
    let subscriber = Subscriber::from_json(CONTRACT.as_bytes()).unwrap();
    assert_eq!(subscriber.to_value(), record());
    assert_eq!(Subscriber::from_json(subscriber.to_json().as_bytes()).unwrap(), subscriber);
    let order = subscriber.to_json();
    let places: Vec<_> =
        ["\"id\"", "down_bps", "up_bps", "profile", "parent", "match", "ipv4", "ipv6", "vlan", "pppoe"]
            .iter()
            .map(|name| order.find(name).unwrap())
            .collect();
    assert!(places.is_sorted(), "{order}");
}

#[test]
fn what_may_be_left_out_has_its_default() {
    let json = br#"{"id":"a","down_bps":64000,"up_bps":400000000000,"match":{"vlan":{"outer":1}}}"#;
    let subscriber = Subscriber::from_json(json).unwrap();
    assert_eq!(subscriber.profile, "default");
    assert_eq!(subscriber.parent, None);
    assert_eq!(subscriber.matches.vlan, Some(Vlan { outer: 1, inner: None }));
    let nulls = json!({"id":"a","down_bps":64000,"up_bps":400_000_000_000_u64,"profile":null,"parent":null,
        "match":{"ipv4":null,"ipv6":[],"vlan":{"outer":1,"inner":null},"pppoe":null,"port":null}});
    assert_eq!(Subscriber::from_value(&nulls).unwrap(), subscriber);
}

#[test]
fn prefixes_are_kept_sorted_once_and_hosts_become_prefixes() {
    let json = br#"{"id":"a","down_bps":64000,"up_bps":64000,
        "match":{"ipv4":["10.0.0.9","10.0.0.0/29","10.0.0.9/32"],"ipv6":["2001:DB8::1"]}}"#;
    let value = Subscriber::from_json(json).unwrap().to_value();
    assert_eq!(value["match"]["ipv4"], json!(["10.0.0.0/29", "10.0.0.9/32"]));
    assert_eq!(value["match"]["ipv6"], json!(["2001:db8::1/128"]));
}

/// What a record with `value` at `pointer` is refused for.
fn refusal(pointer: &str, value: serde_json::Value) -> String {
    let mut record = record();
    *record.pointer_mut(pointer).unwrap() = value;
    Subscriber::from_value(&record).expect_err(pointer).to_string()
}

#[test]
fn every_wrong_value_is_refused_with_its_field() {
    let long = "x".repeat(256);
    let cases = [
        ("/id", json!(""), "id: is empty"),
        ("/id", json!(null), "id: is missing"),
        ("/id", json!("a\nb"), "id: \"a\\nb\" has a control character in it or blanks around it"),
        ("/id", json!(" a"), "id: \" a\" has a control character in it or blanks around it"),
        ("/id", json!(long), "id: has 256 bytes; 255 is the most"),
        ("/id", json!("bulk"), "id: \"bulk\" is not free to use as a name"),
        ("/id", json!(".."), "id: \"..\" is not free to use as a name"),
        ("/id", json!(7), "id: invalid type: integer `7`, expected a string"),
        ("/down_bps", json!(63_999), "down_bps: 63999 is not from 64000 to 400000000000 b/s"),
        ("/down_bps", json!(null), "down_bps: is missing"),
        (
            "/down_bps",
            json!(-1),
            "down_bps: invalid value: integer `-1`, expected whole bits per second, for instance 50000000",
        ),
        (
            "/down_bps",
            json!("10M"),
            "down_bps: invalid type: string \"10M\", expected whole bits per second, for instance 50000000",
        ),
        (
            "/match/vlan",
            json!(100),
            "match.vlan: invalid type: integer `100`, expected an object; use {\"outer\": 100} or {\"outer\": 100, \"inner\": 7}",
        ),
        (
            "/match/pppoe",
            json!(7),
            "match.pppoe: invalid type: integer `7`, expected an object; use {\"session\": 7} or {\"session\": 7, \"mac\": \"02:00:00:00:00:01\"}",
        ),
        ("/up_bps", json!(400_000_000_001_u64), "up_bps: 400000000001 is not from 64000 to 400000000000 b/s"),
        (
            "/up_bps",
            json!(1.5e6),
            "up_bps: invalid type: floating point `1500000.0`, expected whole bits per second, for instance 50000000",
        ),
        ("/profile", json!(""), "profile: is empty"),
        ("/parent", json!(""), "parent: is empty"),
        ("/match", json!({}), "match: has no way to match: one of ipv4, ipv6, vlan, pppoe is wanted"),
        (
            "/match",
            json!({"port": "access"}),
            "match: has no way to match: one of ipv4, ipv6, vlan, pppoe is wanted",
        ),
        (
            "/match",
            json!({"ipv4": []}),
            "match: has no way to match: one of ipv4, ipv6, vlan, pppoe is wanted",
        ),
        (
            "/match/ipv4/0",
            json!("10.0.0.1/24"),
            "match.ipv4[0]: \"10.0.0.1/24\" has host bits set; the prefix is \"10.0.0.0/24\"",
        ),
        ("/match/ipv4/0", json!("10.0.0.1/33"), "match.ipv4[0]: \"10.0.0.1/33\" is not an IPv4 prefix"),
        ("/match/ipv4/0", json!("2001:db8::/64"), "match.ipv4[0]: \"2001:db8::/64\" is not an IPv4 prefix"),
        ("/match/ipv4/0", json!(5), "match.ipv4[0]: invalid type: integer `5`, expected a string"),
        (
            "/match/ipv6/1",
            json!("2001:db8::1/64"),
            "match.ipv6[1]: \"2001:db8::1/64\" has host bits set; the prefix is \"2001:db8::/64\"",
        ),
        ("/match/ipv6/1", json!("10.0.0.0/8"), "match.ipv6[1]: \"10.0.0.0/8\" is not an IPv6 prefix"),
        ("/match/vlan/outer", json!(4095), "match.vlan.outer: 4095 is not from 1 to 4094"),
        ("/match/vlan/outer", json!(0), "match.vlan.outer: 0 is not from 1 to 4094"),
        ("/match/vlan/inner", json!(0), "match.vlan.inner: 0 is not from 1 to 4094"),
        ("/match/vlan/inner", json!(4095), "match.vlan.inner: 4095 is not from 1 to 4094"),
        ("/match/vlan/outer", json!(null), "match.vlan.outer: is missing"),
        ("/match/vlan/inner", json!(70_000), "match.vlan.inner: 70000 is not from 1 to 4094"),
        ("/match/pppoe/session", json!(0), "match.pppoe.session: 0 is not from 1 to 65534"),
        ("/match/pppoe/session", json!(65_535), "match.pppoe.session: 65535 is not from 1 to 65534"),
        (
            "/match/pppoe/mac",
            json!("02:00"),
            "match.pppoe.mac: \"02:00\" is not a MAC address: six octets in hexadecimal with colons or hyphens are wanted",
        ),
        (
            "/match/pppoe/mac",
            json!("ff:ff:ff:ff:ff:ff"),
            "match.pppoe.mac: \"ff:ff:ff:ff:ff:ff\" cannot be the subscriber's own: it is a group address or zero",
        ),
        (
            "/match",
            json!([["10.0.0.1"]]),
            "match: invalid type: sequence, expected an object; use {\"ipv4\": [\"100.64.0.42/32\"]}",
        ),
        (
            "/match/vlan",
            json!([1, 2]),
            "match.vlan: invalid type: sequence, expected an object; use {\"outer\": 100} or {\"outer\": 100, \"inner\": 7}",
        ),
        ("/match/port", json!(""), "match.port: is empty"),
    ];
    for (pointer, value, expected) in cases {
        assert_eq!(refusal(pointer, value), expected);
    }
}

#[test]
fn vlans_that_frames_can_carry_are_taken_to_the_last() {
    for vlan in [json!({"outer": 1, "inner": 1}), json!({"outer": 4094, "inner": 4094}), json!({"outer": 1})]
    {
        let mut record = record();
        record["match"]["vlan"] = vlan.clone();
        assert_eq!(Subscriber::from_value(&record).unwrap().to_value()["match"]["vlan"], vlan);
    }
}

#[test]
fn prefixes_with_a_second_reading_are_refused() {
    let zeros = ": it has a number with leading zeros";
    for (text, why) in [
        ("010.9.0.1/32", zeros),
        ("10.09.0.1", zeros),
        ("10.9.0.00/24", zeros),
        ("10.0.0.0/08", zeros),
        ("10.0.0.0/+8", ""),
        ("10.0.0.0/", ""),
        ("10.0.0.0/8/8", ""),
        ("10.0.0/24", ""),
        (" 10.0.0.1", ""),
        ("0x0a.0.0.1", zeros),
    ] {
        let expected = format!("match.ipv4[0]: \"{text}\" is not an IPv4 prefix{why}");
        assert_eq!(refusal("/match/ipv4/0", json!(text)), expected);
    }
    for text in ["2001:db8::/064", "2001:db8::/+64", "2001:00db8::/64", "::ffff:010.0.0.1", "2001:db8::/129"]
    {
        let refused = refusal("/match/ipv6/0", json!(text));
        assert!(refused.contains(&format!("\"{text}\" is not an IPv6 prefix")), "{refused}");
    }
    for (list, text) in
        [("ipv4", "0.0.0.0/0"), ("ipv4", "0.0.0.0"), ("ipv6", "::/0"), ("ipv6", "2001:0db8::/32")]
    {
        let mut record = record();
        record["match"] = json!({list: [text]});
        Subscriber::from_value(&record).unwrap();
    }
}

#[test]
fn names_that_could_pass_for_others_are_refused() {
    let controls = ('\0'..='\u{1f}').chain('\u{7f}'..='\u{9f}');
    let directing =
        ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}').chain(['\u{61c}', '\u{200e}', '\u{200f}']);
    for c in controls.chain(directing) {
        for pointer in ["/id", "/profile", "/match/port"] {
            let refused = refusal(pointer, json!(format!("cust{c}42")));
            assert!(refused.contains("control character") && !refused.contains(c), "{c:?}: {refused}");
        }
    }
    for name in ["Zoë", "客户 42", "عميل", "a/b", "👩\u{200d}💻"] {
        let mut record = record();
        record["id"] = json!(name);
        assert_eq!(Subscriber::from_value(&record).unwrap().id, name);
    }
}

#[test]
fn unknown_fields_are_named_with_their_path() {
    for (pointer, path) in
        [("", "x"), ("/match", "match.x"), ("/match/vlan", "match.vlan.x"), ("/match/pppoe", "match.pppoe.x")]
    {
        let mut record = record();
        record.pointer_mut(pointer).unwrap()["x"] = json!(1);
        let error = Subscriber::from_value(&record).unwrap_err();
        assert_eq!(error.0.first().unwrap().field, path);
        assert!(error.to_string().contains("unknown field `x`"), "{error}");
    }
}

#[test]
fn all_wrong_values_of_a_record_are_told_at_once() {
    let json = br#"{"down_bps":1,"match":{"ipv4":["x","10.0.0.0/8","10.0.0.1/8"],"vlan":{"outer":5000}}}"#;
    let fields: Vec<_> =
        Subscriber::from_json(json).unwrap_err().0.into_iter().map(|error| error.field).collect();
    assert_eq!(fields, ["id", "down_bps", "up_bps", "match.ipv4[0]", "match.ipv4[2]", "match.vlan.outer"]);
}

#[test]
fn wrong_types_and_unknown_fields_are_all_told_with_the_rest() {
    let json = br#"{"id":5,"speed":1,"down_bps":1,"up_bps":64000,
        "match":{"ipv4":[7,"10.0.0.1/8",true],"vlan":[1],"x":0}}"#;
    let fields: Vec<_> =
        Subscriber::from_json(json).unwrap_err().0.into_iter().map(|error| error.field).collect();
    let expected = [
        "id",
        "speed",
        "match.ipv4[0]",
        "match.ipv4[2]",
        "match.vlan",
        "match.x",
        "down_bps",
        "match.ipv4[1]",
    ];
    assert_eq!(fields.len(), expected.len(), "{fields:?}");
    assert!(expected.iter().all(|field| fields.iter().any(|told| told == field)), "{fields:?}");
    let doubled = br#"{"id":"a","id":"b","down_bps":64000,"up_bps":64000,"match":{"ipv4":["10.0.0.1"]}}"#;
    assert!(Subscriber::from_json(doubled).unwrap_err().to_string().starts_with("duplicate field `id`"));
}

#[test]
fn text_that_is_no_json_says_where() {
    let error = |json: &str| Subscriber::from_json(json.as_bytes()).unwrap_err().to_string();
    assert!(error("{\"id\":").contains("not JSON: EOF while parsing a value at column 6"));
    assert!(error("{\n\"id\" 5}").contains("at line 2, column 6"));
    assert_eq!(error("[]"), "invalid type: sequence, expected an object");
    assert_eq!(error("5"), "invalid type: integer `5`, expected an object");
}

#[test]
fn a_merge_patch_changes_what_it_names_and_null_removes() {
    let subscriber = Subscriber::from_json(CONTRACT.as_bytes()).unwrap();
    let patched = subscriber
        .merge_patch(
            &json!({"down_bps": 5_000_000, "profile": null, "match": {"pppoe": null, "vlan": {"inner": 7}}}),
        )
        .unwrap();
    assert_eq!(patched.down_bps, 5_000_000);
    assert_eq!(patched.up_bps, subscriber.up_bps);
    assert_eq!(patched.matches.pppoe, None);
    assert_eq!(patched.matches.vlan, Some(Vlan { outer: 100, inner: Some(7) }));
    assert_eq!(patched.matches.ipv4, subscriber.matches.ipv4);
    assert_eq!(subscriber.merge_patch(&json!({})).unwrap(), subscriber);
    // rates alone take a shorter way to the same record
    let (short, long) = (json!({"up_bps": 64_000}), json!({"up_bps": 64_000, "profile": subscriber.profile}));
    assert_eq!(subscriber.merge_patch(&short).unwrap(), subscriber.merge_patch(&long).unwrap());
    assert!(subscriber.merge_patch(&json!({"up_bps": 63_999})).is_err());
    assert_eq!(subscriber.merge_patch(&json!({"id": "cust-42"})).unwrap(), subscriber);
}

#[test]
fn a_null_for_what_no_record_has_is_refused_too() {
    let subscriber = Subscriber::from_json(CONTRACT.as_bytes()).unwrap();
    let patch = json!({"down": null, "match": {"ipv5": null, "vlan": {"mid": null}, "pppoe": {"id": null}}});
    let error = subscriber.merge_patch(&patch).unwrap_err();
    let fields: Vec<_> = error.0.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["down", "match.ipv5", "match.vlan.mid", "match.pppoe.id"]);
}

#[test]
fn a_patch_that_breaks_the_record_is_refused_with_its_field() {
    let subscriber = Subscriber::from_json(CONTRACT.as_bytes()).unwrap();
    let refused = |patch| subscriber.merge_patch(&patch).unwrap_err().to_string();
    assert_eq!(refused(json!({"down_bps": 1})), "down_bps: 1 is not from 64000 to 400000000000 b/s");
    assert_eq!(refused(json!({"up_bps": null})), "up_bps: is missing");
    assert_eq!(refused(json!({"id": "b"})), "id: \"b\" is not \"cust-42\": a record keeps its id");
    assert_eq!(
        refused(json!({"match": null})),
        "match: has no way to match: one of ipv4, ipv6, vlan, pppoe is wanted"
    );
    assert!(refused(json!({"speed": 1})).starts_with("speed: unknown field"));
    assert_eq!(refused(json!([1])), "a merge patch is a JSON object");
}

/// Any valid record.
pub(crate) fn any_subscriber() -> impl Strategy<Value = Subscriber> {
    let rate = MIN_RATE_BPS..=MAX_RATE_BPS;
    let v4 = (any::<u32>(), 0..=32u8).prop_map(|(addr, len)| Ipv4Net::new(addr.into(), len).unwrap().trunc());
    let v6 =
        (any::<u128>(), 0..=128u8).prop_map(|(addr, len)| Ipv6Net::new(addr.into(), len).unwrap().trunc());
    let vlan =
        (1..=4094u16, proptest::option::of(1..=4094u16)).prop_map(|(outer, inner)| Vlan { outer, inner });
    let mac = any::<[u8; 6]>().prop_map(|mut mac| {
        mac[0] = mac[0] & 0xfe | 2;
        MacAddr(mac)
    });
    let pppoe = (1..=65_534u16, proptest::option::of(mac)).prop_map(|(session, mac)| Pppoe { session, mac });
    let matches = (
        proptest::collection::btree_set(v4, 0..4),
        proptest::collection::btree_set(v6, 0..4),
        proptest::option::of(vlan),
        proptest::option::of(pppoe),
        proptest::option::of("[a-z]{1,8}"),
    );
    let matches = matches.prop_map(|(v4, v6, vlan, pppoe, port)| Match {
        ipv4: v4.into_iter().collect(),
        ipv6: v6.into_iter().collect(),
        vlan,
        pppoe,
        port,
    });
    let narrow = matches.prop_filter("a way to match", |m| {
        !m.ipv4.is_empty() || !m.ipv6.is_empty() || m.vlan.is_some() || m.pppoe.is_some()
    });
    let names = ("[a-zA-Z0-9_./:äß -]{1,20}", "[a-z]{1,8}", proptest::option::of("[a-z]{1,8}"));
    (names, rate.clone(), rate, narrow)
        .prop_map(|((id, profile, parent), down_bps, up_bps, matches)| Subscriber {
            id,
            down_bps,
            up_bps,
            profile,
            parent,
            matches,
        })
        .prop_filter("a good id", |subscriber| check_id(&subscriber.id).is_ok())
}

proptest! {
    #[test]
    fn a_record_survives_json(subscriber in any_subscriber()) {
        let json = subscriber.to_json();
        let back = Subscriber::from_json(json.as_bytes()).unwrap();
        prop_assert_eq!(back.to_json(), json);
        prop_assert_eq!(&back, &subscriber);
        prop_assert_eq!(Subscriber::from_value(&subscriber.to_value()).unwrap(), subscriber);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,60}") {
        let _ = Subscriber::from_json(text.as_bytes());
    }
}
