// SPDX-License-Identifier: Apache-2.0
//! The report as one page that needs no network: styles and drawings are in it, in light and dark.

use std::fmt::Write as _;

use super::band::{Verdict, short};
use super::plot::{self, Line};
use super::report::{CaseResult, CellResult, Report, Summary};

const STYLE: &str = "
:root{color-scheme:light dark;--bg:#fff;--fg:#1c1c1e;--soft:#6a6a70;--line:#d9d9de;--good:#177245;--bad:#b3261e;
--p0:#1f6feb;--p1:#d9730d;--p2:#2e8b57;--p3:#8250df;--p4:#b3261e;--p5:#6a6a70;--a:#1f6feb;--b:#d9730d}
@media(prefers-color-scheme:dark){:root{--bg:#16171a;--fg:#e8e8ea;--soft:#a0a0a8;--line:#3a3b40;--good:#57c98a;--bad:#ff8a80;
--p0:#79b8ff;--p1:#ffab70;--p2:#7bd8a4;--p3:#c9a7ff;--p4:#ff8a80;--p5:#a0a0a8;--a:#4a90ff;--b:#ff9340}}
body{background:var(--bg);color:var(--fg);font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1200px;padding:0 1rem}
h1,h2{font-weight:600}h2{margin-top:2.5rem}nav a{margin-right:1rem}a{color:var(--p0)}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;width:100%}
th,td{border-bottom:1px solid var(--line);padding:.2rem .5rem;text-align:right;vertical-align:top;white-space:nowrap}
th:first-child,td:first-child,td:last-child,th:last-child{text-align:left}td:last-child{white-space:normal;color:var(--soft);min-width:16rem}
.within{color:var(--good)}.outside{color:var(--bad);font-weight:600}.reported{color:var(--soft)}
summary{cursor:pointer;padding:.3rem 0}.plots{display:flex;flex-wrap:wrap;gap:1rem}figure{margin:.5rem 0}figcaption{color:var(--soft);font-size:13px}
svg{font:11px system-ui,sans-serif;max-width:100%}svg text{fill:var(--fg)}.m{text-anchor:middle}.e{text-anchor:end}
.g{stroke:var(--line);stroke-width:1}.l{fill:none;stroke-width:1.5}rect.a{fill:var(--a)}rect.b{fill:var(--b)}
.c0{stroke:var(--p0)}.c1{stroke:var(--p1)}.c2{stroke:var(--p2)}.c3{stroke:var(--p3)}.c4{stroke:var(--p4)}.c5{stroke:var(--p5)}
svg .t0{fill:var(--p0)}svg .t1{fill:var(--p1)}svg .t2{fill:var(--p2)}svg .t3{fill:var(--p3)}svg .t4{fill:var(--p4)}svg .t5{fill:var(--p5)}
";

impl Report {
    /// The page.
    pub fn html(&self) -> String {
        let mut out = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
             <title>Published cases beside ours</title><style>{STYLE}</style><h1>Published cases beside ours</h1>\
             <p>{} packets through the bottlenecks, seeds 1 to {}. Ours is the mean over the seeds, the spread the least \
             and the greatest. Rows that end in <code>/default</code> are Sluice's default mode; in brackets: our own row \
             above instead of a published value.</p><p>{}</p><nav>",
            self.packets,
            self.seeds,
            counts(self.summary())
        );
        let families = self.families();
        for (family, _) in &families {
            // writing into a string cannot fail
            let _ = write!(out, "<a href=\"#{family}\">{}</a>", escape(family));
        }
        out.push_str("</nav>");
        for (family, cases) in &families {
            section(&mut out, family, cases);
        }
        out.push_str("</html>\n");
        out
    }
}

fn counts(summary: Summary) -> String {
    let Summary { within, outside, reported } = summary;
    format!(
        "<span class=\"within\">{within} within</span>, <span class=\"outside\">{outside} outside</span>, \
         <span class=\"reported\">{reported} reported</span>"
    )
}

fn section(out: &mut String, family: &str, cases: &[&CaseResult]) {
    let mut sources: Vec<_> = cases.iter().map(|case| case.source.as_str()).collect();
    sources.dedup();
    let summary = Summary::of(cases.iter().flat_map(|case| &case.cells));
    let _ = write!(
        out,
        "<section id=\"{family}\"><h2>{family}</h2><p>Source: {}.</p><p>{}</p>",
        escape(&sources.join("; ")),
        counts(summary)
    );
    grids(out, cases);
    let judged = |case: &&&CaseResult| case.cells.iter().any(|cell| cell.verdict != Verdict::Reported);
    table(out, cases.iter().copied().filter(|case| judged(&case)));
    if cases.iter().any(|case| !judged(&case)) {
        out.push_str("<details><summary>Rows without a verdict</summary>");
        table(out, cases.iter().copied().filter(|case| !judged(&case)));
        out.push_str("</details>");
    }
    out.push_str("<details><summary>Queue delay and rates (first seed)</summary>");
    for case in cases.iter().filter(|case| !case.default_mode && judged(case)) {
        let beside = cases.iter().find(|other| other.name == format!("{}/default", case.name));
        plots(out, case, beside.copied());
    }
    out.push_str("</details></section>");
}

fn table<'a>(out: &mut String, cases: impl Iterator<Item = &'a CaseResult>) {
    out.push_str(
        "<div class=\"wide\"><table><tr><th>cell<th>published<th>ours<th>spread<th>band<th>verdict<th>why</tr>",
    );
    for cell in cases.flat_map(|case| &case.cells) {
        row(out, cell);
    }
    out.push_str("</table></div>");
}

fn row(out: &mut String, cell: &CellResult) {
    let value =
        |value: Option<f64>| value.map_or("–".to_owned(), |v| format!("{} {}", short(v), cell.unit));
    let published = value(cell.reference);
    let published = if cell.beside { format!("({published})") } else { published };
    let spread = match (cell.min, cell.max) {
        (Some(min), Some(max)) => format!("{}..{}", short(min), short(max)),
        _ => "–".to_owned(),
    };
    let why: Vec<_> = [&cell.cause, &cell.deviation].into_iter().flatten().map(|why| escape(why)).collect();
    let _ = write!(
        out,
        "<tr><td>{}<td>{published}<td>{}<td>{spread}<td>{}<td class=\"{verdict}\">{verdict}<td>{}</tr>",
        escape(&cell.name),
        value(cell.ours),
        escape(&cell.band),
        why.join("; "),
        verdict = cell.verdict.label(),
    );
}

/// Rate-ratio grids, where cases are named `family/kind/RATExRTT[/aqm]`.
fn grids(out: &mut String, cases: &[&CaseResult]) {
    let mut points: Vec<(String, String, String, f64)> = Vec::new();
    for case in cases {
        let Some((title, rate, rtt)) = point(&case.name) else { continue };
        let ratio = case.cells.iter().find(|cell| cell.quantity == "rate-ratio").and_then(|cell| cell.ours);
        points.extend(ratio.map(|ratio| (title, rate, rtt, ratio)));
    }
    let mut titles: Vec<_> = points.iter().map(|(title, ..)| title.clone()).collect();
    titles.sort();
    titles.dedup();
    out.push_str("<div class=\"plots\">");
    for title in titles {
        let mine = || points.iter().filter(|point| point.0 == title);
        let (rates, rtts) = (distinct(mine().map(|point| &point.1)), distinct(mine().map(|point| &point.2)));
        let value = |rate: &str, rtt: &str| {
            mine().find(|point| point.1 == rate && point.2 == rtt).map(|point| point.3)
        };
        let svg = plot::grid(&rates, &rtts, ("Mb/s", "RTT ms"), value);
        let _ = write!(out, "<figure>{svg}<figcaption>rate ratio, {}</figcaption></figure>", escape(&title));
    }
    out.push_str("</div>");
}

fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for name in names {
        if !distinct.contains(name) {
            distinct.push(name.clone());
        }
    }
    distinct
}

/// Title, rate and RTT of a point of the grid.
fn point(name: &str) -> Option<(String, String, String)> {
    let mut parts = name.split('/');
    let (family, kind, at) = (parts.next()?, parts.next()?, parts.next()?);
    let (rate, rtt) = at.split_once('x')?;
    let aqm = parts.next().map_or("linux-compatible", |aqm| aqm);
    (family == "grid").then(|| (format!("{kind} flows, {aqm}"), rate.to_owned(), rtt.to_owned()))
}

fn plots(out: &mut String, case: &CaseResult, beside: Option<&CaseResult>) {
    let arms = [("", Some(case)), (" default", beside)];
    let mut delays = Vec::new();
    for (arm, case) in arms {
        let Some(case) = case else { continue };
        for (queue, cdf) in ["L", "C"].into_iter().zip(&case.series.cdf) {
            if !cdf.is_empty() {
                delays.push((format!("{queue}{arm}"), cdf.clone()));
            }
        }
    }
    let rates = rates_of(case);
    if delays.is_empty() && rates.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "<details><summary>{}</summary><div class=\"plots\"><figure>{}<figcaption>share of packets at most so late</figcaption>\
         </figure><figure>{}<figcaption>rate of each group</figcaption></figure></div></details>",
        escape(&case.name),
        plot::cdf(&lines(&delays)),
        plot::over_time(&lines(&rates))
    );
}

fn lines(named: &[(String, Vec<(f64, f64)>)]) -> Vec<Line<'_>> {
    named.iter().map(|(name, points)| Line { name, points: points.clone() }).collect()
}

fn rates_of(case: &CaseResult) -> Vec<(String, Vec<(f64, f64)>)> {
    let step = case.series.step_s;
    let points = |rates: &[f64]| {
        let mut at = 0.0;
        let mut points = Vec::with_capacity(rates.len());
        for rate in rates {
            points.push((at, rate / 1e6));
            at += step;
        }
        points
    };
    case.series.rates.iter().map(|(label, rates)| (escape(label), points(rates))).collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
