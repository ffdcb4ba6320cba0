// SPDX-License-Identifier: Apache-2.0
//! A link with an AQM: one queue id of an `engine::Shard`, its PI banks ticked in virtual time.
//!
//! The shard stands for a store-and-forward link: no burst after idling ([`Shard::as_links`]) and no port shaper.
//! Departures still fall on the 2.048 us slots of the engine's wheel; what a packet waits for a slot is made up for by
//! the next, so the rate is exact and a delay at most 2 us too long.
//!
//! Invariant: arrived = forwarded + dropped + queued, asked of the engine's own counters by [`Line::totals`].

use std::collections::BTreeMap;
use std::sync::Arc;

use aqm::{BitsPerSec, Ecn, FlowKey, Nanos, Pace, Prob, Queue, Rule, Stamp};
use engine::{
    Change, Direction, Meta, PiBanks, PortId, PortShared, Profiles, QueueId, QueueKind, QueueSpec, RingDrops,
    Shard, ShardCounters, ShardOptions, line_bytes,
};
use model::Profile;
use model::profile::{Aqm, Compat, Overhead};

use super::parcel::Parcel;
use crate::Error;

/// Buffers: more than any limit lets a queue hold.
const BUFFERS: u32 = 1 << 30;
/// The only queue id, and the only port.
const ID: QueueId = QueueId(0);
const PORT: PortId = PortId(0);
/// Should the engine have more to do at one moment than one call does, it is asked again this much later.
const RETRY: Nanos = Nanos::from_micros(2);

/// What a link is built from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineOptions<'p> {
    pub(crate) profile: &'p Profile,
    /// Its rate while it sends.
    pub(crate) rate: BitsPerSec,
    pub(crate) seed: u64,
    pub(crate) now: Nanos,
}

/// What a packet is, for the link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label {
    pub(crate) flow: u32,
    #[expect(dead_code, reason = "asked for by disciplines with queues of their own")]
    pub(crate) key: FlowKey,
    pub(crate) ecn: Ecn,
    pub(crate) packet_bytes: u32,
}

/// Counts of one queue since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) arrived: u64,
    pub(crate) forwarded: u64,
    pub(crate) dropped: u64,
    pub(crate) queued: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Line<T: Copy> {
    shard: Shard<Parcel<T>>,
    banks: Arc<PiBanks>,
    out: Vec<Parcel<T>>,
    spec: QueueSpec,
    pace: Pace,
    overhead: Overhead,
    /// When a packet may leave; never while none waits.
    next: Nanos,
    /// When a PI bank is due.
    tick: Nanos,
    p_prime: Prob,
    pi: Option<PiLimit>,
    l_takes: [bool; 4],
}

/// When the PI controller has a say: see `DualPi2Params::pi_applies`.
#[derive(Clone, Copy, Debug)]
struct PiLimit {
    bytes: u64,
    /// The kernel leaves out the packet just taken.
    linux: bool,
}

impl<T: Copy> Line<T> {
    /// An idle link.
    pub(crate) fn new(options: &LineOptions<'_>) -> Result<Self, Error> {
        let LineOptions { profile, rate, seed, now } = *options;
        let by_name = BTreeMap::from([("lab".to_owned(), profile.clone())]);
        let profiles = Arc::new(Profiles::new(&by_name)?);
        let banks = Arc::new(PiBanks::new(&profiles, 0, 1, 1));
        let shard = Shard::new(ShardOptions {
            index: 0,
            shards: 1,
            capacity: 1,
            buffers: BUFFERS,
            seed,
            flow_seed: seed,
            profiles,
            banks: Arc::clone(&banks),
            ports: Arc::new([PortShared::new(None)]),
            counters: Arc::new(ShardCounters::default()),
            ring_drops: Arc::new(RingDrops::new(1)),
            parents: Arc::default(),
        });
        let spec = QueueSpec {
            rate,
            profile: 0,
            direction: Direction::Down,
            egress_hint: PORT,
            kind: QueueKind::Subscriber,
            parent: None,
        };
        let mut line = Self {
            shard: shard.as_links(),
            banks,
            out: Vec::with_capacity(1),
            spec,
            pace: Pace::of(rate),
            overhead: profile.overhead,
            next: Nanos::MAX,
            tick: now,
            p_prime: Prob::ZERO,
            pi: pi_limit(profile),
            l_takes: l_takes(profile),
        };
        line.shard.apply(now, Change::Create { id: ID, spec });
        line.tick(now);
        Ok(line)
    }

    /// When something happens here: a tick or a departure.
    #[inline]
    pub(crate) fn due(&self) -> Nanos {
        self.next.min(self.tick)
    }

    /// A packet comes.
    #[inline]
    pub(crate) fn arrive(&mut self, now: Nanos, label: Label, load: T) {
        let meta = Meta {
            queue_id: ID,
            arrival: Stamp::at(now),
            // at most a jumbo frame
            l3_bytes: u16::try_from(label.packet_bytes.saturating_sub(crate::ETHERNET_HEADER))
                .unwrap_or(u16::MAX),
            ip_offset: 14,
            ecn: label.ecn,
            rule: Rule::None,
            egress: PORT,
        };
        self.shard.enqueue(now, Parcel::new(meta, label.packet_bytes, label.flow, now, load));
        if self.next == Nanos::MAX {
            self.look();
        }
    }

    fn look(&mut self) {
        self.next = self.shard.next_event(PORT).unwrap_or(Nanos::MAX);
    }

    /// PI ticks that are due; whether any was.
    pub(crate) fn tick(&mut self, now: Nanos) -> bool {
        if self.tick > now {
            return false;
        }
        let mut next = Nanos::MAX;
        for bank in 0..self.banks.len() {
            if self.banks.due(bank) <= now {
                self.banks.update(bank, now, &mut |_, _| {});
            }
            next = next.min(self.banks.due(bank).max(now + Nanos(1)));
        }
        self.tick = next;
        self.p_prime = self.shard.snapshot(ID).map(|snapshot| snapshot.p_prime).unwrap_or_default();
        true
    }

    /// The packet that leaves now, if one does. Ask when a departure is due; how many were dropped instead is what
    /// `queued` tells before and after.
    #[inline]
    pub(crate) fn depart(&mut self, now: Nanos) -> Option<Parcel<T>> {
        self.shard.dequeue(now, PORT, &mut self.out, 1);
        let parcel = self.out.pop();
        self.look();
        if parcel.is_none() && self.next <= now {
            self.next = now + RETRY;
        }
        parcel
    }

    /// Another rate.
    pub(crate) fn set_rate(&mut self, now: Nanos, rate: BitsPerSec) {
        self.spec.rate = rate;
        self.pace = Pace::of(rate);
        self.shard.apply(now, Change::Update { id: ID, spec: self.spec });
        self.look();
    }

    /// Sends nothing for `span` from now on.
    pub(crate) fn rest(&mut self, now: Nanos, span: Nanos) {
        self.shard.rest(now, PORT, span);
        self.look();
    }

    /// How long a packet takes on the wire.
    #[inline]
    pub(crate) fn serialisation(&self, parcel: &Parcel<T>) -> Nanos {
        let l3_bytes = engine::Packet::meta(parcel).l3_bytes;
        self.pace.time(u64::from(line_bytes(self.overhead, l3_bytes)))
    }

    /// Packets waiting.
    #[inline]
    pub(crate) fn queued(&self) -> u64 {
        self.shard.queued()
    }

    /// p' as it applies to packets of `bytes` with this many behind: 0 where the PI controller has no say.
    #[inline]
    pub(crate) fn p_prime(&self, bytes: u32, behind: u64) -> Prob {
        match self.pi {
            Some(limit) if u64::from(bytes) * (behind + u64::from(!limit.linux)) >= limit.bytes => {
                self.p_prime
            }
            _ => Prob::ZERO,
        }
    }

    /// The queue that takes a packet of this codepoint.
    #[inline]
    pub(crate) fn queue_of(&self, ecn: Ecn) -> Queue {
        if self.l_takes[ecn as usize] { Queue::L4s } else { Queue::Classic }
    }

    /// Counts of L and C.
    pub(crate) fn totals(&mut self) -> [Totals; 2] {
        let Some(snapshot) = self.shard.snapshot(ID) else { return Default::default() };
        [&snapshot.l4s, &snapshot.classic].map(|part| Totals {
            arrived: part.counters.arrived_packets(),
            forwarded: part.counters.forwarded_packets(),
            dropped: part.counters.dropped_packets(),
            queued: part.queued,
        })
    }
}

fn pi_limit(profile: &Profile) -> Option<PiLimit> {
    let (Aqm::DualPi2(keys) | Aqm::Pi2(keys)) = &profile.aqm else { return None };
    Some(PiLimit { bytes: 2 * u64::from(profile.mtu), linux: keys.compat == Compat::Linux })
}

/// Which codepoints L takes, by their value; only `dualpi2` has an L queue.
fn l_takes(profile: &Profile) -> [bool; 4] {
    let Aqm::DualPi2(keys) = &profile.aqm else { return [false; 4] };
    let mut takes = [false; 4];
    takes[Ecn::Ect1 as usize] = profile.l4s;
    takes[Ecn::Ce as usize] = profile.l4s;
    takes[Ecn::Ect0 as usize] = profile.l4s && keys.any_ect;
    takes
}
