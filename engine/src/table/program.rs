// SPDX-License-Identifier: Apache-2.0
//! Which keys a packet is looked up by: one step for each kind of key and prefix length in use, in the order of
//! precedence.
//!
//! Invariant: a step is in the program before its first key is in the table and until after its last one has left,
//! so a reader never leaves out a key that is there. A program never changes; the writer swaps in another, which
//! happens only when the first or last key of a kind comes or goes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use wire::{Kind, Parsed};

use super::key::{Family, Group, Key};
use crate::change::Direction;
use crate::packet::PortId;

/// What keys of one kind have in common; the lesser is tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyClass {
    group: Group,
    /// The longest prefix first.
    length: Reverse<u8>,
    family: Option<Family>,
    /// Keys limited to a port before those for any.
    any_port: bool,
}

impl KeyClass {
    fn of(key: &Key) -> Self {
        let prefix = key.prefix_length();
        Self {
            group: key.group(),
            length: Reverse(prefix.map_or(0, |(_, length)| length)),
            family: prefix.map(|(family, _)| family),
            any_port: !key.ported(),
        }
    }

    /// Whether packets of a family (`None`: not IP) can have such a key.
    fn fits(self, family: Option<Family>) -> bool {
        self.family.is_none() || self.family == family
    }
}

/// The writer's count of the keys in each class.
pub(super) type Census = BTreeMap<KeyClass, u64>;

/// Counts a key; whether it is the first of its class, which then needs a step.
pub(super) fn count_in(census: &mut Census, key: &Key) -> bool {
    let count = census.entry(KeyClass::of(key)).or_default();
    *count += 1;
    *count == 1
}

/// Counts a key out; whether it was the last of its class, whose step can go.
pub(super) fn count_out(census: &mut Census, key: &Key) -> bool {
    let class = KeyClass::of(key);
    let Some(count) = census.get_mut(&class) else {
        debug_assert!(false, "removed what was never added");
        return false;
    };
    *count -= 1;
    let last = *count == 0;
    if last {
        census.remove(&class);
    }
    last
}

/// How a packet becomes a key of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The key's own part.
    own: Key,
    /// Which part of the packet's goes into it.
    mask: Key,
    /// What a packet must have: see [`Fields`].
    requires: u8,
}

impl Step {
    fn of(class: KeyClass) -> Self {
        let KeyClass { group, length: Reverse(length), family, any_port } = class;
        let own = Key::new(group);
        let own = family.map_or(own, |family| own.prefix(family, length, 0));
        let needs =
            [(group.in_session(), HAS_SESSION), (group.in_outer(), HAS_OUTER), (group.in_pair(), HAS_INNER)];
        let requires = needs.iter().filter(|(needed, _)| *needed).map(|(_, bit)| bit).sum();
        Self { own, mask: Key::mask(group, family.map(|family| (family, length)), !any_port), requires }
    }

    /// The packet's key of this class, if it has one.
    #[inline]
    pub(super) fn key(&self, fields: &Fields) -> Option<Key> {
        (fields.has & self.requires == self.requires).then(|| self.own.with(fields.all, self.mask))
    }
}

/// Steps for IPv4, for IPv6 and for what is not IP.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Program {
    ipv4: Box<[Step]>,
    ipv6: Box<[Step]>,
    other: Box<[Step]>,
}

impl Program {
    /// A step for each class that has keys.
    pub(super) fn of(census: &Census) -> Self {
        let steps = |family| {
            let classes = census.keys().copied().filter(move |class| class.fits(family));
            classes.map(Step::of).collect()
        };
        Self { ipv4: steps(Some(Family::V4)), ipv6: steps(Some(Family::V6)), other: steps(None) }
    }

    /// The steps for a packet.
    #[inline]
    pub(super) fn steps(&self, kind: Kind) -> &[Step] {
        match kind {
            Kind::Ipv4 => &self.ipv4,
            Kind::Ipv6 => &self.ipv6,
            _ => &self.other,
        }
    }
}

const HAS_SESSION: u8 = 1;
const HAS_OUTER: u8 = 2;
const HAS_INNER: u8 = 4;

/// All of a packet that can go into a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    all: Key,
    has: u8,
}

impl Fields {
    /// Of a packet that goes `direction` and comes or leaves by access port `access`.
    #[inline]
    pub(super) fn of(parsed: &Parsed, direction: Direction, access: PortId) -> Self {
        let (address, mac) = match direction {
            Direction::Down => (parsed.dst, parsed.dst_mac),
            Direction::Up => (parsed.src, parsed.src_mac),
        };
        let mut has = 0;
        let mut all = Key::address(address).port(access).mac(mac);
        if let Some(outer) = parsed.outer_vlan() {
            (has, all) = (has | HAS_OUTER, all.outer(outer));
        }
        if let Some(inner) = parsed.inner_vlan() {
            (has, all) = (has | HAS_INNER, all.inner(inner));
        }
        if let Some(session) = parsed.pppoe_session {
            (has, all) = (has | HAS_SESSION, all.session(session));
        }
        Self { all, has }
    }
}
