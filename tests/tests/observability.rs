// SPDX-License-Identifier: Apache-2.0
//! The watch of `docker/` against a real Prometheus: each alert fires on a series that should fire it, each dashboard is
//! one that Grafana takes, and each query of a panel and each rule finds data of a real run.
//!
//! No Grafana runs here: what its model asks of a dashboard is checked on the JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::direct::{Direct, Line, Plan, address, server};
use tests::machine::{has, wait_for};
use tests::rig::Process;
use tests::service::free_port;
use tests::traffic::{run_udp, traffic_server};
use tests::verdict::may_make_namespaces;

const DASHBOARDS: [&str; 2] = ["box.json", "l4s.json"];
/// Seconds over which rates are taken in the live run, scraped every second.
const WINDOW: &str = "8s";

fn docker() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docker"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(docker().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn promtool(arguments: &[&str]) {
    let done = Command::new("promtool").args(arguments).current_dir(docker().join("prometheus")).output();
    let done = done.expect("it runs");
    let said = [done.stdout, done.stderr].concat();
    assert!(done.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&said));
}

fn without_prometheus(name: &str) -> bool {
    let missing = !has("promtool") || !has("prometheus");
    if missing {
        tests::skip(name, "prometheus is not installed (Debian: prometheus)");
    }
    missing
}

/// Names of the alerts of the rules.
fn alerts() -> BTreeSet<String> {
    let rules = read("prometheus/sluice.rules.yml");
    rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).map(str::to_owned).collect()
}

#[test]
fn each_alert_fires_when_it_should_and_only_then() {
    if without_prometheus("each_alert_fires_when_it_should_and_only_then") {
        return;
    }
    promtool(&["check", "config", "prometheus.yml"]);
    promtool(&["check", "rules", "sluice.rules.yml"]);
    promtool(&["test", "rules", "sluice.rules.test.yml"]);
    // one that no test lets fire would be tested by nothing
    let tested = read("prometheus/sluice.rules.test.yml");
    let fires = |alert: &String| {
        let named = format!("- alertname: {alert}\n");
        tested
            .split(&named)
            .skip(1)
            .any(|block| block.lines().take(3).any(|line| line.contains("- exp_labels:")))
    };
    let untested: Vec<_> = alerts().into_iter().filter(|alert| !fires(alert)).collect();
    assert!(untested.is_empty(), "{untested:?}");
    for subject in ["Buffers", "LcoreStalled", "ShaperLag", "Overload", "Unclassified"] {
        assert!(alerts().iter().any(|alert| alert.contains(subject)), "{subject}");
    }
}

fn dashboard(file: &str) -> Value {
    serde_json::from_str(&read(&format!("grafana/dashboards/{file}")))
        .unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn panels(dashboard: &Value) -> &[Value] {
    dashboard["panels"].as_array().expect("panels")
}

/// `x, y, w, h`.
fn place(panel: &Value) -> [u64; 4] {
    ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap_or_else(|| panic!("{key}: {panel}")))
}

fn overlap(a: &Value, b: &Value) -> bool {
    let ([ax, ay, aw, ah], [bx, by, bw, bh]) = (place(a), place(b));
    ax < bx + bw && bx < ax + aw && ay < by + bh && by < ay + ah
}

/// Whether a data source is the variable that the dashboard asks for.
fn by_variable(value: &Value) -> bool {
    value["datasource"]["type"] == "prometheus" && value["datasource"]["uid"] == "${datasource}"
}

#[test]
fn the_dashboards_are_what_grafana_takes() {
    let mut uids = BTreeSet::new();
    for file in DASHBOARDS {
        let board = dashboard(file);
        assert!(board["schemaVersion"].as_u64().is_some_and(|version| version >= 36), "{file}");
        let text = |key: &str| board[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let uid = text("uid").expect("a uid");
        assert!(uid.len() <= 40 && uids.insert(uid) && text("title").is_some(), "{file}");
        assert!(board["id"].is_null(), "{file}: an id belongs to one Grafana");
        assert!(board["time"]["from"].is_string() && board["time"]["to"].is_string(), "{file}");
        let variables = board["templating"]["list"].as_array().expect("variables");
        let kind = |name: &str| {
            variables.iter().find(|variable| variable["name"] == name).map(|v| v["type"].clone())
        };
        assert_eq!((kind("datasource"), kind("instance")), (Some("datasource".into()), Some("query".into())));
        let panels = panels(&board);
        let ids: BTreeSet<_> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
        assert_eq!(ids.len(), panels.len(), "{file}: ids are there and unique");
        for (index, panel) in panels.iter().enumerate() {
            let [x, _, width, height] = place(panel);
            assert!(width > 0 && height > 0 && x + width <= 24, "{file}: {panel}");
            for other in panels.iter().take(index) {
                assert!(!overlap(panel, other), "{file}: {} lies on {}", panel["title"], other["title"]);
            }
            a_panel(file, panel);
        }
    }
}

/// What Grafana's model asks of one panel.
fn a_panel(file: &str, panel: &Value) {
    let kind = panel["type"].as_str().expect("a type");
    assert!(["row", "stat", "timeseries", "heatmap"].contains(&kind), "{file}: {kind}");
    assert!(panel["title"].as_str().is_some_and(|title| !title.is_empty()), "{file}: {panel}");
    if kind == "row" {
        return assert!(panel["collapsed"] == false && panel["panels"].as_array().is_some_and(Vec::is_empty));
    }
    assert!(by_variable(panel), "{file}: {}", panel["title"]);
    assert!(
        panel["fieldConfig"]["defaults"]["unit"].is_string() && panel["fieldConfig"]["overrides"].is_array()
    );
    assert!(panel["options"].is_object());
    let targets = panel["targets"].as_array().expect("targets");
    let names: BTreeSet<_> = targets.iter().filter_map(|target| target["refId"].as_str()).collect();
    assert!(!targets.is_empty() && names.len() == targets.len(), "{file}: {}", panel["title"]);
    for target in targets {
        let query = target["expr"].as_str().unwrap_or_default();
        assert!(query.contains("instance=\"$instance\"") && by_variable(target), "{file}: {query}");
    }
}

/// Every query of every panel, with where it stands.
fn queries() -> Vec<(String, String)> {
    let of = |file: &str| {
        let board = dashboard(file);
        let targets = |panel: &Value| {
            let title = format!("{file}: {}", panel["title"]);
            let targets = panel["targets"].as_array().cloned().unwrap_or_default();
            let queries = targets.into_iter().filter_map(|target| target["expr"].as_str().map(str::to_owned));
            queries.map(|query| (title.clone(), query)).collect::<Vec<_>>()
        };
        panels(&board).iter().flat_map(targets).collect::<Vec<_>>()
    };
    DASHBOARDS.iter().flat_map(|file| of(file)).collect()
}

/// Names of metrics in an expression.
fn metrics(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("sluice_")).map(str::to_owned).collect()
}

/// A Prometheus that scrapes one shaper each second.
struct Prometheus {
    process: Process,
    url: String,
}

impl Prometheus {
    fn start(folder: &Path, shaper: &str) -> Result<Self> {
        let config = read("prometheus/prometheus.yml");
        let config = config.replace("127.0.0.1:8480", shaper).replace(": 5s", ": 1s");
        ensure!(config.contains(shaper) && config.matches(": 1s").count() == 2, "{config}");
        std::fs::write(folder.join("prometheus.yml"), config)?;
        std::fs::copy(docker().join("prometheus/sluice.rules.yml"), folder.join("sluice.rules.yml"))?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", folder.join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()));
        command.arg(format!("--web.listen-address={address}"));
        let process = Process::start("prometheus", &mut command, &folder.join("prometheus.log"))?;
        Ok(Self { process, url: format!("http://{address}") })
    }

    fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value> {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
        let mut request = ureq::Agent::new_with_config(agent).get(format!("{}{path}", self.url));
        for (name, value) in query {
            request = request.query(name, value);
        }
        let body = request.call()?.body_mut().read_to_string()?;
        let answer: Value = serde_json::from_str(&body).with_context(|| body.clone())?;
        ensure!(answer["status"] == "success", "{query:?}: {body}");
        Ok(answer["data"].clone())
    }

    /// The values that an expression has now.
    fn values(&self, expression: &str) -> Result<Vec<f64>> {
        let data = self.get("/api/v1/query", &[("query", expression)])?;
        let series = data["result"].as_array().context("a vector")?;
        let value = |one: &Value| one["value"][1].as_str().and_then(|text| text.parse::<f64>().ok());
        Ok(series.iter().filter_map(value).collect())
    }
}

const LINE: Line = Line { id: "a", pair: 0, host: 10, down_bps: 8_000_000, up_bps: 4_000_000 };

/// Prague and CUBIC, both ways, by UDP: four flows.
fn traffic(network: &Direct) -> Result<Vec<Process>> {
    let (pair, folder) = (&network.pairs[0], network.folder.as_path());
    let own = address(0, LINE.host);
    let mut all = Vec::new();
    for (port, cc, direction) in
        [(8501, "prague", "down"), (8502, "cubic", "down"), (8503, "prague", "up"), (8504, "cubic", "up")]
    {
        let at = format!("{}:{port}", server(0));
        all.push(traffic_server(&pair.server, &at, folder)?);
        let options = ["--direction", direction, "--seconds", "120"];
        all.push(run_udp(&pair.client, (&own, &at), cc, &options, folder)?);
    }
    Ok(all)
}

/// What a panel or rule would show by now, or why it shows nothing.
fn shows(prometheus: &Prometheus, shaper: &str, query: &str) -> Result<()> {
    let query = query.replace("$instance", shaper).replace("$__rate_interval", WINDOW);
    ensure!(!query.contains('$'), "{query}: a variable that nobody sets");
    let values = prometheus.values(&query)?;
    ensure!(values.iter().any(|value| value.is_finite()), "{query}: {values:?}");
    Ok(())
}

fn rules_are_evaluated(prometheus: &Prometheus) -> Result<()> {
    let groups = prometheus.get("/api/v1/rules", &[])?;
    let rules = groups["groups"][0]["rules"].as_array().context("rules")?;
    ensure!(rules.len() == alerts().len(), "{groups}");
    let names = prometheus.get("/api/v1/label/__name__/values", &[])?;
    let names: BTreeSet<&str> = names.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for rule in rules {
        ensure!(
            rule["health"] == "ok" && rule["lastError"].as_str().unwrap_or_default().is_empty(),
            "{rule}"
        );
        let expression = rule["query"].as_str().context("an expression")?;
        // without its threshold, and with a window that this run has
        let missing: Vec<_> =
            metrics(expression).into_iter().filter(|name| !names.contains(name.as_str())).collect();
        ensure!(missing.is_empty(), "{expression}: {missing:?}");
    }
    Ok(())
}

#[test]
fn every_panel_and_rule_finds_data_of_a_real_run_and_an_alert_its_end() {
    let name = "every_panel_and_rule_finds_data_of_a_real_run_and_an_alert_its_end";
    if without_prometheus(name) || !may_make_namespaces(name) {
        return;
    }
    let run = || -> Result<()> {
        let mut network = Direct::set(&Plan { lines: vec![LINE], ..Plan::default() })?;
        let shaper = network.api().to_owned();
        let prometheus = Prometheus::start(&network.folder, &shaper)?;
        let flows = traffic(&network)?;
        let mut left: BTreeMap<String, String> = BTreeMap::new();
        let all = wait_for(Duration::from_mins(1), || {
            left = queries()
                .into_iter()
                .filter_map(|(title, query)| {
                    let error = shows(&prometheus, &shaper, &query).err()?;
                    Some((title, format!("{error:#}")))
                })
                .collect();
            left.is_empty()
        });
        ensure!(all, "without data: {left:#?}; prometheus said: {}", prometheus.process.output());
        rules_are_evaluated(&prometheus)?;
        let firing = "ALERTS{alertname=~\"SluiceDown|SluiceLcoreStalled\", alertstate=\"firing\"}";
        ensure!(
            prometheus.values(firing)?.is_empty() || network.shaper.gap_us()? > 400_000,
            "an alert without a cause"
        );
        drop(flows);
        network.shaper.process().terminate(Duration::from_secs(6));
        let pending = "ALERTS{alertname=\"SluiceDown\"}";
        let told = wait_for(Duration::from_secs(20), || {
            prometheus.values(pending).is_ok_and(|values| !values.is_empty())
        });
        ensure!(told, "the end of the shaper is not noticed");
        Ok(())
    };
    run().unwrap_or_else(|error| panic!("{error:#}"));
}
