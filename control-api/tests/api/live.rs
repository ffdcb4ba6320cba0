// SPDX-License-Identifier: Apache-2.0
//! What shows the state of things, and what every call has in common.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use model::stats::{Direction, TopBy, TopQuery};
use serde_json::{Value, json};

use crate::rig::{Rig, record, soon};

fn openapi(rig: &Rig) -> Value {
    rig.client.get("/v1/openapi.json").json(200)
}

#[test]
fn health_and_readiness_tell_their_reasons() {
    let rig = Rig::new();
    assert_eq!(rig.client.get("/healthz").json(200), json!({"status": "ok", "reasons": []}));
    assert_eq!(rig.client.get("/readyz").json(200), json!({"status": "ready", "reasons": []}));
    let reasons = vec!["lcore 2 has stalled".to_owned(), "link down".to_owned()];
    rig.shaper.reasons.lock().unwrap().clone_from(&reasons);
    assert_eq!(rig.client.get("/readyz").problem(503)["reasons"], json!(reasons));
    assert_eq!(rig.client.get("/healthz").status, 200);
}

#[test]
fn stats_are_those_of_the_contract() {
    let rig = Rig::new();
    rig.put("cust-1", 1);
    let stats = rig.client.get("/v1/subscribers/cust-1/stats").json(200);
    assert_eq!(stats["down"]["l4s"]["arrived"], 7);
    assert_eq!(stats["down"]["l4s"]["delay_us"]["le"], json!([50.0, null]));
    assert_eq!(stats["up"]["classic"]["queued"], 0);
    assert_eq!(stats["up"]["overload"], false);
    assert_eq!(rig.client.get("/v1/subscribers/none/stats").field(404), "id");
    rig.shaper.mute.store(true, Ordering::SeqCst);
    rig.client.get("/v1/subscribers/cust-1/stats").problem(503);
}

#[test]
fn top_passes_its_query_on() {
    let rig = Rig::new();
    rig.put("cust-1", 1);
    rig.client.get("/v1/top").json(200);
    let reply = rig.client.get("/v1/top?by=delay&dir=up&n=3&window_s=2.5").json(200);
    assert_eq!(reply["items"][0]["id"], "cust-1");
    assert_eq!(reply["window_s"], 2.5);
    let asked = TopQuery { by: TopBy::Delay, dir: Direction::Up, n: 3, window_s: 2.5, parent: None };
    assert_eq!(*rig.shaper.queries.lock().unwrap(), [TopQuery::default(), asked]);
    for (query, field) in [
        ("by=x", "by"),
        ("dir=x", "dir"),
        ("n=0", "n"),
        ("window_s=0", "window_s"),
        ("window_s=NaN", "window_s"),
        ("window_s=inf", "window_s"),
        ("of=x", "of"),
    ] {
        assert_eq!(rig.client.get(&format!("/v1/top?{query}")).field(400), field);
    }
}

#[test]
fn ports_lcores_and_profiles() {
    let text = "[[port]]\nname='core'\ndevice='net_null0'\nrole='core'\npeer='access'\n\
                [[port]]\nname='access'\ndevice='net_null1'\nrole='access'\npeer='core'\n\
                [profile.gold]\naqm='fifo'\n";
    let config = model::Config::parse("test.toml", text).unwrap();
    let rig = Rig::with(|options| {
        let from_config = control_api::Options::from_config(&config);
        assert_eq!(from_config.access_ports, ["access"]);
        options.profiles = from_config.profiles;
    });
    assert_eq!(rig.client.get("/v1/ports").json(200)["items"][0]["clock_speed"], 0.5);
    assert_eq!(rig.client.get("/v1/lcores").json(200)["items"][0]["role"], "compact");
    let profiles = rig.client.get("/v1/profiles").json(200);
    assert_eq!(profiles["items"][0]["name"], "default");
    assert_eq!(profiles["items"][0]["target_us"], 15_000);
    assert_eq!(
        (&profiles["items"][1]["name"], &profiles["items"][1]["aqm"]),
        (&json!("gold"), &json!("fifo"))
    );
    let patch = rig.client.call("PUT", "/v1/subscribers/a", {
        let mut body = record("a", 1);
        body["profile"] = json!("gold");
        body.to_string()
    });
    assert_eq!(patch.json(201)["profile"], "gold");
}

#[test]
fn metrics_have_the_names_of_the_contract_and_no_series_per_subscriber() {
    let rig = Rig::new();
    let scrape = || rig.client.get("/metrics");
    let reply = scrape();
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, "text/plain; version=0.0.4; charset=utf-8")
    );
    let text = reply.text();
    for line in [
        r#"sluice_port_packets_total{port="core",way="rx"} 11"#,
        r#"sluice_port_bytes_total{port="core",way="tx"} 14"#,
        r#"sluice_port_drops_total{port="core",reason="imissed"} 15"#,
        r#"sluice_queue_packets_total{dir="down",queue="l4s",stage="presented"} 20"#,
        r#"sluice_queue_bytes_total{dir="down",queue="l4s"} 1900"#,
        r#"sluice_queue_marked_total{dir="down",queue="l4s"} 5"#,
        r#"sluice_queue_dropped_total{dir="down",queue="l4s",reason="pool",ecn="ect"} 4"#,
        r#"sluice_queue_dropped_total{dir="up",queue="classic",reason="link",ecn="not_ect"} 0"#,
        r#"sluice_queue_delay_seconds_bucket{dir="down",queue="l4s",le="0.00005"} 10"#,
        r#"sluice_queue_delay_seconds_bucket{dir="down",queue="l4s",le="+Inf"} 19"#,
        r#"sluice_queue_delay_seconds_sum{dir="down",queue="l4s"} 0.0125"#,
        r#"sluice_queue_delay_seconds_count{dir="down",queue="l4s"} 19"#,
        r#"sluice_unclassified_packets_total{dir="down",kind="arp"} 31"#,
        r#"sluice_subscribers{state="configured"} 0"#,
        r#"sluice_overload_episodes_total{dir="down"} 2"#,
        "sluice_pi_update_seconds_count 0",
        r#"sluice_lcore_busy_ratio{lcore="1",role="compact"} 0.25"#,
        r#"sluice_port_clock_speed{port="core"} 0.5"#,
        r#"sluice_shaper_lag_seconds_bucket{le="+Inf"} 0"#,
        r#"sluice_limits_hit_total{limit="wheel"} 2"#,
        r#"sluice_buffers{state="used"} 0"#,
        r#"sluice_build_info{version="0.1.0",dpdk="DPDK 99.01"} 1"#,
        "# TYPE sluice_queue_delay_seconds histogram",
        "# TYPE sluice_port_drops_total counter",
        "# TYPE sluice_buffers gauge",
    ] {
        assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
    }
    (0..50).for_each(|n| rig.put(&format!("cust-{n}"), n));
    assert_eq!(scrape().text().lines().count(), text.lines().count());
    assert!(!scrape().text().contains("cust-"));
}

#[test]
fn unknown_paths_and_methods_are_problems() {
    let rig = Rig::new();
    for path in ["/nowhere", "/v1", "/v1/subscribers/", "/v1/subscribers/a/b/c", "/v2/subscribers"] {
        rig.client.get(path).problem(404);
    }
    for (method, path) in [
        ("POST", "/v1/subscribers"),
        ("GET", "/v1/subscribers/bulk"),
        ("DELETE", "/metrics"),
        ("POST", "/v1/parents"),
    ] {
        let reply = rig.client.call(method, path, "");
        reply.problem(405);
        assert!(!reply.header("allow").is_empty(), "{method} {path}");
    }
}

#[test]
fn openapi_tells_the_truth_about_paths_and_members() {
    let rig = Rig::new();
    rig.put("cust-1", 1);
    let document = openapi(&rig);
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            if path == "/v1/events" {
                continue;
            }
            let call = match path.as_str() {
                "/assets/{id}" => "/assets/app.js".to_owned(),
                "/v1/search" => "/v1/search?q=cust".to_owned(),
                path => path.replace("{id}", "cust-1"),
            };
            let reply = rig.client.call(&method.to_uppercase(), &call, "");
            let listed = item[method]["responses"].as_object().unwrap();
            assert!(listed.contains_key(&reply.status.to_string()), "{method} {path}: {}", reply.status);
        }
    }
    rig.put("cust-1", 1);
    let site = r#"{"down_bps":1000000000,"up_bps":500000000}"#;
    rig.client.call("PUT", "/v1/parents/cust-site", site).json(201);
    assert!(soon(|| rig.client.get("/v1/summary").json(200)["series"].is_object()));
    let bodies = [
        ("Subscriber", rig.client.get("/v1/subscribers/cust-1").json(200)),
        ("Page", rig.client.get("/v1/subscribers").json(200)),
        ("SubscriberStats", rig.client.get("/v1/subscribers/cust-1/stats").json(200)),
        ("ParentTopEntry", rig.client.get("/v1/top/parents").json(200)["items"][0].take()),
        ("TopEntry", rig.client.get("/v1/top").json(200)["items"][0].take()),
        ("Port", rig.client.get("/v1/ports").json(200)["items"][0].take()),
        ("Lcore", rig.client.get("/v1/lcores").json(200)["items"][0].take()),
        ("BulkReport", rig.client.call("POST", "/v1/subscribers/bulk", "").json(200)),
        ("Verdict", rig.client.get("/healthz").json(200)),
        ("Found", rig.client.get("/v1/search?q=cust").json(200)),
        ("Summary", rig.client.get("/v1/summary").json(200)),
    ];
    for (name, body) in bodies {
        fits(&document, &document["components"]["schemas"][name], &body, name);
    }
}

/// The part of JSON Schema that the document uses: type, properties, required, items, $ref.
#[track_caller]
fn fits(document: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/components/schemas/")) {
        return fits(document, &document["components"]["schemas"][name], value, at);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
    };
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        one => vec![one.clone()],
    };
    assert!(
        types.contains(&json!(kind)) || kind == "integer" && types.contains(&json!("number")),
        "{at}: {kind}"
    );
    if let Value::Array(items) = value {
        for item in items {
            fits(document, &schema["items"], item, &format!("{at}[]"));
        }
    }
    if let Value::Object(members) = value {
        let properties = schema["properties"].as_object().unwrap();
        let have: BTreeSet<_> = members.keys().collect();
        for name in schema["required"].as_array().unwrap() {
            assert!(have.contains(&name.as_str().unwrap().to_owned()), "{at} lacks {name}");
        }
        for (name, member) in members {
            let schema = properties.get(name).unwrap_or_else(|| panic!("{at}.{name} is not described"));
            fits(document, schema, member, &format!("{at}.{name}"));
        }
    }
}

#[test]
fn a_panic_fails_one_request_and_nothing_else() {
    let rig = Rig::new();
    rig.shaper.panics.store(true, Ordering::SeqCst);
    rig.client.get("/v1/ports").problem(500);
    rig.client.get("/metrics").problem(500);
    rig.shaper.panics.store(false, Ordering::SeqCst);
    assert_eq!(rig.client.get("/v1/ports").status, 200);
    assert_eq!(rig.client.get("/metrics").status, 200);
    assert_eq!(rig.handle.failure(), None);
}

#[test]
fn what_is_kept_is_told_while_every_call_into_the_data_plane_waits() {
    let rig = Rig::new();
    rig.put("cust-1", 1);
    assert!(soon(|| rig.client.get("/v1/summary").json(200)["next"].as_u64() > Some(0)));
    let held = rig.shaper.gate.write().unwrap();
    let stuck: Vec<_> = (0..12)
        .map(|_| {
            let client = rig.client.clone();
            std::thread::spawn(move || client.get("/v1/subscribers/cust-1/stats").status)
        })
        .collect();
    assert!(soon(|| rig.shaper.waiting.load(Ordering::SeqCst) == 8));
    let told = rig.client.get("/v1/summary").json(200);
    assert!(told["recent"]["over_s"].as_f64() > Some(0.5), "{told}");
    assert_eq!(rig.client.get("/v1/search?q=cust").json(200)["items"][0]["subscriber"]["id"], "cust-1");
    assert_eq!(rig.client.get("/healthz").status, 200);
    drop(held);
    assert!(stuck.into_iter().all(|thread| thread.join().unwrap() == 200));
}
