// SPDX-License-Identifier: Apache-2.0
//! Calls that show what is: health, metrics, statistics, ports, lcores, profiles.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use model::stats::{Direction, TopBy, TopQuery};
use prometheus::TextEncoder;
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::problem::Problem;
use crate::request::{Id, Params};

/// Longest window of `/v1/top`.
const WINDOW_MAX_S: f64 = 3600.0;
/// Longest list of `/v1/top`.
const TOP_MAX: u32 = 1000;

pub(crate) async fn health(State(app): State<Arc<App>>) -> Response {
    verdict("ok", &writer_reasons(&app))
}

pub(crate) async fn ready(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    Ok(verdict("ready", &app.call(reasons).await?))
}

/// Why not all that should be shaped is shaped.
pub(crate) fn reasons(app: &App) -> Vec<String> {
    let mut reasons = app.parts.shaper.readiness();
    reasons.extend(writer_reasons(app));
    let unapplied = app.parts.writes.unapplied().len();
    if unapplied > 0 {
        reasons.push(format!("{unapplied} records of the store are not shaped: the data plane refused them"));
    }
    reasons
}

fn writer_reasons(app: &App) -> Vec<String> {
    let gone = !app.parts.writes.alive();
    gone.then(|| "the thread that writes the store has ended".to_owned()).into_iter().collect()
}

fn verdict(good: &str, reasons: &[String]) -> Response {
    if reasons.is_empty() {
        return Json(json!({"status": good, "reasons": []})).into_response();
    }
    Problem::unavailable(reasons.join("; ")).with("reasons", json!(reasons)).into_response()
}

pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let text = app.call(|app| TextEncoder::new().encode_to_string(&app.registry.gather())).await?;
    let text = text.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

pub(crate) async fn stats(State(app): State<Arc<App>>, Id(id): Id, uri: Uri) -> Result<Response, Problem> {
    Params::read(&uri)?.end()?;
    if app.parts.directory.get(&id).is_none() {
        return Err(Problem::no_record(&id));
    }
    if let Some(error) = app.parts.writes.unapplied().why(&id) {
        let detail = format!("{id:?} is in the store but not shaped ({error}); it is tried again every 2 s");
        return Err(Problem::unavailable(detail));
    }
    let name = id.clone();
    match app.call(move |app| app.parts.shaper.stats(&name)).await? {
        Some(stats) => Ok(Json(stats).into_response()),
        None if app.parts.directory.get(&id).is_none() => Err(Problem::no_record(&id)),
        None => Err(Problem::unavailable("the lcore that owns this subscriber does not answer")),
    }
}

pub(crate) async fn top(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query = top_query(&uri)?;
    let top = app.call(move |app| app.parts.shaper.top(query)).await?;
    Ok(Json(top).into_response())
}

fn top_query(uri: &Uri) -> Result<TopQuery, Problem> {
    let default = TopQuery::default();
    let mut params = Params::read(uri)?;
    let by = params.parse("by", default.by, "bytes, delay or drops", |text| match text {
        "bytes" => Some(TopBy::Bytes),
        "delay" => Some(TopBy::Delay),
        "drops" => Some(TopBy::Drops),
        _ => None,
    })?;
    let dir = params.parse("dir", default.dir, "down or up", |text| match text {
        "down" => Some(Direction::Down),
        "up" => Some(Direction::Up),
        _ => None,
    })?;
    let n = params.parse("n", default.n, "a number from 1 to 1000", |text| {
        text.parse().ok().filter(|n| (1..=TOP_MAX).contains(n))
    })?;
    let window_s = params.parse("window_s", default.window_s, "seconds, above 0 up to 3600", |text| {
        text.parse().ok().filter(|window| *window > 0.0 && *window <= WINDOW_MAX_S)
    })?;
    params.end()?;
    Ok(TopQuery { by, dir, n, window_s })
}

pub(crate) async fn ports(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    Params::read(&uri)?.end()?;
    let ports = app.call(|app| app.parts.shaper.ports()).await?;
    Ok(items_of(&ports))
}

pub(crate) async fn lcores(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    Params::read(&uri)?.end()?;
    let lcores = app.call(|app| app.parts.shaper.lcores()).await?;
    Ok(items_of(&lcores))
}

pub(crate) async fn profiles(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    Params::read(&uri)?.end()?;
    let named = app.profiles.iter().map(|(name, profile)| {
        let mut value = profile.to_value();
        if let Value::Object(members) = &mut value {
            members.insert("name".to_owned(), json!(name));
        }
        value
    });
    Ok(items_of(&named.collect::<Vec<_>>()))
}

fn items_of<T: Serialize>(items: &[T]) -> Response {
    Json(json!({"items": items})).into_response()
}
