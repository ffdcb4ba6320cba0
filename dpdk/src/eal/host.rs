// SPDX-License-Identifier: Apache-2.0
//! What the machine has: CPUs, huge pages, memory, PCI devices, capabilities, drivers.
//!
//! Read from /proc and /sys below a root that tests replace.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use dpdk_sys as sys;

/// `CAP_NET_ADMIN` of linux/capability.h.
pub(crate) const CAP_NET_ADMIN: u32 = 12;
/// `CAP_NET_RAW` of linux/capability.h.
pub(crate) const CAP_NET_RAW: u32 = 13;

/// The machine.
#[derive(Debug)]
pub(crate) struct Host {
    root: PathBuf,
}

/// Huge pages of all sizes.
#[expect(clippy::struct_field_names, reason = "the unit belongs to the name")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HugePages {
    pub(crate) total_mb: u64,
    /// Free and not reserved for somebody.
    pub(crate) free_mb: u64,
    /// MB of one page of the smallest size.
    pub(crate) page_mb: u64,
}

/// A PCI device as sysfs shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PciDevice {
    Missing,
    Unbound,
    Bound(String),
}

impl Host {
    pub(crate) fn real() -> Self {
        Self { root: PathBuf::from("/") }
    }

    #[cfg(test)]
    pub(crate) fn below(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }

    /// The list of CPUs that are online, as the kernel writes it ("0-3,8").
    pub(crate) fn cpus_online(&self) -> String {
        self.read("sys/devices/system/cpu/online").unwrap_or_default().trim().to_owned()
    }

    pub(crate) fn huge_pages(&self) -> HugePages {
        let folder = self.root.join("sys/kernel/mm/hugepages");
        let mut sum = HugePages { page_mb: 2, ..HugePages::default() };
        let mut smallest = u64::MAX;
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(kb) =
                name.strip_prefix("hugepages-").and_then(|n| n.strip_suffix("kB")?.parse::<u64>().ok())
            else {
                continue;
            };
            let count = |file: &str| {
                std::fs::read_to_string(entry.path().join(file))
                    .ok()
                    .and_then(|t| t.trim().parse().ok())
                    .unwrap_or(0)
            };
            let free: u64 = count("free_hugepages");
            let reserved: u64 = count("resv_hugepages");
            sum.total_mb += count("nr_hugepages") * kb / 1024;
            sum.free_mb += free.saturating_sub(reserved) * kb / 1024;
            smallest = smallest.min(kb);
        }
        if smallest != u64::MAX {
            sum.page_mb = (smallest / 1024).max(1);
        }
        sum
    }

    /// MB the kernel thinks can be had without swapping.
    pub(crate) fn memory_available_mb(&self) -> Option<u64> {
        let text = self.read("proc/meminfo")?;
        let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
        Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? / 1024)
    }

    pub(crate) fn pci(&self, address: &str) -> PciDevice {
        let device = self.root.join("sys/bus/pci/devices").join(address);
        if !device.exists() {
            return PciDevice::Missing;
        }
        match std::fs::read_link(device.join("driver")).ok().as_deref().and_then(Path::file_name) {
            Some(name) => PciDevice::Bound(name.to_string_lossy().into_owned()),
            None => PciDevice::Unbound,
        }
    }

    /// The effective user.
    pub(crate) fn uid(&self) -> Option<u32> {
        self.status("Uid:").and_then(|l| l.split_whitespace().nth(1)?.parse().ok())
    }

    pub(crate) fn has_capability(&self, capability: u32) -> bool {
        let effective = self.status("CapEff:").and_then(|l| u64::from_str_radix(l.trim(), 16).ok());
        effective.is_none_or(|bits| bits >> capability & 1 == 1)
    }

    fn status(&self, key: &str) -> Option<String> {
        let text = self.read("proc/self/status")?;
        text.lines().find_map(|l| l.strip_prefix(key)).map(str::to_owned)
    }

    /// Whether a driver library for vdevs of that name ("net_null") is installed.
    pub(crate) fn has_driver(&self, name: &str) -> bool {
        let folder = String::from_utf8_lossy(sys::K_PMD_PATH).trim_end_matches('\0').to_owned();
        let folder = self.root.join(folder.trim_start_matches('/'));
        // Where the folder is not, EAL is built otherwise and must judge itself.
        !folder.is_dir() || folder.join(format!("librte_{name}.so")).exists()
    }
}

/// Whether a network interface of that name exists in this process's namespace.
pub(crate) fn has_interface(name: &str) -> bool {
    let Ok(name) = CString::new(name) else {
        return false;
    };
    // SAFETY: a string that ends in 0 and lives through the call.
    unsafe { libc::if_nametoindex(name.as_ptr()) != 0 }
}

/// Whether a thread of this process may run on a CPU; tries it in a thread of its own.
pub(crate) fn may_use_cpu(cpu: u32) -> bool {
    std::thread::spawn(move || bind_to(cpu)).join().unwrap_or(false)
}

fn bind_to(cpu: u32) -> bool {
    // One bit a CPU; larger than `cpu_set_t`, whose 1,024 CPUs not every machine keeps to.
    let mut mask = [0_u64; 128];
    let Some(word) = mask.get_mut(cpu as usize / 64) else {
        return false;
    };
    *word = 1 << (cpu % 64);
    // SAFETY: the mask is as long as stated; 0 means the calling thread.
    unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) == 0 }
}

/// Whether `cpu` is in a list such as "0-3,8".
pub(crate) fn in_cpu_list(list: &str, cpu: u32) -> bool {
    list.split(',').any(|part| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        matches!((from.trim().parse::<u32>(), to.trim().parse::<u32>()), (Ok(a), Ok(b)) if (a..=b).contains(&cpu))
    })
}
