// SPDX-License-Identifier: Apache-2.0
//! Records for people: a table with rates in the largest unit that is exact, and what matches on one line.

use std::io::Write;

use serde_json::Value;

/// Column heads.
const HEADS: [&str; 6] = ["ID", "DOWN", "UP", "PROFILE", "PARENT", "MATCH"];
/// Columns of a queue's statistics and the members they stand for.
const QUEUE: [(&str, &str); 6] = [
    ("ARRIVED", "arrived"),
    ("FORWARDED", "forwarded"),
    ("BYTES", "forwarded_bytes"),
    ("MARKED", "marked"),
    ("QUEUED", "queued"),
    ("CE BEFORE", "arrived_ce"),
];
const DROPS: [&str; 5] = ["dropped_ect", "dropped_not_ect", "dropped_tail", "dropped_pool", "dropped_other"];

/// A list shown page by page.
pub(super) struct List<'a> {
    json: bool,
    out: &'a mut dyn Write,
    /// Records shown so far.
    shown: usize,
    /// Column widths, which only grow.
    widths: [usize; 6],
}

impl<'a> List<'a> {
    pub(super) fn new(json: bool, out: &'a mut dyn Write) -> Self {
        Self { json, out, shown: 0, widths: HEADS.map(str::len) }
    }

    pub(super) fn page(&mut self, records: &[Value]) -> anyhow::Result<()> {
        if self.json {
            for record in records {
                let before = if self.shown == 0 { "[" } else { "," };
                write!(self.out, "{before}\n{record}")?;
                self.shown += 1;
            }
            return Ok(());
        }
        let rows: Vec<_> = records.iter().map(row).collect();
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        if self.shown == 0 && !rows.is_empty() {
            self.line(&HEADS.map(str::to_owned))?;
        }
        rows.iter().try_for_each(|row| self.line(row))?;
        self.shown += rows.len();
        Ok(())
    }

    pub(super) fn finish(self) -> anyhow::Result<()> {
        match (self.json, self.shown) {
            (true, 0) => writeln!(self.out, "[]")?,
            (true, _) => writeln!(self.out, "\n]")?,
            (false, 0) => writeln!(self.out, "no subscribers")?,
            (false, _) => {}
        }
        Ok(())
    }

    fn line(&mut self, cells: &[String; 6]) -> anyhow::Result<()> {
        let padded = cells.iter().zip(self.widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = padded.collect::<Vec<_>>().join("  ");
        writeln!(self.out, "{}", line.trim_end())?;
        Ok(())
    }
}

/// One record.
pub(super) fn record(record: &Value, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    if json {
        writeln!(out, "{record:#}")?;
        return Ok(());
    }
    for (head, cell) in HEADS.into_iter().zip(row(record)) {
        writeln!(out, "{:8} {cell}", head.to_lowercase())?;
    }
    Ok(())
}

fn row(record: &Value) -> [String; 6] {
    let text = |name: &str| record.get(name).and_then(Value::as_str).unwrap_or("-").to_owned();
    let bps = |name: &str| record.get(name).and_then(Value::as_u64).map_or_else(|| "-".to_owned(), rate);
    let matching = record.get("match").map(matches).unwrap_or_default();
    [text("id"), bps("down_bps"), bps("up_bps"), text("profile"), text("parent"), matching]
}

/// A member of a record as people read it.
pub(super) fn member(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Number(number) if name.ends_with("_bps") => number.as_u64().map_or_else(String::new, rate),
        Value::String(text) => text.clone(),
        Value::Object(_) if name == "match" => matches(value),
        other => other.to_string(),
    }
}

/// Counters of both directions and queues: a row each.
pub(super) fn stats(stats: &Value, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    if json {
        writeln!(out, "{stats:#}")?;
        return Ok(());
    }
    let heads = ["DIR", "QUEUE"].into_iter().chain(QUEUE.map(|(head, _)| head));
    let heads = heads.chain(["DROPPED", "P50", "P99", "MAX"]).map(str::to_owned);
    let mut rows = vec![heads.collect::<Vec<_>>()];
    for (dir, queue) in [("down", "l4s"), ("down", "classic"), ("up", "l4s"), ("up", "classic")] {
        let figures = stats.get(dir).and_then(|way| way.get(queue)).unwrap_or(&Value::Null);
        let count = |name: &str| figures.get(name).and_then(Value::as_u64).unwrap_or(0);
        let delay = |name: &str| {
            let us = figures.get("delay_us").and_then(|delay| delay.get(name)).and_then(Value::as_f64);
            format!("{:.2} ms", us.unwrap_or(0.0) / 1e3)
        };
        let counts = QUEUE.map(|(_, name)| count(name).to_string());
        let dropped = DROPS.map(count).iter().sum::<u64>().to_string();
        let names = [dir.to_owned(), queue.to_owned()].into_iter();
        rows.push(names.chain(counts).chain([dropped, delay("p50"), delay("p99"), delay("max")]).collect());
    }
    let widths: Vec<_> = (0..rows.first().map_or(0, Vec::len))
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(String::len).max().unwrap_or(0))
        .collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  "))?;
    }
    for dir in ["down", "up"] {
        let way = stats.get(dir).unwrap_or(&Value::Null);
        let p_prime = way.get("p_prime").and_then(Value::as_f64).unwrap_or(0.0);
        let overload = way.get("overload").and_then(Value::as_bool) == Some(true);
        writeln!(out, "{dir}: p' {p_prime:.4}{}", if overload { ", overload" } else { "" })?;
    }
    Ok(())
}

/// In the largest unit that needs at most three decimals.
pub(super) fn rate(bps: u64) -> String {
    let units = [(1_000_000_000, "Gb/s"), (1_000_000, "Mb/s"), (1_000, "kb/s")];
    let fitting = units.into_iter().find(|(unit, _)| bps >= *unit && bps.is_multiple_of(unit / 1000));
    let Some((unit, name)) = fitting else {
        return format!("{bps} b/s");
    };
    let (whole, thousandths) = (bps / unit, bps % unit / (unit / 1000));
    let decimals = format!(".{thousandths:03}");
    format!("{whole}{} {name}", decimals.trim_end_matches('0').trim_end_matches('.'))
}

fn matches(matches: &Value) -> String {
    let member = |name: &str| matches.get(name);
    let prefixes = ["ipv4", "ipv6"].into_iter().filter_map(member).filter_map(Value::as_array).flatten();
    let mut parts: Vec<String> = prefixes.filter_map(Value::as_str).map(str::to_owned).collect();
    let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64);
    if let Some(pppoe) = member("pppoe").filter(|pppoe| !pppoe.is_null()) {
        let mac = pppoe.get("mac").and_then(Value::as_str).map(|mac| format!(" {mac}")).unwrap_or_default();
        parts.push(format!("pppoe {}{mac}", number(pppoe, "session").unwrap_or_default()));
    }
    if let Some(vlan) = member("vlan").filter(|vlan| !vlan.is_null()) {
        let inner = number(vlan, "inner").map(|inner| format!(".{inner}")).unwrap_or_default();
        parts.push(format!("vlan {}{inner}", number(vlan, "outer").unwrap_or_default()));
    }
    if let Some(port) = member("port").and_then(Value::as_str) {
        parts.push(format!("port {port}"));
    }
    parts.join(", ")
}
