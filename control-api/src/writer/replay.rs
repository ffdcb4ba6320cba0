// SPDX-License-Identifier: Apache-2.0
//! The stations of [`Writer::load`](super::Writer::load): rows are read by one thread, parsed by several, entered in
//! order by one, applied by one.
//!
//! Invariant: pieces go to the parsers in turn and come back in the same turn, so nothing is sorted and everything is
//! entered in the order it was read.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

use model::keys::KeyIndex;
use model::{Forest, Subscriber};

use super::Unapplied;
use super::load::{AHEAD, BATCH, damaged};
use crate::directory::Record;
use crate::rules::Rules;
use crate::search::{self, Index};
use crate::shaper::{Edit, Shaper, ShaperError};
use crate::store::{Order, Store, StoreError};

/// Records that travel together.
const PIECE: usize = 1024;

/// A row as it lies in the store.
type Row = (Arc<str>, Record);
/// The same parsed.
type Parsed = Result<Vec<(Row, Subscriber)>, StoreError>;

/// A parser's two ends.
pub(super) struct Line {
    pub(super) feed: SyncSender<Vec<Row>>,
    pub(super) parsed: Receiver<Parsed>,
}

impl Line {
    pub(super) fn start<'scope>(scope: &'scope Scope<'scope, '_>, path: &'scope Path) -> Self {
        let (feed, rows) = sync_channel::<Vec<Row>>(AHEAD);
        let (to_entering, parsed) = sync_channel(AHEAD);
        scope.spawn(move || {
            for piece in rows {
                let parse = |(id, record): Row| {
                    let subscriber = parse(path, &id, &record.json)?;
                    Ok(((id, record), subscriber))
                };
                if to_entering.send(piece.into_iter().map(parse).collect()).is_err() {
                    return;
                }
            }
        });
        Self { feed, parsed }
    }
}

fn parse(path: &Path, id: &str, text: &str) -> Result<Subscriber, StoreError> {
    let parsed = Subscriber::from_json(text.as_bytes());
    let subscriber = parsed.map_err(|error| damaged(path, id, &error.to_string()))?;
    if subscriber.id == id {
        Ok(subscriber)
    } else {
        Err(damaged(path, id, &format!("holds the name {:?}", subscriber.id)))
    }
}

/// Reads all rows and gives them to the parsers in turn, until nobody listens.
pub(super) fn feed(store: &Store, order: Order, parsers: &[SyncSender<Vec<Row>>]) -> Result<(), StoreError> {
    let mut turn = parsers.iter().cycle();
    let mut piece = Vec::with_capacity(PIECE);
    let mut listening = true;
    let mut send = |piece: &mut Vec<Row>| {
        let full = std::mem::replace(piece, Vec::with_capacity(PIECE));
        turn.next().is_some_and(|parser| parser.send(full).is_ok())
    };
    store.load(order, |id, rev, text| {
        if listening {
            // as this program wrote it, so it is canonical
            piece.push((Arc::from(id), Record { rev, json: text.into() }));
            if piece.len() >= PIECE {
                listening = send(&mut piece);
            }
        }
        Ok(())
    })?;
    if listening {
        send(&mut piece);
    }
    Ok(())
}

/// What records are entered into.
pub(super) struct Entering<'a> {
    pub(super) path: &'a Path,
    pub(super) keys: &'a mut KeyIndex,
    pub(super) forest: &'a mut Forest,
    pub(super) rules: &'a Rules,
    pub(super) index: Index,
    pub(super) records: Vec<Row>,
    /// Those whose profile is gone.
    pub(super) lost: usize,
}

impl Entering<'_> {
    /// Takes pieces from the parsers in turn until the first has no more.
    pub(super) fn all(
        &mut self,
        parsers: &[Receiver<Parsed>],
        batches: &SyncSender<Batch>,
    ) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        for parser in parsers.iter().cycle() {
            let Ok(piece) = parser.recv() else { break };
            for (row, subscriber) in piece? {
                self.one(row, subscriber, &mut batch)?;
                if batch.edits.len() >= BATCH {
                    // the one who applies ends after us
                    drop(batches.send(std::mem::take(&mut batch)));
                }
            }
        }
        drop(batches.send(batch));
        Ok(())
    }

    fn one(
        &mut self,
        (id, record): Row,
        subscriber: Subscriber,
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        let path = self.path;
        let wrong = |reason: String| damaged(path, &id, &reason);
        self.keys.replace(None, Some(&subscriber)).map_err(|conflict| wrong(conflict.to_string()))?;
        self.forest.adopt(None, subscriber.parent.as_deref()).map_err(|error| wrong(error.to_string()))?;
        self.index.apply([search::Edit { id: &id, old: None, new: Some(&subscriber) }].into_iter());
        let changed = self.rules.servable(&subscriber);
        self.lost += usize::from(changed.is_some());
        batch.edits.push(Edit::Put(changed.unwrap_or(subscriber)));
        batch.rows.push((Arc::clone(&id), record.clone()));
        self.records.push((id, record));
        Ok(())
    }
}

/// What goes to the shaper at once, and the rows it is of.
#[derive(Default)]
pub(super) struct Batch {
    edits: Vec<Edit>,
    rows: Vec<Row>,
}

impl Batch {
    /// As a batch, or where that is refused one by one, so that a bad record costs only itself.
    pub(super) fn apply(self, shaper: &dyn Shaper, rules: &Rules, unapplied: &Unapplied) {
        if self.edits.is_empty() || shaper.apply(self.edits).is_ok() {
            return;
        }
        let mut unavailable = None;
        for (id, record) in self.rows {
            let Ok(subscriber) = super::parse(&record) else { continue };
            let edit = Edit::Put(rules.servable(&subscriber).unwrap_or(subscriber));
            // one refusal for want of an answer stands for all that follow: each would wait as long
            let outcome = unavailable.clone().map_or_else(|| shaper.apply(vec![edit]), Err);
            if let Err(error) = outcome {
                unavailable = matches!(error, ShaperError::Unavailable(_)).then(|| error.clone());
                unapplied.add([(id, error)]);
            }
        }
    }
}
