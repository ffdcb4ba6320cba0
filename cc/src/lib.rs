// SPDX-License-Identifier: Apache-2.0
//! Congestion controls as clock-free state machines
