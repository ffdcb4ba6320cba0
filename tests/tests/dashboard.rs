// SPDX-License-Identifier: Apache-2.0
//! The dashboard in a real Chromium, on a shaper with real traffic: kernel CUBIC and Prague to one subscriber, a flood
//! to another. What it shows is held against `/metrics` and the stats call; it is used by keyboard alone; it fits a
//! phone, can be read in light and dark, and says when nobody answers.
//!
//! Pictures of what it looked like lie in `target/dashboard` afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tests::browser::{Browser, keys, no_browser};
use tests::direct::{Direct, Line, Plan, address, server};
use tests::machine::wait_for;
use tests::rig::Process;
use tests::scene::{Traces, precise};
use tests::shaper::program;
use tests::traffic::{Tcp, iperf_server, run_udp, traffic_server};
use tests::verdict::{let_flow, may_make_namespaces};

const MIXED: Line = Line { id: "mixed-42", pair: 0, host: 10, down_bps: 20_000_000, up_bps: 10_000_000 };
const FLOODED: Line = Line { id: "flooded-7", pair: 0, host: 20, down_bps: 8_000_000, up_bps: 5_000_000 };
const TOKEN: &str = "correct-horse-battery-staple";

/// Pictures go where the build goes, which CI may keep.
fn album() -> PathBuf {
    let target = program("sluice").parent().and_then(Path::parent).map(Path::to_path_buf).unwrap_or_default();
    target.join("dashboard")
}

/// Whether there is all that these tests need; where not, the test is skipped by name.
fn may_run(name: &str) -> bool {
    if let Some(why) = no_browser() {
        tests::skip(name, &why);
        return false;
    }
    may_make_namespaces(name)
}

fn browser() -> Result<Browser> {
    let album = album();
    std::fs::create_dir_all(&album)?;
    // a profile of an earlier run may be locked
    let _ = std::fs::remove_dir_all(album.join("chromium"));
    Browser::start(&album)
}

/// Servers and senders that go on until they are dropped.
fn traffic(network: &Direct) -> Result<Vec<Process>> {
    let (pair, folder) = (&network.pairs[0], network.folder.as_path());
    let at = |port: u16| format!("{}:{port}", server(0));
    let udp = |host, port, cc, options: &[&str]| {
        let all = [&["--direction", "down", "--seconds", "240"], options].concat();
        run_udp(&pair.client, (&address(0, host), &at(port)), cc, &all, folder)
    };
    let mut all = vec![
        traffic_server(&pair.server, &at(8490), folder)?,
        traffic_server(&pair.server, &at(8491), folder)?,
        iperf_server(&pair.server, 5201, folder)?,
        udp(MIXED.host, 8490, "prague", &[])?,
        udp(FLOODED.host, 8491, "cbr", &["--rate-bps", "20000000", "--ecn", "not_ect"])?,
    ];
    let (client, from, to) = (&pair.client, address(0, MIXED.host), server(0));
    let cc = Some("cubic");
    let tcp = Tcp { client, from: &from, to: &to, port: 5201, seconds: 240, flows: 1, cc, down: true };
    all.push(tcp.start(folder)?);
    Ok(all)
}

/// A figure as the page writes it, in units without prefix.
fn number(text: &str) -> Result<f64> {
    let (figure, unit) = text.split_once(['\u{a0}', ' ']).unwrap_or((text, ""));
    let figure: f64 = figure.replace(',', "").parse().with_context(|| format!("{text:?} is no figure"))?;
    Ok(figure
        * match unit.chars().next() {
            Some('k') => 1e3,
            Some('M') => 1e6,
            Some('G') => 1e9,
            Some('m') => 1e-3,
            Some('µ') => 1e-6,
            Some('%') => 1e-2,
            _ => 1.0,
        })
}

fn figure(browser: &Browser, tile: &str) -> Result<f64> {
    number(&browser.text(&format!("#tile-{tile} .value"))?)
}

/// Bytes sent down so far, by `/metrics`.
fn sent(network: &Direct) -> Result<f64> {
    network.shaper.metric_sum("sluice_queue_bytes_total", &["dir=\"down\""])
}

/// Cumulative counts of a queue's delays down with their edges, by `/metrics`.
fn delays(network: &Direct, queue: &str) -> Result<Vec<(f64, f64)>> {
    let (_, text) = network.shaper.get("/metrics")?;
    let begin = format!("sluice_queue_delay_seconds_bucket{{dir=\"down\",queue=\"{queue}\",le=\"");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&begin)?.split_once("\"} "));
    lines.map(|(edge, count)| Ok((edge.parse::<f64>()?, count.parse::<f64>()?))).collect()
}

/// Edges of the bin in which the 99th percentile of what came between lies.
fn p99_bin(before: &[(f64, f64)], after: &[(f64, f64)]) -> (f64, f64) {
    let grown: Vec<f64> = after.iter().zip(before).map(|((_, now), (_, was))| now - was).collect();
    let rank = grown.last().copied().unwrap_or(0.0) * 0.99;
    let bin = grown.iter().position(|count| *count >= rank).unwrap_or(0);
    (if bin == 0 { 0.0 } else { after[bin - 1].0 }, after[bin].0)
}

/// The page's figures over 10 s are those that `/metrics` gives for the same time. Both are read in turn, so that
/// the page's window lies up to 2 s before the other; steady traffic forgives that, and so do 15 % and a bin.
fn agrees_with_metrics(browser: &Browser, network: &Direct) -> Result<()> {
    let mut wrong = String::new();
    for _ in 0..3 {
        let before = (sent(network)?, delays(network, "l4s")?, delays(network, "classic")?);
        let begin = browser.value("performance.now()")?;
        let_flow(10.5);
        let after = (sent(network)?, delays(network, "l4s")?, delays(network, "classic")?);
        let end = browser.value("performance.now()")?;
        let seconds = (end.as_f64().unwrap_or(0.0) - begin.as_f64().unwrap_or(0.0)) / 1e3;
        let rate = (after.0 - before.0) * 8.0 / seconds;
        let shown = figure(browser, "down")?;
        let near = (shown / rate - 1.0).abs() < 0.15;
        let p99 = |tile: &str, before: &[(f64, f64)], after: &[(f64, f64)]| {
            let ((low, high), shown) = (p99_bin(before, after), figure(browser, tile)?);
            Ok::<_, anyhow::Error>((low * 0.75 <= shown && shown <= high * 1.25, (low, shown, high)))
        };
        let (l4s, classic) = (p99("l4s", &before.1, &after.1)?, p99("classic", &before.2, &after.2)?);
        if near && l4s.0 && classic.0 {
            return Ok(());
        }
        wrong = format!("rate {rate} shown {shown}, L p99 {:?}, C p99 {:?}", l4s.1, classic.1);
    }
    anyhow::bail!("the page does not agree with /metrics: {wrong}")
}

/// Text that is hard to read on what lies behind it: WCAG 2 asks for 4.5, and for 3 where it is large.
const FAINT: &str = r"
    const parse = (text) => text.match(/[\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
      .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0);
    const behind = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const colour = parse(getComputedStyle(at).backgroundColor);
        if (colour.length < 4 || colour[3] > 0.99) return colour;
      }
      return parse(getComputedStyle(document.documentElement).getPropertyValue('color-scheme') ? '255 255 255' : '255 255 255');
    };
    const faint = [];
    for (const element of document.querySelectorAll('body *')) {
      const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
      const style = getComputedStyle(element);
      if (!own || !element.checkVisibility() || element.closest('.hidden, noscript, .skip')) continue;
      const [a, b] = [light(parse(style.color)), light(behind(element))];
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      const size = parseFloat(style.fontSize);
      const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
      if (ratio < (large ? 3 : 4.5)) faint.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)}: ${element.textContent.slice(0, 30)}`);
    }
    return faint;";

/// Fits 360 pixels and can be read in light and dark.
fn looks_right(browser: &Browser, name: &str) -> Result<()> {
    for (size, width, height) in [("desktop", 1280, 900), ("phone", 360, 740)] {
        browser.resize(width, height)?;
        for (mode, dark) in [("light", false), ("dark", true)] {
            browser.dark(dark)?;
            // the charts take the new size and colours with the next frame
            let_flow(0.25);
            let faint = browser.run(FAINT)?;
            ensure!(faint.as_array().is_some_and(Vec::is_empty), "{name} {size} {mode}: {faint}");
            browser.picture(&format!("{name}-{size}-{mode}"))?;
        }
        let wide = browser.value("document.documentElement.scrollWidth")?;
        ensure!(wide.as_u64() <= Some(u64::from(width)), "{name} is {wide} pixels wide, not {width}");
    }
    browser.dark(false)?;
    browser.resize(1280, 900)
}

/// Tabs on until an element has the focus, which must be seen on the way.
fn tab_to(browser: &Browser, css: &str) -> Result<()> {
    for _ in 0..40 {
        browser.press(keys::TAB)?;
        let seen = browser.run(
            "const at = document.activeElement; const shown = at.matches('.choice input') ? at.closest('.choice') : at; \
             return at === document.body || getComputedStyle(shown).outlineStyle !== 'none';",
        )?;
        ensure!(
            seen == true,
            "focus cannot be seen on {}",
            browser.value("document.activeElement.outerHTML")?
        );
        if browser.value(&format!("document.activeElement.matches('{css}')"))? == true {
            return Ok(());
        }
    }
    anyhow::bail!(
        "{css} cannot be reached by Tab; the focus is on {}",
        browser.value("document.activeElement.outerHTML")?
    )
}

fn overview_is_true(browser: &Browser, network: &Direct) -> Result<()> {
    browser.until("document.body.dataset.state === 'live'")?;
    browser.until("document.querySelector('#top-drops tbody a')?.textContent === 'flooded-7'")?;
    browser.until("[...document.querySelectorAll('#top-bytes tbody a')].some((link) => link.textContent === 'mixed-42')")?;
    browser.until("document.querySelectorAll('#events .loud').length > 0")?;
    agrees_with_metrics(browser, network)?;
    ensure!(figure(browser, "l4s")? < figure(browser, "classic")?, "L waits longer than C");
    ensure!(figure(browser, "marks")? > 0.0 && figure(browser, "drops")? > 0.0, "no marks or no drops");
    ensure!(figure(browser, "lcore")? > 0.0 && figure(browser, "buffers")? > 0.0, "no load or no buffers");
    ensure!(browser.text("#tile-subscribers .value")? == "3", "configured subscribers");
    let before = browser.text("#chart-rate .legend")?;
    browser.until(&format!("document.querySelector('#chart-rate .legend').innerText !== {before:?}"))?;
    ensure!(browser.value("document.querySelectorAll('.chart canvas').length")? == 8, "charts");
    // the other direction by keyboard
    browser.run("document.querySelector('.choice input:checked').focus()")?;
    browser.press(keys::RIGHT)?;
    browser.until("document.querySelector('#tile-l4s .below').textContent.startsWith('up')")?;
    browser.press("\u{e012}")?;
    browser.until("document.querySelector('#tile-l4s .below').textContent.startsWith('down')")?;
    looks_right(browser, "overview")
}

/// By keyboard: `/`, what is looked for, Enter.
fn ask(browser: &Browser, text: &str, found: usize) -> Result<()> {
    browser.run("document.querySelector('#main').focus()")?;
    browser.press("/")?;
    browser.until("document.activeElement.id === 'q'")?;
    browser.run("document.activeElement.select()")?;
    browser.press(&format!("{text}{}", keys::ENTER))?;
    let title = format!("Subscribers like “{text}”");
    browser.until(&format!("document.querySelector('#subscribers h1')?.textContent === '{title}'"))?;
    browser.until(&format!("document.querySelector('#found').textContent === '{found} found'"))
}

fn search_finds(browser: &Browser) -> Result<()> {
    for (text, id) in [
        ("100.64.0.10", MIXED.id),
        ("2001:db8::20", FLOODED.id),
        ("OODED", FLOODED.id),
        ("vlan:100.42", "tagged"),
    ] {
        ask(browser, text, 1)?;
        let name = browser.text("#subscribers tbody a")?;
        ensure!(name == id, "{text} finds {name}");
    }
    ask(browser, "nobody-here", 0)?;
    looks_right(browser, "search")
}

/// From the search box to a new rate without a mouse.
fn rate_changes_by_keyboard(browser: &Browser, network: &Direct) -> Result<()> {
    ask(browser, "ip:100.64.0.10", 1)?;
    tab_to(browser, "#subscribers tbody a")?;
    browser.press(keys::ENTER)?;
    browser.until("document.querySelector('#down_bps')?.value === '20'")?;
    tab_to(browser, "#down_bps")?;
    // Tab into a field selects what is in it
    browser.press(&format!("12.5{}", keys::ENTER))?;
    browser.until("document.querySelector('#ask').open && document.querySelector('#ask-text').textContent === 'Down: 20.0\\u00a0Mb/s → 12.5\\u00a0Mb/s.'")?;
    browser.picture("subscriber-question")?;
    browser.press(keys::ESCAPE)?;
    browser.until("!document.querySelector('#ask').open")?;
    ensure!(rate(network)? == 20_000_000, "changed without a yes");
    browser.press(keys::ENTER)?;
    browser.until("document.querySelector('#ask').open")?;
    tab_to(browser, "#confirm")?;
    browser.press(keys::ENTER)?;
    browser.until("document.querySelector('#answer').textContent.startsWith('Accepted with 200')")?;
    browser.until("document.querySelector('#record-down').textContent === '12.5\\u00a0Mb/s'")?;
    ensure!(rate(network)? == 12_500_000, "the record does not have the new rate");
    // it is the rate that is sent now
    browser.until("(() => { const part = parseFloat(document.querySelector('#tile-rate .below').textContent); return part > 90 && part < 104; })()")
}

fn rate(network: &Direct) -> Result<u64> {
    let record = network.shaper.json(&format!("/v1/subscribers/{}", MIXED.id))?;
    record["down_bps"].as_u64().context("a record without a rate")
}

fn subscriber_is_true(browser: &Browser, network: &Direct) -> Result<()> {
    browser.until("document.querySelectorAll('#bars rect.l4s').length > 2 && document.querySelectorAll('#bars rect.classic').length > 2")?;
    let arrived = || network.shaper.stats(MIXED.id).map(|stats| precise(stats.down.l4s.arrived));
    let before = arrived()?;
    let shown = "document.querySelector('#counters tbody tr:nth-child(1) td:nth-child(2)').innerText";
    browser.until(&format!("Number({shown}.replaceAll(',', '')) > {before}"))?;
    let shown = number(browser.value(shown)?.as_str().unwrap_or_default())?;
    let after = arrived()?;
    ensure!(before < shown && shown <= after, "arrived {shown}, not within {before} to {after}");
    browser.click("#histogram .choice label:nth-of-type(2)")?;
    browser.until("document.querySelector('#histogram input[value=start]').checked")?;
    looks_right(browser, "subscriber")
}

/// What the server refuses stands at the field that it names.
fn refusals_are_shown_by_field(browser: &Browser, network: &Direct) -> Result<()> {
    browser.run("const field = document.querySelector('#up_bps'); field.focus(); field.select();")?;
    browser.press(&format!("0.01{}", keys::ENTER))?;
    browser.until("document.querySelector('#ask').open")?;
    browser.click("#confirm")?;
    browser.until("document.querySelector('#up_bps').getAttribute('aria-invalid') === 'true' && document.querySelector('#up_bps-error').textContent.includes('10000 is not from 64000')")?;
    ensure!(browser.text("#answer")?.contains("Refused with 422"), "{}", browser.text("#answer")?);
    browser.picture("subscriber-refused")?;
    ensure!(
        network.shaper.json(&format!("/v1/subscribers/{}", MIXED.id))?["up_bps"] == 10_000_000,
        "taken over"
    );
    Ok(())
}

/// Both subscribers below a PON port that has less than they ask for, and that below a site which has enough.
fn below_aggregates(network: &Direct) -> Result<()> {
    let puts = [
        ("/v1/parents/site-1", r#"{"down_bps": 1000000000, "up_bps": 1000000000}"#),
        ("/v1/parents/pon-7", r#"{"parent": "site-1", "down_bps": 15000000, "up_bps": 500000000}"#),
        ("/v1/parents/pon-8", r#"{"parent": "site-1", "down_bps": 2500000000, "up_bps": 1250000000}"#),
    ];
    for (path, body) in puts {
        let (status, answer) = network.shaper.put(path, body)?;
        ensure!(status == 201, "{path}: {status} {answer}");
    }
    for line in [MIXED, FLOODED] {
        let (status, answer) =
            network.shaper.patch(&format!("/v1/subscribers/{}", line.id), r#"{"parent": "pon-7"}"#)?;
        ensure!(status == 200, "{answer}");
    }
    Ok(())
}

/// A cell of the list of those that matter most, in the row of an aggregate.
fn cell(id: &str, column: u8) -> String {
    format!(
        "[...document.querySelectorAll('#busiest tbody tr')].find((row) => row.querySelector('a')?.textContent === '{id}')?.children[{column}]?.textContent"
    )
}

fn aggregates_are_shown(browser: &Browser, network: &Direct) -> Result<()> {
    below_aggregates(network)?;
    browser.run("location.hash = '#/'")?;
    browser.until(
        "document.querySelector('#verdict')?.textContent.includes('one aggregate is the bottleneck down')",
    )?;
    browser.run("location.hash = '#/parents'")?;
    browser.until("document.querySelector('#busiest tbody a')?.textContent === 'pon-7' && document.querySelector('#busiest .slow') !== null")?;
    browser.until(&format!("{} === '2'", cell("pon-7", 5)))?;
    ensure!(
        browser.value(&cell("site-1", 5))? == "2" && browser.value(&cell("site-1", 6))? == "2",
        "counts of the site"
    );
    browser.until(&format!(
        "parseFloat({}) > 90 && parseFloat({}) < 105",
        cell("pon-7", 2),
        cell("pon-7", 2)
    ))?;
    ensure!(browser.text("#all-note")? == "3 in all", "{}", browser.text("#all-note")?);
    looks_right(browser, "parents")?;
    ask(browser, "pon-", 2)?;
    browser.until("document.querySelectorAll('#found-parents tbody a').length === 4")?;
    tab_to(browser, "#found-parents tbody a")?;
    browser.press(keys::ENTER)?;
    browser.until("document.querySelector('.parent #who')?.textContent === 'pon-7'")?;
    browser.until("document.querySelector('#state').textContent === 'bottleneck down'")?;
    browser.until("(() => { const rate = parseFloat(document.querySelector('#tile-rate .value').textContent); return rate > 13.5 && rate < 15.6; })()")?;
    let clock = figure(browser, "clock")?;
    ensure!((0.5..0.95).contains(&clock), "the clock runs at {clock}");
    browser.until("document.querySelector('#below-subscribers tbody a')?.textContent === 'mixed-42'")?;
    browser.until("document.querySelectorAll('#below-subscribers tbody a').length === 2")?;
    ensure!(browser.value("document.querySelectorAll('.chart canvas').length")? == 4, "charts");
    // its two subscribers' queues in sum, which wait for its rate
    browser.until("document.querySelector('#tile-drops .below').textContent === 'of 2 subscribers below'")?;
    browser.until("/^p50 .*packets/.test(document.querySelector('#tile-l4s .below').textContent)")?;
    browser.until("/[mµ]s$/.test(document.querySelector('#tile-classic .value').textContent)")?;
    looks_right(browser, "parent")?;
    // another rate, and then the site's page by its link
    tab_to(browser, "#down_bps")?;
    browser.press(&format!("30{}", keys::ENTER))?;
    browser.until("document.querySelector('#ask').open && document.querySelector('#ask-text').textContent.includes('30.0')")?;
    tab_to(browser, "#confirm")?;
    browser.press(keys::ENTER)?;
    browser.until("document.querySelector('#answer').textContent.startsWith('Accepted with 200')")?;
    browser.until("document.querySelector('#tile-clock .below').textContent === 'not the bottleneck'")?;
    let record = network.shaper.json("/v1/parents/pon-7")?;
    ensure!(record["down_bps"] == 30_000_000 && record["parent"] == "site-1", "{record}");
    browser.click("#record-below a")?;
    browser.until("document.querySelector('#below-parents tbody a')?.textContent === 'pon-7'")
}

fn whole_story(network: &mut Direct) -> Result<()> {
    let traffic = traffic(network)?;
    let tagged =
        r#"{"down_bps": 1000000, "up_bps": 1000000, "match": {"vlan": {"outer": 100, "inner": 42}}}"#;
    let (status, body) = network.shaper.put("/v1/subscribers/tagged", tagged)?;
    ensure!(status == 201, "{body}");
    let browser = browser()?;
    let home = format!("http://{}/", network.api());
    browser.open(&home)?;
    overview_is_true(&browser, network)?;
    search_finds(&browser)?;
    rate_changes_by_keyboard(&browser, network)?;
    subscriber_is_true(&browser, network)?;
    aggregates_are_shown(&browser, network)?;
    browser.run(&format!("location.hash = '#/subscriber/{}'", MIXED.id))?;
    browser.until("document.querySelector('#record-parent a')?.textContent === 'pon-7'")?;
    let complaints = browser.complaints()?;
    ensure!(complaints.is_empty(), "the console says {complaints:?}");
    refusals_are_shown_by_field(&browser, network)?;
    browser.run("location.hash = '#/'")?;
    browser.until("document.querySelector('.overview') && document.body.dataset.state === 'live'")?;
    let requests = browser.requests()?;
    // the browser's own first page and what is written out in a page ask nobody
    let schemes = [home.as_str(), "chrome://", "data:"];
    let ours = |url: &&String| schemes.iter().any(|scheme| url.starts_with(scheme));
    let foreign: Vec<_> = requests.iter().filter(|url| !ours(url)).collect();
    ensure!(requests.len() > 20 && foreign.is_empty(), "{} requests, elsewhere: {foreign:?}", requests.len());
    drop(traffic);
    network.shaper.process().terminate(Duration::from_secs(10));
    browser.until("document.body.dataset.state === 'gone' && !document.querySelector('#notice').hidden")?;
    browser.picture("gone")?;
    network.restart()?;
    browser.until("document.body.dataset.state === 'live' && document.querySelector('#notice').hidden")
}

#[test]
fn the_dashboard_is_true_usable_by_keyboard_and_says_when_nobody_answers() {
    if !may_run("the_dashboard_is_true_usable_by_keyboard_and_says_when_nobody_answers") {
        return;
    }
    let plan = Plan { lines: vec![MIXED, FLOODED], ..Plan::default() };
    let mut network = Direct::set(&plan).unwrap_or_else(|error| panic!("{error:#}"));
    whole_story(&mut network)
        .unwrap_or_else(|error| panic!("{error:#}; sluice said: {}", network.shaper.output()));
}

/// A shaper on ports that carry nothing, with a token.
fn guarded(folder: &Path, port: u16) -> Result<Process> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("token"), TOKEN)?;
    let path = |name: &str| folder.join(name).display().to_string();
    let config = format!(
        "[dataplane]\nlcores = {{ compact = \"1@1\" }}\nhugepages = \"never\"\nbuffers = 16384\nsubscribers = 1024\n\
         eal_args = [\"--file-prefix=sld-token-{port}\"]\n\
         [[port]]\nname = \"core\"\nrole = \"core\"\npeer = \"access\"\ndevice = \"net_null0,no-rx=1\"\n\
         [[port]]\nname = \"access\"\nrole = \"access\"\npeer = \"core\"\ndevice = \"net_null1,no-rx=1\"\n\
         [api]\nlisten = \"127.0.0.1:{port}\"\ntoken_file = \"{}\"\n[store]\npath = \"{}\"\n",
        path("token"),
        path("sluice.db"),
    );
    std::fs::write(folder.join("sluice.toml"), config)?;
    let mut command = Command::new(program("sluice"));
    command.arg("run").arg("--config").arg(folder.join("sluice.toml"));
    Process::start("sluice", &mut command, &folder.join("sluice.log"))
}

fn token_story(browser: &Browser, port: u16) -> Result<()> {
    browser.open(&format!("http://127.0.0.1:{port}/"))?;
    browser.until("document.querySelector('#token').open && document.activeElement.id === 'token-text'")?;
    browser.press(&format!("wrong{}", keys::ENTER))?;
    browser.until(
        "document.querySelector('#token').open && document.querySelector('#token-error').textContent !== ''",
    )?;
    browser.picture("token")?;
    browser.press(&format!("{TOKEN}{}", keys::ENTER))?;
    browser.until("document.body.dataset.state === 'live'")?;
    // the stream of events took it as well
    browser.until("document.querySelector('#events .muted').textContent.startsWith('None')")?;
    ensure!(browser.value("localStorage.length")? == 0, "kept beyond the tab");
    browser.open(&format!("http://127.0.0.1:{port}/#/subscribers"))?;
    browser.until("document.querySelector('#found')?.textContent === '0 in all'")?;
    browser.run("location.hash = '#/calls'")?;
    browser.until("document.querySelector('#calls')?.innerText.includes('/v1/subscribers/{id}/stats')")?;
    looks_right(browser, "calls")?;
    browser.click("#forget")?;
    browser.until("document.querySelector('#token')?.open === true")
}

#[test]
fn with_a_token_the_page_asks_for_it_and_keeps_it_in_the_tab() {
    if !may_run("with_a_token_the_page_asks_for_it_and_keeps_it_in_the_tab") {
        return;
    }
    let port = 10_000 + u16::try_from(std::process::id() % 10_000).unwrap_or(0);
    let folder = std::env::temp_dir().join(format!("sluice-token-{port}"));
    let _traces = Traces::new(&format!("sld-token-{port}"), Some(folder.clone()));
    let mut shaper = guarded(&folder, port).unwrap_or_else(|error| panic!("{error:#}"));
    let listens = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    let up = wait_for(Duration::from_secs(30), || shaper.ended().is_some() || listens());
    assert!(up && shaper.ended().is_none(), "{}", shaper.output());
    let told = browser().and_then(|browser| token_story(&browser, port));
    told.unwrap_or_else(|error| panic!("{error:#}; sluice said: {}", shaper.output()));
}
