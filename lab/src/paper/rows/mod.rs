// SPDX-License-Identifier: Apache-2.0
//! The published rows, read from the data files under `lab/paper/`, as cases.
//!
//! Bands are those of the issue that asked for the lab, never wider. Where it names none (critics, Cocoa) the band of
//! the nearest like quantity is taken and said at the family; RFC 7928 publishes no figures and gets no verdict.

mod cocoa;
mod critics;
mod deployment;
mod grid;
mod kernel;
mod mixed;
mod overload;
mod rfc7928;

use serde::de::DeserializeOwned;
use thiserror::Error;

use super::band::Band;
use super::case::{Arm, Case, Cell, Setup};
use super::quantity::{Quantity, Quantity::Utilisation, Queue, Stat};

/// Bits of a full packet on the wire.
const PACKET_BITS: f64 = 1514.0 * 8.0;
/// Rates that count IP packets, from those of whole packets.
const IP: f64 = 1500.0 / 1514.0;
/// Rates that count TCP payload (with time stamps), from those of whole packets.
const PAYLOAD: f64 = 1448.0 / 1514.0;
/// Why a flow under 0.1 Mb/s has no verdict.
const TOO_SLOW: &str = "flow under 0.1 Mb/s, left out";
/// Why a figure without a band has no verdict.
const NO_BAND: &str = "beside the others; no band for it";
/// The default mode: L p99, ms (or 3 packets), utilisation, points, and rate ratio, share.
const DEFAULT_P99_MS: f64 = 1.5;

/// A data file that cannot be read.
#[derive(Debug, Error)]
#[error("lab/paper/{file}: {source}")]
pub struct DataError {
    /// Its name.
    file: &'static str,
    /// Why.
    source: toml::de::Error,
}

/// All published rows.
///
/// # Errors
///
/// A data file that does not have its form.
pub fn all() -> Result<Vec<Case>, DataError> {
    let families = [
        overload::cases()?,
        mixed::cases()?,
        grid::cases()?,
        deployment::cases()?,
        critics::cases()?,
        cocoa::cases()?,
        rfc7928::cases()?,
        kernel::cases()?,
    ];
    Ok(families.into_iter().flatten().collect())
}

fn read<T: DeserializeOwned>(file: &'static str, text: &str) -> Result<T, DataError> {
    toml::from_str(text).map_err(|source| DataError { file, source })
}

/// Time on the wire of so many full packets, ms.
fn packets_ms(packets: f64, mbps: f64) -> f64 {
    packets * PACKET_BITS / (mbps * 1e3)
}

fn delay(queue: Queue, stat: Stat) -> Quantity {
    Quantity::Delay(queue, stat)
}

fn ratio(a: &str, b: &str) -> Quantity {
    Quantity::Ratio(a.to_owned(), b.to_owned())
}

/// One row; the arm that is held against the published values.
fn case(name: String, source: &str, setup: Setup, cells: Vec<Cell>) -> Case {
    Case { name, arm: Arm::Published, source: source.to_owned(), setup, seeds: 1, cells }
}

/// A row of dualpi2 on both arms: `compat = "linux"` and Sluice's default mode.
fn both(name: &str, source: &str, setup: &Setup, published: Vec<Cell>, default: Vec<Cell>) -> [Case; 2] {
    let mut beside = case(format!("{name}/default"), source, setup.clone(), default);
    beside.arm = Arm::Default;
    let linux = setup.clone().profile(&["compat = \"linux\""]);
    [case(name.to_owned(), source, linux, published), beside]
}

/// The cells of the default mode: L p99 at most max(1.5 ms, 3 packets) where there is an L queue, utilisation within
/// 1 point and rate ratio within 50 %, of the published value or else of the published arm beside.
fn default_cells(
    mbps: f64,
    l4s: bool,
    utilisation: Option<f64>,
    rates: Option<(&str, &str, Option<f64>)>,
) -> Vec<Cell> {
    let mut cells = Vec::new();
    if l4s {
        let most = DEFAULT_P99_MS.max(packets_ms(3.0, mbps));
        cells.push(Cell::new(delay(Queue::L4s, Stat::P99), None, Band::AtMost(most)));
    }
    let near = |quantity: Quantity, published: Option<f64>, band: Band| match published {
        Some(_) => Cell::new(quantity, published, band),
        None => Cell::beside(quantity, band),
    };
    cells.push(near(Utilisation, utilisation, Band::absolute(1.0)));
    if let Some((a, b, published)) = rates {
        cells.push(near(ratio(a, b), published, Band::relative(0.5)));
    }
    cells
}
