// SPDX-License-Identifier: Apache-2.0
//! What `sluice replay` says on the terminal, from the report that `--json` writes whole.

use std::fmt::Write as _;

use serde_json::Value;
use wire::Control;

/// Queues shown; `--json` has all.
const MOST: usize = 20;
const HEADS: [&str; 7] = ["SUBSCRIBER", "QUEUE", "OUT", "DROPPED", "MARKED", "P50 ms", "P99 ms"];

/// The summary: totals, packets of nobody, and a line for each queue that had traffic, the busiest first.
pub(super) fn text(report: &Value, direction: &str, configured: usize) -> String {
    let mut text = format!(
        "{} packets in, {} out\n",
        number(report.get("packets_in")),
        number(report.get("packets_out"))
    );
    let [unmatched, control] = nobodys(report);
    if control > 0 {
        // writing to a String does not fail
        let _ = writeln!(text, "{control} control packets (ARP, PPPoE discovery, ..), which are nobody's");
    }
    if unmatched > 0 {
        let none = if configured == 0 {
            ": the configuration names none (records of a running shaper are in its store, not there)"
        } else {
            ""
        };
        // writing to a String does not fail
        let _ = writeln!(text, "{unmatched} packets matched no subscriber{none}");
    }
    let mut queues = Vec::new();
    for (name, stats) in report.get("subscribers").and_then(Value::as_object).into_iter().flatten() {
        add(&mut queues, name, stats.get(direction));
    }
    add(&mut queues, "(unknown)", report.pointer(&format!("/unknown/{direction}")));
    queues.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    table(&mut text, &queues);
    text
}

/// Packets that matched no subscriber, and control packets, which are nobody's by nature.
fn nobodys(report: &Value) -> [u64; 2] {
    let mut sums = [0; 2];
    for (kind, count) in report.get("unclassified").and_then(Value::as_object).into_iter().flatten() {
        let control = kind == "control" || Control::ALL.iter().any(|what| what.label() == kind);
        sums[usize::from(control)] += number(Some(count));
    }
    sums
}

/// Packets that came, and the cells of the line.
type Line = (u64, [String; 7]);

fn add(queues: &mut Vec<Line>, name: &str, stats: Option<&Value>) {
    for (queue, label) in [("l4s", "L"), ("classic", "C")] {
        let Some(stats) = stats.and_then(|stats| stats.get(queue)) else { continue };
        let count = |key: &str| number(stats.get(key));
        let arrived = count("arrived");
        if arrived == 0 {
            continue;
        }
        let reasons = ["dropped_ect", "dropped_not_ect", "dropped_tail", "dropped_pool", "dropped_other"];
        let dropped: u64 = reasons.into_iter().map(count).sum();
        let delay = |key: &str| {
            let us = stats.pointer(&format!("/delay_us/{key}")).and_then(Value::as_f64).unwrap_or(0.0);
            format!("{:.2}", us / 1e3)
        };
        let (out, marked) = (count("forwarded").to_string(), count("marked").to_string());
        let cells = [name.into(), label.into(), out, dropped.to_string(), marked, delay("p50"), delay("p99")];
        queues.push((arrived, cells));
    }
}

fn table(text: &mut String, queues: &[Line]) {
    if queues.is_empty() {
        return;
    }
    let heads = HEADS.map(str::to_owned);
    let shown: Vec<_> =
        std::iter::once(&heads).chain(queues.iter().take(MOST).map(|(_, cells)| cells)).collect();
    let mut widths = [0; 7];
    for cells in &shown {
        for (width, cell) in widths.iter_mut().zip(*cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for cells in shown {
        let padded = cells.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if column < 2 { format!("{cell:width$}") } else { format!("{cell:>width$}") }
        });
        let _ = writeln!(text, "{}", padded.collect::<Vec<_>>().join("  "));
    }
    if let Some(rest) = queues.len().checked_sub(MOST).filter(|rest| *rest > 0) {
        let _ = writeln!(text, "and {rest} queues more: --json has all");
    }
}

fn number(value: Option<&Value>) -> u64 {
    value.and_then(Value::as_u64).unwrap_or(0)
}
