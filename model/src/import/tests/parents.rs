// SPDX-License-Identifier: Apache-2.0
//! `network.json`, and rows that stand below its nodes.

use std::collections::HashSet;

use super::super::network::{self, Network};
use super::*;

const NETWORK: &[u8] = include_bytes!("../../../tests/data/network.json");

fn tree(bytes: &[u8]) -> Network {
    network::read("n", bytes).unwrap_or_else(|problems| panic!("{problems}"))
}

fn refused(bytes: &[u8]) -> Vec<String> {
    let problems = network::read("n", bytes).expect_err("the file has problems");
    problems.0.iter().map(|problem| problem.to_string().trim_start_matches("n:").to_owned()).collect()
}

/// Name, parent, down, up, line.
fn nodes(network: &Network) -> Vec<(&str, Option<&str>, u64, u64, usize)> {
    let each = network.nodes.iter();
    each.map(|node| (&*node.id, node.parent.as_deref(), node.down_bps, node.up_bps, node.line)).collect()
}

fn parents(imported: &Imported) -> Vec<Option<&str>> {
    imported.subscribers.iter().map(|subscriber| subscriber.parent.as_deref()).collect()
}

#[test]
fn a_tree_becomes_aggregates_each_behind_the_one_above() {
    let mega = 1_000_000;
    let expected = [
        ("Site_1", None, 1000 * mega, 1000 * mega, 2),
        ("AP_A", Some("Site_1"), 500 * mega, 500 * mega, 5),
        ("PoP_1", Some("Site_1"), 200 * mega, 200 * mega, 6),
        ("AP_9", Some("PoP_1"), 120 * mega, 120 * mega, 8),
    ];
    assert_eq!(nodes(&tree(NETWORK)), expected);
    assert_eq!(tree(b"{}"), Network::default());
    assert_eq!(detect(std::str::from_utf8(NETWORK).unwrap()), Content::Network);
}

#[test]
fn virtual_nodes_only_group() {
    let text = br#"{"Region":{"virtual":true,"children":{
        "Site":{"downloadBandwidthMbps":10.5,"uploadBandwidthMbps":5,"id":7,"latitude":1,
            "children":{"Floor":{"virtual":true,"id":"f","children":{"AP":{
                "downloadBandwidthMbps":2,"uploadBandwidthMbps":"512k","children":null}}}}}}}}"#;
    let problems = refused(text);
    assert_eq!(problems, ["4: AP.uploadBandwidthMbps: \"\"512k\"\" is not a number"]);
    let text = String::from_utf8_lossy(text).replace("\"512k\"", "0.512");
    let network = tree(text.as_bytes());
    let expected = [("Site", None, 10_500_000, 5_000_000, 2), ("AP", Some("Site"), 2_000_000, 512_000, 3)];
    assert_eq!(nodes(&network), expected);
    assert_eq!(network.by_name("Floor"), Some(Some("Site")));
    assert_eq!(network.by_name("Region"), Some(None));
    assert_eq!((network.by_id("7"), network.by_id("f")), (Some(Some("Site")), Some(Some("Site"))));
    let notes = [
        "1 node has the key \"latitude\", which means nothing here",
        "2 virtual nodes were left out; what is below belongs to the node above",
    ];
    assert_eq!(network.notes, notes);
}

#[test]
fn every_bad_node_is_named_with_its_line() {
    let text = br#"{
 "A": {"downloadBandwidthMbps": 1, "uploadBandwidthMbps": 0.01,
   "children": {
     "B": {"uploadBandwidthMbps": 1},
     "A": {"downloadBandwidthMbps": 1, "uploadBandwidthMbps": 1}}},
 "C": [1],
 "bulk": {"downloadBandwidthMbps": 1, "uploadBandwidthMbps": 1, "virtual": 3},
 "D": {"downloadBandwidthMbps": 1, "downloadBandwidthMbps": 1, "uploadBandwidthMbps": 1, "children": [], "id": "x"},
 "E": {"downloadBandwidthMbps": 1, "uploadBandwidthMbps": 500000, "id": "x"}
}"#;
    let expected = [
        "2: A.uploadBandwidthMbps: \"0.01\" Mb/s is not from 0.064 to 400000",
        "4: B.downloadBandwidthMbps: is missing",
        "5: A: is the name of two nodes",
        "6: C: is no node: an object with rates is wanted",
        "7: bulk: the name \"bulk\" is not free to use as a name",
        "7: bulk.virtual: is neither true nor false",
        "8: D.downloadBandwidthMbps: stands twice",
        "8: D.children: is no object of nodes",
        "9: E.uploadBandwidthMbps: \"500000\" Mb/s is not from 0.064 to 400000",
        "9: E: its id \"x\" is that of another node too",
    ];
    assert_eq!(refused(text), expected);
    assert!(refused(b"{\n\"A\": {").first().unwrap().starts_with("2: not a network: EOF"));
    assert!(refused(b"[]").first().unwrap().starts_with("1: not a network: "));
    assert_eq!(refused(b""), ["1: is empty; {} is a network without aggregates"]);
    assert_eq!(refused(b"{\n\xff}"), ["2: is not UTF-8 text; save the file as UTF-8"]);
}

/// A chain of `levels` nodes.
fn chain(levels: usize, more: &str) -> String {
    let open = |level| {
        format!("{{\"N{level}\":{{\"downloadBandwidthMbps\":1,\"uploadBandwidthMbps\":1{more},\"children\":")
    };
    (1..=levels).map(open).collect::<String>() + "{}" + &"}}".repeat(levels)
}

#[test]
fn a_tree_has_eight_levels_at_most_and_virtual_ones_do_not_count() {
    assert_eq!(tree(chain(8, "").as_bytes()).nodes.len(), 8);
    let nine = refused(chain(9, "").as_bytes());
    assert_eq!(nine, ["1: N9: is level 9; 8 aggregates above each other are the most"]);
    assert_eq!(tree(chain(20, ",\"virtual\":true").as_bytes()).nodes, []);
    assert!(refused(chain(60, ",\"virtual\":true").as_bytes())[0].contains("N32: stands below 32 nodes"));
}

#[test]
fn rows_stand_below_the_nodes_they_name() {
    let network = tree(NETWORK);
    let mut imported = good(CURRENT);
    imported.settle("f", Parents::Network(&network)).unwrap();
    assert_eq!(parents(&imported), [Some("AP_A"), Some("AP_A"), Some("PoP_1"), None]);
    let mut imported = good(MISMATCH);
    imported.settle("f", Parents::Network(&network)).unwrap();
    assert_eq!(parents(&imported), [Some("AP_A"), Some("AP_A"), Some("AP_9")]);
    let mut imported = good(LEGACY);
    imported.settle("f", Parents::Network(&network)).unwrap();
    assert_eq!(parents(&imported), [Some("AP_A"), Some("AP_A"), Some("Site_1")]);
    assert!(!imported.notes.iter().any(|note| note.contains("parent")), "{:?}", imported.notes);
}

#[test]
fn a_node_that_the_network_lacks_is_a_problem_and_one_that_the_shaper_lacks_is_left_out() {
    let text = "1,n,d,dn,AP_B,,100.64.0.1,,1,1,50,10,\n2,n,d,dn,none,,100.64.0.2,,1,1,50,10,\n\
                3,n,d,dn,AP_A,,100.64.0.3,,1,1,50,10,\n";
    let problems = good(text.as_bytes()).settle("f", Parents::Network(&tree(NETWORK))).unwrap_err();
    assert_eq!(problems.to_string(), "f:1: Parent Node: there is no parent \"AP_B\"; did you mean \"AP_9\"?");
    let mut imported = good(text.as_bytes());
    let shaper = HashSet::from(["AP_A".to_owned()]);
    imported.settle("f", Parents::Shaper(&shaper)).unwrap();
    assert_eq!(parents(&imported), [None, None, Some("AP_A")]);
    let note = imported.notes.last().unwrap();
    assert!(
        note.starts_with("1 circuit names 1 parent node that the shaper does not have (AP_B), left"),
        "{note}"
    );
}

#[test]
fn a_node_s_id_goes_before_its_name() {
    let network = tree(br#"{"Old name":{"downloadBandwidthMbps":1,"uploadBandwidthMbps":1,"id":"ap-1"}}"#);
    let text = "1,n,d,dn,New name,ap-1,,,100.64.0.1,,1,1,50,10,\n";
    let mut imported = good(text.as_bytes());
    imported.settle("f", Parents::Network(&network)).unwrap();
    assert_eq!(parents(&imported), [Some("Old name")]);
}

#[test]
fn devices_of_one_circuit_stand_below_one_node() {
    let text = "1,n,d,dn,,,100.64.0.1,,1,1,50,10,\n1,n,d,dn,AP_A,,100.64.0.2,,1,1,50,10,\n\
                1,n,d,dn,AP_9,,100.64.0.3,,1,1,50,10,\n";
    assert_eq!(bad(text.as_bytes()), ["3: Parent Node: \"AP_9\", but line 1 gives circuit 1 \"AP_A\""]);
}

#[test]
fn records_of_json_name_parents_that_exist() {
    let record = |parent: &str| {
        format!(
            r#"{{"id":"a","down_bps":64000,"up_bps":64000,"parent":"{parent}","match":{{"vlan":{{"outer":5}}}}}}"#
        )
    };
    let shaper = HashSet::from(["olt-1".to_owned()]);
    let mut imported = good(record("olt-1").as_bytes());
    imported.settle("f", Parents::Shaper(&shaper)).unwrap();
    assert_eq!(parents(&imported), [Some("olt-1")]);
    let problems = good(record("olt-2").as_bytes()).settle("f", Parents::Shaper(&shaper)).unwrap_err();
    assert_eq!(problems.to_string(), "f:1: parent: there is no parent \"olt-2\"; did you mean \"olt-1\"?");
    let mut imported = good(record("x").as_bytes());
    imported.note_parents();
    assert_eq!(imported.notes, ["1 parent is named; the shaper must have them"]);
}

#[test]
fn a_column_of_rate_strings_stands_for_the_rates() {
    let text = "Circuit ID,IPv4,IPv6,Mikrotik-Rate-Limit\n1,10.0.0.1,,10M/50M\n\
                2,10.0.0.2,,512k/2M 1M/4M 256k/1M 8/8\n";
    let imported = good(text.as_bytes());
    let expected =
        [line("1", 50_000_000, 10_000_000, "10.0.0.1/32"), line("2", 2_000_000, 512_000, "10.0.0.2/32")];
    assert_eq!(summary(&imported), expected);
    assert_eq!(
        imported.notes,
        ["1 row has bursts or priorities in the rate string; subscribers are shaped to the rate"]
    );
    let text = "Circuit ID,IPv4,IPv6,Filter-Id,Download Max Mbps,Upload Max Mbps\n1,10.0.0.1,,50000/10000,,\n\
                2,10.0.0.2,,ignored,3,1\n3,10.0.0.3,,fast,,\n";
    assert_eq!(
        bad(text.as_bytes()),
        ["4: Filter-Id: \"fast\" is no rate; wanted is kbit/s as DOWN/UP, for instance 50000/10000"]
    );
    let text = text.replace("fast", "64");
    let rates: Vec<_> =
        good(text.as_bytes()).subscribers.iter().map(|each| (each.down_bps, each.up_bps)).collect();
    assert_eq!(rates, [(50_000_000, 10_000_000), (3_000_000, 1_000_000), (64_000, 64_000)]);
}

#[test]
fn rates_with_a_suffix_of_their_own_are_taken_at_their_word() {
    let text = "1,n,d,dn,,,100.64.0.1,,1,1,1G,512k,\n2,n,d,dn,,,100.64.0.2,,1,1,2.5M,63k,\n";
    assert_eq!(bad(text.as_bytes()), ["2: Upload Max Mbps: \"63k\" is not from 64k to 400G"]);
    let text = text.replace("63k", "64K");
    let rates: Vec<_> =
        good(text.as_bytes()).subscribers.iter().map(|each| (each.down_bps, each.up_bps)).collect();
    assert_eq!(rates, [(1_000_000_000, 512_000), (2_500_000, 64_000)]);
}
