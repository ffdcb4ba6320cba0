// SPDX-License-Identifier: Apache-2.0
//! One direction of the delay line, and the loop that serves both.
//!
//! Time is a parameter of [`Line`]; only the loop reads the clock and sleeps.

use std::collections::VecDeque;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dpdk::{Burst, Mbuf, RxQueue, TxQueue};
use mem::Tsc;
use serde_json::{Value, json};

use crate::tags::{Retag, Tagged, pop_tags, push_tags};

/// Longest sleep, so the most by which an arrival is noticed late.
const POLL: Duration = Duration::from_micros(50);
/// Shortest sleep: the loop has real-time priority and must leave the CPU to others.
const REST: Duration = Duration::from_micros(5);
/// Bursts taken at one look, so that a flood does not keep frames from leaving.
const BURSTS: usize = 16;

/// How late frames left, in bins of a microsecond; the last bin holds all that is later.
struct Lateness {
    bins: Vec<u64>,
    max_ns: u64,
    sum_ns: u64,
}

impl Lateness {
    fn new() -> Self {
        Self { bins: vec![0; 10_001], max_ns: 0, sum_ns: 0 }
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
pub(crate) struct Line {
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
    /// A line that holds at most `limit` frames for `delay_ns` each.
    pub(crate) fn new((rx, tx): (RxQueue, TxQueue), delay_ns: u64, limit: usize, now: u64) -> Self {
        Self {
            rx,
            tx,
            delay_ns,
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
    pub(crate) fn receive(&mut self, burst: &mut Burst<32>, now: u64) {
        let due = self.polled + (now - self.polled) / 2 + self.delay_ns;
        for _ in 0..BURSTS {
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
    pub(crate) fn send(&mut self, now: u64, retag: impl Fn(&mut Mbuf) -> Retag) {
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
    pub(crate) fn due(&self) -> Option<u64> {
        if self.leaving.is_empty() { self.held.front().map(|(due, _)| *due) } else { Some(0) }
    }

    /// Its counters.
    pub(crate) fn json(&self) -> Value {
        json!({
            "received": self.received, "sent": self.sent, "dropped_full": self.dropped_full,
            "dropped_untaggable": self.dropped_untaggable, "held": self.held.len() + self.leaving.len(),
            "tx_refusals": self.tx_refusals, "retagged": self.retagged, "late": self.late.json(),
        })
    }
}

/// Forwards until told to stop.
pub(crate) fn forward(mut lines: [Line; 2], hosts: &[Tagged], clock: Tsc, stop: &AtomicBool) -> [Line; 2] {
    wake_in_time();
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
        #[expect(clippy::disallowed_methods, reason = "it shares its CPU with the programs under test")]
        std::thread::sleep(wait.clamp(REST, POLL));
    }
    lines
}

/// Asks the kernel to wake this thread when its sleep ends: not to round sleeps up (by 50 us, unless told otherwise),
/// and to let it run before the programs under test. What is not granted only costs accuracy.
fn wake_in_time() {
    let thread = std::fs::read_link("/proc/thread-self").ok();
    let number = thread.as_deref().and_then(|path| path.file_name()).and_then(|name| name.to_str());
    let Some(number) = number else { return };
    let _ = std::fs::write(format!("/proc/{number}/timerslack_ns"), "1");
    let mut chrt = Command::new("chrt");
    let chrt = chrt.args(["--fifo", "--pid", "10", number]).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = chrt.status();
}
