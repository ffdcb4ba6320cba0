// SPDX-License-Identifier: Apache-2.0
//! The dashboard's files, and the calls that are there for it.

use model::stats::{Event, EventKind};
use serde_json::{Value, json};

use crate::rig::{Rig, record, soon};

#[test]
fn the_page_and_its_files_are_served_with_a_policy_that_lets_nothing_else_in() {
    let rig = Rig::new();
    let page = rig.client.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert!(page.text().starts_with("<!doctype html>"));
    let files = ["app.js", "style.css", "icon.svg", "uPlot.js"].map(|name| format!("/assets/{name}"));
    for path in files.iter().map(String::as_str).chain(["/"]) {
        let reply = rig.client.get(path);
        assert_eq!(reply.status, 200, "{path}");
        let policy = reply.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert_eq!(reply.header("cache-control"), "no-cache");
        let etag = reply.header("etag").to_owned();
        let again = rig.client.with("if-none-match", &etag).get(path);
        assert_eq!((again.status, again.body.len(), again.header("etag")), (304, 0, etag.as_str()));
        assert_eq!(rig.client.with("if-none-match", "\"other\"").get(path).body, reply.body);
    }
    assert_eq!(rig.client.get("/assets/none.js").field(404), "id");
}

/// `by` and `id` of all that was found.
fn found(rig: &Rig, query: &str) -> Vec<(String, String)> {
    let body = rig.client.get(&format!("/v1/search?{query}")).json(200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = body["items"].as_array().unwrap();
    items.iter().map(|item| (text(&item["by"]), text(&item["subscriber"]["id"]))).collect()
}

fn pair(by: &str, id: &str) -> (String, String) {
    (by.to_owned(), id.to_owned())
}

#[test]
fn records_are_found_as_they_are_now_and_after_a_restart() {
    let rig = Rig::new();
    (0..20).for_each(|n| rig.put(&format!("cust-{n}"), n));
    let vlan =
        json!({"id": "v", "down_bps": 1_000_000, "up_bps": 1_000_000, "match": {"vlan": {"outer": 9}}});
    rig.client.call("PUT", "/v1/subscribers/v", vlan.to_string()).json(201);
    assert_eq!(found(&rig, "q=10.0.0.7"), [pair("address", "cust-7")]);
    assert_eq!(found(&rig, "q=vlan:9"), [pair("vlan", "v")]);
    assert_eq!(found(&rig, "q=CUST-1&limit=3"), ["cust-1", "cust-10", "cust-11"].map(|id| pair("id", id)));
    assert_eq!(rig.client.get("/v1/search?q=cust&limit=3").json(200)["more"], true);
    // a new rate changes nothing of it, a new address does
    let patch = |body: Value| rig.client.call("PATCH", "/v1/subscribers/cust-7", body.to_string()).json(200);
    patch(json!({"down_bps": 5_000_000}));
    assert_eq!(found(&rig, "q=10.0.0.7"), [pair("address", "cust-7")]);
    patch(json!({"match": {"ipv4": ["10.9.9.0/24"]}}));
    assert_eq!(found(&rig, "q=10.0.0.7"), []);
    assert_eq!(found(&rig, "q=10.9.9.77"), [pair("address", "cust-7")]);
    rig.client.call("DELETE", "/v1/subscribers/v", "");
    assert_eq!(found(&rig, "q=vlan:9"), []);
    let bulk = [record("new-1", 101), record("new-2", 102)].map(|record| record.to_string()).join("\n");
    rig.client.call("POST", "/v1/subscribers/bulk?mode=replace", bulk).json(200);
    assert_eq!(found(&rig, "q=cust"), []);
    let rig = rig.restart();
    assert_eq!(found(&rig, "q=10.0.0.102"), [pair("address", "new-2")]);
}

#[test]
fn a_search_says_what_is_wrong_with_it() {
    let rig = Rig::new();
    for (query, field) in [
        ("", "q"),
        ("q=", "q"),
        ("q=vlan:5000", "q"),
        ("q=ip:nothing", "q"),
        ("q=a&limit=0", "limit"),
        ("q=a&limit=1001", "limit"),
        ("q=a&after=b", "after"),
    ] {
        assert_eq!(rig.client.get(&format!("/v1/search?{query}")).field(400), field, "{query}");
    }
    assert_eq!(found(&rig, "q=%20"), []);
}

#[test]
fn the_summary_tells_what_is_new_and_first_of_all_everything() {
    let rig = Rig::new();
    let kind = EventKind::Link { port: "core".into(), up: false, speed_bps: None };
    rig.put("cust-1", 1);
    let summary = |query: &str| rig.client.get(&format!("/v1/summary{query}")).json(200);
    assert!(soon(|| summary("")["next"].as_u64() >= Some(2)));
    rig.shaper.events.send(Event { at_ms: 5, kind }).unwrap();
    assert!(soon(|| summary("")["events"].as_array().is_some_and(|events| events.len() == 2)));
    let all = summary("");
    let next = all["next"].as_u64().unwrap();
    assert_eq!(all["series"]["at_ms"].as_array().map(Vec::len), Some(usize::try_from(next).unwrap()));
    assert_eq!(all["series"]["ports"]["clock_speed"][0], json!([0.5]));
    assert_eq!(all["recent"]["subscribers"]["configured"], 1);
    assert_eq!((&all["events"][0]["event"], &all["events"][0]["created"]), (&json!("config"), &json!(1)));
    assert_eq!((&all["lcores"][0]["busy_ratio"], &all["reasons"]), (&json!(0.25), &json!([])));
    assert!(soon(|| summary(&format!("?after={next}"))["series"]["at_ms"].is_array()));
    let new = summary(&format!("?after={next}"));
    assert!(new["series"]["at_ms"].as_array().unwrap().len() < 20 && new.get("events").is_none());
    // of another start of this program: everything again
    assert!(summary("?after=1000000").get("events").is_some());
    assert_eq!(rig.client.get("/v1/summary?after=x").field(400), "after");
}
