// SPDX-License-Identifier: Apache-2.0
//! CPUs: there and allowed, to themselves, isolated, at full speed, with a clock that is good for time stamps.

use model::Config;

use super::host::cpu_of;
use super::machine::{Machine, cpu_list};
use super::{Check, listed, packet_lcores};

pub(super) fn checks(machine: &Machine, config: &Config) -> Vec<Check> {
    let mut packet: Vec<_> = packet_lcores(config).iter().map(|lcore| lcore.cpu).collect();
    packet.sort_unstable();
    vec![
        present(machine, config),
        shared(machine, &packet),
        isolation(machine, &packet),
        governor(machine, &packet),
        clock(machine),
    ]
}

fn present(machine: &Machine, config: &Config) -> Check {
    const NAME: &str = "cpus";
    let cpus = cpu_of(config);
    let online = machine.read("sys/devices/system/cpu/online").unwrap_or_default();
    let allowed = machine.field("proc/self/status", "Cpus_allowed_list").unwrap_or_else(|| online.clone());
    let lacking = |list: &str| -> Vec<u32> {
        let there = cpu_list(list);
        cpus.iter().copied().filter(|cpu| !there.contains(cpu)).collect()
    };
    let (absent, forbidden) = (lacking(&online), lacking(&allowed));
    if !absent.is_empty() {
        let found = format!("lcores are to run on CPUs {}, only {online} are online", listed(&absent));
        return Check::fail(
            NAME,
            found,
            "choose others in dataplane.lcores; on a small machine { compact = 1 }",
        );
    }
    if !forbidden.is_empty() {
        let found = format!("CPUs {} are not allowed here, only {allowed}", listed(&forbidden));
        return Check::fail(
            NAME,
            found,
            "widen the cpuset or CPUAffinity= of the service, or choose other lcores",
        );
    }
    Check::ok(NAME, format!("{} of {online} online", listed(&cpus)))
}

/// Two packet lcores on one CPU, or on two threads of one core, take turns.
fn shared(machine: &Machine, packet: &[u32]) -> Check {
    const NAME: &str = "smt";
    let doubled: Vec<_> = packet.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    if !doubled.is_empty() {
        let found = format!("CPU {} has more than one packet lcore", listed(&doubled));
        return Check::warn(NAME, found, "give each packet lcore a CPU of its own, or use compact");
    }
    let siblings =
        |cpu: u32| machine.cpus(&format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
    let pair = packet.iter().find_map(|&cpu| {
        let other = siblings(cpu).into_iter().find(|other| *other != cpu && packet.contains(other))?;
        Some((cpu, other))
    });
    match pair {
        Some((cpu, other)) => Check::warn(
            NAME,
            format!("CPUs {cpu} and {other} are threads of one core"),
            "use one thread of a core for packets and leave the other idle: `lscpu -e` shows which belong together",
        ),
        None => Check::ok(NAME, "each packet lcore has a core of its own"),
    }
}

fn isolation(machine: &Machine, packet: &[u32]) -> Check {
    const NAME: &str = "isolation";
    let isolated = machine.cpus("sys/devices/system/cpu/isolated");
    let tickless = machine.cpus("sys/devices/system/cpu/nohz_full");
    let open = |list: &[u32]| packet.iter().any(|cpu| !list.contains(cpu));
    let missing: Vec<_> = [("isolcpus", open(&isolated)), ("nohz_full", open(&tickless))]
        .into_iter()
        .filter_map(|(name, missing)| missing.then_some(name))
        .collect();
    if missing.is_empty() {
        return Check::ok(NAME, format!("CPUs {} are isolated and tickless", listed(packet)));
    }
    let list = listed(packet);
    Check::warn(
        NAME,
        format!("CPUs {list} poll for packets, but are not all in {}", missing.join(" nor in ")),
        format!(
            "on the kernel's command line: isolcpus=managed_irq,domain,{list} nohz_full={list} rcu_nocbs={list} \
             (Debian: GRUB_CMDLINE_LINUX in /etc/default/grub, update-grub, reboot)"
        ),
    )
}

fn governor(machine: &Machine, packet: &[u32]) -> Check {
    const NAME: &str = "governor";
    let of = |cpu: u32| machine.read(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"));
    let slow: Vec<_> = packet
        .iter()
        .filter_map(|&cpu| Some((cpu, of(cpu)?)))
        .filter(|(_, name)| name != "performance")
        .collect();
    match slow.first() {
        Some((cpu, name)) => Check::warn(
            NAME,
            format!("CPU {cpu} is governed by \"{name}\": it takes time to come to full speed"),
            "cpupower frequency-set -g performance (Debian package linux-cpupower)",
        ),
        None if packet.iter().any(|&cpu| of(cpu).is_some()) => Check::ok(NAME, "performance"),
        None => {
            Check::ok(NAME, "the kernel does not govern the frequency here (firmware or hypervisor does)")
        }
    }
}

fn clock(machine: &Machine) -> Check {
    const NAME: &str = "clock";
    let flags = machine.field("proc/cpuinfo", "flags").unwrap_or_default();
    let has = |flag: &str| flags.split_whitespace().any(|known| known == flag);
    if has("constant_tsc") && has("nonstop_tsc") {
        return Check::ok(NAME, "the TSC runs evenly (constant_tsc, nonstop_tsc)");
    }
    Check::warn(
        NAME,
        "the TSC may stop or change its speed (no constant_tsc, nonstop_tsc): rates and delays would be wrong",
        "in a virtual machine pass the host's CPU through (QEMU: -cpu host,+invtsc); else switch off deep sleep states",
    )
}
