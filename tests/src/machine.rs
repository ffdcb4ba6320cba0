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
