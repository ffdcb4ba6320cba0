// SPDX-License-Identifier: Apache-2.0
//! The sample files operators have, and what goes wrong in them.

mod parents;
mod properties;

use super::*;

const CURRENT: &[u8] = include_bytes!("../../tests/data/shaped_devices_current.csv");
const MISMATCH: &[u8] = include_bytes!("../../tests/data/shaped_devices_header_mismatch.csv");
const LEGACY: &[u8] = include_bytes!("../../tests/data/shaped_devices_legacy.csv");

fn good(bytes: &[u8]) -> Imported {
    read("f", bytes, &Options::default()).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The problems, one a line, without the file's name.
fn bad(bytes: &[u8]) -> Vec<String> {
    let problems = read("f", bytes, &Options::default()).expect_err("the file has problems");
    problems.0.iter().map(|problem| problem.to_string().trim_start_matches("f:").to_owned()).collect()
}

/// id, down, up, addresses.
fn summary(imported: &Imported) -> Vec<(String, u64, u64, String)> {
    let each = imported.subscribers.iter().map(|subscriber| {
        let addresses = subscriber.keys().map(|key| key.to_string().replace("prefix ", ""));
        let addresses = addresses.collect::<Vec<_>>().join(" ");
        (subscriber.id.clone(), subscriber.down_bps, subscriber.up_bps, addresses)
    });
    each.collect()
}

fn line(id: &str, down: u64, up: u64, addresses: &str) -> (String, u64, u64, String) {
    (id.to_owned(), down, up, addresses.to_owned())
}

#[test]
fn the_current_layout_merges_devices_of_one_circuit() {
    let imported = good(CURRENT);
    let expected = [
        line(
            "20001",
            155_000_000,
            20_000_000,
            "100.64.0.1/32 100.64.0.2/32 100.64.0.3/32 2001:db8:0:100::/56",
        ),
        line("20002", 2_500_000, 1_000_000, "100.64.0.8/29 2001:db8:0:200::/56"),
        line("20003", 10_500_000, 5_250_000, "2001:db8:0:300::/56"),
        line("20004", 1_000_000_000, 1_000_000_000, "100.64.0.20/32"),
    ];
    assert_eq!(summary(&imported), expected);
    assert_eq!(imported.lines, [3, 5, 6, 7]);
    assert_eq!(imported.format, Format::ShapedDevices);
    assert!(imported.subscribers.iter().all(|subscriber| subscriber.parent.is_none()));
    assert!(imported.names_parents());
    assert!(imported.notes.iter().any(|note| note.contains("2 rows name a queue discipline")));
}

#[test]
fn rows_of_the_older_layout_under_a_newer_header_are_read_right() {
    let imported = good(MISMATCH);
    let expected = [
        line("10001", 155_000_000, 20_000_000, "100.64.0.1/32 100.64.0.2/32 2001:db8:0:100::/56"),
        line("10002", 2_500_000, 1_000_000, "100.64.0.3/32 2001:db8:0:200::/56"),
        line("10003", 10_500_000, 5_250_000, "100.64.0.4/32 2001:db8:0:300::/56"),
    ];
    assert_eq!(summary(&imported), expected);
    assert!(imported.notes.iter().any(|note| note.starts_with("3 rows have another layout")));
}

#[test]
fn the_older_layout_is_read_by_its_own_header() {
    let imported = good(LEGACY);
    let expected = [
        line("30001", 155_000_000, 20_000_000, "100.64.1.1/32"),
        line("30002", 105_000_000, 18_000_000, "100.64.1.2/32 100.64.1.3/32 2001:db8:1:200::/56"),
        line("30003", 105_000_000, 18_000_000, "100.64.1.4/32"),
    ];
    assert_eq!(summary(&imported), expected);
    assert!(!imported.notes.iter().any(|note| note.contains("another layout")));
}

#[test]
fn older_rows_padded_to_the_width_of_the_header_are_found_by_their_addresses() {
    let text = "Circuit ID,Circuit Name,Device ID,Device Name,Parent Node,Parent Node ID,Anchor Node ID,MAC,IPv4,IPv6,\
                Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps,Comment\n\
                1,n,d,dn,p,,100.64.0.1,,1,1,50,10,,,\n\
                2,n,d,dn,p,,,,100.64.0.2,,1,1,60,12,\n";
    let expected = [
        line("1", 50_000_000, 10_000_000, "100.64.0.1/32"),
        line("2", 60_000_000, 12_000_000, "100.64.0.2/32"),
    ];
    assert_eq!(summary(&good(text.as_bytes())), expected);
}

#[test]
fn a_decimal_comma_without_quotes_shifts_no_rate() {
    let header = "Circuit ID,Circuit Name,Device ID,Device Name,Parent Node,Parent Node ID,Anchor Node ID,MAC,IPv4,IPv6,\
                  Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps,Comment\n";
    let legacy = "Circuit ID,Circuit Name,Device ID,Device Name,Parent Node,MAC,IPv4,IPv6,Download Min Mbps,\
                  Upload Min Mbps,Download Max Mbps,Upload Max Mbps,Comment\n";
    let number = |n| {
        format!(
            "2: Comment: \"{n}\" is a number where the header, of 15 columns, has a comment, and the row has a field more: a decimal comma wants quotes"
        )
    };
    let fields = |n| format!("2: has {n} fields; rows have 13, 15 or 16");
    for (head, row, problem) in [
        (header, "1,n,1,d,,,,,10.0.0.1,,0,5,1,100,20,", number(20)),
        (header, "1,n,1,d,,,,,10.0.0.1,,1,1,2,5,10,", number(10)),
        (header, "1,n,1,d,,,,,10.0.0.1,,1,1,10,5,10,5,", fields(17)),
        (legacy, "1,n,1,d,,,10.0.0.1,,1,1,1,5,10,", fields(14)),
    ] {
        assert_eq!(bad(format!("{head}{row}\n").as_bytes()), [problem], "{row}");
    }
}

#[test]
fn a_header_in_another_order_and_without_units_is_followed() {
    let text = "\u{feff}circuit id,IPv6,IPv4,Upload Max,Download Max\nA 1,,10.0.0.1,1.5,2.25\n";
    assert_eq!(summary(&good(text.as_bytes())), [line("A 1", 2_250_000, 1_500_000, "10.0.0.1/32")]);
}

#[test]
fn rows_without_any_header_are_read_by_their_number_of_fields() {
    let text = "1,n,d,dn,p,,100.64.0.1,,1,1,50,10,\n2,n,d,dn,p,,,,100.64.0.2,,1,1,60,12,\n";
    assert_eq!(good(text.as_bytes()).subscribers.len(), 2);
}

#[test]
fn every_bad_row_is_named_with_line_column_and_reason() {
    let text = "Circuit ID,Circuit Name,Device ID,Device Name,Parent Node,MAC,IPv4,IPv6,\
                Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps,Comment\n\
                1,n,d,dn,p,,100.64.0.1,,1,1,50,10,\n\
                # comment\n\
                \n\
                2#,n,d,dn,p,,100.64.0.2,,1,1,50,10,\n\
                3,n,d,dn,p,,100.64.0.300,,1,x,fast,0.01,\n\
                4,n,d,dn,p,,,,1,1,50,10,\n\
                1,n,d,dn,p,,100.64.0.5,,1,1,60,10,\n\
                5,n,d,dn,p,,100.64.0.9/29,,1,1,500000,10,\n\
                6,n,d,dn,p,,100.64.0.7\n\
                7,n,d,dn,p,,100.64.0.1,,1,1,50,10,\n\
                ,n,d,dn,p,,100.64.0.8,,1,1,NaN,10,\n";
    let expected = [
        "5: Circuit ID: \"2#\" has a # in it",
        "6: Upload Min Mbps: \"x\" is not a number",
        "6: Download Max Mbps: \"fast\" is not a number",
        "6: Upload Max Mbps: \"0.01\" Mb/s is not from 0.064 to 400000",
        "6: IPv4: \"100.64.0.300\" is not an IPv4 prefix",
        "7: IPv4: is empty, and so is IPv6: at least one address is wanted",
        "8: Download Max Mbps: 60000000 b/s, but line 2 gives circuit 1 50000000 b/s",
        "9: Download Max Mbps: \"500000\" Mb/s is not from 0.064 to 400000",
        "9: IPv4: \"100.64.0.9/29\" has host bits set; the prefix is \"100.64.0.8/29\"",
        "10: has 7 fields; rows have 13, 15 or 16",
        "11: match: prefix 100.64.0.1/32 of \"7\" is already claimed by \"1\" (line 2)",
        "12: Circuit ID: is empty",
        "12: Download Max Mbps: \"NaN\" is not a number",
    ];
    assert_eq!(bad(text.as_bytes()), expected);
}

#[test]
fn a_header_that_lacks_a_column_is_named() {
    let text = "Circuit ID,IPv4,IPv6,Download Max Mbps\n1,10.0.0.1,,5\n";
    assert_eq!(bad(text.as_bytes()), ["1: Upload Max Mbps: is a column that the header lacks"]);
}

#[test]
fn lines_of_json_are_records_and_each_bad_one_is_named() {
    let text = r#"{"id":"a","down_bps":64000,"up_bps":64000,"match":{"ipv4":["10.0.0.1"]}}

{"id":"b","down_bps":1000,"up_bps":64000,"match":{"ipv4":["10.0.0.2"]}}
{"id":"a","down_bps":64000,"up_bps":64000,"match":{"ipv4":["10.0.0.3"]}}
{"id":"c","down_bps":64000,"up_bps":64000,"match":{"ipv4":["10.0.0.1/32"]}}
{"id":"d","down_bps":64000,"up_bps":"fast","match":{"ipv4":["10.0.0.4"]}}
{"id":"e","down_bps":64000,"up_bps":64000,"parent":"olt","match":{"ipv4":["10.0.0.5"]}}
{"id":"f","speed":1,"down_bps":64000,"up_bps":64000,"match":{"ipv4":["10.0.0.6"]}}
{"id":"g"
"#;
    let expected = [
        "3: down_bps: 1000 is not from 64000 to 400000000000 b/s",
        "4: id: \"a\" is the id of line 1 already",
        "5: match: prefix 10.0.0.1/32 of \"c\" is already claimed by \"a\" (line 1)",
        "6: up_bps: invalid type: string \"fast\", expected whole bits per second, for instance 50000000",
        "8: speed: unknown field `speed`, expected one of `id`, `down_bps`, `up_bps`, `profile`, `parent`, `match`",
        "9: not JSON: EOF while parsing an object at column 9",
    ];
    assert_eq!(bad(text.as_bytes()), expected);
    let first = text.lines().next().unwrap();
    let imported = good(first.as_bytes());
    assert_eq!((imported.format, imported.subscribers.len()), (Format::Ndjson, 1));
}

#[test]
fn items_of_an_array_have_the_lines_they_begin_on() {
    let text = "[\n  {\"id\":\"a\",\"down_bps\":64000,\n   \"up_bps\":64000,\"match\":{\"ipv4\":[\"10.0.0.1\"]}},\n\
                  {\"id\":\"b\",\n   \"down_bps\":1}\n]";
    let expected = [
        "4: down_bps: 1 is not from 64000 to 400000000000 b/s",
        "4: up_bps: is missing",
        "4: match: has no way to match: one of ipv4, ipv6, vlan, pppoe is wanted",
    ];
    assert_eq!(bad(text.as_bytes()), expected);
    assert!(bad(b"[{]").first().unwrap().starts_with("1: not a JSON array"));
    assert_eq!(good(b"[]").subscribers, []);
    assert_eq!(good(b"[\n]").format, Format::JsonArray);
}

#[test]
fn content_is_told_apart() {
    let subscribers = |format| Content::Subscribers(format);
    let cases = [
        ("[dataplane]\nseed = 1", Content::Config),
        ("# shaper\n\n[[port]]\nname = \"a,b\"", Content::Config),
        ("seed = [1, 2]", Content::Config),
        ("", Content::Config),
        ("{\"id\":\"a\"}", subscribers(Format::Ndjson)),
        ("{\"match\":{\"ipv4\":[]}}", subscribers(Format::Ndjson)),
        ("{}", subscribers(Format::Ndjson)),
        ("{\"", subscribers(Format::Ndjson)),
        ("{\n \"Site_1\" : { \"type\": \"site\" } }", Content::Network),
        ("  [ {\"id\":\"a\"} ]", subscribers(Format::JsonArray)),
        ("[\n\n{\"id\":\"a\"}]", subscribers(Format::JsonArray)),
        ("[]", subscribers(Format::JsonArray)),
        ("# c\nCircuit ID,Circuit Name", subscribers(Format::ShapedDevices)),
        ("1,\"a=b\",c", subscribers(Format::ShapedDevices)),
        ("# users\n\"anna\" * \"pass, word\" 100.64.0.1 20480/10240", subscribers(Format::ChapSecrets)),
        ("anna * secret *", subscribers(Format::ChapSecrets)),
        ("anna * secret nowhere", Content::Config),
    ];
    for (text, expected) in cases {
        assert_eq!(detect(text), expected, "{text:?}");
    }
}

#[test]
fn what_is_not_text_or_nothing_known_is_refused() {
    assert_eq!(bad(b"1,a\n2,\xff\n"), ["2: is not UTF-8 text; save the file as UTF-8"]);
    assert_eq!(
        bad(b"hello"),
        ["1: is neither NDJSON nor a JSON array nor ShapedDevices.csv nor chap-secrets"]
    );
    assert_eq!(good(b"\n").subscribers, []);
    let network = bad(b"{\"Site\":{}}");
    assert_eq!(network, ["1: is a network of parents, not subscribers; it goes with --network beside them"]);
}

#[test]
fn users_of_chap_secrets_have_their_address_and_rate() {
    let text = b"# client server secret address rate\n\
        \"anna b\" * \"pass # word\" 100.64.0.1 20480/10240  # a plan\n\n\
        carl * 'it''s' 100.64.0.2 10M\nroaming * x * 5000\nfree * x 100.64.0.3\nd\\ e * x 100.64.0.4 512/512\n";
    let imported = good(text);
    let expected = [
        line("anna b", 20_480_000, 10_240_000, "100.64.0.1/32"),
        line("carl", 10_000_000, 10_000_000, "100.64.0.2/32"),
        line("d e", 512_000, 512_000, "100.64.0.4/32"),
    ];
    assert_eq!(summary(&imported), expected);
    assert_eq!((imported.format, &*imported.lines), (Format::ChapSecrets, &[2, 4, 7][..]));
    let notes = ["1 user with no address of their own, left out", "1 user with no rate, left out"];
    assert_eq!(imported.notes, notes);
    let wrong = b"a * s3cret 100.64.0.1 fast\nb * s3cret\n\"c * s3cret 1 2\nd * s3cret 100.64.0.1 1/1\n";
    let told = bad(wrong);
    assert_eq!(told.len(), 4, "{told:?}");
    for (line, begin) in [
        "1: rate: \"fast\" is no rate",
        "2: is no line of chap-secrets",
        "3: a quote is never",
        "4: rate: \"1/1\"",
    ]
    .iter()
    .enumerate()
    {
        assert!(told[line].starts_with(begin), "{}", told[line]);
        assert!(!told[line].contains("s3cret"), "{}", told[line]);
    }
}
