// SPDX-License-Identifier: Apache-2.0
//! Many records at once: diffed here, all or nothing.
//!
//! Invariant: either every line is good and the store ends with exactly what was asked (in one transaction, only
//! differences travelling on), or nothing changes and the report names the lines. Keys are judged by the end state,
//! so two records may swap an address in one request.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use model::Subscriber;
use model::keys;
use serde::Serialize;

use crate::directory::Record;
use crate::problem::Problem;
use crate::writer::{Change, Writer, misplaced, parse, same_keys};

/// What becomes of records that the request does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They stay.
    #[default]
    Upsert,
    /// They go.
    Replace,
}

/// A bulk request, parsed.
#[derive(Debug, Default)]
pub(crate) struct Bulk {
    pub(crate) mode: Mode,
    pub(crate) dry_run: bool,
    /// Good lines with their numbers.
    pub(crate) lines: Vec<(u64, Subscriber)>,
    pub(crate) errors: Errors,
}

/// What happened, or with `dry_run` would happen. With errors nothing does, and all counts are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Report {
    pub(crate) created: u64,
    pub(crate) updated: u64,
    pub(crate) deleted: u64,
    pub(crate) unchanged: u64,
    pub(crate) dry_run: bool,
    #[serde(flatten)]
    pub(crate) errors: Errors,
}

/// Lines that are wrong, as many as the answer may list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Errors {
    #[serde(rename = "errors")]
    listed: Vec<LineError>,
    /// Further ones.
    #[serde(rename = "errors_left_out", skip_serializing_if = "is_zero")]
    left_out: u64,
    #[serde(skip)]
    room: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// One line that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LineError {
    pub(crate) line: u64,
    pub(crate) error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
}

impl Errors {
    /// None yet; lists at most `room`.
    pub(crate) fn new(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    pub(crate) fn push(&mut self, error: LineError) {
        if self.listed.len() < self.room {
            self.listed.push(error);
        } else {
            self.left_out += 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.listed.is_empty() && self.left_out == 0
    }

    fn sorted(mut self) -> Self {
        self.listed.sort_by_key(|error| error.line);
        self
    }
}

impl Writer {
    /// Diffs, claims keys and stages the differences; or reports what is wrong and changes nothing.
    pub(crate) fn bulk(&mut self, bulk: Bulk) -> Result<Report, Problem> {
        let Bulk { mode, dry_run, lines, mut errors } = bulk;
        let lines = without_repeats(lines, &mut errors);
        let mut report = Report { dry_run, ..Report::default() };
        let mut diff = Diff::default();
        if mode == Mode::Replace {
            self.leavers(&lines, &mut diff)?;
            report.deleted = diff.changes.len() as u64;
        }
        for (line, after) in lines {
            if let Some(parent) = after.parent.as_ref().filter(|parent| !self.forest.contains(parent)) {
                errors.push(LineError {
                    line,
                    error: format!("parent: there is no parent {parent:?}"),
                    field: Some("parent".to_owned()),
                    id: Some(after.id),
                });
                continue;
            }
            let old = self.current(&after.id);
            let json = after.to_json();
            match &old {
                Some(old) if self.unchanged(&after.id, old, &json) => {
                    report.unchanged += 1;
                    continue;
                }
                Some(_) => report.updated += 1,
                None => report.created += 1,
            }
            if old.as_ref().is_none_or(|old| !same_keys(&old.json, &json)) {
                let before = old.as_ref().map(parse).transpose()?;
                diff.claims.push(Claim { change: diff.changes.len(), line, before });
            }
            let record = self.record(&json);
            diff.changes.push(Change::put(old, record, after));
        }
        self.judge_keys(&diff, dry_run, &mut errors);
        if !errors.is_empty() {
            return Ok(Report { dry_run, errors: errors.sorted(), ..Report::default() });
        }
        if dry_run {
            self.check_room(&diff.changes)?;
        } else {
            for Change { old, parsed, .. } in &diff.changes {
                let to = parsed.as_ref().and_then(|after| after.parent.as_deref());
                self.adopt(old.as_ref(), to).map_err(|error| misplaced(&error))?;
            }
            self.stage_all(diff.changes);
        }
        Ok(report)
    }

    /// Records that no line names.
    fn leavers(&self, lines: &[(u64, Subscriber)], diff: &mut Diff) -> Result<(), Problem> {
        let stay: HashSet<_> = lines.iter().map(|(_, subscriber)| subscriber.id.as_str()).collect();
        let leave: Vec<(Arc<str>, Record)> = self
            .directory
            .read()
            .iter()
            .filter(|(id, _)| !stay.contains(&***id))
            .map(|(id, record)| (Arc::clone(id), record.clone()))
            .collect();
        for (id, record) in leave {
            diff.claims.push(Claim { change: diff.changes.len(), line: 0, before: Some(parse(&record)?) });
            diff.changes.push(Change::remove(id, record));
        }
        Ok(())
    }

    /// Claims all keys of the end state unless something is wrong or nothing shall happen.
    fn judge_keys(&mut self, diff: &Diff, dry_run: bool, errors: &mut Errors) {
        let after = |claim: &Claim| diff.changes.get(claim.change).and_then(|change| change.parsed.as_ref());
        let edits: Vec<_> = diff
            .claims
            .iter()
            .map(|claim| keys::Edit { old: claim.before.as_ref(), new: after(claim) })
            .collect();
        let only_look = dry_run || !errors.is_empty();
        let judged = if only_look { self.keys.check(&edits) } else { self.keys.apply(&edits) };
        for (place, conflict) in judged.err().into_iter().flatten() {
            errors.push(LineError {
                line: diff.claims.get(place).map_or(0, |claim| claim.line),
                error: conflict.to_string(),
                field: Some("match".to_owned()),
                id: Some(conflict.claimant),
            });
        }
    }
}

/// What a bulk request comes to.
#[derive(Default)]
struct Diff {
    changes: Vec<Change>,
    /// Of those changes that touch keys.
    claims: Vec<Claim>,
}

struct Claim {
    /// Place among the changes.
    change: usize,
    /// Line of the request; 0 of a record that no line names.
    line: u64,
    /// The record whose keys are given up.
    before: Option<Subscriber>,
}

/// A name stands on one line only.
fn without_repeats(lines: Vec<(u64, Subscriber)>, errors: &mut Errors) -> Vec<(u64, Subscriber)> {
    if lines.is_sorted_by(|(_, one), (_, next)| one.id < next.id) {
        return lines;
    }
    let mut first: HashMap<&str, u64> = HashMap::with_capacity(lines.len());
    let mut repeats = HashSet::new();
    for (line, subscriber) in &lines {
        let earlier = *first.entry(&subscriber.id).or_insert(*line);
        if earlier != *line {
            repeats.insert(*line);
            errors.push(LineError {
                line: *line,
                error: format!("{:?} stands on line {earlier} already", subscriber.id),
                field: Some("id".to_owned()),
                id: Some(subscriber.id.clone()),
            });
        }
    }
    drop(first);
    lines.into_iter().filter(|(line, _)| !repeats.contains(line)).collect()
}
