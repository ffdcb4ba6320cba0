// SPDX-License-Identifier: Apache-2.0
//! A profile that changes by a reload while its queues are full: the new limit and another AQM hold from then on, and
//! every packet is accounted for.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::direct::{Direct, Line, Plan, address, server};
use tests::machine::wait_for;
use tests::traffic::{run_udp, traffic_server};
use tests::verdict::{Timed, all, conserved, let_flow, undisturbed, within};

const LINE: Line = Line { id: "flooded", pair: 0, host: 10, down_bps: 8_000_000, up_bps: 1_000_000 };

/// Rewrites the running configuration and has it read again.
fn reload(network: &Direct, from: &str, to: &str) -> Result<Value> {
    let path = network.folder.join("sluice.toml");
    let text = std::fs::read_to_string(&path)?;
    ensure!(text.contains(from), "{from:?} is not in {text}");
    std::fs::write(&path, text.replace(from, to))?;
    let (status, body) = network.shaper.post("/v1/reload", "")?;
    ensure!(status == 200, "{status} {body}");
    serde_json::from_str(&body).context(body)
}

fn keys(changes: &Value) -> Vec<&str> {
    changes.as_array().into_iter().flatten().filter_map(|change| change["key"].as_str()).collect()
}

/// Mean delay of what leaves within a second, in milliseconds.
fn delay_ms(network: &Direct) -> Result<f64> {
    let sums = || -> Result<(f64, f64)> {
        let classic = network.shaper.stats(LINE.id)?.down.classic;
        Ok((classic.delay_us.sum, tests::scene::precise(classic.forwarded)))
    };
    let before = sums()?;
    let_flow(1.0);
    let after = sums()?;
    Ok((after.0 - before.0) / (after.1 - before.1).max(1.0) / 1e3)
}

fn run(network: &Direct) -> Result<Timed> {
    let folder = network.folder.as_path();
    let at = format!("{}:8650", server(0));
    let serving = traffic_server(&network.pairs[0].server, &at, folder)?;
    let options = ["--direction", "down", "--seconds", "14", "--rate-bps", "12000000", "--ecn", "not_ect"];
    let flow = run_udp(&network.pairs[0].client, (&address(0, LINE.host), &at), "cbr", &options, folder)?;
    let full = wait_for(Duration::from_secs(5), || {
        network.shaper.stats(LINE.id).is_ok_and(|stats| stats.down.classic.dropped_tail > 50)
    });
    ensure!(full, "the queue does not fill: {}", flow.output());
    let long = within("200 ms of limit", delay_ms(network)?, 170.0, 210.0);
    let done = reload(network, "limit_us = 200000", "limit_us = 50000")?;
    ensure!(keys(&done["applied"]) == ["profile.default.limit_us"], "{done}");
    ensure!(done["restart_needed"] == json!([]), "{done}");
    let_flow(0.5);
    let short = within("50 ms of limit", delay_ms(network)?, 40.0, 56.0);
    // another discipline, with queues of its own, and one more profile
    let more = "aqm = \"codel\"\nlimit_us = 50000\n[profile.gold]\naqm = \"dualpi2\"\nlimit_us = 100000";
    let done = reload(network, "aqm = \"fifo\"\nlimit_us = 50000", more)?;
    ensure!(done["restart_needed"] == json!([]), "{done}");
    ensure!(keys(&done["applied"]).contains(&"profile.gold"), "{done}");
    let dropped = || Ok::<_, anyhow::Error>(network.shaper.stats(LINE.id)?.down.classic.dropped_not_ect);
    let before = dropped()?;
    let_flow(1.0);
    ensure!(dropped()? > before, "the new AQM drops nothing");
    let shown = network.shaper.json("/v1/profiles")?;
    let names: Vec<_> =
        shown["items"].as_array().into_iter().flatten().map(|one| one["name"].clone()).collect();
    ensure!(names == ["default", "gold", "other"] && shown["items"][0]["aqm"] == "codel", "{shown}");
    let (status, answer) = network.shaper.patch("/v1/subscribers/flooded", r#"{"profile":"gold"}"#)?;
    ensure!(status == 200, "{answer}");
    let_flow(0.5);
    let gold = network.shaper.stats(LINE.id)?.down;
    let_flow(0.5);
    ensure!(network.shaper.stats(LINE.id)?.down.p_prime > 0.0 && gold.classic.forwarded > 0, "{gold:?}");
    let later = reload(
        network,
        "[profile.gold]\naqm = \"dualpi2\"",
        "[profile.gold]\naqm = \"dualpi2\"\ntupdate_us = 32000",
    )?;
    ensure!(keys(&later["restart_needed"]) == ["profile.gold.tupdate_us"], "{later}");
    ensure!(later["notes"][0].as_str().is_some_and(|note| note.contains("tupdate_us = 32000")), "{later}");
    flow.finish(Duration::from_mins(1))?;
    drop(serving);
    conserved(&network.shaper, &[LINE.id], false)?;
    Ok(all([long, short]))
}

#[test]
fn a_changed_profile_holds_for_queues_that_are_full() {
    let name = "a_changed_profile_holds_for_queues_that_are_full";
    undisturbed(name, || {
        let plan = Plan {
            lines: vec![LINE],
            profile: "aqm = \"fifo\"\nlimit_us = 200000\n[profile.other]\naqm = \"dualpi2\"",
            ..Plan::default()
        };
        let network = Direct::set(&plan)?;
        let verdict = run(&network).with_context(|| format!("sluice said: {}", network.shaper.output()))?;
        Ok((verdict, network.shaper.gap_us()?))
    });
}
