// SPDX-License-Identifier: Apache-2.0
//! Sluice as a service: what it tells its manager, a reload by signal and by HTTP, a good file and bad ones, the unit,
//! the package's parts, `health`, `check --preflight` and `support-bundle`, with the shaper running and dead.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::machine::{has, wait_for};
use tests::rig::{run, sh};
use tests::service::Service;
use tests::shaper::program;
use tests::verdict::let_flow;

const TOKEN: &str = "a-token-that-nobody-may-see";

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Runs `sluice` to its end.
fn sluice(arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(program("sluice")).args(arguments).output()?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A passing body, or its error and what the service logged.
fn on(more: &str, watchdog: Duration, arguments: &[&str], body: impl FnOnce(&mut Service) -> Result<()>) {
    let mut service = Service::start(more, watchdog, arguments).unwrap_or_else(|error| panic!("{error:#}"));
    body(&mut service).unwrap_or_else(|error| panic!("{error:#}; sluice said: {}", service.process.output()));
}

const NO_WATCHDOG: Duration = Duration::from_mins(10);

#[test]
fn the_manager_is_told_of_ready_reloading_and_stopping() {
    on("", NO_WATCHDOG, &[], |service| {
        service.manager.hears(0, &["READY=1", "STATUS=forwarding"])?;
        let from = service.manager.said().len();
        service.edit("level = \"info\"", "level = \"debug\"")?;
        service.process.signal("HUP");
        service.manager.hears(from, &["RELOADING=1", "MONOTONIC_USEC="])?;
        service.manager.hears(from, &["READY=1", "1 changed, 0 need a restart"])?;

        let from = service.manager.said().len();
        service.edit("rate_bps = 1000000000", "rate_bps = 3")?;
        service.process.signal("HUP");
        let config = service.config().display().to_string();
        service
            .manager
            .hears(from, &["READY=1", "not reloaded", &format!("{config}:12: port[0].rate_bps: ")])?;
        ensure!(service.call("GET", "/readyz", None)?.0 == 200, "a bad file stopped it");

        let ended = service.process.terminate(Duration::from_secs(10));
        ensure!(ended.is_some_and(|status| status.success()), "{ended:?}");
        service.manager.hears(from, &["STOPPING=1"])
    });
}

/// When the watchdog was fed.
fn meals(service: &Service) -> Vec<Instant> {
    let said = service.manager.said();
    said.into_iter().filter(|said| said.text.starts_with("WATCHDOG=1")).map(|said| said.at).collect()
}

/// Stops one thread for as long as perl(1) traces it: PTRACE_SEIZE, PTRACE_INTERRUPT.
fn hold(thread: &str, seconds: u32) -> Command {
    let number = if cfg!(target_arch = "aarch64") { 117 } else { 101 };
    let trace = format!(
        "syscall({number}, 0x4206, {thread}, 0, 0) == 0 or die \"seize: $!\"; \
         syscall({number}, 0x4207, {thread}, 0, 0) == 0 or die \"interrupt: $!\"; \
         print \"held\\n\"; sleep {seconds};"
    );
    let mut command = Command::new("perl");
    command.args(["-e", &format!("$| = 1; {trace}")]);
    command
}

/// The thread that polls: the one that has used most of a CPU.
fn polling_thread(process: u32) -> Result<String> {
    let used = |path: &Path| -> Option<u64> {
        let stat = std::fs::read_to_string(path.join("stat")).ok()?;
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    };
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"))?.flatten();
    let busiest = tasks.max_by_key(|task| used(&task.path())).context("threads")?;
    Ok(busiest.file_name().to_string_lossy().into_owned())
}

#[test]
fn the_watchdog_is_fed_while_the_lcores_live_and_only_then() {
    let name = "the_watchdog_is_fed_while_the_lcores_live_and_only_then";
    on("", Duration::from_secs(1), &[], |service| {
        ensure!(wait_for(Duration::from_secs(20), || meals(service).len() > 8), "it is not fed");
        let thread = polling_thread(service.process.id())?;
        let log = service.folder.join("holder");
        let mut holder = tests::rig::Process::start("perl", &mut hold(&thread, 60), &log)?;
        wait_for(Duration::from_secs(5), || holder.output().contains("held") || holder.ended().is_some());
        if !holder.output().contains("held") {
            tests::skip(name, &format!("a thread cannot be stopped here: {}", holder.output().trim()));
            return Ok(());
        }
        // half a second until it counts as silent, and a meal that was under way
        let_flow(1.0);
        let before = meals(service).len();
        let_flow(1.5);
        let (starved, alive) = (meals(service).len(), service.call("GET", "/readyz", None)?);
        ensure!(holder.ended().is_none(), "the thread was let go: {}", holder.output());
        ensure!(starved == before, "fed {} times while an lcore stood still", starved - before);
        ensure!(alive.0 == 503 && alive.1.contains("lcore 1 (compact)"), "{alive:?}");
        holder.terminate(Duration::from_secs(5));
        ensure!(wait_for(Duration::from_secs(10), || meals(service).len() > starved + 3), "not fed again");
        Ok(())
    });
}

fn reloaded(service: &Service, token: Option<&str>) -> Result<Value> {
    let (status, body) = service.call("POST", "/v1/reload", token)?;
    ensure!(status == 200, "{status} {body}");
    Ok(serde_json::from_str(&body)?)
}

fn keys(changes: &Value) -> Vec<&str> {
    changes.as_array().into_iter().flatten().filter_map(|change| change["key"].as_str()).collect()
}

#[test]
fn a_reload_changes_what_can_change_and_names_the_rest() {
    on("", NO_WATCHDOG, &[], |service| {
        ensure!(reloaded(service, None)? == json!({"applied": [], "restart_needed": [], "notes": []}));
        std::fs::write(service.folder.join("token"), TOKEN)?;
        service.edit("rate_bps = 1000000000", "rate_bps = 2000000000")?;
        service
            .edit("[store]", "[classify]\nunknown = \"drop\"\n[classify.rules]\nl4s_dscp = [46]\n[store]")?;
        service.edit("level = \"info\"", "level = \"debug\"")?;
        service.edit("subscribers = 1024", "subscribers = 2048")?;
        let token_file = format!("[api]\ntoken_file = \"{}/token\"", service.folder.display());
        service.edit("[api]", &token_file)?;
        let done = reloaded(service, None)?;
        let applied = [
            "api.token_file",
            "classify.rules.l4s_dscp",
            "classify.unknown",
            "log.level",
            "port[0].rate_bps",
        ];
        ensure!(keys(&done["applied"]) == applied, "{done}");
        ensure!(keys(&done["restart_needed"]) == ["dataplane.subscribers"], "{done}");
        ensure!(service.call("GET", "/v1/ports", None)?.0 == 401, "the token counts at once");
        let ports = service.call("GET", "/v1/ports", Some(TOKEN))?.1;
        let ports: Value = serde_json::from_str(&ports)?;
        ensure!(ports["items"][0]["rate_bps"] == 2_000_000_000_u64, "{ports}");
        ensure!(
            ports["items"][1]["rate_bps"].is_null() || ports["items"][1]["rate_bps"] != 2_000_000_000_u64
        );
        ensure!(service.process.output().contains("key=\"log.level\""), "the reload is logged");
        // what needs a restart is named again, and nothing twice
        let again = reloaded(service, Some(TOKEN))?;
        ensure!(keys(&again["applied"]).is_empty(), "{again}");
        ensure!(keys(&again["restart_needed"]) == ["dataplane.subscribers"], "{again}");
        another_listener_waits_and_its_token_does_not(service)
    });
}

fn another_listener_waits_and_its_token_does_not(service: &Service) -> Result<()> {
    let (old, new) = (service.folder.join("token"), service.folder.join("token.new"));
    let other = "another-word-that-lets-in";
    std::fs::write(&new, format!("{other}\n"))?;
    service.edit(&old.display().to_string(), &new.display().to_string())?;
    service.edit(&service.api, "127.0.0.1:1")?;
    let done = reloaded(service, Some(TOKEN))?;
    ensure!(keys(&done["applied"]) == ["api.token_file"], "{done}");
    ensure!(keys(&done["restart_needed"]) == ["api.listen", "dataplane.subscribers"], "{done}");
    ensure!(service.call("GET", "/v1/ports", Some(TOKEN))?.0 == 401, "the old token still counts");
    ensure!(service.call("GET", "/v1/ports", Some(other))?.0 == 200, "the open listener has the new one");
    Ok(())
}

#[test]
fn a_bad_file_changes_nothing_and_is_named_by_line_and_key() {
    on("", NO_WATCHDOG, &[], |service| {
        let good = std::fs::read_to_string(service.config())?;
        let cases = [
            ("level = \"info\"", "level = \"loud\"", "log.level"),
            ("rate_bps = 1000000000", "rate_bps = 3", "port[0].rate_bps"),
            ("[store]", "[profile.x]\naqm = \"none\"\n[store]", "profile.x.aqm"),
            ("[api]", "[api]\ntoken_file = \"/no/such/file\"", "api.token_file"),
            ("path =", "path", ""),
        ];
        for (from, to, key) in cases {
            std::fs::write(service.config(), good.replace(from, to))?;
            let (status, body) = service.call("POST", "/v1/reload", None)?;
            let answer: Value = serde_json::from_str(&body)?;
            let problem = &answer["errors"][0];
            ensure!(status == 422 && problem["field"] == key, "{body}");
            let line = problem["line"].as_u64().and_then(|line| usize::try_from(line).ok()).unwrap_or(0);
            let text = std::fs::read_to_string(service.config())?;
            let there = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
            let word = if key.is_empty() { "path" } else { key.rsplit('.').next().unwrap_or_default() };
            ensure!(line > 0 && there.starts_with(word), "line {line} is {there:?}: {body}");
            ensure!(problem["file"] == service.config().display().to_string(), "{body}");
            ensure!(service.call("GET", "/readyz", None)?.0 == 200, "{key}");
        }
        std::fs::remove_file(service.config())?;
        let (status, body) = service.call("POST", "/v1/reload", None)?;
        ensure!(status == 422 && body.contains("cannot be read"), "{body}");
        std::fs::write(service.config(), good.replace("\"info\"", "\"warn\""))?;
        ensure!(keys(&reloaded(service, None)?["applied"]) == ["log.level"], "the last good one was kept");
        Ok(())
    });
}

#[test]
fn the_flag_of_the_log_goes_before_the_file() {
    on("", NO_WATCHDOG, &["--log", "warn"], |service| {
        service.edit("level = \"info\"", "level = \"trace\"")?;
        let done = reloaded(service, None)?;
        ensure!(done["notes"][0] == "log.level: --log goes before it", "{done}");
        ensure!(!service.process.output().contains("INFO"), "{}", service.process.output());
        Ok(())
    });
    let wrong = sluice(&["run", "--config", "x", "--log", "sluice=loud"]).expect("it runs");
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
}

#[test]
fn the_unit_is_one_that_systemd_takes() {
    if !has("systemd-analyze") {
        return tests::skip(
            "the_unit_is_one_that_systemd_takes",
            "systemd-analyze is missing (Debian: systemd)",
        );
    }
    let unit = std::fs::read_to_string(root().join("sluice/debian/service")).expect("the unit");
    for line in [
        "Type=notify",
        "WatchdogSec=10",
        "User=sluice",
        "ExecReload=/usr/bin/sluice check /etc/sluice/sluice.toml",
    ] {
        assert!(unit.lines().any(|own| own == line), "{line}");
    }
    let folder = std::env::temp_dir().join(format!("sluice-unit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    // it looks whether the programs are there
    let here = unit.replace("/usr/bin/sluice", &program("sluice").to_string_lossy());
    let verify = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a file");
        Command::new("systemd-analyze").arg("verify").arg(&path).output().expect("it runs")
    };
    let good = verify("sluice.service", &here);
    let bad = verify("bad.service", &here.replace("WatchdogSec=10", "WatchdogSec=often"));
    std::fs::remove_dir_all(&folder).expect("it goes");
    let said = text(&good.stderr);
    assert!(good.status.success() && !said.contains("sluice.service"), "{said}");
    assert!(text(&bad.stderr).contains("Failed to parse"), "a fault is found: {}", text(&bad.stderr));
}

#[test]
fn the_package_has_its_parts_and_a_configuration_that_is_good() {
    let metadata =
        run("cargo", ["metadata", "--format-version", "1", "--no-deps", "--offline"]).expect("cargo");
    let metadata: Value = serde_json::from_str(&metadata).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|package| package["name"] == "sluice").expect("sluice");
    let deb = &package["metadata"]["deb"];
    let assets: Vec<_> =
        deb["assets"].as_array().expect("assets").iter().filter_map(|asset| asset[0].as_str()).collect();
    for asset in assets.iter().filter(|asset| !asset.starts_with("target/")) {
        let path = root().join("sluice").join(asset.replace("*.json", "box.json"));
        assert!(path.exists(), "{}", path.display());
    }
    assert!(assets.contains(&"target/release/sluice") && deb["conf-files"][0] == "/etc/sluice/sluice.toml");
    for script in ["service", "postinst", "postrm"] {
        assert!(root().join("sluice/debian").join(script).exists(), "{script}");
    }
    let config = root().join("sluice/debian/sluice.toml");
    let checked = sluice(&["check", &config.to_string_lossy()]).expect("it runs");
    assert!(checked.status.success(), "{}", text(&checked.stderr));
}

#[test]
fn health_is_told_by_the_exit_code() {
    let mut api = String::new();
    on("", NO_WATCHDOG, &[], |service| {
        api = format!("http://{}", service.api);
        for arguments in [["health", "--api", &api].as_slice(), &["health", "--alive", "--api", &api]] {
            let healthy = sluice(arguments)?;
            ensure!(healthy.status.success(), "{}", text(&healthy.stderr));
        }
        Ok(())
    });
    let dead = sluice(&["health", "--api", &api]).expect("it runs");
    assert_eq!(dead.status.code(), Some(1));
    assert!(text(&dead.stderr).contains("is the shaper running"), "{}", text(&dead.stderr));
}

#[test]
fn preflight_gives_every_finding_a_fix() {
    on("", NO_WATCHDOG, &[], |service| {
        let config = service.config().display().to_string();
        let report = sluice(&["check", "--preflight", "--json", &config])?;
        let found: Value = serde_json::from_slice(&report.stdout)?;
        ensure!(found["ok"] == report.status.success(), "{found}");
        let checks = found["checks"].as_array().context("checks")?;
        for name in
            ["hugepages", "isolation", "iommu", "driver", "cpus", "governor", "autogroup", "permissions"]
        {
            ensure!(checks.iter().any(|check| check["name"] == name), "{name}: {found}");
        }
        for check in checks {
            ensure!((check["status"] == "ok") == check["fix"].is_null(), "{check}");
        }
        // this one runs here, so nothing can have failed; on CPUs that there are not it could not
        ensure!(found["ok"] == true, "{found}");
        service.edit("\"1@1\"", "\"1@999\"")?;
        let report = sluice(&["check", "--preflight", &config])?;
        let said = text(&report.stdout);
        ensure!(report.status.code() == Some(1) && said.contains("FAIL  cpus"), "{said}");
        Ok(())
    });
}

/// Unpacks a bundle: the text of each of its members.
fn unpack(bundle: &Path, to: &Path) -> Result<Vec<(String, String)>> {
    std::fs::create_dir_all(to)?;
    sh(&format!("tar -xzf {} -C {}", bundle.display(), to.display()))?;
    let names = sh(&format!("tar -tzf {}", bundle.display()))?;
    let member = |name: &str| Ok((name.to_owned(), std::fs::read_to_string(to.join(name))?));
    names.lines().map(member).collect()
}

fn bundle(service: &Service, name: &str) -> Result<Vec<(String, String)>> {
    let out = service.folder.join(name);
    let (config, shown) = (service.config().display().to_string(), out.display().to_string());
    let done = sluice(&["support-bundle", "--out", &shown, "--config", &config])?;
    ensure!(done.status.success(), "{}", text(&done.stderr));
    ensure!(std::fs::metadata(&out)?.mode() & 0o777 == 0o600, "others may read it");
    let again = sluice(&["support-bundle", "--out", &shown, "--config", &config])?;
    ensure!(again.status.code() == Some(1), "it wrote over a file");
    unpack(&out, &service.folder.join(format!("{name}.d")))
}

fn member<'m>(members: &'m [(String, String)], name: &str) -> &'m str {
    let wanted = format!("sluice-support/{name}");
    members.iter().find(|(name, _)| *name == wanted).map_or("", |(_, text)| text)
}

#[test]
fn a_support_bundle_has_what_is_needed_and_no_secret_with_the_shaper_running_or_dead() {
    const SEED: &str = "[[subscriber]]\nid = \"a-customer\"\ndown_bps = 64000\nup_bps = 64000\n\
                        match = { ipv4 = [\"100.64.7.7\"] }\n";
    on(SEED, NO_WATCHDOG, &[], |service| {
        let token = service.folder.join("token");
        std::fs::write(&token, TOKEN)?;
        std::fs::set_permissions(&token, Permissions::from_mode(0o600))?;
        service.edit("[api]", &format!("[api]\ntoken_file = \"{}\"", token.display()))?;
        reloaded(service, None)?;
        let members = bundle(service, "alive.tar.gz")?;
        let parts = [
            ("version.json", "\"dpdk\""),
            ("config.toml", "1 [[subscriber]] left out"),
            ("preflight.json", "hugepages"),
            ("api/metrics.txt", "sluice_build_info"),
            ("api/ports.json", "net_null"),
            ("api/lcores.json", "compact"),
            ("api/readyz.json", "ready"),
            ("api/events.txt", "sluice events"),
            ("host/meminfo.txt", "MemAvailable"),
            ("MANIFEST.txt", "config.toml: "),
        ];
        for (name, word) in parts {
            ensure!(
                member(&members, name).contains(word),
                "{name} without {word}: {}",
                member(&members, name)
            );
        }
        let secrets = [TOKEN, "a-customer", "100.64.7.7"];
        let leak = |members: &[(String, String)]| {
            members.iter().find(|(_, text)| secrets.iter().any(|secret| text.contains(secret))).cloned()
        };
        ensure!(leak(&members).is_none(), "{:?}", leak(&members));

        ensure!(service.process.terminate(Duration::from_secs(10)).is_some(), "it does not end");
        service.edit("[store]", &format!("[stoer]\npassword = \"hunter2\"\nnote = \"{TOKEN}\""))?;
        let members = bundle(service, "dead.tar.gz")?;
        let manifest = member(&members, "MANIFEST.txt");
        ensure!(manifest.contains("api/metrics.txt: not there: "), "{manifest}");
        ensure!(member(&members, "config-problems.txt").contains("stoer"), "{manifest}");
        let config = member(&members, "config.txt");
        ensure!(config.contains("lcores = ") && !config.contains("hunter2"), "{config}");
        ensure!(!config.contains("a-customer") && !config.contains("100.64.7.7"), "{config}");
        Ok(())
    });
}
