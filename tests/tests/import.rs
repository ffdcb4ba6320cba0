// SPDX-License-Identifier: Apache-2.0
//! Subscriber files through `sluice subs` into a running shaper: every layout, a dry run that tells the difference,
//! `network.json` as aggregates, and a watched file that is rewritten, torn, broken, removed and renamed over while the shaper comes and goes.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::machine::wait_for;
use tests::rig::Process;
use tests::shaper::{Shaper, program};

const SOON: Duration = Duration::from_secs(15);

/// A shaper without traffic, on devices that deliver nothing.
struct Rig {
    shaper: Option<Shaper>,
    folder: PathBuf,
    api: String,
    config: String,
}

impl Rig {
    fn new(name: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("sluice-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let api = format!("127.0.0.1:{port}");
        let config = format!(
            "[dataplane]\nlcores = {{ compact = 0 }}\nhugepages = \"never\"\nbuffers = 16384\nsubscribers = 1024\n\
             eal_args = [\"--file-prefix={name}-{}\"]\n[api]\nlisten = \"{api}\"\n[store]\npath = \"@STORE@\"\n\
             [[port]]\nname = \"core\"\ndevice = \"net_null0,no-rx=1\"\nrole = \"core\"\npeer = \"access\"\n\
             rate_bps = 1_000_000_000\n\
             [[port]]\nname = \"access\"\ndevice = \"net_null1,no-rx=1\"\nrole = \"access\"\npeer = \"core\"\n\
             rate_bps = 1_000_000_000\n",
            std::process::id()
        );
        let mut rig = Self { shaper: None, folder, api, config };
        rig.start()?;
        Ok(rig)
    }

    fn start(&mut self) -> Result<()> {
        self.shaper = Some(Shaper::start(&self.folder, &self.config, &self.api)?);
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result<String> {
        let path = self.folder.join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    fn subs(&self, args: &[&str]) -> Result<Output> {
        let url = format!("http://{}", self.api);
        Ok(Command::new(program("sluice")).args(["subs", "--api", &url]).args(args).output()?)
    }

    /// Standard output of what must go well.
    fn good(&self, args: &[&str]) -> Result<String> {
        let done = self.subs(args)?;
        let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        ensure!(done.status.success(), "{args:?}: {out} {err}");
        Ok(out.into_owned())
    }

    fn record(&self, id: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.good(&["get", id, "--json"])?)?)
    }

    fn ids(&self) -> Result<Vec<String>> {
        let list: Vec<Value> = serde_json::from_str(&self.good(&["list", "--json"])?)?;
        Ok(list.iter().map(|record| record["id"].as_str().unwrap_or_default().to_owned()).collect())
    }

    fn down(&self, id: &str) -> Option<u64> {
        self.record(id).ok()?["down_bps"].as_u64()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.shaper.take());
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn data(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/data").join(name).display().to_string()
}

fn all_layouts(rig: &Rig) -> Result<()> {
    rig.good(&["load", &data("shaped_devices_current.csv")])?;
    ensure!(rig.ids()? == ["20001", "20002", "20003", "20004"], "{:?}", rig.ids()?);
    let merged = rig.record("20001")?;
    ensure!(merged["match"]["ipv4"].as_array().is_some_and(|list| list.len() == 3), "{merged}");
    ensure!(
        (&merged["down_bps"], &merged["up_bps"]) == (&155_000_000.into(), &20_000_000.into()),
        "{merged}"
    );
    ensure!(rig.down("20002") == Some(2_500_000), "fractional rates");
    rig.good(&["load", &data("shaped_devices_legacy.csv")])?;
    // it has two prefixes of the first file, which goes as it comes
    let mismatched = data("shaped_devices_header_mismatch.csv");
    let refused = rig.subs(&["load", &mismatched])?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(1), "{said}");
    ensure!(said.contains(&format!("{mismatched}:2: ")) && said.contains("nothing was changed"), "{said}");
    ensure!(rig.ids()?.len() == 7, "nothing in part: {:?}", rig.ids()?);
    rig.good(&["load", &mismatched, "--replace", "--force"])?;
    ensure!(rig.ids()? == ["10001", "10002", "10003"], "{:?}", rig.ids()?);
    rig.good(&["stats", "10001"]).map(drop)
}

fn difference(rig: &Rig) -> Result<()> {
    let rows = "10001,n,d,dn,,,\"100.64.0.1, 100.64.0.2\",2001:db8:0:100::/56,,,155,20,\n\
                10002,n,d,dn,,,100.64.0.3,2001:db8:0:200::/56,,,5,1,\nnew,n,d,dn,,,100.64.9.9,,,,1G,64k,\n";
    let file = rig.write("change.csv", rows)?;
    let before = rig.good(&["list", "--json"])?;
    let told = rig.good(&["load", &file, "--replace", "--dry-run"])?;
    let expected = "+ new: 1 Gb/s down, 64 kb/s up, profile default, 100.64.9.9/32\n\
                    ~ 10002: down_bps 2.5 Mb/s -> 5 Mb/s\n\
                    - 10003: 10.5 Mb/s down, 5.25 Mb/s up, profile default, 100.64.0.4/32, 2001:db8:0:300::/56\n\
                    1 would be created, 1 would be updated, 1 would be deleted, 1 would be unchanged\n";
    ensure!(told == expected, "{told}");
    ensure!(rig.good(&["list", "--json"])? == before, "a dry run changes nothing");
    let done = rig.good(&["load", &file, "--replace"])?;
    ensure!(done == "1 created, 1 updated, 1 deleted, 1 unchanged\n", "{done}");
    ensure!(rig.ids()? == ["10001", "10002", "new"], "{:?}", rig.ids()?);
    rig.good(&["set-rate", "new", "--mikrotik", "10M/50M"])?;
    ensure!(rig.down("new") == Some(50_000_000), "the directions are swapped");
    Ok(())
}

/// Rows of `count` subscribers at so many Mb/s.
fn rows(count: u8, mbps: u32) -> String {
    let row = |n| format!("w{n},n,d,dn,,,100.65.0.{n},,,,{mbps},10,");
    (1..=count).map(row).chain([String::new()]).collect::<Vec<_>>().join("\n")
}

struct Watcher(Process);

impl Watcher {
    fn says(&self, what: &str) -> Result<()> {
        let said = wait_for(SOON, || self.0.output().contains(what));
        ensure!(said, "never said \"{what}\": {}", self.0.output());
        Ok(())
    }
}

fn watched(rig: &mut Rig) -> Result<()> {
    let file = rig.write("watched.csv", &rows(20, 50))?;
    let url = format!("http://{}", rig.api);
    let mut command = Command::new(program("sluice"));
    command.args(["subs", "watch", &file, "--settle-ms", "200", "--force", "--api", &url]);
    let mut watcher =
        Watcher(Process::start("sluice subs watch", &mut command, &rig.folder.join("watch.log"))?);
    watcher.says("20 created")?;
    // rewritten in place, in two halves with a torn line between
    let (text, tear) = (rows(20, 60), 101);
    std::fs::write(&file, &text[..tear])?;
    let torn = wait_for(Duration::from_millis(700), || rig.down("w20").is_none());
    ensure!(!torn, "a torn file was applied: {}", watcher.0.output());
    std::fs::write(&file, &text)?;
    watcher.says("20 updated")?;
    ensure!(rig.down("w7") == Some(60_000_000), "{:?}", rig.down("w7"));
    // what does not parse is named and changes nothing; nor does a file that is gone
    std::fs::write(&file, rows(20, 70).replace("100.65.0.3,", "100.65.0.300,"))?;
    watcher.says(&format!("{file}:3: IPv4: \"100.65.0.300\" is not an IPv4 prefix"))?;
    std::fs::remove_file(&file)?;
    watcher.says("cannot be read; waiting for it")?;
    ensure!(rig.down("w1") == Some(60_000_000) && rig.ids()?.len() == 20, "{:?}", rig.ids()?);
    // renamed over while the shaper is away: applied when it is back
    drop(rig.shaper.take());
    let fresh = rig.write("watched.new", &rows(19, 80))?;
    std::fs::rename(fresh, &file)?;
    watcher.says("trying again until it does")?;
    rig.start()?;
    watcher.says("0 created, 19 updated, 1 deleted, 0 unchanged")?;
    watcher.says("the shaper answers again")?;
    ensure!(rig.down("w19") == Some(80_000_000) && rig.down("w20").is_none(), "{:?}", rig.ids()?);
    let ended = watcher.0.terminate(Duration::from_secs(5));
    ensure!(ended.is_some_and(|status| status.success()), "{ended:?}: {}", watcher.0.output());
    Ok(())
}

fn place(rig: &Rig, id: &str) -> Result<Value> {
    let shaper = rig.shaper.as_ref().context("no shaper")?;
    Ok(shaper.json(&format!("/v1/parents/{id}"))?["parent"].clone())
}

/// `network.json` through the shaper's own `/v1/parents`.
fn networks(rig: &Rig) -> Result<()> {
    let shaper = rig.shaper.as_ref().context("no shaper")?;
    let network = data("network.json");
    let rows = rig.write(
        "circuits.csv",
        "1,n,d,dn,AP_9,,100.64.0.1,,,,50,10,\n2,n,d,dn,AP_A,,100.64.0.2,,,,50,10,\n3,n,d,dn,,,100.64.0.3,,,,50,10,\n",
    )?;
    let load = ["load", &rows, "--network", &network, "--replace", "--force"];
    let trial = rig.good(&[load.as_slice(), &["--dry-run"]].concat())?;
    ensure!(
        trial.contains("+ parent AP_9: 120 Mb/s down") && trial.contains("parents: 4 would be created"),
        "{trial}"
    );
    ensure!(shaper.json("/v1/parents")?["total"] == 0, "a dry run changes nothing");
    rig.good(&load)?;
    let parents = shaper.json("/v1/parents")?;
    let told: Vec<_> = parents["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| (one["id"].as_str(), one["parent"].as_str(), one["down_bps"].as_u64()))
        .collect();
    let wanted = [
        (Some("AP_9"), Some("PoP_1"), Some(120_000_000)),
        (Some("AP_A"), Some("Site_1"), Some(500_000_000)),
        (Some("PoP_1"), Some("Site_1"), Some(200_000_000)),
        (Some("Site_1"), None, Some(1_000_000_000)),
    ];
    ensure!(told == wanted, "{parents}");
    ensure!(
        rig.record("1")?["parent"] == "AP_9" && rig.record("2")?["parent"] == "AP_A",
        "{}",
        rig.record("1")?
    );
    ensure!(rig.record("3")?["parent"].is_null(), "{}", rig.record("3")?);
    // the shaper has put them there: two directions of the subscriber below its access point, that below its site
    let children = |id: &str| {
        Ok::<_, anyhow::Error>(shaper.json(&format!("/v1/parents/{id}/stats"))?["down"]["children"].clone())
    };
    ensure!(
        children("AP_9")? == 1 && children("PoP_1")? == 1 && children("Site_1")? == 2,
        "{}",
        children("Site_1")?
    );
    let metrics = shaper.get("/metrics")?.1;
    ensure!(metrics.contains("\nsluice_parents 4\n"), "{metrics}");
    eight_levels(rig, &rows)?;
    let none = rig.write("none.json", "{}")?;
    let bare = rig.write("bare.csv", "1,n,d,dn,,,100.64.0.1,,,,50,10,\n")?;
    rig.good(&["load", &bare, "--network", &none, "--replace", "--force"])?;
    ensure!(shaper.json("/v1/parents")?["total"] == 0, "what the file does not name goes");
    rig.good(&["rm", "1"]).map(drop)
}

/// Eight levels become eight others whose order of puts matters.
fn eight_levels(rig: &Rig, rows: &str) -> Result<()> {
    let node = |name: &str, children: &str| {
        format!(
            r#""{name}": {{"downloadBandwidthMbps": 900, "uploadBandwidthMbps": 900, "children": {{{children}}}}}"#
        )
    };
    let chain = |names: &[&str]| names.iter().rev().fold(String::new(), |below, name| node(name, &below));
    let ends = node("AP_9", "");
    let before = format!(
        "{{{}, {}, {ends}}}",
        chain(&["l1", "l2", "l3", "l4", "l5", "l6", "l7", "l8"]),
        node("AP_A", "")
    );
    let after = format!(
        "{{{}, {}, {ends}}}",
        node("head", &[node("l1", ""), chain(&["l2", "l3", "l4", "l5", "l6", "l7", "l8"])].join(", ")),
        node("AP_A", "")
    );
    for (name, text, above) in [("before.json", before, "l1"), ("after.json", after, "head")] {
        let network = rig.write(name, &text)?;
        rig.good(&["load", rows, "--network", &network, "--replace"])?;
        ensure!(place(rig, "l2")? == above && place(rig, "l8")? == "l7", "{name}: {}", place(rig, "l2")?);
    }
    Ok(())
}

#[test]
fn files_of_every_layout_reach_the_shaper_whole_or_not_at_all() {
    let mut rig = Rig::new("import").unwrap_or_else(|error| panic!("{error:#}"));
    all_layouts(&rig)
        .and_then(|()| difference(&rig))
        .and_then(|()| networks(&rig))
        .and_then(|()| watched(&mut rig))
        .unwrap_or_else(|error| panic!("{error:#}"));
}
