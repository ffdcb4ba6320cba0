// SPDX-License-Identifier: Apache-2.0
//! Records for people: a table with rates in the largest unit that is exact, and what matches on one line.

use std::io::Write;

use serde_json::Value;

/// Column heads.
const HEADS: [&str; 5] = ["ID", "DOWN", "UP", "PROFILE", "MATCH"];

/// A list shown page by page.
pub(super) struct List<'a> {
    json: bool,
    out: &'a mut dyn Write,
    /// Records shown so far.
    shown: usize,
    /// Column widths, which only grow.
    widths: [usize; 5],
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

    fn line(&mut self, cells: &[String; 5]) -> anyhow::Result<()> {
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

fn row(record: &Value) -> [String; 5] {
    let text = |name: &str| record.get(name).and_then(Value::as_str).unwrap_or("-").to_owned();
    let bps = |name: &str| record.get(name).and_then(Value::as_u64).map_or_else(|| "-".to_owned(), rate);
    [text("id"), bps("down_bps"), bps("up_bps"), text("profile"), matches(record)]
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

fn matches(record: &Value) -> String {
    let member = |name: &str| record.get("match").and_then(|matches| matches.get(name));
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
