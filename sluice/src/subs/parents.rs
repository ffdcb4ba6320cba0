// SPDX-License-Identifier: Apache-2.0
//! Aggregates of a running shaper brought to those of a network, and back again if what depends on them fails.
//!
//! Invariant: a parent is put before what stands below it and removed after it. Putting top-down in the new tree also
//! moves without a circle in between: whatever is above a node when it is put is in its place already.

use std::collections::HashMap;

use anyhow::Context;
use model::import::network::{Network, Node};
use serde_json::{Value, json};

use super::client::{Client, encode};

const PATH: &str = "/v1/parents";

/// An aggregate record.
#[expect(clippy::struct_field_names, reason = "the interface's names")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) id: String,
    pub(super) parent: Option<String>,
    pub(super) down_bps: u64,
    pub(super) up_bps: u64,
}

impl Parent {
    fn read(record: &Value) -> Option<Self> {
        let text = |name: &str| record.get(name).and_then(Value::as_str).map(str::to_owned);
        let rate = |name: &str| record.get(name).and_then(Value::as_u64);
        let (down_bps, up_bps) = (rate("down_bps")?, rate("up_bps")?);
        Some(Self { id: text("id")?, parent: text("parent"), down_bps, up_bps })
    }

    pub(super) fn record(&self) -> Value {
        let Self { id, parent, down_bps, up_bps } = self;
        json!({"id": id, "parent": parent, "down_bps": down_bps, "up_bps": up_bps})
    }

    fn path(&self) -> String {
        format!("{PATH}/{}", encode(&self.id))
    }
}

impl From<&Node> for Parent {
    fn from(node: &Node) -> Self {
        let Node { id, parent, down_bps, up_bps, .. } = node.clone();
        Self { id, parent, down_bps, up_bps }
    }
}

/// All that the shaper has; `None` if it knows no aggregates.
pub(super) fn of_shaper(client: &Client) -> anyhow::Result<Option<Vec<Parent>>> {
    let mut all = Vec::new();
    let known = super::pages(client, PATH, |items| {
        for item in items {
            all.push(Parent::read(item).with_context(|| format!("{item} is no aggregate"))?);
        }
        Ok(())
    })?;
    Ok(known.then_some(all))
}

/// What has to change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// New ones, top-down.
    pub(super) create: Vec<Parent>,
    /// Old and new, top-down.
    pub(super) update: Vec<(Parent, Parent)>,
    /// Those that go, bottom-up.
    pub(super) delete: Vec<Parent>,
    pub(super) unchanged: usize,
}

impl Plan {
    /// From what there is to what a network says; others go only if it replaces them.
    pub(super) fn new(have: Vec<Parent>, network: &Network, replace: bool) -> Self {
        let mut plan = Self::default();
        let depths = depths(&have);
        let mut have: HashMap<_, _> = have.into_iter().map(|parent| (parent.id.clone(), parent)).collect();
        for new in network.nodes.iter().map(Parent::from) {
            match have.remove(&new.id) {
                None => plan.create.push(new),
                Some(old) if old == new => plan.unchanged += 1,
                Some(old) => plan.update.push((old, new)),
            }
        }
        if replace {
            plan.delete = have.into_values().collect();
            let depth = |parent: &Parent| depths.get(&parent.id).copied().unwrap_or(0);
            plan.delete.sort_by(|a, b| depth(b).cmp(&depth(a)).then_with(|| a.id.cmp(&b.id)));
        }
        plan
    }

    pub(super) fn is_empty(&self) -> bool {
        self.create.is_empty() && self.update.is_empty() && self.delete.is_empty()
    }

    /// Creates and updates. What was done is undone if one is refused.
    pub(super) fn put<'p>(&'p self, client: &'p Client) -> anyhow::Result<Done<'p>> {
        let mut done = Done { client, steps: Vec::new() };
        let created = self.create.iter().map(|new| (None, new));
        let updated = self.update.iter().map(|(old, new)| (Some(old), new));
        for (old, new) in created.chain(updated) {
            if let Err(error) = client.put(&new.path(), &new.record()) {
                let error = error.context(format!("parent {}", new.id));
                return Err(match done.undo() {
                    Ok(()) => error,
                    Err(left) => error.context(left),
                });
            }
            done.steps.push((old, new));
        }
        Ok(done)
    }

    /// Removes those that go.
    pub(super) fn remove(&self, client: &Client) -> anyhow::Result<()> {
        for parent in &self.delete {
            let removed = client.delete(&parent.path());
            removed
                .with_context(|| format!("subscribers were loaded, but the parent {} stays", parent.id))?;
        }
        Ok(())
    }
}

/// What was put so far.
pub(super) struct Done<'p> {
    client: &'p Client,
    steps: Vec<(Option<&'p Parent>, &'p Parent)>,
}

impl Done<'_> {
    /// Makes it as it was.
    pub(super) fn undo(self) -> anyhow::Result<()> {
        for (old, new) in self.steps.into_iter().rev() {
            let undone = match old {
                Some(old) => self.client.put(&old.path(), &old.record()).map(drop),
                None => self.client.delete(&new.path()),
            };
            undone.with_context(|| format!("the parent {} could not be made as it was", new.id))?;
        }
        Ok(())
    }
}

/// How many stand above each; a circle, which no shaper has, ends where it closes.
fn depths(all: &[Parent]) -> HashMap<String, usize> {
    let by_id: HashMap<_, _> = all.iter().map(|parent| (parent.id.as_str(), parent)).collect();
    let above = |parent: &&Parent| by_id.get(parent.parent.as_deref()?).copied();
    let depth = |parent| std::iter::successors(Some(parent), above).take(all.len()).count();
    all.iter().map(|parent| (parent.id.clone(), depth(parent))).collect()
}
