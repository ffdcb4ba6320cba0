// SPDX-License-Identifier: Apache-2.0
//! What somebody typed into a search box.
//!
//! Text alone means everything it can mean: `42` is part of a name and a VLAN, `100.64.0.9` part of a name and an
//! address. `id:`, `ip:`, `vlan:`, `pppoe:` and `mac:` before it narrow it down.

use std::net::IpAddr;

use ipnet::IpNet;
use model::subscriber::MacAddr;

/// Longest text, in characters, as long as a name may be.
pub(super) const LONGEST: usize = 255;

/// What to look for; what is `None` is not looked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pub(super) id: Option<String>,
    pub(super) net: Option<IpNet>,
    pub(super) vlan: Option<Tags>,
    pub(super) session: Option<u16>,
    pub(super) mac: Option<MacAddr>,
}

/// VLAN tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tags {
    /// One, outside or inside.
    One(u16),
    /// Outer and inner.
    Pair(u16, u16),
}

impl Query {
    /// Reads it; an error is one sentence.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.chars().count() > LONGEST {
            return Err(format!("q has more than {LONGEST} characters"));
        }
        let narrowed = text.split_once(':').map(|(kind, rest)| (kind.to_ascii_lowercase(), rest.trim()));
        let not = |rest: &str, what: &str| format!("q: {rest:?} is not {what}");
        let nothing = Self::default();
        match narrowed.as_ref().map(|(kind, rest)| (kind.as_str(), *rest)) {
            Some(("id", rest)) => Ok(Self { id: some(rest), ..nothing }),
            Some(("ip", rest)) => {
                let net = net(rest).ok_or_else(|| not(rest, "an address or prefix such as 100.64.0.9"))?;
                Ok(Self { net: Some(net), ..nothing })
            }
            Some(("vlan", rest)) => {
                let vlan = tags(rest).ok_or_else(|| not(rest, "a VLAN such as 100 or 100.42, 1 to 4094"))?;
                Ok(Self { vlan: Some(vlan), ..nothing })
            }
            Some(("pppoe", rest)) => {
                let session = rest.parse().map_err(|_| not(rest, "a session id such as 23"))?;
                Ok(Self { session: Some(session), ..nothing })
            }
            Some(("mac", rest)) => {
                let mac = rest.parse().map_err(|_| not(rest, "a MAC address such as 02:00:00:00:00:01"))?;
                Ok(Self { mac: Some(mac), ..nothing })
            }
            _ => Ok(Self {
                id: some(text),
                net: net(text),
                vlan: tags(text),
                session: None,
                mac: text.parse().ok(),
            }),
        }
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn net(text: &str) -> Option<IpNet> {
    let address = |text: &str| text.parse::<IpAddr>().map(IpNet::from).ok();
    address(text).or_else(|| text.parse().ok())
}

/// `100`, `100.42` or `100/42`.
fn tags(text: &str) -> Option<Tags> {
    let tag = |text: &str| text.parse().ok().filter(|tag| (1..=4094).contains(tag));
    match text.split_once(['.', '/']) {
        None => tag(text).map(Tags::One),
        Some((outer, inner)) => Some(Tags::Pair(tag(outer)?, tag(inner)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_text_means_all_it_can() {
        let read = |text: &str| Query::read(text).unwrap();
        let id = |text: &str| Query { id: Some(text.to_owned()), ..Query::default() };
        assert_eq!(read(" smith "), id("smith"));
        assert_eq!(read("42"), Query { vlan: Some(Tags::One(42)), ..id("42") });
        assert_eq!(read("100.42"), Query { vlan: Some(Tags::Pair(100, 42)), ..id("100.42") });
        assert_eq!(read("4095"), id("4095"));
        assert_eq!(read("100.64.0.9"), Query { net: "100.64.0.9/32".parse().ok(), ..id("100.64.0.9") });
        assert_eq!(read("2001:db8::/32"), Query { net: "2001:db8::/32".parse().ok(), ..id("2001:db8::/32") });
        let mac = "02:00:00:00:00:01";
        assert_eq!(read(mac), Query { mac: mac.parse().ok(), ..id(mac) });
        assert_eq!(read("  "), Query::default());
        assert_eq!(read("cust:7"), id("cust:7"));
    }

    #[test]
    fn a_kind_before_it_narrows_it_and_is_held_to_it() {
        let read = |text: &str| Query::read(text).unwrap();
        assert_eq!(read("id:42"), Query { id: Some("42".into()), ..Query::default() });
        assert_eq!(read("VLAN: 42"), Query { vlan: Some(Tags::One(42)), ..Query::default() });
        assert_eq!(read("vlan:7/9"), Query { vlan: Some(Tags::Pair(7, 9)), ..Query::default() });
        assert_eq!(read("ip:10.0.0.1"), Query { net: "10.0.0.1/32".parse().ok(), ..Query::default() });
        assert_eq!(read("pppoe:23"), Query { session: Some(23), ..Query::default() });
        for wrong in ["vlan:0", "vlan:x", "ip:cust", "pppoe:-1", "mac:02", &"x".repeat(256)] {
            assert!(Query::read(wrong).is_err(), "{wrong}");
        }
    }
}
