// SPDX-License-Identifier: Apache-2.0
//! Congestion controls as clock-free state machines, and the transport pieces around them.
//!
//! A [`Sender`] is one congestion control: acknowledgements, losses and timeouts go in, a window, a pacing rate
//! and an ECN codepoint come out. A [`Transmitter`] puts one on a [`Flight`] of packets with loss detection, a
//! retransmission timer and a [`Pacer`]; a [`Receiver`] counts what arrives and says when to acknowledge it.
//! The lab drives them in virtual time, `sluice traffic` on real sockets: the same objects.
//!
//! Knows no clock, no socket, no randomness and no other crate of the workspace. Floating point is limited to
//! the four operations and `libm`, so the same input gives the same output on any machine.
#![forbid(unsafe_code)]

mod bbr;
mod cbr;
mod cubic;
mod dctcp;
mod epoch;
mod flight;
mod hystart;
mod pacer;
mod prague;
mod receiver;
mod reno;
mod rtt;
mod scream;
mod sender;
mod transmitter;
mod units;

pub use bbr::{Bbr1, Bbr2};
pub use cbr::Cbr;
pub use cubic::Cubic;
pub use dctcp::Dctcp;
pub use flight::{AckFrame, BITMAP_PACKETS, Flight, FlightOptions, LostPacket, Newly, RateSample};
pub use pacer::Pacer;
pub use prague::{Prague, Start};
pub use receiver::{EcnCounts, Receiver, ReceiverOptions};
pub use reno::Reno;
pub use rtt::{RttEstimator, RttOptions};
pub use scream::Scream;
pub use sender::{Ack, Kind, Loss, Sender, SenderOptions, State, UnknownKind, build};
pub use transmitter::{Next, Outgoing, Totals, Transmitter, TransmitterOptions};
pub use units::{Codepoint, Nanos};
