// SPDX-License-Identifier: Apache-2.0
//! What a congestion control is: events in, window and pace out.
//!
//! Invariant: a `Sender` knows bytes, packet numbers and times only as arguments; it never sees a packet. Packet
//! numbers are those of transmissions (a retransmission has a new one, as in RFC 9000), so no sample is ambiguous.

use core::fmt;
use core::str::FromStr;

use crate::{
    Bbr1, Bbr2, Cbr, Codepoint, Cubic, Dctcp, LostPacket, Nanos, Prague, RateSample, Reno, Scream, Start,
};

/// One acknowledgement that brought news.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ack {
    /// When it arrived.
    pub now: Nanos,
    /// Packets it newly acknowledges, CE-marked ones included.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of `packets` the receiver counted as CE (AccECN style: a difference of cumulative counts).
    pub ce_packets: u64,
    /// The round-trip sample, if it gives one.
    pub rtt: Option<Nanos>,
    /// Smoothed round-trip time after that sample (RFC 6298).
    pub srtt: Nanos,
    /// Least sample so far.
    pub min_rtt: Nanos,
    /// Bytes in flight after this acknowledgement.
    pub in_flight: u64,
    /// Highest packet number acknowledged so far, plus one.
    pub acked_through: u64,
    /// The number the next packet sent will carry.
    pub next_seq: u64,
    /// Neither the window nor the pace held the sender back lately, so the window has not been tested (RFC 7661).
    pub app_limited: bool,
    /// The receiver saw a codepoint that was never sent: the path rewrites ECN.
    pub ecn_broken: bool,
    /// Bytes in flight before this acknowledgement.
    pub prior_in_flight: u64,
    /// Bytes delivered since the start, these included.
    pub delivered: u64,
    /// Bytes declared lost since the start.
    pub lost: u64,
    /// The delivery rate sample, if it gives one.
    pub rate: Option<RateSample>,
    /// The window held the sender back within the last round trip.
    pub cwnd_limited: bool,
}

/// Packets newly declared lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    /// When they were.
    pub now: Nanos,
    /// How many.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The highest number among them.
    pub largest: u64,
    /// The number the next packet sent will carry.
    pub next_seq: u64,
    /// Smoothed round-trip time.
    pub srtt: Nanos,
}

/// What a sender shows to people.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct State {
    /// Slow-start threshold in bytes; `None` while there is none.
    pub ssthresh: Option<u64>,
    /// Estimate of the marking probability, where the control keeps one.
    pub alpha: Option<f64>,
    /// In slow start.
    pub slow_start: bool,
}

/// A congestion control.
pub trait Sender: fmt::Debug + Send {
    /// The handshake took this long: the first packets can be paced by it.
    fn on_handshake(&mut self, _rtt: Nanos) {}

    /// News of an acknowledgement; after `on_loss` where both come from one.
    fn on_ack(&mut self, ack: &Ack);

    /// Packets were declared lost.
    fn on_loss(&mut self, loss: &Loss);

    /// One packet was declared lost; before the `on_loss` or `on_rto` that has them all.
    fn on_packet_lost(&mut self, _packet: &LostPacket) {}

    /// It holds its window down on purpose, so that rates measured now say nothing of the path.
    fn is_holding_back(&self) -> bool {
        false
    }

    /// All packets whose loss last reduced the window turn out to have arrived.
    fn on_spurious_loss(&mut self, now: Nanos);

    /// The retransmission timer ran out and all that flew is taken for lost.
    fn on_rto(&mut self, now: Nanos);

    /// It sends nothing before this time, if that lies ahead; asked before each packet.
    fn silent_until(&mut self, _now: Nanos) -> Option<Nanos> {
        None
    }

    /// Bytes that may be in flight.
    fn cwnd(&self) -> u64;

    /// Pace in bits per second; `None`: as acknowledgements come.
    fn pacing_bps(&self, now: Nanos) -> Option<u64>;

    /// Bytes that may leave back to back when paced.
    fn burst(&self) -> u64;

    /// Bytes of the next packet.
    fn packet_bytes(&self) -> u32;

    /// The ECN field of the next packet.
    fn codepoint(&self) -> Codepoint;

    /// For display.
    fn state(&self) -> State;
}

/// The congestion controls there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// RFC 5681, 6582.
    Reno,
    /// RFC 9438.
    Cubic,
    /// RFC 8257.
    Dctcp,
    /// Prague, the scalable control of L4S.
    Prague,
    /// BBR version 1.
    Bbr1,
    /// BBR version 2.
    Bbr2,
    /// BBR version 3.
    Bbr3,
    /// RFC 8298.
    Scream,
    /// A constant rate that answers nothing.
    Cbr,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Reno,
        Self::Cubic,
        Self::Dctcp,
        Self::Prague,
        Self::Bbr1,
        Self::Bbr2,
        Self::Bbr3,
        Self::Scream,
        Self::Cbr,
    ];

    /// Its name on a command line and in scenarios.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Dctcp => "dctcp",
            Self::Prague => "prague",
            Self::Bbr1 => "bbr1",
            Self::Bbr2 => "bbr2",
            Self::Bbr3 => "bbr3",
            Self::Scream => "scream",
            Self::Cbr => "cbr",
        }
    }

    /// What it sets when nobody says otherwise.
    pub const fn default_codepoint(self) -> Codepoint {
        match self {
            Self::Dctcp | Self::Prague | Self::Bbr2 | Self::Scream => Codepoint::Ect1,
            Self::Reno | Self::Cubic | Self::Bbr1 | Self::Bbr3 | Self::Cbr => Codepoint::NotEct,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// A name that is no congestion control here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a congestion control this version has: use prague, cubic, reno, dctcp, bbr1, bbr2, bbr3, scream or cbr"
)]
pub struct UnknownKind(pub String);

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(s: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.label() == s).ok_or_else(|| UnknownKind(s.to_owned()))
    }
}

/// What to build a sender from.
#[derive(Clone, Copy, Debug)]
pub struct SenderOptions {
    /// Bytes of a full packet, as the caller counts packets (SMSS of RFC 5681).
    pub mss: u32,
    /// The ECN field; `None`: [`Kind::default_codepoint`].
    pub codepoint: Option<Codepoint>,
    /// Initial window in packets (RFC 6928: 10).
    pub initial_packets: u32,
    /// CUBIC: leave slow start on rising delay.
    pub hystart: bool,
    /// Prague: behave as if the RTT were at least 25 ms.
    pub rtt_independence: bool,
    /// Prague: how it begins.
    pub start: Start,
    /// Reno, CUBIC and DCTCP: pace at 2 (slow start) or 1.2 windows a round trip, as Linux does under `fq`.
    pub paced: bool,
    /// CBR: the rate. SCReAM: the greatest rate; 0: none.
    pub rate_bps: u64,
    /// CBR: sends for this long and rests for `off`; either zero: always on.
    pub on: Nanos,
    /// CBR: see `on`.
    pub off: Nanos,
    /// SCReAM: queue delay to hold (`QDELAY_TARGET_LO` of RFC 8298: 100 ms).
    pub delay_target: Nanos,
    /// No window grows beyond this many bytes.
    pub max_cwnd: u64,
    /// BBR versions 2 and 3 answer CE once min RTT has been at most this; zero: at any.
    pub ecn_max_rtt: Nanos,
    /// What BBR leaves to chance (when to probe) follows from this.
    pub seed: u64,
}

impl Default for SenderOptions {
    fn default() -> Self {
        Self {
            mss: 1400,
            codepoint: None,
            initial_packets: 10,
            hystart: true,
            rtt_independence: true,
            start: Start::SlowStart,
            paced: false,
            rate_bps: 0,
            on: Nanos::ZERO,
            off: Nanos::ZERO,
            delay_target: Nanos::from_millis(100),
            max_cwnd: 1 << 32,
            ecn_max_rtt: Nanos::from_millis(5),
            seed: 0,
        }
    }
}

/// Builds a sender.
pub fn build(kind: Kind, options: &SenderOptions) -> Box<dyn Sender> {
    match kind {
        Kind::Reno => Box::new(Reno::new(options)),
        Kind::Cubic => Box::new(Cubic::new(options)),
        Kind::Dctcp => Box::new(Dctcp::new(options)),
        Kind::Prague => Box::new(Prague::new(options)),
        Kind::Bbr1 => Box::new(Bbr1::new(options)),
        Kind::Bbr2 => Box::new(Bbr2::v2(options)),
        Kind::Bbr3 => Box::new(Bbr2::v3(options)),
        Kind::Scream => Box::new(Scream::new(options)),
        Kind::Cbr => Box::new(Cbr::new(options)),
    }
}

/// Pace of an acknowledgement-clocked sender under `fq`: 2 windows a round trip while it may double, else 1.2
/// (Linux `tcp_pacing_ss_ratio`, `tcp_pacing_ca_ratio`).
pub(crate) fn window_pace_bps(cwnd: u64, srtt: Nanos, doubling: bool) -> Option<u64> {
    if srtt == Nanos::ZERO {
        return None;
    }
    let percent: u128 = if doubling { 200 } else { 120 };
    let bps = u128::from(cwnd) * 8 * 1_000_000_000 * percent / 100 / u128::from(srtt.0);
    Some(u64::try_from(bps).unwrap_or(u64::MAX).max(1))
}
