// SPDX-License-Identifier: Apache-2.0
//! Aggregates on a running shaper: subscribers below one share its rate by their plans, both are changed over HTTP
//! while traffic flows, and every packet is accounted for.

#![expect(clippy::cast_precision_loss, reason = "bytes and rates far below 2^53")]
#![expect(clippy::disallowed_methods, reason = "real traffic takes real time, which is measured here")]

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::direct::{Direct, Line, Plan, address, server};
use tests::traffic::{run_udp, traffic_server};
use tests::verdict::{Timed, all, conserved, let_flow, undisturbed, within};

/// Plans of 2, 4 and 6 Mb/s, all of which are asked for.
const LINES: [Line; 3] = [line("two", 10, 2), line("four", 20, 4), line("six", 30, 6)];
const OFFERED: &str = "8000000";
const SECONDS: &str = "14";

const fn line(id: &'static str, host: u8, mbps: u64) -> Line {
    Line { id, pair: 0, host, down_bps: mbps * 1_000_000, up_bps: 1_000_000 }
}

/// Bytes that each subscriber was sent, on its line.
fn sent(network: &Direct) -> Result<[f64; 3]> {
    let mut all = [0.0; 3];
    for (sum, line) in all.iter_mut().zip(&LINES) {
        let down = network.shaper.stats(line.id)?.down;
        for queue in [&down.l4s, &down.classic] {
            // far below 2^53
            *sum += (queue.forwarded_bytes + 38 * queue.forwarded) as f64;
        }
    }
    Ok(all)
}

/// Shares of plans over two seconds: near `share` each.
fn shares(network: &Direct, what: &str, share: [f64; 3]) -> Result<Timed> {
    let before = sent(network)?;
    let from = std::time::Instant::now();
    let_flow(2.0);
    let after = sent(network)?;
    let seconds = from.elapsed().as_secs_f64();
    let parts = LINES.iter().zip(before.iter().zip(after)).zip(share);
    Ok(all(parts.map(|((line, (before, after)), share)| {
        let got = (after - before) * 8.0 / seconds / line.down_bps as f64;
        within(&format!("{what}: {} of its plan", line.id), got, share * 0.93, share * 1.07)
    })))
}

fn put(network: &Direct, id: &str, down_bps: u64, above: Option<&str>) -> Result<()> {
    let body = json!({"id": id, "parent": above, "down_bps": down_bps, "up_bps": 1_000_000_000});
    let (status, answer) = network.shaper.put(&format!("/v1/parents/{id}"), &body.to_string())?;
    ensure!(status == 200 || status == 201, "{status} {answer}");
    Ok(())
}

fn patch(network: &Direct, path: &str, body: &Value) -> Result<()> {
    let (status, answer) = network.shaper.patch(path, &body.to_string())?;
    ensure!(status == 200, "{path}: {status} {answer}");
    Ok(())
}

fn run(network: &Direct) -> Result<Timed> {
    let folder = network.folder.as_path();
    put(network, "site", 6_000_000, None)?;
    put(network, "pon", 100_000_000, Some("site"))?;
    for line in &LINES {
        let above = if line.id == "six" { "site" } else { "pon" };
        patch(network, &format!("/v1/subscribers/{}", line.id), &json!({"parent": above}))?;
    }
    let mut flows = Vec::new();
    for line in &LINES {
        let at = format!("{}:{}", server(0), 8_600 + u16::from(line.host));
        let serving = traffic_server(&network.pairs[0].server, &at, folder)?;
        let options =
            ["--direction", "down", "--seconds", SECONDS, "--rate-bps", OFFERED, "--ecn", "not_ect"];
        let flow = run_udp(&network.pairs[0].client, (&address(0, line.host), &at), "cbr", &options, folder)?;
        flows.push((serving, flow));
    }
    let_flow(1.0);
    // 6 for plans of 12, at whichever level
    let half = shares(network, "the site", [0.5, 0.5, 0.5])?;
    put(network, "site", 9_000_000, None)?;
    let_flow(0.5);
    let more = shares(network, "the site at 9 Mb/s", [0.75; 3])?;
    // 1.5 for plans of 6 below the PON port, the rest is enough for the other
    patch(network, "/v1/parents/pon", &json!({"down_bps": 1_500_000}))?;
    let_flow(0.5);
    let narrow = shares(network, "the PON port", [0.25, 0.25, 1.0])?;
    patch(network, "/v1/subscribers/two", &json!({"parent": null}))?;
    let_flow(0.5);
    let moved = shares(network, "one in none", [1.0, 0.375, 1.0])?;
    let stats = network.shaper.json("/v1/parents/pon/stats")?;
    let forwarded = stats["down"]["forwarded"].as_u64().context("forwarded")?;
    ensure!(forwarded > 100 && stats["down"]["children"] == 1, "{stats}");
    for queue in ["l4s", "classic"] {
        let sum = |name: &str| stats["down"][queue][name].as_u64().unwrap_or(u64::MAX / 8);
        let dropped = ["ect", "not_ect", "tail", "pool", "other"].map(|why| sum(&format!("dropped_{why}")));
        let gone = sum("forwarded") + dropped.iter().sum::<u64>() + sum("queued");
        ensure!(sum("arrived") == gone, "{queue}: {} came, {gone} are told of: {stats}", sum("arrived"));
    }
    let carried = ["l4s", "classic"].map(|queue| stats["down"][queue]["forwarded"].as_u64().unwrap_or(0));
    ensure!(stats["down"]["subscribers"] == 1 && carried.iter().sum::<u64>() > 100, "{stats}");
    ensure!(stats["down"]["clock_speed"].as_f64().is_some_and(|speed| speed < 0.6), "{stats}");
    let metrics = network.shaper.get("/metrics")?.1;
    ensure!(metrics.contains("\nsluice_parents 2\n"), "{metrics}");
    ensure!(metrics.contains("\nsluice_parents_saturated{dir=\"down\"} 1\n"), "one is a bottleneck");
    ensure!(network.shaper.delete("/v1/parents/pon")? == 409, "it has children");
    for (serving, flow) in flows {
        flow.finish(Duration::from_mins(1))?;
        drop(serving);
    }
    conserved(&network.shaper, &LINES.map(|line| line.id), false)?;
    for line in &LINES {
        patch(network, &format!("/v1/subscribers/{}", line.id), &json!({"parent": null}))?;
    }
    for id in ["pon", "site"] {
        let answer = network.shaper.delete(&format!("/v1/parents/{id}"))?;
        ensure!(answer == 204, "{id}: {answer}");
    }
    Ok(all([half, more, narrow, moved]))
}

fn plays(name: &str, lcores: &'static str, device: &'static str) {
    undisturbed(name, || {
        let network = Direct::set(&Plan { lcores, device, lines: LINES.to_vec(), ..Plan::default() })?;
        let verdict = run(&network).with_context(|| format!("sluice said: {}", network.shaper.output()))?;
        Ok((verdict, network.shaper.gap_us()?))
    });
}

#[test]
fn children_of_an_aggregate_share_its_rate_by_their_plans_while_it_changes() {
    let name = "children_of_an_aggregate_share_its_rate_by_their_plans_while_it_changes";
    plays(name, "{ compact = \"1@1\" }", "");
}
