// SPDX-License-Identifier: Apache-2.0
//! Exact keys in 32 bytes, and their seeded hash.
//!
//! A key is what matches (a prefix, a VLAN, a PPPoE session) within a scope (VLAN, access port). Invariant: two
//! keys are equal exactly when what and scope are, so the hash of a packet's key is that of the configured one.
//! Which keys a record claims is `model::keys`' business; this is its form on the packet path.

use ipnet::IpNet;
use model::keys::{Key as ModelKey, What};
use model::subscriber::{Pppoe, Vlan};

use crate::packet::PortId;

/// What kind of key, in the order in which a packet's keys are tried: PPPoE (session and MAC, then session alone),
/// VLAN pair, longest prefix; within a kind the narrower scope first, and within a VLAN its prefixes before the
/// VLAN as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Group {
    SessionMacInPair,
    SessionMacInOuter,
    SessionMac,
    SessionInPair,
    SessionInOuter,
    Session,
    PrefixInPair,
    Pair,
    PrefixInOuter,
    Outer,
    Prefix,
}

impl Group {
    pub(crate) const ALL: [Self; 11] = [
        Self::SessionMacInPair,
        Self::SessionMacInOuter,
        Self::SessionMac,
        Self::SessionInPair,
        Self::SessionInOuter,
        Self::Session,
        Self::PrefixInPair,
        Self::Pair,
        Self::PrefixInOuter,
        Self::Outer,
        Self::Prefix,
    ];

    /// Whether its keys are prefixes.
    pub(crate) const fn is_prefix(self) -> bool {
        matches!(self, Self::PrefixInPair | Self::PrefixInOuter | Self::Prefix)
    }

    /// Whether its keys hold a PPPoE session id.
    pub(crate) const fn in_session(self) -> bool {
        (self as u8) <= Self::Session as u8
    }

    /// Whether its keys hold the subscriber's MAC.
    pub(crate) const fn has_mac(self) -> bool {
        (self as u8) <= Self::SessionMac as u8
    }

    /// Whether its keys hold an outer VLAN id.
    pub(crate) const fn in_outer(self) -> bool {
        self.in_pair()
            || matches!(
                self,
                Self::SessionMacInOuter | Self::SessionInOuter | Self::PrefixInOuter | Self::Outer
            )
    }

    /// Whether its keys hold an inner VLAN id.
    pub(crate) const fn in_pair(self) -> bool {
        matches!(self, Self::SessionMacInPair | Self::SessionInPair | Self::PrefixInPair | Self::Pair)
    }

    const fn scoped(in_any: Self, in_outer: Self, in_pair: Self, vlan: Option<Vlan>) -> Self {
        match vlan {
            None => in_any,
            Some(Vlan { inner: None, .. }) => in_outer,
            Some(Vlan { inner: Some(_), .. }) => in_pair,
        }
    }
}

/// Address family of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Family {
    V4,
    V6,
}

/// The bits of an address that a prefix fixes.
const fn network_mask(family: Family, length: u8) -> u128 {
    let (width, all) = match family {
        Family::V4 => (32, u32::MAX as u128),
        Family::V6 => (128, u128::MAX),
    };
    match all.checked_shl(width - length as u32) {
        Some(mask) => mask & all,
        None => 0,
    }
}

/// An exact key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// Kind, scope, prefix length and family, session id; see the shifts below.
    tag: u64,
    /// MAC in the low 48 bits, port number plus 1 above them (0: any port).
    edge: u64,
    /// Masked address; IPv4 in the low 32 bits.
    address: u128,
}

const GROUP_SHIFT: u32 = 0;
const FAMILY_SHIFT: u32 = 8;
const LENGTH_SHIFT: u32 = 12;
const OUTER_SHIFT: u32 = 20;
const INNER_SHIFT: u32 = 32;
const SESSION_SHIFT: u32 = 44;
const PORT_SHIFT: u32 = 48;

impl Key {
    /// A key of `group` with nothing in it yet.
    #[inline]
    pub(crate) const fn new(group: Group) -> Self {
        Self { tag: (group as u64) << GROUP_SHIFT, edge: 0, address: 0 }
    }

    /// Inside outer VLAN `outer`; VLAN ids have 12 bits.
    #[inline]
    #[must_use]
    pub(crate) const fn outer(self, outer: u16) -> Self {
        Self { tag: self.tag | (outer as u64 & 0xfff) << OUTER_SHIFT, ..self }
    }

    /// With inner VLAN `inner`.
    #[inline]
    #[must_use]
    pub(crate) const fn inner(self, inner: u16) -> Self {
        Self { tag: self.tag | (inner as u64 & 0xfff) << INNER_SHIFT, ..self }
    }

    #[inline]
    #[must_use]
    pub(crate) const fn session(self, session: u16) -> Self {
        Self { tag: self.tag | (session as u64) << SESSION_SHIFT, ..self }
    }

    #[inline]
    #[must_use]
    pub(crate) const fn mac(self, mac: [u8; 6]) -> Self {
        let mut octets = [0; 8];
        octets.split_at_mut(2).1.copy_from_slice(&mac);
        Self { edge: self.edge | u64::from_be_bytes(octets), ..self }
    }

    /// On access port `port` only.
    #[inline]
    #[must_use]
    pub(crate) const fn port(self, port: PortId) -> Self {
        Self { edge: self.edge & !(0xffff << PORT_SHIFT) | (port.0 as u64 + 1) << PORT_SHIFT, ..self }
    }

    /// On any access port.
    #[must_use]
    pub(crate) const fn any_port(self) -> Self {
        Self { edge: self.edge & !(0xffff << PORT_SHIFT), ..self }
    }

    /// The prefix of `address` that is `length` bits long; the rest is cleared.
    #[inline]
    #[must_use]
    pub(crate) const fn prefix(self, family: Family, length: u8, address: u128) -> Self {
        let tag = self.tag | (family as u64) << FAMILY_SHIFT | (length as u64) << LENGTH_SHIFT;
        Self { tag, address: address & network_mask(family, length), ..self }
    }

    /// Nothing but an address.
    #[inline]
    pub(super) const fn address(address: u128) -> Self {
        Self { tag: 0, edge: 0, address }
    }

    /// The bits of a packet's parts that go into keys of a kind.
    pub(super) const fn mask(group: Group, prefix: Option<(Family, u8)>, ported: bool) -> Self {
        let mut mask = Self::address(match prefix {
            None => 0,
            Some((family, length)) => network_mask(family, length),
        });
        if group.in_session() {
            mask = mask.session(u16::MAX);
        }
        if group.has_mac() {
            mask = mask.mac([u8::MAX; 6]);
        }
        if group.in_outer() {
            mask = mask.outer(u16::MAX);
        }
        if group.in_pair() {
            mask = mask.inner(u16::MAX);
        }
        if ported {
            mask.edge |= 0xffff << PORT_SHIFT;
        }
        mask
    }

    /// With those parts of `fields` that `mask` lets through.
    #[inline]
    #[must_use]
    pub(super) const fn with(self, fields: Self, mask: Self) -> Self {
        Self {
            tag: self.tag | fields.tag & mask.tag,
            edge: self.edge | fields.edge & mask.edge,
            address: self.address | fields.address & mask.address,
        }
    }

    /// Whether it is limited to a port.
    pub(crate) const fn ported(self) -> bool {
        self.edge >> PORT_SHIFT != 0
    }

    /// Its kind.
    #[expect(clippy::indexing_slicing, reason = "a key is built from a group")]
    pub(crate) const fn group(self) -> Group {
        Group::ALL[(self.tag >> GROUP_SHIFT & 0xff) as usize]
    }

    /// Family and length of a prefix key.
    pub(crate) const fn prefix_length(self) -> Option<(Family, u8)> {
        if !self.group().is_prefix() {
            return None;
        }
        let family = if self.tag >> FAMILY_SHIFT & 1 == 0 { Family::V4 } else { Family::V6 };
        Some((family, (self.tag >> LENGTH_SHIFT & 0xff) as u8))
    }

    /// From a record's key; `port` is the number of the port it names.
    pub(crate) fn of(key: &ModelKey<'_>, port: Option<PortId>) -> Self {
        let packed = match key.what {
            What::Prefix(net) => {
                let group = Group::scoped(Group::Prefix, Group::PrefixInOuter, Group::PrefixInPair, key.vlan);
                let (family, address) = match net {
                    IpNet::V4(net) => (Family::V4, u128::from(u32::from(net.network()))),
                    IpNet::V6(net) => (Family::V6, u128::from(net.network())),
                };
                Self::new(group).prefix(family, net.prefix_len(), address)
            }
            What::Vlan(vlan @ Vlan { inner: None, .. }) => Self::new(Group::Outer).within(Some(vlan)),
            What::Vlan(vlan) => Self::new(Group::Pair).within(Some(vlan)),
            What::Pppoe(Pppoe { session, mac: None }) => {
                let group =
                    Group::scoped(Group::Session, Group::SessionInOuter, Group::SessionInPair, key.vlan);
                Self::new(group).session(session)
            }
            What::Pppoe(Pppoe { session, mac: Some(mac) }) => {
                let group = Group::scoped(
                    Group::SessionMac,
                    Group::SessionMacInOuter,
                    Group::SessionMacInPair,
                    key.vlan,
                );
                Self::new(group).session(session).mac(mac.0)
            }
        };
        let packed = packed.within(key.vlan);
        port.map_or(packed, |port| packed.port(port))
    }

    fn within(self, vlan: Option<Vlan>) -> Self {
        match vlan {
            None => self,
            Some(Vlan { outer, inner: None }) => self.outer(outer),
            Some(Vlan { outer, inner: Some(inner) }) => self.outer(outer).inner(inner),
        }
    }
}

/// The secret of a table: whoever does not know it cannot choose packets whose keys collide with a configured one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed {
    words: [u64; 5],
    /// Tests shrink the hash to see collisions.
    #[cfg(test)]
    pub(crate) mask: u64,
}

impl Seed {
    /// From a seed of 64 bits, drawn at random where it matters.
    pub(crate) const fn new(seed: u64) -> Self {
        let mut words = [0; 5];
        let mut state = seed;
        let mut place = 0;
        while place < words.len() {
            // SplitMix64 (Steele, Lea, Flood 2014)
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            words[place] = word ^ word >> 31;
            place += 1;
        }
        Self {
            words,
            #[cfg(test)]
            mask: u64::MAX,
        }
    }

    /// The hash of a key; never 0. Folded 64x64-bit products, as in wyhash.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "takes the halves of a 128-bit word")]
    pub(crate) const fn hash(&self, key: &Key) -> u64 {
        let [low, high, tag, edge, both] = self.words;
        let address = fold(key.address as u64 ^ low, (key.address >> 64) as u64 ^ high);
        let scope = fold(key.tag ^ tag, key.edge ^ edge);
        let hash = fold(address ^ both, scope.rotate_left(32) ^ low);
        #[cfg(test)]
        let hash = hash & self.mask;
        if hash == 0 { 1 } else { hash }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "takes the halves of a 128-bit product")]
#[inline]
const fn fold(x: u64, y: u64) -> u64 {
    let product = x as u128 * y as u128;
    product as u64 ^ (product >> 64) as u64
}
