// SPDX-License-Identifier: Apache-2.0
//! `POST /v1/reload`: the configuration file again. What it means is up to whoever owns the file.
//!
//! Invariant: the answer to a file that is not good names every problem with file, line and key, and says so with
//! 422; then nothing has changed.

use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use model::Problems;
use model::config::Change;
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::problem::Problem;
use crate::request::Params;

/// Reads the configuration again.
pub trait Reload: Send + Sync {
    /// Validates the file, then puts in force what can be; blocks for some milliseconds.
    ///
    /// # Errors
    /// What is wrong; all goes on as it was then.
    fn reload(&self) -> Result<Reloaded, Refused>;
}

/// Where the server finds it, once there is one.
pub(crate) type Reloader = OnceLock<Arc<dyn Reload>>;

/// What a reload did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reloaded {
    /// In force now.
    pub applied: Vec<Change>,
    /// Different in the file from what runs; a restart puts it in force.
    pub restart_needed: Vec<Change>,
    /// What else the operator should know, a sentence each.
    pub notes: Vec<String>,
}

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing was changed: {0}")]
pub struct Refused(pub Problems);

pub(crate) async fn reload(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    Params::read(&uri)?.end()?;
    let Some(reload) = app.parts.reload.get().cloned() else {
        return Err(Problem::unavailable("this server cannot reload, or not yet"));
    };
    match app.call(move |_| reload.reload()).await? {
        Ok(reloaded) => Ok(Json(reloaded).into_response()),
        Err(refused) => Err(refusal(&refused)),
    }
}

fn refusal(refused: &Refused) -> Problem {
    let one = |problem: &model::Problem| -> Value {
        json!({
            "file": problem.file,
            "line": problem.line,
            "field": problem.key,
            "detail": problem.message,
        })
    };
    let errors = refused.0.0.iter().map(one).collect();
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, refused.to_string());
    let first = refused.0.0.first().map(|problem| problem.key.clone()).filter(|key| !key.is_empty());
    Problem { field: first, ..problem }.with("errors", errors)
}
