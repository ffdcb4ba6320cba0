// SPDX-License-Identifier: Apache-2.0
//! Reno: RFC 5681 with the recovery of RFC 6582 on selective acknowledgements, and RFC 3168's answer to CE.
//!
//! Invariant: the window is at least one packet, and falls at most once per round trip.
//! Departures: slow start counts all bytes acknowledged, as Linux does (RFC 5681 allows one SMSS an ACK), because
//! a receiver here may acknowledge several packets at once. Halves the window, not FlightSize (Linux does the same):
//! where acknowledgements come in batches FlightSize depends on how they were processed; instead the window does not
//! grow while something else limits the flow (RFC 7661). In recovery the window is the new threshold from the
//! start and packets declared lost no longer count as in flight (the pipe of RFC 6675), which replaces the
//! inflation by duplicate ACKs of RFC 6582.

use crate::epoch::Epoch;
use crate::sender::window_pace_bps;
use crate::{Ack, Codepoint, Kind, Loss, Nanos, Sender, SenderOptions, State};

/// See the module.
#[derive(Clone, Debug)]
pub struct Reno {
    mss: u64,
    codepoint: Codepoint,
    paced: bool,
    max_cwnd: u64,
    cwnd: u64,
    ssthresh: u64,
    /// Bytes acknowledged towards the next increase (RFC 5681 section 3.1, RFC 3465).
    credit: u64,
    recovery: Option<Epoch>,
    /// Window and threshold before the last reduction on loss, for undoing it.
    undo: Option<(u64, u64)>,
    srtt: Nanos,
}

impl Reno {
    /// With the initial window of RFC 6928.
    pub fn new(options: &SenderOptions) -> Self {
        let mss = u64::from(options.mss.max(1));
        Self {
            mss,
            codepoint: options.codepoint.unwrap_or(Kind::Reno.default_codepoint()),
            paced: options.paced,
            max_cwnd: options.max_cwnd.max(2 * mss),
            cwnd: mss * u64::from(options.initial_packets.max(1)),
            ssthresh: u64::MAX,
            credit: 0,
            recovery: None,
            undo: None,
            srtt: Nanos::ZERO,
        }
    }

    fn reduce(&mut self, now: Nanos, next_seq: u64) {
        self.ssthresh = (self.cwnd / 2).max(2 * self.mss);
        self.cwnd = self.ssthresh;
        self.credit = 0;
        self.recovery = Some(Epoch::start(now, next_seq));
    }

    fn grow(&mut self, bytes: u64) {
        if self.cwnd < self.ssthresh {
            self.cwnd += bytes.min(self.ssthresh - self.cwnd);
        } else {
            self.credit += bytes;
            if self.credit >= self.cwnd {
                self.credit -= self.cwnd;
                self.cwnd += self.mss;
            }
        }
        self.cwnd = self.cwnd.min(self.max_cwnd);
    }
}

impl Sender for Reno {
    fn on_ack(&mut self, ack: &Ack) {
        self.srtt = ack.srtt;
        if self.recovery.is_some_and(|epoch| epoch.round_is_over(ack.acked_through)) {
            self.recovery = None;
        }
        if self.recovery.is_some() {
            return;
        }
        if ack.ce_packets > 0 {
            self.undo = None;
            self.reduce(ack.now, ack.next_seq);
        } else if !ack.app_limited {
            self.grow(ack.bytes);
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        if self.recovery.is_some_and(|epoch| !epoch.is_before(loss.largest)) {
            return;
        }
        self.undo = Some((self.cwnd, self.ssthresh));
        self.reduce(loss.now, loss.next_seq);
    }

    fn on_spurious_loss(&mut self, _now: Nanos) {
        if let Some((cwnd, ssthresh)) = self.undo.take() {
            self.cwnd = self.cwnd.max(cwnd);
            self.ssthresh = ssthresh;
            self.recovery = None;
        }
    }

    fn on_rto(&mut self, _now: Nanos) {
        // A second time-out in a row holds the threshold (RFC 5681 section 3.1).
        if self.cwnd > self.mss {
            self.undo = Some((self.cwnd, self.ssthresh));
            self.ssthresh = (self.cwnd / 2).max(2 * self.mss);
        }
        self.cwnd = self.mss;
        self.credit = 0;
        self.recovery = None;
    }

    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn pacing_bps(&self, _now: Nanos) -> Option<u64> {
        if !self.paced {
            return None;
        }
        window_pace_bps(self.cwnd, self.srtt, self.cwnd < self.ssthresh / 2)
    }

    fn burst(&self) -> u64 {
        2 * self.mss
    }

    fn packet_bytes(&self) -> u32 {
        u32::try_from(self.mss).unwrap_or(u32::MAX)
    }

    fn codepoint(&self) -> Codepoint {
        self.codepoint
    }

    fn state(&self) -> State {
        State {
            ssthresh: (self.ssthresh != u64::MAX).then_some(self.ssthresh),
            alpha: None,
            slow_start: self.cwnd < self.ssthresh,
        }
    }
}
