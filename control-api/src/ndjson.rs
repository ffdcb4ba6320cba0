// SPDX-License-Identifier: Apache-2.0
//! NDJSON bodies: one record a line, parsed as they come.
//!
//! Invariant: of the text at most one line and one piece of the body is held.

use model::Subscriber;
use model::problem::RecordError;

use crate::bulk::{Errors, LineError};
use crate::problem::Problem;
use crate::request::Pieces;
use crate::rules::Rules;

/// The lines read so far.
pub(crate) struct Lines<'a> {
    rules: &'a Rules,
    longest: usize,
    number: u64,
    part: Vec<u8>,
    /// The line at hand is too long: it is reported once, and the rest of it skipped.
    overlong: bool,
    good: Vec<(u64, Subscriber)>,
    errors: Errors,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(rules: &'a Rules, longest: usize, errors_listed: usize) -> Self {
        Self {
            rules,
            longest,
            number: 1,
            part: Vec::new(),
            overlong: false,
            good: Vec::new(),
            errors: Errors::new(errors_listed),
        }
    }

    /// Reads the body to its end.
    pub(crate) async fn read(
        mut self,
        mut body: Pieces,
    ) -> Result<(Vec<(u64, Subscriber)>, Errors), Problem> {
        while let Some(piece) = body.next().await? {
            self.feed(&piece);
            // Parsing a piece takes about a millisecond: let others have the thread in between.
            tokio::task::yield_now().await;
        }
        self.end_line();
        Ok((self.good, self.errors))
    }

    fn feed(&mut self, piece: &[u8]) {
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            self.take(line);
            self.end_line();
            rest = after.get(1..).unwrap_or_default();
        }
        self.take(rest);
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.overlong {
            return;
        }
        if self.part.len() + bytes.len() > self.longest {
            self.overlong = true;
            self.part.clear();
            self.fail(LineError {
                line: self.number,
                error: format!("the line is longer than {} bytes", self.longest),
                field: None,
                id: None,
            });
        } else {
            self.part.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self) {
        let mut part = std::mem::take(&mut self.part);
        let text = part.trim_ascii();
        if !text.is_empty() {
            match Subscriber::from_json(text)
                .and_then(|subscriber| self.rules.check(&subscriber).map(|()| subscriber))
            {
                Ok(subscriber) => self.good.push((self.number, subscriber)),
                Err(error) => self.fail(describe(self.number, text, &error)),
            }
        }
        part.clear();
        self.part = part;
        self.overlong = false;
        self.number += 1;
    }

    fn fail(&mut self, error: LineError) {
        self.errors.push(error);
    }
}

fn describe(line: u64, text: &[u8], error: &RecordError) -> LineError {
    let value: Option<serde_json::Value> = serde_json::from_slice(text).ok();
    LineError {
        line,
        error: error.to_string(),
        field: error.0.first().map(|error| error.field.clone()).filter(|field| !field.is_empty()),
        id: value.and_then(|value| Some(value.get("id")?.as_str()?.to_owned())),
    }
}
