// SPDX-License-Identifier: Apache-2.0
//! What handlers share.
//!
//! Invariant: a call into the data plane, which may block, runs on a thread for that and never more than
//! [`CALLS`] at a time; so does what takes long to compute, [`WORKS`] at a time, whatever the data plane's calls wait for.
//! A client that gives up while it waits for its turn costs nothing.

use std::sync::Arc;

use axum::http::StatusCode;
use model::stats::Event;
use prometheus::Registry;
use tokio::sync::{Semaphore, broadcast, watch};

use crate::directory::Directory;
use crate::history::History;
use crate::metrics;
use crate::options::{Limits, Options};
use crate::problem::Problem;
use crate::protection::Protection;
use crate::reload::Reloader;
use crate::rules::Rules;
use crate::shaper::Shaper;
use crate::writer::Writes;

/// Calls into the data plane at a time.
const CALLS: usize = 8;
/// Computations at a time.
const WORKS: usize = 2;
/// Threads that both need.
pub(crate) const BLOCKING: usize = CALLS + WORKS;

/// What [`App::new`] is made of, beside the options.
pub(crate) struct Parts {
    pub(crate) shaper: Arc<dyn Shaper>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) parents: Arc<Directory>,
    pub(crate) writes: Writes,
    pub(crate) events: broadcast::Sender<Event>,
    pub(crate) protection: Protection,
    pub(crate) reload: Arc<Reloader>,
    pub(crate) stopped: watch::Receiver<bool>,
}

/// See the module.
pub(crate) struct App {
    pub(crate) parts: Parts,
    pub(crate) rules: Rules,
    pub(crate) limits: Limits,
    pub(crate) registry: Registry,
    pub(crate) history: History,
    pub(crate) bulks: Arc<Semaphore>,
    pub(crate) streams: Arc<Semaphore>,
    calls: Arc<Semaphore>,
    works: Arc<Semaphore>,
}

impl App {
    pub(crate) fn new(options: &Options, rules: Rules, parts: Parts) -> Arc<Self> {
        Arc::new(Self {
            rules,
            registry: metrics::registry(Arc::clone(&parts.shaper)),
            history: History::new(parts.shaper.capacity()),
            bulks: Arc::new(Semaphore::new(options.limits.bulk_requests)),
            streams: Arc::new(Semaphore::new(options.limits.event_streams)),
            calls: Arc::new(Semaphore::new(CALLS)),
            works: Arc::new(Semaphore::new(WORKS)),
            limits: options.limits,
            parts,
        })
    }

    /// Runs `call` where it may wait for an lcore. A panic in it becomes a 500.
    pub(crate) async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        self.aside(&self.calls, call).await
    }

    /// Runs `work`, which waits for nobody, where it may take its time.
    pub(crate) async fn work<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        self.aside(&self.works, work).await
    }

    async fn aside<T: Send + 'static>(
        self: &Arc<Self>,
        places: &Arc<Semaphore>,
        call: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let permit = Arc::clone(places).acquire_owned().await;
        let app = Arc::clone(self);
        let outcome = tokio::task::spawn_blocking(move || {
            let _held = permit;
            call(&app)
        });
        outcome.await.map_err(|error| {
            tracing::error!(%error, "a call aside failed");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the data plane's side failed; the log says more")
        })
    }
}
