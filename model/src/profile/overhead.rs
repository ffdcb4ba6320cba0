// SPDX-License-Identifier: Apache-2.0
//! Overhead by the keywords of tc-cake(8), which operators copy from forums.
//!
//! The whole grammar is taken, read from left to right: presets that add up (`pppoe-ptm ether-vlan`), `ether-vlan`
//! as often as there are tags, `overhead N`, `mpu N`, `atm`, `ptm`, `noatm`.
//! Departure: `raw` in tc-cake means the length that Linux sees, with the Ethernet header in it; here every base is
//! the IP packet, so `raw` adds nothing to that.

use super::{Cells, Overhead};

/// Range of `overhead` and of `bytes`.
pub const BYTES: std::ops::RangeInclusive<i64> = -64..=256;
/// Range of `mpu`.
pub const MPU: std::ops::RangeInclusive<i64> = 0..=256;

/// Keywords that add bytes, with what else they set: name, bytes, mpu, cells.
const PRESETS: [(&str, i64, Option<u16>, Option<Cells>); 13] = [
    ("pppoa-vcmux", 10, None, Some(Cells::Atm)),
    ("pppoa-llc", 14, None, Some(Cells::Atm)),
    ("pppoe-vcmux", 32, None, Some(Cells::Atm)),
    ("pppoe-llcsnap", 40, None, Some(Cells::Atm)),
    ("bridged-vcmux", 24, None, Some(Cells::Atm)),
    ("bridged-llcsnap", 32, None, Some(Cells::Atm)),
    ("ipoa-vcmux", 8, None, Some(Cells::Atm)),
    ("ipoa-llcsnap", 16, None, Some(Cells::Atm)),
    ("pppoe-ptm", 30, None, Some(Cells::Ptm)),
    ("bridged-ptm", 22, None, Some(Cells::Ptm)),
    ("docsis", 18, Some(64), Some(Cells::None)),
    ("ethernet", 38, Some(84), None),
    ("ether-vlan", 4, None, None),
];

impl Overhead {
    /// Ethernet with preamble, gap and FCS: the default.
    pub const ETHERNET: Self = Self { bytes: 38, mpu: 84, cells: Cells::None };

    /// Reads tc-cake keywords.
    ///
    /// # Errors
    ///
    /// A sentence that names the word that is none, or the number that is out of range.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut state = State { bytes: 0, mpu: 0, cells: Cells::None };
        let mut words = text.split_whitespace();
        let mut any = false;
        while let Some(word) = words.next() {
            any = true;
            state.take(word, &mut words)?;
        }
        if !any {
            return Err("is empty; \"raw\" adds nothing".to_owned());
        }
        state.finish()
    }

    /// The same in keywords that [`parse`](Self::parse) reads.
    pub fn to_keywords(self) -> String {
        let cells = match self.cells {
            Cells::None => "noatm",
            Cells::Atm => "atm",
            Cells::Ptm => "ptm",
        };
        format!("overhead {} mpu {} {cells}", self.bytes, self.mpu)
    }
}

/// What was read so far.
struct State {
    bytes: i64,
    mpu: u16,
    cells: Cells,
}

impl State {
    fn take<'a>(&mut self, word: &str, rest: &mut impl Iterator<Item = &'a str>) -> Result<(), String> {
        match word {
            "raw" => (self.bytes, self.cells) = (0, Cells::None),
            "conservative" => (self.bytes, self.cells) = (48, Cells::Atm),
            "atm" => self.cells = Cells::Atm,
            "ptm" => self.cells = Cells::Ptm,
            "noatm" => self.cells = Cells::None,
            "overhead" => self.bytes = number(word, rest.next(), &BYTES)?,
            "mpu" => self.mpu = u16::try_from(number(word, rest.next(), &MPU)?).unwrap_or(0),
            _ => self.preset(word)?,
        }
        Ok(())
    }

    fn preset(&mut self, word: &str) -> Result<(), String> {
        let Some((_, bytes, mpu, cells)) = PRESETS.iter().find(|(name, ..)| *name == word) else {
            let names: Vec<_> = PRESETS.iter().map(|(name, ..)| *name).collect();
            return Err(format!(
                "\"{word}\" is not a tc-cake keyword; known are raw, conservative, {}, atm, ptm, noatm, overhead N, mpu N",
                names.join(", ")
            ));
        };
        self.bytes += bytes;
        self.mpu = mpu.unwrap_or(self.mpu);
        self.cells = cells.unwrap_or(self.cells);
        Ok(())
    }

    fn finish(self) -> Result<Overhead, String> {
        match i16::try_from(self.bytes) {
            Ok(bytes) if BYTES.contains(&self.bytes) => {
                Ok(Overhead { bytes, mpu: self.mpu, cells: self.cells })
            }
            _ => Err(format!("adds up to {} bytes; from -64 to 256 are possible", self.bytes)),
        }
    }
}

fn number(word: &str, text: Option<&str>, range: &std::ops::RangeInclusive<i64>) -> Result<i64, String> {
    let text = text.ok_or_else(|| format!("\"{word}\" wants a number after it"))?;
    match text.parse::<i64>() {
        Ok(value) if range.contains(&value) => Ok(value),
        _ => Err(format!("\"{word} {text}\" is out of range: from {} to {}", range.start(), range.end())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overhead(bytes: i16, mpu: u16, cells: Cells) -> Overhead {
        Overhead { bytes, mpu, cells }
    }

    #[test]
    fn every_keyword_of_tc_cake_means_what_its_man_page_says() {
        let cases = [
            ("raw", overhead(0, 0, Cells::None)),
            ("conservative", overhead(48, 0, Cells::Atm)),
            ("pppoa-vcmux", overhead(10, 0, Cells::Atm)),
            ("pppoa-llc", overhead(14, 0, Cells::Atm)),
            ("pppoe-vcmux", overhead(32, 0, Cells::Atm)),
            ("pppoe-llcsnap", overhead(40, 0, Cells::Atm)),
            ("bridged-vcmux", overhead(24, 0, Cells::Atm)),
            ("bridged-llcsnap", overhead(32, 0, Cells::Atm)),
            ("ipoa-vcmux", overhead(8, 0, Cells::Atm)),
            ("ipoa-llcsnap", overhead(16, 0, Cells::Atm)),
            ("pppoe-ptm", overhead(30, 0, Cells::Ptm)),
            ("bridged-ptm", overhead(22, 0, Cells::Ptm)),
            ("docsis", overhead(18, 64, Cells::None)),
            ("ethernet", overhead(38, 84, Cells::None)),
            ("ether-vlan", overhead(4, 0, Cells::None)),
            ("pppoe-ptm ether-vlan", overhead(34, 0, Cells::Ptm)),
            ("ethernet ether-vlan ether-vlan", overhead(46, 84, Cells::None)),
            ("overhead -14 mpu 64 atm", overhead(-14, 64, Cells::Atm)),
            ("conservative noatm", overhead(48, 0, Cells::None)),
        ];
        for (text, expected) in cases {
            assert_eq!(Overhead::parse(text), Ok(expected), "{text}");
        }
        assert_eq!(Overhead::parse("ethernet"), Ok(Overhead::ETHERNET));
    }

    #[test]
    fn words_that_are_none_and_numbers_out_of_range_are_named() {
        for (text, named) in [
            ("", "empty"),
            ("ether", "\"ether\""),
            ("ethernet gpon", "\"gpon\""),
            ("overhead", "\"overhead\""),
            ("overhead 257", "overhead 257"),
            ("mpu x", "mpu x"),
            ("overhead 256 ether-vlan", "260"),
        ] {
            let error = Overhead::parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn keywords_survive_a_round_trip() {
        for text in ["raw", "pppoe-ptm ether-vlan", "conservative", "docsis", "overhead -64 mpu 256"] {
            let overhead = Overhead::parse(text).unwrap();
            assert_eq!(Overhead::parse(&overhead.to_keywords()), Ok(overhead), "{text}");
        }
    }
}
