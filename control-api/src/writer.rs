// SPDX-License-Identifier: Apache-2.0
//! The one thread that changes records: memory, store, shaper, in that order.
//!
//! Invariant: a request is answered only when its changes are committed and on their way to the lcores; on any
//! error nothing of it is left in memory, store or shaper. What waits is taken as a group: each request sees those
//! before it, and one transaction commits all. If the transaction or the shaper refuses a group, each of its
//! requests is tried alone, so that none fails for another. Whether there is room is judged before the store is
//! touched (see `room`).

mod load;
mod parents;
mod queue;
mod replay;
mod room;
mod unapplied;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use hashbrown::HashMap;
use model::keys::{self, KeyIndex};
use model::stats::{Event, EventKind};
use model::{Forest, Parent, Subscriber};
use serde_json::{Value, json};
use tokio::sync::{broadcast, oneshot};

use crate::bulk::{Bulk, Report};
use crate::directory::{Directory, Record};
use crate::precondition::Expect;
use crate::problem::Problem;
use crate::rules::Rules;
use crate::search;
use crate::server::run_hook;
use crate::shaper::{Edit, Shaper, ShaperError};
use crate::store::{Row, Store, Table};
use parents::Undo;
pub(crate) use parents::{ParentChange, misplaced};
pub(crate) use queue::Postman;
use queue::{Inbox, Job, Queue, Refused};
pub(crate) use unapplied::Unapplied;

/// Requests of one group, at most.
const GROUP: usize = 512;

/// What a request wants changed.
#[derive(Debug)]
pub(crate) enum Command {
    Put(Subscriber, Expect),
    Patch { id: String, patch: Value, expect: Expect },
    Delete { id: String, expect: Expect },
    Bulk(Bulk),
    PutParent(Parent, Expect),
    PatchParent { id: String, patch: Value, expect: Expect },
    DeleteParent { id: String, expect: Expect },
}

/// What became of it.
#[derive(Debug)]
pub(crate) enum Done {
    Record { record: Record, created: bool },
    Deleted,
    Bulk(Report),
}

type Answer = Result<Done, Problem>;

/// The way to the writer.
#[derive(Clone, Debug)]
pub(crate) struct Writes {
    queue: Arc<Queue>,
    unapplied: Arc<Unapplied>,
}

impl Writes {
    pub(crate) async fn submit(&self, command: Command) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.queue.push((command, reply)).map_err(|refused| match refused {
            Refused::Full => Problem::unavailable("too many changes wait; try again"),
            Refused::Ended => Self::gone(),
        })?;
        answer.await.unwrap_or_else(|_| Err(Self::gone()))
    }

    fn gone() -> Problem {
        Problem::unavailable(
            "the thread that writes the store has ended; whether the change is kept is not known",
        )
    }

    /// Lets what waits finish, then ends the thread.
    pub(crate) fn stop(&self) {
        self.queue.end();
    }

    /// Whether the thread still takes changes.
    pub(crate) fn alive(&self) -> bool {
        !self.queue.has_ended()
    }

    /// Records of the store that the shaper would not take.
    pub(crate) fn unapplied(&self) -> &Unapplied {
        &self.unapplied
    }
}

/// The net change of one record within a group.
pub(crate) struct Change {
    pub(crate) id: Arc<str>,
    pub(crate) old: Option<Record>,
    pub(crate) new: Option<Record>,
    /// `new` as it was parsed, until it goes to the shaper.
    pub(crate) parsed: Option<Subscriber>,
}

impl Change {
    /// A record and its successor.
    pub(crate) fn put(old: Option<Record>, new: Record, parsed: Subscriber) -> Self {
        Self { id: parsed.id.as_str().into(), old, new: Some(new), parsed: Some(parsed) }
    }

    /// Whether keys come or go.
    fn moves(&self) -> bool {
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => !same_keys(&old.json, &new.json),
            _ => true,
        }
    }

    /// The end of a record.
    pub(crate) fn remove(id: Arc<str>, old: Record) -> Self {
        Self { id, old: Some(old), new: None, parsed: None }
    }
}

/// See the module.
pub(crate) struct Writer {
    pub(crate) directory: Arc<Directory>,
    pub(crate) keys: KeyIndex,
    pub(crate) parents: Arc<Directory>,
    pub(crate) forest: Forest,
    store: Store,
    shaper: Arc<dyn Shaper>,
    rules: Rules,
    revision: u64,
    pub(crate) events: broadcast::Sender<Event>,
    /// Changes of the group, and where each record's stands.
    staged: Vec<Change>,
    places: HashMap<Arc<str>, usize>,
    staged_parents: Vec<ParentChange>,
    /// Takes back what the group did to the forest.
    undo: Vec<Undo>,
    /// Rows that a failed take-back still owes the store.
    owed: Vec<(Table, Arc<str>, Option<Record>)>,
    /// Records in the store that the shaper does not have, with why.
    unapplied: Arc<Unapplied>,
    /// Between two attempts to hand those over.
    retry: Duration,
}

impl Writer {
    pub(crate) fn spawn(
        mut self,
        start_hook: Option<fn()>,
    ) -> std::io::Result<(JoinHandle<()>, Writes, Postman)> {
        let (mut inbox, queue, postman) = Inbox::new();
        let unapplied = Arc::clone(&self.unapplied);
        let thread = std::thread::Builder::new().name("sluice-store".to_owned()).spawn(move || {
            run_hook(start_hook);
            self.work(&mut inbox);
        })?;
        Ok((thread, Writes { queue, unapplied }, postman))
    }

    /// While some records are not shaped, they are tried again whenever nothing else comes.
    fn work(&mut self, inbox: &mut Inbox) {
        loop {
            let patience = (!self.unapplied.is_empty()).then_some(self.retry);
            let Some(jobs) = inbox.group(GROUP, patience) else { return };
            if jobs.is_empty() {
                self.retry();
            }
            let mut group = Vec::new();
            for job in jobs {
                // Parsed by the million, it must not be evaluated twice: it goes alone.
                if matches!(job.0, Command::Bulk(_)) {
                    self.run(std::mem::take(&mut group), inbox);
                    self.run(vec![job], inbox);
                } else {
                    group.push(job);
                }
            }
            self.run(group, inbox);
        }
    }

    fn run(&mut self, mut group: Vec<Job>, inbox: &Inbox) {
        let answers: Vec<_> = group.iter_mut().map(|(command, _)| self.evaluate(command)).collect();
        let replies = |group: Vec<Job>| group.into_iter().map(|(_, reply)| reply);
        match self.settle() {
            Ok(()) => inbox.answer(replies(group).zip(answers).collect()),
            // alone, or for want of an answer that none of them would get
            Err(problem) if group.len() == 1 || problem.status == StatusCode::SERVICE_UNAVAILABLE => {
                inbox.answer(replies(group).map(|reply| (reply, Err(problem.clone()))).collect());
            }
            Err(_) => group.into_iter().for_each(|alone| self.run(vec![alone], inbox)),
        }
    }

    fn evaluate(&mut self, command: &mut Command) -> Answer {
        match command {
            Command::Put(subscriber, expect) => {
                let old = self.current(&subscriber.id);
                expect.check(old.as_ref())?;
                self.put(old, subscriber.clone())
            }
            Command::Patch { id, patch, expect } => {
                let old = self.current(id).ok_or_else(|| Problem::no_record(id))?;
                expect.check(Some(&old))?;
                let before = parse(&old)?;
                let after = before.merge_patch(patch).map_err(|error| Problem::record(&error))?;
                self.rules.check(&after).map_err(|error| Problem::record(&error))?;
                self.put(Some(old), after)
            }
            Command::Delete { id, expect } => {
                let old = self.current(id).ok_or_else(|| Problem::no_record(id))?;
                expect.check(Some(&old))?;
                self.claim(Some(&parse(&old)?), None)?;
                self.adopt(Some(&old), None).map_err(|error| misplaced(&error))?;
                self.stage(Change::remove(id.as_str().into(), old));
                Ok(Done::Deleted)
            }
            Command::Bulk(bulk) => self.bulk(std::mem::take(bulk)).map(Done::Bulk),
            Command::PutParent(parent, expect) => self.put_parent(parent, expect),
            Command::PatchParent { id, patch, expect } => self.patch_parent(id, patch, expect),
            Command::DeleteParent { id, expect } => self.delete_parent(id, expect),
        }
    }

    fn put(&mut self, old: Option<Record>, after: Subscriber) -> Answer {
        let json = after.to_json();
        let created = old.is_none();
        if let Some(old) = &old
            && self.unchanged(&after.id, old, &json)
        {
            return Ok(Done::Record { record: old.clone(), created });
        }
        let before = match &old {
            Some(old) if same_keys(&old.json, &json) => None,
            old => Some(old.as_ref().map(parse).transpose()?),
        };
        let steps = self.undo.len();
        self.adopt(old.as_ref(), after.parent.as_deref()).map_err(|error| misplaced(&error))?;
        if let Some(before) = before {
            self.claim(before.as_ref(), Some(&after)).inspect_err(|_| self.undo_to(steps))?;
        }
        let record = self.record(&json);
        let done = Done::Record { record: record.clone(), created };
        self.stage(Change::put(old, record, after));
        Ok(done)
    }

    /// Whether nothing is to be done. A record that the shaper does not have is tried again.
    pub(crate) fn unchanged(&self, id: &str, old: &Record, json: &str) -> bool {
        *old.json == *json && !self.unapplied.has(id)
    }

    /// The record as the requests before this one leave it.
    pub(crate) fn current(&self, id: &str) -> Option<Record> {
        match self.places.get(id).and_then(|place| self.staged.get(*place)) {
            Some(change) => change.new.clone(),
            None => self.directory.get(id),
        }
    }

    pub(crate) fn record(&mut self, json: &str) -> Record {
        self.revision += 1;
        Record { rev: self.revision, json: json.into() }
    }

    fn claim(&mut self, old: Option<&Subscriber>, new: Option<&Subscriber>) -> Result<(), Problem> {
        self.keys.replace(old, new).map_err(|conflict| {
            Problem::new(StatusCode::CONFLICT, conflict.to_string())
                .field("match")
                .with("ids", json!([conflict.claimant, conflict.holder]))
        })
    }

    /// Adds to the group; keys are claimed already. Of two changes of one record the net one stays.
    pub(crate) fn stage(&mut self, change: Change) {
        let place = self.places.get(&change.id).copied();
        if let Some(earlier) = place.and_then(|place| self.staged.get_mut(place)) {
            earlier.new = change.new;
            earlier.parsed = change.parsed;
        } else {
            self.places.insert(Arc::clone(&change.id), self.staged.len());
            self.staged.push(change);
        }
    }

    /// Adds a bulk request's changes, whose names are all different. It is alone in its group, so nobody looks for
    /// their places.
    pub(crate) fn stage_all(&mut self, changes: Vec<Change>) {
        debug_assert!(self.staged.is_empty(), "a bulk request goes alone");
        self.staged = changes;
    }

    /// Commits and applies the group; on an error takes all of it back.
    fn settle(&mut self) -> Result<(), Problem> {
        self.places.clear();
        let mut changes = std::mem::take(&mut self.staged);
        let parents = std::mem::take(&mut self.staged_parents);
        if changes.is_empty() && parents.is_empty() {
            self.undo.clear();
            return Ok(());
        }
        if let Err(problem) = self.check_room(&changes) {
            self.unclaim(&changes);
            return Err(problem);
        }
        let owed = std::mem::take(&mut self.owed);
        let debts = owed.iter().map(|(table, id, record)| (*table, id, record.as_ref()));
        if let Err(error) = self.store.commit(debts.chain(news(&changes, &parents)).map(row), self.revision) {
            tracing::error!(%error, "a change was not stored");
            self.owed = owed;
            self.unclaim(&changes);
            return Err(Problem::unavailable(format!("not stored: {error}")));
        }
        if let Err(error) = self.apply(edits(&mut changes, &parents)) {
            tracing::error!(%error, "the shaper refused a change");
            self.unclaim(&changes);
            self.take_back(&changes, &parents);
            if matches!(error, ShaperError::Halfway(_)) {
                self.reinstate(changes);
            }
            return Err(refusal(&error));
        }
        self.undo.clear();
        self.publish(changes, parents);
        Ok(())
    }

    /// A panic of the data plane's side fails the request, not this thread.
    fn guarded<T>(&self, call: impl FnOnce(&dyn Shaper) -> Result<T, ShaperError>) -> Result<T, ShaperError> {
        std::panic::catch_unwind(AssertUnwindSafe(|| call(&*self.shaper)))
            .unwrap_or_else(|_| Err(ShaperError::Unavailable("it panicked".to_owned())))
    }

    fn apply(&self, edits: Vec<Edit>) -> Result<(), ShaperError> {
        self.guarded(|shaper| shaper.apply(edits))
    }

    fn unclaim(&mut self, changes: &[Change]) {
        self.undo_to(0);
        let claimed: Vec<_> = changes
            .iter()
            .filter(|change| change.moves())
            .map(|change| (read(change.new.as_ref()), read(change.old.as_ref())))
            .collect();
        let edits: Vec<_> =
            claimed.iter().map(|(old, new)| keys::Edit { old: old.as_ref(), new: new.as_ref() }).collect();
        if let Err(conflicts) = self.keys.apply(&edits) {
            tracing::error!(?conflicts, "keys could not be given back");
        }
    }

    /// Nothing of the changes was acknowledged: the store forgets them again, now or with the next commit.
    fn take_back(&mut self, changes: &[Change], parents: &[ParentChange]) {
        let subscribers = changes.iter().map(|change| (Table::Subscribers, &change.id, change.old.as_ref()));
        let parents = parents.iter().map(|change| (Table::Parents, &change.id, change.old.as_ref()));
        let olds = subscribers.chain(parents);
        if let Err(error) = self.store.commit(olds.clone().map(row), self.revision) {
            tracing::error!(%error, "a refused change is still in the store; it goes with the next one");
            self.owed.extend(olds.map(|(table, id, record)| (table, Arc::clone(id), record.cloned())));
        }
    }

    /// The shaper lost what a refused batch removed: it gets that back, now or as soon as it takes it.
    fn reinstate(&mut self, changes: Vec<Change>) {
        let gone = changes.into_iter().filter(|change| change.new.is_none()).filter_map(|change| change.old);
        let lost: Vec<_> = gone.filter_map(|record| parse(&record).ok()).collect();
        let back = lost
            .iter()
            .map(|subscriber| self.rules.servable(subscriber).unwrap_or_else(|| subscriber.clone()));
        if let Err(error) = self.apply(back.map(Edit::Put).collect()) {
            tracing::error!(records = lost.len(), %error, "removed by a refused change; tried again");
            self.unapplied.add(lost.into_iter().map(|subscriber| (subscriber.id.into(), error.clone())));
        }
    }

    fn publish(&mut self, changes: Vec<Change>, parents: Vec<ParentChange>) {
        let (mut created, mut updated, mut deleted) = (0, 0, 0);
        let subscribers = changes.iter().map(|change| (change.old.is_some(), change.new.is_some()));
        for outcome in subscribers.chain(parents.iter().map(|one| (one.old.is_some(), one.new.is_some()))) {
            match outcome {
                (false, true) => created += 1,
                (true, true) => updated += 1,
                (true, false) => deleted += 1,
                (false, false) => {}
            }
        }
        self.unapplied.remove(changes.iter().map(|change| &*change.id));
        // who keeps his keys keeps his places in the index
        let moved: Vec<_> = changes
            .iter()
            .filter(|change| change.moves())
            .map(|change| (Arc::clone(&change.id), read(change.old.as_ref()), read(change.new.as_ref())))
            .collect();
        self.directory.apply(changes.into_iter().map(|change| (change.id, change.new)));
        self.directory.index.apply(moved.iter().map(|(id, old, new)| search::Edit {
            id,
            old: old.as_ref(),
            new: new.as_ref(),
        }));
        self.parents.index.name(parents.iter().map(|change| (&change.id, change.new.is_some())));
        self.parents
            .apply(parents.into_iter().map(|change| (change.id, change.new.map(|(record, _)| record))));
        let kind = EventKind::Config { created, updated, deleted };
        // Nobody may be listening.
        drop(self.events.send(Event { at_ms: now_ms(), kind }));
    }
}

/// A row as it is to become: where, its name, its record.
type Outcome<'a> = (Table, &'a Arc<str>, Option<&'a Record>);

fn row((table, id, record): Outcome<'_>) -> Row<'_> {
    Row { table, id, record: record.map(|record| (record.rev, &*record.json)) }
}

/// What a group comes to.
fn news<'a>(changes: &'a [Change], parents: &'a [ParentChange]) -> impl Iterator<Item = Outcome<'a>> {
    let subscribers = changes.iter().map(|change| (Table::Subscribers, &change.id, change.new.as_ref()));
    let parents = parents
        .iter()
        .map(|change| (Table::Parents, &change.id, change.new.as_ref().map(|(record, _)| record)));
    subscribers.chain(parents)
}

/// In the order that [`Shaper::apply`] promises.
fn edits(changes: &mut [Change], parents: &[ParentChange]) -> Vec<Edit> {
    let (first, last) = parents::edits(parents);
    let gone = changes.iter().filter(|change| change.old.is_some() && change.new.is_none());
    let mut edits: Vec<_> = gone.map(|change| Edit::Remove(change.id.to_string())).collect();
    edits.extend(first);
    edits.extend(changes.iter_mut().filter_map(|change| change.parsed.take()).map(Edit::Put));
    edits.extend(last);
    edits
}

/// A record parsed. That one of ours is not valid was told where it was read.
fn read(record: Option<&Record>) -> Option<Subscriber> {
    record.and_then(|record| parse(record).ok())
}

/// Whether two records in canonical form claim the same keys: what matches stands last in them. (Within a string the
/// quotes would be escaped.)
pub(crate) fn same_keys(one: &str, other: &str) -> bool {
    let matches = |json| str::split_once(json, "\"match\":").map(|(_, rest)| rest);
    matches(one).is_some_and(|rest| matches(other) == Some(rest))
}

fn refusal(error: &ShaperError) -> Problem {
    let problem = |status| Problem::new(status, format!("not applied: {error}"));
    match error {
        ShaperError::Full { .. } => problem(StatusCode::INSUFFICIENT_STORAGE),
        ShaperError::Refused { id, .. } => problem(StatusCode::UNPROCESSABLE_ENTITY).with("ids", json!([id])),
        ShaperError::Halfway(_) | ShaperError::Unavailable(_) => problem(StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// A committed record back in its parsed form. It was written by this program, so an error is a fault of ours.
pub(crate) fn parse(record: &Record) -> Result<Subscriber, Problem> {
    Subscriber::from_json(record.json.as_bytes()).map_err(|error| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the stored record is not valid: {error}"))
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "this file owns the clock of `config` events; nothing decides by it"
)]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
