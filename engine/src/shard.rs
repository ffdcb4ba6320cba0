// SPDX-License-Identifier: Apache-2.0
//! A shard: the queue ids one lcore owns, from enqueue to departure.
//!
//! An id with packets stands on the wheel of one port, that of the packet it would send next; an id without
//! stands nowhere and costs nothing. When the next packet leaves by another port, the id moves to that port's
//! wheel and keeps its wait.
//!
//! Invariants: a packet that comes is sent, dropped and counted, or queued; an id with packets is on a wheel;
//! nothing here allocates after [`Shard::new`], but for the state of managed disciplines on changes, or panics on any sequence of calls: what makes no sense (a packet
//! or change for an id that is not there) is counted.

mod admission;
mod arrival;
mod changes;
mod express;
mod lane;
mod managed;
mod parents;
mod protected;
mod record;
mod stations;
mod tally;
mod visit;

use std::sync::Arc;

use aqm::{BitsPerSec, Nanos, Queue, QueueProtection, Stamp};

use crate::banks::{PiBanks, local_capacity};
use crate::budget::Budget;
use crate::counters::{RingDrops, ShardCounters};
use crate::packet::{Meta, Packet, PortId, QueueId};
use crate::parents::{NONE, ParentsShared, Tree};
use crate::port::PortShared;
use crate::profiles::Profiles;
use crate::slab::Slab;
use crate::snapshot::{QueuePart, QueueSnapshot};
use crate::split::Split;
use crate::wheel::slot_from;
use arrival::Admitted;
pub(crate) use express::Passed;
use lane::Lane;
use managed::Managed;
use record::{Records, SLOWED};
use stations::Stations;
use tally::Tally;

/// What a shard is built from.
#[derive(Clone, Debug)]
pub struct ShardOptions {
    /// Which shard this is, from 0.
    pub index: u32,
    /// How many there are; queue id `q` belongs to shard `q % shards`.
    pub shards: u32,
    /// Queue ids over all shards: they are below this.
    pub capacity: u32,
    /// Packet buffers this shard may hold.
    pub buffers: u32,
    /// Seed of every phase and roll.
    pub seed: u64,
    /// Seed of flow hashes: a secret where senders must not choose with whom they share a queue.
    pub flow_seed: u64,
    /// All profiles.
    pub profiles: Arc<Profiles>,
    /// This shard's PI banks.
    pub banks: Arc<PiBanks>,
    /// All ports, by [`PortId`].
    pub ports: Arc<[PortShared]>,
    /// This shard's sums.
    pub counters: Arc<ShardCounters>,
    /// What full rings kept from queue ids (all shards').
    pub ring_drops: Arc<RingDrops>,
    /// What the shards share of aggregates.
    pub parents: Arc<ParentsShared>,
}

/// Rate of an unknown queue and of control traffic where neither they nor their port have one.
const UNKNOWN_RATE: BitsPerSec = BitsPerSec(400_000_000_000);
const CONTROL_RATE: BitsPerSec = BitsPerSec(10_000_000);
/// Control traffic may take this part of its port: 1 %.
const CONTROL_PART: u64 = 100;
/// Burst of control traffic as time at its rate; never less than two full frames.
const CONTROL_BURST: Nanos = Nanos::from_millis(10);

/// Control and unknown ids that a shard may have for each port: each in both directions.
const RESERVED_PER_PORT: usize = 4;
/// The PI target in force is remembered in units of 1024 ns.
const TARGET_SHIFT: u32 = 10;

/// Wheel entries a lane has beyond one an id, for those that a change outdates: see [`Shard::unschedule`].
const fn spare_entries(ids: usize) -> usize {
    1_024 + ids / 16
}

/// A queue id of control or unknown traffic.
#[derive(Clone, Debug)]
struct Reserved {
    local: usize,
    port: PortId,
    /// Its rate is the port's.
    open: bool,
    /// Of control traffic.
    stations: Option<Stations>,
}

/// The queue ids one lcore owns.
#[derive(Debug)]
pub struct Shard<P: Packet> {
    options: ShardOptions,
    records: Records<P>,
    lanes: Box<[Lane]>,
    budget: Budget,
    tally: Tally,
    managed: Slab<Managed<P::Fifo>>,
    protections: Slab<QueueProtection>,
    reserved: Vec<Reserved>,
    tree: Tree,
    queued: u64,
    /// Ids of subscribers with packets, by direction.
    waiting: [u64; 2],
    /// Ids are links: see [`Self::as_links`].
    links: bool,
    split: Split,
    /// The latest time told.
    now: Nanos,
    misdirected: u64,
}

impl<P: Packet> Shard<P> {
    /// A shard without queue ids. All memory it will ever use is taken here, but for managed disciplines.
    pub fn new(options: ShardOptions) -> Self {
        let ids = local_capacity(options.index, options.shards, options.capacity);
        let entries = ids + spare_entries(ids);
        Self {
            records: Records::new(ids),
            lanes: options.ports.iter().map(|_| Lane::new(entries)).collect(),
            budget: Budget::new(options.buffers),
            tally: Tally::new(Arc::clone(&options.counters), ids),
            managed: Slab::new(),
            protections: Slab::new(),
            reserved: Vec::with_capacity(RESERVED_PER_PORT * options.ports.len()),
            tree: Tree::new(ids, options.ports.len(), Arc::clone(&options.parents)),
            queued: 0,
            waiting: [0; 2],
            links: false,
            split: Split::new(options.shards),
            now: Nanos::ZERO,
            misdirected: 0,
            options,
        }
    }

    /// Each id is a store-and-forward link of its rate instead of a shaped subscriber: no burst after idling, up to
    /// the 2 us of the wheel's slots. For the lab, whose published cases are links.
    #[must_use]
    pub fn as_links(mut self) -> Self {
        self.links = true;
        self
    }

    /// Nothing leaves `port` for `span` from now on, and nothing of it is made up for: its clock stands still for
    /// this shard. For the lab's bursty links.
    pub fn rest(&mut self, now: Nanos, port: PortId, span: Nanos) {
        let at = usize::from(port.0);
        if let (Some(lane), Some(shared)) = (self.lanes.get_mut(at), self.options.ports.get(at)) {
            lane.rest(shared, now, span);
        }
    }

    /// Asks the caches for what [`Self::passes`] will touch: for a burst, ask for all before the first.
    #[inline]
    pub fn prefetch(&self, meta: Meta) {
        if let Some(local) = self.local(meta.queue_id) {
            self.records.prefetch(local);
        }
    }

    /// The same for a packet that came a while ago: that is counted apart.
    #[inline]
    pub fn prefetch_later(&self, meta: Meta) {
        if let Some(local) = self.local(meta.queue_id) {
            self.records.prefetch(local);
            // most profiles know no other queue for it
            self.records.prefetch_line(local, aqm::classify(meta.ecn, meta.rule, true, false));
        }
    }

    /// An idle id comes back: on the wheel of `lane`, at the wheel's time. One that is still on a wheel (see
    /// [`Self::unschedule`]) stays there until it is looked at.
    #[inline]
    fn join(&mut self, now: Nanos, local: usize, lane: usize) {
        let record = &self.records[local];
        let scheduled = record.scheduled;
        let lane = if scheduled { usize::from(record.lane) } else { lane };
        self.change_lane(now, local, lane);
        let wheel_time = self.lanes[lane].time(&self.options.ports[lane], now);
        if self.records[local].node != NONE {
            return self.join_below(now, wheel_time, local);
        }
        let record = &mut self.records[local];
        if self.links {
            record.shaper.join_link(wheel_time);
        } else {
            record.shaper.join(wheel_time);
        }
        if !scheduled {
            let slot = slot_from(record.shaper.due());
            self.schedule(local, slot);
        }
    }

    /// Takes an id's wait over to another port's clock.
    #[inline]
    fn change_lane(&mut self, now: Nanos, local: usize, lane: usize) {
        let old = usize::from(self.records[local].lane);
        if old == lane {
            return;
        }
        if self.records[local].node != NONE {
            return self.change_lane_below(now, local, lane);
        }
        let ports = &self.options.ports;
        let from = self.lanes[old].time(&ports[old], now);
        let to = self.lanes[lane].time(&ports[lane], now);
        let record = &mut self.records[local];
        record.shaper.change_clock(from, to);
        // ports are numbered in 8 bits
        record.lane = u8::try_from(lane).unwrap_or(u8::MAX);
    }

    /// Puts an id on its wheel. Should the wheel refuse (it never does, it is as large as it needs to be), the
    /// id's next packet tries again.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "an id's place is below 2^32; slots are told apart by their low half"
    )]
    fn schedule(&mut self, local: usize, slot: u64) {
        let (record, warm) = self.records.both_mut(local);
        if let Some(slot) = self.lanes[usize::from(record.lane)].wheel.insert(local as u32, slot) {
            warm.slot = slot as u32;
            record.scheduled = true;
        }
    }

    /// Takes an id off its wheel. Its entry stays behind and is passed over when it comes up, if there is an
    /// entry to spare; else the id keeps it and is looked at then.
    fn unschedule(&mut self, local: usize) {
        if self.unpark(local) {
            return;
        }
        let spare = spare_entries(self.records.len());
        let record = &mut self.records[local];
        let lane = &mut self.lanes[usize::from(record.lane)];
        if record.scheduled && (lane.stale as usize) < spare {
            lane.stale += 1;
            record.scheduled = false;
        }
    }

    /// Tells the PI bank what waits, and the target that the served rate asks for.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "an id's place is below 2^32; targets are below 4 s")]
    fn watch(&mut self, local: usize) {
        let (record, warm) = self.records.both_mut(local);
        let Some(params) = self.options.profiles.get(record.profile) else {
            return;
        };
        let Some((place, bank)) = params.place.and_then(|at| Some((at, self.options.banks.get(at)?))) else {
            return;
        };
        let id = local as u32;
        let watched = params.watches(record.l(), record.c());
        if watched {
            let lane = &self.lanes[usize::from(record.lane)];
            let slowed = lane.is_slowed_below(&self.tree, record.node);
            // a target changes with the plan, see `assign`, and with the clocks
            if record.is_slowed() || slowed {
                record.set(SLOWED, slowed);
                let target = params.target(lane.served_below(&self.tree, record.node, record.plan()));
                let units = (target.0 >> TARGET_SHIFT) as u32;
                if units.abs_diff(warm.target) > warm.target / 8 {
                    warm.target = units;
                    bank.assign(id, place.profile, target);
                }
            }
            let head = |queue| warm.front::<P>(queue).map(|meta| meta.arrival);
            bank.publish(id, head(Queue::L4s), head(Queue::Classic));
        } else if record.watched {
            bank.publish(id, None, None);
        }
        record.watched = watched;
    }

    /// One consistent copy of a queue id's counters and state; `None` for an id not in use.
    pub fn snapshot(&mut self, id: QueueId) -> Option<QueueSnapshot> {
        let local = self.local(id)?;
        self.records.get(local).filter(|record| record.is_live())?;
        self.tally.fold_ring_drops(&mut self.records, local, self.options.ring_drops.take(id));
        let [l4s, classic] = self.tally.read(&self.records, local);
        let record = &self.records[local];
        let params = self.options.profiles.get(record.profile)?;
        let p_prime = params
            .place
            .and_then(|place| self.options.banks.get(place))
            .map(|bank| bank.p_prime(index(local)));
        let p_prime = p_prime.unwrap_or_default();
        Some(QueueSnapshot {
            l4s: QueuePart { counters: l4s, queued: record.l().packets.into() },
            classic: QueuePart { counters: classic, queued: record.c().packets.into() },
            p_prime,
            overload: params.discipline.pi().is_some_and(|pi| pi.is_overload(p_prime)),
        })
    }

    /// Packets queued.
    pub fn queued(&self) -> u64 {
        self.queued
    }

    /// Ids of subscribers that have packets queued, down and up.
    pub fn ids_waiting(&self) -> [u64; 2] {
        self.waiting
    }

    /// Packet buffers held.
    pub fn buffers_used(&self) -> u32 {
        self.budget.used()
    }

    /// Packets and changes that came for ids which are not there.
    pub fn misdirected(&self) -> u64 {
        self.misdirected
    }

    /// Times that a wheel had no room; 0 unless there is a bug.
    pub fn wheel_refused(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.wheel.refused()).sum()
    }

    /// More profiles, made [`with`](Profiles::with) those it has. Whoever calls keeps the old ones, so that
    /// nothing is freed here.
    pub fn set_profiles(&mut self, profiles: Arc<Profiles>) {
        if profiles.len() >= self.options.profiles.len() {
            self.options.profiles = profiles;
        }
    }

    /// What this shard was built from.
    pub fn options(&self) -> &ShardOptions {
        &self.options
    }

    /// The place of an id in this shard, if there is one.
    #[inline]
    fn local(&self, id: QueueId) -> Option<usize> {
        let (place, shard) = self.split.of(id);
        let local = place as usize;
        (shard == self.options.index && local < self.records.len()).then_some(local)
    }
}

/// Bytes of an id's records.
pub(crate) const fn record_bytes<P: Packet>() -> usize {
    record::bytes::<P>()
}

/// Bytes of a managed discipline's FIFOs.
pub(crate) const fn managed_bytes<P: Packet>(queues: u32) -> usize {
    managed::bytes::<P::Fifo>(queues)
}

/// A place as the PI bank counts it.
#[expect(clippy::cast_possible_truncation, reason = "places are below the capacity, a u32")]
const fn index(local: usize) -> u32 {
    local as u32
}

/// Units of 64 ns from an arrival to `now`, 0 where the stamps run backwards.
#[inline]
const fn delay_units(now: Stamp, arrival: Stamp) -> u32 {
    let units = now.0.wrapping_sub(arrival.0);
    if units.cast_signed() < 0 { 0 } else { units }
}
