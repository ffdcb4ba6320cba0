// SPDX-License-Identifier: Apache-2.0
//! The generator's frames: Ethernet, 802.1ad, 802.1Q, PPPoE, IPv4, UDP; and the records that match them.
//!
//! Subscriber `n` has a VLAN pair, a MAC and a session of its own. Even ones are matched by session and MAC within
//! the pair, odd ones by the pair alone, so that a lookup takes one probe of the table or two. Frame sizes count the
//! FCS, which is not in memory.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use model::Subscriber;
use model::subscriber::{DEFAULT_PROFILE, MacAddr, Match, Pppoe, Vlan};

/// Bytes up to the UDP payload: Ethernet 14, tags 8, PPPoE 6, PPP 2, IPv4 20, UDP 8.
pub(super) const HEADERS: usize = 58;
/// Where the IPv4 header begins.
const IP_AT: usize = 30;
/// Where a frame carries the time it was sent: the UDP checksum, which may be anything where nobody looks, and the first
/// bytes of the payload.
const STAMP_AT: usize = 56;
/// Bytes of a frame that are not in memory.
const FCS: u16 = 4;
/// VLAN ids in use in either place of a pair: 1 to this.
const VIDS: u32 = 4094;
/// Session ids: 1 to this.
const SESSIONS: u32 = 65_534;
/// Subscribers that can be told apart by VLAN pair.
pub(super) const MOST_SUBSCRIBERS: u32 = VIDS * VIDS;

/// Sizes of the generator's frames, FCS included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All alike, 64 to 2000.
    Fixed(u16),
    /// 64, 594 and 1518 bytes, 7 : 4 : 1.
    Imix,
}

/// A round of IMIX, spread so that no two large frames follow each other.
const IMIX: [u16; 12] = [64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 594, 64];

impl Sizes {
    /// Sizes in turn.
    pub(super) fn pattern(self) -> Vec<u16> {
        match self {
            Self::Fixed(bytes) => vec![bytes],
            Self::Imix => IMIX.to_vec(),
        }
    }

    /// Mean size.
    pub fn mean(self) -> u32 {
        let pattern = self.pattern();
        let sum: u32 = pattern.iter().copied().map(u32::from).sum();
        let frames = u32::try_from(pattern.len()).unwrap_or(1);
        (sum + frames / 2) / frames
    }
}

/// What tells a subscriber's frames from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    mac: [u8; 6],
    outer: u16,
    inner: u16,
    session: u16,
}

impl Identity {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "each is reduced to its range just before")]
    fn of(subscriber: u32) -> Self {
        let [a, b, c, d] = subscriber.to_be_bytes();
        Self {
            mac: [0x02, 0, a, b, c, d],
            outer: (1 + subscriber / VIDS % VIDS) as u16,
            inner: (1 + subscriber % VIDS) as u16,
            session: (1 + subscriber % SESSIONS) as u16,
        }
    }
}

/// The record of a subscriber.
pub(super) fn record(subscriber: u32, down_bps: u64) -> Subscriber {
    let Identity { mac, outer, inner, session } = Identity::of(subscriber);
    let pppoe = Pppoe { session, mac: Some(MacAddr(mac)) };
    Subscriber {
        id: format!("bench-{subscriber}"),
        down_bps,
        up_bps: down_bps,
        profile: DEFAULT_PROFILE.to_owned(),
        parent: None,
        matches: Match {
            vlan: Some(Vlan { outer, inner: Some(inner) }),
            pppoe: subscriber.is_multiple_of(2).then_some(pppoe),
            ..Match::default()
        },
    }
}

/// The record of a subscriber with as much as the contract's example has, for memory: two IPv6 prefixes, an IPv4
/// address, a VLAN pair, a session with its MAC, a port.
pub(super) fn example(subscriber: u32, down_bps: u64) -> Subscriber {
    let mut record = record(subscriber & !1, down_bps);
    let Identity { mac, outer, inner, session } = Identity::of(subscriber);
    let [a, b, c, d] = subscriber.to_be_bytes();
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    record.id = format!("cust-{subscriber}");
    record.matches.ipv4.extend(Ipv4Net::new(Ipv4Addr::from(0x6440_0000 | subscriber), 32));
    record.matches.ipv6.extend(Ipv6Net::new(Ipv6Addr::new(0x2001, 0xdb8, high, low, 0, 0, 0, 0), 64));
    let delegated =
        Ipv6Addr::new(0x2001, 0xdb9, u16::from_be_bytes([b, c]), u16::from_be_bytes([d, 0]), 0, 0, 0, 0);
    record.matches.ipv6.extend(Ipv6Net::new(delegated, 56));
    record.matches.vlan = Some(Vlan { outer, inner: Some(inner) });
    record.matches.pppoe = Some(Pppoe { session, mac: Some(MacAddr(mac)) });
    record.matches.port = Some("access".to_owned());
    record
}

/// Writes the time into a frame.
#[inline]
pub(super) fn stamp(frame: &mut [u8], units: u32) {
    if let Some(place) = frame.get_mut(STAMP_AT..STAMP_AT + 4) {
        place.copy_from_slice(&units.to_be_bytes());
    }
}

/// When a frame was sent and to whom.
#[inline]
pub(super) fn read(frame: &[u8]) -> Option<(u32, u32)> {
    let headers = frame.first_chunk::<60>()?;
    let [outer, inner] = [14, 18].map(|at| u32::from(headers[at]) << 8 | u32::from(headers[at + 1]));
    let stamp = u32::from_be_bytes([headers[56], headers[57], headers[58], headers[59]]);
    Some((outer.checked_sub(1)? * VIDS + inner.checked_sub(1)?, stamp))
}

/// Headers of a frame for nobody yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Template {
    headers: [u8; HEADERS],
    /// Bytes in memory.
    pub(super) bytes: u16,
}

impl Template {
    /// A frame of `size` with FCS; `ecn` is the field's two bits.
    pub(super) fn new(size: u16, ecn: u8) -> Self {
        let bytes = size.max(64) - FCS;
        let ip_bytes = bytes - 30;
        let mut headers = [0; HEADERS];
        let mut put = |at: usize, field: &[u8]| {
            for (to, from) in headers.iter_mut().skip(at).zip(field) {
                *to = *from;
            }
        };
        put(6, &[0x02, 0xff, 0, 0, 0, 1]);
        put(12, &[0x88, 0xa8]);
        put(16, &[0x81, 0x00]);
        put(20, &[0x88, 0x64, 0x11, 0]);
        put(26, &(ip_bytes + 2).to_be_bytes());
        put(28, &[0x00, 0x21]);
        let ip = ipv4(ip_bytes, ecn);
        put(IP_AT, &ip);
        put(IP_AT + 20, &[0x12, 0x34, 0x56, 0x78]);
        put(IP_AT + 24, &(ip_bytes - 20).to_be_bytes());
        Self { headers, bytes }
    }

    /// Writes the headers of a frame for a subscriber.
    #[inline]
    pub(super) fn write(&self, subscriber: u32, frame: &mut [u8]) {
        let Some(place) = frame.first_chunk_mut::<HEADERS>() else {
            return;
        };
        let Identity { mac, outer, inner, session } = Identity::of(subscriber);
        *place = self.headers;
        place[..6].copy_from_slice(&mac);
        place[14..16].copy_from_slice(&outer.to_be_bytes());
        place[18..20].copy_from_slice(&inner.to_be_bytes());
        place[24..26].copy_from_slice(&session.to_be_bytes());
    }
}

/// An IPv4 header with its checksum: UDP, 198.18.0.1 to 100.64.0.1 (RFC 2544's and RFC 6598's ranges).
fn ipv4(total_bytes: u16, ecn: u8) -> [u8; 20] {
    let [high, low] = total_bytes.to_be_bytes();
    let mut header = [0x45, ecn & 3, high, low, 0, 0, 0x40, 0, 64, 17, 0, 0, 198, 18, 0, 1, 100, 64, 0, 1];
    let sum: u32 = header.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let [high, low] = (!(u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(0))).to_be_bytes();
    header[10] = high;
    header[11] = low;
    header
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use wire::Kind;

    use super::*;

    fn frame(size: u16, ecn: u8, subscriber: u32) -> Vec<u8> {
        let template = Template::new(size, ecn);
        let mut frame = vec![0; usize::from(template.bytes)];
        template.write(subscriber, &mut frame);
        frame
    }

    proptest! {
        #[test]
        fn a_frame_parses_to_what_its_subscriber_matches(
            size in 64_u16..=2000, ecn in 0_u8..4, subscriber in 0..MOST_SUBSCRIBERS,
        ) {
            let frame = frame(size, ecn, subscriber);
            prop_assert_eq!(frame.len(), usize::from(size) - 4);
            let parsed = wire::parse(&frame, u32::from(size) - 4);
            prop_assert_eq!(parsed.kind, Kind::Ipv4);
            prop_assert_eq!(parsed.ecn_bits(), ecn);
            prop_assert_eq!(parsed.l3_bytes, size - 34);
            let matches = record(subscriber, 1_000_000).matches;
            let vlan = matches.vlan.unwrap();
            prop_assert_eq!(parsed.outer_vlan(), Some(vlan.outer));
            prop_assert_eq!(parsed.inner_vlan(), vlan.inner);
            if let Some(pppoe) = matches.pppoe {
                prop_assert_eq!(parsed.pppoe_session, Some(pppoe.session));
                prop_assert_eq!(pppoe.mac, Some(MacAddr(parsed.dst_mac)));
            }
        }

        #[test]
        fn the_header_checksum_holds(size in 64_u16..=2000, ecn in 0_u8..4) {
            let frame = frame(size, ecn, 7);
            let words = frame[IP_AT..IP_AT + 20].chunks_exact(2);
            let sum: u32 = words.map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
            prop_assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        }
    }

    #[test]
    fn a_frame_says_when_it_was_sent_and_to_whom() {
        let mut frame = frame(64, 1, 4_000_123);
        stamp(&mut frame, 0xdead_beef);
        assert_eq!(read(&frame), Some((4_000_123, 0xdead_beef)));
        assert_eq!(wire::parse(&frame, 60).kind, Kind::Ipv4, "and stays what it was");
    }

    #[test]
    fn examples_share_no_key() {
        let records: Vec<_> = (65_530..65_550).map(|subscriber| example(subscriber, 1_000_000)).collect();
        let keys: Vec<String> =
            records.iter().flat_map(|record| record.keys().map(|key| key.to_string())).collect();
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
        assert!(keys.len() >= 20 * 4);
    }

    #[test]
    fn no_two_subscribers_are_alike() {
        let pairs: BTreeSet<(u16, u16)> =
            (0..200_000).map(Identity::of).map(|identity| (identity.outer, identity.inner)).collect();
        assert_eq!(pairs.len(), 200_000);
        let (last, first) = (Identity::of(MOST_SUBSCRIBERS - 1), Identity::of(0));
        assert_eq!((first.outer, first.inner, last.outer, last.inner), (1, 1, 4094, 4094));
    }

    #[test]
    fn imix_is_seven_to_four_to_one() {
        let count = |size| IMIX.iter().filter(|&&is| is == size).count();
        assert_eq!((count(64), count(594), count(1518)), (7, 4, 1));
        assert_eq!((Sizes::Imix.mean(), Sizes::Fixed(64).mean()), (362, 64));
    }
}
