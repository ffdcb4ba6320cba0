// SPDX-License-Identifier: Apache-2.0
//! Names and prefixes as text, the same in records, configuration and subscriber files.

use std::net::{Ipv4Addr, Ipv6Addr};

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
    if text.chars().any(char::is_control) || text.trim() != text {
        return Err(format!("{text:?} has a control character in it or blanks around it"));
    }
    Ok(())
}

/// A prefix, or an address alone as the prefix of just itself.
pub(crate) fn parse_ipv4(text: &str) -> Result<Ipv4Net, String> {
    let host = || text.parse::<Ipv4Addr>().ok().map(Ipv4Net::from);
    let prefix = text.parse::<Ipv4Net>().ok().or_else(host);
    let prefix = prefix.ok_or_else(|| format!("\"{text}\" is not an IPv4 prefix"))?;
    if prefix.trunc() == prefix {
        return Ok(prefix);
    }
    Err(format!("\"{text}\" has host bits set; the prefix is \"{}\"", prefix.trunc()))
}

/// As [`parse_ipv4`].
pub(crate) fn parse_ipv6(text: &str) -> Result<Ipv6Net, String> {
    let host = || text.parse::<Ipv6Addr>().ok().map(Ipv6Net::from);
    let prefix = text.parse::<Ipv6Net>().ok().or_else(host);
    let prefix = prefix.ok_or_else(|| format!("\"{text}\" is not an IPv6 prefix"))?;
    if prefix.trunc() == prefix {
        return Ok(prefix);
    }
    Err(format!("\"{text}\" has host bits set; the prefix is \"{}\"", prefix.trunc()))
}
