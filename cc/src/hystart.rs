// SPDX-License-Identifier: Apache-2.0
//! HyStart++ (RFC 9406): leave slow start when the round's least RTT rises, by way of a cautious phase that can
//! find the rise to have been spurious.
//!
//! RFC 9438 section 4.10 recommends it for CUBIC. Linux has the older HyStart (ACK trains and delay); the two end
//! slow start at about the same window, this one is specified.

use crate::epoch::Epoch;
use crate::{Ack, Nanos};

/// `MIN_RTT_THRESH`, RFC 9406 section 4.3.
const MIN_RTT_THRESH: Nanos = Nanos::from_millis(4);
/// `MAX_RTT_THRESH`, RFC 9406 section 4.3.
const MAX_RTT_THRESH: Nanos = Nanos::from_millis(16);
/// `MIN_RTT_DIVISOR`, RFC 9406 section 4.3.
const MIN_RTT_DIVISOR: u64 = 8;
/// `N_RTT_SAMPLE`, RFC 9406 section 4.3.
const N_RTT_SAMPLE: u32 = 8;
/// `CSS_GROWTH_DIVISOR`, RFC 9406 section 4.3.
pub(crate) const CSS_GROWTH_DIVISOR: f64 = 4.0;
/// `CSS_ROUNDS`, RFC 9406 section 4.3.
const CSS_ROUNDS: u32 = 5;

/// What slow start should do with an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Grow by all of it.
    Full,
    /// Conservative slow start: grow by a quarter.
    Slower,
    /// Leave slow start: the window is the threshold.
    Leave,
}

/// State of one slow start.
#[derive(Clone, Debug)]
pub(crate) struct HyStart {
    round: Option<Epoch>,
    last_min: Nanos,
    this_min: Nanos,
    samples: u32,
    /// Baseline RTT and rounds left, in conservative slow start.
    css: Option<(Nanos, u32)>,
}

impl HyStart {
    pub(crate) fn new() -> Self {
        Self { round: None, last_min: Nanos::MAX, this_min: Nanos::MAX, samples: 0, css: None }
    }

    /// An acknowledgement in slow start.
    pub(crate) fn on_ack(&mut self, ack: &Ack) -> Growth {
        self.turn_round(ack);
        if let Some(rtt) = ack.rtt {
            self.this_min = self.this_min.min(rtt);
            self.samples += 1;
        }
        match self.css {
            None => self.look_for_rise(),
            Some((_, 0)) => return Growth::Leave,
            Some((baseline, _)) if self.samples >= N_RTT_SAMPLE && self.this_min < baseline => {
                self.css = None;
            }
            Some(_) => {}
        }
        if self.css.is_some() { Growth::Slower } else { Growth::Full }
    }

    fn turn_round(&mut self, ack: &Ack) {
        if self.round.is_some_and(|round| !round.round_is_over(ack.acked_through)) {
            return;
        }
        if self.round.is_some() {
            self.last_min = self.this_min;
            if let Some((_, left)) = &mut self.css {
                *left = left.saturating_sub(1);
            }
        }
        self.this_min = Nanos::MAX;
        self.samples = 0;
        self.round = Some(Epoch::start(ack.now, ack.next_seq));
    }

    fn look_for_rise(&mut self) {
        if self.samples < N_RTT_SAMPLE || self.last_min == Nanos::MAX || self.this_min == Nanos::MAX {
            return;
        }
        let threshold = Nanos(self.last_min.0 / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
        if self.this_min >= self.last_min + threshold {
            self.css = Some((self.this_min, CSS_ROUNDS));
        }
    }
}
