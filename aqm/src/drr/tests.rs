// SPDX-License-Identifier: Apache-2.0
//! The scheduler by itself: who is served when, and how much each gets.

use super::*;

/// Serves the queue whose turn it is and gives it another packet, as long as it is always to wait.
fn shares(drr: &mut Drr, sizes: &[(u32, u32)], packets: u32) -> Vec<u64> {
    let mut got = vec![0; sizes.len()];
    for &(queue, bytes) in sizes {
        drr.add(queue, bytes);
        drr.add(queue, bytes);
    }
    for _ in 0..packets {
        let queue = drr.select().unwrap();
        let at = sizes.iter().position(|&(other, _)| other == queue).unwrap();
        drr.take(queue, sizes[at].1);
        drr.charge(queue, sizes[at].1);
        drr.add(queue, sizes[at].1);
        got[at] += u64::from(sizes[at].1);
    }
    got
}

#[test]
fn flows_of_different_packet_sizes_get_equal_bytes() {
    for (small, large) in [(64, 1514), (700, 1514), (1514, 9000), (40, 65_535)] {
        for quantum in [256, 300, 1514, 9000] {
            let got = shares(&mut Drr::new(16, quantum), &[(3, small), (11, large)], 200_000);
            let apart = got[0].abs_diff(got[1]);
            assert!(apart <= u64::from(quantum + large + small), "{small}, {large}, {quantum}: {got:?}");
        }
    }
}

#[test]
fn no_flow_among_many_falls_behind_by_more_than_a_quantum_and_a_packet() {
    let sizes: Vec<(u32, u32)> = (0..100).map(|queue| (queue, 40 + 14 * queue)).collect();
    let got = shares(&mut Drr::new(128, 1514), &sizes, 300_000);
    let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
    assert!(most - least <= 1514 + 1514, "{least} to {most}");
}

#[test]
fn a_new_flow_goes_before_the_old_ones_until_its_quantum_is_used() {
    let mut drr = Drr::new(4, 1514);
    shares(&mut drr, &[(0, 1514), (1, 1514)], 10);
    for _ in 0..4 {
        drr.add(2, 757);
    }
    let mut order = Vec::new();
    for _ in 0..6 {
        let queue = drr.select().unwrap();
        let bytes = if queue == 2 { 757 } else { 1514 };
        drr.take(queue, bytes);
        drr.charge(queue, bytes);
        if queue != 2 {
            drr.add(queue, bytes);
        }
        order.push(queue);
    }
    assert_eq!(order[..2], [2, 2], "{order:?}");
    assert_ne!(order[2], 2, "its quantum is used: {order:?}");
    assert_eq!(order.iter().filter(|&&queue| queue == 2).count(), 4, "and its turn comes again: {order:?}");
}

#[test]
fn a_flow_that_comes_and_goes_does_not_starve_the_old_ones() {
    // RFC 8290 4.2: a packet for queue 0 comes whenever queue 0 has just been emptied
    let mut drr = Drr::new(4, 1514);
    for queue in [1, 2] {
        drr.add(queue, 1514);
        drr.add(queue, 1514);
    }
    let mut got = [0_u32; 3];
    for _ in 0..3_000 {
        if drr.backlogs.packets(0) == 0 {
            drr.add(0, 100);
        }
        let queue = drr.select().unwrap();
        let bytes = if queue == 0 { 100 } else { 1514 };
        drr.take(queue, bytes);
        drr.charge(queue, bytes);
        if queue != 0 {
            drr.add(queue, bytes);
        }
        got[queue as usize] += 1;
    }
    assert!(got[1] > 150 && got[2] > 150, "{got:?}");
    assert!((got[0] * 100).abs_diff(got[1] * 1514) < 2 * 1514 + 100, "{got:?}");
}

#[test]
fn one_queue_and_one_packet_work_at_the_limits() {
    for (flows, quantum) in [(0, 0), (1, 1), (u32::MAX, u32::MAX), (MAX_FLOWS, 1514)] {
        let mut drr = Drr::new(flows, quantum);
        assert!((1..=MAX_FLOWS).contains(&drr.backlogs.queues()));
        for hash in [0, 1 << 31, u32::MAX] {
            let queue = drr.queue_of(hash);
            assert!(queue < drr.backlogs.queues());
            drr.add(queue, 65_535);
            assert_eq!(drr.select(), Some(queue));
            drr.take(queue, 65_535);
            drr.charge(queue, 65_535);
            assert_eq!(drr.select(), None);
        }
    }
}

#[test]
fn hashes_spread_evenly() {
    let drr = Drr::new(1000, 1514);
    let mut held = vec![0_u32; 1000];
    for step in 0..100_000_u32 {
        held[drr.queue_of(step.wrapping_mul(0x9e37_79b9)) as usize] += 1;
    }
    assert!(held.iter().all(|held| (90..=110).contains(held)));
}
