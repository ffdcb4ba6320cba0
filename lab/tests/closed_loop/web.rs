// SPDX-License-Identifier: Apache-2.0
//! Short flows, and the way of acknowledgements.

use aqm::{BitsPerSec, Nanos};
use cc::Kind;
use lab::{EcnChoice, Reverse, Size, Web, run};

use crate::rig::{dualpi2, fifo, flow, scenario};

fn web(size: Size, arrivals_per_s: f64) -> Web {
    Web { cc: Kind::Cubic, rtt: Nanos::from_millis(20), ecn: EcnChoice::Auto, arrivals_per_s, size }
}

#[test]
fn short_flows_alone_take_round_trips_and_serialisation() {
    let mut alone = scenario(100_000_000, dualpi2(), vec![]);
    alone.web = vec![web(Size::Fixed(1_000), 5.0), web(Size::Fixed(25 * 1_448), 5.0)];
    let outcome = run(&alone, 1).unwrap();
    let [one, many] = &outcome.web[..] else { panic!("two entries") };
    // Poisson: 75 expected, 8.7 the deviation
    assert!((45..110).contains(&one.completed) && (45..110).contains(&many.completed), "{one:?} {many:?}");
    // one packet waits for the receiver's delayed acknowledgement: 20 + 25 ms and 0.12 ms on the wire
    assert!((one.completion_ms.p50 / 45.12 - 1.0).abs() < 0.01, "{one:?}");
    // 10 packets, then up to 20: two round trips, and the odd last packet waits for its acknowledgement
    assert!((40.0..70.0).contains(&many.completion_ms.p50), "{many:?}");
}

#[test]
fn a_full_queue_costs_short_flows_what_it_holds() {
    let with = |profile| {
        let mut busy = scenario(20_000_000, profile, vec![flow(Kind::Cubic, 20)]);
        busy.web = vec![web(Size::Fixed(30_000), 2.0)];
        run(&busy, 1).unwrap()
    };
    let (short, long) = (with(dualpi2()), with(fifo()));
    let (a, b) = (short.web[0].completion_ms.p50, long.web[0].completion_ms.p50);
    assert!(a + 100.0 < b, "{a} ms with an AQM, {b} ms without");
    assert!(short.web[0].completed > 10);
}

#[test]
fn a_slow_way_back_delays_unless_it_has_an_aqm_of_its_own() {
    let rtt_ms = |reverse: Option<model::Profile>| {
        let mut path = scenario(50_000_000, dualpi2(), vec![flow(Kind::Cubic, 20)]);
        // a packet in 242 us and 64 bytes for every two: 1 Mb/s of acknowledgements
        path.link.reverse = reverse.map(|profile| Reverse { rate: BitsPerSec(500_000), profile });
        run(&path, 1).unwrap().flows[0].rtt_ms
    };
    let (free, plain, managed) = (rtt_ms(None), rtt_ms(Some(fifo())), rtt_ms(Some(dualpi2())));
    assert!((20.0..40.0).contains(&free), "{free}");
    assert!(plain > free + 100.0, "{plain} ms with a FIFO, {free} ms without a bottleneck");
    assert!(managed < plain - 80.0, "{managed} ms with an AQM, {plain} ms with a FIFO");
}
