// SPDX-License-Identifier: Apache-2.0
//! The control side's book of subscribers: which queue ids each has, which keys lead to them, which ids are free.
//!
//! A batch of edits is planned without changing anything ([`Registry::plan`]), so an error leaves all as it was. A
//! plan is then carried out in this order, so that no packet meets a queue id its shard does not know, and no id is
//! given to somebody else while a packet may still carry it:
//!
//! 1. the caller sends [`Plan::before`] to the shards and waits until they have applied it;
//! 2. [`Registry::commit`] changes the table;
//! 3. the caller waits until every RX lcore has passed a quiescent point and the shards have drained what was in
//!    their rings by then, and sends [`Committed::after`];
//! 4. when the shards have applied that, [`Registry::release`] frees the ids.
//!
//! Invariants: every record has one pair of ids that differ in the lowest bit (what the table relies on); a key
//! belongs to at most one record; a batch that changes nothing plans nothing. One thread at a time.

mod aggregates;
mod ids;
mod plan;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use aqm::BitsPerSec;
use hashbrown::HashMap;
use model::config::Role;
use model::keys::Conflict;
use model::subscriber::DEFAULT_PROFILE;

use crate::change::{Change, Direction, QueueKind, QueueSpec};
use crate::packet::{PortId, QueueId};
use crate::parents::ParentId;
use crate::profiles::Profiles;
use crate::table::{Classifier, Key, TableError, TableWriter};
pub use aggregates::AggregateView;
use aggregates::Aggregates;
use ids::IdPool;
pub use plan::{Committed, Plan, RecordEdit};

/// Keys the table has room for at first, at most; it grows.
const FIRST_KEYS: usize = 1 << 16;
/// The rate of a queue id whose shard takes it from its port, and follows the port when its link changes.
const FROM_PORT: u64 = 0;

/// What a registry is built from.
#[derive(Clone, Debug)]
pub struct RegistryOptions {
    /// Shards; queue id `q` belongs to shard `q % shards`.
    pub shards: u32,
    /// Queue ids over all shards: they are below this. Each port takes two, each subscriber two.
    pub capacity: u32,
    /// All ports, by [`PortId`].
    pub ports: Vec<RegistryPort>,
    /// All profiles.
    pub profiles: Arc<Profiles>,
    /// Rate of unknown traffic in each direction; `None`: only the port's.
    pub unknown_bps: Option<u64>,
    /// Seed of the table's hash. Nothing but the place of keys depends on it: draw it at random, so that nobody can
    /// choose packets that collide with a subscriber's key.
    pub seed: u64,
}

/// A port, as far as subscribers are concerned.
#[derive(Clone, Debug)]
pub struct RegistryPort {
    /// Its name in the configuration.
    pub name: String,
    /// Which side it faces.
    pub role: Role,
    /// Where its packets leave.
    pub peer: PortId,
    /// Rate of its shaper, for whoever builds the port from this; the registry does not need it.
    pub rate: Option<BitsPerSec>,
}

/// Queue ids of a port that belong to no subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Traffic that matches nobody and leaves by the port.
    pub unknown: QueueId,
    /// Control traffic that leaves by the port.
    pub control: QueueId,
}

/// A change and the shard it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routed {
    /// Which shard.
    pub shard: usize,
    /// What changes.
    pub change: Change,
}

/// Names what a commit put to rest; a later one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Why an edit cannot be.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// No such profile.
    #[error("subscriber \"{id}\" asks for profile \"{profile}\", which does not exist")]
    UnknownProfile {
        /// Whose.
        id: String,
        /// What it asks for.
        profile: String,
    },
    /// No such port.
    #[error(
        "subscriber \"{id}\" is limited to port \"{port}\", which is not an access port of this configuration"
    )]
    UnknownPort {
        /// Whose.
        id: String,
        /// What it asks for.
        port: String,
    },
    /// No such aggregate.
    #[error("\"{id}\" asks for parent \"{parent}\", which does not exist")]
    UnknownParent {
        /// Whose.
        id: String,
        /// What it asks for.
        parent: String,
    },
    /// An aggregate would be above itself, or have too many above it.
    #[error("parent \"{id}\" would be above itself or below {most} or more others")]
    DeepParent {
        /// Which.
        id: String,
        /// Levels there may be.
        most: usize,
    },
    /// No numbers of aggregates are left.
    #[error("there is room for {0} parents")]
    ManyParents(usize),
    /// Two records claim one key.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// No ids are left.
    #[error(
        "{needed} new subscribers need {needed} pairs of queue ids, but {free} are free of the {capacity} there are \
         ({resting} come back when the shards have let go of them)"
    )]
    Full {
        /// Pairs needed.
        needed: usize,
        /// Pairs free.
        free: usize,
        /// Pairs at rest after a removal.
        resting: usize,
        /// Pairs in all.
        capacity: u32,
    },
    /// The plan is older than the last commit.
    #[error("plan {plan} was made before commit {commits}; plan again")]
    Stale {
        /// What the plan was made on.
        plan: u64,
        /// Where the registry stands.
        commits: u64,
    },
    /// The options contradict themselves.
    #[error("{0}")]
    Options(String),
    /// The table could not be built.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl RegistryError {
    /// The subscriber whose edit cannot be, if it is one's.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::UnknownProfile { id, .. }
            | Self::UnknownPort { id, .. }
            | Self::UnknownParent { id, .. }
            | Self::DeepParent { id, .. } => Some(id),
            Self::Conflict(Conflict { claimant, .. }) => Some(claimant),
            Self::Full { .. }
            | Self::ManyParents(_)
            | Self::Stale { .. }
            | Self::Options(_)
            | Self::Table(_) => None,
        }
    }
}

/// A subscriber as the registry knows it.
#[derive(Clone, Debug)]
struct Record {
    name: Arc<str>,
    /// The up id is this with its lowest bit flipped.
    down: QueueId,
    /// Down and up.
    specs: [QueueSpec; 2],
    /// Sorted.
    keys: Box<[Key]>,
}

impl Record {
    fn up(&self) -> QueueId {
        partner(self.down)
    }

    fn ids(&self) -> [QueueId; 2] {
        [self.down, self.up()]
    }

    /// The aggregate right above it.
    fn parent(&self) -> Option<ParentId> {
        self.specs[0].parent
    }

    fn has(&self, key: &Key) -> bool {
        self.keys.binary_search(key).is_ok()
    }
}

/// The other id of a pair.
const fn partner(id: QueueId) -> QueueId {
    QueueId(id.0 ^ 1)
}

/// The book.
#[derive(Debug)]
pub struct Registry {
    shards: u32,
    capacity: u32,
    ports: Vec<RegistryPort>,
    profiles: Arc<Profiles>,
    /// Those before, which shards may hold still: a few kB a reload.
    former: Vec<Arc<Profiles>>,
    unknown_bps: Option<u64>,
    table: TableWriter,
    pool: IdPool,
    /// Down id of each name, halved: the place in `records`.
    names: HashMap<Arc<str>, u32>,
    records: Vec<Option<Record>>,
    aggregates: Aggregates,
    /// Plans carried out.
    commits: u64,
}

impl Registry {
    /// An empty book and a reader of its table.
    ///
    /// # Errors
    /// When the options contradict themselves or there is no memory for the table.
    pub fn new(options: RegistryOptions) -> Result<(Self, Classifier), RegistryError> {
        let reserved = check(&options).map_err(RegistryError::Options)?;
        let table = TableWriter::new(FIRST_KEYS.min(options.capacity as usize), options.seed)?;
        let peers: Vec<_> = options.ports.iter().map(|port| port.peer).collect();
        let classifier = table.reader(&peers);
        let registry = Self {
            shards: options.shards,
            capacity: options.capacity,
            pool: IdPool::new(options.shards, reserved, options.capacity),
            ports: options.ports,
            profiles: options.profiles,
            former: Vec::new(),
            unknown_bps: options.unknown_bps,
            table,
            names: HashMap::new(),
            records: Vec::new(),
            aggregates: Aggregates::default(),
            commits: 0,
        };
        Ok((registry, classifier))
    }

    /// Subscribers.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Aggregates.
    pub fn parents(&self) -> usize {
        self.aggregates.len()
    }

    /// All aggregates, in the order of their numbers.
    pub fn aggregates(&self) -> impl Iterator<Item = AggregateView<'_>> {
        self.aggregates.all()
    }

    /// Numbers of aggregates are below this.
    pub fn aggregates_end(&self) -> usize {
        self.aggregates.end()
    }

    /// The name of an aggregate.
    pub fn parent_name(&self, id: ParentId) -> Option<&str> {
        self.aggregates.name(id)
    }

    /// The aggregate right above a subscriber, by the subscriber's down id.
    pub fn above(&self, down: QueueId) -> Option<ParentId> {
        self.records.get(down.0 as usize / 2)?.as_ref()?.parent()
    }

    /// Ids of the subscribers right below the aggregates that `within` takes, of `most` records from the place `from`
    /// on, and where to go on.
    pub fn below(
        &self,
        within: impl Fn(ParentId) -> bool,
        from: usize,
        most: usize,
    ) -> (Vec<[QueueId; 2]>, Option<usize>) {
        let records = self.records.iter().skip(from).take(most).flatten();
        let below = records.filter(|record| record.parent().is_some_and(&within));
        let next = from.saturating_add(most);
        (below.map(Record::ids).collect(), (next < self.records.len()).then_some(next))
    }

    /// An aggregate by its name.
    pub fn parent(&self, name: &str) -> Option<ParentId> {
        self.aggregates.id(name)
    }

    /// Keys in the table.
    pub fn keys(&self) -> usize {
        self.table.len()
    }

    /// Pairs of ids that are free now.
    pub fn free_pairs(&self) -> usize {
        self.pool.available()
    }

    /// Pairs of ids that [`Registry::release`] will free.
    pub fn resting_pairs(&self) -> usize {
        self.pool.resting()
    }

    /// Pairs of ids that subscribers have, may have or had: how many subscribers there is room for.
    pub fn pairs(&self) -> usize {
        self.capacity as usize / 2 - self.ports.len()
    }

    /// Whether the subscribers that a batch leaves behind have room, once all that rests has come back. No name may
    /// stand in it twice.
    pub fn fits(&self, edits: &[RecordEdit<'_>]) -> bool {
        let known = |edit: &RecordEdit<'_>| edit.name().is_some_and(|name| self.names.contains_key(name));
        let gone = edits.iter().filter(|edit| matches!(edit, RecordEdit::Remove(_)) && known(edit)).count();
        let new = edits.iter().filter(|edit| matches!(edit, RecordEdit::Put(_)) && !known(edit)).count();
        self.len() - gone + new <= self.pairs()
    }

    /// Down and up id of a subscriber.
    pub fn ids(&self, name: &str) -> Option<(QueueId, QueueId)> {
        self.record(name).map(|record| (record.down, record.up()))
    }

    /// Whose a queue id is, and in which direction.
    pub fn owner(&self, id: QueueId) -> Option<(&str, Direction)> {
        let record = self.records.get(id.0 as usize / 2)?.as_ref()?;
        let direction = if id == record.down { Direction::Down } else { Direction::Up };
        Some((&record.name, direction))
    }

    /// All subscribers with their down and up ids, in the order of their ids.
    pub fn subscribers(&self) -> impl Iterator<Item = (&str, QueueId, QueueId)> {
        self.records.iter().flatten().map(|record| (&*record.name, record.down, record.up()))
    }

    /// The profiles that new records get.
    pub fn profiles(&self) -> &Arc<Profiles> {
        &self.profiles
    }

    /// Other profiles for what comes from now on, made [`with`](Profiles::with) those in force; what is there follows by
    /// [`outdated`](Self::outdated) and [`renew`](Self::renew).
    pub fn set_profiles(&mut self, profiles: Arc<Profiles>) {
        self.former.push(std::mem::replace(&mut self.profiles, profiles));
        self.commits += 1;
    }

    /// Changes that give ids of subscribers the profile that has taken the place of theirs: from the record at `from`
    /// on, at least `most` if there are so many, and where to go on.
    pub fn outdated(&self, from: usize, most: usize) -> (Vec<Routed>, Option<usize>) {
        let mut changes = Vec::new();
        for (place, record) in self.records.iter().enumerate().skip(from) {
            if changes.len() >= most {
                return (changes, Some(place));
            }
            let Some(record) = record else { continue };
            for (id, spec) in record.ids().into_iter().zip(record.specs) {
                let profile = self.profiles.current(spec.profile);
                if profile != spec.profile {
                    let spec = QueueSpec { profile, ..spec };
                    changes.push(self.routed(Change::Update { id, spec }));
                }
            }
        }
        (changes, None)
    }

    /// Enters changes of [`outdated`](Self::outdated) that the shards have applied.
    pub fn renew(&mut self, changes: &[Routed]) {
        for routed in changes {
            let Change::Update { id, spec } = routed.change else { continue };
            if let Some(Some(record)) = self.records.get_mut(id.0 as usize / 2) {
                let way = usize::from(id != record.down);
                record.specs[way].profile = spec.profile;
            }
        }
        self.commits += 1;
    }

    /// Changes that bring the reserved ids to what the book says.
    pub fn update_reserved(&self) -> Vec<Routed> {
        self.all_reserved(|id, spec| Change::Update { id, spec })
    }

    /// Whether a change is about a subscriber of the book.
    pub fn knows(&self, change: Change) -> bool {
        change.queue_id().is_some_and(|id| self.owner(id).is_some())
    }

    /// The change that puts a queue id back to what the book says, whatever became of a `change` to it.
    pub fn present(&self, change: Change) -> Change {
        let id = match change {
            Change::Create { id, .. } | Change::Update { id, .. } | Change::Remove { id } => id,
            Change::Parent { id, .. } | Change::RemoveParent { id } => return self.aggregates.present(id),
        };
        let record = self.records.get(id.0 as usize / 2).and_then(Option::as_ref);
        match record.map(|record| (record.down == id, &record.specs)) {
            None => Change::Remove { id },
            Some((true, &[spec, _]) | (false, &[_, spec])) => Change::Update { id, spec },
        }
    }

    /// The shard of a queue id.
    pub fn shard(&self, id: QueueId) -> usize {
        (id.0 % self.shards) as usize
    }

    /// Queue ids for what leaves by `port` and belongs to no subscriber.
    ///
    /// Ports take the first ids, unknown and control traffic of neighbouring ports in turn, so that the shards share
    /// them.
    pub fn reserved(&self, port: PortId) -> Reserved {
        let first = u32::from(port.0) * 2 + u32::from(port.0 & 1);
        Reserved { unknown: QueueId(first), control: partner(QueueId(first)) }
    }

    /// Changes that create the reserved ids; the first thing the shards get.
    pub fn create_reserved(&self) -> Vec<Routed> {
        self.all_reserved(|id, spec| Change::Create { id, spec })
    }

    fn all_reserved(&self, change: impl Fn(QueueId, QueueSpec) -> Change) -> Vec<Routed> {
        let specs =
            self.ports.iter().zip(0..).flat_map(|(port, number)| self.reserved_specs(port, PortId(number)));
        specs.map(|(id, spec)| self.routed(change(id, spec))).collect()
    }

    fn reserved_specs(&self, port: &RegistryPort, number: PortId) -> [(QueueId, QueueSpec); 2] {
        let spec = |kind, bps| QueueSpec {
            rate: BitsPerSec(bps),
            profile: self.profiles.index(DEFAULT_PROFILE).unwrap_or(0),
            direction: match port.role {
                Role::Access => Direction::Down,
                Role::Core => Direction::Up,
            },
            egress_hint: number,
            kind,
            parent: None,
        };
        let Reserved { unknown, control } = self.reserved(number);
        [
            (unknown, spec(QueueKind::Unknown, self.unknown_bps.unwrap_or(FROM_PORT))),
            (control, spec(QueueKind::Control, FROM_PORT)),
        ]
    }

    /// Frees the ids of the commit that gave `ticket`, and of those before it: all shards have applied what
    /// [`Committed::after`] said, and no packet carries the ids any more.
    pub fn release(&mut self, ticket: Ticket) {
        self.pool.release(ticket);
        self.aggregates.release(ticket);
    }

    /// Frees replaced tables that no reader holds any more; how many are left. Commits do it too; this is for a
    /// quiet control loop.
    pub fn reap(&mut self) -> usize {
        self.table.reap()
    }

    fn record(&self, name: &str) -> Option<&Record> {
        let place = *self.names.get(name)?;
        self.records.get(place as usize)?.as_ref()
    }

    fn routed(&self, change: Change) -> Routed {
        Routed { shard: change.queue_id().map_or(0, |id| self.shard(id)), change }
    }
}

/// How many pairs of ids the ports take, if the options make sense.
fn check(options: &RegistryOptions) -> Result<u32, String> {
    if options.shards == 0 {
        return Err("there must be at least one shard".to_owned());
    }
    let ports = u32::try_from(options.ports.len()).unwrap_or(u32::MAX);
    if ports > u32::from(u8::MAX) {
        return Err(format!("{ports} ports are more than {}", u8::MAX));
    }
    if let Some(port) = options.ports.iter().find(|port| u32::from(port.peer.0) >= ports) {
        return Err(format!("peer {} of port \"{}\" is none of the {ports} ports", port.peer.0, port.name));
    }
    if ports * 2 > options.capacity {
        return Err(format!("{ports} ports need {} queue ids of {}", ports * 2, options.capacity));
    }
    Ok(ports)
}
