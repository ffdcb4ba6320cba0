// SPDX-License-Identifier: Apache-2.0
//! The table lookup by itself: parsed headers in, queue ids out, 32 at a time, as the RX lcore asks.
//!
//! The peer is `rte_hash_lookup_bulk_data` with one 64-bit key a packet. Ours makes its keys from the parsed headers and
//! tries the session and the VLAN pair in turn: one probe for the even subscribers and two for the odd ones.

use std::time::Duration;

use engine::{
    Class, Classifier, Direction, PortId, Profiles, RecordEdit, Registry, RegistryOptions, RegistryPort,
};
use model::Config;
use model::config::Role;

use super::frame::{Template, record};
use super::generator::Order;
use super::{BenchError, calibrated, median};
use crate::error::LaunchError;
use crate::rx::BURST;

/// Windows.
const WINDOWS: u32 = 5;
/// Records at a time.
const BATCH: u32 = 4_096;
/// A burst that took longer was interrupted.
const GAP_NS: u64 = 100_000;

/// What a lookup takes.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// Nanoseconds a packet, by window.
    pub ns: Vec<f64>,
    /// Bursts that were interrupted.
    pub gaps: u64,
    /// Packets for which no subscriber was found; 0 unless there is a bug.
    pub missed: u64,
}

/// Looks up packets of random subscribers.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub fn lookup(subscribers: u32, duration: Duration) -> Result<Lookup, BenchError> {
    let classifier = filled(subscribers)?;
    let clock = calibrated();
    let template = Template::new(64, 1);
    let mut order = Order::random(subscribers, 1);
    let mut frame = [0; 60];
    let mut parsed = [wire::parse(&[], 0); BURST];
    let mut found = Lookup { ns: Vec::new(), gaps: 0, missed: 0 };
    for window in 0..=WINDOWS {
        let end = clock.now() + u64::try_from((duration / WINDOWS).as_nanos()).unwrap_or(u64::MAX);
        let (mut spent, mut packets) = (0, 0_u64);
        while clock.now() < end {
            for parsed in &mut parsed {
                template.write(order.next(0), &mut frame);
                *parsed = wire::parse(&frame, 60);
            }
            let begin = clock.now();
            let mut missed = 0;
            classifier.classify(PortId(0), Direction::Down, &parsed, |_, class| {
                missed += u64::from(!matches!(class, Class::Subscriber(_)));
            });
            let took = clock.now() - begin;
            found.missed += missed;
            if took > GAP_NS {
                found.gaps += 1;
                continue;
            }
            spent += took;
            packets += BURST as u64;
        }
        if window > 0 {
            found.ns.push(spent as f64 / packets.max(1) as f64);
        }
    }
    Ok(found)
}

impl Lookup {
    /// The middle window.
    pub fn median_ns(&self) -> f64 {
        median(self.ns.iter().copied())
    }
}

/// A table with that many subscribers in it.
fn filled(subscribers: u32) -> Result<Classifier, BenchError> {
    let profiles = Profiles::new(&Config::default().profiles).map_err(LaunchError::from)?;
    let port =
        |name: &str, role, peer| RegistryPort { name: name.to_owned(), role, peer: PortId(peer), rate: None };
    let (mut registry, classifier) = Registry::new(RegistryOptions {
        shards: 1,
        capacity: 2 * (subscribers + 2),
        ports: vec![port("core", Role::Core, 1), port("access", Role::Access, 0)],
        profiles: profiles.into(),
        unknown_bps: None,
        seed: 1,
    })
    .map_err(LaunchError::from)?;
    for first in (0..subscribers).step_by(BATCH as usize) {
        let end = subscribers.min(first + BATCH);
        let records: Vec<_> = (first..end).map(|subscriber| record(subscriber, 1_000_000)).collect();
        let edits: Vec<_> = records.iter().map(RecordEdit::Put).collect();
        let plan = registry.plan(&edits).map_err(LaunchError::from)?;
        registry.commit(plan).map_err(LaunchError::from)?;
    }
    Ok(classifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_found() {
        let found = lookup(3_000, Duration::from_millis(10)).unwrap();
        assert_eq!((found.missed, found.ns.len()), (0, WINDOWS as usize));
        assert!(found.median_ns() > 0.0);
    }
}
