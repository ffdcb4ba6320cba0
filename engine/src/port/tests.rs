// SPDX-License-Identifier: Apache-2.0
//! The port's shaper and clock.

use super::*;

/// Sends frames of 1,000 bytes from `purses` in turn whenever the port lets them, until `end`; counts them.
fn run(port: &PortShared, purses: &mut [Purse], start: Nanos, end: Nanos) -> u64 {
    let mut sent = 0;
    let mut now = start;
    while now < end {
        for purse in &mut *purses {
            purse.set_rate(port.rate());
            while purse.admit(port, now).is_ok() {
                purse.spend(1_000);
                sent += 1;
            }
        }
        now += Nanos::from_micros(7);
    }
    sent
}

#[test]
fn shards_together_send_at_the_ports_rate() {
    for bps in [10_000_000, 995_000_000, 24_875_000_000] {
        let port = PortShared::new(Some(BitsPerSec(bps)));
        let mut purses: Vec<Purse> = (0..3).map(|_| Purse::default()).collect();
        let start = Nanos::from_secs(5);
        run(&port, &mut purses, start, start + Nanos::from_millis(100));
        let sent =
            run(&port, &mut purses, start + Nanos::from_millis(100), start + Nanos::from_millis(1_100));
        let bytes = sent * (1_000 + u64::from(PORT_FRAME_OVERHEAD));
        let off = (bytes * 8).abs_diff(bps);
        assert!(off <= bps / 10_000 + 3 * 8 * QUANTUM_BYTES.1, "{bps}: {off} b/s off");
    }
}

#[test]
fn an_idle_port_bursts_no_more_than_its_ring_may_hold() {
    let bps = 10_000_000_000;
    let port = PortShared::new(Some(BitsPerSec(bps)));
    let mut purse = Purse::default();
    purse.set_rate(port.rate());
    let mut bytes = 0;
    while purse.admit(&port, Nanos::from_secs(9)).is_ok() {
        purse.spend(1_500);
        bytes += 1_524;
    }
    let allowed = bps * PORT_BURST.0 / 8_000_000_000;
    assert!((allowed..allowed + 2 * purse.quantum + 1_524).contains(&bytes), "{bytes} of {allowed}");
}

#[test]
fn a_port_without_a_rate_never_refuses() {
    let port = PortShared::new(None);
    let mut purse = Purse::default();
    purse.set_rate(port.rate());
    for _ in 0..1_000 {
        purse.spend(9_000);
        assert_eq!(purse.admit(&port, Nanos::ZERO), Ok(()));
    }
    assert!(!purse.is_empty());
}

#[test]
fn an_overdraft_is_paid_back() {
    let port = PortShared::new(Some(BitsPerSec(8_000_000)));
    let mut purse = Purse::default();
    purse.set_rate(port.rate());
    let start = Nanos::from_secs(1);
    purse.spend(15_596); // ten quanta of 1,562 bytes, a microsecond a byte
    let mut now = start;
    while let Err(at) = purse.admit(&port, now) {
        assert!(at > now);
        now = at;
    }
    let waited = now.since(start);
    assert!((14_000..=15_700).contains(&(waited.0 / 1_000)), "{waited:?}");
}

#[test]
fn the_rate_comes_from_the_configuration_or_the_link() {
    let gigabit = Some(BitsPerSec(1_000_000_000));
    assert_eq!(PortShared::shaper_rate(Some(7), gigabit), Some(BitsPerSec(7)));
    assert_eq!(PortShared::shaper_rate(None, gigabit), Some(BitsPerSec(995_000_000)));
    assert_eq!(PortShared::shaper_rate(None, Some(BitsPerSec(0))), None);
    assert_eq!(PortShared::shaper_rate(None, None), None);
}

#[test]
fn one_of_two_shards_slips_the_clock() {
    let port = PortShared::new(None);
    let seen = port.slip();
    port.slip_by(seen, Nanos(700));
    port.slip_by(seen, Nanos(900));
    assert_eq!(port.slip(), Nanos(700));
}

#[test]
fn the_speed_is_what_does_not_slip() {
    let port = PortShared::new(None);
    let mut now = Nanos::from_secs(3);
    port.measure_speed(now);
    assert!((port.clock_speed() - 1.0).abs() < 1e-9);
    for _ in 0..400 {
        now += Nanos::from_micros(100);
        port.slip_by(port.slip(), Nanos::from_micros(60));
        port.measure_speed(now);
    }
    assert!((port.clock_speed() - 0.4).abs() < 0.01, "{}", port.clock_speed());
    port.measure_speed(now + Nanos::from_secs(1));
    assert!((port.clock_speed() - 1.0).abs() < 1e-9);
}

#[test]
fn threads_together_never_exceed_the_rate() {
    let bps = 10_000_000_000;
    let port = PortShared::new(Some(BitsPerSec(bps)));
    let (start, end) = (Nanos::from_secs(2), Nanos::from_millis(2_020));
    let threads = 4;
    let sent: u64 = std::thread::scope(|scope| {
        let work = || run(&port, &mut [Purse::default()], start, end);
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let bytes = sent * (1_000 + u64::from(PORT_FRAME_OVERHEAD));
    let allowed =
        bps * (end.since(start) + PORT_BURST).0 / 8_000_000_000 + threads * (QUANTUM_BYTES.1 + 1_024);
    assert!(bytes <= allowed, "{bytes} of {allowed}");
    assert!(bytes > allowed * 9 / 10, "{bytes} of {allowed}");
}
