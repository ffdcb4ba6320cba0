// SPDX-License-Identifier: Apache-2.0
//! `GET /v1/events`: Server-Sent Events (WHATWG HTML, section 9.2).
//!
//! Invariant: a client that reads slowly loses events and is told how many (`lagged`); it delays nobody and holds
//! at most [`AHEAD`] events. A comment goes out every [`ALIVE`], so that a dead client is found and a proxy does not
//! close the stream.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use bytes::Bytes;
use http_body::Frame;
use model::stats::Event;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, mpsc, watch};

use crate::app::App;
use crate::problem::Problem;
use crate::request::Params;
use crate::server::stopping;

/// Events sent ahead of what the client has taken.
const AHEAD: usize = 16;
/// Between two signs of life.
const ALIVE: Duration = Duration::from_secs(10);
/// First words: how long to wait before a reconnect, in milliseconds.
const HELLO: &[u8] = b"retry: 2000\n: sluice events\n\n";

pub(crate) async fn stream(State(app): State<Arc<App>>, uri: axum::http::Uri) -> Result<Response, Problem> {
    Params::read(&uri)?.end()?;
    let permit = Arc::clone(&app.streams)
        .try_acquire_owned()
        .map_err(|_| Problem::unavailable("as many event streams are open as may be"))?;
    let shaper = app.call(|app| app.parts.shaper.events()).await?;
    let (sender, receiver) = mpsc::channel(AHEAD);
    let sources = Sources {
        shaper: Some(shaper),
        own: app.parts.events.subscribe(),
        stopped: app.parts.stopped.clone(),
    };
    tokio::spawn(sources.pump(sender, permit));
    let mut response = Response::new(Body::new(Stream(receiver)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

struct Sources {
    /// `None` once the data plane is gone.
    shaper: Option<broadcast::Receiver<Event>>,
    own: broadcast::Receiver<Event>,
    stopped: watch::Receiver<bool>,
}

impl Sources {
    /// Sends until the client or the server goes.
    async fn pump(mut self, sender: mpsc::Sender<Bytes>, _open: OwnedSemaphorePermit) {
        let mut next = Some(Bytes::from_static(HELLO));
        while let Some(bytes) = next {
            tokio::select! {
                sent = sender.send(bytes) => if sent.is_err() { return },
                () = stopping(&mut self.stopped) => return,
            }
            next = tokio::select! {
                () = sender.closed() => None,
                bytes = self.next() => bytes,
            };
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        let Self { shaper, own, stopped } = self;
        let from_shaper = async {
            match shaper {
                Some(receiver) => receiver.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stopping(stopped) => None,
            event = own.recv() => text(event),
            event = from_shaper => text(event).or_else(|| {
                *shaper = None;
                Some(Bytes::from_static(b": the data plane sends no more

"))
            }),
            () = tokio::time::sleep(ALIVE) => Some(Bytes::from_static(b":\n\n")),
        }
    }
}

fn text(event: Result<Event, RecvError>) -> Option<Bytes> {
    match event {
        Ok(event) => {
            let data = serde_json::to_string(&event).unwrap_or_default();
            Some(format!("event: {}\ndata: {data}\n\n", event.kind.label()).into())
        }
        Err(RecvError::Lagged(missed)) => {
            Some(format!("event: lagged\ndata: {{\"missed\":{missed}}}\n\n").into())
        }
        Err(RecvError::Closed) => None,
    }
}

struct Stream(mpsc::Receiver<Bytes>);

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
