// SPDX-License-Identifier: Apache-2.0
//! `[[subscriber]]`: records in TOML, checked by the same code as those in JSON, each problem at its line.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;
use toml::Spanned;
use toml::de::DeValue;

use super::reader::{Keys, Report};
use super::{Port, Role};
use crate::keys::KeyIndex;
use crate::parent::Forest;
use crate::problem::RecordError;
use crate::profile::Profile;
use crate::subscriber::Subscriber;

/// Reads all records; those with problems are left out.
pub(super) fn read(
    keys: &mut Keys<'_>,
    report: &Report,
    profiles: &BTreeMap<String, Profile>,
    ports: &[Port],
    forest: &Forest,
) -> Vec<Subscriber> {
    let mut subscribers = Vec::new();
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    let mut index = KeyIndex::default();
    for (place, item) in keys.array("subscriber").unwrap_or_default().iter().enumerate() {
        let at = Place { report, path: format!("subscriber[{place}]"), item };
        let subscriber = match Subscriber::from_value(&to_json(item.get_ref())) {
            Ok(subscriber) => subscriber,
            Err(error) => {
                at.fail_all(error);
                continue;
            }
        };
        at.check_names(&subscriber, profiles, ports, forest);
        if let Some(first) = lines.insert(subscriber.id.clone(), place) {
            at.fail("id", format!("\"{}\" is the id of subscriber[{first}] already", subscriber.id));
            continue;
        }
        if let Err(conflict) = index.replace(None, Some(&subscriber)) {
            at.fail("match", conflict.to_string());
        }
        subscribers.push(subscriber);
    }
    subscribers
}

/// One record in the file.
pub(super) struct Place<'t> {
    pub(super) report: &'t Report,
    pub(super) path: String,
    pub(super) item: &'t Spanned<DeValue<'t>>,
}

impl Place<'_> {
    fn check_names(
        &self,
        subscriber: &Subscriber,
        profiles: &BTreeMap<String, Profile>,
        ports: &[Port],
        forest: &Forest,
    ) {
        if !profiles.contains_key(&subscriber.profile) {
            self.fail("profile", format!("there is no profile \"{}\"", subscriber.profile));
        }
        if let Some(parent) = subscriber.parent.as_ref().filter(|parent| !forest.contains(parent)) {
            self.fail("parent", format!("there is no parent \"{parent}\""));
        }
        let Some(name) = &subscriber.matches.port else {
            return;
        };
        if !ports.iter().any(|port| port.name == *name && port.role == Role::Access) {
            self.fail("match.port", format!("there is no access port \"{name}\""));
        }
    }

    /// All that is wrong with the record in itself.
    pub(super) fn fail_all(&self, error: RecordError) {
        error.0.into_iter().for_each(|error| self.fail(&error.field, error.message));
    }

    pub(super) fn fail(&self, field: &str, message: impl Into<String>) {
        let dot = if field.is_empty() { "" } else { "." };
        self.report.add(&self.span_of(field), format!("{}{dot}{field}", self.path), message);
    }

    /// Where a field stands; a missing one, where what should hold it does.
    fn span_of(&self, field: &str) -> Range<usize> {
        let mut value = self.item;
        let mut span = value.span();
        for step in field.split(['.', '[']).filter(|step| !step.is_empty()) {
            let next = match (value.get_ref(), step.strip_suffix(']')) {
                (DeValue::Array(items), Some(index)) => index
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| items.get(index))
                    .map(|item| (item.span(), item)),
                (DeValue::Table(table), _) => {
                    table.get_key_value(step).map(|(name, value)| (name.span(), value))
                }
                _ => None,
            };
            let Some((place, inner)) = next else { break };
            (span, value) = (place, inner);
        }
        span
    }
}

/// The same value in JSON. Numbers JSON cannot hold become text, which the record then refuses by name.
pub(super) fn to_json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(number) => {
            let (digits, radix) = (number.as_str(), number.radix());
            let positive = u64::from_str_radix(digits, radix).map(Value::from);
            let any = positive.or_else(|_| i64::from_str_radix(digits, radix).map(Value::from));
            any.unwrap_or_else(|_| number.to_string().into())
        }
        DeValue::Float(number) => number.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Boolean(truth) => (*truth).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Array(items) => items.iter().map(|item| to_json(item.get_ref())).collect(),
        DeValue::Table(table) => {
            let members =
                table.iter().map(|(name, value)| (name.get_ref().to_string(), to_json(value.get_ref())));
            Value::Object(members.collect())
        }
    }
}
