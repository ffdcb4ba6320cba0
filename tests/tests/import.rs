// SPDX-License-Identifier: Apache-2.0
//! Subscriber files through `sluice subs` into a running shaper: every layout, a dry run that tells the difference, and
//! a watched file that is rewritten, torn, broken, removed and renamed over while the shaper comes and goes.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Result, ensure};
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

#[test]
fn files_of_every_layout_reach_the_shaper_whole_or_not_at_all() {
    let mut rig = Rig::new("import").unwrap_or_else(|error| panic!("{error:#}"));
    all_layouts(&rig)
        .and_then(|()| difference(&rig))
        .and_then(|()| watched(&mut rig))
        .unwrap_or_else(|error| panic!("{error:#}"));
}
