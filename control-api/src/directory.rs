// SPDX-License-Identifier: Apache-2.0
//! The committed records in memory, sorted by name, for reading.
//!
//! Invariant: only the writer changes it, after commit and apply. A record is kept as its JSON text, which is what
//! every read answers and half the size of the parsed form.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::search::Index;

/// Changes made under one hold of the lock, so that readers wait for a large one only in pieces.
const PIECE: usize = 4096;

/// A committed record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Revision of the store that wrote it; its ETag.
    pub(crate) rev: u64,
    /// Canonical JSON.
    pub(crate) json: Arc<str>,
}

impl Record {
    pub(crate) fn etag(&self) -> String {
        format!("\"{}\"", self.rev)
    }
}

/// Records by name.
pub(crate) type Records = BTreeMap<Arc<str>, Record>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    records: RwLock<Records>,
    /// What they match; it follows the records.
    pub(crate) index: Index,
}

impl Directory {
    pub(crate) fn new(records: Records, index: Index) -> Self {
        Self { records: RwLock::new(records), index }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Records> {
        self.records.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, id: &str) -> Option<Record> {
        self.read().get(id).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.read().len()
    }

    /// The records behind `after`, as many as fit in `limit` and in `bytes` of text, at least one if there is one;
    /// and whether more follow.
    pub(crate) fn page(
        &self,
        after: Option<&str>,
        limit: usize,
        bytes: usize,
    ) -> (Vec<(Arc<str>, Record)>, bool) {
        let records = self.read();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = records.range::<str, _>((from, Bound::Unbounded)).peekable();
        let (mut page, mut size) = (Vec::new(), 0);
        while page.len() < limit && (size < bytes || page.is_empty()) {
            let Some((id, record)) = rest.next() else { break };
            size += record.json.len();
            page.push((Arc::clone(id), record.clone()));
        }
        let more = rest.peek().is_some();
        (page, more)
    }

    /// Sets (`Some`) or removes (`None`) each.
    pub(crate) fn apply(&self, changes: impl Iterator<Item = (Arc<str>, Option<Record>)>) {
        let mut changes = changes.peekable();
        while changes.peek().is_some() {
            let mut records = self.records.write().unwrap_or_else(PoisonError::into_inner);
            for (id, record) in changes.by_ref().take(PIECE) {
                match record {
                    Some(record) => records.insert(id, record),
                    None => records.remove(&id),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(ids: &[&str]) -> Directory {
        let record = |id: &str| Record { rev: 1, json: id.into() };
        Directory::new(ids.iter().map(|id| (Arc::from(*id), record(id))).collect(), Index::default())
    }

    fn ids(page: &[(Arc<str>, Record)]) -> Vec<&str> {
        page.iter().map(|(id, _)| &**id).collect()
    }

    #[test]
    fn pages_follow_the_names_and_say_whether_more_come() {
        let directory = directory(&["a", "b", "c", "d"]);
        let (page, more) = directory.page(None, 2, 1000);
        assert_eq!((ids(&page), more), (vec!["a", "b"], true));
        let (page, more) = directory.page(Some("b"), 2, 1000);
        assert_eq!((ids(&page), more), (vec!["c", "d"], false));
        let (page, more) = directory.page(Some("bb"), 1, 1000);
        assert_eq!((ids(&page), more), (vec!["c"], true));
        assert_eq!(directory.page(Some("d"), 2, 1000), (vec![], false));
    }

    #[test]
    fn a_page_keeps_to_its_bytes_but_never_comes_empty_for_them() {
        let directory = directory(&["aaaa", "bbbb", "cccc"]);
        assert_eq!(ids(&directory.page(None, 9, 1).0), ["aaaa"]);
        assert_eq!(ids(&directory.page(None, 9, 5).0), ["aaaa", "bbbb"]);
    }

    #[test]
    fn changes_larger_than_a_piece_arrive_whole() {
        let directory = directory(&["gone"]);
        let new = (0..2 * PIECE + 7)
            .map(|n| (Arc::from(n.to_string()), Some(Record { rev: 2, json: "{}".into() })));
        directory.apply(new.chain([(Arc::from("gone"), None)]));
        assert_eq!(directory.len(), 2 * PIECE + 7);
        assert_eq!(directory.get("gone"), None);
        assert_eq!(directory.get("7").map(|record| record.etag()), Some("\"2\"".to_owned()));
    }
}
