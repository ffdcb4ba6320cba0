// SPDX-License-Identifier: Apache-2.0
//! Namespaces, veth pairs and processes that undo themselves.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::machine::wait_for;

/// Runs a command to its end; its standard output, or an error that quotes what it said.
pub fn run<I, S>(program: &str, args: I) -> Result<String>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(program);
    // a group of its own: Ctrl-C at a terminal ends no command halfway, least of all those that clean up
    command.args(args).process_group(0);
    let done = command.output().with_context(|| format!("{program} cannot be started"))?;
    if !done.status.success() {
        let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        bail!("{command:?} ended with {}: {} {}", done.status, out.trim(), err.trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Runs a line of words, split at spaces.
pub fn sh(line: &str) -> Result<String> {
    let mut words = line.split_whitespace();
    let program = words.next().context("an empty command")?;
    run(program, words)
}

/// A network namespace.
pub struct Namespace {
    /// Its name.
    pub name: String,
}

impl Namespace {
    /// Makes one, loopback up.
    pub fn new(name: &str) -> Result<Self> {
        sh(&format!("ip netns add {name}"))?;
        let made = Self { name: name.to_owned() };
        made.sh("ip link set lo up")?;
        Ok(made)
    }

    /// Runs a line of words inside.
    pub fn sh(&self, line: &str) -> Result<String> {
        sh(&format!("ip netns exec {} {line}", self.name))
    }

    /// Sets a sysctl inside.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        run("ip", ["netns", "exec", &self.name, "sysctl", "-q", "-w", &format!("{key}={value}")]).map(drop)
    }

    /// A command to be spawned inside.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // `sh` would go through `ip netns exec`; the namespace itself is removed from outside
        let _ = sh(&format!("ip netns del {}", self.name));
    }
}

/// A veth pair with all offloads off, so that what a raw socket sees is what a wire would carry.
pub struct Veth {
    ends: [String; 2],
}

impl Veth {
    /// Makes `near` and `far`, both up, no addresses, no IPv6 of the kernel's own, both with `mtu`.
    pub fn new(near: &str, far: &str, mtu: u16) -> Result<Self> {
        sh(&format!("ip link add {near} mtu {mtu} type veth peer name {far} mtu {mtu}"))?;
        let made = Self { ends: [near.to_owned(), far.to_owned()] };
        for end in [near, far] {
            bare(end)?;
        }
        Ok(made)
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        // by whichever end is still here; a namespace takes its own along, but in its own time
        let _ = self.ends.iter().any(|end| sh(&format!("ip link del {end}")).is_ok());
    }
}

/// Brings an interface up without addresses or offloads.
pub fn bare(interface: &str) -> Result<()> {
    sh(&format!("ethtool -K {interface} tx off rx off gso off tso off gro off"))?;
    let ipv6 = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    if Path::new(&ipv6).exists() {
        std::fs::write(&ipv6, "1").with_context(|| format!("{ipv6} cannot be written"))?;
    }
    sh(&format!("ip link set {interface} up")).map(drop)
}

/// Moves one end into a namespace and gives it addresses there (`ADDRESS/LENGTH`, v4 or v6).
pub fn furnish(namespace: &Namespace, interface: &str, mac: &str, addresses: &[&str]) -> Result<()> {
    sh(&format!("ip link set {interface} netns {}", namespace.name))?;
    namespace.sh(&format!("ethtool -K {interface} tx off rx off gso off tso off gro off"))?;
    namespace.sysctl(&format!("net.ipv6.conf.{interface}.disable_ipv6"), "0")?;
    namespace.sysctl(&format!("net.ipv6.conf.{interface}.accept_dad"), "0")?;
    namespace.sysctl(&format!("net.ipv6.conf.{interface}.accept_ra"), "0")?;
    namespace.sh(&format!("ip link set {interface} address {mac}"))?;
    namespace.sh(&format!("ip link set {interface} up"))?;
    for address in addresses {
        namespace.sh(&format!("ip address add {address} dev {interface}"))?;
    }
    Ok(())
}

/// A process that ends with this value: TERM first, KILL after five seconds.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it; what it prints goes to `log`. It gets a session of its own, which goes before all others in the
    /// scheduler's eyes where that may be set: other work on the machine is not what is measured.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let out = File::create(log).with_context(|| format!("{} cannot be written", log.display()))?;
        let err = out.try_clone()?;
        let mut apart = Command::new("setsid");
        apart.arg(command.get_program()).args(command.get_args());
        let child = apart
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .with_context(|| format!("{name} cannot be started: {command:?}"))?;
        let made = Self { name: name.to_owned(), child, log: log.to_owned() };
        made.hurry();
        Ok(made)
    }

    /// What it printed so far.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its own end; an error quotes what it printed.
    pub fn finish(mut self, limit: Duration) -> Result<String> {
        if !wait_for(limit, || self.ended().is_some()) {
            bail!("{} did not end within {limit:?}: {}", self.name, self.output());
        }
        let output = self.output();
        match self.ended() {
            Some(status) if status.success() => Ok(output),
            status => bail!("{} ended with {status:?}: {output}", self.name),
        }
    }

    fn hurry(&self) {
        let id = self.child.id().to_string();
        // field 6 of stat, counted behind the name in parentheses, is the session
        let session = |stat: String| stat.rsplit_once(')')?.1.split_whitespace().nth(3).map(str::to_owned);
        let apart = || {
            std::fs::read_to_string(format!("/proc/{id}/stat")).ok().and_then(session).as_ref() == Some(&id)
        };
        if wait_for(Duration::from_secs(1), apart) {
            let _ = std::fs::write(format!("/proc/{id}/autogroup"), "-20");
        }
    }

    /// Sends a signal by name ("TERM", "KILL").
    pub fn signal(&self, signal: &str) {
        let _ = sh(&format!("kill -{signal} {}", self.child.id()));
    }

    /// TERM, then its end within `limit`.
    pub fn terminate(&mut self, limit: Duration) -> Option<ExitStatus> {
        self.signal("TERM");
        wait_for(limit, || self.ended().is_some());
        self.ended()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() && self.terminate(Duration::from_secs(5)).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
