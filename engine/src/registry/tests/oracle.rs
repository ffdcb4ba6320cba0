// SPDX-License-Identifier: Apache-2.0
//! Whose a packet is, by the words of the interface and nothing clever: look at every record, take the best match.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use model::Subscriber;
use model::keys::{Key, What};
use model::subscriber::{Pppoe, Vlan};
use wire::{Kind, Parsed};

use crate::change::Direction;

/// How good a match is: PPPoE with MAC, PPPoE, then VLAN pair, outer VLAN, then any; within them the longest prefix.
/// A greater tuple wins.
type Rank = (u8, u8, u8, u8);

/// The record a packet belongs to; `access` is the access port it comes from or goes to.
pub(super) fn best<'a>(
    records: impl Iterator<Item = &'a Subscriber>,
    parsed: &Parsed,
    direction: Direction,
    access: &str,
) -> Option<&'a str> {
    let ways = records.flat_map(|record| record.keys().map(move |key| (record, key)));
    ways.filter_map(|(record, key)| Some((rank(&key, parsed, direction, access)?, &*record.id)))
        .max_by_key(|(rank, _)| *rank)
        .map(|(_, name)| name)
}

fn rank(key: &Key<'_>, parsed: &Parsed, direction: Direction, access: &str) -> Option<Rank> {
    if key.port.is_some_and(|port| port != access) {
        return None;
    }
    let scope = match key.vlan {
        None => 0,
        Some(vlan) => inside(vlan, parsed)?,
    };
    match key.what {
        What::Pppoe(Pppoe { session, mac }) => {
            let (own, far) = (parsed.src_mac, parsed.dst_mac);
            let theirs = if direction == Direction::Down { far } else { own };
            let fits = parsed.pppoe_session == Some(session) && mac.is_none_or(|mac| mac.0 == theirs);
            fits.then_some((2, u8::from(mac.is_some()), scope, 0))
        }
        What::Vlan(vlan) => Some((1, 0, inside(vlan, parsed)?, 0)),
        What::Prefix(net) => {
            let address = if direction == Direction::Down { parsed.dst } else { parsed.src };
            let fits = match (net, parsed.kind) {
                (IpNet::V4(net), Kind::Ipv4) => {
                    net.contains(&Ipv4Addr::from(u32::try_from(address).unwrap()))
                }
                (IpNet::V6(net), Kind::Ipv6) => net.contains(&Ipv6Addr::from(address)),
                _ => false,
            };
            fits.then_some((u8::from(scope > 0), 0, scope, net.prefix_len() + 1))
        }
    }
}

fn inside(vlan: Vlan, parsed: &Parsed) -> Option<u8> {
    let outer = parsed.outer_vlan() == Some(vlan.outer);
    match vlan.inner {
        None => outer.then_some(1),
        Some(inner) => (outer && parsed.inner_vlan() == Some(inner)).then_some(2),
    }
}
