// SPDX-License-Identifier: Apache-2.0
//! Subscriber files: NDJSON, a JSON array, ShapedDevices.csv in its layouts, or chap-secrets, told apart by their content;
//! and the aggregates above them from `network.json`.
//!
//! Invariant: either every record of the file is good and all come back, or none does and every bad line is named.

mod chap;
mod csv;
mod json;
pub mod network;
mod parents;
pub mod rates;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;

pub use parents::Parents;

use crate::keys::KeyIndex;
use crate::problem::{Problem, Problems, RecordError};
use crate::subscriber::{DEFAULT_PROFILE, Subscriber};

/// What a file is, by its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A configuration.
    Config,
    /// Aggregates: `network.json`.
    Network,
    /// Subscribers.
    Subscribers(Format),
}

/// How a subscriber file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A record a line.
    Ndjson,
    /// One array of records.
    JsonArray,
    /// ShapedDevices.csv, any layout.
    ShapedDevices,
    /// `chap-secrets` of accel-ppp.
    ChapSecrets,
}

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Ndjson => "NDJSON",
            Self::JsonArray => "JSON array",
            Self::ShapedDevices => "ShapedDevices.csv",
            Self::ChapSecrets => "chap-secrets",
        })
    }
}

/// What the file does not say itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Profile of rows of ShapedDevices.csv and chap-secrets, which have no such column.
    pub profile: String,
}

impl Default for Options {
    fn default() -> Self {
        Self { profile: DEFAULT_PROFILE.to_owned() }
    }
}

/// A good file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// How it is written.
    pub format: Format,
    /// Its records, in its order.
    pub subscribers: Vec<Subscriber>,
    /// The line each of them begins on.
    pub lines: Vec<usize>,
    /// What of the file was left out, a sentence each.
    pub notes: Vec<String>,
    /// Parent nodes that rows of ShapedDevices.csv name, before [`settle`](Self::settle).
    wishes: Vec<Wish>,
}

/// A node that a row names as the one above it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wish {
    /// Place of the record.
    place: usize,
    line: usize,
    /// Name of the node.
    name: String,
    /// Its id; either may be empty.
    id: String,
}

/// Tells what `text` is. Whatever is no JSON, no table of devices and no list of users is taken for a configuration, whose reader
/// then says what is wrong with it.
pub fn detect(text: &str) -> Content {
    let text = text.trim_start_matches('\u{feff}');
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let first = lines.clone().next().unwrap_or_default();
    if first.starts_with('{') {
        let network = network::looks_like(text);
        return if network { Content::Network } else { Content::Subscribers(Format::Ndjson) };
    }
    if let Some(rest) = first.strip_prefix('[') {
        let next = rest.trim_start().chars().next().or_else(|| lines.clone().nth(1)?.chars().next());
        return if matches!(next, Some('{' | ']')) {
            Content::Subscribers(Format::JsonArray)
        } else {
            Content::Config
        };
    }
    if chap::looks_like(first) {
        return Content::Subscribers(Format::ChapSecrets);
    }
    let comma = first.find(',').unwrap_or(usize::MAX);
    let equals = first.find('=').unwrap_or(usize::MAX);
    if comma < equals { Content::Subscribers(Format::ShapedDevices) } else { Content::Config }
}

/// Reads the subscriber file called `file`.
///
/// # Errors
///
/// Every problem with line and column or field, among them keys that two records claim.
pub fn read(file: &str, bytes: &[u8], options: &Options) -> Result<Imported, Problems> {
    let mut gather = Gather::new(file);
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.trim_start_matches('\u{feff}'),
        Err(error) => {
            let line = 1 + newlines(bytes.get(..error.valid_up_to()));
            gather.fail(line, "", "is not UTF-8 text; save the file as UTF-8");
            return Err(Problems(gather.problems));
        }
    };
    let format = match detect(text) {
        Content::Subscribers(format) => format,
        Content::Config if text.trim().is_empty() => Format::Ndjson,
        Content::Network => {
            gather.fail(
                1,
                "",
                "is a network of parents, not subscribers; it goes with --network beside them",
            );
            return Err(Problems(gather.problems));
        }
        Content::Config => {
            gather.fail(1, "", "is neither NDJSON nor a JSON array nor ShapedDevices.csv nor chap-secrets");
            return Err(Problems(gather.problems));
        }
    };
    match format {
        Format::Ndjson => json::lines(text, &mut gather),
        Format::JsonArray => json::array(text, &mut gather),
        Format::ShapedDevices => csv::rows(text, options, &mut gather),
        Format::ChapSecrets => chap::lines(text, options, &mut gather),
    }
    gather.finish(format)
}

#[expect(clippy::naive_bytecount, reason = "once a file, and the compiler vectorises it")]
fn newlines(bytes: Option<&[u8]>) -> usize {
    bytes.unwrap_or_default().iter().filter(|byte| **byte == b'\n').count()
}

/// Records and problems of a file so far.
struct Gather {
    file: String,
    problems: Vec<Problem>,
    subscribers: Vec<Subscriber>,
    lines: Vec<usize>,
    notes: Vec<String>,
    wishes: Vec<Wish>,
}

impl Gather {
    fn new(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            problems: Vec::new(),
            subscribers: Vec::new(),
            lines: Vec::new(),
            notes: Vec::new(),
            wishes: Vec::new(),
        }
    }

    fn fail(&mut self, line: usize, key: &str, message: impl Into<String>) {
        let problem = Problem { file: self.file.clone(), line, key: key.to_owned(), message: message.into() };
        self.problems.push(problem);
    }

    /// Takes a record of JSON, or its problems.
    fn record(&mut self, line: usize, record: Result<Subscriber, RecordError>) {
        match record {
            Ok(subscriber) => self.keep(line, subscriber),
            Err(error) => error.0.into_iter().for_each(|error| self.fail(line, &error.field, error.message)),
        }
    }

    fn keep(&mut self, line: usize, subscriber: Subscriber) {
        self.subscribers.push(subscriber);
        self.lines.push(line);
    }

    /// Looks at all records together.
    fn finish(mut self, format: Format) -> Result<Imported, Problems> {
        let subscribers = std::mem::take(&mut self.subscribers);
        let mut index = KeyIndex::with_capacity(subscribers.len());
        let mut first: HashMap<&str, usize> = HashMap::with_capacity(subscribers.len());
        for (subscriber, line) in subscribers.iter().zip(self.lines.clone()) {
            if let Some(earlier) = first.get(subscriber.id.as_str()) {
                self.fail(line, "id", format!("\"{}\" is the id of line {earlier} already", subscriber.id));
                continue;
            }
            first.insert(&subscriber.id, line);
            if let Err(conflict) = index.replace(None, Some(subscriber)) {
                let holder = first.get(conflict.holder.as_str()).copied().unwrap_or(0);
                self.fail(line, "match", format!("{conflict} (line {holder})"));
            }
        }
        if self.problems.is_empty() {
            let Self { lines, notes, wishes, .. } = self;
            return Ok(Imported { format, subscribers, lines, notes, wishes });
        }
        self.problems.sort_by_key(|problem| problem.line);
        Err(Problems(self.problems))
    }
}
