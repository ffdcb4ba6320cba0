// SPDX-License-Identifier: Apache-2.0
//! Memory, permissions, the store's folder.

use std::path::Path;

use dataplane::memory_need;
use model::Config;
use model::config::HugePages;

use super::machine::Machine;
use super::{Check, all_lcores};

/// `CAP_IPC_LOCK` and `CAP_NET_RAW` of linux/capability.h.
const IPC_LOCK: u32 = 14;
const NET_RAW: u32 = 13;
/// Queues of a subscriber, taken at start.
const SUBSCRIBER_BYTES: u64 = 2_048;

pub(super) fn checks(machine: &Machine, config: &Config) -> Vec<Check> {
    vec![
        huge_pages(machine, config),
        memory(machine, config),
        permissions(machine, config),
        store(machine, config),
        autogroup(machine),
    ]
}

fn huge_pages(machine: &Machine, config: &Config) -> Check {
    const NAME: &str = "hugepages";
    let need = u64::from(memory_need(config).huge_mb);
    let (free, pages) = machine.huge_pages();
    let more = pages + need.saturating_sub(free).div_ceil(2);
    let reserve = format!(
        "sysctl -w vm.nr_hugepages={more}, and the same in /etc/sysctl.d/60-sluice.conf; \
         for much memory rather hugepages={more} on the kernel's command line"
    );
    let found = format!("{free} MB free on huge pages, {need} MB needed");
    match config.dataplane.hugepages {
        HugePages::Never => {
            let found = format!("hugepages = \"never\": each packet buffer takes a page of 4 KiB; {found}");
            Check::warn(NAME, found, "set dataplane.hugepages = \"auto\" and reserve huge pages")
        }
        _ if free >= need => Check::ok(NAME, found),
        HugePages::Require => Check::fail(NAME, format!("{found}, and they are required"), reserve),
        HugePages::Auto => Check::warn(NAME, format!("{found}: it would run without, slower"), reserve),
    }
}

fn memory(machine: &Machine, config: &Config) -> Check {
    const NAME: &str = "memory";
    let available = machine.field("proc/meminfo", "MemAvailable");
    let available = available.and_then(|kb| kb.trim_end_matches("kB").trim().parse::<u64>().ok());
    let Some(available) = available.map(|kb| kb / 1024) else {
        return Check::ok(NAME, "the kernel does not say how much is available");
    };
    let need = memory_need(config);
    let huge = machine.huge_pages().0 >= u64::from(need.huge_mb);
    let buffers =
        if huge && config.dataplane.hugepages != HugePages::Never { 0 } else { u64::from(need.plain_mb) };
    let queues = u64::from(config.dataplane.subscribers) * SUBSCRIBER_BYTES / (1 << 20);
    let wanted = buffers + queues;
    let found = format!("{available} MB available, about {wanted} MB needed beside huge pages");
    if available >= wanted {
        return Check::ok(NAME, found);
    }
    Check::fail(NAME, found, "add memory, or lower dataplane.subscribers or dataplane.buffers")
}

fn permissions(machine: &Machine, config: &Config) -> Check {
    const NAME: &str = "permissions";
    let status = |key: &str| machine.field("proc/self/status", key).unwrap_or_default();
    let uid = status("Uid").split_whitespace().nth(1).unwrap_or("?").to_owned();
    let held = u64::from_str_radix(&status("CapEff"), 16).unwrap_or(u64::MAX);
    let raw = config
        .ports
        .iter()
        .any(|port| ["net_af", "net_tap"].iter().any(|name| port.device.starts_with(name)));
    let wanted = [(IPC_LOCK, "CAP_IPC_LOCK", true), (NET_RAW, "CAP_NET_RAW", raw)];
    let missing: Vec<_> = wanted
        .iter()
        .filter(|(bit, _, wanted)| *wanted && held >> bit & 1 == 0)
        .map(|(_, name, _)| *name)
        .collect();
    if missing.is_empty() {
        return Check::ok(NAME, format!("user {uid} has what the ports need"));
    }
    Check::fail(
        NAME,
        format!("user {uid} lacks {}", missing.join(", ")),
        "run by the packaged unit (systemctl start sluice), which grants them to the user sluice, or as root",
    )
}

fn store(machine: &Machine, config: &Config) -> Check {
    const NAME: &str = "store";
    let folder = config.store.parent().unwrap_or(Path::new("/"));
    let shown = folder.display();
    if machine.exists(folder.strip_prefix("/").unwrap_or(folder)) {
        return Check::ok(NAME, format!("{shown} is there"));
    }
    Check::fail(
        NAME,
        format!("{shown}, where the store is to be, does not exist"),
        format!("mkdir -p {shown}"),
    )
}

fn autogroup(machine: &Machine) -> Check {
    const NAME: &str = "autogroup";
    match machine.number("proc/sys/kernel/sched_autogroup_enabled") {
        Some(1) => Check::warn(
            NAME,
            "kernel.sched_autogroup_enabled = 1: a shaper started from a terminal shares its CPU with whole sessions",
            "sysctl -w kernel.sched_autogroup_enabled=0, or run it as a service and isolate its CPUs",
        ),
        _ => Check::ok(NAME, "off"),
    }
}

/// Used by checks that concern CPUs only if there is an lcore on each.
pub(super) fn cpu_of(config: &Config) -> Vec<u32> {
    let mut cpus: Vec<_> = all_lcores(config).iter().map(|lcore| lcore.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}
