// SPDX-License-Identifier: Apache-2.0
//! What a record must satisfy beyond being valid in itself: what it names must exist.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use axum::http::StatusCode;
use model::problem::{FieldError, RecordError};
use model::{Profile, Subscriber};
use serde_json::{Value, json};

use crate::options::Options;
use crate::problem::Problem;

/// The profile that always exists.
const DEFAULT_PROFILE: &str = "default";

/// The profiles that records may name, which a reload may add to; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Catalogue(Arc<RwLock<BTreeMap<String, Profile>>>);

impl Catalogue {
    pub(crate) fn new(profiles: BTreeMap<String, Profile>) -> Self {
        Self(Arc::new(RwLock::new(profiles)))
    }

    /// Profiles of these names are these from now on; others stay. To be called once the data plane has them.
    pub fn put(&self, profiles: &BTreeMap<String, Profile>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.extend(profiles.iter().map(|(name, profile)| (name.clone(), profile.clone())));
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Profile>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What records may name; clones have one catalogue.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) profiles: Catalogue,
    access_ports: Arc<BTreeSet<String>>,
}

impl Rules {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            profiles: Catalogue::new(options.profiles.clone()),
            access_ports: Arc::new(options.access_ports.iter().cloned().collect()),
        }
    }

    /// Names what a record refers to and does not exist.
    pub(crate) fn check(&self, subscriber: &Subscriber) -> Result<(), RecordError> {
        let mut errors = Vec::new();
        if !self.has_profile(&subscriber.profile) {
            let message = format!("{:?} is not a profile of the configuration", subscriber.profile);
            errors.push(FieldError::new("profile", message));
        }
        if let Some(port) = subscriber.matches.port.as_ref().filter(|port| !self.access_ports.contains(*port))
        {
            let message = format!("{port:?} is not an access port of the configuration");
            errors.push(FieldError::new("match.port", message));
        }
        if errors.is_empty() { Ok(()) } else { Err(RecordError(errors)) }
    }

    fn has_profile(&self, name: &str) -> bool {
        name == DEFAULT_PROFILE || self.profiles.read().contains_key(name)
    }

    /// A record of the store may name a profile that the configuration has lost: it is then shaped by `default`
    /// and says so, for a router that refuses to start over one customer helps nobody.
    pub(crate) fn servable(&self, subscriber: &Subscriber) -> Option<Subscriber> {
        (!self.has_profile(&subscriber.profile))
            .then(|| Subscriber { profile: DEFAULT_PROFILE.to_owned(), ..subscriber.clone() })
    }
}

/// A record from the body of a PUT: its name may stand in the path alone, and must not differ from it.
pub(crate) fn from_body<T>(
    id: &str,
    body: &[u8],
    from_json: impl Fn(&[u8]) -> Result<T, RecordError>,
    from_value: impl Fn(&Value) -> Result<T, RecordError>,
    name: impl Fn(&T) -> &str,
) -> Result<T, Problem> {
    let parsed = match from_json(body) {
        Err(error) if error.0.iter().any(|error| error.field == "id") => {
            let mut value: Value = json_value(body)?;
            match value.as_object_mut() {
                Some(object) if !object.contains_key("id") => {
                    object.insert("id".to_owned(), json!(id));
                    from_value(&value)
                }
                _ => Err(error),
            }
        }
        parsed => parsed,
    };
    let record = match parsed {
        Ok(record) => record,
        Err(error) => {
            json_value(body)?;
            return Err(Problem::record(&error));
        }
    };
    if name(&record) != id {
        let detail = format!("{:?} in the body is not {id:?} of the path", name(&record));
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail).field("id"));
    }
    Ok(record)
}

/// The body as JSON; 400 if it is none, 422 if it says something twice.
pub(crate) fn json_value(body: &[u8]) -> Result<Value, Problem> {
    crate::json::read(body).map_err(|error| {
        if error.is_data() {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
        } else {
            Problem::new(StatusCode::BAD_REQUEST, format!("the body is not JSON: {error}"))
        }
    })
}
