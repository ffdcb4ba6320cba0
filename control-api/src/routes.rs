// SPDX-License-Identifier: Apache-2.0
//! The table of calls, and what surrounds each of them.
//!
//! Invariant: `openapi.json` describes exactly this table (a test compares them), and every answer that is an error
//! is a problem document, also for paths and methods that do not exist.

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use tower_http::catch_panic::CatchPanicLayer;

use crate::app::App;
use crate::parents::Parents;
use crate::problem::Problem;
use crate::records::Kind;
use crate::subscribers::Subscribers;
use crate::{dashboard, events, history, records, reload, state, subscribers};

const OPENAPI: &str = include_str!("../openapi.json");

type Route = (&'static str, &'static [&'static str], MethodRouter<Arc<App>>);

/// What is done to one record.
fn one<K: Kind>() -> MethodRouter<Arc<App>> {
    get(records::one::<K>).put(records::put::<K>).patch(records::patch::<K>).delete(records::delete::<K>)
}

/// Path, methods, handlers.
fn table() -> Vec<Route> {
    vec![
        ("/", &["get"], get(dashboard::page)),
        ("/assets/{id}", &["get"], get(dashboard::asset)),
        ("/healthz", &["get"], get(state::health)),
        ("/readyz", &["get"], get(state::ready)),
        ("/metrics", &["get"], get(state::metrics)),
        ("/v1/subscribers", &["get"], get(records::list::<Subscribers>)),
        ("/v1/subscribers/bulk", &["post"], post(subscribers::bulk)),
        ("/v1/subscribers/{id}", &["get", "put", "patch", "delete"], one::<Subscribers>()),
        ("/v1/subscribers/{id}/stats", &["get"], get(records::stats::<Subscribers>)),
        ("/v1/parents", &["get"], get(records::list::<Parents>)),
        ("/v1/parents/{id}", &["get", "put", "patch", "delete"], one::<Parents>()),
        ("/v1/parents/{id}/stats", &["get"], get(records::stats::<Parents>)),
        ("/v1/search", &["get"], get(subscribers::search)),
        ("/v1/summary", &["get"], get(history::summary)),
        ("/v1/top", &["get"], get(state::top)),
        ("/v1/top/parents", &["get"], get(state::top_parents)),
        ("/v1/ports", &["get"], get(state::ports)),
        ("/v1/lcores", &["get"], get(state::lcores)),
        ("/v1/profiles", &["get"], get(state::profiles)),
        ("/v1/events", &["get"], get(events::stream)),
        ("/v1/reload", &["post"], post(reload::reload)),
        ("/v1/openapi.json", &["get"], get(openapi)),
    ]
}

/// All calls, guarded.
pub(crate) fn router(app: Arc<App>) -> Router {
    let routes =
        table().into_iter().fold(Router::new(), |router, (path, _, handlers)| router.route(path, handlers));
    routes
        .fallback(no_path)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn_with_state(Arc::clone(&app), guard))
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(app)
}

/// Who may, and headers that every answer has.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let allowed =
        one_host(&request).and_then(|()| app.parts.protection.check(request.uri(), request.headers()));
    let mut response = match allowed {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// RFC 9112 3.2: of two `Host`s, what stands between us and the client may have taken the other.
fn one_host(request: &Request) -> Result<(), Problem> {
    if request.headers().get_all(HOST).iter().nth(1).is_none() {
        return Ok(());
    }
    Err(Problem::new(StatusCode::BAD_REQUEST, "the header `Host` stands twice").field("host"))
}

#[expect(clippy::needless_pass_by_value, reason = "tower-http hands the payload over")]
fn panicked(payload: Box<dyn Any + Send>) -> Response {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
    tracing::error!(panic = %text, "a request failed; forwarding goes on");
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "this request failed by a fault of ours; the log says more",
    )
    .into_response()
}

async fn no_path(uri: Uri) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        format!("there is no {}; GET /v1/openapi.json lists what there is", uri.path()),
    )
}

async fn no_method(method: Method, uri: Uri) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{} does not take {method}", uri.path()))
}

async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    type Calls = BTreeSet<(String, String)>;

    fn served() -> Calls {
        let methods = |(path, methods, _): Route| {
            methods.iter().map(move |method| (path.to_owned(), (*method).to_owned()))
        };
        table().into_iter().flat_map(methods).collect()
    }

    #[test]
    fn openapi_describes_exactly_what_is_served() {
        let document: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        let mut described = Calls::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys().filter(|key| *key != "parameters") {
                described.insert((path.clone(), method.clone()));
            }
        }
        assert_eq!(described, served());
    }
}
