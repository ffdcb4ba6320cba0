// SPDX-License-Identifier: Apache-2.0
//! What this crate needs of a data plane. It never learns how one works.
//!
//! Invariant: records reach [`Shaper::apply`] only after the store has committed them, validated, and such that
//! all records applied so far claim no key twice; and the store commits nothing that goes beyond
//! [`Shaper::capacity`], for what it holds at a death is what the next start has to find room for.

use model::stats::{
    Event, LcoreState, MetricsSnapshot, ParentStats, ParentTop, ParentTopQuery, PortState, SubscriberStats,
    Top, TopQuery,
};
use model::{Parent, Subscriber};
use tokio::sync::broadcast;

/// A change to one record.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// Create it, or replace the one of that name; a rate change keeps queue and AQM state.
    Put(Subscriber),
    /// Remove the record of that name.
    Remove(String),
    /// Create this aggregate, or change the one of that name; what waits below it stays.
    PutParent(Parent),
    /// Remove the aggregate of that name, which has nothing below it any more.
    RemoveParent(String),
}

impl Edit {
    /// Name of the record.
    pub fn id(&self) -> &str {
        match self {
            Self::Put(subscriber) => &subscriber.id,
            Self::PutParent(parent) => &parent.id,
            Self::Remove(id) | Self::RemoveParent(id) => id,
        }
    }
}

/// Why a batch was refused. But for [`Halfway`](Self::Halfway), nothing of it was applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShaperError {
    /// The data plane has no room for so many.
    #[error("the data plane has room for {capacity} subscribers")]
    Full {
        /// How many fit.
        capacity: u64,
    },
    /// The data plane cannot serve this record.
    #[error("{id}: {reason}")]
    Refused {
        /// Name of the record.
        id: String,
        /// One sentence.
        reason: String,
    },
    /// It removed what the batch removes and could then not put what it puts: those records are gone from it.
    #[error("the data plane removed records but could not put others in their place: {0}")]
    Halfway(String),
    /// The data plane does not take changes now.
    #[error("the data plane takes no changes: {0}")]
    Unavailable(String),
}

/// A data plane.
///
/// Every call comes from a control thread and may block it for some milliseconds, never for long: a call that
/// waits for an lcore gives up by itself. None may panic; if one does, the request that made it fails.
pub trait Shaper: Send + Sync + 'static {
    /// Applies all of `batch` or, on an error but [`ShaperError::Halfway`], nothing of it. Returns when the changes
    /// are on their way to the lcores.
    ///
    /// No two records claim one key once the whole batch is applied; in between they may (two records that swap
    /// an address), so an implementation releases what the batch gives up before it claims. `Remove` comes first,
    /// then `PutParent` in any order (the outcome has no loop), `Put`, `RemoveParent`; no name of a kind comes twice. A `Remove` of a record the data plane does not have is no error.
    ///
    /// # Errors
    /// See [`ShaperError`].
    fn apply(&self, batch: Vec<Edit>) -> Result<(), ShaperError>;

    /// How many records it has room for in all. It does not change while it runs.
    fn capacity(&self) -> u64;

    /// How many aggregates it has room for in all.
    fn parents_capacity(&self) -> u64;

    /// An aggregate's counters; `None` if the data plane has no such aggregate or an lcore does not answer.
    fn parent_stats(&self, id: &str) -> Option<ParentStats>;

    /// One snapshot of a subscriber's counters; `None` if the data plane has no such record or its lcore does not
    /// answer.
    fn stats(&self, id: &str) -> Option<SubscriberStats>;

    /// The first of the list, best first, at most `query.n`.
    fn top(&self, query: TopQuery) -> Top;

    /// The same of aggregates.
    fn top_parents(&self, query: ParentTopQuery) -> ParentTop;

    /// Ports in the order of the configuration.
    fn ports(&self) -> Vec<PortState>;

    /// Lcores.
    fn lcores(&self) -> Vec<LcoreState>;

    /// Whether it has been told to stop: it takes no changes any more.
    fn stopping(&self) -> bool;

    /// Reasons why it is not ready, a sentence each; none: ready.
    fn readiness(&self) -> Vec<String>;

    /// All of a scrape.
    fn metrics(&self) -> MetricsSnapshot;

    /// What happens from now on. `Config` events come from this crate itself.
    fn events(&self) -> broadcast::Receiver<Event>;
}
