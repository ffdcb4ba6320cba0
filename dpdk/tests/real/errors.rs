// SPDX-License-Identifier: Apache-2.0
//! Whatever an operator can get wrong ends in one sentence: each case in a child process of its own, which is this
//! binary running the test `child`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::child;
use crate::common::{cpus, skip};

/// How the child learns what to do: one `key=value` a line.
const ORDERS: &str = "SLUICE_TEST_EAL";

/// What a child is told.
#[derive(Clone, Default)]
struct Case {
    orders: Vec<String>,
    nobody: bool,
}

impl Case {
    fn new(key: &str, value: &str) -> Self {
        Self::default().and(key, value)
    }

    fn and(mut self, key: &str, value: &str) -> Self {
        self.orders.push(format!("{key}={value}"));
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("a path"));
        command.args(["--exact", "errors::child", "--nocapture", "--test-threads=1"]);
        let mut orders = self.orders.clone();
        if !orders.iter().any(|o| o.starts_with("prefix=")) {
            // Cases run at the same time.
            orders.push(format!("prefix=sluice-test-{}-{}", std::process::id(), crate::common::name("")));
        }
        command.env(ORDERS, orders.join("\n")).env("XDG_RUNTIME_DIR", std::env::temp_dir());
        if self.nobody {
            command.uid(65_534).gid(65_534);
        }
        command
    }

    /// The child's answer: "started" or its sentence.
    fn answer(&self) -> String {
        let output = self.command().output().expect("the child runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let answer = text.lines().find_map(|l| l.split_once("answer: ").map(|(_, a)| a.to_owned()));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer = answer.unwrap_or_else(|| panic!("no answer: {} {text} {stderr}", output.status));
        assert!(!text.contains("Usage"), "EAL printed its usage: {text}");
        assert!(!stderr.contains("EAL:"), "EAL spoke for itself: {stderr}");
        assert!(output.status.success(), "{answer}: {}", output.status);
        answer
    }

    fn is_answered_by(&self, sentence: &str) {
        assert_eq!(self.answer(), sentence);
    }
}

/// Not a test of its own: the children of the others run it.
#[test]
fn child() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    println!("\nanswer: {}", child::obey(&orders).unwrap_or_else(|sentence| sentence));
    std::io::stdout().flush().unwrap();
}

#[test]
fn good_options_start() {
    Case::new("vdev", "net_null0").and("open", "net_null0").is_answered_by("started");
    Case::new("lcore", "7").and("main", "7").is_answered_by("started");
}

#[test]
fn lcores_that_do_not_exist() {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let online = online.trim();
    Case::new("cpu", "999").is_answered_by(&format!(
        "lcore 1 does not exist: this machine has no CPU 999 online, only {online}; choose one of these"
    ));
    let cpu = cpus()[0];
    Case::new("lcore", "500").is_answered_by(&format!(
        "lcore 500 does not exist: DPDK knows lcores 0 to 127; use \"N@{cpu}\" to put a lower number on CPU {cpu}"
    ));
    Case::new("lcore", "0").is_answered_by(&format!(
        "lcore 0 is given twice: each lcore may appear once; use another number, as in \"1@{cpu}\""
    ));
    Case::new("main", "5")
        .is_answered_by("main lcore 5 is not among the configured lcores: add it to the list");
    Case::new("no-lcores", "").is_answered_by("no lcore is configured: name at least one");
}

#[test]
fn vdevs_with_typing_mistakes() {
    Case::new("vdev", "net_afpacket0,iface=lo").is_answered_by(
        "device \"net_afpacket0\": DPDK has no driver of that name; did you mean \"net_af_packet0\"?",
    );
    Case::new("vdev", "net_nosuch0").is_answered_by(
        "device \"net_nosuch0\": DPDK has no driver of that name; did you mean \"net_null0\"?",
    );
    // Not ours to judge beforehand: EAL's own log says it.
    Case::new("vdev", "nett_tap3")
        .is_answered_by("device \"nett_tap3\": DPDK has no driver of that name; did you mean \"net_tap3\"?");
    Case::new("vdev", "net_null0").and("vdev", "net_null0,size=64").is_answered_by(
        "device \"net_null0\" is given twice: give each vdev a number of its own, as in net_null0 and net_null1",
    );
}

#[test]
fn arguments_of_vdevs() {
    Case::new("vdev", "net_pcap0,rx_pcap=/nonexistent.pcap,tx_pcap=/dev/null").and("open", "net_pcap0").is_answered_by(
        "port \"net_pcap0\" does not exist: its driver said \"Couldn't open /nonexistent.pcap: /nonexistent.pcap: No such \
         file or directory\"; check `device`",
    );
    Case::new("vdev", "net_memif0,role=nosuch").and("open", "net_memif0").is_answered_by(
        "port \"net_memif0\" does not exist: its driver said \"Unknown role: nosuch.\"; check `device`",
    );
    let socket = std::env::temp_dir().join("sluice-nobody-listens.sock");
    let answer = Case::new("vdev", &format!("net_memif0,socket-abstract=no,socket={}", socket.display()))
        .and("open", "net_memif0")
        .answer();
    assert!(
        answer.contains("Operation not permitted (os error 1); it said \"Failed to connect socket: "),
        "{answer}"
    );
    Case::new("vdev", "net_null0").and("open", "net_null1").is_answered_by(
        "port \"net_null1\" does not exist: it was not among the devices given at start, or no DPDK driver took it; check \
         `device`",
    );
    if let Some(name) = need_root("arguments_of_vdevs") {
        Case::new("vdev", "net_af_packet0,iface=nosuch0").is_answered_by(&format!(
            "device \"{name}\": there is no network interface \"nosuch0\" in this network namespace; create it or \
             correct iface="
        ));
        Case::new("vdev", name).is_answered_by(&format!(
            "device \"{name}\" needs the network interface it opens: write \"{name},iface=NAME\""
        ));
    }
}

/// A device for tests that need CAP_NET_RAW.
fn need_root(test: &str) -> Option<&'static str> {
    if is_root() {
        return Some("net_af_packet0");
    }
    skip(test, "needs root for net_af_packet");
    None
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|l| l.starts_with("Uid:") && l.split_whitespace().nth(2) == Some("0"))
}

#[test]
fn devices_that_need_a_capability() {
    let case = Case { nobody: true, ..Case::new("vdev", "net_null0") };
    if !is_root() || case.command().output().is_err() {
        skip(
            "devices_that_need_a_capability",
            "needs root, and a build folder that others may read, to become nobody",
        );
        return;
    }
    case.is_answered_by("started");
    let advice =
        "run as root, or give the binary that capability (setcap, or AmbientCapabilities= in the unit)";
    for (device, capability) in [("net_af_packet0,iface=lo", "CAP_NET_RAW"), ("net_tap0", "CAP_NET_ADMIN")] {
        let name = device.split(',').next().unwrap();
        let case = Case { nobody: true, ..Case::new("vdev", device) };
        case.is_answered_by(&format!("device \"{name}\" needs the capability {capability}: {advice}"));
    }
}

#[test]
fn pci_devices_that_are_not_there_or_not_ours() {
    Case::new("pci", "0000:fe:1f.7").is_answered_by(
        "PCI device 0000:fe:1f.7 does not exist on this machine: `dpdk-devbind.py --status` lists those that do",
    );
    Case::new("pci", "fe:1f.7").and("pci", "0000:fe:1f.7").is_answered_by(
        "PCI device 0000:fe:1f.7 does not exist on this machine: `dpdk-devbind.py --status` lists those that do",
    );
    let bound = std::fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten().find_map(|entry| {
        let driver = std::fs::read_link(entry.path().join("driver")).ok()?.file_name()?.to_str()?.to_owned();
        let kernel = !driver.starts_with("vfio") && !driver.contains("uio") && !driver.starts_with("mlx");
        kernel.then(|| (entry.file_name().to_string_lossy().into_owned(), driver))
    });
    let Some((address, driver)) = bound else {
        skip(
            "pci_devices_that_are_not_there_or_not_ours",
            "this machine has no PCI device of a kernel driver",
        );
        return;
    };
    Case::new("pci", &address).is_answered_by(&format!(
        "PCI device {address} belongs to the kernel driver \"{driver}\": bind it to vfio-pci first \
         (`dpdk-devbind.py --bind=vfio-pci {address}`), which takes it from the kernel"
    ));
}

#[test]
fn more_memory_than_there_is() {
    let answer = Case::new("no-huge", "99999999").answer();
    assert!(answer.starts_with("not enough memory: 99999999 MB are needed, "), "{answer}");
    assert!(answer.ends_with(" MB are available; configure fewer buffers or add memory"), "{answer}");
    let answer = Case::new("huge", "99999999").answer();
    let none =
        answer.starts_with("no huge pages are reserved: run `sysctl vm.nr_hugepages=50000000` as root");
    let few = answer.starts_with("not enough free huge pages: 99999999 MB are needed, ");
    assert!((none || few) && answer.contains("hugepages = \"never\""), "{answer}");
    Case::new("buffers", "100000").is_answered_by(
        "not enough memory for pool \"pool\": 100000 buffers need about 232 MB; reserve more huge pages or configure \
         fewer buffers",
    );
}

/// Huge pages reserved for a test, where that is allowed; given back at its end.
struct Reserved(Option<String>);

impl Reserved {
    const FILE: &str = "/proc/sys/vm/nr_hugepages";

    fn more(pages: u64) -> Self {
        let before = std::fs::read_to_string(Self::FILE).unwrap_or_default();
        let now = before.trim().parse::<u64>().unwrap_or(0) + pages;
        Self(std::fs::write(Self::FILE, now.to_string()).is_ok().then_some(before))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = std::fs::write(Self::FILE, before);
        }
    }
}

#[test]
fn huge_pages_are_used_where_they_are_free() {
    let _reserved = (dpdk::free_huge_mb() < 64).then(|| Reserved::more(48));
    if dpdk::free_huge_mb() < 64 {
        skip(
            "huge_pages_are_used_where_they_are_free",
            "fewer than 64 MB of huge pages are free on this machine, and none can be reserved",
        );
        return;
    }
    let vdev = Case::new("vdev", "net_null0").and("open", "net_null0");
    vdev.clone().and("huge", "32").and("buffers", "2000").is_answered_by("started");
    vdev.and("huge", "0").and("buffers", "2000").is_answered_by("started");
}

#[test]
fn ports_with_too_few_queues() {
    Case::new("vdev", "net_null0").and("open", "net_null0").and("queues", "2000").is_answered_by(
        "port \"net_null0\" (net_null) has at most 1024 rx queue(s), 2000 are needed: use fewer rx lcores",
    );
    let Some(device) = need_root("ports_with_too_few_queues") else {
        return;
    };
    Case::new("vdev", "net_af_packet0,iface=lo").and("open", device).and("queues", "2").is_answered_by(
        "port \"net_af_packet0\" (net_af_packet) has at most 1 rx queue(s), 2 are needed: use fewer rx lcores, or give \
         the device more (qpairs=N)",
    );
}

#[test]
fn arguments_that_eal_does_not_take() {
    Case::new("extra", "--nosuch=1").is_answered_by(
        "EAL does not accept the arguments given to it (--nosuch=1): unrecognized option '--nosuch=1'; correct eal_args",
    );
    Case::new("extra", "--no-huge").is_answered_by(
        "eal_args: --no-huge contradicts what Sluice passes itself; remove it and choose with `hugepages`",
    );
    Case::new("extra", "--log-level=eal,4").is_answered_by("started");
    let answer = Case::new("extra", "-d").and("extra", "/nonexistent.so").answer();
    assert!(answer.starts_with("EAL did not start: ") && answer.contains("nonexistent"), "{answer}");
}

#[test]
fn prefixes_that_are_no_file_names() {
    Case::new("prefix", "../x")
        .is_answered_by("file prefix \"../x\" cannot be a file name: use letters, digits, '-' and '_'");
}

/// A child that keeps running until its input ends.
struct Holder(Child);

impl Holder {
    fn start(case: &Case) -> Self {
        let mut command = case.clone().and("hold", "").command();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the child runs");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let held = lines.find_map(|l| l.ok().filter(|l| l.contains("holding") || l.contains("answer: ")));
        assert_eq!(held.as_deref(), Some("holding"));
        // The pipe stays open, or the child would die of writing to it.
        std::thread::spawn(move || lines.count());
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn a_second_instance_on_the_same_prefix() {
    let prefix = format!("sluice-test-{}-twice", std::process::id());
    let case = Case::new("prefix", &prefix);
    let first = Holder::start(&case);
    case.is_answered_by(&format!(
        "another instance with file prefix \"{prefix}\" is running (process {}): stop it, or give this one another \
         prefix (eal_args = [\"--file-prefix=NAME\"])",
        first.0.id()
    ));
    // The operator's own argument counts.
    let other = case.clone().and("extra", &format!("--file-prefix={prefix}-b"));
    other.is_answered_by("started");
    drop(first);
    case.is_answered_by("started");
}

#[test]
fn eal_starts_once_in_a_process() {
    Case::new("again", "").is_answered_by(
        "EAL was already started in this process and cannot be started again: start a new process",
    );
}

#[test]
fn packets_outlive_their_pool_and_eal() {
    Case::new("end", "packet").is_answered_by("still here");
}

#[test]
fn the_main_lcore_can_be_the_last_to_let_go() {
    Case::new("end", "on-main").is_answered_by("ended on its main lcore");
}

/// A veth pair whose first end is opened by the child; gone when dropped.
struct Veth(String, String);

impl Veth {
    fn new() -> Option<Self> {
        let stem = format!("sl{}", std::process::id() % 100_000);
        let veth = Self(format!("{stem}a"), format!("{stem}b"));
        ip(&["link", "add", &veth.0, "type", "veth", "peer", "name", &veth.1]).then_some(())?;
        // Up without addresses of its own, so that nothing is ever sent on it.
        for end in [&veth.0, &veth.1] {
            ip(&["link", "set", end, "addrgenmode", "none", "up"]).then_some(())?;
        }
        Some(veth)
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        ip(&["link", "delete", &self.0]);
    }
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

#[test]
fn the_link_of_an_af_packet_port_is_its_interfaces() {
    let Some(veth) = Veth::new() else {
        skip("the_link_of_an_af_packet_port_is_its_interfaces", "needs root and ip(8) to make a veth pair");
        return;
    };
    let device = format!("net_af_packet0,iface={}", veth.0);
    let case = Case::new("vdev", &device).and("open", &device).and("link", "");
    let mut child = case.command().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut input = child.stdin.take().unwrap();
    let mut state = || lines.find_map(|l| l.unwrap().strip_prefix("link: ").map(str::to_owned));
    assert_eq!(state().as_deref(), Some("true"));
    for (peer, expected) in [("down", "false"), ("up", "true")] {
        assert!(ip(&["link", "set", &veth.1, peer]));
        writeln!(input).unwrap();
        assert_eq!(state().as_deref(), Some(expected), "peer {peer}");
    }
    drop(input);
    assert!(lines.any(|l| l.unwrap().contains("answer: started")));
    assert!(child.wait().unwrap().success());
}

#[test]
fn frames_that_find_no_room_in_an_af_packet_ring_are_counted() {
    const FRAMES: u64 = 300;
    let Some(veth) = Veth::new() else {
        skip(
            "frames_that_find_no_room_in_an_af_packet_ring_are_counted",
            "needs root and ip(8) to make a veth pair",
        );
        return;
    };
    // A ring of 64 frames that the child never empties, and a second child that sends into it.
    let device = format!("net_af_packet0,iface={},framecnt=64,framesz=2048,blocksz=4096", veth.0);
    let case = Case::new("vdev", &device).and("open", &device).and("link", "");
    let mut child = case.command().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut input = child.stdin.take().unwrap();
    let mut missed =
        || lines.find_map(|l| l.unwrap().strip_prefix("missed: ").map(|n| n.parse::<u64>().unwrap()));
    assert_eq!(missed(), Some(0));
    let sender = format!("net_af_packet0,iface={}", veth.1);
    let sender = Case::new("vdev", &sender).and("open", &sender).and("send", &FRAMES.to_string());
    sender.is_answered_by("started");
    writeln!(input).unwrap();
    let seen = missed().unwrap();
    assert!((FRAMES - 64..FRAMES).contains(&seen), "{seen} of {FRAMES} into a ring of 64");
    writeln!(input).unwrap();
    assert_eq!(missed(), Some(seen), "what was counted once stays counted");
    drop(input);
    assert!(child.wait().unwrap().success());
}
