// SPDX-License-Identifier: Apache-2.0
//! The loops of the lcores.
//!
//! Invariant: each loop reads the clock once, shows that it lives, does a bounded amount of work, and ends by the
//! phase. RX waits until the records are loaded and ends when draining begins; TX when nothing waits any more or `DRAIN` is over; control last of all.

use std::sync::Arc;
use std::time::Duration;

use aqm::Nanos;

use crate::control::ControlWorker;
use crate::handle::Inner;
use crate::lcore::{LcoreShared, Phase, Pulse};
use crate::rx::{Rings, RxWorker};
use crate::tx::TxWorker;

/// How long draining may take; what waits then is dropped and counted.
const DRAIN: Nanos = Nanos::from_secs(3);
/// Longest sleep of the control lcore between two passes.
const NAP: Nanos = Nanos::from_millis(1);
/// A pass that is due so soon is not worth a sleep, which may overrun by this much.
const NO_NAP: Nanos = Nanos::from_micros(100);

/// What an lcore does.
pub(crate) enum Job {
    Rx(Box<RxWorker>, Rings),
    Tx(Box<TxWorker>),
    Control(Box<ControlWorker>),
    Compact(Box<RxWorker>, Box<TxWorker>, Box<ControlWorker>),
}

impl Job {
    /// Runs until the end of the data plane; `index` is the lcore's place among all.
    pub(crate) fn run(self, inner: &Arc<Inner>, index: usize) {
        let Some(lcore) = inner.lcores.get(index) else {
            return;
        };
        let pulse = Pulse::new(lcore);
        let _ending = Ending(lcore);
        match self {
            Self::Rx(rx, rings) => run_rx(inner, pulse, rx, rings),
            Self::Tx(tx) => run_tx(inner, pulse, tx, |_, _| false),
            Self::Control(control) => run_control(inner, pulse, *control),
            Self::Compact(mut rx, tx, mut control) => run_tx(inner, pulse, tx, |now, tx| {
                let received = inner.phase.get() == Phase::Run && rx.poll(now, tx, &mut ());
                control.poll(now, &|| inner.now()) || received
            }),
        }
    }
}

/// Says that the lcore has ended, however it ends.
struct Ending<'a>(&'a LcoreShared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn run_rx(inner: &Inner, mut pulse: Pulse<'_>, mut rx: Box<RxWorker>, mut rings: Rings) {
    loop {
        let phase = inner.phase.get();
        if phase >= Phase::Drain {
            return;
        }
        let now = inner.now();
        pulse.beat(now);
        pulse.worked(phase == Phase::Run && rx.poll(now, &mut rings, &mut ()));
    }
}

/// The TX loop; `before` is what else the lcore does in each round.
fn run_tx(
    inner: &Inner,
    mut pulse: Pulse<'_>,
    mut tx: Box<TxWorker>,
    mut before: impl FnMut(Nanos, &mut TxWorker) -> bool,
) {
    let mut draining_since = None;
    loop {
        let now = inner.now();
        pulse.beat(now);
        pulse.worked(before(now, &mut tx));
        pulse.worked(tx.poll(now, &mut ()));
        if inner.phase.get() < Phase::Drain {
            continue;
        }
        let drained = now.since(*draining_since.get_or_insert(now));
        if drained > DRAIN || (inner.rx_has_ended() && tx.waiting() == 0) {
            tx.close(now);
            return;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the control lcore may share its CPU and naps between passes")]
fn run_control(inner: &Inner, mut pulse: Pulse<'_>, mut control: ControlWorker) {
    while inner.phase.get() != Phase::Stop {
        let now = inner.now();
        pulse.beat(now);
        pulse.worked(control.poll(now, &|| inner.now()));
        let idle = control.next_due().since(inner.now());
        if idle > NO_NAP {
            std::thread::sleep(Duration::from_nanos((idle.0 - NO_NAP.0).min(NAP.0)));
        }
    }
}
