// SPDX-License-Identifier: Apache-2.0
//! `sluice subs load FILE`: reads a subscriber file in any of its formats and sends it as one bulk request.
//!
//! Invariant: nothing is sent unless the whole file is good, and the shaper then takes all of it or nothing. A
//! replacement that would remove more than half of the records is refused unless it was said to be meant.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use model::Subscriber;
use model::import::{self, Imported};
use serde_json::Value;

use super::client::{Answer, Client};

/// Arguments of `sluice subs load`.
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct LoadArgs {
    /// NDJSON, a JSON array, or ShapedDevices.csv
    file: PathBuf,
    /// Only say what would change
    #[arg(long)]
    dry_run: bool,
    /// Also remove the subscribers that the file does not name
    #[arg(long)]
    replace: bool,
    /// With --replace: go on though more than half of the subscribers would be removed
    #[arg(long, requires = "replace")]
    force: bool,
    /// With --replace: go on though the file holds no records, which removes all
    #[arg(long, requires = "replace")]
    allow_empty: bool,
    /// Profile of the rows of ShapedDevices.csv
    #[arg(long, value_name = "NAME", default_value = "default")]
    profile: String,
}

pub(super) fn run(
    client: &Client,
    args: LoadArgs,
    json: bool,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let name = args.file.display().to_string();
    let bytes = std::fs::read(&args.file).with_context(|| format!("{name} cannot be read"))?;
    let imported = match import::read(&name, &bytes, &import::Options { profile: args.profile }) {
        Ok(imported) => imported,
        Err(problems) => {
            writeln!(err, "{problems}")?;
            return Ok(ExitCode::FAILURE);
        }
    };
    drop(bytes);
    for note in &imported.notes {
        writeln!(err, "{name}: note: {note}")?;
    }
    let forced = args.force || (args.allow_empty && imported.subscribers.is_empty());
    if args.replace && !args.dry_run && !forced {
        let would = send(client, &imported, true, true)?;
        if !would.status.is_success() {
            return report(&name, &imported, &would, json, true, out, err);
        }
        if let Some(why) = too_much(&name, &imported, &would.body) {
            writeln!(err, "{why}")?;
            return Ok(ExitCode::FAILURE);
        }
    }
    let answer = send(client, &imported, args.replace, args.dry_run)?;
    report(&name, &imported, &answer, json, args.dry_run, out, err)
}

fn send(client: &Client, imported: &Imported, replace: bool, dry_run: bool) -> anyhow::Result<Answer> {
    let mode = if replace { "replace" } else { "upsert" };
    let path = format!("/v1/subscribers/bulk?mode={mode}&dry_run={dry_run}");
    let mut lines = Lines::new(&imported.subscribers);
    let answer = client.bulk(&path, &mut lines)?;
    lines.progress.finish_and_clear();
    Ok(answer)
}

/// Why a replacement with these counts is more likely a mistake than meant.
fn too_much(name: &str, imported: &Imported, would: &Value) -> Option<String> {
    let count = |name: &str| would.get(name).and_then(Value::as_u64).unwrap_or(0);
    let deleted = count("deleted");
    let present = deleted + count("updated") + count("unchanged");
    if deleted == 0 || deleted.saturating_mul(2) <= present {
        return None;
    }
    Some(if imported.subscribers.is_empty() {
        format!(
            "{name} holds no records; --replace would delete all {present} subscribers; say --allow-empty if that is meant"
        )
    } else {
        format!("{name} would delete {deleted} of {present} subscribers: say --force if that is meant")
    })
}

/// Says what changed, or which lines of the file the shaper refuses and why.
fn report(
    name: &str,
    imported: &Imported,
    answer: &Answer,
    json: bool,
    dry_run: bool,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let errors = answer.body.get("errors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if !answer.status.is_success() && errors.is_empty() {
        return Err(answer.refusal());
    }
    if json {
        writeln!(out, "{:#}", answer.body)?;
    }
    for error in errors {
        let sent = error.get("line").and_then(Value::as_u64).and_then(|line| usize::try_from(line).ok());
        let line = sent.and_then(|line| imported.lines.get(line.checked_sub(1)?));
        let why = error.get("error").and_then(Value::as_str).unwrap_or("refused");
        match line {
            Some(line) => writeln!(err, "{name}:{line}: {why}")?,
            None => writeln!(err, "{name}: {why}")?,
        }
    }
    if let Some(more) = answer.body.get("errors_left_out").and_then(Value::as_u64) {
        writeln!(err, "{name}: {more} further lines are refused")?;
    }
    if !errors.is_empty() || !answer.status.is_success() {
        writeln!(err, "{name}: nothing was changed")?;
        return Ok(ExitCode::FAILURE);
    }
    if !json {
        let count = |name: &str| answer.body.get(name).and_then(Value::as_u64).unwrap_or(0);
        let tense = if dry_run { "would be " } else { "" };
        let counts = ["created", "updated", "deleted", "unchanged"];
        let counts = counts.map(|what| format!("{} {tense}{what}", count(what)));
        writeln!(out, "{}", counts.join(", "))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Records as NDJSON, written as they are read.
struct Lines<'a> {
    rest: std::slice::Iter<'a, Subscriber>,
    line: Vec<u8>,
    sent: usize,
    progress: ProgressBar,
}

impl<'a> Lines<'a> {
    fn new(subscribers: &'a [Subscriber]) -> Self {
        // Shown on stderr, and only on a terminal.
        let progress = ProgressBar::new(u64::try_from(subscribers.len()).unwrap_or(u64::MAX));
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} subscribers sent, {elapsed}");
        progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { rest: subscribers.iter(), line: Vec::new(), sent: 0, progress }
    }
}

impl Read for Lines<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            if self.sent == self.line.len() {
                let Some(subscriber) = self.rest.next() else { break };
                self.line = subscriber.to_json().into_bytes();
                self.line.push(b'\n');
                self.sent = 0;
                self.progress.inc(1);
            }
            let mut waiting = self.line.get(self.sent..).unwrap_or_default();
            let taken = waiting.read(buffer.get_mut(filled..).unwrap_or_default())?;
            self.sent += taken;
            filled += taken;
        }
        Ok(filled)
    }
}
