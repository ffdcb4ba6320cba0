// SPDX-License-Identifier: Apache-2.0
//! The only safe wrapper around DPDK.
//!
//! Invariants, each upheld by a type and shown by `tests/`:
//! - an [`Mbuf`] is in exactly one place: a burst, a FIFO, a ring, a driver, or freed;
//! - a pool outlives its mbufs, a port its queues, EAL everything made with it: each holds what it needs, and
//!   what cannot be proved idle at the end is left to the end of the process rather than freed;
//! - a queue handle exists only while its port runs, and one thread at a time can use it;
//! - whatever an operator can get wrong ends in an error that is one sentence and says what to do.
//!
//! Knows no subscribers and no policy. Hot calls go to the drivers through `rte_eth_fp_ops` (measured: as fast as
//! C's inlines); everything else costs a call of about 1 ns.

mod burst;
mod eal;
mod error;
mod fifo;
mod mbuf;
mod pool;
mod port;
mod ring;
mod window;

pub use burst::Burst;
pub use eal::{
    Eal, EalOptions, Lcore, LcoreHandle, LcorePanic, LogTo, Memory, RegisteredThread, current_lcore,
    free_huge_mb, log_tail, version,
};
pub use error::{EalError, PoolError, PortError};
pub use fifo::MbufFifo;
pub use mbuf::{Mbuf, Words};
pub use pool::{Mempool, PoolOptions};
pub use port::{Configured, Link, MtuOutcome, Port, PortOptions, PortStats, Queues, RxQueue, TxQueue};
pub use ring::{Consumer, Producer, ring};
