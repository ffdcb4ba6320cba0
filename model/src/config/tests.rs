// SPDX-License-Identifier: Apache-2.0
//! Every key with its default and every refusal with its line.
#![expect(clippy::too_many_lines, reason = "tables of cases")]

use super::*;
use crate::profile::{Aqm, Cells, Compat, DualPi2, Native, Overhead, Overload};

/// The configuration of the interfaces' own example.
const EXAMPLE: &str = include_str!("../../tests/data/example.toml");

fn good(text: &str) -> Config {
    Config::parse("f", text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn bad(text: &str) -> Vec<String> {
    let problems = Config::parse("f", text).expect_err("the text has problems");
    problems.0.iter().map(|problem| problem.to_string().trim_start_matches("f:").to_owned()).collect()
}

fn dualpi2(profile: &str) -> DualPi2 {
    let config = good(&format!("[profile.x]\n{profile}"));
    match &config.profiles["x"].aqm {
        Aqm::DualPi2(aqm) | Aqm::Pi2(aqm) => aqm.clone(),
        other => panic!("{} has no such keys", other.name()),
    }
}

#[test]
fn the_example_spells_out_the_defaults() {
    let config = good(EXAMPLE);
    let empty = Config::default();
    assert_eq!(config.dataplane, empty.dataplane);
    assert_eq!(config.classify, empty.classify);
    assert_eq!(config.profiles, empty.profiles);
    assert_eq!(config.api, empty.api);
    assert_eq!(config.store, empty.store);
    assert_eq!(config.ports.len(), 2);
    assert_eq!(config.ports[0].peer, 1);
    assert_eq!(config.ports[0].rate_bps, Some(10_000_000_000));
    assert_eq!(config.ports[1].mtu, 1600);
    assert_eq!(config.subscribers[0].id, "cust-42");
}

#[test]
fn an_empty_file_is_all_defaults() {
    let config = good("");
    assert_eq!(config, Config::default());
    let lcore = |id| Lcore { id, cpu: id };
    let split = Lcores::Split { control: lcore(0), rx: vec![lcore(1)], tx: vec![lcore(2)] };
    assert_eq!(
        config.dataplane,
        Dataplane {
            lcores: split,
            hugepages: HugePages::Auto,
            buffers: None,
            subscribers: 65_536,
            seed: 1,
            eal_args: vec![]
        }
    );
    assert_eq!(config.classify.rules.nqb_dscp, [45]);
    assert_eq!((config.classify.unknown, config.classify.unknown_bps), (Unknown::Pass, None));
    assert_eq!(config.api.listen.to_string(), "127.0.0.1:8480");
    assert_eq!(config.store.to_str(), Some("/var/lib/sluice/sluice.db"));
    let profile = &config.profiles["default"];
    assert_eq!(profile.aqm, Aqm::DualPi2(DualPi2::default()));
    assert_eq!((profile.l4s, profile.ecn, profile.limit_us, profile.mtu), (true, true, 250_000, 1538));
    assert_eq!((profile.limit_packets, profile.overhead), (None, Overhead::ETHERNET));
}

#[test]
fn lcores_are_numbers_or_numbers_on_a_cpu() {
    let lcores = |text: &str| good(&format!("dataplane.lcores = {text}")).dataplane.lcores;
    let pinned = |id, cpu| Lcore { id, cpu };
    assert_eq!(lcores("{ compact = 0 }"), Lcores::Compact(pinned(0, 0)));
    assert_eq!(lcores("{ compact = \"1@0\" }"), Lcores::Compact(pinned(1, 0)));
    let split = Lcores::Split {
        control: pinned(0, 0),
        rx: vec![pinned(1, 1), pinned(5, 0)],
        tx: vec![pinned(3, 0), pinned(4, 4)],
    };
    assert_eq!(lcores("{ rx = [1, \"5@0\"], tx = [\"3@0\", 4] }"), split);
}

#[test]
fn wrong_lcores_are_named() {
    let cases = [
        ("{ compact = 128 }", "dataplane.lcores.compact: 128 is not an lcore"),
        ("{ compact = -1 }", "dataplane.lcores.compact: -1 is not an lcore"),
        ("{ compact = \"1@\" }", "dataplane.lcores.compact: \"1@\" is not an lcore"),
        ("{ compact = 1, rx = [1] }", "dataplane.lcores.rx: has no meaning beside compact"),
        ("{ rx = 1 }", "dataplane.lcores.rx: 1 is not an array"),
        ("{ rx = [] }", "dataplane.lcores.rx: is empty"),
        ("{ rx = [1.5] }", "dataplane.lcores.rx: 1.5 is not an lcore"),
        ("{ tx = [2, 2] }", "dataplane.lcores.tx: lcore 2 has another task already"),
        ("{ control = 1 }", "dataplane.lcores.rx: lcore 1 has another task already"),
        ("{ main = 1 }", "dataplane.lcores.main: unknown key"),
        ("3", "dataplane.lcores: 3 is not a table"),
    ];
    for (text, expected) in cases {
        let problems = bad(&format!("[dataplane]\n\nlcores = {text}\n"));
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        assert!(problems[0].starts_with(&format!("3: {expected}")), "{text}: {problems:?}");
    }
}

#[test]
fn values_of_each_table_are_checked() {
    let port = "[[port]]\nname = \"a\"\ndevice = \"net_null0\"\nrole = \"core\"\npeer = \"b\"\n";
    let other = "[[port]]\nname = \"b\"\ndevice = \"net_null1\"\nrole = \"access\"\npeer = \"a\"\n";
    let api = "[api]\nlisten = \"0.0.0.0:80\"\n";
    let cases: &[(String, &[&str])] = &[
        (
            "[dataplane]\nhugepages = \"never\"\nhugepages2 = 1".into(),
            &["3: dataplane.hugepages2: unknown key; did you mean \"hugepages\"?"],
        ),
        (
            "[dataplane]\nhugepages = \"some\"".into(),
            &["2: dataplane.hugepages: \"some\" is none of \"auto\", \"require\", \"never\""],
        ),
        (
            "[dataplane]\nbuffers = -1".into(),
            &["2: dataplane.buffers: -1 is not an integer from 0 to 1073741824"],
        ),
        (
            "[dataplane]\nseed = 1.5".into(),
            &["2: dataplane.seed: 1.5 is not an integer from 0 to 9223372036854775807"],
        ),
        ("[dataplane]\neal_args = [\"--a\", 1]".into(), &["2: dataplane.eal_args: 1 is not a string"]),
        (
            "datapath = 1".into(),
            &[
                "1: datapath: unknown key; the keys here are api, classify, dataplane, log, parent, port, profile, store, subscriber",
            ],
        ),
        ("dataplane = 1".into(), &["1: dataplane: 1 is not a table"]),
        ("port = 1".into(), &["1: port: 1 is not an array"]),
        ("port = [1]".into(), &["1: port[0]: 1 is not a table"]),
        (
            format!("{port}{other}").replace("\"b\"\ndevice", "\"a\"\ndevice"),
            &[
                "5: port[0].peer: there is no port \"b\"",
                "7: port[1].name: another port is called \"a\" already",
            ],
        ),
        (
            format!("{port}{other}").replace("net_null1", "net_null0,x=1"),
            &["8: port[1].device: \"net_null0\" is the device of port \"a\" already"],
        ),
        (
            format!("{port}{other}")
                .replace("null0", "af_packet0,iface=x")
                .replace("null1", "af_xdp7,a=1,iface=x"),
            &["8: port[1].device: the interface \"x\" is that of port \"a\" already"],
        ),
        (
            format!("{port}{other}").replace("net_null0", "0000:3b:00.0").replace("net_null1", "3b:00.0"),
            &["8: port[1].device: \"3b:00.0\" is the device of port \"a\" already"],
        ),
        (
            format!("{port}{other}").replace("\"access\"", "\"core\""),
            &[
                "5: port[0].peer: \"b\" has the same role: core and access are each other's peers",
                "10: port[1].peer: \"a\" has the same role: core and access are each other's peers",
            ],
        ),
        (
            format!("{port}{other}").replace("\"access\"", "\"edge\""),
            &["9: port[1].role: \"edge\" is none of \"core\", \"access\""],
        ),
        (
            format!("{port}rate_bps = 0\n{other}mtu = 100\nspeed = 1"),
            &[
                "6: port[0].rate_bps: 0 is not an integer from 64000 to 400000000000",
                "12: port[1].mtu: 100 is not an integer from 1280 to 9702",
                "13: port[1].speed: unknown key; the keys here are device, mtu, name, peer, rate_bps, role",
            ],
        ),
        (
            "[classify]\nunknown = \"reject\"".into(),
            &["2: classify.unknown: \"reject\" is none of \"pass\", \"drop\""],
        ),
        ("[classify]\nunknown_bps = 5".into(), &["2: classify.unknown_bps: is neither 0 nor at least 64000"]),
        (
            "[classify.rules]\nnqb_dscp = [64, -1, \"EF\"]".into(),
            &[
                "2: classify.rules.nqb_dscp: 64 is not a DSCP, 0 to 63",
                "2: classify.rules.nqb_dscp: -1 is not a DSCP, 0 to 63",
                "2: classify.rules.nqb_dscp: \"EF\" is not a DSCP, 0 to 63",
            ],
        ),
        (
            "[classify.rules]\nexclude_dscp = [1]\nl4s_dscp = [1]".into(),
            &["3: classify.rules.l4s_dscp: DSCP 1 stands in exclude_dscp and in l4s_dscp: one rule a DSCP"],
        ),
        (
            "[classify.rules]\nclassic_dscp = [45]".into(),
            &[
                "2: classify.rules.classic_dscp: DSCP 45 stands in nqb_dscp and in classic_dscp: one rule a DSCP",
            ],
        ),
        (
            "[classify.rules]\nclassic_dscp = [2, 2]".into(),
            &["2: classify.rules.classic_dscp: DSCP 2 stands in it twice"],
        ),
        (
            api.into(),
            &[
                "1: api.token_file: is missing: to listen on 0.0.0.0:80 it is needed",
                "1: api.tls_cert: is missing: to listen on 0.0.0.0:80 it is needed",
                "1: api.tls_key: is missing: to listen on 0.0.0.0:80 it is needed",
            ],
        ),
        (
            format!("{api}token_file = \"t\"\ntls_cert = \"c\""),
            &["1: api.tls_key: is missing: to listen on 0.0.0.0:80 it is needed"],
        ),
        ("[api]\ntls_cert = \"c\"".into(), &["1: api.tls_key: is missing: tls_cert and tls_key go together"]),
        (
            "[api]\nlisten = \"localhost\"".into(),
            &["2: api.listen: \"localhost\" is not an address with a port, as 127.0.0.1:8480"],
        ),
        ("[store]\npath = \"\"".into(), &["2: store.path: \"\" is not a string with something in it"]),
        ("[profile]\nx = 1".into(), &["2: profile.x: 1 is not a table"]),
        ("profile = 1".into(), &["1: profile: 1 is not a table of tables"]),
        ("a = 1\na = 2".into(), &["2: not TOML: duplicate key"]),
    ];
    for (text, expected) in cases {
        assert_eq!(bad(text), *expected, "{text}");
    }
}

#[test]
fn a_listener_off_loopback_with_all_it_needs_is_good() {
    let api =
        good("[api]\nlisten = \"[::]:8480\"\ntoken_file = \"t\"\ntls_cert = \"c\"\ntls_key = \"k\"").api;
    assert_eq!(api.tls_key, Some(PathBuf::from("k")));
    assert!(good("[api]\nlisten = \"[::1]:1\"").api.token_file.is_none());
}

#[test]
fn problems_of_all_tables_are_told_at_once_in_the_order_of_lines() {
    let text = "[store]\npth = \"x\"\n[profile.a]\naqm = \"red\"\n[profile.b]\ntarget_us = 0\ntaget_us = 5\n\
                [dataplane]\nseed = -1\n[[subscriber]]\nid = \"s\"\ndown_bps = 1\nup_bps = 64000\n";
    let expected = [
        "2: store.pth: unknown key; did you mean \"path\"?",
        "4: profile.a.aqm: \"red\" is not an AQM (available: dualpi2, pi2, pie, codel, \
         fq_codel, fq, cake, cocoa, curvy_red, codel_af, fifo)",
        "6: profile.b.target_us: 0 is not an integer from 1 to 60000000",
        "7: profile.b.taget_us: unknown key; did you mean \"target_us\"?",
        "9: dataplane.seed: -1 is not an integer from 0 to 9223372036854775807",
        "10: subscriber[0].match: has no way to match: one of ipv4, ipv6, vlan, pppoe is wanted",
        "12: subscriber[0].down_bps: 1 is not from 64000 to 400000000000 b/s",
    ];
    assert_eq!(bad(text), expected);
}

#[test]
fn keys_of_tc_are_told_what_they_are_called_here() {
    let cases = [
        ("target", "target_us"),
        ("alpha", "alpha_hz"),
        ("beta", "beta_hz"),
        ("tupdate", "tupdate_us"),
        ("limit", "limit_packets"),
        ("step_thresh", "step_us"),
        ("coupling_factor", "coupling"),
        ("classic_protection", "classic_protection_percent"),
        ("max_rtt", "max_rtt_us"),
    ];
    for (tc, key) in cases {
        let expected = format!("2: profile.a.{tc}: unknown key; did you mean \"{key}\"?");
        assert_eq!(bad(&format!("[profile.a]\n{tc} = 1")), [expected]);
    }
    // a FIFO has no target to be meant
    let fifo = bad("[profile.a]\naqm = \"fifo\"\ntarget = 1");
    assert!(fifo[0].starts_with("3: profile.a.target: unknown key; the keys here are aqm, "), "{fifo:?}");
    assert_eq!(
        bad("[dataplane]\nlcores = { main = 1 }"),
        ["2: dataplane.lcores.main: unknown key; the keys here are compact, control, rx, tx"]
    );
}

#[test]
fn profiles_take_every_key_of_their_aqm() {
    let text = "aqm = \"dualpi2\"\ntarget_us = 5000\ntupdate_us = 8000\nalpha_hz = 0.5\nbeta_hz = 4\ncoupling = 3\n\
                ramp_min_us = 500\nramp_range_us = 700\nfloor_packets = 0\nclassic_protection_percent = 0\n\
                overload = \"overflow\"\nany_ect = true\nqueue_protection = false\ncompat = \"rfc\"\n\
                limit_us = 100000\nlimit_packets = 500\noverhead = \"docsis\"\necn = false\nmtu = 1600\nl4s = false";
    let expected = DualPi2 {
        target_us: 5000,
        tupdate_us: 8000,
        alpha_hz: 0.5,
        beta_hz: 4.0,
        coupling: 3,
        native: Native::Ramp { min_us: 500, range_us: 700 },
        floor_packets: 0,
        classic_protection_percent: 0,
        overload: Overload::Overflow,
        any_ect: true,
        queue_protection: false,
        compat: Compat::Rfc,
    };
    let config = good(&format!("[profile.x]\n{text}"));
    let profile = &config.profiles["x"];
    assert_eq!(profile.aqm, Aqm::DualPi2(expected));
    assert_eq!((profile.limit_us, profile.limit_packets, profile.mtu), (100_000, Some(500), 1600));
    assert_eq!((profile.ecn, profile.l4s), (false, false));
    assert_eq!(profile.overhead, Overhead { bytes: 18, mpu: 64, cells: Cells::None });
    assert_eq!(dualpi2("step_us = 0").native, Native::Step { threshold_us: 0 });
    assert_eq!(dualpi2("ramp_min_us = 1").native, Native::Ramp { min_us: 1, range_us: 400 });
    assert!(matches!(good("[profile.x]\naqm = \"pi2\"").profiles["x"].aqm, Aqm::Pi2(_)));
}

#[test]
fn a_fifo_has_no_ecn_and_none_of_the_keys_of_others() {
    let profile = &good("[profile.x]\naqm = \"fifo\"\nlimit_packets = 5").profiles["x"];
    assert_eq!((&profile.aqm, profile.ecn, profile.limit_packets), (&Aqm::Fifo, false, Some(5)));
    assert!(good("[profile.x]\naqm = \"fifo\"\necn = true").profiles["x"].ecn);
    assert_eq!(
        bad("[profile.x]\naqm = \"fifo\"\ntarget_us = 5"),
        [
            "3: profile.x.target_us: unknown key; the keys here are aqm, ecn, l4s, limit_packets, limit_us, mtu, overhead"
        ]
    );
}

#[test]
fn compat_linux_implies_the_kernels_values() {
    let profile = &good("[profile.x]\ncompat = \"linux\"").profiles["x"];
    assert_eq!(profile.aqm, Aqm::DualPi2(DualPi2::linux()));
    assert_eq!((profile.limit_packets, profile.limit_us), (Some(10_000), crate::profile::MAX_LIMIT_US));
    let Aqm::DualPi2(aqm) = &profile.aqm else { panic!("linux is dualpi2") };
    assert_eq!((aqm.native, aqm.floor_packets), (Native::Step { threshold_us: 1000 }, 0));
    let given = &good("[profile.x]\ncompat = \"linux\"\nstep_us = 500\nlimit_packets = 7\nlimit_us = 1000")
        .profiles["x"];
    assert_eq!((given.limit_packets, given.limit_us), (Some(7), 1000));
    assert_eq!(dualpi2("compat = \"linux\"\nstep_us = 500").native, Native::Step { threshold_us: 500 });
}

#[test]
fn gains_may_follow_from_round_trip_times() {
    let aqm = dualpi2("typical_rtt_us = 15000\nmax_rtt_us = 100000");
    assert_eq!((aqm.target_us, aqm.tupdate_us), (15_000, 15_000));
    assert!((aqm.alpha_hz - 0.15).abs() < 1e-12 && (aqm.beta_hz - 3.0).abs() < 1e-12);
    let aqm = dualpi2("max_rtt_us = 300000");
    assert_eq!((aqm.target_us, aqm.tupdate_us), (50_000, 50_000));
    assert!((aqm.alpha_hz - 0.1 / 1.8).abs() < 1e-12, "nothing is truncated: {}", aqm.alpha_hz);
}

#[test]
fn keys_that_exclude_each_other_and_values_out_of_range_are_named() {
    let cases = [
        (
            "step_us = 1\nramp_min_us = 2",
            "3: profile.x.ramp_min_us: excludes step_us: give one of ramp and step",
        ),
        (
            "compat = \"linux\"\nramp_range_us = 2",
            "3: profile.x.ramp_range_us: compat = \"linux\" marks with a step: step_us sets it",
        ),
        (
            "compat = \"linux\"\nfloor_packets = 2",
            "3: profile.x.floor_packets: compat = \"linux\" has no floor",
        ),
        (
            "max_rtt_us = 9\nalpha_hz = 1",
            "3: profile.x.alpha_hz: follows from typical_rtt_us and max_rtt_us: give either these or this",
        ),
        ("typical_rtt_us = 9\nmax_rtt_us = 8", "2: profile.x.typical_rtt_us: is longer than max_rtt_us"),
        (
            "aqm = \"pi2\"\nqueue_protection = true",
            "3: profile.x.queue_protection: protects L, which pi2 does not have",
        ),
        ("aqm = 5", "2: profile.x.aqm: 5 is not a string with something in it"),
        ("l4s = 1", "2: profile.x.l4s: 1 is not true or false"),
        ("limit_us = 99", "2: profile.x.limit_us: 99 is not an integer from 100 to 40000000"),
        ("limit_packets = 0", "2: profile.x.limit_packets: 0 is not an integer from 1 to 100000000"),
        ("mtu = 10", "2: profile.x.mtu: 10 is not an integer from 64 to 65535"),
        ("coupling = 0", "2: profile.x.coupling: 0 is not an integer from 1 to 255"),
        (
            "classic_protection_percent = 101",
            "2: profile.x.classic_protection_percent: 101 is not an integer from 0 to 100",
        ),
        ("alpha_hz = -1", "2: profile.x.alpha_hz: -1 is not a number from 0.000001 to 1000000"),
        ("beta_hz = nan", "2: profile.x.beta_hz: nan is not a number from 0.000001 to 1000000"),
        ("tupdate_us = 1", "2: profile.x.tupdate_us: 1 is not an integer from 100 to 60000000"),
        ("ramp_range_us = 0", "2: profile.x.ramp_range_us: 0 is not an integer from 1 to 60000000"),
        ("overload = \"mark\"", "2: profile.x.overload: \"mark\" is none of \"drop\", \"overflow\""),
        ("compat = \"bsd\"", "2: profile.x.compat: \"bsd\" is none of \"rfc\", \"linux\""),
        (
            "overhead = 5",
            "2: profile.x.overhead: 5 is neither tc-cake keywords nor { bytes = N, mpu = N, cells = .. }",
        ),
        ("overhead = { bytes = 257 }", "2: profile.x.overhead.bytes: 257 is not an integer from -64 to 256"),
        ("overhead = { mpu = -1 }", "2: profile.x.overhead.mpu: -1 is not an integer from 0 to 256"),
        (
            "overhead = { cells = \"gem\" }",
            "2: profile.x.overhead.cells: \"gem\" is none of \"none\", \"atm\", \"ptm\"",
        ),
        (
            "overhead = { size = 1 }",
            "2: profile.x.overhead.size: unknown key; the keys here are bytes, cells, mpu",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(bad(&format!("[profile.x]\n{text}")), [expected], "{text}");
    }
    assert!(
        bad("[profile.x]\noverhead = \"ether\"")[0]
            .starts_with("2: profile.x.overhead: \"ether\" is not a tc-cake")
    );
}

#[test]
fn overhead_may_be_spelled_out() {
    let overhead = |text: &str| good(&format!("[profile.x]\noverhead = {text}")).profiles["x"].overhead;
    let spelled = Overhead { bytes: -14, mpu: 64, cells: Cells::Atm };
    assert_eq!(overhead("{ bytes = -14, mpu = 64, cells = \"atm\" }"), spelled);
    assert_eq!(overhead("\"ethernet ether-vlan\""), Overhead { bytes: 42, mpu: 84, cells: Cells::None });
}

#[test]
fn seeds_are_checked_as_records_with_their_lines() {
    let text = "[[subscriber]]\nid = \"a\"\ndown_bps = 64000\nup_bps = 64_000\n[subscriber.match]\nipv4 = [\"10.0.0.1\"]\n\
                [[subscriber]]\nid = \"a\"\ndown_bps = 64000\nup_bps = 64000\nmatch = { ipv4 = [\"10.0.0.2\"] }\n\
                [[subscriber]]\nid = \"b\"\ndown_bps = 64000\nup_bps = 64000\nprofile = \"gold\"\nparent = \"olt\"\n\
                match = { ipv4 = [\"10.0.0.1\"], port = \"acc\" }\n\
                [[subscriber]]\nid = \"c\"\ndown_bps = 1e6\nup_bps = 64000\nmatch = { ipv4 = [\"10.0.0.4\"], dscp = 1 }\n\
                [[subscriber]]\nid = \"d\"\ndown_bps = 64000\nup_bps = 64000\n[subscriber.match]\nipv4 = [\"10.0.0.4\",\n\"10.0.0.5/8\"]\n";
    let expected = [
        "8: subscriber[1].id: \"a\" is the id of subscriber[0] already",
        "16: subscriber[2].profile: there is no profile \"gold\"",
        "17: subscriber[2].parent: there is no parent \"olt\"",
        "18: subscriber[2].match.port: there is no access port \"acc\"",
        "18: subscriber[2].match: prefix 10.0.0.1/32 on port acc of \"b\" is already claimed by \"a\"",
        "21: subscriber[3].down_bps: invalid type: floating point `1000000.0`, expected whole bits per second, for instance 50000000",
        "23: subscriber[3].match.dscp: unknown field `dscp`, expected one of `ipv4`, `ipv6`, `vlan`, `pppoe`, `port`",
        "30: subscriber[4].match.ipv4[1]: \"10.0.0.5/8\" has host bits set; the prefix is \"10.0.0.0/8\"",
    ];
    assert_eq!(bad(text), expected);
}

#[test]
fn aggregates_of_the_file_are_checked_and_those_above_come_first() {
    let one =
        |id: &str, more: &str| format!("[[parent]]\nid = \"{id}\"\ndown_bps = 64000\nup_bps = 64000\n{more}");
    let subscriber = "[[subscriber]]\nid = \"a\"\ndown_bps = 64000\nup_bps = 64000\nparent = \"pon\"\nmatch = { ipv4 = [\"10.0.0.1\"] }\n";
    let config = good(&format!("{subscriber}{}{}", one("pon", "parent = \"site\"\n"), one("site", "")));
    let ids: Vec<_> = config.parents.iter().map(|parent| parent.id.as_str()).collect();
    assert_eq!(ids, ["site", "pon"]);
    assert_eq!(config.subscribers[0].parent.as_deref(), Some("pon"));
    let text = [
        one("a", "parent = \"b\"\n"),
        one("b", "parent = \"a\"\n"),
        one("a", ""),
        one("c", "parent = \"none\"\n"),
        "[[parent]]\nid = \"d\"\ndown_bps = 1\nup_bps = 64000\nmatch = 1\n".to_owned(),
    ];
    let expected = [
        "10: parent[1].parent: \"b\" would be above itself: \"b\" below \"a\" below \"b\"",
        "12: parent[2].id: \"a\" is the id of parent[0] already",
        "19: parent[3].parent: there is no parent \"none\"",
        "22: parent[4].down_bps: 1 is not from 64000 to 400000000000 b/s",
        "24: parent[4].match: unknown field `match`, expected one of `id`, `parent`, `down_bps`, `up_bps`",
    ];
    assert_eq!(bad(&text.concat()), expected);
}

#[test]
fn a_file_that_cannot_be_read_is_one_problem() {
    let problems = Config::load(std::path::Path::new("/nonexistent/sluice.toml")).unwrap_err();
    assert!(problems.to_string().starts_with("/nonexistent/sluice.toml: cannot be read: "), "{problems}");
}

#[test]
fn running_needs_ports_on_both_sides() {
    assert!(good(EXAMPLE).check_ports("f").is_ok());
    let problems = good("").check_ports("f").unwrap_err();
    assert_eq!(problems.to_string(), "f: port: a core and an access port are needed to run");
}

#[test]
fn what_is_written_reads_as_the_same() {
    for text in [EXAMPLE, "", "[dataplane]\nlcores = { compact = \"3@0\" }\nseed = 0"] {
        let config = good(text);
        assert_eq!(good(&config.to_toml()), config);
    }
}
