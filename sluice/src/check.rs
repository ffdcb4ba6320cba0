// SPDX-License-Identifier: Apache-2.0
//! `sluice check FILE`: validates a configuration or a subscriber file, told apart by content.
//!
//! Every problem has a line of its own on stderr, `file:line: key: message`; a good file gets a short summary on
//! stdout, for a configuration with the memory that a subscriber of each profile takes. Nothing is changed, and nothing
//! opened but the file itself and what its `[api]` names: token, certificate and key. `--preflight` looks at the machine
//! instead.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use control_api::{Options, Server};
use dataplane::MbufPacket;
use engine::{IdMemory, Profiles};
use model::Config;
use model::import::{self, Content, Imported, network};

use crate::preflight;

/// Arguments of `sluice check`.
#[derive(clap::Args)]
pub(crate) struct CheckArgs {
    /// Configuration (TOML), subscribers (NDJSON, a JSON array, ShapedDevices.csv, chap-secrets), or network.json
    #[arg(required_unless_present = "preflight")]
    file: Option<PathBuf>,
    /// Look whether this machine suits the configuration (without FILE: /etc/sluice/sluice.toml, if it is there), with a
    /// fix for each thing that does not
    #[arg(long)]
    preflight: bool,
    /// With --preflight: as JSON
    #[arg(long, requires = "preflight")]
    json: bool,
}

/// The configuration of the package.
pub(crate) const INSTALLED: &str = "/etc/sluice/sluice.toml";

/// Checks a file; exit code 1 if it has problems.
///
/// # Errors
///
/// If the file cannot be read.
pub(crate) fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let CheckArgs { file, preflight, json } = args;
    if preflight {
        let installed = Some(Path::new(INSTALLED)).filter(|path| path.exists());
        return preflight::run(file.as_deref().or(installed), json);
    }
    let file = file.context("a file to check is missing")?;
    let name = file.display().to_string();
    let bytes = std::fs::read(&file).with_context(|| format!("{name} cannot be read"))?;
    match verdict(&name, &bytes) {
        Ok(summary) => {
            io::stdout().lock().write_all(summary.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(problems) => {
            io::stderr().lock().write_all(problems.as_bytes())?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The summary of a good file or the problems of a bad one, with their line ends.
fn verdict(name: &str, bytes: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let lines = |problems: model::Problems| format!("{problems}\n");
    // What is no UTF-8 is left to the importer, which says where.
    if std::str::from_utf8(bytes).is_ok() && import::detect(text) == Content::Config {
        let config = Config::parse(name, text).map_err(lines)?;
        check_api(name, &config)?;
        return config_summary(name, &config);
    }
    if import::detect(text) == Content::Network {
        let network = network::read(name, bytes).map_err(lines)?;
        let notes = network.notes.iter().map(|note| format!("{name}: note: {note}\n"));
        let parents = count(network.nodes.len(), "parent");
        return Ok(format!("{}{name}: a good network: {parents}\n", notes.collect::<String>()));
    }
    let mut imported = import::read(name, bytes, &import::Options::default()).map_err(lines)?;
    imported.note_parents();
    Ok(import_summary(name, &imported))
}

/// Token, certificate and key, a line for each that cannot be used.
pub(crate) fn check_api(name: &str, config: &Config) -> Result<(), String> {
    let problems = Server::check(&Options::from_config(config));
    let lines: Vec<_> = problems.iter().map(|problem| format!("{name}: {problem}\n")).collect();
    if lines.is_empty() { Ok(()) } else { Err(lines.concat()) }
}

fn config_summary(name: &str, config: &Config) -> Result<String, String> {
    let profiles = Profiles::new(&config.profiles).map_err(|error| format!("{name}: {error}\n"))?;
    let mut summary = format!(
        "{name}: a good configuration: {}, {}, {}, {}\n",
        count(config.ports.len(), "port"),
        count(config.profiles.len(), "profile"),
        count(config.parents.len(), "parent"),
        count(config.subscribers.len(), "subscriber"),
    );
    for (profile, keys) in &config.profiles {
        if let Some(memory) = profiles.index(profile).and_then(|index| profiles.memory::<MbufPacket>(index)) {
            summary += &memory_line(profile, keys.aqm.name(), memory);
        }
    }
    summary += &parents_line();
    Ok(summary)
}

/// The memory of aggregates.
fn parents_line() -> String {
    let (parent, below) = engine::parent_memory();
    format!(
        "parents: {parent} bytes each, for every TX lcore and port with subscribers of it, and {below} bytes a subscriber \
         below one\n"
    )
}

/// A subscriber's memory: two queue ids.
fn memory_line(profile: &str, aqm: &str, memory: IdMemory) -> String {
    format!(
        "profile {profile}: {aqm}, {} bytes a subscriber: records {}, rings {}, PI banks {}, discipline {}; \
         {} more once much was counted\n",
        2 * memory.total(),
        2 * memory.record,
        2 * memory.counters,
        2 * memory.banks,
        2 * memory.discipline,
        2 * memory.ledgers,
    )
}

fn import_summary(name: &str, imported: &Imported) -> String {
    let subscribers = count(imported.subscribers.len(), "subscriber");
    let notes = imported.notes.iter().map(|note| format!("{name}: note: {note}\n"));
    let notes: String = notes.collect();
    format!("{notes}{name}: a good subscriber file ({}): {subscribers}\n", imported.format)
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_configuration_is_summed_up() {
        let text = b"[profile.gold]\naqm = \"fq_codel\"\n[[subscriber]]\nid=\"a\"\ndown_bps=64000\nup_bps=64000\nmatch={ipv4=[\"10.0.0.1\"]}\n";
        let summary = verdict("f", text).unwrap();
        let lines: Vec<_> = summary.lines().collect();
        assert_eq!(lines[0], "f: a good configuration: 0 ports, 2 profiles, 0 parents, 1 subscriber");
        assert_eq!(lines.len(), 4, "{summary}");
        assert!(lines[1].starts_with("profile default: dualpi2, "), "{summary}");
        assert!(lines[2].starts_with("profile gold: fq_codel, "), "{summary}");
        assert!(lines[3].starts_with("parents: 1"), "{summary}");
    }

    /// The numbers of a line: the total and its parts.
    fn memory(summary: &str, profile: &str) -> (u64, [u64; 4]) {
        let start = format!("profile {profile}: ");
        let line = summary.lines().find(|line| line.starts_with(&start)).unwrap();
        let line = line.trim_start_matches(&start);
        let (line, _) = line.split_once(';').unwrap();
        let words = line.split([' ', ',']);
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let [total, parts @ ..] = numbers.as_slice() else { panic!("{line}") };
        (*total, parts.try_into().unwrap())
    }

    #[test]
    fn the_memory_of_a_subscriber_is_told_by_profile() {
        let text =
            b"[profile.a]\naqm = \"fq\"\n[profile.b]\naqm = \"fifo\"\n[profile.c]\nqueue_protection = true\n\
                     [profile.d]\naqm = \"codel\"\n[profile.e]\ntupdate_us = 5000\n";
        let summary = verdict("f", text).unwrap();
        for profile in ["default", "a", "b", "c", "d", "e"] {
            let (total, parts) = memory(&summary, profile);
            assert_eq!(total, parts.iter().sum::<u64>(), "{profile}");
            assert_eq!(parts[0], 512, "two hot records of four cache lines");
        }
        let own = |profile| memory(&summary, profile).1[3];
        assert_eq!((own("default"), own("b"), own("e")), (0, 0, 0));
        // 1,024 FIFOs of an mbuf list and a count, both ways
        assert!(own("a") > 2 * 1_024 * 12, "{summary}");
        assert!((1_000..1_200).contains(&own("c")), "{summary}");
        assert!((1..1_000).contains(&own("d")), "{summary}");
    }

    #[test]
    fn every_problem_of_a_configuration_has_its_line() {
        let problems = verdict("f.toml", b"[store]\npth = 1\n[api]\nlisten = 5\n").unwrap_err();
        let expected = "f.toml:2: store.pth: unknown key; did you mean \"path\"?\n\
                        f.toml:4: api.listen: 5 is not a string with something in it\n";
        assert_eq!(problems, expected);
    }

    #[test]
    fn files_that_the_api_needs_are_read() {
        let name = format!("sluice-check-{}-token", std::process::id());
        let token = std::env::temp_dir().join(name);
        std::fs::write(&token, "fifteen-letters\n").unwrap();
        let api =
            format!("[api]\ntoken_file = {token:?}\ntls_cert = \"/nosuch/c\"\ntls_key = \"/nosuch/k\"\n");
        let problems = verdict("f.toml", api.as_bytes()).unwrap_err();
        let mut lines = problems.lines();
        assert!(
            lines.next().unwrap().starts_with("f.toml: api.tls_cert = /nosuch/c: No such file"),
            "{problems}"
        );
        assert!(lines.next().unwrap().starts_with("f.toml: api.token_file = /"), "{problems}");
        assert_eq!(lines.next(), None);
        std::fs::write(&token, "sixteen-letters.\n").unwrap();
        assert!(verdict("f.toml", format!("[api]\ntoken_file = {token:?}\n").as_bytes()).is_ok());
        std::fs::remove_file(token).unwrap();
    }

    #[test]
    fn a_subscriber_file_is_recognised_and_its_notes_are_shown() {
        let csv = b"1,n,d,dn,AP,,100.64.0.1,,1,1,50,10,\n";
        let summary = verdict("s.csv", csv).unwrap();
        assert!(summary.contains("s.csv: note: 1 parent node is named;"), "{summary}");
        assert!(
            summary.ends_with("s.csv: a good subscriber file (ShapedDevices.csv): 1 subscriber\n"),
            "{summary}"
        );
        let problems = verdict("s.json", b"{\"id\":\"a\"}").unwrap_err();
        assert!(problems.starts_with("s.json:1: down_bps: is missing\n"), "{problems}");
        assert_eq!(verdict("s", b"\xff").unwrap_err(), "s:1: is not UTF-8 text; save the file as UTF-8\n");
    }
}
