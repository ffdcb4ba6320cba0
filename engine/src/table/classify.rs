// SPDX-License-Identifier: Apache-2.0
//! Whose packets a burst brings: the readers' side of the table.
//!
//! Down matches the destination address and MAC, up the source. A packet's keys are tried in this
//! order: PPPoE session with MAC, session alone, then the VLAN pair (prefixes inside it, then all of it), the
//! outer VLAN likewise, then prefixes in any encapsulation, longest first. A record's keys are those of
//! `model::keys`: prefixes and a session are further ways to match each other, a VLAN beside them is their scope.
//!
//! A burst is looked up in two passes, so that the cache misses of all its packets overlap: hash and prefetch, then
//! probe. Nothing allocates, nothing waits.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use arc_swap::ArcSwap;
use wire::{Bad, Kind, NotIp, Parsed};

use super::program::{Fields, Program, Step};
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
        Classifier { table: Arc::clone(&self.shared), peers: peers.into() }
    }
}

impl Classifier {
    /// Says whose each packet is, first to last. All came in by `ingress` and go `direction`.
    #[inline]
    pub fn classify(
        &self,
        ingress: PortId,
        direction: Direction,
        parsed: &[Parsed],
        mut tell: impl FnMut(&Parsed, Class),
    ) {
        let access = match direction {
            Direction::Down => self.peers.get(usize::from(ingress.0)).copied().unwrap_or(ingress),
            Direction::Up => ingress,
        };
        let table = self.table.load();
        let lookup = Lookup { table: &table, access, direction };
        for parsed in parsed.chunks(BURST) {
            lookup.burst(parsed, &mut tell);
        }
    }

    /// Whose one packet is.
    pub fn classify_one(&self, ingress: PortId, direction: Direction, parsed: &Parsed) -> Class {
        let mut class = Class::Control;
        self.classify(ingress, direction, std::slice::from_ref(parsed), |_, found| class = found);
        class
    }
}

/// What a burst is looked up with.
struct Lookup<'a> {
    table: &'a Table,
    access: PortId,
    direction: Direction,
}

/// What the first pass leaves of a packet for the second.
#[derive(Clone, Copy, Default)]
struct Ahead {
    /// Hashes of its first keys, whose buckets are on their way.
    hashes: [u64; AHEAD],
    count: usize,
    /// Steps behind them.
    steps: usize,
}

impl Lookup<'_> {
    #[inline]
    fn burst(&self, parsed: &[Parsed], tell: &mut impl FnMut(&Parsed, Class)) {
        let generation = self.table.generation.load(Acquire);
        let program = self.table.program.load();
        let mut ahead = [Ahead::default(); BURST];
        for (parsed, ahead) in parsed.iter().zip(&mut ahead) {
            if let Class::Unknown(_) = unmatched(parsed.kind) {
                self.look_ahead(&program, parsed, ahead);
            }
        }
        for (parsed, ahead) in parsed.iter().zip(&ahead) {
            let mut class = unmatched(parsed.kind);
            if let Class::Unknown(_) = class
                && let Some(down) = self.find(&program, parsed, ahead, generation)
            {
                // the pair of queue ids of a subscriber differs in the lowest bit
                class = Class::Subscriber(QueueId(down ^ self.direction as u32));
            }
            tell(parsed, class);
        }
    }

    /// Hashes a packet's first keys and asks for their buckets. Fills `ahead` in place: returned by value it would be
    /// copied at a width other than it was written in, which stalls.
    #[inline]
    fn look_ahead(&self, program: &Program, parsed: &Parsed, ahead: &mut Ahead) {
        let fields = Fields::of(parsed, self.direction, self.access);
        let (mut count, mut steps) = (0, 0);
        for step in program.steps(parsed.kind) {
            if let Some(key) = step.key(&fields) {
                let Some(place) = ahead.hashes.get_mut(count) else { break };
                *place = self.table.seed.hash(&key);
                mem::prefetch(self.table.buckets.line_of(*place));
                count += 1;
            }
            steps += 1;
        }
        (ahead.count, ahead.steps) = (count, steps);
    }

    /// The down queue id of a packet.
    #[inline]
    fn find(&self, program: &Program, parsed: &Parsed, ahead: &Ahead, generation: u64) -> Option<u32> {
        if ahead.count == 0 {
            return self.find_more(program, parsed, ahead, generation);
        }
        let buckets = &self.table.buckets;
        let [first, second, others @ ..] = &ahead.hashes;
        let seen = buckets.glance(*first);
        let seen = if ahead.count > 1 { seen.or(buckets.glance(*second)) } else { seen };
        if seen.is_doubtful() {
            return self.find_slowly(program, parsed, ahead, generation);
        }
        if let Some(down) = seen.value() {
            return Some(down);
        }
        let mut others = others.iter().take(ahead.count.saturating_sub(2));
        if let Some(down) = others.find_map(|&hash| buckets.get(hash)) {
            return Some(down);
        }
        self.find_more(program, parsed, ahead, generation)
    }

    /// The same, one key after the other.
    #[cold]
    fn find_slowly(&self, program: &Program, parsed: &Parsed, ahead: &Ahead, generation: u64) -> Option<u32> {
        let mut hashes = ahead.hashes.iter().take(ahead.count);
        let found = hashes.find_map(|&hash| self.table.buckets.get(hash));
        found.or_else(|| self.find_more(program, parsed, ahead, generation))
    }

    /// By the keys that were not looked ahead for.
    fn find_more(&self, program: &Program, parsed: &Parsed, ahead: &Ahead, generation: u64) -> Option<u32> {
        let more = program.steps(parsed.kind).get(ahead.steps..).unwrap_or_default();
        let found = if more.is_empty() { None } else { self.walk(more, parsed) };
        found.or_else(|| self.look_again(parsed, generation))
    }

    /// Tries keys one after the other.
    fn walk(&self, steps: &[Step], parsed: &Parsed) -> Option<u32> {
        let fields = Fields::of(parsed, self.direction, self.access);
        let keys = steps.iter().filter_map(|step| step.key(&fields));
        keys.map(|key| self.table.seed.hash(&key)).find_map(|hash| self.table.buckets.get(hash))
    }

    /// A key that covered the packet may have made way for another since the program was read.
    fn look_again(&self, parsed: &Parsed, mut generation: u64) -> Option<u32> {
        loop {
            let now = self.table.generation.load(Acquire);
            if now == generation {
                return None;
            }
            generation = now;
            let program = self.table.program.load();
            if let Some(down) = self.walk(program.steps(parsed.kind), parsed) {
                return Some(down);
            }
        }
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
