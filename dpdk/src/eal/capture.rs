// SPDX-License-Identifier: Apache-2.0
//! What C code prints on stdout and stderr while it runs.
//!
//! Used only while EAL reads arguments that an operator added: when it does not know one it prints a page of usage.
//! Other threads' output of that moment is caught too, and passed on to stderr when the call has succeeded.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const STDOUT: RawFd = 1;
const STDERR: RawFd = 2;

/// Runs `call` and gives its result (negative: failure) with what was printed meanwhile.
pub(crate) fn output(call: impl FnOnce() -> i32) -> (i32, String) {
    let (Some(sink), Some(stdout), Some(stderr)) = (memory_file(), duplicate(STDOUT), duplicate(STDERR))
    else {
        return (call(), String::new());
    };
    replace(STDOUT, sink.as_raw_fd());
    replace(STDERR, sink.as_raw_fd());
    let result = call();
    flush_c_streams();
    replace(STDOUT, stdout.as_raw_fd());
    replace(STDERR, stderr.as_raw_fd());
    let printed = read(sink);
    if result >= 0 {
        let _ = std::io::stderr().write_all(printed.as_bytes());
    }
    (result, printed)
}

fn memory_file() -> Option<File> {
    // SAFETY: the name is a string that ends in 0.
    let fd = unsafe { libc::memfd_create(c"eal-output".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: a new descriptor that nobody else owns.
    (fd >= 0).then(|| unsafe { File::from_raw_fd(fd) })
}

fn duplicate(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: duplicating a descriptor touches no memory.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    // SAFETY: a new descriptor that nobody else owns.
    (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) })
}

fn replace(fd: RawFd, by: RawFd) {
    // SAFETY: both are open; fd is one of the standard streams, which keep their numbers.
    let _ = unsafe { libc::dup2(by, fd) };
}

fn flush_c_streams() {
    // SAFETY: a null pointer means all streams.
    let _ = unsafe { libc::fflush(core::ptr::null_mut()) };
}

fn read(mut file: File) -> String {
    let mut bytes = Vec::new();
    let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}
