// SPDX-License-Identifier: Apache-2.0
//! The simulator as a whole: what closed loops are known to do.

mod loops;
mod paths;
mod repeat;
mod rig;
mod shelf;
mod web;
