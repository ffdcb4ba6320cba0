// SPDX-License-Identifier: Apache-2.0
//! Those who ask the shaper: one thread for figures, one for the stream of events. They own the viewer's clock.

use std::io::{BufRead as _, BufReader};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::Context;
use model::Subscriber;
use model::stats::{
    Direction, Event, LcoreState, ParentTop, ParentTopEntry, PortState, SubscriberStats, Top, TopBy,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::figures::{Sample, Subject};
use super::scrape::Scrape;
use super::screen::{Query, Update};
use crate::subs::client::{Client, encode};

/// How long a scrape may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Subscribers of the list.
const LIST: u32 = 50;
/// Aggregates named.
const SLOWEST: u32 = 8;
/// Before the stream of events is asked for again.
const AGAIN: Duration = Duration::from_secs(2);

/// The viewer's clock.
#[derive(Clone, Copy)]
pub(super) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "a viewer lives in real time")]
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// Asks again and again until nobody listens; at once where the query changed.
pub(super) fn figures(
    client: &Client,
    clock: Clock,
    interval: Duration,
    mut query: Query,
    queries: &Receiver<Query>,
    updates: &Sender<Update>,
) {
    loop {
        let begin = clock.now();
        let update = match sample(client, &query, clock) {
            Ok(sample) => Update::Sample(Box::new(sample)),
            Err(error) => Update::Lost(format!("{error:#}")),
        };
        if updates.send(update).is_err() {
            return;
        }
        let rest = interval.saturating_sub(clock.now().saturating_sub(begin)).max(interval / 4);
        match queries.recv_timeout(rest) {
            Ok(next) => query = queries.try_iter().last().unwrap_or(next),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// A list of the interface.
#[derive(Deserialize)]
struct Items<T> {
    items: Vec<T>,
}

/// One round of questions.
pub(super) fn sample(client: &Client, query: &Query, clock: Clock) -> anyhow::Result<Sample> {
    let scrape = Scrape::parse(&client.text("/metrics", PATIENCE)?);
    let at = clock.now();
    let by = match query.by {
        TopBy::Bytes => "bytes",
        TopBy::Delay => "delay",
        TopBy::Drops => "drops",
    };
    let dir = query.dir.label();
    let top: Top = read(client, &format!("/v1/top?by={by}&dir={dir}&n={LIST}&window_s=10"))?;
    let slowed = if query.dir == Direction::Down { scrape.down.slowed } else { scrape.up.slowed };
    let slowest = if slowed > 0.0 { slowest(client, dir)? } else { Vec::new() };
    let ports: Items<PortState> = read(client, "/v1/ports")?;
    let lcores: Items<LcoreState> = read(client, "/v1/lcores")?;
    let subject = query.subject.as_ref().map(|id| subject(client, id)).transpose()?;
    Ok(Sample { at, scrape, ports: ports.items, lcores: lcores.items, top, slowest, subject })
}

/// Aggregates that are a bottleneck, those slowed most first.
fn slowest(client: &Client, dir: &str) -> anyhow::Result<Vec<ParentTopEntry>> {
    let path = format!("/v1/top/parents?by=clock&dir={dir}&n={SLOWEST}&window_s=10");
    let mut list: ParentTop = read(client, &path)?;
    list.items.retain(|parent| parent.clock_speed < 0.99);
    Ok(list.items)
}

fn subject(client: &Client, id: &str) -> anyhow::Result<Subject> {
    let path = format!("/v1/subscribers/{}", encode(id));
    let record: Option<Subscriber> = client.find(&path)?.map(|value| of_json(value, &path)).transpose()?;
    let stats = match &record {
        None => None,
        // a lcore that does not answer now is no reason to stop looking
        Some(_) => client.find(&format!("{path}/stats")).ok().flatten(),
    };
    let stats: Option<SubscriberStats> = stats.map(|value| of_json(value, &path)).transpose()?;
    Ok(Subject { id: id.to_owned(), record, stats })
}

fn read<T: DeserializeOwned>(client: &Client, path: &str) -> anyhow::Result<T> {
    of_json(client.get(path)?, path)
}

fn of_json<T: DeserializeOwned>(value: Value, path: &str) -> anyhow::Result<T> {
    serde_json::from_value(value).with_context(|| format!("{path} answers what this version does not know"))
}

/// Passes events on until nobody listens.
pub(super) fn events(client: &Arc<Client>, updates: &Sender<Update>) {
    loop {
        if let Ok(stream) = client.stream("/v1/events") {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let event =
                    line.strip_prefix("data:").and_then(|data| serde_json::from_str::<Event>(data).ok());
                if event.is_some_and(|event| updates.send(Update::Event(event)).is_err()) {
                    return;
                }
            }
        }
        std::thread::park_timeout(AGAIN);
    }
}
