// SPDX-License-Identifier: Apache-2.0
//! Which aggregate is below which, and how many subscribers each has, so that every name leads somewhere.
//!
//! Invariant: all aggregates named exist, no way up is longer than [`MAX_LEVELS`] or leads back, and one with anything
//! below it stays; a refused change leaves all as it was. It keeps names only: the caller has the records.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::MAX_LEVELS;

/// An aggregate's place.
#[derive(Clone, Debug, Default)]
struct Node {
    above: Option<Arc<str>>,
    /// Aggregates right below.
    below: BTreeSet<Arc<str>>,
    /// Subscribers right below.
    subscribers: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Forest(HashMap<Arc<str>, Node>);

/// Why something cannot stand where it wants to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    /// No such aggregate.
    #[error("there is no parent \"{0}\"")]
    NoParent(String),
    /// It would be above itself.
    #[error("\"{id}\" would be above itself: {way}")]
    Loop {
        /// The aggregate.
        id: String,
        /// From it up to it again.
        way: String,
    },
    /// Too many levels.
    #[error("\"{id}\" below \"{parent}\" would make {levels} levels; {MAX_LEVELS} is the most")]
    TooDeep {
        /// The aggregate.
        id: String,
        /// What would be above it.
        parent: String,
        /// Levels there would be.
        levels: usize,
    },
    /// It has something below it.
    #[error(
        "\"{id}\" has {subscribers} subscribers and {parents} parents below it; move or delete those first"
    )]
    InUse {
        /// The aggregate.
        id: String,
        /// Subscribers right below.
        subscribers: u64,
        /// Aggregates right below.
        parents: usize,
    },
}

impl Forest {
    /// Whether there is such an aggregate.
    pub fn contains(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    /// Aggregates.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The aggregate above one.
    pub fn above(&self, id: &str) -> Option<&str> {
        self.0.get(id)?.above.as_deref()
    }

    /// Levels from an aggregate up to its root, itself counted.
    pub fn level(&self, id: &str) -> usize {
        self.way(id).take(MAX_LEVELS).count()
    }

    /// Subscribers and aggregates right below one.
    pub fn children(&self, id: &str) -> (u64, usize) {
        self.0.get(id).map_or((0, 0), |node| (node.subscribers, node.below.len()))
    }

    /// From an aggregate up to its root, itself first.
    fn way<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a str> {
        std::iter::successors(Some(id), |id| self.0.get(*id)?.above.as_deref())
    }

    /// Levels of an aggregate and what is below it.
    fn height(&self, id: &str) -> usize {
        let below = self.0.get(id).into_iter().flat_map(|node| &node.below);
        1 + below.map(|id| self.height(id)).max().unwrap_or(0)
    }

    /// An aggregate comes, or stands below another one from now on; where it stood before.
    ///
    /// # Errors
    ///
    /// [`Misplaced::NoParent`], [`Misplaced::Loop`] and [`Misplaced::TooDeep`].
    pub fn place(&mut self, id: &str, above: Option<&str>) -> Result<(), Misplaced> {
        if let Some(above) = above {
            self.check(id, above)?;
        }
        let id: Arc<str> = self.0.get_key_value(id).map_or_else(|| id.into(), |(known, _)| Arc::clone(known));
        let above = above.and_then(|above| self.0.get_key_value(above)).map(|(known, _)| Arc::clone(known));
        let node = self.0.entry(Arc::clone(&id)).or_default();
        let before = std::mem::replace(&mut node.above, above.clone());
        if let Some(node) = before.and_then(|before| self.0.get_mut(&before)) {
            node.below.remove(&id);
        }
        if let Some(node) = above.and_then(|above| self.0.get_mut(&above)) {
            node.below.insert(id);
        }
        Ok(())
    }

    fn check(&self, id: &str, above: &str) -> Result<(), Misplaced> {
        if !self.contains(above) && above != id {
            return Err(Misplaced::NoParent(above.to_owned()));
        }
        let way: Vec<_> = self.way(above).take(MAX_LEVELS + 1).collect();
        if let Some(end) = way.iter().position(|step| *step == id) {
            let steps = std::iter::once(id).chain(way.iter().take(end + 1).copied());
            let way = steps.map(|step| format!("\"{step}\"")).collect::<Vec<_>>().join(" below ");
            return Err(Misplaced::Loop { id: id.to_owned(), way });
        }
        let levels = way.len() + self.height(id);
        if levels > MAX_LEVELS {
            return Err(Misplaced::TooDeep { id: id.to_owned(), parent: above.to_owned(), levels });
        }
        Ok(())
    }

    /// An aggregate goes; one that is not there is no error.
    ///
    /// # Errors
    ///
    /// [`Misplaced::InUse`].
    pub fn remove(&mut self, id: &str) -> Result<(), Misplaced> {
        let (subscribers, parents) = self.children(id);
        if subscribers > 0 || parents > 0 {
            return Err(Misplaced::InUse { id: id.to_owned(), subscribers, parents });
        }
        let above = self.0.remove(id).and_then(|node| node.above);
        if let Some(node) = above.and_then(|above| self.0.get_mut(&above)) {
            node.below.remove(id);
        }
        Ok(())
    }

    /// A subscriber moves from one aggregate to another, or comes or goes where either is `None`.
    ///
    /// # Errors
    ///
    /// [`Misplaced::NoParent`].
    pub fn adopt(&mut self, from: Option<&str>, to: Option<&str>) -> Result<(), Misplaced> {
        if from == to {
            return Ok(());
        }
        if let Some(to) = to {
            let Some(node) = self.0.get_mut(to) else { return Err(Misplaced::NoParent(to.to_owned())) };
            node.subscribers += 1;
        }
        if let Some(node) = from.and_then(|from| self.0.get_mut(from)) {
            node.subscribers = node.subscribers.saturating_sub(1);
        }
        Ok(())
    }
}
