// SPDX-License-Identifier: Apache-2.0
//! Any bytes at all, and files near to good ones: never a panic, every problem named, nothing half taken.

use proptest::prelude::*;

use super::super::network;
use super::super::rates::Grammar;
use super::*;
use crate::Problems;

const SAMPLES: [&[u8]; 5] = [
    CURRENT,
    MISMATCH,
    LEGACY,
    include_bytes!("../../../tests/data/network.json"),
    br#"{"id":"a","down_bps":64000,"up_bps":64000,"parent":"p","match":{"ipv4":["10.0.0.1/32"]}}"#,
];

/// Good files with a few bytes changed, put in, taken out, or the end cut off.
fn near_good() -> impl Strategy<Value = Vec<u8>> {
    let edit = (
        any::<prop::sample::Index>(),
        0..4_u8,
        prop_oneof![any::<u8>(), Just(b','), Just(b'"'), Just(b'\n')],
    );
    (0..SAMPLES.len(), prop::collection::vec(edit, 0..6)).prop_map(|(sample, edits)| {
        let mut bytes = SAMPLES[sample].to_vec();
        for (at, what, byte) in edits {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match what {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => bytes.truncate(at),
            }
        }
        bytes
    })
}

fn assert_named(problems: &Problems, bytes: &[u8]) {
    assert!(!problems.0.is_empty());
    let lines = newlines(Some(bytes)) + 1;
    for problem in &problems.0 {
        assert!((1..=lines).contains(&problem.line), "{problem} in {lines} lines");
        assert!(!problem.message.is_empty() && problem.file == "f", "{problem}");
    }
}

/// All that is done with a file.
fn try_all(bytes: &[u8]) {
    let tree = network::read("f", bytes);
    if let Err(problems) = &tree {
        assert_named(problems, bytes);
    }
    for node in tree.iter().flat_map(|tree| &tree.nodes) {
        assert!((64_000..=400_000_000_000).contains(&node.down_bps.min(node.up_bps)), "{node:?}");
    }
    match read("f", bytes, &Options::default()) {
        Err(problems) => assert_named(&problems, bytes),
        Ok(mut imported) => {
            assert_eq!(imported.subscribers.len(), imported.lines.len());
            for subscriber in &imported.subscribers {
                let again = Subscriber::from_json(subscriber.to_json().as_bytes());
                assert_eq!(again.as_ref(), Ok(subscriber), "what comes in is a record");
            }
            imported.note_parents();
            let _ = imported.settle("f", Parents::Network(&tree.unwrap_or_default()));
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_by_line(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        try_all(&bytes);
    }

    #[test]
    fn any_text_of_the_alphabets_in_use_is_read_or_refused_by_line(text in "[0-9a-z{}\\[\\]\":,.;/# \r\n-]{0,200}") {
        try_all(text.as_bytes());
    }

    #[test]
    fn files_near_to_good_ones_are_read_or_refused_by_line(bytes in near_good()) {
        try_all(&bytes);
    }

    #[test]
    fn rate_strings_of_any_kind_are_in_range_or_refused(text in "\\PC{0,40}") {
        for grammar in [Grammar::Accel, Grammar::Mikrotik] {
            match grammar.read(&text) {
                Ok(rates) => prop_assert!(rates.down_bps >= 64_000 && rates.up_bps <= 400_000_000_000),
                Err(why) => prop_assert!(!why.is_empty()),
            }
        }
    }

    #[test]
    fn the_two_grammars_say_the_same_the_other_way_round(down in 64_u64..1_000_000, up in 64_u64..1_000_000) {
        let accel = Grammar::Accel.read(&format!("{down}/{up}"));
        let mikrotik = Grammar::Mikrotik.read(&format!("{up}k/{down}k"));
        prop_assert_eq!(accel.clone(), mikrotik);
        let rates = accel.unwrap();
        prop_assert_eq!((rates.down_bps, rates.up_bps), (down * 1_000, up * 1_000));
    }
}
