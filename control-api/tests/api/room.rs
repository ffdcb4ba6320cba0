// SPDX-License-Identifier: Apache-2.0
//! A shaper with room for so many and no more: who was let in keeps the place, whatever others ask for.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use serde_json::Value;

use crate::client::Client;
use crate::fake::Fake;
use crate::rig::{Rig, options, record, soon, start};

const UPSERT: &str = "/v1/subscribers/bulk";
const REPLACE: &str = "/v1/subscribers/bulk?mode=replace";

fn lines(records: &[Value]) -> String {
    let lines: Vec<_> = records.iter().map(Value::to_string).collect();
    lines.join("\n")
}

fn set(letter: char, count: u32) -> Vec<Value> {
    (0..count).map(|n| record(&format!("{letter}{n:02}"), u32::from(letter) * 1000 + n)).collect()
}

/// A shaper that is full with five.
fn full() -> Rig {
    let rig = Rig::new();
    rig.shaper.capacity.store(5, SeqCst);
    rig.client.call("POST", UPSERT, lines(&set('a', 5))).json(200);
    rig
}

/// Records of a store and the last revision written to it; any commit would raise that.
fn stored(path: &Path) -> (u32, u32) {
    let database = rusqlite::Connection::open(path).unwrap();
    let one = |query: &str| database.query_row(query, [], |row| row.get(0)).unwrap();
    (one("SELECT count(*) FROM subscriber"), one("SELECT value FROM state WHERE name = 'revision'"))
}

#[test]
fn what_does_not_fit_is_refused_before_the_store_hears_of_it() {
    let rig = full();
    let path = rig.folder.path("sluice.db");
    let before = (stored(&path), rig.all());
    rig.shaper.take_batches();
    let many = lines(&set('b', 70));
    let mut mixed = set('a', 3);
    mixed.extend(set('b', 3));
    for (method, path, body) in [
        ("PUT", "/v1/subscribers/b00", set('b', 1)[0].to_string()),
        ("POST", UPSERT, many.clone()),
        ("POST", "/v1/subscribers/bulk?dry_run=true", many.clone()),
        ("POST", REPLACE, many.clone()),
        ("POST", "/v1/subscribers/bulk?mode=replace&dry_run=true", lines(&mixed)),
        ("POST", REPLACE, lines(&mixed)),
    ] {
        let problem = rig.client.call(method, path, body).problem(507);
        assert!(problem["detail"].as_str().unwrap().contains("room for 5 subscribers"), "{problem}");
    }
    assert_eq!((stored(&path), rig.all()), before);
    assert!(rig.shaper.take_batches().is_empty());
    // no key was left claimed by what was refused
    rig.shaper.capacity.store(75, SeqCst);
    assert_eq!(rig.client.call("POST", UPSERT, many).json(200)["created"], 70);
}

#[test]
fn a_full_shaper_takes_whatever_does_not_make_it_more() {
    let rig = full();
    let patch = r#"{"down_bps": 1000000}"#;
    rig.client.call("PATCH", "/v1/subscribers/a00", patch).json(200);
    for dry in ["&dry_run=true", ""] {
        let report = rig.client.call("POST", &format!("{REPLACE}{dry}"), lines(&set('b', 5))).json(200);
        assert_eq!((&report["created"], &report["deleted"]), (&5.into(), &5.into()));
    }
    assert_eq!(rig.client.call("DELETE", "/v1/subscribers/b00", "").status, 204);
    rig.put("c", 1);
    assert_eq!(rig.shaper.records().len(), 5);
}

#[test]
fn of_a_store_with_too_many_the_oldest_are_shaped_and_it_may_shrink() {
    let rig = Rig::new();
    // names against the order of their arrival
    (0..5).for_each(|n| rig.put(&format!("{}", 9 - n), n));
    let Rig { handle, folder, .. } = rig;
    handle.shutdown();
    let shaper = Arc::new(Fake::default());
    shaper.capacity.store(2, SeqCst);
    let handle = start(options(), &shaper, &folder.path("sluice.db")).unwrap();
    let client = Client::new(handle.local_addr());
    let names = || shaper.records().into_keys().collect::<Vec<_>>();
    assert_eq!(names(), ["8", "9"]);
    assert_eq!(client.get("/v1/subscribers/9/stats").status, 200);
    let unshaped = client.get("/v1/subscribers/7/stats").problem(503);
    let detail = unshaped["detail"].as_str().unwrap();
    assert!(detail.contains("not shaped") && detail.contains("room for 2") && !detail.contains("lcore"));
    client.call("PUT", "/v1/subscribers/new", record("new", 77).to_string()).problem(507);
    // a place that comes free belongs to the oldest that waits, not to whoever asks first
    assert_eq!(client.call("DELETE", "/v1/subscribers/9", "").status, 204);
    client.call("PUT", "/v1/subscribers/new", record("new", 77).to_string()).problem(507);
    assert!(soon(|| names() == ["7", "8"]), "{:?}", names());
    assert_eq!(client.get("/v1/subscribers/7/stats").status, 200);
    handle.shutdown();
}

#[test]
fn what_a_batch_removed_and_could_not_replace_comes_back() {
    let rig = full();
    let before = (rig.all(), rig.shaper.records());
    for failures in [1, 2] {
        rig.shaper.halfway.store(failures, SeqCst);
        rig.client.call("POST", REPLACE, lines(&set('b', 5))).problem(503);
        assert_eq!(rig.all(), before.0);
        // the second failure is that of the attempt to put them back
        let ready = rig.client.get("/readyz").status;
        assert_eq!((failures, ready), if failures == 1 { (1, 200) } else { (2, 503) });
        assert!(soon(|| rig.client.get("/readyz").status == 200));
        assert_eq!(rig.shaper.records(), before.1);
    }
    rig.client.call("POST", REPLACE, lines(&set('b', 5))).json(200);
    assert_eq!(rig.restart().all(), set('b', 5));
}
