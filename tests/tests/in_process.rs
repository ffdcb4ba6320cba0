// SPDX-License-Identifier: Apache-2.0
//! The whole of Sluice in one process without root: its own lcore and AQM on rings, in real time, as `make demo` shows
//! it where it may not make namespaces.
//!
//! The demo itself ends with an error where a frame is missing or an ECN field is wrong, whatever the machine did.
//! Checks of delay follow the rule of `tests::verdict`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::rig::Process;
use tests::shaper::program;
use tests::verdict::{GAP_US, TRIES, Timed, all, within};

const PATIENCE: Duration = Duration::from_mins(2);

/// A folder that goes with the test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("sluice-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the demo in one process: what it printed, and its figures.
fn run(folder: &Path) -> Result<(String, Value)> {
    let json = folder.join("demo.json");
    let mut command = Command::new(program("demo"));
    command.args(["--in-process", "--seconds", "5", "--json"]).arg(&json);
    let output = Process::start("demo", &mut command, &folder.join("demo.log"))?.finish(PATIENCE)?;
    Ok((output, serde_json::from_str(&std::fs::read_to_string(json)?)?))
}

fn number(value: &Value, path: &str) -> Result<f64> {
    value.pointer(path).and_then(Value::as_f64).with_context(|| format!("no {path} in {value}"))
}

/// Conservation and ECN, which no machine can spoil.
fn always(report: &Value) -> Result<()> {
    let frames = |what: &str| number(report, &format!("/account/{what}"));
    let (received, sent, dropped) = (frames("received")?, frames("sent")?, frames("dropped")?);
    ensure!((received - sent - dropped).abs() < 0.5 && sent > 1_000.0, "{report}");
    let mut marks = 0.0;
    for part in 0..2 {
        for customer in 0..3 {
            let of = |path: &str| number(report, &format!("/parts/{part}/subscribers/{customer}/{path}"));
            ensure!(of("wrong_ecn")? == 0.0 && of("classic/marked")? == 0.0, "{report}");
            ensure!(of("prague_bps")? > 0.0 && of("cubic_bps")? > 0.0, "{report}");
            marks += of("prague_ce")?;
        }
    }
    ensure!(marks > 0.0, "nobody saw a mark: {report}");
    Ok(())
}

/// L4S waits less than CUBIC, the plan is used and kept, and a FIFO has both wait.
fn timed(report: &Value) -> Result<Timed> {
    let mut verdicts = Vec::new();
    for customer in 0..3 {
        let of =
            |part: u8, path: &str| number(report, &format!("/parts/{part}/subscribers/{customer}/{path}"));
        let (l4s, classic) = (of(0, "l4s/p99_us")? / 1e3, of(0, "classic/p99_us")? / 1e3);
        verdicts.push(within("L p99, ms", l4s, 0.0, 2.0));
        verdicts.push(within("C p99 less L p99, ms", classic - l4s, 0.001, 1e3));
        verdicts.push(within(
            "FIFO p99 less C p99, ms",
            of(1, "classic/p99_us")? / 1e3 - classic,
            0.001,
            1e3,
        ));
        for part in 0..2 {
            let share = of(part, "rate_bps")? / of(part, "plan_bps")?;
            verdicts.push(within("share of the plan", share, 0.9, 1.02));
        }
    }
    Ok(all(verdicts))
}

#[test]
fn in_one_process_l4s_waits_less_than_cubic_and_every_frame_is_counted() {
    let name = "in_one_process_l4s_waits_less_than_cubic_and_every_frame_is_counted";
    let play = || -> Result<()> {
        let folder = Folder::new("in-process")?;
        let mut gaps = Vec::new();
        for _ in 0..TRIES {
            let (output, report) = run(&folder.0)?;
            ensure!(output.contains("Left out:") && output.contains("second 5 of 5, fifo"), "{output}");
            always(&report)?;
            let (verdict, gap) = (timed(&report)?, number(&report, "/gap_us")?);
            println!("{name}: longest gap of the lcore {gap} us, {verdict:?}");
            match verdict {
                Ok(()) => return Ok(()),
                Err(wrong) => ensure!(gap > f64::from(u32::try_from(GAP_US)?), "{wrong}"),
            }
            gaps.push(gap);
        }
        let what = format!("{name} (delay and rate checks)");
        tests::skip(&what, &format!("the packet lcore lost {gaps:?} us at a stretch"));
        Ok(())
    };
    play().unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn the_demo_needs_no_root() {
    let name = "the_demo_needs_no_root";
    // nobody's number; a user whose runtime folder is not there, as after `su`
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"];
    let as_nobody = |command: &[&str]| {
        let mut all = Command::new("setpriv");
        all.args(nobody).args(["env", "XDG_RUNTIME_DIR=/nonexistent"]).args(command).current_dir("/");
        all
    };
    let demo = program("demo");
    let demo = demo.to_string_lossy();
    let reaches = as_nobody(&["test", "-x", &demo]).output();
    if !reaches.is_ok_and(|done| done.status.success()) {
        tests::skip(name, "this test cannot become another user, or that user cannot reach the build");
        return;
    }
    let play = || -> Result<()> {
        let folder = Folder::new("no-root")?;
        let mut command = as_nobody(&[&demo, "--seconds", "2"]);
        let output = Process::start("demo", &mut command, &folder.0.join("demo.log"))?.finish(PATIENCE)?;
        ensure!(
            output.contains("In one process, because") && output.contains("second 2 of 2, fifo"),
            "{output}"
        );
        ensure!(output.contains("Every frame is accounted for"), "{output}");
        Ok(())
    };
    play().unwrap_or_else(|error| panic!("{error:#}"));
}
