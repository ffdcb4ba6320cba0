// SPDX-License-Identifier: Apache-2.0
//! Aggregates as a kind of records.

use std::sync::Arc;

use model::Parent;
use model::stats::ParentStats;
use serde_json::Value;

use crate::app::App;
use crate::directory::Directory;
use crate::precondition::Expect;
use crate::problem::Problem;
use crate::records::Kind;
use crate::rules;
use crate::writer::Command;

/// The kind.
pub(crate) struct Parents;

impl Kind for Parents {
    type Parsed = Parent;
    type Stats = ParentStats;

    fn directory(app: &App) -> &Arc<Directory> {
        &app.parts.parents
    }

    fn missing(id: &str) -> Problem {
        Problem::no_parent(id)
    }

    fn read(_: &App, id: &str, body: &[u8]) -> Result<Parent, Problem> {
        rules::from_body(id, body, Parent::from_json, Parent::from_value, |parent| &parent.id)
    }

    fn put(record: Parent, expect: Expect) -> Command {
        Command::PutParent(record, expect)
    }

    fn patch(id: String, patch: Value, expect: Expect) -> Command {
        Command::PatchParent { id, patch, expect }
    }

    fn delete(id: String, expect: Expect) -> Command {
        Command::DeleteParent { id, expect }
    }

    fn stats(app: &App, id: &str) -> Option<ParentStats> {
        app.parts.shaper.parent_stats(id)
    }
}
