// SPDX-License-Identifier: Apache-2.0
//! The client against a server that plays a script and keeps what it was sent.

use std::io::{BufRead, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use clap::Parser;

use super::*;

mod network;
mod watching;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    subs: SubsArgs,
}

/// A request: its first line, headers in lower case, and body.
struct Seen {
    line: String,
    headers: String,
    body: String,
}

/// Plays one answer a connection.
struct Script {
    url: String,
    thread: JoinHandle<Vec<Seen>>,
}

impl Script {
    fn new(answers: Vec<(u16, &str)>) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), answers)
    }

    fn on(listener: TcpListener, answers: Vec<(u16, &str)>) -> Self {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers: Vec<_> = answers.into_iter().map(|(status, body)| (status, body.to_owned())).collect();
        let thread = std::thread::spawn(move || {
            let each =
                answers.into_iter().map(|(status, body)| serve(listener.accept().unwrap().0, status, &body));
            each.collect()
        });
        Self { url, thread }
    }

    /// Runs `sluice subs` against it: exit code or error, stdout, stderr, and what the server saw.
    fn run(self, args: &[&str]) -> (Result<ExitCode, String>, String, String, Vec<Seen>) {
        let cli = Cli::try_parse_from(["subs", "--api", &self.url].iter().chain(args)).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = execute(cli.subs, &mut out, &mut err).map_err(|error| format!("{error:#}"));
        let seen = self.thread.join().unwrap();
        (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), seen)
    }
}

fn serve(stream: TcpStream, status: u16, body: &str) -> Seen {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut headers = String::new();
    while !headers.ends_with("\r\n\r\n") && reader.read_line(&mut headers).unwrap() > 2 {}
    let headers = headers.to_lowercase();
    let sent = if headers.contains("transfer-encoding: chunked") {
        unchunk(&mut reader)
    } else {
        let length = headers.lines().find_map(|header| header.strip_prefix("content-length: "));
        let mut sent = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
        reader.read_exact(&mut sent).unwrap();
        sent
    };
    let answer =
        format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    reader.get_mut().write_all(answer.as_bytes()).unwrap();
    Seen { line: line.trim().to_owned(), headers, body: String::from_utf8(sent).unwrap() }
}

fn unchunk(reader: &mut impl BufRead) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let mut size = String::new();
        reader.read_line(&mut size).unwrap();
        let mut chunk = vec![0; usize::from_str_radix(size.trim(), 16).unwrap() + 2];
        reader.read_exact(&mut chunk).unwrap();
        chunk.truncate(chunk.len() - 2);
        if chunk.is_empty() {
            return all;
        }
        all.append(&mut chunk);
    }
}

fn record(id: &str, last: u8) -> String {
    format!(
        r#"{{"id":"{id}","down_bps":100000000,"up_bps":2500000,"profile":"default","parent":null,"match":{{"ipv4":["10.0.0.{last}/32"],"vlan":{{"outer":100,"inner":42}},"pppoe":{{"session":2{last},"mac":"02:00:00:00:00:01"}},"port":"access"}}}}"#
    )
}

fn file(name: &str, text: &str) -> String {
    let path = std::env::temp_dir().join(format!("sluice-subs-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_list_follows_all_pages() {
    let first = format!("{{\"items\":[{}],\"next\":\"a b\"}}", record("a b", 1));
    let second = format!("{{\"items\":[{}],\"next\":null}}", record("c", 2));
    let (code, out, _, seen) = Script::new(vec![(200, &first), (200, &second)]).run(&["list"]);
    assert_eq!(code, Ok(ExitCode::SUCCESS));
    assert_eq!(seen[0].line, "GET /v1/subscribers?limit=1000 HTTP/1.1");
    assert_eq!(seen[1].line, "GET /v1/subscribers?limit=1000&after=a%20b HTTP/1.1");
    let expected = "ID   DOWN      UP        PROFILE  PARENT  MATCH\n\
        a b  100 Mb/s  2.5 Mb/s  default  -       10.0.0.1/32, pppoe 21 02:00:00:00:00:01, vlan 100.42, port access\n\
        c    100 Mb/s  2.5 Mb/s  default  -       10.0.0.2/32, pppoe 22 02:00:00:00:00:01, vlan 100.42, port access\n";
    assert_eq!(out, expected);
}

#[test]
fn a_list_as_json_is_an_array_that_can_be_loaded() {
    let page = format!("{{\"items\":[{},{}],\"next\":null}}", record("a", 1), record("b", 2));
    let (_, out, _, _) = Script::new(vec![(200, &page)]).run(&["list", "--json"]);
    let imported = model::import::read("f", out.as_bytes(), &model::import::Options::default()).unwrap();
    assert_eq!(imported.subscribers.len(), 2);
    let (_, out, _, _) = Script::new(vec![(200, "{\"items\":[],\"next\":null}")]).run(&["list", "--json"]);
    assert_eq!(out, "[]\n");
}

#[test]
fn rates_are_patched_and_only_those_given() {
    let (code, out, _, seen) =
        Script::new(vec![(200, &record("ä/1", 1))]).run(&["set-rate", "ä/1", "--down-bps", "100000000"]);
    assert_eq!(code, Ok(ExitCode::SUCCESS));
    assert_eq!(seen[0].line, "PATCH /v1/subscribers/%C3%A4%2F1 HTTP/1.1");
    assert_eq!(seen[0].body, r#"{"down_bps":100000000}"#);
    assert!(out.contains("down     100 Mb/s\n"), "{out}");
}

#[test]
fn the_token_is_sent_and_a_refusal_is_told_in_the_words_of_the_shaper() {
    let token = file("token", "s3cret\n");
    let problem =
        r#"{"title":"Not Found","status":404,"detail":"no subscriber is named \"x\"","field":"id"}"#;
    let (code, out, _, seen) = Script::new(vec![(404, problem)]).run(&["get", "x", "--token-file", &token]);
    assert_eq!(code.unwrap_err(), "id: no subscriber is named \"x\" (HTTP 404)");
    assert_eq!(out, "");
    assert!(seen[0].headers.contains("authorization: bearer s3cret\r\n"), "{}", seen[0].headers);
    let (code, ..) = Script::new(vec![(401, "")]).run(&["rm", "x"]);
    assert_eq!(code.unwrap_err(), "no reason given (HTTP 401); --token-file names the token");
    std::fs::remove_file(token).unwrap();
}

#[test]
fn a_removal_says_so() {
    let (code, out, _, seen) = Script::new(vec![(204, "")]).run(&["rm", "x"]);
    assert_eq!((code, out.as_str()), (Ok(ExitCode::SUCCESS), "x removed\n"));
    assert_eq!(seen[0].line, "DELETE /v1/subscribers/x HTTP/1.1");
}

#[test]
fn a_file_is_sent_as_lines_whatever_its_format() {
    let csv = file("good.csv", "1,n,d,dn,,,100.64.0.1,,,,50,10,\n2,n,d,dn,,,100.64.0.2,,,,60,10,\n");
    let answer = r#"{"created":1,"updated":1,"deleted":7,"unchanged":0,"errors":[]}"#;
    let there = format!("{{\"items\":[{},{}],\"next\":null}}", record("2", 2), record("old", 3));
    let (code, out, err, seen) = Script::new(vec![(200, answer), (200, &there)]).run(&[
        "load",
        &csv,
        "--replace",
        "--dry-run",
        "--profile",
        "gold",
    ]);
    assert_eq!(code, Ok(ExitCode::SUCCESS), "{err}");
    assert_eq!(seen[1].line, "GET /v1/subscribers?limit=1000 HTTP/1.1");
    assert_eq!(seen[0].line, "POST /v1/subscribers/bulk?mode=replace&dry_run=true HTTP/1.1");
    assert_eq!(seen[0].body.lines().count(), 2);
    assert!(seen[0].body.starts_with(r#"{"id":"1","down_bps":50000000,"up_bps":10000000,"profile":"gold""#));
    let rest = "pppoe 23 02:00:00:00:00:01, vlan 100.42, port access";
    let expected = format!(
        "+ 1: 50 Mb/s down, 10 Mb/s up, profile gold, 100.64.0.1/32\n\
         ~ 2: down_bps 100 Mb/s -> 60 Mb/s; up_bps 2.5 Mb/s -> 10 Mb/s; profile default -> gold; \
         match 10.0.0.2/32, pppoe 22 02:00:00:00:00:01, vlan 100.42, port access -> 100.64.0.2/32\n\
         - old: 100 Mb/s down, 2.5 Mb/s up, profile default, 10.0.0.3/32, {rest}\n\
         1 would be created, 1 would be updated, 7 would be deleted, 0 would be unchanged\n"
    );
    assert_eq!(out, expected);
    std::fs::remove_file(csv).unwrap();
}

#[test]
fn a_replacement_that_removes_most_is_refused_unless_it_is_meant() {
    let empty = file("empty.json", "[]");
    let most = r#"{"created":0,"updated":0,"deleted":9,"unchanged":0,"errors":[]}"#;
    let (code, out, err, seen) = Script::new(vec![(200, most)]).run(&["load", &empty, "--replace"]);
    assert_eq!((code, out.as_str()), (Ok(ExitCode::FAILURE), ""));
    assert_eq!(
        err,
        format!(
            "{empty} holds no records; --replace would delete all 9 subscribers; say --allow-empty if that is meant\n"
        )
    );
    assert_eq!(seen[0].line, "POST /v1/subscribers/bulk?mode=replace&dry_run=true HTTP/1.1");
    let (code, out, _, seen) =
        Script::new(vec![(200, most)]).run(&["load", &empty, "--replace", "--allow-empty"]);
    assert_eq!(code, Ok(ExitCode::SUCCESS));
    assert_eq!(seen[0].line, "POST /v1/subscribers/bulk?mode=replace&dry_run=false HTTP/1.1");
    assert!(out.contains("9 deleted"), "{out}");

    let one = file("one.json", &record("a", 1));
    let half = r#"{"created":1,"updated":1,"deleted":3,"unchanged":2,"errors":[]}"#;
    let more = r#"{"created":5,"updated":1,"deleted":3,"unchanged":1,"errors":[]}"#;
    let load = ["load", &one, "--replace"];
    let (code, out, err, seen) = Script::new(vec![(200, half), (200, half)]).run(&load);
    assert_eq!((code, seen.len()), (Ok(ExitCode::SUCCESS), 2), "{err}");
    assert_eq!(seen[1].line, "POST /v1/subscribers/bulk?mode=replace&dry_run=false HTTP/1.1");
    assert!(out.contains("3 deleted"), "{out}");
    let (code, _, err, seen) = Script::new(vec![(200, more)]).run(&load);
    assert_eq!((code, seen.len()), (Ok(ExitCode::FAILURE), 1));
    assert_eq!(err, format!("{one} would delete 3 of 5 subscribers: say --force if that is meant\n"));
    // --allow-empty speaks of empty files only
    let (code, ..) = Script::new(vec![(200, more)]).run(&[&load[..], &["--allow-empty"]].concat());
    assert_eq!(code, Ok(ExitCode::FAILURE));
    let (code, _, _, seen) = Script::new(vec![(200, more)]).run(&[&load[..], &["--force"]].concat());
    assert_eq!((code, seen.len()), (Ok(ExitCode::SUCCESS), 1));
    assert!(seen[0].line.ends_with("dry_run=false HTTP/1.1"));
    std::fs::remove_file(empty).unwrap();
    std::fs::remove_file(one).unwrap();
}

#[test]
fn rates_take_a_unit() {
    let cases = [("50M", 50_000_000), ("64k", 64_000), ("64K", 64_000), ("1G", 1_000_000_000), ("7", 7)];
    for (text, rate) in cases {
        assert_eq!(parse_rate(text), Ok(rate));
    }
    for text in ["", "M", "5m", "1.5G", "-1", "50 M", "99999999999G", "50Mb"] {
        assert!(parse_rate(text).is_err_and(|error| error.contains("50000000, 50000k or 50M")), "{text}");
    }
}

#[test]
fn lines_that_the_shaper_refuses_are_named_as_in_the_file() {
    let json = file("refused.json", &format!("[\n{},\n\n{}]", record("a", 1), record("b", 2)));
    let answer = r#"{"created":0,"updated":0,"deleted":0,"unchanged":0,"errors":[{"line":2,"error":"no"}]}"#;
    let (code, out, err, _) = Script::new(vec![(422, answer)]).run(&["load", &json]);
    assert_eq!(code, Ok(ExitCode::FAILURE));
    assert_eq!(out, "");
    assert_eq!(err, format!("{json}:4: no\n{json}: nothing was changed\n"));
    std::fs::remove_file(json).unwrap();
}

#[test]
fn a_bad_file_is_never_sent() {
    let csv = file("bad.csv", "1,n,d,dn,,,100.64.0.300,,,,50,10,\n");
    let (code, _, err, seen) = Script::new(vec![]).run(&["load", &csv]);
    assert_eq!(code, Ok(ExitCode::FAILURE));
    assert!(err.starts_with(&format!("{csv}:1: IPv4: ")), "{err}");
    assert!(seen.is_empty());
    std::fs::remove_file(csv).unwrap();
}

#[test]
fn a_shaper_that_is_not_there_is_named() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let cli = Cli::try_parse_from(["subs", "--api", &url, "list"]).unwrap();
    let error = execute(cli.subs, &mut Vec::new(), &mut Vec::new()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{url} does not answer")) && error.contains("running"), "{error}");
}

#[test]
fn usage_that_makes_no_sense_is_refused() {
    for args in
        [&["subs", "set-rate", "a"][..], &["subs", "get"], &["subs", "set-rate", "a", "--up-bps", "x"]]
    {
        assert!(Cli::try_parse_from(args).is_err(), "{args:?}");
    }
    let cli = Cli::try_parse_from(["subs", "--api", "localhost", "list"]).unwrap();
    let error = execute(cli.subs, &mut Vec::new(), &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("http://"), "{error}");
}

#[test]
fn rates_show_in_the_largest_exact_unit() {
    let cases = [
        (64_000, "64 kb/s"),
        (64_001, "64.001 kb/s"),
        (2_500_000, "2.5 Mb/s"),
        (100_000_000, "100 Mb/s"),
        (1_000_000_000, "1 Gb/s"),
        (1_234_567_890, "1234567.89 kb/s"),
        (7, "7 b/s"),
    ];
    for (bps, expected) in cases {
        assert_eq!(show::rate(bps), expected);
    }
}

#[test]
fn rates_are_taken_as_other_shapers_write_them() {
    for (flag, text) in [("--mikrotik", "10M/50M 20M/100M"), ("--accel", "50000/10000")] {
        let (code, _, _, seen) =
            Script::new(vec![(200, &record("a", 1))]).run(&["set-rate", "a", flag, text]);
        assert_eq!(code, Ok(ExitCode::SUCCESS));
        assert_eq!(seen[0].body, r#"{"down_bps":50000000,"up_bps":10000000}"#);
    }
    let (code, ..) = Script::new(vec![]).run(&["set-rate", "a", "--accel", "fast"]);
    assert!(code.unwrap_err().starts_with("\"fast\" is no rate"));
    let both = ["subs", "set-rate", "a", "--accel", "1000", "--up-bps", "64k"];
    assert!(Cli::try_parse_from(both).is_err());
}

#[test]
fn statistics_are_a_row_a_queue() {
    let l4s = r#"{"arrived":9,"forwarded":7,"forwarded_bytes":900,"marked":3,"dropped_ect":1,"dropped_tail":1,
        "queued":0,"delay_us":{"p50":120.0,"p99":900.0,"max":1500.0}}"#;
    let stats =
        format!(r#"{{"down":{{"l4s":{l4s},"classic":{{}},"p_prime":0.25,"overload":true}},"up":{{}}}}"#);
    let (code, out, ..) = Script::new(vec![(200, &stats)]).run(&["stats", "a"]);
    assert_eq!(code, Ok(ExitCode::SUCCESS));
    let lines: Vec<_> = out.lines().collect();
    let row: Vec<_> = lines[1].split_whitespace().collect();
    assert_eq!(
        row,
        ["down", "l4s", "9", "7", "900", "3", "0", "0", "2", "0.12", "ms", "0.90", "ms", "1.50", "ms"]
    );
    assert_eq!(lines[5..], ["down: p' 0.2500, overload", "up: p' 0.0000"]);
    let (_, out, ..) = Script::new(vec![(200, &stats)]).run(&["stats", "a", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["down"]["l4s"]["marked"], 3);
}
