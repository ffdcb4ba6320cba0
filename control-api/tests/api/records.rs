// SPDX-License-Identifier: Apache-2.0
//! One record at a time.

use std::sync::atomic::Ordering;

use control_api::Edit;
use serde_json::{Value, json};

use crate::rig::{Rig, record};

const PATH: &str = "/v1/subscribers/cust-1";

#[test]
fn a_record_is_created_read_replaced_patched_and_removed() {
    let rig = Rig::new();
    let created = rig.client.call("PUT", PATH, record("cust-1", 1).to_string());
    assert_eq!(created.json(201), record("cust-1", 1));
    assert_eq!(rig.client.get(PATH).json(200), record("cust-1", 1));
    assert_eq!(rig.shaper.records()["cust-1"].down_bps, 100_000_000);

    let mut changed = record("cust-1", 1);
    changed["up_bps"] = json!(30_000_000);
    assert_eq!(rig.client.call("PUT", PATH, changed.to_string()).json(200), changed);

    changed["down_bps"] = json!(64_000);
    let merge = rig.client.with("content-type", "application/merge-patch+json");
    assert_eq!(merge.call("PATCH", PATH, r#"{"down_bps":64000}"#).json(200), changed);
    assert_eq!(rig.shaper.records()["cust-1"].down_bps, 64_000);
    assert_eq!(rig.client.get(PATH).json(200), changed);

    let gone = rig.client.call("DELETE", PATH, "");
    assert_eq!((gone.status, gone.body.len()), (204, 0));
    assert_eq!(rig.client.get(PATH).field(404), "id");
    assert!(rig.shaper.records().is_empty());
}

#[test]
fn a_put_of_the_same_record_changes_nothing() {
    let rig = Rig::new();
    let first = rig.client.call("PUT", PATH, record("cust-1", 1).to_string());
    let batches = rig.shaper.take_batches().len();
    let again = rig.client.call("PUT", PATH, record("cust-1", 1).to_string());
    assert_eq!((first.status, again.status, batches), (201, 200, 1));
    assert_eq!(first.header("etag"), again.header("etag"));
    assert_eq!(rig.shaper.take_batches(), Vec::<Vec<Edit>>::new());
}

#[test]
fn defaults_and_the_name_may_be_left_out_of_a_put() {
    let rig = Rig::new();
    let body = json!({"down_bps": 1_000_000, "up_bps": 1_000_000, "match": {"vlan": {"outer": 7}, "port": "access"}});
    let stored = rig.client.call("PUT", PATH, body.to_string()).json(201);
    let expected = json!({"id": "cust-1", "down_bps": 1_000_000, "up_bps": 1_000_000, "profile": "default",
        "parent": null, "match": {"vlan": {"outer": 7}, "port": "access"}});
    assert_eq!(stored, expected);
}

#[test]
fn names_are_percent_decoded() {
    let rig = Rig::new();
    let path = "/v1/subscribers/b%C3%BCro%2F1%20a";
    let mut body = record("büro/1 a", 1);
    assert_eq!(rig.client.call("PUT", path, body.to_string()).json(201)["id"], "büro/1 a");
    assert_eq!(rig.client.get(path).status, 200);
    body["id"] = json!("other");
    assert_eq!(rig.client.call("PUT", path, body.to_string()).field(422), "id");
    assert_eq!(rig.client.get("/v1/subscribers/%ff").field(400), "id");
}

#[test]
fn every_wrong_record_names_its_field() {
    let rig = Rig::new();
    rig.put("taken", 9);
    let cases = [
        (json!({"down_bps": 1}), "down_bps"),
        (json!({"up_bps": 400_000_000_001_u64}), "up_bps"),
        (json!({"down_bps": "fast"}), "down_bps"),
        (json!({"colour": "red"}), "colour"),
        (json!({"profile": "gold"}), "profile"),
        (json!({"parent": "pon-1"}), "parent"),
        (json!({"match": {}}), "match"),
        (json!({"match": {"ipv4": ["10.0.0.1/8"]}}), "match.ipv4[0]"),
        (json!({"match": {"ipv4": ["10.0.0.0/8"], "port": "core"}}), "match.port"),
        (json!({"match": {"vlan": {"outer": 4095}}}), "match.vlan.outer"),
        (json!({"id": "cust-2"}), "id"),
    ];
    for (change, field) in cases {
        let mut body = record("cust-1", 1);
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        assert_eq!(rig.client.call("PUT", PATH, body.to_string()).field(422), field, "{change}");
    }
    let path = "/v1/subscribers/taken";
    assert_eq!(rig.client.call("PATCH", path, r#"{"parent":"pon-1"}"#).field(422), "parent");
    assert_eq!(rig.client.call("PATCH", path, r#"{"id":"x"}"#).field(422), "id");
    assert_eq!(rig.client.call("PATCH", path, r#"{"match":{"ipv4":null}}"#).field(422), "match");
    rig.client.call("PATCH", path, "[]").problem(422);
    rig.client.call("PATCH", path, "{").problem(400);
    rig.client.call("PUT", PATH, "{\"id\":").problem(400);
    rig.client.call("PUT", PATH, "").problem(400);
    rig.client.call("PATCH", PATH, "{}").problem(404);
    rig.client.call("DELETE", PATH, "").problem(404);
    assert_eq!(rig.all(), [record("taken", 9)]);
    assert_eq!(rig.shaper.records().len(), 1);
}

#[test]
fn two_claims_of_one_key_are_refused_naming_both() {
    let rig = Rig::new();
    rig.put("cust-1", 1);
    let reply = rig.client.call("PUT", "/v1/subscribers/cust-2", record("cust-2", 1).to_string());
    let problem = reply.problem(409);
    assert_eq!(problem["ids"], json!(["cust-2", "cust-1"]));
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains("cust-1") && detail.contains("cust-2") && detail.contains("10.0.0.1/32"),
        "{detail}"
    );
    rig.put("cust-2", 2);
    let patch = json!({"match": {"ipv4": ["10.0.0.1/32"]}}).to_string();
    rig.client.call("PATCH", "/v1/subscribers/cust-2", patch).problem(409);
    // The key is free again once its holder gives it up, and the refused one kept its own.
    rig.client.call("DELETE", "/v1/subscribers/cust-1", "");
    rig.put("cust-3", 1);
    rig.client.call("PUT", "/v1/subscribers/cust-4", record("cust-4", 2).to_string()).problem(409);
}

#[test]
fn preconditions_are_honoured() {
    let rig = Rig::new();
    let client = &rig.client;
    let body = |up_bps: u32| {
        let mut body = record("cust-1", 1);
        body["up_bps"] = json!(up_bps);
        body.to_string()
    };
    assert_eq!(client.with("if-match", "*").call("PUT", PATH, body(70_000)).field(412), "if-match");
    let create = client.with("if-none-match", "*");
    assert_eq!(create.call("PUT", PATH, body(70_000)).status, 201);
    assert_eq!(create.call("PUT", PATH, body(80_000)).field(412), "if-none-match");
    let old = client.get(PATH).header("etag").to_owned();
    assert_eq!(client.with("if-match", &old).call("PUT", PATH, body(90_000)).status, 200);
    let new = client.get(PATH).header("etag").to_owned();
    assert_ne!(old, new);
    for (method, body) in [("PUT", body(91_000)), ("PATCH", body(92_000)), ("DELETE", String::new())] {
        assert_eq!(client.with("if-match", &old).call(method, PATH, body).field(412), "if-match", "{method}");
    }
    let unchanged = client.with("if-none-match", &new).get(PATH);
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    assert_eq!(client.with("if-none-match", &old).get(PATH).status, 200);
    assert_eq!(client.with("if-match", "bare").call("DELETE", PATH, "").field(400), "if-match");
    assert_eq!(client.get(PATH).json(200)["up_bps"], 90_000);
    assert_eq!(client.with("if-match", &new).call("DELETE", PATH, "").status, 204);
}

#[test]
fn pages_walk_through_all_records_in_order() {
    let rig = Rig::new();
    let lines: Vec<_> = (0..2500).map(|n| record(&format!("s{n:05}"), n).to_string()).collect();
    rig.client.call("POST", "/v1/subscribers/bulk?mode=upsert", lines.join("\n")).json(200);
    let mut seen = Vec::new();
    let mut path = "/v1/subscribers?limit=700&after=".to_owned();
    loop {
        let page = rig.client.get(&path).json(200);
        assert_eq!(page["total"], 2500);
        seen.extend(
            page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()),
        );
        match &page["next"] {
            Value::Null => break,
            next => path = format!("/v1/subscribers?limit=700&after={}", next.as_str().unwrap()),
        }
    }
    assert_eq!(seen, (0..2500).map(|n| format!("s{n:05}")).collect::<Vec<_>>());
    assert_eq!(rig.client.get("/v1/subscribers").json(200)["items"].as_array().unwrap().len(), 100);
    assert_eq!(rig.all().len(), 2500);
    let past = rig.client.get("/v1/subscribers?after=t").json(200);
    assert_eq!(past, json!({"total": 2500, "items": [], "next": null}));
    for (query, field) in
        [("limit=0", "limit"), ("limit=x", "limit"), ("limit=1&limit=2", "limit"), ("page=2", "page")]
    {
        assert_eq!(rig.client.get(&format!("/v1/subscribers?{query}")).field(400), field);
    }
}

#[test]
fn a_record_that_says_something_twice_is_refused_however_it_comes() {
    let rig = Rig::new();
    rig.put("a", 1);
    let (before, path) = (rig.all(), "/v1/subscribers/a");
    let rest = r#""up_bps": 64000, "match": {"ipv4": ["10.0.0.1"]}"#;
    for (method, body) in [
        ("PUT", format!(r#"{{"down_bps": 64000, "down_bps": 65000, {rest}}}"#)),
        ("PUT", format!(r#"{{"id": "a", "down_bps": 64000, "down_bps": 65000, {rest}}}"#)),
        ("PUT", format!(r#"{{"id": "a", "id": "a", "down_bps": 64000, {rest}}}"#)),
        (
            "PUT",
            r#"{"down_bps": 64000, "up_bps": 64000, "match": {"vlan": {"outer": 1, "outer": 2}}}"#.to_owned(),
        ),
        ("PATCH", r#"{"down_bps": 64000, "down_bps": 65000}"#.to_owned()),
        ("PATCH", r#"{"match": {"vlan": {"outer": 1, "outer": 2}}}"#.to_owned()),
        ("PATCH", r#"{"match": null, "match": {"ipv4": ["10.0.0.9"]}}"#.to_owned()),
    ] {
        let problem = rig.client.call(method, path, body.clone()).problem(422);
        assert!(problem["detail"].as_str().unwrap().contains("duplicate field"), "{body}: {problem}");
    }
    assert_eq!(rig.all(), before);
}

#[test]
fn what_the_data_plane_refuses_is_left_nowhere() {
    let rig = Rig::new();
    rig.put("cust-1", 1);
    let refused = rig.client.call("PUT", "/v1/subscribers/refuse-me", record("refuse-me", 2).to_string());
    assert!(refused.problem(422)["detail"].as_str().unwrap().contains("told to"));
    let panicked = rig.client.call("PUT", "/v1/subscribers/panic-me", record("panic-me", 2).to_string());
    panicked.problem(503);
    rig.shaper.capacity.store(1, Ordering::SeqCst);
    rig.client.call("PUT", "/v1/subscribers/cust-2", record("cust-2", 2).to_string()).problem(507);
    rig.shaper.capacity.store(9, Ordering::SeqCst);
    // Neither memory (its key is free), nor store (restart), nor the data plane kept any of them.
    rig.put("cust-3", 2);
    assert_eq!(rig.all(), [record("cust-1", 1), record("cust-3", 2)]);
    let rig = rig.restart();
    assert_eq!(rig.all(), [record("cust-1", 1), record("cust-3", 2)]);
}

#[test]
fn many_clients_at_once_each_get_their_own_answer() {
    let rig = Rig::new();
    std::thread::scope(|scope| {
        for worker in 0..8_u32 {
            let client = rig.client.clone();
            scope.spawn(move || {
                for n in 0..25 {
                    let id = format!("w{worker}-{n}");
                    let body = record(&id, worker * 100 + n).to_string();
                    assert_eq!(client.call("PUT", &format!("/v1/subscribers/{id}"), body).status, 201);
                    // All want this one; exactly one may have it.
                    let contested = record(&id, 5000).to_string();
                    let status = client.call("PUT", &format!("/v1/subscribers/{id}"), contested).status;
                    assert!(status == 200 || status == 409, "{status}");
                    // Refused in the midst of others' changes, it must not take them along.
                    let refuse = format!("refuse-{id}");
                    let body = record(&refuse, 6000 + worker * 100 + n).to_string();
                    assert_eq!(client.call("PUT", &format!("/v1/subscribers/{refuse}"), body).status, 422);
                }
            });
        }
    });
    let all = rig.all();
    assert_eq!(all.len(), 200);
    let contested = all.iter().filter(|item| item["match"]["ipv4"][0] == "10.0.19.136/32").count();
    assert_eq!(contested, 1);
    assert_eq!(rig.shaper.records().len(), 200);
    assert_eq!(rig.restart().all(), all);
}
