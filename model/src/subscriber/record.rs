// SPDX-License-Identifier: Apache-2.0
//! The record as JSON: raw structs that refuse unknown fields, turned into a validated [`Subscriber`] and back.
//!
//! All problems of a record come back together, those of type (serde would stop at the first) as well as those of
//! value. PATCH is a JSON merge patch (RFC 7396) on the record.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::text::{check_id, check_name, parse_ipv4, parse_ipv6};
use super::{DEFAULT_PROFILE, MAX_RATE_BPS, MIN_RATE_BPS, MacAddr, Match, Pppoe, Subscriber, Vlan};
use crate::problem::{FieldError, RecordError};

/// VLAN ids that name a VLAN (IEEE 802.1Q table 9-2): 0 only marks a priority, 4095 is reserved.
const VLANS: RangeInclusive<u64> = 1..=4094;
/// PPPoE session ids; 0 is discovery and 0xffff reserved (RFC 2516 section 4).
const SESSIONS: RangeInclusive<u64> = 1..=65_534;
/// After so many problems of one record nobody reads on.
const MOST_ERRORS: usize = 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSubscriber {
    id: Option<String>,
    #[serde(default, deserialize_with = "rate")]
    down_bps: Option<u64>,
    #[serde(default, deserialize_with = "rate")]
    up_bps: Option<u64>,
    profile: Option<String>,
    parent: Option<String>,
    #[serde(default, deserialize_with = "object", rename = "match")]
    matches: Option<RawMatch>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawMatch {
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv4: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv6: Option<Vec<String>>,
    #[serde(default, deserialize_with = "object", skip_serializing_if = "Option::is_none")]
    vlan: Option<RawVlan>,
    #[serde(default, deserialize_with = "object", skip_serializing_if = "Option::is_none")]
    pppoe: Option<RawPppoe>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawVlan {
    outer: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inner: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPppoe {
    session: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
}

/// How a struct looks in JSON, for those who wrote something else in its place.
pub(crate) trait Shape {
    const SHAPE: &'static str;
}

impl Shape for RawSubscriber {
    const SHAPE: &'static str = "an object";
}

impl Shape for RawMatch {
    const SHAPE: &'static str = r#"an object; use {"ipv4": ["100.64.0.42/32"]}"#;
}

impl Shape for RawVlan {
    const SHAPE: &'static str = r#"an object; use {"outer": 100} or {"outer": 100, "inner": 7}"#;
}

impl Shape for RawPppoe {
    const SHAPE: &'static str =
        r#"an object; use {"session": 7} or {"session": 7, "mac": "02:00:00:00:00:01"}"#;
}

/// A struct of raw members that a record is made of.
pub(crate) trait RawRecord: DeserializeOwned + Shape {
    type Record;

    /// Turns it into the record, or says all that is wrong.
    fn validate(self) -> Result<Self::Record, RecordError>;
}

impl RawRecord for RawSubscriber {
    type Record = Subscriber;

    fn validate(self) -> Result<Subscriber, RecordError> {
        validate(self)
    }
}

/// Reads one record.
pub(crate) fn read_json<R: RawRecord>(json: &[u8]) -> Result<R::Record, RecordError> {
    match serde_json::from_slice::<Object<R>>(json) {
        Ok(Object(raw)) => raw.validate(),
        Err(error) => Err(explain::<R>(json, &error)),
    }
}

/// Reads one record that is already a JSON value.
pub(crate) fn read_value<R: RawRecord>(value: &Value) -> Result<R::Record, RecordError> {
    match Object::<R>::deserialize(value) {
        Ok(Object(raw)) => raw.validate(),
        Err(error) => Err(explain_value::<R>(value.clone(), &error)),
    }
}

/// A record's value after a JSON merge patch (RFC 7396).
pub(crate) fn merged(mut value: Value, patch: &Value) -> Result<Value, RecordError> {
    if !patch.is_object() {
        return Err(RecordError(vec![FieldError::new("", "a merge patch is a JSON object")]));
    }
    merge(&mut value, patch);
    Ok(value)
}

/// A record keeps its id.
pub(crate) fn keeps_id(before: &str, after: &str) -> Result<(), RecordError> {
    if before == after {
        return Ok(());
    }
    let message = format!("\"{after}\" is not \"{before}\": a record keeps its id");
    Err(RecordError(vec![FieldError::new("id", message)]))
}

/// A struct that is written as an object. What serde derives would take an array of its fields as well.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de> + Shape> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

fn object<'de, D: Deserializer<'de>, T: Deserialize<'de> + Shape>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(deserializer)?.map(|object| object.0))
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Shape> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(T::SHAPE)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// A rate, so that whoever writes `"10M"` is told what is wanted.
struct Rate(u64);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(RateVisitor).map(Self)
    }
}

pub(crate) fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Rate>::deserialize(deserializer)?.map(|rate| rate.0))
}

struct RateVisitor;

impl Visitor<'_> for RateVisitor {
    type Value = u64;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("whole bits per second, for instance 50000000")
    }

    fn visit_u64<E: Error>(self, rate: u64) -> Result<u64, E> {
        Ok(rate)
    }

    fn visit_i64<E: Error>(self, rate: i64) -> Result<u64, E> {
        u64::try_from(rate).map_err(|_| E::invalid_value(Unexpected::Signed(rate), &self))
    }
}

impl Subscriber {
    /// Reads one record.
    ///
    /// # Errors
    ///
    /// Every problem with the path of its field and its value.
    pub fn from_json(json: &[u8]) -> Result<Self, RecordError> {
        read_json::<RawSubscriber>(json)
    }

    /// Reads one record that is already a JSON value.
    ///
    /// # Errors
    ///
    /// As [`from_json`](Self::from_json).
    pub fn from_value(value: &Value) -> Result<Self, RecordError> {
        read_value::<RawSubscriber>(value)
    }

    /// The record on one line, members always in the same order.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&raw(self)).unwrap_or_default()
    }

    /// The record as a JSON value.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(raw(self)).unwrap_or_default()
    }

    /// The record after a JSON merge patch (RFC 7396), validated as a whole.
    ///
    /// # Errors
    ///
    /// As [`from_json`](Self::from_json); also if the patch is no object or changes the id.
    pub fn merge_patch(&self, patch: &Value) -> Result<Self, RecordError> {
        if let Some(patched) = self.with_rates(patch) {
            return Ok(patched);
        }
        let strangers = strangers(patch);
        if !strangers.is_empty() {
            return Err(RecordError(strangers));
        }
        let patched = Self::from_value(&merged(self.to_value(), patch)?)?;
        keeps_id(&self.id, &patched.id)?;
        Ok(patched)
    }

    /// The record after a patch of nothing but good rates, which is what most patches are; `None`: it is another.
    fn with_rates(&self, patch: &Value) -> Option<Self> {
        let mut patched = self.clone();
        for (name, value) in patch.as_object()? {
            let rate = value.as_u64().filter(|rate| (MIN_RATE_BPS..=MAX_RATE_BPS).contains(rate))?;
            match name.as_str() {
                "down_bps" => patched.down_bps = rate,
                "up_bps" => patched.up_bps = rate,
                _ => return None,
            }
        }
        Some(patched)
    }
}

impl Serialize for Subscriber {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        raw(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Subscriber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        validate(Object::<RawSubscriber>::deserialize(deserializer)?.0).map_err(D::Error::custom)
    }
}

/// Members that a record never has and that would leave no trace, being null (RFC 7396 removes them).
fn strangers(patch: &Value) -> Vec<FieldError> {
    let objects: [(&str, &[&str]); 4] = [
        ("", &["id", "down_bps", "up_bps", "profile", "parent", "match"]),
        ("/match", &["ipv4", "ipv6", "vlan", "pppoe", "port"]),
        ("/match/vlan", &["outer", "inner"]),
        ("/match/pppoe", &["session", "mac"]),
    ];
    let mut found = Vec::new();
    for (place, known) in objects {
        let members = patch.pointer(place).and_then(Value::as_object).into_iter().flatten();
        for (name, _) in members.filter(|(name, value)| value.is_null() && !known.contains(&name.as_str())) {
            let field = format!("{place}/{name}").trim_start_matches('/').replace('/', ".");
            found.push(FieldError::new(field, format!("unknown field `{name}`")));
        }
    }
    found
}

/// RFC 7396 section 2: null removes, objects merge, all else replaces.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(target) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Text that is no JSON at all says where; else every wrong value is looked for.
fn explain<R: RawRecord>(json: &[u8], error: &serde_json::Error) -> RecordError {
    match serde_json::from_slice::<Value>(json) {
        Ok(value) => explain_value::<R>(value, error),
        Err(error) => {
            let message = error.to_string();
            let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
            let line = if error.line() == 1 { String::new() } else { format!("line {}, ", error.line()) };
            let message = format!("not JSON: {what} at {line}column {}", error.column());
            RecordError(vec![FieldError::new("", message)])
        }
    }
}

/// Finds every wrong value: each is taken out once it is found, and the rest is read again. Only records that are
/// refused pay for it.
fn explain_value<R: RawRecord>(mut value: Value, first: &serde_json::Error) -> RecordError {
    let mut errors: Vec<FieldError> = Vec::new();
    while errors.len() < MOST_ERRORS {
        match serde_path_to_error::deserialize::<_, Object<R>>(&value) {
            Ok(Object(raw)) => {
                let rest = raw.validate().err().into_iter().flat_map(|error| error.0);
                let new =
                    rest.filter(|error| !errors.iter().any(|known| lies_in(&known.field, &error.field)));
                let new: Vec<_> = new.collect();
                errors.extend(new);
                break;
            }
            Err(located) => {
                let path = located.path().to_string();
                let field = if path == "." { String::new() } else { path };
                errors.push(FieldError::new(field, located.inner().to_string()));
                if !neutralise(&mut value, located.path()) {
                    break;
                }
            }
        }
    }
    if errors.is_empty() {
        errors.push(FieldError::new("", first.to_string()));
    }
    RecordError(errors)
}

/// Whether `field` is `outer` or within it.
fn lies_in(field: &str, outer: &str) -> bool {
    field.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Takes the value at `path` out; an item of a list is emptied, so that the others keep their places.
fn neutralise(value: &mut Value, path: &Path) -> bool {
    let mut steps = path.iter().peekable();
    let mut here = value;
    while let Some(step) = steps.next() {
        let last = steps.peek().is_none();
        let next = match (here, step) {
            (Value::Object(members), Segment::Map { key }) if last => return members.remove(key).is_some(),
            (Value::Object(members), Segment::Map { key }) => members.get_mut(key),
            (Value::Array(items), Segment::Seq { index }) => items.get_mut(*index),
            _ => None,
        };
        let Some(next) = next else { return false };
        if last {
            *next = Value::String(String::new());
            return true;
        }
        here = next;
    }
    false
}

fn raw(subscriber: &Subscriber) -> RawSubscriber {
    let matches = &subscriber.matches;
    let texts = |prefixes: Vec<String>| (!prefixes.is_empty()).then_some(prefixes);
    let raw_match = RawMatch {
        ipv4: texts(matches.ipv4.iter().map(ToString::to_string).collect()),
        ipv6: texts(matches.ipv6.iter().map(ToString::to_string).collect()),
        vlan: matches
            .vlan
            .map(|vlan| RawVlan { outer: Some(vlan.outer.into()), inner: vlan.inner.map(Into::into) }),
        pppoe: matches.pppoe.map(|pppoe| RawPppoe {
            session: Some(pppoe.session.into()),
            mac: pppoe.mac.map(|mac| mac.to_string()),
        }),
        port: matches.port.clone(),
    };
    RawSubscriber {
        id: Some(subscriber.id.clone()),
        down_bps: Some(subscriber.down_bps),
        up_bps: Some(subscriber.up_bps),
        profile: Some(subscriber.profile.clone()),
        parent: subscriber.parent.clone(),
        matches: Some(raw_match),
    }
}

/// Collects problems while fields are turned one by one.
#[derive(Default)]
pub(crate) struct Checks(pub(crate) Vec<FieldError>);

impl Checks {
    pub(crate) fn fail(&mut self, field: &str, message: impl Into<String>) {
        self.0.push(FieldError::new(field, message));
    }

    pub(crate) fn rate(&mut self, field: &str, value: Option<u64>) -> u64 {
        match value {
            Some(rate) if (MIN_RATE_BPS..=MAX_RATE_BPS).contains(&rate) => return rate,
            Some(rate) => {
                self.fail(field, format!("{rate} is not from {MIN_RATE_BPS} to {MAX_RATE_BPS} b/s"));
            }
            None => self.fail(field, "is missing"),
        }
        0
    }

    fn number(&mut self, field: &str, value: Option<u64>, range: &RangeInclusive<u64>) -> u16 {
        match value {
            Some(number) if range.contains(&number) => return u16::try_from(number).unwrap_or(0),
            Some(number) => {
                self.fail(field, format!("{number} is not from {} to {}", range.start(), range.end()));
            }
            None => self.fail(field, "is missing"),
        }
        0
    }

    pub(crate) fn id(&mut self, id: Option<String>) -> String {
        let id = id.unwrap_or_else(|| {
            self.fail("id", "is missing");
            String::from("-")
        });
        if let Err(message) = check_id(&id) {
            self.fail("id", message);
        }
        id
    }

    pub(crate) fn name(&mut self, field: &str, text: &str) {
        if let Err(message) = check_name(text) {
            self.fail(field, message);
        }
    }

    fn prefixes<P: Ord>(
        &mut self,
        field: &str,
        texts: Option<Vec<String>>,
        parse: impl Fn(&str) -> Result<P, String>,
    ) -> Vec<P> {
        let mut prefixes = Vec::new();
        for (index, text) in texts.unwrap_or_default().iter().enumerate() {
            match parse(text) {
                Ok(prefix) => prefixes.push(prefix),
                Err(message) => self.fail(&format!("{field}[{index}]"), message),
            }
        }
        prefixes.sort_unstable();
        prefixes.dedup();
        prefixes
    }
}

fn validate(raw: RawSubscriber) -> Result<Subscriber, RecordError> {
    let mut checks = Checks::default();
    let id = checks.id(raw.id);
    let down_bps = checks.rate("down_bps", raw.down_bps);
    let up_bps = checks.rate("up_bps", raw.up_bps);
    let profile = raw.profile.unwrap_or_else(|| DEFAULT_PROFILE.to_owned());
    checks.name("profile", &profile);
    if let Some(parent) = &raw.parent {
        checks.name("parent", parent);
    }
    let matches = validate_match(raw.matches.unwrap_or_default(), &mut checks);
    if !checks.0.is_empty() {
        return Err(RecordError(checks.0));
    }
    Ok(Subscriber { id, down_bps, up_bps, profile, parent: raw.parent, matches })
}

fn validate_match(raw: RawMatch, checks: &mut Checks) -> Match {
    let any = raw.ipv4.as_ref().is_some_and(|list| !list.is_empty())
        || raw.ipv6.as_ref().is_some_and(|list| !list.is_empty())
        || raw.vlan.is_some()
        || raw.pppoe.is_some();
    if !any {
        checks.fail("match", "has no way to match: one of ipv4, ipv6, vlan, pppoe is wanted");
    }
    if let Some(port) = &raw.port {
        checks.name("match.port", port);
    }
    Match {
        ipv4: checks.prefixes("match.ipv4", raw.ipv4, parse_ipv4),
        ipv6: checks.prefixes("match.ipv6", raw.ipv6, parse_ipv6),
        vlan: raw.vlan.map(|vlan| Vlan {
            outer: checks.number("match.vlan.outer", vlan.outer, &VLANS),
            inner: vlan.inner.map(|inner| checks.number("match.vlan.inner", Some(inner), &VLANS)),
        }),
        pppoe: raw.pppoe.map(|pppoe| Pppoe {
            session: checks.number("match.pppoe.session", pppoe.session, &SESSIONS),
            mac: pppoe.mac.and_then(|text| station(&text, checks)),
        }),
        port: raw.port,
    }
}

fn station(text: &str, checks: &mut Checks) -> Option<MacAddr> {
    let message = match text.parse::<MacAddr>() {
        Ok(mac) if mac.is_station() => return Some(mac),
        Ok(_) => "cannot be the subscriber's own: it is a group address or zero".to_owned(),
        Err(error) => format!("is {error}"),
    };
    checks.fail("match.pppoe.mac", format!("\"{text}\" {message}"));
    None
}
