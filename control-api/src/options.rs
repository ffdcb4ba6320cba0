// SPDX-License-Identifier: Apache-2.0
//! What the server needs to know before it starts, and every limit it keeps.
//!
//! Invariant: each wait, queue and buffer that a client can touch has a bound here.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use model::{Config, Parent, Profile, Subscriber};

/// Everything [`crate::Server::start`] needs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// File with the bearer token.
    pub token_file: Option<PathBuf>,
    /// Certificate chain, PEM.
    pub tls_cert: Option<PathBuf>,
    /// Its key, PEM.
    pub tls_key: Option<PathBuf>,
    /// Profiles that records may name.
    pub profiles: BTreeMap<String, Profile>,
    /// Names of the access ports that records may name.
    pub access_ports: Vec<String>,
    /// Aggregates that go into a store that was never seeded, those above first.
    pub seed_parents: Vec<Parent>,
    /// Records that go there after them.
    pub seeds: Vec<Subscriber>,
    /// Limits.
    pub limits: Limits,
    /// Called first on every thread made here, to undo a CPU affinity it inherited from an lcore.
    pub thread_start: Option<fn()>,
}

impl Options {
    /// Takes what the HTTP side needs from a configuration.
    pub fn from_config(config: &Config) -> Self {
        let access = |port: &&model::config::Port| port.role == model::config::Role::Access;
        Self {
            listen: config.api.listen,
            token_file: config.api.token_file.clone(),
            tls_cert: config.api.tls_cert.clone(),
            tls_key: config.api.tls_key.clone(),
            profiles: config.profiles.clone(),
            access_ports: config.ports.iter().filter(access).map(|port| port.name.clone()).collect(),
            seed_parents: config.parents.clone(),
            seeds: config.subscribers.clone(),
            limits: Limits::default(),
            thread_start: None,
        }
    }
}

/// Bounds on what clients can hold or make wait.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time, or half the files this process may open if that is less. For one more, the one longest
    /// without a request goes; if all have one, it waits.
    pub connections: usize,
    /// `/v1/events` streams at a time.
    pub event_streams: usize,
    /// Bulk requests at a time; each may hold as many records as the store may.
    pub bulk_requests: usize,
    /// Bytes of a request head.
    pub head_bytes: usize,
    /// Bytes of an ordinary request body, and of one line of a bulk body.
    pub body_bytes: usize,
    /// Bytes of a bulk body. It is parsed as it comes, so its text is never held as a whole.
    pub bulk_bytes: u64,
    /// Bytes of a bulk body that must come within each [`body_idle`](Self::body_idle), so that none holds its place
    /// by dripping.
    pub bulk_pace: u64,
    /// Lines with errors that a bulk answer lists; it says that there were more.
    pub bulk_errors: usize,
    /// TLS handshake.
    pub handshake: Duration,
    /// From the start of a request head, or of an idle connection, to the end of that head.
    pub head: Duration,
    /// Between two pieces of a body.
    pub body_idle: Duration,
    /// A whole ordinary body.
    pub body: Duration,
    /// A whole bulk body.
    pub bulk: Duration,
    /// A client that takes nothing of its answer.
    pub write_stall: Duration,
    /// How long `shutdown` lets requests finish.
    pub drain: Duration,
    /// Between two attempts to hand the data plane what it did not take.
    pub retry: Duration,
    /// How long the start waits for lcores that do not answer while there are aggregates to hand over.
    pub parents: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            event_streams: 32,
            bulk_requests: 2,
            head_bytes: 16 * 1024,
            body_bytes: 64 * 1024,
            bulk_bytes: 512 * 1024 * 1024,
            bulk_pace: 64 * 1024,
            bulk_errors: 1000,
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(5),
            body_idle: Duration::from_secs(10),
            body: Duration::from_secs(20),
            bulk: Duration::from_mins(10),
            write_stall: Duration::from_secs(20),
            drain: Duration::from_secs(1),
            retry: Duration::from_secs(2),
            parents: Duration::from_secs(30),
        }
    }
}
