// SPDX-License-Identifier: Apache-2.0
//! Records as JSON: one a line, or in one array.

use serde_json::value::RawValue;

use super::{Gather, newlines};
use crate::subscriber::Subscriber;

/// A record a line; blank lines are none.
pub(super) fn lines(text: &str, gather: &mut Gather) {
    for (line, number) in text.lines().zip(1..) {
        if !line.trim().is_empty() {
            gather.record(number, Subscriber::from_json(line.as_bytes()));
        }
    }
}

/// An array, whose items are cut out first so that each has its line.
pub(super) fn array(text: &str, gather: &mut Gather) {
    let items: Vec<&RawValue> = match serde_json::from_str(text) {
        Ok(items) => items,
        Err(error) => {
            gather.fail(error.line(), "", format!("not a JSON array: {error}"));
            return;
        }
    };
    let (mut line, mut counted) = (1, 0);
    for item in items {
        let start = item.get().as_ptr().addr() - text.as_ptr().addr();
        line += newlines(text.as_bytes().get(counted..start));
        counted = start;
        gather.record(line, Subscriber::from_json(item.get().as_bytes()));
    }
}
