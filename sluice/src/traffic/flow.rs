// SPDX-License-Identifier: Apache-2.0
//! The two ends of a flow: [`Sending`] around a `cc::Transmitter`, [`Receiving`] around a `cc::Receiver`.
//!
//! They turn protocol messages into datagrams and back, and count; the socket is handed in for sending only.
//! Invariant: a packet the socket refused is kept and sent first, so that a full socket is no loss on the path.

use std::io;

use cc::{
    AckFrame, FlightOptions, Kind, Nanos, Next, Outgoing, Receiver, ReceiverOptions, SenderOptions,
    Transmitter, TransmitterOptions, build,
};

use super::proto::{CONTROL_BYTES, Data, Message, Request, encode};
use super::report::{Counts, RttSpan};
use super::socket::{Datagram, Peer, Socket};

/// Packets a flow may send before the loop looks at its other work.
const SEND_QUANTUM: u32 = 32;
/// Packets in flight at most: 32,768 of 1,400 bytes are 3.6 Gb/s over 100 ms, at under 1 MB of memory.
const MAX_IN_FLIGHT: usize = 1 << 15;
/// What a constant rate makes up for when the machine was busy elsewhere.
const CATCH_UP_CBR: Nanos = Nanos::from_millis(20);
/// The same for the others, which must not burst into a short queue.
const CATCH_UP: Nanos = Nanos::from_millis(1);

/// When a flow wants attention again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wake {
    pub(super) at: Option<Nanos>,
    /// Also as soon as the socket can be written.
    pub(super) writable: bool,
}

/// The sending end.
#[derive(Debug)]
pub(super) struct Sending {
    token: u64,
    peer: Peer,
    tx: Transmitter,
    buffer: Vec<u8>,
    stuck: Option<Outgoing>,
    ecn: cc::EcnCounts,
    rtt: RttSpan,
    /// Packets the host would not send for another reason than a full socket.
    refused: u64,
}

impl Sending {
    pub(super) fn new(token: u64, peer: Peer, request: &Request) -> Self {
        let options = SenderOptions {
            mss: u32::from(request.packet_bytes),
            codepoint: request.codepoint,
            hystart: request.hystart,
            rtt_independence: request.rtt_independence,
            rate_bps: request.rate_bps,
            max_cwnd: u64::from(request.packet_bytes) * MAX_IN_FLIGHT as u64,
            ..SenderOptions::default()
        };
        let catch_up = if request.kind == Kind::Cbr { CATCH_UP_CBR } else { CATCH_UP };
        let flight = FlightOptions { max_packets: MAX_IN_FLIGHT, ..FlightOptions::default() };
        let tx_options = TransmitterOptions { flight, catch_up, ..TransmitterOptions::default() };
        Self {
            token,
            peer,
            tx: Transmitter::new(build(request.kind, &options), &tx_options),
            buffer: vec![0; usize::from(request.packet_bytes)],
            stuck: None,
            ecn: cc::EcnCounts::default(),
            rtt: RttSpan::default(),
            refused: 0,
        }
    }

    /// Sends what is due; stops at a full socket or a quantum.
    pub(super) fn pump(&mut self, clock: &dyn Fn() -> Nanos, socket: &Socket) -> io::Result<Wake> {
        let mut now = clock();
        self.tx.on_timer(now);
        for _ in 0..SEND_QUANTUM {
            let packet = match self.stuck.take() {
                Some(packet) => packet,
                None => match self.tx.next(now) {
                    Next::Send => self.tx.commit(now),
                    Next::At(at) => return Ok(self.wake(Some(at))),
                    Next::Wait | Next::Done => return Ok(self.wake(None)),
                },
            };
            if !self.send(now, &packet, socket)? {
                self.stuck = Some(packet);
                self.tx.host_limited();
                return Ok(Wake { at: self.tx.deadline(), writable: true });
            }
            now = clock();
        }
        // More could leave: this host is what holds the flow back.
        self.tx.host_limited();
        Ok(Wake { at: Some(now), writable: false })
    }

    fn wake(&self, at: Option<Nanos>) -> Wake {
        let at = [at, self.tx.deadline()].into_iter().flatten().min();
        Wake { at, writable: false }
    }

    /// Whether the socket took it (or never will).
    fn send(&mut self, now: Nanos, packet: &Outgoing, socket: &Socket) -> io::Result<bool> {
        let data = Data {
            seq: packet.seq,
            oldest: packet.oldest,
            sent: now,
            cwnd_bytes: self.tx.sender().cwnd(),
            rtt: self.tx.rtt().latest(),
            lost: u32::try_from(self.tx.totals().lost).unwrap_or(u32::MAX),
        };
        let head = encode(&mut self.buffer, self.token, &Message::Data(data));
        let length = usize::try_from(packet.bytes).unwrap_or(head).clamp(head, self.buffer.len());
        match socket.send(self.peer, packet.codepoint, &self.buffer[..length]) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            // A packet that never fits will not fit later either; other refusals pass.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {
                Err(error)
            }
            Err(_) => {
                self.refused += 1;
                Ok(true)
            }
        }
    }

    pub(super) fn on_ack(&mut self, now: Nanos, frame: &AckFrame) {
        let before = self.tx.totals().acked;
        if self.tx.on_ack(now, frame) {
            self.ecn = frame.ecn;
            if self.tx.totals().acked > before {
                self.rtt.add(self.tx.rtt().latest());
            }
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let t = self.tx.totals();
        Counts { packets: t.acked, bytes: t.acked_bytes, marked: t.marked, lost: t.lost, ecn: self.ecn }
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused
    }
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct Receiving {
    token: u64,
    peer: Peer,
    rx: Receiver,
    latest: Data,
    rtt: RttSpan,
}

impl Receiving {
    pub(super) fn new(token: u64, peer: Peer) -> Self {
        Self {
            token,
            peer,
            rx: Receiver::new(ReceiverOptions::default()),
            latest: Data::default(),
            rtt: RttSpan::default(),
        }
    }

    pub(super) fn on_data(&mut self, now: Nanos, data: &Data, datagram: &Datagram<'_>) {
        let bytes = u32::try_from(datagram.bytes.len()).unwrap_or(u32::MAX);
        if !self.rx.on_packet(now, data.seq, data.oldest, datagram.ecn, data.sent, bytes) {
            return;
        }
        // A new sample shows as a changed value; two equal ones in a row count once.
        if data.rtt != self.latest.rtt {
            self.rtt.add(data.rtt);
        }
        if data.sent >= self.latest.sent {
            self.latest = *data;
        }
    }

    /// Acknowledges if it is time.
    pub(super) fn pump(&mut self, now: Nanos, socket: &Socket) -> Wake {
        if self.rx.ack_due().is_some_and(|due| due <= now)
            && let Some(frame) = self.rx.acknowledge(now)
        {
            self.send_ack(&frame, socket);
        }
        Wake { at: self.rx.ack_due(), writable: false }
    }

    /// Says the last word, due or not.
    pub(super) fn conclude(&mut self, now: Nanos, socket: &Socket) {
        if let Some(frame) = self.rx.report(now) {
            self.send_ack(&frame, socket);
        }
    }

    fn send_ack(&self, frame: &AckFrame, socket: &Socket) {
        let mut buffer = [0; CONTROL_BYTES];
        let length = encode(&mut buffer, self.token, &Message::Ack(*frame));
        // All counts are cumulative: a lost or refused acknowledgement is made up by the next.
        let _ = socket.send(self.peer, cc::Codepoint::NotEct, &buffer[..length]);
    }

    pub(super) fn counts(&self) -> Counts {
        let ecn = self.rx.ecn();
        let (packets, bytes) = (self.rx.received(), self.rx.bytes());
        Counts { packets, bytes, marked: ecn.ce, lost: u64::from(self.latest.lost), ecn }
    }
}

/// Either end.
#[derive(Debug)]
pub(super) enum End {
    Sending(Box<Sending>),
    Receiving(Box<Receiving>),
}

impl End {
    pub(super) fn pump(&mut self, clock: &dyn Fn() -> Nanos, socket: &Socket) -> io::Result<Wake> {
        match self {
            Self::Sending(end) => end.pump(clock, socket),
            Self::Receiving(end) => Ok(end.pump(clock(), socket)),
        }
    }

    /// A message of this flow; false if it makes no sense at this end.
    pub(super) fn on_message(&mut self, now: Nanos, message: &Message, datagram: &Datagram<'_>) -> bool {
        match (self, message) {
            (Self::Sending(end), Message::Ack(frame)) => end.on_ack(now, frame),
            (Self::Receiving(end), Message::Data(data)) => end.on_data(now, data, datagram),
            _ => return false,
        }
        true
    }

    pub(super) fn counts(&self) -> Counts {
        match self {
            Self::Sending(end) => end.counts(),
            Self::Receiving(end) => end.counts(),
        }
    }

    /// Round-trip samples since the last call.
    pub(super) fn take_rtt(&mut self) -> RttSpan {
        match self {
            Self::Sending(end) => std::mem::take(&mut end.rtt),
            Self::Receiving(end) => std::mem::take(&mut end.rtt),
        }
    }

    /// Bytes sent whose fate is open.
    pub(super) fn in_flight(&self) -> u64 {
        match self {
            Self::Sending(end) => end.tx.flight().in_flight(),
            Self::Receiving(_) => 0,
        }
    }

    pub(super) fn cwnd_bytes(&self) -> u64 {
        match self {
            Self::Sending(end) => end.tx.sender().cwnd(),
            Self::Receiving(end) => end.latest.cwnd_bytes,
        }
    }
}

/// IP and UDP headers in front of each payload to this address.
pub(super) fn header_bytes(address: &std::net::SocketAddr) -> u64 {
    let is_v4 = match address.ip() {
        std::net::IpAddr::V4(_) => true,
        std::net::IpAddr::V6(ip) => ip.to_ipv4_mapped().is_some(),
    };
    if is_v4 { 28 } else { 48 }
}
