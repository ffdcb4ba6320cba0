// SPDX-License-Identifier: Apache-2.0
//! What is wrong with a file or a record: every problem with its place, none hidden behind the first.

use std::fmt;

/// One problem of a file. Shown as `file:line: key: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as the caller named it.
    pub file: String,
    /// Line, from 1; 0 where the whole file is meant.
    pub line: usize,
    /// The key or column; empty where there is none.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:", self.file)?;
        if self.line > 0 {
            write!(out, "{}:", self.line)?;
        }
        if !self.key.is_empty() {
            write!(out, " {}:", self.key)?;
        }
        write!(out, " {}", self.message)
    }
}

/// All problems of a file, in the order of its lines; never empty as an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// A file that cannot be read at all.
    pub fn unreadable(file: &str, error: &std::io::Error) -> Self {
        let message = format!("cannot be read: {error}");
        Self(vec![Problem { file: file.to_owned(), line: 0, key: String::new(), message }])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let end_of_previous = if index == 0 { "" } else { "\n" };
            write!(out, "{end_of_previous}{problem}")?;
        }
        Ok(())
    }
}

/// One problem of a record: the field as a path (`match.ipv4[0]`), and what is wrong with its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FieldError {
    /// Path of the field; empty where the whole record is meant.
    pub field: String,
    /// What is wrong, with the value.
    pub message: String,
}

impl FieldError {
    /// Puts the two together.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.field.is_empty() { "" } else { ": " };
        write!(out, "{}{colon}{}", self.field, self.message)
    }
}

/// All problems of a record; never empty as an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct RecordError(pub Vec<FieldError>);

impl fmt::Display for RecordError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let end_of_previous = if index == 0 { "" } else { "; " };
            write!(out, "{end_of_previous}{error}")?;
        }
        Ok(())
    }
}

/// The closest of `known` to `word`, if it is close enough to be a slip of the keyboard.
pub(crate) fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.len() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance in bytes.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = i;
        let mut beside = i + 1;
        if let Some(first) = row.first_mut() {
            *first = beside;
        }
        for (b, cell) in right.bytes().zip(row.iter_mut().skip(1)) {
            let replaced = diagonal + usize::from(a != b);
            diagonal = *cell;
            beside = replaced.min(diagonal + 1).min(beside + 1);
            *cell = beside;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_shows_only_the_places_it_has() {
        let mut problem = Problem { file: "a".into(), line: 3, key: "k".into(), message: "m".into() };
        assert_eq!(problem.to_string(), "a:3: k: m");
        problem.key.clear();
        assert_eq!(problem.to_string(), "a:3: m");
        problem.line = 0;
        assert_eq!(Problems(vec![problem.clone(), problem]).to_string(), "a: m\na: m");
    }

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        assert_eq!(suggestion("taget_us", ["target_us", "tupdate_us"]), Some("target_us"));
        assert_eq!(suggestion("colour", ["target_us", "tupdate_us"]), None);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
