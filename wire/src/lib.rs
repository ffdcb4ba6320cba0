// SPDX-License-Identifier: Apache-2.0
//! What a frame is and whose: one pass over its headers, and the CE mark.
//!
//! [`parse`] walks Ethernet, up to three VLAN tags, PPPoE, up to four MPLS labels, IPv4 and IPv6, and gives the
//! fields that subscriber keys, the ECN rules and the shaper need. [`set_ce`] marks a packet on its way out,
//! [`flow_key`] tells flows apart.
//! Knows no subscribers and no queues.
//!
//! Invariant: nothing is read past the end of what was given, and a packet said to be IP lies inside its frame:
//! `ip_offset + l3_bytes <= frame_bytes`. Nothing allocates.
#![forbid(unsafe_code)]

mod control;
mod flow;
mod ip;
mod kind;
mod link;
mod mark;
mod mpls;
mod parsed;

pub use flow::{FlowKey, flow_key};
pub use kind::{Bad, Control, Kind, NotIp};
pub use link::{parse, parse_into};
pub use mark::set_ce;
pub use parsed::{MAX_VLANS, Parsed, Ports};
