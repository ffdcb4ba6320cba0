// SPDX-License-Identifier: Apache-2.0
//! What stands still: memory of idle subscribers, and PI passes over ids that all wait or are all idle.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use aqm::{BitsPerSec, Cause, Ecn, FlowKey, Nanos, Rule, Stamp};
use engine::{
    Change, Direction, Fifo, Meta, Packet, PiBanks, PortId, PortShared, Profiles, QueueId, QueueKind,
    QueueSpec, RingDrops, Shard, ShardCounters, ShardOptions,
};
use model::Config;
use model::subscriber::DEFAULT_PROFILE;

use super::frame::example;
use super::generator::Order;
use super::{BenchError, Options, calibrated, with};
use crate::error::LaunchError;

/// PI passes timed.
const PASSES: u32 = 25;
/// A rate at which a packet of `BYTES` waits for hours.
const RATE: BitsPerSec = BitsPerSec(64_000);
/// More than two MTU, so that the PI controller looks at it.
const BYTES: u16 = 4_000;

/// What idle subscribers take.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Bytes a subscriber: shard, table, banks, counters and the control side's book.
    pub bytes_per_subscriber: f64,
    /// Records a second, applied 4,096 at a time.
    pub records_per_second: f64,
}

/// Gives every subscriber a record like the contract's example, both directions, and sends nothing.
pub fn memory(options: &Options) -> Result<Memory, BenchError> {
    let order = |seed| Order::random(options.subscribers, seed);
    let (load, end) = with(options, 0, order, None, |bench| {
        bench.subscribe(|subscriber| example(subscriber, 100_000_000))?;
        Ok(bench.load)
    })?;
    Ok(Memory {
        bytes_per_subscriber: end.bytes_per_subscriber,
        records_per_second: f64::from(options.subscribers) / load.as_secs_f64().max(1e-9),
    })
}

/// A packet without content.
struct Nothing(Meta);

#[derive(Default)]
struct NothingFifo(VecDeque<Nothing>);

impl Fifo<Nothing> for NothingFifo {
    fn push(&mut self, packet: Nothing) {
        self.0.push_back(packet);
    }
    fn pop(&mut self) -> Option<Nothing> {
        self.0.pop_front()
    }
    fn front(&self) -> Option<Meta> {
        self.0.front().map(Packet::meta)
    }
}

impl Packet for Nothing {
    type Fifo = NothingFifo;
    fn meta(&self) -> Meta {
        self.0
    }
    fn set_meta(&mut self, meta: Meta) {
        self.0 = meta;
    }
    fn frame_bytes(&self) -> u32 {
        u32::from(self.0.l3_bytes) + 14
    }
    fn buffers(&self) -> u32 {
        1
    }
    fn flow_key(&self, _: u64) -> FlowKey {
        FlowKey::default()
    }
    fn mark_ce(&mut self, _: Cause) {}
}

/// Microseconds of PI passes over `ids` queue ids: all idle, then all with a packet waiting; and how many ids each
/// looked at.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub fn pi_passes(ids: u32) -> Result<[(Vec<f64>, u32); 2], BenchError> {
    let profiles = Arc::new(Profiles::new(&Config::default().profiles).map_err(LaunchError::from)?);
    let banks = Arc::new(PiBanks::new(&profiles, 0, 1, ids));
    let mut shard: Shard<Nothing> = Shard::new(ShardOptions {
        index: 0,
        shards: 1,
        capacity: ids,
        buffers: ids.saturating_mul(64),
        seed: 1,
        flow_seed: 1,
        profiles: Arc::clone(&profiles),
        banks: Arc::clone(&banks),
        ports: [PortShared::new(None)].into(),
        counters: Arc::<ShardCounters>::default(),
        ring_drops: Arc::new(RingDrops::new(ids as usize)),
        parents: Arc::default(),
    });
    let clock = calibrated();
    let mut now = Nanos::from_secs(1);
    let mut time = || {
        let (mut took, mut visited) = (Vec::new(), 0);
        for _ in 0..PASSES {
            now += Nanos::from_millis(16);
            let begin = clock.now();
            visited = banks.update(0, now, &mut |_, _| ());
            took.push((clock.now() - begin) as f64 / 1e3);
        }
        (took, visited)
    };
    let spec = QueueSpec {
        rate: RATE,
        profile: profiles.index(DEFAULT_PROFILE).unwrap_or(0),
        direction: Direction::Down,
        egress_hint: PortId(0),
        kind: QueueKind::Subscriber,
        parent: None,
    };
    let begin = Nanos::from_secs(1);
    for id in (0..ids).map(QueueId) {
        shard.apply(begin, Change::Create { id, spec });
    }
    let idle = time();
    for id in (0..ids).map(QueueId) {
        let ecn = if id.0 % 2 == 0 { Ecn::NotEct } else { Ecn::Ect1 };
        let meta = Meta {
            queue_id: id,
            arrival: Stamp::at(begin),
            l3_bytes: BYTES,
            ip_offset: 14,
            ecn,
            rule: Rule::None,
            egress: PortId(0),
        };
        shard.enqueue(begin, Nothing(meta));
    }
    Ok([idle, time()])
}

impl Memory {
    /// How long that many subscribers take to load.
    pub fn load(&self, subscribers: u32) -> Duration {
        Duration::from_secs_f64(f64::from(subscribers) / self.records_per_second.max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_looks_at_those_who_wait_alone() {
        let [(idle, none), (waiting, all)] = pi_passes(2_000).unwrap();
        assert_eq!((none, all), (0, 2_000));
        assert_eq!((idle.len(), waiting.len()), (PASSES as usize, PASSES as usize));
    }
}
