// SPDX-License-Identifier: Apache-2.0
//! The safe wrapper around DPDK
