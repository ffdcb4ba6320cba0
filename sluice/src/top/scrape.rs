// SPDX-License-Identifier: Apache-2.0
//! `/metrics` read back: the Prometheus text of one scrape as the figures that a screen needs.
//!
//! Series that are not known here are passed over, so a newer shaper can be looked at too.

use std::collections::BTreeMap;

/// One scrape; counters run since the shaper's start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scrape {
    pub(super) down: Way,
    pub(super) up: Way,
    pub(super) configured: f64,
    pub(super) active: f64,
    /// Aggregates.
    pub(super) parents: f64,
    pub(super) buffers_free: f64,
    pub(super) buffers_used: f64,
    /// How late departures were.
    pub(super) lag: Bins,
}

/// One direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Way {
    pub(super) l4s: Queue,
    pub(super) classic: Queue,
    /// Packets of nobody.
    pub(super) unclassified: f64,
    /// Episodes.
    pub(super) overloads: f64,
    /// Aggregates that are a bottleneck.
    pub(super) slowed: f64,
}

/// All L or all C queues.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Queue {
    pub(super) packets: f64,
    pub(super) bytes: f64,
    pub(super) marked: f64,
    /// By reason.
    pub(super) dropped: BTreeMap<String, f64>,
    pub(super) delay: Bins,
}

/// A cumulative histogram in seconds: upper edge and count of each bin, the last edge infinite.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Bins(pub(super) Vec<(f64, f64)>);

impl Bins {
    /// What came since `before`; `None` if the bins are others or a count fell, as after a restart.
    pub(super) fn since(&self, before: &Self) -> Option<Self> {
        if before.0.is_empty() {
            return Some(self.clone());
        }
        let pairs = self.0.iter().zip(&before.0).map(|((edge, now), (old_edge, old))| {
            let same = edge.total_cmp(old_edge).is_eq();
            (same && now >= old).then_some((*edge, now - old))
        });
        let bins: Option<Vec<_>> = pairs.collect();
        bins.filter(|bins| bins.len() == self.0.len()).map(Self)
    }

    /// The value below which `share` of all values lie, straight within its bin; `None` without values.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let total = self.0.last().map_or(0.0, |(_, count)| *count);
        if total <= 0.0 {
            return None;
        }
        let wanted = share * total;
        let (mut low, mut below) = (0.0, 0.0);
        for (edge, count) in &self.0 {
            if *count >= wanted && *count > below {
                return Some(if edge.is_finite() {
                    low + (edge - low) * (wanted - below) / (count - below)
                } else {
                    low
                });
            }
            if edge.is_finite() {
                (low, below) = (*edge, *count);
            }
        }
        Some(low)
    }
}

impl Scrape {
    /// Reads what `/metrics` answers.
    pub(super) fn parse(text: &str) -> Self {
        let mut scrape = Self::default();
        for series in text.lines().filter_map(Series::parse) {
            scrape.take(&series);
        }
        scrape
    }

    fn take(&mut self, series: &Series<'_>) {
        let value = series.value;
        match (series.name, series.label("state")) {
            ("sluice_subscribers", "configured") => self.configured = value,
            ("sluice_subscribers", "active") => self.active = value,
            ("sluice_parents", _) => self.parents = value,
            ("sluice_buffers", "free") => self.buffers_free = value,
            ("sluice_buffers", "used") => self.buffers_used = value,
            ("sluice_shaper_lag_seconds_bucket", _) => self.lag.push(series),
            _ => {
                let way = match series.label("dir") {
                    "down" => &mut self.down,
                    "up" => &mut self.up,
                    _ => return,
                };
                way.take(series);
            }
        }
    }
}

impl Way {
    fn take(&mut self, series: &Series<'_>) {
        match series.name {
            "sluice_unclassified_packets_total" => self.unclassified += series.value,
            "sluice_overload_episodes_total" => self.overloads += series.value,
            "sluice_parents_saturated" => self.slowed = series.value,
            _ => match series.label("queue") {
                "l4s" => self.l4s.take(series),
                "classic" => self.classic.take(series),
                _ => {}
            },
        }
    }
}

impl Queue {
    fn take(&mut self, series: &Series<'_>) {
        match series.name {
            "sluice_queue_packets_total" if series.label("stage") == "forwarded" => {
                self.packets = series.value;
            }
            "sluice_queue_bytes_total" => self.bytes = series.value,
            "sluice_queue_marked_total" => self.marked = series.value,
            "sluice_queue_dropped_total" => {
                *self.dropped.entry(series.label("reason").to_owned()).or_default() += series.value;
            }
            "sluice_queue_delay_seconds_bucket" => self.delay.push(series),
            _ => {}
        }
    }
}

impl Bins {
    fn push(&mut self, series: &Series<'_>) {
        let edge = match series.label("le") {
            "+Inf" => f64::INFINITY,
            text => text.parse().unwrap_or(f64::INFINITY),
        };
        self.0.push((edge, series.value));
    }
}

/// A line: `name{label="value",...} 1.5`.
struct Series<'t> {
    name: &'t str,
    labels: Vec<(&'t str, &'t str)>,
    value: f64,
}

impl<'t> Series<'t> {
    fn parse(line: &'t str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let (name, rest) = line.split_at(line.find(['{', ' '])?);
        let mut labels = Vec::new();
        let mut rest = rest.strip_prefix('{').unwrap_or(rest);
        while let Some((label, behind)) = rest.split_once("=\"") {
            let end = closing(behind)?;
            labels.push((label.trim_start_matches(','), behind.get(..end)?));
            rest = behind.get(end + 1..)?;
        }
        let value = rest.trim_start_matches('}').split_whitespace().next()?.parse().ok()?;
        Some(Self { name, labels, value })
    }

    /// A label's value; empty where there is none. Those read here are words without escapes.
    fn label(&self, name: &str) -> &'t str {
        self.labels.iter().find(|(label, _)| *label == name).map_or("", |(_, value)| value)
    }
}

/// Where the quote is that ends a label's value.
fn closing(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return Some(at),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = r#"# HELP sluice_subscribers Records.
sluice_subscribers{state="configured"} 12
sluice_subscribers{state="active"} 3
sluice_buffers{state="free"} 900
sluice_buffers{state="used"} 100
sluice_queue_packets_total{dir="down",queue="l4s",stage="arrived"} 99
sluice_queue_packets_total{dir="down",queue="l4s",stage="forwarded"} 90
sluice_queue_bytes_total{dir="down",queue="l4s"} 1e6
sluice_queue_marked_total{dir="up",queue="classic"} 7
sluice_queue_dropped_total{dir="up",queue="classic",ecn="ect",reason="aqm"} 2
sluice_queue_dropped_total{dir="up",queue="classic",ecn="not_ect",reason="aqm"} 3
sluice_queue_delay_seconds_bucket{dir="down",queue="l4s",le="0.001"} 5
sluice_queue_delay_seconds_bucket{dir="down",queue="l4s",le="+Inf"} 6
sluice_queue_delay_seconds_sum{dir="down",queue="l4s"} 0.1
sluice_unclassified_packets_total{dir="down",kind="arp"} 4
sluice_unclassified_packets_total{dir="down",kind="unknown_ipv4"} 5
sluice_overload_episodes_total{dir="up"} 1
sluice_shaper_lag_seconds_bucket{le="1e-05"} 50
sluice_shaper_lag_seconds_bucket{le="+Inf"} 50
sluice_port_bytes_total{port="a \"b\" \\",way="rx"} 1
sluice_of_tomorrow{dir="down"} nonsense
"#;

    #[test]
    fn a_scrape_is_read_back() {
        let scrape = Scrape::parse(TEXT);
        assert_eq!((scrape.configured, scrape.active), (12.0, 3.0));
        assert_eq!((scrape.buffers_free, scrape.buffers_used), (900.0, 100.0));
        assert_eq!((scrape.down.l4s.packets, scrape.down.l4s.bytes), (90.0, 1e6));
        assert!((scrape.up.classic.marked - 7.0).abs() < 1e-9);
        assert_eq!(scrape.up.classic.dropped, BTreeMap::from([("aqm".to_owned(), 5.0)]));
        assert_eq!(scrape.down.l4s.delay.0, [(0.001, 5.0), (f64::INFINITY, 6.0)]);
        assert_eq!((scrape.down.unclassified, scrape.up.overloads), (9.0, 1.0));
        assert_eq!(scrape.lag.quantile(0.5), Some(5e-6));
    }

    #[test]
    fn quantiles_lie_straight_within_their_bin() {
        let bins = Bins(vec![(1.0, 0.0), (2.0, 8.0), (4.0, 10.0), (f64::INFINITY, 10.0)]);
        assert_eq!(bins.quantile(0.4), Some(1.5));
        assert_eq!(bins.quantile(0.9), Some(3.0));
        assert_eq!(bins.quantile(1.0), Some(4.0));
        assert_eq!(Bins::default().quantile(0.5), None);
        let beyond = Bins(vec![(1.0, 1.0), (f64::INFINITY, 10.0)]);
        assert_eq!(beyond.quantile(0.99), Some(1.0), "beyond the last edge nothing is known");
    }

    #[test]
    fn a_restart_of_the_shaper_is_no_negative_count() {
        let old = Bins(vec![(1.0, 5.0), (f64::INFINITY, 9.0)]);
        let new = Bins(vec![(1.0, 6.0), (f64::INFINITY, 12.0)]);
        assert_eq!(new.since(&old), Some(Bins(vec![(1.0, 1.0), (f64::INFINITY, 3.0)])));
        assert_eq!(old.since(&new), None);
        assert_eq!(new.since(&Bins::default()), Some(new.clone()));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "\\PC{0,200}") {
            let _ = Scrape::parse(&text);
            let _ = Scrape::parse(&format!("sluice_buffers{{state=\"{text}\"}} {text}\nsluice_x{text}"));
        }
    }
}
