// SPDX-License-Identifier: Apache-2.0
//! Bringing a running shaper to what files say: aggregates, then subscribers in one bulk request.
//!
//! Invariant: all of it or nothing. Subscribers are one request, which the shaper takes whole or refuses; aggregates
//! are put before it, once a trial of it went well, and made as they were if it is refused after all. Those that go
//! are removed last, when nobody stands below them any more.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use model::Subscriber;
use model::import::Parents;
use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::diff::{self, Change};
use super::parents::{self, Plan};
use super::source::Source;

/// How a load is meant.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct Manner {
    /// What the files do not name goes.
    pub(super) replace: bool,
    /// Only look.
    pub(super) dry_run: bool,
    /// Go on though more than half goes.
    pub(super) force: bool,
    /// Go on though the file is empty.
    pub(super) allow_empty: bool,
}

/// What came of it.
pub(super) enum Verdict {
    /// The shaper's counts, or with a dry run what they would be and which records those are.
    Done { body: Value, parents: Option<Value>, changes: Vec<Change> },
    /// Nothing was changed; a line each, and the shaper's answer.
    Refused { lines: Vec<String>, body: Value },
    /// More would go than is likely meant.
    TooMuch { deleted: u64, present: u64 },
}

impl Verdict {
    fn refused(lines: Vec<String>, body: Value) -> Self {
        Self::Refused { lines, body }
    }
}

/// Applies files; notes that depend on the shaper go to `err`.
pub(super) fn apply(
    client: &Client,
    source: &mut Source,
    manner: Manner,
    err: &mut dyn Write,
) -> anyhow::Result<Verdict> {
    let plan = match plan(client, source, manner.replace)? {
        Ok(plan) => plan,
        Err(problems) => return Ok(Verdict::refused(problems, Value::Null)),
    };
    for note in source.imported.notes.drain(..) {
        writeln!(err, "{}: note: {note}", source.name)?;
    }
    let wanted = &source.imported.subscribers;
    if manner.dry_run {
        return trial(client, source, manner, &plan);
    }
    let forced = manner.force || (manner.allow_empty && wanted.is_empty());
    let guarded = manner.replace && !forced;
    if guarded || !plan.is_empty() {
        let would = send(client, wanted, manner.replace, true, &new_ones(&plan))?;
        if !would.status.is_success() {
            return refusal(source, &would);
        }
        if let Some(too_much) = too_much(&would.body).filter(|_| guarded) {
            return Ok(too_much);
        }
    }
    let done = plan.put(client)?;
    let sent = send(client, wanted, manner.replace, false, &HashSet::new());
    if !sent.as_ref().is_ok_and(|answer| answer.status.is_success()) {
        let undone = done.undo();
        let verdict = sent.and_then(|answer| refusal(source, &answer));
        return match (undone, verdict) {
            (Ok(()), verdict) => verdict,
            (Err(left), Err(error)) => Err(error.context(left)),
            (Err(left), Ok(_)) => Err(left),
        };
    }
    let answer = sent?;
    plan.remove(client)?;
    Ok(Verdict::Done { body: answer.body, parents: counts(source, &plan), changes: Vec::new() })
}

/// What becomes of aggregates; or why records cannot stand where they want to.
fn plan(client: &Client, source: &mut Source, replace: bool) -> anyhow::Result<Result<Plan, Vec<String>>> {
    if let Some(network) = &source.network {
        let Some(have) = parents::of_shaper(client)? else {
            bail!("this shaper has no aggregates above subscribers: load without --network");
        };
        return Ok(Ok(Plan::new(&have, network, replace)));
    }
    if source.imported.names_parents() {
        let have = parents::of_shaper(client)?.unwrap_or_default();
        let have: HashSet<_> = have.into_iter().map(|parent| parent.id).collect();
        if let Err(problems) = source.imported.settle(&source.name, Parents::Shaper(&have)) {
            return Ok(Err(problems.to_string().lines().map(str::to_owned).collect()));
        }
    }
    Ok(Ok(Plan::default()))
}

/// Looks only. Aggregates that are not there yet are left out of the trial, or it would be refused for them.
fn trial(client: &Client, source: &Source, manner: Manner, plan: &Plan) -> anyhow::Result<Verdict> {
    let wanted = &source.imported.subscribers;
    let answer = send(client, wanted, manner.replace, true, &new_ones(plan))?;
    if !answer.status.is_success() {
        return refusal(source, &answer);
    }
    let mut changes = diff::parents(plan);
    let aggregates = changes.len();
    changes.extend(diff::subscribers(client, wanted, manner.replace)?);
    let mut body = answer.body;
    if aggregates > 0 {
        recount(&mut body, &changes, wanted.len());
    }
    Ok(Verdict::Done { body, parents: counts(source, plan), changes })
}

/// The shaper's counts of a trial without the new aggregates are not those of the load.
fn recount(body: &mut Value, changes: &[Change], wanted: usize) {
    let [created, updated, deleted] =
        ["created", "updated", "deleted"].map(|what| changes.iter().filter(|change| change.is(what)).count());
    for (name, count) in [("created", created), ("updated", updated), ("deleted", deleted)] {
        body[name] = json!(count);
    }
    body["unchanged"] = json!(wanted.saturating_sub(created + updated));
}

fn counts(source: &Source, plan: &Plan) -> Option<Value> {
    source.network.as_ref()?;
    Some(json!({
        "created": plan.create.len(), "updated": plan.update.len(),
        "deleted": plan.delete.len(), "unchanged": plan.unchanged,
    }))
}

/// Aggregates that the shaper does not have yet.
fn new_ones(plan: &Plan) -> HashSet<&str> {
    plan.create.iter().map(|parent| parent.id.as_str()).collect()
}

/// The lines that the shaper refuses, as they stand in the file.
fn refusal(source: &Source, answer: &Answer) -> anyhow::Result<Verdict> {
    let errors = answer.body.get("errors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if errors.is_empty() {
        return Err(answer.refusal());
    }
    let name = &source.name;
    let each = errors.iter().map(|error| {
        let sent = error.get("line").and_then(Value::as_u64).and_then(|line| usize::try_from(line).ok());
        let line = sent.and_then(|line| source.imported.lines.get(line.checked_sub(1)?));
        let why = error.get("error").and_then(Value::as_str).unwrap_or("refused");
        line.map_or_else(|| format!("{name}: {why}"), |line| format!("{name}:{line}: {why}"))
    });
    let mut lines: Vec<_> = each.collect();
    if let Some(more) = answer.body.get("errors_left_out").and_then(Value::as_u64) {
        lines.push(format!("{name}: {more} further lines are refused"));
    }
    Ok(Verdict::refused(lines, answer.body.clone()))
}

/// A replacement with these counts is more likely a mistake than meant.
fn too_much(would: &Value) -> Option<Verdict> {
    let count = |name: &str| would.get(name).and_then(Value::as_u64).unwrap_or(0);
    let deleted = count("deleted");
    let present = deleted + count("updated") + count("unchanged");
    let many = deleted > 0 && deleted.saturating_mul(2) > present;
    many.then_some(Verdict::TooMuch { deleted, present })
}

fn send(
    client: &Client,
    subscribers: &[Subscriber],
    replace: bool,
    dry_run: bool,
    orphaned: &HashSet<&str>,
) -> anyhow::Result<Answer> {
    let mode = if replace { "replace" } else { "upsert" };
    let path = format!("/v1/subscribers/bulk?mode={mode}&dry_run={dry_run}");
    let mut lines = Lines::new(subscribers, orphaned);
    let answer = client.bulk(&path, &mut lines);
    lines.progress.finish_and_clear();
    let answer = answer?;
    ensure!(answer.status.is_success() || answer.body.get("errors").is_some(), answer.refusal());
    Ok(answer)
}

/// Records as NDJSON, written as they are read.
struct Lines<'a> {
    rest: std::slice::Iter<'a, Subscriber>,
    /// Aggregates not to be named.
    orphaned: &'a HashSet<&'a str>,
    line: Vec<u8>,
    sent: usize,
    progress: ProgressBar,
}

impl<'a> Lines<'a> {
    fn new(subscribers: &'a [Subscriber], orphaned: &'a HashSet<&'a str>) -> Self {
        // Shown on stderr, and only on a terminal.
        let progress = ProgressBar::new(u64::try_from(subscribers.len()).unwrap_or(u64::MAX));
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} subscribers sent, {elapsed} {msg}");
        progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { rest: subscribers.iter(), orphaned, line: Vec::new(), sent: 0, progress }
    }

    fn json(&self, subscriber: &Subscriber) -> String {
        match &subscriber.parent {
            Some(parent) if self.orphaned.contains(parent.as_str()) => {
                Subscriber { parent: None, ..subscriber.clone() }.to_json()
            }
            _ => subscriber.to_json(),
        }
    }
}

impl Read for Lines<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            if self.sent == self.line.len() {
                let Some(subscriber) = self.rest.next() else { break };
                self.line = self.json(subscriber).into_bytes();
                self.line.push(b'\n');
                self.sent = 0;
                self.progress.inc(1);
            }
            let mut waiting = self.line.get(self.sent..).unwrap_or_default();
            let taken = waiting.read(buffer.get_mut(filled..).unwrap_or_default())?;
            self.sent += taken;
            filled += taken;
        }
        if filled == 0 && !buffer.is_empty() {
            // all is sent: the bar goes on to move while the shaper works
            self.progress.set_message("; the shaper applies them");
            self.progress.enable_steady_tick(Duration::from_millis(250));
        }
        Ok(filled)
    }
}
