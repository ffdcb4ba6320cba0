// SPDX-License-Identifier: Apache-2.0
//! Calls on records of one kind: subscribers and aggregates are asked for and changed in the same manner.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, ETAG};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::Frame;
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::directory::{Directory, Record};
use crate::precondition::Expect;
use crate::problem::Problem;
use crate::request::{Bounds, Id, Params, Pieces, json_kind};
use crate::rules;
use crate::writer::{Command, Done};

/// Records of a page unless the client says how many.
const PAGE: usize = 100;
/// Records of a page at most.
const PAGE_MAX: usize = 100_000;
/// Text that a page holds at a time; the rest is read when the client has taken it.
const PIECE: usize = 64 * 1024;

/// A kind of records.
pub(crate) trait Kind: 'static {
    /// One, parsed.
    type Parsed: Send;
    /// Its counters.
    type Stats: Serialize + Send + 'static;

    /// Those that are committed.
    fn directory(app: &App) -> &Arc<Directory>;
    /// There is none of that name.
    fn missing(id: &str) -> Problem;
    /// The body of a PUT.
    fn read(app: &App, id: &str, body: &[u8]) -> Result<Self::Parsed, Problem>;
    fn put(record: Self::Parsed, expect: Expect) -> Command;
    fn patch(id: String, patch: Value, expect: Expect) -> Command;
    fn delete(id: String, expect: Expect) -> Command;
    /// Why there are no counters of a record that exists, if that is known.
    fn unshaped(_app: &App, _id: &str) -> Option<Problem> {
        None
    }
    /// From the data plane, which may not answer; may block.
    fn stats(app: &App, id: &str) -> Option<Self::Stats>;
}

pub(crate) async fn one<K: Kind>(
    State(app): State<Arc<App>>,
    Id(id): Id,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    Params::read(&uri)?.end()?;
    let expect = Expect::read(&headers)?;
    let record = K::directory(&app).get(&id).ok_or_else(|| K::missing(&id))?;
    let mut response = answer(StatusCode::OK, &record);
    if expect.has(&record) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Body::empty();
    }
    Ok(response)
}

pub(crate) async fn put<K: Kind>(
    State(app): State<Arc<App>>,
    Id(id): Id,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (expect, body) = read(&app, &uri, &headers, body).await?;
    let record = K::read(&app, &id, &body)?;
    app.parts.writes.submit(K::put(record, expect)).await.map(changed)
}

pub(crate) async fn patch<K: Kind>(
    State(app): State<Arc<App>>,
    Id(id): Id,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (expect, body) = read(&app, &uri, &headers, body).await?;
    let patch = rules::json_value(&body)?;
    app.parts.writes.submit(K::patch(id, patch, expect)).await.map(changed)
}

pub(crate) async fn delete<K: Kind>(
    State(app): State<Arc<App>>,
    Id(id): Id,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    Params::read(&uri)?.end()?;
    let expect = Expect::read(&headers)?;
    app.parts.writes.submit(K::delete(id, expect)).await.map(changed)
}

pub(crate) async fn stats<K: Kind>(
    State(app): State<Arc<App>>,
    Id(id): Id,
    uri: Uri,
) -> Result<Response, Problem> {
    Params::read(&uri)?.end()?;
    if K::directory(&app).get(&id).is_none() {
        return Err(K::missing(&id));
    }
    if let Some(problem) = K::unshaped(&app, &id) {
        return Err(problem);
    }
    let name = id.clone();
    match app.call(move |app| K::stats(app, &name)).await? {
        Some(stats) => Ok(Json(stats).into_response()),
        None if K::directory(&app).get(&id).is_none() => Err(K::missing(&id)),
        None => Err(Problem::unavailable("an lcore that serves this record does not answer")),
    }
}

pub(crate) async fn list<K: Kind>(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let mut params = Params::read(&uri)?;
    let limit = params.parse("limit", PAGE, "a number from 1 to 100000", |text| {
        text.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit))
    })?;
    let after = params.text("after")?;
    params.end()?;
    let page = Page { directory: Arc::clone(K::directory(&app)), after, left: limit, stage: Stage::Start };
    Ok(([(CONTENT_TYPE, "application/json")], Body::new(page)).into_response())
}

/// What a change of one record brings along.
async fn read(app: &App, uri: &Uri, headers: &HeaderMap, body: Body) -> Result<(Expect, Vec<u8>), Problem> {
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
        Done::Bulk(report) => report.into_response(),
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
