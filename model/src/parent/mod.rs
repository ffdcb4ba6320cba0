// SPDX-License-Identifier: Apache-2.0
//! The aggregate record: a rate for all below it together (a PON port, an access node, an S-VLAN, a site).
//!
//! Invariant: a [`Parent`] that came from [`Parent::from_json`], [`Parent::from_value`] or [`Parent::merge_patch`] is
//! valid in itself; whether what is above it exists, and no loop comes of it, is [`Forest`]'s to say.

mod forest;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use forest::{Forest, Misplaced};

use crate::problem::RecordError;
use crate::subscriber::record::{Checks, RawRecord, Shape, keeps_id, merged, rate, read_json, read_value};

/// Levels of aggregates above a subscriber, at most.
pub const MAX_LEVELS: usize = 8;

/// A validated aggregate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Its name.
    pub id: String,
    /// Name of the aggregate above it.
    pub parent: Option<String>,
    /// Rate towards its subscribers, 64 kb/s to 400 Gb/s.
    pub down_bps: u64,
    /// Rate from them.
    pub up_bps: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawParent {
    id: Option<String>,
    parent: Option<String>,
    #[serde(default, deserialize_with = "rate")]
    down_bps: Option<u64>,
    #[serde(default, deserialize_with = "rate")]
    up_bps: Option<u64>,
}

impl Shape for RawParent {
    const SHAPE: &'static str = "an object";
}

impl RawRecord for RawParent {
    type Record = Parent;

    fn validate(self) -> Result<Parent, RecordError> {
        let mut checks = Checks::default();
        let id = checks.id(self.id);
        if let Some(parent) = &self.parent {
            checks.name("parent", parent);
        }
        let down_bps = checks.rate("down_bps", self.down_bps);
        let up_bps = checks.rate("up_bps", self.up_bps);
        if !checks.0.is_empty() {
            return Err(RecordError(checks.0));
        }
        Ok(Parent { id, parent: self.parent, down_bps, up_bps })
    }
}

impl Parent {
    /// Reads one record.
    ///
    /// # Errors
    ///
    /// Every problem with the path of its field and its value.
    pub fn from_json(json: &[u8]) -> Result<Self, RecordError> {
        read_json::<RawParent>(json)
    }

    /// Reads one record that is already a JSON value.
    ///
    /// # Errors
    ///
    /// As [`from_json`](Self::from_json).
    pub fn from_value(value: &Value) -> Result<Self, RecordError> {
        read_value::<RawParent>(value)
    }

    /// The record on one line, members always in the same order.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.raw()).unwrap_or_default()
    }

    /// The record as a JSON value.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self.raw()).unwrap_or_default()
    }

    /// The record after a JSON merge patch (RFC 7396), validated as a whole.
    ///
    /// # Errors
    ///
    /// As [`from_json`](Self::from_json); also if the patch is no object or changes the id.
    pub fn merge_patch(&self, patch: &Value) -> Result<Self, RecordError> {
        let patched = Self::from_value(&merged(self.to_value(), patch)?)?;
        keeps_id(&self.id, &patched.id)?;
        Ok(patched)
    }

    fn raw(&self) -> RawParent {
        RawParent {
            id: Some(self.id.clone()),
            parent: self.parent.clone(),
            down_bps: Some(self.down_bps),
            up_bps: Some(self.up_bps),
        }
    }
}
