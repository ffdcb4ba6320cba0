// SPDX-License-Identifier: Apache-2.0
//! `sluice health`: whether a running shaper is ready, for container health checks and scripts.

use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::subs::Connection;
use crate::subs::client::Client;

/// Arguments of `sluice health`.
#[derive(clap::Args)]
pub(crate) struct HealthArgs {
    #[command(flatten)]
    connection: Connection,
    /// Only whether the control side answers, not whether packets are forwarded.
    #[arg(long)]
    alive: bool,
}

/// Asks `/readyz`; no token is needed.
///
/// # Errors
///
/// If the shaper cannot be reached, or gives reasons why it is not ready.
pub(crate) fn run(args: &HealthArgs) -> anyhow::Result<ExitCode> {
    let path = if args.alive { "/healthz" } else { "/readyz" };
    let verdict = Client::new(&args.connection)?.get(path)?;
    let status = verdict.get("status").and_then(serde_json::Value::as_str).unwrap_or("ok");
    writeln!(io::stdout().lock(), "{status}")?;
    Ok(ExitCode::SUCCESS)
}
