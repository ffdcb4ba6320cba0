// SPDX-License-Identifier: Apache-2.0
//! The test rig's delay line: forwards every frame between two ports after a fixed time, in order.
//!
//! The kernels this runs on may have neither netem nor VLAN devices, so it also pushes the VLAN tags of chosen hosts
//! on frames that leave port B and pops them from frames that come in there. It shares its CPU with the programs under
//! test: it sleeps until the next frame is due, at most 50 us. Invariant: in each direction frames received = sent +
//! dropped for want of room + held at the end; all are printed, with the ports' own counters, as JSON at SIGTERM.
#![forbid(unsafe_code)]

mod line;
mod tags;

use std::io::Write as _;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use clap::Parser;
use dpdk::{
    Eal, EalOptions, Lcore, Memory, Mempool, PoolOptions, Port, PortError, PortOptions, PortStats, Queues,
};
use mem::Tsc;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::line::{Line, forward};
use crate::tags::Tagged;

/// Ring of an af_packet port unless its arguments say otherwise: the driver's own of 512 frames overflows when the CPU
/// is taken away for a few milliseconds.
const AF_PACKET_RING: &str = "framecnt=4096,framesz=2048,blocksz=65536";

/// How a child ends whose process number is unlucky.
const UNLUCKY: u8 = 75;

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
    /// Forward in this process, which then ends when its input does: what the parent passes to its child.
    #[arg(long, hide = true)]
    child: bool,
    /// Tags of a host, pushed on what it sends or gets where that leaves port B, popped where it comes in at port B:
    /// ADDRESS=TPID:VID[,TPID:VID]..., outermost first. May be given more than once.
    #[arg(long)]
    tag: Vec<Tagged>,
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

/// A device's arguments, with a ring for an af_packet port that has none.
fn with_ring(device: &str) -> String {
    if device.starts_with("net_af_packet") && !device.contains("framecnt=") {
        return format!("{device},{AF_PACKET_RING}");
    }
    device.to_owned()
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
    let mb = u32::try_from(pool.memory_bytes().div_ceil(1 << 20)).unwrap_or(u32::MAX).saturating_add(64);
    let lcore = Lcore { id: 0, cpu: options.cpu };
    let mut eal = EalOptions::new(&options.file_prefix, vec![lcore], Memory::NoHuge { mb });
    for device in [&options.a, &options.b] {
        let vdev = device.starts_with("net_");
        if vdev { &mut eal.vdevs } else { &mut eal.allow }.push(with_ring(device));
    }
    let eal = Eal::init(&eal)?;
    let pool = Mempool::create(&eal, &pool)?;
    Ok((eal, pool))
}

/// Runs the line in a child, and again in another while the number of the child is unlucky: from it the af_packet
/// driver derives the number of a group that is the namespace's only once. SIGTERM and SIGINT end the child's input,
/// as does the end of this process however it comes.
fn supervise() -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        loop {
            let mut command = Command::new(std::env::current_exe()?);
            // A group of its own: Ctrl-C at a terminal must not reach it twice.
            command.args(std::env::args_os().skip(1)).arg("--child").stdin(Stdio::piped()).process_group(0);
            let mut child = command.spawn()?;
            let mut input = child.stdin.take();
            let status = loop {
                tokio::select! {
                    status = child.wait() => break status?,
                    _ = term.recv() => drop(input.take()),
                    _ = int.recv() => drop(input.take()),
                }
            };
            match status.code().and_then(|code| u8::try_from(code).ok()) {
                Some(UNLUCKY) => {}
                code => return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from)),
            }
        }
    })
}

fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = if options.child { run(options).map(|()| ExitCode::SUCCESS) } else { supervise() };
    done.unwrap_or_else(|error| {
        if matches!(error.downcast_ref(), Some(PortError::FanoutTaken { .. })) {
            return ExitCode::from(UNLUCKY);
        }
        let _ = writeln!(std::io::stderr(), "delay-line: {error:#}");
        ExitCode::FAILURE
    })
}

/// Forwards until its input ends.
fn run(options: Options) -> Result<()> {
    let (eal, pool) = start(&options)?;
    let (port_a, mut a) = port(&eal, &options.a, &pool)?;
    let (port_b, mut b) = port(&eal, &options.b, &pool)?;
    let clock = Tsc::new(eal.tsc_hz());
    let (Some(rx_a), Some(tx_a), Some(rx_b), Some(tx_b)) = (a.rx.pop(), a.tx.pop(), b.rx.pop(), b.tx.pop())
    else {
        bail!("a port without queues");
    };
    let (delay_ns, limit) = (options.delay_us * 1_000, options.hold as usize);
    let line = |queues| Line::new(queues, delay_ns, limit, clock.now());
    let lines = [line((rx_a, tx_b)), line((rx_b, tx_a))];
    let stop = Arc::new(AtomicBool::new(false));
    let handle = eal.launch(0, {
        let stop = Arc::clone(&stop);
        move || forward(lines, &options.tag, clock, &stop)
    })?;
    say("forwarding")?;
    let waited = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    stop.store(true, Ordering::Relaxed);
    let [a_to_b, b_to_a] = handle.join()?;
    let report = json!({
        "a_to_b": a_to_b.json(), "b_to_a": b_to_a.json(),
        "ports": { "a": stats(port_a.stats()), "b": stats(port_b.stats()) },
    });
    say(&report.to_string())?;
    waited?;
    Ok(())
}

#[cfg(test)]
mod tests;
