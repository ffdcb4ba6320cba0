// SPDX-License-Identifier: Apache-2.0
//! The HTTP interface as clients meet it: a listening server, real sockets, a data plane of memory.

#![expect(clippy::unwrap_used, reason = "helpers of tests; the lint knows only test functions")]

mod bulk;
mod client;
mod dashboard;
mod events;
mod fake;
mod hostile;
mod kill;
mod live;
mod parents;
mod records;
mod reload;
mod restart;
mod rig;
mod room;
mod secure;
