// SPDX-License-Identifier: Apache-2.0
//! Whatever ends the demo, nothing that it made is left: no namespace, no interface, no process, no file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tests::machine::{self, wait_for};
use tests::rig::{Process, sh};
use tests::scene;
use tests::shaper::program;

/// How long the demo may take to its table, and to its end.
const PATIENCE: Duration = Duration::from_secs(90);

/// A demo under watch.
struct Demo {
    process: Process,
    tag: String,
    _log: Log,
}

/// A file that goes with the test.
struct Log(PathBuf);

impl Drop for Log {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Demo {
    fn start(name: &str, arguments: &[&str]) -> Result<Self> {
        let log = Log(std::env::temp_dir().join(format!("sluice-{name}-{}.log", std::process::id())));
        let process = Process::start("demo", Command::new(program("demo")).args(arguments), &log.0)?;
        let tag = scene::tag(process.id(), 0);
        Ok(Self { process, tag, _log: log })
    }

    fn wait_for(&mut self, text: &str) -> Result<()> {
        let shown =
            wait_for(PATIENCE, || self.process.output().contains(text) || self.process.ended().is_some());
        let output = self.process.output();
        ensure!(shown && output.contains(text), "the demo never said {text:?}: {output}");
        Ok(())
    }

    /// Waits for its end: exit code and all it printed.
    fn end(&mut self) -> Result<(Option<i32>, String)> {
        wait_for(PATIENCE, || self.process.ended().is_some());
        let status = self.process.ended().context("the demo does not end")?;
        Ok((status.code(), self.process.output()))
    }

    fn children(&self) -> Result<BTreeSet<u32>> {
        let all = std::fs::read_dir("/proc")?.filter_map(Result::ok);
        let pids = all.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
        Ok(pids.filter(|pid| parent(*pid) == Some(self.process.id())).collect())
    }

    /// Whatever bears this demo's name now.
    fn things(&self) -> Result<Vec<String>> {
        let Self { tag, .. } = self;
        let begins = |text: &str, with: &[String]| with.iter().any(|start| text.starts_with(start));
        let namespaces = sh("ip netns list")?;
        let links = sh("ip -o link show")?;
        let links = links.lines().filter_map(|line| line.split(": ").nth(1));
        let mut things: Vec<String> = namespaces
            .lines()
            .filter(|line| begins(line, &[format!("slu-{tag}-")]))
            .map(str::to_owned)
            .collect();
        things.extend(links.filter(|name| begins(name, &[format!("s{tag}")])).map(str::to_owned));
        let temporary = format!("sluice-scene-{}-", self.process.id());
        for folder in [std::env::temp_dir(), "/run/dpdk".into(), "/run/sluice".into()] {
            things.extend(names(&folder).into_iter().filter(|name| {
                let name = name.strip_suffix(".lock").unwrap_or(name);
                begins(name, &[temporary.clone(), format!("slu-{tag}-")]) || name == format!("slu-{tag}")
            }));
        }
        Ok(things)
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // state and parent follow the name in parentheses
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Starts a demo, waits until it has said `until`, does `then`, and looks for what is left after its end.
fn leaves_nothing(
    name: &str,
    arguments: &[&str],
    until: &str,
    then: impl FnOnce(&mut Demo, &BTreeSet<u32>) -> Result<()>,
) -> Option<(Option<i32>, String)> {
    if let Some(why) = machine::no_scene() {
        tests::skip(name, &why);
        return None;
    }
    let play = || -> Result<_> {
        let mut demo = Demo::start(name, arguments)?;
        demo.wait_for(until)?;
        if until.starts_with("Setting") {
            ensure!(
                wait_for(PATIENCE, || demo.things().is_ok_and(|things| things.len() > 3)),
                "nothing is made"
            );
        }
        let children = demo.children()?;
        ensure!(!demo.things()?.is_empty(), "the demo made nothing, so this test would see nothing");
        then(&mut demo, &children)?;
        let (code, output) = demo.end()?;
        let left = demo.things()?;
        ensure!(left.is_empty(), "left behind: {left:?}; {output}");
        // a number may have been given to somebody else's process since
        let alive: Vec<u32> = children.into_iter().filter(|pid| parent(*pid) == Some(1)).collect();
        ensure!(alive.is_empty(), "left running: {alive:?}; {output}");
        Ok((code, output))
    };
    Some(play().unwrap_or_else(|error| panic!("{error:#}")))
}

#[test]
fn ctrl_c_in_the_middle_leaves_nothing_behind() {
    let name = "ctrl_c_in_the_middle_leaves_nothing_behind";
    let ended = leaves_nothing(name, &[], "second 2 of", |demo, children| {
        ensure!(children.len() >= 14, "sluice, two delay lines, five servers and six flows: {children:?}");
        demo.process.signal("INT");
        Ok(())
    });
    if let Some((code, output)) = ended {
        assert_eq!(code, Some(130), "{output}");
        assert!(output.contains("All that was made is gone again"), "{output}");
    }
}

#[test]
fn ctrl_c_while_it_sets_up_leaves_nothing_behind() {
    let name = "ctrl_c_while_it_sets_up_leaves_nothing_behind";
    let ended = leaves_nothing(name, &[], "Setting up", |demo, _| {
        demo.process.signal("INT");
        Ok(())
    });
    if let Some((code, output)) = ended {
        assert_eq!(code, Some(130), "{output}");
        assert!(!output.contains("second 1"), "{output}");
    }
}

#[test]
fn a_failure_in_the_middle_is_said_and_leaves_nothing_behind() {
    let name = "a_failure_in_the_middle_is_said_and_leaves_nothing_behind";
    let ended = leaves_nothing(name, &[], "second 2 of", |_, children| {
        let command = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let sluice = children.iter().find(|pid| command(pid).contains("sluice\0run\0--config"));
        sh(&format!("kill -KILL {}", sluice.context("sluice runs")?))?;
        Ok(())
    });
    if let Some((code, output)) = ended {
        assert_eq!(code, Some(1), "{output}");
        assert!(output.contains("Error: sluice has ended"), "{output}");
    }
}

#[test]
fn kept_serving_it_shows_a_rate_changed_over_http_until_ctrl_c() {
    let name = "kept_serving_it_shows_a_rate_changed_over_http_until_ctrl_c";
    let ended = leaves_nothing(name, &["--keep", "--seconds", "2"], "second 4,", |demo, _| {
        let output = demo.process.output();
        let api = output.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
        let url = format!("http://{}/v1/subscribers/plain", api.context("it says where its API is")?);
        let mut answer =
            ureq::patch(url).content_type("application/json").send("{\"down_bps\": 33300000}")?;
        ensure!(answer.body_mut().read_to_string()?.contains("33300000"));
        demo.wait_for("33.3  L")?;
        demo.process.signal("INT");
        Ok(())
    });
    if let Some((code, output)) = ended {
        assert_eq!(code, Some(0), "{output}");
    }
}
