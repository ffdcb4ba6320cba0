// SPDX-License-Identifier: Apache-2.0
//! What can go wrong, each as one sentence that says what to do.

/// EAL did not start, or an lcore could not be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences say what the fields are")]
pub enum EalError {
    /// Nothing to run on.
    #[error("no lcore is configured: name at least one")]
    NoLcore,
    /// Two entries for one lcore.
    #[error("lcore {lcore} is given twice: each lcore may appear once; use another number, as in \"{}@{cpu}\"", lcore + 1)]
    LcoreTwice { lcore: u32, cpu: u32 },
    /// DPDK has a fixed number of lcores.
    #[error(
        "lcore {lcore} does not exist: DPDK knows lcores 0 to {last}; use \"N@{cpu}\" to put a lower number on CPU {cpu}"
    )]
    LcoreNumber { lcore: u32, cpu: u32, last: u32 },
    /// The main lcore is not in the list.
    #[error("main lcore {lcore} is not among the configured lcores: add it to the list")]
    MainNotListed { lcore: u32 },
    /// No such CPU.
    #[error(
        "lcore {lcore} does not exist: this machine has no CPU {cpu} online, only {online}; choose one of these"
    )]
    NoSuchCpu { lcore: u32, cpu: u32, online: String },
    /// A cpuset forbids it.
    #[error(
        "lcore {lcore} cannot run on CPU {cpu}: this process may not use that CPU (cpuset of the service or container); allow it or choose another"
    )]
    CpuForbidden { lcore: u32, cpu: u32 },
    /// None reserved.
    #[error(
        "no huge pages are reserved: run `sysctl vm.nr_hugepages={pages}` as root ({need_mb} MB are needed), or run without huge pages (hugepages = \"never\", slower)"
    )]
    NoHugePages { need_mb: u32, pages: u32 },
    /// Fewer than needed.
    #[error(
        "not enough free huge pages: {need_mb} MB are needed, {free_mb} MB are free; reserve more with `sysctl vm.nr_hugepages={pages}` as root, or run without huge pages (hugepages = \"never\", slower)"
    )]
    FewHugePages { need_mb: u32, free_mb: u64, pages: u64 },
    /// Fewer than needed.
    #[error(
        "not enough memory: {need_mb} MB are needed, {available_mb} MB are available; configure fewer buffers or add memory"
    )]
    NotEnoughMemory { need_mb: u32, available_mb: u64 },
    /// A typing mistake, most likely.
    #[error("device \"{device}\": DPDK has no driver of that name; did you mean \"{suggestion}\"?")]
    UnknownVdev { device: String, suggestion: String },
    /// The kernel's name in place of a vdev's.
    #[error(
        "device \"{device}\" is a kernel interface: write device = \"net_af_packet0,iface={device}\", with a number of its own for each port"
    )]
    KernelInterface { device: String },
    /// Two ports on one device.
    #[error(
        "device \"{device}\" is given twice: give each vdev a number of its own, as in net_null0 and net_null1"
    )]
    DeviceTwice { device: String },
    /// `iface=` names nothing.
    #[error(
        "device \"{device}\": there is no network interface \"{interface}\" in this network namespace; create it or correct iface="
    )]
    NoInterface { device: String, interface: String },
    /// `iface=` is missing.
    #[error("device \"{device}\" needs the network interface it opens: write \"{device},iface=NAME\"")]
    InterfaceMissing { device: String },
    /// Missing capability.
    #[error(
        "device \"{device}\" needs {capability}: run as root, or give the binary that capability (setcap, or AmbientCapabilities= in the unit)"
    )]
    NotPermitted { device: String, capability: &'static str },
    /// No such PCI device.
    #[error(
        "PCI device {address} does not exist on this machine: `dpdk-devbind.py --status` lists those that do"
    )]
    NoPciDevice { address: String },
    /// Bound to the kernel's own driver.
    #[error(
        "PCI device {address} belongs to the kernel driver \"{driver}\": bind it to vfio-pci first (`dpdk-devbind.py --bind=vfio-pci {address}`), which takes it from the kernel"
    )]
    PciDriver { address: String, driver: String },
    /// Bound to no driver.
    #[error(
        "PCI device {address} is bound to no driver: bind it to vfio-pci first (`dpdk-devbind.py --bind=vfio-pci {address}`)"
    )]
    PciUnbound { address: String },
    /// Somebody else runs.
    #[error("another instance with file prefix \"{prefix}\" is running{}: stop it, or give this one another prefix (eal_args = [\"--file-prefix=NAME\"])", holder(*pid))]
    SecondInstance { prefix: String, pid: Option<u32> },
    /// The prefix would leave its folder.
    #[error("file prefix \"{prefix}\" cannot be a file name: use letters, digits, '-' and '_'")]
    Prefix { prefix: String },
    /// The lock file cannot be made.
    #[error(
        "the lock file {path} cannot be created: {source}; run as root or create a folder this user may write"
    )]
    Lock { path: String, source: std::io::Error },
    /// An argument EAL does not take.
    #[error("EAL does not accept the arguments given to it ({arguments}): {reason}; correct eal_args")]
    Arguments { arguments: String, reason: String },
    /// Two arguments that exclude each other.
    #[error("eal_args: {argument} contradicts what Sluice passes itself; remove it and {instead}")]
    Contradiction { argument: String, instead: &'static str },
    /// EAL can be started once in a process.
    #[error("EAL was already started in this process and cannot be started again: start a new process")]
    Again,
    /// A thread could not be started.
    #[error(
        "the thread of EAL's main lcore cannot be started: {0}; raise the limit of processes (ulimit -u)"
    )]
    Thread(std::io::Error),
    /// Whatever is left.
    #[error("EAL did not start: {reason}")]
    Refused { reason: String },
    /// Not one of ours.
    #[error("lcore {lcore} is not one of those EAL was started with: add it to the configuration")]
    NoSuchLcore { lcore: u32 },
    /// It runs something.
    #[error("lcore {lcore} is busy with what was launched on it before: wait for that to end")]
    LcoreBusy { lcore: u32 },
    /// All lcore numbers are taken.
    #[error(
        "this thread cannot be registered with EAL: all {most} lcore numbers are in use or it has one already"
    )]
    Register { most: u32 },
}

fn holder(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

/// A pool or ring could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences say what the fields are")]
pub enum PoolError {
    /// Empty, too long or with a 0 in it.
    #[error("\"{name}\" cannot be the name of a pool or ring: use 1 to 25 plain characters")]
    Name { name: String },
    /// No buffers.
    #[error("pool \"{name}\" would have no buffers")]
    Empty { name: String },
    /// Too large a cache.
    #[error(
        "pool \"{name}\": a cache of {cache} buffers a lcore is too large, at most {most} are possible; use more buffers or a smaller cache"
    )]
    Cache { name: String, cache: u32, most: u32 },
    /// No room for data.
    #[error("pool \"{name}\": buffers of {bytes} bytes hold no data after the headroom of {headroom}")]
    DataRoom { name: String, bytes: u16, headroom: u32 },
    /// The name is taken.
    #[error("a pool or ring named \"{name}\" exists already: names are unique in a process")]
    Exists { name: String },
    /// No memory.
    #[error("not enough memory for pool \"{name}\": {buffers} buffers need about {mb} MB{}; reserve more huge pages or configure fewer buffers", node(*socket))]
    Memory { name: String, buffers: u32, mb: u64, socket: Option<u32> },
    /// Too far from the first pool.
    #[error(
        "pool \"{name}\" has a buffer at {address:#x}, more than 128 GiB from the first pool; keep all pools within 128 GiB (fewer NUMA nodes, or --base-virtaddr)"
    )]
    Window { name: String, address: u64 },
    /// Out of range.
    #[error("ring \"{name}\" cannot hold {capacity} packets: between 1 and 2^30 are possible")]
    RingSize { name: String, capacity: u32 },
    /// Whatever is left.
    #[error("\"{name}\" could not be made: {reason}")]
    Refused { name: String, reason: String },
}

fn node(socket: Option<u32>) -> String {
    socket.map(|s| format!(" on NUMA node {s}")).unwrap_or_default()
}

/// A port could not be opened, configured, started or stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences say what the fields are")]
pub enum PortError {
    /// EAL has no port of that name.
    #[error("port \"{device}\" does not exist: {reason}")]
    NotFound { device: String, reason: String },
    /// The driver's group number is taken.
    #[error(
        "port \"{device}\" cannot be opened: another process in this network namespace uses the packet fanout group that the af_packet driver derives from the process number; start again, which takes another number"
    )]
    FanoutTaken { device: String },
    /// Fewer queues than asked for.
    #[error(
        "port \"{device}\" ({driver}) has at most {has} {way} queue(s), {wants} are needed: use fewer {way} lcores{}",
        hint(way, driver)
    )]
    TooFewQueues { device: String, driver: String, way: &'static str, wants: u16, has: u16 },
    /// No queue at all.
    #[error("port \"{device}\" needs at least one rx and one tx queue")]
    NoQueues { device: String },
    /// One pool a queue.
    #[error(
        "port \"{device}\" has {queues} rx queues and {pools} pools: give one pool for each rx queue, or one for all"
    )]
    Pools { device: String, queues: u16, pools: usize },
    /// Wrong order.
    #[error("port \"{device}\" cannot be {action} while it is {state}")]
    State { device: String, action: &'static str, state: &'static str },
    /// Queue handles are still out.
    #[error(
        "port \"{device}\" cannot be stopped while {queues} of its queues are in use: drop the queue handles first"
    )]
    QueuesInUse { device: String, queues: usize },
    /// A step the driver refused.
    #[error("port \"{device}\": the driver {driver} refused to {step}: {reason}")]
    Refused { device: String, driver: String, step: &'static str, reason: String },
}

/// Drivers whose number of queues the operator can raise.
fn hint(way: &str, driver: &str) -> String {
    match driver {
        "net_af_packet" => ", or give the device more (qpairs=N)".to_owned(),
        "net_af_xdp" => ", or give the device more (queue_count=N)".to_owned(),
        "net_virtio_user" | "net_vhost" => ", or give the device more (queues=N)".to_owned(),
        "net_pcap" => format!(", or name {way}_pcap or {way}_iface once for each queue"),
        _ => String::new(),
    }
}
