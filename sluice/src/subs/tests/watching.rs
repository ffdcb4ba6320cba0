// SPDX-License-Identifier: Apache-2.0
//! One watcher over a file that goes through all that scripts do to files, with time passed in.

use std::time::Duration;

use super::super::watch::{Voice, Watch, WatchArgs};
use super::*;

const DONE: &str = r#"{"created":1,"updated":0,"deleted":0,"unchanged":0,"errors":[]}"#;
const ROW: &str = "1,n,d,dn,,,100.64.0.1,,,,50,10,\n";

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    watch: WatchArgs,
}

/// Looks every 100 ms of its own time for `looks` times; what was said on both channels.
fn look(watch: &mut Watch<'_>, from: &mut u64, looks: u64) {
    for _ in 0..looks {
        *from += 100;
        watch.look(Duration::from_millis(*from)).unwrap();
    }
}

fn client(url: &str) -> Client {
    let connection = Connection { api: url.to_owned(), token_file: None, ca_file: None };
    Client::new(&connection).unwrap()
}

#[test]
fn only_whole_good_files_reach_the_shaper() {
    let path = file("watched.csv", ROW);
    // four changes reach it: trial and load each for a replacement
    let script = Script::new(vec![(200, DONE); 6]);
    let client = client(&script.url);
    let args = Line::try_parse_from(["watch", &path]).unwrap().watch;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut now = 0;
    {
        let mut watch = Watch::new(&client, &args, Voice::new(false, &mut out, &mut err));
        look(&mut watch, &mut now, 20);
        // half a row: waits, then the rest comes
        std::fs::write(&path, "1,n,d,dn,,,100.64.0.1,,,,60,1").unwrap();
        look(&mut watch, &mut now, 20);
        std::fs::write(&path, "1,n,d,dn,,,100.64.0.1,,,,60,10,\n").unwrap();
        look(&mut watch, &mut now, 20);
        // truncated, and gone
        std::fs::write(&path, "1,n,d,dn,,,100.64.0.300,,,,60,10,\n").unwrap();
        look(&mut watch, &mut now, 20);
        std::fs::remove_file(&path).unwrap();
        look(&mut watch, &mut now, 20);
        // renamed over
        let fresh = file("watched.new", "1,n,d,dn,,,100.64.0.2,,,,60,10,\n");
        std::fs::rename(fresh, &path).unwrap();
        look(&mut watch, &mut now, 20);
    }
    let seen = script.thread.join().unwrap();
    let bodies: Vec<_> = seen.iter().map(|seen| seen.body.as_str()).collect();
    assert!(bodies[1].contains("\"down_bps\":50000000"), "{bodies:?}");
    assert!(bodies[3].contains("\"down_bps\":60000000,\"up_bps\":10000000"), "{bodies:?}");
    assert!(bodies[5].contains("100.64.0.2/32"), "{bodies:?}");
    let applied = format!("{path}: 1 created, 0 updated, 0 deleted, 0 unchanged\n");
    assert_eq!(String::from_utf8(out).unwrap(), applied.repeat(3));
    let expected = format!(
        "{path}:1: IPv4: \"100.64.0.300\" is not an IPv4 prefix\n\
         {path}: not applied; the shaper keeps what it has\n\
         {path} cannot be read; waiting for it\n"
    );
    assert_eq!(String::from_utf8(err).unwrap(), expected);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_shaper_that_is_away_gets_the_file_when_it_is_back() {
    let path = file("away.csv", ROW);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = client(&format!("http://{address}"));
    let args = Line::try_parse_from(["watch", &path, "--upsert"]).unwrap().watch;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut now = 0;
    let seen = {
        let mut watch = Watch::new(&client, &args, Voice::new(true, &mut out, &mut err));
        look(&mut watch, &mut now, 30);
        let script = Script::on(TcpListener::bind(address).unwrap(), vec![(200, DONE)]);
        look(&mut watch, &mut now, 300);
        script.thread.join().unwrap()
    };
    assert_eq!(seen[0].line, "POST /v1/subscribers/bulk?mode=upsert&dry_run=false HTTP/1.1");
    let events: Vec<Value> =
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["away", "applied", "back"]);
    assert_eq!(events[1]["counts"]["subscribers"]["created"], 1);
    assert_eq!(err, b"");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_file_that_would_remove_most_is_kept_from_the_shaper() {
    let path = file("most.csv", ROW);
    let most = r#"{"created":0,"updated":0,"deleted":9,"unchanged":1,"errors":[]}"#;
    let script = Script::new(vec![(200, most)]);
    let client = client(&script.url);
    let args = Line::try_parse_from(["watch", &path]).unwrap().watch;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut now = 0;
    look(&mut Watch::new(&client, &args, Voice::new(false, &mut out, &mut err)), &mut now, 20);
    assert_eq!(script.thread.join().unwrap().len(), 1);
    let err = String::from_utf8(err).unwrap();
    assert!(
        err.starts_with(&format!("{path}: would delete 9 of 10 subscribers, which is seldom meant;")),
        "{err}"
    );
    assert!(out.is_empty());
    std::fs::remove_file(path).unwrap();
}
