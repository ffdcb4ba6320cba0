// SPDX-License-Identifier: Apache-2.0
//! `network.json`: a tree of sites and access points with rates, read as the aggregates above subscribers.
//!
//! Objects nest, each key the name of a node: `{"Site": {"downloadBandwidthMbps": 1000, "uploadBandwidthMbps": 1000,
//! "type": "site", "children": {...}}}`; `{}` is a network without aggregates. Invariant: names are unique over the
//! whole tree, and a node stands behind the one above it. A node with `"virtual": true` only groups: it is left out,
//! and what is below it belongs to the nearest real node above.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::csv::mbps;
use super::newlines;
use crate::problem::{Problem, Problems};
use crate::subscriber::check_id;

/// Aggregates above each other, at most.
pub const MAX_LEVELS: usize = 8;
/// Objects within each other, virtual nodes among them: nobody's network is deeper.
const MAX_NESTING: usize = 32;

/// Keys of a node.
const DOWN: &str = "downloadBandwidthMbps";
const UP: &str = "uploadBandwidthMbps";
const CHILDREN: &str = "children";
const VIRTUAL: &str = "virtual";
const NODE_ID: &str = "id";
/// What a node is; it makes no difference here.
const KIND: &str = "type";

/// An aggregate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub id: String,
    /// Name of the aggregate above it.
    pub parent: Option<String>,
    /// Rate towards subscribers.
    pub down_bps: u64,
    /// Rate from subscribers.
    pub up_bps: u64,
    /// The line it begins on.
    pub line: usize,
}

/// A good file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Aggregates, each behind the one above it.
    pub nodes: Vec<Node>,
    /// What was left out, a sentence each.
    pub notes: Vec<String>,
    /// Names of all nodes and the aggregate that stands for each; virtual ones at the top have none.
    names: HashMap<String, Option<String>>,
    /// The same by the `id` of nodes that have one.
    ids: HashMap<String, Option<String>>,
}

impl Network {
    /// The aggregate that a node's name stands for; the outer `None` where no node has that name.
    pub fn by_name(&self, name: &str) -> Option<Option<&str>> {
        self.names.get(name).map(Option::as_deref)
    }

    /// The same by a node's `id`.
    pub fn by_id(&self, id: &str) -> Option<Option<&str>> {
        self.ids.get(id).map(Option::as_deref)
    }

    /// Names of all nodes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }
}

/// Whether `text` looks like a network: an object whose first member is an object, as in no subscriber record.
pub(super) fn looks_like(text: &str) -> bool {
    let Some(rest) = text.trim_start().strip_prefix('{') else { return false };
    let mut first = serde_json::Deserializer::from_str(rest.trim_start()).into_iter::<String>();
    let Some(Ok(name)) = first.next() else { return false };
    let behind = rest.trim_start().get(first.byte_offset()..).unwrap_or_default();
    let object =
        behind.trim_start().strip_prefix(':').is_some_and(|value| value.trim_start().starts_with('{'));
    object && name != "match"
}

/// Reads the network called `file`.
///
/// # Errors
///
/// Every problem with line and node.
pub fn read(file: &str, bytes: &[u8]) -> Result<Network, Problems> {
    let mut reader = Reader {
        file,
        text: "",
        network: Network::default(),
        problems: Vec::new(),
        left_out: Tally::new(),
        breaks: Vec::new(),
    };
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            reader.text = text.trim_start_matches('\u{feff}');
            reader.breaks = reader.text.match_indices('\n').map(|(at, _)| at).collect();
            reader.whole();
        }
        Err(error) => {
            let line = 1 + newlines(bytes.get(..error.valid_up_to()));
            reader.fail_at(line, "", "is not UTF-8 text; save the file as UTF-8");
        }
    }
    reader.finish()
}

/// Members that mean nothing here, and how many nodes have each.
type Tally = BTreeMap<String, usize>;

struct Reader<'t> {
    file: &'t str,
    text: &'t str,
    network: Network,
    problems: Vec<Problem>,
    left_out: Tally,
    /// Where lines end.
    breaks: Vec<usize>,
}

/// Where in the tree a node stands.
#[derive(Clone, Copy)]
struct Above<'a> {
    /// Nearest real node.
    parent: Option<&'a str>,
    /// Real nodes above.
    levels: usize,
    /// Objects around.
    nesting: usize,
}

impl<'t> Reader<'t> {
    fn whole(&mut self) {
        if self.text.trim().is_empty() {
            return self.fail_at(1, "", "is empty; {} is a network without aggregates");
        }
        let members = match serde_json::from_str::<Members<'t>>(self.text) {
            Ok(members) => members,
            Err(error) => {
                let message = error.to_string();
                let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
                let message = format!("not a network: {what} at column {}", error.column());
                return self.fail_at(error.line(), "", message);
            }
        };
        let top = Above { parent: None, levels: 0, nesting: 1 };
        self.children(&members, top);
    }

    fn children(&mut self, members: &Members<'t>, above: Above<'_>) {
        for (name, value) in &members.0 {
            self.node(name, value, above);
        }
    }

    fn node(&mut self, name: &str, value: &'t RawValue, above: Above<'_>) {
        let before = self.problems.len();
        let Ok(members) = serde_json::from_str::<Members<'t>>(value.get()) else {
            return self.fail(value, name, "is no node: an object with rates is wanted");
        };
        if let Err(message) = check_id(name) {
            self.fail(value, name, format!("the name {message}"));
        }
        if self.network.names.contains_key(name) {
            self.fail(value, name, "is the name of two nodes");
        }
        let mut parts = self.parts(name, &members);
        if above.nesting >= MAX_NESTING {
            self.fail(value, name, format!("stands below {MAX_NESTING} nodes; nobody's network is so deep"));
            parts.children = None;
        }
        let real = if parts.grouping { above.parent } else { Some(name) };
        let levels = above.levels + usize::from(!parts.grouping);
        if !parts.grouping {
            if levels > MAX_LEVELS {
                self.fail(
                    value,
                    name,
                    format!("is level {levels}; {MAX_LEVELS} aggregates above each other are the most"),
                );
            }
            let rates =
                [(DOWN, parts.down), (UP, parts.up)].map(|(key, raw)| self.rate(name, key, raw, value));
            if self.problems.len() == before {
                let [down_bps, up_bps] = rates;
                let (id, parent) = (name.to_owned(), above.parent.map(str::to_owned));
                let line = self.line(value);
                self.network.nodes.push(Node { id, parent, down_bps, up_bps, line });
            }
        }
        self.name(name, &parts, real, value);
        if let Some(children) = parts.children {
            self.children(&children, Above { parent: real, levels, nesting: above.nesting + 1 });
        }
    }

    /// Enters a node under its name and id.
    fn name(&mut self, name: &str, parts: &Parts<'t>, real: Option<&str>, value: &'t RawValue) {
        self.network.names.insert(name.to_owned(), real.map(str::to_owned));
        let Some(id) = &parts.id else { return };
        if self.network.ids.insert(id.clone(), real.map(str::to_owned)).is_some() {
            self.fail(value, name, format!("its id \"{id}\" is that of another node too"));
        }
    }

    /// The members of a node that mean something.
    fn parts(&mut self, name: &str, members: &Members<'t>) -> Parts<'t> {
        let mut parts = Parts::default();
        let mut seen = BTreeSet::new();
        for (key, value) in &members.0 {
            if !seen.insert(key.as_str()) {
                self.fail(value, &format!("{name}.{key}"), "stands twice");
            }
            match key.as_str() {
                DOWN => parts.down = Some(value),
                UP => parts.up = Some(value),
                VIRTUAL => match serde_json::from_str(value.get()) {
                    Ok(grouping) => parts.grouping = grouping,
                    Err(_) => self.fail(value, &format!("{name}.{VIRTUAL}"), "is neither true nor false"),
                },
                NODE_ID => parts.id = id(value),
                CHILDREN => match serde_json::from_str::<Option<Members<'t>>>(value.get()) {
                    Ok(children) => parts.children = children,
                    Err(_) => self.fail(value, &format!("{name}.{CHILDREN}"), "is no object of nodes"),
                },
                KIND => {}
                other => *self.left_out.entry(other.to_owned()).or_default() += 1,
            }
        }
        parts
    }

    fn rate(&mut self, name: &str, key: &str, raw: Option<&'t RawValue>, node: &'t RawValue) -> u64 {
        let at = format!("{name}.{key}");
        match raw {
            None => self.fail(node, &at, "is missing"),
            Some(raw) => match mbps(raw.get()) {
                Ok(bps) => return bps,
                Err(message) => self.fail(raw, &at, message),
            },
        }
        0
    }

    fn line(&self, value: &RawValue) -> usize {
        let start = value.get().as_ptr().addr().saturating_sub(self.text.as_ptr().addr());
        1 + self.breaks.partition_point(|at| *at < start)
    }

    fn fail(&mut self, value: &RawValue, key: &str, message: impl Into<String>) {
        let line = self.line(value);
        self.fail_at(line, key, message);
    }

    fn fail_at(&mut self, line: usize, key: &str, message: impl Into<String>) {
        let problem =
            Problem { file: self.file.to_owned(), line, key: key.to_owned(), message: message.into() };
        self.problems.push(problem);
    }

    fn finish(mut self) -> Result<Network, Problems> {
        if !self.problems.is_empty() {
            self.problems.sort_by_key(|problem| problem.line);
            return Err(Problems(self.problems));
        }
        for (key, nodes) in self.left_out {
            let nodes = super::csv::counted(nodes, "node has", "nodes have");
            self.network.notes.push(format!("{nodes} the key \"{key}\", which means nothing here"));
        }
        let grouping = self.network.names.len() - self.network.nodes.len();
        if grouping > 0 {
            let nodes = super::csv::counted(grouping, "virtual node was", "virtual nodes were");
            self.network.notes.push(format!("{nodes} left out; what is below belongs to the node above"));
        }
        Ok(self.network)
    }
}

/// A node's id: text, or a number as some tools write it.
fn id(value: &RawValue) -> Option<String> {
    let text = serde_json::from_str::<Option<String>>(value.get());
    text.unwrap_or_else(|_| Some(value.get().to_owned())).filter(|id| !id.is_empty())
}

/// A node, taken apart.
#[derive(Default)]
struct Parts<'t> {
    down: Option<&'t RawValue>,
    up: Option<&'t RawValue>,
    /// It only groups what is below it.
    grouping: bool,
    id: Option<String>,
    children: Option<Members<'t>>,
}

/// An object's members as they stand in the text, repeated names and all.
struct Members<'t>(Vec<(String, &'t RawValue)>);

impl<'de: 't, 't> Deserialize<'de> for Members<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object of nodes")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    members.push((name, map.next_value::<&'de RawValue>()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}
