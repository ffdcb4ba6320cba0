// SPDX-License-Identifier: Apache-2.0
//! Counts of traffic that belongs to no subscriber, by direction and kind.
//!
//! Invariant: one writer, the RX lcore that owns them; the labels are those of `wire`, which keeps them stable.

use engine::{Counter, Direction};
use model::stats::KindCount;
use wire::{Bad, Control, Kind, NotIp};

const NOT_IP: usize = 2;
const CONTROL: usize = NOT_IP + NotIp::ALL.len();
const BAD: usize = CONTROL + Control::ALL.len();
const COUNT: usize = BAD + Bad::ALL.len();

const fn index(kind: Kind) -> usize {
    match kind {
        Kind::Ipv4 => 0,
        Kind::Ipv6 => 1,
        Kind::NotIp(what) => NOT_IP + what as usize,
        Kind::Control(what) => CONTROL + what as usize,
        Kind::Bad(why) => BAD + why as usize,
    }
}

fn labels() -> impl Iterator<Item = String> {
    let ip = ["unknown_ipv4", "unknown_ipv6"].into_iter().map(str::to_owned);
    let not_ip = NotIp::ALL.iter().map(|what| what.label().to_owned());
    let control = Control::ALL.iter().map(|what| what.label().to_owned());
    let bad = Bad::ALL.iter().map(|why| format!("bad_{}", why.label()));
    ip.chain(not_ip).chain(control).chain(bad)
}

/// Counters by kind.
#[derive(Debug)]
pub(crate) struct KindCounters {
    counts: [Box<[Counter]>; 2],
}

impl KindCounters {
    pub(crate) fn new() -> Self {
        let counts = || (0..COUNT).map(|_| Counter::default()).collect();
        Self { counts: [counts(), counts()] }
    }

    fn of(&self, direction: Direction) -> &[Counter] {
        let [down, up] = &self.counts;
        if direction == Direction::Down { down } else { up }
    }

    /// Counts a packet.
    #[inline]
    pub(crate) fn count(&self, direction: Direction, kind: Kind) {
        if let Some(counter) = self.of(direction).get(index(kind)) {
            counter.add(1);
        }
    }

    /// Adds what was seen in a direction to `into`, one entry a label.
    pub(crate) fn add_to(&self, direction: Direction, into: &mut Vec<KindCount>) {
        for (kind, counter) in labels().zip(self.of(direction)) {
            match into.iter_mut().find(|have| have.kind == kind) {
                Some(have) => have.packets += counter.get(),
                None => into.push(KindCount { kind, packets: counter.get() }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_has_a_place_and_a_label_of_its_own() {
        assert_eq!(labels().collect::<BTreeSet<_>>().len(), COUNT);
        let mut kinds = vec![Kind::Ipv4, Kind::Ipv6];
        kinds.extend(NotIp::ALL.iter().copied().map(Kind::NotIp));
        kinds.extend(Control::ALL.iter().copied().map(Kind::Control));
        kinds.extend(Bad::ALL.iter().copied().map(Kind::Bad));
        assert_eq!(kinds.iter().copied().map(index).collect::<Vec<_>>(), (0..COUNT).collect::<Vec<_>>());
    }

    #[test]
    fn counts_of_several_lcores_add_up_by_direction() {
        let (one, other) = (KindCounters::new(), KindCounters::new());
        one.count(Direction::Down, Kind::Control(Control::Arp));
        other.count(Direction::Down, Kind::Control(Control::Arp));
        other.count(Direction::Up, Kind::Ipv4);
        let mut down = Vec::new();
        one.add_to(Direction::Down, &mut down);
        other.add_to(Direction::Down, &mut down);
        let counted: Vec<_> = down.iter().filter(|kind| kind.packets > 0).collect();
        assert_eq!(counted, [&KindCount { kind: "arp".into(), packets: 2 }]);
    }
}
