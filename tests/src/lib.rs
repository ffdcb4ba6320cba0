// SPDX-License-Identifier: Apache-2.0
//! Whole-system tests.
