// SPDX-License-Identifier: Apache-2.0
//! Generated bindings to the distribution's libdpdk
