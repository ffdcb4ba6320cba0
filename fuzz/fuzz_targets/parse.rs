// SPDX-License-Identifier: Apache-2.0
//! Any bytes through the parser and the CE mark. The promises it holds them to are those that
//! `wire/tests/corpus.rs` holds the corpus to without a fuzzer.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../wire/tests/promises/mod.rs"]
mod promises;

fuzz_target!(|input: &[u8]| promises::check(input));
