// SPDX-License-Identifier: Apache-2.0
//! Calls on aggregates, in the manner of those on subscribers.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use model::Parent;

use crate::app::App;
use crate::precondition::Expect;
use crate::problem::Problem;
use crate::records::{changed, page, read, shown};
use crate::request::{Id, Params};
use crate::rules;
use crate::writer::Command;

pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Id(id): Id,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    Params::read(&uri)?.end()?;
    let expect = Expect::read(&headers)?;
    let record = app.parts.parents.get(&id).ok_or_else(|| Problem::no_parent(&id))?;
    Ok(shown(&expect, &record))
}

pub(crate) async fn put(
    State(app): State<Arc<App>>,
    Id(id): Id,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (expect, body) = read(&app, &uri, &headers, body).await?;
    let parent = rules::from_body(&id, &body, Parent::from_json, Parent::from_value, |parent| &parent.id)?;
    let done = app.parts.writes.submit(Command::PutParent(parent, expect)).await?;
    Ok(changed(done))
}

pub(crate) async fn patch(
    State(app): State<Arc<App>>,
    Id(id): Id,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (expect, body) = read(&app, &uri, &headers, body).await?;
    let patch = rules::json_value(&body)?;
    let done = app.parts.writes.submit(Command::PatchParent { id, patch, expect }).await?;
    Ok(changed(done))
}

pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Id(id): Id,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    Params::read(&uri)?.end()?;
    let expect = Expect::read(&headers)?;
    let done = app.parts.writes.submit(Command::DeleteParent { id, expect }).await?;
    Ok(changed(done))
}

pub(crate) async fn list(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    page(&app.parts.parents, &uri)
}

pub(crate) async fn stats(State(app): State<Arc<App>>, Id(id): Id, uri: Uri) -> Result<Response, Problem> {
    Params::read(&uri)?.end()?;
    if app.parts.parents.get(&id).is_none() {
        return Err(Problem::no_parent(&id));
    }
    let name = id.clone();
    match app.call(move |app| app.parts.shaper.parent_stats(&name)).await? {
        Some(stats) => Ok(Json(stats).into_response()),
        None if app.parts.parents.get(&id).is_none() => Err(Problem::no_parent(&id)),
        None => Err(Problem::unavailable("an lcore that serves this parent does not answer")),
    }
}
