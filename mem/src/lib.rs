// SPDX-License-Identifier: Apache-2.0
//! Prefetch, TSC and huge-page slices behind safe functions
