// SPDX-License-Identifier: Apache-2.0
//! Reads a TOML table key by key, and keeps every problem with the line it stands on.
//!
//! Departure from the house rule of a `deny_unknown_fields` raw struct: serde stops at the first problem, and an
//! operator wants all of them. So each table is a [`Keys`] that remembers what was asked of it; what was never
//! asked is unknown. A bad value is reported and then reads as absent, so that the rest can still be checked.

use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{Problem, suggestion};

/// Where problems gather.
pub(super) struct Report {
    file: String,
    /// Byte offsets at which lines begin.
    lines: Vec<usize>,
    problems: RefCell<Vec<Problem>>,
}

impl Report {
    pub(super) fn new(file: &str, text: &str) -> Self {
        let starts = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(starts).collect();
        Self { file: file.to_owned(), lines, problems: RefCell::default() }
    }

    /// Reports `message` about `key`, which stands at `span`.
    pub(super) fn add(&self, span: &Range<usize>, key: impl Into<String>, message: impl Into<String>) {
        let line = self.lines.partition_point(|start| *start <= span.start);
        let problem = Problem { file: self.file.clone(), line, key: key.into(), message: message.into() };
        self.problems.borrow_mut().push(problem);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.problems.borrow().is_empty()
    }

    /// All problems in the order of the file.
    pub(super) fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| problem.line);
        problems
    }
}

/// One table, perhaps one that the file leaves out.
pub(super) struct Keys<'t> {
    table: Option<&'t DeTable<'t>>,
    /// Where the table stands.
    pub(super) span: Range<usize>,
    /// What leads to it, with a dot at the end unless it is the root.
    pub(super) path: String,
    asked: Vec<&'static str>,
    /// Something else stands in its place, which is a problem enough.
    broken: bool,
    report: &'t Report,
}

impl<'t> Keys<'t> {
    pub(super) fn root(table: &'t Spanned<DeTable<'t>>, report: &'t Report) -> Self {
        Self::new(Some(table.get_ref()), table.span(), String::new(), report)
    }

    fn new(table: Option<&'t DeTable<'t>>, span: Range<usize>, path: String, report: &'t Report) -> Self {
        Self { table, span, path, asked: Vec::new(), broken: false, report }
    }

    /// The value of `key`, which from now on is a known one.
    pub(super) fn get(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.asked.push(key);
        self.table?.get(key)
    }

    /// Whether the file gives `key`; does not make it known.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    /// Reports a problem with `key`, at its line if it is there, else at the table's.
    pub(super) fn fail(&self, key: &str, message: impl Into<String>) {
        let span = self
            .table
            .and_then(|table| table.get_key_value(key))
            .map_or_else(|| self.span.clone(), |(name, _)| name.span());
        self.report.add(&span, format!("{}{key}", self.path), message);
    }

    /// Reports each of `names` that is there: known keys that make no sense beside others.
    pub(super) fn forbid(&mut self, names: &[&'static str], message: &str) {
        for name in names {
            if self.get(name).is_some() {
                self.fail(name, message);
            }
        }
    }

    fn wrong<T>(&self, key: &str, value: &DeValue<'_>, wanted: &str) -> Option<T> {
        self.fail(key, format!("{} is not {wanted}", show(value)));
        None
    }

    pub(super) fn integer(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.get(key)?.get_ref();
        let number = value.as_integer().and_then(|n| u64::from_str_radix(n.as_str(), n.radix()).ok());
        match number {
            Some(number) if range.contains(&number) => Some(number),
            _ => self.wrong(key, value, &format!("an integer from {} to {}", range.start(), range.end())),
        }
    }

    pub(super) fn small<T: TryFrom<u64>>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<T> {
        let number = self.integer(key, range)?;
        T::try_from(number).ok()
    }

    pub(super) fn signed(&mut self, key: &'static str, range: RangeInclusive<i64>) -> Option<i64> {
        let value = self.get(key)?.get_ref();
        let number = value.as_integer().and_then(|n| i64::from_str_radix(n.as_str(), n.radix()).ok());
        match number {
            Some(number) if range.contains(&number) => Some(number),
            _ => self.wrong(key, value, &format!("an integer from {} to {}", range.start(), range.end())),
        }
    }

    pub(super) fn number(&mut self, key: &'static str, range: &RangeInclusive<f64>) -> Option<f64> {
        let value = self.get(key)?.get_ref();
        let number = match value {
            DeValue::Float(float) => float.as_str().parse::<f64>().ok(),
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse::<f64>().ok(),
            _ => None,
        };
        match number {
            Some(number) if range.contains(&number) => Some(number),
            _ => self.wrong(key, value, &format!("a number from {} to {}", range.start(), range.end())),
        }
    }

    pub(super) fn boolean(&mut self, key: &'static str) -> Option<bool> {
        let value = self.get(key)?.get_ref();
        value.as_bool().or_else(|| self.wrong(key, value, "true or false"))
    }

    /// A string that is not empty.
    pub(super) fn text(&mut self, key: &'static str) -> Option<&'t str> {
        let value = self.get(key)?.get_ref();
        match value.as_str() {
            Some(text) if !text.trim().is_empty() => Some(text),
            _ => self.wrong(key, value, "a string with something in it"),
        }
    }

    /// Reports `key` if it is left out.
    pub(super) fn require(&self, key: &str) {
        if !self.has(key) && !self.broken {
            self.fail(key, "is missing");
        }
    }

    /// As [`text`](Self::text), for keys that may not be left out.
    pub(super) fn required(&mut self, key: &'static str) -> Option<&'t str> {
        self.require(key);
        self.text(key)
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let value = self.get(key)?.get_ref();
        let found = value.as_str().and_then(|word| words.iter().find(|(name, _)| *name == word));
        if found.is_none() {
            let names: Vec<_> = words.iter().map(|(name, _)| format!("\"{name}\"")).collect();
            self.fail(key, format!("{} is none of {}", show(value), names.join(", ")));
        }
        found.map(|(_, choice)| *choice)
    }

    /// An array; a single value where one is wanted is a problem.
    pub(super) fn array(&mut self, key: &'static str) -> Option<&'t [Spanned<DeValue<'t>>]> {
        let value = self.get(key)?.get_ref();
        match value.as_array() {
            Some(array) => Some(array),
            None => self.wrong(key, value, "an array"),
        }
    }

    /// Each item of an array of strings.
    pub(super) fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        let array = self.array(key)?;
        let texts = array.iter().filter_map(|item| {
            let text = item.get_ref().as_str().map(str::to_owned);
            text.or_else(|| self.wrong(key, item.get_ref(), "a string"))
        });
        Some(texts.collect())
    }

    /// The table at `key`; an empty one if it is left out.
    pub(super) fn table(&mut self, key: &'static str) -> Keys<'t> {
        let path = format!("{}{key}.", self.path);
        match self.get(key) {
            None => Keys::new(None, self.span.clone(), path, self.report),
            Some(value) => self.keys_of(key, value, path),
        }
    }

    /// The tables of an array of tables.
    pub(super) fn tables(&mut self, key: &'static str) -> Vec<Keys<'t>> {
        let array = self.array(key).unwrap_or_default();
        let paths = (0..).map(|index| format!("{}{key}[{index}].", self.path));
        array.iter().zip(paths).map(|(value, path)| self.keys_of(key, value, path)).collect()
    }

    /// The tables under `key` by name.
    pub(super) fn named_tables(&mut self, key: &'static str) -> Vec<(&'t str, Keys<'t>)> {
        let Some(value) = self.get(key) else {
            return Vec::new();
        };
        let Some(table) = value.get_ref().as_table() else {
            self.fail(key, format!("{} is not a table of tables", show(value.get_ref())));
            return Vec::new();
        };
        let keys = table.iter().map(|(name, value)| {
            let name: &'t str = name.get_ref();
            (name, self.keys_of(key, value, format!("{}{key}.{name}.", self.path)))
        });
        keys.collect()
    }

    fn keys_of(&self, key: &str, value: &'t Spanned<DeValue<'t>>, path: String) -> Keys<'t> {
        let Some(table) = value.get_ref().as_table() else {
            let name = path.trim_end_matches('.');
            let name = if name.is_empty() { key } else { name };
            self.report.add(&value.span(), name, format!("{} is not a table", show(value.get_ref())));
            return Keys { broken: true, ..Keys::new(None, value.span(), path, self.report) };
        };
        Keys::new(Some(table), value.span(), path, self.report)
    }

    /// What to say of a key that nothing asked for: the one that was meant, or else all there are.
    fn unknown(&self, name: &str) -> String {
        let tc = TC_SPELLINGS.iter().find(|(spelling, key)| *spelling == name && self.asked.contains(key));
        let meant = tc.map(|(_, key)| *key).or_else(|| suggestion(name, self.asked.iter().copied()));
        if let Some(known) = meant {
            return format!("unknown key; did you mean \"{known}\"?");
        }
        let mut known = self.asked.clone();
        known.sort_unstable();
        known.dedup();
        format!("unknown key; the keys here are {}", known.join(", "))
    }

    /// Reports every key that was never asked for.
    pub(super) fn finish(self) {
        for (name, _) in self.table.into_iter().flatten() {
            if self.asked.contains(&name.get_ref().as_ref()) {
                continue;
            }
            let message = self.unknown(name.get_ref());
            self.report.add(&name.span(), format!("{}{}", self.path, name.get_ref()), message);
        }
    }
}

/// Keys of tc-dualpi2, and of its netlink attributes, that have a unit or another name here.
const TC_SPELLINGS: [(&str, &str); 11] = [
    ("target", "target_us"),
    ("tupdate", "tupdate_us"),
    ("alpha", "alpha_hz"),
    ("beta", "beta_hz"),
    ("limit", "limit_packets"),
    ("step_thresh", "step_us"),
    ("step_thresh_us", "step_us"),
    ("coupling_factor", "coupling"),
    ("classic_protection", "classic_protection_percent"),
    ("typical_rtt", "typical_rtt_us"),
    ("max_rtt", "max_rtt_us"),
];

/// A value as a message shows it, cut where it is long.
pub(super) fn show(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("\"{}\"", text.chars().take(60).collect::<String>()),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
