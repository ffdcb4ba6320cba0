// SPDX-License-Identifier: Apache-2.0
//! Start: the store's records go into memory and into the shaper, then those of the configuration if the store was
//! never seeded.
//!
//! A record of the store that the shaper does not take keeps its place in the store; `/readyz` tells, and it is
//! tried again every [`RETRY`] and with its next change. Where the store holds more than the shaper has room for,
//! those go first whose revision is lowest: who was let in last is shut out.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use model::keys::KeyIndex;
use model::stats::Event;
use model::{Forest, Parent, Subscriber};
use tokio::sync::broadcast;

use super::{Change, Unapplied, Writer};
use crate::directory::{Directory, Record, Records};
use crate::options::Options;
use crate::rules::Rules;
use crate::search::{self, Index};
use crate::server::StartError;
use crate::shaper::{Edit, Shaper, ShaperError};
use crate::store::{Order, Store, StoreError};

/// Records handed to the shaper at a time.
const BATCH: usize = 4096;
/// Between two attempts to hand over records that the shaper refused at load.
pub(super) const RETRY: Duration = Duration::from_secs(2);
/// Events that a slow `/v1/events` client may be behind.
const EVENTS: usize = 256;

impl Writer {
    /// Reads the store and brings the shaper to its state.
    pub(crate) fn load(options: &Options, shaper: Arc<dyn Shaper>, store: Store) -> Result<Self, StartError> {
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
            rules: Rules::new(options),
            events: broadcast::Sender::<Event>::new(EVENTS),
            staged: Vec::new(),
            places: HashMap::new(),
            owed: Vec::new(),
            unapplied: Arc::default(),
        };
        writer.replay_parents()?;
        writer.replay()?;
        writer.seed(&options.seeds)?;
        Ok(writer)
    }

    /// Aggregates go to the shaper before all others, those above first.
    fn replay_parents(&mut self) -> Result<(), StartError> {
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
            let edits = batch.iter().cloned().map(Edit::PutParent).collect();
            self.shaper.apply(edits).map_err(|error| StartError::Parents(error.to_string()))?;
        }
        self.parents = Arc::new(Directory::new(records.into_iter().collect::<Records>(), Index::default()));
        Ok(())
    }

    fn replay(&mut self) -> Result<(), StartError> {
        let (mut records, mut batch, mut lost) = (Vec::new(), Vec::new(), 0);
        let index = Index::default();
        let (keys, rules, path) = (&mut self.keys, &self.rules, self.store.path());
        let forest = &mut self.forest;
        let (shaper, unapplied) = (&*self.shaper, &self.unapplied);
        let crowded = self.store.records()? > shaper.capacity();
        let order = if crowded { Order::Revisions } else { Order::Names };
        self.store.load(order, |id, rev, text| {
            let parsed = Subscriber::from_json(text.as_bytes());
            let subscriber = parsed.map_err(|error| damaged(path, id, &error.to_string()))?;
            if subscriber.id != id {
                return Err(damaged(path, id, &format!("holds the name {:?}", subscriber.id)));
            }
            keys.replace(None, Some(&subscriber))
                .map_err(|conflict| damaged(path, id, &conflict.to_string()))?;
            forest
                .adopt(None, subscriber.parent.as_deref())
                .map_err(|error| damaged(path, id, &error.to_string()))?;
            let id = Arc::from(id);
            index.apply([search::Edit { id: &id, old: None, new: Some(&subscriber) }].into_iter());
            // as this program wrote it, so it is canonical
            records.push((id, Record { rev, json: text.into() }));
            let changed = rules.servable(&subscriber);
            lost += usize::from(changed.is_some());
            batch.push(Edit::Put(changed.unwrap_or(subscriber)));
            if batch.len() >= BATCH {
                apply_each(shaper, rules, std::mem::take(&mut batch), &records, unapplied);
            }
            Ok(())
        })?;
        apply_each(shaper, rules, batch, &records, unapplied);
        if lost > 0 {
            tracing::warn!(
                records = lost,
                "these name a profile the configuration lost; shaped by `default`"
            );
        }
        if let Some((id, error)) = unapplied.ids().first().and_then(|id| Some((id, unapplied.why(id)?))) {
            tracing::error!(records = unapplied.len(), example = %id, %error, "records not shaped");
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
    fn seed(&mut self, seeds: &[Subscriber]) -> Result<(), StartError> {
        if seeds.is_empty() {
            return Ok(());
        }
        if self.store.seeded()? {
            tracing::info!(records = seeds.len(), "the store was seeded before: [[subscriber]] is not read");
            return Ok(());
        }
        for seed in seeds {
            let refuse = |reason: String| StartError::Seed { id: seed.id.clone(), reason };
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
        }
        self.settle().map_err(|problem| StartError::Seed {
            id: format!("(all {})", seeds.len()),
            reason: problem.detail,
        })?;
        Ok(self.store.mark_seeded()?)
    }
}

fn damaged(path: &std::path::Path, id: &str, reason: &str) -> StoreError {
    StoreError::Corrupt { path: path.to_owned(), reason: format!("record {id:?}: {reason}") }
}

/// As a batch, or where that is refused one by one, so that a bad record costs only itself. The batch is of the last
/// of `records`.
fn apply_each(
    shaper: &dyn Shaper,
    rules: &Rules,
    batch: Vec<Edit>,
    records: &[(Arc<str>, Record)],
    unapplied: &Unapplied,
) {
    let size = batch.len();
    if batch.is_empty() || shaper.apply(batch).is_ok() {
        return;
    }
    let mut unavailable = None;
    for (id, record) in records.iter().skip(records.len() - size) {
        let Ok(subscriber) = super::parse(record) else { continue };
        let edit = Edit::Put(rules.servable(&subscriber).unwrap_or(subscriber));
        // one refusal for want of an answer stands for all that follow: each would wait as long
        let outcome = unavailable.clone().map_or_else(|| shaper.apply(vec![edit]), Err);
        if let Err(error) = outcome {
            unavailable = matches!(error, ShaperError::Unavailable(_)).then(|| error.clone());
            unapplied.add([(Arc::clone(id), error)]);
        }
    }
}
