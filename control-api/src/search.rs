// SPDX-License-Identifier: Apache-2.0
//! Records by a piece of their name, by an address, a VLAN or a PPPoE session: what `GET /v1/search` asks.
//!
//! Columns of what records match, each read from end to end for a question: a million records of three keys are
//! some 70 MB, read in milliseconds, and a change costs only a few writes. A record that goes leaves holes; when these
//! are many, the columns are written anew.
//!
//! Invariant: only the writer changes it, after the directory; a change that leaves name and `match` alone, as one of
//! rates does, is none here. No lock is held for longer than one column takes to read.

mod query;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use memchr::memmem::Finder;
use model::Subscriber;
use model::subscriber::{MacAddr, Match, Pppoe, Vlan};

pub(crate) use query::Query;
use query::Tags;

/// Changes made under one hold of the lock.
const PIECE: usize = 4096;
/// Holes that are borne however few records there are.
const HOLES: usize = 4096;

/// How a record was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Id,
    Address,
    Vlan,
    Pppoe,
}

impl By {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Address => "address",
            Self::Vlan => "vlan",
            Self::Pppoe => "pppoe",
        }
    }
}

/// Names found, best first, and whether there were more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) ids: Vec<(By, Arc<str>)>,
    pub(crate) more: bool,
}

impl Found {
    fn add(&mut self, by: By, (ids, more): (Vec<Arc<str>>, bool)) {
        for id in ids {
            if self.ids.iter().all(|(_, known)| *known != id) {
                self.ids.push((by, id));
            }
        }
        self.more |= more;
    }
}

/// A change of one record, as the writer has it.
pub(crate) struct Edit<'a> {
    pub(crate) id: &'a Arc<str>,
    pub(crate) old: Option<&'a Subscriber>,
    pub(crate) new: Option<&'a Subscriber>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Index(RwLock<Columns>);

impl Index {
    fn read(&self) -> RwLockReadGuard<'_, Columns> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Columns> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn apply<'a>(&self, edits: impl Iterator<Item = Edit<'a>>) {
        let mut edits = edits
            .filter(|edit| edit.old.map(|old| &old.matches) != edit.new.map(|new| &new.matches))
            .peekable();
        while edits.peek().is_some() {
            let mut columns = self.write();
            for edit in edits.by_ref().take(PIECE) {
                columns.remove(edit.id);
                if let Some(new) = edit.new {
                    columns.insert(edit.id, &new.matches);
                }
            }
            columns.tidy();
        }
    }

    /// Names alone, of records that match nothing: which are here from now on and which are not.
    pub(crate) fn name<'a>(&self, names: impl Iterator<Item = (&'a Arc<str>, bool)>) {
        let (mut names, nothing) = (names.peekable(), Match::default());
        while names.peek().is_some() {
            let mut columns = self.write();
            for (id, here) in names.by_ref().take(PIECE) {
                if !here {
                    columns.remove(id);
                } else if !columns.slots.contains_key(id) {
                    columns.insert(id, &nothing);
                }
            }
            columns.tidy();
        }
    }

    /// As [`search`](Self::search), by names alone.
    pub(crate) fn named(&self, query: &Query, limit: usize) -> Found {
        self.search(&Query { id: query.id.clone(), ..Query::default() }, limit)
    }

    /// At most `limit` names, ordered by how well they fit: the name itself, then what the address, VLAN or session
    /// belongs to (the longest prefix first), then names that begin so, then names with it inside.
    pub(crate) fn search(&self, query: &Query, limit: usize) -> Found {
        let mut found = Found::default();
        if let Some(id) = &query.id {
            found.add(By::Id, self.read().names.exact(id));
        }
        match query.net {
            Some(IpNet::V4(net)) => found.add(By::Address, self.read().within_v4(net, limit)),
            Some(IpNet::V6(net)) => found.add(By::Address, self.read().within_v6(net, limit)),
            None => {}
        }
        if let Some(tags) = query.vlan {
            found.add(By::Vlan, self.read().tagged(tags, limit));
        }
        if query.session.is_some() || query.mac.is_some() {
            found.add(By::Pppoe, self.read().of_session(query.session, query.mac, limit));
        }
        if let Some(id) = &query.id {
            found.add(By::Id, self.read().names.containing(id, limit));
        }
        found.more |= found.ids.len() > limit;
        found.ids.truncate(limit);
        found
    }
}

#[derive(Debug, Default)]
struct Columns {
    slots: HashMap<Arc<str>, u32>,
    names: Names,
    v4: Vec<V4>,
    v6: Vec<V6>,
    vlans: Vec<(Vlan, u32)>,
    sessions: Vec<(Pppoe, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct V4 {
    base: u32,
    slot: u32,
    len: u8,
}

#[derive(Clone, Copy, Debug)]
struct V6 {
    base: [u64; 2],
    slot: u32,
    len: u8,
}

fn halves(address: u128) -> [u64; 2] {
    [address >> 64, address & u128::from(u64::MAX)].map(|half| u64::try_from(half).unwrap_or(0))
}

/// The bits of a /32 or /64 word that a prefix of `len` fixes.
const fn mask4(len: u8) -> u32 {
    if len == 0 { 0 } else { u32::MAX << (32 - len) }
}

const fn mask6(len: u8) -> [u64; 2] {
    const fn half(len: u8) -> u64 {
        if len == 0 { 0 } else { u64::MAX << (64 - len) }
    }
    if len <= 64 { [half(len), 0] } else { [u64::MAX, half(len - 64)] }
}

impl Columns {
    fn insert(&mut self, id: &Arc<str>, matches: &Match) {
        let slot = self.names.push(id);
        self.slots.insert(Arc::clone(id), slot);
        self.v4.extend(matches.ipv4.iter().map(|net| V4 {
            base: u32::from(net.addr()),
            slot,
            len: net.prefix_len(),
        }));
        self.v6.extend(matches.ipv6.iter().map(|net| V6 {
            base: halves(u128::from(net.addr())),
            slot,
            len: net.prefix_len(),
        }));
        self.vlans.extend(matches.vlan.map(|vlan| (vlan, slot)));
        self.sessions.extend(matches.pppoe.map(|session| (session, slot)));
    }

    fn remove(&mut self, id: &str) {
        if let Some(slot) = self.slots.remove(id) {
            self.names.clear(slot);
        }
    }

    /// Writes all anew where a third is holes.
    fn tidy(&mut self) {
        let holes = self.names.ids.len() - self.slots.len();
        if holes <= HOLES + self.slots.len() / 2 {
            return;
        }
        let old = std::mem::take(&mut self.names);
        let mut moved = vec![None; old.ids.len()];
        for (place, id) in moved.iter_mut().zip(&old.ids) {
            let Some(id) = id else { continue };
            let slot = self.names.push(id);
            *place = Some(slot);
            self.slots.insert(Arc::clone(id), slot);
        }
        let moved = |slot: &mut u32| match moved.get(*slot as usize) {
            Some(Some(to)) => {
                *slot = *to;
                true
            }
            _ => false,
        };
        self.v4.retain_mut(|entry| moved(&mut entry.slot));
        self.v6.retain_mut(|entry| moved(&mut entry.slot));
        self.vlans.retain_mut(|(_, slot)| moved(slot));
        self.sessions.retain_mut(|(_, slot)| moved(slot));
    }

    /// Those that contain the prefix or lie in it.
    fn within_v4(&self, net: Ipv4Net, limit: usize) -> (Vec<Arc<str>>, bool) {
        let (base, len) = (u32::from(net.network()), net.prefix_len());
        let hits = self.v4.iter().filter(|entry| (entry.base ^ base) & mask4(entry.len.min(len)) == 0);
        self.names.best(hits.map(|entry| (entry.len, entry.slot)), limit)
    }

    fn within_v6(&self, net: Ipv6Net, limit: usize) -> (Vec<Arc<str>>, bool) {
        let ([high, low], len) = (halves(u128::from(net.network())), net.prefix_len());
        let hits = self.v6.iter().filter(|entry| {
            let [mask_high, mask_low] = mask6(entry.len.min(len));
            let [base_high, base_low] = entry.base;
            (base_high ^ high) & mask_high == 0 && (base_low ^ low) & mask_low == 0
        });
        self.names.best(hits.map(|entry| (entry.len, entry.slot)), limit)
    }

    /// A pair finds itself and the outer VLAN that holds all; one tag finds whoever has it outside or inside.
    fn tagged(&self, tags: Tags, limit: usize) -> (Vec<Arc<str>>, bool) {
        let hits = self.vlans.iter().filter_map(|(vlan, slot)| {
            let rank = match tags {
                Tags::Pair(outer, inner) if vlan.outer == outer => match vlan.inner {
                    Some(other) => (other == inner).then_some(2),
                    None => Some(1),
                },
                Tags::Pair(..) => None,
                Tags::One(tag) if vlan.outer == tag => Some(if vlan.inner.is_none() { 2 } else { 1 }),
                Tags::One(tag) => (vlan.inner == Some(tag)).then_some(0),
            };
            rank.map(|rank| (rank, *slot))
        });
        self.names.best(hits, limit)
    }

    fn of_session(&self, session: Option<u16>, mac: Option<MacAddr>, limit: usize) -> (Vec<Arc<str>>, bool) {
        let fits = |pppoe: &Pppoe| {
            session.is_none_or(|session| pppoe.session == session) && (mac.is_none() || pppoe.mac == mac)
        };
        let hits = self.sessions.iter().filter(|(pppoe, _)| fits(pppoe));
        self.names.best(hits.map(|(_, slot)| (0, *slot)), limit)
    }
}

/// Names by slot, and all of them as one text in which a line feed, which no name has, stands before and behind each.
#[derive(Debug)]
struct Names {
    ids: Vec<Option<Arc<str>>>,
    /// Where in `text` the line feed before each is.
    starts: Vec<u32>,
    text: Vec<u8>,
}

impl Default for Names {
    fn default() -> Self {
        Self { ids: Vec::new(), starts: Vec::new(), text: vec![b'\n'] }
    }
}

impl Names {
    fn push(&mut self, id: &Arc<str>) -> u32 {
        // 2^32 bytes of names are more than the data plane's 2^24 subscribers can have
        let slot = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
        self.starts.push(u32::try_from(self.text.len() - 1).unwrap_or(u32::MAX));
        self.text.extend(id.bytes().map(|byte| byte.to_ascii_lowercase()));
        self.text.push(b'\n');
        self.ids.push(Some(Arc::clone(id)));
        slot
    }

    fn clear(&mut self, slot: u32) {
        if let Some(id) = self.ids.get_mut(slot as usize) {
            *id = None;
        }
    }

    fn id(&self, slot: u32) -> Option<&Arc<str>> {
        self.ids.get(slot as usize)?.as_ref()
    }

    /// The highest ranks, and of equal ones the first slots; sorted by rank and name.
    fn best(&self, hits: impl Iterator<Item = (u8, u32)>, limit: usize) -> (Vec<Arc<str>>, bool) {
        let mut hits: Vec<_> =
            hits.filter(|(_, slot)| self.id(*slot).is_some()).map(|(rank, slot)| (!rank, slot)).collect();
        let more = hits.len() > limit;
        if more {
            hits.select_nth_unstable(limit);
            hits.truncate(limit);
        }
        let mut named: Vec<_> =
            hits.iter().filter_map(|(rank, slot)| Some((*rank, Arc::clone(self.id(*slot)?)))).collect();
        named.sort_unstable();
        (named.into_iter().map(|(_, id)| id).collect(), more)
    }

    fn exact(&self, id: &str) -> (Vec<Arc<str>>, bool) {
        let hits = self.hits(["\n", id, "\n"]);
        // those that differ in case only are few
        (hits.filter_map(|slot| self.id(slot)).take(8).cloned().collect(), false)
    }

    /// Names that begin with a text, then, if these leave room, names that have it further inside.
    fn containing(&self, part: &str, limit: usize) -> (Vec<Arc<str>>, bool) {
        let first = |before: &str, known: &[Arc<str>]| {
            let new = self.hits([before, part, ""]).filter_map(|slot| self.id(slot));
            let mut ids: Vec<_> =
                new.filter(|id| !known.contains(id)).take(limit + 1 - known.len()).cloned().collect();
            ids.sort_unstable();
            ids
        };
        let mut ids = first("\n", &[]);
        if ids.len() <= limit {
            ids.extend(first("", &ids));
        }
        let more = ids.len() > limit;
        ids.truncate(limit);
        (ids, more)
    }

    /// Slots of the names in which `part` stands between the two other texts, each once, dead ones as well.
    fn hits(&self, [before, part, behind]: [&str; 3]) -> impl Iterator<Item = u32> {
        let needle = [before, &part.to_ascii_lowercase(), behind].concat();
        let finder = Finder::new(&needle).into_owned();
        let mut from = if part.is_empty() || part.contains('\n') { self.text.len() } else { 0 };
        std::iter::from_fn(move || {
            let at = from + finder.find(self.text.get(from..)?)?;
            let slot = self.starts.partition_point(|start| *start as usize <= at) - 1;
            from = self.starts.get(slot + 1).map_or(self.text.len(), |next| *next as usize);
            u32::try_from(slot).ok()
        })
    }
}

#[cfg(test)]
mod tests;
