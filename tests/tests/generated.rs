// SPDX-License-Identifier: Apache-2.0
//! The generated-traffic drive of `pktgen-scripts/`: its Lua against the recorder, and its captures through Sluice.

use std::path::PathBuf;
use std::process::Command;

use tests::machine::has;
use tests::shaper::program;
use tests::skip;

fn scripts() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../pktgen-scripts"))
}

/// Asserts that it ends well; a failure shows all it said.
fn assert_runs(command: &mut Command) {
    let done = command.current_dir(scripts()).output().expect("it starts");
    let said = [done.stdout.as_slice(), &done.stderr].concat();
    assert!(done.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&said));
}

/// Drives one link; `options` beside it.
fn drive(test: &str, link: &str, options: &[&str]) {
    if !has("dpdk-testpmd") {
        return skip(test, "dpdk-testpmd is not installed (Debian: dpdk-dev)");
    }
    if let Some(why) = tests::machine::no_namespaces() {
        return skip(test, &why);
    }
    assert_runs(Command::new("./run").arg(link).args(options).arg("--sluice").arg(program("sluice")));
}

#[test]
fn every_script_calls_the_generator_as_its_releases_take_it() {
    if !has("lua5.3") {
        return skip("every_script_calls_the_generator", "lua5.3 is not installed");
    }
    assert_runs(Command::new("lua5.3").arg("check.lua"));
}

#[test]
fn all_that_is_sent_over_memif_is_forwarded_or_counted_as_dropped() {
    drive("all_that_is_sent_over_memif", "memif", &["--encapsulations"]);
}

#[test]
fn all_that_is_sent_over_taps_is_forwarded_or_counted_as_dropped() {
    drive("all_that_is_sent_over_taps", "tap", &["--sizes", "--encapsulations"]);
}

#[test]
fn all_that_net_null_delivers_is_counted() {
    drive("all_that_net_null_delivers", "null", &[]);
}
