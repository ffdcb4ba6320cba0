// SPDX-License-Identifier: Apache-2.0
//! `sluice support-bundle`: what a report of a fault needs, in one compressed archive.
//!
//! Invariant: no token, no key, no record of a subscriber and no traffic goes into it: neither token nor key files are
//! members, the token is looked for in every member, records are left out. Events and the journal name subscribers by
//! their ids, which the manifest says. Works with the shaper dead; MANIFEST.txt says what could
//! not be had and why. Readable by its owner alone.

mod scrub;

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use flate2::Compression;
use flate2::write::GzEncoder;
use model::Config;
use serde_json::json;
use tar::{Builder, Header};

use crate::check::INSTALLED;
use crate::preflight;
use crate::subs::Connection;
use crate::subs::client::Client;

/// How long a call to the shaper may take; the stream of events is listened to for shorter.
const PATIENCE: Duration = Duration::from_secs(10);
const LISTEN: Duration = Duration::from_secs(2);
/// Lines of the journal.
const JOURNAL_LINES: &str = "20000";
/// Calls of the interface and the members they become.
const CALLS: [(&str, &str); 7] = [
    ("/readyz", "api/readyz.json"),
    ("/metrics", "api/metrics.txt"),
    ("/v1/ports", "api/ports.json"),
    ("/v1/lcores", "api/lcores.json"),
    ("/v1/profiles", "api/profiles.json"),
    ("/v1/openapi.json", "api/openapi.json"),
    ("/v1/events", "api/events.txt"),
];
/// What the kernel says of the machine.
const HOST: [&str; 5] =
    ["/proc/cmdline", "/proc/meminfo", "/proc/cpuinfo", "/proc/interrupts", "/etc/os-release"];

/// Arguments of `sluice support-bundle`.
#[derive(clap::Args)]
pub(crate) struct BundleArgs {
    /// The archive to write; it must not exist yet.
    #[arg(long, value_name = "F.tar.gz")]
    out: PathBuf,
    /// Configuration of the shaper.
    #[arg(long, value_name = "FILE", default_value = INSTALLED)]
    config: PathBuf,
    /// Address of its HTTP interface; otherwise that of the configuration.
    #[arg(long, value_name = "URL")]
    api: Option<String>,
    /// File with the bearer token; otherwise that of the configuration.
    #[arg(long, value_name = "F")]
    token_file: Option<PathBuf>,
    /// Certificate (PEM) to trust; otherwise that of the configuration.
    #[arg(long, value_name = "F")]
    ca_file: Option<PathBuf>,
    /// Unit whose journal is taken.
    #[arg(long, default_value = "sluice")]
    unit: String,
}

/// A file of the archive, or why it is not there.
type Member = (String, Result<String>);

/// Writes the archive.
///
/// # Errors
///
/// If it cannot be written.
pub(crate) fn run(args: &BundleArgs) -> Result<ExitCode> {
    let mut secrets = Vec::new();
    let config = Config::load(&args.config);
    let token = args.token_file.clone().or_else(|| config.as_ref().ok()?.api.token_file.clone());
    secrets.extend(token.as_deref().and_then(|path| std::fs::read_to_string(path).ok()));
    let mut members = vec![("version.json".to_owned(), Ok(version()))];
    members.extend(configuration(&args.config, config.as_ref()));
    let report = preflight::look(config.as_ref().unwrap_or(&Config::default()));
    members.push(("preflight.json".to_owned(), serde_json::to_string_pretty(&report).map_err(Into::into)));
    members.extend(HOST.iter().map(|path| {
        let name = format!("host/{}.txt", path.rsplit('/').next().unwrap_or_default());
        (name, std::fs::read_to_string(path).map_err(Into::into))
    }));
    members.extend(interface(&connection(args, token, config.as_ref().ok())));
    members.push(("journal.txt".to_owned(), journal(&args.unit)));
    let scrubbed =
        members.into_iter().map(|(name, text)| (name, text.map(|text| scrub::text(&text, &secrets))));
    write(&args.out, scrubbed.collect())?;
    writeln!(io::stdout().lock(), "{}: look through it before you send it", args.out.display())?;
    Ok(ExitCode::SUCCESS)
}

fn version() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let all = json!({
        "sluice": env!("CARGO_PKG_VERSION"),
        "dpdk": dataplane::dpdk_version(),
        "kernel": kernel.trim(),
        "architecture": std::env::consts::ARCH,
    });
    format!("{all:#}")
}

/// What is in force by the file, without its records; of a file that is not good what is wrong, and its keys.
fn configuration(path: &Path, config: Result<&Config, &model::Problems>) -> Vec<Member> {
    match config {
        Ok(config) => {
            let (seeds, parents) = (config.subscribers.len(), config.parents.len());
            let without = Config { subscribers: Vec::new(), parents: Vec::new(), ..config.clone() };
            let text = format!(
                "# every key with its value in force; {seeds} [[subscriber]] left out, {parents} [[parent]] too\n{}",
                without.to_toml()
            );
            vec![("config.toml".to_owned(), Ok(text))]
        }
        Err(problems) => {
            let raw = std::fs::read_to_string(path).map(|text| scrub::configuration(&text));
            let places = problems
                .0
                .iter()
                .map(|problem| format!("{}:{}: {}\n", problem.file, problem.line, problem.key));
            vec![
                ("config-problems.txt".to_owned(), Ok(places.collect())),
                ("config.txt".to_owned(), raw.map_err(Into::into)),
            ]
        }
    }
}

/// Where the shaper answers on this machine.
fn connection(args: &BundleArgs, token_file: Option<PathBuf>, config: Option<&Config>) -> Connection {
    let api = config.map(|config| &config.api);
    let ca_file = args.ca_file.clone().or_else(|| api?.tls_cert.clone());
    let of_config = || {
        let listen = api.map(|api| api.listen)?;
        let scheme = if api.is_some_and(|api| api.tls_cert.is_some()) { "https" } else { "http" };
        Some(format!("{scheme}://{}", reachable(listen)))
    };
    let api = args.api.clone().or_else(of_config).unwrap_or_else(|| "http://127.0.0.1:8480".to_owned());
    Connection { api, token_file, ca_file }
}

/// An address to connect to, of one to listen on.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let mut address = listen;
    if listen.ip().is_unspecified() {
        let loopback: std::net::IpAddr = if listen.is_ipv4() {
            std::net::Ipv4Addr::LOCALHOST.into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        };
        address.set_ip(loopback);
    }
    address
}

fn interface(connection: &Connection) -> Vec<Member> {
    let client = Client::new(connection).map_err(|error| format!("{error:#}"));
    let call = |path: &str| {
        let client = client.as_ref().map_err(|error| anyhow!("{error}"))?;
        client.text(path, if path == "/v1/events" { LISTEN } else { PATIENCE })
    };
    CALLS.iter().map(|(path, name)| ((*name).to_owned(), call(path))).collect()
}

fn journal(unit: &str) -> Result<String> {
    let mut command = Command::new("journalctl");
    command.args(["--no-pager", "--output=short-iso-precise", "--lines", JOURNAL_LINES, "--unit", unit]);
    let done = command.output().context("journalctl cannot be run")?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    Err(anyhow!("journalctl: {}", String::from_utf8_lossy(&done.stderr).trim()))
}

fn write(out: &Path, members: Vec<Member>) -> Result<()> {
    let shown = out.display();
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(out);
    let why = if out.exists() { "is there already: name another file" } else { "cannot be written" };
    let file = file.with_context(|| format!("{shown} {why}"))?;
    let mut archive = Builder::new(GzEncoder::new(file, Compression::default()));
    let mut manifest =
        "What is in it, and what could not be had. Left out on purpose: token and key files, records of \
                        subscribers, their statistics, traffic. Events and the journal may name subscribers.\n"
            .to_owned();
    for (name, text) in members {
        match text {
            Ok(text) => {
                writeln!(manifest, "{name}: {} bytes", text.len())?;
                append(&mut archive, &name, &text)?;
            }
            Err(error) => writeln!(manifest, "{name}: not there: {error:#}")?,
        }
    }
    append(&mut archive, "MANIFEST.txt", &manifest)?;
    let mut rest = archive.into_inner()?.finish()?;
    rest.flush().with_context(|| format!("{shown} cannot be written"))
}

fn append(archive: &mut Builder<impl io::Write>, name: &str, text: &str) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o600);
    header.set_mtime(now_s());
    Ok(archive.append_data(&mut header, format!("sluice-support/{name}"), text.as_bytes())?)
}

#[expect(clippy::disallowed_methods, reason = "members of an archive bear the wall clock's time")]
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_all_addresses_is_asked_on_loopback() {
        for (listen, asked) in
            [("0.0.0.0:8480", "127.0.0.1:8480"), ("[::]:1", "[::1]:1"), ("192.0.2.1:8480", "192.0.2.1:8480")]
        {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), asked);
        }
    }
}
