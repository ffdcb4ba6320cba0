// SPDX-License-Identifier: Apache-2.0
//! What `sluice traffic` prints: one JSON object a second and one at the end, each on a line of its own.

use std::io::{self, Write};

use cc::{EcnCounts, Nanos};
use serde_json::{Value, json};

/// Cumulative counts of one flow or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Packets delivered to the receiver, as far as this end knows.
    pub(super) packets: u64,
    /// Their UDP payload.
    pub(super) bytes: u64,
    /// Delivered with CE.
    pub(super) marked: u64,
    /// Declared lost by the sender.
    pub(super) lost: u64,
    /// Seen by the receiver.
    pub(super) ecn: EcnCounts,
}

impl Counts {
    pub(super) fn plus(self, other: Self) -> Self {
        self.combine(other, u64::saturating_add)
    }

    pub(super) fn less(self, earlier: Self) -> Self {
        self.combine(earlier, u64::saturating_sub)
    }

    fn combine(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        let ecn = EcnCounts {
            not_ect: f(self.ecn.not_ect, other.ecn.not_ect),
            ect1: f(self.ecn.ect1, other.ecn.ect1),
            ect0: f(self.ecn.ect0, other.ecn.ect0),
            ce: f(self.ecn.ce, other.ecn.ce),
        };
        Self {
            packets: f(self.packets, other.packets),
            bytes: f(self.bytes, other.bytes),
            marked: f(self.marked, other.marked),
            lost: f(self.lost, other.lost),
            ecn,
        }
    }
}

/// Round-trip samples of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RttSpan {
    samples: u64,
    min: u64,
    max: u64,
    sum: u64,
}

impl RttSpan {
    pub(super) fn add(&mut self, rtt: Nanos) {
        self.merge(Self { samples: 1, min: rtt.0, max: rtt.0, sum: rtt.0 });
    }

    pub(super) fn merge(&mut self, other: Self) {
        if other.samples == 0 {
            return;
        }
        self.min = if self.samples == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.sum = self.sum.saturating_add(other.sum);
        self.samples += other.samples;
    }

    fn to_json(self) -> Value {
        if self.samples == 0 {
            return Value::Null;
        }
        let us = |ns: u64| ns / 1000;
        json!({ "min": us(self.min), "mean": us(self.sum / self.samples), "max": us(self.max) })
    }
}

/// One line's worth.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) counts: Counts,
    pub(super) rtt: RttSpan,
    pub(super) length: Nanos,
    /// Sum over the flows, at the end of the span; `u64::MAX` where there is no window.
    pub(super) cwnd_bytes: u64,
    /// IP and UDP headers of each packet.
    pub(super) header_bytes: u64,
}

impl Span {
    /// The fields that every line has.
    pub(super) fn to_json(self) -> Value {
        let c = self.counts;
        let rate = |bytes: u64| {
            let bits = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(self.length.0.max(1));
            u64::try_from(bits).unwrap_or(u64::MAX)
        };
        json!({
            "rate_bps": rate(c.bytes),
            "ip_rate_bps": rate(c.bytes + c.packets * self.header_bytes),
            "packets": c.packets,
            "rtt_us": self.rtt.to_json(),
            "marked": c.marked,
            "lost": c.lost,
            "cwnd_bytes": (self.cwnd_bytes != u64::MAX).then_some(self.cwnd_bytes),
            "ecn": { "not_ect": c.ecn.not_ect, "ect0": c.ecn.ect0, "ect1": c.ecn.ect1, "ce": c.ecn.ce },
        })
    }
}

/// Writes `fields` and `more` as one line.
pub(super) fn line(out: &mut dyn Write, mut fields: Value, more: Value) -> io::Result<()> {
    if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
        fields.extend(more);
    }
    writeln!(out, "{fields}")?;
    out.flush()
}

/// Nanoseconds as seconds with three decimals, for a field `t_s`.
pub(super) fn seconds(at: Nanos) -> f64 {
    Nanos(at.0 / 1_000_000 * 1_000_000).as_secs_f64()
}
