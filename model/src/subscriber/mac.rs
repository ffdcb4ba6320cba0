// SPDX-License-Identifier: Apache-2.0
//! An Ethernet address as text.

use std::fmt;
use std::str::FromStr;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Whether it can be a station's own: not a group address, not all zeros.
    pub const fn is_station(self) -> bool {
        let [first, ..] = self.0;
        first & 1 == 0 && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }

    /// The address at the end of 16 octets of zero.
    pub(crate) fn widened(self) -> [u8; 16] {
        let mut wide = [0; 16];
        wide[10..].copy_from_slice(&self.0);
        wide
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (octet, colon) in self.0.iter().zip(["", ":", ":", ":", ":", ":"]) {
            write!(out, "{colon}{octet:02x}")?;
        }
        Ok(())
    }
}

/// Not six octets in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a MAC address: six octets in hexadecimal with colons or hyphens are wanted")]
pub struct MacError;

impl FromStr for MacAddr {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let mut octets = [0; 6];
        let mut parts = text.split([':', '-']);
        for octet in &mut octets {
            let part = parts.next().filter(|part| part.len() == 2 && !part.starts_with('+'));
            *octet = part.and_then(|part| u8::from_str_radix(part, 16).ok()).ok_or(MacError)?;
        }
        if parts.next().is_some() { Err(MacError) } else { Ok(Self(octets)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_both_notations_and_shown_in_one() {
        let mac = MacAddr([2, 0, 0, 0xab, 0xcd, 1]);
        assert_eq!("02:00:00:AB:cd:01".parse(), Ok(mac));
        assert_eq!("02-00-00-ab-cd-01".parse(), Ok(mac));
        assert_eq!(mac.to_string(), "02:00:00:ab:cd:01");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let wrong = [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "2:0:0:0:0:1",
            "02:00:00:00:00:0g",
            "+2:00:00:00:00:01",
        ];
        for text in wrong {
            assert_eq!(text.parse::<MacAddr>(), Err(MacError), "{text}");
        }
    }

    #[test]
    fn groups_and_zero_are_no_stations() {
        assert!(MacAddr([2, 0, 0, 0, 0, 1]).is_station());
        assert!(!MacAddr([1, 0, 0x5e, 0, 0, 1]).is_station());
        assert!(!MacAddr([0xff; 6]).is_station());
        assert!(!MacAddr([0; 6]).is_station());
    }
}
