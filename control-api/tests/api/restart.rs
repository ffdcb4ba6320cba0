// SPDX-License-Identifier: Apache-2.0
//! The store: what comes back, what is seeded, what cannot be used.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use control_api::{Options, StartError, Store, StoreError};
use model::{Parent, Subscriber};
use serde_json::json;

use crate::fake::Fake;
use crate::rig::{Folder, Rig, options, record, soon, start};

fn seeds(options: &mut Options, ids: &[(&str, u32)]) {
    let seed = |(id, number): &(&str, u32)| Subscriber::from_value(&record(id, *number)).unwrap();
    options.seeds = ids.iter().map(seed).collect();
}

#[test]
fn a_restart_brings_records_and_their_tags_back_and_into_the_data_plane() {
    let rig = Rig::new();
    (0..20).for_each(|n| rig.put(&format!("c{n:02}"), n));
    rig.client.call("DELETE", "/v1/subscribers/c07", "");
    let (all, tag) = (rig.all(), rig.client.get("/v1/subscribers/c03").header("etag").to_owned());
    let rig = rig.restart();
    assert_eq!(rig.all(), all);
    assert_eq!(rig.shaper.records().len(), 19);
    assert_eq!(rig.client.get("/v1/subscribers/c03").header("etag"), tag);
    // Claims are back too, and a new revision is none that was given out before.
    rig.client.call("PUT", "/v1/subscribers/new", record("new", 3).to_string()).problem(409);
    let newest = rig.client.call("PUT", "/v1/subscribers/new", record("new", 99).to_string());
    assert_eq!(all.len(), 19);
    assert!(newest.header("etag").trim_matches('"').parse::<u32>().unwrap() > 20);
}

#[test]
fn aggregates_of_the_configuration_go_in_before_their_subscribers_and_once() {
    let (folder, shaper) = (Folder::new(), Arc::new(Fake::default()));
    let parent = |id: &str, above: Option<&str>| {
        Parent::from_value(&json!({"id": id, "parent": above, "down_bps": 1_000_000, "up_bps": 1_000_000}))
            .unwrap()
    };
    let run = |parents: Vec<Parent>| {
        let mut options = options();
        seeds(&mut options, &[("a", 1)]);
        options.seeds[0].parent = Some("pon".to_owned());
        options.seed_parents = parents;
        let handle = start(options, &shaper, &folder.path("sluice.db"));
        handle.map(|handle| (crate::client::Client::new(handle.local_addr()), handle))
    };
    let error = run(vec![parent("site", None)]).err().unwrap().to_string();
    assert!(error.contains("[[subscriber]] a: there is no parent \"pon\""), "{error}");
    let (client, handle) = run(vec![parent("site", None), parent("pon", Some("site"))]).unwrap();
    assert_eq!(client.get("/v1/subscribers/a").json(200)["parent"], "pon");
    assert_eq!(client.get("/v1/parents/pon").json(200)["parent"], "site");
    client.call("PATCH", "/v1/parents/pon", json!({"down_bps": 2_000_000}).to_string());
    handle.shutdown();
    let (client, handle) = run(vec![parent("site", None), parent("pon", None)]).unwrap();
    let kept = client.get("/v1/parents/pon").json(200);
    assert_eq!((&kept["parent"], &kept["down_bps"]), (&json!("site"), &json!(2_000_000)));
    handle.shutdown();
}

#[test]
fn seeds_go_in_once_and_the_store_wins_from_then_on() {
    let (folder, shaper) = (Folder::new(), Arc::new(Fake::default()));
    let run = |ids: &[(&str, u32)]| {
        let mut options = options();
        seeds(&mut options, ids);
        let handle = start(options, &shaper, &folder.path("sluice.db")).unwrap();
        (crate::client::Client::new(handle.local_addr()), handle)
    };
    let total = |client: &crate::client::Client| client.get("/v1/subscribers").json(200)["total"].clone();
    let (client, handle) = run(&[]);
    client.call("PUT", "/v1/subscribers/own", record("own", 1).to_string());
    handle.shutdown();
    // Not seeded before: they go in, but never over what the store has, by name or by key.
    let (client, handle) = run(&[("own", 2), ("a", 3), ("thief", 1)]);
    assert_eq!(total(&client), 2);
    assert_eq!(client.get("/v1/subscribers/own").json(200), record("own", 1));
    client.call("DELETE", "/v1/subscribers/a", "");
    handle.shutdown();
    let (client, handle) = run(&[("a", 3), ("b", 4)]);
    assert_eq!(total(&client), 1);
    handle.shutdown();
}

#[test]
fn a_record_the_data_plane_refuses_at_start_stays_and_is_told() {
    let rig = Rig::new();
    (0..3).for_each(|n| rig.put(&format!("c{n}"), n));
    let Rig { handle, folder, shaper, .. } = rig;
    handle.shutdown();
    let path = folder.path("sluice.db");
    let database = rusqlite::Connection::open(&path).unwrap();
    let text = record("refuse-1", 7).to_string();
    database.execute("INSERT INTO subscriber VALUES ('refuse-1', 1, ?1)", [&text]).unwrap();
    let mut lost = record("lost", 8);
    lost["profile"] = json!("gone");
    database.execute("INSERT INTO subscriber VALUES ('lost', 1, ?1)", [&lost.to_string()]).unwrap();
    drop(database);
    let handle = start(options(), &shaper, &path).unwrap();
    let client = crate::client::Client::new(handle.local_addr());
    let reasons = client.get("/readyz").problem(503)["reasons"].to_string();
    assert!(reasons.contains("1 records of the store are not shaped"), "{reasons}");
    assert_eq!(client.get("/v1/subscribers").json(200)["total"], 5);
    assert_eq!(client.get("/v1/subscribers/lost").json(200)["profile"], "gone");
    assert_eq!(shaper.records()["lost"].profile, "default");
    // The same PUT again is not "unchanged": it tries again.
    client.call("PUT", "/v1/subscribers/refuse-1", text).problem(422);
    assert_eq!(client.call("DELETE", "/v1/subscribers/refuse-1", "").status, 204);
    assert_eq!(client.get("/readyz").status, 200);
}

#[test]
fn a_record_without_room_at_start_is_tried_again_and_shaped_once_there_is() {
    let rig = Rig::new();
    (0..3).for_each(|n| rig.put(&format!("c{n}"), n));
    let Rig { handle, folder, .. } = rig;
    handle.shutdown();
    let shaper = Arc::new(Fake::default());
    shaper.capacity.store(1, Ordering::SeqCst);
    let handle = start(options(), &shaper, &folder.path("sluice.db")).unwrap();
    let client = crate::client::Client::new(handle.local_addr());
    assert_eq!((shaper.records().len(), client.get("/readyz").status), (1, 503));
    shaper.capacity.store(3, Ordering::SeqCst);
    assert!(soon(|| client.get("/readyz").status == 200));
    assert_eq!(shaper.records().len(), 3);
}

fn store_error(path: &Path) -> StoreError {
    match start(options(), &Arc::new(Fake::default()), path).unwrap_err() {
        StartError::Store(error) => {
            let text = error.to_string();
            assert!(text.contains(&path.display().to_string()) && !text.contains('\n'), "{text}");
            error
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_store_that_cannot_be_used_is_one_clear_sentence() {
    let folder = Folder::new();
    let path = folder.path("sluice.db");
    std::fs::write(&path, "this is not a database, but long enough to have a header".repeat(10)).unwrap();
    assert!(matches!(store_error(&path), StoreError::Corrupt { .. }));

    let foreign = folder.path("foreign.db");
    rusqlite::Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(matches!(store_error(&foreign), StoreError::Corrupt { .. }));

    let newer = folder.path("newer.db");
    drop(Store::open(&newer).unwrap());
    rusqlite::Connection::open(&newer).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(store_error(&newer), StoreError::Newer { found: 99, .. }));

    std::fs::create_dir(folder.path("dir.db")).unwrap();
    assert!(matches!(store_error(&folder.path("dir.db")), StoreError::Unwritable { .. }));
    assert!(matches!(store_error(&path.join("under/a/file.db")), StoreError::Unwritable { .. }));
    assert!(matches!(store_error(Path::new("/proc/sluice.db")), StoreError::Unwritable { .. }));
}

#[test]
fn a_damaged_page_or_record_is_found_at_start() {
    let rig = Rig::new();
    let lines: Vec<_> = (0..2000).map(|n| record(&format!("c{n}"), n).to_string()).collect();
    rig.client.call("POST", "/v1/subscribers/bulk", lines.join("\n")).json(200);
    let Rig { handle, folder, .. } = rig;
    handle.shutdown();
    let path = folder.path("sluice.db");
    let database = rusqlite::Connection::open(&path).unwrap();
    database.execute("UPDATE subscriber SET record = '{}' WHERE id = 'c5'", []).unwrap();
    database.pragma_query(None, "wal_checkpoint", |_| Ok(())).unwrap();
    drop(database);
    let error = store_error(&path);
    assert!(error.to_string().contains("record \"c5\""), "{error}");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[3 * 4096..].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(store_error(&path), StoreError::Corrupt { .. }));
}

#[test]
fn a_second_sluice_on_the_same_store_is_refused() {
    let rig = Rig::new();
    assert!(matches!(store_error(&rig.folder.path("sluice.db")), StoreError::Locked { .. }));
    assert_eq!(rig.client.get("/healthz").status, 200);
}

#[test]
fn a_store_that_fails_a_write_refuses_the_change_and_recovers() {
    let rig = Rig::new();
    rig.put("a", 1);
    // Another program holds the write lock for longer than we wait.
    let blocker = rusqlite::Connection::open(rig.folder.path("sluice.db")).unwrap();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let reply = rig.client.call("PUT", "/v1/subscribers/b", record("b", 2).to_string());
    assert!(reply.problem(503)["detail"].as_str().unwrap().contains("sluice.db"));
    assert_eq!((rig.all().len(), rig.shaper.records().len()), (1, 1));
    blocker.execute_batch("ROLLBACK").unwrap();
    rig.put("c", 2);
    assert_eq!(rig.restart().all(), [record("a", 1), record("c", 2)]);
}

#[test]
fn shutdown_is_prompt_and_frees_address_and_store() {
    let rig = Rig::new();
    let (address, path) = (rig.client.address, rig.folder.path("sluice.db"));
    let Rig { handle, folder, .. } = rig;
    handle.shutdown();
    let mut again = options();
    again.listen = address;
    let handle = start(again, &Arc::new(Fake::default()), &path).unwrap();
    assert_eq!(handle.local_addr(), address);
    drop((handle, folder));
}
