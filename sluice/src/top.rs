// SPDX-License-Identifier: Apache-2.0
//! `sluice top`: a live view of a running shaper over its HTTP interface, in a terminal of 80 by 24 or more.
//!
//! Drawing ([`view`]), keys ([`screen`]) and figures ([`figures`]) know neither terminal nor network; this file owns
//! the terminal, [`poll`] the network. Invariant: however it ends (q, a signal, an error, a panic), the terminal is as
//! it was before.

mod figures;
mod poll;
mod scrape;
mod screen;
mod subscriber;
#[cfg(test)]
mod tests;
mod units;
mod view;

use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use model::stats::{Direction, TopBy};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::subs::Connection;
use crate::subs::client::Client;
use poll::Clock;
use screen::{Query, Reaction, Screen, Update};

/// Between two looks at the keyboard.
const GLANCE: Duration = Duration::from_millis(200);

/// Arguments of `sluice top`.
#[derive(clap::Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    connection: Connection,
    /// Milliseconds between two samples
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    interval_ms: u64,
    /// What the list is sorted by
    #[arg(long, value_enum, default_value_t = Sort::Bytes)]
    sort: Sort,
    /// The list's direction
    #[arg(long, value_enum, default_value_t = Way::Down)]
    dir: Way,
    /// Print one screen after two samples and end
    #[arg(long)]
    once: bool,
    /// Print figures as JSON: one line a sample, with --once a single one
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Sort {
    Bytes,
    Delay,
    Drops,
}

#[derive(Clone, Copy, ValueEnum)]
enum Way {
    Down,
    Up,
}

/// Shows it until told to end.
///
/// # Errors
///
/// Without a terminal, or with `--once` and `--json` if the shaper does not answer.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let client = Arc::new(Client::new(&args.connection)?);
    let by = match args.sort {
        Sort::Bytes => TopBy::Bytes,
        Sort::Delay => TopBy::Delay,
        Sort::Drops => TopBy::Drops,
    };
    let dir = match args.dir {
        Way::Down => Direction::Down,
        Way::Up => Direction::Up,
    };
    let interval = Duration::from_millis(args.interval_ms);
    let screen = Screen::new(args.connection.api.clone(), interval, dir, by);
    if args.once || args.json {
        return print(&client, screen, args, &mut io::stdout().lock());
    }
    if !io::stdout().is_terminal() {
        bail!("this is no terminal; --once prints one screen, --json figures for programs");
    }
    live(&client, screen)
}

/// Text or JSON of samples, one after the other.
fn print(
    client: &Client,
    mut screen: Screen,
    args: &TopArgs,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let clock = Clock::start();
    loop {
        let sample = poll::sample(client, &screen.query, clock)?;
        screen.take(Update::Sample(Box::new(sample)));
        if let Some(figures) = figures::json(&screen.history) {
            if args.json {
                writeln!(out, "{figures}")?;
                out.flush()?;
            } else {
                out.write_all(page(&screen, clock.now())?.as_bytes())?;
            }
            if args.once {
                return Ok(ExitCode::SUCCESS);
            }
        }
        std::thread::park_timeout(screen.interval);
    }
}

/// A screen as text.
fn page(screen: &Screen, now: Duration) -> anyhow::Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(100, 40))?;
    terminal.draw(|frame| view::draw(frame, screen, now))?;
    let page = text(terminal.backend());
    // the last line are keys
    let body = page.trim_end().rsplit_once('\n').map_or("", |(body, _)| body);
    Ok(format!("{}\n", body.trim_end()))
}

/// Lines of what was drawn, blanks at their ends and empty lines at the end left out.
fn text(backend: &TestBackend) -> String {
    let buffer = backend.buffer();
    let width = usize::from(buffer.area.width).max(1);
    let lines = buffer.content.chunks(width).map(|cells| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    });
    let lines: Vec<_> = lines.collect();
    let last = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |at| at + 1);
    lines.iter().take(last).flat_map(|line| [line.as_str(), "\n"]).collect()
}

/// The terminal, given back when dropped.
struct Seat(ratatui::DefaultTerminal);

impl Seat {
    fn take() -> anyhow::Result<Self> {
        ratatui::try_init().map(Self).context("the terminal cannot be used")
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn live(client: &Arc<Client>, screen: Screen) -> anyhow::Result<ExitCode> {
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&end)).context("signals cannot be caught")?;
    }
    let clock = Clock::start();
    let (queries, asked) = mpsc::channel();
    let (sender, updates) = mpsc::channel();
    let (interval, query) = (screen.interval, screen.query.clone());
    let threads = [Arc::clone(client), Arc::clone(client)];
    let [for_figures, for_events] = threads;
    let to_events = sender.clone();
    // both end with the process: a call that hangs must not keep the terminal
    std::thread::spawn(move || poll::figures(&for_figures, clock, interval, query, &asked, &sender));
    std::thread::spawn(move || poll::events(&for_events, &to_events));
    let mut seat = Seat::take()?;
    watch(&mut seat, screen, clock, &queries, &updates, &end)?;
    Ok(ExitCode::SUCCESS)
}

fn watch(
    seat: &mut Seat,
    mut screen: Screen,
    clock: Clock,
    queries: &Sender<Query>,
    updates: &Receiver<Update>,
    end: &AtomicBool,
) -> anyhow::Result<()> {
    while !end.load(Ordering::Relaxed) {
        for update in updates.try_iter() {
            screen.take(update);
        }
        seat.0.draw(|frame| view::draw(frame, &screen, clock.now()))?;
        if !event::poll(GLANCE)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        let reaction = if key.kind == KeyEventKind::Release { Reaction::None } else { screen.on_key(key) };
        match reaction {
            Reaction::None => {}
            // the thread that asks lives as long as this one
            Reaction::Ask => drop(queries.send(screen.query.clone())),
            Reaction::Quit => break,
        }
    }
    Ok(())
}
