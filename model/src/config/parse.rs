// SPDX-License-Identifier: Apache-2.0
//! Turns the text of a configuration file into a [`Config`], or into every problem it has.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::reader::{Keys, Report, show};
use super::{
    Api, Classify, Config, Dataplane, HugePages, Lcore, Lcores, LogLevel, Port, Role, Rules, Unknown,
    parents, profile, subscribers,
};
use crate::problem::{Problem, Problems};
use crate::profile::Overhead;
use crate::subscriber::{MAX_RATE_BPS, MIN_RATE_BPS, check_name};

/// Highest lcore id (RTE_MAX_LCORE of the distributions is 128) and highest CPU.
const MAX_LCORE: u32 = 127;
const MAX_CPU: u32 = 1023;
/// Least MTU IPv6 can live with, and the largest jumbo frame.
const MTU: std::ops::RangeInclusive<u64> = 1280..=9702;
/// MTU of a port that names none: a full packet with three tags, PPPoE and labels.
const DEFAULT_MTU: u16 = 1600;
/// Ports are counted in 8 bits on the packet path.
const MAX_PORTS: usize = 64;
/// Subscribers there is room for unless the file says otherwise: about 150 MB of queues.
const SUBSCRIBERS: u32 = 65_536;

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Every problem, or the one that it cannot be read.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| Problems::unreadable(&name, &error))?;
        Self::parse(&name, &text)
    }

    /// Reads the text of the file called `file`.
    ///
    /// # Errors
    ///
    /// Every problem with its line and key.
    pub fn parse(file: &str, text: &str) -> Result<Self, Problems> {
        let report = Report::new(file, text);
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            report.add(&error.span().unwrap_or(0..0), "", format!("not TOML: {}", error.message()));
        }
        if !report.is_empty() {
            return Err(Problems(report.into_problems()));
        }
        let config = read(&document, &report);
        if report.is_empty() { Ok(config) } else { Err(Problems(report.into_problems())) }
    }
}

impl Default for Config {
    /// What an empty file means.
    fn default() -> Self {
        let document = Spanned::new(0..0, DeTable::new());
        read(&document, &Report::new("", ""))
    }
}

fn read(document: &Spanned<DeTable<'_>>, report: &Report) -> Config {
    let mut keys = Keys::root(document, report);
    let dataplane = dataplane(keys.table("dataplane"));
    let ports = ports(keys.tables("port"));
    let classify = classify(keys.table("classify"));
    let profiles = profiles(&mut keys);
    let api = api(keys.table("api"));
    let log = log(keys.table("log"));
    let store = store(keys.table("store"));
    let (parents, forest) = parents::read(&mut keys, report);
    let subscribers = subscribers::read(&mut keys, report, &profiles, &ports, &forest);
    keys.finish();
    Config { dataplane, ports, classify, profiles, api, log, store, parents, subscribers }
}

fn dataplane(mut keys: Keys<'_>) -> Dataplane {
    let words = [("auto", HugePages::Auto), ("require", HugePages::Require), ("never", HugePages::Never)];
    let dataplane = Dataplane {
        lcores: lcores(keys.table("lcores")),
        hugepages: keys.choice("hugepages", &words).unwrap_or(HugePages::Auto),
        buffers: keys.small("buffers", 0..=1 << 30).filter(|buffers| *buffers > 0),
        subscribers: keys.small("subscribers", 1..=1 << 24).unwrap_or(SUBSCRIBERS),
        seed: keys.integer("seed", 0..=i64::MAX.unsigned_abs()).unwrap_or(1),
        eal_args: keys.texts("eal_args").unwrap_or_default(),
    };
    keys.finish();
    dataplane
}

fn lcores(mut keys: Keys<'_>) -> Lcores {
    let only = |id| Lcore { id, cpu: id };
    let lcores = if keys.has("compact") {
        keys.forbid(&["control", "rx", "tx"], "has no meaning beside compact, which does all on one lcore");
        Lcores::Compact(lcore(&mut keys, "compact").unwrap_or(only(1)))
    } else {
        keys.get("compact");
        Lcores::Split {
            control: lcore(&mut keys, "control").unwrap_or(only(0)),
            rx: lcore_list(&mut keys, "rx").unwrap_or_else(|| vec![only(1)]),
            tx: lcore_list(&mut keys, "tx").unwrap_or_else(|| vec![only(2)]),
        }
    };
    if let Lcores::Split { control, rx, tx } = &lcores {
        let mut seen = vec![control.id];
        for (key, lcore) in rx.iter().map(|lcore| ("rx", lcore)).chain(tx.iter().map(|lcore| ("tx", lcore))) {
            if seen.contains(&lcore.id) {
                keys.fail(key, format!("lcore {} has another task already", lcore.id));
            }
            seen.push(lcore.id);
        }
    }
    keys.finish();
    lcores
}

fn lcore(keys: &mut Keys<'_>, key: &'static str) -> Option<Lcore> {
    let value = keys.get(key)?.get_ref();
    one_lcore(value).map_err(|message| keys.fail(key, message)).ok()
}

fn lcore_list(keys: &mut Keys<'_>, key: &'static str) -> Option<Vec<Lcore>> {
    let array = keys.array(key)?;
    if array.is_empty() {
        keys.fail(key, "is empty: at least one lcore is wanted");
        return None;
    }
    let each = array.iter().map(|item| one_lcore(item.get_ref()));
    let lcores: Vec<_> =
        each.filter_map(|lcore| lcore.map_err(|message| keys.fail(key, message)).ok()).collect();
    (!lcores.is_empty()).then_some(lcores)
}

/// `3`, or `"3@0"`: lcore 3 on CPU 0.
fn one_lcore(value: &DeValue<'_>) -> Result<Lcore, String> {
    let numbers = match value {
        DeValue::Integer(number) => number.to_string().parse().ok().map(|id| (id, id)),
        DeValue::String(text) => match text.split_once('@') {
            Some((id, cpu)) => id.trim().parse().ok().zip(cpu.trim().parse().ok()),
            None => text.trim().parse().ok().map(|id| (id, id)),
        },
        _ => None,
    };
    match numbers {
        Some((id, cpu)) if id <= MAX_LCORE && cpu <= MAX_CPU => Ok(Lcore { id, cpu }),
        _ => Err(format!(
            "{} is not an lcore: a number up to {MAX_LCORE}, or \"LCORE@CPU\" with a CPU up to {MAX_CPU}",
            show(value)
        )),
    }
}

/// A port before its peer is known to be one.
struct Draft<'t> {
    keys: Keys<'t>,
    name: String,
    device: String,
    role: Option<Role>,
    peer: String,
    rate_bps: Option<u64>,
    mtu: u16,
}

fn ports(tables: Vec<Keys<'_>>) -> Vec<Port> {
    if let Some(table) = tables.get(MAX_PORTS) {
        table.fail("name", format!("is one port too many: {MAX_PORTS} is the most"));
    }
    let drafts: Vec<_> = tables.into_iter().map(draft).collect();
    for (place, draft) in drafts.iter().enumerate() {
        let earlier = drafts.get(..place).unwrap_or_default();
        check_unique(draft, earlier);
    }
    let peers: Vec<_> = drafts.iter().map(|draft| find_peer(draft, &drafts)).collect();
    let ports = drafts.into_iter().zip(peers).map(|(draft, peer)| {
        draft.keys.finish();
        Port {
            name: draft.name,
            device: draft.device,
            role: draft.role.unwrap_or(Role::Core),
            peer,
            rate_bps: draft.rate_bps,
            mtu: draft.mtu,
        }
    });
    ports.collect()
}

fn draft(mut keys: Keys<'_>) -> Draft<'_> {
    let name = keys.required("name").unwrap_or_default().to_owned();
    if !name.is_empty()
        && let Err(message) = check_name(&name)
    {
        keys.fail("name", message);
    }
    let device = keys.required("device").unwrap_or_default().to_owned();
    keys.require("role");
    Draft {
        name,
        device,
        role: keys.choice("role", &[("core", Role::Core), ("access", Role::Access)]),
        peer: keys.required("peer").unwrap_or_default().to_owned(),
        rate_bps: keys.integer("rate_bps", MIN_RATE_BPS..=MAX_RATE_BPS),
        mtu: keys.small("mtu", MTU).unwrap_or(DEFAULT_MTU),
        keys,
    }
}

fn check_unique(draft: &Draft<'_>, earlier: &[Draft<'_>]) {
    if !draft.name.is_empty() && earlier.iter().any(|other| other.name == draft.name) {
        draft.keys.fail("name", format!("another port is called \"{}\" already", draft.name));
    }
    if draft.device.is_empty() {
        return;
    }
    let (device, interface) = (device_name(&draft.device), interface(&draft.device));
    if let Some(other) = earlier.iter().find(|other| device_name(&other.device) == device) {
        draft.keys.fail("device", format!("\"{device}\" is the device of port \"{}\" already", other.name));
    } else if let Some(interface) = interface
        && let Some(other) = earlier.iter().find(|other| self::interface(&other.device) == Some(interface))
    {
        let message = format!("the interface \"{interface}\" is that of port \"{}\" already", other.name);
        draft.keys.fail("device", message);
    }
}

/// What precedes the arguments names a device: EAL takes each once. A PCI address may leave out domain 0.
fn device_name(device: &str) -> &str {
    let name = device.split(',').next().unwrap_or_default();
    name.strip_prefix("0000:").unwrap_or(name)
}

/// The kernel's interface that a vdev opens. Two ports on one would each get a copy of every frame.
fn interface(device: &str) -> Option<&str> {
    device.split(',').skip(1).find_map(|argument| argument.strip_prefix("iface="))
}

fn find_peer(draft: &Draft<'_>, drafts: &[Draft<'_>]) -> usize {
    if draft.peer.is_empty() {
        return 0;
    }
    let Some(place) = drafts.iter().position(|other| other.name == draft.peer) else {
        draft.keys.fail("peer", format!("there is no port \"{}\"", draft.peer));
        return 0;
    };
    let theirs = drafts.get(place).and_then(|peer| peer.role);
    if draft.role.is_some() && draft.role == theirs {
        let message = format!("\"{}\" has the same role: core and access are each other's peers", draft.peer);
        draft.keys.fail("peer", message);
    }
    place
}

fn classify(mut keys: Keys<'_>) -> Classify {
    let unknown = keys.choice("unknown", &[("pass", Unknown::Pass), ("drop", Unknown::Drop)]);
    let unknown_bps = keys.integer("unknown_bps", 0..=MAX_RATE_BPS).filter(|rate| *rate > 0);
    if unknown_bps.is_some_and(|rate| rate < MIN_RATE_BPS) {
        keys.fail("unknown_bps", format!("is neither 0 nor at least {MIN_RATE_BPS}"));
    }
    let rules = rules(keys.table("rules"));
    keys.finish();
    Classify { unknown: unknown.unwrap_or(Unknown::Pass), unknown_bps, rules }
}

/// Four lists of DSCP values that have no value in common.
fn rules(mut keys: Keys<'_>) -> Rules {
    let mut seen: BTreeMap<u8, &'static str> = BTreeMap::new();
    let nqb_default = if keys.has("nqb_dscp") { vec![] } else { vec![45] };
    let mut list = |key: &'static str, default: Vec<u8>| {
        let values = keys.array(key).map_or(default, |array| dscps(&keys, key, array));
        for value in &values {
            match seen.insert(*value, key) {
                Some(other) if other == key => keys.fail(key, format!("DSCP {value} stands in it twice")),
                Some(other) => {
                    let given = if keys.has(key) { key } else { other };
                    keys.fail(given, format!("DSCP {value} stands in {other} and in {key}: one rule a DSCP"));
                }
                None => {}
            }
        }
        values
    };
    let rules = Rules {
        nqb_dscp: list("nqb_dscp", nqb_default),
        exclude_dscp: list("exclude_dscp", vec![]),
        classic_dscp: list("classic_dscp", vec![]),
        l4s_dscp: list("l4s_dscp", vec![]),
    };
    keys.finish();
    rules
}

fn dscps(keys: &Keys<'_>, key: &str, array: &[Spanned<DeValue<'_>>]) -> Vec<u8> {
    let values = array.iter().filter_map(|item| {
        let number = item.get_ref().as_integer().and_then(|n| u8::from_str_radix(n.as_str(), n.radix()).ok());
        let dscp = number.filter(|dscp| *dscp <= 63);
        if dscp.is_none() {
            keys.fail(key, format!("{} is not a DSCP, 0 to 63", show(item.get_ref())));
        }
        dscp
    });
    values.collect()
}

fn profiles(keys: &mut Keys<'_>) -> BTreeMap<String, crate::Profile> {
    let mut profiles = BTreeMap::new();
    for (name, table) in keys.named_tables("profile") {
        if let Err(message) = check_name(name) {
            table.fail("", message);
        }
        profiles.insert(name.to_owned(), profile::read(table, Overhead::ETHERNET));
    }
    profiles.entry("default".to_owned()).or_default();
    profiles
}

fn api(mut keys: Keys<'_>) -> Api {
    let local = SocketAddr::from(([127, 0, 0, 1], 8480));
    let listen = keys.text("listen").and_then(|text| {
        let address = text.parse::<SocketAddr>();
        let wrong = format!("\"{text}\" is not an address with a port, as 127.0.0.1:8480");
        address.map_err(|_| keys.fail("listen", wrong)).ok()
    });
    let api = Api {
        listen: listen.unwrap_or(local),
        token_file: keys.text("token_file").map(PathBuf::from),
        tls_cert: keys.text("tls_cert").map(PathBuf::from),
        tls_key: keys.text("tls_key").map(PathBuf::from),
    };
    let given = [("token_file", &api.token_file), ("tls_cert", &api.tls_cert), ("tls_key", &api.tls_key)];
    if !api.listen.ip().is_loopback() {
        for (key, _) in given.iter().filter(|(key, path)| path.is_none() && !keys.has(key)) {
            keys.fail(key, format!("is missing: to listen on {} it is needed", api.listen));
        }
    } else if keys.has("tls_cert") != keys.has("tls_key") {
        let lacking = if keys.has("tls_cert") { "tls_key" } else { "tls_cert" };
        keys.fail(lacking, "is missing: tls_cert and tls_key go together");
    }
    keys.finish();
    api
}

fn log(mut keys: Keys<'_>) -> LogLevel {
    let level = keys.choice("level", &LogLevel::ALL).unwrap_or(LogLevel::Info);
    keys.finish();
    level
}

fn store(mut keys: Keys<'_>) -> PathBuf {
    let path = keys.text("path").unwrap_or("/var/lib/sluice/sluice.db").into();
    keys.finish();
    path
}

impl Config {
    /// What `sluice run` needs beyond a valid file: ports on both sides. (`replay` does without any.)
    ///
    /// # Errors
    ///
    /// The one problem there is.
    pub fn check_ports(&self, file: &str) -> Result<(), Problems> {
        let has = |role| self.ports.iter().any(|port| port.role == role);
        if has(Role::Core) && has(Role::Access) {
            return Ok(());
        }
        let message = "a core and an access port are needed to run".to_owned();
        Err(Problems(vec![Problem { file: file.to_owned(), line: 0, key: "port".to_owned(), message }]))
    }
}
