// SPDX-License-Identifier: Apache-2.0
//! Header parsing, keys and CE marking
