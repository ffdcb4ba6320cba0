// SPDX-License-Identifier: Apache-2.0
//! Records of aggregates, and where they may stand.

use serde_json::json;

use super::*;

#[test]
fn a_record_reads_and_writes_itself() {
    let json = r#"{"id":"pon-1","parent":"olt-1","down_bps":2500000000,"up_bps":1250000000}"#;
    let parent = Parent::from_json(json.as_bytes()).unwrap();
    assert_eq!(parent.to_json(), json);
    assert_eq!(Parent::from_value(&parent.to_value()), Ok(parent.clone()));
    let root = Parent::from_json(br#"{"id":"site","down_bps":64000,"up_bps":64000}"#).unwrap();
    assert_eq!(root.to_json(), r#"{"id":"site","parent":null,"down_bps":64000,"up_bps":64000}"#);
    let patched = parent.merge_patch(&json!({"parent": null, "up_bps": 1_000_000})).unwrap();
    assert_eq!(patched, Parent { parent: None, up_bps: 1_000_000, ..parent.clone() });
    assert!(parent.merge_patch(&json!({"id": "x"})).unwrap_err().to_string().contains("keeps its id"));
}

#[test]
fn all_that_is_wrong_with_a_record_is_told() {
    let wrong = Parent::from_json(br#"{"id":"bulk","parent":" a","down_bps":1,"up_bps":"10M"}"#).unwrap_err();
    let fields: Vec<_> = wrong.0.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["up_bps", "id", "parent", "down_bps"], "{wrong}");
    let unknown = Parent::from_json(br#"{"id":"a","down_bps":64000,"up_bps":64000,"rate":1}"#).unwrap_err();
    assert_eq!(unknown.0[0].field, "rate");
    assert!(Parent::from_json(b"[]").unwrap_err().to_string().contains("an object"));
}

fn chain(levels: usize) -> Forest {
    let mut forest = Forest::default();
    for level in 0..levels {
        let above = level.checked_sub(1).map(|above| above.to_string());
        forest.place(&level.to_string(), above.as_deref()).unwrap();
    }
    forest
}

#[test]
fn loops_are_refused_by_the_way_they_take() {
    let mut forest = chain(3);
    let error = forest.place("0", Some("2")).unwrap_err();
    assert_eq!(error.to_string(), r#""0" would be above itself: "0" below "2" below "1" below "0""#);
    assert!(matches!(forest.place("x", Some("x")), Err(Misplaced::Loop { .. })));
    assert!(matches!(forest.place("1", Some("1")), Err(Misplaced::Loop { .. })));
    assert!(!forest.contains("x"));
    // the two ends change places in two steps
    forest.place("1", None).unwrap();
    forest.place("0", Some("2")).unwrap();
}

#[test]
fn eight_levels_are_the_most_from_above_and_from_below() {
    let mut forest = chain(8);
    let error = forest.place("8", Some("7")).unwrap_err();
    assert_eq!(error.to_string(), r#""8" below "7" would make 9 levels; 8 is the most"#);
    forest.place("top", None).unwrap();
    assert!(matches!(forest.place("0", Some("top")), Err(Misplaced::TooDeep { levels: 9, .. })));
    forest.place("1", Some("top")).unwrap();
    assert_eq!(forest.children("0"), (0, 0));
    forest.place("8", Some("0")).unwrap();
}

#[test]
fn what_is_in_use_stays_and_what_is_not_there_adopts_nobody() {
    let mut forest = chain(2);
    assert_eq!(forest.adopt(None, Some("9")), Err(Misplaced::NoParent("9".into())));
    assert_eq!(forest.place("x", Some("9")), Err(Misplaced::NoParent("9".into())));
    forest.adopt(None, Some("1")).unwrap();
    let error = forest.remove("0").unwrap_err();
    assert_eq!(
        error.to_string(),
        r#""0" has 0 subscribers and 1 parents below it; move or delete those first"#
    );
    assert_eq!(forest.remove("1"), Err(Misplaced::InUse { id: "1".into(), subscribers: 1, parents: 0 }));
    forest.adopt(Some("1"), Some("0")).unwrap();
    forest.remove("1").unwrap();
    forest.adopt(Some("0"), None).unwrap();
    forest.remove("0").unwrap();
    forest.remove("never there").unwrap();
    assert!(forest.is_empty());
}
