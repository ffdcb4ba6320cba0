// SPDX-License-Identifier: Apache-2.0
//! `sluice top` in a real terminal, over a running shaper with real traffic: what it shows is what flows, it says when
//! the shaper is gone, and it leaves the terminal as it was.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::direct::{Direct, Line, Plan, address, server};
use tests::machine::has;
use tests::pty::Pty;
use tests::shaper::program;
use tests::skip;
use tests::traffic::{run_udp, traffic_server};
use tests::verdict::may_make_namespaces;

const NAME: &str = "top_shows_what_flows_and_gives_the_terminal_back";
const A: Line = Line { id: "house-7", pair: 0, host: 10, down_bps: 20_000_000, up_bps: 10_000_000 };
/// What is sent down, and how near the screen must come: it shows IP packets, the sender counts its payload.
const SENT_BPS: f64 = 6e6;
const NEAR: std::ops::RangeInclusive<f64> = 0.8..=1.3;

const SOON: Duration = Duration::from_secs(15);

/// The number of a column that reads `5.98 M` or `512`.
fn number(words: &[&str]) -> Option<f64> {
    let value: f64 = words.first()?.parse().ok()?;
    let unit = match words.get(1).copied() {
        Some("k") => 1e3,
        Some("M") => 1e6,
        Some("G") => 1e9,
        _ => 1.0,
    };
    Some(value * unit)
}

/// Bits a second of the row that begins with `name`.
fn rate(screen: &str, name: &str) -> Option<f64> {
    let row = screen.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    number(&row.split_whitespace().skip(1).collect::<Vec<_>>())
}

fn near(rate: Option<f64>) -> bool {
    rate.is_some_and(|rate| NEAR.contains(&(rate / SENT_BPS)))
}

fn watch(network: &mut Direct) -> Result<()> {
    let folder = network.folder.clone();
    let at = format!("{}:8400", server(0));
    let _serving = traffic_server(&network.pairs[0].server, &at, &folder)?;
    let options = ["--direction", "down", "--seconds", "60", "--rate-bps", "6000000", "--ecn", "not_ect"];
    let _flow = run_udp(&network.pairs[0].client, (&address(0, A.host), &at), "cbr", &options, &folder)?;
    let url = format!("http://{}", network.api());
    let sluice = program("sluice").display().to_string();
    let mut top = Pty::run(&format!("{sluice} top --api {url}; echo code $?; stty -a"))?;
    let figures = top.shows(SOON, |screen| near(rate(screen, "down")) && near(rate(screen, A.id)));
    ensure!(figures, "no figures near {SENT_BPS} b/s:\n{}", top.text());
    let page = top.text();
    ensure!(page.contains("  live") && page.contains("1 configured"), "{page}");
    ensure!(page.contains("port core0        up") && page.contains("lcores 1 compact"), "{page}");
    ensure!(top.held(), "a full screen: {page}");

    top.press("\r")?;
    let subscriber = top.shows(SOON, |screen| {
        screen.contains(&format!("SUBSCRIBER {}", A.id))
            && screen.contains("20.0 Mbit/s down, 10.0 Mbit/s up")
            && screen.lines().any(|line| {
                let words: Vec<_> = line.split_whitespace().collect();
                words.starts_with(&["down", "Classic"]) && near(number(&words[2..]))
            })
    });
    ensure!(subscriber, "no page of the subscriber:\n{}", top.text());
    top.press("\u{1b}")?;
    ensure!(top.shows(SOON, |screen| screen.contains("TOP BYTES down")), "{}", top.text());

    let once = Command::new(program("sluice")).args(["top", "--once", "--json", "--api", &url]).output()?;
    let told: Value = serde_json::from_slice(&once.stdout).context("top --once --json")?;
    ensure!(near(told["down"]["rate_bps"].as_f64()) && told["top"]["items"][0]["id"] == A.id, "{told}");
    let once = Command::new(program("sluice")).args(["top", "--once", "--api", &url]).output()?;
    let text = String::from_utf8_lossy(&once.stdout);
    ensure!(near(rate(&text, "down")), "top --once: {text}");

    network.shaper.kill();
    ensure!(top.shows(SOON, |screen| screen.contains("GONE")), "{}", top.text());
    top.press("q")?;
    ensure!(top.ended(SOON), "q does not end it: {}", top.text());
    let left = top.text();
    ensure!(!top.held() && left.contains("code 0"), "the terminal was not given back: {left}");
    let words: Vec<_> = left.split([' ', '\n', ';']).collect();
    ensure!(words.contains(&"icanon") && words.contains(&"echo"), "the terminal stayed raw: {left}");
    Ok(())
}

#[test]
fn top_shows_what_flows_and_gives_the_terminal_back() {
    if !has("script") {
        return skip(NAME, "`script` is not installed (Debian: bsdutils)");
    }
    if !may_make_namespaces(NAME) {
        return;
    }
    let mut network =
        Direct::set(&Plan { lines: vec![A], ..Plan::default() }).unwrap_or_else(|e| panic!("{e:#}"));
    watch(&mut network).unwrap_or_else(|error| panic!("{error:#}"));
}
