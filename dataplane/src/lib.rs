// SPDX-License-Identifier: Apache-2.0
//! Lcores: RX, TX, control, and what joins them
