// SPDX-License-Identifier: Apache-2.0
//! `[[parent]]`: aggregates in TOML, checked by the same code as those in JSON, each problem at its line.

use std::collections::BTreeMap;

use super::reader::{Keys, Report};
use super::subscribers::{Place, to_json};
use crate::parent::{Forest, Parent};

/// Reads all, those above first, and how they stand above each other; those with problems are left out.
pub(super) fn read(keys: &mut Keys<'_>, report: &Report) -> (Vec<Parent>, Forest) {
    let mut forest = Forest::default();
    let mut parents = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for (place, item) in keys.array("parent").unwrap_or_default().iter().enumerate() {
        let at = Place { report, path: format!("parent[{place}]"), item };
        let parent = match Parent::from_value(&to_json(item.get_ref())) {
            Ok(parent) => parent,
            Err(error) => {
                at.fail_all(error);
                continue;
            }
        };
        if let Some(first) = known.insert(parent.id.clone(), place) {
            at.fail("id", format!("\"{}\" is the id of parent[{first}] already", parent.id));
            continue;
        }
        // all are there before any is below another
        let alone = forest.place(&parent.id, None);
        debug_assert_eq!(alone, Ok(()), "nothing is wrong with one that is alone");
        parents.push((at, parent));
    }
    for (at, parent) in &parents {
        if let Err(error) = forest.place(&parent.id, parent.parent.as_deref()) {
            at.fail("parent", error.to_string());
        }
    }
    let mut parents: Vec<_> = parents.into_iter().map(|(_, parent)| parent).collect();
    parents.sort_by_key(|parent| forest.level(&parent.id));
    (parents, forest)
}
