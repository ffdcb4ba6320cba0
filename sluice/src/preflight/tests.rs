// SPDX-License-Identifier: Apache-2.0
//! Machines made of files.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::*;

/// A root of a test's own, gone with it.
struct Made(PathBuf);

impl Made {
    /// A machine on which everything is as it should be, for [`config`].
    fn good() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sluice-preflight-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let made = Self(std::env::temp_dir().join(name));
        let files = [
            ("proc/meminfo", "MemTotal: 65000000 kB\nMemAvailable:   60000000 kB\n"),
            ("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu constant_tsc nonstop_tsc\n"),
            ("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-7\n"),
            ("proc/sys/kernel/sched_autogroup_enabled", "0\n"),
            ("sys/devices/system/cpu/online", "0-7\n"),
            ("sys/devices/system/cpu/isolated", "1-4\n"),
            ("sys/devices/system/cpu/nohz_full", "1-4\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "8192\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "8192\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "0\n"),
            ("sys/kernel/iommu_groups/0/type", "DMA\n"),
            ("var/lib/sluice/empty", ""),
        ];
        for (path, text) in files {
            made.write(path, text);
        }
        for cpu in 1..=4 {
            made.write(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"), "performance\n");
            let siblings = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            made.write(&siblings, &format!("{cpu},{}\n", cpu + 8));
        }
        for device in ["0000:3b:00.0", "0000:3b:00.1"] {
            let folder = format!("sys/bus/pci/devices/{device}");
            made.write(&format!("{folder}/vendor"), "0x8086\n");
            made.write(&format!("{folder}/numa_node"), "0\n");
            made.write(&format!("{folder}/local_cpulist"), "0-7\n");
            made.bind(device, "vfio-pci");
        }
        made
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn bind(&self, device: &str, driver: &str) {
        let link = self.0.join(format!("sys/bus/pci/devices/{device}/driver"));
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(format!("/sys/bus/pci/drivers/{driver}"), link).unwrap();
    }

    fn remove(&self, path: &str) {
        let path = self.0.join(path);
        let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    }

    fn look(&self, config: &Config) -> Report {
        look_at(&Machine::below(&self.0), config)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const FILE: &str = "[dataplane]\nlcores = { control = 0, rx = [1, 2], tx = [3, 4] }\nhugepages = \"require\"\n\
                    [[port]]\nname=\"core\"\ndevice=\"0000:3b:00.0\"\nrole=\"core\"\npeer=\"access\"\n\
                    [[port]]\nname=\"access\"\ndevice=\"3b:00.1\"\nrole=\"access\"\npeer=\"core\"\n";

fn config(text: &str) -> Config {
    Config::parse("f", text).unwrap()
}

/// The one check that is not ok.
fn only(report: &Report) -> &Check {
    let bad: Vec<_> = report.checks.iter().filter(|check| check.status != Status::Ok).collect();
    let [check] = bad.as_slice() else { panic!("{bad:?}") };
    assert!(check.fix.as_ref().is_some_and(|fix| !fix.is_empty()), "{check:?}");
    check
}

#[test]
fn a_machine_as_it_should_be_needs_nothing() {
    let report = Made::good().look(&config(FILE));
    let bad: Vec<_> = report.checks.iter().filter(|check| check.status != Status::Ok).collect();
    assert!(report.ok && bad.is_empty(), "{bad:?}");
    let named = |name| report.checks.iter().any(|check| check.name == name);
    for name in
        ["hugepages", "memory", "isolation", "iommu", "driver", "numa", "rss", "governor", "autogroup"]
    {
        assert!(named(name), "{name}");
    }
}

#[test]
fn each_fault_of_a_machine_is_found_with_a_fix() {
    type Break = fn(&Made);
    let faults: [(&str, Status, &str, Break); 16] = [
        ("hugepages", Status::Fail, "nr_hugepages=", |made| {
            made.write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "3");
        }),
        ("permissions", Status::Fail, "unit", |made| {
            made.write("proc/self/status", "Uid:\t7\t7\t7\t7\nCapEff:\t0\nCpus_allowed_list:\t0-7\n");
        }),
        ("store", Status::Fail, "mkdir", |made| made.remove("var/lib/sluice")),
        ("autogroup", Status::Warn, "sysctl", |made| {
            made.write("proc/sys/kernel/sched_autogroup_enabled", "1\n");
        }),
        ("memory", Status::Fail, "subscribers", |made| made.write("proc/meminfo", "MemAvailable: 100 kB\n")),
        ("cpus", Status::Fail, "lcores", |made| made.write("sys/devices/system/cpu/online", "0-3\n")),
        ("cpus", Status::Fail, "cpuset", |made| {
            made.write("proc/self/status", "CapEff:\tffffffffff\nCpus_allowed_list:\t0-2\n");
        }),
        ("smt", Status::Warn, "thread", |made| {
            made.write("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1,3\n");
        }),
        ("isolation", Status::Warn, "isolcpus=managed_irq,domain,1,2,3,4", |made| {
            made.write("sys/devices/system/cpu/isolated", "\n");
        }),
        ("isolation", Status::Warn, "nohz_full", |made| {
            made.write("sys/devices/system/cpu/nohz_full", "(null)\n");
        }),
        ("governor", Status::Warn, "cpupower", |made| {
            made.write("sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "powersave\n");
        }),
        ("clock", Status::Warn, "invtsc", |made| made.write("proc/cpuinfo", "flags\t\t: fpu\n")),
        ("driver", Status::Fail, "dpdk-devbind.py --bind=vfio-pci 0000:3b:00.1", |made| {
            made.bind("0000:3b:00.1", "ixgbe");
        }),
        ("driver", Status::Fail, "--bind", |made| made.remove("sys/bus/pci/devices/0000:3b:00.0/driver")),
        ("numa", Status::Warn, "8-15", |made| {
            made.write("sys/bus/pci/devices/0000:3b:00.1/local_cpulist", "8-15\n");
        }),
        ("rss", Status::Warn, "RSS", |made| {
            made.write("sys/bus/pci/devices/0000:3b:00.0/vendor", "0x1af4\n");
        }),
    ];
    for (name, status, fix, fault) in faults {
        let made = Made::good();
        fault(&made);
        let report = made.look(&config(FILE));
        let check = only(&report);
        assert_eq!((check.name, check.status), (name, status), "{check:?}");
        assert!(check.fix.as_ref().is_some_and(|text| text.contains(fix)), "{check:?} without {fix}");
        assert_eq!(report.ok, status != Status::Fail);
    }
}

#[test]
fn without_an_iommu_vfio_needs_one_or_is_unsafe_and_mlx5_needs_none() {
    let made = Made::good();
    made.remove("sys/kernel/iommu_groups");
    assert_eq!((only(&made.look(&config(FILE))).name, made.look(&config(FILE)).ok), ("iommu", false));
    made.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
    assert_eq!(only(&made.look(&config(FILE))).status, Status::Warn);
    for device in ["0000:3b:00.0", "0000:3b:00.1"] {
        made.bind(device, "mlx5_core");
    }
    assert!(made.look(&config(FILE)).checks.iter().all(|check| check.status == Status::Ok));
}

#[test]
fn huge_pages_that_are_missed_only_slow_down_where_they_are_not_required() {
    let made = Made::good();
    made.write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n");
    for word in ["auto", "never"] {
        let report = made.look(&config(&FILE.replace("require", word)));
        assert_eq!((only(&report).name, only(&report).status), ("hugepages", Status::Warn), "{word}");
    }
}

#[test]
fn a_software_port_needs_its_interface_and_a_queue_for_each_rx_lcore() {
    let text = FILE
        .replace("0000:3b:00.0", "net_af_packet0,iface=up0,qpairs=2")
        .replace("3b:00.1", "net_af_packet1,iface=up1");
    let made = Made::good();
    made.write("sys/class/net/up0/mtu", "1500\n");
    let report = made.look(&config(&text));
    let bad: Vec<_> = report.checks.iter().filter(|check| check.status != Status::Ok).collect();
    let names: Vec<_> = bad.iter().map(|check| (check.name, check.found.contains("access"))).collect();
    assert_eq!(names, [("driver", true), ("rss", true)], "{bad:?}");
}

#[test]
fn the_report_reads_well_and_as_json() {
    let made = Made::good();
    made.remove("var/lib/sluice");
    let report = made.look(&config(FILE));
    let text = text(&report);
    assert!(text.contains("FAIL  store        /var/lib/sluice, where the store is to be"), "{text}");
    assert!(text.contains("-> mkdir -p /var/lib/sluice"), "{text}");
    assert!(text.ends_with(&format!("{} checks, 1 failed, 0 to improve\n", report.checks.len())), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["ok"], false);
    assert!(json["checks"].as_array().unwrap().iter().all(|check| check["name"].is_string()));
}
