// SPDX-License-Identifier: Apache-2.0
//! `sluice traffic`: real UDP flows under the congestion controls of crate `cc`, with ECN set and read on the wire.
//!
//! `serve` waits for flows and either receives or, when asked, sends; `run` opens flows to it and prints one JSON
//! object a second and a summary. Each packet is a datagram of its own (no segmentation offload), so each gets its
//! own treatment on the path. Modules: `proto` is the datagrams, `flow` the two ends of a flow without a socket,
//! `socket` the only I/O, `clock` the only clock.
//!
//! Invariants: memory is bounded by the flows admitted; a datagram that is not part of a flow changes nothing but a
//! counter; the server sends more than it was sent only to addresses that have proved to receive.

mod client;
mod clock;
mod flow;
mod proto;
mod report;
mod server;
mod socket;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use cc::{Codepoint, Kind};
use clap::{Args, Subcommand, ValueEnum};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Real UDP flows under congestion control.
#[derive(Args, Debug)]
pub(crate) struct TrafficArgs {
    #[command(subcommand)]
    command: TrafficCommand,
}

#[derive(Subcommand, Debug)]
enum TrafficCommand {
    /// Wait for flows: acknowledge what they send, or send where they ask for it.
    Serve(ServeArgs),
    /// Open flows to a server and report on them.
    Run(RunArgs),
}

/// Options of `serve`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeArgs {
    /// Address and UDP port to listen on, IPv4 or IPv6.
    #[arg(long, value_name = "ADDR:PORT", default_value = "[::]:8490")]
    pub(crate) listen: SocketAddr,
    /// Flows admitted at once.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) max_flows: u32,
}

/// Options of `run`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// The server.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) connect: SocketAddr,
    /// Address to send from; left out: the system's choice.
    #[arg(long, value_name = "ADDR")]
    pub(crate) bind: Option<IpAddr>,
    /// Which way the data goes, seen from here.
    #[arg(long, value_enum, default_value_t = Direction::Up)]
    pub(crate) direction: Direction,
    /// Congestion control: prague, cubic, reno, dctcp, bbr1, bbr2, bbr3, scream or cbr.
    #[arg(long, value_parser = parse_kind, default_value = "prague", requires_if("cbr", "rate_bps"))]
    pub(crate) cc: Kind,
    /// ECN field to send; left out: ect1 for prague, dctcp, bbr2 and scream, not_ect for the others.
    #[arg(long, value_enum)]
    pub(crate) ecn: Option<EcnArg>,
    /// How long to send.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub(crate) seconds: u32,
    /// Rate of each flow of cbr; greatest rate of one of scream.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=400_000_000_000))]
    pub(crate) rate_bps: Option<u64>,
    /// Parallel flows, each on a socket of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) flows: u32,
    /// UDP payload of a full packet.
    #[arg(long, value_name = "N", default_value_t = 1400, value_parser = clap::value_parser!(u32).range(128..=8952))]
    pub(crate) packet_bytes: u32,
    /// Prague: let short round trips grow faster, as Reno does.
    #[arg(long)]
    pub(crate) no_rtt_independence: bool,
    /// CUBIC: leave slow start on loss or marks only.
    #[arg(long)]
    pub(crate) no_hystart: bool,
}

/// Which way the data goes, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Direction {
    /// Client to server.
    Up,
    /// Server to client.
    Down,
}

/// A codepoint on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum EcnArg {
    /// 00.
    NotEct,
    /// 10.
    Ect0,
    /// 01.
    Ect1,
}

impl From<EcnArg> for Codepoint {
    fn from(arg: EcnArg) -> Self {
        match arg {
            EcnArg::NotEct => Self::NotEct,
            EcnArg::Ect0 => Self::Ect0,
            EcnArg::Ect1 => Self::Ect1,
        }
    }
}

fn parse_kind(text: &str) -> Result<Kind, String> {
    text.parse().map_err(|error: cc::UnknownKind| error.to_string())
}

/// Runs the command until it is done, or until SIGINT or SIGTERM, after which it still reports.
///
/// # Errors
///
/// Where the socket cannot be had, the server does not answer, or nothing arrives.
pub(crate) fn run(args: TrafficArgs) -> anyhow::Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot watch for signals")?;
    }
    let mut out = std::io::stdout().lock();
    match args.command {
        TrafficCommand::Serve(serve) => server::serve(&serve, &stop, &mut out, |_| {})?,
        TrafficCommand::Run(run) => {
            client::run(&run, &stop, &mut out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
