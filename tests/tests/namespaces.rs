// SPDX-License-Identifier: Apache-2.0
//! Real kernel TCP through Sluice between namespaces: shaped for each subscriber, L4S in a queue of its own, and an
//! operator changing a rate over HTTP while it flows.
//!
//! What counts, and when the machine excuses a miss: `tests::verdict`.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use model::stats::DirectionStats;
use serde_json::Value;
use tests::scene::{Scene, Script, Span, precise};
use tests::topology::{Attach, CUSTOMERS, SERVER, SERVER6};
use tests::traffic::{Tcp, goodput_bps, iperf_server, run_udp, summary, traffic_server};
use tests::verdict::{Timed, all, conserved, let_flow, queues, undisturbed, within};

/// TCP payload of a full packet, and what that packet costs with `overhead = "ethernet"`.
const PAYLOAD: f64 = 1448.0;
const COST: f64 = 1538.0;
/// Least share of a plan that a flow must get.
const LEAST: f64 = 0.98;

/// Runs on a scene of its own each time.
fn on_scene(name: &str, script: &Script, run: impl Fn(&Scene) -> Result<Timed>) {
    undisturbed(name, || {
        let scene = Scene::set(script)?;
        let verdict = run(&scene).with_context(|| format!("sluice said: {}", scene.shaper.output()))?;
        Ok((verdict, scene.shaper.gap_us()?))
    });
}

/// Every frame and every packet of each customer is accounted for.
fn all_conserved(scene: &Scene) -> Result<()> {
    let ids = CUSTOMERS.map(|customer| customer.id);
    let ledger = conserved(&scene.shaper, &ids, false)?;
    ensure!(ledger.link < 0.5, "a port lost frames: {ledger:?}");
    Ok(())
}

#[test]
fn kernel_tcp_of_every_kind_gets_its_plan_after_overhead() {
    let name = "kernel_tcp_of_every_kind_gets_its_plan_after_overhead";
    on_scene(name, &Script::default(), |scene| {
        let down = one_flow_each(scene, true)?;
        let up = one_flow_each(scene, false)?;
        all_conserved(scene)?;
        let stats = scene.shaper.stats("dual-stack")?;
        ensure!(
            stats.down.classic.forwarded > 0 && stats.up.classic.forwarded > 0,
            "both directions are counted"
        );
        ensure!(queues(&stats).iter().all(|queue| queue.marked == 0), "Not-ECT is never marked");
        Ok(all([down, up]))
    });
}

/// CUBIC, BBR and Reno, one for each customer at the same time, all in one direction.
fn one_flow_each(scene: &Scene, down: bool) -> Result<Timed> {
    let (client, folder) = (&scene.topology.client, scene.folder.as_path());
    let (mut servers, mut flows) = (Vec::new(), Vec::new());
    for (port, (customer, cc)) in (5201..).zip(CUSTOMERS.iter().zip(["cubic", "bbr", "reno"])) {
        servers.push(iperf_server(&scene.topology.server, port, folder)?);
        let tcp =
            Tcp { client, from: customer.ipv4, to: SERVER, port, seconds: 9, flows: 1, cc: Some(cc), down };
        flows.push((customer, cc, tcp.start(folder)?));
    }
    let mut verdicts = Vec::new();
    for (customer, cc, flow) in flows {
        let goodput = goodput_bps(&flow.finish(Duration::from_secs(40))?, 3.0)?;
        let plan = precise(if down { customer.down_bps } else { customer.up_bps }) * PAYLOAD / COST;
        let what = format!("{} {} {cc}, Mb/s", customer.id, if down { "down" } else { "up" });
        verdicts.push(within(&what, goodput / 1e6, plan * LEAST / 1e6, plan * 1.02 / 1e6));
    }
    Ok(all(verdicts))
}

#[expect(clippy::print_stdout, reason = "a test speaks to whoever runs it")]
fn show(id: &str, l4s: &Span, classic: &Span, seen: &Value) {
    println!("{id}: L {l4s:?}\n{id}: C {classic:?}\n{id}: prague {seen}");
}

/// Prague by UDP and kernel CUBIC beside it, down to one customer.
fn prague_beside_cubic(scene: &Scene, from: &str, server: &str, id: &str, down_bps: u64) -> Result<Timed> {
    let folder = scene.folder.as_path();
    let brackets =
        |address: &str| if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    let udp = traffic_server(&scene.topology.server, &format!("{}:8490", brackets(server)), folder)?;
    let tcp = iperf_server(&scene.topology.server, 5201, folder)?;
    let client = &scene.topology.client;
    let connect = format!("{}:8490", brackets(server));
    let prague =
        run_udp(client, (from, &connect), "prague", &["--direction", "down", "--seconds", "14"], folder)?;
    let cubic =
        Tcp { client, from, to: server, port: 5201, seconds: 14, flows: 1, cc: Some("cubic"), down: true };
    let cubic = cubic.start(folder)?;
    let_flow(5.0);
    let before = scene.shaper.stats(id)?.down;
    let_flow(7.0);
    let after = scene.shaper.stats(id)?.down;
    let seen = summary(&prague.finish(Duration::from_secs(40))?)?;
    cubic.finish(Duration::from_secs(40))?;
    all_conserved(scene)?;
    drop((udp, tcp));
    let (l4s, classic) =
        (Span::between(&before.l4s, &after.l4s), Span::between(&before.classic, &after.classic));
    show(id, &l4s, &classic, &seen);
    let ce = seen["ecn"]["ce"].as_u64().unwrap_or(0);
    ensure!(ce > 0, "the receiver saw no CE: {seen}");
    ensure!(seen["ecn"]["not_ect"] == 0 && seen["ecn"]["ect0"] == 0, "ECT(1) came as something else: {seen}");
    ensure!(scene.shaper.stats(id)?.down.classic.marked == 0, "Not-ECT CUBIC was marked");
    let rate = precise(l4s.bytes + classic.bytes + 38 * (l4s.forwarded + classic.forwarded)) * 8.0 / 7.0;
    Ok(all([
        within("L p99, ms", l4s.p99_us / 1e3, 0.0, 2.0),
        within("C p99 less L p99, ms", (classic.p99_us - l4s.p99_us) / 1e3, 0.001, 1e3),
        within("C mean, ms", classic.mean_us / 1e3, 10.0, 20.0),
        within("share of the plan", rate / precise(down_bps), LEAST, 1.02),
    ]))
}

#[test]
fn prague_has_a_short_queue_of_its_own_beside_cubic() {
    let name = "prague_has_a_short_queue_of_its_own_beside_cubic";
    on_scene(name, &Script::default(), |scene| {
        prague_beside_cubic(scene, "100.64.0.20", SERVER, "plain", 50_000_000)
    });
}

#[test]
fn the_same_over_ipv6() {
    let name = "the_same_over_ipv6";
    on_scene(name, &Script::default(), |scene| {
        prague_beside_cubic(scene, "2001:db8:a::10", SERVER6, "dual-stack", 20_000_000)
    });
}

#[test]
fn the_same_over_net_tap_behind_0x88a8() {
    let script = Script { attach: Attach::Tap, ..Script::default() };
    on_scene("the_same_over_net_tap_behind_0x88a8", &script, |scene| {
        prague_beside_cubic(scene, "100.64.0.30", SERVER, "qinq", 100_000_000)
    });
}

/// Bytes a customer was sent, and by when.
fn sent(scene: &Scene, id: &str) -> Result<(Instant, u64, DirectionStats)> {
    let down = scene.shaper.stats(id)?.down;
    #[expect(clippy::disallowed_methods, reason = "real traffic takes real time")]
    let now = Instant::now();
    Ok((now, down.l4s.forwarded_bytes + down.classic.forwarded_bytes, down))
}

#[test]
fn a_rate_changed_over_http_holds_within_100_ms_and_loses_nothing() {
    let name = "a_rate_changed_over_http_holds_within_100_ms_and_loses_nothing";
    on_scene(name, &Script::default(), |scene| {
        let server = traffic_server(&scene.topology.server, &format!("{SERVER}:8490"), &scene.folder)?;
        // more than any rate here, so that the queue never empties
        let options = ["--direction", "down", "--seconds", "6", "--rate-bps", "60000000", "--ecn", "not_ect"];
        let flood = run_udp(
            &scene.topology.client,
            ("100.64.0.20", &format!("{SERVER}:8490")),
            "cbr",
            &options,
            &scene.folder,
        )?;
        let_flow(2.0);
        let mut verdicts = Vec::new();
        for rate in [30_000_000_u64, 50_000_000, 20_000_000] {
            let before = sent(scene, "plain")?.2;
            let (status, body) =
                scene.shaper.patch("/v1/subscribers/plain", &format!("{{\"down_bps\": {rate}}}"))?;
            ensure!(status == 200 && body.contains(&rate.to_string()), "{status} {body}");
            let after = sent(scene, "plain")?.2;
            for (queue, was) in [(&after.l4s, &before.l4s), (&after.classic, &before.classic)] {
                ensure!(queue.dropped_other == was.dropped_other, "packets lost to the change: {queue:?}");
            }
            let_flow(0.1);
            let (begin, first, _) = sent(scene, "plain")?;
            let_flow(0.6);
            let (end, last, _) = sent(scene, "plain")?;
            // 1,400 bytes of payload are 1,428 of IP and cost 38 more
            let held =
                precise(last - first) * 8.0 / end.duration_since(begin).as_secs_f64() * 1_466.0 / 1_428.0;
            verdicts.push(within(
                "rate after the change, Mb/s",
                held / 1e6,
                precise(rate) * 0.97 / 1e6,
                precise(rate) * 1.03 / 1e6,
            ));
        }
        flood.finish(Duration::from_secs(20))?;
        all_conserved(scene)?;
        drop(server);
        Ok(all(verdicts))
    });
}
