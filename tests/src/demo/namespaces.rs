// SPDX-License-Identifier: Apache-2.0
//! The demo between network namespaces: `sluice run` on veth pairs, kernel CUBIC by iperf3, Prague by `sluice traffic`.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::{Account, Goodput, Look, PROFILES, Schedule, World};
use crate::rig::Process;
use crate::scene::{Scene, Script, precise};
use crate::topology::{CUSTOMERS, Customer, SERVER, SERVER6};
use crate::traffic::{Tcp, goodput_bps, iperf_server, run_udp, summary, traffic_server};

/// UDP port of `sluice traffic serve`, and the first of iperf3's, one for each customer.
const UDP_PORT: u16 = 8490;
const TCP_PORT: u16 = 5201;
/// Flows of `--keep`: a day.
const FOREVER: Duration = Duration::from_hours(24);
/// How long flows may take to end.
const PATIENCE: Duration = Duration::from_secs(40);

/// Both flows of a customer.
struct Flows {
    prague: Process,
    cubic: Process,
}

/// The scene and what plays in it; fields in the order in which they end.
pub struct Namespaces {
    flows: Vec<Flows>,
    servers: Vec<Process>,
    warm_up: f64,
    scene: Scene,
}

impl Namespaces {
    /// Sets the scene and starts the servers.
    pub fn set() -> Result<Self> {
        // everything but Sluice's lcore runs on CPU 0
        core_affinity::set_for_current(core_affinity::CoreId { id: 0 });
        let scene = Scene::set(&Script { profile: PROFILES, ..Script::default() })?;
        let (namespace, folder) = (&scene.topology.server, scene.folder.as_path());
        let mut servers = Vec::new();
        for server in [SERVER.to_owned(), format!("[{SERVER6}]")] {
            servers.push(traffic_server(namespace, &format!("{server}:{UDP_PORT}"), folder)?);
        }
        for (port, _) in (TCP_PORT..).zip(&CUSTOMERS) {
            servers.push(iperf_server(namespace, port, folder)?);
        }
        Ok(Self { flows: Vec::new(), servers, warm_up: 0.0, scene })
    }

    fn flows(&self, customer: &Customer, port: u16, seconds: u32) -> Result<Flows> {
        let (client, folder) = (&self.scene.topology.client, self.scene.folder.as_path());
        // the dual-stack customer's Prague goes by IPv6 and shares the plan with CUBIC over IPv4
        let (from, connect) = match customer.ipv6 {
            Some(ipv6) => (ipv6, format!("[{SERVER6}]:{UDP_PORT}")),
            None => (customer.ipv4, format!("{SERVER}:{UDP_PORT}")),
        };
        // the log's name comes from the address: one folder for each customer
        let own = folder.join(customer.id);
        std::fs::create_dir_all(&own)?;
        let options = ["--direction", "down", "--seconds", &seconds.to_string()];
        let prague = run_udp(client, (from, &connect), "prague", &options, &own)?;
        let tcp = Tcp {
            client,
            from: customer.ipv4,
            to: SERVER,
            port,
            seconds,
            flows: 1,
            cc: Some("cubic"),
            down: true,
        };
        Ok(Flows { prague, cubic: tcp.start(&own)? })
    }
}

impl World for Namespaces {
    fn about(&self) -> Vec<String> {
        let about = "\
            Three subscribers in one network namespace, a server in another, and Sluice\n\
            between them (DPDK on af_packet); 10 ms base RTT. To each subscriber goes an\n\
            L4S flow (Prague on ECT(1), `sluice traffic`) beside kernel TCP CUBIC (iperf3).\n\
            dual-stack: Prague over IPv6, CUBIC over IPv4. qinq: behind VLANs 100 and 42.";
        vec![about.to_owned(), format!("API while this runs: {}", self.scene.shaper.api())]
    }

    fn look(&self, id: &str) -> Result<Option<Look>> {
        let path = format!("/v1/subscribers/{id}");
        let (status, body) = self.scene.shaper.get(&path)?;
        if status == 404 {
            return Ok(None);
        }
        let record: Value = serde_json::from_str(&body).with_context(|| format!("GET {path}: {body}"))?;
        let down_bps = record["down_bps"].as_u64().with_context(|| format!("GET {path}: {body}"))?;
        Ok(Some(Look { down_bps, stats: self.scene.shaper.stats(id)? }))
    }

    fn set_profile(&self, profile: &str) -> Result<()> {
        for customer in &CUSTOMERS {
            let path = format!("/v1/subscribers/{}", customer.id);
            let (status, body) =
                self.scene.shaper.patch(&path, &format!("{{\"profile\": \"{profile}\"}}"))?;
            if status != 200 {
                bail!("PATCH {path}: {status} {body}");
            }
        }
        Ok(())
    }

    fn start(&mut self, schedule: &Schedule) -> Result<()> {
        let part = if schedule.keep { FOREVER } else { schedule.part };
        let seconds = u32::try_from(part.as_secs()).unwrap_or(u32::MAX);
        self.warm_up = schedule.warm_up.as_secs_f64();
        self.flows.clear();
        for (port, customer) in (TCP_PORT..).zip(&CUSTOMERS) {
            let flows = self.flows(customer, port, seconds)?;
            self.flows.push(flows);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Vec<Goodput>> {
        let mut seen = Vec::new();
        for Flows { prague, cubic } in self.flows.drain(..) {
            let prague = prague.finish(PATIENCE)?;
            let whole = summary(&prague)?;
            let count = |field: &str| whole["ecn"][field].as_u64().unwrap_or(0);
            seen.push(Goodput {
                prague_bps: after(&prague, self.warm_up),
                cubic_bps: goodput_bps(&cubic.finish(PATIENCE)?, self.warm_up)?,
                prague_ce: count("ce"),
                wrong_ecn: count("not_ect") + count("ect0"),
            });
        }
        Ok(seen)
    }

    fn tick(&mut self) -> Result<()> {
        let Self { flows, servers, scene, .. } = self;
        if !scene.shaper.alive() {
            bail!("sluice has ended: {}", scene.shaper.output());
        }
        let lines = scene.topology.delay_lines.iter_mut();
        if let Some(dead) = servers.iter_mut().chain(lines).find_map(|one| one.ended().map(|_| one.output()))
        {
            bail!("a server or a delay line has ended: {dead}");
        }
        for process in flows.iter_mut().flat_map(|both| [&mut both.prague, &mut both.cubic]) {
            if process.ended().is_some_and(|status| !status.success()) {
                bail!("a flow has failed: {}", process.output());
            }
        }
        Ok(())
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts, below 2^52")]
    fn account(&self) -> Result<Account> {
        let shaper = &self.scene.shaper;
        let sum = |name, label| shaper.metric_sum(name, label).map(|sum| sum as u64);
        let bad = sum("sluice_unclassified_packets_total", &["kind=\"bad_"])?;
        Ok(Account {
            received: sum("sluice_port_packets_total", &["way=\"rx\""])?,
            sent: sum("sluice_port_packets_total", &["way=\"tx\""])?,
            dropped: sum("sluice_queue_dropped_total", &[])? + bad,
        })
    }

    fn gap_us(&self) -> Result<u64> {
        self.scene.shaper.gap_us()
    }
}

/// Mean rate of what `sluice traffic run` printed after so many seconds.
fn after(output: &str, skip_s: f64) -> f64 {
    let seconds = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let rates: Vec<f64> = seconds
        .filter(|line| line["t_s"].as_f64().is_some_and(|t_s| t_s > skip_s + 0.5))
        .filter_map(|line| line["rate_bps"].as_f64())
        .collect();
    rates.iter().sum::<f64>() / precise(rates.len().max(1) as u64)
}

#[cfg(test)]
mod tests {
    use super::after;

    #[test]
    fn the_warm_up_and_the_summary_do_not_count() {
        let output = "{\"t_s\":1.0,\"rate_bps\":100}\n{\"t_s\":2.0,\"rate_bps\":8}\nnoise\n\
                      {\"t_s\":3.0,\"rate_bps\":10}\n{\"summary\":true,\"rate_bps\":40}\n";
        assert!((after(output, 1.0) - 9.0).abs() < 1e-9);
        assert!(after("", 1.0).abs() < 1e-9);
    }
}
