// SPDX-License-Identifier: Apache-2.0
//! The last ten minutes, second by second: what the dashboard shows at once when it is opened, and `GET /v1/summary`.
//!
//! One task asks the data plane once a second, whoever looks or not, so that the minutes before somebody was called
//! can be seen, and so that many who look cost the data plane no more than none. Rates and quantiles are those of
//! each interval, derived from counters that only grow.
//!
//! Invariant: [`POINTS`] points and [`EVENTS`] events are kept; nothing here is per subscriber. The lock is held to look
//! and to add, never to compute or to write: an answer is made of what was there at one moment, where it may take time.

mod point;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use model::stats::{Event, EventKind, MetricsSnapshot};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, MissedTickBehavior};

use crate::app::App;
use crate::problem::Problem;
use crate::request::Params;
use crate::server::stopping;
use crate::state;
use point::Point;

/// Between two points.
const EVERY: Duration = Duration::from_secs(1);
/// Points kept: ten minutes.
const POINTS: usize = 600;
/// Over how many intervals `recent` reaches.
const RECENT: usize = 10;
/// Events kept.
const EVENTS: usize = 200;
/// Changes of records that follow each other within this time are told as one event.
const ONE_CHANGE_MS: u64 = 10_000;

/// What was seen at one moment.
struct Sample {
    at: Instant,
    metrics: MetricsSnapshot,
    reasons: Vec<String>,
}

#[derive(Default)]
struct Kept {
    /// The last of them; the first is [`RECENT`] intervals back.
    samples: VecDeque<Arc<Sample>>,
    points: VecDeque<Arc<Point>>,
    /// Points made so far; the number of the last one.
    made: u64,
    events: VecDeque<Event>,
}

/// See the module.
pub(crate) struct History {
    started_ms: u64,
    /// Subscribers that the data plane has room for.
    capacity: u64,
    kept: Mutex<Kept>,
}

#[expect(clippy::disallowed_methods, reason = "points carry the wall clock's time; this file owns it")]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl History {
    pub(crate) fn new(capacity: u64) -> Self {
        Self { started_ms: now_ms(), capacity, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn add(&mut self, sample: Sample, point: Option<Point>) {
        if let Some(point) = point {
            if self.points.len() >= POINTS {
                self.points.pop_front();
            }
            self.points.push_back(Arc::new(point));
            self.made += 1;
        }
        if self.samples.len() > RECENT {
            self.samples.pop_front();
        }
        self.samples.push_back(Arc::new(sample));
    }

    /// What an answer is made of: the points behind `after`, all where that was never made.
    fn look(&self, after: u64) -> View {
        let new = self.made.checked_sub(after).and_then(|new| usize::try_from(new).ok());
        let from = self.points.len().saturating_sub(new.unwrap_or(POINTS));
        View {
            first: self.samples.front().filter(|_| self.samples.len() > 1).cloned(),
            last: self.samples.back().cloned(),
            points: self.points.iter().skip(from).cloned().collect(),
            at_ms: self.points.back().map_or(0, |point| point.at_ms),
            made: self.made,
        }
    }

    fn note(&mut self, event: Event) {
        let last = self.events.back_mut();
        if let (Some(Event { at_ms, kind: EventKind::Config { created, updated, deleted } }), Event { .. }) =
            (last, &event)
            && let EventKind::Config { created: c, updated: u, deleted: d } = event.kind
            && event.at_ms.saturating_sub(*at_ms) < ONE_CHANGE_MS
        {
            (*created, *updated, *deleted) = (*created + c, *updated + u, *deleted + d);
            *at_ms = event.at_ms;
            return;
        }
        if self.events.len() >= EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

/// What was kept at one moment.
struct View {
    first: Option<Arc<Sample>>,
    last: Option<Arc<Sample>>,
    points: Vec<Arc<Point>>,
    /// Of the last point.
    at_ms: u64,
    made: u64,
}

impl View {
    /// All figures over the last [`RECENT`] intervals.
    fn recent(&self) -> Value {
        match (&self.first, &self.last) {
            (Some(first), Some(last)) => {
                let over = last.at.duration_since(first.at);
                Point::between(&first.metrics, &last.metrics, over, self.at_ms).to_value()
            }
            _ => Value::Null,
        }
    }

    /// The points, member by member, if there are any.
    fn series(&self) -> Value {
        let new: Vec<_> = self.points.iter().map(|point| point.to_value()).collect();
        if new.is_empty() { Value::Null } else { transpose(new) }
    }
}

/// Objects of one shape as one object of lists.
fn transpose(values: Vec<Value>) -> Value {
    match values.first() {
        Some(Value::Object(first)) => {
            let names: Vec<String> = first.keys().cloned().collect();
            let mut values = values;
            let column = |name: &String, values: &mut Vec<Value>| {
                transpose(values.iter_mut().map(|value| value[name.as_str()].take()).collect())
            };
            Value::Object(
                names.iter().map(|name| (name.clone(), column(name, &mut values))).collect::<Map<_, _>>(),
            )
        }
        _ => Value::Array(values),
    }
}

/// Samples and notes until the server stops.
pub(crate) async fn keep(app: Arc<App>) {
    let mut stopped = app.parts.stopped.clone();
    let mut own = Some(app.parts.events.subscribe());
    let mut shaper = app.call(|app| app.parts.shaper.events()).await.ok();
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let event = tokio::select! {
            () = stopping(&mut stopped) => return,
            _ = tick.tick() => {
                sample(&app).await;
                None
            }
            event = next(&mut own) => event,
            event = next(&mut shaper) => event,
        };
        if let Some(event) = event {
            app.history.kept().note(event);
        }
    }
}

/// The next event of a source, which is forgotten once it ends.
async fn next(source: &mut Option<Receiver<Event>>) -> Option<Event> {
    let Some(receiver) = source else { return std::future::pending().await };
    match receiver.recv().await {
        Ok(event) => Some(event),
        Err(RecvError::Lagged(_)) => None,
        Err(RecvError::Closed) => {
            *source = None;
            None
        }
    }
}

async fn sample(app: &Arc<App>) {
    let look = |app: &App| {
        let sample =
            Sample { at: Instant::now(), metrics: app.parts.shaper.metrics(), reasons: state::reasons(app) };
        // there is one who adds
        let last = app.history.kept().samples.back().cloned();
        let point = last.map(|last| last.until(&sample, now_ms()));
        app.history.kept().add(sample, point);
    };
    // a failure is in the log; a gap in the points shows it
    drop(app.call(look).await);
}

impl Sample {
    fn until(&self, next: &Self, at_ms: u64) -> Point {
        Point::between(&self.metrics, &next.metrics, next.at.duration_since(self.at), at_ms)
    }
}

/// `GET /v1/summary`.
pub(crate) async fn summary(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let mut params = Params::read(&uri)?;
    let after = params
        .parse("after", None, "the `next` of the answer before", |text| text.parse::<u64>().ok().map(Some))?;
    params.end()?;
    let body = app.work(move |app| app.history.shown(after)).await?;
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

impl History {
    /// The answer to who has all up to `after`, if to anybody's knowledge.
    fn shown(&self, after: Option<u64>) -> String {
        let (view, events) = {
            let kept = self.kept();
            let known = after.filter(|after| *after <= kept.made);
            (kept.look(known.unwrap_or(0)), known.is_none().then(|| kept.events.clone()))
        };
        let last = view.last.as_deref();
        let metrics = last.map(|sample| &sample.metrics);
        let mut answer = json!({
            "now_ms": now_ms(),
            "started_ms": self.started_ms,
            "version": env!("CARGO_PKG_VERSION"),
            "dpdk": metrics.map_or("", |metrics| &*metrics.dpdk),
            "capacity": self.capacity,
            "reasons": last.map_or(&[][..], |sample| &sample.reasons),
            "ports": metrics.map_or(&[][..], |metrics| &metrics.ports),
            "lcores": metrics.map_or(&[][..], |metrics| &metrics.lcores),
            "next": view.made,
            "recent": view.recent(),
            "series": view.series(),
        });
        if let Some(events) = events {
            answer["events"] = json!(events);
        }
        answer.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(samples: u64) -> Kept {
        let (mut kept, begin) = (Kept::default(), Instant::now());
        for n in 0..samples {
            let mut metrics = MetricsSnapshot::default();
            metrics.down.l4s.forwarded_bytes = n * n * 1_000;
            let sample = Sample { at: begin + Duration::from_secs(n), metrics, reasons: Vec::new() };
            let point = kept.samples.back().map(|last| last.until(&sample, n * 1_000));
            kept.add(sample, point);
        }
        kept
    }

    #[test]
    fn points_are_numbered_and_only_new_ones_are_told() {
        let kept = kept(5);
        let series = kept.look(0).series();
        assert_eq!(series["at_ms"], json!([1_000, 2_000, 3_000, 4_000]));
        assert_eq!(series["down"]["l4s"]["rate_bps"], json!([8_000.0, 24_000.0, 40_000.0, 56_000.0]));
        assert_eq!(kept.look(3).series()["at_ms"], json!([4_000]));
        assert_eq!(kept.look(4).series(), Value::Null);
        // of another start of this program
        assert_eq!(kept.look(1_000).series()["at_ms"].as_array().map(Vec::len), Some(4));
    }

    #[test]
    fn ten_minutes_are_kept_and_ten_seconds_are_recent() {
        let kept = kept(700);
        let series = kept.look(0).series();
        assert_eq!(series["at_ms"].as_array().map(Vec::len), Some(POINTS));
        assert_eq!(series["at_ms"][POINTS - 1], 699_000);
        assert_eq!(kept.look(690).series()["at_ms"].as_array().map(Vec::len), Some(9));
        let recent = kept.look(0).recent();
        assert_eq!(recent["over_s"], 10.0);
        assert_eq!(recent["down"]["rate_bps"], f64::from(699 * 699 - 689 * 689) * 800.0);
        assert_eq!(Kept::default().look(0).recent(), Value::Null);
    }

    #[test]
    fn changes_close_together_are_one_event_and_the_oldest_go() {
        let mut kept = Kept::default();
        let config = |at_ms| Event { at_ms, kind: EventKind::Config { created: 1, updated: 2, deleted: 0 } };
        let link =
            |at_ms| Event { at_ms, kind: EventKind::Link { port: "core".into(), up: true, speed_bps: None } };
        for event in [config(0), config(9_000), config(18_000), link(19_000), config(19_001), config(30_000)]
        {
            kept.note(event);
        }
        let told: Vec<_> = kept.events.iter().map(|event| event.at_ms).collect();
        assert_eq!(told, [18_000, 19_000, 19_001, 30_000]);
        assert_eq!(kept.events[0].kind, EventKind::Config { created: 3, updated: 6, deleted: 0 });
        (0..1_000).for_each(|n| kept.note(link(n)));
        assert_eq!((kept.events.len(), kept.events[0].at_ms), (EVENTS, 800));
    }
}
