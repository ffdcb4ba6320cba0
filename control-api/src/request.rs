// SPDX-License-Identifier: Apache-2.0
//! Reading requests: names in paths, queries, media types and bodies, each with its bound and its error.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri};
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use crate::problem::Problem;

/// The `{id}` of a path, percent-decoded.
pub(crate) struct Id(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(id)) => Ok(Self(id)),
            Err(rejection) => Err(Problem::query("id", rejection.body_text())),
        }
    }
}

/// A query, taken key by key; what is left at the end is an error. An empty value is a value left out.
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    pub(crate) fn read(uri: &Uri) -> Result<Self, Problem> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|rejection| Problem::new(StatusCode::BAD_REQUEST, rejection.body_text()))?;
        Ok(Self(pairs))
    }

    /// The value of `key`, if it is there.
    pub(crate) fn text(&mut self, key: &str) -> Result<Option<String>, Problem> {
        let mut found = self.0.extract_if(.., |(name, _)| name == key).map(|(_, value)| value);
        let first = found.next();
        if found.next().is_some() {
            return Err(Problem::query(key, format!("{key:?} stands twice")));
        }
        Ok(first.filter(|value| !value.is_empty()))
    }

    /// The value of `key` by `read`, or `default`.
    pub(crate) fn parse<T>(
        &mut self,
        key: &str,
        default: T,
        wanted: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Problem> {
        match self.text(key)? {
            None => Ok(default),
            Some(value) => read(&value)
                .ok_or_else(|| Problem::query(key, format!("{key}={value:?}: {wanted} is wanted"))),
        }
    }

    pub(crate) fn end(self) -> Result<(), Problem> {
        match self.0.first() {
            None => Ok(()),
            Some((key, _)) => Err(Problem::query(key, format!("{key:?} is not a parameter of this call"))),
        }
    }
}

/// Any media type of JSON kind, or none. Form types are refused, which also keeps web forms out.
pub(crate) fn json_kind(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return Ok(());
    };
    let text = value.to_str().unwrap_or("").to_ascii_lowercase();
    let kind = text.split(';').next().unwrap_or("").trim();
    let known = ["json", "x-json", "ndjson", "x-ndjson", "jsonl", "x-jsonl", "jsonlines", "x-jsonlines"];
    let json = kind.split_once('/').is_some_and(|(class, sub)| {
        matches!(class, "application" | "text") && (known.contains(&sub) || sub.ends_with("+json"))
    });
    if json {
        return Ok(());
    }
    let detail = format!("{kind:?} is not a JSON media type such as application/json");
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail).field("content-type"))
}

/// Bounds of one body.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) bytes: u64,
    pub(crate) idle: Duration,
    pub(crate) whole: Duration,
    /// At least so many bytes within such a time, over and over.
    pub(crate) pace: Option<(u64, Duration)>,
}

/// A body that is read in pieces within its bounds.
pub(crate) struct Pieces {
    body: Body,
    left: u64,
    bounds: Bounds,
    end: Instant,
    /// Bytes that are to come before that moment, by the pace.
    due: Option<(u64, Instant)>,
}

impl Pieces {
    pub(crate) fn new(headers: &HeaderMap, body: Body, bounds: Bounds) -> Result<Self, Problem> {
        let announced = headers.get("content-length").and_then(|value| value.to_str().ok()?.parse().ok());
        if announced.is_some_and(|length: u64| length > bounds.bytes) {
            return Err(too_large(bounds.bytes));
        }
        let now = Instant::now();
        let due = bounds.pace.map(|(bytes, time)| (bytes, now + time));
        Ok(Self { body, left: bounds.bytes, bounds, end: now + bounds.whole, due })
    }

    /// Counts what came against the pace.
    fn keep_pace(&mut self, came: u64) {
        if let (Some((bytes, _)), Some((pace, time))) = (&mut self.due, self.bounds.pace) {
            *bytes = bytes.saturating_sub(came);
            if *bytes == 0 {
                self.due = Some((pace, Instant::now() + time));
            }
        }
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let until = self.end.min(Instant::now() + self.bounds.idle);
            let until = self.due.map_or(until, |(_, due)| until.min(due));
            let frame = match timeout_at(until, self.body.frame()).await {
                Err(_) => {
                    return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body came too slowly"));
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => {
                    let detail = format!("the body ended early: {error}");
                    return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
                }
                Ok(Some(Ok(frame))) => frame,
            };
            // Trailers say nothing we ask for.
            let Ok(data) = frame.into_data() else { continue };
            self.left =
                self.left.checked_sub(data.len() as u64).ok_or_else(|| too_large(self.bounds.bytes))?;
            self.keep_pace(data.len() as u64);
            return Ok(Some(data));
        }
    }

    /// The whole body, for one that is small.
    pub(crate) async fn all(mut self) -> Result<Vec<u8>, Problem> {
        let mut whole = Vec::new();
        while let Some(piece) = self.next().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole)
    }
}

fn too_large(bytes: u64) -> Problem {
    let detail = format!("the body is larger than {bytes} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_json_kind_is_taken_and_forms_are_not() {
        let kind =
            |value: &str| json_kind(&[(CONTENT_TYPE, value.parse().unwrap())].into_iter().collect()).is_ok();
        for good in [
            "application/json",
            "application/json; charset=utf-8",
            "Application/JSON",
            "application/merge-patch+json",
            "application/x-ndjson",
            "application/ndjson",
            "application/jsonl",
            "text/json",
        ] {
            assert!(kind(good), "{good}");
        }
        for bad in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json", ""] {
            assert!(!kind(bad), "{bad}");
        }
        assert!(json_kind(&HeaderMap::new()).is_ok());
    }

    #[test]
    fn a_query_names_what_is_wrong_with_it() {
        let read = |query: &str| Params::read(&format!("/?{query}").parse().unwrap()).unwrap();
        assert_eq!(read("a=1&b=%C3%A4").text("b").unwrap().as_deref(), Some("ä"));
        assert_eq!(read("a=").text("a").unwrap(), None);
        assert_eq!(read("a=1&a=2").text("a").unwrap_err().field.as_deref(), Some("a"));
        assert_eq!(read("x=1").end().unwrap_err().field.as_deref(), Some("x"));
        let number = |query: &str| read(query).parse("n", 7_u32, "a number", |text| text.parse().ok());
        assert_eq!(number("").unwrap(), 7);
        assert_eq!(number("n=3").unwrap(), 3);
        assert_eq!(number("n=x").unwrap_err().field.as_deref(), Some("n"));
    }
}
