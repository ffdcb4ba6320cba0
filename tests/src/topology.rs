// SPDX-License-Identifier: Apache-2.0
//! The network of the whole-system tests and of the demo:
//!
//! ```text
//! namespace client -- delay line -- access | Sluice | core -- delay line -- namespace server
//! ```
//!
//! Three subscribers live in the client namespace: A is dual-stack with a /56, B plain IPv4, C behind QinQ (the
//! delay lines push and pop its tags, since this kernel may have no VLAN devices). Each delay line holds a frame
//! for `DELAY_US`, so the base round-trip time is four times that.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::machine::wait_for;
use crate::rig::{Namespace, Process, Veth, furnish, sh};
use crate::shaper::program;

/// What each delay line adds in each direction.
pub const DELAY_US: u64 = 2_500;
/// The server.
pub const SERVER: &str = "100.64.255.1";
/// The server, IPv6.
pub const SERVER6: &str = "2001:db8:ffff::1";

/// A subscriber of the rig.
#[derive(Clone, Copy, Debug)]
pub struct Customer {
    /// Record id.
    pub id: &'static str,
    /// Its IPv4 address.
    pub ipv4: &'static str,
    /// Its IPv6 address, if it has one.
    pub ipv6: Option<&'static str>,
    /// Rate down.
    pub down_bps: u64,
    /// Rate up.
    pub up_bps: u64,
    /// `match` of its record, as an inline table of TOML.
    pub matches: &'static str,
}

/// The three.
pub const CUSTOMERS: [Customer; 3] = [
    Customer {
        id: "dual-stack",
        ipv4: "100.64.0.10",
        ipv6: Some("2001:db8:a::10"),
        down_bps: 20_000_000,
        up_bps: 10_000_000,
        matches: r#"{ ipv4 = ["100.64.0.10/32"], ipv6 = ["2001:db8:a::/56"] }"#,
    },
    Customer {
        id: "plain",
        ipv4: "100.64.0.20",
        ipv6: None,
        down_bps: 50_000_000,
        up_bps: 10_000_000,
        matches: r#"{ ipv4 = ["100.64.0.20/32"] }"#,
    },
    Customer {
        id: "qinq",
        ipv4: "100.64.0.30",
        ipv6: None,
        down_bps: 100_000_000,
        up_bps: 10_000_000,
        matches: "{ vlan = { outer = 100, inner = 42 } }",
    },
];

/// The rig: drop order is end order, so processes go before interfaces.
pub struct Topology {
    /// Delay lines, access side first.
    pub delay_lines: Vec<Process>,
    _veths: Vec<Veth>,
    /// A namespace for each delay line: the fanout groups of two processes' af_packet devices may collide in one.
    /// TAP devices stay where Sluice made them, since its driver asks for their links there, and so do the lines.
    between: Vec<Namespace>,
    /// Subscribers live here.
    pub client: Namespace,
    /// The Internet.
    pub server: Namespace,
    /// Interface for Sluice's access port.
    pub access: String,
    /// Interface for Sluice's core port.
    pub core: String,
}

/// How Sluice is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// veth pairs, for net_af_packet: made before Sluice starts.
    Veth,
    /// TAP devices that Sluice itself makes: the delay lines start after it, by `Topology::join`.
    Tap,
}

impl Topology {
    /// Makes namespaces and interfaces; with `Attach::Veth` the delay lines too. `tag` keeps parallel rigs apart.
    pub fn new(tag: &str, attach: Attach, folder: &Path) -> Result<Self> {
        let client = Namespace::new(&format!("slu-{tag}-client"))?;
        let server = Namespace::new(&format!("slu-{tag}-server"))?;
        let between = match attach {
            Attach::Veth => {
                vec![Namespace::new(&format!("slu-{tag}-dc"))?, Namespace::new(&format!("slu-{tag}-ds"))?]
            }
            Attach::Tap => Vec::new(),
        };
        let name = |part: &str| format!("s{tag}{part}");
        let mut veths =
            vec![Veth::new(&name("ca"), &name("c0"), 1500)?, Veth::new(&name("sa"), &name("s0"), 1500)?];
        if attach == Attach::Veth {
            veths.push(Veth::new(&name("cb"), &name("acc"), 1600)?);
            veths.push(Veth::new(&name("sb"), &name("core"), 1600)?);
        }
        let mut addresses: Vec<String> = CUSTOMERS.iter().map(|c| format!("{}/16", c.ipv4)).collect();
        addresses.extend(CUSTOMERS.iter().filter_map(|c| c.ipv6).map(|ipv6| format!("{ipv6}/32")));
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        furnish(&client, &name("c0"), "02:00:00:00:00:0c", &addresses)?;
        let own = [format!("{SERVER}/16"), format!("{SERVER6}/32")];
        furnish(&server, &name("s0"), "02:00:00:00:00:05", &[&own[0], &own[1]])?;
        let mut made = Self {
            delay_lines: Vec::new(),
            _veths: veths,
            between,
            client,
            server,
            access: name("acc"),
            core: name("core"),
        };
        if attach == Attach::Veth {
            made.join_at(tag, [&name("cb"), &name("sb")], "0x8100", folder)?;
        }
        Ok(made)
    }

    /// Starts the delay lines against TAP devices that Sluice has made by now.
    pub fn join(&mut self, tag: &str, outer_tpid: &str, folder: &Path) -> Result<()> {
        let (access, core) = (self.access.clone(), self.core.clone());
        self.join_at(tag, [&access, &core], outer_tpid, folder)
    }

    fn join_at(&mut self, tag: &str, far: [&str; 2], outer_tpid: &str, folder: &Path) -> Result<()> {
        for (index, (side, far)) in ["c", "s"].into_iter().zip(far).enumerate() {
            let (prefix, near) = (format!("slu-{tag}-{side}"), format!("s{tag}{side}a"));
            let namespace = self.between.get(index);
            for interface in [near.as_str(), far] {
                hand_over(namespace, interface)?;
            }
            let line = DelayLine { namespace, prefix: &prefix, near: &near, far, outer_tpid };
            self.delay_lines.push(line.start(folder)?);
        }
        Ok(())
    }

    /// Waits until every customer reaches the server, over each IP version it has.
    pub fn wait_for_path(&self) -> Result<()> {
        for customer in &CUSTOMERS {
            let ways = [Some((customer.ipv4, SERVER)), customer.ipv6.map(|own| (own, SERVER6))];
            for (own, server) in ways.into_iter().flatten() {
                if !wait_for(Duration::from_secs(10), || self.reaches(own, server)) {
                    bail!(
                        "{own} does not reach {server}: {:?}",
                        self.delay_lines.iter().map(Process::output).collect::<Vec<_>>()
                    );
                }
            }
        }
        Ok(())
    }

    /// Whether a customer's address reaches the server now.
    pub fn reaches(&self, from: &str, to: &str) -> bool {
        self.client.sh(&format!("ping -n -q -c 1 -W 1 -I {from} {to}")).is_ok()
    }
}

/// Moves an interface into a namespace, if there is one, and makes it bare and up.
fn hand_over(namespace: Option<&Namespace>, interface: &str) -> Result<()> {
    let inside = match namespace {
        None => String::new(),
        Some(namespace) => {
            sh(&format!("ip link set {interface} netns {}", namespace.name))?;
            format!("ip netns exec {} ", namespace.name)
        }
    };
    sh(&format!("{inside}ethtool -K {interface} tx off rx off gso off tso off gro off"))?;
    sh(&format!("{inside}sysctl -q -w net.ipv6.conf.{interface}.disable_ipv6=1"))?;
    sh(&format!("{inside}ip link set {interface} mtu 1600 up")).map(drop)
}

/// A delay line to be started.
struct DelayLine<'a> {
    namespace: Option<&'a Namespace>,
    prefix: &'a str,
    near: &'a str,
    far: &'a str,
    outer_tpid: &'a str,
}

/// How often a delay line is started: the fanout group of an af_packet device is its process id XOR interface index
/// and may be another's already; another process has another id.
const STARTS: usize = 5;

impl DelayLine<'_> {
    /// Starts it and waits until it forwards.
    fn start(&self, folder: &Path) -> Result<Process> {
        let mut said = String::new();
        for _ in 0..STARTS {
            let mut line = self.spawn(folder)?;
            let settled = || line.ended().is_some() || line.output().contains("forwarding");
            if wait_for(Duration::from_secs(20), settled) && line.ended().is_none() {
                return Ok(line);
            }
            said = line.output();
            if !said.contains("FANOUT") {
                break;
            }
        }
        bail!("the delay line {} did not start: {said}", self.prefix)
    }

    fn spawn(&self, folder: &Path) -> Result<Process> {
        let program = program("delay-line");
        let mut command =
            self.namespace.map_or_else(|| Command::new(&program), |inside| inside.command(&program));
        let af_packet = |index: u8, interface: &str| format!("net_af_packet{index},iface={interface}");
        command.args([
            "--a",
            &af_packet(0, self.near),
            "--b",
            &af_packet(1, self.far),
            "--file-prefix",
            self.prefix,
        ]);
        command.args(["--delay-us", &DELAY_US.to_string(), "--cpu", "0"]);
        command.args(["--tag", &format!("100.64.0.30={}:100,0x8100:42", self.outer_tpid)]);
        Process::start("delay line", &mut command, &folder.join(format!("{}.log", self.prefix)))
    }
}

/// The three customers as a seed of the store, for a configuration file.
pub fn seed() -> String {
    let record = |c: &Customer| {
        let Customer { id, down_bps, up_bps, matches, .. } = c;
        format!(
            "[[subscriber]]\nid = \"{id}\"\ndown_bps = {down_bps}\nup_bps = {up_bps}\nmatch = {matches}\n"
        )
    };
    CUSTOMERS.iter().map(record).collect()
}
