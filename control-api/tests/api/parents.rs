// SPDX-License-Identifier: Apache-2.0
//! Aggregates: in the manner of subscribers, and never such that a name leads nowhere.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fake::{Fake, PARENTS};
use crate::rig::{Rig, record};

const SITE: &str = "/v1/parents/site";
const PON: &str = "/v1/parents/pon";

fn parent(id: &str, above: Option<&str>) -> Value {
    json!({"id": id, "parent": above, "down_bps": 1_000_000_000, "up_bps": 500_000_000})
}

impl Rig {
    #[track_caller]
    fn put_parent(&self, id: &str, above: Option<&str>) {
        let reply = self.client.call("PUT", &format!("/v1/parents/{id}"), parent(id, above).to_string());
        assert!(reply.status == 200 || reply.status == 201, "{}", reply.text());
    }
}

fn below(id: &str, number: u32, above: &str) -> Value {
    let mut body = record(id, number);
    body["parent"] = json!(above);
    body
}

#[test]
fn an_aggregate_is_created_replaced_patched_and_deleted() {
    let rig = Rig::new();
    let created = rig.client.call("PUT", SITE, r#"{"down_bps":1000000000,"up_bps":500000000}"#);
    assert_eq!(created.json(201), parent("site", None));
    let tag = created.header("etag").to_owned();
    let shown = rig.client.get(SITE);
    assert_eq!((shown.json(200), shown.header("etag")), (parent("site", None), &*tag));
    assert_eq!(rig.client.with("if-none-match", &tag).get(SITE).status, 304);
    let same = rig.client.call("PUT", SITE, parent("site", None).to_string());
    assert_eq!((same.status, same.header("etag")), (200, &*tag));
    rig.put_parent("pon", Some("site"));
    let patched = rig.client.call("PATCH", PON, r#"{"down_bps":64000}"#).json(200);
    assert_eq!((&patched["down_bps"], &patched["parent"]), (&json!(64_000), &json!("site")));
    assert_eq!(rig.shaper.parents()["pon"].down_bps, 64_000);
    let stale = rig.client.with("if-match", "\"1\"");
    stale.call("PATCH", PON, r#"{"down_bps":65000}"#).problem(412);
    rig.client.with("if-none-match", "*").call("PUT", PON, parent("pon", None).to_string()).problem(412);
    stale.call("DELETE", PON, "").problem(412);
    assert_eq!(rig.client.call("DELETE", PON, "").status, 204);
    assert_eq!(rig.client.get(PON).field(404), "id");
    rig.client.call("DELETE", PON, "").problem(404);
    rig.client.call("PATCH", PON, "{}").problem(404);
    rig.client.get("/v1/parents/pon/stats").problem(404);
    assert_eq!(rig.shaper.parents().into_keys().collect::<Vec<_>>(), ["site"]);
}

#[test]
fn lists_go_by_pages_and_statistics_by_name() {
    let rig = Rig::new();
    for n in 0..5 {
        rig.put_parent(&format!("p{n}"), None);
    }
    let page = rig.client.get("/v1/parents?limit=2&after=p1").json(200);
    let names: Vec<_> = page["items"].as_array().unwrap().iter().map(|item| item["id"].clone()).collect();
    assert_eq!(
        (names, &page["next"], &page["total"]),
        (vec![json!("p2"), json!("p3")], &json!("p3"), &json!(5))
    );
    assert_eq!(rig.client.get("/v1/parents?limit=0").field(400), "limit");
    rig.put_parent("below", Some("p3"));
    let top = rig.client.get("/v1/top/parents?by=load&dir=up&n=3").json(200);
    assert_eq!((&top["items"][0]["id"], top["items"].as_array().unwrap().len()), (&json!("below"), 3));
    let below = rig.client.get("/v1/top/parents?parent=p3").json(200);
    assert_eq!((&below["items"][0]["id"], below["items"].as_array().unwrap().len()), (&json!("below"), 1));
    for path in ["/v1/top/parents", "/v1/top"] {
        assert_eq!(rig.client.get(&format!("{path}?parent=nobody")).field(404), "parent");
        assert_eq!(rig.client.get(&format!("{path}?by=colour")).field(400), "by");
    }
    assert_eq!(rig.client.call("DELETE", "/v1/parents/below", "").status, 204);
    let stats = rig.client.get("/v1/parents/p3/stats").json(200);
    assert_eq!((&stats["down"]["forwarded"], &stats["down"]["clock_speed"]), (&json!(3), &json!(0.5)));
    assert!(stats["up"]["waiting"].is_u64());
    let metrics = rig.client.get("/metrics").text();
    for line in [
        "sluice_parents 5",
        "sluice_parents_saturated{dir=\"down\"} 4",
        "sluice_parents_saturated{dir=\"up\"} 5",
    ] {
        assert!(metrics.lines().any(|shown| shown == line), "{line}");
    }
    assert!(!metrics.contains("p3"), "never one series per aggregate");
}

#[test]
fn every_wrong_aggregate_names_its_field() {
    let rig = Rig::new();
    for (change, field) in [
        (json!({"down_bps": 1}), "down_bps"),
        (json!({"up_bps": "10M"}), "up_bps"),
        (json!({"parent": "nowhere"}), "parent"),
        (json!({"parent": "site"}), "parent"),
        (json!({"id": "other"}), "id"),
        (json!({"profile": "default"}), "profile"),
    ] {
        let mut body = parent("site", None);
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        assert_eq!(rig.client.call("PUT", SITE, body.to_string()).field(422), field, "{change}");
    }
    rig.client.call("PUT", SITE, "{").problem(400);
    rig.client.with("content-type", "text/plain").call("PUT", SITE, "{}").problem(415);
    assert_eq!(rig.client.get("/v1/parents").json(200)["total"], 0);
}

#[test]
fn loops_and_a_ninth_level_are_refused_by_name() {
    let rig = Rig::new();
    rig.put_parent("l1", None);
    for level in 2..=8 {
        rig.put_parent(&format!("l{level}"), Some(&format!("l{}", level - 1)));
    }
    let deep = rig.client.call("PUT", "/v1/parents/l9", parent("l9", Some("l8")).to_string()).problem(422);
    assert!(deep["detail"].as_str().unwrap().contains("9 levels; 8 is the most"), "{deep}");
    let looped = rig.client.call("PATCH", "/v1/parents/l1", r#"{"parent":"l3"}"#).problem(422);
    assert_eq!(looped["field"], "parent");
    let way = r#""l1" would be above itself: "l1" below "l3" below "l2" below "l1""#;
    assert!(looped["detail"].as_str().unwrap().contains(way), "{looped}");
    rig.put_parent("top", None);
    rig.client.call("PATCH", "/v1/parents/l1", r#"{"parent":"top"}"#).problem(422);
    rig.client.call("PATCH", "/v1/parents/l2", r#"{"parent":"top"}"#).json(200);
    assert_eq!(rig.shaper.parents()["l2"].parent.as_deref(), Some("top"));
}

#[test]
fn subscribers_stand_below_what_exists_and_keep_it() {
    let rig = Rig::new();
    let path = "/v1/subscribers/a";
    let body = below("a", 1, "pon");
    let refused = rig.client.call("PUT", path, body.to_string()).problem(422);
    assert_eq!(
        (&refused["field"], refused["detail"].as_str().unwrap().contains("pon")),
        (&json!("parent"), true)
    );
    rig.put_parent("site", None);
    rig.put_parent("pon", Some("site"));
    assert_eq!(rig.client.call("PUT", path, body.to_string()).json(201)["parent"], "pon");
    for (name, subscribers, parents) in [(PON, 1, 0), (SITE, 0, 1)] {
        let problem = rig.client.call("DELETE", name, "").problem(409);
        assert_eq!((&problem["subscribers"], &problem["parents"]), (&json!(subscribers), &json!(parents)));
    }
    // a refused claim leaves the count as it was
    rig.put("b", 2);
    let clash = json!({"parent": "site", "match": {"ipv4": ["10.0.0.1/32"]}}).to_string();
    rig.client.call("PATCH", "/v1/subscribers/b", clash).problem(409);
    rig.client.call("PATCH", path, r#"{"parent":"site"}"#).json(200);
    assert_eq!(rig.client.call("DELETE", PON, "").status, 204);
    rig.client.call("PATCH", path, r#"{"parent":null}"#).json(200);
    assert_eq!(rig.client.call("DELETE", SITE, "").status, 204);
    assert!(rig.shaper.parents().is_empty());
}

#[test]
fn bulk_is_held_to_the_parents_there_are() {
    let rig = Rig::new();
    rig.put_parent("pon", None);
    let lines = [below("a", 1, "pon"), below("b", 2, "nowhere"), below("c", 3, "pon")];
    let body = lines.map(|line| line.to_string()).join("\n");
    for mode in ["upsert", "replace"] {
        let path = format!("/v1/subscribers/bulk?mode={mode}");
        let report = rig.client.call("POST", &path, body.clone()).problem(422);
        assert_eq!(report["errors"][0]["line"], 2, "{report}");
        assert_eq!(report["errors"][0]["field"], "parent");
        assert!(report["errors"][0]["error"].as_str().unwrap().contains("\"nowhere\""));
    }
    assert!(rig.all().is_empty());
    let good = [below("a", 1, "pon"), below("c", 3, "pon")].map(|line| line.to_string()).join("\n");
    rig.client.call("POST", "/v1/subscribers/bulk?mode=replace", good).json(200);
    assert_eq!(rig.client.call("DELETE", PON, "").problem(409)["subscribers"], 2);
    rig.client.call("POST", "/v1/subscribers/bulk?mode=replace&dry_run=true", "").json(200);
    assert_eq!(rig.client.call("DELETE", PON, "").problem(409)["subscribers"], 2);
    rig.client.call("POST", "/v1/subscribers/bulk?mode=replace", "").json(200);
    assert_eq!(rig.client.call("DELETE", PON, "").status, 204);
}

#[test]
fn what_the_data_plane_refuses_leaves_no_trace() {
    let rig = Rig::new();
    rig.put_parent("pon", None);
    let refused = below("refuse-a", 1, "pon");
    rig.client.call("PUT", "/v1/subscribers/refuse-a", refused.to_string()).problem(422);
    assert_eq!(rig.client.call("DELETE", PON, "").status, 204, "nobody is below it");
    for n in 0..PARENTS {
        rig.put_parent(&format!("p{n}"), None);
    }
    rig.client.call("PUT", SITE, parent("site", None).to_string()).problem(507);
    assert_eq!(rig.client.call("DELETE", "/v1/parents/p0", "").status, 204);
    rig.put_parent("site", None);
}

#[test]
fn aggregates_outlive_a_restart_and_come_before_their_children() {
    let rig = Rig::new();
    // names against the order of the tree, and one that came below its parent later
    rig.put_parent("a-pon", None);
    rig.put_parent("z-site", None);
    rig.put_parent("a-pon", Some("z-site"));
    rig.put_parent("m-port", Some("a-pon"));
    let body = below("cust", 1, "m-port");
    rig.client.call("PUT", "/v1/subscribers/cust", body.to_string()).json(201);
    let tag = rig.client.get("/v1/parents/a-pon").header("etag").to_owned();
    let found = |rig: &Rig, text: &str| -> Vec<Value> {
        let found = rig.client.get(&format!("/v1/search?q={text}")).json(200);
        found["parents"].as_array().unwrap().iter().map(|parent| parent["id"].clone()).collect()
    };
    assert_eq!(found(&rig, "PON"), ["a-pon"]);
    let rig = rig.restart();
    assert_eq!(found(&rig, "-p"), ["a-pon", "m-port"]);
    assert!(found(&rig, "ip:10.0.0.1").is_empty() && found(&rig, "cust").is_empty());
    let again = rig.client.get("/v1/parents/a-pon");
    assert_eq!((again.json(200), again.header("etag")), (parent("a-pon", Some("z-site")), &*tag));
    assert_eq!(rig.shaper.parents().len(), 3);
    assert_eq!(rig.shaper.records()["cust"].parent.as_deref(), Some("m-port"));
    rig.client.call("DELETE", "/v1/parents/m-port", "").problem(409);
}

#[test]
fn a_start_waits_for_lcores_that_do_not_answer_but_not_for_ever() {
    let rig = Rig::new();
    rig.put_parent("site", None);
    rig.client.call("PUT", "/v1/subscribers/cust", below("cust", 1, "site").to_string()).json(201);
    let Rig { handle, folder, .. } = rig;
    handle.shutdown();
    let mut options = crate::rig::options();
    options.limits.retry = Duration::from_millis(10);
    options.limits.parents = Duration::from_millis(50);
    let shaper = Arc::new(Fake::default());
    let start = || crate::rig::start(options.clone(), &shaper, &folder.path("sluice.db"));
    shaper.silent.store(3, Ordering::SeqCst);
    drop(start().unwrap());
    assert_eq!((shaper.silent.load(Ordering::SeqCst), shaper.parents().len()), (0, 1));
    assert_eq!(shaper.records()["cust"].parent.as_deref(), Some("site"));
    shaper.silent.store(usize::MAX, Ordering::SeqCst);
    let told = start().unwrap_err().to_string();
    assert!(told.contains("told to be silent") && told.contains("tried for 50ms"), "{told}");
    // one that stops is waited for by nobody
    options.limits.parents = Duration::from_hours(1);
    shaper.stopping.store(true, Ordering::SeqCst);
    drop(crate::rig::start(options, &shaper, &folder.path("sluice.db")).unwrap());
}

#[test]
fn a_store_of_the_layout_before_gets_its_table() {
    let rig = Rig::new();
    rig.put("a", 1);
    let Rig { handle, folder, .. } = rig;
    handle.shutdown();
    let path = folder.path("sluice.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("DROP TABLE parent; PRAGMA user_version = 1").unwrap();
    drop(connection);
    let shaper = std::sync::Arc::new(crate::fake::Fake::default());
    let handle = crate::rig::start(crate::rig::options(), &shaper, &path).unwrap();
    let client = crate::client::Client::new(handle.local_addr());
    let rig = Rig { client, shaper, handle, folder };
    rig.put_parent("pon", None);
    assert_eq!(rig.all().len(), 1);
}
