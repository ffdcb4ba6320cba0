// SPDX-License-Identifier: Apache-2.0
//! The wrapper on a real EAL. One binary for all: EAL starts once in a process, and what happens when it cannot start
//! is shown by child processes.

#[cfg(test)]
mod child;
#[cfg(test)]
mod common;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod lcores;
#[cfg(test)]
mod packets;
#[cfg(test)]
mod ports;
