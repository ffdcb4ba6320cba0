// SPDX-License-Identifier: Apache-2.0
//! Calls that show what is: health, metrics, statistics, ports, lcores, profiles.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use model::stats::{Direction, ParentTopBy, ParentTopQuery, TopBy, TopQuery};
use prometheus::TextEncoder;
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::problem::Problem;
use crate::request::Params;

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

pub(crate) async fn top(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let default = TopQuery::default();
    let mut params = Params::read(&uri)?;
    let by = params.parse("by", default.by, "bytes, delay or drops", |text| match text {
        "bytes" => Some(TopBy::Bytes),
        "delay" => Some(TopBy::Delay),
        "drops" => Some(TopBy::Drops),
        _ => None,
    })?;
    let Window { dir, n, window_s, parent } = Window::read(&app, params)?;
    let query = TopQuery { by, dir, n, window_s, parent };
    let top = app.call(move |app| app.parts.shaper.top(query)).await?;
    Ok(Json(top).into_response())
}

/// `GET /v1/top/parents`.
pub(crate) async fn top_parents(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let default = ParentTopQuery::default();
    let mut params = Params::read(&uri)?;
    let by = params.parse("by", default.by, "clock, load or bytes", |text| match text {
        "clock" => Some(ParentTopBy::Clock),
        "load" => Some(ParentTopBy::Load),
        "bytes" => Some(ParentTopBy::Bytes),
        _ => None,
    })?;
    let Window { dir, n, window_s, parent } = Window::read(&app, params)?;
    let query = ParentTopQuery { by, dir, n, window_s, parent };
    let top = app.call(move |app| app.parts.shaper.top_parents(query)).await?;
    Ok(Json(top).into_response())
}

/// What the lists of the busiest have in common.
#[expect(clippy::struct_field_names, reason = "names of the interface carry their unit")]
struct Window {
    dir: Direction,
    n: u32,
    window_s: f64,
    /// One that exists.
    parent: Option<String>,
}

impl Window {
    fn read(app: &App, mut params: Params) -> Result<Self, Problem> {
        let default = TopQuery::default();
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
        let parent = params.text("parent")?;
        if let Some(parent) = parent.as_ref().filter(|parent| app.parts.parents.get(parent).is_none()) {
            return Err(Problem::no_parent(parent).field("parent"));
        }
        params.end()?;
        Ok(Self { dir, n, window_s, parent })
    }
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
    let profiles = app.rules.profiles.read();
    let named = profiles.iter().map(|(name, profile)| {
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
