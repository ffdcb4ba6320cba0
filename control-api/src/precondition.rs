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
    List(Vec<Vec<u8>>),
}

impl Tags {
    fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Self>, Problem> {
        let mut all = Vec::new();
        for value in headers.get_all(name) {
            let text = value.as_bytes().trim_ascii();
            if text == b"*" {
                return Ok(Some(Self::Any));
            }
            let tags = list(text).ok_or_else(|| {
                let shown = String::from_utf8_lossy(text);
                Problem::query(name.as_str(), format!("{shown:?} is neither * nor a list of entity tags"))
            })?;
            all.extend(tags.into_iter().map(<[u8]>::to_vec));
        }
        Ok((!all.is_empty()).then_some(Self::List(all)))
    }

    /// Whether the record is one of these. `weak`: as RFC 9110 8.8.3.2 compares for `If-None-Match`.
    fn hold(&self, record: Option<&Record>, weak: bool) -> bool {
        let Some(record) = record else { return false };
        let own = record.etag().into_bytes();
        let same = |tag: &Vec<u8>| *tag == own || weak && tag.strip_prefix(b"W/") == Some(&own);
        match self {
            Self::Any => true,
            Self::List(list) => list.iter().any(same),
        }
    }
}

/// Entity tags behind commas, which may also stand in them (RFC 9110 5.6.1.2, 8.8.3); at least one.
fn list(text: &[u8]) -> Option<Vec<&[u8]>> {
    let (mut tags, mut rest, mut apart) = (Vec::new(), text.trim_ascii_start(), true);
    while let Some(first) = rest.first() {
        if *first == b',' {
            rest = rest.get(1..)?;
            apart = true;
        } else {
            let (tag, after) = tag(rest).filter(|_| apart)?;
            tags.push(tag);
            rest = after;
            apart = false;
        }
        rest = rest.trim_ascii_start();
    }
    (!tags.is_empty()).then_some(tags)
}

/// The entity tag that a text begins with, and what follows it.
fn tag(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = text.strip_prefix(b"W/").unwrap_or(text).strip_prefix(b"\"")?;
    let length = inside.iter().position(|byte| !matches!(byte, 0x21 | 0x23..=0x7e | 0x80..))?;
    let end = text.len() - inside.len() + length + 1;
    (inside.get(length) == Some(&b'"')).then(|| text.split_at_checked(end)).flatten()
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

    #[test]
    fn a_comma_within_a_tag_separates_nothing() {
        let expect = expect("if-match", " , W/\"a,b\" ,, \"7\",");
        assert_eq!(expect.some_of, Some(Tags::List(vec![b"W/\"a,b\"".to_vec(), b"\"7\"".to_vec()])));
        assert!(expect.check(Some(&record())).is_ok());
    }

    #[test]
    fn what_is_no_list_of_tags_protects_nothing_and_is_refused() {
        for wrong in ["", ",", "\"a", "\"a\"\"b\"", "\"a\" \"b\"", "*, \"a\"", "w/\"a\"", "\"a b\""] {
            let headers: HeaderMap = [(IF_MATCH, wrong.parse().unwrap())].into_iter().collect();
            assert!(Expect::read(&headers).is_err(), "{wrong}");
        }
    }
}
