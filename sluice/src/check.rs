// SPDX-License-Identifier: Apache-2.0
//! `sluice check FILE`: validates a configuration or a subscriber file, told apart by content.
//!
//! Every problem has a line of its own on stderr, `file:line: key: message`; a good file gets a short summary on
//! stdout. Nothing is opened or changed but the file itself.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use model::Config;
use model::import::{self, Content, Imported};

/// Arguments of `sluice check`.
#[derive(clap::Args)]
pub(crate) struct CheckArgs {
    /// Configuration (TOML), or subscribers: NDJSON, a JSON array, ShapedDevices.csv
    file: PathBuf,
}

/// Checks a file; exit code 1 if it has problems.
///
/// # Errors
///
/// If the file cannot be read.
pub(crate) fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let CheckArgs { file } = args;
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
        return Ok(config_summary(name, &config));
    }
    let imported = import::read(name, bytes, &import::Options::default()).map_err(lines)?;
    Ok(import_summary(name, &imported))
}

fn config_summary(name: &str, config: &Config) -> String {
    format!(
        "{name}: a good configuration: {}, {}, {}\n",
        count(config.ports.len(), "port"),
        count(config.profiles.len(), "profile"),
        count(config.subscribers.len(), "subscriber"),
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
        let text = b"[profile.gold]\n[[subscriber]]\nid=\"a\"\ndown_bps=64000\nup_bps=64000\nmatch={ipv4=[\"10.0.0.1\"]}\n";
        assert_eq!(
            verdict("f", text).unwrap(),
            "f: a good configuration: 0 ports, 2 profiles, 1 subscriber\n"
        );
    }

    #[test]
    fn every_problem_of_a_configuration_has_its_line() {
        let problems = verdict("f.toml", b"[store]\npth = 1\n[api]\nlisten = 5\n").unwrap_err();
        let expected = "f.toml:2: store.pth: unknown key; did you mean \"path\"?\n\
                        f.toml:4: api.listen: 5 is not a string with something in it\n";
        assert_eq!(problems, expected);
    }

    #[test]
    fn a_subscriber_file_is_recognised_and_its_notes_are_shown() {
        let csv = b"1,n,d,dn,AP,,100.64.0.1,,1,1,50,10,\n";
        let summary = verdict("s.csv", csv).unwrap();
        assert!(summary.starts_with("s.csv: note: 1 row names 1 parent node;"), "{summary}");
        assert!(
            summary.ends_with("s.csv: a good subscriber file (ShapedDevices.csv): 1 subscriber\n"),
            "{summary}"
        );
        let problems = verdict("s.json", b"{\"id\":\"a\"}").unwrap_err();
        assert!(problems.starts_with("s.json:1: down_bps: is missing\n"), "{problems}");
        assert_eq!(verdict("s", b"\xff").unwrap_err(), "s:1: is not UTF-8 text; save the file as UTF-8\n");
    }
}
