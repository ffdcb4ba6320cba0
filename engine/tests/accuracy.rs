// SPDX-License-Identifier: Apache-2.0
//! How exactly a shard keeps a rate: from 64 kb/s to 100 Gb/s, for small, middle and full packets and a mix.

#![expect(clippy::cast_precision_loss, reason = "times and sizes far below 2^53")]

mod common;

use aqm::Nanos;
use common::{Offer, RAW_FIFO, RAW_FQ, Rig, Setup};

/// A slot of the wheel.
const SLOT_NS: f64 = 2_048.0;
/// Packets a case sends at most; the arithmetic of longer runs is tested in `shaper`.
const MOST: u64 = 400_000;

const RATES: [u64; 8] = [
    64_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
    25_000_000_000,
    100_000_000_000,
];

/// Simple IMIX: 7 small, 4 middle, 1 full.
const IMIX: [u16; 12] = [64, 576, 64, 64, 576, 64, 1_500, 64, 576, 64, 64, 576];

/// What a case measured.
struct Run {
    /// Departures, each with the bytes sent before it.
    departures: Vec<(Nanos, u64)>,
}

/// A backlogged subscriber at `bps` sends `sizes` in turn for max(1 s, 2,000 packets), or [`MOST`] packets.
fn run(bps: u64, profile: u16, sizes: &[u16], poll: Option<Nanos>) -> Run {
    let mut rig = Rig::new(&Setup::default());
    rig.create(0, bps, profile);
    rig.now += Nanos::from_secs(1);
    // enough for the burst and a slot at this rate, within the queue limit
    let depth = (bps / 8 / 64 * 270 / 1_000_000).clamp(3, 300_000);
    let mean: u64 = sizes.iter().map(|&size| u64::from(size)).sum::<u64>() / sizes.len() as u64;
    let packets = (bps / 8 / mean).max(2_000).min(MOST.max(2 * depth));
    let mut departures = Vec::new();
    let mut bytes = 0;
    let mut next = 0;
    while (departures.len() as u64) < packets {
        while rig.queued() < depth {
            let flow = u32::try_from(next % 5).expect("small");
            rig.offer(Offer { flow, ..Offer::new(0, sizes[next % sizes.len()]) });
            next += 1;
        }
        rig.now = match poll {
            Some(poll) => rig.now + poll,
            None => rig.next_event().expect("it is backlogged").max(rig.now),
        };
        rig.dequeue(0, 0, 512, |now, packet| {
            departures.push((now, bytes));
            bytes += u64::from(engine::Packet::meta(packet).l3_bytes);
        });
    }
    assert_eq!(rig.dropped(engine::DropReason::Tail), 0, "the test keeps below the limit");
    Run { departures }
}

/// After the initial burst each departure lies within one slot and one packet time of bytes / rate.
fn check(bps: u64, name: &str, sizes: &[u16]) {
    check_profile(bps, RAW_FIFO, name, sizes);
}

fn check_profile(bps: u64, profile: u16, name: &str, sizes: &[u16]) {
    let Run { departures } = run(bps, profile, sizes, None);
    let start = departures[0].0;
    let burst = departures.iter().take_while(|(at, _)| *at == start).count();
    let burst_bytes = departures[burst].1;
    let allowed = (bps as f64 / 8.0 * 250e-6).max(2.0 * 1_538.0);
    assert!(
        burst_bytes as f64 <= allowed + bps as f64 / 8e9 * SLOT_NS,
        "{bps} {name}: burst of {burst_bytes} bytes"
    );
    let (first, before) = departures[burst];
    let largest = f64::from(*sizes.iter().max().expect("some"));
    let bound = SLOT_NS + largest * 8e9 / bps as f64;
    for &(at, bytes) in &departures[burst..] {
        let ideal = (bytes - before) as f64 * 8e9 / bps as f64;
        let off = at.since(first).0 as f64 - ideal;
        assert!(off.abs() <= bound, "{bps} {name}: {off} ns off after {bytes} bytes, bound {bound}");
    }
    let (last, bytes) = *departures.last().expect("some");
    let span = last.since(first).0 as f64;
    let rate = (bytes - before) as f64 * 8e9 / span;
    let error = (rate / bps as f64 - 1.0).abs();
    // a slot and a packet are what the ends of the span may be off; the longer it is the less that is
    assert!(error <= bound / span + 1e-8, "{bps} {name}: rate off by {error}");
    if span >= 1e9 || departures.len() >= 2_000 && span >= 1_000.0 * bound {
        assert!(error <= 1e-3, "{bps} {name}: rate off by {error}");
    }
}

#[test]
fn small_packets_leave_on_time_at_every_rate() {
    for bps in RATES {
        check(bps, "64", &[64]);
    }
}

#[test]
fn middle_packets_leave_on_time_at_every_rate() {
    for bps in RATES {
        check(bps, "576", &[576]);
    }
}

#[test]
fn full_packets_leave_on_time_at_every_rate() {
    for bps in RATES {
        check(bps, "1500", &[1_500]);
    }
}

#[test]
fn a_mix_leaves_on_time_at_every_rate() {
    for bps in RATES {
        check(bps, "IMIX", &IMIX);
    }
}

#[test]
fn a_managed_discipline_leaves_on_time_at_every_rate() {
    for bps in RATES {
        check_profile(bps, RAW_FQ, "1500 in flows", &[1_500]);
    }
}

#[test]
fn polling_at_intervals_costs_no_rate() {
    for bps in [1_000_000_u64, 100_000_000, 1_000_000_000, 10_000_000_000] {
        let Run { departures } = run(bps, RAW_FIFO, &[1_500], Some(Nanos::from_micros(13)));
        let (start, _) = departures[0];
        let burst = departures.iter().take_while(|(at, _)| *at == start).count();
        let (first, before) = departures[burst];
        let (last, bytes) = *departures.last().expect("some");
        let span = last.since(first).0 as f64;
        let rate = (bytes - before) as f64 * 8e9 / span;
        let bound = SLOT_NS + 13_000.0 + 1_500.0 * 8e9 / bps as f64;
        assert!((rate / bps as f64 - 1.0).abs() <= bound / span, "{bps}: {rate}");
    }
}

#[test]
fn the_slowest_subscriber_waits_192_ms_between_packets() {
    let Run { departures } = run(64_000, RAW_FIFO, &[1_538], None);
    for pair in departures[2..].windows(2) {
        let gap = pair[1].0.since(pair[0].0).0;
        assert!((192_250_000 - 2_048..=192_250_000 + 2_048).contains(&gap), "{gap} ns");
    }
}

#[test]
fn sizes_of_dequeue_calls_do_not_matter() {
    for room in [1, 3, 32, 200] {
        let mut rig = Rig::new(&Setup::default());
        rig.create(0, 1_000_000_000, RAW_FIFO);
        rig.now += Nanos::from_secs(1);
        let mut bytes = 0;
        let end = rig.now + Nanos::from_millis(100);
        let mut start = None;
        while rig.now < end {
            while rig.queued() < 100 {
                rig.offer(Offer::new(0, 1_000));
            }
            rig.now = rig.next_event().expect("backlogged").max(rig.now);
            rig.dequeue(0, 0, room, |now, _| {
                start.get_or_insert(now);
                bytes += 1_000;
            });
        }
        // 12.5 MB and the burst of 31,250 bytes
        let exact = 12_500_000 + 31_250;
        assert!((exact - 2_000..=exact + 1_000).contains(&bytes), "room {room}: {bytes}");
    }
}
