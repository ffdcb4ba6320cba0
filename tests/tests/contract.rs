// SPDX-License-Identifier: Apache-2.0
//! `openapi.json` against a running Sluice: schemathesis makes requests from it, right and wrong ones, and holds every
//! answer to it. All its checks are on; `tests/contract/schemathesis.toml` gives the reason of each exception.
//!
//! The server has a token, so the document loses its "or none" here and `ignored_auth` is checked in full. While
//! it runs a record changes all the time, so that the event stream has something to say.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tests::machine::{has, wait_for};
use tests::quiet;
use tests::rig::Process;
use tests::shaper::{Shaper, program};
use tests::verdict::let_flow;

const NAME: &str = "the_server_keeps_to_its_contract";
const SEED: &str = "20261130";
const TOKEN: &str = "contract-test-0123456789";
const CONTRACT: &str = include_str!("../../control-api/openapi.json");
const REQUIREMENTS: &str = include_str!("../contract/requirements.txt");
/// A run takes about 15 s on an idle machine; one that lets it take so long shows nothing.
const LIMIT: Duration = Duration::from_mins(3);
/// An lcore that the machine kept from running for so long is told of in answers (503), rightly.
const STARVED_US: u64 = 400_000;

/// Builds' folder, `target`.
fn target() -> PathBuf {
    program("sluice").ancestors().nth(2).map(Path::to_path_buf).unwrap_or_default()
}

/// schemathesis, installed if it is not yet; `Ok(Err)`: why it cannot be.
fn schemathesis() -> Result<Result<PathBuf, String>> {
    let mut hasher = DefaultHasher::new();
    REQUIREMENTS.hash(&mut hasher);
    let venv = target().join("contract").join(format!("{:016x}", hasher.finish()));
    let (tool, done) = (venv.join("bin/schemathesis"), venv.join("installed"));
    if done.exists() {
        return Ok(Ok(tool));
    }
    if !has("python3") {
        return Ok(Err("`python3` is missing".to_owned()));
    }
    let _ = fs::remove_dir_all(&venv);
    let made = Command::new("python3").args(["-m", "venv"]).arg(&venv).output()?;
    if !made.status.success() {
        return Ok(Err("`python3 -m venv` fails; the Debian package is python3-venv".to_owned()));
    }
    let mut pip = Command::new(venv.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-input", "--require-hashes"]);
    pip.args(["--only-binary", ":all:", "-r"]).arg(here("requirements.txt"));
    let installed = pip.output()?;
    if installed.status.success() {
        fs::write(done, "")?;
        return Ok(Ok(tool));
    }
    let said = String::from_utf8_lossy(&installed.stderr).into_owned();
    ensure!(!said.contains("DO NOT MATCH THE HASHES"), "{said}");
    let last = said.lines().rev().find(|line| line.starts_with("ERROR")).unwrap_or("pip fails");
    Ok(Err(format!("schemathesis cannot be had from PyPI: {last}")))
}

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("contract").join(name)
}

/// The document as it is true of a server with a token.
fn contract(folder: &Path) -> Result<PathBuf> {
    let mut document: Value = serde_json::from_str(CONTRACT)?;
    let security = document.get_mut("security").context("no security")?;
    ensure!(*security == json!([{"bearer": []}, {}]), "{security}");
    *security = json!([{"bearer": []}]);
    let path = folder.join("openapi.json");
    fs::write(&path, document.to_string())?;
    Ok(path)
}

/// Changes a record again and again.
fn tick(shaper: &Shaper, end: &AtomicBool) {
    for rate in (0..).map(|turn| 64_000 + turn % 2) {
        if end.load(Relaxed) {
            return;
        }
        // whatever the other client made of it: it may be gone
        let _ = shaper.patch("/v1/subscribers/ticker", &json!({"up_bps": rate}).to_string());
        let_flow(0.25);
    }
}

/// What a run showed.
enum Outcome {
    Kept,
    Broken(String),
    /// It did not end in time.
    Late,
}

#[expect(clippy::print_stdout, reason = "a test speaks to whoever runs it")]
fn examine(tool: &Path, shaper: &Shaper, folder: &Path) -> Result<Outcome> {
    // what it keeps between runs it keeps in its folder, and finds its hooks by the environment
    let mut command = Command::new("env");
    command.arg("-C").arg(folder).arg(format!("SCHEMATHESIS_HOOKS={}", here("hooks.py").display())).arg(tool);
    command.arg("--config-file").arg(here("schemathesis.toml")).arg("run").arg(contract(folder)?);
    command.args(["--url", shaper.api(), "--checks", "all", "--seed", SEED, "--no-color"]);
    command.args(["--header", &format!("Authorization: Bearer {TOKEN}")]);
    if shaper.get("/v1/parents")?.0 == 501 {
        println!("{NAME}: /v1/parents is left out, for this version has none and says so by 501");
        command.args(["--exclude-path-regex", "^/v1/parents"]);
    }
    println!("{NAME}: seed {SEED}");
    let mut run = Process::start("schemathesis", &mut command, &folder.join("schemathesis.log"))?;
    let end = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| tick(shaper, &end));
        let ended = wait_for(LIMIT, || run.ended().is_some());
        end.store(true, Relaxed);
        ended
    });
    let output = run.output();
    match run.ended() {
        _ if !ended => return Ok(Outcome::Late),
        Some(status) if status.success() => {}
        _ => return Ok(Outcome::Broken(output)),
    }
    let summary = output.rsplit_once("= SUMMARY =").map_or(&*output, |(_, summary)| summary);
    println!("{summary}");
    ensure!(summary.contains("generated"), "nothing was tested: {output}");
    Ok(Outcome::Kept)
}

#[test]
fn the_server_keeps_to_its_contract() -> Result<()> {
    let tool = match schemathesis()? {
        Ok(tool) => tool,
        Err(why) => {
            tests::skip(NAME, &why);
            return Ok(());
        }
    };
    let folder = std::env::temp_dir().join(format!("sluice-contract-{}", std::process::id()));
    let mut spoiled = Vec::new();
    for _ in 0..2 {
        let mut shaper = quiet::start(&folder, &["alice", "ticker"], Some(TOKEN))?;
        let outcome = examine(&tool, &shaper, &folder);
        let gap = shaper.gap_us()?;
        ensure!(shaper.alive(), "Sluice died: {}", shaper.output());
        ensure!(!shaper.output().contains("panic"), "{}", shaper.output());
        drop(shaper);
        fs::remove_dir_all(&folder)?;
        match outcome? {
            Outcome::Kept => return Ok(()),
            Outcome::Broken(output) if gap < STARVED_US => bail!("{output}"),
            Outcome::Broken(_) => spoiled.push(format!("the packet lcore lost {gap} us at a stretch")),
            Outcome::Late => spoiled.push(format!("it did not end within {LIMIT:?}")),
        }
    }
    tests::skip(NAME, &format!("the machine was too busy: {}", spoiled.join("; ")));
    Ok(())
}
