// SPDX-License-Identifier: Apache-2.0
//! What was found about cells outside their band. Shown beside a red cell; it never changes a verdict.

use serde::Deserialize;

use super::glob::selects;

/// What was found about some cells.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deviation {
    /// Which cells, as a glob.
    pub cells: String,
    /// What was found.
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    deviations: Vec<Deviation>,
}

/// Those on record.
///
/// # Errors
///
/// A file that does not have its form.
pub fn deviations() -> Result<Vec<Deviation>, toml::de::Error> {
    Ok(toml::from_str::<File>(include_str!("../../paper/deviations.toml"))?.deviations)
}

/// The first that fits this cell.
pub(super) fn find<'a>(all: &'a [Deviation], cell: &str) -> Option<&'a str> {
    all.iter().find(|deviation| selects(&deviation.cells, cell)).map(|deviation| deviation.why.as_str())
}
