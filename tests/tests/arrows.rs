// SPDX-License-Identifier: Apache-2.0
//! The arrows between the crates go one way, and `unsafe` stays where it may be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What each crate may know of the others. ARCHITECTURE.md says why.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("aqm", &[]),
    ("cc", &[]),
    ("mem", &[]),
    ("model", &[]),
    ("wire", &[]),
    ("dpdk-sys", &[]),
    ("dpdk", &["dpdk-sys", "mem"]),
    ("engine", &["aqm", "mem", "model", "wire"]),
    ("lab", &["aqm", "cc", "engine", "model"]),
    ("dataplane", &["aqm", "dpdk", "engine", "mem", "model", "wire"]),
    ("control-api", &["model"]),
    ("sluice", &["aqm", "cc", "control-api", "dataplane", "engine", "lab", "model", "wire"]),
    ("tests", &["aqm", "cc", "dataplane", "dpdk", "engine", "mem", "model", "wire"]),
];

/// Crates in which `unsafe` may stand.
const UNSAFE: &[&str] = &["mem", "dpdk-sys", "dpdk"];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn metadata() -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let done = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    serde_json::from_slice(&done.stdout).expect("cargo metadata prints JSON")
}

#[test]
fn crates_know_only_what_the_design_lets_them_know() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let own: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let allowed: BTreeMap<&str, &[&str]> = MAY_KNOW.iter().copied().collect();
    assert_eq!(
        own,
        allowed.keys().copied().collect(),
        "a crate without a line in MAY_KNOW, or the other way round"
    );
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let (on, kind) = (dependency["name"].as_str().expect("a name"), dependency["kind"].as_str());
            // a registry crate may bear the name of one of ours (`cc`, at build time)
            if own.contains(on) && !dependency["path"].is_null() && kind != Some("dev") {
                assert!(allowed[name].contains(&on), "{name} must not know {on}");
            }
        }
    }
}

#[test]
fn every_crate_but_three_forbids_unsafe() {
    for (name, _) in MAY_KNOW {
        let source = root().join(name).join("src");
        let top = ["lib.rs", "main.rs"].iter().map(|file| source.join(file)).find(|path| path.exists());
        let text = std::fs::read_to_string(top.expect("lib.rs or main.rs")).expect("a readable file");
        assert_eq!(text.contains("#![forbid(unsafe_code)]"), !UNSAFE.contains(name), "{name}");
    }
}
