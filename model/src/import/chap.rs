// SPDX-License-Identifier: Apache-2.0
//! `chap-secrets` of accel-ppp (and of VyOS, which writes one): `USER SERVER SECRET ADDRESS RATE`, a user a line.
//!
//! Words are divided by blanks; one in quotes may hold some, and `\` makes the next character plain. `#` begins a comment.
//! The rate is in the grammar of accel-ppp's shaper ([`rates::accel`](super::rates::accel)). Users without an address of
//! their own (`*`), or without a rate, are told and left out: without the first there is nothing to match, and without
//! the second accel-ppp does not shape them either. Secrets are read past and never shown.

use super::csv::counted;
use super::{Gather, Options, rates};
use crate::subscriber::Subscriber;

/// Whether a first line is one of such a file: an address stands fourth, or the rate fifth.
pub(super) fn looks_like(line: &str) -> bool {
    let Ok(words) = words(line) else { return false };
    let address = |word: &String| word == "*" || word.parse::<std::net::Ipv4Addr>().is_ok();
    words.get(3).is_some_and(address) && words.len() <= 5
}

/// Reads all of it.
pub(super) fn lines(text: &str, options: &Options, gather: &mut Gather) {
    let [mut unaddressed, mut unlimited] = [0, 0];
    for (line, number) in text.lines().zip(1..) {
        let words = match words(line) {
            Ok(words) => words,
            Err(why) => {
                gather.fail(number, "", why);
                continue;
            }
        };
        let mut words = words.into_iter();
        let Some(user) = words.next() else { continue };
        let (address, rate) = (words.nth(2), words.next());
        let Some(address) = address else {
            gather.fail(number, "", "is no line of chap-secrets: USER SERVER SECRET ADDRESS [RATE]");
            continue;
        };
        match (address.as_str(), rate) {
            ("*" | "0.0.0.0", _) => unaddressed += 1,
            (_, None) => unlimited += 1,
            (address, Some(rate)) => match rates::accel(&rate) {
                Ok(rates) => {
                    let record = serde_json::json!({
                        "id": user, "down_bps": rates.down_bps, "up_bps": rates.up_bps,
                        "profile": options.profile, "match": {"ipv4": [address]},
                    });
                    gather.record(number, Subscriber::from_value(&record));
                }
                Err(why) => gather.fail(number, "rate", why),
            },
        }
    }
    for (count, why) in [(unaddressed, "no address of their own"), (unlimited, "no rate")] {
        if count > 0 {
            gather.notes.push(format!("{} with {why}, left out", counted(count, "user", "users")));
        }
    }
}

/// The words of a line, up to its comment.
fn words(line: &str) -> Result<Vec<String>, &'static str> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\\', _) => word.get_or_insert_default().extend(letters.next()),
            (_, Some(end)) if letter == end => quote = None,
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => break,
            (_, None) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    if quote.is_some() { Err("a quote is never closed") } else { Ok(words) }
}
