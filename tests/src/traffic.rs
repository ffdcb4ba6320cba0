// SPDX-License-Identifier: Apache-2.0
//! Real traffic between two namespaces: kernel TCP by iperf3, and `sluice traffic`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::machine::wait_for;
use crate::rig::{Namespace, Process};
use crate::shaper::program;

/// An iperf3 server that serves one client after the other.
pub fn iperf_server(namespace: &Namespace, port: u16, folder: &Path) -> Result<Process> {
    let mut command = namespace.command("iperf3");
    command.args(["-s", "-p", &port.to_string()]);
    let server =
        Process::start("iperf3 server", &mut command, &folder.join(format!("iperf-server-{port}.log")))?;
    let probe = format!("ss -Hltn sport = :{port}");
    wait_for(Duration::from_secs(5), || namespace.sh(&probe).is_ok_and(|found| !found.trim().is_empty()));
    Ok(server)
}

/// One kernel TCP flow; `down` lets the server send. The namespaces' default congestion control decides what runs
/// unless `cc` names one (then ECN is not negotiated anew).
pub struct Tcp<'a> {
    /// Where the client runs.
    pub client: &'a Namespace,
    /// Its source address.
    pub from: &'a str,
    /// The server's address.
    pub to: &'a str,
    /// The server's port.
    pub port: u16,
    /// How long.
    pub seconds: u32,
    /// Parallel connections.
    pub flows: u32,
    /// Congestion control.
    pub cc: Option<&'a str>,
    /// Towards the client.
    pub down: bool,
}

impl Tcp<'_> {
    /// Starts it.
    pub fn start(&self, folder: &Path) -> Result<Process> {
        let mut command = self.client.command("iperf3");
        command.args(["-J", "-c", self.to, "-B", self.from]);
        command.args(["-p", &self.port.to_string(), "-t", &self.seconds.to_string()]);
        command.args(["-P", &self.flows.to_string(), "-i", "1"]);
        if let Some(cc) = self.cc {
            command.args(["-C", cc]);
        }
        if self.down {
            command.arg("-R");
        }
        Process::start("iperf3", &mut command, &folder.join(format!("iperf-{}.json", self.port)))
    }
}

/// Goodput of a finished iperf3 client in bits per second, from its receiver's view, leaving out the first
/// `skip_s` seconds.
pub fn goodput_bps(output: &str, skip_s: f64) -> Result<f64> {
    let report: Value = serde_json::from_str(output).with_context(|| format!("iperf3 printed {output}"))?;
    let intervals = report["intervals"].as_array().with_context(|| format!("iperf3: {}", report["error"]))?;
    let (mut bytes, mut seconds) = (0.0, 0.0);
    for sum in intervals.iter().map(|interval| &interval["sum"]) {
        if sum["start"].as_f64().is_some_and(|start| start >= skip_s - 0.01) {
            bytes += sum["bytes"].as_f64().unwrap_or(0.0);
            seconds += sum["seconds"].as_f64().unwrap_or(0.0);
        }
    }
    Ok(if seconds > 0.0 { bytes * 8.0 / seconds } else { 0.0 })
}

/// A `sluice traffic serve` in a namespace.
pub fn traffic_server(namespace: &Namespace, listen: &str, folder: &Path) -> Result<Process> {
    let mut command = namespace.command(program("sluice"));
    command.args(["traffic", "serve", "--listen", listen]);
    let name = listen.replace([':', '[', ']'], "_");
    let server =
        Process::start("sluice traffic serve", &mut command, &folder.join(format!("serve-{name}.log")))?;
    let port = listen.rsplit(':').next().unwrap_or_default();
    let probe = format!("ss -Hlun sport = :{port}");
    wait_for(Duration::from_secs(5), || namespace.sh(&probe).is_ok_and(|found| !found.trim().is_empty()));
    Ok(server)
}

/// A `sluice traffic run` in a namespace.
pub fn run_udp(
    namespace: &Namespace,
    (from, connect): (&str, &str),
    cc: &str,
    options: &[&str],
    folder: &Path,
) -> Result<Process> {
    let mut command = namespace.command(program("sluice"));
    command.args(["traffic", "run", "--bind", from, "--connect", connect, "--cc", cc]).args(options);
    let name = connect.replace([':', '[', ']'], "_");
    Process::start("sluice traffic run", &mut command, &folder.join(format!("run-{cc}-{name}.log")))
}

/// The last line that `sluice traffic run` printed.
pub fn summary(output: &str) -> Result<Value> {
    let last =
        output.lines().rfind(|line| line.starts_with('{')).with_context(|| format!("no JSON: {output}"))?;
    Ok(serde_json::from_str(last)?)
}
