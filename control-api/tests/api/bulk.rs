// SPDX-License-Identifier: Apache-2.0
//! Many records at once.

use serde_json::{Value, json};

use control_api::Edit;

use crate::rig::{Rig, record};

const UPSERT: &str = "/v1/subscribers/bulk?mode=upsert";
const REPLACE: &str = "/v1/subscribers/bulk?mode=replace";

fn lines(records: &[Value]) -> String {
    let lines: Vec<_> = records.iter().map(Value::to_string).collect();
    lines.join("\n")
}

fn counts(report: &Value) -> [u64; 4] {
    ["created", "updated", "deleted", "unchanged"].map(|name| report[name].as_u64().unwrap())
}

#[test]
fn the_difference_is_found_here_and_only_it_travels() {
    let rig = Rig::new();
    let mut set: Vec<_> = (0..6).map(|n| record(&format!("c{n}"), n)).collect();
    let report = rig.client.call("POST", REPLACE, lines(&set)).json(200);
    assert_eq!((counts(&report), &report["errors"]), ([6, 0, 0, 0], &json!([])));
    rig.shaper.take_batches();

    set[1]["down_bps"] = json!(1_000_000);
    set.remove(5);
    set.push(record("d0", 50));
    let dry = rig.client.call("POST", &format!("{REPLACE}&dry_run=true"), lines(&set)).json(200);
    assert_eq!((counts(&dry), &dry["dry_run"]), ([1, 1, 1, 4], &json!(true)));
    assert_eq!((rig.shaper.take_batches().len(), rig.all().len()), (0, 6));

    let report = rig.client.call("POST", REPLACE, lines(&set)).json(200);
    assert_eq!(counts(&report), [1, 1, 1, 4]);
    let batches = rig.shaper.take_batches();
    let edits: Vec<_> = batches.iter().flatten().map(Edit::id).collect();
    assert_eq!(edits, ["c5", "c1", "d0"]);
    assert_eq!(rig.all(), set);

    let report = rig.client.call("POST", UPSERT, lines(&[record("e0", 60), record("c0", 0)])).json(200);
    assert_eq!(counts(&report), [1, 0, 0, 1]);
    assert_eq!(rig.all().len(), 7);
    assert_eq!(rig.restart().all().len(), 7);
}

#[test]
fn one_bad_line_of_a_thousand_changes_nothing() {
    let rig = Rig::new();
    rig.put("old", 9_000);
    let before = rig.all();
    rig.shaper.take_batches();
    let mut set: Vec<_> = (0..1000).map(|n| record(&format!("c{n}"), n)).collect();
    set[499]["down_bps"] = json!(3);
    for path in [UPSERT, REPLACE] {
        let problem = rig.client.call("POST", path, lines(&set)).problem(422);
        assert_eq!(counts(&problem), [0; 4]);
        let errors = problem["errors"].as_array().unwrap();
        assert_eq!(errors.len(), 1);
        assert_eq!(
            (&errors[0]["line"], &errors[0]["field"], &errors[0]["id"]),
            (&json!(500), &json!("down_bps"), &json!("c499"))
        );
        assert!(errors[0]["error"].as_str().unwrap().contains("64000"));
    }
    assert_eq!((rig.all(), rig.shaper.take_batches().len()), (before.clone(), 0));
    // No key was left claimed by what was refused.
    set[499] = record("c499", 499);
    assert_eq!(counts(&rig.client.call("POST", UPSERT, lines(&set)).json(200)), [1000, 0, 0, 0]);
}

#[test]
fn every_kind_of_wrong_line_is_reported_with_its_number() {
    let rig = Rig::new();
    rig.put("holder", 77);
    let body = [
        record("a", 1).to_string(),
        "not json".to_owned(),
        String::new(),
        record("a", 2).to_string(),
        record("b", 77).to_string(),
        record("c", 1).to_string(),
        json!({"id": "d", "parent": "pon", "down_bps": 70_000, "up_bps": 70_000, "match": {"vlan": {"outer": 1}}}).to_string(),
        format!("{{\"id\":\"{}\"}}", "x".repeat(70_000)),
        "[]".to_owned(),
    ];
    let problem = rig.client.call("POST", UPSERT, body.join("\r\n")).problem(422);
    let errors = problem["errors"].as_array().unwrap();
    let at: Vec<_> = errors.iter().map(|error| error["line"].as_u64().unwrap()).collect();
    assert_eq!(at, [2, 4, 5, 6, 7, 8, 9]);
    let texts: Vec<_> = errors.iter().map(|error| error["error"].as_str().unwrap()).collect();
    assert!(texts[1].contains("line 1"), "{texts:?}");
    assert!(texts[2].contains("holder") && texts[2].contains("\"b\""), "{texts:?}");
    assert!(texts[3].contains("\"a\"") && texts[3].contains("\"c\""), "{texts:?}");
    assert!(texts[4].contains("parent"), "{texts:?}");
    assert!(texts[5].contains("longer"), "{texts:?}");
    assert_eq!(rig.all().len(), 1);
}

#[test]
fn addresses_may_swap_within_one_request() {
    let rig = Rig::new();
    let swapped = [record("a", 2), record("b", 3), record("c", 1)];
    rig.client.call("POST", REPLACE, lines(&[record("a", 1), record("b", 2), record("c", 3)])).json(200);
    assert_eq!(counts(&rig.client.call("POST", UPSERT, lines(&swapped)).json(200)), [0, 3, 0, 0]);
    assert_eq!(rig.all(), swapped);
    // A newcomer may take what a removed record had.
    let taken_over = [record("z", 1)];
    assert_eq!(counts(&rig.client.call("POST", REPLACE, lines(&taken_over)).json(200)), [1, 0, 3, 0]);
}

#[test]
fn a_bulk_that_the_data_plane_refuses_is_taken_back_whole() {
    let rig = Rig::new();
    rig.put("a", 1);
    let before = rig.all();
    let set = [record("a", 9), record("b", 2), record("refuse-c", 3)];
    rig.client.call("POST", REPLACE, lines(&set)).problem(422);
    assert_eq!(rig.all(), before);
    assert_eq!(counts(&rig.client.call("POST", UPSERT, lines(&set[..2])).json(200)), [1, 1, 0, 0]);
    let rig = rig.restart();
    assert_eq!(rig.all(), set[..2]);
}

#[test]
fn the_number_of_listed_errors_is_bounded() {
    let rig = Rig::with(|options| options.limits.bulk_errors = 3);
    let problem = rig.client.call("POST", UPSERT, "x\n".repeat(10)).problem(422);
    assert_eq!(problem["errors"].as_array().unwrap().len(), 3);
    assert_eq!(problem["errors_left_out"], 7);
}

#[test]
fn parameters_media_types_and_an_empty_body() {
    let rig = Rig::new();
    for (query, field) in [("mode=merge", "mode"), ("dry_run=maybe", "dry_run"), ("dry=1", "dry")] {
        assert_eq!(rig.client.call("POST", &format!("/v1/subscribers/bulk?{query}"), "").field(400), field);
    }
    for kind in ["application/x-ndjson", "application/json", "application/jsonl"] {
        let client = rig.client.with("content-type", kind);
        client.call("POST", "/v1/subscribers/bulk", record("a", 1).to_string()).json(200);
    }
    let form = rig.client.with("content-type", "application/x-www-form-urlencoded");
    assert_eq!(form.call("POST", UPSERT, "").field(415), "content-type");
    assert_eq!(counts(&rig.client.call("POST", REPLACE, "\n\n").json(200)), [0, 0, 1, 0]);
}
