// SPDX-License-Identifier: Apache-2.0
//! Warns where nearly all that comes in belongs to no subscriber: core and access are swapped, or records lack
//! addresses. A shaper that shapes nobody looks healthy otherwise.
//!
//! Counts by direction, as the data plane does: all core ports together, all access ports together. Control packets
//! (ARP, neighbour discovery, ..) and bad frames are no strangers. Time is the number of ticks of the supervisor.

use model::config::Role;
use model::stats::{Direction, MetricsSnapshot};
use wire::Control;

/// Ticks between two looks: a minute of them.
const LOOK_EVERY: u32 = 600;
/// Fewer packets a minute say nothing.
const LEAST: u64 = 1_000;
/// What is too much, in percent.
const PERCENT: u64 = 90;

/// What was counted at the last look.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    ticks: u32,
    down: Side,
    up: Side,
}

#[derive(Debug, Default)]
struct Side {
    received: u64,
    unknown: u64,
    /// Minutes that were warned about.
    minutes: u64,
}

impl Strangers {
    /// To be called once a tick; looks at the metrics once a minute and says what is to be warned about.
    pub(crate) fn tick(&mut self, metrics: impl FnOnce() -> MetricsSnapshot) -> Vec<String> {
        self.ticks += 1;
        if self.ticks < LOOK_EVERY {
            return Vec::new();
        }
        self.ticks = 0;
        let metrics = metrics();
        let down = self.down.look(&metrics, Direction::Down);
        let up = self.up.look(&metrics, Direction::Up);
        down.into_iter().chain(up).collect()
    }
}

impl Side {
    fn look(&mut self, metrics: &MetricsSnapshot, direction: Direction) -> Option<String> {
        let (role, counts) = match direction {
            Direction::Down => (Role::Core, &metrics.down),
            Direction::Up => (Role::Access, &metrics.up),
        };
        let ports = || metrics.ports.iter().filter(|port| port.role == role);
        let control = |kind: &str| Control::ALL.iter().any(|what| what.label() == kind);
        let unknown = counts.unclassified.iter().filter(|count| {
            let kind = count.kind.as_str();
            !kind.starts_with("bad_") && !control(kind)
        });
        let unknown: u64 = unknown.map(|count| count.packets).sum();
        let received: u64 = ports().map(|port| port.rx_packets).sum();
        let new_unknown = unknown.saturating_sub(self.unknown);
        let new = received.saturating_sub(self.received);
        (self.received, self.unknown) = (received, unknown);
        if new < LEAST || new_unknown.saturating_mul(100) <= new.saturating_mul(PERCENT) {
            return None;
        }
        self.minutes += 1;
        let names: Vec<_> = ports().map(|port| port.name.as_str()).collect();
        let why = if metrics.subscribers.configured == 0 {
            "there are no subscribers"
        } else {
            "are core and access swapped, or do the records lack these addresses?"
        };
        let (names, minutes) = (names.join(", "), self.minutes);
        Some(format!(
            "{new_unknown} of {new} packets in a minute at {names} matched no subscriber: {why} (minute {minutes} of this)"
        ))
    }
}

#[cfg(test)]
mod tests {
    use model::stats::{DirectionMetrics, KindCount, PortState, SubscriberCounts};

    use super::*;

    fn port(name: &str, role: Role, rx_packets: u64) -> PortState {
        PortState {
            name: name.into(),
            device: String::new(),
            role,
            peer: String::new(),
            driver: String::new(),
            mac: String::new(),
            link: true,
            speed_bps: None,
            mtu: 1500,
            rate_bps: None,
            clock_speed: 1.0,
            rx_packets,
            rx_bytes: 0,
            tx_packets: 0,
            tx_bytes: 0,
            drops: Vec::new(),
        }
    }

    fn snapshot(received: u64, kinds: &[(&str, u64)], configured: u64) -> MetricsSnapshot {
        let kind = |(kind, packets): &(&str, u64)| KindCount { kind: (*kind).into(), packets: *packets };
        MetricsSnapshot {
            down: DirectionMetrics {
                unclassified: kinds.iter().map(kind).collect(),
                ..DirectionMetrics::default()
            },
            ports: vec![port("core", Role::Core, received), port("access", Role::Access, 9_000_000)],
            subscribers: SubscriberCounts { configured, active: 0 },
            ..MetricsSnapshot::default()
        }
    }

    fn minute(strangers: &mut Strangers, snapshot: &MetricsSnapshot) -> Vec<String> {
        (0..LOOK_EVERY).flat_map(|_| strangers.tick(|| snapshot.clone())).collect()
    }

    #[test]
    fn a_minute_of_strangers_is_warned_about_once_and_counted() {
        let mut strangers = Strangers::default();
        let said = minute(&mut strangers, &snapshot(1_000, &[("unknown_ipv4", 901)], 3));
        assert_eq!(
            said,
            [
                "901 of 1000 packets in a minute at core matched no subscriber: are core and access swapped, or do \
                 the records lack these addresses? (minute 1 of this)"
            ]
        );
        let said =
            minute(&mut strangers, &snapshot(3_000, &[("unknown_ipv4", 901), ("ethertype", 1_999)], 0));
        assert_eq!(
            said,
            [
                "1999 of 2000 packets in a minute at core matched no subscriber: there are no subscribers (minute 2 of this)"
            ]
        );
        assert!(minute(&mut strangers, &snapshot(3_000, &[("unknown_ipv4", 2_900)], 0)).is_empty());
    }

    #[test]
    fn few_packets_control_bad_frames_and_nine_in_ten_say_nothing() {
        for (received, kinds) in [
            (999, &[("unknown_ipv4", 999)][..]),
            (1_000, &[("unknown_ipv4", 900)]),
            (1_000, &[(Control::ALL[0].label(), 1_000)]),
            (1_000, &[("bad_truncated", 1_000)]),
        ] {
            let said = minute(&mut Strangers::default(), &snapshot(received, kinds, 1));
            assert!(said.is_empty(), "{said:?}");
        }
    }
}
