// SPDX-License-Identifier: Apache-2.0
//! The data plane as the control API sees it: a translation, nothing more.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use control_api::{Edit, Shaper, ShaperError};
use dataplane::{ApplyError, Batch, Handle};
use model::stats::{
    Event, EventKind, LcoreState, MetricsSnapshot, ParentStats, ParentTop, ParentTopQuery, PortState,
    SubscriberStats, Top, TopQuery,
};
use tokio::sync::broadcast;

/// Events that a slow reader may fall behind before it misses some.
const EVENTS: usize = 1024;

/// A [`Shaper`] over a running data plane.
#[derive(Clone)]
pub(crate) struct Plane {
    handle: Handle,
    events: Arc<broadcast::Sender<Event>>,
}

impl Plane {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle, events: Arc::new(broadcast::channel(EVENTS).0) }
    }

    /// Regular work of the control side: watches lcores and links, passes events on.
    pub(crate) fn tick(&self) {
        for kind in self.handle.tick() {
            self.publish(kind);
        }
    }

    #[expect(clippy::disallowed_methods, reason = "events carry the wall clock's time; this file owns it")]
    fn publish(&self, kind: EventKind) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        // nobody listening is no error
        let _ = self.events.send(Event { at_ms, kind });
    }
}

impl Shaper for Plane {
    fn apply(&self, batch: Vec<Edit>) -> Result<(), ShaperError> {
        let mut sorted = Batch::default();
        for edit in batch {
            match edit {
                Edit::Remove(id) => sorted.removes.push(id),
                Edit::Put(subscriber) => sorted.puts.push(subscriber),
                Edit::PutParent(parent) => sorted.parents.push(parent),
                Edit::RemoveParent(id) => sorted.parent_removes.push(id),
            }
        }
        self.handle.apply(&sorted).map_err(|error| match error {
            ApplyError::Full { capacity } => ShaperError::Full { capacity },
            ApplyError::Refused { id, reason } => ShaperError::Refused { id, reason },
            ApplyError::Halfway(why) => ShaperError::Halfway(why),
            ApplyError::Unavailable(why) => ShaperError::Unavailable(why.to_owned()),
        })
    }

    fn capacity(&self) -> u64 {
        self.handle.capacity()
    }

    fn parents_capacity(&self) -> u64 {
        self.handle.parents_capacity()
    }

    fn parent_stats(&self, id: &str) -> Option<ParentStats> {
        self.handle.parent_stats(id)
    }

    fn stats(&self, id: &str) -> Option<SubscriberStats> {
        self.handle.stats(id)
    }

    fn top(&self, query: TopQuery) -> Top {
        self.handle.top(&query)
    }

    fn top_parents(&self, query: ParentTopQuery) -> ParentTop {
        self.handle.top_parents(&query)
    }

    fn ports(&self) -> Vec<PortState> {
        self.handle.ports()
    }

    fn lcores(&self) -> Vec<LcoreState> {
        self.handle.lcores()
    }

    fn stopping(&self) -> bool {
        self.handle.stopping()
    }

    fn readiness(&self) -> Vec<String> {
        self.handle.readiness()
    }

    fn metrics(&self) -> MetricsSnapshot {
        self.handle.metrics()
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }
}
