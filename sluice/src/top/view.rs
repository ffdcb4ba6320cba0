// SPDX-License-Identifier: Apache-2.0
//! The screen drawn: from [`Screen`] and a time to cells, nothing else. Made for 80 by 24 and what is larger.

use std::time::Duration;

use model::stats::{Direction, Event, EventKind, LcoreState, PortState, TopBy, TopEntry};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};

use super::figures::{Sample, WayFigures, Ways};
use super::scrape::Scrape;
use super::screen::{Health, Screen, View};
use super::subscriber;
use super::units::{percent, short, time};

/// Ports and lines of lcores shown where there are more.
const MOST_PORTS: usize = 4;
const MOST_LCORE_LINES: usize = 3;
/// Keys of the last line.
const KEYS: &str = "q quit  ? help  b w x by bytes, wait, drops  d direction  Enter details  / id";

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &Screen, now: Duration) {
    let [title, body, keys] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(heading(screen, now)), title);
    match screen.view {
        View::Help => lines(frame, body, help()),
        View::Events => events(frame, body, screen),
        View::Subscriber => subscriber::draw(frame, body, screen),
        View::Overview => overview(frame, body, screen),
    }
    frame.render_widget(Paragraph::new(footer(screen)), keys);
}

fn heading(screen: &Screen, now: Duration) -> Line<'static> {
    let (text, colour) = match screen.health(now) {
        Health::Waiting => ("waiting for the first answer".to_owned(), Color::Yellow),
        Health::Live if screen.paused => ("paused".to_owned(), Color::Yellow),
        Health::Live => ("live".to_owned(), Color::Green),
        Health::Stale(age) => (format!("STALE: nothing new for {} s", age.as_secs()), Color::Yellow),
        Health::Gone(age, why) => {
            let age = age.map(|age| format!(" for {} s", age.as_secs())).unwrap_or_default();
            // the address stands beside it already
            (format!("GONE{age}: {}", why.trim_start_matches(&screen.api).trim_start()), Color::Red)
        }
    };
    Line::from(vec![
        "sluice ".bold(),
        Span::raw(format!("{}  ", screen.api)),
        Span::styled(text, Style::new().fg(colour).add_modifier(Modifier::BOLD)),
    ])
}

fn footer(screen: &Screen) -> Line<'static> {
    match &screen.typed {
        Some(typed) => Line::from(vec!["subscriber: ".bold(), Span::raw(format!("{typed}_"))]),
        None => Line::from(KEYS).dim(),
    }
}

/// Lines from the top, as many as fit.
pub(super) fn lines(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>) {
    frame.render_widget(Paragraph::new(lines), area);
}

fn overview(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let Some(last) = screen.history.last() else {
        return lines(frame, area, vec![Line::from(""), Line::from("  nothing to show yet")]);
    };
    let ports = last.ports.len().min(MOST_PORTS);
    let lcores = lcore_lines(&last.lcores, area.width);
    let sparks = if area.height > 30 { 3 } else { 1 };
    let figures = box_lines(last, screen.history.long().as_ref(), screen.query.dir);
    let lines_of_box = length(figures.len());
    let heights = [3, sparks, 2, lines_of_box, length(ports), length(lcores.len())].map(Constraint::Length);
    let rest = [Constraint::Min(3), Constraint::Length(if area.height > 30 { 5 } else { 2 })];
    let areas = Layout::vertical(heights.into_iter().chain(rest)).split(area);
    let at = |index: usize| areas.get(index).copied().unwrap_or_default();
    lines(frame, at(0), traffic(screen.history.short(), screen.history.long()));
    spark(frame, at(1), screen);
    lines(frame, at(2), drops(screen.history.long().as_ref()));
    lines(frame, at(3), figures);
    lines(frame, at(4), last.ports.iter().take(MOST_PORTS).map(port_line).collect());
    lines(frame, at(5), lcores);
    top(frame, at(6), screen, last);
    let newest = screen.events.iter().rev().map(event_line).take(usize::from(at(7).height)).collect();
    lines(frame, at(7), newest);
}

fn length(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// Throughput of the last moment, the rest of the window.
fn traffic(short_ways: Option<Ways>, long_ways: Option<Ways>) -> Vec<Line<'static>> {
    let head = format!(
        "{:5}{:>10}{:>9}{:>10}{:>9}{:>10}{:>9}{:>9}{:>9}",
        "", "BIT/S", "PKT/S", "L P50", "L P99", "C P50", "C P99", "MARK/S", "DROP/S"
    );
    let mut rows = vec![Line::from(head).bold()];
    let (Some(now), Some(long)) = (short_ways, long_ways) else {
        rows.push(Line::from("down  measuring ..."));
        rows.push(Line::from("up    measuring ..."));
        return rows;
    };
    for (name, now, long) in [("down", &now.down, &long.down), ("up", &now.up, &long.up)] {
        let delay = |way: &WayFigures, share| {
            let queues = &way.queues;
            [&queues.l4s, &queues.classic].map(|queue| time(queue.delay.quantile(share)))
        };
        let ([l50, c50], [l99, c99]) = (delay(long, 0.5), delay(long, 0.99));
        let lost: f64 = long.dropped().values().sum();
        rows.push(Line::from(format!(
            "{name:5}{:>10}{:>9}{l50:>10}{l99:>9}{c50:>10}{c99:>9}{:>9}{:>9}",
            short(now.bps),
            short(now.pps),
            short(long.marked()),
            short(lost),
        )));
    }
    rows
}

/// Throughput over time, down left and up right.
fn spark(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let halves = [Constraint::Length(5), Constraint::Fill(1), Constraint::Length(4), Constraint::Fill(1)];
    let [left, down, right, up] = Layout::horizontal(halves).areas(area);
    for (name, label, chart, dir) in [("down", left, down, 0), ("  up", right, up, 1)] {
        frame.render_widget(Paragraph::new(name).dim(), label);
        let width = usize::from(chart.width);
        let line = screen.history.line.iter().rev().take(width).rev();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates of a screen")]
        let points: Vec<u64> = line.map(|ways| ways.get(dir).copied().unwrap_or(0.0) as u64).collect();
        frame.render_widget(Sparkline::default().data(&points).style(Style::new().fg(Color::Cyan)), chart);
    }
}

/// Drops by reason, a line each direction.
fn drops(ways: Option<&Ways>) -> Vec<Line<'static>> {
    let each = [("down", ways.map(|ways| &ways.down)), ("up", ways.map(|ways| &ways.up))];
    let line = |(name, way): (&str, Option<&WayFigures>)| {
        let reasons = way.map(WayFigures::dropped).unwrap_or_default();
        let reasons: Vec<_> =
            reasons.iter().map(|(reason, rate)| format!("{reason} {}/s", short(*rate))).collect();
        let text = if reasons.is_empty() { "none".to_owned() } else { reasons.join("  ") };
        let strangers = way.map_or(0.0, |way| way.unclassified);
        let strangers =
            if strangers > 0.0 { format!("  of nobody {}/s", short(strangers)) } else { String::new() };
        Line::from(format!("drops {name:4} {text}{strangers}"))
    };
    each.into_iter().map(line).collect()
}

/// Subscribers, buffers, lateness, and aggregates where there are any.
fn box_lines(last: &Sample, ways: Option<&Ways>, dir: Direction) -> Vec<Line<'static>> {
    let scrape = &last.scrape;
    let buffers = scrape.buffers_free + scrape.buffers_used;
    let used = if buffers > 0.0 { scrape.buffers_used / buffers } else { 0.0 };
    let lag = |share| time(ways.and_then(|ways| ways.lag.quantile(share)));
    let mut rows = vec![
        Line::from(format!(
            "subscribers {:.0} configured, {:.0} active   buffers {} of {} used",
            scrape.configured,
            scrape.active,
            percent(used),
            short(buffers),
        )),
        Line::from(format!(
            "shaper lag p50 {}, p99 {}   overload episodes down {:.0}, up {:.0}",
            lag(0.5),
            lag(0.99),
            scrape.down.overloads,
            scrape.up.overloads,
        )),
    ];
    if scrape.parents > 0.0 {
        rows.push(aggregates(last, dir));
    }
    rows
}

/// How many aggregates are bottlenecks, and which most, the way the list goes.
fn aggregates(last: &Sample, dir: Direction) -> Line<'static> {
    let Scrape { parents, down, up, .. } = &last.scrape;
    let text = format!("aggregates {parents:.0}, bottlenecks down {:.0}, up {:.0}", down.slowed, up.slowed);
    let named = last.slowest.iter().map(|parent| format!(" {} {}", parent.id, percent(parent.clock_speed)));
    let named: String = named.collect();
    if named.is_empty() {
        return Line::from(text);
    }
    Line::from(vec![Span::raw(text), Span::raw(format!("   {}:{named}", dir.label())).yellow()])
}

fn port_line(port: &PortState) -> Line<'static> {
    let link = if port.link { "up  ".green() } else { "DOWN".red().bold() };
    let rate = port.rate_bps.or(port.speed_bps);
    #[expect(clippy::cast_precision_loss, reason = "a rate to look at")]
    let rate = rate.map_or("no shaper".to_owned(), |bps| format!("{}bit/s", short(bps as f64)));
    let lost: u64 = port.drops.iter().map(|drops| drops.packets).sum();
    let clock = format!("clock {:.3}", port.clock_speed);
    let slow = port.clock_speed < 0.999;
    Line::from(vec![
        Span::raw(format!("port {:12} ", port.name)),
        link,
        Span::raw(format!(" {rate:12} ")),
        if slow { Span::raw(clock).yellow() } else { Span::raw(clock) },
        Span::raw(format!("  lost {lost}")),
    ])
}

/// Loads of lcores, as many beside each other as fit.
fn lcore_lines(lcores: &[LcoreState], width: u16) -> Vec<Line<'static>> {
    const CELL: usize = 18;
    let each = usize::from(width).saturating_sub(7).max(CELL) / CELL;
    let cell = |lcore: &LcoreState| {
        let load = if lcore.stalled { "STALLED".to_owned() } else { percent(lcore.busy_ratio) };
        let text = format!("{:<CELL$}", format!("{} {} {load}", lcore.lcore, lcore.role.label()));
        if lcore.stalled { text.red().bold() } else { Span::raw(text) }
    };
    let line = |(index, cells): (usize, &[LcoreState])| {
        let name = if index == 0 { "lcores " } else { "       " };
        Line::from(std::iter::once(Span::raw(name)).chain(cells.iter().map(cell)).collect::<Vec<_>>())
    };
    lcores.chunks(each).enumerate().take(MOST_LCORE_LINES).map(line).collect()
}

/// The list of the busiest or worst.
fn top(frame: &mut Frame<'_>, area: Rect, screen: &Screen, last: &Sample) {
    let by = match screen.query.by {
        TopBy::Bytes => "TOP BYTES",
        TopBy::Delay => "TOP WAIT",
        TopBy::Drops => "TOP DROPS",
    };
    let dir = screen.query.dir.label();
    let name = usize::from(area.width).saturating_sub(60).max(12);
    let title = format!("{by} {dir} {:.0} s", last.top.window_s);
    let head = format!("{title:name$}{}", heads());
    let mut rows = vec![Line::from(head).bold()];
    let room = usize::from(area.height).saturating_sub(1);
    // the chosen row stays in sight
    let first = (screen.selected + 1).saturating_sub(room);
    for (at, entry) in last.top.items.iter().enumerate().skip(first).take(room) {
        let row = Line::from(entry_row(entry, name, last.top.window_s));
        rows.push(if at == screen.selected { row.reversed() } else { row });
    }
    if last.top.items.is_empty() {
        rows.push(Line::from("  nobody sent anything").dim());
    }
    lines(frame, area, rows);
}

fn heads() -> String {
    format!("{:>10}{:>9}{:>11}{:>11}{:>9}{:>9}", "BIT/S", "PKT/S", "L MEAN", "C MEAN", "MARK/S", "DROP/S")
}

#[expect(clippy::cast_precision_loss, reason = "counts to look at")]
fn entry_row(entry: &TopEntry, name: usize, window_s: f64) -> String {
    let each = |count: u64| if window_s > 0.0 { short(count as f64 / window_s) } else { "-".to_owned() };
    let delay = |us: f64| time((us > 0.0).then_some(us / 1e6));
    let id: String = entry.id.chars().take(name.saturating_sub(1)).collect();
    format!(
        "{id:name$}{:>10}{:>9}{:>11}{:>11}{:>9}{:>9}",
        short(entry.rate_bps),
        each(entry.packets),
        delay(entry.l4s_delay_us),
        delay(entry.classic_delay_us),
        each(entry.marked),
        each(entry.dropped),
    )
}

fn events(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let mut rows = vec![Line::from("EVENTS, newest first (UTC)").bold()];
    if screen.events.is_empty() {
        rows.push(Line::from("  none since this view was opened").dim());
    }
    rows.extend(screen.events.iter().rev().map(event_line).take(usize::from(area.height)));
    lines(frame, area, rows);
}

fn event_line(event: &Event) -> Line<'static> {
    let text = match &event.kind {
        EventKind::OverloadStart { id, dir } => format!("overload of {id} {} began", dir.label()),
        EventKind::OverloadEnd { id, dir, lasted_ms } => {
            let lasted = time(std::time::Duration::from_millis(*lasted_ms).as_secs_f64().into());
            format!("overload of {id} {} ended after {lasted}", dir.label())
        }
        EventKind::Link { port, up: false, .. } => format!("link of port {port} went down"),
        EventKind::Link { port, up: true, .. } => format!("link of port {port} came up"),
        EventKind::Config { created, updated, deleted } => {
            format!("records changed: {created} created, {updated} updated, {deleted} deleted")
        }
    };
    let second = event.at_ms / 1_000 % 86_400;
    let clock = format!("{:02}:{:02}:{:02} ", second / 3_600, second / 60 % 60, second % 60);
    let line = Line::from(vec![Span::raw(clock).dim(), Span::raw(text)]);
    if matches!(event.kind, EventKind::OverloadStart { .. } | EventKind::Link { up: false, .. }) {
        line.yellow()
    } else {
        line
    }
}

fn help() -> Vec<Line<'static>> {
    const TEXT: &str = "\
KEYS
  q, Ctrl-C        quit
  b, w, x          sort the list by bytes, waiting (delay), drops
  d, Tab           the list down or up
  arrows, j, k     choose a subscriber; Enter shows it, Esc comes back
  /                look at a subscriber by its id
  e                events
  p                pause the screen; the shaper goes on
  ?, h             this page

COLUMNS
  BIT/S, PKT/S     sent in the last moment, by both queues
  L, C             queue delay in the L4S queue and the Classic queue
  MARK/S, DROP/S   packets changed to CE here, packets lost here
  clock            speed of the clock that a port's subscribers share; below 1
                   the port is full and all of them slow alike
  bottlenecks      aggregates with less than is asked of them, by their clocks:
                   what their subscribers get of their plans
  shaper lag       how late packets departed against that clock
Delays, marks, drops are those of the last 10 seconds.";
    TEXT.lines()
        .map(|line| if line.starts_with(' ') { Line::from(line) } else { Line::from(line).bold() })
        .collect()
}

/// Both directions and their names, for those who draw a line for each.
pub(super) const DIRECTIONS: [Direction; 2] = [Direction::Down, Direction::Up];
