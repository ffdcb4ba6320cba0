// SPDX-License-Identifier: Apache-2.0
//! Whose packets a burst brings: the readers' side of the table.
//!
//! Down matches the destination address and MAC, up the source. A packet's keys are tried in the order of
//! [`Group`]: PPPoE session with MAC, session alone, then the VLAN pair (prefixes inside it, then all of it), the
//! outer VLAN likewise, then prefixes in any encapsulation, longest first. A record's keys are those of
//! `model::keys`: prefixes and a session are further ways to match each other, a VLAN beside them is their scope.
//!
//! A burst is looked up in two passes, so that the cache misses of all its packets overlap: hash and prefetch, then
//! probe. Nothing allocates, nothing waits.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use arc_swap::ArcSwap;
use wire::{Bad, Kind, NotIp, Parsed};

use super::key::{Family, Group, Key};
use super::lengths::Lengths;
use super::{Table, TableWriter};
use crate::change::Direction;
use crate::packet::{PortId, QueueId};

/// Packets looked up together; longer bursts are cut.
const BURST: usize = 32;
/// Keys of a packet whose buckets are prefetched; those beyond are looked up one after the other.
const AHEAD: usize = 4;

/// Whose a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A subscriber's; the queue id of the direction asked for.
    Subscriber(QueueId),
    /// Nobody's.
    Unknown(UnknownKind),
    /// Control traffic, whoever's.
    Control,
    /// A frame that contradicts itself.
    Bad(Bad),
}

/// What matched nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnknownKind {
    /// An IPv4 packet.
    Ipv4,
    /// An IPv6 packet.
    Ipv6,
    /// A frame that is not IP.
    NotIp(NotIp),
}

impl UnknownKind {
    /// Its name in counters and JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ipv4 => "unknown_ipv4",
            Self::Ipv6 => "unknown_ipv6",
            Self::NotIp(kind) => kind.label(),
        }
    }
}

/// A reader of the table; one for each RX lcore.
#[derive(Clone, Debug)]
pub struct Classifier {
    table: Arc<ArcSwap<Table>>,
    /// Where packets from each port leave.
    peers: Arc<[PortId]>,
}

impl TableWriter {
    /// A reader; `peers` tells for each port where its packets leave.
    pub(crate) fn reader(&self, peers: &[PortId]) -> Classifier {
        Classifier {
            table: Arc::clone(&self.shared),
            peers: peers.into(),
        }
    }
}

impl Classifier {
    /// Says whose each packet is. All came in by `ingress` and go `direction`; `out` has a place for each.
    pub fn classify(&self, ingress: PortId, direction: Direction, parsed: &[Parsed], out: &mut [Class]) {
        debug_assert_eq!(parsed.len(), out.len(), "a place for each packet");
        let access = match direction {
            Direction::Down => self.peers.get(usize::from(ingress.0)).copied().unwrap_or(ingress),
            Direction::Up => ingress,
        };
        let table = self.table.load();
        let lookup = Lookup {
            table: &table,
            access,
            direction,
        };
        for (parsed, out) in parsed.chunks(BURST).zip(out.chunks_mut(BURST)) {
            lookup.burst(parsed, out);
        }
    }

    /// Whose one packet is.
    pub fn classify_one(&self, ingress: PortId, direction: Direction, parsed: &Parsed) -> Class {
        let mut class = [Class::Control];
        self.classify(ingress, direction, std::slice::from_ref(parsed), &mut class);
        let [class] = class;
        class
    }
}

/// What a burst is looked up with.
struct Lookup<'a> {
    table: &'a Table,
    access: PortId,
    direction: Direction,
}

impl Lookup<'_> {
    fn burst(&self, parsed: &[Parsed], out: &mut [Class]) {
        let generation = self.table.generation.load(Acquire);
        let mut ahead = [[0_u64; AHEAD]; BURST];
        for ((parsed, class), ahead) in parsed.iter().zip(out.iter_mut()).zip(&mut ahead) {
            *class = unmatched(parsed.kind);
            if let Class::Unknown(_) = class {
                for (hash, place) in self.probes(parsed).zip(ahead) {
                    mem::prefetch(self.table.buckets.line_of(hash));
                    *place = hash;
                }
            }
        }
        for ((parsed, class), ahead) in parsed.iter().zip(out).zip(&ahead) {
            if let Class::Unknown(_) = class
                && let Some(down) = self.find(parsed, ahead, generation)
            {
                // the pair of queue ids of a subscriber differs in the lowest bit
                *class = Class::Subscriber(QueueId(down ^ self.direction as u32));
            }
        }
    }

    /// The down queue id of a packet; hashes are never 0, which ends `ahead`.
    fn find(&self, parsed: &Parsed, ahead: &[u64; AHEAD], mut generation: u64) -> Option<u32> {
        for &hash in ahead.iter().take_while(|&&hash| hash != 0) {
            if let Some(down) = self.table.buckets.get(hash) {
                return Some(down);
            }
        }
        let mut skip = AHEAD;
        loop {
            if (skip == 0 || ahead.last().is_some_and(|&last| last != 0))
                && let Some(down) = self
                    .probes(parsed)
                    .skip(skip)
                    .find_map(|hash| self.table.buckets.get(hash))
            {
                return Some(down);
            }
            // a key that covered the packet may have made way for another since the keys in use were read
            let now = self.table.generation.load(Acquire);
            if now == generation {
                return None;
            }
            (generation, skip) = (now, 0);
        }
    }

    fn probes<'a>(&'a self, parsed: &'a Parsed) -> Probes<'a> {
        Probes::new(self, parsed)
    }
}

/// What a packet is while no subscriber is found.
#[inline]
fn unmatched(kind: Kind) -> Class {
    match kind {
        Kind::Ipv4 => Class::Unknown(UnknownKind::Ipv4),
        Kind::Ipv6 => Class::Unknown(UnknownKind::Ipv6),
        Kind::NotIp(kind) => Class::Unknown(UnknownKind::NotIp(kind)),
        Kind::Control(_) => Class::Control,
        Kind::Bad(reason) => Class::Bad(reason),
    }
}

const fn bits(groups: &[Group]) -> u32 {
    let mut bits = 0;
    let mut place = 0;
    #[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
    while place < groups.len() {
        bits |= 1 << groups[place] as u32;
        place += 1;
    }
    bits
}

/// Groups that ask for a PPPoE session.
const SESSION: u32 = bits(&[
    Group::SessionMacInPair,
    Group::SessionMacInOuter,
    Group::SessionMac,
    Group::SessionInPair,
    Group::SessionInOuter,
    Group::Session,
]);
/// Groups that ask for two VLAN tags.
const PAIR: u32 = bits(&[
    Group::SessionMacInPair,
    Group::SessionInPair,
    Group::PrefixInPair,
    Group::Pair,
]);
/// Groups that ask for a VLAN tag.
const OUTER: u32 = bits(&[
    Group::SessionMacInOuter,
    Group::SessionInOuter,
    Group::PrefixInOuter,
    Group::Outer,
]) | PAIR;
/// Groups that ask for an address.
const PREFIX: u32 = bits(&[Group::PrefixInPair, Group::PrefixInOuter, Group::Prefix]);

/// The hashes of a packet's keys, in the order of precedence; only those of kinds and lengths in use.
struct Probes<'a> {
    lookup: &'a Lookup<'a>,
    parsed: &'a Parsed,
    /// Groups still to come, any port and limited to one together.
    groups: u32,
    /// Groups with keys for any port, and 16 bits up with keys limited to one.
    in_use: u32,
    /// The prefix group under way.
    prefix: Option<PrefixWalk>,
    /// The hash for any port, where that for the port came first.
    any_port: Option<u64>,
}

/// Lengths of a prefix group still to come.
struct PrefixWalk {
    key: Key,
    family: Family,
    left: Lengths,
    any: Lengths,
    ported: Lengths,
}

impl<'a> Probes<'a> {
    #[inline]
    fn new(lookup: &'a Lookup<'a>, parsed: &'a Parsed) -> Self {
        let in_use = lookup.table.in_use.groups();
        let mut groups = (in_use | in_use >> 16) & 0xffff;
        if parsed.pppoe_session.is_none() {
            groups &= !SESSION;
        }
        match parsed.vlan_count {
            0 => groups &= !OUTER,
            1 => groups &= !PAIR,
            _ => {}
        }
        if !matches!(parsed.kind, Kind::Ipv4 | Kind::Ipv6) {
            groups &= !PREFIX;
        }
        Self {
            lookup,
            parsed,
            groups,
            in_use,
            prefix: None,
            any_port: None,
        }
    }

    /// The hash of a key limited to the port, or for any, or the first now and the second next.
    #[inline]
    fn hashes(&mut self, key: Key, any: bool, ported: bool) -> Option<u64> {
        let seed = &self.lookup.table.seed;
        let plain = any.then(|| seed.hash(&key));
        if ported {
            self.any_port = plain;
            Some(seed.hash(&key.port(self.lookup.access)))
        } else {
            plain
        }
    }

    /// The packet's key of a group, without an address.
    #[inline]
    fn key(&self, group: Group) -> Key {
        let parsed = self.parsed;
        let bit = 1 << group as u32;
        let mut key = Key::new(group);
        if bit & SESSION != 0 {
            key = key.session(parsed.pppoe_session.unwrap_or(0));
            if group <= Group::SessionMac {
                key = key.mac(match self.lookup.direction {
                    Direction::Down => parsed.dst_mac,
                    Direction::Up => parsed.src_mac,
                });
            }
        }
        if bit & OUTER != 0 {
            key = key.outer(parsed.outer_vlan().unwrap_or(0));
        }
        if bit & PAIR != 0 {
            key = key.inner(parsed.inner_vlan().unwrap_or(0));
        }
        key
    }

    #[inline]
    fn next_length(&mut self) -> Option<u64> {
        let walk = self.prefix.as_mut()?;
        let Some(length) = walk.left.pop_longest() else {
            self.prefix = None;
            return None;
        };
        let address = match self.lookup.direction {
            Direction::Down => self.parsed.dst,
            Direction::Up => self.parsed.src,
        };
        let key = walk.key.prefix(walk.family, length, address);
        let (any, ported) = (walk.any.contains(length), walk.ported.contains(length));
        self.hashes(key, any, ported)
    }
}

impl Iterator for Probes<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        if let Some(hash) = self.any_port.take() {
            return Some(hash);
        }
        loop {
            if let Some(hash) = self.next_length() {
                return Some(hash);
            }
            let group = *Group::ALL.get(self.groups.trailing_zeros() as usize)?;
            self.groups &= self.groups - 1;
            let key = self.key(group);
            if let Some(scope) = group.prefix_scope() {
                let family = if self.parsed.kind == Kind::Ipv4 {
                    Family::V4
                } else {
                    Family::V6
                };
                let [any, ported] = self.lookup.table.in_use.lengths(scope, family);
                self.prefix = Some(PrefixWalk {
                    key,
                    family,
                    left: any.or(ported),
                    any,
                    ported,
                });
            } else {
                let bit = 1 << group as u32;
                let hash = self.hashes(key, self.in_use & bit != 0, self.in_use >> 16 & bit != 0);
                if hash.is_some() {
                    return hash;
                }
            }
        }
    }
}
