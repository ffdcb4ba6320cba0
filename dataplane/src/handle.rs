// SPDX-License-Identifier: Apache-2.0
//! The control side's hold on a running data plane. Any thread but an lcore may call it.
//!
//! Invariant: lcores are reached only through rings and read only through published counters; nothing here can
//! make one wait. A change goes in this order: what is new or different to its shards, then the lookup table, and
//! removals once no RX lcore can hold an old answer and no ring an old packet. A batch for which ids are missing only
//! because they have not come back from a removal, an earlier one or its own, waits for them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use aqm::{BitsPerSec, Nanos};
use dpdk::{Mempool, Port};
use engine::{
    Change, OverloadEvent, ParentId, ParentSnapshot, ParentUse, ParentsShared, PiBanks, PortShared, QueueId,
    QueueSnapshot, RecordEdit, Registry, RegistryError, Routed, RxCounters, ShardCounters, Ticket,
};
use mem::Tsc;
use model::config::Classify;
use model::stats::{DirectionStats, EventKind, LcoreRole, SubscriberStats};
use model::{Parent, Subscriber};

use crate::aggregates;
use crate::control::ControlCounters;
use crate::error::{ApplyError, ProfilesError};
use crate::figures::shown;
use crate::kinds::KindCounters;
use crate::lcore::{LcoreShared, Phase, PhaseCell, STALL};
use crate::memory::RING;
use crate::rx::{BURST, PortCounters, RxRules, SharedRules};
use crate::sweeps::Sweeps;
use crate::tx::{Held, Order, Reply};
use crate::usage::Usage;
use crate::watch::{self, LcoreWatches};

/// Longest wait for an lcore to take or answer something.
const PATIENCE: Duration = Duration::from_secs(2);
/// An lcore that runs answers within a loop or two: for so long it is not worth sleeping.
const SOON: Nanos = Nanos(20_000);
/// Ids of removed subscribers that do not come back.
const LATE: ApplyError =
    ApplyError::Unavailable("an lcore has not let go of removed subscribers, whose place is wanted");
/// Ids that take another profile under one hold of the desk.
const FOLLOW: usize = 4096;
/// Loops after which a TX lcore has emptied what was in its rings: each takes a burst from each.
const ROUNDS_TO_EMPTY: u64 = RING as u64 / BURST as u64 + 2;

/// Changes of records that are made together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Subscribers that go.
    pub removes: Vec<String>,
    /// Aggregates that come or change, in any order.
    pub parents: Vec<Parent>,
    /// Subscribers that come or change.
    pub puts: Vec<Subscriber>,
    /// Aggregates that go.
    pub parent_removes: Vec<String>,
}

/// The control side's hold on a data plane; clones are the same.
#[derive(Clone)]
pub struct Handle(pub(crate) Arc<Inner>);

/// A port as the control side sees it.
pub(crate) struct PortEntry {
    pub(crate) config: model::config::Port,
    /// The configured rate in force; 0: none.
    pub(crate) rate_bps: AtomicU64,
    pub(crate) peer: String,
    pub(crate) port: Port,
    pub(crate) rx: Vec<Arc<PortCounters>>,
    pub(crate) tx: Vec<Arc<PortCounters>>,
    /// One for each shard.
    pub(crate) lost: Vec<Arc<engine::Counter>>,
}

impl PortEntry {
    /// The configured rate in force.
    pub(crate) fn rate_bps(&self) -> Option<u64> {
        Some(self.rate_bps.load(Relaxed)).filter(|&bps| bps > 0)
    }
}

/// All that is shared.
pub(crate) struct Inner {
    pub(crate) clock: Tsc,
    pub(crate) phase: PhaseCell,
    pub(crate) lcores: Vec<Arc<LcoreShared>>,
    pub(crate) ports: Vec<PortEntry>,
    pub(crate) shared_ports: Arc<[PortShared]>,
    pub(crate) rules: SharedRules,
    pub(crate) shards: Vec<Arc<ShardCounters>>,
    pub(crate) held: Vec<Arc<Held>>,
    pub(crate) rx: Vec<(Arc<RxCounters>, Arc<KindCounters>)>,
    pub(crate) control: Arc<ControlCounters>,
    /// Of each shard.
    pub(crate) banks: Vec<Arc<PiBanks>>,
    pub(crate) pools: Vec<Mempool>,
    pub(crate) desk: Mutex<Desk>,
    /// What subscribers and aggregates used.
    pub(crate) usage: Mutex<Sweeps<Option<Usage>>>,
    pub(crate) parent_usage: Mutex<Sweeps<Option<ParentUse>>>,
    /// Never held while waiting for an lcore.
    pub(crate) lcore_watches: Mutex<LcoreWatches>,
    /// Overload episodes, down and up.
    pub(crate) episodes: [AtomicU64; 2],
    pub(crate) configured: AtomicU64,
    /// What the shards share of aggregates, and how many there are.
    pub(crate) parents: Arc<ParentsShared>,
    pub(crate) parents_configured: AtomicU64,
}

/// What one caller at a time uses.
pub(crate) struct Desk {
    pub(crate) registry: Registry,
    pub(crate) shards: Vec<ShardDesk>,
    pub(crate) overloads: rtrb::Consumer<OverloadEvent>,
    pub(crate) leaving: VecDeque<Leaving>,
    /// What goes before all else, for a shard each: what undoes changes that failed halfway, and new profiles.
    pub(crate) debts: VecDeque<(usize, Order)>,
}

impl Desk {
    /// Sends what goes before all else; whether all of it is sent.
    fn pay_debts(&mut self) -> bool {
        while let Some((shard, order)) = self.debts.pop_front() {
            let Some(to) = self.shards.get_mut(shard) else { return false };
            if let Err(rtrb::PushError::Full(order)) = to.orders.push(order) {
                self.debts.push_front((shard, order));
                return false;
            }
        }
        true
    }

    /// Steps that removals still have before them.
    fn on_their_way(&self) -> usize {
        self.leaving.iter().map(|group| group.after.len() + 1).sum()
    }
}

/// The control side's ends of a shard's rings.
pub(crate) struct ShardDesk {
    pub(crate) orders: rtrb::Producer<Order>,
    pub(crate) replies: rtrb::Consumer<Reply>,
}

/// Removals on their way: first until no packet can come for them, then until the shards have applied them. There
/// are no more of them than ids.
pub(crate) struct Leaving {
    after: Vec<(usize, Change)>,
    ticket: Ticket,
    /// Loops that each packet lcore must have made.
    until: Vec<u64>,
    sent: bool,
}

impl Leaving {
    /// Sends as many as find room; whether that was all.
    fn send(&mut self, shards: &mut [ShardDesk]) -> bool {
        while let Some(&(shard, change)) = self.after.last() {
            let Some(shard) = shards.get_mut(shard) else { return false };
            if shard.orders.push(Order::Change(change)).is_err() {
                return false;
            }
            self.after.pop();
        }
        true
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // what a panicking caller left is still sound: plans change nothing until they are committed
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn if_free<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a control thread waits for an lcore; this file owns that wait"
)]
fn pause() {
    std::thread::sleep(Duration::from_micros(50));
}

impl Inner {
    pub(crate) fn now(&self) -> Nanos {
        Nanos(self.clock.now())
    }

    pub(crate) fn desk(&self) -> MutexGuard<'_, Desk> {
        lock(&self.desk)
    }

    pub(crate) fn lcore_watches(&self) -> MutexGuard<'_, LcoreWatches> {
        lock(&self.lcore_watches)
    }

    /// Waits until `done`, at most `PATIENCE`; whether it was.
    pub(crate) fn wait(&self, mut done: impl FnMut() -> bool) -> bool {
        let end = self.now() + Nanos(u64::try_from(PATIENCE.as_nanos()).unwrap_or(u64::MAX));
        let soon = self.now() + SOON;
        loop {
            if done() {
                return true;
            }
            let now = self.now();
            if now > end || self.phase.get() >= Phase::Drain {
                return false;
            }
            if now < soon {
                std::hint::spin_loop();
            } else {
                pause();
            }
        }
    }

    /// Loops each packet lcore will have made once it has made `more`. The control lcore holds no packet.
    fn rounds_from_now(&self, more: u64) -> Vec<u64> {
        self.packet_lcores().map(|lcore| lcore.rounds() + more).collect()
    }

    fn have_passed(&self, until: &[u64]) -> bool {
        self.packet_lcores().zip(until).all(|(lcore, &until)| lcore.rounds() >= until)
    }

    fn packet_lcores(&self) -> impl Iterator<Item = &LcoreShared> {
        self.lcores.iter().map(AsRef::as_ref).filter(|lcore| lcore.role != LcoreRole::Control)
    }

    /// Lcores that have not been seen for too long, or not yet.
    pub(crate) fn silent(&self, now: Nanos) -> impl Iterator<Item = &LcoreShared> {
        self.lcores
            .iter()
            .map(AsRef::as_ref)
            .filter(move |lcore| lcore.last_seen().is_none_or(|at| now.since(at) > STALL))
    }

    /// Whether no RX lcore puts anything into a ring any more.
    pub(crate) fn rx_has_ended(&self) -> bool {
        self.lcores.iter().filter(|lcore| lcore.role == LcoreRole::Rx).all(|lcore| lcore.has_ended())
    }

    /// An lcore that ended before it was told to.
    pub(crate) fn dead(&self) -> Option<&LcoreShared> {
        let running = self.phase.get() < Phase::Drain;
        self.lcores.iter().map(AsRef::as_ref).find(|lcore| running && lcore.has_ended())
    }

    /// Whether every lcore that owns a shard has been seen lately.
    fn shards_answer(&self) -> bool {
        self.silent(self.now()).all(|lcore| lcore.shard.is_none())
    }

    /// Sends an order, waiting for room.
    pub(crate) fn send(&self, desk: &mut ShardDesk, order: Order) -> bool {
        self.wait(|| !desk.orders.is_full()) && desk.orders.push(order).is_ok()
    }

    /// Waits until the shards have taken and applied all that was sent.
    fn settle(&self, desk: &mut Desk) -> bool {
        let taken = desk.shards.iter().all(|shard| {
            let all = shard.orders.buffer().capacity();
            self.wait(|| shard.orders.slots() == all)
        });
        let until = self.rounds_from_now(1);
        taken && self.wait(|| self.have_passed(&until))
    }

    fn apply(&self, batch: &Batch) -> Result<(), ApplyError> {
        let mut edits: Vec<_> = batch.removes.iter().map(|id| RecordEdit::Remove(id)).collect();
        edits.extend(batch.parents.iter().map(RecordEdit::PutParent));
        edits.extend(batch.puts.iter().map(RecordEdit::Put));
        edits.extend(batch.parent_removes.iter().map(|id| RecordEdit::RemoveParent(id)));
        let removes = batch.removes.len();
        let mut desk = self.desk();
        let desk = &mut *desk;
        match desk.registry.plan(&edits) {
            Ok(plan) => self.carry_out(desk, plan),
            Err(RegistryError::Full { needed, free, resting, .. }) if desk.registry.fits(&edits) => {
                if needed > free + resting {
                    let (removals, puts) = edits.split_at(removes);
                    return self.in_turn(desk, removals, puts, needed);
                }
                if !self.await_ids(desk, needed) {
                    return Err(LATE);
                }
                let plan = desk.registry.plan(&edits).map_err(refused)?;
                self.carry_out(desk, plan)
            }
            Err(error) => Err(refused(error)),
        }
    }

    /// Removals first, and when their ids have come back, what takes their place.
    fn in_turn(
        &self,
        desk: &mut Desk,
        removals: &[RecordEdit<'_>],
        puts: &[RecordEdit<'_>],
        needed: usize,
    ) -> Result<(), ApplyError> {
        let first = desk.registry.plan(removals).map_err(refused)?;
        self.carry_out(desk, first)?;
        let second = if self.await_ids(desk, needed) {
            desk.registry.plan(puts).map_err(refused).and_then(|plan| self.carry_out(desk, plan))
        } else {
            Err(LATE)
        };
        second.map_err(|error| ApplyError::Halfway(error.to_string()))
    }

    /// Sees removals off until so many pairs of ids are free; gives up once nothing has moved for [`PATIENCE`].
    fn await_ids(&self, desk: &mut Desk, needed: usize) -> bool {
        loop {
            let before = desk.on_their_way();
            let moved = self.wait(|| {
                self.see_off(desk);
                desk.registry.free_pairs() >= needed || desk.on_their_way() < before
            });
            if !moved || desk.registry.free_pairs() >= needed {
                return moved;
            }
        }
    }

    /// From the shards to the table; what it removes is then on its way.
    fn carry_out(&self, desk: &mut Desk, plan: engine::Plan) -> Result<(), ApplyError> {
        if plan.is_empty() {
            return Ok(());
        }
        if !self.wait(|| self.shards_answer() && desk.pay_debts()) {
            return Err(ApplyError::Unavailable("an lcore does not answer"));
        }
        if let Err(sent) = self.prepare(desk, plan.before()) {
            // the lcore may take them yet: behind them goes what undoes them
            let undo = plan
                .before()
                .iter()
                .take(sent)
                // backwards: what stands below another came after it, and must make way first
                .rev()
                .map(|routed| (routed.shard, Order::Change(desk.registry.present(routed.change))));
            desk.debts.extend(undo);
            return Err(ApplyError::Unavailable("an lcore does not take changes"));
        }
        let committed = desk.registry.commit(plan).map_err(refused)?;
        self.configured.store(desk.registry.len() as u64, Relaxed);
        self.parents_configured.store(desk.registry.parents() as u64, Relaxed);
        let after: Vec<_> = committed.after.iter().map(|routed| (routed.shard, routed.change)).collect();
        if !after.is_empty() {
            let until = self.rounds_from_now(ROUNDS_TO_EMPTY);
            desk.leaving.push_back(Leaving { after, ticket: committed.ticket, until, sent: false });
        }
        Ok(())
    }

    /// Has ids take another profile, or all of these that which they have.
    fn follow(&self, desk: &mut Desk, changes: &[Routed]) -> Result<(), ProfilesError> {
        let answers = self.wait(|| self.shards_answer() && desk.pay_debts());
        let followed = if answers { self.prepare(desk, changes) } else { Err(0) };
        followed.map_err(|sent| {
            let back = changes.iter().take(sent).filter(|routed| desk.registry.knows(routed.change));
            let back: Vec<_> = back
                .map(|routed| (routed.shard, Order::Change(desk.registry.present(routed.change))))
                .collect();
            desk.debts.extend(back);
            ProfilesError::Unfinished
        })
    }

    /// Sends what the shards must have applied before a commit and waits until they have; else how many were sent.
    fn prepare(&self, desk: &mut Desk, changes: &[Routed]) -> Result<(), usize> {
        for (sent, routed) in changes.iter().enumerate() {
            let shard = desk.shards.get_mut(routed.shard);
            if !shard.is_some_and(|shard| self.send(shard, Order::Change(routed.change))) {
                return Err(sent);
            }
        }
        if self.settle(desk) { Ok(()) } else { Err(changes.len()) }
    }

    /// Moves removals on: regular work.
    pub(crate) fn see_off(&self, desk: &mut Desk) {
        desk.pay_debts();
        let Desk { registry, shards, leaving, .. } = desk;
        for group in leaving.iter_mut().filter(|group| !group.sent) {
            if !self.have_passed(&group.until) || !group.send(shards) {
                break;
            }
            group.sent = true;
            group.until.clear();
        }
        let taken = shards.iter().all(|shard| shard.orders.slots() == shard.orders.buffer().capacity());
        while let Some(first) = leaving.front_mut().filter(|group| group.sent && taken) {
            if first.until.is_empty() {
                // taken, and one loop later applied
                first.until = self.rounds_from_now(1);
            }
            if !self.have_passed(&first.until) {
                return;
            }
            registry.release(first.ticket);
            leaving.pop_front();
        }
        registry.reap();
    }

    /// An aggregate as all shards see it; nothing if it is not there or an lcore does not answer.
    pub(crate) fn parent(&self, desk: &mut Desk, id: ParentId) -> Option<ParentSnapshot> {
        if !self.shards_answer() {
            return None;
        }
        let mut sum = ParentSnapshot::default();
        for shard in &mut desk.shards {
            let reply = self.ask(shard, Order::Parent(id), |reply| match reply {
                Reply::Parent(of, snapshot) if of == id => Some(snapshot),
                _ => None,
            })?;
            sum.add(&reply?);
        }
        Some(sum)
    }

    /// Asks a shard and waits for the answer that `is_it` takes.
    fn ask<T>(&self, shard: &mut ShardDesk, order: Order, is_it: impl Fn(Reply) -> Option<T>) -> Option<T> {
        // an answer to a question whose asker gave up
        while shard.replies.pop().is_ok() {}
        if !self.send(shard, order) {
            return None;
        }
        let mut found = None;
        self.wait(|| {
            while let Ok(reply) = shard.replies.pop() {
                found = found.take().or_else(|| is_it(reply));
            }
            found.is_some()
        });
        found
    }

    /// One snapshot by the lcore that owns the id; nothing if it is not in use or its lcore does not answer.
    fn snapshot(&self, desk: &mut Desk, id: QueueId) -> Option<QueueSnapshot> {
        let shards = desk.shards.len();
        let index = id.0 as usize % shards.max(1);
        let now = self.now();
        if self.silent(now).any(|lcore| lcore.shard.is_some_and(|shard| shard as usize == index)) {
            return None;
        }
        let shard = desk.shards.get_mut(index)?;
        let reply = self.ask(shard, Order::Snapshot(id), |reply| match reply {
            Reply::Snapshot(of, snapshot) if of == id => Some(snapshot),
            _ => None,
        });
        reply.flatten()
    }
}

fn refused(error: RegistryError) -> ApplyError {
    match error {
        RegistryError::Full { capacity, .. } => ApplyError::Full { capacity: u64::from(capacity) },
        error => {
            ApplyError::Refused { id: error.id().unwrap_or_default().to_owned(), reason: error.to_string() }
        }
    }
}

impl Handle {
    /// Applies a batch, removals first; all of it or, on an error but [`ApplyError::Halfway`], nothing. Returns when
    /// the lcores have it.
    pub fn apply(&self, batch: &Batch) -> Result<(), ApplyError> {
        self.0.apply(batch)
    }

    /// How many subscribers it has room for.
    pub fn capacity(&self) -> u64 {
        self.0.desk().registry.pairs() as u64
    }

    /// One snapshot of each direction; `None` where there is no such record or its lcore does not answer.
    pub fn stats(&self, id: &str) -> Option<SubscriberStats> {
        let mut desk = self.0.desk();
        let (down, up) = desk.registry.ids(id)?;
        let down = self.0.snapshot(&mut desk, down)?;
        let up = self.0.snapshot(&mut desk, up)?;
        Some(SubscriberStats { down: DirectionStats::from(&down), up: DirectionStats::from(&up) })
    }

    /// Regular work, about ten times a second: watches lcores and links, sees removals off; what happened.
    pub fn tick(&self) -> Vec<EventKind> {
        let mut events = self.watch_links();
        let inner = &self.0;
        watch::look(&mut inner.lcore_watches(), &inner.lcores, inner.now());
        // who holds these may be waiting for an lcore that has stalled: next time, then
        if let Some(mut desk) = if_free(&inner.desk) {
            inner.see_off(&mut desk);
            self.overload_events(&mut desk, &mut events);
        }
        if let Some(mut sweeps) = if_free(&inner.usage) {
            sweeps.if_due(inner, watch::usage);
        }
        if let Some(mut sweeps) = if_free(&inner.parent_usage) {
            sweeps.if_due(inner, aggregates::usage);
        }
        events
    }

    fn watch_links(&self) -> Vec<EventKind> {
        let mut events = Vec::new();
        for (entry, shared) in self.0.ports.iter().zip(self.0.shared_ports.iter()) {
            let link = entry.port.link();
            if link.up != shared.is_up() {
                shared.set_up(link.up);
                let (port, speed_bps) = (entry.config.name.clone(), link.speed_bps);
                tracing::info!(%port, up = link.up, "link");
                events.push(EventKind::Link { port, up: link.up, speed_bps });
            }
            let rate = PortShared::shaper_rate(entry.rate_bps(), link.speed_bps.map(BitsPerSec));
            // a link that tells no speed keeps the rate it had
            if link.up && rate.is_some() && rate != shared.rate() {
                shared.set_rate(rate);
            }
        }
        events
    }

    fn overload_events(&self, desk: &mut Desk, events: &mut Vec<EventKind>) {
        while let Ok(event) = desk.overloads.pop() {
            let (OverloadEvent::Start { id, .. } | OverloadEvent::End { id, .. }) = event;
            let Some((name, direction)) = desk.registry.owner(id) else {
                continue;
            };
            let (id, dir) = (name.to_owned(), shown(direction));
            let [down, up] = &self.0.episodes;
            let counter = if direction == engine::Direction::Down { down } else { up };
            events.push(match event {
                OverloadEvent::Start { .. } => {
                    counter.fetch_add(1, Relaxed);
                    EventKind::OverloadStart { id, dir }
                }
                OverloadEvent::End { duration, episodes, .. } => {
                    // the first was counted when it was reported as begun
                    counter.fetch_add(u64::from(episodes).saturating_sub(1), Relaxed);
                    EventKind::OverloadEnd { id, dir, lasted_ms: duration.0 / 1_000_000 }
                }
            });
        }
    }

    /// Reasons why it is not ready, a sentence each.
    pub fn readiness(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        match self.0.phase.get() {
            Phase::Load => reasons.push("the records are being loaded".to_owned()),
            Phase::Run => {}
            Phase::Drain | Phase::Stop => reasons.push("the data plane is stopping".to_owned()),
        }
        let now = self.0.now();
        for lcore in self.0.silent(now) {
            let (id, role) = (lcore.lcore.id, lcore.role.label());
            reasons.push(match lcore.last_seen() {
                None => format!("lcore {id} ({role}) has not started yet"),
                Some(at) => {
                    format!("lcore {id} ({role}) has not been seen for {} ms", now.since(at).0 / 1_000_000)
                }
            });
        }
        for (entry, shared) in self.0.ports.iter().zip(self.0.shared_ports.iter()) {
            if !shared.is_up() {
                reasons.push(format!("the link of port \"{}\" is down", entry.config.name));
            }
        }
        reasons
    }

    /// Whether every lcore that has work has been seen lately: what a watchdog is fed for. True while it drains, which
    /// ends by itself.
    pub fn lives(&self) -> bool {
        self.stopping() || self.0.silent(self.0.now()).next().is_none()
    }

    /// Puts new and changed profiles in force, one that is gone excepted; how many ids of subscribers follow. Each is told
    /// to its lcore as another rate would be: nothing that waits is lost.
    ///
    /// # Errors
    /// [`ProfilesError::Restart`] where they cannot be put in force while it runs: nothing has changed.
    /// [`ProfilesError::Unfinished`] where an lcore does not answer: those who have not followed keep what they had
    /// until this is called again.
    pub fn set_profiles(&self, profiles: &BTreeMap<String, model::Profile>) -> Result<u64, ProfilesError> {
        let inner = &self.0;
        let mut desk = inner.desk();
        let next = desk
            .registry
            .profiles()
            .with(profiles)
            .map_err(|error| ProfilesError::Restart(error.to_string()))?;
        if next.len() > desk.registry.profiles().len() {
            let next = Arc::new(next);
            if !inner.banks.iter().all(|banks| banks.extend(&next)) {
                return Err(ProfilesError::Restart("the PI banks have no room for more profiles".to_owned()));
            }
            let shards = desk.shards.len();
            desk.debts.extend((0..shards).map(|shard| (shard, Order::Profiles(Arc::clone(&next)))));
            desk.registry.set_profiles(next);
        }
        let reserved = desk.registry.update_reserved();
        inner.follow(&mut desk, &reserved)?;
        drop(desk);
        let (mut from, mut followed) = (Some(0), 0);
        while let Some(place) = from {
            // whoever waits for the desk gets it in between
            let mut desk = inner.desk();
            let (changes, next) = desk.registry.outdated(place, FOLLOW);
            inner.follow(&mut desk, &changes)?;
            desk.registry.renew(&changes);
            (from, followed) = (next, followed + changes.len() as u64);
        }
        Ok(followed)
    }

    /// Other DSCP rules, another fate of unknown traffic: for the next burst of each RX lcore.
    pub fn set_classify(&self, classify: &Classify) {
        self.0.rules.store(Arc::new(RxRules::new(classify)));
    }

    /// Another configured rate of a port, by its place in the configuration; `None`: what its link gives. Buffers and
    /// descriptors stay those of the start.
    pub fn set_port_rate(&self, port: usize, rate_bps: Option<u64>) {
        if let (Some(entry), Some(shared)) = (self.0.ports.get(port), self.0.shared_ports.get(port)) {
            entry.rate_bps.store(rate_bps.unwrap_or(0), Relaxed);
            let link = entry.port.link().speed_bps.map(BitsPerSec);
            shared.set_rate(PortShared::shaper_rate(rate_bps, link));
        }
    }

    /// The records are loaded: ports receive from now on.
    pub fn begin(&self) {
        self.0.phase.advance(Phase::Run);
    }

    /// Begins to drain and stop.
    pub fn stop(&self) {
        self.0.phase.advance(Phase::Drain);
    }

    /// Whether it was told to stop.
    pub fn stopping(&self) -> bool {
        self.0.phase.get() >= Phase::Drain
    }
}
