// SPDX-License-Identifier: Apache-2.0
//! What a box between two ports adds: sends a stamped UDP frame on one port every so often and times its arrival on
//! the other.
//!
//! One lcore does both, so there is one clock (the TSC) and no wake-up in the figure: the port is polled between
//! sends. What the probe's own ports and kernel add is in the figure too; measure it without a box and subtract.
//! Invariant: a frame counts once, in the figure or as lost; what comes from elsewhere is ignored.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use dpdk::{
    Burst, Eal, EalOptions, Lcore, Mbuf, Memory, Mempool, PoolOptions, Port, PortOptions, RxQueue, TxQueue,
};
use mem::Tsc;
use serde_json::json;

/// Where the stamp begins: Ethernet 14, IPv4 20, UDP 8.
const STAMP_AT: usize = 42;
/// What marks a frame as ours.
const MAGIC: u64 = 0x736c_7569_6365_2e74;
/// Frames of the probe, without FCS: headers, mark, number.
const BYTES: u16 = 60;
/// How long the last frame may take.
const PATIENCE_NS: u64 = 200_000_000;

/// Times frames from one port to another.
#[derive(Parser, Debug)]
struct Options {
    /// DPDK device that sends, as in "net_af_packet0,iface=a0".
    #[arg(long)]
    from: String,
    /// DPDK device that receives.
    #[arg(long)]
    to: String,
    /// Destination of the frames.
    #[arg(long, default_value_t = Ipv4Addr::new(100, 64, 0, 10))]
    destination: Ipv4Addr,
    /// Frames.
    #[arg(long, default_value_t = 3000)]
    count: u32,
    /// Time between two, in microseconds.
    #[arg(long, default_value_t = 1000)]
    interval_us: u64,
    /// CPU to run on.
    #[arg(long, default_value_t = 0)]
    cpu: u32,
    /// EAL's file prefix.
    #[arg(long)]
    file_prefix: String,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let lcore = Lcore { id: 0, cpu: options.cpu };
    let mut eal_options = EalOptions::new(&options.file_prefix, vec![lcore], Memory::NoHuge { mb: 64 });
    eal_options.vdevs = vec![options.from.clone(), options.to.clone()];
    let eal = Eal::init(&eal_options)?;
    let pool = PoolOptions {
        name: "probe".to_owned(),
        buffers: 2047,
        cache: 64,
        data_room: 2048 + 128,
        socket: None,
    };
    let pool = Mempool::create(&eal, &pool)?;
    let (mut from, mut to) = (Port::open(&eal, &options.from)?, Port::open(&eal, &options.to)?);
    let (tx, _rx_unused) = start(&mut from, &pool)?;
    let (_tx_unused, rx) = start(&mut to, &pool)?;
    let frame = frame(options.destination);
    let clock = Tsc::new(eal.tsc_hz());
    let (count, interval) = (options.count, options.interval_us * 1_000);
    let probe = Probe { clock, pool, tx, rx, frame, sent_at: vec![0; count as usize], took: Vec::new() };
    let took = eal.launch(0, move || probe.run(interval))?.join()??;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", report(count, took)).context("the figures cannot be written")
}

fn start(port: &mut Port, pool: &Mempool) -> Result<(TxQueue, RxQueue)> {
    port.configure(&PortOptions::default(), std::slice::from_ref(pool))?;
    let mut queues = port.start()?;
    let (Some(tx), Some(rx)) = (queues.tx.pop(), queues.rx.pop()) else {
        bail!("{} has no queue", port.device());
    };
    Ok((tx, rx))
}

/// A frame without a number.
fn frame(destination: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x08, 0x00];
    let ip_bytes = BYTES - 14;
    let mut ip = vec![0x45, 0];
    ip.extend(ip_bytes.to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 198, 18, 0, 1]);
    ip.extend(destination.octets());
    let sum: u32 = ip.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(0);
    ip.splice(10..12, checksum.to_be_bytes());
    frame.extend(ip);
    frame.extend([0x12, 0x34, 0x56, 0x78]);
    frame.extend((ip_bytes - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(MAGIC.to_be_bytes());
    frame.resize(usize::from(BYTES), 0);
    frame
}

/// The number of a frame of ours.
fn number(frame: &[u8]) -> Option<usize> {
    let mark: [u8; 8] = frame.get(STAMP_AT..STAMP_AT + 8)?.try_into().ok()?;
    let number: [u8; 4] = frame.get(STAMP_AT + 8..STAMP_AT + 12)?.try_into().ok()?;
    (u64::from_be_bytes(mark) == MAGIC).then_some(u32::from_be_bytes(number) as usize)
}

struct Probe {
    clock: Tsc,
    pool: Mempool,
    tx: TxQueue,
    rx: RxQueue,
    frame: Vec<u8>,
    /// By number; 0 once it has arrived.
    sent_at: Vec<u64>,
    took: Vec<u64>,
}

impl Probe {
    /// Sends all and waits for the last; nanoseconds of those that arrived.
    fn run(mut self, interval: u64) -> Result<Vec<u64>> {
        let mut due = self.clock.now();
        for number in 0..self.sent_at.len() {
            while self.clock.now() < due {
                self.receive();
            }
            self.send(number)?;
            due = (due + interval).max(self.clock.now());
        }
        let end = self.clock.now() + PATIENCE_NS;
        while self.clock.now() < end && self.took.len() < self.sent_at.len() {
            self.receive();
        }
        Ok(self.took)
    }

    fn send(&mut self, number: usize) -> Result<()> {
        let mut packet = self.pool.alloc().context("the pool is dry")?;
        if !packet.extend(&self.frame) {
            bail!("a buffer has no room for a frame");
        }
        let place = packet.data_mut().get_mut(STAMP_AT + 8..STAMP_AT + 12);
        place.context("a frame is too short")?.copy_from_slice(&u32::try_from(number)?.to_be_bytes());
        self.sent_at[number] = self.clock.now();
        self.tx.send(packet).map_err(|_| anyhow::anyhow!("the sending port takes no frame"))
    }

    fn receive(&mut self) {
        let mut burst = Burst::<32>::new();
        if self.rx.burst(&mut burst) == 0 {
            return;
        }
        let now = self.clock.now();
        for sent_at in burst.drain().filter_map(|packet: Mbuf| number(packet.data())) {
            let sent_at = self.sent_at.get_mut(sent_at).map_or(0, std::mem::take);
            if sent_at > 0 {
                self.took.push(now - sent_at);
            }
        }
    }
}

/// Figures in microseconds.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds below a second")]
fn report(sent: u32, mut took: Vec<u64>) -> serde_json::Value {
    took.sort_unstable();
    let us = |ns: u64| (ns as f64 / 10.0).round() / 100.0;
    json!({
        "sent": sent,
        "received": took.len(),
        "p50_us": us(quantile(&took, 50)),
        "p99_us": us(quantile(&took, 99)),
        "min_us": us(took.first().copied().unwrap_or(0)),
        "max_us": us(took.last().copied().unwrap_or(0)),
    })
}

/// The value that `percent` of the sorted values do not exceed; 0 of none.
fn quantile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_number_and_a_good_checksum() {
        let mut frame = frame(Ipv4Addr::new(100, 64, 0, 10));
        assert_eq!(frame.len(), 60);
        assert_eq!(number(&frame), Some(0));
        frame[STAMP_AT + 11] = 7;
        assert_eq!(number(&frame), Some(7));
        frame[STAMP_AT] ^= 1;
        assert_eq!(number(&frame), None);
        let words = frame[14..34].chunks_exact(2);
        let sum: u32 = words.map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert_eq!(frame[30..34], [100, 64, 0, 10]);
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values: Vec<u64> = (1..=200).collect();
        assert_eq!((quantile(&values, 50), quantile(&values, 99)), (100, 198));
        assert_eq!((quantile(&[5], 99), quantile(&[], 50)), (5, 0));
    }
}
