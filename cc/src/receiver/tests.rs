// SPDX-License-Identifier: Apache-2.0
use super::*;

fn receiver() -> Receiver {
    Receiver::new(ReceiverOptions::default())
}

fn arrive(receiver: &mut Receiver, ms: u64, seq: u64, ecn: Codepoint) -> bool {
    receiver.on_packet(Nanos::from_millis(ms), seq, 0, ecn, Nanos::from_millis(ms), 100)
}

#[test]
fn every_second_packet_is_acknowledged_at_once_and_a_lone_one_after_the_delay() {
    let mut r = receiver();
    arrive(&mut r, 1, 0, Codepoint::Ect1);
    assert_eq!(r.ack_due(), Some(Nanos::from_millis(26)));
    arrive(&mut r, 2, 1, Codepoint::Ect1);
    assert_eq!(r.ack_due(), Some(Nanos::from_millis(2)));
    assert!(r.acknowledge(Nanos::from_millis(2)).is_some());
    assert_eq!(r.ack_due(), None);
}

#[test]
fn a_gap_and_a_change_of_the_mark_are_acknowledged_at_once() {
    let mut r = receiver();
    arrive(&mut r, 1, 0, Codepoint::Ect1);
    r.acknowledge(Nanos::from_millis(1));
    arrive(&mut r, 2, 2, Codepoint::Ect1);
    assert_eq!(r.ack_due(), Some(Nanos::from_millis(2)));
    r.acknowledge(Nanos::from_millis(2));
    arrive(&mut r, 3, 3, Codepoint::Ce);
    assert_eq!(r.ack_due(), Some(Nanos::from_millis(3)));
    r.acknowledge(Nanos::from_millis(3));
    arrive(&mut r, 4, 4, Codepoint::Ect1);
    assert_eq!(r.ack_due(), Some(Nanos::from_millis(4)));
}

#[test]
fn fields_are_counted_as_they_arrive() {
    let mut r = receiver();
    let fields = [Codepoint::NotEct, Codepoint::Ect0, Codepoint::Ect0, Codepoint::Ect1, Codepoint::Ce];
    for (seq, ecn) in (0..).zip(fields) {
        assert!(arrive(&mut r, seq, seq, ecn));
    }
    assert_eq!(r.ecn(), EcnCounts { not_ect: 1, ect1: 1, ect0: 2, ce: 1 });
    assert_eq!((r.received(), r.bytes(), r.missing()), (5, 500, 0));
}

#[test]
fn duplicates_and_absurd_numbers_are_counted_apart() {
    let mut r = receiver();
    assert!(arrive(&mut r, 1, 0, Codepoint::Ect1));
    assert!(!arrive(&mut r, 2, 0, Codepoint::Ce));
    assert!(!arrive(&mut r, 3, u64::MAX, Codepoint::Ce));
    assert!(
        !r.on_packet(Nanos::ZERO, 5, 6, Codepoint::Ce, Nanos::ZERO, 100),
        "oldest beyond the packet itself"
    );
    assert_eq!((r.received(), r.duplicates(), r.ecn().ce), (1, 3, 0));
}

#[test]
fn a_reordered_packet_lowers_the_missing_count() {
    let mut r = receiver();
    arrive(&mut r, 1, 0, Codepoint::Ect1);
    arrive(&mut r, 2, 3, Codepoint::Ect1);
    assert_eq!(r.missing(), 2);
    assert!(arrive(&mut r, 3, 1, Codepoint::Ect1));
    let frame = r.report(Nanos::from_millis(4)).unwrap();
    assert_eq!((frame.largest, frame.cumulative, frame.missing, frame.received), (3, 2, 1, 3));
    assert_eq!(frame.bitmap[0], 0b1101);
    assert_eq!(frame.held, Nanos::from_millis(1));
}

#[test]
fn the_senders_oldest_number_moves_the_cumulative_one_over_a_hole() {
    let mut r = receiver();
    arrive(&mut r, 1, 0, Codepoint::Ect1);
    arrive(&mut r, 2, 2, Codepoint::Ect1);
    assert!(r.on_packet(Nanos::from_millis(3), 3, 2, Codepoint::Ect1, Nanos::ZERO, 100));
    assert_eq!(r.report(Nanos::from_millis(3)).unwrap().cumulative, 4);
    assert_eq!(r.missing(), 1, "what was given up stays missing");
}
