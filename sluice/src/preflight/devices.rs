// SPDX-License-Identifier: Apache-2.0
//! Ports: drivers, IOMMU, NUMA nodes, and whether a device can spread flows over several RX lcores.

use dataplane::is_pci;
use model::Config;
use model::config::{Lcores, Port};

use super::machine::Machine;
use super::{Check, listed, packet_lcores};

/// Kernel drivers through which DPDK reaches a device as it is.
const SHARED: [&str; 4] = ["mlx4_core", "mlx5_core", "mana", "uio_hv_generic"];
/// Kernel drivers that hand a whole device over.
const PASS_ON: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];
/// Vendors whose DPDK drivers spread flows by RSS. Virtio does where its host offers it.
const SPREADING: [(&str, &str); 5] = [
    ("0x8086", "Intel"),
    ("0x15b3", "NVIDIA Mellanox"),
    ("0x14e4", "Broadcom"),
    ("0x1d0f", "Amazon"),
    ("0x1425", "Chelsio"),
];

pub(super) fn checks(machine: &Machine, config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    if config.ports.is_empty() {
        checks.push(Check::ok("driver", "no port to look at: name a configuration"));
    }
    for port in &config.ports {
        checks.push(driver(machine, port));
        if is_pci(&port.device) {
            checks.push(node(machine, config, port));
        }
        checks.extend(rss(machine, config, port));
    }
    checks.push(iommu(machine, config));
    checks
}

/// The address as sysfs writes it.
fn address(port: &Port) -> String {
    let address = port.device.split(',').next().unwrap_or_default().to_ascii_lowercase();
    if address.matches(':').count() == 1 { format!("0000:{address}") } else { address }
}

fn folder(port: &Port) -> String {
    format!("sys/bus/pci/devices/{}", address(port))
}

fn argument<'d>(port: &'d Port, key: &str) -> Option<&'d str> {
    port.device.split(',').find_map(|argument| argument.strip_prefix(key)?.strip_prefix('='))
}

fn driver(machine: &Machine, port: &Port) -> Check {
    const NAME: &str = "driver";
    let (name, device) = (&port.name, &port.device);
    if !is_pci(device) {
        return vdev(machine, port);
    }
    let (address, folder) = (address(port), folder(port));
    if !machine.exists(&folder) {
        let found = format!("port {name}: there is no PCI device {address}");
        return Check::fail(NAME, found, "`dpdk-devbind.py --status-dev net` lists the addresses there are");
    }
    let bind = format!("modprobe vfio-pci; dpdk-devbind.py --bind=vfio-pci {address} (Debian package dpdk)");
    match machine.link(&format!("{folder}/driver")) {
        None => Check::fail(NAME, format!("port {name}: {address} has no driver"), bind),
        Some(driver) if SHARED.contains(&driver.as_str()) || PASS_ON.contains(&driver.as_str()) => {
            Check::ok(NAME, format!("port {name}: {address} is at {driver}"))
        }
        Some(driver) => {
            let interfaces = machine.names(&format!("{folder}/net")).join(", ");
            let found = format!("port {name}: {address} ({interfaces}) belongs to the kernel's {driver}");
            Check::fail(NAME, found, format!("take it off the network, then {bind}"))
        }
    }
}

fn vdev(machine: &Machine, port: &Port) -> Check {
    const NAME: &str = "driver";
    let (name, device) = (&port.name, port.device.split(',').next().unwrap_or_default());
    let interface = argument(port, "iface").filter(|_| device.starts_with("net_af_"));
    match interface {
        Some(interface) if !machine.exists(format!("sys/class/net/{interface}")) => Check::fail(
            NAME,
            format!("port {name}: there is no interface {interface} for {device}"),
            format!("`ip link` lists those there are; make it or name another in iface= of port {name}"),
        ),
        _ => Check::ok(NAME, format!("port {name}: {device}, by software: for tests and low rates")),
    }
}

fn node(machine: &Machine, config: &Config, port: &Port) -> Check {
    const NAME: &str = "numa";
    let (name, folder) = (&port.name, folder(port));
    let Some(node) = machine.read(&format!("{folder}/numa_node")).and_then(|node| node.parse::<u32>().ok())
    else {
        return Check::ok(NAME, format!("port {name}: this machine has one NUMA node"));
    };
    let near = machine.cpus(&format!("{folder}/local_cpulist"));
    let mut far: Vec<_> = packet_lcores(config).iter().map(|lcore| lcore.cpu).collect();
    far.retain(|cpu| !near.is_empty() && !near.contains(cpu));
    if far.is_empty() {
        return Check::ok(NAME, format!("port {name}: NUMA node {node}, where its lcores are"));
    }
    let list = machine.read(&format!("{folder}/local_cpulist")).unwrap_or_default();
    Check::warn(
        NAME,
        format!("port {name} is at NUMA node {node}, packet lcores on CPUs {} are not", listed(&far)),
        format!("choose lcores among the CPUs of that node: {list}; huge pages are needed there too"),
    )
}

/// Only where several RX lcores share a port's packets.
fn rss(machine: &Machine, config: &Config, port: &Port) -> Option<Check> {
    const NAME: &str = "rss";
    let Lcores::Split { rx, .. } = &config.dataplane.lcores else { return None };
    let (name, wanted) = (&port.name, rx.len());
    if wanted < 2 {
        return None;
    }
    let fix = "one RX lcore polls all of it: use one, or a device that spreads flows (RSS)";
    if is_pci(&port.device) {
        let vendor = machine.read(&format!("{}/vendor", folder(port))).unwrap_or_default();
        let known = SPREADING.iter().find(|(id, _)| *id == vendor);
        return Some(match known {
            Some((_, maker)) => {
                Check::ok(NAME, format!("port {name}: {maker} spreads flows over {wanted} RX lcores"))
            }
            None => {
                Check::warn(NAME, format!("port {name}: vendor {vendor} is not known to spread flows"), fix)
            }
        });
    }
    let pairs = argument(port, "qpairs").and_then(|pairs| pairs.parse().ok()).unwrap_or(1);
    if port.device.starts_with("net_tap") || pairs >= wanted {
        return Some(Check::ok(
            NAME,
            format!("port {name}: the kernel spreads flows over {wanted} RX lcores"),
        ));
    }
    let found = format!("port {name}: one queue for {wanted} RX lcores");
    let more = format!("qpairs={wanted} in the device of a net_af_packet port; else {fix}");
    Some(Check::warn(NAME, found, more))
}

fn iommu(machine: &Machine, config: &Config) -> Check {
    const NAME: &str = "iommu";
    let driver = |port: &&Port| machine.link(&format!("{}/driver", folder(port))).unwrap_or_default();
    let passed_on = |port: &&Port| is_pci(&port.device) && !SHARED.contains(&driver(port).as_str());
    if !config.ports.iter().any(|port| passed_on(&port)) {
        return Check::ok(NAME, "no port needs one");
    }
    let groups = machine.names("sys/kernel/iommu_groups").len();
    if groups > 0 {
        return Check::ok(NAME, format!("on, {groups} groups"));
    }
    let unsafe_mode = machine.read("sys/module/vfio/parameters/enable_unsafe_noiommu_mode");
    let fix =
        "switch on VT-d or AMD-Vi in the firmware, and intel_iommu=on iommu=pt on the kernel's command line";
    if unsafe_mode.is_some_and(|mode| mode == "Y" || mode == "1") {
        return Check::warn(NAME, "off, vfio works without: a device may then write anywhere", fix);
    }
    Check::fail(
        NAME,
        "off: vfio-pci cannot be used",
        format!(
            "{fix}; where there is none, echo Y > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
        ),
    )
}
