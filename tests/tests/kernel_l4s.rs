// SPDX-License-Identifier: Apache-2.0
//! The kernel's own TCP as an L4S sender: a scalable congestion control of ours (`tests/bpf`) as BPF struct_ops,
//! AccECN, ECT(1), beside kernel CUBIC down to one customer.
//!
//! The congestion control of a namespace when a socket is made decides whether ECN is negotiated, so CUBIC starts
//! before the scalable one becomes that of both namespaces. The kernel sends data as ECT(0); nftables makes it ECT(1).

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tests::machine::{has, kernel_ccs, wait_for};
use tests::rig::{Namespace, run};
use tests::scene::{Scene, Script, Span, precise};
use tests::topology::{CUSTOMERS, SERVER};
use tests::traffic::{Tcp, goodput_bps, iperf_server};
use tests::verdict::{all, conserved, let_flow, undisturbed, within};

const NAME: &str = "a_kernel_tcp_on_ect1_has_a_short_queue_beside_kernel_cubic";
/// What the kernel calls it, and what BPF does.
const CC: &str = "sluicescal";
const STRUCT: &str = "scalable";
const BTF: &str = "/sys/kernel/btf/vmlinux";
/// The customer, its port of each flow, and how long they run.
const ID: &str = "plain";
const CUBIC: u16 = 5201;
const SCALABLE: u16 = 5202;
const SECONDS: u32 = 16;
/// Left out at the beginning, and then measured.
const WARM_UP: f64 = 5.0;
const MEASURED: f64 = 8.0;
/// TCP payload of a full packet of 1,500 bytes, and what that packet costs with `overhead = "ethernet"`.
const PAYLOAD: f64 = 1_448.0;
const COST: f64 = 1_538.0;

/// The congestion control, registered until dropped.
struct Registered;

impl Registered {
    /// Compiles and registers it; a reason where this kernel does not take it.
    fn new(folder: &Path) -> Result<Result<Self, String>> {
        let missing = |what: &str| Ok(Err(format!("there is no {what} here")));
        if let Some(what) = ["bpftool", "nft"].into_iter().find(|program| !has(program)) {
            return missing(what);
        }
        if !Path::new(BTF).exists() {
            return missing(BTF);
        }
        // Debian's package of one version brings no plain name
        let mut compilers =
            std::iter::once("clang".to_owned()).chain((14..=30).rev().map(|n| format!("clang-{n}")));
        let Some(clang) = compilers.find(|clang| has(clang)) else {
            return missing("clang");
        };
        if kernel_ccs().iter().any(|cc| cc == CC) {
            // left by a run that was killed
            return Ok(Ok(Self));
        }
        let object = compile(&clang, folder)?;
        match run("bpftool", ["struct_ops", "register", &object.to_string_lossy()]) {
            Err(why) => {
                Ok(Err(format!("this kernel takes no congestion control as BPF struct_ops: {why:#}")))
            }
            Ok(_) if kernel_ccs().iter().any(|cc| cc == CC) => Ok(Ok(Self)),
            Ok(said) => bail!("{CC} was registered and is not there: {said}"),
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let _ = run("bpftool", ["struct_ops", "unregister", "name", STRUCT]);
    }
}

fn compile(clang: &str, folder: &Path) -> Result<PathBuf> {
    let types = run("bpftool", ["btf", "dump", "file", BTF, "format", "c"])?;
    std::fs::write(folder.join("vmlinux.h"), types)?;
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "-D__TARGET_ARCH_arm64",
        _ => "-D__TARGET_ARCH_x86",
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf/scalable.bpf.c");
    let object = folder.join("scalable.bpf.o");
    let (include, source) = (format!("-I{}", folder.display()), source.to_string_lossy().into_owned());
    let target = object.to_string_lossy().into_owned();
    run(clang, ["-O2", "-g", "-target", "bpf", architecture, &include, "-c", &source, "-o", &target])?;
    Ok(object)
}

/// From now on all ECT(0) of TCP leaves this namespace as ECT(1).
fn as_ect1(namespace: &Namespace, folder: &Path) -> Result<()> {
    let rules = folder.join(format!("{}.nft", namespace.name));
    std::fs::write(
        &rules,
        "table inet sluice {\n  chain out {\n    type filter hook postrouting priority 0; policy accept;\n    \
         meta l4proto tcp ip ecn ect0 counter ip ecn set ect1\n  }\n}\n",
    )?;
    namespace.sh(&format!("nft -f {}", rules.display())).map(drop)
}

/// Waits until a client's connections stand: iperf3's own and that of the data.
fn connected(client: &Namespace, port: u16) -> Result<()> {
    let probe = format!("ss -Htn state established dport = :{port}");
    let stand = wait_for(Duration::from_secs(10), || {
        client.sh(&probe).is_ok_and(|found| found.trim().lines().count() >= 2)
    });
    ensure!(stand, "no connections to port {port}");
    Ok(())
}

/// What the kernel says of the senders of a port.
fn senders(server: &Namespace, port: u16) -> Result<String> {
    server.sh(&format!("ss -Htin state established sport = :{port}"))
}

/// CE marks that the sender has heard of by AccECN.
fn heard(senders: &str) -> u64 {
    let counts = senders.split_whitespace().filter_map(|word| word.strip_prefix("delivered_ce:"));
    counts.filter_map(|count| count.parse::<u64>().ok()).sum()
}

#[expect(clippy::print_stdout, reason = "a test speaks to whoever runs it")]
fn beside_cubic(scene: &Scene) -> Result<Result<(), String>> {
    let (client, server) = (&scene.topology.client, &scene.topology.server);
    let folder = scene.folder.as_path();
    let customer = CUSTOMERS.iter().find(|customer| customer.id == ID).context("the customer")?;
    let tcp = |port, cc| Tcp {
        client,
        from: customer.ipv4,
        to: SERVER,
        port,
        seconds: SECONDS,
        flows: 1,
        cc,
        down: true,
    };
    let _cubic_server = iperf_server(server, CUBIC, folder)?;
    let cubic = tcp(CUBIC, Some("cubic")).start(folder)?;
    connected(client, CUBIC)?;
    for namespace in [client, server] {
        namespace.sysctl("net.ipv4.tcp_congestion_control", CC)?;
        as_ect1(namespace, folder)?;
    }
    let _scalable_server = iperf_server(server, SCALABLE, folder)?;
    let scalable = tcp(SCALABLE, None).start(folder)?;
    connected(client, SCALABLE)?;
    let_flow(WARM_UP);
    let before = scene.shaper.stats(ID)?.down;
    let_flow(MEASURED);
    let after = scene.shaper.stats(ID)?.down;
    let [cubics, scalables] = [senders(server, CUBIC)?, senders(server, SCALABLE)?];
    ensure!(cubics.contains("cubic") && scalables.contains(CC), "senders: {cubics} {scalables}");
    let limit = Duration::from_secs(40);
    let goodputs =
        [goodput_bps(&scalable.finish(limit)?, WARM_UP)?, goodput_bps(&cubic.finish(limit)?, WARM_UP)?];
    conserved(&scene.shaper, &CUSTOMERS.map(|customer| customer.id), false)?;
    let stats = scene.shaper.stats(ID)?;
    let (l4s, classic) =
        (Span::between(&before.l4s, &after.l4s), Span::between(&before.classic, &after.classic));
    println!("L {l4s:?}\nC {classic:?}\ngoodputs {goodputs:?}\nscalable: {scalables}\ncubic: {cubics}");
    ensure!(stats.down.l4s.arrived_ce == 0, "CE came from the server");
    ensure!(l4s.marked > 0 && heard(&scalables) > 0, "{} marks, {} heard of", l4s.marked, heard(&scalables));
    ensure!(stats.down.classic.marked == 0 && stats.up.classic.marked == 0, "Not-ECT was marked: {stats:?}");
    ensure!(heard(&cubics) == 0, "CUBIC negotiated ECN: {cubics}");
    let plan = precise(customer.down_bps) * PAYLOAD / COST;
    let [scalable, cubic] = goodputs.map(|goodput| goodput / plan);
    Ok(all([
        within("L p99, ms", l4s.p99_us / 1e3, 0.0, 2.0),
        within("C p99 less L p99, ms", (classic.p99_us - l4s.p99_us) / 1e3, 0.001, 1e3),
        within("share of the scalable flow", scalable, 0.15, 0.9),
        within("share of CUBIC", cubic, 0.15, 0.9),
        within("both", scalable + cubic, 0.90, 1.02),
    ]))
}

#[test]
fn a_kernel_tcp_on_ect1_has_a_short_queue_beside_kernel_cubic() {
    let folder = std::env::temp_dir().join(format!("sluice-bpf-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder is made");
    // dropped after every socket that uses it
    let registered = Registered::new(&folder).unwrap_or_else(|error| panic!("{error:#}"));
    let _ = std::fs::remove_dir_all(&folder);
    let registered = match registered {
        Ok(registered) => registered,
        Err(why) => {
            tests::skip(NAME, &why);
            return;
        }
    };
    undisturbed(NAME, || {
        let scene = Scene::set(&Script::default())?;
        let verdict =
            beside_cubic(&scene).with_context(|| format!("sluice said: {}", scene.shaper.output()))?;
        Ok((verdict, scene.shaper.gap_us()?))
    });
    drop(registered);
    let gone = wait_for(Duration::from_secs(10), || !kernel_ccs().iter().any(|cc| cc == CC));
    assert!(gone, "{CC} is still registered");
}
