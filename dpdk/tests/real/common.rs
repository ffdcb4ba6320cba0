// SPDX-License-Identifier: Apache-2.0
//! One EAL for a whole test binary: it can be started once in a process.
//!
//! Plain pages, so that the tests run anywhere. Two lcores, on two CPUs where there are two.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dpdk::{Burst, Eal, EalOptions, Lcore, Mbuf, Memory, Mempool, PoolOptions};

static EAL: OnceLock<Eal> = OnceLock::new();
static NEXT: AtomicU32 = AtomicU32::new(0);
static LCORES: Mutex<()> = Mutex::new(());

/// Devices every test binary has: two ports that deliver nothing and take all, one that delivers 64-byte frames.
pub(crate) const VDEVS: [&str; 3] = ["net_null0,size=64", "net_null1,no-rx=1", "net_null2,size=64"];

/// The EAL of this process.
pub(crate) fn eal() -> &'static Eal {
    EAL.get_or_init(|| Eal::init(&options()).expect("EAL starts without huge pages, as root or not"))
}

/// Options that work on any machine.
pub(crate) fn options() -> EalOptions {
    let cpus = cpus();
    let lcores = (0..2).map(|id| Lcore { id, cpu: cpus[id as usize % cpus.len()] }).collect();
    let prefix = format!("sluice-test-{}", std::process::id());
    let mut options = EalOptions::new(&prefix, lcores, Memory::NoHuge { mb: 256 });
    options.vdevs = VDEVS.map(str::to_owned).to_vec();
    options
}

/// CPUs this process may use.
pub(crate) fn cpus() -> Vec<u32> {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let list =
        status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).expect("Linux").trim().to_owned();
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let range = from.parse::<u32>().expect("a CPU")..=to.parse::<u32>().expect("a CPU");
        cpus.extend(range);
    }
    cpus
}

/// A name nobody has used.
pub(crate) fn name(stem: &str) -> String {
    format!("{stem}{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A pool of its own.
pub(crate) fn pool(buffers: u32) -> Mempool {
    let options = PoolOptions { name: name("pool"), buffers, cache: 0, data_room: 2048 + 128, socket: None };
    Mempool::create(eal(), &options).expect("memory for a small pool")
}

/// A packet that carries `number`.
pub(crate) fn numbered(pool: &Mempool, number: u32) -> Mbuf {
    let mut packet = pool.alloc().expect("the pool is not dry");
    assert!(packet.extend(&number.to_be_bytes()));
    packet
}

/// The number a packet carries.
pub(crate) fn number(packet: &Mbuf) -> u32 {
    u32::from_be_bytes(packet.data()[..4].try_into().expect("four bytes"))
}

/// A burst of numbered packets.
pub(crate) fn burst(pool: &Mempool, numbers: impl IntoIterator<Item = u32>) -> Burst {
    let mut burst = Burst::new();
    for n in numbers {
        burst.push(numbered(pool, n)).expect("at most 32");
    }
    burst
}

/// Tests that launch on lcores take turns.
pub(crate) fn lcores() -> MutexGuard<'static, ()> {
    LCORES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names a test that could not run, and why.
pub(crate) fn skip(test: &str, why: &str) {
    use std::io::Write;
    println!("skipped: {test}: {why}");
    if let Some(path) = std::env::var_os("SLUICE_SKIP_LOG") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        let _ = file.and_then(|mut f| writeln!(f, "{test}: {why}"));
    }
}
