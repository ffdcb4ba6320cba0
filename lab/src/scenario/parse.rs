// SPDX-License-Identifier: Apache-2.0
//! Turns the text of a scenario file into a [`Scenario`], or into problems with line and key.
//!
//! Unknown keys and wrong types stop at the first, as serde does; values out of range are all reported. Profiles are
//! read by `model`, from the very lines they stand on.

use std::path::Path;

use aqm::{BitsPerSec, Nanos};
use cc::Kind;
use model::{Config, Problem, Problems, Profile};
use toml::de::{DeTable, DeValue};

use super::raw::{RawFlow, RawLink, RawScenario, RawSize, RawWeb};
use super::{EcnChoice, Flow, Link, NO_OVERHEAD, RateStep, Reverse, Scenario, Size, Web};

/// Name of a scenario that has none and no file.
const NAME: &str = "mixed-rtt-5-100";
const RATE_BPS: u64 = 40_000_000;
const WARMUP_S: f64 = 30.0;
/// How `model` finds a profile's keys, and what it puts before their names.
const PROFILE_HEADER: &str = "[profile.default]";
const PROFILE_PREFIX: &str = "profile.default.";
/// Rates of a link, as those of a subscriber.
const RATES: std::ops::RangeInclusive<u64> = 64_000..=400_000_000_000;
const UDP_RATES: std::ops::RangeInclusive<u64> = 1_000..=400_000_000_000;
const PACKETS: std::ops::RangeInclusive<u64> = 64..=9_014;

impl Scenario {
    /// Reads a file; a scenario without a name gets that of the file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(path: &Path) -> Result<Self, Problems> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| Problems::unreadable(&file, &error))?;
        let stem = path.file_stem().map_or_else(|| NAME.to_owned(), |stem| stem.display().to_string());
        parse(&file, &text, &stem)
    }

    /// Reads the text of a scenario file.
    ///
    /// # Errors
    /// What is wrong with it, with line and key.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        parse("scenario", text, NAME)
    }
}

fn parse(file: &str, text: &str, name: &str) -> Result<Scenario, Problems> {
    let fail = |error: &toml::de::Error| {
        let line = error.span().map_or(0, |span| line_at(text, span.start));
        let message = error.message().to_owned();
        Problems(vec![Problem { file: file.to_owned(), line, key: String::new(), message }])
    };
    let document = DeTable::parse(text).map_err(|error| fail(&error))?;
    let raw: RawScenario = toml::from_str(text).map_err(|error| fail(&error))?;
    let mut reader = Reader { file, text, document: document.get_ref(), problems: Vec::new() };
    let scenario = reader.scenario(&raw, name);
    if reader.problems.is_empty() {
        return Ok(scenario);
    }
    reader.problems.sort_by_key(|problem| problem.line);
    Err(Problems(reader.problems))
}

/// The line, from 1, that a byte stands on.
fn line_at(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|byte| *byte == b'\n').count()
}

struct Reader<'t> {
    file: &'t str,
    text: &'t str,
    document: &'t DeTable<'t>,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    /// Notes a problem with the key at `path`, such as `flow[1].rtt_ms`.
    fn fail(&mut self, path: &str, message: impl Into<String>) {
        let line = self.line_of(path);
        let (file, key, message) = (self.file.to_owned(), path.to_owned(), message.into());
        self.problems.push(Problem { file, line, key, message });
    }

    /// Where the deepest part of a path that the file gives stands.
    fn line_of(&self, path: &str) -> usize {
        let mut table = Some(self.document);
        let mut line = 0;
        for part in path.split('.') {
            let (name, index) = match part.split_once('[') {
                Some((name, rest)) => (name, rest.trim_end_matches(']').parse::<usize>().ok()),
                None => (part, None),
            };
            let Some((key, value)) = table.and_then(|table| table.get_key_value(name)) else { break };
            line = line_at(self.text, key.span().start);
            let item = match (index, value.get_ref()) {
                (Some(index), DeValue::Array(items)) => items.get(index),
                _ => Some(value),
            };
            if let (Some(item), true) = (item, index.is_some()) {
                line = line_at(self.text, item.span().start);
            }
            table = item.and_then(|item| item.get_ref().as_table());
        }
        line
    }

    fn seconds(&mut self, path: &str, s: f64, most: f64) -> Nanos {
        if !(0.0..=most).contains(&s) {
            self.fail(path, format!("{s} is not a number from 0 to {most}"));
        }
        nanos(s)
    }

    fn millis(&mut self, path: &str, ms: f64, most: f64) -> Nanos {
        if !(0.0..=most).contains(&ms) {
            self.fail(path, format!("{ms} is not a number from 0 to {most}"));
        }
        nanos(ms / 1e3)
    }

    fn rate(&mut self, path: &str, bps: u64) -> BitsPerSec {
        if !RATES.contains(&bps) {
            self.fail(path, format!("{bps} is not a rate from {} to {}", RATES.start(), RATES.end()));
        }
        BitsPerSec(bps)
    }

    fn scenario(&mut self, raw: &RawScenario, name: &str) -> Scenario {
        let duration = self.seconds("duration_s", raw.duration_s, 86_400.0);
        // A short run without a word about it is not all warm-up.
        let warmup = raw.warmup_s.unwrap_or(WARMUP_S.min(raw.duration_s / 4.0));
        let warmup = self.seconds("warmup_s", warmup, 86_400.0);
        if warmup >= duration {
            self.fail("warmup_s", "leaves nothing of duration_s");
        }
        let link = self.link(&raw.link);
        let profile = self.profile("profile");
        let flows = raw.flow.iter().enumerate().map(|(at, flow)| self.flow(&format!("flow[{at}]"), flow));
        let flows: Vec<Flow> = flows.collect();
        let web = raw.web.iter().enumerate().map(|(at, web)| self.web(&format!("web[{at}]"), web)).collect();
        let name = raw.name.as_deref().unwrap_or(name).to_owned();
        Scenario { name, duration, warmup, link, profile, flows, web }
    }

    fn link(&mut self, raw: &RawLink) -> Link {
        if !(0.0..1.0).contains(&raw.loss) {
            self.fail("link.loss", format!("{} is not a share from 0 to below 1", raw.loss));
        }
        let reverse = raw.reverse.as_ref().map(|reverse| Reverse {
            rate: self.rate("link.reverse.rate_bps", reverse.rate_bps),
            profile: self.profile("link.reverse.profile"),
        });
        Link {
            steps: self.steps(raw),
            buffer_packets: (raw.buffer_packets > 0).then_some(raw.buffer_packets),
            burst: self.millis("link.burst_ms", raw.burst_ms, 1_000.0),
            jitter: self.millis("link.jitter_ms", raw.jitter_ms, 10_000.0),
            loss: raw.loss,
            reverse,
        }
    }

    fn steps(&mut self, raw: &RawLink) -> Vec<RateStep> {
        let Some(steps) = &raw.steps else {
            let rate = self.rate("link.rate_bps", raw.rate_bps.unwrap_or(RATE_BPS));
            return vec![RateStep { at: Nanos::ZERO, rate }];
        };
        if raw.rate_bps.is_some() {
            self.fail("link.steps", "has no meaning beside rate_bps: give one of them");
        }
        let read = steps.iter().enumerate().map(|(at, step)| RateStep {
            at: self.seconds(&format!("link.steps[{at}].at_s"), step.at_s, 86_400.0),
            rate: self.rate(&format!("link.steps[{at}].rate_bps"), step.rate_bps),
        });
        let read: Vec<RateStep> = read.collect();
        if read.first().is_none_or(|first| first.at > Nanos::ZERO) {
            self.fail("link.steps", "must begin with at_s = 0");
        }
        if read.windows(2).any(|two| two[0].at >= two[1].at) {
            self.fail("link.steps", "must come by rising at_s");
        }
        read
    }

    fn cc(&mut self, path: &str, name: &str) -> Kind {
        if name == "udp" {
            return Kind::Cbr;
        }
        match name.parse() {
            Ok(kind) if kind != Kind::Cbr => kind,
            _ => {
                let names: Vec<_> =
                    Kind::ALL.into_iter().filter(|kind| *kind != Kind::Cbr).map(Kind::label).collect();
                self.fail(path, format!("\"{name}\" is none of {}, udp", names.join(", ")));
                Kind::Cbr
            }
        }
    }

    fn ecn(&mut self, path: &str, word: &str) -> EcnChoice {
        match word {
            "auto" => EcnChoice::Auto,
            "not_ect" => EcnChoice::NotEct,
            "ect0" => EcnChoice::Ect0,
            "ect1" => EcnChoice::Ect1,
            _ => {
                self.fail(path, format!("\"{word}\" is none of auto, not_ect, ect0, ect1"));
                EcnChoice::Auto
            }
        }
    }

    fn flow(&mut self, path: &str, raw: &RawFlow) -> Flow {
        let key = |name: &str| format!("{path}.{name}");
        let cc = self.cc(&key("cc"), &raw.cc);
        if cc == Kind::Cbr && !UDP_RATES.contains(&raw.rate_bps) {
            let range = format!("{} to {}", UDP_RATES.start(), UDP_RATES.end());
            self.fail(&key("rate_bps"), format!("{} is not from {range}: udp needs a rate", raw.rate_bps));
        } else if cc != Kind::Cbr && raw.rate_bps > 0 {
            self.fail(&key("rate_bps"), "has a meaning for udp only");
        }
        if !(1..=10_000).contains(&raw.count) {
            self.fail(&key("count"), format!("{} is not a count from 1 to 10000", raw.count));
        }
        if !PACKETS.contains(&u64::from(raw.packet_bytes)) {
            let range = format!("{} to {}", PACKETS.start(), PACKETS.end());
            self.fail(&key("packet_bytes"), format!("{} is not from {range}", raw.packet_bytes));
        }
        let start = self.seconds(&key("start_s"), raw.start_s, 86_400.0);
        let stop = self.seconds(&key("stop_s"), raw.stop_s, 86_400.0);
        if stop > Nanos::ZERO && stop <= start {
            self.fail(&key("stop_s"), "is not after start_s");
        }
        Flow {
            label: raw.label.clone().unwrap_or_else(|| raw.cc.clone()),
            cc,
            count: raw.count,
            rtt: self.millis(&key("rtt_ms"), raw.rtt_ms, 10_000.0),
            ecn: self.ecn(&key("ecn"), &raw.ecn),
            rate: BitsPerSec(raw.rate_bps),
            packet_bytes: raw.packet_bytes,
            start,
            stop: (stop > Nanos::ZERO).then_some(stop),
            rtt_independence: raw.rtt_independence,
            hystart: raw.hystart,
            on: self.millis(&key("on_ms"), raw.on_ms, 1e6),
            off: self.millis(&key("off_ms"), raw.off_ms, 1e6),
        }
    }

    fn web(&mut self, path: &str, raw: &RawWeb) -> Web {
        let cc = self.cc(&format!("{path}.cc"), &raw.cc);
        if cc == Kind::Cbr {
            self.fail(&format!("{path}.cc"), "short flows need a congestion control");
        }
        if !(0.0..=1e6).contains(&raw.arrivals_per_s) {
            self.fail(&format!("{path}.arrivals_per_s"), "is not a number from 0 to 1000000");
        }
        Web {
            cc,
            rtt: self.millis(&format!("{path}.rtt_ms"), raw.rtt_ms, 10_000.0),
            ecn: self.ecn(&format!("{path}.ecn"), &raw.ecn),
            arrivals_per_s: raw.arrivals_per_s,
            size: self.size(&format!("{path}.size"), &raw.size),
        }
    }

    fn size(&mut self, path: &str, raw: &RawSize) -> Size {
        match raw {
            RawSize { fixed: Some(bytes), pareto: None } if *bytes > 0 => Size::Fixed(*bytes),
            RawSize { fixed: None, pareto: Some(pareto) }
                if (0.01..=100.0).contains(&pareto.shape)
                    && 0 < pareto.min_bytes
                    && pareto.min_bytes <= pareto.max_bytes =>
            {
                let (shape, min_bytes, max_bytes) = (pareto.shape, pareto.min_bytes, pareto.max_bytes);
                Size::Pareto { shape, min_bytes, max_bytes }
            }
            _ => {
                self.fail(path, "is neither { fixed = N } nor { pareto = { shape, min_bytes, max_bytes } }");
                Size::Fixed(1)
            }
        }
    }

    /// The profile whose table stands at `path`, or the default one.
    fn profile(&mut self, path: &str) -> Profile {
        let mut table = Some(self.document);
        for part in path.split('.') {
            table = table.and_then(|table| table.get(part)).and_then(|value| value.get_ref().as_table());
        }
        let has = |key: &str| table.is_some_and(|table| table.contains_key(key));
        let mut lines = Lines { text: self.text, out: format!("{PROFILE_HEADER}\n"), at: 2 };
        if let Some(table) = table {
            lines.table(table, "");
        }
        match Config::parse(self.file, &lines.out) {
            Ok(config) => {
                let profile = config.profiles.get("default").cloned().unwrap_or_default();
                let overhead = if has("overhead") { profile.overhead } else { NO_OVERHEAD };
                let mtu = if has("mtu") { profile.mtu } else { crate::FULL_PACKET };
                Profile { overhead, mtu, ..profile }
            }
            Err(Problems(found)) => {
                let found = found.into_iter().map(|problem| {
                    let key = problem.key.strip_prefix(PROFILE_PREFIX).unwrap_or(&problem.key);
                    Problem { key: format!("{path}.{key}"), ..problem }
                });
                self.problems.extend(found);
                Profile::default()
            }
        }
    }
}

/// Copies the keys of a table into a text of their own, each on the line it came from.
struct Lines<'t> {
    text: &'t str,
    out: String,
    /// The line that `out` has come to.
    at: usize,
}

impl Lines<'_> {
    fn table(&mut self, table: &DeTable<'_>, path: &str) {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let name = format!("{path}{}", key.get_ref());
            let text = self.text.get(value.span()).unwrap_or_default();
            match value.get_ref() {
                // A table with a header of its own has no text that is a value.
                DeValue::Table(inner) if !text.starts_with('{') => self.table(inner, &format!("{name}.")),
                _ => self.line(line_at(self.text, key.span().start), &format!("{name} = {text}")),
            }
        }
    }

    fn line(&mut self, line: usize, text: &str) {
        while self.at < line {
            self.out.push('\n');
            self.at += 1;
        }
        self.out.push_str(text);
        self.out.push('\n');
        self.at += 1 + text.matches('\n').count();
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn nanos(s: f64) -> Nanos {
    Nanos((s * 1e9 + 0.5) as u64)
}
