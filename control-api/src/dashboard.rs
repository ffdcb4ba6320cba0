// SPDX-License-Identifier: Apache-2.0
//! The dashboard: files of `control-api/dashboard`, inside the binary.
//!
//! Invariant: the page loads nothing from elsewhere and runs no script but these files; its content security policy
//! says so. Its files hold no secret and need no token: what they show comes by calls that do.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;
use crate::request::{Id, Params};

const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file, its media type, its text.
type File = (&'static str, &'static str, &'static str);

macro_rules! file {
    ($name:literal, $kind:expr) => {
        file!($name, $kind, $name)
    };
    ($name:literal, $kind:expr, $path:literal) => {
        ($name, $kind, include_str!(concat!("../dashboard/", $path)))
    };
}

const PAGE: File = file!("index.html", HTML);

/// Everything under `/assets`.
const FILES: [File; 16] = [
    file!("app.js", SCRIPT),
    file!("api.js", SCRIPT),
    file!("charts.js", SCRIPT),
    file!("dom.js", SCRIPT),
    file!("format.js", SCRIPT),
    file!("overview.js", SCRIPT),
    file!("parents.js", SCRIPT),
    file!("queues.js", SCRIPT),
    file!("rates.js", SCRIPT),
    file!("store.js", SCRIPT),
    file!("subscriber.js", SCRIPT),
    file!("subscribers.js", SCRIPT),
    file!("style.css", CSS),
    file!("icon.svg", SVG),
    file!("uPlot.js", SCRIPT, "vendor/uPlot.iife.min.js"),
    file!("uPlot.css", CSS, "vendor/uPlot.min.css"),
];

/// `GET /`.
pub(crate) async fn page(headers: HeaderMap) -> Response {
    serve(PAGE, &headers)
}

/// `GET /assets/{id}`.
pub(crate) async fn asset(Id(name): Id, uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    Params::read(&uri)?.end()?;
    let file = FILES.into_iter().find(|(known, ..)| *known == name);
    let none =
        || Problem::new(StatusCode::NOT_FOUND, format!("the dashboard has no file {name:?}")).field("id");
    Ok(serve(file.ok_or_else(none)?, &headers))
}

/// Browsers keep a file and ask each time whether it is still the same, so that pages of two versions never mix.
fn serve((_, kind, text): File, headers: &HeaderMap) -> Response {
    let etag = etag(text);
    let fixed: [(HeaderName, HeaderValue); 4] = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    let known =
        headers.get_all(IF_NONE_MATCH).iter().any(|value| value.to_str().is_ok_and(|v| has(v, &etag)));
    let body = if known { Body::empty() } else { Body::from(text) };
    let status = if known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    (status, fixed, [(ETAG, etag)], body).into_response()
}

/// Weak comparison, as RFC 9110 13.1.2 wants it here.
fn has(list: &str, etag: &str) -> bool {
    list.split(',').map(str::trim).any(|tag| tag == "*" || tag.trim_start_matches("W/") == etag)
}

fn etag(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_is_named_is_served_and_none_from_elsewhere() {
        let texts = [PAGE].into_iter().chain(FILES).filter(|(name, ..)| !name.starts_with("uPlot"));
        for (name, _, text) in texts {
            for piece in text.split(['"', '\'', '(', ')', '`']) {
                let local = piece.strip_prefix("assets/").or(piece.strip_prefix("./"));
                if let Some(file) = local {
                    assert!(FILES.iter().any(|(known, ..)| *known == file), "{name} wants {file}");
                }
                let comment = piece.starts_with("// ");
                let far = !comment && ["http:", "https:", "//"].iter().any(|begin| piece.starts_with(begin));
                assert!(!far || piece.starts_with("http://www.w3.org/"), "{name} names {piece}");
            }
        }
    }

    #[test]
    fn an_entity_tag_is_found_in_a_list() {
        let tag = "\"0123\"";
        for list in ["\"0123\"", "W/\"0123\"", "\"x\", \"0123\"", "*"] {
            assert!(has(list, tag), "{list}");
        }
        assert!(!has("\"01234\"", tag) && !has("", tag));
    }
}
