// SPDX-License-Identifier: Apache-2.0
//! `sluice subs watch FILE`: applies a file that scripts rewrite, whenever it changed.
//!
//! Invariant: what reaches the shaper is always a whole file that rested for the settling time, was the same before
//! and after it was read, and parses; all of it or nothing. Whatever else happens to the file (gone, truncated, half
//! written, wrong) or to the shaper (away, refusing) changes nothing, is said once, and the next good state is applied.
//! This file owns the clock; when to read is decided in [`still`].

mod still;

use std::fs::Metadata;
use std::io::Write;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::apply::{Manner, Verdict, apply};
use super::client::{Away, Client};
use super::load::counts;
use super::source::{SourceArgs, Texts};
use still::{Stamp, Step, Still};

/// Arguments of `sluice subs watch`.
#[derive(clap::Args)]
pub(super) struct WatchArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Keep subscribers and parents that the files do not name; else the files are all there is
    #[arg(long)]
    upsert: bool,
    /// Go on though more than half of the subscribers would be removed
    #[arg(long)]
    force: bool,
    /// How long the files must rest before they are read; five times as long where the last line has no end yet
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(20..=60_000))]
    settle_ms: u64,
}

/// Longest sleep, so that signals and changes are seen soon.
const NAP: Duration = Duration::from_millis(100);

pub(super) fn run(
    client: &Client,
    args: &WatchArgs,
    json: bool,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&end)).context("signals cannot be caught")?;
    }
    let mut watch = Watch::new(client, args, Voice::new(json, out, err));
    let begin = now();
    while !end.load(Ordering::Relaxed) {
        watch.look(begin.elapsed())?;
        nap(NAP.min(Duration::from_millis(args.settle_ms) / 2));
    }
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::disallowed_methods, reason = "a watcher lives in real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a watcher lives in real time")]
fn nap(time: Duration) {
    std::thread::sleep(time);
}

/// Where reports go: good news to stdout, the rest to stderr.
pub(super) struct Voice<'a> {
    json: bool,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

impl<'a> Voice<'a> {
    pub(super) fn new(json: bool, out: &'a mut dyn Write, err: &'a mut dyn Write) -> Self {
        Self { json, out, err }
    }

    fn good(&mut self, event: &str, text: &str, more: &Value) -> anyhow::Result<()> {
        if self.json {
            writeln!(self.out, "{}", json!({"event": event, "text": text, "counts": more}))?;
        } else {
            writeln!(self.out, "{text}")?;
        }
        Ok(self.out.flush()?)
    }

    fn bad(&mut self, event: &str, lines: &[String]) -> anyhow::Result<()> {
        if self.json {
            writeln!(self.out, "{}", json!({"event": event, "problems": lines}))?;
            return Ok(self.out.flush()?);
        }
        for line in lines {
            writeln!(self.err, "{line}")?;
        }
        Ok(self.err.flush()?)
    }
}

pub(super) struct Watch<'a> {
    client: &'a Client,
    args: &'a WatchArgs,
    voice: Voice<'a>,
    still: Still,
    /// The shaper is away and that was said.
    away: bool,
    /// A file is gone and that was said.
    gone: bool,
    /// What was left out the last time.
    notes: Vec<String>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(client: &'a Client, args: &'a WatchArgs, voice: Voice<'a>) -> Self {
        let still = Still::new(Duration::from_millis(args.settle_ms));
        Self { client, args, voice, still, away: false, gone: false, notes: Vec::new() }
    }

    fn stamps(&self) -> Option<Vec<Stamp>> {
        let files = [Some(&self.args.source.file), self.args.source.network.as_ref()];
        files.into_iter().flatten().map(|path| stamp(path)).collect()
    }

    /// Once around.
    pub(super) fn look(&mut self, now: Duration) -> anyhow::Result<()> {
        match self.still.look(now, self.stamps()) {
            Step::Wait => Ok(()),
            Step::Gone if self.gone => Ok(()),
            Step::Gone => {
                self.gone = true;
                let text = format!("{} cannot be read; waiting for it", self.names());
                self.voice.bad("gone", &[text])
            }
            Step::Read { long } => {
                self.gone = false;
                self.read(now, long)
            }
        }
    }

    fn names(&self) -> String {
        let source = &self.args.source;
        let tree = source.network.as_ref().map(|path| format!(" or {}", path.display()));
        format!("{}{}", source.file.display(), tree.unwrap_or_default())
    }

    /// Reads what rested; what changed meanwhile rests anew.
    fn read(&mut self, now: Duration, long: bool) -> anyhow::Result<()> {
        let before = self.stamps();
        let texts = self.args.source.texts();
        let Some(texts) = texts.ok().filter(|_| before.is_some() && before == self.stamps()) else {
            self.still.disturbed(now);
            return Ok(());
        };
        if !long && !whole(&texts) {
            self.still.not_yet();
            return Ok(());
        }
        match self.attempt(&texts) {
            Ok(()) => {
                if std::mem::take(&mut self.away) {
                    self.voice.good("back", "the shaper answers again", &Value::Null)?;
                }
                self.still.done();
                Ok(())
            }
            Err(error) if error.is::<Away>() => {
                self.still.again(now);
                if !std::mem::replace(&mut self.away, true) {
                    let text = format!("{error:#}; trying again until it does");
                    self.voice.bad("away", &[text])?;
                }
                Ok(())
            }
            Err(error) => {
                self.still.done();
                let text = format!("{}: not applied: {error:#}", self.args.source.file.display());
                self.voice.bad("refused", &[text])
            }
        }
    }

    /// What was left out is said again only when it is something else.
    fn note(&mut self, of_files: &[String], of_shaper: &str) -> anyhow::Result<()> {
        let notes: Vec<_> = of_files.iter().cloned().chain(of_shaper.lines().map(str::to_owned)).collect();
        if notes == self.notes {
            return Ok(());
        }
        self.notes = notes;
        self.voice.bad("notes", &self.notes)
    }

    /// Parses and applies, and says what came of it. An error is about the shaper.
    fn attempt(&mut self, texts: &Texts) -> anyhow::Result<()> {
        let name = self.args.source.file.display().to_string();
        let kept = format!("{name}: not applied; the shaper keeps what it has");
        let mut source = match self.args.source.parse(texts) {
            Ok(source) => source,
            Err(problems) => {
                let each = problems.0.iter().map(ToString::to_string);
                return self.voice.bad("wrong", &each.chain([kept]).collect::<Vec<_>>());
            }
        };
        let replace = !self.args.upsert;
        let manner = Manner { replace, dry_run: false, force: self.args.force, allow_empty: false };
        let mut notes = Vec::new();
        let verdict = apply(self.client, &mut source, manner, &mut notes)?;
        self.note(&source.notes, &String::from_utf8_lossy(&notes))?;
        match verdict {
            Verdict::Done { body, parents, .. } => {
                let tree = parents.as_ref().map(|parents| format!("; parents: {}", counts(parents, false)));
                let text = format!("{name}: {}{}", counts(&body, false), tree.unwrap_or_default());
                self.voice.good("applied", &text, &json!({"subscribers": body, "parents": parents}))
            }
            Verdict::Refused { mut lines, .. } => {
                lines.push(kept);
                self.voice.bad("refused", &lines)
            }
            Verdict::TooMuch { deleted, present } => {
                let text = format!(
                    "{name}: would delete {deleted} of {present} subscribers, which is seldom meant; \
                     `sluice subs load --replace --force` does it once"
                );
                self.voice.bad("refused", &[text, kept])
            }
        }
    }
}

/// A file as it is now.
fn stamp(path: &Path) -> Option<Stamp> {
    let of = |meta: Metadata| Stamp {
        file: (meta.dev(), meta.ino()),
        size: meta.len(),
        modified: (meta.mtime(), meta.mtime_nsec()),
        changed: (meta.ctime(), meta.ctime_nsec()),
    };
    std::fs::metadata(path).ok().filter(Metadata::is_file).map(of)
}

/// Whether the last line of each has its end, so that a writer was hardly stopped within it.
fn whole(texts: &Texts) -> bool {
    let ends = |bytes: &[u8]| bytes.ends_with(b"\n");
    ends(&texts.subscribers) && texts.network.as_ref().is_none_or(|bytes| ends(bytes))
}
