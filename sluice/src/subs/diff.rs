// SPDX-License-Identifier: Apache-2.0
//! What a load would change, record by record, each value old -> new.
//!
//! The shaper counts; which records those are is found here, by reading what it has. Between the two it may change
//! hands, so this is for people to look at, never what is sent.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Context;
use model::Subscriber;
use serde_json::{Map, Value, json};

use super::client::Client;
use super::parents::{Parent, Plan};
use super::{pages, path_of, show};

/// Up to so many records are asked for one by one; beyond, all that the shaper has are read.
const FEW: usize = 100;
/// Lines that people are shown; `--json` has all.
const MOST_LINES: usize = 1_000;
/// Members of a record, in the order of the interface.
const MEMBERS: [&str; 5] = ["down_bps", "up_bps", "profile", "parent", "match"];

/// A record before and after; one is missing where it comes or goes.
pub(super) struct Change {
    old: Option<Value>,
    new: Option<Value>,
    /// A parent's record.
    aggregate: bool,
}

/// Records that differ.
pub(super) fn subscribers(
    client: &Client,
    wanted: &[Subscriber],
    replace: bool,
) -> anyhow::Result<Vec<Change>> {
    let places: HashMap<_, _> =
        wanted.iter().enumerate().map(|(place, new)| (new.id.as_str(), place)).collect();
    let mut found = vec![false; wanted.len()];
    let (mut updated, mut deleted) = (Vec::new(), Vec::new());
    let mut meet = |record: &Value| -> anyhow::Result<()> {
        let old = Subscriber::from_value(record).with_context(|| format!("{record} is no record"))?;
        let place = places.get(old.id.as_str());
        if let Some((new, found)) = place.and_then(|at| Some((wanted.get(*at)?, found.get_mut(*at)?))) {
            *found = true;
            if *new != old {
                updated.push(Change::of(Some(&old), Some(new)));
            }
        } else if replace {
            deleted.push(Change::of(Some(&old), None));
        }
        Ok(())
    };
    if replace || wanted.len() > FEW {
        pages(client, "/v1/subscribers", |items| items.iter().try_for_each(&mut meet))?;
    } else {
        for new in wanted {
            if let Some(record) = client.find(&path_of(&new.id))? {
                meet(&record)?;
            }
        }
    }
    let created = wanted.iter().zip(found).filter(|(_, found)| !found);
    let created = created.map(|(new, _)| Change::of(None, Some(new)));
    Ok(created.chain(updated).chain(deleted).collect())
}

/// Aggregates that differ.
pub(super) fn parents(plan: &Plan) -> Vec<Change> {
    let change = |old: Option<&Parent>, new: Option<&Parent>| Change {
        old: old.map(Parent::record),
        new: new.map(Parent::record),
        aggregate: true,
    };
    let created = plan.create.iter().map(|new| change(None, Some(new)));
    let updated = plan.update.iter().map(|(old, new)| change(Some(old), Some(new)));
    let deleted = plan.delete.iter().map(|old| change(Some(old), None));
    created.chain(updated).chain(deleted).collect()
}

/// A line each, as many as people read.
pub(super) fn print(changes: &[Change], out: &mut dyn Write) -> anyhow::Result<()> {
    for change in changes.iter().take(MOST_LINES) {
        writeln!(out, "{}", change.line())?;
    }
    if let Some(more) = changes.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
        writeln!(out, "... and {more} more; --json has all of them")?;
    }
    Ok(())
}

impl Change {
    fn of(old: Option<&Subscriber>, new: Option<&Subscriber>) -> Self {
        Self { old: old.map(Subscriber::to_value), new: new.map(Subscriber::to_value), aggregate: false }
    }

    fn id(&self) -> &str {
        let record = self.new.as_ref().or(self.old.as_ref());
        record.and_then(|record| record.get("id")?.as_str()).unwrap_or_default()
    }

    /// Members that differ: name, old, new.
    fn members(&self) -> impl Iterator<Item = (&'static str, &Value, &Value)> {
        MEMBERS.into_iter().filter_map(|name| {
            let old = self.old.as_ref()?.get(name).unwrap_or(&Value::Null);
            let new = self.new.as_ref()?.get(name).unwrap_or(&Value::Null);
            (old != new).then_some((name, old, new))
        })
    }

    fn line(&self) -> String {
        let what = if self.aggregate { "parent " } else { "" };
        let id = self.id();
        match (&self.old, &self.new) {
            (None, Some(new)) => format!("+ {what}{id}: {}", summary(new)),
            (Some(old), None) => format!("- {what}{id}: {}", summary(old)),
            _ => {
                let members = self.members();
                let members = members.map(|(name, old, new)| {
                    format!("{name} {} -> {}", show::member(name, old), show::member(name, new))
                });
                format!("~ {what}{id}: {}", members.collect::<Vec<_>>().join("; "))
            }
        }
    }

    /// "created", "updated" or "deleted".
    fn kind(&self) -> &'static str {
        match (&self.old, &self.new) {
            (None, _) => "created",
            (_, None) => "deleted",
            _ => "updated",
        }
    }

    /// Whether a subscriber is what `kind` says.
    pub(super) fn is(&self, kind: &str) -> bool {
        !self.aggregate && self.kind() == kind
    }

    /// For `--json`: the id, what becomes of it, and old and new of what differs.
    pub(super) fn json(&self) -> Value {
        let fields =
            self.members().map(|(name, old, new)| (name.to_owned(), json!({"old": old, "new": new})));
        let fields: Map<_, _> = fields.collect();
        let kind = if self.aggregate { "parent" } else { "subscriber" };
        let mut json = json!({"kind": kind, "id": self.id(), "change": self.kind()});
        match (&self.old, &self.new) {
            (None, Some(record)) | (Some(record), None) => json["record"] = record.clone(),
            _ => json["fields"] = fields.into(),
        }
        json
    }
}

/// A record on one line, its empty members left out.
fn summary(record: &Value) -> String {
    let members = MEMBERS.into_iter().filter_map(|name| {
        let value = record.get(name).filter(|value| !value.is_null())?;
        Some(match name {
            "down_bps" => format!("{} down", show::member(name, value)),
            "up_bps" => format!("{} up", show::member(name, value)),
            "match" => show::member(name, value),
            _ => format!("{name} {}", show::member(name, value)),
        })
    });
    members.collect::<Vec<_>>().join(", ")
}
