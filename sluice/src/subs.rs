// SPDX-License-Identifier: Apache-2.0
//! `sluice subs`: reads and changes the subscribers of a running shaper over its HTTP interface.
//!
//! Knows the interface only; a shaper on another machine is the same to it as one here. Answers go to stdout, as a
//! table or with `--json` as the interface gives them; what went wrong goes to stderr and the exit code is 1.

mod apply;
pub(crate) mod client;
mod diff;
mod load;
mod parents;
mod show;
mod source;
#[cfg(test)]
mod tests;
mod watch;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use model::import::rates::Grammar;
use serde_json::{Map, Value};

use client::{Client, encode};

/// Records of one page of a list.
const PAGE: usize = 1000;

/// Arguments of `sluice subs`.
#[derive(clap::Args)]
pub(crate) struct SubsArgs {
    #[command(flatten)]
    connection: Connection,
    /// Answers as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

/// Where the shaper is and how it knows us.
#[derive(clap::Args)]
pub(crate) struct Connection {
    /// Address of the shaper's HTTP interface
    #[arg(long, global = true, value_name = "URL", default_value = "http://127.0.0.1:8480")]
    pub(crate) api: String,
    /// File with the bearer token
    #[arg(long, global = true, value_name = "F")]
    pub(crate) token_file: Option<PathBuf>,
    /// Certificate (PEM) to trust, for an interface whose certificate no public authority signed
    #[arg(long, global = true, value_name = "F")]
    pub(crate) ca_file: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Every subscriber
    List,
    /// One subscriber
    Get {
        /// Its id
        id: String,
    },
    /// Change the rates of one; a rate left out stays
    #[command(group = clap::ArgGroup::new("rates").required(true).multiple(true)
        .args(["down_bps", "up_bps", "mikrotik", "accel"]))]
    SetRate {
        /// Its id
        id: String,
        /// Rate towards the subscriber in bits per second, or with k, M or G: 50M
        #[arg(long, value_name = "N", value_parser = parse_rate)]
        down_bps: Option<u64>,
        /// Rate from the subscriber in bits per second, or with k, M or G: 10M
        #[arg(long, value_name = "N", value_parser = parse_rate)]
        up_bps: Option<u64>,
        /// Both rates as a Mikrotik-Rate-Limit, RX/TX, which is up/down: 10M/50M
        #[arg(long, value_name = "RX/TX", conflicts_with_all = ["down_bps", "up_bps", "accel"])]
        mikrotik: Option<String>,
        /// Both rates as accel-ppp's shaper takes them, DOWN/UP in kbit/s: 50000/10000
        #[arg(long, value_name = "DOWN/UP", conflicts_with_all = ["down_bps", "up_bps"])]
        accel: Option<String>,
    },
    /// What one has sent, waited and lost, in both directions and queues
    Stats {
        /// Its id
        id: String,
    },
    /// Remove one
    Rm {
        /// Its id
        id: String,
    },
    /// Load a file: NDJSON, a JSON array, ShapedDevices.csv, chap-secrets; all of it or nothing
    Load(load::LoadArgs),
    /// Apply a file that scripts rewrite, whenever it changed, is whole and parses; ends on Ctrl-C or TERM
    Watch(watch::WatchArgs),
}

/// Does what is asked; exit code 1 if the shaper or the file says no.
///
/// # Errors
///
/// If the shaper cannot be reached or refuses.
pub(crate) fn run(args: SubsArgs) -> anyhow::Result<ExitCode> {
    execute(args, &mut io::stdout().lock(), &mut io::stderr().lock())
}

fn execute(args: SubsArgs, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.connection)?;
    match args.action {
        Action::List => list(&client, args.json, out)?,
        Action::Get { id } => {
            let record = client.get(&path_of(&id))?;
            show::record(&record, args.json, out)?;
        }
        Action::SetRate { id, down_bps, up_bps, mikrotik, accel } => {
            let strings = [(Grammar::Mikrotik, mikrotik), (Grammar::Accel, accel)];
            let given = strings.into_iter().find_map(|(grammar, text)| Some(grammar.read(&text?)));
            let (down_bps, up_bps) = match given.transpose().map_err(anyhow::Error::msg)? {
                Some(rates) => (Some(rates.down_bps), Some(rates.up_bps)),
                None => (down_bps, up_bps),
            };
            let record = client.patch(&path_of(&id), &rates(down_bps, up_bps))?;
            show::record(&record, args.json, out)?;
        }
        Action::Stats { id } => {
            let stats = client.get(&format!("{}/stats", path_of(&id)))?;
            show::stats(&stats, args.json, out)?;
        }
        Action::Rm { id } => {
            client.delete(&path_of(&id))?;
            if !args.json {
                writeln!(out, "{id} removed")?;
            }
        }
        Action::Load(load) => return load::run(&client, &load, args.json, out, err),
        Action::Watch(watch) => return watch::run(&client, &watch, args.json, out, err),
    }
    Ok(ExitCode::SUCCESS)
}

/// Whole bits per second, or thousands, millions or milliards of them.
fn parse_rate(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'K', 'M', 'G']) {
        Some(digits) if text.ends_with('M') => (digits, 1_000_000),
        Some(digits) if text.ends_with('G') => (digits, 1_000_000_000),
        Some(digits) => (digits, 1_000),
        None => (text, 1),
    };
    let rate = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    rate.ok_or_else(|| "wanted are whole bits per second, for instance 50000000, 50000k or 50M".to_owned())
}

fn path_of(id: &str) -> String {
    format!("/v1/subscribers/{}", encode(id))
}

/// A merge patch of the rates that are given.
fn rates(down_bps: Option<u64>, up_bps: Option<u64>) -> Value {
    let given = [("down_bps", down_bps), ("up_bps", up_bps)];
    let members = given.into_iter().filter_map(|(name, rate)| Some((name.to_owned(), rate?.into())));
    Value::Object(members.collect::<Map<_, _>>())
}

/// All pages, each shown as it comes: a million records are never held at once.
fn list(client: &Client, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut list = show::List::new(json, out);
    pages(client, "/v1/subscribers", |items| list.page(items))?;
    list.finish()
}

/// Every page of a list, one after the other; `Ok(false)` where the shaper has no such list.
fn pages(
    client: &Client,
    path: &str,
    mut take: impl FnMut(&[Value]) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let mut after = String::new();
    loop {
        let Some(page) = client.find(&format!("{path}?limit={PAGE}{after}"))? else { return Ok(false) };
        take(page.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default())?;
        match page.get("next").and_then(Value::as_str).filter(|next| !next.is_empty()) {
            Some(next) => after = format!("&after={}", encode(next)),
            None => return Ok(true),
        }
    }
}
