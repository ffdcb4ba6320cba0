// SPDX-License-Identifier: Apache-2.0
//! A running Sluice that is full: what fits in the end is taken, what does not leaves all as it was.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::direct::{Direct, Line, Plan, address};
use tests::verdict::may_make_namespaces;

const A: Line = Line { id: "a", pair: 0, host: 10, down_bps: 20_000_000, up_bps: 10_000_000 };
const B: Line = Line { id: "b", pair: 0, host: 20, down_bps: 5_000_000, up_bps: 5_000_000 };
const BULK: &str = "/v1/subscribers/bulk?mode=replace";

fn record(id: &str, host: u8) -> Value {
    let prefix = format!("{}/32", address(0, host));
    json!({"id": id, "down_bps": 1_000_000, "up_bps": 1_000_000, "match": {"ipv4": [prefix]}})
}

fn put(network: &Direct, id: &str, host: u8) -> Result<u16> {
    Ok(network.shaper.put(&format!("/v1/subscribers/{id}"), &record(id, host).to_string())?.0)
}

fn lines(ids: &[(&str, u8)]) -> String {
    ids.iter().map(|(id, host)| record(id, *host).to_string() + "\n").collect()
}

/// The names there are, each of them shaped.
fn names(network: &Direct) -> Result<Vec<String>> {
    let listed = network.shaper.json("/v1/subscribers")?;
    let items = listed["items"].as_array().cloned().unwrap_or_default();
    let names: Vec<String> =
        items.iter().map(|item| item["id"].as_str().unwrap_or_default().to_owned()).collect();
    for name in &names {
        network.shaper.stats(name)?;
    }
    Ok(names)
}

fn replace(network: &Direct) -> Result<()> {
    ensure!(put(network, "c", 30)? == 201, "the last place");
    ensure!(put(network, "d", 40)? == 507, "no place is left");
    ensure!(network.shaper.delete("/v1/subscribers/c")? == 204, "a place is given back");
    ensure!(put(network, "d", 40)? == 201, "and taken at once");
    let all = [("x", 50), ("y", 60), ("z", 10)];
    let (status, body) = network.shaper.post(BULK, &lines(&all))?;
    ensure!(status == 200 && body.contains("\"created\":3"), "all new: {status} {body}");
    ensure!(names(network)? == ["x", "y", "z"], "{:?}", names(network)?);
    let more = [("p", 70), ("q", 80), ("r", 90), ("s", 100)];
    for mode in [BULK.to_owned(), format!("{BULK}&dry_run=true")] {
        let (status, body) = network.shaper.post(&mode, &lines(&more))?;
        ensure!(status == 507, "{mode}: {status} {body}");
    }
    ensure!(names(network)? == ["x", "y", "z"], "refused in part: {:?}", names(network)?);
    Ok(())
}

#[test]
fn a_full_shaper_takes_what_fits_in_the_end_and_nothing_else() {
    if !may_make_namespaces("a_full_shaper_takes_what_fits_in_the_end_and_nothing_else") {
        return;
    }
    let plan = Plan { lines: vec![A, B], subscribers: 3, ..Plan::default() };
    let network = Direct::set(&plan).unwrap_or_else(|error| panic!("{error:#}"));
    replace(&network).unwrap_or_else(|error| panic!("{error:#}; sluice said: {}", network.shaper.output()));
}
