// SPDX-License-Identifier: Apache-2.0
//! What the judged cases come to, and its JSON.

use serde::Serialize;

use super::band::Verdict;
use crate::outcome::Series;

/// All that was run and judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Seeds of a case: 1 to this (cases of rare events: a multiple).
    pub seeds: u64,
    /// Packets through all bottlenecks after warm-up.
    pub packets: u64,
    /// In the order of the data files.
    pub cases: Vec<CaseResult>,
}

/// One case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseResult {
    /// Family and row.
    pub name: String,
    /// Whether Sluice's default mode ran, not what binds to the published bands.
    pub default_mode: bool,
    /// Where the published values come from.
    pub source: String,
    /// How many seeds.
    pub seeds: u64,
    /// Its figures.
    pub cells: Vec<CellResult>,
    /// Why it could not run.
    pub error: Option<String>,
    /// For plots: of the first seed.
    #[serde(skip)]
    pub series: Series,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellResult {
    /// Case and quantity.
    pub name: String,
    /// What is measured.
    pub quantity: String,
    /// Its unit; empty: a ratio.
    pub unit: &'static str,
    /// What it is held against.
    pub reference: Option<f64>,
    /// Whether that is our own published arm and no published value.
    pub beside: bool,
    /// Ours: the mean over the seeds.
    pub ours: Option<f64>,
    /// Least over the seeds.
    pub min: Option<f64>,
    /// Greatest over the seeds.
    pub max: Option<f64>,
    /// The band in words.
    pub band: String,
    /// Least value in the band; none: no such border.
    pub low: Option<f64>,
    /// Greatest value in the band.
    pub high: Option<f64>,
    /// What it comes to.
    pub verdict: Verdict,
    /// Why there is no verdict, or why there is no value.
    pub cause: Option<String>,
    /// What was found about why it is outside.
    pub deviation: Option<String>,
}

/// How many cells came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// In their band.
    pub within: usize,
    /// Outside of it.
    pub outside: usize,
    /// Without a verdict.
    pub reported: usize,
}

impl Summary {
    /// Of some cells.
    pub fn of<'a>(cells: impl IntoIterator<Item = &'a CellResult>) -> Self {
        let mut summary = Self::default();
        for cell in cells {
            match cell.verdict {
                Verdict::Within => summary.within += 1,
                Verdict::Outside => summary.outside += 1,
                Verdict::Reported => summary.reported += 1,
            }
        }
        summary
    }
}

impl Report {
    /// Every cell.
    pub fn cells(&self) -> impl Iterator<Item = &CellResult> {
        self.cases.iter().flat_map(|case| &case.cells)
    }

    /// How many cells came to what.
    pub fn summary(&self) -> Summary {
        Summary::of(self.cells())
    }

    /// Whether every judged cell is within its band: what the exit code says.
    pub fn good(&self) -> bool {
        self.summary().outside == 0
    }

    /// The families in order, each with its cases.
    pub fn families(&self) -> Vec<(&str, Vec<&CaseResult>)> {
        let mut families: Vec<(&str, Vec<&CaseResult>)> = Vec::new();
        for case in &self.cases {
            let family = case.name.split('/').next().unwrap_or_default();
            match families.iter_mut().find(|(name, _)| *name == family) {
                Some((_, cases)) => cases.push(case),
                None => families.push((family, vec![case])),
            }
        }
        families
    }

    /// As JSON:
    ///
    /// `{"seeds", "packets", "summary": {"within", "outside", "reported"}, "cases": [{"name", "default_mode", "source",
    /// "seeds", "error", "cells": [{"name", "quantity", "unit", "reference", "beside", "ours", "min", "max", "band",
    /// "low", "high", "verdict": "within" | "outside" | "reported", "cause", "deviation"}]}]}`
    ///
    /// `reference` is the published value, or with `beside` the mean of our own published arm; what is not there is
    /// null. Ratios are percent, rates Mb/s, delays ms, as `unit` says.
    pub fn json(&self) -> String {
        #[derive(Serialize)]
        struct Whole<'a> {
            summary: Summary,
            #[serde(flatten)]
            report: &'a Report,
        }
        let whole = Whole { summary: self.summary(), report: self };
        // plain structs of numbers and texts: this cannot fail
        serde_json::to_string_pretty(&whole).unwrap_or_default()
    }
}
