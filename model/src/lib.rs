// SPDX-License-Identifier: Apache-2.0
//! What HTTP, store, configuration and engine share: subscribers, profiles, ports and statistics, validated.
//!
//! Knows how none of them works. Field names are those of the public interfaces; a raw integer that crosses
//! JSON or TOML carries its unit in its name.

pub mod config;
pub mod profile;
pub mod stats;
pub mod subscriber;

pub use config::Config;
pub use profile::Profile;
pub use subscriber::Subscriber;
