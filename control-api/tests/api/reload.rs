// SPDX-License-Identifier: Apache-2.0
//! `POST /v1/reload`, and token and certificate that change while the server runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use control_api::{Refused, Reload, Reloaded};
use model::config::Change;
use model::{Problem, Problems};
use serde_json::json;

use crate::rig::{Rig, options};

/// Refuses at first, then reloads.
#[derive(Default)]
struct Owner(AtomicBool);

impl Reload for Owner {
    fn reload(&self) -> Result<Reloaded, Refused> {
        if self.0.swap(true, Relaxed) {
            let change = Change { key: "log.level".into(), from: json!("info"), to: json!("debug") };
            return Ok(Reloaded { applied: vec![change], ..Reloaded::default() });
        }
        let (file, key, message) = ("f.toml".into(), "port[0].mtu".into(), "is odd".into());
        Err(Refused(Problems(vec![Problem { file, line: 7, key, message }])))
    }
}

fn post(rig: &Rig, path: &str) -> crate::client::Reply {
    rig.client.call("POST", path, String::new())
}

#[test]
fn a_reload_says_what_changed_or_where_the_file_is_wrong() {
    let rig = Rig::new();
    assert!(post(&rig, "/v1/reload").problem(503)["detail"].as_str().unwrap().contains("not yet"));
    rig.handle.on_reload(Arc::new(Owner::default()));
    let refused = post(&rig, "/v1/reload").problem(422);
    assert_eq!(refused["field"], "port[0].mtu");
    assert_eq!(
        refused["errors"],
        json!([{"file": "f.toml", "line": 7, "field": "port[0].mtu", "detail": "is odd"}])
    );
    assert!(refused["detail"].as_str().unwrap().contains("f.toml:7: port[0].mtu: is odd"));
    let done = post(&rig, "/v1/reload").json(200);
    let applied = json!([{"key": "log.level", "from": "info", "to": "debug"}]);
    assert_eq!(done, json!({"applied": applied, "restart_needed": [], "notes": []}));
    post(&rig, "/v1/reload?now=1").problem(400);
    rig.client.get("/v1/reload").problem(405);
}

#[test]
fn another_token_counts_from_the_next_call_on_and_a_bad_one_changes_nothing() {
    let rig = Rig::new();
    let (protection, token) = (rig.handle.protection(), rig.folder.path("token"));
    let mut with_token = options();
    with_token.token_file = Some(token.clone());
    assert!(protection.renew(&with_token).is_err(), "there is no such file");
    assert_eq!(rig.client.get("/v1/ports").status, 200);
    for word in ["the-first-of-two-tokens", "the-second-of-two-tokens"] {
        std::fs::write(&token, word).unwrap();
        protection.renew(&with_token).unwrap();
        rig.client.get("/v1/ports").problem(401);
        let known = rig.client.with("authorization", &format!("Bearer {word}"));
        assert_eq!(known.get("/v1/ports").status, 200, "{word}");
    }
    std::fs::write(&token, "short").unwrap();
    assert!(protection.renew(&with_token).is_err());
    let known = rig.client.with("authorization", "Bearer the-second-of-two-tokens");
    assert_eq!(known.get("/v1/ports").status, 200, "the last good one stays");
}

#[test]
fn a_listener_that_others_reach_does_not_lose_its_protection() {
    let rig = Rig::new();
    let mut open = options();
    open.listen = "192.0.2.1:8480".parse().unwrap();
    let error = rig.handle.protection().renew(&open).unwrap_err().to_string();
    assert!(error.contains("needs token_file, tls_cert and tls_key"), "{error}");
}
