// SPDX-License-Identifier: Apache-2.0
//! The subscriber record: rates, profile and what matches it.
//!
//! Invariant: a [`Subscriber`] that came from [`Subscriber::from_json`], [`Subscriber::from_value`] or
//! [`Subscriber::merge_patch`] is valid, its prefixes sorted and without repetition, so equal records are equal byte
//! for byte in [`Subscriber::to_json`].

mod mac;
pub(crate) mod record;
#[cfg(test)]
mod tests;
mod text;

use ipnet::{Ipv4Net, Ipv6Net};

pub use mac::{MacAddr, MacError};
pub(crate) use text::{check_id, check_name, parse_ipv4, parse_ipv6};

/// Lowest rate a record may have, 64 kb/s.
pub const MIN_RATE_BPS: u64 = 64_000;
/// Highest rate a record may have, 400 Gb/s.
pub const MAX_RATE_BPS: u64 = 400_000_000_000;

/// Longest id, in bytes.
pub const MAX_ID_BYTES: usize = 255;
/// Name of the profile of a record that names none.
pub const DEFAULT_PROFILE: &str = "default";

/// A validated subscriber: whoever holds one need not check it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// Its name.
    pub id: String,
    /// Rate towards the subscriber, 64 kb/s to 400 Gb/s.
    pub down_bps: u64,
    /// Rate from the subscriber.
    pub up_bps: u64,
    /// Name of its profile.
    pub profile: String,
    /// Name of the aggregate above it.
    pub parent: Option<String>,
    /// What matches it; at least one way.
    pub matches: Match,
}

/// The ways a packet can belong to a subscriber.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// IPv4 prefixes, host bits clear.
    pub ipv4: Vec<Ipv4Net>,
    /// IPv6 prefixes, host bits clear.
    pub ipv6: Vec<Ipv6Net>,
    /// A VLAN or VLAN pair.
    pub vlan: Option<Vlan>,
    /// A PPPoE session.
    pub pppoe: Option<Pppoe>,
    /// Only on this access port.
    pub port: Option<String>,
}

/// A VLAN pair, or an outer VLAN with all inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vlan {
    /// Outer VLAN id, 1 to 4094.
    pub outer: u16,
    /// Inner VLAN id, 1 to 4094.
    pub inner: Option<u16>,
}

/// A PPPoE session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pppoe {
    /// Session id, 1 to 65534.
    pub session: u16,
    /// The subscriber's MAC; may be left out where session ids are unique.
    pub mac: Option<MacAddr>,
}
