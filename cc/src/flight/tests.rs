// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;

use super::*;
use crate::{Codepoint, Receiver, ReceiverOptions};

const RTT: Nanos = Nanos::from_millis(100);

/// A frame that acknowledges exactly `seqs`, and `cumulative` of its own.
fn frame(seqs: &[u64], cumulative: u64) -> AckFrame {
    let largest = seqs.iter().copied().max().unwrap();
    let mut bitmap = [0; 4];
    for seq in seqs.iter().filter(|seq| largest - **seq < BITMAP_PACKETS) {
        let back = largest - seq;
        bitmap[usize::try_from(back / 64).unwrap()] |= 1_u64 << (back % 64);
    }
    AckFrame { largest, cumulative, bitmap, received: seqs.len() as u64, ..AckFrame::default() }
}

fn flight_of(packets: u64) -> Flight {
    let mut flight = Flight::new(FlightOptions::default());
    for i in 0..packets {
        assert_eq!(flight.sent(Nanos::from_millis(i), 1000), i);
    }
    flight
}

#[test]
fn a_packet_is_lost_when_the_third_later_one_is_acknowledged() {
    let mut flight = flight_of(10);
    assert_eq!(flight.on_ack(&frame(&[0, 2, 3], 1)).packets, 3);
    assert_eq!(flight.detect_losses(Nanos::from_millis(10), RTT, |_| ()), NewlyLost::default());
    assert_eq!(flight.on_ack(&frame(&[0, 2, 3, 4], 1)).packets, 1);
    let lost = flight.detect_losses(Nanos::from_millis(10), RTT, |_| ());
    assert_eq!(lost, NewlyLost { packets: 1, bytes: 1000, largest: 1 });
    assert_eq!(flight.in_flight(), 5000);
}

#[test]
fn a_packet_is_lost_nine_eighths_of_a_round_trip_after_it_was_sent() {
    let mut flight = flight_of(3);
    flight.on_ack(&frame(&[0, 2], 1));
    assert_eq!(flight.detect_losses(Nanos::from_millis(3), RTT, |_| ()).packets, 0);
    let deadline = Nanos::from_millis(1) + RTT.scaled(9, 8);
    assert_eq!(flight.loss_time(RTT), Some(deadline));
    assert_eq!(flight.detect_losses(Nanos(deadline.0 - 1), RTT, |_| ()).packets, 0);
    assert_eq!(flight.detect_losses(deadline, RTT, |_| ()).packets, 1);
    assert_eq!(flight.loss_time(RTT), None);
}

#[test]
fn the_newest_packet_is_never_lost_by_age() {
    let mut flight = flight_of(3);
    flight.on_ack(&frame(&[0, 1], 2));
    assert_eq!(flight.loss_time(RTT), None);
    assert_eq!(flight.detect_losses(Nanos::from_secs(100), RTT, |_| ()).packets, 0);
    assert_eq!(flight.in_flight(), 1000);
}

#[test]
fn a_lost_packet_that_comes_late_is_told() {
    let mut flight = flight_of(10);
    flight.on_ack(&frame(&[0, 2, 3, 4], 1));
    assert_eq!(flight.detect_losses(Nanos::from_millis(10), RTT, |_| ()).packets, 1);
    let newly = flight.on_ack(&frame(&[0, 1, 2, 3, 4, 5], 6));
    assert_eq!(newly, Newly { packets: 2, bytes: 2000, late: 1 });
    assert_eq!(flight.in_flight(), 4000);
}

#[test]
fn a_repeated_frame_brings_nothing() {
    let mut flight = flight_of(10);
    let again = frame(&[0, 1, 5], 2);
    assert_eq!(flight.on_ack(&again).packets, 3);
    assert_eq!(flight.on_ack(&again), Newly::default());
}

#[test]
fn frames_lost_for_a_long_time_are_made_up_by_the_cumulative_number() {
    let mut flight = flight_of(1000);
    let seqs: Vec<u64> = (0..900).collect();
    assert_eq!(flight.on_ack(&frame(&seqs, 900)).packets, 900);
    assert_eq!(flight.detect_losses(Nanos::from_millis(1), RTT, |_| ()).packets, 0);
    assert_eq!(flight.oldest(), 900);
}

#[test]
fn a_frame_about_packets_never_sent_is_not_plausible() {
    let mut flight = flight_of(4);
    let forged =
        AckFrame { largest: 4, cumulative: 5, bitmap: [u64::MAX; 4], received: 5, ..AckFrame::default() };
    assert!(!flight.is_plausible(&forged));
    assert_eq!(flight.on_ack(&forged), Newly::default());
    let overflow = AckFrame { largest: u64::MAX, cumulative: u64::MAX, received: u64::MAX, ..forged };
    assert!(!flight.is_plausible(&overflow));
    assert_eq!(flight.in_flight(), 4000);
}

#[test]
fn a_bitmap_reaching_below_zero_is_cut_off() {
    let mut flight = flight_of(3);
    let wide =
        AckFrame { largest: 1, cumulative: 0, bitmap: [u64::MAX; 4], received: 2, ..AckFrame::default() };
    assert_eq!(flight.on_ack(&wide).packets, 2);
}

#[test]
fn shifting_a_bitmap_moves_every_bit() {
    for by in [0, 1, 63, 64, 65, 127, 128, 200, 255, 256, 1000] {
        for bit in [0_u64, 1, 62, 63, 64, 100, 191, 192, 255] {
            let mut bits = [0; 4];
            bits[usize::try_from(bit / 64).unwrap()] = 1_u64 << (bit % 64);
            let mut want = [0; 4];
            if bit + by < BITMAP_PACKETS {
                want[usize::try_from((bit + by) / 64).unwrap()] = 1_u64 << ((bit + by) % 64);
            }
            assert_eq!(shifted(bits, by), want, "bit {bit} by {by}");
        }
    }
}

#[test]
fn memory_is_bounded_and_a_full_flight_recovers() {
    let options = FlightOptions { max_packets: 64, ..FlightOptions::default() };
    let mut flight = Flight::new(options);
    while !flight.is_full() {
        flight.sent(Nanos::ZERO, 100);
    }
    assert_eq!(flight.packets.len(), 64);
    assert_eq!(flight.lose_all(|_| ()).packets, 64);
    assert!(!flight.is_full());
    assert_eq!(flight.in_flight(), 0);
}

proptest! {
    /// Whatever order packets and acknowledgements arrive in, the flight and the receiver agree with a set.
    #[test]
    fn flight_and_receiver_agree_with_a_set(
        steps in proptest::collection::vec((0_u8..10, 0_usize..40), 1..400)
    ) {
        let mut flight = Flight::new(FlightOptions::default());
        let mut receiver = Receiver::new(ReceiverOptions::default());
        let mut wire: Vec<(u64, u64)> = Vec::new();
        let (mut acked, mut lost, mut late, mut sent) = (0, 0, 0, 0);
        let mut arrived = std::collections::BTreeSet::new();
        for (now, (what, pick)) in (1_u64..).zip(steps) {
            let now = Nanos::from_millis(now);
            match what {
                0..=4 => {
                    let seq = flight.sent(now, 100);
                    wire.push((seq, flight.oldest()));
                    sent += 1;
                }
                5..=7 if !wire.is_empty() => {
                    let (seq, oldest) = wire.remove(pick % wire.len());
                    if receiver.on_packet(now, seq, oldest, Codepoint::Ect1, now, 100) {
                        arrived.insert(seq);
                    }
                }
                8 if !wire.is_empty() => drop(wire.remove(pick % wire.len())),
                _ => if let Some(frame) = receiver.report(now) {
                    let newly = flight.on_ack(&frame);
                    let lost_now = flight.detect_losses(now, RTT, |_| ());
                    acked += newly.packets;
                    late += newly.late;
                    lost += lost_now.packets;
                },
            }
            let flying = sent - acked - (lost - late);
            prop_assert_eq!(flight.in_flight(), flying * 100);
            prop_assert_eq!(receiver.received(), arrived.len() as u64);
            prop_assert!(acked <= receiver.received());
            prop_assert_eq!(receiver.missing() + receiver.received(), arrived.last().map_or(0, |l| l + 1));
            prop_assert_eq!(receiver.ecn().total(), receiver.received());
        }
    }

    /// No frame, however absurd, breaks the account.
    #[test]
    fn hostile_frames_break_nothing(
        frames in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<[u64; 4]>(), any::<u64>()), 1..50),
        small in any::<bool>(),
    ) {
        let mut flight = flight_of(300);
        let (mut acked, mut lost, mut late) = (0, 0, 0);
        for (largest, cumulative, bitmap, received) in frames {
            let cut = |x: u64| if small { x % 400 } else { x };
            let (largest, cumulative, received) = (cut(largest), cut(cumulative), cut(received));
            let frame = AckFrame { largest, cumulative, bitmap, received, ..AckFrame::default() };
            let newly = flight.on_ack(&frame);
            acked += newly.packets;
            late += newly.late;
            lost += flight.detect_losses(Nanos::from_secs(1), RTT, |_| ()).packets;
            prop_assert_eq!(flight.in_flight(), (300 - acked - (lost - late)) * 1000);
        }
    }
}
