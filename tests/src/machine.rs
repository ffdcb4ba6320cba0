// SPDX-License-Identifier: Apache-2.0
//! What this machine allows, and how still it is.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Why namespaces cannot be made here, if they cannot.
pub fn no_namespaces() -> Option<String> {
    let name = format!("slu-try-{}", std::process::id());
    let made = Command::new("ip").args(["netns", "add", &name]).output();
    match made {
        Ok(done) if done.status.success() => {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
            None
        }
        Ok(done) => Some(format!(
            "network namespaces cannot be made here ({}); run as root with NET_ADMIN",
            String::from_utf8_lossy(&done.stderr).trim()
        )),
        Err(why) => Some(format!("`ip` cannot be run ({why}); install iproute2")),
    }
}

/// Programs that a scene is set with, and their Debian packages.
const PROGRAMS: [(&str, &str); 8] = [
    ("ethtool", "ethtool"),
    ("ip", "iproute2"),
    ("iperf3", "iperf3"),
    ("kill", "procps"),
    ("ping", "iputils-ping"),
    ("setsid", "util-linux"),
    ("ss", "iproute2"),
    ("sysctl", "procps"),
];

/// Why a scene cannot be set here, if it cannot: programs, namespaces, interfaces, raw sockets.
pub fn no_scene() -> Option<String> {
    if let Some((program, package)) = PROGRAMS.iter().find(|(program, _)| !has(program)) {
        return Some(format!("`{program}` is missing (Debian package {package})"));
    }
    no_namespaces().or_else(no_veth).or_else(no_raw_sockets)
}

fn no_veth() -> Option<String> {
    let (near, far) = (format!("st{}a", std::process::id()), format!("st{}b", std::process::id()));
    let ip = |line: &str| Command::new("ip").args(line.split(' ')).output();
    let done = ip(&format!("link add {near} type veth peer name {far}")).ok()?;
    if done.status.success() {
        let _ = ip(&format!("link del {near}"));
        return None;
    }
    Some(format!("veth pairs cannot be made here ({})", String::from_utf8_lossy(&done.stderr).trim()))
}

/// `CAP_NET_RAW` of linux/capability.h, which af_packet ports need.
const CAP_NET_RAW: u32 = 13;

fn no_raw_sockets() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let bits = u64::from_str_radix(bits.trim(), 16).ok()?;
    (bits >> CAP_NET_RAW & 1 == 0).then(|| "the capability CAP_NET_RAW is missing".to_owned())
}

/// Whether a program is on the path.
pub fn has(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|paths| std::env::split_paths(&paths).any(|dir| dir.join(program).is_file()))
}

/// Congestion controls the kernel offers.
pub fn kernel_ccs() -> Vec<String> {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .map(|text| text.split_whitespace().map(str::to_owned).collect())
        .unwrap_or_default()
}

/// Reserves at least `pages` free 2 MiB pages and gives back what was there when dropped.
pub struct HugePages {
    before: Option<String>,
}

const NR_HUGEPAGES: &str = "/proc/sys/vm/nr_hugepages";

impl HugePages {
    /// Tries; where it may not, leaves all as it was (then Sluice runs without).
    pub fn reserve(pages: u64) -> Self {
        if free_hugepages() >= pages {
            return Self { before: None };
        }
        let before = std::fs::read_to_string(NR_HUGEPAGES).ok();
        let held: u64 = before.as_deref().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        match std::fs::write(NR_HUGEPAGES, (held + pages).to_string()) {
            Ok(()) => Self { before },
            Err(_) => Self { before: None },
        }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = std::fs::write(NR_HUGEPAGES, before.trim());
        }
    }
}

/// Free 2 MiB pages.
pub fn free_hugepages() -> u64 {
    let path = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Waits until `done` says so, at most `limit`; whether it did.
#[expect(clippy::disallowed_methods, reason = "the rig waits for other processes and owns this clock")]
pub fn wait_for(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < limit {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    done()
}
