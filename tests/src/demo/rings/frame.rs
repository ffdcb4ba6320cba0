// SPDX-License-Identifier: Apache-2.0
//! Frames of the in-process network: Ethernet, up to two VLAN tags, IPv4 or IPv6, UDP, and a message.
//!
//! Written and read without crate `wire`, whose work is what is shown. Invariant: [`read`] gives back what [`write`]
//! was given, whatever Sluice did to the ECN field, and says whether the IPv4 checksum still holds.

use std::net::IpAddr;

use cc::{AckFrame, Codepoint, EcnCounts, Nanos};

/// Words of the longest message.
const WORDS: usize = 15;
/// Bytes of an acknowledgement's payload.
const ACK_BYTES: usize = WORDS * 8;
const MAGIC: u64 = 0x536c_7569;
const UDP: u8 = 17;

/// Where a flow's frames go.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// Its number.
    pub(super) flow: u8,
    /// Tags, outermost first: TPID and VLAN id.
    pub(super) tags: Vec<(u16, u16)>,
    /// The server.
    pub(super) server: IpAddr,
    /// The customer.
    pub(super) customer: IpAddr,
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Server to customer.
    Data {
        /// Packet number.
        seq: u64,
        /// Lowest number of interest.
        oldest: u64,
        /// When it left.
        sent: Nanos,
    },
    /// Customer to server.
    Ack(AckFrame),
}

/// A frame read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) flow: u8,
    pub(super) ecn: Codepoint,
    pub(super) message: Message,
    /// Whether the IPv4 header checksum holds; IPv6 has none.
    pub(super) sound: bool,
}

/// Writes a frame into `out`; `payload` is the UDP payload of a data packet.
pub(super) fn write(out: &mut Vec<u8>, path: &Path, ecn: Codepoint, message: &Message, payload: usize) {
    let down = matches!(message, Message::Data { .. });
    let message = encode(path.flow, message);
    let length = if down { payload.max(message.len()) } else { message.len() };
    out.clear();
    let (customer, server) = ([2, 0, 0, 0, 0, 0x0c], [2, 0, 0, 0, 0, 5]);
    let (to, from) = if down { (customer, server) } else { (server, customer) };
    out.extend([to, from].concat());
    for (tpid, vlan) in &path.tags {
        out.extend(tpid.to_be_bytes());
        out.extend(vlan.to_be_bytes());
    }
    let (source, target) = if down { (path.server, path.customer) } else { (path.customer, path.server) };
    let udp_bytes = low16(8 + length);
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            out.extend([0x08, 0x00]);
            let [high, low] = (20 + udp_bytes).to_be_bytes();
            let mut header = vec![0x45, ecn as u8, high, low, 0, 0, 0x40, 0, 64, UDP, 0, 0];
            header.extend(source.octets());
            header.extend(target.octets());
            let sum = (!sum(&header)).to_be_bytes();
            header[10..12].copy_from_slice(&sum);
            out.extend(header);
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            out.extend([0x86, 0xdd, 0x60, (ecn as u8) << 4, 0, 0]);
            out.extend(udp_bytes.to_be_bytes());
            out.extend([UDP, 64]);
            out.extend(source.octets());
            out.extend(target.octets());
        }
        _ => unreachable!("a path has one IP version"),
    }
    put_udp(out, (source, target), udp_bytes, &message, length);
}

/// The UDP header with its checksum, the message and zeroes.
fn put_udp(out: &mut Vec<u8>, ends: (IpAddr, IpAddr), udp_bytes: u16, message: &[u8], length: usize) {
    let mut pseudo = Vec::with_capacity(64 + message.len());
    for end in [ends.0, ends.1] {
        match end {
            IpAddr::V4(address) => pseudo.extend(address.octets()),
            IpAddr::V6(address) => pseudo.extend(address.octets()),
        }
    }
    pseudo.extend([0, UDP]);
    pseudo.extend(udp_bytes.to_be_bytes());
    let header = [8490_u16.to_be_bytes(), 8490_u16.to_be_bytes(), udp_bytes.to_be_bytes()].concat();
    pseudo.extend(&header);
    // the rest of the payload is zeroes
    pseudo.extend(message);
    let sum = match !sum(&pseudo) {
        0 => 0xffff,
        sum => sum,
    };
    out.extend(header);
    out.extend(sum.to_be_bytes());
    out.extend(message);
    out.resize(out.len() + length - message.len(), 0);
}

/// The Internet checksum's sum (RFC 1071) of an even number of bytes.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    low16(sum as usize)
}

fn low16(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

fn encode(flow: u8, message: &Message) -> Vec<u8> {
    let head = |kind: u64| MAGIC << 32 | kind << 8 | u64::from(flow);
    let words: Vec<u64> = match message {
        Message::Data { seq, oldest, sent } => vec![head(1), *seq, *oldest, sent.0],
        Message::Ack(AckFrame { largest, cumulative, bitmap, received, ecn, missing, echo, held }) => {
            let mut words = vec![head(2), *largest, *cumulative];
            words.extend(bitmap);
            words.extend([*received, ecn.not_ect, ecn.ect1, ecn.ect0, ecn.ce, *missing, echo.0, held.0]);
            words
        }
    };
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn decode(payload: &[u8]) -> Option<(u8, Message)> {
    let mut words = payload.chunks_exact(8).filter_map(|word| word.try_into().ok()).map(u64::from_be_bytes);
    let mut next = || words.next();
    let head = next()?;
    let flow = u8::try_from(head & 0xff).ok()?;
    let message = match (head >> 32, head >> 8 & 0xff) {
        (MAGIC, 1) => Message::Data { seq: next()?, oldest: next()?, sent: Nanos(next()?) },
        (MAGIC, 2) if payload.len() >= ACK_BYTES => Message::Ack(AckFrame {
            largest: next()?,
            cumulative: next()?,
            bitmap: [next()?, next()?, next()?, next()?],
            received: next()?,
            ecn: EcnCounts { not_ect: next()?, ect1: next()?, ect0: next()?, ce: next()? },
            missing: next()?,
            echo: Nanos(next()?),
            held: Nanos(next()?),
        }),
        _ => return None,
    };
    Some((flow, message))
}

/// Reads a frame; `None`: it is not one of ours.
pub(super) fn read(frame: &[u8]) -> Option<Read> {
    let mut at = 12;
    let word = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    while matches!(word(at)?, 0x8100 | 0x88a8) {
        at += 4;
    }
    let ip = frame.get(at + 2..)?;
    let (ecn, header_bytes, sound) = match word(at)? {
        0x0800 => (*ip.get(1)?, 20, sum(ip.get(..20)?) == 0xffff),
        0x86dd => (ip.get(1)? >> 4, 40, true),
        _ => return None,
    };
    let (flow, message) = decode(ip.get(header_bytes + 8..)?)?;
    Some(Read { flow, ecn: Codepoint::from_bits(ecn), message, sound })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> Vec<Path> {
        let v4 = |last: u8| IpAddr::from([100, 64, 0, last]);
        let v6 = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]);
        let path =
            |tags: &[(u16, u16)], server, customer| Path { flow: 7, tags: tags.to_vec(), server, customer };
        vec![
            path(&[], v4(1), v4(2)),
            path(&[], v6(1), v6(2)),
            path(&[(0x88a8, 100), (0x8100, 42)], v4(1), v4(2)),
        ]
    }

    fn messages() -> [Message; 2] {
        let ecn = EcnCounts { not_ect: 1, ect1: 2, ect0: 3, ce: 4 };
        let ack = AckFrame {
            largest: 5,
            cumulative: 6,
            bitmap: [7, 8, 9, 10],
            received: 11,
            ecn,
            missing: 12,
            echo: Nanos(13),
            held: Nanos(14),
        };
        [Message::Data { seq: 1, oldest: 0, sent: Nanos(99) }, Message::Ack(ack)]
    }

    #[test]
    fn what_was_written_is_read_and_sluice_parses_it() {
        let mut frame = Vec::new();
        for path in paths() {
            for message in messages() {
                write(&mut frame, &path, Codepoint::Ect1, &message, 1400);
                let read = read(&frame).expect("a frame of ours");
                assert_eq!(read, Read { flow: 7, ecn: Codepoint::Ect1, message, sound: true });
                let parsed = wire::parse(&frame, u32::try_from(frame.len()).unwrap());
                assert!(matches!(parsed.kind, wire::Kind::Ipv4 | wire::Kind::Ipv6), "{:?}", parsed.kind);
                assert_eq!(parsed.ecn_bits(), 1);
                let headers = if path.server.is_ipv4() { 28 } else { 48 };
                let payload = if matches!(message, Message::Data { .. }) { 1400 } else { ACK_BYTES };
                assert_eq!(usize::from(parsed.l3_bytes), payload + headers);
            }
        }
    }

    #[test]
    fn a_wrong_header_checksum_is_seen_and_a_right_mark_is_not_wrong() {
        let mut frame = Vec::new();
        write(&mut frame, &paths()[0], Codepoint::Ect1, &messages()[0], 1400);
        assert!(wire::set_ce(&mut frame[14..]));
        let marked = read(&frame).unwrap();
        assert_eq!((marked.ecn, marked.sound), (Codepoint::Ce, true));
        frame[22] ^= 1;
        assert!(!read(&frame).unwrap().sound);
    }

    #[test]
    fn noise_is_nothing() {
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[0; 64]), None);
        let mut frame = Vec::new();
        write(&mut frame, &paths()[2], Codepoint::Ect1, &messages()[1], 0);
        for cut in 0..frame.len() {
            assert_eq!(read(&frame[..cut]), None, "{cut}");
        }
    }
}
