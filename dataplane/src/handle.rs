// SPDX-License-Identifier: Apache-2.0
//! The control side's hold on a running data plane. Any thread but an lcore may call it.
//!
//! Invariant: lcores are reached only through rings and read only through published counters; nothing here can
//! make one wait. A change goes in this order: what is new or different to its shards, then the lookup table, and
//! removals once no RX lcore can hold an old answer and no ring an old packet.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aqm::{BitsPerSec, Nanos};
use dpdk::{Mempool, Port};
use engine::{
    Change, OverloadEvent, PortShared, QueueId, QueueSnapshot, RecordEdit, Registry, RegistryError,
    RxCounters, ShardCounters, Ticket,
};
use mem::Tsc;
use model::Subscriber;
use model::stats::{DirectionStats, EventKind, SubscriberStats};

use crate::control::ControlCounters;
use crate::error::ApplyError;
use crate::figures::shown;
use crate::kinds::KindCounters;
use crate::lcore::{LcoreShared, Phase, PhaseCell, STALL};
use crate::memory::RING;
use crate::rx::{BURST, PortCounters};
use crate::tx::{Held, Order, Reply};
use crate::watch::Watch;

/// Longest wait for an lcore to take or answer something.
const PATIENCE: Duration = Duration::from_secs(2);
/// Loops after which a TX lcore has emptied what was in its rings: each takes a burst from each.
const ROUNDS_TO_EMPTY: u64 = RING as u64 / BURST as u64 + 2;

/// The control side's hold on a data plane; clones are the same.
#[derive(Clone)]
pub struct Handle(pub(crate) Arc<Inner>);

/// A port as the control side sees it.
pub(crate) struct PortEntry {
    pub(crate) config: model::config::Port,
    pub(crate) peer: String,
    pub(crate) port: Port,
    pub(crate) rx: Vec<Arc<PortCounters>>,
    pub(crate) tx: Vec<Arc<PortCounters>>,
    pub(crate) lost: Arc<engine::Counter>,
}

/// All that is shared.
pub(crate) struct Inner {
    pub(crate) clock: Tsc,
    pub(crate) phase: PhaseCell,
    pub(crate) lcores: Vec<Arc<LcoreShared>>,
    pub(crate) ports: Vec<PortEntry>,
    pub(crate) shared_ports: Arc<[PortShared]>,
    pub(crate) shards: Vec<Arc<ShardCounters>>,
    pub(crate) held: Vec<Arc<Held>>,
    pub(crate) rx: Vec<(Arc<RxCounters>, Arc<KindCounters>)>,
    pub(crate) control: Arc<ControlCounters>,
    pub(crate) pools: Vec<Mempool>,
    pub(crate) desk: Mutex<Desk>,
    pub(crate) watch: Mutex<Watch>,
    /// Overload episodes, down and up.
    pub(crate) episodes: [AtomicU64; 2],
    pub(crate) configured: AtomicU64,
}

/// What one caller at a time uses.
pub(crate) struct Desk {
    pub(crate) registry: Registry,
    pub(crate) shards: Vec<ShardDesk>,
    pub(crate) overloads: rtrb::Consumer<OverloadEvent>,
    pub(crate) leaving: VecDeque<Leaving>,
}

/// The control side's ends of a shard's rings.
pub(crate) struct ShardDesk {
    pub(crate) orders: rtrb::Producer<Order>,
    pub(crate) replies: rtrb::Consumer<Reply>,
}

/// Removals on their way: first until no packet can come for them, then until the shards have applied them.
pub(crate) struct Leaving {
    after: Vec<(usize, Change)>,
    ticket: Ticket,
    /// Loops that each lcore must have made.
    until: Vec<u64>,
    sent: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // what a panicking caller left is still sound: plans change nothing until they are committed
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    pub(crate) fn watch(&self) -> MutexGuard<'_, Watch> {
        lock(&self.watch)
    }

    /// Waits until `done`, at most `PATIENCE`; whether it was.
    pub(crate) fn wait(&self, mut done: impl FnMut() -> bool) -> bool {
        let end = self.now() + Nanos(u64::try_from(PATIENCE.as_nanos()).unwrap_or(u64::MAX));
        loop {
            if done() {
                return true;
            }
            if self.now() > end {
                return false;
            }
            pause();
        }
    }

    /// Loops each lcore will have made once it has made `more`.
    fn rounds_from_now(&self, more: u64) -> Vec<u64> {
        self.lcores.iter().map(|lcore| lcore.rounds() + more).collect()
    }

    fn have_passed(&self, until: &[u64]) -> bool {
        self.lcores.iter().zip(until).all(|(lcore, &until)| lcore.rounds() >= until)
    }

    /// Lcores that have not been seen for too long, or not yet.
    pub(crate) fn silent(&self, now: Nanos) -> impl Iterator<Item = &LcoreShared> {
        self.lcores
            .iter()
            .map(AsRef::as_ref)
            .filter(move |lcore| lcore.last_seen().is_none_or(|at| now.since(at) > STALL))
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

    fn apply(&self, removes: &[String], puts: &[Subscriber]) -> Result<(), ApplyError> {
        let edits: Vec<RecordEdit<'_>> =
            removes.iter().map(|id| RecordEdit::Remove(id)).chain(puts.iter().map(RecordEdit::Put)).collect();
        let mut desk = self.desk();
        let desk = &mut *desk;
        let plan = desk.registry.plan(&edits).map_err(refused)?;
        if plan.is_empty() {
            return Ok(());
        }
        if !self.wait(|| self.silent(self.now()).next().is_none()) {
            return Err(ApplyError::Unavailable("an lcore does not answer"));
        }
        for routed in plan.before() {
            let sent = desk
                .shards
                .get_mut(routed.shard)
                .is_some_and(|shard| self.send(shard, Order::Change(routed.change)));
            if !sent {
                return Err(ApplyError::Unavailable("an lcore takes no changes"));
            }
        }
        if !self.settle(desk) {
            return Err(ApplyError::Unavailable("an lcore does not apply changes"));
        }
        let committed = desk.registry.commit(plan).map_err(refused)?;
        self.configured.store(desk.registry.len() as u64, Relaxed);
        let after: Vec<_> = committed.after.iter().map(|routed| (routed.shard, routed.change)).collect();
        if !after.is_empty() {
            let until = self.rounds_from_now(ROUNDS_TO_EMPTY);
            desk.leaving.push_back(Leaving { after, ticket: committed.ticket, until, sent: false });
        }
        Ok(())
    }

    /// Moves removals on: regular work.
    pub(crate) fn see_off(&self, desk: &mut Desk) {
        while let Some(first) = desk.leaving.front_mut() {
            if !self.have_passed(&first.until) {
                return;
            }
            if first.sent {
                desk.registry.release(first.ticket);
                desk.leaving.pop_front();
                continue;
            }
            while let Some(&(shard, change)) = first.after.last() {
                let Some(shard) = desk.shards.get_mut(shard) else {
                    return;
                };
                if shard.orders.push(Order::Change(change)).is_err() {
                    // the ring is full: go on from here next time
                    return;
                }
                first.after.pop();
            }
            first.sent = true;
            // an order in a full ring is taken within as many loops as the ring has places
            let most = desk.shards.iter().map(|shard| shard.orders.buffer().capacity()).max().unwrap_or(0);
            first.until = self.lcores.iter().map(|lcore| lcore.rounds() + most as u64 + 1).collect();
        }
    }

    /// One snapshot by the lcore that owns the id; nothing if it is not in use or its lcore does not answer.
    fn snapshot(&self, desk: &mut Desk, id: QueueId) -> Option<QueueSnapshot> {
        let shards = desk.shards.len();
        let shard = desk.shards.get_mut(id.0 as usize % shards.max(1))?;
        // an answer to a question whose asker gave up
        while shard.replies.pop().is_ok() {}
        if !self.send(shard, Order::Snapshot(id)) {
            return None;
        }
        let mut found = None;
        self.wait(|| {
            while let Ok(reply) = shard.replies.pop() {
                if let Reply::Snapshot(of, snapshot) = reply
                    && of == id
                {
                    found = Some(snapshot);
                }
            }
            found.is_some()
        });
        found.flatten()
    }
}

fn refused(error: RegistryError) -> ApplyError {
    match error {
        RegistryError::Full { capacity, .. } => ApplyError::Full { capacity: u64::from(capacity) },
        RegistryError::UnknownProfile { ref id, .. } | RegistryError::UnknownPort { ref id, .. } => {
            ApplyError::Refused { id: id.clone(), reason: error.to_string() }
        }
        error => ApplyError::Refused { id: String::new(), reason: error.to_string() },
    }
}

impl Handle {
    /// Applies a batch, removals first; all of it or, on an error, nothing. Returns when the lcores have it.
    pub fn apply(&self, removes: &[String], puts: &[Subscriber]) -> Result<(), ApplyError> {
        self.0.apply(removes, puts)
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
        let mut desk = self.0.desk();
        self.0.see_off(&mut desk);
        self.overload_events(&mut desk, &mut events);
        drop(desk);
        self.0.watch().look(&self.0);
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
            let rate = PortShared::shaper_rate(entry.config.rate_bps, link.speed_bps.map(BitsPerSec));
            if link.up && rate != shared.rate() {
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
            events.push(match event {
                OverloadEvent::Start { .. } => EventKind::OverloadStart { id, dir },
                OverloadEvent::End { duration, episodes, .. } => {
                    let [down, up] = &self.0.episodes;
                    let counter = if direction == engine::Direction::Down { down } else { up };
                    counter.fetch_add(u64::from(episodes), Relaxed);
                    EventKind::OverloadEnd { id, dir, lasted_ms: duration.0 / 1_000_000 }
                }
            });
        }
    }

    /// Reasons why it is not ready, a sentence each.
    pub fn readiness(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.stopping() {
            reasons.push("the data plane is stopping".to_owned());
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

    /// Begins to drain and stop.
    pub fn stop(&self) {
        self.0.phase.advance(Phase::Drain);
    }

    /// Whether it was told to stop.
    pub fn stopping(&self) -> bool {
        self.0.phase.get() != Phase::Run
    }
}
