// SPDX-License-Identifier: Apache-2.0
//! EAL's and the drivers' log: the last lines are kept, and passed on if asked.
//!
//! EAL writes to stderr and syslog unless it is given a stream; ours keeps the tail, so that an error can quote it.
//! Messages of level CRIT and above always reach stderr: EAL aborts after them.

use core::ffi::c_char;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

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

static TAIL: Mutex<Tail> = Mutex::new(Tail { lines: VecDeque::new(), written: 0 });
static TO_STDERR: AtomicBool = AtomicBool::new(false);

struct Tail {
    lines: VecDeque<String>,
    /// Lines ever written.
    written: usize,
}

fn tail() -> MutexGuard<'static, Tail> {
    TAIL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last lines of the log, oldest first.
pub fn log_tail() -> Vec<String> {
    tail().lines.iter().cloned().collect()
}

/// Lines written so far, for [`since`].
pub(crate) fn mark() -> usize {
    tail().written
}

/// The lines written since then, as far as they are kept.
pub(crate) fn since(mark: usize) -> Vec<String> {
    let tail = tail();
    let new = tail.written.saturating_sub(mark);
    tail.lines.iter().skip(tail.lines.len().saturating_sub(new)).cloned().collect()
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
    // (test: `vdevs_with_typing_mistakes`, one of which only the log tells).
    let bytes = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), length) };
    if level <= CRITICAL || TO_STDERR.load(Ordering::Relaxed) {
        let _ = std::io::stderr().write_all(bytes);
    }
    keep(&String::from_utf8_lossy(bytes));
}

fn keep(text: &str) {
    let mut tail = tail();
    for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        if tail.lines.len() == LINES {
            tail.lines.pop_front();
        }
        tail.lines.push_back(line.to_owned());
        tail.written += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_kept_and_what_is_new_in_it_is_known() {
        let before = mark();
        keep("one\n\ntwo \n");
        assert_eq!(since(before), ["one", "two"]);
        let before = mark();
        assert!(since(before).is_empty());
        (0..LINES + 50).for_each(|n| keep(&n.to_string()));
        assert_eq!((log_tail().len(), since(before).len()), (LINES, LINES));
        assert_eq!(log_tail().last(), Some(&(LINES + 49).to_string()));
        keep("last");
        assert_eq!(since(mark() - 1), ["last"]);
    }
}
