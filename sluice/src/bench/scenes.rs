// SPDX-License-Identifier: Apache-2.0
//! `sluice bench`'s other cases: arguments, a few lines for people, JSON for `make bench`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use dataplane::bench::{self, Books, Options};
use serde_json::{Value, json};

use super::report::{Figures, median, rounded};
use super::{FrameArgs, micros, options, write};

/// Wire bytes of a 64-byte frame.
const WIRE_BITS: f64 = 84.0 * 8.0;

/// Arguments that most cases have.
#[derive(clap::Args)]
pub(super) struct CommonArgs {
    /// Subscribers.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    subscribers: u32,
    /// Time measured, in seconds.
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    seconds: f64,
    /// Write the figures to this file.
    #[arg(long, value_name = "R.json")]
    json: Option<PathBuf>,
}

impl CommonArgs {
    fn options(&self) -> Result<Options> {
        options(self.subscribers, self.seconds)
    }

    /// Says and writes what was found.
    #[expect(clippy::print_stdout, reason = "this command's output")]
    fn report(&self, what: &str, figures: &Value) -> Result<()> {
        println!("{what}");
        for (name, value) in figures.as_object().into_iter().flatten() {
            println!("  {name}: {value}");
        }
        write(self.json.as_deref(), figures)
    }
}

#[derive(clap::Args)]
pub(super) struct BacklogArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Rate of each.
    #[arg(long, value_name = "B", default_value_t = 1_000_000)]
    plan_bps: u64,
    /// Packets that wait for each.
    #[arg(long, value_name = "K", default_value_t = 8)]
    each: u32,
    #[command(flatten)]
    frames: FrameArgs,
}

/// The port's rate is what the plans add up to, and less than a twentieth more.
pub(super) fn backlog(args: &BacklogArgs) -> Result<()> {
    let port_bps = u64::from(args.common.subscribers) * args.plan_bps * 20 / 19;
    let options = Options {
        sizes: args.frames.sizes(),
        port_bps: Some(port_bps),
        patient: true,
        ..args.common.options()?
    };
    let report = bench::backlog(&options, args.plan_bps, args.each)?;
    let engine = Figures::new(&options, 0.0, &report);
    let wire_bytes = f64::from(options.sizes.mean()) + 20.0;
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let planned = args.plan_bps as f64 * f64::from(options.subscribers) / 8.0 / wire_bytes / 1e6;
    let figures = json!({
        "subscribers": options.subscribers, "plan_bps": args.plan_bps, "waiting_each": args.each,
        "packet_bytes": options.sizes.mean(), "port_bps": port_bps,
        "planned_mpps": round4(planned), "mpps": round4(median(report.windows.iter().map(|window| window.mpps))),
        "ns_per_packet": engine.ns_per_packet(), "engine_ns_per_packet": engine.engine_ns_per_packet(),
        "busy_percent": rounded(100.0 * median(report.windows.iter().map(|window| window.busy))),
        "lost_percent": rounded(100.0 * median(report.windows.iter().map(|window| window.lost))),
        "dropped": dropped(&report.books),
    });
    args.common.report("everybody backlogged", &figures)
}

/// To ten-thousandths.
fn round4(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// Drops by reason.
fn dropped(books: &Books) -> Value {
    let reasons =
        bench::drop_reasons().map(|(name, reason)| (name.to_owned(), json!(books.dropped_by(reason))));
    let mut of: serde_json::Map<_, _> = reasons.filter(|(_, count)| *count != json!(0)).collect();
    if books.unmatched > 0 {
        of.insert("unmatched".to_owned(), json!(books.unmatched));
    }
    Value::Object(of)
}

#[derive(clap::Args)]
pub(super) struct LatenessArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// How long packets are held, about, in milliseconds.
    #[arg(long, value_name = "X", default_value_t = 2.0)]
    held_ms: f64,
    /// What held traffic can reach, in Mpps; left out, a warm-up finds it. Half of it is sent.
    #[arg(long, value_name = "M")]
    held_mpps: Option<f64>,
}

pub(super) fn lateness(args: &LatenessArgs) -> Result<()> {
    let options = Options {
        held_us: micros(args.held_ms).max(1),
        held_pps: args.held_mpps.map(|mpps| mpps * 1e6),
        ..args.common.options()?
    };
    let late = bench::lateness(&options)?;
    let figures = json!({
        "subscribers": options.subscribers, "full_mpps": rounded(late.full_mpps),
        "half_mpps": rounded(late.half_mpps), "mpps": rounded(late.mpps), "busy_percent": rounded(100.0 * late.busy),
        "p50_us": rounded(late.p50_us), "p99_us": rounded(late.p99_us), "p99_bin_ends_us": rounded(late.p99_edge_us),
        "p999_us": rounded(late.p999_us), "p99_with_pauses_us": rounded(late.all_p99_us),
        "departures": late.departures, "left_out": late.left_out, "pauses_over_10_us": late.pauses, "long_loops": late.long,
        "paused_percent": rounded(100.0 * late.paused), "longest_pause_us": rounded(late.longest_us),
    });
    args.common.report("lateness of departures at half load", &figures)
}

pub(super) fn changes(args: &CommonArgs) -> Result<()> {
    let options = Options { spare: 100_000, ..args.options()? };
    let changes = bench::changes(&options)?;
    let figures = json!({
        "subscribers": options.subscribers, "rates_changed": changes.rates, "created": changes.created,
        "sent": changes.sent, "lost": changes.lost, "busy_percent": rounded(100.0 * changes.busy),
        "longest_loop_us": rounded(changes.longest_us), "longest_loop_without_us": rounded(changes.longest_without_us),
        "worst_loop_us": rounded(changes.worst_us), "worst_loop_without_us": rounded(changes.worst_without_us),
        "took_us": rounded(changes.took_us), "took_worst_us": rounded(changes.took_worst_us),
    });
    args.report("changes during full load", &figures)
}

#[derive(clap::Args)]
pub(super) struct OverloadArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// What the port carries, in Mpps of 64-byte frames; twice as much is offered.
    #[arg(long, value_name = "M", default_value_t = 2.0)]
    port_mpps: f64,
    /// Packets that may wait.
    #[arg(long, value_name = "N", default_value_t = 262_144)]
    buffers: u32,
}

pub(super) fn overload(args: &OverloadArgs) -> Result<()> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a port's rate")]
    let port_bps = (args.port_mpps.max(0.01) * 1e6 * WIRE_BITS) as u64;
    let options = Options { port_bps: Some(port_bps), buffers: args.buffers, ..args.common.options()? };
    let seen = bench::overload(&options)?;
    let figures = json!({
        "subscribers": options.subscribers, "port_mpps": rounded(seen.port_mpps),
        "offered_mpps": rounded(seen.offered_mpps), "sent_mpps": rounded(seen.sent_mpps),
        "jain": round4(seen.jain), "packets_a_subscriber": rounded(seen.mean_packets),
        "without_a_packet_percent": rounded(100.0 * seen.none),
        "most_queued": seen.most_queued, "buffers": seen.room,
        "sparse_p50_us": rounded(seen.sparse_p50_us), "sparse_p99_us": rounded(seen.sparse_p99_us),
        "sparse_lost": seen.sparse_lost, "lost_percent": rounded(100.0 * seen.lost), "left_out_percent": rounded(100.0 * seen.left_out),
        "clock_speed": round4(seen.clock_speed), "dropped": dropped(&seen.books),
    });
    args.common.report("a port offered twice its rate", &figures)
}

#[derive(clap::Args)]
pub(super) struct FloodArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Conforming traffic of all.
    #[arg(long, value_name = "M", default_value_t = 2.0)]
    calm_mpps: f64,
    /// The same with the flood.
    #[arg(long, value_name = "M", default_value_t = 3.0)]
    total_mpps: f64,
    /// Packets that may wait.
    #[arg(long, value_name = "N", default_value_t = 262_144)]
    buffers: u32,
}

pub(super) fn flood(args: &FloodArgs) -> Result<()> {
    let options = Options { buffers: args.buffers, ..args.common.options()? };
    let seen = bench::flood(&options, args.calm_mpps * 1e6, args.total_mpps * 1e6)?;
    let figures = json!({
        "subscribers": options.subscribers, "calm_mpps": rounded(seen.calm_mpps), "flood_mpps": rounded(seen.flood_mpps),
        "others_lost": seen.others_lost, "flooded_lost": seen.flooded_lost,
        "calm_p50_us": rounded(seen.calm_p50_us), "flood_p50_us": rounded(seen.flood_p50_us),
        "calm_p99_us": rounded(seen.calm_p99_us), "flood_p99_us": rounded(seen.flood_p99_us),
        "left_out_percent": seen.left_out.map(|part| rounded(100.0 * part)), "dropped": dropped(&seen.books),
    });
    args.common.report("one subscriber flooded", &figures)
}

#[derive(clap::Args)]
pub(super) struct ChurnArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Subscribers added a second, and as many removed.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    per_second: u32,
    /// Conforming traffic meanwhile.
    #[arg(long, value_name = "M", default_value_t = 1.0)]
    mpps: f64,
}

pub(super) fn churn(args: &ChurnArgs) -> Result<()> {
    // room for those who are here at a time, and as many whose ids rest
    let options = Options { spare: args.per_second.saturating_mul(4).max(1_000), ..args.common.options()? };
    let seen = bench::churn(&options, args.per_second, args.mpps * 1e6)?;
    let figures = json!({
        "subscribers": options.subscribers, "changed": seen.changed, "per_second": rounded(seen.per_second),
        "mpps": rounded(seen.mpps), "lost": seen.lost,
        "early_bytes": seen.early_bytes, "end_bytes": seen.end_bytes,
        "grown_bytes": i128::from(seen.end_bytes) - i128::from(seen.early_bytes),
        "first_p99_us": rounded(seen.first_p99_us), "last_p99_us": rounded(seen.last_p99_us),
        "worst_p99_us": rounded(seen.worst_p99_us), "left_out_percent": rounded(100.0 * seen.left_out),
        "batch_us": rounded(seen.batch_us), "batch_worst_us": rounded(seen.batch_worst_us),
    });
    args.common.report("subscribers who come and go", &figures)
}

pub(super) fn memory(args: &CommonArgs) -> Result<()> {
    let memory = bench::memory(&args.options()?)?;
    let figures = json!({
        "subscribers": args.subscribers, "bytes_per_subscriber": memory.bytes_per_subscriber.round(),
        "records_per_second": memory.records_per_second.round(),
    });
    args.report("idle subscribers", &figures)
}

pub(super) fn lookup(args: &CommonArgs) -> Result<()> {
    let found = bench::lookup(args.subscribers, Duration::from_secs_f64(args.seconds.clamp(0.1, 3_600.0)))?;
    let edge = |of: fn(f64, f64) -> f64, from| rounded(found.ns.iter().copied().fold(from, of));
    let figures = json!({
        "subscribers": args.subscribers, "ns_per_packet": rounded(found.median_ns()),
        "least": edge(f64::min, f64::MAX), "most": edge(f64::max, 0.0), "gaps": found.gaps, "missed": found.missed,
    });
    args.report("table lookup", &figures)
}

#[derive(clap::Args)]
pub(super) struct PiArgs {
    /// Queue ids.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    ids: u32,
    /// Write the figures to this file.
    #[arg(long, value_name = "R.json")]
    json: Option<PathBuf>,
}

pub(super) fn pi(args: &PiArgs) -> Result<()> {
    super::cpus()?;
    let [(idle, looked), (active, visited)] = bench::pi_passes(args.ids)?;
    let least = |values: &[f64]| rounded(values.iter().copied().fold(f64::MAX, f64::min));
    let figures = json!({
        "ids": args.ids, "active_us": rounded(median(active.iter().copied())), "active_least_us": least(&active),
        "active_visited": visited, "idle_us": rounded(median(idle.iter().copied())), "idle_least_us": least(&idle),
        "idle_visited": looked,
    });
    let common = CommonArgs { subscribers: args.ids, seconds: 1.0, json: args.json.clone() };
    common.report("a PI pass", &figures)
}
