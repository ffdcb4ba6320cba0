// SPDX-License-Identifier: Apache-2.0
//! A published row as a case: one scenario and the cells judged on it. Scenarios are written as the contract's TOML,
//! so what runs here is what an operator can run with `sluice lab run`.

use std::fmt::Write as _;

use super::band::Band;
use super::quantity::Quantity;

/// Whose arithmetic a case of dualpi2 runs with; other AQMs know only the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// Held against what was published: `compat = "linux"` with dualpi2.
    Published,
    /// Sluice's default mode beside it, with bands of its own.
    Default,
}

/// What a cell is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reference {
    /// Nothing: the band is a bound, or there is no verdict.
    None,
    /// A published value.
    Published(f64),
    /// Our own value of the same quantity in the case of this name's published arm.
    Beside,
}

/// One figure to be judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// What is measured; its name ends the cell's.
    pub quantity: Quantity,
    /// What it is held against.
    pub reference: Reference,
    /// How far off it may be.
    pub band: Band,
}

impl Cell {
    /// Held against a published value, or reported if the row has none.
    pub fn new(quantity: Quantity, published: Option<f64>, band: Band) -> Self {
        Self { quantity, reference: published.map_or(Reference::None, Reference::Published), band }
    }

    /// No verdict, with the cause.
    pub fn reported(quantity: Quantity, published: Option<f64>, cause: &str) -> Self {
        Self::new(quantity, published, Band::reported(cause))
    }

    /// Held against the same quantity of the published arm.
    pub const fn beside(quantity: Quantity, band: Band) -> Self {
        Self { quantity, reference: Reference::Beside, band }
    }
}

/// One row on one arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Family and row, with slashes; the default arm ends in `/default`.
    pub name: String,
    /// Which arm.
    pub arm: Arm,
    /// Where the published values come from.
    pub source: String,
    /// What runs.
    pub setup: Setup,
    /// Least number of seeds; more where a ratio of rare events is judged.
    pub seeds: u64,
    /// What is judged.
    pub cells: Vec<Cell>,
}

impl Case {
    /// The full name of one of its cells.
    pub fn cell_name(&self, cell: &Cell) -> String {
        format!("{}/{}", self.name, cell.quantity)
    }

    /// The case whose published arm stands beside this one.
    pub fn beside(&self) -> &str {
        self.name.strip_suffix("/default").unwrap_or(&self.name)
    }
}

/// A scenario before it is written down.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Setup {
    /// Seconds that are simulated.
    pub duration_s: u32,
    /// Seconds left out of the result.
    pub warmup_s: u32,
    /// Link rate over time: seconds, Mb/s.
    pub steps: Vec<(f64, f64)>,
    /// More keys of the link, as TOML.
    pub link: Vec<String>,
    /// Keys of the profile, as TOML.
    pub profile: Vec<String>,
    /// Long flows.
    pub flows: Vec<FlowSetup>,
    /// Short flows.
    pub web: Vec<WebSetup>,
}

/// Long flows of one label.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSetup {
    /// Label.
    pub label: String,
    /// Congestion control.
    pub cc: String,
    /// How many.
    pub count: u32,
    /// Base round-trip time, ms.
    pub rtt_ms: f64,
    /// More keys, as TOML.
    pub more: Vec<String>,
}

/// Short flows.
#[derive(Clone, Debug, PartialEq)]
pub struct WebSetup {
    /// Congestion control.
    pub cc: String,
    /// Base round-trip time, ms.
    pub rtt_ms: f64,
    /// Arrivals a second.
    pub arrivals_per_s: f64,
    /// Sizes and more keys, as TOML.
    pub more: Vec<String>,
}

/// A key with its value, as TOML.
pub(super) fn key(name: &str, value: impl std::fmt::Display) -> String {
    format!("{name} = {value}")
}

/// A key with a text, as TOML.
pub(super) fn text(name: &str, value: &str) -> String {
    format!("{name} = \"{value}\"")
}

impl Setup {
    /// A link of this many Mb/s for so long.
    pub fn new(mbps: f64, duration_s: u32, warmup_s: u32) -> Self {
        Self { duration_s, warmup_s, steps: vec![(0.0, mbps)], ..Self::default() }
    }

    /// With these keys of the profile.
    #[must_use]
    pub fn profile(mut self, keys: &[&str]) -> Self {
        self.profile.extend(keys.iter().map(|key| (*key).to_owned()));
        self
    }

    /// With flows; none of them if `count` is 0.
    #[must_use]
    pub fn flows(mut self, label: &str, cc: &str, count: u32, rtt_ms: f64, more: &[String]) -> Self {
        if count > 0 {
            let (label, cc) = (label.to_owned(), cc.to_owned());
            self.flows.push(FlowSetup { label, cc, count, rtt_ms, more: more.to_vec() });
        }
        self
    }

    /// Mb/s at the start.
    pub fn mbps(&self) -> f64 {
        self.steps.first().map_or(0.0, |step| step.1)
    }

    /// The scenario file. The name is the same for all: equal scenarios are run once.
    pub fn toml(&self) -> String {
        let mut out = String::from("name = \"paper\"\n");
        put(&mut out, &[key("duration_s", self.duration_s), key("warmup_s", self.warmup_s)]);
        out.push_str("[link]\n");
        match self.steps.as_slice() {
            [(_, mbps)] => put(&mut out, &[key("rate_bps", bps(*mbps))]),
            steps => {
                let steps: Vec<_> = steps
                    .iter()
                    .map(|(at, mbps)| format!("{{ at_s = {at:?}, rate_bps = {} }}", bps(*mbps)))
                    .collect();
                put(&mut out, &[key("steps", format!("[{}]", steps.join(", ")))]);
            }
        }
        put(&mut out, &self.link);
        out.push_str("[profile]\n");
        put(&mut out, &self.profile);
        for flow in &self.flows {
            out.push_str("[[flow]]\n");
            let keys = [text("label", &flow.label), text("cc", &flow.cc), key("count", flow.count)];
            put(&mut out, &keys);
            put(&mut out, &[key("rtt_ms", flow.rtt_ms)]);
            put(&mut out, &flow.more);
        }
        for web in &self.web {
            out.push_str("[[web]]\n");
            let arrivals = format!("{:?}", web.arrivals_per_s);
            put(&mut out, &[text("cc", &web.cc), key("rtt_ms", web.rtt_ms), key("arrivals_per_s", arrivals)]);
            put(&mut out, &web.more);
        }
        out
    }
}

fn put(out: &mut String, keys: &[String]) {
    for key in keys {
        // writing into a string cannot fail
        let _ = writeln!(out, "{key}");
    }
}

/// Whole bits per second.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates of at most some hundred Mb/s"
)]
pub(super) fn bps(mbps: f64) -> u64 {
    (mbps * 1e6 + 0.5) as u64
}
