// SPDX-License-Identifier: Apache-2.0
//! `sluice`: the command. One module a subcommand; no algorithm lives here.
#![forbid(unsafe_code)]

fn main() {}
