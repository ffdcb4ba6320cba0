// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;

use super::*;

/// A file with one record, of the given byte order and magic number.
fn file(big_endian: bool, magic: u32, link_type: u32, captured: u32, data: &[u8]) -> Vec<u8> {
    let word = |w: u32| if big_endian { w.to_be_bytes() } else { w.to_le_bytes() };
    let mut bytes = Vec::new();
    for w in [magic, 0x0004_0002, 0, 0, 65_535, link_type, 1_700_000_000, 123_456, captured, 1514] {
        bytes.extend(word(w));
    }
    bytes.extend(data);
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<Record>, PcapError> {
    let mut reader = Reader::new(bytes)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next()? {
        records.push(record);
    }
    Ok(records)
}

#[test]
fn both_byte_orders_and_both_resolutions_are_read() {
    for big_endian in [false, true] {
        for (magic, unit) in [(MAGIC_MICROS, 1000), (MAGIC_NANOS, 1)] {
            let records = read(&file(big_endian, magic, ETHERNET, 3, &[1, 2, 3])).unwrap();
            let at = Nanos(1_700_000_000_000_000_000 + 123_456 * unit);
            assert_eq!(records, [Record { at, frame_bytes: 1514, data: vec![1, 2, 3] }]);
        }
    }
}

#[test]
fn what_is_written_is_read_back_to_the_nanosecond() {
    let records = [
        Record { at: Nanos(1), frame_bytes: 9000, data: vec![7; 100] },
        Record { at: Nanos(1_999_999_999_999_999_999), frame_bytes: 0, data: vec![] },
    ];
    let mut writer = Writer::new(Vec::new()).unwrap();
    for record in &records {
        writer.write(record.at, record.frame_bytes, &record.data).unwrap();
    }
    assert_eq!(read(&writer.finish().unwrap()).unwrap(), records);
}

#[test]
fn what_is_no_capture_is_told_apart() {
    let message = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert!(message(b"").contains("0 bytes"));
    assert!(message(b"\xd4\xc3\xb2\xa1 too short").contains("14 bytes"));
    assert!(message(&[0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 0]).contains("pcapng"));
    assert!(message(&[0x42; 24]).contains("0x42424242"));
    assert!(message(&file(false, MAGIC_MICROS, 101, 0, &[])).contains("link type is 101"));
}

#[test]
fn a_damaged_record_is_named_and_costs_no_memory() {
    let mut bytes = file(false, MAGIC_MICROS, ETHERNET, 3, &[1, 2, 3]);
    let good = bytes.len();
    bytes.extend([0; 8]);
    bytes.extend(u32::MAX.to_le_bytes());
    bytes.extend([0; 4]);
    let error = read(&bytes).unwrap_err().to_string();
    assert!(error.contains("record 2 at byte 43 claims 4294967295"), "{error}");
    for cut in good + 1..bytes.len() {
        let error = read(&bytes[..cut]).unwrap_err().to_string();
        assert!(error.contains("inside record 2"), "{error}");
    }
    assert_eq!(read(&bytes[..good]).unwrap().len(), 1);
    assert!(read(&bytes[..good - 1]).unwrap_err().to_string().contains("inside record 1"));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), good in any::<bool>()) {
        if good && bytes.len() >= 24 {
            bytes[..24].copy_from_slice(&file(false, MAGIC_NANOS, ETHERNET, 0, &[])[..24]);
        }
        let _ = read(&bytes);
    }
}
