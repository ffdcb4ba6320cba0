// SPDX-License-Identifier: Apache-2.0
//! Each precondition on a made-up machine.
