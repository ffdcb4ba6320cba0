// SPDX-License-Identifier: Apache-2.0
//! What an operator can get wrong, found before EAL runs, or read out of EAL's log after it failed.

use dpdk_sys as sys;

use super::host::{CAP_NET_ADMIN, CAP_NET_RAW, Host, PciDevice, has_interface, in_cpu_list, may_use_cpu};
use super::options::{EalOptions, Memory};
use crate::error::EalError;

/// Drivers a PCI device may have when DPDK uses it: user-space I/O, or a kernel driver that shares the device.
const PCI_DRIVERS: &[&str] = &["vfio-pci", "uio_pci_generic", "igb_uio", "mlx4_core", "mlx5_core", "mana"];

/// vdev names whose driver library is called otherwise, or that are common enough to suggest.
const VDEVS: &[&str] = &[
    "net_af_packet",
    "net_af_xdp",
    "net_bonding",
    "net_failsafe",
    "net_memif",
    "net_null",
    "net_pcap",
    "net_ring",
    "net_softnic",
    "net_tap",
    "net_tun",
    "net_vdev_netvsc",
    "net_vhost",
    "net_virtio_user",
];

pub(crate) fn check(options: &EalOptions, host: &Host) -> Result<(), EalError> {
    contradictions(options)?;
    lcores(options, host)?;
    devices(options, host)?;
    memory(options, host)
}

/// Arguments that would undo what Sluice passes.
fn contradictions(options: &EalOptions) -> Result<(), EalError> {
    for argument in &options.extra {
        let name = argument.split('=').next().unwrap_or_default();
        let instead = match name {
            "--no-huge" | "--in-memory" | "--legacy-mem" => "choose with `hugepages`",
            "-l" | "-c" | "--lcores" | "--main-lcore" | "-s" | "-S" => "choose with `lcores`",
            "--vdev" | "-a" | "--allow" | "--no-pci" => "give devices as `device` of a port",
            "--proc-type" => "run a single process",
            _ => continue,
        };
        return Err(EalError::Contradiction { argument: argument.clone(), instead });
    }
    Ok(())
}

fn lcores(options: &EalOptions, host: &Host) -> Result<(), EalError> {
    if options.lcores.is_empty() {
        return Err(EalError::NoLcore);
    }
    let online = host.cpus_online();
    for (index, lcore) in options.lcores.iter().enumerate() {
        let (id, cpu) = (lcore.id, lcore.cpu);
        if id >= sys::K_MAX_LCORE {
            return Err(EalError::LcoreNumber { lcore: id, cpu, last: sys::K_MAX_LCORE - 1 });
        }
        if options.lcores.iter().take(index).any(|other| other.id == id) {
            return Err(EalError::LcoreTwice { lcore: id, cpu });
        }
        if !in_cpu_list(&online, cpu) {
            return Err(EalError::NoSuchCpu { lcore: id, cpu, online });
        }
        if !may_use_cpu(cpu) {
            return Err(EalError::CpuForbidden { lcore: id, cpu });
        }
    }
    if options.lcores.iter().any(|l| l.id == options.main) {
        Ok(())
    } else {
        Err(EalError::MainNotListed { lcore: options.main })
    }
}

fn devices(options: &EalOptions, host: &Host) -> Result<(), EalError> {
    for (index, device) in options.vdevs.iter().enumerate() {
        let name = name_of(device);
        if options.vdevs.iter().take(index).any(|other| name_of(other) == name) {
            return Err(EalError::DeviceTwice { device: name.to_owned() });
        }
        vdev(device, host)?;
    }
    for (index, device) in options.allow.iter().enumerate() {
        let address = pci_address(name_of(device));
        if options.allow.iter().take(index).any(|other| pci_address(name_of(other)) == address) {
            return Err(EalError::DeviceTwice { device: address });
        }
        pci(&address, host)?;
    }
    Ok(())
}

fn vdev(device: &str, host: &Host) -> Result<(), EalError> {
    let name = name_of(device);
    let driver = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if driver.starts_with("net_") && !VDEVS.contains(&driver) && !host.has_driver(driver) {
        return Err(unknown(name));
    }
    let permission = |capability: u32, text: &'static str| {
        if host.has_capability(capability) {
            return Ok(());
        }
        Err(EalError::NotPermitted { device: name.to_owned(), capability: text })
    };
    match driver {
        "net_af_packet" | "net_af_xdp" => {
            permission(CAP_NET_RAW, "the capability CAP_NET_RAW")?;
            let interface = argument(device, "iface")
                .ok_or_else(|| EalError::InterfaceMissing { device: name.to_owned() })?;
            if !has_interface(interface) {
                let interface = interface.to_owned();
                return Err(EalError::NoInterface { device: name.to_owned(), interface });
            }
            Ok(())
        }
        "net_tap" | "net_tun" => permission(CAP_NET_ADMIN, "the capability CAP_NET_ADMIN"),
        _ => Ok(()),
    }
}

fn pci(address: &str, host: &Host) -> Result<(), EalError> {
    let address = address.to_owned();
    match host.pci(&address) {
        PciDevice::Missing => Err(EalError::NoPciDevice { address }),
        PciDevice::Unbound => Err(EalError::PciUnbound { address }),
        PciDevice::Bound(driver) if !PCI_DRIVERS.contains(&driver.as_str()) => {
            Err(EalError::PciDriver { address, driver })
        }
        PciDevice::Bound(_) => Ok(()),
    }
}

fn memory(options: &EalOptions, host: &Host) -> Result<(), EalError> {
    match options.memory {
        Memory::Huge { mb } => {
            let pages = host.huge_pages();
            let wanted = u64::from(mb).div_ceil(pages.page_mb);
            if pages.total_mb == 0 {
                let pages = u32::try_from(wanted.max(1)).unwrap_or(u32::MAX);
                return Err(EalError::NoHugePages { need_mb: mb, pages });
            }
            if pages.free_mb < u64::from(mb).max(1) {
                let more = wanted.max(1).saturating_sub(pages.free_mb / pages.page_mb);
                let pages = pages.total_mb / pages.page_mb + more;
                return Err(EalError::FewHugePages {
                    need_mb: mb,
                    free_mb: host.huge_pages().free_mb,
                    pages,
                });
            }
        }
        Memory::NoHuge { mb } => {
            if let Some(available_mb) = host.memory_available_mb().filter(|a| *a < u64::from(mb)) {
                return Err(EalError::NotEnoughMemory { need_mb: mb, available_mb });
            }
        }
    }
    Ok(())
}

/// What EAL's failure means, from its log and from what it printed.
pub(crate) fn explain(options: &EalOptions, errno: i32, log: &[String], printed: &str) -> EalError {
    if let Some(device) = log.iter().find_map(|line| quoted_after(line, "failed to parse device")) {
        return unknown(&device);
    }
    if let Some(line) = printed.lines().find(|l| l.contains("option")) {
        let reason = line.rsplit_once(": ").map_or(line, |(_, tail)| tail).trim().to_owned();
        return EalError::Arguments { arguments: options.extra.join(" "), reason };
    }
    if log.iter().any(|line| line.contains("Cannot create lock on")) {
        return EalError::SecondInstance { prefix: options.prefix().to_owned(), pid: None };
    }
    let said: Vec<&str> = log.iter().map(|line| line.trim_start_matches("EAL: ").trim()).collect();
    let reason = match said.as_slice() {
        [] => std::io::Error::from_raw_os_error(errno).to_string(),
        [.., cause, "FATAL: Invalid 'command line' arguments."] => (*cause).to_owned(),
        [.., cause, last] => format!("{last} (after \"{cause}\")"),
        [last] => (*last).to_owned(),
    };
    EalError::Refused { reason }
}

fn quoted_after(line: &str, phrase: &str) -> Option<String> {
    let rest = line.split_once(phrase)?.1;
    rest.split('"').nth(1).map(str::to_owned)
}

fn unknown(device: &str) -> EalError {
    if has_interface(device) {
        return EalError::KernelInterface { device: device.to_owned() };
    }
    let stem = device.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = device.strip_prefix(stem).filter(|n| !n.is_empty()).unwrap_or("0");
    let nearest = VDEVS.iter().min_by_key(|known| distance(known, stem)).copied().unwrap_or("net_af_packet");
    EalError::UnknownVdev { device: device.to_owned(), suggestion: format!("{nearest}{number}") }
}

/// Edits between two names (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// A device without its arguments.
pub(crate) fn name_of(device: &str) -> &str {
    device.split(',').next().unwrap_or_default()
}

/// The value of one argument of a device.
pub(crate) fn argument<'a>(device: &'a str, key: &str) -> Option<&'a str> {
    device
        .split(',')
        .skip(1)
        .find_map(|part| part.strip_prefix(key)?.strip_prefix('='))
        .filter(|v| !v.is_empty())
}

/// A PCI address with its domain.
pub(crate) fn pci_address(address: &str) -> String {
    let address = address.strip_prefix("pci:").unwrap_or(address);
    if address.matches(':').count() == 1 { format!("0000:{address}") } else { address.to_owned() }
}

#[cfg(test)]
mod tests;
