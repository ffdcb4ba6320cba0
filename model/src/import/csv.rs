// SPDX-License-Identifier: Apache-2.0
//! ShapedDevices.csv: 15 or 16 columns, the older 13, and files whose header says 15 while the rows have 13.
//!
//! A row is a device; rows of one Circuit ID are one subscriber. The layout is found for each row by where its
//! addresses and rates are, the number of its fields only says what to try first: the example file that most
//! installations began with has the header of one layout and the rows of another. A header of its own may name a
//! column of rate strings instead of the two of Mb/s: `Mikrotik-Rate-Limit` (or `Rate Limit`), `Filter-Id` of accel-ppp.
//! Departures from the tool this format comes from: host bits in a prefix and different rates of one circuit are
//! problems here, for there is no telling which was meant.

use std::collections::HashMap;

use ipnet::{Ipv4Net, Ipv6Net};

use super::rates::{Grammar, scaled};
use super::{Gather, Options, Wish, newlines};
use crate::subscriber::{MAX_RATE_BPS, MIN_RATE_BPS, Match, Subscriber, check_id, parse_ipv4, parse_ipv6};

/// Where what stands in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    id: usize,
    parent: Option<usize>,
    parent_id: Option<usize>,
    ipv4: usize,
    ipv6: usize,
    min: [Option<usize>; 2],
    /// Down and up.
    max: [Option<usize>; 2],
    /// A column of rate strings.
    string: Option<(usize, Grammar)>,
    sqm: Option<usize>,
}

/// 15 columns, or 16 with `sqm`.
const CURRENT: Layout = Layout {
    id: 0,
    parent: Some(4),
    parent_id: Some(5),
    ipv4: 8,
    ipv6: 9,
    min: [Some(10), Some(11)],
    max: [Some(12), Some(13)],
    string: None,
    sqm: Some(15),
};
/// 13 columns.
const LEGACY: Layout = Layout {
    id: 0,
    parent: Some(4),
    parent_id: None,
    ipv4: 6,
    ipv6: 7,
    min: [Some(8), Some(9)],
    max: [Some(10), Some(11)],
    string: None,
    sqm: None,
};
/// Numbers of fields that rows of the known layouts have.
const FIELDS: [usize; 3] = [13, 15, 16];
/// Where rows of 15 and 16 have their comment.
const COMMENT: usize = 14;

/// Names of the columns in messages.
const ID: &str = "Circuit ID";
pub(super) const PARENT: &str = "Parent Node";
const IPV4: &str = "IPv4";
const IPV6: &str = "IPv6";
const MIN: [&str; 2] = ["Download Min Mbps", "Upload Min Mbps"];
const MAX: [&str; 2] = ["Download Max Mbps", "Upload Max Mbps"];
/// Columns of rate strings.
const STRINGS: [(&str, Grammar); 4] = [
    ("Mikrotik-Rate-Limit", Grammar::Mikrotik),
    ("Rate-Limit", Grammar::Mikrotik),
    ("Rate Limit", Grammar::Mikrotik),
    ("Filter-Id", Grammar::Accel),
];

/// Reads all rows.
pub(super) fn rows(text: &str, options: &Options, gather: &mut Gather) {
    let mut reader = ::csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .trim(::csv::Trim::All)
        .from_reader(text.as_bytes());
    let mut table = Table::default();
    let mut row = ::csv::StringRecord::new();
    let mut lines = Lines { text, at: 0, line: 1 };
    loop {
        match reader.read_record(&mut row) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return gather.fail(lines.line, "", format!("is not CSV: {error}")),
        }
        let start = row.position().map_or(0, ::csv::Position::byte);
        let line = lines.of(usize::try_from(start).unwrap_or(usize::MAX));
        if table.rows == 0
            && table.header.is_none()
            && row.get(0).is_some_and(|name| normal(name) == "circuit id")
        {
            match header(&row) {
                Ok(layout) => table.header = Some((layout, row.len())),
                Err(column) => return gather.fail(line, column, "is a column that the header lacks"),
            }
        } else if row.iter().any(|field| !field.is_empty()) {
            table.row(&row, line, gather);
        }
    }
    table.finish(options, gather);
}

/// Finds the line of a record. The reader's own count is that before the comments and blank lines it skips.
struct Lines<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl Lines<'_> {
    fn of(&mut self, start: usize) -> usize {
        let bytes = self.text.as_bytes();
        self.line += newlines(bytes.get(self.at..start));
        self.at = self.at.max(start);
        while let Some(first @ (b'#' | b'\n' | b'\r')) = bytes.get(self.at) {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let end = if *first == b'\r' { Some(0) } else { rest.iter().position(|byte| *byte == b'\n') };
            let Some(end) = end else { break };
            self.line += usize::from(*first != b'\r');
            self.at += end + 1;
        }
        self.line
    }
}

/// A column's name without its dressing: older files leave the unit out.
fn normal(name: &str) -> String {
    name.trim().to_lowercase().trim_end_matches(" mbps").to_owned()
}

/// The layout a header describes, or the name of a column it lacks.
fn header(row: &::csv::StringRecord) -> Result<Layout, &'static str> {
    let names: Vec<_> = row.iter().map(normal).collect();
    let maybe = |wanted: &str| names.iter().position(|name| *name == normal(wanted));
    let find = |wanted: &'static str| maybe(wanted).ok_or(wanted);
    let string = STRINGS.into_iter().find_map(|(name, grammar)| Some((maybe(name)?, grammar)));
    let rate = |wanted| if string.is_some() { Ok(maybe(wanted)) } else { find(wanted).map(Some) };
    Ok(Layout {
        id: find(ID)?,
        parent: maybe(PARENT),
        parent_id: maybe("Parent Node ID"),
        ipv4: find(IPV4)?,
        ipv6: find(IPV6)?,
        min: MIN.map(maybe),
        max: [rate(MAX[0])?, rate(MAX[1])?],
        string,
        sqm: maybe("sqm"),
    })
}

/// A circuit so far.
struct Circuit {
    id: String,
    line: usize,
    /// Down and up.
    rates: [u64; 2],
    /// The rate string had bursts.
    bursts: bool,
    /// Name and id of the node above it, and the line that says so.
    parent: Option<(String, String, usize)>,
    ipv4: Vec<Ipv4Net>,
    ipv6: Vec<Ipv6Net>,
}

#[derive(Default)]
struct Table {
    header: Option<(Layout, usize)>,
    rows: usize,
    circuits: Vec<Circuit>,
    by_id: HashMap<String, usize>,
    with_sqm: usize,
    with_min: usize,
    with_bursts: usize,
    off_header: usize,
}

impl Table {
    fn row(&mut self, row: &::csv::StringRecord, line: usize, gather: &mut Gather) {
        self.rows += 1;
        let Some(layout) = self.layout(row) else {
            let message = format!("has {} fields; rows have 13, 15 or 16", row.len());
            return gather.fail(line, "", message);
        };
        let before = gather.problems.len();
        let cell = |at: usize| row.get(at).unwrap_or_default();
        if let Some((_, header)) = self.header.filter(|(_, fields)| *fields == 15 && row.len() == 16)
            && number(cell(COMMENT))
        {
            let message = format!(
                "\"{}\" is a number where the header, of {header} columns, has a comment, and the row has a field more: a decimal comma wants quotes",
                cell(COMMENT)
            );
            return gather.fail(line, "Comment", message);
        }
        let circuit = read_row(&layout, row, line, gather);
        if gather.problems.len() == before {
            self.with_min += usize::from(layout.min.iter().flatten().any(|at| !cell(*at).is_empty()));
            self.with_sqm += usize::from(layout.sqm.is_some_and(|at| !cell(at).is_empty()));
            self.with_bursts += usize::from(circuit.bursts);
            self.merge(circuit, gather);
        }
    }

    /// Of the layouts with so many fields the first that the row fits, or else the first. A field too many or too few is
    /// a decimal comma as a rule, after which the rates would be others.
    fn layout(&mut self, row: &::csv::StringRecord) -> Option<Layout> {
        let by_header = self.header.filter(|(_, fields)| *fields == row.len()).map(|(layout, _)| layout);
        let by_count = match row.len() {
            13 => Some(LEGACY),
            count if FIELDS.contains(&count) => Some(CURRENT),
            _ => None,
        };
        let likely = by_header.or(by_count);
        let padded = is_padded_legacy(row).then_some(LEGACY);
        let fitting = by_header.into_iter().chain(by_count).chain(padded).find(|layout| fits(layout, row));
        if let (Some(fitting), Some((header, _))) = (fitting, self.header) {
            self.off_header += usize::from((fitting.ipv4, fitting.max) != (header.ipv4, header.max));
        }
        fitting.or(likely)
    }

    fn merge(&mut self, circuit: Circuit, gather: &mut Gather) {
        let place = self.by_id.get(&circuit.id).copied();
        let Some(earlier) = place.and_then(|place| self.circuits.get_mut(place)) else {
            self.by_id.insert(circuit.id.clone(), self.circuits.len());
            self.circuits.push(circuit);
            return;
        };
        for ((column, rate), other) in MAX.into_iter().zip(circuit.rates).zip(earlier.rates) {
            if rate != other {
                let message =
                    format!("{rate} b/s, but line {} gives circuit {} {other} b/s", earlier.line, circuit.id);
                gather.fail(circuit.line, column, message);
            }
        }
        match (&mut earlier.parent, circuit.parent) {
            (Some((name, id, _)), Some((other, other_id, _))) if (&*name, &*id) != (&other, &other_id) => {
                let message =
                    format!("\"{other}\", but line {} gives circuit {} \"{name}\"", earlier.line, circuit.id);
                gather.fail(circuit.line, PARENT, message);
            }
            (Some(_), _) => {}
            (none, other) => *none = other,
        }
        earlier.ipv4.extend(circuit.ipv4);
        earlier.ipv6.extend(circuit.ipv6);
    }

    fn finish(mut self, options: &Options, gather: &mut Gather) {
        self.notes(options, gather);
        for mut circuit in self.circuits.drain(..) {
            circuit.ipv4.sort_unstable();
            circuit.ipv4.dedup();
            circuit.ipv6.sort_unstable();
            circuit.ipv6.dedup();
            let [down_bps, up_bps] = circuit.rates;
            let matches = Match { ipv4: circuit.ipv4, ipv6: circuit.ipv6, ..Match::default() };
            let profile = options.profile.clone();
            if let Some((name, id, line)) = circuit.parent {
                gather.wishes.push(Wish { place: gather.subscribers.len(), line, name, id });
            }
            gather.keep(
                circuit.line,
                Subscriber { id: circuit.id, down_bps, up_bps, profile, parent: None, matches },
            );
        }
    }

    fn notes(&self, options: &Options, gather: &mut Gather) {
        let mut note = |count: usize, text: String| {
            if count > 0 {
                gather.notes.push(text);
            }
        };
        let rows = self.with_sqm;
        note(
            rows,
            format!(
                "{} a queue discipline (sqm); the profile \"{}\" decides",
                counted(rows, "row names", "rows name"),
                options.profile
            ),
        );
        let rows = self.with_min;
        note(
            rows,
            format!(
                "{} minimum rates; subscribers are shaped to their maximum",
                counted(rows, "row has", "rows have")
            ),
        );
        let rows = self.with_bursts;
        note(
            rows,
            format!(
                "{} bursts or priorities in the rate string; subscribers are shaped to the rate",
                counted(rows, "row has", "rows have")
            ),
        );
        let rows = self.off_header;
        note(
            rows,
            format!(
                "{} another layout than the header, read by where the addresses are",
                counted(rows, "row has", "rows have")
            ),
        );
    }
}

/// A number and what it counts.
pub(super) fn counted(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// Whether a row may be one of 13 fields that was padded to a wider header.
fn is_padded_legacy(row: &::csv::StringRecord) -> bool {
    row.len() > 13 && row.iter().skip(13).all(str::is_empty) && !row.get(12).is_some_and(number)
}

/// Whether addresses and rates are where `layout` has them.
fn fits(layout: &Layout, row: &::csv::StringRecord) -> bool {
    let cell = |at: usize| row.get(at).unwrap_or_default();
    let rate = |at: Option<usize>| at.is_some_and(|at| mbps(cell(at)).is_ok() || number(cell(at)));
    let string = || layout.string.is_some_and(|(at, _)| !cell(at).is_empty());
    let v4 = || addresses(cell(layout.ipv4)).all(|text| text.contains('.') && !text.contains(':'));
    let v6 = || addresses(cell(layout.ipv6)).all(|text| text.contains(':'));
    let any = !cell(layout.ipv4).is_empty() || !cell(layout.ipv6).is_empty();
    any && v4() && v6() && (layout.max.into_iter().all(rate) || string())
}

/// Several addresses in one cell.
fn addresses(cell: &str) -> impl Iterator<Item = &str> {
    cell.split([',', ';', ' ']).filter(|text| !text.is_empty())
}

/// One device; what is wrong with it goes to `gather`.
fn read_row(layout: &Layout, row: &::csv::StringRecord, line: usize, gather: &mut Gather) -> Circuit {
    let cell = |at: usize| row.get(at).unwrap_or_default();
    let id = cell(layout.id).to_owned();
    if let Err(message) = check_circuit(&id) {
        gather.fail(line, ID, message);
    }
    if cell(layout.ipv4).is_empty() && cell(layout.ipv6).is_empty() {
        gather.fail(line, IPV4, "is empty, and so is IPv6: at least one address is wanted");
    }
    for (column, at) in MIN.into_iter().zip(layout.min) {
        let text = at.map(cell).unwrap_or_default();
        if !text.is_empty() && !number(text) {
            gather.fail(line, column, format!("\"{text}\" is not a number"));
        }
    }
    let (rates, bursts) = read_rates(layout, row, line, gather);
    let parent = [layout.parent, layout.parent_id].map(|at| at.map(cell).unwrap_or_default().to_owned());
    let [name, node] = parent;
    let parent = (!name.is_empty() || !node.is_empty()).then_some((name, node, line));
    let ipv4 = prefixes(IPV4, cell(layout.ipv4), line, parse_ipv4, gather);
    let ipv6 = prefixes(IPV6, cell(layout.ipv6), line, parse_ipv6, gather);
    Circuit { id, line, rates, bursts, parent, ipv4, ipv6 }
}

/// Down and up by the columns of Mb/s or, where those are empty, by the rate string; and whether that has bursts.
fn read_rates(
    layout: &Layout,
    row: &::csv::StringRecord,
    line: usize,
    gather: &mut Gather,
) -> ([u64; 2], bool) {
    let cells = layout.max.map(|at| at.and_then(|at| row.get(at)).unwrap_or_default());
    let string = layout.string.map(|(at, grammar)| (row.get(at).unwrap_or_default(), grammar));
    if let Some((text, grammar)) = string.filter(|(text, _)| !text.is_empty() && cells == ["", ""]) {
        match grammar.read(text) {
            Ok(rates) => return ([rates.down_bps, rates.up_bps], rates.more),
            Err(message) => gather.fail(line, grammar.column(), message),
        }
        return ([0; 2], false);
    }
    let mut rates = [0; 2];
    for ((column, cell), rate) in MAX.into_iter().zip(cells).zip(&mut rates) {
        match mbps(cell) {
            Ok(bps) => *rate = bps,
            Err(message) => gather.fail(line, column, message),
        }
    }
    (rates, false)
}

fn check_circuit(id: &str) -> Result<(), String> {
    if id.contains('#') {
        return Err(format!("\"{id}\" has a # in it"));
    }
    check_id(id)
}

fn prefixes<P>(
    column: &str,
    cell: &str,
    line: usize,
    parse: impl Fn(&str) -> Result<P, String>,
    gather: &mut Gather,
) -> Vec<P> {
    let parsed = addresses(cell).filter_map(|text| match parse(text) {
        Ok(prefix) => Some(prefix),
        Err(message) => {
            gather.fail(line, column, message);
            None
        }
    });
    parsed.collect()
}

/// Whether a cell holds a plain number.
fn number(text: &str) -> bool {
    text.parse::<f64>().is_ok()
}

/// Fractional Mb/s, or a number with a suffix of its own (`512k`, `50M`, `1G`), to b/s.
pub(super) fn mbps(text: &str) -> Result<u64, String> {
    let suffixed = scaled(text, 0, &[('K', 1_000), ('M', 1_000_000), ('G', 1_000_000_000)]);
    if let Some(bps) = suffixed.filter(|_| text.ends_with(|last: char| last.is_ascii_alphabetic())) {
        return (MIN_RATE_BPS..=MAX_RATE_BPS)
            .contains(&bps)
            .then_some(bps)
            .ok_or_else(|| format!("\"{text}\" is not from 64k to 400G"));
    }
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    let bps = number.ok_or_else(|| format!("\"{text}\" is not a number"))? * 1e6;
    #[expect(clippy::cast_precision_loss, reason = "both bounds are far below 2^53")]
    let range = MIN_RATE_BPS as f64..=MAX_RATE_BPS as f64;
    if !range.contains(&bps.round()) {
        return Err(format!("\"{text}\" Mb/s is not from 0.064 to 400000"));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within the range just checked"
    )]
    Ok(bps.round() as u64)
}
