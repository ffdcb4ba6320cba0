// SPDX-License-Identifier: Apache-2.0
//! One subscriber: its record, its four queues over the window and since start, and their delay histograms.

use model::Subscriber;
use model::stats::{DelayStats, QueueStats, SubscriberStats};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Stylize as _;
use ratatui::text::Line;

use super::figures::{Pair, QueueFigures};
use super::screen::Screen;
use super::units::{short, time};
use super::view::{DIRECTIONS, lines};

/// Heights of a bar.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let wanted = screen.query.subject.as_deref().unwrap_or_default();
    let subject = screen.history.subject().filter(|(subject, _)| subject.id == wanted);
    let mut rows = vec![Line::from(format!("SUBSCRIBER {wanted}")).bold()];
    let Some((subject, figures)) = subject else {
        rows.push(Line::from("  asking ..."));
        return lines(frame, area, rows);
    };
    let Some(record) = &subject.record else {
        rows.push(Line::from("  there is no subscriber of that name; Esc goes back").red());
        return lines(frame, area, rows);
    };
    rows.extend(record_lines(record));
    match &subject.stats {
        None => rows.push(Line::from("  its counters cannot be read now").yellow()),
        Some(stats) => {
            rows.extend(window(figures.as_ref()));
            rows.extend(since_start(stats));
            rows.extend(histograms(stats, area.width));
        }
    }
    lines(frame, area, rows);
}

#[expect(clippy::cast_precision_loss, reason = "rates to look at")]
fn record_lines(record: &Subscriber) -> Vec<Line<'static>> {
    let rates =
        format!("{}bit/s down, {}bit/s up", short(record.down_bps as f64), short(record.up_bps as f64));
    let parent = record.parent.as_ref().map(|parent| format!(", parent {parent}")).unwrap_or_default();
    let keys: Vec<_> = record.keys().map(|key| key.to_string()).collect();
    vec![
        Line::from(format!("plan    {rates}, profile {}{parent}", record.profile)),
        Line::from(format!("matches {}", keys.join(", "))),
    ]
}

/// The last seconds.
fn window(figures: Option<&[Pair; 2]>) -> Vec<Line<'static>> {
    let head = format!(
        "{:15}{:>10}{:>9}{:>10}{:>10}{:>9}{:>9}",
        "LAST SECONDS", "BIT/S", "PKT/S", "P50", "P99", "MARK/S", "DROP/S"
    );
    let mut rows = vec![Line::from(head).bold()];
    let Some(figures) = figures else {
        rows.push(Line::from("measuring ..."));
        return rows;
    };
    for (dir, pair) in DIRECTIONS.into_iter().zip(figures) {
        for (queue, figures) in [("L4S", &pair.l4s), ("Classic", &pair.classic)] {
            rows.push(Line::from(row(&format!("{} {queue}", dir.label()), figures)));
        }
    }
    rows
}

fn row(name: &str, figures: &QueueFigures) -> String {
    let delay = |share| time(figures.delay.quantile(share));
    format!(
        "{name:15}{:>10}{:>9}{:>10}{:>10}{:>9}{:>9}",
        short(figures.bps),
        short(figures.pps),
        delay(0.5),
        delay(0.99),
        short(figures.marked),
        short(figures.lost()),
    )
}

fn queues(stats: &SubscriberStats) -> [(&'static str, &QueueStats); 4] {
    [
        ("down L4S", &stats.down.l4s),
        ("down Classic", &stats.down.classic),
        ("up L4S", &stats.up.l4s),
        ("up Classic", &stats.up.classic),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "counts to look at")]
fn since_start(stats: &SubscriberStats) -> Vec<Line<'static>> {
    let head = format!(
        "{:15}{:>10}{:>9}{:>10}{:>8}{:>7}{:>7}{:>7}{:>7}",
        "SINCE START", "ARRIVED", "SENT", "MARKED", "AQM", "TAIL", "POOL", "OTHER", "QUEUED"
    );
    let mut rows = vec![Line::from(head).bold()];
    for (name, queue) in queues(stats) {
        let aqm = queue.dropped_ect + queue.dropped_not_ect;
        let [arrived, sent, marked] = [queue.arrived, queue.forwarded, queue.marked].map(|n| short(n as f64));
        let lost =
            [aqm, queue.dropped_tail, queue.dropped_pool, queue.dropped_other].map(|n| short(n as f64));
        let [aqm, tail, pool, other] = lost;
        rows.push(Line::from(format!(
            "{name:15}{arrived:>10}{sent:>9}{marked:>10}{aqm:>8}{tail:>7}{pool:>7}{other:>7}{:>7}",
            queue.queued
        )));
    }
    for (dir, way) in DIRECTIONS.into_iter().zip([&stats.down, &stats.up]) {
        let text = format!("{} p' {:.4}", dir.label(), way.p_prime);
        rows.push(if way.overload { Line::from(text + ", OVERLOAD").yellow() } else { Line::from(text) });
    }
    rows
}

/// A bar for each bin that has something, from the shortest delay to the longest.
fn histograms(stats: &SubscriberStats, width: u16) -> Vec<Line<'static>> {
    let mut rows = vec![Line::from("DELAY SINCE START, shortest left").bold()];
    for (name, queue) in queues(stats) {
        rows.push(Line::from(format!(
            "{name:15}{}",
            bars(&queue.delay_us, usize::from(width).saturating_sub(44))
        )));
    }
    rows
}

#[expect(clippy::cast_precision_loss, reason = "counts to look at")]
fn bars(delay: &DelayStats, most: usize) -> String {
    let mut before = 0;
    let mut counts = Vec::new();
    for (edge, count) in delay.le.iter().zip(&delay.count) {
        counts.push((*edge, count.saturating_sub(before)));
        before = *count;
    }
    let used = |(_, count): &(Option<f64>, u64)| *count > 0;
    let (Some(first), Some(last)) = (counts.iter().position(used), counts.iter().rposition(used)) else {
        return "nothing sent".to_owned();
    };
    let counts: Vec<_> = counts.into_iter().skip(first).take(last - first + 1).collect();
    let highest = counts.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    let bar = |(_, count): &(Option<f64>, u64)| {
        let height = (*count as f64 / highest as f64 * 7.0).ceil();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 7")]
        let height = height as usize;
        if *count == 0 { ' ' } else { BARS.get(height).copied().unwrap_or('█') }
    };
    let text: String = counts.iter().take(most).map(bar).collect();
    let edge = |at: Option<&(Option<f64>, u64)>| at.and_then(|(edge, _)| *edge).map(|us| us / 1e6);
    let to = edge(counts.last()).map_or("beyond".to_owned(), |seconds| time(Some(seconds)));
    format!("{text}  {} to {to}", time(edge(counts.first())))
}
