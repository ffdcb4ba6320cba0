// SPDX-License-Identifier: Apache-2.0
//! Aggregates of the configuration in virtual time.

use super::*;

/// A site of 15 Mb/s; below it a PON of 12 Mb/s with `a` and `b`, plans 20 and 10 Mb/s, and `c` beside the PON.
fn tree() -> String {
    let parent = |id: &str, mbps: u64, above: &str| {
        let rate = mbps * 1_000_000;
        format!("[[parent]]\nid = \"{id}\"\ndown_bps = {rate}\nup_bps = {rate}\n{above}")
    };
    let below = |id: &str, rate, host, parent: &str| {
        subscriber(id, rate, &format!("ipv4 = [\"100.64.0.{host}\"]")) + &format!("parent = \"{parent}\"\n")
    };
    [
        "[profile.default]\naqm = \"fifo\"\nlimit_us = 40000000\n".to_owned(),
        parent("pon", 12, "parent = \"site\"\n"),
        parent("site", 15, ""),
        below("a", 20_000_000, 1, "pon"),
        below("b", 10_000_000, 2, "pon"),
        below("c", 8_000_000, 3, "site"),
    ]
    .concat()
}

/// Streams of full packets to these hosts, each as many Mb/s of what counts (1538 bytes a packet), for 2 s.
fn offered(hosts: &[(u8, u64)]) -> Vec<Record> {
    let mut records = Vec::new();
    for &(host, mbps) in hosts {
        let every = 1538 * 8 * 1000 / mbps;
        records.extend(stream(2_000_000_000 / every, every, &udp4([100, 64, 0, host], 0, PAYLOAD)));
    }
    records.sort_by_key(|record| record.at);
    records
}

/// Mb/s that left to a host in the second second.
fn served(outcome: &Outcome, host: u8) -> f64 {
    let first = outcome.out[0].0.0;
    let during = |at: Nanos| (1_000_000_000..2_000_000_000).contains(&(at.0 - first));
    let packets = outcome.out.iter().filter(|(at, data, _)| during(*at) && data[33] == host).count();
    packets as f64 * 1538.0 * 8.0 / 1e6
}

fn near(value: f64, wanted: f64) -> bool {
    (value / wanted - 1.0).abs() < 0.03
}

#[test]
fn children_of_a_bottleneck_share_it_by_plan_and_what_waits_leaves_at_its_rate() {
    let records = offered(&[(1, 20), (2, 10)]);
    let outcome = down(&tree(), &records);
    let [a, b] = [1, 2].map(|host| served(&outcome, host));
    assert!(near(a, 8.0) && near(b, 4.0), "{a} and {b} of 12 Mb/s");
    // 60 Mb wait for 12 Mb/s: the last leaves after 5 s
    let span = (outcome.out.last().unwrap().0.0 - outcome.out[0].0.0) as f64 / 1e9;
    assert!(near(span, 5.0), "{span} s");
    assert_eq!(outcome.out.len(), records.len());
    let again = down(&tree(), &records);
    assert_eq!(
        (again.out, again.report.to_string()),
        (outcome.out, outcome.report.to_string()),
        "the same again"
    );
}

#[test]
fn two_levels_hold_at_once_and_the_report_counts_what_went_through_each() {
    let records = offered(&[(1, 20), (2, 10), (3, 8)]);
    let outcome = down(&tree(), &records);
    let [a, b, c] = [1, 2, 3].map(|host| served(&outcome, host));
    // plans 20, 10 and 8 in 15 Mb/s; the PON's 12 are not reached
    assert!(
        near(a, 15.0 * 20.0 / 38.0) && near(b, 15.0 * 10.0 / 38.0) && near(c, 15.0 * 8.0 / 38.0),
        "{a} {b} {c}"
    );
    let through = |id: &str| number(&outcome.report["parents"][id]["down"]["forwarded"]);
    let sent = |id| number(&queue(&outcome, id, "classic")["forwarded"]);
    assert_eq!(through("site"), records.len() as u64);
    assert_eq!(through("pon"), sent("a") + sent("b"));
    let pon = &outcome.report["parents"]["pon"]["down"];
    assert_eq!(number(&pon["forwarded_bytes"]), 1538 * through("pon"));
    assert_eq!((number(&pon["children"]), number(&pon["waiting"])), (2, 0));
    // the sums of the queues below, delays too: a mean lies between those it is made of
    let (all, parts) = (&pon["classic"], ["a", "b"].map(|id| queue(&outcome, id, "classic")));
    for key in ["arrived", "forwarded", "forwarded_bytes", "dropped_tail"] {
        assert_eq!(number(&all[key]), parts.iter().map(|part| number(&part[key])).sum::<u64>(), "{key}");
    }
    let delay = |of: &Value, key: &str| of["delay_us"][key].as_f64().unwrap();
    for key in ["mean", "p50", "p99", "max"] {
        let [a, b] = parts.map(|part| delay(part, key));
        assert!(
            (a.min(b)..=a.max(b)).contains(&delay(all, key)),
            "{key}: {} of {a} and {b}",
            delay(all, key)
        );
    }
    assert_eq!(number(&outcome.report["parents"]["site"]["down"]["subscribers"]), 3);
}

#[test]
fn an_aggregate_with_rate_to_spare_changes_nothing() {
    let records = offered(&[(1, 7), (2, 4)]);
    let outcome = down(&tree(), &records);
    let free = down(&tree().replace("parent = \"pon\"\n", "").replace("parent = \"site\"\n", ""), &records);
    assert_eq!(outcome.out, free.out);
}

#[test]
fn the_other_direction_has_its_own_rate() {
    let config = Config::parse(
        "t",
        &tree().replace("id = \"pon\"\ndown_bps = 12000000", "id = \"pon\"\ndown_bps = 64000"),
    )
    .unwrap();
    let mut machine = Machine::new(&config, Direction::Up, None).unwrap();
    let mut header =
        Ipv4Header::new(0, 64, etherparse::IpNumber::UDP, [100, 64, 0, 1], [192, 0, 2, 1]).unwrap();
    header.dscp = etherparse::IpDscp::try_new(0).unwrap();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
        .ip(etherparse::IpHeaders::Ipv4(header, etherparse::Ipv4Extensions::default()))
        .udp(1000, 2000);
    let mut packet = Vec::new();
    builder.write(&mut packet, &[0; PAYLOAD]).unwrap();
    let mut last = Nanos::ZERO;
    let mut sink = |at: Nanos, _: &frame::Frame| {
        last = at;
        Ok(())
    };
    let records = stream(100, 0, &packet);
    for record in &records {
        machine.arrive(record.clone(), &mut sink).unwrap();
    }
    machine.drain(&mut sink).unwrap();
    let span = (last.0 - records[0].at.0) as f64 / 1e9;
    // 100 packets of 1538 bytes at 12 Mb/s, less what may leave at once
    assert!((0.095..0.104).contains(&span), "{span} s");
    assert_eq!(number(&machine.report().unwrap()["parents"]["pon"]["up"]["forwarded"]), 100);
}
