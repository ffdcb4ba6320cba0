// SPDX-License-Identifier: Apache-2.0
//! Calls on subscriber records.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, ETAG};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::Frame;
use model::Subscriber;
use serde_json::{Value, json};

use crate::app::App;
use crate::bulk::{Bulk, Mode, Report};
use crate::directory::{Directory, Record};
use crate::ndjson::Lines;
use crate::precondition::Expect;
use crate::problem::Problem;
use crate::request::{Bounds, Id, Params, Pieces, json_kind};
use crate::rules;
use crate::search::Query;
use crate::writer::{Command, Done};

/// Records of a page unless the client says how many.
const PAGE: usize = 100;
/// Records of a page at most.
const PAGE_MAX: usize = 100_000;
/// Records that a search finds unless the client says how many.
const FOUND: usize = 50;
/// Records that a search finds at most.
const FOUND_MAX: usize = 1000;
/// Text that a page holds at a time; the rest is read when the client has taken it.
const PIECE: usize = 64 * 1024;

pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Id(id): Id,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    Params::read(&uri)?.end()?;
    let expect = Expect::read(&headers)?;
    let record = app.parts.directory.get(&id).ok_or_else(|| Problem::no_record(&id))?;
    Ok(shown(&expect, &record))
}

/// A record, or that the client has it.
pub(crate) fn shown(expect: &Expect, record: &Record) -> Response {
    let mut response = answer(StatusCode::OK, record);
    if expect.has(record) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Body::empty();
    }
    response
}

pub(crate) async fn put(
    State(app): State<Arc<App>>,
    Id(id): Id,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (expect, body) = read(&app, &uri, &headers, body).await?;
    let (json, value) = (Subscriber::from_json, Subscriber::from_value);
    let subscriber = rules::from_body(&id, &body, json, value, |subscriber| &subscriber.id)?;
    app.rules.check(&subscriber).map_err(|error| Problem::record(&error))?;
    let done = app.parts.writes.submit(Command::Put(subscriber, expect)).await?;
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
    let done = app.parts.writes.submit(Command::Patch { id, patch, expect }).await?;
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
    let done = app.parts.writes.submit(Command::Delete { id, expect }).await?;
    Ok(changed(done))
}

/// What a change of one record brings along.
pub(crate) async fn read(
    app: &App,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Expect, Vec<u8>), Problem> {
    Params::read(uri)?.end()?;
    json_kind(headers)?;
    let expect = Expect::read(headers)?;
    let limits = &app.limits;
    let bounds =
        Bounds { bytes: limits.body_bytes as u64, idle: limits.body_idle, whole: limits.body, pace: None };
    Ok((expect, Pieces::new(headers, body, bounds)?.all().await?))
}

pub(crate) fn changed(done: Done) -> Response {
    match done {
        Done::Record { record, created: true } => answer(StatusCode::CREATED, &record),
        Done::Record { record, created: false } => answer(StatusCode::OK, &record),
        Done::Deleted => StatusCode::NO_CONTENT.into_response(),
        Done::Bulk(report) => bulk_answer(&report),
    }
}

fn answer(status: StatusCode, record: &Record) -> Response {
    let json = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let mut response = (status, json, Bytes::copy_from_slice(record.json.as_bytes())).into_response();
    // A quoted number is always a header value.
    if let Ok(etag) = HeaderValue::from_str(&record.etag()) {
        response.headers_mut().insert(ETAG, etag);
    }
    response
}

pub(crate) async fn bulk(
    State(app): State<Arc<App>>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let mut params = Params::read(&uri)?;
    let mode = params.parse("mode", Mode::Upsert, "replace or upsert", |text| match text {
        "replace" => Some(Mode::Replace),
        "upsert" => Some(Mode::Upsert),
        _ => None,
    })?;
    let dry_run = params.parse("dry_run", false, "true or false", |text| match text {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    })?;
    params.end()?;
    json_kind(&headers)?;
    let _permit = Arc::clone(&app.bulks)
        .try_acquire_owned()
        .map_err(|_| Problem::unavailable("another bulk request is being read; try again"))?;
    let limits = &app.limits;
    let bounds = Bounds {
        bytes: limits.bulk_bytes,
        idle: limits.body_idle,
        whole: limits.bulk,
        pace: Some((limits.bulk_pace, limits.body_idle)),
    };
    let body = Pieces::new(&headers, body, bounds)?;
    let (lines, errors) = Lines::new(&app.rules, limits.body_bytes, limits.bulk_errors).read(body).await?;
    let bulk = Bulk { mode, dry_run, lines, errors };
    let done = app.parts.writes.submit(Command::Bulk(bulk)).await?;
    Ok(changed(done))
}

/// The report; if a line is wrong it is a problem document as well.
fn bulk_answer(report: &Report) -> Response {
    if report.errors.is_empty() {
        return axum::Json(report).into_response();
    }
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "some lines are wrong; nothing was changed");
    match serde_json::to_value(report) {
        Ok(Value::Object(members)) => members
            .into_iter()
            .fold(problem, |problem, (name, value)| problem.with(&name, value))
            .into_response(),
        _ => problem.into_response(),
    }
}

pub(crate) async fn list(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    page(&app.parts.directory, &uri)
}

/// A page of a directory.
pub(crate) fn page(directory: &Arc<Directory>, uri: &Uri) -> Result<Response, Problem> {
    let mut params = Params::read(uri)?;
    let limit = params.parse("limit", PAGE, "a number from 1 to 100000", |text| {
        text.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit))
    })?;
    let after = params.text("after")?;
    params.end()?;
    let page = Page { directory: Arc::clone(directory), after, left: limit, stage: Stage::Start };
    Ok(([(CONTENT_TYPE, "application/json")], Body::new(page)).into_response())
}

/// `GET /v1/search`.
pub(crate) async fn search(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let mut params = Params::read(&uri)?;
    let limit = params.parse("limit", FOUND, "a number from 1 to 1000", |text| {
        text.parse().ok().filter(|limit| (1..=FOUND_MAX).contains(limit))
    })?;
    let text = params.text("q")?.ok_or_else(|| Problem::query("q", "q is missing: what to look for"))?;
    params.end()?;
    let query = Query::read(&text).map_err(|error| Problem::query("q", error))?;
    let body = app.call(move |app| found(&app.parts.directory, &query, limit)).await?;
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

fn found(directory: &Directory, query: &Query, limit: usize) -> String {
    let found = directory.index.search(query, limit);
    let items = found.ids.iter().filter_map(|(by, id)| {
        // one that has just gone is not found
        let record = directory.get(id)?;
        Some(format!("{{\"by\":\"{}\",\"subscriber\":{}}}", by.label(), record.json))
    });
    format!("{{\"items\":[{}],\"more\":{}}}", items.collect::<Vec<_>>().join(","), found.more)
}

/// A page as it is sent, piece by piece: a client that takes it slowly holds one piece, not the page.
struct Page {
    directory: Arc<Directory>,
    after: Option<String>,
    left: usize,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Start,
    Items,
    End,
}

impl Page {
    fn piece(&mut self) -> Option<String> {
        let (records, more) = self.directory.page(self.after.as_deref(), self.left, PIECE);
        let mut text = match self.stage {
            Stage::Start => format!("{{\"total\":{},\"items\":[", self.directory.len()),
            Stage::Items if records.is_empty() => String::new(),
            Stage::Items => ",".to_owned(),
            Stage::End => return None,
        };
        let items: Vec<&str> = records.iter().map(|(_, record)| &*record.json).collect();
        text.push_str(&items.join(","));
        self.left -= records.len();
        if let Some((last, _)) = records.last() {
            self.after = Some(last.to_string());
        }
        self.stage = if more && self.left > 0 { Stage::Items } else { Stage::End };
        if self.stage == Stage::End {
            let next = if more { json!(self.after) } else { Value::Null };
            text.extend(["],\"next\":", &next.to_string(), "}"]);
        }
        Some(text)
    }
}

impl http_body::Body for Page {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.piece().map(|text| Ok(Frame::data(Bytes::from(text)))))
    }
}
