// SPDX-License-Identifier: Apache-2.0
//! Each precondition on a made-up machine, and what EAL's log is read as. The real machine is in `tests/real`.

use std::fs;
use std::path::PathBuf;

use super::super::options::Lcore;
use super::*;

/// A folder that looks like the root of a machine; gone when dropped.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Self {
        let machine = Self(std::env::temp_dir().join(format!("sluice-host-{}-{name}", std::process::id())));
        machine.file("sys/devices/system/cpu/online", "0-1\n");
        machine.file("proc/meminfo", "MemTotal: 2048000 kB\nMemAvailable:    1024000 kB\n");
        machine.file("proc/self/status", "Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t0000000000003000\n");
        machine
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn pages(&self, kb: u32, total: u32, free: u32, reserved: u32) {
        for (file, count) in [("nr", total), ("free", free), ("resv", reserved)] {
            self.file(
                &format!("sys/kernel/mm/hugepages/hugepages-{kb}kB/{file}_hugepages"),
                &count.to_string(),
            );
        }
    }

    fn pci(&self, address: &str, driver: Option<&str>) {
        let device = self.0.join("sys/bus/pci/devices").join(address);
        fs::create_dir_all(&device).unwrap();
        if let Some(driver) = driver {
            std::os::unix::fs::symlink(format!("../../drivers/{driver}"), device.join("driver")).unwrap();
        }
    }

    fn check(&self, options: &EalOptions) -> String {
        check(options, &Host::below(&self.0)).map_or_else(|e| e.to_string(), |()| "good".to_owned())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options(memory: Memory) -> EalOptions {
    EalOptions::new("sluice", vec![Lcore { id: 0, cpu: 0 }], memory)
}

const PLAIN: Memory = Memory::NoHuge { mb: 512 };

#[test]
fn huge_pages_are_counted_over_all_sizes_less_reservations() {
    let machine = Machine::new("pages");
    let need = |mb| options(Memory::Huge { mb });
    assert_eq!(
        machine.check(&need(256)),
        "no huge pages are reserved: run `sysctl vm.nr_hugepages=128` as root (256 MB are needed), or run without huge \
         pages (hugepages = \"never\", slower)"
    );
    machine.pages(2048, 200, 110, 10);
    assert_eq!(machine.check(&need(200)), "good");
    assert_eq!(
        machine.check(&need(256)),
        "not enough free huge pages: 256 MB are needed, 200 MB are free; reserve more with `sysctl \
         vm.nr_hugepages=228` as root, or run without huge pages (hugepages = \"never\", slower)"
    );
    machine.pages(1_048_576, 4, 1, 0);
    assert_eq!(machine.check(&need(1200)), "good");
}

#[test]
fn a_machine_whose_huge_pages_are_all_in_use_is_refused_even_on_demand() {
    let machine = Machine::new("used");
    machine.pages(2048, 64, 0, 0);
    assert!(machine.check(&options(Memory::Huge { mb: 0 })).starts_with("not enough free huge pages"));
}

#[test]
fn plain_memory_is_compared_with_what_is_available() {
    let machine = Machine::new("plain");
    assert_eq!(machine.check(&options(Memory::NoHuge { mb: 1000 })), "good");
    assert_eq!(
        machine.check(&options(Memory::NoHuge { mb: 1001 })),
        "not enough memory: 1001 MB are needed, 1000 MB are available; configure fewer buffers or add memory"
    );
}

#[test]
fn pci_devices_need_a_driver_that_dpdk_can_use() {
    let machine = Machine::new("pci");
    machine.pci("0000:03:00.0", Some("vfio-pci"));
    machine.pci("0000:03:00.1", Some("mlx5_core"));
    machine.pci("0000:03:00.2", Some("ice"));
    machine.pci("0000:03:00.3", None);
    let with = |address: &str| {
        let mut options = options(PLAIN);
        options.allow.push(address.to_owned());
        machine.check(&options)
    };
    assert_eq!(with("0000:03:00.0"), "good");
    assert_eq!(with("03:00.0,representor=0"), "good", "short, with an argument");
    assert_eq!(with("0000:03:00.1"), "good", "shares the device with DPDK");
    assert!(
        with("03:00.2").starts_with("PCI device 0000:03:00.2 belongs to the kernel driver \"ice\": bind it")
    );
    assert!(
        with("03:00.3")
            .starts_with("PCI device 0000:03:00.3 is bound to no driver: bind it to vfio-pci first")
    );
    assert!(with("04:00.0").starts_with("PCI device 0000:04:00.0 does not exist on this machine"));
    let mut twice = options(PLAIN);
    twice.allow = vec!["03:00.0".to_owned(), "0000:03:00.0".to_owned()];
    assert!(machine.check(&twice).starts_with("device \"0000:03:00.0\" is given twice"));
}

#[test]
fn capabilities_decide_not_the_user() {
    let machine = Machine::new("capabilities");
    let mut tap = options(PLAIN);
    tap.vdevs.push("net_tap0".to_owned());
    assert_eq!(machine.check(&tap), "good", "CAP_NET_ADMIN and CAP_NET_RAW are bits 12 and 13");
    machine.file("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t0000000000002000\n");
    assert!(machine.check(&tap).starts_with("device \"net_tap0\" needs the capability CAP_NET_ADMIN"));
}

#[test]
fn a_driver_library_in_the_driver_folder_is_a_known_vdev() {
    let machine = Machine::new("drivers");
    let folder = String::from_utf8_lossy(sys::K_PMD_PATH).trim_matches(['\0', '/']).to_owned();
    let mut with = options(PLAIN);
    with.vdevs.push("net_brandnew0".to_owned());
    assert_eq!(machine.check(&with), "good", "where the folder is not, EAL judges itself");
    machine.file(&format!("{folder}/librte_net_other.so"), "");
    assert!(machine.check(&with).contains("DPDK has no driver of that name"));
    machine.file(&format!("{folder}/librte_net_brandnew.so"), "");
    assert_eq!(machine.check(&with), "good");
}

#[test]
fn arguments_that_undo_our_own_are_refused() {
    let machine = Machine::new("extra");
    for argument in
        ["-l", "--lcores=0", "--no-huge", "--in-memory", "--vdev=net_null0", "--allow=x", "--proc-type=auto"]
    {
        let mut with = options(PLAIN);
        with.extra.push(argument.to_owned());
        let said = machine.check(&with);
        assert!(said.starts_with(&format!("eal_args: {argument} contradicts")), "{said}");
    }
    let mut with = options(PLAIN);
    with.extra = vec!["-m".to_owned(), "100".to_owned(), "--log-level=8".to_owned()];
    assert_eq!(machine.check(&with), "good");
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_log_of_a_failure_is_read() {
    let read = |log: &str, printed: &str| {
        let mut with = options(PLAIN);
        with.extra.push("--foo".to_owned());
        explain(&with, libc::ENOENT, &lines(log), printed).to_string()
    };
    assert_eq!(
        read("EAL: failed to parse device \"crypto_nul0\"\nEAL: FATAL: Cannot init plugins", ""),
        "device \"crypto_nul0\": DPDK has no driver of that name; did you mean \"net_null0\"?"
    );
    // every machine has this one
    assert_eq!(
        read("EAL: failed to parse device \"lo\"", ""),
        "device \"lo\" is a kernel interface: write device = \"net_af_packet0,iface=lo\", with a number of its own for each port"
    );
    assert_eq!(
        read("", "sluice: unrecognized option '--foo'\nUsage: sluice [options]"),
        "EAL does not accept the arguments given to it (--foo): unrecognized option '--foo'; correct eal_args"
    );
    assert!(
        read("EAL: Cannot create lock on '/run/dpdk/sluice/config'. Is another primary process running?", "")
            .starts_with("another instance with file prefix \"sluice\" is running: stop it")
    );
    assert_eq!(
        read("EAL: Not enough memory available! Requested: 9MB\nEAL: FATAL: Cannot init memory", ""),
        "EAL did not start: FATAL: Cannot init memory (after \"Not enough memory available! Requested: 9MB\")"
    );
    assert_eq!(read("", ""), "EAL did not start: No such file or directory (os error 2)");
}

#[test]
fn lists_of_cpus_are_read_as_the_kernel_writes_them() {
    let on = |list: &str| (0..12).filter(|cpu| in_cpu_list(list, *cpu)).collect::<Vec<_>>();
    assert_eq!(on("0"), [0]);
    assert_eq!(on("0-2,8,10-11"), [0, 1, 2, 8, 10, 11]);
    assert_eq!(on(""), [0; 0]);
}

#[test]
fn devices_are_taken_apart_at_commas() {
    assert_eq!(name_of("net_af_packet0,iface=core0,qpairs=2"), "net_af_packet0");
    assert_eq!(argument("net_af_packet0,iface=core0,qpairs=2", "iface"), Some("core0"));
    assert_eq!(argument("net_af_packet0,iface=", "iface"), None);
    assert_eq!(argument("net_af_packet0,ifaces=a", "iface"), None);
    assert_eq!(pci_address("03:00.0"), "0000:03:00.0");
    assert_eq!(pci_address("pci:0001:03:00.0"), "0001:03:00.0");
}
