// SPDX-License-Identifier: Apache-2.0
//! What HTTP, store, configuration and engine share: subscribers, profiles, ports and statistics, validated.
//!
//! Knows how none of them works. Field names are those of the public interfaces; a raw integer that crosses
//! JSON or TOML carries its unit in its name.

#![forbid(unsafe_code)]

pub mod config;
pub mod import;
pub mod keys;
pub mod parent;
pub mod problem;
pub mod profile;
pub mod stats;
pub mod subscriber;

pub use config::Config;
pub use keys::KeyIndex;
pub use parent::{Forest, Parent};
pub use problem::{FieldError, Problem, Problems, RecordError};
pub use profile::Profile;
pub use subscriber::Subscriber;
