// SPDX-License-Identifier: Apache-2.0
//! A data plane of memory. It holds the caller to the trait's promises.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use control_api::{Edit, Shaper, ShaperError};
use model::stats::{
    DirectionMetrics, Event, Histogram, KindCount, LcoreRole, LcoreState, MetricsSnapshot, ParentCounts,
    ParentStats, ParentTop, ParentTopEntry, ParentTopQuery, PortDrops, PortState, QueueMetrics, Reasons,
    SubscriberCounts, SubscriberStats, Top, TopEntry, TopQuery,
};
use model::{KeyIndex, Parent, Subscriber};
use tokio::sync::broadcast;

/// Aggregates it has room for.
pub(crate) const PARENTS: u64 = 40;

#[derive(Debug)]
pub(crate) struct Fake {
    records: Mutex<BTreeMap<String, Subscriber>>,
    parents: Mutex<BTreeMap<String, Parent>>,
    pub(crate) capacity: AtomicUsize,
    pub(crate) batches: Mutex<Vec<Vec<Edit>>>,
    pub(crate) reasons: Mutex<Vec<String>>,
    pub(crate) panics: AtomicBool,
    pub(crate) mute: AtomicBool,
    /// Removes what a batch removes and then gives up, so many times.
    pub(crate) halfway: AtomicUsize,
    /// No lcore answers a change, so many times.
    pub(crate) silent: AtomicUsize,
    pub(crate) stopping: AtomicBool,
    /// Ends the process when it is asked for more than fits.
    pub(crate) dies_when_full: AtomicBool,
    /// Whoever asks for a subscriber's counters waits while this is held for writing.
    pub(crate) gate: RwLock<()>,
    pub(crate) waiting: AtomicUsize,
    pub(crate) queries: Mutex<Vec<TopQuery>>,
    pub(crate) events: broadcast::Sender<Event>,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            records: Mutex::default(),
            parents: Mutex::default(),
            capacity: AtomicUsize::new(usize::MAX),
            batches: Mutex::default(),
            reasons: Mutex::default(),
            panics: AtomicBool::new(false),
            mute: AtomicBool::new(false),
            halfway: AtomicUsize::new(0),
            silent: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            dies_when_full: AtomicBool::new(false),
            gate: RwLock::default(),
            waiting: AtomicUsize::new(0),
            queries: Mutex::default(),
            events: broadcast::Sender::new(16),
        }
    }
}

impl Fake {
    /// Names and records it has.
    pub(crate) fn records(&self) -> BTreeMap<String, Subscriber> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Names and aggregates it has.
    pub(crate) fn parents(&self) -> BTreeMap<String, Parent> {
        self.parents.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn take_batches(&self) -> Vec<Vec<Edit>> {
        std::mem::take(&mut self.batches.lock().unwrap())
    }
}

/// Its place in a batch, by kind.
fn rank(edit: &Edit) -> u8 {
    match edit {
        Edit::Remove(_) => 0,
        Edit::PutParent(_) => 1,
        Edit::Put(_) => 2,
        Edit::RemoveParent(_) => 3,
    }
}

fn hold_to_the_promises(batch: &[Edit]) {
    let names: BTreeSet<_> = batch.iter().map(|edit| (rank(edit) % 2, edit.id())).collect();
    assert_eq!(names.len(), batch.len(), "a name came twice");
    assert!(batch.is_sorted_by_key(rank), "{batch:?}");
}

/// Every parent named exists, and nothing is left below one that has gone.
fn hold_to_parents(records: &BTreeMap<String, Subscriber>, parents: &BTreeMap<String, Parent>) {
    let named = records.values().filter_map(|record| record.parent.as_ref());
    for name in named.chain(parents.values().filter_map(|parent| parent.parent.as_ref())) {
        assert!(parents.contains_key(name), "{name:?} does not exist");
    }
}

impl Shaper for Fake {
    fn apply(&self, batch: Vec<Edit>) -> Result<(), ShaperError> {
        hold_to_the_promises(&batch);
        if self.silent.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(ShaperError::Unavailable("told to be silent".to_owned()));
        }
        if let Some(edit) = batch.iter().find(|edit| edit.id().starts_with("panic-")) {
            panic!("told to panic by {}", edit.id());
        }
        if let Some(edit) =
            batch.iter().find(|edit| matches!(edit, Edit::Put(_)) && edit.id().starts_with("refuse-"))
        {
            return Err(ShaperError::Refused { id: edit.id().to_owned(), reason: "told to".to_owned() });
        }
        let mut records = self.records.lock().unwrap();
        let capacity = self.capacity.load(Ordering::SeqCst);
        let known = |edit: &&Edit| records.contains_key(edit.id());
        let puts = batch.iter().filter(|edit| matches!(edit, Edit::Put(_)));
        let removes: Vec<_> = batch.iter().filter(|edit| matches!(edit, Edit::Remove(_))).collect();
        let new = puts.filter(|edit| !known(edit)).count();
        let gone = removes.iter().filter(|edit| known(edit)).count();
        if new > 0 && records.len() + new - gone > capacity {
            if self.dies_when_full.load(Ordering::SeqCst) {
                std::process::abort();
            }
            return Err(ShaperError::Full { capacity: capacity as u64 });
        }
        let halfway =
            self.halfway.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if halfway.is_ok() {
            for edit in removes {
                records.remove(edit.id());
            }
            return Err(ShaperError::Halfway("told to".to_owned()));
        }
        let mut parents = self.parents.lock().unwrap();
        for edit in &batch {
            match edit {
                Edit::Put(subscriber) => drop(records.insert(subscriber.id.clone(), subscriber.clone())),
                Edit::Remove(id) => drop(records.remove(id)),
                Edit::PutParent(parent) => drop(parents.insert(parent.id.clone(), parent.clone())),
                Edit::RemoveParent(id) => drop(parents.remove(id)),
            }
        }
        if records.len() < 10_000 {
            hold_to_parents(&records, &parents);
        }
        drop(parents);
        if records.len() < 10_000 {
            let mut keys = KeyIndex::default();
            for subscriber in records.values() {
                keys.replace(None, Some(subscriber)).expect("no key is claimed twice");
            }
        }
        drop(records);
        self.batches.lock().unwrap().push(batch);
        Ok(())
    }

    fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::SeqCst) as u64
    }

    fn parents_capacity(&self) -> u64 {
        PARENTS
    }

    fn parent_stats(&self, id: &str) -> Option<ParentStats> {
        let known = self.parents().contains_key(id) && !self.mute.load(Ordering::SeqCst);
        known.then(|| {
            let mut stats = ParentStats::default();
            stats.down.forwarded = 3;
            stats.down.clock_speed = 0.5;
            stats
        })
    }

    fn stats(&self, id: &str) -> Option<SubscriberStats> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        drop(self.gate.read().unwrap());
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        let known = self.records().contains_key(id) && !self.mute.load(Ordering::SeqCst);
        known.then(|| {
            let mut stats = SubscriberStats::default();
            stats.down.l4s.arrived = 7;
            stats.down.l4s.delay_us.le = vec![Some(50.0), None];
            stats.down.l4s.delay_us.count = vec![1, 7];
            stats
        })
    }

    fn top(&self, query: TopQuery) -> Top {
        self.queries.lock().unwrap().push(query.clone());
        let entry = |id: String| TopEntry {
            id,
            bytes: 3,
            rate_bps: 2.5,
            packets: 1,
            l4s_delay_us: 0.0,
            classic_delay_us: 9.0,
            marked: 0,
            dropped: 0,
        };
        Top {
            window_s: query.window_s,
            items: self.records().into_keys().take(query.n as usize).map(entry).collect(),
        }
    }

    fn top_parents(&self, query: ParentTopQuery) -> ParentTop {
        let parents = self.parents();
        let below = parents.values().filter(|one| query.parent.is_none() || one.parent == query.parent);
        let entry = |one: &Parent| ParentTopEntry {
            id: one.id.clone(),
            parent: one.parent.clone(),
            configured_bps: one.down_bps,
            rate_bps: 2.5,
            load: 0.25,
            clock_speed: 0.5,
            subscribers: 3,
            parents: 0,
        };
        ParentTop { window_s: query.window_s, items: below.take(query.n as usize).map(entry).collect() }
    }

    fn ports(&self) -> Vec<PortState> {
        assert!(!self.panics.load(Ordering::SeqCst), "told to panic");
        vec![PortState {
            name: "core".into(),
            device: "net_null0".into(),
            role: model::config::Role::Core,
            peer: "access".into(),
            driver: "net_null".into(),
            mac: "02:00:00:00:00:01".into(),
            link: true,
            speed_bps: None,
            mtu: 1600,
            rate_bps: Some(1_000_000_000),
            clock_speed: 0.5,
            rx_packets: 11,
            rx_bytes: 12,
            tx_packets: 13,
            tx_bytes: 14,
            drops: vec![PortDrops { reason: "imissed".into(), packets: 15 }],
        }]
    }

    fn lcores(&self) -> Vec<LcoreState> {
        vec![LcoreState {
            lcore: 1,
            cpu: 3,
            role: LcoreRole::Compact,
            shard: Some(0),
            busy_ratio: 0.25,
            stalled: false,
            stalls: 2,
            longest_gap_us: 77,
            long_gaps: 1,
        }]
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn readiness(&self) -> Vec<String> {
        self.reasons.lock().unwrap().clone()
    }

    fn metrics(&self) -> MetricsSnapshot {
        MetricsSnapshot {
            limits: vec![KindCount { kind: "wheel".into(), packets: 2 }],
            down: DirectionMetrics {
                l4s: QueueMetrics {
                    arrived: 21,
                    presented: 20,
                    forwarded: 19,
                    forwarded_bytes: 1_900,
                    marked: 5,
                    dropped_ect: Reasons {
                        aqm: 1,
                        overload: 2,
                        tail: 3,
                        pool: 4,
                        ring: 5,
                        removed: 6,
                        link: 7,
                    },
                    dropped_not_ect: Reasons::default(),
                    delay: Histogram { le: vec![0.000_05, 0.001], count: vec![10, 18, 19], sum: 0.0125 },
                },
                unclassified: vec![KindCount { kind: "arp".into(), packets: 31 }],
                overload_episodes: 2,
                ..DirectionMetrics::default()
            },
            ports: self.ports(),
            lcores: self.lcores(),
            subscribers: SubscriberCounts { configured: self.records().len() as u64, active: 0 },
            parents: ParentCounts { configured: self.parents().len() as u64, saturated: [4, 5] },
            dpdk: "DPDK 99.01".into(),
            ..MetricsSnapshot::default()
        }
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }
}
