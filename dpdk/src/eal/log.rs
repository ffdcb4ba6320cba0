// SPDX-License-Identifier: Apache-2.0
//! EAL's and the drivers' log: the last lines are kept, and passed on if asked.
//!
//! EAL writes to stderr and syslog unless it is given a stream; ours keeps the tail, so that an error can quote it.
//! Messages of level CRIT and above always reach stderr: EAL aborts after them.

use core::ffi::c_char;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use dpdk_sys as sys;

/// Lines kept.
const LINES: usize = 200;
/// `RTE_LOG_CRIT`.
const CRITICAL: u32 = 3;

/// Where the log goes beside the tail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogTo {
    /// Nowhere.
    #[default]
    Tail,
    /// To stderr, as it comes.
    Stderr,
}

static TAIL: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());
static TO_STDERR: AtomicBool = AtomicBool::new(false);

/// The last lines of the log, oldest first.
pub fn log_tail() -> Vec<String> {
    TAIL.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}

/// Takes over EAL's log.
pub(crate) fn open(to: LogTo) {
    TO_STDERR.store(to == LogTo::Stderr, Ordering::Relaxed);
    // SAFETY: `write` has the type that the shim asks for and lives for ever. Without a stream, which only a lack of
    // memory can cause, the log goes to stderr.
    let _ = unsafe { sys::shim_log_open(Some(write)) };
}

unsafe extern "C" fn write(level: u32, text: *const c_char, length: usize) {
    // SAFETY: the stream passes a buffer of `length` bytes that lives through the call
    // (test: `the_log_of_a_failure_is_kept`).
    let bytes = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), length) };
    if level <= CRITICAL || TO_STDERR.load(Ordering::Relaxed) {
        let _ = std::io::stderr().write_all(bytes);
    }
    keep(&String::from_utf8_lossy(bytes));
}

fn keep(text: &str) {
    let mut tail = TAIL.lock().unwrap_or_else(PoisonError::into_inner);
    for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        if tail.len() == LINES {
            tail.pop_front();
        }
        tail.push_back(line.to_owned());
    }
}
