// SPDX-License-Identifier: Apache-2.0
//! JSON that says everything once: `serde_json::Value` would take the last of two members of one name, so that half
//! of what a client wrote would be ignored in silence.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads a text in which no object has two members of one name.
pub(crate) fn read(text: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice::<Once>(text).map(|once| once.0)
}

struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OnceVisitor).map(Self)
    }
}

struct OnceVisitor;

impl<'de> Visitor<'de> for OnceVisitor {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Once(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
            }
            let Once(value) = members.next_value()?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_says_everything_once_is_read_as_ever() {
        for text in [
            "null",
            "-3",
            "1.5e3",
            "18446744073709551615",
            r#""\u00e4\n""#,
            r#"[1,[true,{"a":{}}],"x"]"#,
            r#"{"a":{"b":1},"b":{"b":[{"a":1},{"a":2}]},"c":null}"#,
        ] {
            assert_eq!(read(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        }
        assert!(
            read(b"{} {}").is_err()
                && read(b"{\"a\":}").is_err()
                && read("[".repeat(9999).as_bytes()).is_err()
        );
    }

    #[test]
    fn a_member_that_comes_twice_is_named_at_any_depth() {
        for text in [r#"{"x":1,"x":1}"#, r#"[{"a":{"x":{},"y":0,"x":null}}]"#, r#"{"x":1,"\u0078":2}"#] {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(error.is_data() && error.to_string().starts_with("duplicate field `x`"), "{error}");
        }
    }
}
