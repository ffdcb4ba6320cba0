// SPDX-License-Identifier: Apache-2.0
//! Running closures on lcores of a real EAL, the main one included, and threads of other kinds.

use std::sync::mpsc;
use std::thread;

use dpdk::{EalError, current_lcore};

use crate::common::{eal, lcores, pool};

#[test]
fn a_worker_runs_what_is_launched_on_it() {
    let _turn = lcores();
    for round in 0..50 {
        let handle = eal().launch(1, move || (current_lcore(), round)).unwrap();
        assert_eq!(handle.lcore(), 1);
        assert_eq!(handle.join().unwrap(), (Some(1), round), "and can take the next at once");
    }
}

#[test]
fn the_main_lcore_is_as_good_as_any() {
    let _turn = lcores();
    assert_eq!(eal().main_lcore(), 0);
    for _ in 0..50 {
        assert_eq!(eal().launch(0, current_lcore).unwrap().join().unwrap(), Some(0));
    }
}

#[test]
fn lcores_run_on_their_cpus_and_the_callers_affinity_stays() {
    let _turn = lcores();
    let before = crate::common::cpus();
    for lcore in eal().lcores() {
        let cpus = eal().launch(lcore.id, own_cpus).unwrap().join().unwrap();
        assert_eq!(cpus, lcore.cpu.to_string());
    }
    assert_eq!(crate::common::cpus(), before);
    assert_eq!(current_lcore(), None);
}

fn own_cpus() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
}

#[test]
fn a_busy_lcore_refuses_a_second_job() {
    let _turn = lcores();
    for lcore in [0, 1] {
        let (go, wait) = mpsc::channel::<()>();
        let first = eal().launch(lcore, move || wait.recv().is_ok()).unwrap();
        let refused = eal().launch(lcore, || ()).unwrap_err();
        assert!(matches!(refused, EalError::LcoreBusy { .. }), "{refused}");
        assert!(!first.is_finished());
        go.send(()).unwrap();
        assert!(first.join().unwrap());
        eal().launch(lcore, || ()).unwrap().join().unwrap();
    }
}

#[test]
fn a_panic_ends_the_job_and_not_the_process() {
    let _turn = lcores();
    for lcore in [0, 1] {
        let handle = eal().launch(lcore, || assert_eq!(1 + 1, 3, "sums")).unwrap();
        let said = handle.join().unwrap_err().to_string();
        assert!(said.starts_with(&format!("lcore {lcore} panicked: ")) && said.contains("sums"), "{said}");
        assert_eq!(eal().launch(lcore, || 5).unwrap().join().unwrap(), 5);
    }
}

#[test]
fn an_lcore_that_is_not_ours_is_refused() {
    let refused = eal().launch(9, || ()).unwrap_err().to_string();
    assert_eq!(refused, "lcore 9 is not one of those EAL was started with: add it to the configuration");
}

#[test]
fn a_registered_thread_has_a_number_and_a_cache_of_its_own() {
    let pool = pool(64);
    thread::spawn(move || {
        assert_eq!(current_lcore(), None);
        let guard = eal().register_thread().unwrap();
        let number = current_lcore().unwrap();
        assert_eq!(guard.lcore(), number);
        assert!(number > 1, "{number} is no lcore of the configuration");
        assert!(matches!(eal().register_thread(), Err(EalError::Register { .. })), "once a thread");
        drop(pool.alloc().unwrap());
        drop(guard);
        assert_eq!(current_lcore(), None);
        assert_eq!(pool.available(), 64);
    })
    .join()
    .unwrap();
}

#[test]
fn packets_cross_lcores_through_their_caches() {
    let _turn = lcores();
    let options = dpdk::PoolOptions {
        name: crate::common::name("cached"),
        buffers: 1024,
        cache: 64,
        data_room: 2176,
        socket: None,
    };
    let pool = dpdk::Mempool::create(eal(), &options).unwrap();
    let (mut producer, mut consumer) = dpdk::ring(eal(), &crate::common::name("cross"), 255, None).unwrap();
    let source = pool.clone();
    let sender = eal()
        .launch(1, move || {
            let mut sent = 0;
            while sent < 10_000 {
                match source.alloc().map(|p| producer.push(p)) {
                    Some(Ok(())) => sent += 1,
                    _ => thread::yield_now(),
                }
            }
        })
        .unwrap();
    let receiver = eal()
        .launch(0, move || {
            let mut burst = dpdk::Burst::<32>::new();
            let mut got = 0;
            while got < 10_000 {
                match consumer.dequeue(&mut burst) {
                    0 => thread::yield_now(),
                    n => got += n,
                }
                burst.clear();
            }
            got
        })
        .unwrap();
    sender.join().unwrap();
    assert_eq!(receiver.join().unwrap(), 10_000);
    assert_eq!(pool.available(), 1024, "those in the lcores' caches are at home");
}

#[test]
fn the_tsc_rate_is_that_of_this_machine() {
    let hz = eal().tsc_hz();
    assert!((500_000_000..10_000_000_000).contains(&hz), "{hz} Hz");
    assert!(eal().socket_of(1).is_some());
    assert_eq!(eal().socket_of(9), None);
    assert!(dpdk::version().starts_with("DPDK "));
}
