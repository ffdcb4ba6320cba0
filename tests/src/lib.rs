// SPDX-License-Identifier: Apache-2.0
//! What the whole-system tests and the demo share: namespaces, processes, a running `sluice`, skips by name.
//!
//! Everything made here is unmade on drop, in the reverse order of making; processes are ended by their id.
#![forbid(unsafe_code)]

pub mod browser;
pub mod demo;
pub mod direct;
pub mod frames;
pub mod load;
pub mod machine;
pub mod pty;
pub mod quiet;
pub mod rig;
pub mod scene;
pub mod service;
pub mod shaper;
pub mod topology;
pub mod traffic;
pub mod verdict;

use std::io::Write as _;

/// Says that a test could not run here and why; `tests/run` prints it by name at the end.
pub fn skip(name: &str, why: &str) {
    #[expect(clippy::print_stderr, reason = "a test speaks to whoever runs it")]
    {
        eprintln!("skipped: {name}: {why}");
    }
    if let Some(path) = std::env::var_os("SLUICE_SKIP_LOG") {
        let log = std::fs::OpenOptions::new().append(true).create(true).open(path);
        let written = log.and_then(|mut file| writeln!(file, "{name}: {why}"));
        assert!(written.is_ok(), "the skip log cannot be written");
    }
}
