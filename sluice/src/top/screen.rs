// SPDX-License-Identifier: Apache-2.0
//! What is on the screen besides figures: which view, sorted how, what was typed; and what a key changes about it.
//!
//! Knows no terminal and no clock: keys and times come in.

use std::collections::VecDeque;
use std::time::Duration;

use model::stats::{Direction, Event, TopBy};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::figures::{History, Sample};

/// Events kept.
const EVENTS: usize = 200;

/// What the shaper is to be asked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Query {
    pub(super) by: TopBy,
    pub(super) dir: Direction,
    /// The subscriber that is looked at.
    pub(super) subject: Option<String>,
}

/// From those who ask the shaper.
#[derive(Clone, Debug)]
pub(super) enum Update {
    Sample(Box<Sample>),
    /// It does not answer, and why.
    Lost(String),
    Event(Event),
}

/// What fills the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Overview,
    Subscriber,
    Events,
    Help,
}

/// What a key asks of the one who owns the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    None,
    /// The query is another one.
    Ask,
    Quit,
}

/// How far the figures can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// Nothing came yet.
    Waiting,
    Live,
    /// Nothing new for so long.
    Stale(Duration),
    /// The shaper does not answer: since when figures are old, if there are any, and why.
    Gone(Option<Duration>, String),
}

/// All of it.
pub(super) struct Screen {
    pub(super) api: String,
    /// Between two samples.
    pub(super) interval: Duration,
    pub(super) history: History,
    pub(super) query: Query,
    pub(super) view: View,
    /// Row of the list.
    pub(super) selected: usize,
    /// An id as it is typed.
    pub(super) typed: Option<String>,
    pub(super) paused: bool,
    /// Newest last.
    pub(super) events: VecDeque<Event>,
    lost: Option<String>,
}

impl Screen {
    pub(super) fn new(api: String, interval: Duration, dir: Direction, by: TopBy) -> Self {
        Self {
            api,
            interval,
            history: History::default(),
            query: Query { by, dir, subject: None },
            view: View::Overview,
            selected: 0,
            typed: None,
            paused: false,
            events: VecDeque::new(),
            lost: None,
        }
    }

    pub(super) fn health(&self, now: Duration) -> Health {
        let age = self.history.last().map(|sample| now.saturating_sub(sample.at));
        match (&self.lost, age) {
            (Some(why), age) => Health::Gone(age, why.clone()),
            (None, None) => Health::Waiting,
            (None, Some(age)) if age > self.interval * 3 + Duration::from_secs(1) => Health::Stale(age),
            _ => Health::Live,
        }
    }

    pub(super) fn take(&mut self, update: Update) {
        match update {
            Update::Lost(why) => self.lost = Some(why),
            Update::Sample(sample) => {
                self.lost = None;
                if !self.paused {
                    self.history.push(*sample);
                }
                self.selected = self.selected.min(self.ids().len().saturating_sub(1));
            }
            Update::Event(event) => {
                self.events.push_back(event);
                while self.events.len() > EVENTS {
                    self.events.pop_front();
                }
            }
        }
    }

    /// Names in the list, best first.
    fn ids(&self) -> Vec<&str> {
        let items = self.history.last().map(|sample| sample.top.items.as_slice()).unwrap_or_default();
        items.iter().map(|entry| entry.id.as_str()).collect()
    }

    pub(super) fn on_key(&mut self, key: KeyEvent) -> Reaction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Reaction::Quit } else { Reaction::None };
        }
        if self.typed.is_some() { self.typing(key.code) } else { self.command(key.code) }
    }

    fn typing(&mut self, code: KeyCode) -> Reaction {
        let Some(typed) = &mut self.typed else { return Reaction::None };
        match code {
            KeyCode::Char(c) => typed.push(c),
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Esc => self.typed = None,
            KeyCode::Enter => {
                let id = self.typed.take().unwrap_or_default();
                return if id.is_empty() { Reaction::None } else { self.look_at(id) };
            }
            _ => {}
        }
        Reaction::None
    }

    fn command(&mut self, code: KeyCode) -> Reaction {
        match code {
            KeyCode::Char('q') => return Reaction::Quit,
            KeyCode::Char('b') => return self.sort(TopBy::Bytes),
            KeyCode::Char('w') => return self.sort(TopBy::Delay),
            KeyCode::Char('x') => return self.sort(TopBy::Drops),
            KeyCode::Tab | KeyCode::Char('d') => {
                self.query.dir = match self.query.dir {
                    Direction::Down => Direction::Up,
                    Direction::Up => Direction::Down,
                };
                return Reaction::Ask;
            }
            KeyCode::Char('/') => self.typed = Some(String::new()),
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('e') => {
                self.view = if self.view == View::Events { View::Overview } else { View::Events }
            }
            KeyCode::Char('?' | 'h') => {
                self.view = if self.view == View::Help { View::Overview } else { View::Help }
            }
            KeyCode::Down | KeyCode::Char('j') => {
                self.selected = (self.selected + 1).min(self.ids().len().saturating_sub(1));
            }
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = self.ids().len().saturating_sub(1),
            KeyCode::Enter => {
                if let Some(id) = self.ids().get(self.selected).map(|id| (*id).to_owned()) {
                    return self.look_at(id);
                }
            }
            KeyCode::Esc | KeyCode::Backspace => {
                self.view = View::Overview;
                if self.query.subject.take().is_some() {
                    return Reaction::Ask;
                }
            }
            _ => {}
        }
        Reaction::None
    }

    fn sort(&mut self, by: TopBy) -> Reaction {
        self.query.by = by;
        self.selected = 0;
        Reaction::Ask
    }

    fn look_at(&mut self, id: String) -> Reaction {
        self.query.subject = Some(id);
        self.view = View::Subscriber;
        Reaction::Ask
    }
}

#[cfg(test)]
mod tests {
    use model::stats::TopEntry;

    use super::super::figures::tests::sample;
    use super::*;

    fn screen() -> Screen {
        Screen::new("http://x".to_owned(), Duration::from_secs(1), Direction::Down, TopBy::Bytes)
    }

    fn entry(id: &str) -> TopEntry {
        TopEntry {
            id: id.to_owned(),
            bytes: 0,
            rate_bps: 0.0,
            packets: 0,
            l4s_delay_us: 0.0,
            classic_delay_us: 0.0,
            marked: 0,
            dropped: 0,
        }
    }

    fn with_list(at_ms: u64, ids: &[&str]) -> Update {
        let mut sample = sample(at_ms, 0.0);
        sample.top.items = ids.iter().map(|id| entry(id)).collect();
        Update::Sample(Box::new(sample))
    }

    fn press(screen: &mut Screen, keys: &[KeyCode]) -> Vec<Reaction> {
        keys.iter().map(|code| screen.on_key(KeyEvent::new(*code, KeyModifiers::NONE))).collect()
    }

    #[test]
    fn a_row_is_chosen_looked_at_and_left() {
        let mut screen = screen();
        screen.take(with_list(0, &["a", "b", "c"]));
        press(&mut screen, &[KeyCode::Down, KeyCode::Char('j'), KeyCode::Down, KeyCode::Up]);
        assert_eq!(screen.selected, 1);
        assert_eq!(press(&mut screen, &[KeyCode::Enter]), [Reaction::Ask]);
        assert_eq!((screen.view, screen.query.subject.as_deref()), (View::Subscriber, Some("b")));
        assert_eq!(press(&mut screen, &[KeyCode::Esc]), [Reaction::Ask]);
        assert_eq!((screen.view, screen.query.subject.as_deref()), (View::Overview, None));
        screen.take(with_list(1_000, &["a"]));
        assert_eq!(screen.selected, 0, "the list became shorter");
    }

    #[test]
    fn keys_sort_and_turn_the_list() {
        let mut screen = screen();
        let keys =
            [KeyCode::Char('w'), KeyCode::Tab, KeyCode::Char('x'), KeyCode::Char('b'), KeyCode::Char('d')];
        assert_eq!(press(&mut screen, &keys), [Reaction::Ask; 5]);
        assert_eq!((screen.query.by, screen.query.dir), (TopBy::Bytes, Direction::Down));
    }

    #[test]
    fn an_id_is_typed_and_letters_of_it_are_no_commands() {
        let mut screen = screen();
        let keys = ['/', 'q', 'x', 'z'].map(KeyCode::Char);
        assert_eq!(press(&mut screen, &keys), [Reaction::None; 4]);
        press(&mut screen, &[KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!(screen.query.subject.as_deref(), Some("qx"));
        press(&mut screen, &[KeyCode::Char('/'), KeyCode::Esc]);
        assert_eq!((screen.typed.as_deref(), screen.view), (None, View::Subscriber));
    }

    #[test]
    fn q_and_control_c_quit() {
        let mut screen = screen();
        assert_eq!(press(&mut screen, &[KeyCode::Char('q')]), [Reaction::Quit]);
        screen.typed = Some(String::new());
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(screen.on_key(interrupt), Reaction::Quit);
    }

    #[test]
    fn figures_are_live_then_stale_and_a_shaper_that_does_not_answer_is_gone() {
        let mut screen = screen();
        let ms = Duration::from_millis;
        assert_eq!(screen.health(ms(0)), Health::Waiting);
        screen.take(with_list(0, &[]));
        assert_eq!(screen.health(ms(4_000)), Health::Live);
        assert_eq!(screen.health(ms(4_001)), Health::Stale(ms(4_001)));
        screen.take(Update::Lost("why".to_owned()));
        assert_eq!(screen.health(ms(5_000)), Health::Gone(Some(ms(5_000)), "why".to_owned()));
        screen.take(with_list(6_000, &[]));
        assert_eq!(screen.health(ms(6_000)), Health::Live);
    }

    #[test]
    fn a_pause_keeps_what_is_on_the_screen() {
        let mut screen = screen();
        screen.take(with_list(0, &["a"]));
        press(&mut screen, &[KeyCode::Char('p')]);
        screen.take(with_list(1_000, &["b"]));
        assert_eq!(screen.ids(), ["a"]);
        press(&mut screen, &[KeyCode::Char('p')]);
        screen.take(with_list(2_000, &["b"]));
        assert_eq!(screen.ids(), ["b"]);
    }
}
