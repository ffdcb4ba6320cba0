// SPDX-License-Identifier: Apache-2.0
//! Which match key belongs to which record, so that no two records claim the same one.
//!
//! A key is a way to match within a scope: the VLAN and the access port that stand beside it in the record. Keys of
//! different scope are different keys (the narrower one wins a packet), with one exception: the same key with and
//! without a port is one key, for on that port nothing would decide between the two.
//! Invariant: the index holds exactly the keys of the records put in and not taken out; a refused batch leaves it as
//! it was. It keeps no records: the caller, which has them, hands the old one in.
//! Size: 32 bytes a key and load factor; 1,000,000 records of three keys take about 150 MB with their names.

use std::fmt;

use hashbrown::HashMap;
use ipnet::IpNet;

use crate::subscriber::{Pppoe, Subscriber, Vlan};

#[cfg(test)]
mod tests;

/// One way to match, with its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<'a> {
    /// What matches.
    pub what: What,
    /// Only inside this VLAN; `None` beside [`What::Vlan`], which is one itself.
    pub vlan: Option<Vlan>,
    /// Only on this access port.
    pub port: Option<&'a str>,
}

/// What of a packet matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// An address: destination down, source up.
    Prefix(IpNet),
    /// Everything inside a VLAN or VLAN pair.
    Vlan(Vlan),
    /// A PPPoE session.
    Pppoe(Pppoe),
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            What::Prefix(prefix) => write!(out, "prefix {prefix}")?,
            What::Vlan(vlan) => write!(out, "VLAN {vlan}")?,
            What::Pppoe(Pppoe { session, mac: None }) => write!(out, "PPPoE session {session}")?,
            What::Pppoe(Pppoe { session, mac: Some(mac) }) => {
                write!(out, "PPPoE session {session} of {mac}")?;
            }
        }
        if let Some(vlan) = self.vlan {
            write!(out, " in VLAN {vlan}")?;
        }
        if let Some(port) = self.port {
            write!(out, " on port {port}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Vlan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inner {
            Some(inner) => write!(out, "{}.{inner}", self.outer),
            None => write!(out, "{}", self.outer),
        }
    }
}

impl Subscriber {
    /// Every key the record claims. A VLAN beside prefixes or a session is their scope; alone it is the key.
    pub fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        let matches = &self.matches;
        let port = matches.port.as_deref();
        let v4 = matches.ipv4.iter().map(|prefix| What::Prefix((*prefix).into()));
        let v6 = matches.ipv6.iter().map(|prefix| What::Prefix((*prefix).into()));
        let within = v4.chain(v6).chain(matches.pppoe.map(What::Pppoe));
        let scoped = within.map(move |what| Key { what, vlan: matches.vlan, port });
        let narrower = !matches.ipv4.is_empty() || !matches.ipv6.is_empty() || matches.pppoe.is_some();
        let alone = matches.vlan.filter(|_| !narrower);
        scoped.chain(alone.map(move |vlan| Key { what: What::Vlan(vlan), vlan: None, port }))
    }
}

/// A key that is taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} of \"{claimant}\" is already claimed by \"{holder}\"")]
pub struct Conflict {
    /// The key, in words.
    pub key: String,
    /// Who has it.
    pub holder: String,
    /// Who wants it.
    pub claimant: String,
}

/// A change of one record: from `old` (as it was put in) to `new`.
#[derive(Clone, Copy, Debug)]
pub struct Edit<'a> {
    /// The record as the index knows it; `None`: there is none.
    pub old: Option<&'a Subscriber>,
    /// The record from now on; `None`: it goes.
    pub new: Option<&'a Subscriber>,
}

/// Keys by owner.
#[derive(Debug, Default)]
pub struct KeyIndex {
    keys: HashMap<Packed, u32>,
    /// Names of owners; a key holds the place.
    owners: Vec<Option<Box<str>>>,
    free: Vec<u32>,
    /// Names of ports; a key holds the place plus 1, 0 stands for any port.
    ports: Vec<Box<str>>,
}

impl KeyIndex {
    /// An empty index with room for `keys` keys.
    pub fn with_capacity(keys: usize) -> Self {
        Self { keys: HashMap::with_capacity(keys), ..Self::default() }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Who has `key`, or one that excludes it.
    pub fn holder(&self, key: &Key<'_>) -> Option<&str> {
        self.taken(key).and_then(|owner| self.owner(owner))
    }

    /// Changes one record.
    ///
    /// # Errors
    ///
    /// The first key that another record has; the index is then as it was.
    pub fn replace(&mut self, old: Option<&Subscriber>, new: Option<&Subscriber>) -> Result<(), Conflict> {
        self.apply(&[Edit { old, new }]).map_err(|mut conflicts| conflicts.swap_remove(0).1)
    }

    /// Changes many records at once: keys may move between them.
    ///
    /// # Errors
    ///
    /// For each edit that cannot be, its place and the first key that another record has; nothing was changed.
    pub fn apply(&mut self, edits: &[Edit<'_>]) -> Result<(), Vec<(usize, Conflict)>> {
        let batch = self.attempt(edits);
        if batch.conflicts.is_empty() {
            batch.left.into_iter().for_each(|(_, owner)| self.retire(owner));
            Ok(())
        } else {
            Err(self.roll_back(edits, batch))
        }
    }

    /// What [`apply`](Self::apply) would answer; the index stays as it is.
    ///
    /// # Errors
    ///
    /// As [`apply`](Self::apply).
    pub fn check(&mut self, edits: &[Edit<'_>]) -> Result<(), Vec<(usize, Conflict)>> {
        let batch = self.attempt(edits);
        let conflicts = self.roll_back(edits, batch);
        if conflicts.is_empty() { Ok(()) } else { Err(conflicts) }
    }

    /// Takes all old keys out, then puts all new ones in that are free.
    fn attempt(&mut self, edits: &[Edit<'_>]) -> Batch {
        let mut batch = Batch::default();
        for (place, old) in edits.iter().enumerate().filter_map(|(place, edit)| Some((place, edit.old?))) {
            if let Some(owner) = self.take_out(old) {
                batch.left.push((place, owner));
            }
        }
        for (place, new) in edits.iter().enumerate().filter_map(|(place, edit)| Some((place, edit.new?))) {
            let owner = self.enrol(&new.id);
            batch.joined.push((place, owner));
            if let Err(conflict) = self.put_in(new, owner) {
                batch.conflicts.push((place, conflict));
            }
        }
        batch
    }

    fn roll_back(&mut self, edits: &[Edit<'_>], batch: Batch) -> Vec<(usize, Conflict)> {
        for (place, owner) in batch.joined {
            if let Some(new) = edits.get(place).and_then(|edit| edit.new) {
                self.erase(new, owner);
            }
            self.retire(owner);
        }
        for (place, owner) in batch.left {
            for key in edits.get(place).and_then(|edit| edit.old).into_iter().flat_map(Subscriber::keys) {
                let packed = self.pack(&key);
                self.keys.insert(packed, owner);
            }
        }
        batch.conflicts
    }

    /// Removes the keys of a record; its owner stays enrolled.
    fn take_out(&mut self, old: &Subscriber) -> Option<u32> {
        let mut owner = None;
        for key in old.keys() {
            let packed = self.pack(&key);
            owner = self.keys.remove(&packed).or(owner);
        }
        debug_assert!(owner.is_some(), "the index never held {}", old.id);
        owner
    }

    fn put_in(&mut self, new: &Subscriber, owner: u32) -> Result<(), Conflict> {
        let mut first = Ok(());
        for key in new.keys() {
            match self.taken(&key) {
                Some(holder) if holder != owner => {
                    let holder = self.owner(holder).unwrap_or_default().to_owned();
                    let conflict = Conflict { key: key.to_string(), holder, claimant: new.id.clone() };
                    first = first.and(Err(conflict));
                }
                Some(_) => {}
                None => {
                    let packed = self.pack(&key);
                    self.keys.insert(packed, owner);
                }
            }
        }
        first
    }

    /// Removes those keys of a record that `owner` has.
    fn erase(&mut self, new: &Subscriber, owner: u32) {
        for key in new.keys() {
            let packed = self.pack(&key);
            if self.keys.get(&packed) == Some(&owner) {
                self.keys.remove(&packed);
            }
        }
    }

    fn taken(&self, key: &Key<'_>) -> Option<u32> {
        let any_port = Packed::new(key, 0);
        if let Some(owner) = self.keys.get(&any_port) {
            return Some(*owner);
        }
        // Few ports have names in records: a box has a handful of access ports.
        let numbers = self.ports.iter().zip(1u16..);
        let mut rivals = numbers.filter(|(name, _)| key.port.is_none_or(|port| port == &***name));
        rivals.find_map(|(_, number)| self.keys.get(&any_port.on(number)).copied())
    }

    fn pack(&mut self, key: &Key<'_>) -> Packed {
        let number = key.port.map_or(0, |port| self.port_number(port));
        Packed::new(key, number)
    }

    fn port_number(&mut self, port: &str) -> u16 {
        let place = self.ports.iter().position(|name| &**name == port).unwrap_or_else(|| {
            self.ports.push(port.into());
            self.ports.len() - 1
        });
        u16::try_from(place + 1).unwrap_or(u16::MAX)
    }

    fn owner(&self, owner: u32) -> Option<&str> {
        self.owners.get(owner as usize)?.as_deref()
    }

    fn enrol(&mut self, id: &str) -> u32 {
        if let Some(place) = self.free.pop() {
            if let Some(owner) = self.owners.get_mut(place as usize) {
                *owner = Some(id.into());
            }
            return place;
        }
        self.owners.push(Some(id.into()));
        u32::try_from(self.owners.len() - 1).unwrap_or(u32::MAX)
    }

    fn retire(&mut self, owner: u32) {
        if let Some(name) = self.owners.get_mut(owner as usize) {
            *name = None;
            self.free.push(owner);
        }
    }
}

/// What an attempt changed.
#[derive(Default)]
struct Batch {
    /// Place of the edit and owner of each old record.
    left: Vec<(usize, u32)>,
    /// Place of the edit and owner of each new record.
    joined: Vec<(usize, u32)>,
    conflicts: Vec<(usize, Conflict)>,
}

/// A key in 24 bytes, so that millions of them fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Packed {
    what: [u32; 4],
    /// Outer and inner VLAN of the scope, 0xffff where there is none.
    vlan: u32,
    kind: u8,
    prefix_len: u8,
    port: u16,
}

impl Packed {
    fn new(key: &Key<'_>, port: u16) -> Self {
        let (kind, prefix_len, what) = match key.what {
            What::Prefix(IpNet::V4(net)) => (4, net.prefix_len(), [u32::from(net.addr()), 0, 0, 0]),
            What::Prefix(IpNet::V6(net)) => (6, net.prefix_len(), words(net.addr().octets())),
            What::Vlan(vlan) => (1, 0, [vlan_word(Some(vlan)), 0, 0, 0]),
            What::Pppoe(Pppoe { session, mac: None }) => (2, 0, [session.into(), 0, 0, 0]),
            What::Pppoe(Pppoe { session, mac: Some(mac) }) => {
                let [.., mac_high, mac_low] = words(mac.widened());
                (3, 0, [session.into(), mac_high, mac_low, 0])
            }
        };
        Self { what, vlan: vlan_word(key.vlan), kind, prefix_len, port }
    }

    fn on(self, port: u16) -> Self {
        Self { port, ..self }
    }
}

fn vlan_word(vlan: Option<Vlan>) -> u32 {
    let Some(vlan) = vlan else { return u32::MAX };
    u32::from(vlan.outer) << 16 | u32::from(vlan.inner.unwrap_or(u16::MAX))
}

fn words(octets: [u8; 16]) -> [u32; 4] {
    let all = u128::from_be_bytes(octets);
    [96, 64, 32, 0].map(|shift| u32::try_from(all >> shift & u128::from(u32::MAX)).unwrap_or(0))
}
