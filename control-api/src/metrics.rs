// SPDX-License-Identifier: Apache-2.0
//! `/metrics`: a Prometheus collector that asks the data plane at each scrape.
//!
//! Invariant: the number of series depends on ports, lcores and kinds of packets, never on subscribers. Counters
//! are f64 on the wire (exact up to 2^53). Names, labels and units are those of the public interface.

use std::sync::Arc;

use model::stats::{DirectionMetrics, Histogram, MetricsSnapshot, QueueMetrics};
use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Opts, Registry, core::Describer};

use crate::shaper::Shaper;

/// Name, help, type, labels of each family.
const FAMILIES: [(&str, &str, MetricType, &[&str]); 21] = {
    use MetricType::{COUNTER, GAUGE, HISTOGRAM};
    [
        ("sluice_port_packets_total", "Frames through a port.", COUNTER, &["port", "way"]),
        ("sluice_port_bytes_total", "Bytes of these frames.", COUNTER, &["port", "way"]),
        ("sluice_port_drops_total", "Frames lost at a port.", COUNTER, &["port", "reason"]),
        (
            "sluice_queue_packets_total",
            "Packets that came for a queue, were queued, were sent.",
            COUNTER,
            &["dir", "queue", "stage"],
        ),
        ("sluice_queue_bytes_total", "Bytes sent, overhead not counted.", COUNTER, &["dir", "queue"]),
        ("sluice_queue_marked_total", "Packets changed to CE here.", COUNTER, &["dir", "queue"]),
        ("sluice_queue_dropped_total", "Packets dropped.", COUNTER, &["dir", "queue", "reason", "ecn"]),
        (
            "sluice_queue_delay_seconds",
            "From arrival to start of transmission.",
            HISTOGRAM,
            &["dir", "queue"],
        ),
        (
            "sluice_unclassified_packets_total",
            "Packets that belong to no subscriber.",
            COUNTER,
            &["dir", "kind"],
        ),
        ("sluice_subscribers", "Records, and those with a packet queued.", GAUGE, &["state"]),
        ("sluice_parents", "Aggregates above subscribers.", GAUGE, &[]),
        ("sluice_parents_saturated", "Aggregates that are a bottleneck now.", GAUGE, &["dir"]),
        ("sluice_overload_episodes_total", "Times a queue pair went into overload.", COUNTER, &["dir"]),
        ("sluice_pi_update_seconds", "A pass over the PI bank.", HISTOGRAM, &[]),
        ("sluice_lcore_busy_ratio", "Share of loops that found work.", GAUGE, &["lcore", "role"]),
        (
            "sluice_lcore_stalls_total",
            "Times an lcore was not seen for a second.",
            COUNTER,
            &["lcore", "role"],
        ),
        ("sluice_port_clock_speed", "Speed of the clock that subscribers of a port share.", GAUGE, &["port"]),
        ("sluice_shaper_lag_seconds", "How late a departure was.", HISTOGRAM, &[]),
        (
            "sluice_limits_hit_total",
            "Times a limit of the data plane's own was hit; 0 but for control.",
            COUNTER,
            &["limit"],
        ),
        ("sluice_buffers", "Packet buffers.", GAUGE, &["state"]),
        ("sluice_build_info", "Version of Sluice and of DPDK.", GAUGE, &["version", "dpdk"]),
    ]
};

/// A registry with all of a scrape.
pub(crate) fn registry(shaper: Arc<dyn Shaper>) -> Registry {
    let registry = Registry::new();
    let describe = |(name, help, _, labels): &(&str, &str, MetricType, &[&str])| {
        Opts::new(*name, *help)
            .variable_labels(labels.iter().map(|label| (*label).to_owned()).collect())
            .describe()
    };
    let descs: Result<Vec<_>, _> = FAMILIES.iter().map(describe).collect();
    let registered = descs.and_then(|descs| registry.register(Box::new(Scrape { shaper, descs })));
    if let Err(error) = registered {
        tracing::error!(%error, "no metrics");
    }
    registry
}

struct Scrape {
    shaper: Arc<dyn Shaper>,
    descs: Vec<Desc>,
}

impl Collector for Scrape {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = Families::new();
        families.all(&self.shaper.metrics());
        families.0
    }
}

/// The families as they fill.
struct Families(Vec<MetricFamily>);

impl Families {
    fn new() -> Self {
        let empty = |(name, help, kind, _): &(&str, &str, MetricType, &[&str])| {
            let mut family = MetricFamily::default();
            family.set_name((*name).to_owned());
            family.set_help((*help).to_owned());
            family.set_field_type(*kind);
            family
        };
        Self(FAMILIES.iter().map(empty).collect())
    }

    fn all(&mut self, snapshot: &MetricsSnapshot) {
        self.ports(snapshot);
        self.lcores(snapshot);
        self.direction("down", &snapshot.down);
        self.direction("up", &snapshot.up);
        self.histogram("sluice_pi_update_seconds", &[], &snapshot.pi_update);
        self.histogram("sluice_shaper_lag_seconds", &[], &snapshot.shaper_lag);
        for limit in &snapshot.limits {
            self.number("sluice_limits_hit_total", &[&limit.kind], limit.packets);
        }
        let subscribers = &snapshot.subscribers;
        self.number("sluice_subscribers", &["configured"], subscribers.configured);
        self.number("sluice_subscribers", &["active"], subscribers.active);
        self.number("sluice_parents", &[], snapshot.parents.configured);
        for (dir, saturated) in ["down", "up"].into_iter().zip(snapshot.parents.saturated) {
            self.number("sluice_parents_saturated", &[dir], saturated);
        }
        self.number("sluice_buffers", &["free"], snapshot.buffers.free);
        self.number("sluice_buffers", &["used"], snapshot.buffers.used);
        self.number("sluice_build_info", &[env!("CARGO_PKG_VERSION"), &snapshot.dpdk], 1);
    }

    fn ports(&mut self, snapshot: &MetricsSnapshot) {
        for port in &snapshot.ports {
            let name = &*port.name;
            self.number("sluice_port_packets_total", &[name, "rx"], port.rx_packets);
            self.number("sluice_port_packets_total", &[name, "tx"], port.tx_packets);
            self.number("sluice_port_bytes_total", &[name, "rx"], port.rx_bytes);
            self.number("sluice_port_bytes_total", &[name, "tx"], port.tx_bytes);
            self.value("sluice_port_clock_speed", &[name], port.clock_speed);
            for drops in &port.drops {
                self.number("sluice_port_drops_total", &[name, &drops.reason], drops.packets);
            }
        }
    }

    fn lcores(&mut self, snapshot: &MetricsSnapshot) {
        for lcore in &snapshot.lcores {
            let id = lcore.lcore.to_string();
            self.value("sluice_lcore_busy_ratio", &[&id, lcore.role.label()], lcore.busy_ratio);
            self.number("sluice_lcore_stalls_total", &[&id, lcore.role.label()], lcore.stalls);
        }
    }

    fn direction(&mut self, dir: &str, direction: &DirectionMetrics) {
        self.queue(dir, "l4s", &direction.l4s);
        self.queue(dir, "classic", &direction.classic);
        for count in &direction.unclassified {
            self.number("sluice_unclassified_packets_total", &[dir, &count.kind], count.packets);
        }
        self.number("sluice_overload_episodes_total", &[dir], direction.overload_episodes);
    }

    fn queue(&mut self, dir: &str, queue: &str, metrics: &QueueMetrics) {
        let stages = [
            ("arrived", metrics.arrived),
            ("presented", metrics.presented),
            ("forwarded", metrics.forwarded),
        ];
        for (stage, packets) in stages {
            self.number("sluice_queue_packets_total", &[dir, queue, stage], packets);
        }
        self.number("sluice_queue_bytes_total", &[dir, queue], metrics.forwarded_bytes);
        self.number("sluice_queue_marked_total", &[dir, queue], metrics.marked);
        for (ecn, reasons) in [("ect", &metrics.dropped_ect), ("not_ect", &metrics.dropped_not_ect)] {
            for (reason, packets) in reasons.labelled() {
                self.number("sluice_queue_dropped_total", &[dir, queue, reason, ecn], packets);
            }
        }
        self.histogram("sluice_queue_delay_seconds", &[dir, queue], &metrics.delay);
    }

    #[expect(clippy::cast_precision_loss, reason = "Prometheus has f64 only; exact up to 2^53")]
    fn number(&mut self, family: &str, labels: &[&str], value: u64) {
        self.value(family, labels, value as f64);
    }

    fn value(&mut self, family: &str, labels: &[&str], value: f64) {
        self.push(family, labels, |metric, kind| {
            if kind == MetricType::COUNTER {
                let mut counter = proto::Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            } else {
                let mut gauge = proto::Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
        });
    }

    /// The bin of infinity is the encoder's own.
    fn histogram(&mut self, family: &str, labels: &[&str], values: &Histogram) {
        let bucket = |(le, count): (&f64, &u64)| {
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(*le);
            bucket.set_cumulative_count(*count);
            bucket
        };
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(values.le.iter().zip(&values.count).map(bucket).collect());
        histogram.set_sample_count(values.total());
        histogram.set_sample_sum(values.sum);
        self.push(family, labels, |metric, _| metric.set_histogram(histogram));
    }

    fn push(&mut self, name: &str, values: &[&str], fill: impl FnOnce(&mut Metric, MetricType)) {
        let found = FAMILIES.iter().zip(&mut self.0).find(|((family, ..), _)| *family == name);
        let Some(((_, _, kind, labels), family)) = found else {
            debug_assert!(false, "{name} is not in the table");
            return;
        };
        debug_assert_eq!(labels.len(), values.len(), "{name}");
        let pair = |(label, value): (&&str, &&str)| {
            let mut pair = LabelPair::default();
            pair.set_name((*label).to_owned());
            pair.set_value((*value).to_owned());
            pair
        };
        let mut metric = Metric::from_label(labels.iter().zip(values).map(pair).collect());
        fill(&mut metric, *kind);
        family.mut_metric().push(metric);
    }
}
