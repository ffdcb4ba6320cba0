// SPDX-License-Identifier: Apache-2.0
//! Flows come: those of the scenario with their seeded stagger, short ones as they arrive.

use std::collections::VecDeque;

use aqm::{FlowKey, Nanos};
use cc::{Codepoint, Kind, Receiver, ReceiverOptions, SenderOptions, Transmitter, TransmitterOptions, build};

use super::draws::{Draws, Purpose};
use super::endpoint::{Account, Constant, Endpoint, Responsive, Source, ecn_of, to_cc};
use super::events::What;
use super::{BEGIN, World, part};
use crate::scenario::{EcnChoice, Flow, Web};

/// Flows start up to this much later than the scenario says, evenly.
const STAGGER: Nanos = Nanos::from_millis(100);
/// Bytes of a short flow that a full packet carries: 1500 less headers of IPv4 and TCP with timestamps.
const SEGMENT_BYTES: u64 = 1_448;
/// Bytes of a full packet of a short flow.
const WEB_PACKET_BYTES: u32 = crate::FULL_PACKET;

impl World<'_> {
    /// All long-running flows, and the first short one of each entry.
    pub(super) fn open_flows(&mut self) {
        let mut draws = Draws::new(self.seed, Purpose::Start);
        let mut number = 0;
        for (entry, host) in self.scenario.flows.iter().zip(0..) {
            for _ in 0..entry.count {
                let start = BEGIN + entry.start + part(STAGGER, draws.unit());
                let stop = entry.stop.map_or(self.end, |stop| BEGIN + stop);
                self.meter.flow_runs(number, start, stop);
                let key = key(self.flows.len(), host);
                self.open(Endpoint {
                    key,
                    start,
                    stop,
                    packet_bytes: entry.packet_bytes,
                    ecn: ecn_of(codepoint(entry.cc, entry.ecn)),
                    ..endpoint(
                        Account::Flow(number),
                        entry.rtt,
                        source(entry, start, self.seed ^ u64::from(number) << 32),
                    )
                });
                number += 1;
            }
        }
        for entry in 0..u32::try_from(self.webs.len()).unwrap_or(u32::MAX) {
            self.await_web(entry);
        }
    }

    fn open(&mut self, mut endpoint: Endpoint) {
        let id = u32::try_from(self.flows.len()).unwrap_or(u32::MAX);
        endpoint.wake = endpoint.start;
        self.events.put(endpoint.start, What::Wake(id));
        self.flows.push(endpoint);
    }

    /// When the next short flow of an entry comes.
    fn await_web(&mut self, entry: u32) {
        let web = &self.scenario.web[entry as usize];
        if web.arrivals_per_s > 0.0 {
            let wait =
                part(Nanos::from_secs(1), self.webs[entry as usize][0].exponential(1.0 / web.arrivals_per_s));
            self.events.put(self.now + wait, What::Arrival(entry));
        }
    }

    /// A short flow comes.
    pub(super) fn open_web(&mut self, entry: u32) {
        let web = &self.scenario.web[entry as usize];
        let bytes = self.webs[entry as usize][1].size(&web.size);
        let packets = bytes.div_ceil(SEGMENT_BYTES).max(1);
        let host = self.scenario.flows.len() + entry as usize;
        let key = key(self.flows.len(), u32::try_from(host).unwrap_or(u32::MAX));
        self.open(Endpoint {
            key,
            start: self.now,
            stop: Nanos::MAX,
            packet_bytes: WEB_PACKET_BYTES,
            ecn: ecn_of(codepoint(web.cc, web.ecn)),
            ..endpoint(Account::Web(entry), web.rtt, web_source(web, packets))
        });
        self.await_web(entry);
    }
}

fn endpoint(account: Account, rtt: Nanos, source: Source) -> Endpoint {
    Endpoint {
        source,
        account,
        key: FlowKey::default(),
        ecn: aqm::Ecn::NotEct,
        packet_bytes: 0,
        half: Nanos(rtt.0 / 2),
        start: Nanos::ZERO,
        stop: Nanos::MAX,
        wake: Nanos::MAX,
        ack_wake: Nanos::MAX,
        data: VecDeque::new(),
        acks: VecDeque::new(),
        expected: 0,
    }
}

fn source(flow: &Flow, start: Nanos, seed: u64) -> Source {
    if flow.cc == Kind::Cbr {
        return Source::Constant(Constant {
            sent: 0,
            began: start,
            rate_bps: flow.rate.0,
            packet_bytes: flow.packet_bytes,
            on: flow.on,
            off: flow.off,
        });
    }
    let options = SenderOptions {
        mss: flow.packet_bytes,
        codepoint: Some(codepoint(flow.cc, flow.ecn)),
        hystart: flow.hystart,
        rtt_independence: flow.rtt_independence,
        seed,
        ecn_max_rtt: ecn_max_rtt(flow.cc),
        ..SenderOptions::default()
    };
    responsive(flow.cc, &options, flow.rtt, None)
}

fn web_source(web: &Web, packets: u64) -> Source {
    let options = SenderOptions {
        mss: WEB_PACKET_BYTES,
        codepoint: Some(codepoint(web.cc, web.ecn)),
        ecn_max_rtt: ecn_max_rtt(web.cc),
        ..SenderOptions::default()
    };
    responsive(web.cc, &options, web.rtt, Some(packets))
}

/// The handshake found no queue.
fn responsive(kind: Kind, options: &SenderOptions, rtt: Nanos, packets: Option<u64>) -> Source {
    let handshake = Some(to_cc(rtt));
    let transmitter = TransmitterOptions { packets, handshake, ..TransmitterOptions::default() };
    Source::Responsive(Box::new(Responsive {
        tx: Transmitter::new(build(kind, options), &transmitter),
        rx: Receiver::new(ReceiverOptions::default()),
    }))
}

/// BBRv2 answers ECN at any round-trip time, as the L4S team's does with which the published figures were taken; BBRv3
/// up to its 5 ms.
fn ecn_max_rtt(kind: Kind) -> cc::Nanos {
    if kind == Kind::Bbr2 { cc::Nanos::ZERO } else { SenderOptions::default().ecn_max_rtt }
}

fn codepoint(kind: Kind, choice: EcnChoice) -> Codepoint {
    match choice {
        EcnChoice::Auto => kind.default_codepoint(),
        EcnChoice::NotEct => Codepoint::NotEct,
        EcnChoice::Ect0 => Codepoint::Ect0,
        EcnChoice::Ect1 => Codepoint::Ect1,
    }
}

/// Every flow is one of its own; those of an entry come from one host, and all go to one.
fn key(flow: usize, host: u32) -> FlowKey {
    FlowKey {
        flow: scatter(u32::try_from(flow).unwrap_or(u32::MAX)),
        source: scatter(host ^ 0x8000_0000),
        destination: scatter(0x4000_0000),
        dscp: 0,
    }
}

/// The finaliser of MurmurHash3: a permutation of 32 bits, so no two flows share a value.
const fn scatter(n: u32) -> u32 {
    let a = (n ^ n >> 16).wrapping_mul(0x85eb_ca6b);
    let b = (a ^ a >> 13).wrapping_mul(0xc2b2_ae35);
    b ^ b >> 16
}
