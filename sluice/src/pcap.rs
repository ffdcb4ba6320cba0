// SPDX-License-Identifier: Apache-2.0
//! Classic pcap files, read and written as streams (draft-ietf-opsawg-pcap).
//!
//! Reads microsecond and nanosecond files in either byte order; writes nanosecond files, little-endian. Captures of
//! Ethernet only. Invariant: no record is larger than [`MAX_RECORD_BYTES`], whatever the file claims, and a damaged
//! file gives an error that names the record and its place.

use std::io::{self, Read, Write};

use aqm::Nanos;

/// Largest record accepted: the largest snap length that libpcap uses.
pub(crate) const MAX_RECORD_BYTES: u32 = 262_144;
/// LINKTYPE_ETHERNET.
const ETHERNET: u32 = 1;
const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
/// First four bytes of the other formats people call "pcap".
const MAGIC_PCAPNG: u32 = 0x0a0d_0d0a;
const FILE_HEADER_BYTES: u64 = 24;
const RECORD_HEADER_BYTES: u64 = 16;

/// Why a capture cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PcapError {
    /// The file ends before its header does.
    #[error("it is not a capture: it has {0} bytes, and the header of a pcap file alone has 24")]
    NoHeader(usize),
    /// Another format.
    #[error("it is a pcapng file; convert it with `editcap -F nsecpcap`")]
    Pcapng,
    /// No known magic number.
    #[error("it is not a classic pcap file: it begins with {0:#010x}")]
    Magic(u32),
    /// Not Ethernet.
    #[error("its link type is {0}; only Ethernet (1) can be replayed")]
    LinkType(u32),
    /// A record's length cannot be.
    #[error(
        "record {record} at byte {offset} claims {bytes} captured bytes (at most {MAX_RECORD_BYTES} can be): it is \
         damaged from there on"
    )]
    RecordLength {
        /// Which, from 1.
        record: u64,
        /// Where it begins.
        offset: u64,
        /// What it claims.
        bytes: u32,
    },
    /// The file ends inside a record.
    #[error("it ends inside record {record}, which begins at byte {offset}: it is cut off")]
    CutOff {
        /// Which, from 1.
        record: u64,
        /// Where it begins.
        offset: u64,
    },
    /// The system's fault.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Time since the epoch.
    pub(crate) at: Nanos,
    /// Length on the wire; at least that of `data`, unless the file lies.
    pub(crate) frame_bytes: u32,
    /// What was captured of it.
    pub(crate) data: Vec<u8>,
}

/// Reads a capture.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    input: R,
    big_endian: bool,
    /// Nanoseconds of a unit of the fraction field.
    unit: u64,
    /// Records read.
    records: u64,
    offset: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the file's header.
    pub(crate) fn new(mut input: R) -> Result<Self, PcapError> {
        let mut header = [0; 24];
        let got = read_all(&mut input, &mut header)?;
        let magic = u32::from_le_bytes(first(&header));
        if got >= 4 && magic == MAGIC_PCAPNG {
            return Err(PcapError::Pcapng);
        }
        if got < header.len() {
            return Err(PcapError::NoHeader(got));
        }
        let (big_endian, unit) = match (magic, magic.swap_bytes()) {
            (MAGIC_MICROS, _) => (false, 1_000),
            (MAGIC_NANOS, _) => (false, 1),
            (_, MAGIC_MICROS) => (true, 1_000),
            (_, MAGIC_NANOS) => (true, 1),
            _ => return Err(PcapError::Magic(magic)),
        };
        let reader = Self { input, big_endian, unit, records: 0, offset: FILE_HEADER_BYTES };
        // The upper bits say things about frame check sequences.
        let link_type = reader.word(&header[20..]) & 0x0fff_ffff;
        if link_type != ETHERNET {
            return Err(PcapError::LinkType(link_type));
        }
        Ok(reader)
    }

    /// The next packet, `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Record>, PcapError> {
        let (record, offset) = (self.records + 1, self.offset);
        let mut header = [0; 16];
        match read_all(&mut self.input, &mut header)? {
            0 => return Ok(None),
            16 => {}
            _ => return Err(PcapError::CutOff { record, offset }),
        }
        let [seconds, fraction, captured, frame_bytes] =
            [0, 4, 8, 12].map(|at| self.word(header.get(at..).unwrap_or_default()));
        if captured > MAX_RECORD_BYTES {
            return Err(PcapError::RecordLength { record, offset, bytes: captured });
        }
        let mut data = vec![0; usize::try_from(captured).unwrap_or(0)];
        if read_all(&mut self.input, &mut data)? < data.len() {
            return Err(PcapError::CutOff { record, offset });
        }
        self.records = record;
        self.offset += RECORD_HEADER_BYTES + u64::from(captured);
        let at = Nanos(u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit);
        Ok(Some(Record { at, frame_bytes, data }))
    }

    fn word(&self, bytes: &[u8]) -> u32 {
        let word = first(bytes);
        if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }
}

fn first(bytes: &[u8]) -> [u8; 4] {
    bytes.first_chunk().copied().unwrap_or_default()
}

/// Fills `buffer` as far as there is input; returns how far.
fn read_all(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Writes a nanosecond capture of Ethernet.
#[derive(Debug)]
pub(crate) struct Writer<W> {
    output: W,
}

impl<W: Write> Writer<W> {
    /// Writes the file's header.
    pub(crate) fn new(mut output: W) -> io::Result<Self> {
        output.write_all(&MAGIC_NANOS.to_le_bytes())?;
        // Version 2.4, then time zone and accuracy, which nobody uses.
        output.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
        output.write_all(&MAX_RECORD_BYTES.to_le_bytes())?;
        output.write_all(&ETHERNET.to_le_bytes())?;
        Ok(Self { output })
    }

    /// Appends a packet.
    pub(crate) fn write(&mut self, at: Nanos, frame_bytes: u32, data: &[u8]) -> io::Result<()> {
        let seconds = u32::try_from(at.0 / 1_000_000_000).unwrap_or(u32::MAX);
        let fraction = u32::try_from(at.0 % 1_000_000_000).unwrap_or(0);
        let captured = u32::try_from(data.len()).unwrap_or(u32::MAX);
        for word in [seconds, fraction, captured, frame_bytes] {
            self.output.write_all(&word.to_le_bytes())?;
        }
        self.output.write_all(data)
    }

    /// Writes what is buffered and gives the output back.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}

#[cfg(test)]
mod tests;
