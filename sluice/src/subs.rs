// SPDX-License-Identifier: Apache-2.0
//! `sluice subs`: reads and changes the subscribers of a running shaper over its HTTP interface.
//!
//! Knows the interface only; a shaper on another machine is the same to it as one here. Answers go to stdout, as a
//! table or with `--json` as the interface gives them; what went wrong goes to stderr and the exit code is 1.

pub(crate) mod client;
mod load;
mod show;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

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
    #[command(group = clap::ArgGroup::new("rates").required(true).multiple(true).args(["down_bps", "up_bps"]))]
    SetRate {
        /// Its id
        id: String,
        /// Rate towards the subscriber in bits per second, or with k, M or G: 50M
        #[arg(long, value_name = "N", value_parser = parse_rate)]
        down_bps: Option<u64>,
        /// Rate from the subscriber in bits per second, or with k, M or G: 10M
        #[arg(long, value_name = "N", value_parser = parse_rate)]
        up_bps: Option<u64>,
    },
    /// Remove one
    Rm {
        /// Its id
        id: String,
    },
    /// Load a file: NDJSON, a JSON array, ShapedDevices.csv; all of it or nothing
    Load(load::LoadArgs),
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
        Action::SetRate { id, down_bps, up_bps } => {
            let record = client.patch(&path_of(&id), &rates(down_bps, up_bps))?;
            show::record(&record, args.json, out)?;
        }
        Action::Rm { id } => {
            client.delete(&path_of(&id))?;
            if !args.json {
                writeln!(out, "{id} removed")?;
            }
        }
        Action::Load(load) => return load::run(&client, load, args.json, out, err),
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
    let mut after = String::new();
    loop {
        let page = client.get(&format!("/v1/subscribers?limit={PAGE}{after}"))?;
        let items = page.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        list.page(items)?;
        match page.get("next").and_then(Value::as_str).filter(|next| !next.is_empty()) {
            Some(next) => after = format!("&after={}", encode(next)),
            None => return list.finish(),
        }
    }
}
