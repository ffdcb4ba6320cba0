// SPDX-License-Identifier: Apache-2.0
//! Which aggregate each record of a file stands below.
//!
//! Records of JSON name an aggregate, and one that does not exist is a problem. Rows of ShapedDevices.csv name a node
//! of `network.json`, by id or by name: with the network at hand an unknown one is a problem too; without it, nodes
//! that the shaper does not have are left out and said so, for such files were used without a tree as well.

use std::collections::{BTreeSet, HashSet};

use super::csv::{PARENT, counted};
use super::network::Network;
use super::{Imported, Wish};
use crate::problem::{Problem, Problems, suggestion};

/// Nodes named in a note.
const MOST_NAMED: usize = 3;

/// Aggregates that records may name.
#[derive(Clone, Copy, Debug)]
pub enum Parents<'a> {
    /// Those of the network that comes with the file.
    Network(&'a Network),
    /// Those that the shaper has.
    Shaper(&'a HashSet<String>),
}

impl Imported {
    /// Whether a record names an aggregate, so that [`settle`](Self::settle) has something to do.
    pub fn names_parents(&self) -> bool {
        !self.wishes.is_empty() || self.subscribers.iter().any(|subscriber| subscriber.parent.is_some())
    }

    /// Puts every record below its aggregate. Called once.
    ///
    /// # Errors
    ///
    /// Every record of the file called `file` whose aggregate does not exist.
    pub fn settle(&mut self, file: &str, parents: Parents<'_>) -> Result<(), Problems> {
        let mut problems = Vec::new();
        self.named(file, parents, &mut problems);
        let mut unknown = BTreeSet::new();
        let mut orphans = 0;
        for wish in std::mem::take(&mut self.wishes) {
            match resolve(&wish, parents) {
                Some(parent) => {
                    if let Some(subscriber) = self.subscribers.get_mut(wish.place) {
                        subscriber.parent = parent;
                    }
                }
                None if matches!(parents, Parents::Network(_)) => {
                    problems.push(problem(file, wish.line, PARENT, wish.label(), parents));
                }
                None => {
                    orphans += 1;
                    unknown.insert(wish.label().to_owned());
                }
            }
        }
        if !problems.is_empty() {
            problems.sort_by_key(|problem| problem.line);
            return Err(Problems(problems));
        }
        if orphans > 0 {
            let names: Vec<_> = unknown.iter().take(MOST_NAMED).map(String::as_str).collect();
            let more = if unknown.len() > MOST_NAMED { ", ..." } else { "" };
            self.notes.push(format!(
                "{} {} that the shaper does not have ({}{more}), left out; --network network.json makes them",
                counted(orphans, "circuit names", "circuits name"),
                counted(unknown.len(), "parent node", "parent nodes"),
                names.join(", "),
            ));
        }
        Ok(())
    }

    /// For those who only look at the file: says what it expects.
    pub fn note_parents(&mut self) {
        let named: BTreeSet<_> =
            self.subscribers.iter().filter_map(|subscriber| subscriber.parent.as_deref()).collect();
        let wished: BTreeSet<_> = self.wishes.iter().map(Wish::label).collect();
        let notes = [
            (named.len(), counted(named.len(), "parent is", "parents are"), "the shaper must have them"),
            (
                wished.len(),
                counted(wished.len(), "parent node is", "parent nodes are"),
                "see `subs load --network`",
            ),
        ];
        let notes = notes.into_iter().filter(|(count, ..)| *count > 0);
        let notes: Vec<_> = notes.map(|(_, what, hint)| format!("{what} named; {hint}")).collect();
        self.notes.extend(notes);
    }

    /// Records of JSON, whose aggregates have to exist.
    fn named(&mut self, file: &str, parents: Parents<'_>, problems: &mut Vec<Problem>) {
        for (subscriber, line) in self.subscribers.iter_mut().zip(&self.lines) {
            let Some(name) = subscriber.parent.take() else { continue };
            match by_name(&name, parents) {
                Some(parent) => subscriber.parent = parent,
                None => problems.push(problem(file, *line, "parent", &name, parents)),
            }
        }
    }
}

impl Wish {
    /// What people call the node.
    fn label(&self) -> &str {
        if self.name.is_empty() { &self.id } else { &self.name }
    }
}

/// The outer `None`: there is no such node; the inner: it stands for no aggregate.
#[expect(clippy::option_option, reason = "both are said above")]
fn resolve(wish: &Wish, parents: Parents<'_>) -> Option<Option<String>> {
    let by_id = match parents {
        Parents::Network(network) => network.by_id(&wish.id).map(|parent| parent.map(str::to_owned)),
        Parents::Shaper(_) => None,
    };
    let found = by_id.or_else(|| by_name(wish.label(), parents));
    // the tool this format comes from writes "none" for no node
    found.or_else(|| wish.name.eq_ignore_ascii_case("none").then_some(None))
}

/// As [`resolve`].
#[expect(clippy::option_option, reason = "both are said above")]
fn by_name(name: &str, parents: Parents<'_>) -> Option<Option<String>> {
    match parents {
        Parents::Network(network) => network.by_name(name).map(|parent| parent.map(str::to_owned)),
        Parents::Shaper(names) => names.get(name).map(|name| Some(name.clone())),
    }
}

fn problem(file: &str, line: usize, column: &str, name: &str, parents: Parents<'_>) -> Problem {
    let known: Box<dyn Iterator<Item = &str>> = match parents {
        Parents::Network(network) => Box::new(network.names()),
        Parents::Shaper(names) => Box::new(names.iter().map(String::as_str)),
    };
    let similar = suggestion(name, known).map(|near| format!("; did you mean \"{near}\"?"));
    let message = format!("there is no parent \"{name}\"{}", similar.unwrap_or_default());
    Problem { file: file.to_owned(), line, key: column.to_owned(), message }
}
