// SPDX-License-Identifier: Apache-2.0
//! What a queue id has used, short enough to be asked of millions: the material of `GET /v1/top`.

use engine::QueueSnapshot;

/// Counters since start, both queues together unless said.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) bytes: u64,
    pub(crate) marked: u64,
    pub(crate) dropped: u64,
    /// Packets forwarded, L and C.
    pub(crate) forwarded: [u64; 2],
    /// Sum of their delays in microseconds, L and C.
    pub(crate) delay_us: [f64; 2],
}

impl Usage {
    pub(crate) fn of(snapshot: &QueueSnapshot) -> Self {
        let mut usage = Self::default();
        for (index, part) in [&snapshot.l4s, &snapshot.classic].into_iter().enumerate() {
            let counters = &part.counters;
            usage.bytes += counters.forwarded_bytes();
            usage.marked += counters.marked_packets();
            usage.dropped += counters.dropped_packets();
            if let (Some(forwarded), Some(delay)) =
                (usage.forwarded.get_mut(index), usage.delay_us.get_mut(index))
            {
                *forwarded = counters.forwarded_packets();
                *delay = counters.delay_sum_us();
            }
        }
        usage
    }

    /// What was used since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let [l4s, classic] = self.forwarded;
        let [l4s_us, classic_us] = self.delay_us;
        Self {
            bytes: self.bytes.saturating_sub(before.bytes),
            marked: self.marked.saturating_sub(before.marked),
            dropped: self.dropped.saturating_sub(before.dropped),
            forwarded: [l4s.saturating_sub(before.forwarded[0]), classic.saturating_sub(before.forwarded[1])],
            delay_us: [(l4s_us - before.delay_us[0]).max(0.0), (classic_us - before.delay_us[1]).max(0.0)],
        }
    }

    /// Mean delay in L and C, in microseconds.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub(crate) fn mean_delay_us(&self) -> [f64; 2] {
        let [l4s, classic] = self.forwarded;
        let mean = |sum: f64, packets: u64| if packets == 0 { 0.0 } else { sum / packets as f64 };
        [mean(self.delay_us[0], l4s), mean(self.delay_us[1], classic)]
    }
}
