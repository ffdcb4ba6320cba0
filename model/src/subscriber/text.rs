// SPDX-License-Identifier: Apache-2.0
//! Names and prefixes as text, the same in records, configuration and subscriber files.
//!
//! A prefix has one reading: numbers with leading zeros are refused, for some programs take them as octal.

use std::net::{AddrParseError, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{Ipv4Net, Ipv6Net};

use super::MAX_ID_BYTES;

/// Names that are taken by the interface itself.
const RESERVED_IDS: [&str; 3] = [".", "..", "bulk"];

/// An id is a name that the interface has not taken itself.
pub(crate) fn check_id(text: &str) -> Result<(), String> {
    if RESERVED_IDS.contains(&text) {
        return Err(format!("\"{text}\" is not free to use as a name"));
    }
    check_name(text)
}

/// Names stand in URLs, logs and tables.
pub(crate) fn check_name(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    if text.len() > MAX_ID_BYTES {
        return Err(format!("has {} bytes; {MAX_ID_BYTES} is the most", text.len()));
    }
    if text.chars().any(|c| c.is_control() || directs(c)) || text.trim() != text {
        return Err(format!("{text:?} has a control character in it or blanks around it"));
    }
    Ok(())
}

/// Unicode's `Bidi_Control`: characters that make a name look like another.
fn directs(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A prefix, or an address alone as the prefix of just itself.
pub(crate) fn parse_ipv4(text: &str) -> Result<Ipv4Net, String> {
    let (address, length) = split::<Ipv4Addr>(text, 32).ok_or_else(|| not_a("IPv4", text))?;
    let prefix = Ipv4Net::new(address, length).map_err(|_| not_a("IPv4", text))?;
    if prefix.trunc() == prefix {
        return Ok(prefix);
    }
    Err(format!("\"{text}\" has host bits set; the prefix is \"{}\"", prefix.trunc()))
}

/// As [`parse_ipv4`].
pub(crate) fn parse_ipv6(text: &str) -> Result<Ipv6Net, String> {
    let (address, length) = split::<Ipv6Addr>(text, 128).ok_or_else(|| not_a("IPv6", text))?;
    let prefix = Ipv6Net::new(address, length).map_err(|_| not_a("IPv6", text))?;
    if prefix.trunc() == prefix {
        return Ok(prefix);
    }
    Err(format!("\"{text}\" has host bits set; the prefix is \"{}\"", prefix.trunc()))
}

/// Address and length; a length left out is the whole address.
fn split<A: FromStr<Err = AddrParseError>>(text: &str, whole: u8) -> Option<(A, u8)> {
    let (address, length) =
        text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    // the parser of std refuses leading zeros in an address; of a length it would not
    let plain = |length: &&str| *length == "0" || length.starts_with(|c: char| ('1'..='9').contains(&c));
    let length = length.map_or(Some(whole), |length| Some(length).filter(plain)?.parse().ok())?;
    Some((address.parse().ok()?, length))
}

fn not_a(family: &str, text: &str) -> String {
    let zeros = text.split(['.', '/']).any(|number| number.len() > 1 && number.starts_with('0'));
    let why = if zeros && !text.contains(':') { ": it has a number with leading zeros" } else { "" };
    format!("\"{text}\" is not an {family} prefix{why}")
}
