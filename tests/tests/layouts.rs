// SPDX-License-Identifier: Apache-2.0
//! The same traffic works however lcores, shards and ports are laid out. All pollers share one CPU here, so nothing
//! is said of delay: frames get through both ways, plans are not exceeded, every packet is accounted for.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use model::stats::DirectionStats;
use tests::direct::{Direct, Line, Plan, address, server};
use tests::scene::{Scene, Script};
use tests::topology::{Attach, CUSTOMERS, SERVER};
use tests::traffic::{run_udp, summary, traffic_server};
use tests::verdict::{conserved, may_make_namespaces};

/// How long traffic is sent, and how much of it by each flow.
const SECONDS: u64 = 3;
const OFFERED: u64 = 6_000_000;
/// Of packets with 1,428 bytes of IP, and what each costs with `overhead = "ethernet"`.
const COST: u64 = 1_466;
const PAYLOAD_BITS: u64 = 1_400 * 8;

/// Plans above what is offered, and one below; of two shards either owns both kinds.
const fn lines(pair: usize, ids: [&'static str; 4]) -> [Line; 4] {
    let wide = Line { id: ids[0], pair, host: 10, down_bps: 20_000_000, up_bps: 20_000_000 };
    let narrow = Line { id: ids[1], host: 20, down_bps: 3_000_000, up_bps: 20_000_000, ..wide };
    let other = Line { id: ids[2], host: 30, ..wide };
    [wide, narrow, other, Line { id: ids[3], host: 40, down_bps: 20_000_000, up_bps: 3_000_000, ..wide }]
}

const LINES: [Line; 4] = lines(0, ["wide", "narrow-down", "other", "narrow-up"]);

/// Packets forwarded and the bits they cost.
fn forwarded(stats: &DirectionStats) -> (u64, u64) {
    let packets = stats.l4s.forwarded + stats.classic.forwarded;
    (packets, (stats.l4s.forwarded_bytes + stats.classic.forwarded_bytes) * 8 * COST / (COST - 38))
}

/// Sends to and from every line at once, and holds what came against plans and counters.
fn carries(network: &Direct, lines: &[Line]) -> Result<()> {
    let folder = network.folder.as_path();
    let mut flows = Vec::new();
    for line in lines {
        let pair = &network.pairs[line.pair];
        for (direction, base) in [("down", 8_400), ("up", 8_500)] {
            let at = format!("{}:{}", server(line.pair), base + u16::from(line.host));
            let serving = traffic_server(&pair.server, &at, folder)?;
            let (seconds, rate) = (SECONDS.to_string(), OFFERED.to_string());
            let options =
                ["--direction", direction, "--seconds", &seconds, "--rate-bps", &rate, "--ecn", "not_ect"];
            let own = address(line.pair, line.host);
            flows.push((
                line,
                direction,
                serving,
                run_udp(&pair.client, (&own, &at), "cbr", &options, folder)?,
            ));
        }
    }
    for (line, direction, _serving, flow) in flows {
        let seen = summary(&flow.finish(Duration::from_secs(40))?)?;
        let came = seen["packets"].as_u64().context("packets")? * PAYLOAD_BITS;
        let plan = if direction == "down" { line.down_bps } else { line.up_bps };
        // time that a poller did not have is not made up for, and up to five share a CPU
        let least = plan.min(OFFERED) * SECONDS / 10;
        ensure!(came >= least, "{} {direction}: {came} bits came, not {least}: {seen}", line.id);
    }
    let ids: Vec<&str> = lines.iter().map(|line| line.id).collect();
    conserved(&network.shaper, &ids, false)?;
    for line in lines {
        let stats = network.shaper.stats(line.id)?;
        for (direction, stats, plan) in [("down", &stats.down, line.down_bps), ("up", &stats.up, line.up_bps)]
        {
            let (packets, bits) = forwarded(stats);
            ensure!(packets > 100, "{} {direction}: {packets} packets", line.id);
            // what was sent, with a second for what was queued or came late
            let most = plan * (SECONDS + 1) + plan / 4;
            ensure!(bits <= most, "{} {direction}: {bits} bits were sent, above {most}", line.id);
        }
    }
    Ok(())
}

fn works(name: &str, plan: &Plan) {
    if !may_make_namespaces(name) {
        return;
    }
    let network = Direct::set(plan).unwrap_or_else(|error| panic!("{error:#}"));
    carries(&network, &plan.lines)
        .unwrap_or_else(|error| panic!("{error:#}; sluice said: {}", network.shaper.output()));
    let lcores = network.shaper.json("/v1/lcores").expect("lcores answer");
    let busy = lcores["items"].as_array().expect("lcores");
    assert!(busy.iter().all(|lcore| lcore["longest_gap_us"].as_u64() > Some(0)), "all loop: {lcores}");
}

fn plan(lcores: &'static str) -> Plan {
    Plan { lcores, lines: LINES.to_vec(), ..Plan::default() }
}

#[test]
fn two_shards_on_af_packet_with_two_queue_pairs() {
    let lcores = r#"{ control = 0, rx = ["1@1"], tx = ["2@1", "3@1"] }"#;
    works("two_shards_on_af_packet_with_two_queue_pairs", &Plan { device: ",qpairs=2", ..plan(lcores) });
}

#[test]
fn two_shards_on_net_tap() {
    let name = "two_shards_on_net_tap";
    if !may_make_namespaces(name) {
        return;
    }
    let lcores = Some(r#"{ control = 0, rx = ["1@1"], tx = ["2@1", "3@1"] }"#);
    let script = Script { attach: Attach::Tap, lcores, ..Script::default() };
    let scene = Scene::set(&script).unwrap_or_else(|error| panic!("{error:#}"));
    let run = || -> Result<()> {
        let mut flows = Vec::new();
        for (customer, port) in CUSTOMERS.iter().zip(8_490..) {
            let at = format!("{SERVER}:{port}");
            let serving = traffic_server(&scene.topology.server, &at, &scene.folder)?;
            let options =
                ["--direction", "down", "--seconds", "3", "--rate-bps", "6000000", "--ecn", "not_ect"];
            let (client, own) = (&scene.topology.client, customer.ipv4);
            flows.push((serving, run_udp(client, (own, &at), "cbr", &options, &scene.folder)?));
        }
        for (_serving, flow) in flows {
            let seen = summary(&flow.finish(Duration::from_secs(40))?)?;
            ensure!(seen["packets"].as_u64() > Some(100), "{seen}");
        }
        let ids = CUSTOMERS.map(|customer| customer.id);
        conserved(&scene.shaper, &ids, false)?;
        for id in ids {
            let stats = scene.shaper.stats(id)?;
            ensure!(forwarded(&stats.down).0 > 100 && forwarded(&stats.up).0 > 0, "{id}: {stats:?}");
        }
        Ok(())
    };
    run().unwrap_or_else(|error| panic!("{error:#}; sluice said: {}", scene.shaper.output()));
}

#[test]
fn two_rx_lcores_with_a_port_each() {
    works("two_rx_lcores_with_a_port_each", &plan(r#"{ control = 0, rx = ["1@1", "2@1"], tx = ["3@1"] }"#));
}

#[test]
fn two_rx_lcores_and_two_shards_with_queues_for_each() {
    let lcores = r#"{ control = 0, rx = ["1@1", "2@1"], tx = ["3@1", "4@1"] }"#;
    let name = "two_rx_lcores_and_two_shards_with_queues_for_each";
    works(name, &Plan { device: ",qpairs=2", ..plan(lcores) });
}

#[test]
fn lcore_0_does_everything() {
    works("lcore_0_does_everything", &plan(r#"{ compact = "0@1" }"#));
}

#[test]
fn lcore_0_receives_and_another_controls() {
    works(
        "lcore_0_receives_and_another_controls",
        &plan(r#"{ control = "3@0", rx = ["0@1"], tx = ["1@1"] }"#),
    );
}

#[test]
fn several_port_pairs_forward_independently() {
    let name = "several_port_pairs_forward_independently";
    let first = lines(0, ["wide", "narrow-down", "other", "narrow-up"]);
    let second = lines(1, ["wide-1", "narrow-down-1", "other-1", "narrow-up-1"]);
    let lines = [&first[..2], &second[2..]].concat();
    works(name, &Plan { pairs: 2, lines, ..Plan::default() });
}
