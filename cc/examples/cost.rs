// SPDX-License-Identifier: Apache-2.0
//! What a send and an acknowledgement cost each sender: `chrt -i 0 cargo run --release -p cc --example cost`.
//!
//! A window of packets flies over a path without loss; the receiver's part is in the figure too. It counts the time on
//! a CPU (Linux's schedstat), so a busy machine does not show.

#![expect(clippy::print_stdout, reason = "run by hand")]

use std::collections::VecDeque;

use cc::{
    Codepoint, Kind, Nanos, Next, Receiver, ReceiverOptions, SenderOptions, Transmitter, TransmitterOptions,
    build,
};

const PACKETS: u64 = 1_000_000;
const RTT: Nanos = Nanos::from_millis(20);

fn on_cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn main() {
    for kind in Kind::ALL {
        let options = SenderOptions { max_cwnd: 140_000, rate_bps: 56_000_000, ..SenderOptions::default() };
        let mut tx = Transmitter::new(build(kind, &options), &TransmitterOptions::default());
        let mut rx = Receiver::new(ReceiverOptions { every: 1, ..ReceiverOptions::default() });
        let mut wire = VecDeque::new();
        let mut now = Nanos::ZERO;
        let start = on_cpu_ns();
        while tx.totals().acked < PACKETS {
            let wake = loop {
                match tx.next(now) {
                    Next::Send => wire.push_back((now, tx.commit(now))),
                    Next::At(at) => break Some(at),
                    Next::Wait | Next::Done => break None,
                }
            };
            let arrives = wire.front().map(|(sent, _)| *sent + RTT);
            now = now.max(wake.unwrap_or(Nanos::MAX).min(arrives.unwrap_or(Nanos::MAX)));
            while let Some((sent, packet)) = wire.pop_front_if(|(sent, _)| *sent + RTT <= now) {
                rx.on_packet(now, packet.seq, packet.oldest, Codepoint::NotEct, sent, packet.bytes);
                if let Some(frame) = rx.acknowledge(now) {
                    tx.on_ack(now, &frame);
                }
            }
        }
        println!("{kind:7} {:4} ns a packet", (on_cpu_ns() - start) / PACKETS);
    }
}
