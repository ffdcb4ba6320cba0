// SPDX-License-Identifier: Apache-2.0
//! The configuration file, validated.
//!
//! [`Config::parse`] reads TOML and gives either a configuration in which every value is in range and every name
//! leads somewhere, or all problems with line and key. [`Config::to_toml`] writes what is in force.

mod changes;
mod parents;
mod parse;
mod profile;
mod reader;
mod subscribers;
mod write;

#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::parent::Parent;
use crate::profile::Profile;
use crate::subscriber::Subscriber;

pub use changes::Change;

/// A whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Lcores, memory, EAL.
    pub dataplane: Dataplane,
    /// Ports, in the order of the file.
    pub ports: Vec<Port>,
    /// Classification.
    pub classify: Classify,
    /// Profiles by name; `default` is always there.
    pub profiles: BTreeMap<String, Profile>,
    /// HTTP.
    pub api: Api,
    /// What is logged.
    pub log: LogLevel,
    /// Where records live.
    pub store: PathBuf,
    /// Aggregates that seed the store, those above first.
    pub parents: Vec<Parent>,
    /// Records that seed the store.
    pub subscribers: Vec<Subscriber>,
}

/// `[dataplane]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataplane {
    /// Which lcores do what.
    pub lcores: Lcores,
    /// Use of huge pages.
    pub hugepages: HugePages,
    /// Packet buffers a NUMA node; `None`: sized from port rates and limits.
    pub buffers: Option<u32>,
    /// Subscribers there is room for; memory for their queues is taken at start.
    pub subscribers: u32,
    /// Seed of every phase and roll.
    pub seed: u64,
    /// Added to the EAL's arguments.
    pub eal_args: Vec<String>,
}

/// An lcore, with the CPU it runs on if that has another number ("3@0").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lcore {
    /// Lcore id.
    pub id: u32,
    /// CPU.
    pub cpu: u32,
}

/// Which lcores do what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lcores {
    /// One for each task.
    Split {
        /// PI pass and watch over the others.
        control: Lcore,
        /// RX, one or more.
        rx: Vec<Lcore>,
        /// TX, one shard each.
        tx: Vec<Lcore>,
    },
    /// All on one.
    Compact(Lcore),
}

/// Use of huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// If enough are free, else without, said once.
    Auto,
    /// Exit 1 without.
    Require,
    /// Never.
    Never,
}

/// `[[port]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Unique name.
    pub name: String,
    /// PCI address or vdev.
    pub device: String,
    /// Which side it faces.
    pub role: Role,
    /// Index of the port where packets from this one leave.
    pub peer: usize,
    /// Port shaper; `None`: 99.5 % of link speed.
    pub rate_bps: Option<u64>,
    /// MTU to set.
    pub mtu: u16,
}

/// Which side a port faces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The Internet.
    Core,
    /// Subscribers.
    Access,
}

/// `[classify]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classify {
    /// What happens to traffic that matches nobody.
    pub unknown: Unknown,
    /// Its rate in each direction; `None`: only the port's.
    pub unknown_bps: Option<u64>,
    /// DSCP rules: each DSCP stands in at most one list.
    pub rules: Rules,
}

/// What happens to traffic that matches nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// One queue with an AQM.
    Pass,
    /// Dropped and counted.
    Drop,
}

/// `[classify.rules]`: DSCP values, 0 to 63.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Into L, never marked unless ECT(1) or CE.
    pub nqb_dscp: Vec<u8>,
    /// Kept out of L.
    pub exclude_dscp: Vec<u8>,
    /// Forced into C.
    pub classic_dscp: Vec<u8>,
    /// Forced into L.
    pub l4s_dscp: Vec<u8>,
}

/// `[log]` `level`: the least important that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// What failed.
    Error,
    /// And what an operator should look at.
    Warn,
    /// And what happened.
    Info,
    /// And what helps to find a fault.
    Debug,
    /// And everything.
    Trace,
}

impl LogLevel {
    /// All of them with their words.
    pub const ALL: [(&str, Self); 5] = [
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];

    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// `[api]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// Where HTTP listens.
    pub listen: SocketAddr,
    /// File that holds the bearer token.
    pub token_file: Option<PathBuf>,
    /// Certificate chain, PEM.
    pub tls_cert: Option<PathBuf>,
    /// Its key, PEM.
    pub tls_key: Option<PathBuf>,
}
