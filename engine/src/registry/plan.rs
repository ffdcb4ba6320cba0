// SPDX-License-Identifier: Apache-2.0
//! Planning a batch of edits, and carrying the plan out.
//!
//! Invariant: a plan holds differences only, computed against the registry it was made on; another commit in
//! between makes it stale.

use std::sync::Arc;

use aqm::BitsPerSec;
use hashbrown::{HashMap, HashSet};
use model::config::Role;
use model::keys::{Conflict, Key as ModelKey};
use model::{Parent, Subscriber};

use super::aggregates::{AggregatePlan, Aggregates};
use super::ids::{Picked, Picker};
use super::{Record, Registry, RegistryError, Routed, Ticket};
use crate::change::{Change, Direction, QueueKind, QueueSpec};
use crate::packet::{PortId, QueueId};
use crate::parents::ParentId;
use crate::table::Key;

/// An edit of one record.
#[derive(Clone, Copy, Debug)]
pub enum RecordEdit<'a> {
    /// The record is this from now on.
    Put(&'a Subscriber),
    /// There is no record of this name.
    Remove(&'a str),
    /// The aggregate is this from now on.
    PutParent(&'a Parent),
    /// There is no aggregate of this name.
    RemoveParent(&'a str),
}

impl<'a> RecordEdit<'a> {
    /// The subscriber it is about, if it is about one.
    pub(super) fn name(&self) -> Option<&'a str> {
        match self {
            Self::Put(subscriber) => Some(&subscriber.id),
            Self::Remove(name) => Some(name),
            Self::PutParent(_) | Self::RemoveParent(_) => None,
        }
    }
}

/// What a batch comes to. Dropping it changes nothing.
#[derive(Debug)]
pub struct Plan {
    /// Creations and updates that the shards must have applied before the commit.
    before: Vec<Routed>,
    made_on: u64,
    picked: Picked,
    /// New state of records that are new or differ in anything.
    records: Vec<Record>,
    /// Records that go.
    gone: Vec<QueueId>,
    aggregates: AggregatePlan,
}

impl Plan {
    /// Creations and updates that the shards must have applied before the commit.
    pub fn before(&self) -> &[Routed] {
        &self.before
    }

    /// Whether it changes nothing at all.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.gone.is_empty() && self.aggregates.is_empty()
    }
}

/// What is left to do after a commit.
#[derive(Debug)]
pub struct Committed {
    /// Removals, for the shards once no packet can come for them any more.
    pub after: Vec<Routed>,
    /// For [`Registry::release`] once the shards have applied them.
    pub ticket: Ticket,
}

/// A record as an edit wants it, before it has ids.
struct Wanted<'a> {
    subscriber: &'a Subscriber,
    keys: Vec<(Key, ModelKey<'a>)>,
    specs: [QueueSpec; 2],
}

/// Keys of a batch that change hands.
struct Moves {
    /// Key and down id.
    inserts: Vec<(Key, u32)>,
    changes: Vec<(Key, u32)>,
    removals: Vec<Key>,
}

impl Registry {
    /// What a batch comes to. Of several edits of one name the last counts.
    ///
    /// # Errors
    /// The first edit that cannot be; nothing has changed.
    pub fn plan(&self, edits: &[RecordEdit<'_>]) -> Result<Plan, RegistryError> {
        let aggregates = self.aggregates.plan(edits)?;
        let mut last = HashMap::with_capacity(edits.len());
        for (place, edit) in edits.iter().enumerate() {
            last.extend(edit.name().map(|name| (name, place)));
        }
        let is_last =
            |place, edit: &RecordEdit<'_>| edit.name().is_some_and(|name| last.get(name) == Some(&place));
        let counts = edits.iter().enumerate().filter(|(place, edit)| is_last(*place, edit));
        let mut wanted = Vec::new();
        let mut gone = Vec::new();
        for (_, edit) in counts {
            match *edit {
                RecordEdit::Put(subscriber) => wanted.extend(self.wanted(subscriber, &aggregates)?),
                RecordEdit::Remove(name) => gone.extend(self.record(name)),
                RecordEdit::PutParent(_) | RecordEdit::RemoveParent(_) => {}
            }
        }
        self.check_claims(&wanted, &gone)?;
        self.draw_up(wanted, gone.iter().map(|record| record.down).collect(), aggregates)
    }

    /// [`Registry::plan`] for one record that is to be there.
    ///
    /// # Errors
    /// As [`Registry::plan`].
    pub fn upsert(&self, subscriber: &Subscriber) -> Result<Plan, RegistryError> {
        self.plan(&[RecordEdit::Put(subscriber)])
    }

    /// [`Registry::plan`] for one record that is to go; without it, an empty plan.
    ///
    /// # Errors
    /// None at present.
    pub fn remove(&self, name: &str) -> Result<Plan, RegistryError> {
        self.plan(&[RecordEdit::Remove(name)])
    }

    /// What a record should become; `None` if it is that already.
    fn wanted<'a>(
        &self,
        subscriber: &'a Subscriber,
        aggregates: &AggregatePlan,
    ) -> Result<Option<Wanted<'a>>, RegistryError> {
        let port =
            subscriber.matches.port.as_deref().map(|name| self.access_port(subscriber, name)).transpose()?;
        let mut keys: Vec<_> = subscriber.keys().map(|key| (Key::of(&key, port), key)).collect();
        keys.sort_unstable_by_key(|(key, _)| *key);
        keys.dedup_by_key(|(key, _)| *key);
        let name = subscriber.parent.as_deref();
        let parent =
            name.map(|name| self.aggregates.resolve(aggregates, &subscriber.id, name)).transpose()?;
        let specs = self.specs(subscriber, port, parent)?;
        let same = self.record(&subscriber.id).is_some_and(|record| {
            record.specs == specs && record.keys.iter().eq(keys.iter().map(|(key, _)| key))
        });
        Ok((!same).then_some(Wanted { subscriber, keys, specs }))
    }

    fn access_port(&self, subscriber: &Subscriber, name: &str) -> Result<PortId, RegistryError> {
        let mut ports = self.ports.iter().zip(0..);
        ports
            .find(|(port, _)| port.name == name && port.role == Role::Access)
            .map(|(_, number)| PortId(number))
            .ok_or_else(|| RegistryError::UnknownPort { id: subscriber.id.clone(), port: name.to_owned() })
    }

    /// What its two queue ids are to do. A record without a port is expected on the first access port.
    fn specs(
        &self,
        subscriber: &Subscriber,
        port: Option<PortId>,
        parent: Option<ParentId>,
    ) -> Result<[QueueSpec; 2], RegistryError> {
        let profile = self.profiles.index(&subscriber.profile).ok_or_else(|| {
            RegistryError::UnknownProfile { id: subscriber.id.clone(), profile: subscriber.profile.clone() }
        })?;
        let mut ports = self.ports.iter().zip(0..);
        let first = || ports.find(|(port, _)| port.role == Role::Access).map(|(_, number)| PortId(number));
        let access = port.or_else(first).unwrap_or_default();
        let core = self.ports.get(usize::from(access.0)).map_or(access, |port| port.peer);
        let spec = |direction, bps, egress_hint| QueueSpec {
            rate: BitsPerSec(bps),
            profile,
            direction,
            egress_hint,
            kind: QueueKind::Subscriber,
            parent,
        };
        let down = spec(Direction::Down, subscriber.down_bps, access);
        Ok([down, spec(Direction::Up, subscriber.up_bps, core)])
    }

    /// Whether a record keeps all its keys and gets none.
    fn keeps_keys(&self, want: &Wanted<'_>) -> bool {
        self.record(&want.subscriber.id)
            .is_some_and(|record| record.keys.iter().eq(want.keys.iter().map(|(key, _)| key)))
    }

    /// Whether every key wanted is free, or freed by this batch.
    fn check_claims(&self, wanted: &[Wanted<'_>], gone: &[&Record]) -> Result<(), RegistryError> {
        // a batch of rates alone: what is so now has been judged before
        if wanted.iter().all(|want| self.keeps_keys(want)) {
            return Ok(());
        }
        let leaving: HashSet<&str> = gone.iter().map(|record| &*record.name).collect();
        let changing: HashSet<&str> = wanted.iter().map(|want| &*want.subscriber.id).collect();
        // what a record that this batch touches holds afterwards is in `claimed`, of the others the table knows
        let mut claimed = HashMap::new();
        for want in wanted {
            for (key, named) in &want.keys {
                for rival in self.rivals(*key) {
                    let outside = || {
                        let holder = self.holder(&rival)?;
                        let touched = leaving.contains(holder) || changing.contains(holder);
                        (!touched).then_some(holder)
                    };
                    let holder = claimed.get(&rival).copied().or_else(outside);
                    if let Some(holder) = holder.filter(|holder| *holder != want.subscriber.id) {
                        let claimant = want.subscriber.id.clone();
                        return Err(
                            Conflict { key: named.to_string(), holder: holder.to_owned(), claimant }.into()
                        );
                    }
                }
                claimed.insert(*key, &*want.subscriber.id);
            }
        }
        Ok(())
    }

    /// A key and those that exclude it: on that port nothing would decide between a key for the port and one for
    /// any.
    fn rivals(&self, key: Key) -> impl Iterator<Item = Key> + use<'_> {
        let other = key.ported().then_some(key.any_port());
        let access = self.ports.iter().zip(0..).filter(|(port, _)| port.role == Role::Access);
        let on_ports = access.map(move |(_, number)| key.port(PortId(number))).filter(move |_| !key.ported());
        [key].into_iter().chain(other).chain(on_ports)
    }

    /// Whose a key is.
    fn holder(&self, key: &Key) -> Option<&str> {
        let down = self.table.get(key)?;
        let record = self.records.get(down as usize / 2)?.as_ref()?;
        // another key may have the same hash
        record.has(key).then_some(&*record.name)
    }

    fn draw_up(
        &self,
        wanted: Vec<Wanted<'_>>,
        gone: Vec<QueueId>,
        mut aggregates: AggregatePlan,
    ) -> Result<Plan, RegistryError> {
        let new = wanted.iter().filter(|want| !self.names.contains_key(&*want.subscriber.id)).count();
        if new > self.pool.available() {
            return Err(RegistryError::Full {
                needed: new,
                free: self.pool.available(),
                resting: self.pool.resting(),
                capacity: u32::try_from(self.pairs()).unwrap_or(u32::MAX),
            });
        }
        let mut picker = self.pool.picker();
        let mut before: Vec<_> = aggregates.changes().flat_map(|change| self.everywhere(change)).collect();
        let mut records = Vec::with_capacity(wanted.len());
        for want in wanted {
            let old = self.record(&want.subscriber.id);
            let parent = want.specs[0].parent;
            let pick = || self.pick(&mut picker, &mut aggregates, parent);
            let Some(down) = old.map(|old| old.down).or_else(pick) else {
                continue;
            };
            let name = old.map_or_else(|| Arc::from(&*want.subscriber.id), |old| Arc::clone(&old.name));
            let keys = want.keys.into_iter().map(|(key, _)| key).collect();
            let record = Record { name, down, specs: want.specs, keys };
            before.extend(self.shard_changes(old, &record));
            records.push(record);
        }
        Ok(Plan { before, made_on: self.commits, picked: picker.end(), records, gone, aggregates })
    }

    /// A pair for a new record, where its aggregates' other children are while they fit.
    fn pick(
        &self,
        picker: &mut Picker<'_>,
        aggregates: &mut AggregatePlan,
        parent: Option<ParentId>,
    ) -> Option<QueueId> {
        let Some(parent) = parent else { return picker.next(None) };
        let root = self.aggregates.root(aggregates, parent);
        let home = self.aggregates.home(aggregates, root);
        let id = picker.next(home)?;
        if home.is_none() {
            Aggregates::settle(aggregates, root, id.0 % self.shards);
        }
        Some(id)
    }

    /// A change for every shard.
    fn everywhere(&self, change: Change) -> impl Iterator<Item = Routed> + use<> {
        (0..self.shards as usize).map(move |shard| Routed { shard, change })
    }

    fn shard_changes(&self, old: Option<&Record>, new: &Record) -> Vec<Routed> {
        let both = new.ids().into_iter().zip(new.specs).zip(0..);
        let changes = both.filter_map(|((id, spec), place)| match old {
            None => Some(Change::Create { id, spec }),
            Some(old) if old.specs.get::<usize>(place) == Some(&spec) => None,
            Some(_) => Some(Change::Update { id, spec }),
        });
        changes.map(|change| self.routed(change)).collect()
    }

    /// Makes the plan's keys lead to their queue ids, and lets go of those that go.
    ///
    /// # Errors
    /// When the plan is stale, or the table had to be rebuilt and could not be; nothing has changed.
    pub fn commit(&mut self, plan: Plan) -> Result<Committed, RegistryError> {
        if plan.made_on != self.commits {
            return Err(RegistryError::Stale { plan: plan.made_on, commits: self.commits });
        }
        let moves = self.moves(&plan);
        if self.insert(&moves.inserts) {
            for (key, down) in &moves.changes {
                self.table.set(key, *down);
            }
            self.table.turn();
            for key in &moves.removals {
                self.table.remove(key);
            }
        } else {
            self.rebuild(&plan)?;
        }
        Ok(self.enter(plan))
    }

    /// How the table gets from here to there.
    fn moves(&self, plan: &Plan) -> Moves {
        let mut freed = HashSet::new();
        let mut claims = Vec::new();
        for new in &plan.records {
            let old = self.at(new.down);
            claims.extend(
                new.keys
                    .iter()
                    .filter(|key| !old.is_some_and(|old| old.has(key)))
                    .map(|key| (*key, new.down.0)),
            );
            freed.extend(old.into_iter().flat_map(|old| old.keys.iter()).filter(|key| !new.has(key)));
        }
        freed.extend(plan.gone.iter().filter_map(|id| self.at(*id)).flat_map(|old| old.keys.iter()));
        let (changes, inserts) = claims.into_iter().partition(|(key, _)| freed.remove(key));
        Moves { inserts, changes, removals: freed.into_iter().copied().collect() }
    }

    fn at(&self, id: QueueId) -> Option<&Record> {
        self.records.get(id.0 as usize / 2)?.as_ref()
    }

    /// Adds keys to the table as it is; all or, where one finds no place, none.
    fn insert(&mut self, inserts: &[(Key, u32)]) -> bool {
        for (done, (key, down)) in inserts.iter().enumerate() {
            if self.table.insert(key, *down).is_err() {
                for (key, _) in inserts.iter().take(done) {
                    self.table.remove(key);
                }
                return false;
            }
        }
        true
    }

    /// Swaps in a table built from all records as they will be.
    fn rebuild(&mut self, plan: &Plan) -> Result<(), RegistryError> {
        let touched: HashSet<_> =
            plan.records.iter().map(|record| record.down).chain(plan.gone.iter().copied()).collect();
        let stay = self.records.iter().flatten().filter(|record| !touched.contains(&record.down));
        let all = stay.chain(&plan.records);
        self.table.rebuild(&all.flat_map(|record| record.keys.iter().map(|key| (*key, record.down.0))))?;
        Ok(())
    }

    /// Enters what the table already says into the books.
    fn enter(&mut self, plan: Plan) -> Committed {
        self.commits += 1;
        self.pool.take(plan.picked);
        let ticket = self.pool.rest(&plan.gone);
        // sent from the end: those of aggregates last
        let parents = self.aggregates.enter(plan.aggregates, ticket);
        for record in plan.records {
            let place = record.down.0 as usize / 2;
            if self.records.len() <= place {
                self.records.resize(place + 1, None);
            }
            self.names.insert(Arc::clone(&record.name), record.down.0 / 2);
            if let Some(entry) = self.records.get_mut(place) {
                let from = entry.as_ref().and_then(Record::parent);
                self.aggregates.count(from, record.parent());
                *entry = Some(record);
            }
        }
        let mut after: Vec<_> = parents.into_iter().flat_map(|change| self.everywhere(change)).collect();
        for id in &plan.gone {
            if let Some(record) = self.records.get_mut(id.0 as usize / 2).and_then(Option::take) {
                self.names.remove(&record.name);
                self.aggregates.count(record.parent(), None);
                after.extend(record.ids().map(|id| self.routed(Change::Remove { id })));
            }
        }
        Committed { after, ticket }
    }
}
