// SPDX-License-Identifier: Apache-2.0
//! Subscribers who come and go beside traffic: nothing of others is lost, and memory does not grow.
//!
//! A short run of `sluice bench churn`; `tests/bench --only churn --churn 600` is the long one. How long packets wait is not
//! judged here: other load decides that.

use std::process::Command;

use serde_json::Value;
use tests::shaper::program;

/// Seconds, and subscribers added in each; as many are removed.
const SECONDS: u64 = 30;
const PER_SECOND: u64 = 1_000;
/// Memory that may have been added after the first tenth of the run: what 300 bytes left behind with each would come to.
const GROWTH: i64 = 8 << 20;

#[test]
fn thousands_come_and_go_without_a_loss_or_a_trace() {
    let name = "thousands_come_and_go_without_a_loss_or_a_trace";
    let file = std::env::temp_dir().join(format!("sluice-churn-{}.json", std::process::id()));
    let done = Command::new(program("sluice"))
        .args(["bench", "churn", "--subscribers", "20000", "--mpps", "0.2"])
        .args(["--seconds", &SECONDS.to_string(), "--per-second", &PER_SECOND.to_string(), "--json"])
        .arg(&file)
        .output()
        .expect("sluice is built");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let figures: Value = serde_json::from_str(&text).expect("it writes JSON");
    let of = |key: &str| figures[key].as_i64().unwrap_or_else(|| panic!("{key} in {figures}"));
    println!("{figures}");
    assert_eq!(of("lost"), 0, "nobody else loses a packet: {figures}");
    assert!(of("grown_bytes") < GROWTH, "memory grows: {figures}");
    let asked = i64::try_from(SECONDS * PER_SECOND).expect("few");
    if of("changed") * 2 < asked {
        tests::skip(
            name,
            &format!("only {} of {asked} changes in the time: the machine is busy", of("changed")),
        );
    }
}
