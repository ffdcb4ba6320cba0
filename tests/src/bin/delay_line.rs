// SPDX-License-Identifier: Apache-2.0
//! The test rig's delay line: forwards every frame between two ports after a fixed time, in order.
//!
//! The kernels this runs on may have neither netem nor VLAN devices, so it also pushes the VLAN tags of chosen hosts
//! on frames that leave port B and pops them from frames that come in there. It shares its CPU with the programs under
//! test: it sleeps until the next frame is due, at most `POLL`. Invariant: in each direction frames received = sent +
//! dropped for want of room + held at the end; all are printed, with the ports' own counters, as JSON at SIGTERM.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use dpdk::{
    Burst, Eal, EalOptions, Lcore, Mbuf, Memory, Mempool, PoolOptions, Port, PortOptions, PortStats, Queues,
    RxQueue, TxQueue,
};
use mem::Tsc;
use serde_json::{Value, json};

/// Longest sleep, so the most by which an arrival is noticed late.
const POLL: Duration = Duration::from_micros(50);
/// Ends of a VLAN tag in the Ethernet header: it goes behind both addresses.
const TAG_AT: usize = 12;

/// Forwards every frame between two ports after a fixed time.
#[derive(Parser, Debug)]
struct Options {
    /// DPDK device of port A, as in "net_af_packet0,iface=m0".
    #[arg(long)]
    a: String,
    /// DPDK device of port B.
    #[arg(long)]
    b: String,
    /// Delay in each direction, in microseconds.
    #[arg(long)]
    delay_us: u64,
    /// CPU to run on.
    #[arg(long, default_value_t = 0)]
    cpu: u32,
    /// EAL's file prefix: one for each delay line.
    #[arg(long)]
    file_prefix: String,
    /// Frames it can hold in each direction.
    #[arg(long, default_value_t = 8192)]
    hold: u32,
    /// Tags of a host, pushed on what it sends or gets where that leaves port B, popped where it comes in at port B:
    /// ADDRESS=TPID:VID[,TPID:VID]..., outermost first. May be given more than once.
    #[arg(long)]
    tag: Vec<Tagged>,
}

/// A host and the tags of its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tagged {
    host: IpAddr,
    /// (TPID, VID), outermost first.
    tags: Vec<(u16, u16)>,
}

impl std::str::FromStr for Tagged {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (host, tags) = text.split_once('=').context("ADDRESS=TPID:VID is expected")?;
        let host = host
            .parse()
            .with_context(|| format!("\"{host}\" is no IP address"))?;
        let tags = tags.split(',').map(tag).collect::<Result<Vec<_>>>()?;
        if tags.len() > 3 {
            bail!("at most three tags");
        }
        Ok(Self { host, tags })
    }
}

fn tag(text: &str) -> Result<(u16, u16)> {
    let (tpid, vid) = text
        .split_once(':')
        .with_context(|| format!("\"{text}\": TPID:VID is expected"))?;
    let tpid = u16::from_str_radix(tpid.trim_start_matches("0x"), 16);
    let tpid = tpid.with_context(|| format!("\"{text}\": the TPID is a hexadecimal number"))?;
    let vid: u16 = vid
        .parse()
        .with_context(|| format!("\"{text}\": the VID is a number"))?;
    if vid > 4095 {
        bail!("\"{text}\": a VID is at most 4095");
    }
    Ok((tpid, vid))
}

/// Where an Ethernet payload begins, its type, and the VIDs before it.
fn payload(frame: &[u8]) -> Option<(usize, u16, Vec<u16>)> {
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let mut at = TAG_AT;
    let mut vids = Vec::new();
    loop {
        match word(at)? {
            0x8100 | 0x88a8 | 0x9100 if vids.len() < 4 => {
                vids.push(word(at + 2)? & 0xfff);
                at += 4;
            }
            kind => return Some((at + 2, kind, vids)),
        }
    }
}

/// The two addresses an IP or ARP frame is about.
fn addresses(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let (start, kind, _) = payload(frame)?;
    let v4 = |at: usize| {
        let bytes: [u8; 4] = frame.get(start + at..start + at + 4)?.try_into().ok()?;
        Some(IpAddr::V4(Ipv4Addr::from(bytes)))
    };
    let v6 = |at: usize| {
        let bytes: [u8; 16] = frame.get(start + at..start + at + 16)?.try_into().ok()?;
        Some(IpAddr::V6(Ipv6Addr::from(bytes)))
    };
    match kind {
        0x0800 => Some((v4(12)?, v4(16)?)),
        0x0806 => Some((v4(14)?, v4(24)?)),
        0x86dd => Some((v6(8)?, v6(24)?)),
        _ => None,
    }
}

impl Tagged {
    fn is_of(&self, frame: &[u8]) -> bool {
        addresses(frame).is_some_and(|(from, to)| from == self.host || to == self.host)
    }

    /// Pushes the tags; false if the frame has no room for them.
    fn push(&self, packet: &mut Mbuf) -> bool {
        let bytes = 4 * self.tags.len();
        let Some(room) = u16::try_from(bytes).ok().and_then(|bytes| packet.prepend(bytes)) else {
            return false;
        };
        room.copy_within(bytes..bytes + TAG_AT, 0);
        for (place, (tpid, vid)) in room[TAG_AT..TAG_AT + bytes].chunks_exact_mut(4).zip(&self.tags) {
            place[..2].copy_from_slice(&tpid.to_be_bytes());
            place[2..].copy_from_slice(&vid.to_be_bytes());
        }
        true
    }

    /// Pops the tags if the frame begins with exactly these VIDs. TPIDs are not compared: af_packet tells all alike.
    fn pop(&self, packet: &mut Mbuf) -> bool {
        let Some((_, _, vids)) = payload(packet.data()) else {
            return false;
        };
        if !vids.iter().eq(self.tags.iter().map(|(_, vid)| vid)) {
            return false;
        }
        let bytes = 4 * self.tags.len();
        packet.data_mut().copy_within(..TAG_AT, bytes);
        u16::try_from(bytes).is_ok_and(|bytes| packet.adj(bytes))
    }
}

/// How late frames left, in bins of a microsecond; the last bin holds all that is later.
struct Lateness {
    bins: Vec<u64>,
    max_ns: u64,
    sum_ns: u64,
}

impl Lateness {
    fn new() -> Self {
        Self {
            bins: vec![0; 10_001],
            max_ns: 0,
            sum_ns: 0,
        }
    }

    fn record(&mut self, ns: u64) {
        let last = self.bins.len() - 1;
        let bin = usize::try_from(ns / 1_000).unwrap_or(last).min(last);
        self.bins[bin] += 1;
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += ns;
    }

    fn json(&self) -> Value {
        let count: u64 = self.bins.iter().sum();
        let mut left = count - count / 100;
        let p99 = self.bins.iter().position(|n| {
            left = left.saturating_sub(*n);
            left == 0
        });
        let mean_us = self.sum_ns.checked_div(count).unwrap_or(0) / 1_000;
        json!({ "mean_us": mean_us, "p99_us": p99, "max_us": self.max_ns / 1_000 })
    }
}

/// One direction: a queue of frames with the time each is due.
struct Line {
    rx: RxQueue,
    tx: TxQueue,
    delay_ns: u64,
    limit: usize,
    held: VecDeque<(u64, Mbuf)>,
    /// Frames that are due and that the port has not taken yet, oldest first; they stand before `held`.
    leaving: Burst<32>,
    polled: u64,
    received: u64,
    sent: u64,
    dropped_full: u64,
    dropped_untaggable: u64,
    tx_refusals: u64,
    retagged: u64,
    late: Lateness,
}

impl Line {
    fn new(rx: RxQueue, tx: TxQueue, options: &Options, now: u64) -> Self {
        let limit = options.hold as usize;
        Self {
            rx,
            tx,
            delay_ns: options.delay_us * 1_000,
            limit,
            held: VecDeque::with_capacity(limit),
            leaving: Burst::new(),
            polled: now,
            received: 0,
            sent: 0,
            dropped_full: 0,
            dropped_untaggable: 0,
            tx_refusals: 0,
            retagged: 0,
            late: Lateness::new(),
        }
    }

    /// Takes what has arrived. When exactly within the time since the last look is unknown: its middle is assumed, so
    /// that the delay is right on average.
    fn receive(&mut self, burst: &mut Burst<32>, now: u64) {
        let due = self.polled + (now - self.polled) / 2 + self.delay_ns;
        loop {
            let got = self.rx.burst(burst);
            for packet in burst.drain() {
                self.received += 1;
                if self.held.len() < self.limit {
                    self.held.push_back((due, packet));
                } else {
                    self.dropped_full += 1;
                }
            }
            if got < 32 || self.held.len() >= self.limit {
                break;
            }
        }
        self.polled = now;
    }

    /// Sends what is due.
    fn send(&mut self, now: u64, retag: impl Fn(&mut Mbuf) -> Retag) {
        loop {
            while let Some((due, mut packet)) = self.next_due(now) {
                match retag(&mut packet) {
                    Retag::None => {}
                    Retag::Done => self.retagged += 1,
                    Retag::NoRoom => {
                        self.dropped_untaggable += 1;
                        continue;
                    }
                }
                self.late.record(now - due);
                // There is room: `next_due` gives nothing otherwise.
                if self.leaving.push(packet).is_err() {
                    break;
                }
            }
            let waiting = self.leaving.len();
            if waiting == 0 {
                return;
            }
            let sent = self.tx.burst(&mut self.leaving);
            self.sent += sent as u64;
            if sent < waiting {
                self.tx_refusals += 1;
                return;
            }
        }
    }

    fn next_due(&mut self, now: u64) -> Option<(u64, Mbuf)> {
        if self.leaving.is_full() || self.held.front()?.0 > now {
            return None;
        }
        self.held.pop_front()
    }

    /// When there is something to send.
    fn due(&self) -> Option<u64> {
        if self.leaving.is_empty() {
            self.held.front().map(|(due, _)| *due)
        } else {
            Some(0)
        }
    }

    fn json(&self) -> Value {
        json!({
            "received": self.received, "sent": self.sent, "dropped_full": self.dropped_full,
            "dropped_untaggable": self.dropped_untaggable, "held": self.held.len() + self.leaving.len(),
            "tx_refusals": self.tx_refusals, "retagged": self.retagged, "late": self.late.json(),
        })
    }
}

enum Retag {
    None,
    Done,
    NoRoom,
}

/// What to do to a frame that leaves port B.
fn push_tags(hosts: &[Tagged], packet: &mut Mbuf) -> Retag {
    match hosts.iter().find(|host| host.is_of(packet.data())) {
        None => Retag::None,
        Some(host) if host.push(packet) => Retag::Done,
        Some(_) => Retag::NoRoom,
    }
}

/// What to do to a frame that came in at port B.
fn pop_tags(hosts: &[Tagged], packet: &mut Mbuf) -> Retag {
    if hosts.iter().any(|host| host.pop(packet)) {
        Retag::Done
    } else {
        Retag::None
    }
}

/// Forwards until told to stop.
fn forward(mut lines: [Line; 2], hosts: &[Tagged], clock: Tsc, stop: &AtomicBool) -> [Line; 2] {
    sleep_exactly();
    let mut burst = Burst::<32>::new();
    while !stop.load(Ordering::Relaxed) {
        for line in &mut lines {
            line.receive(&mut burst, clock.now());
        }
        let [a_to_b, b_to_a] = &mut lines;
        a_to_b.send(clock.now(), |packet| push_tags(hosts, packet));
        b_to_a.send(clock.now(), |packet| pop_tags(hosts, packet));
        let due = lines.iter().filter_map(Line::due).min();
        let wait = due.map_or(POLL, |due| Duration::from_nanos(due.saturating_sub(clock.now())));
        #[expect(
            clippy::disallowed_methods,
            reason = "it shares its CPU with the programs under test"
        )]
        std::thread::sleep(wait.min(POLL));
    }
    lines
}

/// Asks the kernel not to round this thread's sleeps up (by 50 us, unless told otherwise); what it does not grant only
/// costs accuracy.
fn sleep_exactly() {
    let thread = std::fs::read_link("/proc/thread-self").ok();
    let number = thread
        .as_deref()
        .and_then(|path| path.file_name())
        .and_then(|name| name.to_str());
    if let Some(number) = number {
        let _ = std::fs::write(format!("/proc/{number}/timerslack_ns"), "1");
    }
}

fn port(eal: &Eal, device: &str, pool: &Mempool) -> Result<(Port, Queues)> {
    let mut port = Port::open(eal, device)?;
    port.configure(&PortOptions::default(), std::slice::from_ref(pool))?;
    let queues = port.start()?;
    Ok((port, queues))
}

fn stats(s: PortStats) -> Value {
    json!({
        "ipackets": s.ipackets, "opackets": s.opackets, "imissed": s.imissed, "ierrors": s.ierrors,
        "oerrors": s.oerrors, "rx_nombuf": s.rx_nombuf,
    })
}

fn start(options: &Options) -> Result<(Eal, Mempool)> {
    let pool = PoolOptions {
        name: "delay".to_owned(),
        // Both lines full, and what the ports and bursts hold meanwhile.
        buffers: 2 * options.hold + 4_096,
        cache: 0,
        data_room: 2_048 + 128,
        socket: None,
    };
    let mb = u32::try_from(pool.memory_bytes().div_ceil(1 << 20))
        .unwrap_or(u32::MAX)
        .saturating_add(64);
    let lcore = Lcore {
        id: 0,
        cpu: options.cpu,
    };
    let mut eal = EalOptions::new(&options.file_prefix, vec![lcore], Memory::NoHuge { mb });
    for device in [&options.a, &options.b] {
        let vdev = device.starts_with("net_");
        if vdev { &mut eal.vdevs } else { &mut eal.allow }.push(device.clone());
    }
    let eal = Eal::init(&eal)?;
    let pool = Mempool::create(&eal, &pool)?;
    Ok((eal, pool))
}

/// Waits for SIGTERM or SIGINT.
fn wait_for_the_end() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        say("forwarding")?;
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        Ok(())
    })
}

fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

fn main() -> Result<()> {
    let options = Options::parse();
    let (eal, pool) = start(&options)?;
    let (port_a, mut a) = port(&eal, &options.a, &pool)?;
    let (port_b, mut b) = port(&eal, &options.b, &pool)?;
    let clock = Tsc::new(eal.tsc_hz());
    let (Some(rx_a), Some(tx_a), Some(rx_b), Some(tx_b)) = (a.rx.pop(), a.tx.pop(), b.rx.pop(), b.tx.pop())
    else {
        bail!("a port without queues");
    };
    let lines = [
        Line::new(rx_a, tx_b, &options, clock.now()),
        Line::new(rx_b, tx_a, &options, clock.now()),
    ];
    let stop = Arc::new(AtomicBool::new(false));
    let handle = eal.launch(0, {
        let stop = Arc::clone(&stop);
        move || forward(lines, &options.tag, clock, &stop)
    })?;
    let waited = wait_for_the_end();
    stop.store(true, Ordering::Relaxed);
    let [a_to_b, b_to_a] = handle.join()?;
    let report = json!({
        "a_to_b": a_to_b.json(), "b_to_a": b_to_a.json(),
        "ports": { "a": stats(port_a.stats()), "b": stats(port_b.stats()) },
    });
    say(&report.to_string())?;
    waited
}
