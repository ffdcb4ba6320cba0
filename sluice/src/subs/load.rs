// SPDX-License-Identifier: Apache-2.0
//! `sluice subs load FILE`: reads a subscriber file in any of its formats and sends it as one bulk request.
//!
//! Invariant: nothing is sent unless the whole file is good, and the shaper then takes all of it or nothing. A
//! replacement that would remove more than half of the records is refused unless it was said to be meant.

use std::io::Write;
use std::process::ExitCode;

use serde_json::Value;

use super::apply::{Manner, Verdict, apply};
use super::client::Client;
use super::diff::{self, Change};
use super::source::SourceArgs;

/// Arguments of `sluice subs load`.
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct LoadArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Only say what would change: each record, old -> new
    #[arg(long)]
    dry_run: bool,
    /// Also remove the subscribers, and with --network the parents, that the files do not name
    #[arg(long)]
    replace: bool,
    /// With --replace: go on though more than half of the subscribers would be removed
    #[arg(long, requires = "replace")]
    force: bool,
    /// With --replace: go on though the file holds no records, which removes all
    #[arg(long, requires = "replace")]
    allow_empty: bool,
}

pub(super) fn run(
    client: &Client,
    args: &LoadArgs,
    json: bool,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let texts = args.source.texts()?;
    let mut source = match args.source.parse(&texts) {
        Ok(source) => source,
        Err(problems) => {
            writeln!(err, "{problems}")?;
            return Ok(ExitCode::FAILURE);
        }
    };
    drop(texts);
    for note in source.notes.drain(..) {
        writeln!(err, "{note}")?;
    }
    let LoadArgs { dry_run, replace, force, allow_empty, .. } = *args;
    let name = source.name.clone();
    match apply(client, &mut source, Manner { replace, dry_run, force, allow_empty }, err)? {
        Verdict::Done { body, parents, changes } => {
            let told = Told { body, parents, changes, dry_run };
            if json {
                told.json(out)?;
            } else {
                told.people(out)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Verdict::Refused { lines, body } => {
            if json && !body.is_null() {
                writeln!(out, "{body:#}")?;
            }
            lines.iter().try_for_each(|line| writeln!(err, "{line}"))?;
            writeln!(err, "{name}: nothing was changed")?;
            Ok(ExitCode::FAILURE)
        }
        Verdict::TooMuch { deleted, present } if source.imported.subscribers.is_empty() => {
            writeln!(
                err,
                "{name} holds no records; --replace would delete all {present} subscribers; \
                 say --allow-empty if that is meant"
            )?;
            debug_assert_eq!(deleted, present);
            Ok(ExitCode::FAILURE)
        }
        Verdict::TooMuch { deleted, present } => {
            writeln!(
                err,
                "{name} would delete {deleted} of {present} subscribers: say --force if that is meant"
            )?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// A load that went well.
struct Told {
    body: Value,
    parents: Option<Value>,
    changes: Vec<Change>,
    dry_run: bool,
}

impl Told {
    fn json(mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        if let Some(parents) = self.parents {
            self.body["parents"] = parents;
        }
        if self.dry_run {
            self.body["changes"] = self.changes.iter().map(Change::json).collect();
        }
        writeln!(out, "{:#}", self.body)?;
        Ok(())
    }

    fn people(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        diff::print(&self.changes, out)?;
        if let Some(parents) = &self.parents {
            writeln!(out, "parents: {}", counts(parents, self.dry_run))?;
        }
        writeln!(out, "{}", counts(&self.body, self.dry_run))?;
        Ok(())
    }
}

/// "1 created, 2 updated, ...".
pub(super) fn counts(body: &Value, dry_run: bool) -> String {
    let count = |name: &str| body.get(name).and_then(Value::as_u64).unwrap_or(0);
    let tense = if dry_run { "would be " } else { "" };
    let counts = ["created", "updated", "deleted", "unchanged"];
    counts.map(|what| format!("{} {tense}{what}", count(what))).join(", ")
}
