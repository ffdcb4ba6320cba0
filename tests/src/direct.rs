// SPDX-License-Identifier: Apache-2.0
//! The shortest network around Sluice, for what needs no delay and no tags, as often as asked for side by side:
//!
//! ```text
//! namespace client -- access | Sluice | core -- namespace server
//! ```

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::machine::wait_for;
use crate::rig::{Namespace, Veth, furnish};
use crate::scene::{Traces, tag};
use crate::shaper::Shaper;

/// A subscriber of this network.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Record id.
    pub id: &'static str,
    /// Which pair of ports it is behind.
    pub pair: usize,
    /// Last part of its addresses.
    pub host: u8,
    /// Rate down.
    pub down_bps: u64,
    /// Rate up.
    pub up_bps: u64,
}

impl Line {
    /// Its record, as JSON.
    pub fn record(&self) -> String {
        let Self { id, pair, host, down_bps, up_bps } = self;
        let matches = format!(
            r#"{{"ipv4": ["{}/32"], "ipv6": ["{}/128"]}}"#,
            address(*pair, *host),
            address6(*pair, *host)
        );
        format!(r#"{{"id": "{id}", "down_bps": {down_bps}, "up_bps": {up_bps}, "match": {matches}}}"#)
    }

    fn seed(&self) -> String {
        let Self { id, pair, host, down_bps, up_bps } = self;
        let matches = format!(
            "{{ ipv4 = [\"{}/32\"], ipv6 = [\"{}/128\"] }}",
            address(*pair, *host),
            address6(*pair, *host)
        );
        format!(
            "[[subscriber]]\nid = \"{id}\"\ndown_bps = {down_bps}\nup_bps = {up_bps}\nmatch = {matches}\n"
        )
    }
}

/// A client's address.
pub fn address(pair: usize, host: u8) -> String {
    format!("100.{}.0.{host}", 64 + pair)
}

/// A client's IPv6 address.
pub fn address6(pair: usize, host: u8) -> String {
    format!("2001:db8:{pair}::{host}")
}

/// A server's address.
pub fn server(pair: usize) -> String {
    format!("100.{}.255.1", 64 + pair)
}

/// A server's IPv6 address.
pub fn server6(pair: usize) -> String {
    format!("2001:db8:{pair}:ffff::1")
}

/// What the network is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Pairs of ports.
    pub pairs: usize,
    /// `dataplane.lcores`.
    pub lcores: &'static str,
    /// Added to each device, as in `,qpairs=2`.
    pub device: &'static str,
    /// `[classify]`, its keys.
    pub classify: &'static str,
    /// `[profile.default]`, its keys.
    pub profile: &'static str,
    /// Seeds of the store.
    pub lines: Vec<Line>,
    /// Hosts of each client beside those of `lines`.
    pub hosts: &'static [u8],
    /// `dataplane.subscribers`.
    pub subscribers: u32,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            pairs: 1,
            lcores: "{ compact = \"1@1\" }",
            device: "",
            classify: "unknown = \"pass\"",
            profile: "aqm = \"dualpi2\"",
            lines: vec![Line { id: "a", pair: 0, host: 10, down_bps: 20_000_000, up_bps: 10_000_000 }],
            hosts: &[],
            subscribers: 65_536,
        }
    }
}

/// One client and its server.
pub struct Pair {
    /// Subscribers live here.
    pub client: Namespace,
    /// The Internet.
    pub server: Namespace,
    /// The client's interface, inside its namespace.
    pub client_end: String,
    /// The server's interface, inside its namespace.
    pub server_end: String,
}

/// A running network; all of it is gone when dropped, Sluice first.
pub struct Direct {
    /// The shaper.
    pub shaper: Shaper,
    /// Clients and servers.
    pub pairs: Vec<Pair>,
    /// For logs.
    pub folder: PathBuf,
    /// The configuration, in which `@STORE@` stands for the store's path.
    pub config: String,
    api: String,
    _veths: Vec<Veth>,
    _traces: Traces,
}

static NETWORKS: AtomicU32 = AtomicU32::new(0);

impl Direct {
    /// Makes it and waits until every subscriber reaches its server.
    pub fn set(plan: &Plan) -> Result<Self> {
        let tag = tag(std::process::id(), NETWORKS.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(format!("sluice-direct-{}-{tag}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        // declared first, dropped last where this fails
        let traces = Traces::new(&format!("sld-{tag}"), Some(folder.clone()));
        let name = |part: &str, pair: usize| format!("d{tag}{part}{pair}");
        let mut veths = Vec::new();
        let mut pairs = Vec::new();
        for pair in 0..plan.pairs {
            let [client, server] =
                ["client", "server"].map(|side| Namespace::new(&format!("sld-{tag}-{side}{pair}")));
            let made = Pair {
                client: client?,
                server: server?,
                client_end: name("c", pair),
                server_end: name("s", pair),
            };
            veths.push(Veth::new(&name("a", pair), &made.client_end, 1500)?);
            veths.push(Veth::new(&name("k", pair), &made.server_end, 1500)?);
            made.furnish(plan, pair)?;
            pairs.push(made);
        }
        // below the ports that the kernel gives to clients
        let api = format!("127.0.0.1:{}", 10_000 + tag.parse::<u32>()?);
        let config = config(plan, &tag, &api, &name);
        let shaper = Shaper::start(&folder, &config, &api)?;
        let made = Self { shaper, pairs, folder, config, api, _veths: veths, _traces: traces };
        for line in &plan.lines {
            made.wait_for_path(line)?;
        }
        Ok(made)
    }

    /// Waits until a subscriber reaches its server, over both IP versions.
    pub fn wait_for_path(&self, line: &Line) -> Result<()> {
        for (own, to) in [
            (address(line.pair, line.host), server(line.pair)),
            (address6(line.pair, line.host), server6(line.pair)),
        ] {
            let reached = wait_for(Duration::from_secs(10), || self.reaches(line.pair, &own, &to));
            ensure!(reached, "{own} does not reach {to}; sluice said: {}", self.shaper.output());
        }
        Ok(())
    }

    /// Whether a client's address reaches its server now.
    pub fn reaches(&self, pair: usize, from: &str, to: &str) -> bool {
        let ping = format!("ping -n -q -c 1 -W 1 -I {from} {to}");
        self.pairs.get(pair).is_some_and(|pair| pair.client.sh(&ping).is_ok())
    }

    /// Starts Sluice anew on the same store, with the configuration as it now is.
    pub fn restart(&mut self) -> Result<()> {
        self.shaper = Shaper::start(&self.folder, &self.config, &self.api)?;
        Ok(())
    }

    /// Where the API listens.
    pub fn api(&self) -> &str {
        &self.api
    }
}

impl Pair {
    fn furnish(&self, plan: &Plan, index: usize) -> Result<()> {
        let lines = plan.lines.iter().filter(|line| line.pair == index).map(|line| line.host);
        let hosts = lines.chain(plan.hosts.iter().copied());
        let own: Vec<String> = hosts
            .flat_map(|host| {
                [format!("{}/16", address(index, host)), format!("{}/48", address6(index, host))]
            })
            .collect();
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        furnish(&self.client, &self.client_end, &format!("02:00:00:00:{index:02x}:0c"), &own)?;
        let far = [format!("{}/16", server(index)), format!("{}/48", server6(index))];
        furnish(&self.server, &self.server_end, &format!("02:00:00:00:{index:02x}:05"), &[&far[0], &far[1]])
    }
}

fn config(plan: &Plan, tag: &str, api: &str, name: &dyn Fn(&str, usize) -> String) -> String {
    let Plan { lcores, device, classify, profile, subscribers, .. } = plan;
    let mut config = format!(
        "[dataplane]\nlcores = {lcores}\nhugepages = \"never\"\nbuffers = 32768\n\
         subscribers = {subscribers}\n\
         eal_args = [\"--file-prefix=sld-{tag}\"]\n\
         [classify]\n{classify}\n[profile.default]\n{profile}\n\
         [api]\nlisten = \"{api}\"\n[store]\npath = \"@STORE@\"\n"
    );
    for pair in 0..plan.pairs {
        for (index, role, peer, interface) in
            [(0, "core", "access", name("k", pair)), (1, "access", "core", name("a", pair))]
        {
            let index = 2 * pair + index;
            // writing to a String cannot fail
            let _ = write!(
                config,
                "[[port]]\nname = \"{role}{pair}\"\nrole = \"{role}\"\npeer = \"{peer}{pair}\"\nmtu = 1500\n\
                 device = \"net_af_packet{index},iface={interface},framecnt=2048,framesz=2048,blocksz=65536\
                 {device}\"\n"
            );
        }
    }
    config + &plan.lines.iter().map(Line::seed).collect::<String>()
}
