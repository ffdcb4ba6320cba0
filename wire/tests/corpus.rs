// SPDX-License-Identifier: Apache-2.0
//! Replays the fuzz target's corpus: each file once made a difference to the fuzzer or to us.

use std::{collections::BTreeSet, fs};

use wire::{Kind, parse};

mod promises;

#[test]
fn the_corpus_keeps_every_promise() {
    let mut inputs = 0;
    let mut kinds = BTreeSet::new();
    for entry in fs::read_dir("../fuzz/corpus/parse").expect("the corpus") {
        let input = fs::read(entry.expect("an entry").path()).expect("an input");
        promises::check(&input);
        inputs += 1;
        if let Some(head) = input.get(2..) {
            kinds.insert(match parse(head, u32::try_from(head.len()).expect("short")).kind {
                Kind::Ipv4 => "ipv4",
                Kind::Ipv6 => "ipv6",
                Kind::NotIp(reason) => reason.label(),
                Kind::Control(control) => control.label(),
                Kind::Bad(bad) => bad.label(),
            });
        }
    }
    assert!(inputs >= 100, "{inputs} inputs");
    assert!(kinds.len() >= 30, "the corpus reaches only {kinds:?}");
}
