// SPDX-License-Identifier: Apache-2.0
//! Loads with a network: parents are put before subscribers and made as they were if those are refused.

use super::*;

const NETWORK: &str = r#"{"Site": {"downloadBandwidthMbps": 100, "uploadBandwidthMbps": 50, "children": {
    "AP": {"downloadBandwidthMbps": 20, "uploadBandwidthMbps": 10}}}}"#;
const DONE: &str = r#"{"created":1,"updated":0,"deleted":0,"unchanged":0,"errors":[]}"#;
const REFUSED: &str =
    r#"{"created":0,"updated":0,"deleted":0,"unchanged":0,"errors":[{"line":1,"error":"no"}]}"#;

fn parent(id: &str, above: &str, down_bps: u64) -> String {
    format!(r#"{{"id":"{id}","parent":{above},"down_bps":{down_bps},"up_bps":10000000}}"#)
}

/// What the shaper has: the site with another rate, an old access point below an old site.
fn there() -> String {
    let [site, old, below] = [
        parent("Site", "null", 1_000_000),
        parent("Old", "null", 5_000_000),
        parent("Below", "\"Old\"", 5_000_000),
    ];
    format!("{{\"items\":[{site},{old},{below}],\"next\":null}}")
}

/// The two files of a load, removed when dropped.
struct Files([String; 2]);

impl Files {
    fn new(name: &str) -> Self {
        let row = "1,n,d,dn,AP,,100.64.0.1,,,,50,10,\n";
        Self([file(&format!("{name}.csv"), row), file(&format!("{name}.json"), NETWORK)])
    }

    fn load<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["load", &self.0[0], "--network", &self.0[1]], more].concat()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.0.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

fn calls(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(|seen| seen.line.trim_end_matches(" HTTP/1.1")).collect()
}

#[test]
fn parents_come_before_subscribers_and_go_after_them() {
    let files = Files::new("order");
    let answers = [
        (200, there()),
        (200, DONE.to_owned()),
        (200, parent("Site", "null", 1)),
        (201, parent("AP", "\"Site\"", 1)),
        (200, DONE.to_owned()),
        (204, String::new()),
        (204, String::new()),
    ];
    let answers = answers.iter().map(|(status, body)| (*status, body.as_str())).collect();
    let (code, out, err, seen) = Script::new(answers).run(&files.load(&["--replace"]));
    assert_eq!(code, Ok(ExitCode::SUCCESS), "{err}");
    let expected = [
        "GET /v1/parents?limit=1000",
        "POST /v1/subscribers/bulk?mode=replace&dry_run=true",
        "PUT /v1/parents/Site",
        "PUT /v1/parents/AP",
        "POST /v1/subscribers/bulk?mode=replace&dry_run=false",
        "DELETE /v1/parents/Below",
        "DELETE /v1/parents/Old",
    ];
    assert_eq!(calls(&seen), expected);
    // the trial must not name what is not there yet
    assert!(seen[1].body.contains("\"parent\":null"), "{}", seen[1].body);
    assert!(seen[4].body.contains("\"parent\":\"AP\""), "{}", seen[4].body);
    let put: Value = serde_json::from_str(&seen[3].body).unwrap();
    let expected =
        serde_json::json!({"id": "AP", "parent": "Site", "down_bps": 20_000_000, "up_bps": 10_000_000});
    assert_eq!(put, expected);
    assert_eq!(
        out,
        "parents: 1 created, 1 updated, 2 deleted, 0 unchanged\n1 created, 0 updated, 0 deleted, 0 unchanged\n"
    );
}

#[test]
fn a_refused_trial_touches_no_parent() {
    let files = Files::new("trial");
    let (code, out, err, seen) =
        Script::new(vec![(200, &there()), (422, REFUSED)]).run(&files.load(&["--replace"]));
    assert_eq!((code, out.as_str()), (Ok(ExitCode::FAILURE), ""));
    assert!(err.ends_with(&format!("{0}:1: no\n{0}: nothing was changed\n", files.0[0])), "{err}");
    assert_eq!(calls(&seen).len(), 2);
}

#[test]
fn parents_are_made_as_they_were_when_subscribers_are_refused_after_all() {
    let files = Files::new("undo");
    let record = parent("AP", "null", 1);
    let answers = [
        (200, there()),
        (200, DONE.to_owned()),
        (200, record.clone()),
        (201, record.clone()),
        (422, REFUSED.to_owned()),
        (204, String::new()),
        (200, record.clone()),
    ];
    let answers = answers.iter().map(|(status, body)| (*status, body.as_str())).collect();
    let (code, _, err, seen) = Script::new(answers).run(&files.load(&[]));
    assert_eq!(code, Ok(ExitCode::FAILURE));
    assert!(err.contains("nothing was changed"), "{err}");
    assert_eq!(calls(&seen)[5..], ["DELETE /v1/parents/AP", "PUT /v1/parents/Site"]);
    assert!(seen[6].body.contains("\"down_bps\":1000000"), "{}", seen[6].body);
}

#[test]
fn a_parent_that_is_refused_undoes_those_before_it() {
    let files = Files::new("refused");
    let problem = r#"{"title":"Bad","status":422,"detail":"too fast","field":"down_bps"}"#;
    let answers = [
        (200, there()),
        (200, DONE.to_owned()),
        (200, "{}".to_owned()),
        (422, problem.to_owned()),
        (200, "{}".to_owned()),
    ];
    let answers = answers.iter().map(|(status, body)| (*status, body.as_str())).collect();
    let (code, .., seen) = Script::new(answers).run(&files.load(&[]));
    assert_eq!(code.unwrap_err(), "parent AP: down_bps: too fast (HTTP 422)");
    assert_eq!(calls(&seen)[4..], ["PUT /v1/parents/Site"]);
}

#[test]
fn a_dry_run_shows_parents_and_subscribers_and_changes_nothing() {
    let files = Files::new("dry");
    let own = r#"{"id":"1","down_bps":50000000,"up_bps":10000000,"match":{"ipv4":["100.64.0.1/32"]}}"#;
    let answers = [(200, there()), (200, DONE.to_owned()), (200, own.to_owned())];
    let answers: Vec<_> = answers.iter().map(|(status, body)| (*status, body.as_str())).collect();
    let (code, out, err, seen) = Script::new(answers.clone()).run(&files.load(&["--dry-run"]));
    assert_eq!(code, Ok(ExitCode::SUCCESS), "{err}");
    assert!(calls(&seen).iter().all(|call| call.starts_with("GET") || call.ends_with("dry_run=true")));
    assert_eq!(
        out,
        "+ parent AP: 20 Mb/s down, 10 Mb/s up, parent Site\n\
         ~ parent Site: down_bps 1 Mb/s -> 100 Mb/s; up_bps 10 Mb/s -> 50 Mb/s\n\
         ~ 1: parent none -> AP\n\
         parents: 1 would be created, 1 would be updated, 0 would be deleted, 0 would be unchanged\n\
         0 would be created, 1 would be updated, 0 would be deleted, 0 would be unchanged\n"
    );
    let (_, out, ..) = Script::new(answers).run(&files.load(&["--dry-run", "--json"]));
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told["changes"][2]["fields"]["parent"], serde_json::json!({"old": null, "new": "AP"}));
    assert_eq!((&told["updated"], &told["parents"]["created"]), (&1.into(), &1.into()));
}

#[test]
fn a_shaper_without_aggregates_takes_rows_but_no_network() {
    let files = Files::new("without");
    let none = (501, r#"{"title":"Not Implemented","status":501}"#);
    let (code, ..) = Script::new(vec![none]).run(&files.load(&[]));
    assert!(code.unwrap_err().contains("has no aggregates above subscribers: load without --network"));
    let (code, out, err, seen) = Script::new(vec![none, (200, DONE)]).run(&["load", &files.0[0]]);
    assert_eq!(code, Ok(ExitCode::SUCCESS), "{err}");
    assert!(seen[1].body.contains("\"parent\":null"), "{}", seen[1].body);
    assert!(err.contains("1 parent node that the shaper does not have (AP), left out"), "{err}");
    assert_eq!(out, "1 created, 0 updated, 0 deleted, 0 unchanged\n");
}

#[test]
fn rows_without_a_network_stand_below_parents_that_the_shaper_has() {
    let files = Files::new("known");
    let have = format!("{{\"items\":[{}],\"next\":null}}", parent("AP", "null", 1));
    let (code, _, err, seen) = Script::new(vec![(200, &have), (200, DONE)]).run(&["load", &files.0[0]]);
    assert_eq!((code, err.as_str()), (Ok(ExitCode::SUCCESS), ""));
    assert!(seen[1].body.contains("\"parent\":\"AP\""), "{}", seen[1].body);
}

#[test]
fn problems_of_both_files_are_told_together() {
    let files = Files::new("both");
    std::fs::write(&files.0[0], "1,n,d,dn,AP,,100.64.0.300,,,,50,10,\n").unwrap();
    std::fs::write(&files.0[1], r#"{"AP":{"downloadBandwidthMbps":20}}"#).unwrap();
    let (code, _, err, _) = Script::new(vec![]).run(&files.load(&[]));
    assert_eq!(code, Ok(ExitCode::FAILURE));
    let expected = format!(
        "{}:1: IPv4: \"100.64.0.300\" is not an IPv4 prefix\n{}:1: AP.uploadBandwidthMbps: is missing\n",
        files.0[0], files.0[1]
    );
    assert_eq!(err, expected);
}
