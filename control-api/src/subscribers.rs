// SPDX-License-Identifier: Apache-2.0
//! Calls on subscribers: as on every record, in bulk, and by what they match.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use model::Subscriber;
use model::stats::SubscriberStats;
use serde_json::Value;

use crate::app::{App, Parts};
use crate::bulk::{Bulk, Mode, Report};
use crate::directory::Directory;
use crate::ndjson::Lines;
use crate::precondition::Expect;
use crate::problem::Problem;
use crate::records::{Kind, changed};
use crate::request::{Bounds, Params, Pieces, json_kind};
use crate::rules;
use crate::search::Query;
use crate::writer::Command;

/// Records that a search finds unless the client says how many.
const FOUND: usize = 50;
/// Records that a search finds at most.
const FOUND_MAX: usize = 1000;

/// The kind.
pub(crate) struct Subscribers;

impl Kind for Subscribers {
    type Parsed = Subscriber;
    type Stats = SubscriberStats;

    fn directory(app: &App) -> &Arc<Directory> {
        &app.parts.directory
    }

    fn missing(id: &str) -> Problem {
        Problem::no_record(id)
    }

    fn read(app: &App, id: &str, body: &[u8]) -> Result<Subscriber, Problem> {
        let (json, value) = (Subscriber::from_json, Subscriber::from_value);
        let subscriber = rules::from_body(id, body, json, value, |subscriber| &subscriber.id)?;
        app.rules.check(&subscriber).map_err(|error| Problem::record(&error))?;
        Ok(subscriber)
    }

    fn put(record: Subscriber, expect: Expect) -> Command {
        Command::Put(record, expect)
    }

    fn patch(id: String, patch: Value, expect: Expect) -> Command {
        Command::Patch { id, patch, expect }
    }

    fn delete(id: String, expect: Expect) -> Command {
        Command::Delete { id, expect }
    }

    fn unshaped(app: &App, id: &str) -> Option<Problem> {
        let error = app.parts.writes.unapplied().why(id)?;
        let detail = format!("{id:?} is in the store but not shaped ({error}); it is tried again every 2 s");
        Some(Problem::unavailable(detail))
    }

    fn stats(app: &App, id: &str) -> Option<SubscriberStats> {
        app.parts.shaper.stats(id)
    }
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
    app.parts.writes.submit(Command::Bulk(bulk)).await.map(changed)
}

/// The report; if a line is wrong it is a problem document as well.
impl IntoResponse for Report {
    fn into_response(self) -> Response {
        if self.errors.is_empty() {
            return axum::Json(self).into_response();
        }
        let detail = "some lines are wrong; nothing was changed";
        let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail);
        match serde_json::to_value(self) {
            Ok(Value::Object(members)) => members
                .into_iter()
                .fold(problem, |problem, (name, value)| problem.with(&name, value))
                .into_response(),
            _ => problem.into_response(),
        }
    }
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
    let body = app.work(move |app| found(&app.parts, &query, limit)).await?;
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

fn found(Parts { directory, parents, .. }: &Parts, query: &Query, limit: usize) -> String {
    let (found, above) = (directory.index.search(query, limit), parents.index.named(query, limit));
    let items = found.ids.iter().filter_map(|(by, id)| {
        // one that has just gone is not found
        let record = directory.get(id)?;
        Some(format!("{{\"by\":\"{}\",\"subscriber\":{}}}", by.label(), record.json))
    });
    let items = items.collect::<Vec<_>>().join(",");
    let above_ids = above.ids.iter().filter_map(|(_, id)| Some(parents.get(id)?.json.to_string()));
    let aggregates = above_ids.collect::<Vec<_>>().join(",");
    let more = found.more || above.more;
    format!("{{\"items\":[{items}],\"parents\":[{aggregates}],\"more\":{more}}}")
}
