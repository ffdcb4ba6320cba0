// SPDX-License-Identifier: Apache-2.0
//! What tells an IP packet's flow and hosts apart, as keyed hashes, for disciplines that queue by flow.
//!
//! A flow is addresses, protocol and ports. Fragments carry no ports but the first, so all of a packet's fragments are
//! one flow of their hosts. The hash is that of the subscriber table, 64x64-bit products folded as in wyhash: without the
//! seed nobody can choose packets that share a queue. Invariant: nothing is read past the end of the slice.

use crate::ip;
use crate::link::Frame;
use crate::parsed::{Parsed, Ports};

/// Hashes of a packet's flow and hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowKey {
    /// Of addresses, protocol and ports.
    pub flow: u32,
    /// Of the source address.
    pub source: u32,
    /// Of the destination address.
    pub destination: u32,
    /// The DSCP.
    pub dscp: u8,
}

/// The key of the packet that `packet` begins with, IP header first; `None` for what is no IP packet or whose headers
/// are not there in full.
pub fn flow_key(packet: &[u8], seed: u64) -> Option<FlowKey> {
    // the packet may go on in other segments
    let frame = Frame { head: packet, bytes: usize::MAX };
    let mut parsed = Parsed::default();
    let kind = match packet.first()? >> 4 {
        4 => ip::ipv4(frame, 0, usize::MAX, &mut parsed),
        6 => ip::ipv6(frame, 0, usize::MAX, &mut parsed),
        _ => return None,
    };
    kind.ok()?;
    let (protocol, ports) = if ip::is_fragment(frame) {
        (0, Ports::default())
    } else {
        (parsed.protocol, parsed.ports.unwrap_or_default())
    };
    let upper = u64::from(protocol) << 32 | u64::from(ports.src) << 16 | u64::from(ports.dst);
    let [low, high, tag, edge] = words(seed);
    let source = address(parsed.src, low, high);
    let destination = address(parsed.dst, low, high);
    // the two directions of a flow differ, as do its hosts
    let flow = fold(source ^ tag, destination.rotate_left(32) ^ edge);
    Some(FlowKey {
        // twice: ports that follow each other would fall in step after one product
        flow: top(fold(fold(flow ^ low, upper ^ tag) ^ high, edge | 1)),
        source: top(source),
        destination: top(destination),
        dscp: parsed.dscp(),
    })
}

/// The hash of an address.
fn address(address: u128, low: u64, high: u64) -> u64 {
    let (upper, lower) = halves(address);
    let mixed = fold(lower ^ low, upper ^ high);
    fold(mixed ^ high, low | 1)
}

/// Words drawn from a seed (SplitMix64; Steele, Lea and Flood 2014).
fn words(seed: u64) -> [u64; 4] {
    let mut state = seed;
    core::array::from_fn(|_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    })
}

/// A 128-bit product, its halves folded.
fn fold(x: u64, y: u64) -> u64 {
    let (upper, lower) = halves(u128::from(x) * u128::from(y));
    upper ^ lower
}

#[expect(clippy::cast_possible_truncation, reason = "takes the halves")]
const fn halves(word: u128) -> (u64, u64) {
    ((word >> 64) as u64, word as u64)
}

/// The upper half.
const fn top(hash: u64) -> u32 {
    (hash >> 32) as u32
}
