// SPDX-License-Identifier: Apache-2.0
//! The book of aggregates: their numbers, what each is, and the shard that its children share while they fit.
//!
//! Invariant: a number is in use, free or at rest; one at rest comes back with its ticket, when all shards have let go
//! of the aggregate. An aggregate is sent to every shard, those above it first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use aqm::BitsPerSec;
use model::Parent;

use super::{RecordEdit, RegistryError, Ticket};
use crate::change::Change;
use crate::parents::{MAX_LEVELS, MAX_PARENTS, ParentId, ParentSpec};

/// An aggregate as the registry knows it.
#[derive(Clone, Debug)]
struct Aggregate {
    name: Arc<str>,
    spec: ParentSpec,
    /// The shard of the down ids below it, where it is a root.
    home: Option<u32>,
    /// Subscribers right below it.
    subscribers: u32,
}

/// An aggregate as the book has it.
#[derive(Clone, Copy, Debug)]
pub struct AggregateView<'a> {
    /// Its number.
    pub id: ParentId,
    /// Its name.
    pub name: &'a str,
    /// What it is to do.
    pub spec: &'a ParentSpec,
    /// Subscribers right below it.
    pub subscribers: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Aggregates {
    names: HashMap<Arc<str>, ParentId>,
    records: Vec<Option<Aggregate>>,
    free: Vec<ParentId>,
    resting: VecDeque<(Ticket, Vec<ParentId>)>,
}

/// What a batch comes to.
#[derive(Debug, Default)]
pub(super) struct AggregatePlan {
    /// New state of those that are new or differ, those above first.
    puts: Vec<(ParentId, Arc<str>, ParentSpec)>,
    gone: Vec<ParentId>,
    names: HashMap<Arc<str>, ParentId>,
    specs: HashMap<ParentId, ParentSpec>,
    /// Free numbers used.
    reused: usize,
    /// First shards of roots.
    homes: HashMap<ParentId, u32>,
}

impl AggregatePlan {
    pub(super) fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.gone.is_empty()
    }

    /// What every shard must be told first.
    pub(super) fn changes(&self) -> impl Iterator<Item = Change> {
        self.puts.iter().map(|&(id, _, spec)| Change::Parent { id, spec })
    }
}

impl Aggregates {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn id(&self, name: &str) -> Option<ParentId> {
        self.names.get(name).copied()
    }

    pub(super) fn name(&self, id: ParentId) -> Option<&str> {
        self.at(id).map(|aggregate| &*aggregate.name)
    }

    /// Numbers are below this.
    pub(super) fn end(&self) -> usize {
        self.records.len()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = AggregateView<'_>> {
        self.records.iter().zip(0..).filter_map(|(aggregate, index)| {
            let Aggregate { name, spec, subscribers, .. } = aggregate.as_ref()?;
            Some(AggregateView { id: ParentId::new(index)?, name, spec, subscribers: *subscribers })
        })
    }

    /// A subscriber moves from one aggregate to another.
    pub(super) fn count(&mut self, from: Option<ParentId>, to: Option<ParentId>) {
        if from == to {
            return;
        }
        if let Some(aggregate) = from.and_then(|id| self.at_mut(id)) {
            aggregate.subscribers = aggregate.subscribers.saturating_sub(1);
        }
        if let Some(aggregate) = to.and_then(|id| self.at_mut(id)) {
            aggregate.subscribers += 1;
        }
    }

    fn at(&self, id: ParentId) -> Option<&Aggregate> {
        self.records.get(id.index())?.as_ref()
    }

    fn at_mut(&mut self, id: ParentId) -> Option<&mut Aggregate> {
        self.records.get_mut(id.index())?.as_mut()
    }

    /// The change that puts an aggregate back to what the book says.
    pub(super) fn present(&self, id: ParentId) -> Change {
        match self.at(id) {
            Some(aggregate) => Change::Parent { id, spec: aggregate.spec },
            None => Change::RemoveParent { id },
        }
    }

    /// What a batch comes to. Of several edits of one name the last counts.
    pub(super) fn plan(&self, edits: &[RecordEdit<'_>]) -> Result<AggregatePlan, RegistryError> {
        let mut wanted: HashMap<&str, Option<&Parent>> = HashMap::new();
        let mut order = Vec::new();
        for edit in edits {
            let (name, parent) = match *edit {
                RecordEdit::PutParent(parent) => (parent.id.as_str(), Some(parent)),
                RecordEdit::RemoveParent(name) => (name, None),
                RecordEdit::Put(_) | RecordEdit::Remove(_) => continue,
            };
            if wanted.insert(name, parent).is_none() {
                order.push(name);
            }
        }
        let mut plan = AggregatePlan::default();
        let mut puts = Vec::new();
        for name in order {
            match wanted.get(name).copied().flatten() {
                Some(parent) => puts.push(parent),
                None => plan.gone.extend(self.id(name)),
            }
        }
        for parent in &puts {
            if self.id(&parent.id).is_none() {
                let id = self.number(&mut plan)?;
                plan.names.insert(parent.id.as_str().into(), id);
            }
        }
        for parent in puts {
            self.put(&mut plan, parent)?;
        }
        self.sort(&mut plan)?;
        Ok(plan)
    }

    /// A number for a new one.
    fn number(&self, plan: &mut AggregatePlan) -> Result<ParentId, RegistryError> {
        if let Some(&id) = self.free.iter().rev().nth(plan.reused) {
            plan.reused += 1;
            return Ok(id);
        }
        let fresh = self.records.len() + plan.names.len() - plan.reused;
        let id = u32::try_from(fresh).ok().and_then(ParentId::new);
        id.ok_or(RegistryError::ManyParents(MAX_PARENTS))
    }

    fn put(&self, plan: &mut AggregatePlan, parent: &Parent) -> Result<(), RegistryError> {
        let above = match &parent.parent {
            Some(above) => Some(self.resolve(plan, &parent.id, above)?),
            None => None,
        };
        let rates = [BitsPerSec(parent.down_bps), BitsPerSec(parent.up_bps)];
        let spec = ParentSpec { parent: above, rates };
        let Some(id) = self.id(&parent.id).or_else(|| plan.names.get(&*parent.id).copied()) else {
            return Ok(());
        };
        if self.at(id).is_none_or(|old| old.spec != spec) {
            plan.puts.push((id, parent.id.as_str().into(), spec));
        }
        Ok(())
    }

    /// The aggregate that a record names.
    pub(super) fn resolve(
        &self,
        plan: &AggregatePlan,
        id: &str,
        name: &str,
    ) -> Result<ParentId, RegistryError> {
        let known = self.id(name).filter(|known| !plan.gone.contains(known));
        known
            .or_else(|| plan.names.get(name).copied())
            .ok_or_else(|| RegistryError::UnknownParent { id: id.to_owned(), parent: name.to_owned() })
    }

    /// From an aggregate up once the plan is carried out, itself first; a loop has no end.
    fn way<'a>(&'a self, plan: &'a AggregatePlan, id: ParentId) -> impl Iterator<Item = ParentId> {
        let spec = |id| plan.specs.get(&id).or_else(|| self.at(id).map(|aggregate| &aggregate.spec));
        std::iter::successors(Some(id), move |&id| spec(id)?.parent)
    }

    /// Those above first, so that no shard ever sees a loop; one in the outcome is an error.
    fn sort(&self, plan: &mut AggregatePlan) -> Result<(), RegistryError> {
        plan.specs = plan.puts.iter().map(|(id, _, spec)| (*id, *spec)).collect();
        let mut levels = HashMap::with_capacity(plan.specs.len());
        for (id, name, _) in &plan.puts {
            let level = self.way(plan, *id).take(MAX_LEVELS + 1).count();
            if level > MAX_LEVELS {
                return Err(RegistryError::DeepParent { id: name.to_string(), most: MAX_LEVELS });
            }
            levels.insert(*id, level);
        }
        plan.puts.sort_by_key(|put| levels.get(&put.0).copied());
        Ok(())
    }

    /// The aggregate at the top of a new child's way up.
    pub(super) fn root(&self, plan: &AggregatePlan, id: ParentId) -> ParentId {
        self.way(plan, id).take(MAX_LEVELS).last().unwrap_or(id)
    }

    /// The shard of what is below a root, if it has one.
    pub(super) fn home(&self, plan: &AggregatePlan, root: ParentId) -> Option<u32> {
        plan.homes.get(&root).copied().or_else(|| self.at(root)?.home)
    }

    /// The first child of a root is there.
    pub(super) fn settle(plan: &mut AggregatePlan, root: ParentId, shard: u32) {
        plan.homes.insert(root, shard);
    }

    /// Enters a plan; returns what every shard is to be told when nothing of the batch can come any more.
    pub(super) fn enter(&mut self, plan: AggregatePlan, ticket: Ticket) -> Vec<Change> {
        self.free.truncate(self.free.len() - plan.reused);
        for (id, name, spec) in plan.puts {
            let place = id.index();
            if self.records.len() <= place {
                self.records.resize(place + 1, None);
            }
            let (home, subscribers) = self.at(id).map_or((None, 0), |old| (old.home, old.subscribers));
            self.names.insert(Arc::clone(&name), id);
            self.records[place] = Some(Aggregate { name, spec, home, subscribers });
            self.hand_up(id, home);
        }
        for (root, shard) in plan.homes {
            if let Some(aggregate) = self.records.get_mut(root.index()).and_then(Option::as_mut) {
                aggregate.home = Some(shard);
            }
        }
        for id in &plan.gone {
            if let Some(aggregate) = self.records.get_mut(id.index()).and_then(Option::take) {
                self.names.remove(&aggregate.name);
            }
        }
        let changes = plan.gone.iter().map(|&id| Change::RemoveParent { id }).collect();
        if !plan.gone.is_empty() {
            self.resting.push_back((ticket, plan.gone));
        }
        changes
    }

    /// A root that came below another gives it its shard, if that has none.
    fn hand_up(&mut self, id: ParentId, home: Option<u32>) {
        let root = self.root(&AggregatePlan::default(), id);
        if let Some(aggregate) = self.records.get_mut(root.index()).and_then(Option::as_mut) {
            aggregate.home = aggregate.home.or(home);
        }
    }

    /// Frees what rests under `ticket` and older ones.
    pub(super) fn release(&mut self, ticket: Ticket) {
        while self.resting.front().is_some_and(|(oldest, _)| *oldest <= ticket) {
            if let Some((_, ids)) = self.resting.pop_front() {
                self.free.extend(ids);
            }
        }
    }
}
