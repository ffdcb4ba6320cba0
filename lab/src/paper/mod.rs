// SPDX-License-Identifier: Apache-2.0
//! Published cases beside ours: `sluice lab paper`.
//!
//! Rows are data (`lab/paper/*.toml`, each with its source); [`cases`] makes a [`Case`] of each, [`judge`] runs them
//! with several seeds and holds the mean of each figure against its band, and a [`Report`] shows the lot as a table,
//! JSON, a page and a results file. Bands are those of the issue that asked for the lab. They bind `compat = "linux"`
//! (the published data are random rolls and a step); Sluice's default mode stands beside each row of dualpi2, its name
//! ending in `/default`, with bands of its own.
//!
//! What is outside stays outside: `lab/paper/deviations.toml` says what was found about why and is shown beside the
//! cell, but no verdict looks at it.
//!
//! A case is named `family/row…`, a cell `family/row…/quantity`, such as `overload/c/100/l4s-delay-mean`; globs select
//! either. The JSON is documented at [`Report::json`]. Invariant: the same cases, seeds and scenarios give the same
//! report, byte for byte, whatever the number of threads.

mod band;
mod case;
mod deviation;
mod glob;
mod html;
mod plot;
mod quantity;
mod report;
mod rows;
mod run;
mod table;
#[cfg(test)]
mod tests;

pub use band::{Band, Verdict};
pub use case::{Arm, Case, Cell, FlowSetup, Reference, Setup, WebSetup};
pub use deviation::{Deviation, deviations};
pub use quantity::{Quantity, Queue, Stat};
pub use report::{CaseResult, CellResult, Report, Summary};
pub use rows::{DataError, all as cases};
pub use run::{DEFAULT_SEEDS, Done, Options, SHORT, Simulate, judge, simulate};
pub use table::Stamp;
