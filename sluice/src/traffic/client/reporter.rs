// SPDX-License-Identifier: Apache-2.0
//! What the client says each second and at the end.

use std::io::{self, Write};

use cc::Nanos;
use serde_json::json;

use super::super::Direction;
use super::super::flow::{End, header_bytes};
use super::super::report::{self, Counts, RttSpan, Span};
use super::Client;

const REPORT: Nanos = Nanos::from_secs(1);

/// Spans of a second, and the whole.
pub(super) struct Reporter {
    started: Nanos,
    last: Nanos,
    counts: Counts,
    rtt: RttSpan,
}

impl Reporter {
    pub(super) fn new(now: Nanos) -> Self {
        Self { started: now, last: now, counts: Counts::default(), rtt: RttSpan::default() }
    }

    pub(super) fn due(&self) -> Nanos {
        self.last + REPORT
    }

    pub(super) fn tick(&mut self, client: &mut Client<'_>, out: &mut dyn Write) -> io::Result<()> {
        if client.clock.now() >= self.due() { self.emit(client, out) } else { Ok(()) }
    }

    /// The last second is rarely a whole one to the nanosecond.
    pub(super) fn last_tick(&mut self, client: &mut Client<'_>, out: &mut dyn Write) -> io::Result<()> {
        if client.clock.now().since(self.last) > Nanos(REPORT.0 / 2) {
            self.emit(client, out)
        } else {
            Ok(())
        }
    }

    fn emit(&mut self, client: &mut Client<'_>, out: &mut dyn Write) -> io::Result<()> {
        let now = client.clock.now();
        let counts = client.counts();
        let mut span = Span {
            counts: counts.less(self.counts),
            length: now.since(self.last),
            header_bytes: header_bytes(&client.args.connect),
            ..Span::default()
        };
        for flow in &mut client.flows {
            span.rtt.merge(flow.end.take_rtt());
            span.cwnd_bytes = span.cwnd_bytes.saturating_add(flow.end.cwnd_bytes());
        }
        self.rtt.merge(span.rtt);
        (self.last, self.counts) = (now, counts);
        report::line(out, span.to_json(), json!({ "t_s": report::seconds(now.since(self.started)) }))
    }

    pub(super) fn summary(
        &mut self,
        client: &mut Client<'_>,
        started: Nanos,
        stopped: Nanos,
        out: &mut dyn Write,
    ) -> anyhow::Result<Counts> {
        for flow in &mut client.flows {
            self.rtt.merge(flow.end.take_rtt());
        }
        let length = stopped.since(started);
        let header_bytes = header_bytes(&client.args.connect);
        let cwnd_bytes = client.flows.iter().map(|flow| flow.end.cwnd_bytes()).fold(0, u64::saturating_add);
        let counts = client.counts();
        let span = Span { counts, rtt: self.rtt, length, cwnd_bytes, header_bytes };
        let flow_rates: Vec<u64> = client
            .flows
            .iter()
            .map(|flow| flow.end.counts().bytes.saturating_mul(8_000) / (length.0 / 1_000_000).max(1))
            .collect();
        let refused: u64 = client
            .flows
            .iter()
            .map(|flow| if let End::Sending(end) = &flow.end { end.refused() } else { 0 })
            .sum();
        let more = json!({
            "summary": true,
            "seconds": report::seconds(length),
            "cc": client.args.cc.label(),
            "direction": if client.args.direction == Direction::Up { "up" } else { "down" },
            "flows": client.args.flows,
            "flow_rates_bps": flow_rates,
            "refused": refused,
            "ignored": client.flows.iter().map(|flow| flow.ignored).sum::<u64>(),
        });
        report::line(out, span.to_json(), more)?;
        Ok(counts)
    }
}
