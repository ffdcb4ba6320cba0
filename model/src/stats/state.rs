// SPDX-License-Identifier: Apache-2.0
//! What is true now of ports, lcores and the busiest subscribers, and what just happened.
//!
//! Times come in from whoever owns a clock: nothing here reads one.

use serde::{Deserialize, Serialize};

use crate::config::Role;

/// Which way traffic goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Towards the subscriber.
    Down,
    /// From the subscriber.
    Up,
}

impl Direction {
    /// Its label on every interface.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
        }
    }
}

/// A port and its counters since start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortState {
    /// Its name in the configuration.
    pub name: String,
    /// PCI address or vdev.
    pub device: String,
    /// Which side it faces.
    pub role: Role,
    /// Where its packets leave.
    pub peer: String,
    /// Driver, as DPDK names it.
    pub driver: String,
    /// Its MAC address.
    pub mac: String,
    /// Whether the link is up.
    pub link: bool,
    /// Link speed; `None`: the driver does not know.
    pub speed_bps: Option<u64>,
    /// MTU in use.
    pub mtu: u32,
    /// Rate of the port shaper; `None`: no shaper.
    pub rate_bps: Option<u64>,
    /// Speed of the common clock of its shards, 0 to 1.
    pub clock_speed: f64,
    /// Frames received.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Losses by reason (`imissed`, `rx_nombuf`, `ierrors`, `oerrors`, `oversize`, ...), labels stable.
    pub drops: Vec<PortDrops>,
}

/// Losses at a port for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortDrops {
    /// Stable label.
    pub reason: String,
    /// Frames.
    pub packets: u64,
}

/// What an lcore does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LcoreRole {
    /// PI pass and watch over the others.
    Control,
    /// Receives, parses, classifies.
    Rx,
    /// Owns a shard: queues, shapes, sends.
    Tx,
    /// All of it in turn.
    Compact,
}

impl LcoreRole {
    /// Its label on every interface.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Rx => "rx",
            Self::Tx => "tx",
            Self::Compact => "compact",
        }
    }
}

/// An lcore.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LcoreState {
    /// Lcore id.
    pub lcore: u32,
    /// CPU it runs on.
    pub cpu: u32,
    /// What it does.
    pub role: LcoreRole,
    /// Shard it owns, if any.
    pub shard: Option<u32>,
    /// Share of its loops that found work over the last second, 0 to 1.
    pub busy_ratio: f64,
    /// Whether it has not been seen for a second.
    pub stalled: bool,
    /// How often it stalled since start.
    pub stalls: u64,
    /// Longest gap between two of its loops since start.
    pub longest_gap_us: u64,
    /// Gaps of 2 ms or more since start.
    pub long_gaps: u64,
}

/// `GET /v1/top`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopQuery {
    /// What counts.
    pub by: TopBy,
    /// Which way.
    pub dir: Direction,
    /// How many, 1 to 1000.
    pub n: u32,
    /// Over how long a time up to now.
    pub window_s: f64,
    /// Only subscribers right below this aggregate, and then those too that send nothing.
    pub parent: Option<String>,
}

impl Default for TopQuery {
    fn default() -> Self {
        Self { by: TopBy::Bytes, dir: Direction::Down, n: 10, window_s: 10.0, parent: None }
    }
}

/// What makes a subscriber the first of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TopBy {
    /// Most bytes forwarded.
    Bytes,
    /// Longest mean delay.
    Delay,
    /// Most packets dropped.
    Drops,
}

/// The list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Top {
    /// The window that it really covers: near the one asked for, at most a minute.
    pub window_s: f64,
    /// Best first.
    pub items: Vec<TopEntry>,
}

/// One line of the list: what happened within the window, both queues together unless said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopEntry {
    /// Name of the record.
    pub id: String,
    /// Bytes forwarded.
    pub bytes: u64,
    /// The same as a rate over the time the window really covered.
    pub rate_bps: f64,
    /// Packets forwarded.
    pub packets: u64,
    /// Mean delay in L.
    pub l4s_delay_us: f64,
    /// Mean delay in C.
    pub classic_delay_us: f64,
    /// Packets changed to CE here.
    pub marked: u64,
    /// Packets dropped, all reasons.
    pub dropped: u64,
}

/// Something that happened, as `/v1/events` streams it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// What.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened; `event` is the tag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// p_CL reached 1 (RFC 9332 2.5.2.3), after hysteresis.
    OverloadStart {
        /// The record.
        id: String,
        /// Which way.
        dir: Direction,
    },
    /// It ended, after hysteresis.
    OverloadEnd {
        /// The record.
        id: String,
        /// Which way.
        dir: Direction,
        /// How long it lasted.
        lasted_ms: u64,
    },
    /// A link went up or down.
    Link {
        /// The port.
        port: String,
        /// Whether it is up.
        up: bool,
        /// Its speed now, if known.
        speed_bps: Option<u64>,
    },
    /// Records changed.
    Config {
        /// New ones.
        created: u64,
        /// Changed ones.
        updated: u64,
        /// Removed ones.
        deleted: u64,
    },
}

impl EventKind {
    /// The tag, which is also the name of the Server-Sent Event.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::OverloadStart { .. } => "overload_start",
            Self::OverloadEnd { .. } => "overload_end",
            Self::Link { .. } => "link",
            Self::Config { .. } => "config",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_flat_json_with_its_label_as_tag() {
        let kinds = [
            EventKind::OverloadStart { id: "a".into(), dir: Direction::Down },
            EventKind::OverloadEnd { id: "a".into(), dir: Direction::Up, lasted_ms: 7 },
            EventKind::Link { port: "core".into(), up: false, speed_bps: None },
            EventKind::Config { created: 1, updated: 2, deleted: 3 },
        ];
        for kind in kinds {
            let event = Event { at_ms: 5, kind };
            let json = serde_json::to_value(&event).unwrap();
            assert_eq!(json["at_ms"], 5);
            assert_eq!(json["event"], event.kind.label());
            assert_eq!(serde_json::from_value::<Event>(json).unwrap(), event);
        }
    }

    #[test]
    fn a_top_query_has_the_defaults_of_the_interface() {
        let query: TopQuery = serde_json::from_str("{}").unwrap();
        assert_eq!(query, TopQuery::default());
        assert!(serde_json::from_str::<TopQuery>(r#"{"by":"colour"}"#).is_err());
    }
}
