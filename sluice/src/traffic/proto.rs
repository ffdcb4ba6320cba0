// SPDX-License-Identifier: Apache-2.0
//! The datagrams of `sluice traffic`, big-endian, version 1.
//!
//! A client opens with HELLO; the server answers RETRY with a cookie, and ACCEPT to a HELLO that repeats it, so that
//! a forged source address never makes it send data. Neither answer is longer than the HELLO. Then DATA flows one
//! way and ACK the other; BYE ends a flow and is answered by the last ACK of a receiver, or echoed by a sender.
//!
//! Invariant: `decode` looks at no byte beyond the datagram and accepts any length; what is not ours is `None`.

use cc::{AckFrame, Codepoint, EcnCounts, Kind, Nanos};

use super::Direction;

const MAGIC: [u8; 4] = *b"SLTR";
const VERSION: u8 = 1;
/// Magic, version, kind, two spare bytes, token.
const HEADER_BYTES: usize = 16;
/// HELLO is padded to this, the longest of the handshake.
pub(super) const HELLO_BYTES: usize = 64;
/// The part of DATA that is not padding.
pub(super) const DATA_BYTES: usize = 64;
/// Room for any datagram but DATA.
pub(super) const CONTROL_BYTES: usize = 128;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) direction: Direction,
    pub(super) kind: Kind,
    pub(super) codepoint: Option<Codepoint>,
    pub(super) rtt_independence: bool,
    pub(super) hystart: bool,
    pub(super) packet_bytes: u16,
    pub(super) seconds: u32,
    pub(super) rate_bps: u64,
}

/// What a sender tells its receiver with each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) seq: u64,
    pub(super) oldest: u64,
    /// The sender's clock.
    pub(super) sent: Nanos,
    pub(super) cwnd_bytes: u64,
    /// The sender's latest round-trip sample.
    pub(super) rtt: Nanos,
    /// Packets it has declared lost.
    pub(super) lost: u32,
}

/// A datagram's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Hello {
        cookie: u64,
        request: Request,
    },
    Retry {
        cookie: u64,
    },
    Accept,
    /// The server has no room.
    Full,
    Data(Data),
    Ack(AckFrame),
    Bye,
}

/// Writes `message` of flow `token` into `buffer` and returns its length; DATA is padded by the caller.
pub(super) fn encode(buffer: &mut [u8], token: u64, message: &Message) -> usize {
    let mut w = Writer { buffer, at: 0 };
    w.put(&MAGIC);
    w.put(&[VERSION, message.code(), 0, 0]);
    w.u64(token);
    match message {
        Message::Hello { cookie, request } => {
            w.u64(*cookie);
            put_request(&mut w, request);
            while w.at < HELLO_BYTES {
                w.put(&[0]);
            }
        }
        Message::Retry { cookie } => w.u64(*cookie),
        Message::Accept | Message::Full | Message::Bye => {}
        Message::Data(data) => {
            for word in [data.seq, data.oldest, data.sent.0, data.cwnd_bytes, data.rtt.0] {
                w.u64(word);
            }
            w.put(&data.lost.to_be_bytes());
            w.put(&[0; 4]);
        }
        Message::Ack(frame) => put_frame(&mut w, frame),
    }
    w.at
}

/// The flow and the meaning of a datagram; `None` if it is not one of ours.
pub(super) fn decode(bytes: &[u8]) -> Option<(u64, Message)> {
    let mut r = Reader(bytes);
    if r.array()? != MAGIC {
        return None;
    }
    let [version, code, ..] = r.array::<4>()?;
    if version != VERSION {
        return None;
    }
    let token = r.u64()?;
    let message = match code {
        1 if bytes.len() >= HELLO_BYTES => {
            Message::Hello { cookie: r.u64()?, request: take_request(&mut r)? }
        }
        2 => Message::Retry { cookie: r.u64()? },
        3 => Message::Accept,
        4 => Message::Data(Data {
            seq: r.u64()?,
            oldest: r.u64()?,
            sent: Nanos(r.u64()?),
            cwnd_bytes: r.u64()?,
            rtt: Nanos(r.u64()?),
            lost: u32::from_be_bytes(r.array()?),
        }),
        5 => Message::Ack(take_frame(&mut r)?),
        6 => Message::Bye,
        7 => Message::Full,
        _ => return None,
    };
    Some((token, message))
}

impl Message {
    const fn code(&self) -> u8 {
        match self {
            Self::Hello { .. } => 1,
            Self::Retry { .. } => 2,
            Self::Accept => 3,
            Self::Data(_) => 4,
            Self::Ack(_) => 5,
            Self::Bye => 6,
            Self::Full => 7,
        }
    }
}

fn put_request(w: &mut Writer<'_>, request: &Request) {
    let kind = Kind::ALL.iter().position(|kind| *kind == request.kind).unwrap_or(0);
    let codepoint = request.codepoint.map_or(u8::MAX, |codepoint| codepoint as u8);
    let flags = u8::from(request.rtt_independence) | u8::from(request.hystart) << 1;
    w.put(&[
        u8::from(request.direction == Direction::Down),
        u8::try_from(kind).unwrap_or(0),
        codepoint,
        flags,
    ]);
    w.put(&request.packet_bytes.to_be_bytes());
    w.put(&[0; 2]);
    w.put(&request.seconds.to_be_bytes());
    w.put(&[0; 4]);
    w.u64(request.rate_bps);
}

fn take_request(r: &mut Reader<'_>) -> Option<Request> {
    let [direction, kind, codepoint, flags] = r.array()?;
    let packet_bytes = u16::from_be_bytes(r.array()?);
    r.array::<2>()?;
    let seconds = u32::from_be_bytes(r.array()?);
    r.array::<4>()?;
    let rate_bps = r.u64()?;
    let codepoint = match codepoint {
        u8::MAX => None,
        bits @ 0..3 => Some(Codepoint::from_bits(bits)),
        _ => return None,
    };
    Some(Request {
        direction: if direction == 0 { Direction::Up } else { Direction::Down },
        kind: *Kind::ALL.get(usize::from(kind))?,
        codepoint,
        rtt_independence: flags & 1 != 0,
        hystart: flags & 2 != 0,
        packet_bytes: Some(packet_bytes).filter(|bytes| (128..=8952).contains(bytes))?,
        seconds: Some(seconds).filter(|seconds| (1..=86_400).contains(seconds))?,
        rate_bps,
    })
}

fn put_frame(w: &mut Writer<'_>, frame: &AckFrame) {
    let ecn = frame.ecn;
    for word in [frame.largest, frame.cumulative].into_iter().chain(frame.bitmap) {
        w.u64(word);
    }
    for word in [frame.received, ecn.not_ect, ecn.ect1, ecn.ect0, ecn.ce, frame.missing] {
        w.u64(word);
    }
    w.u64(frame.echo.0);
    w.u64(frame.held.0);
}

fn take_frame(r: &mut Reader<'_>) -> Option<AckFrame> {
    Some(AckFrame {
        largest: r.u64()?,
        cumulative: r.u64()?,
        bitmap: [r.u64()?, r.u64()?, r.u64()?, r.u64()?],
        received: r.u64()?,
        ecn: EcnCounts { not_ect: r.u64()?, ect1: r.u64()?, ect0: r.u64()?, ce: r.u64()? },
        missing: r.u64()?,
        echo: Nanos(r.u64()?),
        held: Nanos(r.u64()?),
    })
}

/// Writes as far as there is room.
struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        if let Some(room) = self.buffer.get_mut(self.at..self.at + bytes.len()) {
            room.copy_from_slice(bytes);
        }
        self.at += bytes.len();
    }

    fn u64(&mut self, word: u64) {
        self.put(&word.to_be_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

const _: () = assert!(DATA_BYTES == HEADER_BYTES + 48 && CONTROL_BYTES >= HEADER_BYTES + 14 * 8);
