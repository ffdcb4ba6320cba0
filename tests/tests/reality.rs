// SPDX-License-Identifier: Apache-2.0
//! The lab held against reality: the same three scenarios on the real shaper, with real sockets, and in virtual time.
//!
//! Each runs first between namespaces (`sluice traffic` with Prague, kernel CUBIC) and then, with the round-trip time
//! measured there, in `lab`. Rates are compared as shares of the plan, since frames differ in length.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aqm::{BitsPerSec, Nanos};
use lab::{EcnChoice, Flow, Link, RateStep, Scenario};
use model::Profile;
use tests::scene::{Scene, Script, Span, precise};
use tests::topology::SERVER;
use tests::traffic::{Tcp, iperf_server, run_udp, traffic_server};
use tests::verdict::{Timed, all, conserved, let_flow, undisturbed, within};

/// When measuring begins, and for how long, in seconds.
const AFTER: f64 = 6.0;
const OVER: f64 = 10.0;
/// Bytes on the line beyond the IP packet with `overhead = "ethernet"`.
const OVERHEAD: u64 = 38;
/// Seeds of the lab's runs.
const SEEDS: u64 = 5;

/// One of the three scenarios: who sends to which customer.
struct Case {
    name: &'static str,
    id: &'static str,
    address: &'static str,
    plan_bps: u64,
    prague: bool,
    cubic: bool,
}

/// What is compared.
#[derive(Debug, Default)]
struct Seen {
    /// Of the plan.
    l4s_share: f64,
    classic_share: f64,
    l4s_p99_ms: f64,
    classic_mean_ms: f64,
}

/// Least round-trip time without any queue, ms.
fn base_rtt_ms(scene: &Scene, from: &str) -> Result<f64> {
    let said = scene.topology.client.sh(&format!("ping -n -q -c 10 -i 0.1 -I {from} {SERVER}"))?;
    let least = said.rsplit('=').next().and_then(|times| times.trim().split('/').next());
    least.and_then(|text| text.parse().ok()).with_context(|| format!("ping said {said}"))
}

/// On the real shaper.
fn in_reality(scene: &Scene, case: &Case) -> Result<Seen> {
    let (folder, client) = (scene.folder.as_path(), &scene.topology.client);
    let (mut servers, mut flows) = (Vec::new(), Vec::new());
    let seconds = "18";
    if case.prague {
        servers.push(traffic_server(&scene.topology.server, &format!("{SERVER}:8490"), folder)?);
        let way = (case.address, &*format!("{SERVER}:8490"));
        flows.push(run_udp(client, way, "prague", &["--direction", "down", "--seconds", seconds], folder)?);
    }
    if case.cubic {
        servers.push(iperf_server(&scene.topology.server, 5201, folder)?);
        let (from, cc) = (case.address, Some("cubic"));
        let tcp = Tcp { client, from, to: SERVER, port: 5201, seconds: 18, flows: 1, cc, down: true };
        flows.push(tcp.start(folder)?);
    }
    let_flow(AFTER);
    let before = scene.shaper.stats(case.id)?.down;
    let_flow(OVER);
    let after = scene.shaper.stats(case.id)?.down;
    for flow in flows {
        flow.finish(Duration::from_secs(40))?;
    }
    conserved(&scene.shaper, &[case.id], false)?;
    let (l4s, classic) =
        (Span::between(&before.l4s, &after.l4s), Span::between(&before.classic, &after.classic));
    let share =
        |span: &Span| precise(span.bytes + OVERHEAD * span.forwarded) * 8.0 / OVER / precise(case.plan_bps);
    Ok(Seen {
        l4s_share: share(&l4s),
        classic_share: share(&classic),
        l4s_p99_ms: l4s.p99_us / 1e3,
        classic_mean_ms: classic.mean_us / 1e3,
    })
}

fn flow(cc: cc::Kind, rtt: Nanos, packet_bytes: u32) -> Flow {
    Flow {
        label: cc.label().to_owned(),
        cc,
        count: 1,
        rtt,
        ecn: EcnChoice::Auto,
        rate: BitsPerSec(0),
        packet_bytes,
        start: Nanos::ZERO,
        stop: None,
        rtt_independence: true,
        hystart: true,
        on: Nanos::ZERO,
        off: Nanos::ZERO,
    }
}

/// In virtual time, the mean over the seeds.
fn in_the_lab(case: &Case, rtt: Nanos) -> Result<Seen> {
    // `sluice traffic` sends 1400 bytes in UDP over IPv4
    let prague = case.prague.then(|| flow(cc::Kind::Prague, rtt, 1_442));
    let cubic = case.cubic.then(|| flow(cc::Kind::Cubic, rtt, 1_514));
    let scenario = Scenario {
        name: case.name.to_owned(),
        duration: Nanos::from_secs(40),
        warmup: Nanos::from_secs(10),
        link: Link {
            steps: vec![RateStep { at: Nanos::ZERO, rate: BitsPerSec(case.plan_bps) }],
            buffer_packets: None,
            burst: Nanos::ZERO,
            jitter: Nanos::ZERO,
            loss: 0.0,
            reverse: None,
        },
        profile: Profile { overhead: lab::NO_OVERHEAD, ..Profile::default() },
        flows: prague.into_iter().chain(cubic).collect(),
        web: Vec::new(),
    };
    let mut mean = Seen::default();
    let part = 1.0 / precise(SEEDS);
    for seed in 1..=SEEDS {
        let outcome = lab::run(&scenario, seed)?;
        let share = |label: &str| {
            let flows = outcome.flows.iter().filter(|flow| flow.label == label);
            flows.map(|flow| flow.rate_bps).sum::<f64>() / precise(case.plan_bps)
        };
        mean.l4s_share += part * share("prague");
        mean.classic_share += part * share("cubic");
        mean.l4s_p99_ms += part * outcome.queues.l4s.delay_ms.p99;
        mean.classic_mean_ms += part * outcome.queues.classic.delay_ms.mean;
    }
    Ok(mean)
}

/// Rates within 10 %, L p99 within a factor of 2, C mean within 20 %.
fn agree(real: &Seen, lab: &Seen, case: &Case) -> Timed {
    let near = |what: &str, real: f64, lab: f64, low: f64, high: f64| {
        within(&format!("{}: {what}, real (lab {lab:.3})", case.name), real, lab * low, lab * high)
    };
    let mut verdicts = Vec::new();
    if case.prague {
        verdicts.push(near("L share", real.l4s_share, lab.l4s_share, 0.9, 1.1));
        verdicts.push(near("L p99 ms", real.l4s_p99_ms, lab.l4s_p99_ms, 0.5, 2.0));
    }
    if case.cubic {
        verdicts.push(near("C share", real.classic_share, lab.classic_share, 0.9, 1.1));
        verdicts.push(near("C mean ms", real.classic_mean_ms, lab.classic_mean_ms, 0.8, 1.2));
    }
    all(verdicts)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    reason = "a round-trip time is some milliseconds; a test speaks to whoever runs it"
)]
fn check(case: &Case) {
    undisturbed(case.name, || {
        let scene = Scene::set(&Script::default())?;
        let rtt_ms = base_rtt_ms(&scene, case.address)?;
        ensure!((8.0..20.0).contains(&rtt_ms), "a base round-trip time of {rtt_ms} ms");
        let real = in_reality(&scene, case)?;
        let lab = in_the_lab(case, Nanos((rtt_ms * 1e6) as u64))?;
        println!("{}: base RTT {rtt_ms} ms\n  real {real:?}\n  lab  {lab:?}", case.name);
        Ok((agree(&real, &lab, case), scene.shaper.gap_us()?))
    });
}

#[test]
fn prague_beside_cubic_is_in_the_lab_as_in_reality() {
    check(&Case {
        name: "prague_beside_cubic_is_in_the_lab_as_in_reality",
        id: "plain",
        address: "100.64.0.20",
        plan_bps: 50_000_000,
        prague: true,
        cubic: true,
    });
}

#[test]
fn a_lone_cubic_is_in_the_lab_as_in_reality() {
    check(&Case {
        name: "a_lone_cubic_is_in_the_lab_as_in_reality",
        id: "dual-stack",
        address: "100.64.0.10",
        plan_bps: 20_000_000,
        prague: false,
        cubic: true,
    });
}

#[test]
fn a_lone_prague_is_in_the_lab_as_in_reality() {
    check(&Case {
        name: "a_lone_prague_is_in_the_lab_as_in_reality",
        id: "qinq",
        address: "100.64.0.30",
        plan_bps: 100_000_000,
        prague: true,
        cubic: false,
    });
}
