// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::{EcnCounts, Kind, SenderOptions, build};

const RTT: Nanos = Nanos::from_millis(20);

fn transmitter(kind: Kind, packets: Option<u64>) -> Transmitter {
    let options = TransmitterOptions { packets, ..TransmitterOptions::default() };
    Transmitter::new(build(kind, &SenderOptions { mss: 1000, ..SenderOptions::default() }), &options)
}

fn send_all(tx: &mut Transmitter, now: Nanos) -> Vec<Outgoing> {
    let mut out = Vec::new();
    while tx.next(now) == Next::Send {
        out.push(tx.commit(now));
    }
    out
}

/// Everything below `through` has arrived, of which `ce` marked.
fn all_below(through: u64, ce: u64, echo: Nanos) -> AckFrame {
    AckFrame {
        largest: through - 1,
        cumulative: through,
        bitmap: [0; 4],
        received: through,
        ecn: EcnCounts { ect1: through - ce, ce, ..EcnCounts::default() },
        echo,
        ..AckFrame::default()
    }
}

#[test]
fn the_first_flight_is_ten_packets() {
    let mut tx = transmitter(Kind::Cubic, None);
    let out = send_all(&mut tx, Nanos::ZERO);
    assert_eq!(out.len(), 10);
    assert_eq!(out[9], Outgoing { seq: 9, oldest: 0, bytes: 1000, codepoint: Codepoint::NotEct });
    assert_eq!(tx.next(Nanos::ZERO), Next::Wait);
}

#[test]
fn a_short_flow_ends_when_all_of_it_is_delivered() {
    let mut tx = transmitter(Kind::Reno, Some(3));
    assert_eq!(send_all(&mut tx, Nanos::ZERO).len(), 3);
    assert_eq!(tx.next(RTT), Next::Wait);
    assert!(tx.on_ack(RTT, &all_below(3, 0, Nanos::ZERO)));
    assert_eq!(tx.next(RTT), Next::Done);
    assert_eq!(tx.deadline(), None);
}

#[test]
fn what_a_short_flow_loses_is_sent_again() {
    let mut tx = transmitter(Kind::Reno, Some(3));
    send_all(&mut tx, Nanos::ZERO);
    tx.on_ack(RTT, &all_below(1, 0, Nanos::ZERO));
    let deadline = tx.deadline().unwrap();
    assert_eq!(deadline, RTT + Nanos::from_millis(200), "least time-out");
    tx.on_timer(Nanos(deadline.0 - 1));
    assert_eq!(tx.totals().timeouts, 0);
    tx.on_timer(deadline);
    assert_eq!((tx.totals().timeouts, tx.totals().lost), (1, 2));
    assert_eq!(tx.sender().cwnd(), 1000);
    assert_eq!(send_all(&mut tx, deadline).len(), 1);
    // The next time-out takes twice as long (RFC 6298 5.5).
    assert_eq!(tx.deadline(), Some(deadline + Nanos::from_millis(400)));
}

#[test]
fn an_early_timeout_is_undone_when_everything_turns_up() {
    let mut tx = transmitter(Kind::Reno, None);
    send_all(&mut tx, Nanos::ZERO);
    let late = Nanos::from_secs(1);
    tx.on_timer(late);
    assert_eq!((tx.totals().lost, tx.sender().cwnd()), (10, 1000));
    tx.on_ack(late + RTT, &all_below(10, 0, Nanos::ZERO));
    assert_eq!((tx.totals().lost, tx.totals().late, tx.totals().acked), (0, 10, 10));
    assert!(tx.sender().cwnd() >= 10_000);
}

#[test]
fn marks_are_counted_once_whatever_the_order_of_the_frames() {
    let mut tx = transmitter(Kind::Prague, None);
    send_all(&mut tx, Nanos::ZERO);
    assert!(tx.on_ack(RTT, &all_below(6, 3, Nanos::ZERO)));
    assert!(!tx.on_ack(RTT, &all_below(4, 2, Nanos::ZERO)), "an older frame");
    tx.on_ack(RTT, &all_below(10, 3, Nanos::ZERO));
    assert_eq!((tx.totals().acked, tx.totals().marked), (10, 3));
}

#[test]
fn more_marks_than_packets_wait_for_the_next_frame() {
    let mut tx = transmitter(Kind::Prague, None);
    send_all(&mut tx, Nanos::ZERO);
    let mut frame = all_below(2, 0, Nanos::ZERO);
    frame.ecn.ce = 100;
    tx.on_ack(RTT, &frame);
    assert_eq!(tx.totals().marked, 2);
}

#[test]
fn a_rewritten_codepoint_ends_the_use_of_ect1_for_good() {
    let mut tx = transmitter(Kind::Prague, None);
    assert_eq!(send_all(&mut tx, Nanos::ZERO)[0].codepoint, Codepoint::Ect1);
    let mut frame = all_below(5, 0, Nanos::ZERO);
    frame.ecn = EcnCounts { not_ect: 1, ect1: 4, ..EcnCounts::default() };
    tx.on_ack(RTT, &frame);
    assert_eq!(tx.sender().codepoint(), Codepoint::NotEct);
    tx.on_ack(RTT + RTT, &all_below(10, 0, Nanos::ZERO));
    assert_eq!(tx.sender().codepoint(), Codepoint::NotEct);
}

#[test]
fn time_the_receiver_held_the_packet_is_not_path_time() {
    let mut tx = transmitter(Kind::Reno, None);
    send_all(&mut tx, Nanos::ZERO);
    let mut frame = all_below(2, 0, Nanos::ZERO);
    frame.held = Nanos::from_millis(5);
    tx.on_ack(RTT, &frame);
    assert_eq!(tx.rtt().latest(), Nanos::from_millis(15));
}

#[test]
fn a_sample_from_the_future_or_held_beyond_belief_does_no_harm() {
    let mut tx = transmitter(Kind::Reno, None);
    send_all(&mut tx, Nanos::ZERO);
    tx.on_ack(RTT, &all_below(2, 0, Nanos::from_secs(9)));
    assert_eq!(tx.rtt().least(), None);
    let mut frame = all_below(3, 0, Nanos::ZERO);
    frame.held = Nanos::MAX;
    tx.on_ack(RTT, &frame);
    assert_eq!(tx.rtt().latest(), RTT);
}

#[test]
fn a_handshake_lets_the_first_window_be_paced() {
    let sent_at_once = |handshake: Option<Nanos>| {
        let sender = build(Kind::Prague, &SenderOptions { mss: 1_500, ..SenderOptions::default() });
        let options = TransmitterOptions { handshake, ..TransmitterOptions::default() };
        let mut transmitter = Transmitter::new(sender, &options);
        let now = Nanos::from_millis(100);
        let burst = (0..100).take_while(|_| {
            let sends = transmitter.next(now) == Next::Send;
            if sends {
                transmitter.commit(now);
            }
            sends
        });
        burst.count()
    };
    assert_eq!(sent_at_once(None), 10, "the whole initial window");
    // 10 packets in half of 20 ms: one a millisecond
    assert_eq!(sent_at_once(Some(Nanos::from_millis(20))), 1);
}
