// SPDX-License-Identifier: Apache-2.0
//! `If-Match` and `If-None-Match` (RFC 9110 13.1): honoured, never demanded.

use axum::http::header::{IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName, StatusCode};

use crate::directory::Record;
use crate::problem::Problem;

/// What a request demands of the record as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expect {
    some_of: Option<Tags>,
    none_of: Option<Tags>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Tags {
    Any,
    List(Vec<String>),
}

impl Tags {
    fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Self>, Problem> {
        let mut list = Vec::new();
        for value in headers.get_all(name) {
            let text = value.to_str().unwrap_or("\u{fffd}");
            for tag in text.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
                let opaque = tag.strip_prefix("W/").unwrap_or(tag);
                if tag != "*" && !(opaque.len() >= 2 && opaque.starts_with('"') && opaque.ends_with('"')) {
                    return Err(Problem::query(name.as_str(), format!("{tag:?} is not an entity tag")));
                }
                list.push(tag.to_owned());
            }
        }
        Ok(match list {
            list if list.is_empty() => None,
            list if list.iter().any(|tag| tag == "*") => Some(Self::Any),
            list => Some(Self::List(list)),
        })
    }

    /// Whether the record is one of these. `weak`: as RFC 9110 8.8.3.2 compares for `If-None-Match`.
    fn hold(&self, record: Option<&Record>, weak: bool) -> bool {
        let Some(record) = record else { return false };
        let own = record.etag();
        let same = |tag: &String| *tag == own || weak && tag.strip_prefix("W/") == Some(&own);
        match self {
            Self::Any => true,
            Self::List(list) => list.iter().any(same),
        }
    }
}

impl Expect {
    pub(crate) fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        Ok(Self { some_of: Tags::read(headers, &IF_MATCH)?, none_of: Tags::read(headers, &IF_NONE_MATCH)? })
    }

    /// For a change.
    pub(crate) fn check(&self, record: Option<&Record>) -> Result<(), Problem> {
        let fail = |field: &str, detail: &str| {
            Err(Problem::new(StatusCode::PRECONDITION_FAILED, detail).field(field))
        };
        if self.some_of.as_ref().is_some_and(|tags| !tags.hold(record, false)) {
            return fail("if-match", "the record is no longer the one you saw");
        }
        if self.none_of.as_ref().is_some_and(|tags| tags.hold(record, true)) {
            return fail("if-none-match", "the record exists already");
        }
        Ok(())
    }

    /// For a read: whether the client has this one.
    pub(crate) fn has(&self, record: &Record) -> bool {
        self.none_of.as_ref().is_some_and(|tags| tags.hold(Some(record), true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expect(name: &'static str, value: &str) -> Expect {
        let headers = [(HeaderName::from_static(name), value.parse().unwrap())];
        Expect::read(&headers.into_iter().collect()).unwrap()
    }

    fn record() -> Record {
        Record { rev: 7, json: "{}".into() }
    }

    #[test]
    fn if_match_compares_strongly() {
        let holds = |value, record: Option<&Record>| expect("if-match", value).check(record).is_ok();
        for value in ["\"7\"", "\"1\", \"7\"", "*"] {
            assert!(holds(value, Some(&record())), "{value}");
            assert!(!holds(value, None), "{value}");
        }
        for value in ["\"8\"", "W/\"7\""] {
            assert!(!holds(value, Some(&record())), "{value}");
        }
    }

    #[test]
    fn if_none_match_compares_weakly() {
        let holds = |value, record: Option<&Record>| expect("if-none-match", value).check(record).is_ok();
        assert!(holds("*", None));
        assert!(!holds("*", Some(&record())));
        assert!(!holds("W/\"7\"", Some(&record())));
        assert!(holds("\"8\"", Some(&record())));
        assert!(expect("if-none-match", "\"7\"").has(&record()));
    }

    #[test]
    fn a_tag_without_quotes_is_named() {
        let headers: HeaderMap = [(IF_MATCH, "7".parse().unwrap())].into_iter().collect();
        assert_eq!(Expect::read(&headers).unwrap_err().field.as_deref(), Some("if-match"));
    }
}
