// SPDX-License-Identifier: Apache-2.0
//! Errors as clients see them: RFC 9457 `application/problem+json`, with the offending `field`.
//!
//! `type` is left out, which RFC 9457 4.2.1 reads as `about:blank`, so `title` is the status's own phrase. Members
//! of our own: `field` (the key of the record, query or header at fault; with several, the first), `errors` (all of
//! them), `ids` (the two records that claim one key), `reasons` (why something is not ready).

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// One error answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) detail: String,
    pub(crate) field: Option<String>,
    pub(crate) extra: Map<String, Value>,
}

#[derive(Serialize)]
struct Wire<'a> {
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), field: None, extra: Map::new() }
    }

    pub(crate) fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    pub(crate) fn with(mut self, member: &str, value: Value) -> Self {
        self.extra.insert(member.to_owned(), value);
        self
    }

    /// A record that is not valid.
    pub(crate) fn record(error: &model::problem::RecordError) -> Self {
        let errors: Vec<_> =
            error.0.iter().map(|error| json!({"field": error.field, "detail": error.message})).collect();
        let first = error.0.first().map(|error| error.field.clone());
        let problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string());
        Self { field: first.filter(|field| !field.is_empty()), ..problem }
            .with("errors", Value::Array(errors))
    }

    /// A query or path that says something impossible.
    pub(crate) fn query(field: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail).field(field)
    }

    pub(crate) fn no_record(id: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("no subscriber is named {id:?}")).field("id")
    }

    pub(crate) fn no_parent(id: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("no parent is named {id:?}")).field("id")
    }

    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, HeaderValue::from_static("1"))),
            StatusCode::UNAUTHORIZED => Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            _ => None,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let wire = Wire {
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
            field: self.field.as_deref(),
            extra: &self.extra,
        };
        let body = serde_json::to_vec(&wire).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some((name, value)) = self.header() {
            headers.insert(name, value);
        }
        response
    }
}
