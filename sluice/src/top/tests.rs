// SPDX-License-Identifier: Apache-2.0
//! The screen as it is drawn: golden pages at 80 by 24, and what must be on them.

use std::collections::BTreeMap;

use model::Subscriber;
use model::config::Role;
use model::stats::{
    Event as Happened, EventKind, LcoreRole, LcoreState, ParentTopEntry, PortDrops, PortState,
    SubscriberStats, TopEntry,
};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::figures::{Sample, Subject};
use super::scrape::{Bins, Queue};
use super::screen::View;
use super::*;

fn drawn(screen: &Screen, now_ms: u64, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, screen, Duration::from_millis(now_ms))).unwrap();
    text(terminal.backend())
}

/// Compares with a page under `sluice/tests/screens`; `SLUICE_BLESS=1` writes it anew.
fn assert_page(name: &str, page: &str) {
    let path = format!("{}/tests/screens/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("SLUICE_BLESS").is_some() {
        std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
        std::fs::write(&path, page).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == page, "{name} differs; is:\n{page}\nwas:\n{golden}");
}

fn queue(second: f64, mbps: f64, fast: bool) -> Queue {
    let packets = second * mbps * 1e6 / 8.0 / 1_000.0;
    let (low, high) = if fast { (0.000_1, 0.001) } else { (0.01, 0.02) };
    Queue {
        packets,
        bytes: packets * 1_000.0,
        marked: packets / 50.0,
        dropped: BTreeMap::from([("aqm".to_owned(), second * 12.0), ("tail".to_owned(), 0.0)]),
        delay: Bins(vec![(low, packets / 2.0), (high, packets), (f64::INFINITY, packets)]),
    }
}

fn port(name: &str, role: Role, link: bool, clock_speed: f64) -> PortState {
    PortState {
        name: name.to_owned(),
        device: String::new(),
        role,
        peer: String::new(),
        driver: String::new(),
        mac: String::new(),
        link,
        speed_bps: Some(10_000_000_000),
        mtu: 1_500,
        rate_bps: Some(9_950_000_000),
        clock_speed,
        rx_packets: 0,
        rx_bytes: 0,
        tx_packets: 0,
        tx_bytes: 0,
        drops: vec![PortDrops { reason: "imissed".to_owned(), packets: 17 }],
    }
}

fn lcore(lcore: u32, role: LcoreRole, busy_ratio: f64, stalled: bool) -> LcoreState {
    LcoreState {
        lcore,
        cpu: lcore,
        role,
        shard: None,
        busy_ratio,
        stalled,
        stalls: 0,
        longest_gap_us: 0,
        long_gaps: 0,
    }
}

fn entry(place: u32) -> TopEntry {
    TopEntry {
        id: format!("cust-{place}"),
        bytes: 1_000_000,
        rate_bps: 95e6 / f64::from(place),
        packets: 80_000 / u64::from(place),
        l4s_delay_us: 310.0,
        classic_delay_us: 15_300.0,
        marked: 1_200,
        dropped: 30,
    }
}

fn sample(second: u32) -> Sample {
    let time = f64::from(second);
    let mut sample = Sample { at: Duration::from_secs(second.into()), ..Sample::default() };
    sample.scrape.down.l4s = queue(time, 400.0, true);
    sample.scrape.down.classic = queue(time, 1_200.0, false);
    sample.scrape.up.classic = queue(time, 80.0, false);
    sample.scrape.down.unclassified = time * 40.0;
    sample.scrape.down.overloads = 3.0;
    (sample.scrape.configured, sample.scrape.active) = (1_000_000.0, 12_345.0);
    (sample.scrape.buffers_free, sample.scrape.buffers_used) = (230_000.0, 32_144.0);
    sample.scrape.lag =
        Bins(vec![(0.000_002, time * 50.0), (0.000_01, time * 100.0), (f64::INFINITY, time * 100.0)]);
    (sample.scrape.parents, sample.scrape.down.slowed) = (420.0, 2.0);
    let slow = |id: &str, clock_speed| ParentTopEntry {
        id: id.to_owned(),
        clock_speed,
        ..ParentTopEntry::default()
    };
    sample.slowest = vec![slow("pon-7", 0.61), slow("site-3", 0.87)];
    sample.ports = vec![port("core", Role::Core, true, 1.0), port("access", Role::Access, true, 0.873)];
    sample.lcores = vec![
        lcore(0, LcoreRole::Control, 0.03, false),
        lcore(1, LcoreRole::Rx, 0.456, false),
        lcore(2, LcoreRole::Tx, 0.71, false),
    ];
    sample.top.window_s = 10.0;
    sample.top.items = (1..=30).map(entry).collect();
    sample
}

fn screen() -> Screen {
    let mut screen = Screen::new(
        "http://127.0.0.1:8480".to_owned(),
        Duration::from_secs(1),
        Direction::Down,
        TopBy::Bytes,
    );
    for second in 0..=12 {
        screen.take(Update::Sample(Box::new(sample(second))));
    }
    let kinds = [
        EventKind::Config { created: 2, updated: 1, deleted: 0 },
        EventKind::OverloadStart { id: "cust-7".to_owned(), dir: Direction::Down },
        EventKind::Link { port: "core".to_owned(), up: false, speed_bps: None },
    ];
    for (kind, second) in kinds.into_iter().zip(0..) {
        screen.take(Update::Event(Happened { at_ms: 45_296_000 + second * 1_000, kind }));
    }
    screen
}

fn press(screen: &mut Screen, code: KeyCode) {
    screen.on_key(KeyEvent::new(code, KeyModifiers::NONE));
}

#[test]
fn the_overview_fits_80_by_24() {
    assert_page("overview", &drawn(&screen(), 12_300, (80, 24)));
}

#[test]
fn a_larger_terminal_shows_more() {
    let page = drawn(&screen(), 12_300, (120, 50));
    assert!(page.contains("cust-25") && page.contains("records changed"), "{page}");
    assert!(!drawn(&screen(), 12_300, (80, 24)).contains("cust-25"));
}

#[test]
fn a_tiny_terminal_breaks_nothing() {
    let mut screen = screen();
    for view in [View::Overview, View::Subscriber, View::Events, View::Help] {
        screen.view = view;
        for size in [(1, 1), (3, 2), (20, 5), (79, 11), (400, 3)] {
            drawn(&screen, 12_300, size);
        }
    }
}

#[test]
fn the_chosen_row_stays_in_sight() {
    let mut screen = screen();
    for _ in 0..29 {
        press(&mut screen, KeyCode::Down);
    }
    let page = drawn(&screen, 12_300, (80, 24));
    assert!(page.contains("cust-30") && !page.contains("cust-1 "), "{page}");
}

#[test]
fn old_figures_say_so() {
    let mut screen = screen();
    assert!(drawn(&screen, 12_300, (80, 24)).contains("8480  live"));
    assert!(drawn(&screen, 20_300, (80, 24)).contains("STALE: nothing new for 8 s"));
    screen.take(Update::Lost("http://127.0.0.1:8480 does not answer: refused".to_owned()));
    let page = drawn(&screen, 15_300, (80, 24));
    assert!(page.contains("GONE for 3 s: does not answer: refused"), "{page}");
    assert!(page.contains("1.60 G"), "what was known stays: {page}");
    press(&mut screen, KeyCode::Char('p'));
    screen.take(Update::Sample(Box::new(sample(13))));
    assert!(drawn(&screen, 13_000, (80, 24)).contains("paused"));
}

#[test]
fn the_first_moment_has_no_figures() {
    let mut screen = Screen::new("u".to_owned(), Duration::from_secs(1), Direction::Up, TopBy::Delay);
    assert!(drawn(&screen, 0, (80, 24)).contains("waiting for the first answer"));
    screen.take(Update::Sample(Box::new(sample(1))));
    let page = drawn(&screen, 1_000, (80, 24));
    assert!(page.contains("measuring ...") && page.contains("TOP WAIT up"), "{page}");
}

#[test]
fn a_stalled_lcore_and_a_dead_link_stand_out() {
    let mut screen = screen();
    let mut bad = sample(13);
    bad.lcores[2].stalled = true;
    bad.ports[1].link = false;
    screen.take(Update::Sample(Box::new(bad)));
    let page = drawn(&screen, 13_000, (80, 24));
    assert!(page.contains("2 tx STALLED") && page.contains("access       DOWN"), "{page}");
}

fn subject(second: u64) -> Subject {
    let record = r#"{"id":"cust-1","down_bps":100000000,"up_bps":20000000,"parent":"olt-3",
        "match":{"ipv4":["100.64.0.1/32"],"vlan":{"outer":100,"inner":42}}}"#;
    let mut stats = SubscriberStats::default();
    let l4s = &mut stats.down.l4s;
    (l4s.arrived, l4s.forwarded, l4s.forwarded_bytes) = (second * 1_010, second * 1_000, second * 1_000_000);
    (l4s.marked, l4s.dropped_ect, l4s.queued) = (second * 20, second * 10, 4);
    l4s.delay_us.le = vec![Some(50.0), Some(62.5), Some(80.0), Some(100.0), None];
    l4s.delay_us.count = [0, 200, 900, 1_000, 1_000].map(|count| count * second).to_vec();
    (stats.down.p_prime, stats.down.overload) = (0.125, true);
    Subject {
        id: "cust-1".to_owned(),
        record: Some(Subscriber::from_json(record.as_bytes()).unwrap()),
        stats: Some(stats),
    }
}

#[test]
fn a_subscriber_has_a_page_of_its_own() {
    let mut screen = screen();
    press(&mut screen, KeyCode::Enter);
    assert!(drawn(&screen, 12_300, (80, 24)).contains("asking ..."));
    for second in 13..=15 {
        let subject = Some(subject(second));
        let sample = Sample { subject, ..sample(u32::try_from(second).unwrap()) };
        screen.take(Update::Sample(Box::new(sample)));
    }
    assert_page("subscriber", &drawn(&screen, 15_300, (80, 24)));
    let unknown = Some(Subject { id: "cust-1".to_owned(), record: None, stats: None });
    screen.take(Update::Sample(Box::new(Sample { subject: unknown, ..sample(16) })));
    assert!(drawn(&screen, 16_300, (80, 24)).contains("there is no subscriber of that name"));
}

#[test]
fn help_and_events_have_pages() {
    let mut screen = screen();
    press(&mut screen, KeyCode::Char('?'));
    assert_page("help", &drawn(&screen, 12_300, (80, 24)));
    press(&mut screen, KeyCode::Char('e'));
    assert_page("events", &drawn(&screen, 12_300, (80, 24)));
    press(&mut screen, KeyCode::Char('/'));
    press(&mut screen, KeyCode::Char('é'));
    assert!(drawn(&screen, 12_300, (80, 24)).contains("subscriber: é_"));
}
