// SPDX-License-Identifier: Apache-2.0
//! Plots as SVG, written by hand: lines on axes are all that is needed, and the same result gives the same bytes.
//!
//! Invariant: what comes from a scenario (labels, names) is escaped; no line has more points than [`MOST_POINTS`].

use std::fmt::Write as _;

use crate::Outcome;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 42.0;
/// Points of one line; longer ones are thinned.
const MOST_POINTS: usize = 400;
/// Told apart in print and by the colour-blind (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// One line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What it shows.
    pub label: String,
    /// Its points, by rising x.
    pub points: Vec<(f64, f64)>,
}

/// One chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Below the x axis.
    pub x: &'static str,
    /// Beside the y axis.
    pub y: &'static str,
    /// What it shows.
    pub lines: Vec<Line>,
}

/// The three charts of a run: distribution of delay, rates and delay over time.
pub fn charts(outcome: &Outcome) -> Vec<Chart> {
    let series = &outcome.series;
    let queues = ["L queue", "C queue"];
    let over_time = |points: &[f64], scale: f64| -> Vec<(f64, f64)> {
        let whole = points.len().saturating_sub(1);
        points
            .iter()
            .take(whole)
            .zip(0_u32..)
            .map(|(y, n)| (f64::from(n) * series.step_s, y * scale))
            .collect()
    };
    let cdf = queues.iter().zip(&series.cdf).map(|(label, points)| Line {
        label: (*label).to_owned(),
        points: points.iter().map(|(ms, share)| (*ms, share * 100.0)).collect(),
    });
    let rates = series
        .rates
        .iter()
        .map(|(label, points)| Line { label: label.clone(), points: over_time(points, 1e-6) });
    let delays = queues
        .iter()
        .zip(&series.delay_ms)
        .map(|(label, points)| Line { label: (*label).to_owned(), points: over_time(points, 1.0) });
    let used = |lines: Vec<Line>| -> Vec<Line> {
        lines.into_iter().filter(|line| line.points.iter().any(|(_, y)| *y > 0.0)).collect()
    };
    let name = &outcome.name;
    vec![
        Chart {
            title: format!("{name}: queue delay"),
            x: "ms",
            y: "% of packets at most so late",
            lines: used(cdf.collect()),
        },
        Chart { title: format!("{name}: rates"), x: "s", y: "Mb/s", lines: used(rates.collect()) },
        Chart { title: format!("{name}: mean delay"), x: "s", y: "ms", lines: used(delays.collect()) },
    ]
}

/// Charts below each other as one SVG document.
#[expect(clippy::cast_precision_loss, reason = "a few charts")]
pub fn svg(charts: &[Chart]) -> String {
    let height = HEIGHT * charts.len() as f64;
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
    );
    for (chart, n) in charts.iter().zip(0_u32..) {
        let _ = writeln!(out, "<g transform=\"translate(0 {:.0})\">", f64::from(n) * HEIGHT);
        draw(&mut out, chart);
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n");
    out
}

fn draw(out: &mut String, chart: &Chart) {
    let greatest = |pick: fn(&(f64, f64)) -> f64| {
        chart.lines.iter().flat_map(|line| line.points.iter().map(pick)).fold(0.0, f64::max)
    };
    let (x_step, x_top) = ticks(greatest(|point| point.0));
    let (y_step, y_top) = ticks(greatest(|point| point.1));
    let x = |value: f64| LEFT + value / x_top * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - value / y_top * (HEIGHT - TOP - BOTTOM);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT:.0}\" y=\"20\" font-size=\"13\" font-weight=\"bold\">{}</text>",
        escape(&chart.title)
    );
    let mut at = 0.0;
    while at <= x_top * 1.000_001 {
        let (px, from, to) = (x(at), y(0.0), y(y_top));
        let _ = writeln!(
            out,
            "<path d=\"M{px:.1} {from:.1}V{to:.1}\" stroke=\"#ddd\"/><text x=\"{px:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            from + 15.0,
            number(at)
        );
        at += x_step;
    }
    at = 0.0;
    while at <= y_top * 1.000_001 {
        let (py, from, to) = (y(at), x(0.0), x(x_top));
        let _ = writeln!(
            out,
            "<path d=\"M{from:.1} {py:.1}H{to:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            from - 6.0,
            py + 4.0,
            number(at)
        );
        at += y_step;
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text><text transform=\"translate(14 {:.0}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        x(x_top / 2.0),
        HEIGHT - 8.0,
        escape(chart.x),
        y(y_top / 2.0),
        escape(chart.y)
    );
    for (line, (colour, n)) in chart.lines.iter().zip(COLOURS.iter().cycle().zip(0_u32..)) {
        let every = line.points.len().div_ceil(MOST_POINTS).max(1);
        let mut path = String::new();
        for (index, (px, py)) in line.points.iter().enumerate() {
            if index % every == 0 || index + 1 == line.points.len() {
                let start = if path.is_empty() { 'M' } else { 'L' };
                let _ = write!(path, "{start}{:.1} {:.1}", x(*px), y(*py));
            }
        }
        let _ = writeln!(out, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
        let (lx, ly) = (WIDTH - RIGHT + 12.0, TOP + 10.0 + f64::from(n) * 16.0);
        let _ = writeln!(
            out,
            "<path d=\"M{lx:.0} {:.0}h16\" stroke=\"{colour}\" stroke-width=\"3\"/><text x=\"{:.0}\" y=\"{ly:.0}\">{}</text>",
            ly - 4.0,
            lx + 22.0,
            escape(&line.label)
        );
    }
}

/// A step of 1, 2 or 5 times a power of ten that gives four to nine ticks, and the last of them.
fn ticks(greatest: f64) -> (f64, f64) {
    let greatest = if greatest > 0.0 { greatest } else { 1.0 };
    let mut step = libm::pow(10.0, libm::floor(libm::log10(greatest)) - 1.0);
    for factor in [2.0, 2.5, 2.0].into_iter().cycle() {
        if greatest / step <= 8.0 {
            break;
        }
        step *= factor;
    }
    (step, libm::ceil(greatest / step - 1e-9) * step)
}

/// With as few digits as tell ticks apart.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    short.to_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_all() {
        for (greatest, step, top) in
            [(1.0, 0.2, 1.0), (49.9, 10.0, 50.0), (0.37, 0.05, 0.4), (120.0, 20.0, 120.0)]
        {
            let (got_step, got_top) = ticks(greatest);
            assert!(
                (got_step - step).abs() < 1e-9 && (got_top - top).abs() < 1e-9,
                "{greatest}: {got_step} {got_top}"
            );
        }
        assert!(ticks(0.0).1 > 0.0);
    }

    #[test]
    fn labels_cannot_break_out_of_the_document() {
        let line = Line { label: "</svg><script>".to_owned(), points: vec![(0.0, 1.0), (1.0, 2.0)] };
        let text = svg(&[Chart { title: "a & b".to_owned(), x: "s", y: "ms", lines: vec![line] }]);
        assert!(text.contains("&lt;/svg&gt;&lt;script&gt;") && text.contains("a &amp; b"));
        assert_eq!(text.matches("</svg>").count(), 1);
    }

    #[test]
    fn long_lines_are_thinned_and_keep_their_end() {
        let points: Vec<_> = (0..100_000).map(|n| (f64::from(n), f64::from(n))).collect();
        let text = svg(&[Chart {
            title: String::new(),
            x: "",
            y: "",
            lines: vec![Line { label: String::new(), points }],
        }]);
        assert!(text.len() < 20_000, "{}", text.len());
    }
}
