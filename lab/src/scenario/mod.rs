// SPDX-License-Identifier: Apache-2.0
//! A scenario: one bottleneck, its AQM and the flows through it, validated.

mod parse;
mod raw;

#[cfg(test)]
mod tests;

use aqm::{BitsPerSec, Nanos};
use cc::Kind;
use model::Profile;
use model::profile::{MAX_LIMIT_US, Overhead};

use crate::ETHERNET_HEADER;

/// What "none" means as overhead in the lab: a link's rate counts whole frames, so the header that the engine does not
/// see is added.
#[expect(clippy::cast_possible_truncation, reason = "14")]
pub const NO_OVERHEAD: Overhead =
    Overhead { bytes: ETHERNET_HEADER as i16, mpu: 0, cells: model::profile::Cells::None };

/// One closed-loop experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// How long it runs.
    pub duration: Nanos,
    /// What is left out of the result at its beginning.
    pub warmup: Nanos,
    /// The bottleneck.
    pub link: Link,
    /// Its AQM.
    pub profile: Profile,
    /// Long-running flows.
    pub flows: Vec<Flow>,
    /// Short flows.
    pub web: Vec<Web>,
}

/// The bottleneck link.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its rate over time, by rising time; the first step is at 0.
    pub steps: Vec<RateStep>,
    /// The only limit in packets; `None`: the profile's limits.
    pub buffer_packets: Option<u32>,
    /// Bursty access: the link sends for this long, then rests; zero: never rests.
    pub burst: Nanos,
    /// Each packet is delayed by up to this much behind the bottleneck, order kept.
    pub jitter: Nanos,
    /// Share of packets lost at random behind the bottleneck.
    pub loss: f64,
    /// The way of acknowledgements; `None`: never a bottleneck.
    pub reverse: Option<Reverse>,
}

/// From when on the link has which rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateStep {
    /// From when on.
    pub at: Nanos,
    /// The rate.
    pub rate: BitsPerSec,
}

/// The link of acknowledgements.
#[derive(Clone, Debug, PartialEq)]
pub struct Reverse {
    /// Its rate.
    pub rate: BitsPerSec,
    /// Its AQM.
    pub profile: Profile,
}

/// What a flow sets in the ECN field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnChoice {
    /// What its congestion control does by default.
    Auto,
    /// 00.
    NotEct,
    /// 10.
    Ect0,
    /// 01.
    Ect1,
}

/// One or more equal long-running flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Names its group in the result.
    pub label: String,
    /// Its congestion control.
    pub cc: Kind,
    /// How many.
    pub count: u32,
    /// Base round-trip time, without any queue.
    pub rtt: Nanos,
    /// The ECN field.
    pub ecn: EcnChoice,
    /// Offered rate, `udp` only, of whole packets.
    pub rate: BitsPerSec,
    /// Bytes of a full packet on the wire.
    pub packet_bytes: u32,
    /// When it starts (each flow of a group a little later, by the seed).
    pub start: Nanos,
    /// When it stops; `None`: at the end.
    pub stop: Option<Nanos>,
    /// Prague: as if the RTT were at least 25 ms.
    pub rtt_independence: bool,
    /// CUBIC: leave slow start on rising delay.
    pub hystart: bool,
    /// `udp`: sends for this long, then rests for `off`; zero: sends all the time.
    pub on: Nanos,
    /// See `on`.
    pub off: Nanos,
}

/// Short flows that come and go.
#[derive(Clone, Debug, PartialEq)]
pub struct Web {
    /// Their congestion control.
    pub cc: Kind,
    /// Base round-trip time.
    pub rtt: Nanos,
    /// The ECN field.
    pub ecn: EcnChoice,
    /// Mean arrivals a second (Poisson).
    pub arrivals_per_s: f64,
    /// Their sizes.
    pub size: Size,
}

/// Bytes that a short flow carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Always this.
    Fixed(u64),
    /// Pareto, truncated at `max_bytes`.
    Pareto {
        /// Shape.
        shape: f64,
        /// Least size.
        min_bytes: u64,
        /// Greatest size.
        max_bytes: u64,
    },
}

impl Scenario {
    /// The profile with the buffer of the link, which is the only limit where it is given.
    pub(crate) fn profile_in_force(&self) -> Profile {
        let profile = self.profile.clone();
        match self.link.buffer_packets {
            None => profile,
            Some(packets) => Profile { limit_packets: Some(packets), limit_us: MAX_LIMIT_US, ..profile },
        }
    }

    /// Bits that the link can carry from the end of warm-up to the end.
    #[expect(clippy::cast_precision_loss, reason = "times and rates are far below 2^53")]
    pub(crate) fn capacity_bits(&self) -> f64 {
        let steps = &self.link.steps;
        let ends = steps.iter().skip(1).map(|step| step.at).chain([self.duration]);
        let parts = steps.iter().zip(ends).map(|(step, end)| {
            let span = end.min(self.duration).since(step.at.max(self.warmup));
            step.rate.0 as f64 * (span.0 as f64 / 1e9)
        });
        parts.sum()
    }
}

/// A congestion control's name in scenarios and results.
pub(crate) const fn cc_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Cbr => "udp",
        other => other.label(),
    }
}
