// SPDX-License-Identifier: Apache-2.0
//! VLAN tags of chosen hosts, pushed and popped in place.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result, bail};
use dpdk::Mbuf;

/// Where tags stand in a frame: behind both addresses.
const TAG_AT: usize = 12;

/// A host and the tags of its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tagged {
    pub(crate) host: IpAddr,
    /// (TPID, VID), outermost first.
    pub(crate) tags: Vec<(u16, u16)>,
}

impl std::str::FromStr for Tagged {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (host, tags) = text.split_once('=').context("ADDRESS=TPID:VID is expected")?;
        let host = host.parse().with_context(|| format!("\"{host}\" is no IP address"))?;
        let tags = tags.split(',').map(tag).collect::<Result<Vec<_>>>()?;
        if tags.len() > 3 {
            bail!("at most three tags");
        }
        Ok(Self { host, tags })
    }
}

fn tag(text: &str) -> Result<(u16, u16)> {
    let (tpid, vid) = text.split_once(':').with_context(|| format!("\"{text}\": TPID:VID is expected"))?;
    let tpid = u16::from_str_radix(tpid.trim_start_matches("0x"), 16);
    let tpid = tpid.with_context(|| format!("\"{text}\": the TPID is a hexadecimal number"))?;
    let vid: u16 = vid.parse().with_context(|| format!("\"{text}\": the VID is a number"))?;
    if vid > 4095 {
        bail!("\"{text}\": a VID is at most 4095");
    }
    Ok((tpid, vid))
}

/// Where an Ethernet payload begins, its type, and the VIDs before it.
fn payload(frame: &[u8]) -> Option<(usize, u16, Vec<u16>)> {
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let mut at = TAG_AT;
    let mut vids = Vec::new();
    loop {
        match word(at)? {
            0x8100 | 0x88a8 | 0x9100 if vids.len() < 4 => {
                vids.push(word(at + 2)? & 0xfff);
                at += 4;
            }
            kind => return Some((at + 2, kind, vids)),
        }
    }
}

/// The two addresses an IP or ARP frame is about.
fn addresses(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let (start, kind, _) = payload(frame)?;
    let v4 = |at: usize| {
        let bytes: [u8; 4] = frame.get(start + at..start + at + 4)?.try_into().ok()?;
        Some(IpAddr::V4(Ipv4Addr::from(bytes)))
    };
    let v6 = |at: usize| {
        let bytes: [u8; 16] = frame.get(start + at..start + at + 16)?.try_into().ok()?;
        Some(IpAddr::V6(Ipv6Addr::from(bytes)))
    };
    match kind {
        0x0800 => Some((v4(12)?, v4(16)?)),
        0x0806 => Some((v4(14)?, v4(24)?)),
        0x86dd => Some((v6(8)?, v6(24)?)),
        _ => None,
    }
}

impl Tagged {
    fn is_of(&self, frame: &[u8]) -> bool {
        addresses(frame).is_some_and(|(from, to)| from == self.host || to == self.host)
    }

    /// Pushes the tags; false if the frame has no room for them.
    fn push(&self, packet: &mut Mbuf) -> bool {
        let bytes = 4 * self.tags.len();
        let Some(room) = u16::try_from(bytes).ok().and_then(|bytes| packet.prepend(bytes)) else {
            return false;
        };
        room.copy_within(bytes..bytes + TAG_AT, 0);
        for (place, (tpid, vid)) in room[TAG_AT..TAG_AT + bytes].chunks_exact_mut(4).zip(&self.tags) {
            place[..2].copy_from_slice(&tpid.to_be_bytes());
            place[2..].copy_from_slice(&vid.to_be_bytes());
        }
        true
    }

    /// Pops the tags if the frame begins with exactly these VIDs. TPIDs are not compared: af_packet tells all alike.
    fn pop(&self, packet: &mut Mbuf) -> bool {
        let Some((_, _, vids)) = payload(packet.data()) else {
            return false;
        };
        if !vids.iter().eq(self.tags.iter().map(|(_, vid)| vid)) {
            return false;
        }
        let bytes = 4 * self.tags.len();
        packet.data_mut().copy_within(..TAG_AT, bytes);
        u16::try_from(bytes).is_ok_and(|bytes| packet.adj(bytes))
    }
}

/// What has been done to a frame's tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retag {
    /// Nothing.
    None,
    /// Pushed or popped.
    Done,
    /// No headroom for them: the frame cannot go on.
    NoRoom,
}

/// What to do to a frame that leaves port B.
pub(crate) fn push_tags(hosts: &[Tagged], packet: &mut Mbuf) -> Retag {
    match hosts.iter().find(|host| host.is_of(packet.data())) {
        None => Retag::None,
        Some(host) if host.push(packet) => Retag::Done,
        Some(_) => Retag::NoRoom,
    }
}

/// What to do to a frame that came in at port B.
pub(crate) fn pop_tags(hosts: &[Tagged], packet: &mut Mbuf) -> Retag {
    if hosts.iter().any(|host| host.pop(packet)) { Retag::Done } else { Retag::None }
}
