// SPDX-License-Identifier: Apache-2.0
//! HTTP, store, metrics: how operators see and change a shaper.
//!
//! Knows the data plane only as the trait [`Shaper`] and never links DPDK. A change goes validate and claim keys in
//! memory, commit to the [`Store`], apply to the shaper, answer; so what was acknowledged outlives the death of the
//! process at any moment, and a restart replays the store.
//!
//! Threads, all of them ours: `sluice-http` (one that accepts, two workers, up to ten for calls that may block
//! or take long),
//! `sluice-store` (the only one that changes records) and `sluice-sync` (flushes the store's log). None touches a
//! packet, and forwarding goes on without them.

#![forbid(unsafe_code)]

mod app;
mod auth;
mod bulk;
mod dashboard;
mod directory;
mod events;
mod guard;
mod history;
mod json;
mod lobby;
mod metrics;
mod ndjson;
mod options;
mod parents;
mod precondition;
mod problem;
mod protection;
mod records;
mod reload;
mod request;
mod routes;
mod rules;
mod search;
mod server;
mod shaper;
mod state;
mod store;
mod subscribers;
mod tls;
mod writer;

pub use options::{Limits, Options};
pub use protection::Protection;
pub use reload::{Refused, Reload, Reloaded};
pub use rules::Catalogue;
pub use server::{Server, ServerHandle, StartError};
pub use shaper::{Edit, Shaper, ShaperError};
pub use store::{Store, StoreError};
