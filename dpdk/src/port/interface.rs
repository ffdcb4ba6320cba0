// SPDX-License-Identifier: Apache-2.0
//! The kernel's view of a network interface.
//!
//! The af_packet driver reports its link as up whatever happens, so the flags come from the kernel. The socket fixes
//! the network namespace: that of the process when the port was opened.

use core::mem::zeroed;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// An interface by name.
#[derive(Debug)]
pub(super) struct Interface {
    name: String,
    socket: UdpSocket,
}

impl Interface {
    /// `None` where the name is too long or there is no socket to ask by.
    pub(super) fn open(name: &str) -> Option<Self> {
        if name.len() >= libc::IFNAMSIZ {
            return None;
        }
        Some(Self {
            name: name.to_owned(),
            socket: UdpSocket::bind("127.0.0.1:0").ok()?,
        })
    }

    /// Whether it is up and has a carrier; an interface that is gone is not.
    pub(super) fn is_running(&self) -> bool {
        // SAFETY: zeroes are a valid value of this plain C structure.
        let mut request: libc::ifreq = unsafe { zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = from.cast_signed();
        }
        // SAFETY: SIOCGIFFLAGS reads the name and writes the flags of the structure, which lives through the call.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) };
        if result != 0 {
            return false;
        }
        // SAFETY: the kernel has written this member of the union.
        let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
        let wanted = libc::IFF_UP | libc::IFF_RUNNING;
        flags & wanted == wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_does_not_run() {
        assert!(!Interface::open("sluice-none").unwrap().is_running());
        assert!(Interface::open("a-name-that-is-too-long").is_none());
    }
}
