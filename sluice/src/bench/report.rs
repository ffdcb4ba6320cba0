// SPDX-License-Identifier: Apache-2.0
//! Figures of a benchmark: medians, as JSON for programs and as text for people.

use std::collections::BTreeMap;

use dataplane::bench::{Options, Report, Sizes, Window, stages};
use serde::Serialize;

/// What `--json` holds: medians over the windows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Figures {
    subscribers: u32,
    held_ms: f64,
    /// Levels of aggregates.
    parents: usize,
    /// Of IMIX the mean.
    packet_bytes: u32,
    mpps: f64,
    /// What each lcore sent in its own busy time, added up.
    whole_mpps: f64,
    ns_per_packet: f64,
    /// Without rx, parse and tx.
    engine_ns_per_packet: f64,
    stages_ns: BTreeMap<&'static str, f64>,
    bytes_per_subscriber: f64,
    pi_pass_us: f64,
    /// Busy ns by window: least and most.
    ns_per_packet_least: f64,
    ns_per_packet_most: f64,
    /// Of held traffic: what the rates added up to, and the mean wait.
    held_mpps: f64,
    held_ms_measured: f64,
    busy_percent: f64,
    /// Time that others took from the path.
    lost_percent: f64,
    dropped: u64,
    huge_pages: bool,
}

impl Figures {
    pub(super) fn new(options: &Options, held_ms: f64, report: &Report) -> Self {
        let of = |figure: fn(&Window) -> f64| rounded(median(report.windows.iter().map(figure)));
        let engine = report.windows.iter().map(|window| {
            let parts = window.stages.iter().zip(stages());
            parts.filter(|(_, (_, is_engine))| *is_engine).map(|(ns, _)| ns).sum()
        });
        let stage =
            |at: usize| median(report.windows.iter().filter_map(|window| window.stages.get(at).copied()));
        Self {
            subscribers: options.subscribers,
            held_ms,
            parents: options.parents,
            packet_bytes: options.sizes.mean(),
            mpps: of(|window| window.mpps),
            whole_mpps: of(|window| window.whole_mpps),
            ns_per_packet: of(|window| window.ns_per_packet),
            engine_ns_per_packet: rounded(median(engine)),
            stages_ns: stages().enumerate().map(|(at, (name, _))| (name, rounded(stage(at)))).collect(),
            bytes_per_subscriber: report.bytes_per_subscriber.round(),
            pi_pass_us: rounded(median(report.passes_us.iter().copied())),
            ns_per_packet_least: rounded(busy_ns(report).fold(f64::MAX, f64::min)),
            ns_per_packet_most: rounded(busy_ns(report).fold(0.0, f64::max)),
            held_mpps: report.held_pps / 1e6,
            held_ms_measured: rounded(report.held_us / 1e3),
            busy_percent: rounded(100.0 * median(report.windows.iter().map(|window| window.busy))),
            lost_percent: rounded(100.0 * median(report.windows.iter().map(|window| window.lost))),
            dropped: report.books.dropped.iter().sum::<u64>() + report.books.unmatched,
            huge_pages: report.huge,
        }
    }

    pub(super) fn ns_per_packet(&self) -> f64 {
        self.ns_per_packet
    }

    pub(super) fn engine_ns_per_packet(&self) -> f64 {
        self.engine_ns_per_packet
    }
}

fn busy_ns(report: &Report) -> impl Iterator<Item = f64> {
    report.windows.iter().map(|window| window.ns_per_packet)
}

/// The middle value, or the mean of the two in the middle; 0 of none.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
    let lower = sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
    f64::midpoint(lower, upper)
}

/// To hundredths: more would be noise.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[expect(clippy::print_stdout, reason = "this command's output")]
pub(super) fn print(options: &Options, figures: &Figures, report: &Report) {
    for line in lines(options, figures, report) {
        println!("{line}");
    }
}

fn lines(options: &Options, figures: &Figures, report: &Report) -> Vec<String> {
    let frames = match options.sizes {
        Sizes::Fixed(bytes) => format!("{bytes}-byte frames"),
        Sizes::Imix => format!("IMIX (mean {} bytes)", options.sizes.mean()),
    };
    let kind = if options.held_us == 0 {
        "conforming, subscribers at random".to_owned()
    } else {
        format!(
            "held {} ms (measured: mean {:.2} ms), subscribers in turn",
            figures.held_ms,
            report.held_us / 1e3
        )
    };
    let above = match options.parents {
        0 => String::new(),
        levels => format!(" below {levels} levels of aggregates"),
    };
    let spread = |figure: fn(&Window) -> f64| {
        let values = report.windows.iter().map(figure);
        let (least, most) = values.fold((f64::MAX, 0.0_f64), |(a, b), value| (a.min(value), b.max(value)));
        format!("{least:.2} to {most:.2}")
    };
    let part = |figure: fn(&Window) -> f64| 100.0 * median(report.windows.iter().map(figure));
    let stages: Vec<String> = stages()
        .map(|(name, _)| format!("{name} {:.1}", figures.stages_ns.get(name).unwrap_or(&0.0)))
        .collect();
    let mut lines = vec![
        format!("{} subscribers{above}, {frames}, {kind}", options.subscribers),
        format!(
            "  {:.2} Mpps ({}), by busy time {:.2} ({})",
            figures.mpps,
            spread(|window| window.mpps),
            figures.whole_mpps,
            spread(|window| window.whole_mpps)
        ),
        format!(
            "  {:.1} ns a packet ({}), of it engine {:.1}",
            figures.ns_per_packet,
            spread(|window| window.ns_per_packet),
            figures.engine_ns_per_packet
        ),
        format!(
            "  stages, ns a packet: {} (sum {:.1})",
            stages.join(", "),
            figures.stages_ns.values().sum::<f64>()
        ),
        format!(
            "  lcore busy {:.0} %, {:.1} % of the time lost to interruptions, clock speed {:.2}, marked {:.1} %",
            part(|window| window.busy),
            part(|window| window.lost),
            report.clock_speed,
            100.0 * report.marked
        ),
        format!(
            "  {:.0} bytes a subscriber, PI pass {:.1} us (median of {})",
            figures.bytes_per_subscriber,
            figures.pi_pass_us,
            report.passes_us.len()
        ),
        format!("  {}", report.books),
    ];
    if !report.huge {
        lines.push("  too few free huge pages: packet buffers on 4 KiB pages, slower".to_owned());
    }
    if options.shards > 0 {
        lines.retain(|line| !line.starts_with("  stages"));
        lines.push(format!(
            "  {} shards, each with its generator on its own CPU, which feeds {}: ns hold both",
            options.shards,
            if options.crossing { "all of them" } else { "that shard" }
        ));
    }
    if options.cpus.0 == options.cpus.1 {
        lines.push("  one CPU: generator and path take turns on it, the rate says little".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dataplane::bench::Books;

    use super::*;

    fn report() -> Report {
        let window = |ns: f64| Window {
            mpps: 1e3 / ns,
            whole_mpps: 1e3 / ns,
            ns_per_packet: ns,
            busy: 1.0,
            lost: 0.0,
            stages: vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, ns],
        };
        Report {
            windows: [200.0, 100.0, 400.0].map(window).to_vec(),
            passes_us: vec![3.0, 1.0, 2.0, 100.0],
            bytes_per_subscriber: 511.6,
            held_us: 2_100.0,
            held_pps: 5e6,
            clock_speed: 1.0,
            marked: 0.0,
            huge: true,
            books: Books::default(),
        }
    }

    fn options() -> Options {
        Options { held_us: 2_000, ..Options::new(1_000, Duration::from_secs(1), (0, 1)) }
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middles() {
        assert!((median([3.0, 1.0, 2.0].into_iter()) - 2.0).abs() < 1e-12);
        assert!((median([4.0, 1.0, 3.0, 2.0].into_iter()) - 2.5).abs() < 1e-12);
        assert!(median(std::iter::empty()).abs() < 1e-12);
    }

    #[test]
    fn the_json_has_the_keys_of_the_contract_and_medians() {
        let figures = serde_json::to_value(Figures::new(&options(), 2.0, &report())).unwrap();
        let keys: Vec<&str> = figures.as_object().unwrap().keys().map(String::as_str).collect();
        let wanted = [
            "subscribers",
            "held_ms",
            "parents",
            "packet_bytes",
            "mpps",
            "ns_per_packet",
            "engine_ns_per_packet",
            "stages_ns",
            "bytes_per_subscriber",
            "pi_pass_us",
        ];
        assert!(wanted.iter().all(|key| keys.contains(key)), "{keys:?}");
        assert_eq!(
            (&figures["ns_per_packet_least"], &figures["ns_per_packet_most"]),
            (&100.0.into(), &400.0.into())
        );
        assert_eq!(figures["ns_per_packet"], 200.0);
        assert_eq!(figures["mpps"], 5.0);
        assert_eq!(figures["pi_pass_us"], 2.5);
        // classify, ring, enqueue, dequeue and other
        assert_eq!(figures["engine_ns_per_packet"], 4.0 + 8.0 + 16.0 + 32.0 + 200.0);
        assert_eq!(figures["stages_ns"]["tx"], 64.0);
    }
}
