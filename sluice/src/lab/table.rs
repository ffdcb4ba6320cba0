// SPDX-License-Identifier: Apache-2.0
//! Results as tables on a terminal.

use std::fmt::Write as _;

use ::lab::{FlowOutcome, GroupOutcome, Outcome, QueueOutcome};

/// Rows under a header, columns as wide as they need to be: the first to the left, numbers to the right.
fn columns(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.chain([header[at].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let mut out = String::new();
        for (at, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            // Writing to a string cannot fail.
            let _ = if at == 0 { write!(out, "{cell:<width$}") } else { write!(out, "  {cell:>width$}") };
        }
        out.trim_end().to_owned() + "\n"
    };
    let mut out = line(header.to_vec());
    for row in rows {
        out += &line(row.iter().map(String::as_str).collect());
    }
    out
}

fn percent(ratio: f64) -> String {
    format!("{:.2}", ratio * 100.0)
}

fn mbit(bps: f64) -> String {
    format!("{:.3}", bps / 1e6)
}

/// One run.
pub(super) fn outcome(outcome: &Outcome) -> String {
    let mut out =
        format!("{}, seed {}: link used {} %\n\n", outcome.name, outcome.seed, percent(outcome.utilisation));
    let queue = |name: &str, queue: &QueueOutcome| {
        let d = &queue.delay_ms;
        let mut row = vec![name.to_owned(), queue.packets.to_string()];
        row.extend([queue.marked_ratio, queue.dropped_ratio].map(percent));
        row.extend([d.mean, d.p50, d.p99, d.max].map(|ms| format!("{ms:.3}")));
        row
    };
    out += &columns(
        &["queue", "packets", "marked %", "dropped %", "mean ms", "p50 ms", "p99 ms", "max ms"],
        &[queue("L", &outcome.queues.l4s), queue("C", &outcome.queues.classic)],
    );
    let flows: Vec<_> = outcome.groups.iter().map(|group| group_row(outcome, group)).collect();
    if !flows.is_empty() {
        out += "\n";
        out += &columns(&["flows", "count", "Mb/s each", "Jain", "marked %", "dropped %", "RTT ms"], &flows);
    }
    let webs = outcome.web.iter().map(|web| {
        let times = [web.completion_ms.p50, web.completion_ms.p99].map(|ms| format!("{ms:.1}"));
        [vec![format!("short {}", web.cc), web.completed.to_string()], times.to_vec()].concat()
    });
    let webs: Vec<_> = webs.collect();
    if !webs.is_empty() {
        out += "\n";
        out += &columns(&["short flows", "completed", "p50 ms", "p99 ms"], &webs);
    }
    out
}

fn group_row(outcome: &Outcome, group: &GroupOutcome) -> Vec<String> {
    let members: Vec<_> = outcome.flows.iter().filter(|flow| flow.label == group.label).collect();
    let mean = |pick: fn(&FlowOutcome) -> f64| {
        members.iter().map(|flow| pick(flow)).sum::<f64>() / f64::from(group.count.max(1))
    };
    vec![
        group.label.clone(),
        group.count.to_string(),
        mbit(group.rate_bps_mean),
        format!("{:.3}", group.jain),
        percent(mean(|flow| flow.marked_ratio)),
        percent(mean(|flow| flow.dropped_ratio)),
        format!("{:.2}", mean(|flow| flow.rtt_ms)),
    ]
}

/// One row an AQM, means over its runs; a column of rates for each label.
pub(super) fn comparison(name: &str, rows: &[(&String, &[Outcome])]) -> String {
    let labels: Vec<&str> = rows
        .first()
        .and_then(|(_, runs)| runs.first())
        .map(|outcome| outcome.groups.iter().map(|group| group.label.as_str()).collect())
        .unwrap_or_default();
    let rates: Vec<String> = labels.iter().map(|label| format!("{label} Mb/s")).collect();
    let mut header = vec!["AQM", "used %"];
    header.extend(rates.iter().map(String::as_str));
    header.extend([
        "L mean ms",
        "L p99 ms",
        "L marked %",
        "C mean ms",
        "C p99 ms",
        "C marked %",
        "C dropped %",
    ]);
    let cells: Vec<_> = rows.iter().map(|(aqm, runs)| comparison_row(aqm, runs, labels.len())).collect();
    let seeds = rows.first().map_or(0, |(_, runs)| runs.len());
    let plural = if seeds == 1 { "" } else { "s" };
    format!(
        "{name}, {seeds} seed{plural}; an AQM without an L queue has all in C\n\n{}",
        columns(&header, &cells)
    )
}

fn comparison_row(aqm: &str, runs: &[Outcome], labels: usize) -> Vec<String> {
    let mean = |pick: &dyn Fn(&Outcome) -> f64| {
        let count = u32::try_from(runs.len().max(1)).unwrap_or(u32::MAX);
        runs.iter().map(pick).sum::<f64>() / f64::from(count)
    };
    let mut row = vec![aqm.to_owned(), percent(mean(&|run| run.utilisation))];
    row.extend(
        (0..labels).map(|at| mbit(mean(&|run| run.groups.get(at).map_or(0.0, |group| group.rate_bps_mean)))),
    );
    let ms = |pick: &dyn Fn(&Outcome) -> f64| format!("{:.3}", mean(pick));
    row.push(ms(&|run| run.queues.l4s.delay_ms.mean));
    row.push(ms(&|run| run.queues.l4s.delay_ms.p99));
    row.push(percent(mean(&|run| run.queues.l4s.marked_ratio)));
    row.push(ms(&|run| run.queues.classic.delay_ms.mean));
    row.push(ms(&|run| run.queues.classic.delay_ms.p99));
    row.push(percent(mean(&|run| run.queues.classic.marked_ratio)));
    row.push(percent(mean(&|run| run.queues.classic.dropped_ratio)));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["long name".to_owned(), "12345".to_owned()]];
        assert_eq!(columns(&["x", "n"], &rows), "x              n\na              1\nlong name  12345\n");
    }
}
