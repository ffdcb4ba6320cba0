// SPDX-License-Identifier: Apache-2.0
//! The report as a table on a terminal and as the results page of the repository (Markdown).

use std::fmt::Write as _;

use super::band::{Verdict, short};
use super::report::{CellResult, Report, Summary};

/// When and from what a results page was made; the lab has no clock and no repository, its caller does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Such as 2026-11-30.
    pub date: String,
    /// The commit.
    pub commit: String,
}

/// What stands in the columns of one cell.
struct Columns {
    published: String,
    ours: String,
    spread: String,
    remark: String,
}

impl Columns {
    fn of(cell: &CellResult) -> Self {
        let unit = if cell.unit.is_empty() { String::new() } else { format!(" {}", cell.unit) };
        let with_unit =
            |value: Option<f64>| value.map_or("–".to_owned(), |v| format!("{}{unit}", short(v)));
        let published = match (cell.beside, cell.reference) {
            (true, Some(_)) => format!("({})", with_unit(cell.reference)),
            _ => with_unit(cell.reference),
        };
        let spread = match (cell.min, cell.max) {
            (Some(min), Some(max)) => format!("{}..{}", short(min), short(max)),
            _ => "–".to_owned(),
        };
        let remark =
            [&cell.cause, &cell.deviation].into_iter().flatten().cloned().collect::<Vec<_>>().join("; ");
        Self { published, ours: with_unit(cell.ours), spread, remark }
    }
}

fn line(name: &str, summary: Summary) -> String {
    format!("{name}: {} within, {} outside, {} reported", summary.within, summary.outside, summary.reported)
}

impl Report {
    /// The table for a terminal; `colour`: verdicts in colour. `all`: also figures that have no verdict.
    pub fn table(&self, colour: bool, all: bool) -> String {
        let shown: Vec<_> = self.cells().filter(|cell| all || cell.verdict != Verdict::Reported).collect();
        let width = shown.iter().map(|cell| cell.name.chars().count()).max().unwrap_or(4).max(4);
        let mut out = format!(
            "{:width$}  {:>12}  {:>12}  {:>17}  {:>18}  verdict\n",
            "cell", "published", "ours", "spread", "band"
        );
        for cell in shown {
            let columns = Columns::of(cell);
            let verdict = match (colour, cell.verdict) {
                (true, Verdict::Within) => "\u{1b}[32mwithin\u{1b}[0m",
                (true, Verdict::Outside) => "\u{1b}[31moutside\u{1b}[0m",
                (_, verdict) => verdict.label(),
            };
            let Columns { published, ours, spread, remark } = columns;
            let remark = if remark.is_empty() { remark } else { format!("  {remark}") };
            // writing into a string cannot fail
            let _ = writeln!(
                out,
                "{:width$}  {published:>12}  {ours:>12}  {spread:>17}  {:>18}  {verdict}{remark}",
                cell.name, cell.band
            );
        }
        out.push('\n');
        for (family, cases) in self.families() {
            out.push_str(&line(family, Summary::of(cases.iter().flat_map(|case| &case.cells))));
            out.push('\n');
        }
        out.push_str(&line("all", self.summary()));
        out.push('\n');
        out
    }

    /// The results page of the repository.
    pub fn markdown(&self, stamp: &Stamp) -> String {
        let Stamp { date, commit } = stamp;
        let mut out = format!(
            "# Published cases beside ours\n\nMade on {date} from commit {commit} by `sluice lab paper` with seeds 1 to {} \
             a case (rare events: a multiple), {} packets. Ours is the mean over the seeds, the spread the least and \
             the greatest. Published bands bind `compat = \"linux\"`; rows that end in `/default` are Sluice's default \
             mode with bands of its own, held against the published value or, in brackets, against our own row \
             above. `reported` has no verdict, with its cause.\n\n| family | within | outside | reported |\n\
             |---|---|---|---|\n",
            self.seeds, self.packets
        );
        let families = self.families();
        for (family, cases) in &families {
            let summary = Summary::of(cases.iter().flat_map(|case| &case.cells));
            let _ = writeln!(
                out,
                "| {family} | {} | {} | {} |",
                summary.within, summary.outside, summary.reported
            );
        }
        let all = self.summary();
        let _ = writeln!(out, "| all | {} | {} | {} |", all.within, all.outside, all.reported);
        for (family, cases) in &families {
            let mut sources: Vec<_> = cases.iter().map(|case| case.source.as_str()).collect();
            sources.dedup();
            let _ = write!(
                out,
                "\n## {family}\n\nSource: {}.\n\n| cell | published | ours | spread | band | verdict | why |\n\
                 |---|---|---|---|---|---|---|\n",
                sources.join("; ")
            );
            for cell in cases.iter().flat_map(|case| &case.cells) {
                let Columns { published, ours, spread, remark } = Columns::of(cell);
                let verdict = match cell.verdict {
                    Verdict::Outside => "**outside**",
                    verdict => verdict.label(),
                };
                let (name, band, remark) = (&cell.name, &cell.band, remark.replace('|', "\\|"));
                let _ = writeln!(
                    out,
                    "| {name} | {published} | {ours} | {spread} | {band} | {verdict} | {remark} |"
                );
            }
        }
        out
    }
}
