// SPDX-License-Identifier: Apache-2.0
//! Inline SVG for the page: delay distributions, rates over time, rate-ratio grids. Colours come from the page's
//! style sheet, so that they change with the reader's colour scheme.

use std::fmt::Write as _;

use super::band::short;

/// Size of a plot with its axes, in pixels of the drawing.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 34.0;
/// More points than pixels show nothing more.
const MOST_POINTS: usize = 120;
/// Colours of the style sheet.
const COLOURS: usize = 6;

/// A named line.
pub(super) struct Line<'a> {
    /// Said in the legend.
    pub name: &'a str,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// Delay on a logarithmic axis from 10 us to 1 s against the share of packets at most so late.
pub(super) fn cdf(lines: &[Line<'_>]) -> String {
    let (low, high) = (0.01, 1000.0);
    let x = |ms: f64| libm::log10(ms.clamp(low, high) / low) / libm::log10(high / low);
    let mut svg = open("delay, ms");
    for ms in [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0] {
        tick_x(&mut svg, x(ms), &short(ms));
    }
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        tick_y(&mut svg, share, &short(share));
    }
    draw(&mut svg, lines, x, |share| share);
    close(svg)
}

/// Mb/s over seconds.
pub(super) fn over_time(lines: &[Line<'_>]) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    let end = all().map(|point| point.0).fold(1.0, f64::max);
    let top = all().map(|point| point.1).fold(1.0, f64::max);
    let mut svg = open("s; Mb/s");
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        tick_x(&mut svg, part, &short(part * end));
        tick_y(&mut svg, part, &short(part * top));
    }
    draw(&mut svg, lines, |s| s / end, |rate| rate / top);
    close(svg)
}

/// Ratios by row and column, the further from 1 the darker; blue: the first is ahead, orange: the second is.
pub(super) fn grid(
    rows: &[String],
    columns: &[String],
    (row_title, column_title): (&str, &str),
    value: impl Fn(&str, &str) -> Option<f64>,
) -> String {
    let (cell_w, cell_h, left, top) = (52.0, 24.0, 70.0, 36.0);
    let count = |names: &[String]| names.iter().fold(0.0, |n, _| n + 1.0);
    let (w, h) = (left + cell_w * count(columns) + 4.0, top + cell_h * count(rows) + 4.0);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\"><text x=\"2\" y=\"12\">{row_title} \u{2193} \
         {column_title} \u{2192}</text>"
    );
    let mut x = left;
    for column in columns {
        let _ = write!(svg, "<text x=\"{}\" y=\"30\" class=\"m\">{column}</text>", x + cell_w / 2.0);
        x += cell_w;
    }
    let mut y = top;
    for row in rows {
        let _ = write!(svg, "<text x=\"{}\" y=\"{}\" class=\"e\">{row}</text>", left - 6.0, y + 16.0);
        let mut x = left;
        for column in columns {
            if let Some(ratio) = value(row, column) {
                let strength = (libm::log2(ratio).abs() / 3.0).min(1.0) * 0.8;
                let class = if ratio >= 1.0 { "a" } else { "b" };
                let _ = write!(
                    svg,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" class=\"{class}\" fill-opacity=\"{strength:.2}\"/>\
                     <text x=\"{}\" y=\"{}\" class=\"m\">{}</text>",
                    cell_w - 2.0,
                    cell_h - 2.0,
                    x + cell_w / 2.0,
                    y + 16.0,
                    short(ratio)
                );
            }
            x += cell_w;
        }
        y += cell_h;
    }
    svg.push_str("</svg>");
    svg
}

fn open(title: &str) -> String {
    let (w, h) = (WIDTH, HEIGHT);
    let middle = LEFT + (w - LEFT - RIGHT) / 2.0;
    format!(
        "<svg viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\"><text x=\"{middle}\" y=\"{}\" class=\"m\">{title}</text>",
        h - 4.0
    )
}

fn close(mut svg: String) -> String {
    svg.push_str("</svg>");
    svg
}

/// From shares of the axes to pixels.
fn place(x: f64, y: f64) -> (f64, f64) {
    (LEFT + x * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y * (HEIGHT - TOP - BOTTOM))
}

fn tick_x(svg: &mut String, at: f64, text: &str) {
    let ((x, low), (_, high)) = (place(at, 0.0), place(at, 1.0));
    let _ = write!(
        svg,
        "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\" class=\"g\"/>\
         <text x=\"{x:.1}\" y=\"{:.1}\" class=\"m\">{text}</text>",
        low + 13.0
    );
}

fn tick_y(svg: &mut String, at: f64, text: &str) {
    let ((left, y), (right, _)) = (place(0.0, at), place(1.0, at));
    let _ = write!(
        svg,
        "<line x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" class=\"g\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" class=\"e\">{text}</text>",
        left - 4.0,
        y + 4.0
    );
}

fn draw(svg: &mut String, lines: &[Line<'_>], x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) {
    for (n, line) in lines.iter().enumerate() {
        let colour = n % COLOURS;
        let step = line.points.len().div_ceil(MOST_POINTS).max(1);
        let last = line.points.len().saturating_sub(1);
        let mut path = String::new();
        for (i, &(px, py)) in line.points.iter().enumerate() {
            if i % step == 0 || i == last {
                let (px, py) = place(x(px), y(py));
                let _ = write!(path, "{px:.1},{py:.1} ");
            }
        }
        let label = TOP + 10.0 + 13.0 * f64::from(u32::try_from(n).unwrap_or(0));
        let _ = write!(
            svg,
            "<polyline points=\"{}\" class=\"l c{colour}\"/><text x=\"{}\" y=\"{label}\" class=\"t{colour}\">{}</text>",
            path.trim_end(),
            LEFT + 6.0,
            line.name
        );
    }
}
