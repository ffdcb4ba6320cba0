// SPDX-License-Identifier: Apache-2.0
//! Every failure an operator can hit with `sluice run` and `sluice check` ends in one clear sentence that says what
//! to do, with exit code 1; wrong usage ends with 2. No namespaces are needed.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tests::machine::{free_hugepages, wait_for};
use tests::rig::{Process, run, sh};
use tests::shaper::{Shaper, program};

/// Longest that a refusal may take.
const LIMIT: Duration = Duration::from_secs(30);
/// An ordinary user, by number: every Debian has it.
const NOBODY: &str = "65534";

static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// A folder of a test's own, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("sluice-refusals-{}-{}", std::process::id(), FOLDERS.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("the folder is made");
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("the file is written");
        path
    }

    fn name(&self) -> String {
        self.0.file_name().expect("it has a name").to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A configuration that would run, but for what a test changes in it.
struct Setup {
    lcores: String,
    hugepages: &'static str,
    buffers: u32,
    core: String,
    prefix: String,
    api: String,
    store: String,
}

impl Setup {
    fn new(folder: &Folder) -> Self {
        Self {
            lcores: "{ compact = 0 }".to_owned(),
            hugepages: "never",
            buffers: 0,
            // floods nobody: it takes what it is given and delivers nothing
            core: "net_null0,no-rx=1".to_owned(),
            prefix: folder.name(),
            api: format!("listen = \"127.0.0.1:{}\"", free_port()),
            store: folder.0.join("own.db").to_string_lossy().into_owned(),
        }
    }

    fn text(&self) -> String {
        let Self { lcores, hugepages, buffers, core, prefix, api, store } = self;
        format!(
            r#"[dataplane]
lcores = {lcores}
hugepages = "{hugepages}"
buffers = {buffers}
eal_args = ["--file-prefix={prefix}"]
[[port]]
name = "core"
device = "{core}"
role = "core"
peer = "access"
[[port]]
name = "access"
device = "net_null1,no-rx=1"
role = "access"
peer = "core"
[api]
{api}
[store]
path = "{store}"
"#
        )
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// Runs a command to its end: its exit code and all it printed.
fn outcome(mut command: Command, folder: &Folder) -> (Option<i32>, String) {
    let log = folder.0.join(format!("log-{}", FOLDERS.fetch_add(1, Relaxed)));
    let mut process = Process::start("sluice", &mut command, &log).expect("it starts");
    assert!(wait_for(LIMIT, || process.ended().is_some()), "it did not end: {}", process.output());
    (process.ended().and_then(|status| status.code()), process.output())
}

/// What `sluice` says when it is given these arguments, which must be one exit code and one message without
/// anything else but its log.
fn refused(folder: &Folder, arguments: &[&str], code: i32) -> String {
    let mut command = Command::new(program("sluice"));
    command.args(arguments);
    let (ended, output) = outcome(command, folder);
    assert_eq!(ended, Some(code), "{output}");
    message(&output)
}

/// The output without lines of the log.
fn message(output: &str) -> String {
    let said = output.lines().filter(|line| ![" INFO ", " WARN "].iter().any(|level| line.contains(level)));
    let said: Vec<&str> = said.collect();
    assert!(!output.contains("panicked") && !output.contains("EAL:"), "{output}");
    said.join("\n")
}

/// `sluice run` on this setup says one sentence with each of `words`, and exits with 1.
fn run_refuses(folder: &Folder, setup: &Setup, words: &[&str]) {
    let config = folder.write("refused.toml", &setup.text());
    let said = refused(folder, &["run", "--config", &config.to_string_lossy()], 1);
    one_sentence(&said, words);
}

fn one_sentence(said: &str, words: &[&str]) {
    assert_eq!(said.lines().count(), 1, "one line: {said}");
    assert!(said.starts_with("sluice: "), "{said}");
    for word in words {
        assert!(said.contains(word), "\"{word}\" is not in: {said}");
    }
}

fn is_root() -> bool {
    sh("id -u").is_ok_and(|id| id.trim() == "0")
}

#[test]
fn an_lcore_on_a_cpu_that_is_not_there_is_refused_with_those_that_are() {
    let folder = Folder::new();
    let mut setup = Setup::new(&folder);
    for lcores in ["{ compact = \"1@1023\" }", "{ control = 0, rx = [\"1@0\"], tx = [\"2@1023\"] }"] {
        setup.lcores = lcores.to_owned();
        run_refuses(
            &folder,
            &setup,
            &["does not exist", "no CPU 1023 online, only 0", "choose one of these"],
        );
    }
    setup.lcores = "{ compact = \"500@0\" }".to_owned();
    run_refuses(&folder, &setup, &[":2: dataplane.lcores.compact: \"500@0\" is not an lcore", "up to 127"]);
    setup.lcores = "{ control = 0, rx = [1], tx = [1] }".to_owned();
    run_refuses(&folder, &setup, &[":2: dataplane.lcores.tx: lcore 1 has another task already"]);
}

#[test]
fn a_device_that_is_not_there_is_refused_with_what_to_correct() {
    let folder = Folder::new();
    let mut setup = Setup::new(&folder);
    for (core, words) in [
        ("0000:7f:1f.7", ["PCI device 0000:7f:1f.7 does not exist", "dpdk-devbind.py --status"]),
        ("net_nul0", ["DPDK has no driver of that name", "did you mean \"net_null0\"?"]),
        ("net_af_paket0,iface=lo", ["\"net_af_paket0\"", "did you mean \"net_af_packet0\"?"]),
        ("net_af_packet0,iface=slu-nosuch", ["no network interface \"slu-nosuch\"", "create it or correct"]),
        ("net_af_packet0", ["needs the network interface it opens", "write \"net_af_packet0,iface=NAME\""]),
        ("net_null1", ["port[1].device", "is the device of port"]),
    ] {
        core.clone_into(&mut setup.core);
        run_refuses(&folder, &setup, &words);
    }
}

#[test]
fn a_pci_device_of_the_kernel_is_refused_with_how_to_take_it() {
    let name = "a_pci_device_of_the_kernel_is_refused_with_how_to_take_it";
    let of_the_kernel = |device: &Path| {
        let driver = std::fs::read_link(device.join("driver")).ok()?;
        let driver = driver.file_name()?.to_string_lossy().into_owned();
        let free = ["vfio-pci", "uio_pci_generic", "igb_uio"].contains(&driver.as_str());
        (!free).then(|| device.file_name().map(|name| name.to_string_lossy().into_owned()))?
    };
    let mut devices = std::fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    let Some(address) = devices.find_map(|entry| of_the_kernel(&entry.path())) else {
        tests::skip(name, "no PCI device here belongs to a kernel driver");
        return;
    };
    let folder = Folder::new();
    let setup = Setup { core: address.clone(), ..Setup::new(&folder) };
    run_refuses(
        &folder,
        &setup,
        &[&address, "belongs to the kernel driver", "dpdk-devbind.py --bind=vfio-pci"],
    );
}

#[test]
fn a_port_with_too_few_queues_is_refused_with_how_to_get_more() {
    if !is_root() {
        tests::skip("a_port_with_too_few_queues_is_refused_with_how_to_get_more", "a raw socket needs root");
        return;
    }
    let folder = Folder::new();
    let lcores = "{ control = 0, rx = [\"1@0\"], tx = [\"2@0\", \"3@0\"] }".to_owned();
    let setup = Setup { lcores, core: "net_af_packet0,iface=lo".to_owned(), ..Setup::new(&folder) };
    let words = ["at most 1 tx queue", "2 are needed", "use fewer tx lcores", "qpairs=N"];
    run_refuses(&folder, &setup, &words);
}

#[test]
fn too_little_memory_is_refused_with_how_much_is_needed() {
    let folder = Folder::new();
    let mut setup = Setup { buffers: 4_000_000, hugepages: "require", ..Setup::new(&folder) };
    let huge = ["MB are needed", "sysctl vm.nr_hugepages=", "hugepages = \"never\""];
    run_refuses(&folder, &setup, &huge);
    if free_hugepages() == 0 {
        setup.buffers = 0;
        run_refuses(&folder, &setup, &huge);
    } else {
        let name = "too_little_memory_is_refused_with_how_much_is_needed (no huge pages at all)";
        tests::skip(name, "this machine has free huge pages");
    }
    setup.hugepages = "never";
    for buffers in [1, 100, 6_000] {
        setup.buffers = buffers;
        run_refuses(&folder, &setup, &[&format!("dataplane.buffers = {buffers} is too few"), "need"]);
    }
}

#[test]
fn a_second_instance_is_refused_for_its_prefix_store_or_address() {
    let folder = Folder::new();
    let first = Setup::new(&folder);
    let api = first.api.split('"').nth(1).expect("an address").to_owned();
    let running = Shaper::start(&folder.0.join("first"), &first.text(), &api).expect("the first runs");

    let other = folder.0.join("other.db").to_string_lossy().into_owned();
    let listen = || format!("listen = \"127.0.0.1:{}\"", free_port());
    let same_prefix = Setup { store: other.clone(), api: listen(), ..Setup::new(&folder) };
    run_refuses(
        &folder,
        &same_prefix,
        &["another instance with file prefix", "is running (process ", "stop it, or", "--file-prefix=NAME"],
    );
    let prefix = format!("{}-b", folder.name());
    let same_store = Setup { prefix: prefix.clone(), api: listen(), ..Setup::new(&folder) };
    run_refuses(&folder, &same_store, &["own.db: is in use by another process", "a path of its own"]);
    let same_address = Setup { prefix, store: other, api: first.api.clone(), ..Setup::new(&folder) };
    run_refuses(&folder, &same_address, &[&format!("api.listen = {api}"), "in use", "a port that is free"]);

    let (status, _) = running.get("/readyz").expect("the first answers");
    assert_eq!(status, 200, "the first goes on");
    assert!(running.stop().is_some_and(|status| status.success()));
}

#[test]
fn a_store_that_cannot_be_used_is_refused_with_its_path() {
    let folder = Folder::new();
    let mut setup = Setup::new(&folder);
    setup.store = "/proc/sluice/own.db".to_owned();
    run_refuses(&folder, &setup, &["store /proc/sluice/own.db: cannot be written", "store.path"]);
    let stranger = folder.write("stranger.db", &"this is no database ".repeat(400));
    setup.store = stranger.to_string_lossy().into_owned();
    run_refuses(&folder, &setup, &["stranger.db: is damaged or not a Sluice store", "move it away"]);
}

#[test]
fn an_address_others_can_reach_is_refused_without_token_and_tls() {
    let folder = Folder::new();
    let mut setup = Setup::new(&folder);
    setup.api = "listen = \"0.0.0.0:8480\"".to_owned();
    let config = folder.write("refused.toml", &setup.text());
    let said = refused(&folder, &["run", "--config", &config.to_string_lossy()], 1);
    for key in ["api.token_file", "api.tls_cert", "api.tls_key"] {
        let named = said.lines().any(|line| line.contains(":16: ") && line.contains(key));
        assert!(named, "{key} with its line: {said}");
    }
    setup.api = format!("listen = \"127.0.0.1:{}\"\ntoken_file = \"/nosuch/token\"", free_port());
    run_refuses(&folder, &setup, &["api.token_file = /nosuch/token", "No such file", "must name"]);
}

/// One mistake a line, each at another line; what `sluice` has to say of each.
const MISTAKES: &str = r#"[dataplane]
lcores = { compact = 1 }
hugepage = "never"
[[port]]
name = "core"
device = "net_null0"
role = "middle"
peer = "acess"
[[port]]
name = "access"
device = "net_null1"
role = "access"
peer = "core"
[profile.default]
target_us = -5
[[subscriber]]
id = "a"
down_bps = 1000
up_bps = 1000000
match = { ipv4 = ["10.0.0.1"] }
"#;

#[test]
fn all_mistakes_of_a_configuration_are_told_at_once_with_file_line_and_key() {
    let folder = Folder::new();
    let config = folder.write("mistakes.toml", MISTAKES);
    let config = config.to_string_lossy();
    for arguments in
        [&["check", &config][..], &["run", "--check", "--config", &config], &["run", "--config", &config]]
    {
        let said = refused(&folder, arguments, 1);
        assert_eq!(said.lines().count(), 5, "{said}");
        for (line, key, words) in [
            (3, "dataplane.hugepage", "did you mean \"hugepages\"?"),
            (7, "port[0].role", "\"core\", \"access\""),
            (8, "port[0].peer", "no port \"acess\""),
            (15, "profile.default.target_us", "-5"),
            (18, "subscriber[0].down_bps", "from 64000"),
        ] {
            let place = format!("{config}:{line}: {key}: ");
            let told = said.lines().any(|told| told.contains(&place) && told.contains(words));
            assert!(told, "{place} {words} is not in: {said}");
        }
    }
}

#[test]
fn a_good_configuration_passes_check_and_opens_nothing() {
    let folder = Folder::new();
    let setup = Setup { core: "net_af_packet0,iface=slu-nosuch".to_owned(), ..Setup::new(&folder) };
    let config = folder.write("good.toml", &setup.text());
    let config = config.to_string_lossy();
    let said = refused(&folder, &["check", &config], 0);
    assert!(said.contains("a good configuration: 2 ports"), "{said}");
    assert_eq!(refused(&folder, &["run", "--check", "--config", &config], 0), "");
    assert!(!folder.0.join("own.db").exists(), "checking makes no store");
}

#[test]
fn all_mistakes_of_a_subscriber_file_are_told_with_their_lines() {
    let folder = Folder::new();
    let record = |id: &str, address: &str| {
        format!(
            "{{\"id\":\"{id}\",\"down_bps\":1000000,\"up_bps\":1000000,\"match\":{{\"ipv4\":[\"{address}\"]}}}}\n"
        )
    };
    let lines =
        record("a", "10.0.0.1") + &record("b", "10.0.0.300") + &record("c", "10.0.0.1/32") + "{oops\n";
    let csv = "1,n,d,dn,AP,,100.64.0.1,,1,1,fast,10,\n2,n,d,dn,AP,,100.64.0.999,,1,1,50,10,\n";
    let expected: [(&str, &str, &[&str]); 2] = [
        (
            "subs.ndjson",
            &lines,
            &[":2: match.ipv4[0]: \"10.0.0.300\"", ":3: match: prefix 10.0.0.1/32", ":4: not JSON"],
        ),
        ("subs.csv", csv, &[":1: Download Max Mbps: \"fast\"", ":2: IPv4: \"100.64.0.999\""]),
    ];
    for (name, text, told) in expected {
        let path = folder.write(name, text);
        let path = path.to_string_lossy();
        let said = refused(&folder, &["check", &path], 1);
        assert_eq!(said.lines().count(), told.len(), "{said}");
        for (line, told) in said.lines().zip(told) {
            assert!(line.starts_with(&format!("{path}{told}")), "{line} does not begin with {told}");
        }
    }
    let said = refused(&folder, &["check", "/nosuch/subs.csv"], 1);
    one_sentence(&said, &["/nosuch/subs.csv cannot be read"]);
}

#[test]
fn wrong_usage_exits_with_2_and_shows_how() {
    let folder = Folder::new();
    for arguments in [
        &[][..],
        &["run"],
        &["run", "--config"],
        &["rum", "--config", "x"],
        &["run", "--config", "x", "--fast"],
        &["check"],
        &["replay", "--config", "x", "--direction", "sideways", "--in", "a", "--out", "b"],
        &["traffic", "run", "--cc", "teleport"],
    ] {
        let said = refused(&folder, arguments, 2);
        let shows = ["Usage: sluice", "possible values", "try '--help'"];
        assert!(shows.iter().any(|how| said.contains(how)), "{arguments:?}: {said}");
    }
    let said = refused(&folder, &["run", "--config", "/nosuch/sluice.toml"], 1);
    one_sentence(&said, &["/nosuch/sluice.toml", "cannot be read"]);
}

#[test]
fn an_ordinary_user_is_told_what_is_missing() {
    if !is_root() {
        tests::skip("an_ordinary_user_is_told_what_is_missing", "only root can become somebody else");
        return;
    }
    let folder = Folder::new();
    // where this build lies others may not be able to go
    let binary = folder.0.join("sluice");
    std::fs::copy(program("sluice"), &binary).expect("the binary is copied");
    run("chown", ["-R", NOBODY, &folder.0.to_string_lossy()]).expect("the folder is given away");
    let as_nobody = |setup: &Setup| {
        let config = folder.write("nobody.toml", &setup.text());
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]).arg(&binary);
        command.args(["run", "--config"]).arg(config);
        let (code, output) = outcome(command, &folder);
        assert_eq!(code, Some(1), "{output}");
        message(&output)
    };
    let mut setup = Setup::new(&folder);
    for (core, capability) in
        [("net_af_packet0,iface=lo", "CAP_NET_RAW"), ("net_tap0,iface=slurefused", "CAP_NET_ADMIN")]
    {
        core.clone_into(&mut setup.core);
        one_sentence(&as_nobody(&setup), &[capability, "run as root, or give the binary that capability"]);
    }
    let setup = Setup { store: "/var/lib/sluice-nobody/own.db".to_owned(), ..Setup::new(&folder) };
    one_sentence(&as_nobody(&setup), &["/var/lib/sluice-nobody/own.db: cannot be written", "store.path"]);
}
