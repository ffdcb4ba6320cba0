// SPDX-License-Identifier: Apache-2.0
//! What a run shows, all of it after warm-up; serialises to the result JSON.

use serde::Serialize;

/// The result of one scenario with one seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The scenario's name.
    pub name: String,
    /// The seed.
    pub seed: u64,
    /// Delivered bits over what the link could have carried.
    pub utilisation: f64,
    /// By queue; an AQM without an L queue has all in `classic`.
    pub queues: Queues,
    /// Each flow.
    pub flows: Vec<FlowOutcome>,
    /// Flows of one label.
    pub groups: Vec<GroupOutcome>,
    /// Short flows.
    pub web: Vec<WebOutcome>,
    /// Per-second series and the delay distribution, for plots; not part of the JSON.
    #[serde(skip)]
    pub series: Series,
}

/// Both queues.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Queues {
    /// L.
    pub l4s: QueueOutcome,
    /// C.
    pub classic: QueueOutcome,
}

/// One queue of the bottleneck.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueOutcome {
    /// Packets forwarded.
    pub packets: u64,
    /// Forwarded carrying CE / forwarded.
    pub marked_ratio: f64,
    /// Marked by the native AQM of L / forwarded.
    pub marked_native_ratio: f64,
    /// Marked by coupling / forwarded.
    pub marked_coupled_ratio: f64,
    /// Dropped / arrived.
    pub dropped_ratio: f64,
    /// Mean of p'^2 and of p', seen at each packet forwarded or dropped while PI applies.
    pub p_prime_mean: f64,
    /// See `p_prime_mean`.
    pub p_prime_squared_mean: f64,
    /// From arrival to start of transmission.
    pub delay_ms: DelayMs,
}

/// A distribution of delays, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "quantiles are what their names say")]
pub struct DelayMs {
    pub mean: f64,
    pub p1: f64,
    pub p25: f64,
    pub p50: f64,
    pub p75: f64,
    pub p99: f64,
    pub max: f64,
}

/// One flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowOutcome {
    /// Its group.
    pub label: String,
    /// Its congestion control.
    pub cc: String,
    /// Whole packets delivered, b/s, while it ran.
    pub rate_bps: f64,
    /// Delivered carrying CE / delivered.
    pub marked_ratio: f64,
    /// Dropped at the bottleneck / arrived there.
    pub dropped_ratio: f64,
    /// Mean of its smoothed round-trip time.
    pub rtt_ms: f64,
}

/// The flows of one label.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupOutcome {
    /// The label.
    pub label: String,
    /// How many flows.
    pub count: u32,
    /// Mean of their rates.
    pub rate_bps_mean: f64,
    /// Jain's index of their rates.
    pub jain: f64,
}

/// Short flows of one entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WebOutcome {
    /// Their congestion control.
    pub cc: String,
    /// How many came to their end.
    pub completed: u64,
    /// From the first packet to the last acknowledgement.
    pub completion_ms: Completion,
}

/// Completion times, ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "quantiles are what their names say")]
pub struct Completion {
    pub p50: f64,
    pub p99: f64,
}

/// What plots are drawn from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Seconds between points of the series.
    pub step_s: f64,
    /// Delivered b/s of each label over time, from the very start.
    pub rates: Vec<(String, Vec<f64>)>,
    /// Mean delay of L and C over time, ms.
    pub delay_ms: [Vec<f64>; 2],
    /// Cumulative distribution of the delay of L and C after warm-up: (ms, share of packets at most so late).
    pub cdf: [Vec<(f64, f64)>; 2],
}
