// SPDX-License-Identifier: Apache-2.0
//! Start: the store's records go into memory and into the shaper, then those of the configuration if the store was
//! never seeded.
//!
//! A record of the store that the shaper does not take keeps its place in the store; `/readyz` tells, and it is
//! tried again every `Limits::retry` and with its next change. Where the store holds more than the shaper has room for,
//! those go first whose revision is lowest: who was let in last is shut out.
//!
//! Aggregates must be there before anybody below them: while no lcore answers, they are tried again as often, and the
//! start ends where that takes longer than `Limits::parents`.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use hashbrown::HashMap;
use model::keys::KeyIndex;
use model::stats::Event;
use model::{Forest, Parent, Subscriber};
use tokio::sync::broadcast;

use super::replay::{Batch, Entering, Line, feed};
use super::{Change, Writer};
use crate::directory::{Directory, Record, Records};
use crate::options::Options;
use crate::precondition::Expect;
use crate::rules::Rules;
use crate::search::Index;
use crate::server::StartError;
use crate::shaper::{Edit, Shaper, ShaperError};
use crate::store::{Order, Store, StoreError};

/// Records handed to the shaper at a time.
pub(super) const BATCH: usize = 4096;
/// Batches that wait for the shaper, and pieces that wait for or from a parser, at most.
pub(super) const AHEAD: usize = 4;
/// Threads that parse, at most: one fewer than there are CPUs, as another enters what they parse.
const PARSERS: usize = 4;
/// Events that a slow `/v1/events` client may be behind.
const EVENTS: usize = 256;

impl Writer {
    /// Reads the store and brings the shaper to its state.
    pub(crate) fn load(
        options: &Options,
        rules: Rules,
        shaper: Arc<dyn Shaper>,
        store: Store,
    ) -> Result<Self, StartError> {
        let mut writer = Self {
            directory: Arc::default(),
            // most have a prefix of each IP version
            keys: KeyIndex::with_capacity(usize::try_from(2 * store.records()?).unwrap_or(0)),
            parents: Arc::default(),
            forest: Forest::default(),
            staged_parents: Vec::new(),
            undo: Vec::new(),
            revision: store.revision()?,
            store,
            shaper,
            rules,
            events: broadcast::Sender::<Event>::new(EVENTS),
            staged: Vec::new(),
            places: HashMap::new(),
            owed: Vec::new(),
            unapplied: Arc::default(),
            retry: options.limits.retry,
        };
        writer.replay_parents(options.limits.parents)?;
        writer.replay()?;
        writer.seed(&options.seed_parents, &options.seeds)?;
        Ok(writer)
    }

    /// Aggregates go to the shaper before all others, those above first.
    fn replay_parents(&mut self, patience: Duration) -> Result<(), StartError> {
        let path = self.store.path();
        let (mut records, mut parents) = (Vec::new(), Vec::new());
        self.store.load_parents(|id, rev, text| {
            let parsed = Parent::from_json(text.as_bytes());
            let parent = parsed.map_err(|error| damaged(path, id, &error.to_string()))?;
            if parent.id != id {
                return Err(damaged(path, id, &format!("holds the name {:?}", parent.id)));
            }
            records.push((Arc::from(id), Record { rev, json: parent.to_json().into() }));
            parents.push(parent);
            Ok(())
        })?;
        // all are there before any is below another
        let alone = parents.iter().map(|parent| (parent, None));
        let placed = parents.iter().map(|parent| (parent, parent.parent.as_deref()));
        for (parent, above) in alone.chain(placed) {
            let place = self.forest.place(&parent.id, above);
            place.map_err(|error| damaged(path, &parent.id, &error.to_string()))?;
        }
        parents.sort_by_key(|parent| self.forest.level(&parent.id));
        for batch in parents.chunks(BATCH) {
            self.insist(batch, patience)?;
        }
        let index = Index::default();
        index.name(records.iter().map(|(id, _)| (id, true)));
        self.parents = Arc::new(Directory::new(records.into_iter().collect::<Records>(), index));
        Ok(())
    }

    /// Hands aggregates over, again and again while no lcore answers. A data plane that stops needs none.
    fn insist(&self, batch: &[Parent], patience: Duration) -> Result<(), StartError> {
        let mut waited = Duration::ZERO;
        loop {
            let edits = batch.iter().cloned().map(Edit::PutParent).collect();
            match self.shaper.apply(edits) {
                Err(_) if self.shaper.stopping() => return Ok(()),
                Err(ShaperError::Unavailable(why)) if waited < patience => {
                    let again = self.retry;
                    tracing::warn!(%why, parents = batch.len(), "parents of the store wait for an lcore; tried again every {again:?}");
                }
                Err(error) => {
                    let reason = format!("{error}, tried for {waited:?}");
                    return Err(StartError::Parents(reason));
                }
                Ok(()) => return Ok(()),
            }
            pause(self.retry);
            waited += self.retry;
        }
    }

    /// Reads the store's records here, parses them on threads beside, enters them in order on one more, and hands them to
    /// the shaper from another: each waits for the one before only.
    fn replay(&mut self) -> Result<(), StartError> {
        let path = self.store.path();
        let crowded = self.store.records()? > self.shaper.capacity();
        let order = if crowded { Order::Revisions } else { Order::Names };
        let mut entering = Entering {
            path,
            keys: &mut self.keys,
            forest: &mut self.forest,
            rules: &self.rules,
            index: Index::default(),
            records: Vec::new(),
            lost: 0,
        };
        let (store, shaper, unapplied, rules) = (&self.store, &*self.shaper, &*self.unapplied, &self.rules);
        let (lines, outcome) = std::thread::scope(|scope| {
            let (batches, to_apply) = sync_channel::<Batch>(AHEAD);
            scope.spawn(move || to_apply.iter().for_each(|batch| batch.apply(shaper, rules, unapplied)));
            let lines: Vec<_> = (0..parsers()).map(|_| Line::start(scope, path)).collect();
            let (feeds, parsed): (Vec<_>, Vec<_>) =
                lines.into_iter().map(|line| (line.feed, line.parsed)).unzip();
            let entering = &mut entering;
            let entered = scope.spawn(move || entering.all(&parsed, &batches));
            let read = feed(store, order, &feeds);
            drop(feeds);
            (read, entered.join())
        });
        // of a record that is wrong the reader knows only that nobody listens any more
        outcome.map_err(|_| StartError::Threads("a thread that loads the store died".to_owned()))??;
        lines?;
        let Entering { index, records, lost, .. } = entering;
        if lost > 0 {
            tracing::warn!(
                records = lost,
                "these name a profile the configuration lost; shaped by `default`"
            );
        }
        let refused = &self.unapplied;
        if let Some((id, error)) = refused.ids().first().and_then(|id| Some((id, refused.why(id)?))) {
            tracing::error!(records = refused.len(), example = %id, %error, "records not shaped");
        }
        tracing::info!(records = records.len(), store = %path.display(), "store read");
        self.directory = Arc::new(Directory::new(records.into_iter().collect::<Records>(), index));
        Ok(())
    }

    /// Hands over once more what the shaper does not have, oldest first, up to the first for which there is no room
    /// or no lcore answers.
    pub(super) fn retry(&mut self) {
        let ids = self.unapplied.ids().into_iter();
        let mut waiting: Vec<_> = ids.map(|id| (self.directory.get(&id), id)).collect();
        waiting.sort_unstable_by_key(|(record, _)| record.as_ref().map(|record| record.rev));
        for (record, id) in waiting.into_iter().take(BATCH) {
            let Some(subscriber) = record.and_then(|record| super::parse(&record).ok()) else {
                self.unapplied.remove([&*id]);
                continue;
            };
            let subscriber = self.rules.servable(&subscriber).unwrap_or(subscriber);
            match self.apply(vec![Edit::Put(subscriber)]) {
                Ok(()) => {
                    tracing::info!(%id, "shaped at last");
                    self.unapplied.remove([&*id]);
                }
                Err(ShaperError::Unavailable(_) | ShaperError::Full { .. }) => break,
                Err(_) => {}
            }
        }
    }

    /// Puts the configuration's records in, once. What the store has already wins, by name and by key.
    fn seed(&mut self, parents: &[Parent], seeds: &[Subscriber]) -> Result<(), StartError> {
        if parents.is_empty() && seeds.is_empty() {
            return Ok(());
        }
        if self.store.seeded()? {
            let (parents, records) = (parents.len(), seeds.len());
            tracing::info!(
                records,
                parents,
                "the store was seeded before: [[subscriber]] and [[parent]] are not read"
            );
            return Ok(());
        }
        parents.iter().try_for_each(|parent| self.seed_parent(parent))?;
        seeds.iter().try_for_each(|seed| self.seed_subscriber(seed))?;
        self.settle().map_err(|problem| StartError::Seed {
            table: "subscriber",
            id: format!("(all {})", seeds.len()),
            reason: problem.detail,
        })?;
        Ok(self.store.mark_seeded()?)
    }

    fn seed_parent(&mut self, seed: &Parent) -> Result<(), StartError> {
        if self.forest.contains(&seed.id) {
            tracing::warn!(id = %seed.id, "[[parent]]: the store has one of that name, which stays");
            return Ok(());
        }
        let put = self.put_parent(seed, &Expect::default());
        put.map(drop).map_err(|problem| StartError::Seed {
            table: "parent",
            id: seed.id.clone(),
            reason: problem.detail,
        })
    }

    fn seed_subscriber(&mut self, seed: &Subscriber) -> Result<(), StartError> {
        let refuse = |reason: String| StartError::Seed { table: "subscriber", id: seed.id.clone(), reason };
        self.rules.check(seed).map_err(|error| refuse(error.to_string()))?;
        if let Some(parent) = seed.parent.as_deref().filter(|parent| !self.forest.contains(parent)) {
            return Err(refuse(format!("there is no parent \"{parent}\"")));
        }
        if self.current(&seed.id).is_some() {
            tracing::warn!(id = %seed.id, "[[subscriber]]: the store has a record of that name, which stays");
        } else if let Err(conflict) = self.keys.replace(None, Some(seed)) {
            tracing::warn!(id = %seed.id, %conflict, "[[subscriber]] left out");
        } else {
            self.adopt(None, seed.parent.as_deref()).map_err(|error| refuse(error.to_string()))?;
            let record = self.record(&seed.to_json());
            self.stage(Change::put(None, record, seed.clone()));
        }
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing can be done at start while no lcore answers")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// How many threads parse.
fn parsers() -> usize {
    std::thread::available_parallelism().map_or(1, |cpus| cpus.get().saturating_sub(1)).clamp(1, PARSERS)
}

pub(super) fn damaged(path: &std::path::Path, id: &str, reason: &str) -> StoreError {
    StoreError::Corrupt { path: path.to_owned(), reason: format!("record {id:?}: {reason}") }
}
