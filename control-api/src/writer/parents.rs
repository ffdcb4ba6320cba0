// SPDX-License-Identifier: Apache-2.0
//! Changes of aggregates, and which aggregate every record is below.
//!
//! Invariant: the forest holds what directory and group say together; a group that fails is undone step by step.

use std::sync::Arc;

use axum::http::StatusCode;
use model::Parent;
use model::parent::Misplaced;
use model::problem::{FieldError, RecordError};
use serde_json::{Value, json};

use super::{Answer, Done, Writer};
use crate::directory::Record;
use crate::precondition::Expect;
use crate::problem::Problem;
use crate::shaper::Edit;

/// The net change of one aggregate within a group.
pub(crate) struct ParentChange {
    pub(crate) id: Arc<str>,
    pub(crate) old: Option<Record>,
    pub(crate) new: Option<(Record, Parent)>,
}

/// How a step of the forest is undone.
pub(super) enum Undo {
    /// A subscriber goes back.
    Adopt { from: Option<String>, to: Option<String> },
    /// An aggregate goes back below this.
    Place { id: String, above: Option<String> },
    /// A new one goes.
    Remove { id: String },
}

impl Writer {
    pub(super) fn put_parent(&mut self, after: &Parent, expect: &Expect) -> Answer {
        let old = self.current_parent(&after.id);
        expect.check(old.as_ref())?;
        self.change_parent(old, after)
    }

    pub(super) fn patch_parent(&mut self, id: &str, patch: &Value, expect: &Expect) -> Answer {
        let old = self.current_parent(id).ok_or_else(|| Problem::no_parent(id))?;
        expect.check(Some(&old))?;
        let after = parse(&old)?.merge_patch(patch).map_err(|error| Problem::record(&error))?;
        self.change_parent(Some(old), &after)
    }

    fn change_parent(&mut self, old: Option<Record>, after: &Parent) -> Answer {
        let json = after.to_json();
        let created = old.is_none();
        if let Some(old) = old.as_ref().filter(|old| *old.json == *json) {
            return Ok(Done::Record { record: old.clone(), created });
        }
        let room =
            self.guarded(|shaper| Ok(shaper.parents_capacity())).map_err(|error| super::refusal(&error))?;
        if created && self.forest.len() as u64 >= room {
            let detail = format!("not applied: the data plane has room for {room} parents");
            return Err(Problem::new(StatusCode::INSUFFICIENT_STORAGE, detail));
        }
        let above = self.forest.above(&after.id).map(str::to_owned);
        self.forest.place(&after.id, after.parent.as_deref()).map_err(|error| misplaced(&error))?;
        let id = after.id.clone();
        self.undo.push(if created { Undo::Remove { id } } else { Undo::Place { id, above } });
        let record = self.record(&json);
        let done = Done::Record { record: record.clone(), created };
        let new = Some((record, after.clone()));
        self.stage_parent(ParentChange { id: after.id.as_str().into(), old, new });
        Ok(done)
    }

    pub(super) fn delete_parent(&mut self, id: &str, expect: &Expect) -> Answer {
        let old = self.current_parent(id).ok_or_else(|| Problem::no_parent(id))?;
        expect.check(Some(&old))?;
        let above = self.forest.above(id).map(str::to_owned);
        self.forest.remove(id).map_err(|error| misplaced(&error))?;
        self.undo.push(Undo::Place { id: id.to_owned(), above });
        self.stage_parent(ParentChange { id: id.into(), old: Some(old), new: None });
        Ok(Done::Deleted)
    }

    /// The aggregate as the requests before this one leave it.
    fn current_parent(&self, id: &str) -> Option<Record> {
        match self.staged_parents.iter().rfind(|change| &*change.id == id) {
            Some(change) => change.new.as_ref().map(|(record, _)| record.clone()),
            None => self.parents.get(id),
        }
    }

    /// Adds to the group; its place in the forest is taken already. Of two changes of one the net one stays.
    fn stage_parent(&mut self, change: ParentChange) {
        match self.staged_parents.iter_mut().find(|earlier| earlier.id == change.id) {
            Some(earlier) => earlier.new = change.new,
            None => self.staged_parents.push(change),
        }
    }

    /// The subscriber of a record is below another aggregate from now on.
    pub(crate) fn adopt(&mut self, old: Option<&Record>, to: Option<&str>) -> Result<(), Misplaced> {
        let from = old.and_then(|old| parent_in(&old.json));
        if from.as_deref() == to {
            return Ok(());
        }
        self.forest.adopt(from.as_deref(), to)?;
        self.undo.push(Undo::Adopt { from: to.map(str::to_owned), to: from });
        Ok(())
    }

    /// Takes back the last steps, so that only so many are left.
    pub(super) fn undo_to(&mut self, left: usize) {
        while self.undo.len() > left {
            let undone = match self.undo.pop() {
                Some(Undo::Adopt { from, to }) => self.forest.adopt(from.as_deref(), to.as_deref()),
                Some(Undo::Place { id, above }) => self.forest.place(&id, above.as_deref()),
                Some(Undo::Remove { id }) => self.forest.remove(&id),
                None => Ok(()),
            };
            if let Err(error) = undone {
                tracing::error!(%error, "a place among aggregates could not be given back");
            }
        }
    }
}

/// The aggregate that a subscriber's record in canonical form names, which stands there before what matches. (Within a
/// string the quotes would be escaped.)
fn parent_in(json: &str) -> Option<String> {
    let (_, rest) = json.split_once(",\"parent\":")?;
    let (parent, _) = rest.split_once(",\"match\":")?;
    serde_json::from_str(parent).ok().flatten()
}

/// What the shaper is told of aggregates before its subscribers, and after them.
pub(super) fn edits(changes: &[ParentChange]) -> (Vec<Edit>, Vec<Edit>) {
    let here = changes.iter().filter_map(|change| change.new.as_ref());
    let gone = changes.iter().filter(|change| change.old.is_some() && change.new.is_none());
    (
        here.map(|(_, parent)| Edit::PutParent(parent.clone())).collect(),
        gone.map(|change| Edit::RemoveParent(change.id.to_string())).collect(),
    )
}

/// A place among aggregates that cannot be, as clients see it.
pub(crate) fn misplaced(error: &Misplaced) -> Problem {
    if let Misplaced::InUse { subscribers, parents, .. } = error {
        return Problem::new(StatusCode::CONFLICT, error.to_string())
            .field("id")
            .with("subscribers", json!(subscribers))
            .with("parents", json!(parents));
    }
    Problem::record(&RecordError(vec![FieldError::new("parent", error.to_string())]))
}

/// A committed record back in its parsed form. It was written by this program, so an error is a fault of ours.
fn parse(record: &Record) -> Result<Parent, Problem> {
    Parent::from_json(record.json.as_bytes()).map_err(|error| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the stored record is not valid: {error}"))
    })
}
