// SPDX-License-Identifier: Apache-2.0
//! The demo's tables: figures in, lines of at most 79 columns out.
//!
//! Percentiles are upper edges of bins, at most 25 % wide up to 100 ms, as the counters keep them. Rates of queues count what the
//! plan counts: each IP packet and `overhead = "ethernet"`.

use super::{Goodput, Line, Part};
use crate::scene::{Span, precise};

/// Bytes that `overhead = "ethernet"` adds to an IP packet.
const OVERHEAD_BYTES: u64 = 38;
const FIFO: &str = "fifo";

/// Announces a part.
pub(super) fn title(aqm: &str) -> String {
    if aqm == FIFO {
        "Part two: the same traffic through a FIFO (one queue, tail drop at the same 250 ms)".to_owned()
    } else {
        "Part one: DualPI2 (L4S packets in a queue of their own, L; all others in C)".to_owned()
    }
}

/// The rate of a span as the plan counts it.
fn rate(span: &Span, seconds: f64) -> f64 {
    if seconds > 0.0 { precise(span.bytes + OVERHEAD_BYTES * span.forwarded) * 8.0 / seconds } else { 0.0 }
}

/// Both queues' rate as the plan counts it.
pub(super) fn counted_bps(line: &Line) -> f64 {
    rate(&line.l4s, line.seconds) + rate(&line.classic, line.seconds)
}

fn ms(us: f64) -> String {
    match us / 1e3 {
        0.0 => "-".to_owned(),
        ms if ms.is_infinite() => "long".to_owned(),
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms => format!("{ms:.1}"),
    }
}

fn mbps(bps: f64) -> String {
    format!("{:.1}", bps / 1e6)
}

/// One block of the live table: the last second.
pub(super) fn live(aqm: &str, second: u64, of: Option<u64>, lines: &[Line]) -> Vec<String> {
    let of = of.map(|all| format!(" of {all}")).unwrap_or_default();
    let mut block = vec![
        format!("{:<40}{:>39}", format!("second {second}{of}, {aqm}"), "queue delay of the last second"),
        format!(
            "{:<12}{:>6}  {:<14}{:>6}{:>11}{:>11}{:>8}{:>8}",
            "subscriber", "plan", "queue", "Mb/s", "p50 ms", "p99 ms", "marks", "drops"
        ),
    ];
    for line in lines {
        let rows: &[(&str, &Span)] = if aqm == FIFO {
            &[("both", &line.classic)]
        } else {
            &[("L  Prague", &line.l4s), ("C  CUBIC", &line.classic)]
        };
        for (index, (queue, span)) in rows.iter().enumerate() {
            let plan = mbps(precise(line.plan_bps));
            let (id, plan) = if index == 0 { (line.id, plan) } else { ("", String::new()) };
            block.push(format!(
                "{id:<12}{plan:>6}  {queue:<14}{:>6}{:>11}{:>11}{:>8}{:>8}",
                mbps(rate(span, line.seconds)),
                ms(span.p50_us),
                ms(span.p99_us),
                span.marked,
                span.dropped_aqm + span.dropped_other,
            ));
        }
    }
    block
}

/// A flow in one part: its goodput and the delay of the queue it was in.
fn cell(part: &Part, index: usize, l4s: bool) -> Option<(f64, Span)> {
    let (line, flows) = (part.lines.get(index)?, part.goodput.get(index)?);
    let Goodput { prague_bps, cubic_bps, .. } = *flows;
    let queue = if l4s && part.aqm != FIFO { line.l4s } else { line.classic };
    Some((if l4s { prague_bps } else { cubic_bps }, queue))
}

/// The closing comparison of both parts, warm-up left out.
pub(super) fn comparison(parts: &[Part]) -> Vec<String> {
    let [first, second] = parts else {
        return Vec::new();
    };
    let mut lines = vec![
        format!("{:<21}{:>28} {:>28}", "", "---- through DualPI2 ----", "---- through a FIFO ----"),
        format!(
            "{:<12}{:<9}{:>8}{:>10}{:>10} {:>8}{:>10}{:>10}",
            "subscriber", "flow", "Mb/s", "p50 ms", "p99 ms", "Mb/s", "p50 ms", "p99 ms"
        ),
    ];
    for (index, line) in first.lines.iter().enumerate() {
        for (flow, l4s) in [("Prague", true), ("CUBIC", false)] {
            let (Some((rate, a)), Some((rate_fifo, b))) = (cell(first, index, l4s), cell(second, index, l4s))
            else {
                continue;
            };
            lines.push(format!(
                "{:<12}{flow:<9}{:>8}{:>10}{:>10} {:>8}{:>10}{:>10}",
                if l4s { line.id } else { "" },
                mbps(rate),
                ms(a.p50_us),
                ms(a.p99_us),
                mbps(rate_fifo),
                ms(b.p50_us),
                ms(b.p99_us),
            ));
        }
    }
    lines.push("Mb/s is goodput, seen by the receivers; delay is the wait in Sluice's queue.".to_owned());
    lines.push(String::new());
    lines.extend(sentence(first, second));
    lines
}

/// The comparison in words, for the subscriber in the middle of the range.
fn sentence(first: &Part, second: &Part) -> Option<String> {
    let (line, fifo) = (first.lines.get(1)?, second.lines.get(1)?);
    Some(format!(
        "{}: 99 of 100 L4S packets wait under {} ms and CUBIC's under {} ms;\n\
         through the FIFO both wait up to {} ms.",
        line.id,
        ms(line.l4s.p99_us),
        ms(line.classic.p99_us),
        ms(fifo.classic.p99_us),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &'static str) -> Line {
        let l4s = Span {
            forwarded: 400,
            bytes: 571_200,
            marked: 31,
            p50_us: 420.0,
            p99_us: 1_260.0,
            ..Span::default()
        };
        let classic = Span {
            forwarded: 400,
            bytes: 600_000,
            dropped_aqm: 2,
            p50_us: 14_800.0,
            p99_us: f64::INFINITY,
            ..Span::default()
        };
        Line { id, plan_bps: 20_000_000, seconds: 1.0, l4s, classic }
    }

    fn part(aqm: &'static str) -> Part {
        let goodput = Goodput { prague_bps: 4e6, cubic_bps: 5e6, ..Goodput::default() };
        Part { aqm, lines: vec![line("dual-stack"), line("plain")], goodput: vec![goodput; 2] }
    }

    #[test]
    fn the_live_table_has_a_row_for_each_queue() {
        let block = live("dualpi2", 3, Some(16), &[line("plain")]);
        assert_eq!(block.len(), 4);
        let words: Vec<&str> = block[2].split_whitespace().collect();
        assert_eq!(words, ["plain", "20.0", "L", "Prague", "4.7", "0.42", "1.26", "31", "0"]);
        let words: Vec<&str> = block[3].split_whitespace().collect();
        assert_eq!(words, ["C", "CUBIC", "4.9", "14.8", "long", "0", "2"]);
    }

    #[test]
    fn a_fifo_has_one_queue_for_both() {
        let block = live("fifo", 3, None, &[line("plain")]);
        assert_eq!(block.len(), 3);
        assert!(block[2].contains("both") && block[0].starts_with("second 3, fifo"), "{block:?}");
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let parts = [part("dualpi2"), part("fifo")];
        let mut lines = comparison(&parts);
        assert_eq!(lines.len(), 9);
        lines.extend(live("dualpi2", 99, Some(99), &parts[0].lines));
        for line in lines.iter().flat_map(|line| line.lines()) {
            assert!(line.chars().count() <= 79, "{line}");
        }
    }
}
