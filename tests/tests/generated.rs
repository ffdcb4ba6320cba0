// SPDX-License-Identifier: Apache-2.0
//! The generated-traffic drive of `pktgen-scripts/`: its Lua against the recorder, and its captures through Sluice.

use std::path::PathBuf;
use std::process::{Command, Output};

use tests::machine::has;
use tests::shaper::program;
use tests::skip;

fn scripts() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../pktgen-scripts"))
}

/// Runs to the end; what was said goes to whoever reads a failure.
fn run(command: &mut Command) -> Output {
    let done = command.current_dir(scripts()).output().expect("it starts");
    let said = [done.stdout.as_slice(), &done.stderr].concat();
    println!("{command:?}\n{}", String::from_utf8_lossy(&said));
    done
}

/// Drives one link; `options` beside it.
fn drive(test: &str, link: &str, options: &[&str]) {
    if !has("dpdk-testpmd") {
        return skip(test, "dpdk-testpmd is not installed (Debian: dpdk-dev)");
    }
    if let Some(why) = tests::machine::no_namespaces() {
        return skip(test, &why);
    }
    let mut command = Command::new("./run");
    command.arg(link).args(options).arg("--sluice").arg(program("sluice"));
    assert!(run(&mut command).status.success(), "the counts over {link} do not add up");
}

#[test]
fn every_script_calls_the_generator_as_its_releases_take_it() {
    if !has("lua5.3") {
        return skip("every_script_calls_the_generator", "lua5.3 is not installed");
    }
    assert!(run(Command::new("lua5.3").arg("check.lua")).status.success());
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
