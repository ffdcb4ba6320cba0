// SPDX-License-Identifier: Apache-2.0
//! Documents that would rot: the API cookbook is run block by block against a live server, the metrics page is held
//! against a scrape.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tests::machine::has;
use tests::quiet;

const COOKBOOK: &str = include_str!("../../docs/api-cookbook.md");
const METRICS: &str = include_str!("../../docs/metrics.md");

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("sluice-{name}-{}", std::process::id()))
}

/// Blocks of a language with the number of the line they begin in.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<(usize, &'a str)> {
    let fence = format!("```{language}\n");
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(&fence) {
        let begin = from + at + fence.len();
        let end = text[begin..].find("\n```").map_or(text.len(), |end| begin + end);
        found.push((text[..begin].lines().count() + 1, &text[begin..end]));
        from = end;
    }
    found
}

#[test]
fn every_block_of_the_cookbook_does_what_it_says() -> Result<()> {
    const NAME: &str = "every_block_of_the_cookbook_does_what_it_says";
    if let Some(missing) = ["bash", "curl", "jq"].into_iter().find(|program| !has(program)) {
        tests::skip(NAME, &format!("`{missing}` is missing"));
        return Ok(());
    }
    let folder = folder("cookbook");
    let shaper = quiet::start(&folder, &[], None)?;
    let blocks = blocks(COOKBOOK, "sh");
    ensure!(blocks.len() > 10, "only {} blocks are left", blocks.len());
    for (line, block) in blocks {
        let done = Command::new("bash")
            .args(["-eu", "-o", "pipefail", "-c", block])
            .env("SLUICE", shaper.api())
            .current_dir(&folder)
            .output()?;
        let said = [done.stdout, done.stderr].concat();
        ensure!(done.status.success(), "line {line}: {block}\n{}", String::from_utf8_lossy(&said));
    }
    drop(shaper);
    Ok(fs::remove_dir_all(folder)?)
}

/// Type and labels of a metric.
type Shape = (String, BTreeSet<String>);

/// What the page says.
fn documented() -> Result<BTreeMap<String, Shape>> {
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let rows = METRICS.lines().filter(|line| line.starts_with("| `sluice_"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        ensure!(cells.len() == 7 && !cells[4].is_empty() && !cells[5].is_empty(), "{row}");
        let name = names(cells[1]).pop_first().context("a name")?;
        Ok((name, (cells[2].to_owned(), names(cells[3]))))
    })
    .collect()
}

/// What a scrape has: labels of a family are those of its series, `le` left out.
fn scraped(text: &str) -> BTreeMap<String, Shape> {
    let mut found = BTreeMap::new();
    for (name, kind) in
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).filter_map(|line| line.split_once(' '))
    {
        let series = text.lines().filter_map(|line| line.strip_prefix(name)).filter_map(|rest| {
            let rest =
                ["_bucket", "_sum", "_count"].iter().find_map(|end| rest.strip_prefix(end)).unwrap_or(rest);
            rest.strip_prefix('{').and_then(|labels| labels.split_once('}')).map(|(labels, _)| labels)
        });
        let labels = series.flat_map(|labels| labels.split("\",").filter_map(|pair| pair.split('=').next()));
        let labels = labels.map(str::to_owned).filter(|label| label != "le").collect();
        found.insert(name.to_owned(), (kind.to_owned(), labels));
    }
    found
}

#[test]
fn the_metrics_page_has_every_metric_with_its_type_and_labels() -> Result<()> {
    let folder = folder("metrics");
    let shaper = quiet::start(&folder, &["a"], None)?;
    let (status, text) = shaper.get("/metrics")?;
    ensure!(status == 200, "{status} {text}");
    let (documented, scraped) = (documented()?, scraped(&text));
    ensure!(documented.len() > 15, "the table is not read: {documented:?}");
    for (name, shape) in &scraped {
        ensure!(
            documented.get(name) == Some(shape),
            "{name} is {shape:?}, described {:?}",
            documented.get(name)
        );
    }
    // a family without series is left out of a scrape
    let silent: Vec<_> = documented.keys().filter(|name| !scraped.contains_key(*name)).collect();
    ensure!(silent.is_empty(), "described, but not there: {silent:?}");
    drop(shaper);
    Ok(fs::remove_dir_all(folder)?)
}
