// SPDX-License-Identifier: Apache-2.0
//! The buckets of the subscriber table under every interleaving of one writer and a reader, stale reads included
//! (loom; at most three preemptions a run, which is what its authors advise).
//!
//! It is the file of the engine itself, over loom's atomics in the place of the standard ones.

#[expect(dead_code, reason = "only lookups and changes are checked here")]
#[path = "../src/table/buckets.rs"]
mod buckets;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

use buckets::{Bucket, Buckets};
use loom::sync::Arc;
use loom::thread;

type Table = Buckets<Box<[Bucket]>>;

fn table(buckets: usize) -> Table {
    Buckets::new((0..buckets).map(|_| Bucket::empty()).collect())
}

/// A key by its first and second bucket; `number` tells those apart that share both.
fn key(first: u64, second: u64, number: u64) -> u64 {
    number << 8 | second << 32 | first
}

fn check(scenario: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(scenario);
}

/// Fills a bucket with keys that could also live in `second`.
fn fill(table: &Table, first: u64, second: u64) {
    for number in 1..=5_u32 {
        assert_eq!(table.put(key(first, second, number.into()), 100 + number), Ok(None));
    }
}

#[test]
fn a_key_that_moves_to_its_second_bucket_is_never_lost() {
    check(|| {
        let table = Arc::new(table(4));
        fill(&table, 0, 2);
        fill(&table, 1, 3);
        let reader = {
            let table = Arc::clone(&table);
            // the search takes the first key of the first bucket, the check below proves it
            thread::spawn(move || assert_eq!(table.get(key(0, 2, 1)), Some(101)))
        };
        table.put(key(0, 1, 9), 9).unwrap();
        reader.join().unwrap();
        assert_eq!(table.get(key(0, 2, 1)), Some(101));
        assert_eq!(table.get(key(0, 1, 9)), Some(9));
        assert_eq!(table.remove(key(0, 2, 1)), Some(101));
    });
}

#[test]
fn a_key_that_moves_back_to_its_first_bucket_is_never_lost() {
    check(|| {
        let table = Arc::new(table(4));
        fill(&table, 0, 3);
        // lives in bucket 2, because 0 is full
        table.put(key(0, 2, 7), 7).unwrap();
        for number in 1..=4 {
            table.put(key(2, 3, number), 1).unwrap();
        }
        fill(&table, 3, 1);
        table.remove(key(0, 3, 1));
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || assert_eq!(table.get(key(0, 2, 7)), Some(7)))
        };
        // 2 and 3 are full: the first key of 2 makes room by going back to 0
        table.put(key(2, 3, 9), 9).unwrap();
        reader.join().unwrap();
        assert_eq!(table.get(key(0, 2, 7)), Some(7));
        assert_eq!(table.get(key(2, 3, 9)), Some(9));
    });
}

#[test]
fn a_slot_taken_by_another_key_never_lends_its_value() {
    check(|| {
        let table = Arc::new(table(2));
        table.put(key(0, 1, 1), 1).unwrap();
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let found = table.get(key(0, 1, 1));
                assert!(matches!(found, None | Some(1)), "{found:?}");
            })
        };
        table.remove(key(0, 1, 1));
        table.put(key(0, 1, 2), 2).unwrap();
        reader.join().unwrap();
        assert_eq!(table.get(key(0, 1, 1)), None);
    });
}

#[test]
fn a_key_taken_out_and_put_back_elsewhere_has_its_old_value_or_the_new_or_none() {
    check(|| {
        let table = Arc::new(table(2));
        table.put(key(0, 1, 1), 1).unwrap();
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let found = table.get(key(0, 1, 1));
                assert!(matches!(found, None | Some(1 | 3)), "{found:?}");
            })
        };
        table.remove(key(0, 1, 1));
        table.put(key(0, 1, 2), 2).unwrap();
        table.put(key(0, 1, 1), 3).unwrap();
        reader.join().unwrap();
        assert_eq!(table.get(key(0, 1, 1)), Some(3));
    });
}

#[test]
fn a_key_whose_value_changes_has_one_or_the_other() {
    check(|| {
        let table = Arc::new(table(2));
        table.put(key(0, 1, 1), 1).unwrap();
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let first = table.get(key(0, 1, 1));
                let second = table.get(key(0, 1, 1));
                assert!(matches!((first, second), (Some(1), Some(1 | 2)) | (Some(2), Some(2))));
            })
        };
        table.put(key(0, 1, 1), 2).unwrap();
        reader.join().unwrap();
    });
}
